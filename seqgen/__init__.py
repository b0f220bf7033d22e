"""seqgen: train a language model on a text file, write with it, and score text with it."""

from __future__ import annotations

# Type checkers know this name. The module `typing` takes milliseconds to import, in which Ctrl-C
# would find no handler yet.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import FrameType
    from typing import Any

    from seqgen.engines.precision import Precision
    from seqgen.scoring.api import Model
    from seqgen.scoring.compare import Comparison
    from seqgen.scoring.perplexity import Perplexity
    from seqgen.settings.scoring import CacheConfig
    from seqgen.training.session import TrainingResult

__version__ = "0.2.0"

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


def _import_depth(frame: FrameType | None) -> int:
    """Count the import system's frames among a frame and its callers; 0 outside of imports."""
    depth = 0
    while frame is not None:
        depth += frame.f_code.co_filename == _IMPORT_SYSTEM
        frame = frame.f_back
    return depth


def _interrupted_line(arguments: list[str]) -> str:
    """Return the line that ends an interrupted command, unless a training run is saved."""
    command, *others = arguments or [""]
    resumes = any(word.split("=")[0] == "--resume" for word in others)
    return f"interrupted{'; nothing saved yet' if command == 'train' and not resumes else ''}"


def load(
    name: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    cache: CacheConfig | None = None,
) -> Model:
    """Load a trained model to generate with: `seqgen.load("latest").sample("Once")`.

    Args:
        name: a name, a path, or "latest" or None for the latest written.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32, or what an imported model's weights are in on a CPU.
        cache: a continuous cache to put beside it, such as `CacheConfig(500)`.

    Raises:
        SeqgenError: there is no such model, or it is damaged, or it can have no cache.
    """
    # Only now, so that `import seqgen` loads no torch.
    from seqgen.scoring import api
    from seqgen.store import loading

    stored = loading.find_all(name)
    reduced = any(part.reduced_types for part in loading.parts_of(stored))
    work = loading.Work(lasting=True) if reduced else None
    return api.Model(loading.load(stored, device, precision, cache, work))


def train(
    data: str | Path | Sequence[str | Path] | Iterable[Any] = (),
    *,
    text: str | Iterable[str] | None = None,
    field: str | None = None,
    name: str | None = None,
    architecture: str | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model and store it: `seqgen.train("book.txt", minutes=2)`.

    Args:
        data: a file, a folder or a pattern, or a list of them. Or an iterable of texts: a column of
            pandas or polars, a data set or a column of Hugging Face datasets, a generator. Each
            text is then a document that ends with a newline; missing ones are left out.
        text: the text itself instead: a string, or strings that are joined as they are.
        field: of records and frames: the key or column of the texts; "text" if None.
        name: what to call the model; made from the data's name if None.
        architecture: a name that `seqgen models --architectures` lists; if None, a network with an
            n-gram model, as `seqgen train` makes it.
        options: every setting by name, such as `minutes` and `hidden_size`; and the other
            arguments of `seqgen.training.train.train`, such as `overwrite`, `preset` and `report`.

    Raises:
        UsageError: a setting is unknown or wrong, or the name is in use.
        SeqgenError: the data cannot be read, or the model cannot be written.
    """
    from seqgen.training import train as training

    return training.train_given(data, text, field, name=name, architecture=architecture, **options)


def score(
    model: Model | str | Path | None,
    text: str | Path | Iterable[str] | None = None,
    *,
    labels: Sequence[str] = (),
    **options: Any,
) -> Perplexity:
    """Score a text under a model: `seqgen.score("latest", "Once upon a time").bits_per_char`.

    Args:
        model: a loaded model, or what `load` takes.
        text: a string, or strings that are joined as they are; a `Path` is the file there. The
            text that the model holds out if None.
        labels: of a model that was trained with labels: those of the text.
        options: the options of `seqgen.settings.scoring.Scoring`, by name.

    Raises:
        UsageError: an option is unknown or wrong.
        SeqgenError: there is no such model, or the text is empty or cannot be read.
    """
    from seqgen.scoring import api

    return api.score(model, text, labels, **options)


def compare(
    models: Iterable[Model | str | Path],
    text: str | Path | Iterable[str] | None = None,
    *,
    seed: int = 0,
    resamples: int = 2000,
    **options: Any,
) -> list[Comparison]:
    """Compare models on one text in bits per byte; return one record per model, in order.

    Args:
        models: loaded models, or what `load` takes.
        text: see `score`; the text that all of the models hold out if None.
        seed: of the bootstrap resampling that gives intervals and p-values.
        resamples: how many times the text is resampled.
        options: `documents`, `stride` and `batch_size`, see `seqgen.settings.scoring.TextScoring`.

    Raises:
        UsageError: an option is unknown or wrong, or a model is given twice.
        SeqgenError: there is no such model, or the text is empty or cannot be read.
    """
    from seqgen.scoring import api

    return api.compare(models, text, seed, resamples, **options)

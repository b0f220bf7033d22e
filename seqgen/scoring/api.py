"""Python interface of scoring: `seqgen.score` and `seqgen.compare`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqgen.errors import UsageError
from seqgen.generation.model import Model
from seqgen.scoring import compare as comparing
from seqgen.scoring.evaluate import held_out
from seqgen.scoring.perplexity import Perplexity, perplexity
from seqgen.settings import require
from seqgen.settings.scoring import Scoring, TextScoring
from seqgen.settings.setting import checked_strings
from seqgen.store import loading
from seqgen.text.pairs import Pairs
from seqgen.text.reading import Text, unix_newlines
from seqgen.text.tokenfile import TokenFile, is_token_file, open_token_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqgen.store.loaded import LoadedModel

# A text, or the path of the file with it.
GivenText = str | Path | Iterable[str]


@dataclass(frozen=True)
class TextInMemory:
    """A string with the interface of a `Text` read from files."""

    text: str
    name: str = "the text"

    def chunks(self) -> Iterator[str]:
        """Yield the text in one piece."""
        yield self.text


def score(
    model: Model | str | Path | None,
    text: GivenText | None,
    labels: Sequence[str],
    **options: Any,
) -> Perplexity:
    """Score a text under a model; see `seqgen.score`."""
    scoring = Scoring.of(**options)
    loaded = _loaded(model).with_labels(labels)
    if text is None:
        kept = held_out(loaded)
        scored, file = [kept] if isinstance(kept, str) else kept, "validation"
    else:
        scored = _open_for_model(loaded, text, loaded.data.newlines)
        file = str(text) if isinstance(text, Path) else None
    return perplexity(loaded, scored, file=file, scoring=scoring)


def compare(
    models: Iterable[Model | str | Path],
    text: GivenText | None,
    seed: int,
    resamples: int,
    **options: Any,
) -> list[comparing.Comparison]:
    """Compare models on one text; see `seqgen.compare`."""
    scoring = Scoring(**TextScoring.of(**options).keywords)
    loaded = [_loaded(model) for model in models]
    require(bool(loaded), "give the models to compare")
    if text is None:
        in_pairs = loaded[0].conditioning.in_pairs
        require(not in_pairs, f"{loaded[0].name} is compared on pairs: give their text, or a Path")
        compared = comparing.common_text(loaded)
    else:
        compared = _open_for_model(loaded[0], text, "keep")
        if isinstance(compared, TokenFile):
            raise UsageError(f"{text} is a token file: give the text, or the Path of its file")
        compared = compared if isinstance(compared, Pairs) else "".join(compared)
    return comparing.compare(loaded, compared, scoring=scoring, seed=seed, resamples=resamples)


def _loaded(model: Model | str | Path | None) -> LoadedModel:
    return model.loaded if isinstance(model, Model) else loading.load(model)


def _open_for_model(
    loaded: LoadedModel, text: GivenText, newlines: Literal["keep", "lf"]
) -> Iterable[str] | TokenFile | Pairs:
    """Open a text in the form that a model scores: in pieces, or as pairs."""
    in_pairs = loaded.conditioning.in_pairs
    if isinstance(text, Path):
        if not in_pairs and is_token_file(text):
            return open_token_file(text)
        source = Text((text,), newlines)
    else:
        pieces = checked_strings(text)
        source = TextInMemory("".join(unix_newlines(pieces) if newlines == "lf" else pieces))
    return loaded.conditioning.read(source, source.name) if in_pairs else source.chunks()

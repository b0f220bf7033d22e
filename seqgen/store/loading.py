"""Load trained models, and mixtures of models."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import hooks, registry
from seqgen.engines.choice import NO_ARRAY_MODEL, EngineChoice, Workload, choose_engine
from seqgen.errors import SeqgenError, UsageError
from seqgen.models.arrays import ArrayModel
from seqgen.models.inference import InferenceModel
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.settings import WHOLE_NUMBERS, DataConfig, Direction, ReadingPrecision, conform
from seqgen.settings.scoring import CacheConfig
from seqgen.store import layout
from seqgen.store.finding import find_all, with_parts
from seqgen.store.loaded import LoadedModel
from seqgen.store.mixtures import StoredMixture
from seqgen.store.model import StoredModel
from seqgen.text.labels import Labels
from seqgen.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    import torch

    from seqgen.engines.precision import Precision
    from seqgen.models.mixture.equations import Mixed


@dataclass(frozen=True)
class Work:
    """Estimated amount of text that a command will read and generate with a model.

    Attributes:
        read: tokens to score, or more; None for those that the model has held out.
        written: tokens to write, of all texts together.
        rows: texts that are written side by side.
        lasting: the model is used for as long as the process runs, whatever happens to its file.
    """

    read: int | None = 0
    written: int = 0
    rows: int = 1
    lasting: bool = False

    @classmethod
    def of_files(cls, names: Sequence[str], rows: int = 1) -> Work:
        """Estimate the work of reading files; None stands for the held-out text.

        A token has at least a byte. `-` counts what a shell's `< FILE` has; what comes through a
        pipe counts nothing, for its size is not known.
        """
        if not names:
            return cls(read=None, rows=rows)
        paths = [Path("/dev/stdin" if name == "-" else name) for name in names]
        read = sum(path.stat().st_size for path in paths if path.is_file())
        return cls(read=read, rows=rows)

    def of(self, stored: StoredModel | StoredMixture) -> Workload:
        """Estimate the work for one model; a held-out token has at least one byte."""
        read = self.read
        if read is None:
            held_out = stored.validation_text or (stored.validation_pairs or [None])[-1]
            read = held_out.stat().st_size if held_out else 0
        return Workload(read, self.written, self.rows)


def engine_of(
    stored: StoredModel | StoredMixture,
    work: Work | None,
    device: str = "auto",
    precision: Precision = "auto",
) -> EngineChoice:
    """Choose the engine, array engine or PyTorch, for a stored model."""
    rows = [registry.known_architecture(one.config["architecture"]) for one in parts_of(stored)]
    counted = all(row is not None and row.estimator for row in rows)
    load = None if work is None else lambda: work.of(stored)
    return choose_engine(load, device, precision, counted)


def load(
    name: str | Path | StoredModel | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    cache: CacheConfig | None = None,
    work: Work | None = None,
) -> LoadedModel:
    """Load a trained language model.

    `seqgen.engines.choice` decides which engine runs it. Over arrays, PyTorch is not loaded.

    Args:
        name: a name, a path, or None for the latest written; a mixture such as A:0.7+B:0.3; or a
            stored model.
        device: auto, cpu, cuda or mps.
        precision: "auto" is float32: decoding and scoring never round more than they must. bf16,
            int8 and int4 keep matrices in fewer bits.
        cache: a continuous cache to put beside it.
        work: what it is to do; None for anything, which is PyTorch's.

    Raises:
        UsageError: there is no such precision, or the model, or the device, has no whole numbers.
        SeqgenError: there is no such model, or it is damaged, or it can have no cache.
    """
    precision = conform("precision", precision, ReadingPrecision)
    stored = with_parts(name) if isinstance(name, StoredModel) else find_all(name)
    require_language_model(stored)
    loaded = load_any(stored, device, precision, work)
    require_whole_numbers(loaded, precision)
    return loaded if cache is None else with_cache(loaded, cache)


def load_any(
    stored: StoredModel | StoredMixture,
    device: str = "auto",
    precision: Precision = "auto",
    work: Work | None = None,
) -> LoadedModel:
    """Load a stored model that need not be a language model; see `load`."""
    choice = engine_of(stored, work, device, precision)
    if choice.over_arrays:
        loaded = load_over_arrays(stored, work.lasting)
        if loaded is not None:
            return replace(loaded, engine=choice)
        choice = NO_ARRAY_MODEL
    from seqgen.engines.precision import choose_device

    place = choose_device(device)
    if isinstance(stored, StoredMixture):
        return replace(load_mixture(stored, place, precision), engine=choice)
    return replace(load_stored(stored, place, precision), engine=choice)


def parts_of(stored: StoredModel) -> Sequence[StoredModel]:
    """List the parts of a mixture; any other model is its own only part."""
    return stored.parts if isinstance(stored, StoredMixture) else [stored]


def is_language_model(stored: StoredModel) -> bool:
    """Check whether a stored model is a language model or mixture; no if unknown."""
    with contextlib.suppress(SeqgenError, UsageError):
        if stored.is_mixture:
            return True
        row = registry.known_architecture(stored.config["architecture"])
        return row is not None and row.task.model_is is None
    return False


def require_language_model(stored: StoredModel) -> None:
    """Refuse a model or mixture part that is not a language model.

    Raises:
        UsageError: says what it is, and which command is for it.
    """
    for part in parts_of(stored):
        row = registry.known_architecture(part.config["architecture"])
        if row is not None and row.task.model_is is not None:
            raise UsageError(f"{part.name} {row.task.model_is}")


def require_served(command: str, stored: StoredModel, otherwise: str) -> None:
    """Refuse a model that a command does not support, and mixtures.

    Args:
        command: see `Task.serves`.
        stored: the model.
        otherwise: what to say of another kind of model, after its name.

    Raises:
        UsageError: it is one.
    """
    mixed = isinstance(stored, StoredMixture)
    row = registry.known_architecture(stored.config["architecture"])
    # An architecture that is not known is said to be damage where the model is loaded.
    if mixed or (row is not None and command not in row.task.serves):
        raise UsageError(f"{stored.name} {otherwise}")


def with_cache(loaded: LoadedModel, cache: CacheConfig) -> LoadedModel:
    """Add a continuous cache to a model.

    Raises:
        UsageError: the model writes from sources, or the plugin of caches is not installed.
        SeqgenError: it is estimated from counts.
    """
    return hooks.load_method("cache", "continuous-cache", "--cache")(loaded, cache)


def load_over_arrays(stored: StoredModel, whole: bool = False) -> LoadedModel | None:
    """Load a stored model as an array model; None if it has no such form.

    Args:
        stored: what to load.
        whole: read its weights into memory; see `mapped_tensors`.

    Raises:
        SeqgenError: it is damaged.
    """
    if isinstance(stored, StoredMixture):
        parts = [load_over_arrays(part, whole) for part in stored.parts]
        return None if None in parts else _mixed(stored, parts)
    network = stored.load_arrays(whole)
    return None if network is None else _viewed(_assembled(stored, *network), stored.view)


def load_stored(stored: StoredModel, device: torch.device, precision: Precision) -> LoadedModel:
    """Load a stored model in PyTorch; see `load`."""
    from seqgen.engines.precision import in_precision
    from seqgen.store.torch_models import choose_products

    loaded = _assembled(stored, *stored.load())
    choose_products(device)
    loaded = replace(loaded, model=in_precision(loaded.model.to(device), precision))
    hooks.speed_up_steps(loaded.model)
    return _viewed(loaded, stored.view)


def _viewed(loaded: LoadedModel, view: str) -> LoadedModel:
    """Present a loaded model by a view, such as "bytes" or "bytes=all"; "" for none.

    Raises:
        UsageError: the view has no such option.
        SeqgenError: it cannot present this model.
    """
    if not view:
        return loaded
    name, given, option = view.partition("=")
    plugin, target = hooks.by_name("views")[name]
    return plugin.load(target)(loaded, option if given else None)


def _assembled(stored: StoredModel, model: InferenceModel, tokenizer: Tokenizer) -> LoadedModel:
    """Combine a model with its tokenizers and configuration to a `LoadedModel`.

    Raises:
        SeqgenError: its parts do not fit.
    """
    source_tokenizer = stored.load_source_tokenizer(tokenizer)
    labels = source_tokenizer if isinstance(source_tokenizer, Labels) else ()
    if model.vocab_size != tokenizer.vocab_size + len(labels):
        raise SeqgenError(
            f"{stored.path} is damaged: its model has {model.vocab_size} tokens and its "
            f"tokenizer {tokenizer.vocab_size + len(labels)}"
        )
    if labels and not labels.begin < labels.first == tokenizer.vocab_size:
        raise SeqgenError(f"{stored.path} is damaged: its labels do not follow its tokens")
    joint = labels or source_tokenizer is None or source_tokenizer is tokenizer
    sizes = {None} if joint else {source_tokenizer.vocab_size}
    if not joint and source_tokenizer.vocab_size == tokenizer.vocab_size:
        sizes.add(None)  # two ways of cutting texts into the same tokens, as Marian's
    if getattr(model.config, "source_vocab_size", None) not in sizes:
        raise SeqgenError(
            f"{stored.path} is damaged: its model and the tokenizer of its sources do not fit"
        )
    data, framing = stored.settings("data", DataConfig), stored.framing(tokenizer)
    return LoadedModel(stored, model, tokenizer, data, source_tokenizer, own_framing=framing)


def require_whole_numbers(loaded: LoadedModel, precision: Precision) -> None:
    """Refuse int8 and int4 for models without matrices to quantize.

    Raises:
        UsageError: says what can be done.
    """
    if precision not in WHOLE_NUMBERS or loaded.precision == precision:
        return
    raise UsageError(
        f"--precision {precision} is for transformers and recurrent models of text, on a CPU; "
        f"{loaded.stored.name} is none on {loaded.model.device.type}: leave it out, or give "
        "--device cpu"
    )


def load_mixture(stored: StoredMixture, device: torch.device, precision: Precision) -> LoadedModel:
    """Load models as a mixture, by bytes if their tokenizers differ; see `load`.

    N-gram models in it stay as they are: only networks are read in fewer bits.

    Raises:
        SeqgenError: two of them have different tokens, or different ends of a text.
    """
    counted = [part.architecture.estimator is not None for part in stored.parts]
    each = zip(stored.parts, counted, strict=True)
    return _mixed(
        stored, [load_stored(part, device, "auto" if n else precision) for part, n in each]
    )


def _mixed(stored: StoredMixture, parts: Sequence[LoadedModel]) -> LoadedModel:
    """Combine loaded parts into a mixture; see `load_mixture`."""
    parts = _with_one_vocabulary(parts)
    first = parts[0]
    for other in parts[1:]:
        require_alike(first, other)
    model = mixture_of([part.model for part in parts], stored)
    return _viewed(replace(first, stored=stored, model=model), stored.view)


def _with_one_vocabulary(parts: Sequence[LoadedModel]) -> Sequence[LoadedModel]:
    """Present the parts of a mixture over bytes if their tokenizers differ.

    Only models of text have that form; others are returned unchanged.
    """
    alike = all(_vocabulary(part) == _vocabulary(parts[0]) for part in parts)
    of_text = not any(part.conditioning.in_pairs or part.backward for part in parts)
    by_tokens = alike and not any(part.stored.view for part in parts)
    if by_tokens or not of_text or "bytes" not in hooks.by_name("views"):
        return parts
    # How each model of its own ends a text does not matter beside the others.
    return [replace(_viewed(part, "bytes"), own_framing=None) for part in parts]


def mixture_of(parts: Sequence[InferenceModel], stored: StoredMixture) -> Mixed:
    """Mix models of one engine with their stored weights.

    Raises:
        SeqgenError: the weights or the gate do not fit the parts.
    """
    try:
        return joined(parts, MixtureWeights(stored.weights, stored.by_order, stored.gate))
    except ValueError as error:
        raise SeqgenError(f"{stored.path} is damaged: {error}") from None


def joined(parts: Sequence[InferenceModel], weights: MixtureWeights) -> Mixed:
    """Mix models of one engine; see `Mixed.mix`."""
    if all(isinstance(part, ArrayModel) for part in parts):
        from seqgen.models.mixture.arrays import MixtureArrays

        return MixtureArrays(parts, weights)
    from seqgen.models.mixture.model import Mixture

    return Mixture(parts, weights).eval()


def require_alike(first: LoadedModel, other: LoadedModel) -> None:
    """Refuse to mix two models with different tokenizers or text handling.

    Raises:
        SeqgenError: says what differs and, for tokenizers, how to train models that can be mixed.
    """
    names = f"{first.stored.name} and {other.stored.name}"
    if _vocabulary(other) != _vocabulary(first):
        way = _mixing_remedy(first, other)
        raise SeqgenError(f"{names} use different tokenizers and cannot be mixed{way}")
    if _source_vocabulary(other) != _source_vocabulary(first):
        way = _mixing_remedy(first, other)
        raise SeqgenError(f"{names} read their sources differently and cannot be mixed{way}")
    if other.framing != first.framing:
        raise SeqgenError(f"{names} were trained with different --documents and cannot be mixed")
    if other.backward != first.backward:
        raise SeqgenError(f"{names} read in different directions and cannot be mixed")


def _mixing_remedy(first: LoadedModel, other: LoadedModel) -> str:
    """Write how to train models with the same tokenizers; empty if that would not help."""
    both, ways = (first, other), []
    if first.conditioning.is_source != other.conditioning.is_source:
        return ""
    if different := _vocabulary(other) != _vocabulary(first):
        ways.append("--tokenizer pointing at the other")
    joint = all(one.source_tokenizer is one.tokenizer for one in both)  # sources follow --tokenizer
    of_tokens = all(one.source_tokenizer is not None and one.labels is None for one in both)
    apart = _source_vocabulary(other) != _source_vocabulary(first)
    if apart and of_tokens and not (different and joint):
        own = first.source_tokenizer is not first.tokenizer
        folder = first.stored.path / layout.SOURCE_TOKENIZER if own else first.stored.path
        ways.append(f"--source-tokenizer {folder}")
    return f"; train one with {' and '.join(ways)}" if ways else ""


def _vocabulary(loaded: LoadedModel) -> tuple[str, dict]:
    return loaded.tokenizer.kind, loaded.tokenizer.facts()


def _source_vocabulary(loaded: LoadedModel) -> tuple[str, Any] | None:
    """Return the source vocabulary or vector width; None for a text model."""
    if loaded.conditioning.features is not None:
        return "vectors", loaded.conditioning.features
    tokenizer = loaded.source_tokenizer
    return None if tokenizer is None else (tokenizer.kind, tokenizer.facts())


@dataclass(frozen=True)
class StoredDirection(StoredModel):
    """One direction of a stored bidirectional model; `path` is their common folder.

    Attributes:
        direction: which one.
    """

    direction: Direction

    @property
    def name(self) -> str:
        """Name of the model and the direction."""
        return f"{StoredModel(self.path).name}:{self.direction}"

    @cached_property
    def digest(self) -> str:
        """Hash of the model and the direction."""
        whole = f"{StoredModel(self.path).digest} {self.direction}"
        return hashlib.sha256(whole.encode()).hexdigest()


def directions_of(loaded: LoadedModel) -> list[LoadedModel]:
    """Split a bidirectional model into its left-to-right and right-to-left models."""
    model = loaded.model
    return [
        replace(
            loaded,
            stored=StoredDirection(loaded.stored.path, direction),
            model=one,
            data=replace(loaded.data, direction=direction),
        )
        for direction, one in (("forward", model.forwards), ("backward", model.backwards))
    ]


def load_directions(
    name: str | Path | None,
    device: str,
    precision: Precision,
    cache: CacheConfig | None,
    work: Work,
) -> list[LoadedModel]:
    """Load a model for scoring; a bidirectional model gives its two directions.

    See `load`.
    """
    stored = find_all(name)
    row = registry.known_architecture(stored.config["architecture"])
    plain = cache is None and not isinstance(stored, StoredMixture) and row is not None
    kind = (row.load_arrays() or row.load_model()) if plain else None
    if kind is not None and kind.both_ways:
        loaded = load_any(stored, device, precision, work)
        require_whole_numbers(loaded, precision)
        return directions_of(loaded)
    return [load(name, device, precision, cache, work)]

"""Mixtures of stored models, and their references to the parts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.errors import SeqgenError
from seqgen.files import json_bytes, require_regular
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.store import layout
from seqgen.store.folder import copy_folder, link_file, tensor_pieces
from seqgen.store.layout import models_folder
from seqgen.store.model import Member, Networks, Reference, StoredModel, members_of

if TYPE_CHECKING:
    from seqgen.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class StoredMixture(StoredModel):
    """Unnamed mixture of stored models; `path` is the first one's folder.

    Attributes:
        parts: the models.
        weights: theirs, which sum to 1.
        by_order: for each number of tokens that the n-gram part may match of a context, the
            weights there; empty where the weights are the same in every context.
        gate: the coefficients of a gate, used instead of weights; empty without one.
        fitted_to: where the part of the held-out text ends that these were fitted on.
    """

    parts: tuple[StoredModel, ...]
    weights: tuple[float, ...]
    by_order: tuple[tuple[float, ...], ...] = ()
    gate: tuple[tuple[float, ...], ...] = ()
    fitted_to: int = 0

    @property
    def by(self) -> str | None:
        """Value of `seqgen mix --by` that fitted the weights; None for fixed weights."""
        return "context" if self.gate else "order" if self.by_order else None

    @property
    def name(self) -> str:
        """Value of `-m` that names this mixture."""
        pairs = zip(self.parts, self.weights, strict=True)
        return "+".join(f"{model_argument(part)}:{weight:.6g}" for part, weight in pairs)

    @property
    def is_adapter(self) -> bool:
        """Always false: a mixture is no low-rank adapter, even if a part is."""
        return False

    @property
    def part_names(self) -> list[str]:
        """Names of the parts."""
        return [part.name for part in self.parts]

    @property
    def ngram(self) -> StoredModel | None:
        """Always None: an n-gram model is a part like the others."""
        return None

    @property
    def scored_from(self) -> int:
        """Where the part of the held-out text begins that nothing was fitted on."""
        return max(self.fitted_to, scored_from_of(self.parts))

    @property
    def size(self) -> int:
        """Bytes on disk of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def files(self) -> list[Path]:
        """All files of the parts."""
        return [file for part in self.parts for file in part.files]

    @cached_property
    def digest(self) -> str:
        """Hash of the parts and their weights."""
        pairs = zip(self.parts, self.weights, strict=True)
        decisive = [[part.digest, weight] for part, weight in pairs]
        if self.by_order:
            decisive.append(self.by_order)
        if self.gate:
            decisive.append(["gate", *self.gate])
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()

    @property
    def validation_text(self) -> Path | None:
        """Held-out text that all parts end theirs with, so that none was trained on it.

        Different tokenizers begin to hold out the same text in slightly different places.
        """
        paths = [part.validation_text for part in self.parts]
        if None in paths:
            return None
        texts = {path: require_regular(path).read_bytes() for path in paths}
        shortest = min(texts, key=lambda path: len(texts[path]))
        return shortest if all(text.endswith(texts[shortest]) for text in texts.values()) else None

    @property
    def validation_pairs(self) -> tuple[Path, Path] | None:
        """Held-out pairs shared by all parts."""
        pairs = [part.validation_pairs for part in self.parts]
        if None in pairs:
            return None
        texts = {tuple(require_regular(path).read_bytes() for path in both) for both in pairs}
        return pairs[0] if len(texts) == 1 else None

    def with_weights(self, weights: Sequence[float]) -> StoredMixture:
        """Copy the mixture with fixed weights, the same in every context."""
        return StoredMixture(self.parts[0].path, self.parts, tuple(weights))


@dataclass(frozen=True)
class SavedMixture(StoredMixture):
    """Mixture with a folder of its own, from which it takes `path`, name and held-out text.

    A mixture of other models has no held-out text there.
    """

    ngram = StoredModel.ngram
    scored_from = StoredModel.scored_from

    @property
    def name(self) -> str:
        """Name of its folder, and its view if it has one."""
        return StoredModel(self.path, view=self.view).name

    @property
    def files(self) -> list[Path]:
        """Its configuration, and all files of the parts."""
        return [self.path / layout.CONFIG, *super().files]

    @cached_property
    def digest(self) -> str:
        """Hash of the weights, and of the parts when they were mixed."""
        return StoredModel(self.path, view=self.view).digest

    @property
    def validation_text(self) -> Path | None:
        """Held-out text in its folder, or that is shared by all parts."""
        return StoredModel(self.path).validation_text or super().validation_text


def scored_from_of(models: Sequence[StoredModel]) -> int:
    """Find where what nothing was fitted on begins in the held-out text that models share.

    That is the shortest of theirs, see `StoredMixture.validation_text`. Of a single network, only
    time limits what is scored.
    """
    begins = [model.scored_from if model.is_mixture else 0 for model in models]
    paths = [model.validation_text for model in models]
    if not any(begins) or None in paths:
        return max(begins)
    sizes = [len(require_regular(path).read_bytes().decode(errors="replace")) for path in paths]
    return max(0, *(min(sizes) - size + begin for size, begin in zip(sizes, begins, strict=True)))


def model_argument(model: StoredModel) -> str:
    """Format a model as a value of `-m` that works in every working directory."""
    inside = model.path.parent == models_folder()
    view = f":{model.view}" if model.view else ""
    return f"{model.path.name if inside else model.path}{view}"


# What is copied of a part: all but its checkpoints, its logs and its lock.
COPIED = (layout.CONFIG, layout.RECORD, layout.WEIGHTS)
COPIED += (layout.TOKENIZER, layout.SOURCE_TOKENIZER, layout.VALIDATION_FOLDER)
# What a message says of a part that is gone, and what to do.
ROLE = "is a mixture, and its part"
REMEDY = "mix it again with seqgen mix (its --copy keeps copies of the parts)"
# How far the sum of a context's weights may be from 1.
ROUNDING = 1e-6


def resolve(stored: StoredModel) -> SavedMixture:
    """Find the parts of a stored mixture.

    Args:
        stored: its folder.

    Raises:
        SeqgenError: a part is gone or has changed, or the folder is damaged.
    """
    weights = mixture_weights(stored)
    parts = _parts_inside(stored) or tuple(
        stored.referred(reference, ROLE, REMEDY) for reference in stored.part_references
    )
    return SavedMixture(stored.path, parts, *weights, view=stored.view)


def _parts_inside(stored: StoredModel) -> tuple[StoredModel, ...]:
    """Return the parts that were trained together: networks, and an n-gram model if there is one.

    Raises:
        SeqgenError: the configuration is damaged.
    """
    members, ngram = members_of(stored), stored.ngram
    return members if ngram is None else (*(members or (stored.networks,)), ngram)


def current_parts(stored: StoredModel) -> list[tuple[Reference, StoredModel | None]]:
    """Pair each reference of a mixture with its part; None if it is gone or changed.

    Raises:
        SeqgenError: the mixture's configuration is damaged.
    """
    parts: list[tuple[Reference, StoredModel | None]] = [
        (Reference(part.name, part.digest), part) for part in _parts_inside(stored)
    ]
    for reference in stored.part_references:
        part = None
        with contextlib.suppress(SeqgenError, OSError):
            part = stored.referred(reference, ROLE, REMEDY)
        parts.append((reference, part))
    return parts


def mixture_weights(stored: StoredModel) -> MixtureWeights:
    """Read a mixture's weights.

    Raises:
        SeqgenError: they are missing or damaged, or do not fit the parts.
    """
    if stored.ngram is not None:
        return _weights_beside_ngram(stored)
    if stored.members:
        return MixtureWeights(stored.members, gate=stored.table_of("members", "gate"))
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = stored.path / layout.WEIGHTS
    try:
        stored.check()
        tensors = load_file(require_regular(path))
        flat = tensors["weights"]
        if not all(table.dtype in (np.float32, np.float64) for table in tensors.values()):
            raise ValueError("weights are numbers in float32 or float64")
    # NumPy has no type for some that a file may hold, such as bf16, unless a library adds
    # it: TypeError or AttributeError.
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise SeqgenError(f"{path} is missing or damaged: {error}") from None
    tables = [tensors.get(name, np.empty((0, 0))) for name in ("by_order", "gate")]
    if flat.ndim != 1 or any(table.ndim != 2 for table in tables):
        raise SeqgenError(f"{path} is damaged: its weights do not fit the parts")
    weights = MixtureWeights(*(table.tolist() for table in (flat, *tables)))
    return _checked(weights, len(stored.part_references), path)


def _weights_beside_ngram(stored: StoredModel) -> MixtureWeights:
    """Read the weights of networks and the n-gram model that is in their folder."""
    fixed = stored.config["ngram"].get("weights")
    tables = (stored.table_of("ngram", name) for name in ("by_order", "gate"))
    weights = MixtureWeights(fixed if isinstance(fixed, list) else [], *tables)
    return _checked(weights, (len(stored.members) or 1) + 1, stored.path / layout.CONFIG)


def _checked(weights: MixtureWeights, parts: int, path: Path) -> MixtureWeights:
    """Refuse weights that do not fit the parts of a mixture, and make tuples of them.

    Raises:
        SeqgenError: names the file that they are from.
    """
    summing = [weights.fixed, *weights.by_order]
    try:
        rows = [*summing, *weights.gate]
        right = all(len(row) == parts and all(map(math.isfinite, row)) for row in rows)
        right = right and all(min(row) >= 0 and abs(sum(row) - 1) < ROUNDING for row in summing)
    except TypeError:
        right = False
    if not right:
        raise SeqgenError(f"{path} is damaged: its weights do not fit the parts")
    tables = (tuple(map(tuple, table)) for table in (weights.by_order, weights.gate))
    return MixtureWeights(tuple(weights.fixed), *tables)


def write_mixture(
    folder: StoredModel, mixture: StoredMixture, tokenizer: Tokenizer, copy: bool
) -> None:
    """Write a mixture's configuration, tokenizers and weights into its new folder.

    Args:
        folder: the new folder.
        mixture: what to write.
        tokenizer: the mixture's, which is that of bytes where those of the parts differ.
        copy: put copies of the parts beside the weights.

    Raises:
        SeqgenError: it cannot be written; or a part has changed meanwhile.
    """
    import numpy as np
    from safetensors.numpy import save

    from seqgen.text.tokenizers import kind_in

    first = mixture.parts[0]
    references = [part.reference for part in mixture.parts]
    if copy:
        for part in mixture.parts:
            if part.is_adapter:
                raise SeqgenError(
                    f"{part.name} holds low-rank adapters, and a copy of it would still need its "
                    "base: leave out --copy"
                )
        references = [_copy(folder, part) for part in mixture.parts]
    facts = [reference.to_dict() for reference in references]
    size = {"vocab_size": first.config["model"].get("vocab_size"), "reads": first.task.stored_as}
    data, folders = first.config["data"], [layout.TOKENIZER, layout.SOURCE_TOKENIZER]
    if kind_in(first.path / layout.TOKENIZER) != tokenizer.kind:
        size["vocab_size"] = tokenizer.vocab_size
        data = data | {"tokenizer": tokenizer.kind, "vocab_size": None}
        with folder.writing(folders[0]):
            tokenizer.save(folder.path / folders.pop(0))
    groups = {"model": size, "training": {}, "data": data, "parts": facts}
    groups |= {"scored_from": mixture.scored_from} if mixture.scored_from else {}
    folder.write_config(layout.MIXTURE, **groups)
    for part in folders:
        if (first.path / part).is_dir():
            with folder.writing(part):
                copy_folder(first.path / part, folder.path / part)
    tensors = {"weights": np.array(mixture.weights, dtype=np.float64)}
    for name, table in (("by_order", mixture.by_order), ("gate", mixture.gate)):
        if table:
            tensors[name] = np.array(table, dtype=np.float64)
    folder.replace_part(layout.WEIGHTS, save(tensors))


def _copy(folder: StoredModel, part: StoredModel) -> Reference:
    """Copy a part into a mixture's folder, and return the reference to the copy."""
    stem = name = replace(part, view="").name
    number = 2
    while (folder.path / layout.PARTS / name).exists():
        name, number = f"{stem}-{number}", number + 1
    copied = StoredModel(folder.path / layout.PARTS / name, view=part.view)
    with folder.writing(layout.PARTS):
        copied.path.mkdir(parents=True)
        for item in COPIED:
            source = part.path / item
            if source.is_dir():
                copy_folder(source, copied.path / item)
            elif isinstance(part, Member) and item == layout.WEIGHTS:
                copied.replace_part(item, *tensor_pieces(part.own_tensors()))
            elif isinstance(part, Networks) and item == layout.CONFIG:
                copied.replace_part(item, json_bytes(part.config))
            elif item == layout.WEIGHTS:
                link_file(source, copied.path / item)  # it is only ever replaced as a whole
            elif source.exists():
                shutil.copyfile(source, copied.path / item)
    copied.seal()
    if not isinstance(part, Member) and copied.digest != part.digest:
        raise SeqgenError(f"{part.name} changed while it was copied; nothing was saved")
    return Reference(stem, copied.digest, f"{layout.PARTS}/{name}", part.view or None)

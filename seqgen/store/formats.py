"""Import and export formats: interfaces of the readers and writers of other tools' models.

`hooks.ModelFormat` says how a plugin adds a format; its functions are those below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seqgen.settings import DataConfig, Documents

if TYPE_CHECKING:
    from torch import Tensor

    from seqgen.engines.blocks import BlockMatrix
    from seqgen.models.base import LanguageModel
    from seqgen.text.framing import Framing
    from seqgen.text.labels import Labels
    from seqgen.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters without their base model.

    Attributes:
        tensors: their parts by name, see `models.low_rank.adapter_tensors`.
        rank: r.
        alpha: the scale of an update is alpha / r.
    """

    tensors: Mapping[str, Tensor]
    rank: int
    alpha: float


@dataclass(frozen=True)
class ImportedModel:
    """Model read from another tool's file, in seqgen's parts.

    Attributes:
        architecture: its name in the registry.
        model: has its `config`, and its weights unless `tensors` has them.
        tokenizer: its ids.
        data: how its text is read.
        framing: how its texts begin and end.
        facts: what else is to be recorded of it, as JSON can hold it.
        source_tokenizer: the ids of its sources, if they are not those of its texts.
        tensors: what is stored instead of the model's weights: an update of them, or weights in
            the types of the file.
    """

    architecture: str
    model: Any
    tokenizer: Tokenizer
    data: DataConfig
    framing: Framing
    facts: Mapping[str, Any]
    source_tokenizer: Tokenizer | None = None
    tensors: Mapping[str, Tensor | BlockMatrix] | None = None


class LineImporter(Protocol):
    """Base of importers that read a file line by line."""

    def __call__(
        self, lines: Iterable[bytes], path: Path, like: tuple[Tokenizer, DataConfig] | None
    ) -> ImportedModel:
        """Return the model of a file.

        Args:
            lines: of the file, unpacked.
            path: what messages call it.
            like: the tokens that the file is about, and how its text is read; None if the file
                alone says so.

        Raises:
            SeqgenError: it cannot be read, is broken, or has tokens that `like` does not have.
        """


class FolderImporter(Protocol):
    """Base of importers that read a folder, or a file as a whole."""

    def __call__(self, path: Path, like: tuple[Tokenizer, DataConfig] | None) -> ImportedModel:
        """Return the model of a folder or file; see `LineImporter`."""


# What a record calls `ModelToExport.kept`.
KEPT = "tokenizer_config"
# What a record calls the names of an imported model's special tokens, such as `bos_token`.
SPECIAL_TOKENS = "special_tokens"


def facts_of_chat(record: Mapping[str, Any]) -> dict[str, Any]:
    """Select what a record says of an imported model's chats, which holds for fine-tuned ones."""
    return {name: record[name] for name in (KEPT, SPECIAL_TOKENS) if name in record}


@dataclass(frozen=True)
class ModelToExport:
    """Model to write in another tool's format, with its tokenizers.

    Attributes:
        model: with its weights.
        tokenizer: its ids.
        documents: how its text is read.
        framing: how its texts begin and end.
        name: what messages call it.
        source_tokenizer: the ids of its sources, or its labels; None for neither.
        number_type: what its weights are written as, in a format that has a choice (`--type`).
        kept: what an imported model had in `tokenizer_config.json` that seqgen does not use.
        adapters: those that the model's weights contain.
        base: where the model without them is, or what it is called.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    documents: Documents
    framing: Framing
    name: str
    source_tokenizer: Tokenizer | Labels | None = None
    number_type: str = "f32"
    kept: Mapping[str, Any] = field(default_factory=dict)
    adapters: Adapters | None = None
    base: str | None = None


# Takes a model; returns the file in pieces. Raises SeqgenError if the format cannot hold this kind
# of model.
Exporter = Callable[[ModelToExport], Iterable[bytes]]
# The same for the files of a folder, by name, the one that makes it whole last.
FolderExporter = Callable[[ModelToExport], Iterable[tuple[str, bytes]]]

"""Files of other tools: what reads a model from each format, and what writes one.

A new format is a file here and a row in `IMPORTERS`, in `EXPORTERS` or in both. The rows are
"module:function", imported only when used, so that listing the formats loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from seqgen.errors import SeqgenError
from seqgen.registry import load_object
from seqgen.settings import DataConfig, Documents, require

if TYPE_CHECKING:
    from torch import Tensor

    from seqgen.models.base import LanguageModel
    from seqgen.text.framing import Framing
    from seqgen.text.labels import Labels
    from seqgen.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters, apart from the model that they are of.

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
    """What a file of another tool holds, as seqgen stores it.

    Attributes:
        architecture: its name in the registry.
        model: with its weights.
        tokenizer: its ids.
        data: how its text is read.
        framing: how its texts begin and end.
        facts: what else is to be recorded of it, as JSON can hold it.
        source_tokenizer: the ids of its sources, if they are not those of its texts.
        adapters: what is stored instead of the model's weights, if the file is of an update of it.
    """

    architecture: str
    model: Any  # has a config
    tokenizer: Tokenizer
    data: DataConfig
    framing: Framing
    facts: Mapping[str, Any]
    source_tokenizer: Tokenizer | None = None
    adapters: Adapters | None = None


class Importer(Protocol):
    """Reads a file of another tool."""

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
    """Reads a folder of another tool, or a file that is not read line by line."""

    def __call__(self, path: Path, like: tuple[Tokenizer, DataConfig] | None) -> ImportedModel:
        """Return the model of a folder or file; see `Importer`."""


# What a record calls `ModelToExport.kept`.
KEPT = "tokenizer_config"
# Types of the weights in a GGUF file.
NumberType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


@dataclass(frozen=True)
class ModelToExport:
    """What is written for another tool.

    Attributes:
        model: with its weights.
        tokenizer: its ids.
        documents: how its text is read.
        framing: how its texts begin and end.
        name: what messages call it.
        source_tokenizer: the ids of its sources, or its labels; None for neither.
        number_type: what its weights are written as, in a GGUF file.
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
    number_type: NumberType = "f32"
    kept: Mapping[str, Any] = field(default_factory=dict)
    adapters: Adapters | None = None
    base: str | None = None

    def require_no_labels(self) -> None:
        """Refuse a model with labels, which are tokens that its tokenizer does not have.

        Raises:
            SeqgenError: it has some.
        """
        if self.model.vocab_size != self.tokenizer.vocab_size:
            message = f"{self.name} writes texts with labels, which this format cannot hold"
            raise SeqgenError(message)


# Takes a model; returns the file in pieces. Raises SeqgenError if the format cannot hold this kind
# of model.
Exporter = Callable[[ModelToExport], Iterable[bytes]]
# The same for the files of a folder, by name, the one that makes it whole last.
FolderExporter = Callable[[ModelToExport], Iterable[tuple[str, bytes]]]

IMPORTERS: dict[str, str] = {
    "arpa": "seqgen.plugins.exchange.arpa:read_model",
    "word2vec": "seqgen.plugins.vectors.files:read_model",
}
# What is known by more than its first line, and opened by its reader.
FOLDER_IMPORTERS: dict[str, str] = {
    "hf": "seqgen.plugins.exchange.hf_models:read_model",
    "gguf": "seqgen.plugins.exchange.gguf_models:read_model",
}
# Files that run whatever is in them when they are loaded.
PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".ckpt"})
# How a file of the second begins.
GGUF = b"GGUF"
# What knows a format by the first line of a file; ARPA is what none of them knows.
RECOGNISERS: dict[str, str] = {"word2vec": "seqgen.plugins.vectors.files:begins"}
EXPORTERS: dict[str, str] = {
    "arpa": "seqgen.plugins.exchange.arpa:write_model",
    "gguf": "seqgen.plugins.exchange.gguf_models:write_model",
}
# What writes a folder.
FOLDER_EXPORTERS: dict[str, str] = {
    "hf": "seqgen.plugins.exchange.hf_models:files_of",
    "onnx": "seqgen.plugins.exchange.onnx_models:files_of",
    "peft": "seqgen.plugins.exchange.peft_adapters:files_of",
}


# What folders for other tools consist of, as seqgen writes them.
EXPORTED_FILES = {
    "hf": {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"),
        *("tokenizer_config.json", "source.spm", "target.spm", "target_vocab.json", "vocab.json"),
    },
    "onnx": {
        *("encoder.onnx", "step.onnx", "whole.onnx", "onnx.json", "tokenizer.json"),
        *("tokenizer", "source_tokenizer"),
    },
    "peft": {"adapter_config.json", "adapter_model.safetensors"},
}
# What a folder of low-rank adapters has, which is read with the model that they are of.
ADAPTERS = "adapter_config.json"


def folder_importer(path: Path) -> FolderImporter | None:
    """Return what reads a folder of another tool; None for a file that is read line by line.

    Raises:
        SeqgenError: the file is one of a folder, or a pickle.
    """
    if path.suffix == ".safetensors":
        raise SeqgenError(f"{path} is one file of a model: give the folder that it is in")
    if path.suffix in PICKLES:
        raise SeqgenError(
            f"{path} is a pickle, which seqgen never loads; convert its model: "
            "AutoModelForCausalLM (or AutoModelForSeq2SeqLM) "
            ".from_pretrained(folder).save_pretrained(folder) in transformers"
        )
    if path.is_dir():
        return load_object(FOLDER_IMPORTERS["hf"])
    try:
        if not path.is_file():  # reading from a pipe would consume it
            return None
        with path.open("rb") as file:
            known = file.read(len(GGUF)) == GGUF
    except OSError:  # said where the file is read
        return None
    return load_object(FOLDER_IMPORTERS["gguf"]) if known else None


def importer_of(first_line: bytes) -> tuple[str, Importer]:
    """Return the format of a file that begins with this line, and what reads it."""
    known = (name for name, row in RECOGNISERS.items() if load_object(row)(first_line))
    name = next(known, "arpa")
    return name, load_object(IMPORTERS[name])


def exporter(file_format: str) -> Exporter:
    """Return what writes a format.

    Raises:
        UsageError: nothing does.
    """
    known = " or ".join([*EXPORTERS, *FOLDER_EXPORTERS])
    require(file_format in EXPORTERS, f"--format is {known}, not {file_format!r}")
    return load_object(EXPORTERS[file_format])


def folder_exporter(file_format: str) -> FolderExporter:
    """Return what writes a folder in a format."""
    return load_object(FOLDER_EXPORTERS[file_format])

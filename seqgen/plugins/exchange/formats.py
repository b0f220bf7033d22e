"""Registry of the import and export formats that all plugins declare.

A new format is a row in `hooks.Plugin.formats`, of this plugin or another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any, Literal

from seqgen import hooks
from seqgen.errors import SeqgenError
from seqgen.hooks import ModelFormat
from seqgen.settings import require
from seqgen.store.formats import (
    Exporter,
    FolderExporter,
    FolderImporter,
    LineImporter,
    ModelToExport,
)
from seqgen.store.ownership import is_model
from seqgen.text import packing

# What is taken for one of these if no format recognises it: a folder, and a file of lines.
FOLDER, LINES = "hf", "arpa"
# Files that run whatever is in them when they are loaded.
PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".ckpt"})
# What a folder of low-rank adapters has, which is read with the model that they are of.
ADAPTERS = "adapter_config.json"
# Types of the weights in a GGUF file.
NumberType = Literal[
    "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q5_1", "q5_0", "q4_1", "q4_0"
]


def exported_formats() -> dict[str, ModelFormat]:
    """List the export formats by name."""
    return {name: row for name, (_, row) in hooks.by_name("formats").items() if row.exporter}


def format_of_name(name: str) -> str | None:
    """Return the export format that a file's name ends in, such as m.gguf or m.arpa.gz, if any."""
    ending = PurePath(name.removesuffix(".gz")).suffix.removeprefix(".")
    return ending if ending in exported_formats() else None


def folder_importer(path: Path) -> FolderImporter | None:
    """Choose the importer of a folder or a mapped file; None for a file read line by line.

    Raises:
        SeqgenError: the file is one of a folder, or a pickle.
    """
    found = _recognised(path)
    if found is None and path.suffix == ".safetensors":
        raise SeqgenError(f"{path} is one file of a model: give the folder that it is in")
    if found is None and path.suffix in PICKLES:
        raise SeqgenError(
            f"{path} is a pickle, which seqgen never loads; convert its model: "
            "AutoModelForCausalLM (or AutoModelForSeq2SeqLM) "
            ".from_pretrained(folder).save_pretrained(folder) in transformers"
        )
    if found is None and path.is_dir():
        if not (path / "config.json").exists():
            raise SeqgenError(f"{path} is not the folder of a model: it has no config.json")
        if is_model(path):
            place = path if len(path.parts) > 1 else f"./{path}"
            raise SeqgenError(f"{path} is a model of seqgen, and needs no import: -m {place}")
        found = FOLDER
    return found and _load(found, "importer")


def _recognised(path: Path) -> str | None:
    """Detect the format of a folder or a mapped file; None if no importer recognizes it."""
    with contextlib.suppress(OSError):  # said where it is read
        if path.is_dir():
            return next((name for name, is_one in _recognisers("folder") if is_one(path)), None)
        if path.is_file():  # reading from a pipe would consume it
            return next((name for name, is_one in _recognisers("file") if is_one(path)), None)
    return None


def line_importer(first_line: bytes) -> tuple[str, LineImporter]:
    """Choose the format and the importer of a text file by its first line."""
    found = (name for name, is_one in _recognisers("lines") if is_one(first_line))
    name = next(found, LINES)
    return name, _load(name, "importer")


def _recognisers(form: str) -> Iterator[tuple[str, Callable[[Any], bool]]]:
    """Yield the names and detection functions of all import formats of one form."""
    for name, (plugin, row) in hooks.by_name("formats").items():
        if row.form == form and row.importer and row.recogniser:
            yield from ((name, is_one) for is_one in plugin.load_all([row.recogniser]))


def _load(name: str, part: str) -> Any:
    """Load the importer, recogniser or exporter of a format."""
    plugin, row = hooks.by_name("formats")[name]
    return plugin.load(getattr(row, part))


def is_in_format(path: Path, file_format: str) -> bool:
    """Check whether a file is in a format, so that an export may overwrite it."""
    row = exported_formats()[file_format]
    if not row.recogniser:
        return False
    recognises = _load(file_format, "recogniser")
    if row.form == "file":
        return recognises(path)
    try:
        with packing.open_packed(path) as lines:
            return recognises(next(iter(lines), b""))
    except SeqgenError:  # damaged, or a line longer than any
        return False


def exporter(file_format: str) -> Exporter:
    """Load the exporter of a single-file format.

    Raises:
        UsageError: nothing does.
    """
    formats = exported_formats()
    is_file = file_format in formats and formats[file_format].form != "folder"
    require(is_file, f"--format is {' or '.join(formats)}, not {file_format!r}")
    return _load(file_format, "exporter")


def folder_exporter(file_format: str) -> FolderExporter:
    """Load the exporter of a folder format."""
    return _load(file_format, "exporter")


def require_no_labels(exported: ModelToExport) -> None:
    """Refuse a model with labels, whose label tokens are not in the tokenizer.

    Raises:
        SeqgenError: it has some.
    """
    if exported.model.vocab_size != exported.tokenizer.vocab_size:
        raise SeqgenError(
            f"{exported.name} writes texts with labels, which this format cannot hold"
        )

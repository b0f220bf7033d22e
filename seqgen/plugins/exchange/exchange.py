"""Import of other tools' models into the store, and export of stored models."""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from seqgen import __version__, store
from seqgen.errors import SeqgenError, reporting_os_errors
from seqgen.files import unlink_within, write_bytes
from seqgen.interrupts import ending_as_ctrl_c
from seqgen.plugins.exchange import formats, hub
from seqgen.settings import DataConfig, require, shorten
from seqgen.settings.other_tools import pretrained_hint
from seqgen.store import StoredMixture, StoredModel
from seqgen.store.folder import tensor_pieces
from seqgen.store.formats import KEPT, Adapters, ImportedModel, ModelToExport
from seqgen.store.layout import SOURCE_TOKENIZER, TOKENIZER, WEIGHTS, is_known
from seqgen.store.lifecycle import name_of_stem
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import load
from seqgen.store.model import Adapter
from seqgen.text import packing
from seqgen.text.tokenizers import Tokenizer

# What stands before OWNER/NAME in the address of a model's page, as a path has it.
ADDRESS_OF_HUB = re.compile(r"^https?:/+(www\.)?huggingface\.co/")


@ending_as_ctrl_c()
def import_model(
    path: str | Path,
    *,
    name: str | None = None,
    like: str | None = None,
    base: str | None = None,
    overwrite: bool = False,
    tell: Callable[[str], None] = lambda said: None,
    shows_progress: bool = False,
) -> StoredModel:
    """Import a model of another tool and store it.

    Args:
        path: the file, perhaps compressed by gzip; a folder of Hugging Face, or of adapters; or an
            address of the hub, such as `hf:OWNER/NAME`, which is downloaded first.
        name: what to call the model; made from the file's name if None.
        like: a model whose tokens the file is about, and which reads text in the same way; None
            if the file alone says so.
        base: the model that a folder's adapters are of; None for the one that the folder names.
        overwrite: replace a model of that name, when the new one is complete.
        tell: takes lines about a download.
        shows_progress: draw the progress of a download on standard error.

    Raises:
        UsageError: the name is in use.
        SeqgenError: the file cannot be read or is broken, or not be downloaded.
    """
    store.check_free(name, overwrite)
    if hub.is_address(path):
        address = hub.HubAddress.parse(str(path))
        require(like is None, f"--like is for n-gram models: {address} has its own tokenizer")
        snapshot = hub.open_snapshot(address)
        found = hub.download(snapshot, tell, shows_progress)
    else:
        found = _local(Path(path))
    return _import_found(found, name, like, base, overwrite)


def find_or_import(address: str, tell: Callable[[str], None]) -> StoredModel:
    """Return the model of an address of the hub, after importing it if that was not done before.

    Args:
        address: `hf:OWNER/NAME`, with a revision or a GGUF file.
        tell: takes lines about what is done.

    Raises:
        SeqgenError: see `import_model`.
    """
    parsed = hub.HubAddress.parse(address)
    snapshot = hub.open_snapshot(parsed)
    origin = snapshot.origin
    for stored in store.list_models():
        known = stored.record.get("imported")
        if isinstance(known, dict) and {**known, "revision": parsed.revision} == origin:
            tell(f"{address} is already imported as {stored.name}")
            return stored
    found = hub.download(snapshot, tell, shows_progress=False)
    stored = _import_found(found, None, None, None, overwrite=False)
    tell(f"{address} is imported as {stored.name}")
    return stored


def _local(path: Path) -> hub.LocalModel:
    """Describe a file or folder to import.

    Raises:
        SeqgenError: it is the name of a pretrained model, and there is no such path.
    """
    named = ADDRESS_OF_HUB.sub("", str(path))
    if not path.exists() and (hint := pretrained_hint(named)):
        raise SeqgenError(f"there is no file or folder {path}{hint}")
    return hub.LocalModel(path, path.resolve().name, str(path.resolve()))


def _import_found(
    found: hub.LocalModel, name: str | None, like: str | None, base: str | None, overwrite: bool
) -> StoredModel:
    """Import and store a model from a file or folder; see `import_model`."""
    path = found.path
    known = None if like is None else load(like, "cpu")
    # An ARPA file knows no labels, and is read from left to right.
    data = known and replace(known.data, labels=False, direction="forward")
    vocabulary = known and (known.tokenizer, data)
    has_adapters, groups = (path / formats.ADAPTERS).is_file(), {}
    require(has_adapters or base is None, f"--base is for folders of adapters, and {path} is none")
    if has_adapters:
        require(like is None, "--like is for n-gram models: adapters have their base's tokenizer")
        imported, groups = _read_adapters(path, base)
        stem = found.stem
    elif (read_folder := formats.folder_importer(path)) is not None:
        imported, stem = read_folder(path, vocabulary), found.stem
    else:
        imported, stem = _read_lines(path, vocabulary)
    if overwrite and name is None:
        name = name_of_stem(stem)
    with store.building(name, stem, overwrite) as stored:
        groups |= {
            "model": imported.model.config,
            "data": imported.data,
            "framing": imported.framing,
        }
        tables = {name: group.to_dict() for name, group in groups.items()}
        stored.write_config(imported.architecture, **tables, training={})
        with stored.writing(TOKENIZER):
            imported.tokenizer.save(stored.path / TOKENIZER)
            if imported.source_tokenizer is not None:
                imported.source_tokenizer.save(stored.path / SOURCE_TOKENIZER)
        if imported.tensors is None:
            stored.write_weights(imported.model)
        else:
            stored.replace_part(WEIGHTS, *tensor_pieces(imported.tensors))
        stored.write_record(
            created=store.now(),
            seqgen_version=__version__,
            parameters=imported.model.parameter_count(),
            imported=found.origin,
            **imported.facts,
        )
        stored.seal()
        stored.publish()
    return StoredModel(stored.path)


def _read_lines(path: Path, like: tuple[Tokenizer, DataConfig] | None) -> tuple[ImportedModel, str]:
    """Import a model from a text file; also return the file's name without its suffix."""
    with packing.open_packed(path) as file:
        lines = iter(file)
        first = next(lines, b"").removeprefix(codecs.BOM_UTF8)
        file_format, read = formats.line_importer(first)
        imported = read(chain([first], lines), path, like)
    stem = path.name.removesuffix(".gz").removesuffix(".txt").removesuffix(f".{file_format}")
    return imported, stem


def _read_adapters(path: Path, base: str | None) -> tuple[ImportedModel, dict[str, Any]]:
    """Import a folder of low-rank adapters, and find their base model.

    Args:
        path: the folder.
        base: the model that they are of; None for the one that the folder names.

    Raises:
        SeqgenError: there is no such model, or the adapters do not fit it.
    """
    from seqgen.plugins.exchange import peft_adapters

    loaded = load(base or _base_of(path, peft_adapters.base_of(path)), "cpu")
    stored, name = loaded.stored, loaded.stored.name
    require(not isinstance(stored, StoredMixture), f"{name} is a mixture, which has no adapters")
    adapters = peft_adapters.read_adapters(path, loaded.model.config, name)
    imported = ImportedModel(
        architecture=stored.config["architecture"],
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        data=loaded.data,
        framing=loaded.framing,
        facts={},
        source_tokenizer=loaded.source_tokenizer,
        tensors=adapters.tensors,
    )
    return imported, {"adapter": Adapter(stored.reference, adapters.rank, adapters.alpha)}


def _base_of(path: Path, named: str) -> str:
    """Find the stored base model by the name or the import path that the adapters give.

    Raises:
        SeqgenError: there is none, or there are several.
    """
    known = {model.name: model for model in store.list_models()}
    places = str(Path(named).absolute()), named
    found = [named] if named in known else []
    found = found or [name for name, model in known.items() if _place_of(model) in places]
    if len(found) == 1:
        return found[0]
    number = "several models are" if found else "no model is"
    raise SeqgenError(
        f"{path} has adapters of {shorten(repr(named))}, and {number} imported from there: name "
        "the model with --base NAME"
    )


def _place_of(stored: StoredModel) -> str | None:
    """Return where a model was imported from: a path, or a repository on the hub."""
    origin = stored.record.get("imported")
    return origin["repository"] if isinstance(origin, dict) else origin


def default_format(
    loaded: LoadedModel, merge: bool = False, number_type: formats.NumberType = "f32"
) -> str:
    """Choose the export format of a model if the user names none.

    That is "arpa" for n-grams, and "gguf" for a type that only GGUF files have. Any other model is
    written as "hf" if Hugging Face has one like it, else as "onnx".

    Args:
        loaded: the model.
        merge: see `exported`.
        number_type: see `exported`.

    Raises:
        UsageError: see `exported`.
        SeqgenError: likewise.
    """
    if loaded.model.orders is not None:
        return "arpa"
    if number_type != "f32":
        return "gguf"
    whole = _to_export(loaded, merge, "hf")
    try:  # its settings and its tokenizer are checked before the first file
        next(iter(formats.folder_exporter("hf")(whole)))
    except SeqgenError:
        return "onnx"
    return "hf"


def exported(
    loaded: LoadedModel,
    file_format: str,
    merge: bool = False,
    number_type: formats.NumberType = "f32",
) -> Iterable[bytes]:
    """Export a stored model to a single-file format, in pieces.

    Args:
        loaded: the model.
        file_format: the name of a format that is a file.
        merge: of low-rank adapters, write the model that they and their base make together.
        number_type: what weights are written as; all but "f32" need the format "gguf".

    Raises:
        UsageError: there is no such format; or merging or the type has no meaning.
        SeqgenError: the format cannot hold this kind of model.
    """
    whole = _to_export(loaded, merge, file_format)
    _require_type(file_format, number_type)
    return formats.exporter(file_format)(replace(whole, number_type=number_type))


def _require_type(file_format: str, number_type: formats.NumberType) -> None:
    known = file_format == "gguf" or number_type == "f32"
    require(known, f"--type {number_type} is for --format gguf: leave it out")


def _to_export(loaded: LoadedModel, merge: bool, file_format: str) -> ModelToExport:
    """Collect what an exporter needs of a loaded model; see `exported`."""
    name = loaded.stored.name
    if isinstance(loaded.stored, StoredMixture):
        if loaded.stored.members:
            loaded.stored.network_for("export")
        parts = " or ".join(part.name for part in loaded.stored.parts)
        raise SeqgenError(f"{name} is a mixture, which no format can express: export {parts}")
    require(
        loaded.stored.is_adapter or not merge,
        f"--merge is for low-rank adapters, and {name} holds a whole model: leave it out",
    )
    adapts = loaded.stored.is_adapter and not merge
    if adapts and file_format != "peft":
        raise SeqgenError(
            f"{name} holds adapters of {loaded.stored.base.name}: add --merge to write "
            "both together as one model, or --format peft to write the adapters alone"
        )
    if loaded.backward:
        raise SeqgenError(f"{name} reads from right to left, which no format can express")
    documents, framing = loaded.data.documents, loaded.framing
    source, kept = loaded.source_tokenizer, loaded.stored.record.get(KEPT)
    whole = ModelToExport(loaded.model, loaded.tokenizer, documents, framing, name, source)
    whole = replace(whole, kept=kept if isinstance(kept, dict) else {})
    if not adapts:
        return whole
    base, adapter = loaded.stored.base, loaded.stored.adapter
    adapters = Adapters(loaded.stored.own_tensors(), adapter.rank, adapter.alpha)
    return replace(whole, adapters=adapters, base=_place_of(base) or base.name)


def export_model(
    loaded: LoadedModel,
    file_format: str,
    out: str | Path,
    merge: bool = False,
    number_type: formats.NumberType = "f32",
) -> None:
    """Export a stored model to a file (gzip if its name ends so) or to a folder.

    See `exported` for the errors.
    """
    row = formats.exported_formats().get(file_format)
    if row is None or row.form != "folder":
        packing.write_packed(Path(out), exported(loaded, file_format, merge, number_type))
        return
    _require_type(file_format, number_type)
    files = dict(formats.folder_exporter(file_format)(_to_export(loaded, merge, file_format)))
    with reporting_os_errors(f"{out} cannot be written"):
        Path(out).mkdir(parents=True, exist_ok=True)
        _clear(Path(out), row.files, keep={Path(name) for name in files})
        for name, content in files.items():
            (Path(out) / name).parent.mkdir(exist_ok=True)
            write_bytes(Path(out) / name, content)


def _clear(folder: Path, known: Collection[str], keep: Collection[Path]) -> None:
    """Delete files of an earlier export that would be loaded together with the new ones.

    Args:
        folder: of the export.
        known: the names that an export has; with any other in the folder, nothing is deleted.
        keep: the paths in it that are replaced next, which keep their modes.
    """
    inside = list(folder.iterdir())
    if any(path.name not in known for path in inside):
        return
    for path in inside:
        if path.is_symlink() or not path.is_dir():
            if path.is_symlink() or path.relative_to(folder) not in keep:
                unlink_within(path, folder)
            continue
        for file in path.iterdir():
            part = file.relative_to(folder)
            if is_known(part) and (part not in keep or file.is_symlink()):
                unlink_within(file, folder)
        with contextlib.suppress(OSError):  # some of its files stay
            path.rmdir()

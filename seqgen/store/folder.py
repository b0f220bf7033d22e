"""Model folder: atomic file replacement, lock, logs and checkpoints."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any

from seqgen.errors import SeqgenError, first_line
from seqgen.files import (
    HeldFile,
    Piece,
    is_locked_elsewhere,
    is_temporary,
    open_file,
    parse_json,
    replacing,
    require_regular,
    tensor_header,
    unlink_within,
    write_bytes,
)
from seqgen.store import layout, manifest
from seqgen.store.ownership import contents, is_written_by_seqgen, require_model

if TYPE_CHECKING:
    from torch import Tensor

    from seqgen.engines.blocks import BlockMatrix
    from seqgen.text.sources import VectorSources


def copy_folder(folder: Path, other: Path) -> None:
    """Copy a folder; stop at the first file that cannot be copied.

    `shutil.copytree` goes on to the end, and its error then has no reason of the system's.

    Raises:
        OSError: a file cannot be read or written.
    """
    other.mkdir()
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            copy_folder(path, other / path.name)
        else:
            shutil.copyfile(path, other / path.name)


def link_file(path: Path, other: Path) -> None:
    """Hard-link `path` as `other`, or copy it on file systems without links."""
    other.unlink(missing_ok=True)
    try:
        os.link(path, other)
    except OSError:  # a file system without links
        write_bytes(other, require_regular(path).read_bytes())


# What the header of a safetensors file calls torch's types, in the order of the tensors in it.
TYPES = {
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "int32": "I32",
    "bfloat16": "BF16",
    "float16": "F16",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def tensor_pieces(
    tensors: Mapping[str, Tensor | BlockMatrix],
    metadata: dict[str, str] | None = None,
    columns: Mapping[str, Piece] | None = None,
) -> list[Piece]:
    """Return the pieces of a safetensors file: the header, then each tensor without a copy.

    Those that `columns` have are read from there, part by part. The rows of a matrix in blocks are
    bytes, and the metadata says what they are.

    `safetensors.torch.save` returns the same bytes, and takes the memory of two more copies.
    """
    import torch

    from seqgen.engines.blocks import BlockMatrix

    matrices = {name: x for name, x in tensors.items() if isinstance(x, BlockMatrix)}
    types = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    types |= {name: matrix.number_type for name, matrix in matrices.items()}
    rows = {name: x.kinds for name, x in matrices.items() if types[name] == "uint8"}
    order = list(TYPES)
    names = sorted(tensors, key=lambda name: (order.index(types[name]), name))
    header: dict[str, Any] = {"__metadata__": {**(metadata or {}), **rows}}
    if metadata is None and not rows:
        header = {}
    views: list[Piece] = []
    end = 0
    for name in names:
        if name in matrices:
            matrix = matrices[name]
            shape = [matrix.nbytes] if name in rows else [*matrix.shape]
            parts = matrix.pieces()
        else:
            tensor = tensors[name].detach().cpu().contiguous()
            # A single number may have any stride, such as 0, of which torch makes no bytes.
            numbers = tensor.as_strided((tensor.numel(),), (1,))
            shape, parts = [*tensor.shape], [memoryview(numbers.view(torch.uint8).numpy())]
        begin, end = end, end + sum(part.nbytes for part in parts)
        about = {"dtype": TYPES[types[name]], "shape": shape}
        header[name] = {**about, "data_offsets": [begin, end]}
        views += [columns[name]] if columns and name in columns else parts
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *views]


def has_declared_length(weights: Path) -> bool:
    """Check whether a safetensors file has the length that its header implies."""
    try:
        first, header = tensor_header(weights)
        ends = [about["data_offsets"][1] for about in header.values()]
        return weights.stat().st_size == first + max(ends, default=0)
    except (ValueError, KeyError, TypeError, IndexError):
        return False


class MetricsLog:
    """JSON Lines log; each record is written by one call.

    Args:
        file: open, without a buffer.
        writing: returns the context that reports that it cannot be written.
    """

    def __init__(
        self,
        file: IO[bytes] | HeldFile,
        writing: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._file, self._writing = file, writing

    def write(self, record: dict[str, Any]) -> None:
        """Append one record.

        Raises:
            SeqgenError: there is no room for it.
        """
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        with self._writing():
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def step_of(line: bytes) -> float:
    """Read the step of a log line; infinity if the line is incomplete."""
    try:
        return parse_json(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf


@dataclass(frozen=True)
class ModelFolder:
    """Folder of a model of any kind."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the model: its folder's name."""
        return self.path.resolve().name

    @property
    def published(self) -> bool:
        """Whether the folder is in its final place; false only for new models."""
        return True

    @property
    def kept(self) -> str:
        """End of an error message: which files remain if writing fails now."""
        return "what was saved before is whole"

    def read_table(self, part: str) -> dict[str, Any]:
        """Read a JSON object from a file of the folder.

        Raises:
            SeqgenError: the file is missing or damaged, or holds something else.
        """
        try:
            value = parse_json(require_regular(self.path / part).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise SeqgenError(
                f"{self.path / part} is missing: {self.path} is not a model, or a damaged one"
            ) from None
        except OSError as error:
            raise SeqgenError(f"{self.path / part} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise SeqgenError(f"{self.path / part} is damaged: {first_line(error)}") from None
        if not isinstance(value, dict):
            raise SeqgenError(f"{self.path / part} is damaged: it contains no table")
        return value

    @contextlib.contextmanager
    def writing(self, part: str = "") -> Iterator[None]:
        """Convert a write error within the block to one line that names the files left.

        Raises:
            SeqgenError: instead of an OSError.
        """
        path, kept = self.path / part, self.kept
        try:
            yield
        except OSError as error:
            raise SeqgenError(f"{path} cannot be written: {error.strerror}; {kept}") from None

    def place_of(self, part: str) -> Path:
        """Return the path of a file to write, and create its folder.

        Raises:
            OSError: that folder is a link, or cannot be made.
        """
        assert layout.is_known(PurePath(part)), part  # anything else could not be removed
        path = self.path / part
        if path.parent != self.path:
            self.refuse_link(path.parent.name)
            path.parent.mkdir(exist_ok=True)
        return path

    def refuse_link(self, folder: str) -> None:
        """Refuse to write into a subfolder that is a symbolic link.

        Raises:
            OSError: it is one.
        """
        if (self.path / folder).is_symlink():
            raise OSError(errno.ELOOP, f"{self.path / folder} is a link, which is not followed")

    def check(self, largest: int | None = None) -> None:
        """Check the folder against its manifest; checkpoints are checked when read.

        Args:
            largest: skip files of more bytes.

        Raises:
            SeqgenError: a part is missing or was changed.
        """
        named = manifest.read(self.path)
        parts = (part for part in named if not part.startswith(layout.CHECKPOINTS))
        manifest.check(self.path, parts, largest)

    def seal(self) -> None:
        """Write the manifest of a new folder, against which it is checked from now on.

        Raises:
            SeqgenError: it cannot be written.
        """
        if manifest.read(self.path):
            return
        tokenizers = (f"{folder}/*" for folder in (layout.TOKENIZER, layout.SOURCE_TOKENIZER))
        patterns = (layout.CONFIG, layout.RECORD, layout.WEIGHTS, *tokenizers)
        patterns += (f"{layout.VALIDATION_FOLDER}/*", f"{layout.CHECKPOINTS}/*.*")
        paths = (path for pattern in patterns for path in sorted(self.path.glob(pattern)))
        with self.writing(layout.MANIFEST):
            manifest.seal(self.path, [path.relative_to(self.path).as_posix() for path in paths])

    def keep_current_hashes(self) -> None:
        """Drop all but one hash of each file from the manifest of a checked folder.

        Raises:
            SeqgenError: it cannot be written.
        """
        with self.writing(layout.MANIFEST):
            manifest.keep_current_hashes(self.path)

    def replace_part(self, part: str, *pieces: Piece) -> None:
        """Replace a file of the folder atomically, after announcing its hash.

        Raises:
            SeqgenError: it cannot be written; what was there stays.
        """
        with self.writing(part):
            path = self.place_of(part)
            manifest.announce(self.path, {part: manifest.digest(*pieces)})
            write_bytes(path, *pieces)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock this model against other runs; the lock ends with the process.

        Raises:
            SeqgenError: another run has locked it, or it is no model.
        """
        require_model(self.path, "nothing was changed")
        with self.writing(layout.LOCK):
            lock = HeldFile(self.place_of(layout.LOCK), "a+b")
        with lock:
            if is_locked_elsewhere(lock.file):
                raise SeqgenError(f"{self.name} is being trained by another run; wait for it")
            yield

    @property
    def is_locked(self) -> bool:
        """Whether another process is training this model."""
        try:
            with open_file(self.path / layout.LOCK, "rb") as file:
                return is_locked_elsewhere(file)
        except OSError:
            return False

    @contextlib.contextmanager
    def log(self, part: str) -> Iterator[MetricsLog]:
        """Open `metrics.jsonl` or `samples.jsonl` for appending."""
        with self.writing(part):
            file = HeldFile(self.place_of(part), "ab")
        with file:
            yield MetricsLog(file, lambda: self.writing(part))

    def logged(self, part: str) -> list[dict[str, Any]]:
        """Read the complete records of `metrics.jsonl` or `samples.jsonl`."""
        try:
            lines = require_regular(self.path / part).read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if step_of(line) < math.inf]

    def rewind(self, step: int) -> None:
        """Remove log records after a step, and unfinished files of killed runs.

        Raises:
            SeqgenError: the folder cannot be written.
        """
        with self.writing():
            for path in filter(is_temporary, list(contents(self.path))):
                if is_written_by_seqgen(path, self.path):
                    unlink_within(path, self.path)
        for part in (layout.METRICS, layout.SAMPLES):
            with self.writing(part), contextlib.suppress(FileNotFoundError):
                with open_file(self.place_of(part), "rb") as file:
                    lines = file.read().splitlines(keepends=True)
                kept = [x for x in lines if x.endswith(b"\n") and step_of(x) <= step]
                if kept != lines:
                    write_bytes(self.path / part, b"".join(kept))

    def write_held_out(self, part: str, chunks: Iterable[str]) -> None:
        """Write a held-out text, or one side of held-out pairs as lines.

        Raises:
            OSError: it cannot be written, or not be read.
        """
        with replacing(self.place_of(part)) as file:
            for chunk in chunks:
                file.write(chunk.encode())

    def write_held_out_vectors(self, sources: VectorSources) -> None:
        """Write the source vectors of held-out pairs.

        Raises:
            OSError: they cannot be written, or not be read.
        """
        from safetensors.numpy import save

        write_bytes(self.place_of(layout.VALIDATION_VECTORS), save(sources.joined()))


@dataclass(frozen=True)
class TrainingFolder(ModelFolder):
    """Folder of a model that can be trained further, with checkpoints."""

    def write_checkpoint(
        self, tensors: dict[str, Tensor], facts: dict[str, Any], keep: int = 1
    ) -> None:
        """Write a checkpoint; facts go into the tensor file, so that both agree.

        Args:
            tensors: by name.
            facts: what JSON can hold; `facts["run"]["step"]` is the step.
            keep: how many of the latest checkpoints to have afterwards, this one included.

        Raises:
            SeqgenError: it cannot be written; what was there stays.
        """
        folder = self.path / layout.CHECKPOINTS
        content = tensor_pieces(tensors, {"facts": json.dumps(facts)})
        digest = manifest.digest(*content)
        numbered = folder / f"step-{facts['run']['step']:09}.safetensors"
        # Later checkpoints are of a run that was resumed from an earlier step.
        earlier = [path for path in self.earlier_checkpoints() if path < numbered][: keep - 1]
        going = [path for path in self.earlier_checkpoints() if path not in earlier]
        coming = [folder / layout.LAST, numbered] if keep > 1 else [folder / layout.LAST]
        with self.writing(f"{layout.CHECKPOINTS}/{layout.LAST}"):
            self.place_of(f"{layout.CHECKPOINTS}/{layout.LAST}")
            manifest.announce(
                self.path,
                {f"{layout.CHECKPOINTS}/{path.name}": digest for path in coming},
                going=[f"{layout.CHECKPOINTS}/{path.name}" for path in going],
            )
            write_bytes(folder / layout.LAST, *content)
            for path in going:
                unlink_within(path, self.path)
            if keep > 1:
                link_file(folder / layout.LAST, numbered)

    def earlier_checkpoints(self) -> list[Path]:
        """List the earlier checkpoints, the latest first."""
        return sorted((self.path / layout.CHECKPOINTS).glob("step-*.safetensors"), reverse=True)

    def read_checkpoint(
        self, notice: Callable[[str], None] = lambda text: None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Load the last checkpoint; if it is damaged, the one before.

        Args:
            notice: takes a message if it is an earlier one.

        Raises:
            SeqgenError: there is none, or none that is whole; or the manifest is damaged.
        """
        manifest.read(self.path)  # refuses a damaged manifest, with which the model is not usable
        last, *earlier = (self.path / layout.CHECKPOINTS / layout.LAST, *self.earlier_checkpoints())
        try:
            return self._read_checkpoint(last)
        except SeqgenError:
            for path in earlier:
                with contextlib.suppress(SeqgenError):
                    checkpoint = self._read_checkpoint(path)
                    notice(f"{last} is missing or damaged: going on from {path.name}")
                    return checkpoint
            raise

    def _read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        from safetensors import SafetensorError, safe_open

        from seqgen.store.torch_models import read_tensors

        try:
            manifest.check(self.path, [f"{layout.CHECKPOINTS}/{path.name}"])
            with safe_open(require_regular(path), "pt") as file:
                facts = parse_json(file.metadata()["facts"])
            return read_tensors(path), facts
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, SeqgenError) as error:
            raise SeqgenError(
                f"{path} is missing or damaged, so {self.name} cannot be resumed; the model "
                f"itself is usable ({error})"
            ) from None

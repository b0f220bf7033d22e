"""Writing into a model's folder: errors in one line, tensors, and logs line by line."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.files import parse_json, regular, write_bytes

if TYPE_CHECKING:
    from torch import Tensor


@contextlib.contextmanager
def writing(path: Path, kept: str) -> Iterator[None]:
    """Turn an OSError into one line that says that `path` cannot be written.

    Args:
        path: what is written.
        kept: what is left in spite of that.

    Raises:
        SeqgenError: instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise SeqgenError(f"{path} cannot be written: {error.strerror}; {kept}") from None


def copy_folder(folder: Path, other: Path) -> None:
    """Copy a folder, and stop at the first file that cannot be copied.

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
    """Make `other` a second name of the file `path`, which may be replaced later."""
    other.unlink(missing_ok=True)
    try:
        os.link(path, other)
    except OSError:  # a file system without links
        write_bytes(other, regular(path).read_bytes())


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
    tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> list[bytes | memoryview]:
    """Return tensors as a safetensors file: its header, and then each tensor where it lies.

    `safetensors.torch.save` returns the same bytes, and takes the memory of two more copies.
    """
    import torch

    types = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    order = list(TYPES)
    names = sorted(tensors, key=lambda name: (order.index(types[name]), name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    views: list[bytes | memoryview] = []
    end = 0
    for name in names:
        tensor = tensors[name].detach().cpu().contiguous()
        # A single number may have any stride, such as 0, of which torch makes no bytes.
        numbers = tensor.as_strided((tensor.numel(),), (1,))
        view = memoryview(numbers.view(torch.uint8).numpy())
        begin, end = end, end + view.nbytes
        about = {"dtype": TYPES[types[name]], "shape": [*tensor.shape]}
        header[name] = {**about, "data_offsets": [begin, end]}
        views.append(view)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *views]


def is_whole(weights: Path) -> bool:
    """Return whether a safetensors file has the length that its header says."""
    with regular(weights).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = weights.stat().st_size
        if not 0 < length <= size - 8:
            return False
        try:
            header = parse_json(file.read(length))
            ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
            return size == 8 + length + max(ends, default=0)
        except (ValueError, AttributeError, KeyError, TypeError, IndexError):
            return False


class MetricsLog:
    """A log of JSON Lines; each record is one write.

    Args:
        file: open, without a buffer.
        writing: returns the context that reports that it cannot be written.
    """

    def __init__(
        self, file: IO[bytes], writing: Callable[[], contextlib.AbstractContextManager[None]]
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
    """Return the step of a line of a log; infinity if the line is incomplete."""
    try:
        return parse_json(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf

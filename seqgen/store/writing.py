"""Writing in a model's folder: in one line what cannot be, one run at a time, logs line by line."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.files import write_bytes

if TYPE_CHECKING:
    from torch import Tensor


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line that `path` cannot be written.

    Raises:
        SeqgenError: in the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise SeqgenError(
            f"{path} cannot be written: {error.strerror}; what was saved before is whole"
        ) from None


def same_file(path: Path, other: Path) -> None:
    """Make `other` the file that `path` is now; later `path` may be replaced by another."""
    other.unlink(missing_ok=True)
    try:
        os.link(path, other)
    except OSError:  # a file system without links
        write_bytes(other, path.read_bytes())


def take_lock(file: IO[Any]) -> bool:
    """Take an exclusive lock on an open file; return False if another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows, where an open file is lock enough for its writer
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def tensor_bytes(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Return tensors as a safetensors file."""
    from safetensors.torch import save

    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(content, metadata)


def is_whole(weights: Path) -> bool:
    """Return whether a safetensors file is as long as its header says."""
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = weights.stat().st_size
        if not 0 < length <= size - 8:
            return False
        try:
            header = json.loads(file.read(length))
            ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
            return size == 8 + length + max(ends, default=0)
        except (ValueError, AttributeError, KeyError, TypeError, IndexError):
            return False


class Log:
    """A record a logged step, each line one write."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file

    def write(self, record: dict[str, Any]) -> None:
        """Append one record.

        Raises:
            SeqgenError: there is no room for it.
        """
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        with writing(self._path):
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def step_of(line: bytes) -> float:
    """Return the step of a line of a log; infinity if it is not whole."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf

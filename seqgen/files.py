"""Writing files so that a reader, or a run killed half-way, never sees half a file."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path`; on success flush it to disk and rename it to `path`.

    Raises:
        OSError: the folder cannot be written or the disk is full, and then it names `path`, which
            is as it was.
    """
    try:
        handle, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
        )
    except OSError as error:
        raise _about(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        # A full disk's error names no file; one that does is about what is being read.
        if isinstance(error, OSError) and error.filename in (None, temporary):
            raise _about(path, error) from None
        raise
    sync_folder(path.parent)


def _about(path: Path, error: OSError) -> OSError:
    """Return the same error, of the file that was asked for."""
    return OSError(error.errno, error.strerror or str(error), str(path))


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut, where the platform can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step."""
    with replacing(path) as file:
        file.write(content)


def json_bytes(value: Any) -> bytes:
    """Return `value` as indented JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    # Only the name of a file can hold what is not Unicode; JSON has an escape for it.
    return text.encode(errors="backslashreplace") + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as indented JSON in one step."""
    write_bytes(path, json_bytes(value))

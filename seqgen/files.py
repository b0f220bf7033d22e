"""Atomic file writes: no reader, and no killed run, ever leaves half a file."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

try:
    import fcntl
except ImportError:  # Windows, where an open file is lock enough for its writer
    fcntl = None

# The names that `_temporary` makes: of what is written, and some random characters.
TEMPORARY = re.compile(r"\.(.+)\.[a-z0-9_]+\.tmp", re.DOTALL)
# The list of what seqgen has written into folders in which it deletes files by itself; beside them.
LIST = ".written-by-seqgen"
# A header of tensors beyond this is damage: it has some hundred bytes for each.
LARGEST_HEADER = 100_000_000


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file atomically: a temporary file is flushed and renamed to `path` on success.

    Raises:
        OSError: the folder cannot be written or the disk is full, and then it names `path`, which
            is as it was.
    """
    with named_when_written(path, lambda: path) as file:
        yield file


@contextlib.contextmanager
def named_when_written(about: Path, name: Callable[[], Path]) -> Iterator[IO[bytes]]:
    """Write a file atomically whose name depends on its content; see `replacing`.

    Args:
        about: what an error names; the temporary file is beside it.
        name: returns the file's path, in the same folder, when all is written.
    """
    try:
        handle, temporary, lock = _temporary(about)
    except OSError as error:
        if error.errno == errno.ENOENT and about.parent.is_dir():  # as in /proc
            error.strerror = "no file can be made in this folder; choose another"
        raise _error_about(about, error) from None
    with lock:
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            place = name()
            _copy_permissions(place, temporary)
            _append_to_list(place, *_version(temporary.stat()))
            temporary.replace(place)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            # A full disk's error names no file; one that does is about what is being read.
            if isinstance(error, OSError) and error.filename in (None, str(temporary)):
                raise _error_about(about, error) from None
            raise
    sync_folder(about.parent)


def _copy_permissions(place: Path, temporary: Path) -> None:
    """Set the mode and owner of a temporary file to those of the file that it replaces."""
    old = place.lstat() if os.path.lexists(place) else None
    if old is None or not stat.S_ISREG(old.st_mode):
        umask = os.umask(0o077)  # what other threads create in this moment is private
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        return
    mode, new = old.st_mode & 0o777, temporary.stat()
    if old.st_gid != new.st_gid:
        try:
            os.chown(temporary, -1, old.st_gid)
        except OSError:  # another group is not given what that one was allowed
            mode &= ~0o070
    if old.st_uid != new.st_uid:
        with contextlib.suppress(OSError):  # only the superuser gives files away
            os.chown(temporary, old.st_uid, -1)
    temporary.chmod(mode)


def _temporary(path: Path) -> tuple[int, Path, contextlib.ExitStack]:
    """Create a temporary file beside `path`; return its handle, name and lock.

    The lock outlives the handle: it shows others that the file is no leftover until it has been
    renamed.
    """
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        _append_to_list(temporary)  # before it is there, so that none is ever unlisted
        handle = os.open(temporary, CREATING, 0o600)
        _append_to_list(temporary, os.fstat(handle).st_ino)
        lock = contextlib.ExitStack()
        if fcntl is not None:
            lock.callback(os.close, os.dup(handle))
        take_lock(handle, wait=True)
        if temporary.exists():  # `cache.clear_leftovers` may have come before the lock
            return handle, temporary, lock
        lock.close()
        os.close(handle)


# How a file is made that must not be there yet.
CREATING = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
# What opening is not to do: follow a link, or wait for the other end of a pipe.
NOT_THROUGH = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def open_file(path: Path, mode: str) -> IO[bytes]:
    """Open a regular file unbuffered, to write or lock it in place; refuse links and pipes.

    A link of that name may lead to a file of somebody else's, and a pipe to nowhere.

    Args:
        path: the file.
        mode: "rb", "r+b" or "ab"; "a+b" makes a file to be locked, and leaves one that is there.

    Raises:
        OSError: it is a link, a pipe or a device, or cannot be opened.
    """
    try:
        file = open(path, mode, buffering=0, opener=_opener)  # noqa: SIM115
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(
                errno.ELOOP, "it is a link, which is not followed: remove the link", str(path)
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | NOT_THROUGH, 0o666)


def take_lock(file: IO[Any] | int, wait: bool = False) -> bool:
    """Take an exclusive lock on an open file; return False where that is not possible.

    Another process has it, or the file system has no locks, as some network file systems do not.

    Args:
        file: an open file. The lock ends when it is closed, and with the process.
        wait: wait for the other process instead.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def is_locked_elsewhere(file: IO[Any] | int) -> bool:
    """Lock a file where there are locks; return whether another process has locked it."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # a network file system may have no locks
        return isinstance(error, BlockingIOError)
    return False


# Whether an open file, or its folder, can be moved or deleted; not on Windows.
OPEN_FILES_MOVE = os.name != "nt"


class HeldFile:
    """A file of a folder that `move_folder` may move while it is open.

    Args:
        path: the file.
        mode: see `open_file`.
    """

    held: ClassVar[set[HeldFile]] = set()

    def __init__(self, path: Path, mode: str) -> None:
        self.path, self.mode, self.file = path.resolve(), mode, open_file(path, mode)

    def __enter__(self) -> HeldFile:
        self.held.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.held.discard(self)
        self.file.close()

    def write(self, content: bytes) -> int:
        """Write to the file, and return how many bytes there was room for."""
        return self.file.write(content)


def move_folder(folder: Path, place: Path, reopen: bool = True) -> Path:
    """Rename a folder, in which this process may hold files open; return its new path.

    Args:
        folder: the folder.
        place: its new path.
        reopen: hold the files open there too; else they may be deleted. Where open files can be
            moved and deleted, nothing is closed.

    Raises:
        OSError: it cannot be moved.
    """
    if OPEN_FILES_MOVE:
        return folder.rename(place)
    before = folder.resolve()
    held = [file for file in HeldFile.held if file.path.is_relative_to(before)]
    for file in held:
        file.file.close()
    try:
        moved = folder.rename(place)
        for file in held:
            file.path = moved.resolve() / file.path.relative_to(before)
        return moved
    finally:
        for file in held if reopen else ():
            file.file = open_file(file.path, file.mode)


# ---- what seqgen has written, and deleting nothing else ----


def make_listed_folder(folder: Path) -> None:
    """Create a folder whose files seqgen records in a list, and may later delete.

    A file that cannot be listed is written all the same, and never deleted.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        open_file(folder.parent / LIST, "ab").close()


def _append_to_list(path: Path, *facts: int) -> None:
    """Append a file to its folder's list, if any, with facts that identify its version."""
    with contextlib.suppress(OSError), open_file(path.parent.parent / LIST, "r+b") as file:
        take_lock(file, wait=True)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + _line(path, facts))  # a line that a full disk has cut short ends here


def _line(path: Path, facts: Iterable[int]) -> bytes:
    return json.dumps([path.parent.name, path.name, *facts]).encode()


def _version(status: os.stat_result) -> tuple[int, int]:
    """Identify a version of a file by size and modification time, which copies preserve."""
    return status.st_size, status.st_mtime_ns


def listed_files(folder: Path) -> frozenset[bytes]:
    """Read the list of files that seqgen has written to a folder and its siblings."""
    try:
        with open_file(folder.parent / LIST, "rb") as file:
            return frozenset(file.read().split(b"\n"))
    except OSError:
        return frozenset()


def is_listed(path: Path, status: os.stat_result, listed: frozenset[bytes]) -> bool:
    """Check whether seqgen wrote a file and it is unchanged since.

    Args:
        path: the file.
        status: what `os.stat` says of it.
        listed: what `listed_files` returns.
    """
    known = [_version(status), (status.st_ino,) if is_temporary(path) else None]
    known += [()] if status.st_size == 0 else []
    return any(_line(path, facts) in listed for facts in known if facts is not None)


def delete_own(path: Path, root: Path, is_own: Callable[[IO[bytes]], bool]) -> bool:
    """Delete a file if its content or a list shows that seqgen wrote it; return whether it did.

    A file that is locked, because it is being written, stays.

    Args:
        path: the file.
        root: a folder that it is in; below that, no link is followed.
        is_own: whether the open file is.

    Raises:
        OSError: the folder cannot be written.
    """
    with contextlib.ExitStack() as held:
        try:
            name, folder = held.enter_context(_open_folder(path, root))
            file = held.enter_context(_open_for_lock(name, folder))
        except OSError:
            return False
        status = os.fstat(file.fileno())
        if not (stat.S_ISREG(status.st_mode) and take_lock(file) and is_own(file)):
            return False
        try:
            if not os.path.samestat(status, os.stat(name, dir_fd=folder, follow_symlinks=False)):
                return False
            if not OPEN_FILES_MOVE:
                file.close()
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:  # another process has deleted it meanwhile
            return False
        except OSError as error:
            raise _error_about(path, error) from None
        return True


def _open_for_lock(name: str, folder: int | None) -> IO[bytes]:
    """Open a file of a folder for locking, with write access if possible."""
    try:
        handle = os.open(name, os.O_RDWR | NOT_THROUGH, dir_fd=folder)
    except PermissionError:
        handle = os.open(name, os.O_RDONLY | NOT_THROUGH, dir_fd=folder)
    return os.fdopen(handle, "rb", buffering=0)


def unlink_within(path: Path, root: Path) -> None:
    """Delete a file, if it exists, without following links below `root`.

    Raises:
        OSError: the folder cannot be written, or there is a link in the place of one.
    """
    try:
        with _open_folder(path, root) as (name, folder):
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _error_about(path, error) from None


@contextlib.contextmanager
def _open_folder(path: Path, root: Path) -> Iterator[tuple[str, int | None]]:
    """Open the folder of a file without following links; yield its name and the handle.

    Raises:
        OSError: there is no such folder below `root`, or a link is in the place of one.
    """
    *folders, name = path.relative_to(root).parts
    if os.open not in os.supports_dir_fd:  # Windows, where links are rare and need rights
        yield str(path), None
        return
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield name, handle
    finally:
        os.close(handle)


def final_name(name: str) -> str | None:
    """Return the final name of a temporary file of `replacing`; None for other files.

    Its temporary names are `.NAME.RANDOM.tmp`.
    """
    match = TEMPORARY.fullmatch(name)
    return match and match[1]


def is_temporary(path: Path) -> bool:
    """Check by name whether a file is a temporary file of `replacing`."""
    return final_name(path.name) is not None


def _error_about(path: Path, error: OSError) -> OSError:
    """Copy an OSError with the requested path in place of the temporary one."""
    return OSError(error.errno, error.strerror or str(error), str(path))


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that a rename in it survives a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Parts(Protocol):
    """Protocol of file content that can be read repeatedly, part by part."""

    def pieces(self) -> Iterator[Any]:
        """Yield the parts as buffers."""


Piece = bytes | memoryview | Parts


def iterate_parts(pieces: Iterable[Piece]) -> Iterator[Any]:
    """Yield the content of a file part by part."""
    for piece in pieces:
        yield from [piece] if isinstance(piece, bytes | memoryview) else piece.pieces()


def write_bytes(path: Path, *pieces: Piece) -> None:
    """Replace a file atomically by concatenated pieces of content."""
    with replacing(path) as file:
        file.writelines(iterate_parts(pieces))


def require_regular(path: Path) -> Path:
    """Return the path unchanged after checking that it is no pipe, device or socket.

    Raises:
        OSError: there is none, or it is a FIFO, a device or a socket.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path


def begins_with(path: Path, signature: bytes) -> bool:
    """Check whether a file begins with a byte signature."""
    with path.open("rb") as file:
        return file.read(len(signature)) == signature


# What messages call files that hold a copy of an input, by their names.
TITLES_OF_COPIES: dict[str, str] = {}


def input_title(name: str) -> str:
    """Name a file for messages: "-" becomes standard input, and a copy what it is a copy of."""
    return "standard input" if name == "-" else TITLES_OF_COPIES.get(name, name)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of any nesting depth without a RecursionError.

    Raises:
        ValueError: it is no JSON, or is nested more deeply than any file of seqgen.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(raw: str) -> dict[str, Any]:
    """Parse TOML; raises ValueError if it is not valid."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(raw)


def tensor_header(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Read a safetensors file's header; return the data offset and the header.

    Raises:
        OSError, ValueError: the file is missing, or its header is damaged.
    """
    with require_regular(path).open("rb") as file:
        return read_tensor_header(file)


def read_tensor_header(file: IO[bytes]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Read the safetensors header at the start of an open file; see `tensor_header`.

    A tensor that the metadata of the file says something of has that as `rows`.
    """
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(LARGEST_HEADER, os.fstat(file.fileno()).st_size - 8):
        raise ValueError("the header does not fit the file")
    header = parse_json(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("the header is not a table")
    metadata = header.pop("__metadata__", None) or {}
    if not all(isinstance(about, dict) for about in (*header.values(), metadata)):
        raise ValueError("the header is damaged")
    for name in header.keys() & metadata.keys():
        header[name]["rows"] = metadata[name]
    return 8 + length, header


def json_bytes(value: Any) -> bytes:
    """Serialize `value` as indented JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    # Only the name of a file can hold what is not Unicode; JSON has an escape for it.
    return text.encode(errors="backslashreplace") + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Replace a file atomically by `value` as indented JSON."""
    write_bytes(path, json_bytes(value))


def drop_unwritable_output() -> None:
    """Drop output that cannot be written; Python would try again at its end, and exit with 120."""
    try:
        sys.stdout.flush()
    except (AttributeError, ValueError):  # there is none, or it is closed
        pass
    except OSError:  # the disk is full, say, which has been reported
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

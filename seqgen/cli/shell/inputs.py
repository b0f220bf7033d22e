"""Input files of a command: regular files, pipes and standard input behind one interface."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

from seqgen import hooks
from seqgen.cli.shell import recording
from seqgen.cli.shell.output import announce, say
from seqgen.errors import SeqgenError, UsageError, reporting_unreadable
from seqgen.files import TITLES_OF_COPIES, input_title
from seqgen.limits import read_whole
from seqgen.packages import MissingPackage
from seqgen.settings import require
from seqgen.wording import first_names, plural

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.text.tokenfile import TokenFile

BLOCK = 1 << 20
# A pipe that is shorter than this is kept in memory.
IN_MEMORY = 1 << 24
# Documents of a folder that a command says something about, each on a line.
DOCUMENTS_NAMED = 5
# Identifies a file whatever it is called: its device and its inode.
Identity = tuple[int, int]


def file_name(name: str) -> str:
    """Check the name of a FILE argument: it must not be empty.

    Raises:
        UsageError: it is empty, as it is where a shell's variable is not set.
    """
    require(bool(name), "a file has no name: the argument is empty (is a shell variable unset?)")
    return name


def file_path(name: str) -> Path:
    """Convert a FILE argument to a path; see `file_name`."""
    return Path(file_name(name))


def piped_input() -> IO[bytes] | None:
    """Open standard input if it is a pipe, a file or a socket; None for a terminal or no input.

    None for no input, a terminal, or a character device such as /dev/null.
    """
    status = _standard_input()
    return None if status is None or stat.S_ISCHR(status.st_mode) else sys.stdin.buffer


def input_bytes() -> Iterator[bytes]:
    """Yield standard input in blocks as they arrive.

    Raises:
        SeqgenError: there is no standard input.
    """
    if sys.stdin is None:
        raise SeqgenError("there is no standard input to read")
    recording.run.stdin = True
    # Past Python's buffer, whose lock a thread that waits for input would hold when the program
    # ends: Python then aborts.
    descriptor = sys.stdin.fileno()
    yield from iter(lambda: os.read(descriptor, BLOCK), b"")


def given_or_piped(names: Iterable[str | None], usage: str) -> list[str]:
    """Use the given file names, or `-` if none is given and something is piped in.

    Raises:
        UsageError: there is neither; says `usage`.
    """
    given = [name for name in names if name is not None]
    require(bool(given) or piped_input() is not None, f"give a text file: {usage}")
    return given or ["-"]


class Pipe:
    """Buffer that lets a pipe or standard input be read several times."""

    def __init__(self, coming: Iterator[bytes]) -> None:
        self._coming = coming
        self._kept = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        self._size = 0
        self._passed = False

    def blocks(self) -> Iterator[bytes]:
        """Yield all blocks from the beginning, buffering them so that this can be called again."""
        assert not self._passed, "what was passed on was not kept"
        at = 0
        while block := self._block(at):
            at += len(block)
            yield block

    def _block(self, at: int) -> bytes:
        if at < self._size:
            self._kept.seek(at)
            return self._kept.read(BLOCK)
        block = next(self._coming, b"")
        self._kept.seek(0, os.SEEK_END)
        self._kept.write(block)
        self._size += len(block)
        return block

    def pass_on(self) -> Iterator[bytes]:
        """Yield all blocks from the beginning without buffering new ones, for the last reader."""
        self._kept.seek(0)
        kept = list(iter(lambda: self._kept.read(BLOCK), b""))
        self._passed = True
        return chain(kept, self._coming)

    def begins_with(self, word: bytes) -> bool:
        """Check whether the first bytes are `word`, reading no more blocks than needed."""
        head = b""
        for block in self.blocks():
            head += block
            if len(head) >= len(word) or not word.startswith(head):
                break
        return head.startswith(word)


@dataclass(frozen=True)
class Input:
    """Text or token file that can be read any number of times.

    Attributes:
        name: as it was given; of a file in a folder, its path; `-` for standard input.
        identity: equal for the same file under another name.
        content: a regular file, or what comes by a pipe.
        as_text: a document is read as it is, not its text.
        part: which part of a held-out text it is, for protocols; None for the whole.
    """

    name: str
    identity: Identity | None
    content: Path | Pipe
    as_text: bool = False
    part: str | None = None

    @property
    def title(self) -> str:
        """Name of the input in messages."""
        return input_title(self.name)

    @cached_property
    def token_file(self) -> TokenFile | None:
        """Input opened as a token file and checked; None for text.

        Raises:
            SeqgenError: it is a damaged token file.
        """
        from seqgen.text.tokenfile import MAGIC, is_token_file, open_token_file

        if isinstance(self.content, Path):
            return open_token_file(self.content) if is_token_file(self.content) else None
        if not self.content.begins_with(MAGIC):
            return None
        with tempfile.NamedTemporaryFile(suffix=".tok") as kept:  # tokens are mapped from a file
            kept.writelines(self.content.blocks())
            kept.flush()
            try:
                return replace(open_token_file(kept.name), path=Path(self.title))
            except SeqgenError as error:
                raise SeqgenError(str(error).replace(kept.name, self.title)) from None

    def chunks(self, newlines: str = "keep") -> Iterator[str]:
        """Yield the text in pieces, from its start; a token file gives its original text.

        Args:
            newlines: "keep", or "lf" for LF instead of CRLF.

        Raises:
            SeqgenError: it cannot be read, is no UTF-8, or is a token file that has lost its text.
        """
        return self._read(newlines, Pipe.blocks)

    def pass_on(self) -> Iterator[str]:
        """Yield the text in pieces, once: data from a pipe is not buffered."""
        return self._read("keep", Pipe.pass_on)

    def _read(self, newlines: str, read: Callable[[Pipe], Iterator[bytes]]) -> Iterator[str]:
        from seqgen.text.reading import decode_blocks, decode_file, unix_newlines

        if self.token_file is not None:
            if not self.token_file.tells_text:
                raise SeqgenError(
                    f"{self.title} is a token file that has lost its text (unknowns, or white "
                    "space): give the text itself"
                )
            chunks = self.token_file.text()
        elif isinstance(self.content, Path):
            chunks = decode_file(self.content, self.as_text)
        else:
            chunks = decode_blocks(read(self.content), self.title)
        return unix_newlines(chunks) if newlines == "lf" else chunks

    def text(self, newlines: str = "keep") -> str:
        """Read the whole text.

        Raises:
            SeqgenError: as `chunks`; or it is longer than `limits.max_line_bytes`.
        """
        return read_whole(self.chunks(newlines), self.title)

    def text_or_tokens(self) -> str | TokenFile:
        """Read the whole text, or return the token file if its text is not stored."""
        tokens = self.token_file
        return self.text() if tokens is None or tokens.tells_text else tokens


class Inputs:
    """Input files of one command. A pipe named in two places is read only once.

    Args:
        quiet: say nothing.
        field: what is read of files of records; see `keep`.
        beside: of records of pairs: the field of the targets; see `keep_beside`.
        one_line: write each of those texts on a line of its own.
        as_text: read documents as they are, not their text.
        trains: read the files of folders that plugins train on, such as conversations in parquet.

    Attributes:
        left_out: why files of folders are not read as records, by name.
    """

    def __init__(
        self,
        quiet: bool = False,
        field: str | None = None,
        one_line: bool = False,
        as_text: bool = False,
        beside: str | None = None,
        trains: bool = False,
    ) -> None:
        self._quiet, self._field, self._one_line, self._trains = quiet, field, one_line, trains
        self._as_text, self._beside = as_text, beside
        self._known: dict[Identity | None, Input] = {}
        self._kept_texts: dict[Identity | None, Path] = {}
        self._told: set[str] = set()
        self.left_out: dict[str, SeqgenError] = {}
        self._folders: list[tempfile.TemporaryDirectory] = []

    def open(self, names: Iterable[str]) -> list[Input]:
        """Open the files that match names, folders and patterns, in order.

        A file that is named twice is read once, and that is said.

        Raises:
            UsageError: a name is empty.
            SeqgenError: a name is not there, or a folder or a pattern has no file.
        """
        by_identity: dict[Identity | None, Input] = {}
        for name in names:
            for source in self._named(name):
                self._say_if_known(source, by_identity)
                by_identity.setdefault(source.identity, source)
        return list(by_identity.values())

    def open_one(self, name: str) -> Input:
        """Open the single file that a name refers to.

        Raises:
            UsageError: it is a folder or a pattern of several.
        """
        source, *others = self._named(name)
        require(not others, f"{name} is {1 + len(others)} files: give one")
        return source

    def read_text(self, name: str, documents: Documents) -> str:
        """Read the whole text of a file or folder, if it is short enough to hold in memory."""
        from seqgen.text.reading import document_ending, join_files

        files = (source.chunks() for source in self.open([name]))
        return read_whole(join_files(files, document_ending(documents)), input_title(name))

    def keep(self, names: Iterable[str]) -> list[str | Path]:
        """Replace piped inputs by cached copies, so that a resumed run can read them again.

        What comes by a pipe is kept in the cache, and so are the texts of records. A file that is
        named twice is left out the second time, and that is said.

        Raises:
            UsageError: there is a field, and a file is not one of records.
            SeqgenError: a file of records is damaged, or all of a folder are.
        """
        kept: list[str | Path] = []
        by_identity: dict[Identity | None, Input] = {}
        for name in names:
            sources = self._named(name)
            new = [source for source in sources if not self._say_if_known(source, by_identity)]
            by_identity.update((source.identity, source) for source in new)
            if self._field is not None:
                texts = [self._kept_texts_of(one, name, self._field, self._beside) for one in new]
                kept += filter(None, texts)
            elif isinstance(sources[0].content, Pipe):
                kept += [self._kept(source) for source in new]
            else:  # a folder's own name, from which the model's is made, unless a part was read
                kept += [name] if len(new) == len(sources) else [source.name for source in new]
        if by_identity and self.left_out and not kept:
            from seqgen.text.records import OtherKeys

            raise min(self.left_out.values(), key=lambda why: not isinstance(why, OtherKeys))
        return kept

    def keep_beside(self, names: Iterable[str]) -> list[str | Path]:
        """Keep the texts of the field beside the one that `keep` reads, of the same records."""
        sources = {one.identity: (one, name) for name in names for one in self._named(name)}
        texts = (self._kept_texts_of(*one, self._beside, self._field) for one in sources.values())
        return [*filter(None, texts)]

    def keep_held_out(self, val: str, beside: bool = False) -> str:
        """Resolve `--val`: a fraction, "none", or a file that can be read again.

        Args:
            val: it.
            beside: keep the texts of the field beside; see `keep_beside`.
        """
        if val != "-" and not Path(val).exists():  # a share, none, or refused where it is read
            return val
        from seqgen import store

        kept, *others = map(Path, self.keep_beside([val]) if beside else self.keep([val]))
        if others:  # texts of the records of a folder, each of which ends with a newline
            blocks = chain.from_iterable(map(_blocks_of, [kept, *others]))
            kept = self._linked(store.keep_text(blocks), f"{Path(val).stem}.txt", val)
        return str(kept.resolve())

    def _say_if_known(self, source: Input, by_identity: dict[Identity | None, Input]) -> bool:
        known = source.identity in by_identity
        if known and not self._quiet:
            announce(f"{source.title} is given twice; it is read once")
        return known

    def _named(self, name: str) -> list[Input]:
        from seqgen.text.reading import file_facts, files_in, text_files
        from seqgen.text.records import record_files
        from seqgen.text.training_files import training_files

        if name == "-":
            return [self._pipe(name, _identity(_standard_input()))]
        if self._field is not None:
            inside = record_files(file_name(name))
            return [self._at(path) for path in ([Path(name)] if inside is None else inside)]
        is_folder = files_in(file_name(name)) is not None
        listed = training_files if is_folder and self._trains else text_files
        paths = listed([name], self._as_text)
        if not self._quiet and name not in self._told:
            self._told.add(name)
            self._say_what_is_read(name, paths)
        if len(paths) > 1:  # a command may read each text of a folder on its own
            paths = [
                path for path in paths if not file_facts(path, self._as_text).is_empty
            ] or paths
        return [self._at(path) for path in paths]

    def _say_what_is_read(self, name: str, paths: Sequence[Path]) -> None:
        """Say which files of a folder are left out, and what was taken from each document."""
        from seqgen.text.reading import document_facts, left_out_files

        listed = left_out_files(name, self._as_text).items()
        others = {str(path): why for path, why in listed if path not in paths}
        if binary := [path for path, why in others.items() if not why]:
            left_out = f"{plural(len(binary), 'file')} of {name} left out"
            announce(f"{left_out}: not text ({first_names(binary, 3)})")
        faults = [f"left out: {why}" for why in others.values() if why]
        read = {path: document_facts(path) for path in (() if self._as_text else paths)}
        taken = [f"{path}: {facts.taken}" for path, facts in read.items() if facts and facts.taken]
        for said, noun, what in ((faults, "file", "left out"), (taken, "document", "read")):
            for line in said[:DOCUMENTS_NAMED]:
                announce(line)
            if len(said) > DOCUMENTS_NAMED:
                more = plural(len(said) - DOCUMENTS_NAMED, f"more {noun}")
                announce(f"{more} {what}: see seqgen data")

    def _at(self, path: Path) -> Input:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
            if device and _identity(status) != _identity(_standard_input()):  # it may have no end
                raise SeqgenError(f"{path} is a device, and seqgen reads files and pipes")
            return self._pipe(str(path), _identity(status))
        recording.run.read(path)
        source = Input(str(path), _identity(status), path, self._as_text)
        self._known.setdefault(source.identity, source)
        return source

    def _pipe(self, name: str, identity: Identity | None) -> Input:
        if identity not in self._known:
            standard = name == "-" or identity == _identity(_standard_input())
            if not (standard or self._quiet or Path(name).name.isdecimal()):
                say(f"reading the pipe {name}, which waits for a program that writes to it")
            coming = input_bytes() if standard else _blocks_of(Path(name))
            self._known[identity] = Input(name, identity, Pipe(coming))
        return self._known[identity]

    def _kept(self, source: Input) -> Path:
        """Copy data from a pipe to the cache, once, and return its path."""
        from seqgen import store
        from seqgen.text.file_kinds import ending_of_text
        from seqgen.text.tokenfile import MAGIC

        if source.identity not in self._kept_texts:
            ending = ".txt"
            if next(source.content.blocks(), b"") == b"":
                raise SeqgenError(f"{source.title} is empty: pipe a text in, or give files")
            if not source.content.begins_with(MAGIC):
                # Names what it is, if it begins as no text does.
                ending = ending_of_text(next(source.chunks(), ""))
            kept = store.keep_text(source.content.pass_on())
            link = self._linked(kept, _stem(source) + ending, source.title)
            self._kept_texts[source.identity] = link
        return self._kept_texts[source.identity]

    def _kept_texts_of(self, source: Input, name: str, key: str, beside: str | None) -> Path | None:
        """Extract the texts of a file of records to the cache, and report skipped records.

        Args:
            source: the file.
            name: under which it was given: its own, or that of a folder or pattern.
            key: of the texts.
            beside: another key, at which all records that are read have a text.

        Returns:
            None for a file of a folder that is damaged or has no text, which is reported.

        Raises:
            SeqgenError: the file was named itself and is damaged, or no record has a text.
        """
        from seqgen import store
        from seqgen.text.file_kinds import ending_of_name
        from seqgen.text.reading import CHUNK_BYTES, joined_blocks
        from seqgen.text.records import Texts, holds_records

        path = source.content if isinstance(source.content, Path) else None
        reader = Texts(source.title, key, self._one_line, () if beside is None else (beside,))
        if path is not None:
            texts = reader.of_file(path)
        else:
            texts = reader.of_json(source.pass_on() if beside is None else source.chunks())
        try:
            if path is not None and not holds_records(path):
                hooks.require_plugin(ending_of_name(path), f"--field of {source.title}")
                reads = "reads .jsonl and .parquet files, and tables"
                raise UsageError(f"--field {reads}, and not {source.title}")
            kept = store.keep_text(joined_blocks((text.encode() for text in texts), CHUNK_BYTES))
        except SeqgenError as error:
            if source.name == name or isinstance(error, MissingPackage):
                raise
            if source.name not in self.left_out:  # pairs are read twice
                self._leave_out(source.name, error)
            return None
        if reader.notice and not self._quiet and key == self._field:
            announce(reader.notice)
        return self._linked(kept, f"{_stem(source)}.txt", source.title)

    def _leave_out(self, name: str, fault: SeqgenError) -> None:
        """Note why a file of a folder is not read; announce the first ones."""
        self.left_out[name] = fault
        more = len(self.left_out) - DOCUMENTS_NAMED
        if more <= 1 and not self._quiet:
            announce(f"left out: {fault}" if more < 1 else "more are left out: see seqgen data")

    def _linked(self, kept: Path, name: str, title: str) -> Path:
        """Create a link with a readable name to a cached file, whose own name is a hash.

        A model is called by the name of its text, and a person must be able to say it.
        """
        folder = tempfile.TemporaryDirectory(prefix="seqgen-")
        self._folders.append(folder)  # which is there for as long as this object is
        link = Path(folder.name) / name
        try:
            link.symlink_to(kept.resolve())
        except (OSError, NotImplementedError):  # a platform without links
            return kept
        TITLES_OF_COPIES[str(link)] = title
        return link


def _stem(source: Input) -> str:
    if source.name == "-" or Path(source.name) == Path("/dev/stdin"):
        return "stdin"
    # A shell's <(command) is called /dev/fd/63 or so.
    return "pipe" if Path(source.name).stem.isdecimal() else Path(source.name).stem


def _identity(status: os.stat_result | None) -> Identity | None:
    return None if status is None else (status.st_dev, status.st_ino)


def _standard_input() -> os.stat_result | None:
    """Stat standard input; None if it is closed or not a file."""
    if sys.stdin is None or sys.stdin.closed:
        return None
    try:
        return os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):
        return None


def _blocks_of(path: Path) -> Iterator[bytes]:
    """Yield the blocks of a named pipe, which is opened at the first read."""
    with reporting_unreadable(path), path.open("rb", buffering=0) as pipe:
        yield from iter(lambda: pipe.read(BLOCK), b"")


def join(sources: Iterable[Input], newlines: str, ending: str = "") -> Iterator[str]:
    """Yield the texts of several files as one, without buffering; see `text.reading.join_files`."""
    from seqgen.text.reading import join_files, unix_newlines

    chunks = join_files((source.pass_on() for source in sources), ending)
    return unix_newlines(chunks) if newlines == "lf" else chunks  # a CRLF may stand across two

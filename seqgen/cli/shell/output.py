"""Output of commands: results on standard output, messages on standard error."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from seqgen.cli.shell import recording
from seqgen.errors import SeqgenError
from seqgen.settings import Options, Panel, redeclare, setting
from seqgen.wording import escape_controls

if TYPE_CHECKING:
    from rich.console import Console

    from seqgen.store.loaded import LoadedModel


# Off a terminal no column is shortened or wrapped to fit.
ANY_WIDTH = 1 << 16


def is_terminal(stream: IO[Any] | None) -> bool:
    """Check whether a stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def as_shown(text: str, stream: IO[Any] | None) -> str:
    """Escape control characters in a text if the stream is a terminal."""
    return escape_controls(text) if is_terminal(stream) else text


def can_redraw(stream: IO[Any] | None) -> bool:
    """Check whether a stream is a terminal that can redraw lines.

    One without a name, or called dumb, cannot; nor the one that `!` in a Jupyter notebook opens.
    """
    kind = os.environ.get("TERM", "" if os.name == "posix" else "windows")
    plain = kind in ("", "dumb", "unknown") or "JPY_PARENT_PID" in os.environ
    return is_terminal(stream) and not plain


def say(message: str) -> None:
    """Print a line on standard error, control characters escaped; a closed stream is ignored."""
    if sys.stderr is not None:
        stream = FailingStream(sys.stderr)
        stream.write(escape_controls(message) + "\n")
        stream.flush()


# Notices that wait until it is certain that the command is not refused.
_announced: list[str] = []


def announce(message: str) -> None:
    """Print a message just before the first result or event of training, or at the end.

    A command that is refused before does not say it: then the problem is the only line.
    """
    _announced.append(message)


def take_announced() -> list[str]:
    """Return the pending announcements, for somebody else to print."""
    taken = [*_announced]
    _announced.clear()
    return taken


def say_announced() -> None:
    """Print the pending announcements."""
    for message in take_announced():
        say(message)


def forget_announced() -> None:
    """Discard the pending announcements."""
    _announced.clear()


class FailingStream:
    """Output stream that reports a full disk as an error and a closed pipe as the end.

    What is written to it from then on goes nowhere, also what Python writes at its exit.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text to the stream."""
        with self._failing_quietly():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with self._failing_quietly():
            self._stream.flush()

    @contextlib.contextmanager
    def _failing_quietly(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


class Output(Options, panel=Panel.OUTPUT):
    """Output options of a command (--json, --quiet, --verbose), with methods that print.

    Results are data on standard output; what is said about them goes to standard error.
    """

    json: bool = setting("Write JSON Lines, with unrounded numbers.", common=True)
    quiet: bool = setting(
        "Write only errors to standard error.", names=("--quiet", "-q"), common=True
    )
    verbose: bool = setting(
        "Say more, such as the signatures that record exactly how each figure was made.",
        names=("--verbose", "-v"),
    )

    def record(self, record: Any) -> bool:
        """Print a record as JSON if --json is given; return whether it is."""
        return self.records((record,))

    def records(self, records: Iterable[Any]) -> bool:
        """Print records as JSON as they arrive if --json is given; return whether it is."""
        for record in records if self.json else ():
            put_record(record)
        return self.json

    def announce(self, message: str) -> None:
        """Print a message before the first result, unless --quiet is given."""
        if not self.quiet:
            announce(message)

    def announce_seed(self, seed: int) -> None:
        """Announce a drawn seed on a terminal or with --verbose; JSON records include it anyway."""
        if self.explains or (is_terminal(sys.stdout) and not self.json):
            self.announce(f"seed {seed}")

    def notice(self, message: str) -> None:
        """Print a message about the results in one line, unless --quiet is given."""
        if not self.quiet:
            say(message.replace("\n", "\\n"))

    def uses(self, models: Iterable[LoadedModel], seed: int | None = None) -> None:
        """Note the models and a drawn seed for --record; print engines with --verbose."""
        from seqgen.engines.native.library import library, outdated

        models = list(models)
        recording.run.models += models
        recording.run.seed = recording.run.seed if seed is None else seed
        if library() is None and outdated:
            said = "the compiled kernels are those of another version, so that models run slowly"
            self.announce(f"{said}; install seqgen again")
        from seqgen.models.arrays import ArrayNetwork
        from seqgen.store.loading import parts_of

        for loaded in models:
            if isinstance(loaded.model, ArrayNetwork):
                continue
            for part in parts_of(loaded.stored):
                if (said := part.describe_conversion()) is not None:
                    self.announce(said)
        if not self.explains:
            return
        kernels = "without" if library() is None else "with"
        for loaded in models:
            arrays = isinstance(loaded.model, ArrayNetwork)
            engine = f"NumPy arrays {kernels} compiled kernels" if arrays else "PyTorch"
            choice = getattr(loaded, "engine", None)
            why = "" if choice is None else f" ({choice.reason})"
            self.announce(f"{loaded.stored.name}: run by {engine}{why}")

    @property
    def explains(self) -> bool:
        """Check whether to explain how each figure was computed."""
        return self.verbose and not self.quiet

    @property
    def draws(self) -> bool:
        """Check whether to draw character graphics on standard error."""
        return not (self.json or self.quiet)


class RecordedOutput(Output, panel=Panel.OUTPUT):
    """Output options of a command whose results `seqgen replay` can reproduce."""

    json: bool = redeclare(Output, "json")
    quiet: bool = redeclare(Output, "quiet")
    verbose: bool = redeclare(Output, "verbose")
    record_run: bool = setting(
        "Write JSON Lines, each with how it was made, so that seqgen replay can make it again.",
        names=("--record",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "json", self.json or self.record_run)


def write_utf8() -> None:
    """Switch both output streams to UTF-8, whatever the locale.

    The names of files may hold bytes that are not UTF-8; those are written as they are.
    """
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors=errors)


def standard_output() -> IO[str]:
    """Return standard output, after printing pending announcements.

    Raises:
        SeqgenError: it is closed.
    """
    if sys.stdout is None:
        raise SeqgenError("there is no standard output to write to")
    say_announced()
    return sys.stdout


def put(text: str) -> None:
    """Write text to standard output and flush it.

    Raises:
        SeqgenError: there is no standard output.
    """
    put_bytes([text.encode("utf-8", "surrogateescape")])


def put_bytes(chunks: Iterable[bytes]) -> None:
    """Write raw bytes to standard output; on a terminal, escape control characters."""
    out = standard_output()
    out.flush()
    if is_terminal(out):
        texts = codecs.iterdecode(chunks, "utf-8", "surrogateescape")
        chunks = (escape_controls(text).encode() for text in texts)
    out.buffer.writelines(chunks)
    out.buffer.flush()


def put_record(record: Any) -> None:
    r"""Print a dataclass or dictionary as one line of JSON in UTF-8.

    What is not finite is null. A byte of a file's name that is not UTF-8 is written as `\xe9`.
    """
    values = record if isinstance(record, dict) else dataclasses.asdict(record)
    values = values | recording.run.notes(values.get("model"))
    if recording.run.recording:
        values = {**values, "run": recording.run.facts()}
    line = json.dumps(_as_json(values), ensure_ascii=False)
    if is_terminal(sys.stdout):
        line = escape_controls(line, "\\u{:04x}")
    put_bytes([line.encode() + b"\n"])


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_as_json(key): _as_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    if isinstance(value, str) and not value.isascii():
        # Bytes that Python took for no text may be UTF-8 in another locale.
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def one_line(text: str) -> str:
    r"""Escape newlines and backslashes, so that a text fits on one line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def say_protocols(records: Iterable[Any], out: Output) -> None:
    """Print the scoring protocols of records, once per model; with --verbose every signature."""
    for model, protocol in dict.fromkeys((r.model, r.protocol) for r in records):
        out.notice(f"{model}: {protocol}")
    for record in records if out.explains else ():
        say(f"{record.file}: {record.signature}")


def shown(text: str, heading: str, alignment: str | None = None) -> str:
    """Format one of several texts for standard output: one line, or a block with a heading.

    Args:
        text: it.
        heading: which it is.
        alignment: follows it after a tab, or on a line of its own.
    """
    if not is_terminal(sys.stdout):
        return "\t".join([one_line(text), *([] if alignment is None else [alignment])]) + "\n"
    below = "" if alignment is None else f"\n{alignment}"
    return f"── {heading} ──\n{text}{below}\n\n"


def unescape(text: str) -> str:
    r"""Decode `\n`, `\t` and `\\` in an argument."""
    meant = {"n": "\n", "t": "\t", "\\": "\\"}
    return re.sub(r"\\([nt\\])", lambda match: meant[match[1]], text)


def console(stream: IO[str]) -> Console:
    """Make a rich console with colour and width only if `stream` is a terminal.

    What it prints is text, and no markup: a file may be called `[b].txt`. On a terminal and on
    standard error, control characters of the text are escaped.
    """
    from rich.console import Console

    from seqgen.cli.shell.screen import Screen

    plain = not is_terminal(stream)
    return (Console if plain and stream is not sys.stderr else Screen)(
        file=FailingStream(stream) if stream is sys.stderr else stream,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=plain,
        width=ANY_WIDTH if plain else None,
    )

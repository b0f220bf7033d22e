"""`seqgen tokenize --out`: a text into a token file, or into several."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.cli.inputs import Input, join
from seqgen.cli.output import Output, console, is_terminal, put_record
from seqgen.cli.outputs import Overwrite, check_out, is_token_file
from seqgen.cli.tables import count
from seqgen.configs import Panel, setting
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.data.token_writing import WrittenTokens
    from seqgen.tokenizers import Tokenizer


# The names of shards have five digits.
MOST_SHARDS = 100_000


class TokenFiles(Overwrite, panel=Panel.SAVING):
    """Where tokens are written."""

    out: Path | None = setting(
        "Token file to write; with --train, the tokenizer's folder.", metavar="PATH", reads="path"
    )
    shards: int | None = setting(
        "With --out: write a folder of this many token files of about the same length.",
        low=1,
        high=MOST_SHARDS,
    )


def write(
    saved: TokenFiles,
    sources: list[Input],
    newlines: str,
    tokenizer: Tokenizer,
    documents: str,
    out: Output,
) -> None:
    """Encode a text into one token file, or into a folder of several; say what was written.

    Raises:
        UsageError: the place is an input, or holds something else, or is not to be replaced.
        SeqgenError: it cannot be written, or the text not be read.
    """
    from seqgen.data.shards import shard_path, write_shards
    from seqgen.data.token_writing import write_token_file

    shards = saved.shards
    with _progress(sources, out) as progress:
        if shards is None:
            path = check_out(saved.out, sources, saved.overwrite, "a token file", is_token_file)
            done = write_token_file(path, join(sources, newlines), tokenizer, documents, progress)
            _put(path, done, out)
            return
        folder = check_shards(saved.out, sources, saved.overwrite)
        # Read twice: to know where to cut, and to encode it.
        characters = sum(len(chunk) for source in sources for chunk in source.chunks(newlines))
        text = join(sources, newlines)
        written = write_shards(folder, text, characters, shards, tokenizer, documents, progress)
    for number, done in enumerate(written):
        _put(shard_path(folder, number), done, out)
    if len(written) < shards:
        out.notice(f"the text has only enough lines for {plural(len(written), 'file')}")


def check_shards(out: Path, sources: Iterable[Input], overwrite: bool) -> Path:
    """Return the folder to write token files into, with links followed.

    Raises:
        UsageError: there is none, it holds something else, or files that are not to be replaced.
    """
    from seqgen.data.shards import SHARDS

    out = out.resolve()
    if not out.exists():
        return out
    if not out.is_dir():
        raise UsageError(f"{out} is not a folder, and --shards writes one: give another --out")
    inside = sorted(out.iterdir())
    strange = next((path for path in inside if not path.match(SHARDS)), None)
    if strange is not None:
        raise UsageError(f"{out} has other files ({strange.name}): give another --out")
    for path in inside:
        check_out(path, sources, overwrite, "a token file", is_token_file)
    return out


def _put(path: Path, done: WrittenTokens, out: Output) -> None:
    facts = done.facts
    if out.json:
        sizes = {"characters": facts.characters, "bytes": facts.bytes}
        put_record({"path": str(path), "tokens": done.tokens, **sizes, "oov": done.oov})
    unknown = f", {count(done.oov)} unknown" if done.oov else ""
    out.notice(
        f"{path}: {plural(done.tokens, 'token')} of {plural(facts.characters, 'character')} "
        f"({plural(facts.bytes, 'byte')}){unknown}"
    )


@contextlib.contextmanager
def _progress(sources: list[Input], out: Output) -> Iterator[Callable[[int], None]]:
    """Open a bar on a terminal that takes the bytes of text done."""
    if out.quiet or not is_terminal(sys.stderr):
        yield lambda done: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=_size(sources))
        yield lambda done: bar.update(task, completed=done)


def _size(sources: list[Input]) -> int | None:
    """Return how much text there is to come, where that is known."""
    paths = [source.content for source in sources if isinstance(source.content, Path)]
    packed = any(path.suffix in (".gz", ".xz", ".zst") for path in paths)
    return None if packed or len(paths) < len(sources) else sum(p.stat().st_size for p in paths)

"""What a command that writes goes on from: arguments, a file, or standard input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from seqgen.cli.inputs import Input, Inputs, input_bytes, piped_input
from seqgen.cli.output import say
from seqgen.cli.pairs import check_vectors
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.data.sources import Vectors


@dataclass(frozen=True)
class GivenPrompts:
    """What the command line has of prompts: arguments, a file that is one, a file of sources.

    Raises:
        UsageError: there are two of them.
    """

    prompts: list[str] | None
    prompt_file: str | None = None
    source_file: str | None = None
    vectors: str | None = None

    def __post_init__(self) -> None:
        ways = {
            "prompts": self.prompts,
            "--prompt-file": self.prompt_file,
            "--source": self.source_file,
            "--source-vectors": self.vectors,
        }
        given = [name for name, there in ways.items() if there]
        if len(given) > 1:
            raise UsageError(f"give {given[0]} or {given[1]}, not both")
        if self.vectors:
            check_vectors(self.vectors)

    @property
    def nothing(self) -> bool:
        """Whether prompts can come by standard input alone."""
        return not (self.prompts or self.prompt_file or self.source_file or self.vectors)

    @cached_property
    def files(self) -> list[Input]:
        """The file that is read, if there is one."""
        name = self.source_file or self.prompt_file
        return [Inputs().open_one(name)] if name else []

    def texts(
        self, loaded: LoadedModel, quiet: bool
    ) -> tuple[Iterable[str] | Sequence[Vectors], bool]:
        """Return the prompts, and whether they are the lines of a file or of standard input.

        Given ones are a sequence: the default prompt, which is empty, if there is none. A file is
        one prompt; as a source, without the newline at its end.

        Args:
            loaded: what reads them.
            quiet: do not say that there is nothing.

        Raises:
            SeqgenError: the model writes from no vectors, or their file is damaged.
        """
        if self.vectors:
            return given_vectors(loaded, self.vectors), True
        if self.source_file:
            (file,) = self.files
            return _lines_of(file.title, file.chunks(), "no source, no text", quiet), True
        if self.nothing and piped_input() is not None:
            return piped_lines("no prompt, no text", quiet), True
        if self.prompt_file:
            text = self.files[0].text()
            return [text.removesuffix("\n") if loaded.reads_sources else text], False
        return self.prompts or [""], False

    def are_sources(self, loaded: LoadedModel, echo: bool | None) -> bool:
        """Return whether prompts are sources, for a model that writes from those; check them.

        Raises:
            UsageError: there is none, or the source is to be written before the text; or the
                model writes from no source, and a file of them is given.
        """
        if self.vectors:
            loaded.require_vectors()
        if not loaded.reads_sources:
            if self.source_file:
                loaded.require_reads_sources("--source")
            return False
        if echo:
            loaded.require_text("--echo")
        if self.nothing and piped_input() is None:
            name = loaded.stored.name
            if loaded.source_features is not None:
                raise UsageError(f"{name} writes from vectors: give --source-vectors FILE")
            raise UsageError(f"{name} writes from a source: give one, or pipe them in, a line each")
        return True


def called(loaded: LoadedModel) -> str:
    """Return what a text that is written goes on from, or is written from."""
    return "source" if loaded.reads_sources else "prompt"


def given_vectors(loaded: LoadedModel, path: str) -> Sequence[Vectors]:
    """Return the sources in a file of vectors.

    Raises:
        SeqgenError: the model writes from none, or the file is damaged.
    """
    from seqgen.data.vector_files import open_vectors

    loaded.require_vectors()
    file = open_vectors(path)
    return [file.vectors(number) for number in range(len(file))]


def say_unknown(count: int, quiet: bool, texts: str = "sources") -> None:
    """Say how much of the sources, or of other texts, the model does not know, if anything."""
    if count and not quiet:
        unknown = plural(count, "token")
        say(f"{unknown} of the {texts} unknown to the model, and read as <unk>")


def piped_lines(
    nothing: str,
    quiet: bool,
    read: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> Iterable[str]:
    """Return the lines of standard input, as they come.

    Args:
        nothing: what follows if there is none, in words.
        quiet: do not say so.
        read: what a command makes of the text first, which comes in pieces.
    """
    from seqgen.data.text import decode_blocks

    chunks = decode_blocks(input_bytes(), "standard input")
    return _lines_of("standard input", read(chunks), nothing, quiet)


def _lines_of(name: str, chunks: Iterable[str], nothing: str, quiet: bool) -> Iterable[str]:
    """Return the lines of a text as prompts, one each, as they come."""
    from seqgen.commands.writing.prompts import Lines

    return Lines(name, _lines(name, chunks, nothing, quiet))


def _lines(name: str, chunks: Iterable[str], nothing: str, quiet: bool) -> Iterator[str]:
    from seqgen.data.text import lines

    empty = True
    for line in lines(chunks):
        empty = False
        yield line.removesuffix("\n")
    if empty and not quiet:
        say(f"{name} is empty: {nothing}")

"""Prompts of a command: arguments, a file, or standard input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from seqgen.cli.shell.inputs import Input, Inputs, input_bytes, piped_input
from seqgen.cli.shell.output import Output
from seqgen.cli.shell.pairs import SourceVectorFile
from seqgen.errors import UsageError
from seqgen.settings import Options, Panel, argument, redeclare, setting
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.sources import Vectors

T = TypeVar("T")


# The ways to give prompts, of which there is one.
PROMPTS = "PROMPT", "--prompt-file", "--source", "--source-vectors"


class GivenPrompts(Options, panel=Panel.TEXT):
    """Options for prompts: arguments, a prompt file, or a file of sources."""

    prompts: tuple[str, ...] = argument(
        "Text to continue; each argument is a prompt of its own. If text is piped in, each line is "
        "a prompt.",
        "PROMPT",
        conflicts=PROMPTS,
    )
    prompt_file: str | None = setting(
        "Use a whole file as one prompt; - is standard input.",
        reads="file",
        common=True,
        conflicts=PROMPTS,
    )
    source: str | None = setting(
        "Read sources from this file, one per line, for a model that writes from sources; - is "
        "standard input.",
        reads="file",
        conflicts=PROMPTS,
    )
    source_vectors: str | None = redeclare(SourceVectorFile, "source_vectors", conflicts=PROMPTS)

    @cached_property
    def files(self) -> list[Input]:
        """File that prompts are read from, as a list; empty if there is none."""
        name = self.source or self.prompt_file
        return [Inputs().open_one(name)] if name else []

    @cached_property
    def is_piped(self) -> bool:
        """Check whether prompts are read from standard input, one per line."""
        return not self.given and piped_input() is not None

    @property
    def are_listed(self) -> bool:
        """Check whether prompts are lines of a file or standard input, or a file's vectors."""
        return bool(self.source_vectors or self.source) or self.is_piped

    def texts(self, loaded: LoadedModel, out: Output) -> Iterable[str] | Sequence[Vectors]:
        """Read the prompts; lines of a file are read lazily.

        Given ones are a sequence: the default prompt, which is empty, if there is none. A file is
        one prompt; as a source, without the newline at its end.

        Args:
            loaded: what reads them.
            out: where to say that there is nothing.

        Raises:
            SeqgenError: the file of vectors is damaged.
        """
        if self.source_vectors:
            from seqgen.text.vector_files import open_vectors

            file = open_vectors(self.source_vectors)
            return [file.vectors(number) for number in range(len(file))]
        if self.source:
            (file,) = self.files
            return _lines_of(file.title, file.chunks(), "no source, no text", out)
        if self.is_piped:
            return piped_lines("no prompt, no text", out)
        if self.prompt_file:
            text = self.files[0].text()
            return [text.removesuffix("\n") if loaded.conditioning.is_source else text]
        return self.prompts or ("",)

    def check_for(self, loaded: LoadedModel) -> None:
        """Raise an error if the model needs sources and has none, or the reverse.

        Raises:
            UsageError: says which.
        """
        if self.source_vectors:
            loaded.conditioning.require_vectors()
        if self.source:
            loaded.conditioning.require_sources("--source")
        if loaded.conditioning.is_source and not self.given and not self.is_piped:
            name = loaded.stored.name
            if loaded.conditioning.features is not None:
                raise UsageError(f"{name} writes from vectors: give --source-vectors FILE")
            raise UsageError(f"{name} writes from a source: give one, or pipe them in, a line each")


def say_unknown(count: int, out: Output, texts: str = "sources") -> None:
    """Report how many tokens of the sources, or of other texts, the model does not know."""
    if count:
        unknown = plural(count, "token")
        out.notice(f"{unknown} of the {texts} unknown to the model, and read as <unk>")


def piped_lines(
    nothing: str, out: Output, read: Callable[[Iterable[str]], Iterable[str]] = iter
) -> Iterable[str]:
    """Read lines from standard input lazily.

    Args:
        nothing: what follows if there is none, in words.
        out: where to say so.
        read: what a command makes of the text first, which comes in pieces.
    """
    from seqgen.text.reading import decode_blocks

    chunks = decode_blocks(input_bytes(), "standard input")
    return _lines_of("standard input", read(chunks), nothing, out)


def _lines_of(name: str, chunks: Iterable[str], nothing: str, out: Output) -> Iterable[str]:
    """Read the lines of a text lazily as prompts."""
    from seqgen.generation.prompts import Lines

    return Lines(name, content_of(name, without_newlines(name, chunks), nothing, out))


def without_newlines(name: str, chunks: Iterable[str]) -> Iterator[str]:
    """Read the lines of a text lazily, without their newlines."""
    from seqgen.text.reading import lines

    return (line.removesuffix("\n") for line in lines(chunks, name))


def content_of(name: str, content: Iterable[T], nothing: str, out: Output) -> Iterator[T]:
    """Yield the contents of a text; report `nothing` if it is empty."""
    empty = True
    for part in content:
        empty = False
        yield part
    if empty:
        out.notice(f"{name} is empty: {nothing}")

"""What a command that writes goes on from: arguments, a file, or standard input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from seqgen.cli.inputs import Inputs, input_bytes, piped_input
from seqgen.cli.output import say
from seqgen.cli.pairs import check_vectors
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.data.sources import Vectors
    from seqgen.tasks.loaded import LoadedModel


def check_prompts(
    prompts: list[str] | None, prompt_file: str | None, source_vectors: str | None = None
) -> None:
    """Refuse prompts from two places.

    Raises:
        UsageError: there are both.
    """
    places = {
        "prompts": prompts,
        "--prompt-file": prompt_file,
        "--source-vectors": source_vectors,
    }
    given = [name for name, there in places.items() if there]
    if len(given) > 1:
        raise UsageError(f"give {given[0]} or {given[1]}, not both")
    if source_vectors:
        check_vectors(source_vectors)


def given_or_piped(
    prompts: list[str] | None, prompt_file: str | None, quiet: bool, source: bool = False
) -> tuple[Iterable[str], bool]:
    """Return the prompts, and whether they come by standard input, a line each.

    Given ones are a sequence: the default prompt, which is empty, if there is none. A file is one
    prompt; as a source, without the newline at its end.
    """
    if not prompts and not prompt_file and piped_input() is not None:
        return _piped(quiet), True
    return _given(prompts, prompt_file, source), False


def given_sources(
    loaded: LoadedModel, prompts: list[str] | None, prompt_file: str | None, echo: bool | None
) -> bool:
    """Return whether prompts are sources, for a model that writes from those; check them.

    Raises:
        UsageError: there is none, or the source is to be written before the text.
    """
    if not loaded.reads_sources:
        return False
    if echo:
        loaded.require_text("--echo")
    if not prompts and not prompt_file and piped_input() is None:
        name = loaded.stored.name
        raise UsageError(f"{name} writes from a source: give one, or pipe them in, a line each")
    return True


def given_vectors(loaded: LoadedModel, path: str, echo: bool | None) -> Sequence[Vectors]:
    """Return the sources in a file of vectors.

    Raises:
        UsageError: the source is to be written before the text.
        SeqgenError: the model writes from none, or the file is damaged.
    """
    from seqgen.data.vectors import open_vectors

    loaded.require_vectors()
    if echo:
        loaded.require_text("--echo")
    file = open_vectors(path)
    return [file.vectors(number) for number in range(len(file))]


def say_unknown(count: int, quiet: bool) -> None:
    """Say how much of the sources the model does not know, if anything."""
    if count and not quiet:
        unknown = plural(count, "token")
        say(f"{unknown} of the sources unknown to the model, and read as <unk>")


def _given(prompts: list[str] | None, prompt_file: str | None, source: bool) -> Sequence[str]:
    if prompt_file:
        text = Inputs().open_one(prompt_file).text()
        return [text.removesuffix("\n") if source else text]
    return prompts or [""]


def _piped(quiet: bool) -> Iterable[str]:
    from seqgen.tasks.writing.prompts import Lines

    return Lines("standard input", _lines(quiet))


def _lines(quiet: bool) -> Iterator[str]:
    from seqgen.data.text import decode_blocks, lines

    empty = True
    for line in lines(decode_blocks(input_bytes(), "standard input")):
        empty = False
        yield line.removesuffix("\n")
    if empty and not quiet:
        say("standard input is empty: no prompt, no text")

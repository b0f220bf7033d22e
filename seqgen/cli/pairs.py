"""Pairs of a source and a target as commands read them: from a FILE, or held out by a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqgen.cli.inputs import Pipe, Source
from seqgen.cli.output import say
from seqgen.errors import SeqgenError, UsageError

if TYPE_CHECKING:
    from seqgen.data.pairs import Pairs
    from seqgen.data.tokenfile import TokenFile
    from seqgen.tasks.loaded import LoadedModel

Watch = Callable[[Iterable[str]], Iterator[str]]


@dataclass(frozen=True)
class NamedPairs:
    """Pairs in the place of a FILE: those that models hold out, or the lines of two files.

    Attributes:
        pairs: all of them.
        name: what records call them.
    """

    pairs: Pairs
    name: str = "validation"

    @classmethod
    def held_out_by(cls, models: Sequence[LoadedModel]) -> NamedPairs:
        """Return the pairs that all of some models hold out.

        Raises:
            SeqgenError: a model holds out none, or other pairs than another.
        """
        from seqgen.tasks.scoring.perplexity import held_out_pairs

        first, *others = [held_out_pairs(loaded) for loaded in models]
        for loaded, pairs in zip(models[1:], others, strict=True):
            if list(pairs) != list(first):
                names = f"{models[0].stored.name} and {loaded.stored.name}"
                raise SeqgenError(f"{names} hold out different pairs: give a FILE")
        return cls(first)


@dataclass(frozen=True)
class Watched:
    """A FILE as a text that can be read any number of times, with what takes note of it."""

    source: Source
    newlines: str
    watch: Watch

    def chunks(self) -> Iterator[str]:
        """Yield the text in pieces, from its start."""
        return self.watch(self.source.chunks(self.newlines))


def as_text(
    loaded: LoadedModel, source: Source | NamedPairs | WithVectors, watch: Watch | None = None
) -> Iterable[str] | TokenFile | Pairs:
    """Return what a model scores of a FILE: a text, or pairs if it reads those.

    Args:
        loaded: the model.
        source: the FILE.
        watch: takes note of the text as it passes; a token file is then read as its text.

    Raises:
        UsageError: it is a token file, and the model reads pairs.
    """
    if isinstance(source, NamedPairs):
        return source.pairs if watch is None else _watched(source.pairs, watch)
    newlines = loaded.data.newlines
    if isinstance(source, WithVectors):
        return source.pairs(newlines, watch)
    if not loaded.reads_sources:
        if watch is not None:
            return watch(source.chunks(newlines))
        return source.token_file or source.chunks(newlines)
    loaded.require_sources(None)
    require_lines(source)
    from seqgen.data.pairs import TabPairs

    return TabPairs(Watched(source, newlines, watch or iter), source.title)


def held_out_by(models: Sequence[LoadedModel], quiet: bool) -> Source | NamedPairs:
    """Return the text that one model holds out, or that several do.

    Raises:
        SeqgenError: a model holds out nothing, or other text than another.
    """
    from seqgen.tasks.scoring.compare import common_text, hold_out_alike

    names = " and ".join(loaded.stored.name for loaded in models)
    if models[0].reads_sources:
        pairs = NamedPairs.held_out_by(models)
        if not quiet:
            say(f"scoring the held-out pairs of {names}")
        return pairs
    path = models[0].stored.validation_text
    if path is None:
        raise SeqgenError(f"{models[0].stored.name} has no held-out text; give a FILE")
    alike = len(models) == 1 or hold_out_alike(models)
    held_out = path if alike else Pipe(iter([common_text(models).encode()]))
    if not quiet:
        say(f"scoring the held-out text of {names}")
    return Source("validation", None, held_out)


def beside(loaded: LoadedModel, source: Source, targets: Sequence[Source]) -> NamedPairs:
    """Return the pairs of two files: line n of one with line n of the other.

    Args:
        loaded: the model that scores them.
        source: the file of the sources.
        targets: the file of the targets, and no other.

    Raises:
        UsageError: the model reads no pairs; or there is not one file of targets.
    """
    from seqgen.data.pairs import FilePairs

    loaded.require_reads_sources("--source")
    if len(targets) != 1:
        raise UsageError(f"--source goes with one FILE of targets, not {len(targets)}")
    sides = source, targets[0]
    for side in sides:
        require_lines(side)
    texts = (Watched(side, loaded.data.newlines, iter) for side in sides)
    return NamedPairs(FilePairs(*texts, tuple(side.title for side in sides)), targets[0].name)


def _watched(pairs: Pairs, watch: Watch) -> Pairs:
    """Return pairs that are taken note of as they pass, as lines with a tab."""
    from seqgen.data.pairs import Pairs
    from seqgen.data.sources import content_of

    class WatchedPairs(Pairs):
        def __iter__(self) -> Iterator[tuple[str, str]]:
            passing, noted = itertools.tee(pairs)
            lines = watch(f"{content_of(source)}\t{target}\n" for source, target in noted)
            return (pair for _, pair in zip(lines, passing, strict=True))

    return WatchedPairs()


@dataclass(frozen=True)
class WithVectors:
    """A FILE of targets, and the file of the vectors that they are written from.

    Attributes:
        targets: the FILE.
        vectors: the other's path.
    """

    targets: Source
    vectors: str

    @property
    def name(self) -> str:
        """What records call it."""
        return self.targets.name

    def pairs(self, newlines: str, watch: Watch | None) -> Pairs:
        """Return the pairs; see `as_text`."""
        from seqgen.data.vector_pairs import VectorPairs
        from seqgen.data.vectors import open_vectors

        require_lines(self.targets)
        text = Watched(self.targets, newlines, watch or iter)
        return VectorPairs(open_vectors(self.vectors), text, self.targets.title)


def check_vectors(name: str) -> None:
    """Refuse a file that holds no vectors, by its name, before anything is read.

    Raises:
        UsageError: it does not end as such files do.
    """
    from seqgen.data.vectors import ENDINGS, is_vector_file

    if not is_vector_file(name):
        raise UsageError(f"--source-vectors takes a file that ends in {' or '.join(ENDINGS)}")


def require_lines(source: Source) -> None:
    """Refuse a token file, where one side of pairs is read as lines.

    Raises:
        UsageError: it is one.
    """
    if source.token_file is not None:
        raise UsageError(f"{source.title} is a token file; pairs are read as text")


def check_sides(
    data: list[str],
    source: list[str] | None,
    source_vectors: str | None,
    target: list[str] | None,
    val: str | None,
    val_source: str | None,
    val_target: str | None,
) -> None:
    """Refuse one side of pairs without the other, or both ways to give them.

    Raises:
        UsageError: says which.
    """
    if source and source_vectors:
        raise UsageError("give --source or --source-vectors, not both")
    flag = "--source-vectors" if source_vectors else "--source"
    sources = source or source_vectors
    if bool(sources) != bool(target):
        raise UsageError(f"{flag} and --target go together: source n and line n")
    if sources and data:
        raise UsageError(f"give DATA, or {flag} and --target, not both")
    if source_vectors:
        check_vectors(source_vectors)
    if (val_source is None) != (val_target is None):
        raise UsageError("--val-source and --val-target go together")
    if val_source is not None and val is not None:
        raise UsageError("give --val, or --val-source and --val-target, not both")

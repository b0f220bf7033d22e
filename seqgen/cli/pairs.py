"""Pairs of a source and a target as commands read them: from FILEs, or held out by a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli.help import TEXT
from seqgen.cli.inputs import Inputs, Pipe, Source, file_name
from seqgen.cli.output import say
from seqgen.errors import SeqgenError, UsageError

if TYPE_CHECKING:
    from seqgen.data.pairs import Pairs
    from seqgen.data.tokenfile import TokenFile
    from seqgen.tasks.loaded import LoadedModel

Watch = Callable[[Iterable[str]], Iterator[str]]

SourceFile = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="For pairs in two files: the sources, a line each; needs --target.",
        parser=file_name,
        metavar="FILE",
        rich_help_panel=TEXT,
        show_default=False,
    ),
]
TargetFile = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="For pairs in two files: the targets; line n belongs to line n of --source.",
        parser=file_name,
        metavar="FILE",
        rich_help_panel=TEXT,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class HeldOutPairs:
    """The pairs that models hold out, in the place of a FILE.

    Attributes:
        pairs: all of them.
        name: what records call them.
    """

    pairs: Pairs
    name: str = "validation"

    @classmethod
    def by(cls, models: Sequence[LoadedModel]) -> HeldOutPairs:
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
class TwoFiles:
    """The FILEs of `--source` and `--target`, in the place of one FILE of pairs."""

    source: Source
    target: Source

    @property
    def name(self) -> str:
        """What records call them: the file that is scored."""
        return self.target.name


@dataclass(frozen=True)
class Watched:
    """A FILE as a text that can be read any number of times, with what takes note of it."""

    source: Source
    newlines: str
    watch: Watch = iter

    def chunks(self) -> Iterator[str]:
        """Yield the text in pieces, from its start."""
        return self.watch(self.source.chunks(self.newlines))


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


Given = Source | TwoFiles | WithVectors | HeldOutPairs


def open_pairs(
    inputs: Inputs, file: str | None, source: str | None, target: str | None
) -> Source | TwoFiles | None:
    """Return what was given of pairs: a FILE, or one for each side; None if nothing was.

    Raises:
        UsageError: there is one side alone, or both a FILE and sides.
    """
    sides = source and [source], None, target and [target]
    check_sides([file] if file else [], *sides, data_name="FILE")
    if source is not None and target is not None:
        return TwoFiles(inputs.open_one(source), inputs.open_one(target))
    return None if file is None else inputs.open_one(file)


def check_one_kind(models: Sequence[LoadedModel]) -> bool:
    """Refuse models of text beside models of pairs; return whether these are of pairs.

    Raises:
        UsageError: there are both: no FILE is for both.
    """
    kinds = {(m.reads_pairs, m.labels is None): m for m in models}
    if len(kinds) > 1:
        one, other, *_ = kinds.values()
        apart = f"{other.stored.name} {scored_by(other)}: score them apart"
        raise UsageError(f"{one.stored.name} scores {scored_by(one)} and {apart}")
    return models[0].reads_pairs


def scored_by(loaded: LoadedModel) -> str:
    """Return what a model scores, in a word or two."""
    if loaded.labels is not None:
        return "labelled lines"
    return "pairs" if loaded.reads_pairs else "text"


def held_out_by(models: Sequence[LoadedModel], quiet: bool) -> Source | HeldOutPairs:
    """Return the text that one model holds out, or that several do.

    Raises:
        SeqgenError: a model holds out nothing, or other text than another.
    """
    from seqgen.tasks.scoring.compare import common_text, hold_out_alike

    names = " and ".join(loaded.stored.name for loaded in models)
    if models[0].reads_pairs:
        pairs = HeldOutPairs.by(models)
        if not quiet:
            say(f"scoring the held-out {scored_by(models[0])} of {names}")
        return pairs
    path = models[0].stored.validation_text
    if path is None:
        raise SeqgenError(f"{models[0].stored.name} has no held-out text; give a FILE")
    alike = len(models) == 1 or hold_out_alike(models)
    held_out = path if alike else Pipe(iter([common_text(models).encode()]))
    if not quiet:
        say(f"scoring the held-out text of {names}")
    return Source("validation", None, held_out)


def beside(loaded: LoadedModel, source: Source, targets: Sequence[Source]) -> TwoFiles:
    """Return the files of two sides: line n of one belongs to line n of the other.

    Args:
        loaded: the model that scores them.
        source: the file of the sources.
        targets: the file of the targets, and no other.

    Raises:
        UsageError: the model reads no pairs; or there is not one file of targets.
    """
    loaded.require_reads_sources("--source")
    if len(targets) != 1:
        raise UsageError(f"--source goes with one FILE of targets, not {len(targets)}")
    return TwoFiles(source, targets[0])


def as_text(
    loaded: LoadedModel, given: Given, watch: Watch | None = None
) -> Iterable[str] | TokenFile | Pairs:
    """Return what a model scores of a FILE: a text, or pairs if it reads those.

    Args:
        loaded: the model.
        given: the FILE, or what stands in its place.
        watch: takes note of the text as it passes; a token file is then read as its text.

    Raises:
        UsageError: it is a token file, and the model reads pairs.
    """
    newlines = loaded.data.newlines
    if not loaded.reads_pairs and isinstance(given, Source):
        if watch is not None:
            return watch(given.chunks(newlines))
        return given.token_file or given.chunks(newlines)
    if isinstance(given, Source | TwoFiles):
        loaded.require_sources(None)
    return as_pairs(given, newlines, watch, loaded)


def as_pairs(
    given: Given, newlines: str, watch: Watch | None = None, loaded: LoadedModel | None = None
) -> Pairs:
    """Return the pairs of a FILE, or of what stands in its place.

    Args:
        given: the FILE.
        newlines: "keep", or "lf" for LF instead of CRLF.
        watch: takes note of the pairs, as lines with a tab.
        loaded: what reads them, where that is known: one with labels reads lines that have some,
            or that have those which it was told.

    Raises:
        UsageError: a FILE is a token file, or one of sources for a model with labels.
    """
    from seqgen.data.labelled import LabelledLines, LinesOfLabel
    from seqgen.data.pairs import FilePairs, TabPairs

    if isinstance(given, HeldOutPairs):
        return given.pairs if watch is None else _watched(given.pairs, watch)
    if isinstance(given, WithVectors):
        return given.pairs(newlines, watch)
    sides = (given.source, given.target) if isinstance(given, TwoFiles) else (given,)
    for side in sides:
        require_lines(side)
    if isinstance(given, Source):
        text = Watched(given, newlines, watch or iter)
        if loaded is None or loaded.labels is None:
            return TabPairs(text, given.title)
        if loaded.label is not None:
            return LinesOfLabel(text, loaded.label)
        return LabelledLines(text, given.title, loaded.labels)
    source, target = (Watched(side, newlines) for side in sides)
    pairs = FilePairs(source, target, (sides[0].title, sides[1].title))
    return pairs if watch is None else _watched(pairs, watch)


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
    val: str | None = None,
    val_source: str | None = None,
    val_target: str | None = None,
    data_name: str = "DATA",
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
    if [*(source or ()), *(target or ())].count("-") > 1:
        raise UsageError("standard input can be only one of the files")
    if sources and data:
        raise UsageError(f"give {data_name}, or {flag} and --target, not both")
    if source_vectors:
        check_vectors(source_vectors)
    if (val_source is None) != (val_target is None):
        raise UsageError("--val-source and --val-target go together")
    if val_source is not None and val is not None:
        raise UsageError("give --val, or --val-source and --val-target, not both")

"""Pairs of a source and a target: from FILEs, or held out by a model; how they are translated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqgen.cli.inputs import Input, Inputs, Pipe
from seqgen.cli.output import Output, announce
from seqgen.cli.tables import count, figure, interval, percentage
from seqgen.configs import Options, Panel, same, setting
from seqgen.configs.decoding import Translation
from seqgen.configs.scoring import TranslationScores
from seqgen.errors import SeqgenError, UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.scoring.evaluate import Evaluation
    from seqgen.commands.scoring.translations import Translating
    from seqgen.data.pairs import Pairs
    from seqgen.data.tokenfile import TokenFile


# The value of --fit that means no file.
HELD_OUT = "held-out"
Watch = Callable[[Iterable[str]], Iterator[str]]


class SourceVectors(Options, panel=Panel.TEXT):
    """The vectors that a model writes from."""

    source_vectors: str | None = setting(
        "The .npy or .safetensors file of the vectors that a model of vectors writes from.",
        reads="file",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source_vectors is not None:
            check_vectors(self.source_vectors)


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
        from seqgen.commands.scoring.perplexity import held_out_pairs

        first, *others = [held_out_pairs(loaded) for loaded in models]
        for loaded, pairs in zip(models[1:], others, strict=True):
            if list(pairs) != list(first):
                names = f"{models[0].stored.name} and {loaded.stored.name}"
                raise SeqgenError(f"{names} hold out different pairs: give a FILE")
        return cls(first)


@dataclass(frozen=True)
class TwoFiles:
    """The FILEs of `--source` and `--target`, in the place of one FILE of pairs."""

    source: Input
    target: Input

    @property
    def name(self) -> str:
        """What records call them: the file that is scored."""
        return self.target.name


@dataclass(frozen=True)
class Watched:
    """A FILE as a text that can be read any number of times, with what takes note of it."""

    source: Input
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

    targets: Input
    vectors: str

    @property
    def name(self) -> str:
        """What records call it."""
        return self.targets.name

    def pairs(self, newlines: str, watch: Watch | None) -> Pairs:
        """Return the pairs; see `as_text`."""
        from seqgen.data.pairs import VectorPairs
        from seqgen.data.vector_files import open_vectors

        require_lines(self.targets)
        text = Watched(self.targets, newlines, watch or iter)
        return VectorPairs(open_vectors(self.vectors), text, self.targets.title)


ScoredInput = Input | TwoFiles | WithVectors | HeldOutPairs


class PairFiles(Options, panel=Panel.TEXT):
    """The files of pairs that a command is given: of both sides, or one, which a subclass adds."""

    source: str | None = setting(
        "For pairs in two files: the sources, a line each; needs --target.", reads="file"
    )
    source_vectors: str | None = same(SourceVectors, "source_vectors")
    target: str | None = setting(
        "For pairs in two files: the targets; line n belongs to line n of --source, or to source n "
        "of --source-vectors.",
        reads="file",
    )

    @property
    def file(self) -> str | None:
        """The one file of pairs, or of text."""
        return None

    @property
    def of_pairs(self) -> str | None:
        """The option of a side that was given, if one was: those are for models of pairs."""
        sides = ("--source", "--source-vectors", "--target")
        return next((option for option in sides if option in self.given), None)

    @property
    def any(self) -> bool:
        """Whether anything was given."""
        return self.file is not None or self.of_pairs is not None


def given_pairs(inputs: Inputs, files: PairFiles) -> Input | TwoFiles | WithVectors | None:
    """Return what was given of pairs: a FILE, or one for each side; None if nothing was.

    Raises:
        UsageError: there is one side alone, or both a FILE and sides.
    """
    file, source, target = files.file, files.source, files.target
    sides = source and [source], files.source_vectors, target and [target]
    check_sides([file] if file else [], *sides, data_name="FILE")
    if target is None:
        return None if file is None else inputs.open_one(file)
    if files.source_vectors is not None:
        return WithVectors(inputs.open_one(target), files.source_vectors)
    return TwoFiles(inputs.open_one(source), inputs.open_one(target))


def require_reads(models: Sequence[LoadedModel], given: ScoredInput) -> None:
    """Refuse pairs whose sources models do not read: texts for vectors, or vectors for texts.

    Raises:
        SeqgenError: a model does not.
    """
    for loaded in models:
        if isinstance(given, WithVectors):
            loaded.given.require_vectors()
        elif isinstance(given, Input | TwoFiles):
            loaded.given.check(None)


def check_one_kind(models: Sequence[LoadedModel]) -> bool:
    """Refuse models of text beside models of pairs; return whether these are of pairs.

    Raises:
        UsageError: there are both: no FILE is for both.
    """
    kinds = {m.given.noun: m for m in models}
    if len(kinds) > 1:
        one, other, *_ = kinds.values()
        apart = f"{other.stored.name} {other.given.noun}: score them apart"
        raise UsageError(f"{one.stored.name} scores {one.given.noun} and {apart}")
    return models[0].given.in_pairs


def check_translates(loaded: LoadedModel, option: str | None) -> None:
    """Refuse an option that is for models that write from sources, for any other model.

    Raises:
        UsageError: it was given, and the model is another.
    """
    if option is not None and not loaded.given.is_source:
        name = loaded.stored.name
        raise UsageError(f"{option} is for translators; {name} reads {loaded.given.noun}")


def held_out_by(models: Sequence[LoadedModel], quiet: bool) -> Input | HeldOutPairs:
    """Return the text that one model holds out, or that several do.

    Raises:
        SeqgenError: a model holds out nothing, or other text than another.
    """
    from seqgen.commands.scoring.compare import common_text, hold_out_alike

    names = " and ".join(loaded.stored.name for loaded in models)
    if models[0].given.in_pairs:
        pairs = HeldOutPairs.by(models)
        if not quiet:
            announce(f"scoring the held-out {models[0].given.noun} of {names}")
        return pairs
    path = models[0].stored.validation_text
    if path is None:
        raise SeqgenError(f"{models[0].stored.name} has no held-out text; give a FILE")
    alike = len(models) == 1 or hold_out_alike(models)
    held_out = path if alike else Pipe(iter([common_text(models).encode()]))
    if not quiet:
        announce(f"scoring the held-out text of {names}")
    return Input("validation", None, held_out)


def beside(loaded: LoadedModel, source: Input, targets: Sequence[Input]) -> TwoFiles:
    """Return the files of two sides: line n of one belongs to line n of the other.

    Args:
        loaded: the model that scores them.
        source: the file of the sources.
        targets: the file of the targets, and no other.

    Raises:
        UsageError: the model reads no pairs; or there is not one file of targets.
    """
    check_translates(loaded, "--source")
    if len(targets) != 1:
        raise UsageError(f"--source goes with one FILE of targets, not {len(targets)}")
    return TwoFiles(source, targets[0])


def as_text(
    loaded: LoadedModel, given: ScoredInput, watch: Watch | None = None
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
    if not loaded.given.in_pairs and isinstance(given, Input):
        if watch is not None:
            return watch(given.chunks(newlines))
        return given.token_file or given.chunks(newlines)
    require_reads([loaded], given)
    return as_pairs(given, newlines, watch, loaded)


def as_pairs(
    given: ScoredInput, newlines: str, watch: Watch | None = None, loaded: LoadedModel | None = None
) -> Pairs:
    """Return the pairs of a FILE, or of what stands in its place.

    Args:
        given: the FILE.
        newlines: "keep", or "lf" for LF instead of CRLF.
        watch: takes note of the pairs, as lines with a tab.
        loaded: what reads them, where that is known: one with labels reads lines that have some,
            or that have those which it was told.

    Raises:
        UsageError: a FILE is a token file.
    """
    from seqgen.data.pairs import FilePairs, TabPairs

    if isinstance(given, HeldOutPairs):
        return given.pairs if watch is None else _watched(given.pairs, watch)
    if isinstance(given, WithVectors):
        return given.pairs(newlines, watch)
    sides = (given.source, given.target) if isinstance(given, TwoFiles) else (given,)
    for side in sides:
        require_lines(side)
    if isinstance(given, Input):
        text = Watched(given, newlines, watch or iter)
        read = TabPairs if loaded is None else loaded.given.read
        return read(text, given.title)
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
    """Refuse a file that contains no vectors, by its name, before anything is read.

    Raises:
        UsageError: it does not end as such files do.
    """
    from seqgen.data.vector_files import ENDINGS, is_vector_file

    if not is_vector_file(name):
        raise UsageError(f"--source-vectors takes a file that ends in {' or '.join(ENDINGS)}")


def require_lines(source: Input) -> None:
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
        raise UsageError(f"{flag} and --target go together; line n of --target is of source n")
    if [*(source or ()), *(target or ())].count("-") > 1:
        raise UsageError("standard input can be only one of the files")
    if sources and data:
        raise UsageError(f"give {data_name}, or {flag} and --target, not both")
    if source_vectors:
        check_vectors(source_vectors)


def translating(
    translation: Translation, scores: TranslationScores, batch_size: int
) -> Translating:
    """Return how sources are translated and scored, as options say.

    Raises:
        UsageError: an option is wrong.
    """
    from seqgen.commands.scoring.translations import METRICS, Translating
    from seqgen.configs.scoring import MetricOptions

    return Translating(
        search=translation.search(batch_size),
        fit_targets=translation.max_tokens is None,
        metrics=tuple(MetricOptions(metric=scores.metric).by_metric(METRICS)),
        lengths=scores.lengths,
    )


def score_rows(evaluations: Sequence[Evaluation]) -> Iterator[list[str]]:
    """Yield the rows of a table of evaluations: a metric each, then the classes of length.

    Args:
        evaluations: of models of pairs, by the same metrics on the same pairs.
    """
    records = [one.translations for one in evaluations]
    for scores in zip(*(record["metrics"] for record in records), strict=True):
        shown = (interval(one["score"], one.get("confidence_interval"), 2) for one in scores)
        yield [scores[0]["metric"], *shown]
    yield ["exact match", *(percentage(record["exact_match"]) for record in records)]
    for scores in zip(*(record["by_length"] for record in records), strict=True):
        first = scores[0]
        to = "" if first["least"] == first["most"] else f" to {first['most']}"
        lengths = f"{first['least']}{to} {first['unit']}"
        yield [
            f"{first['metric']}, {lengths} ({count(first['pairs'])})",
            *(figure(one["score"], 2) for one in scores),
        ]


def say_cut(model: str, cut: int, pairs: int, most: int, out: Output) -> None:
    """Say how many translations reached the greatest length, if any."""
    if cut:
        of = f"{count(cut)} of {plural(pairs, 'translation')}"
        out.notice(f"{model}: {of} cut at {most} tokens (--max-tokens)")

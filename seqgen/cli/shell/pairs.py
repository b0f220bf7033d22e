"""Pairs of sources and targets: opened from files, or held out by a model; translation options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from seqgen import hooks
from seqgen.cli.shell.inputs import Input, Inputs, Pipe
from seqgen.cli.shell.output import Output, announce
from seqgen.cli.shell.tables import count, figure, interval, percentage
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import OptionRule, Options, Panel, redeclare, require, setting
from seqgen.settings.data import VECTOR_FILES
from seqgen.settings.generation import Translation
from seqgen.settings.scoring import TranslationScores
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.scoring.evaluate import Evaluation
    from seqgen.scoring.translations import Translating
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.pairs import Pairs
    from seqgen.text.tokenfile import TokenFile


# The value of --fit that means no file.
HELD_OUT = "held-out"


class SourceVectorFile(Options, panel=Panel.TEXT):
    """Option for the file of source vectors that a model generates from."""

    source_vectors: str | None = setting(
        "The .npy or .safetensors file of the vectors that a model of vectors writes from.",
        reads="file",
        endings=VECTOR_FILES,
    )


@dataclass(frozen=True)
class TextOf:
    """Text of an input file, with a newline setting; can be read any number of times."""

    source: Input
    newlines: str

    def chunks(self) -> Iterator[str]:
        """Yield the text in pieces, from its start."""
        return self.source.chunks(self.newlines)


@dataclass(frozen=True)
class PairsOf:
    """Pairs that take the place of an input file: from two files, or held out.

    Attributes:
        name: what records call them.
        open: returns them, for a value of `newlines`.
        vectors: whether their sources are a file of vectors.
        part: None, for the whole; see `Input`.
    """

    name: str
    open: Callable[[str], Pairs]
    vectors: bool = False
    part: ClassVar[str | None] = None


ScoredInput = Input | PairsOf


def held_out_pairs_by(models: Sequence[LoadedModel]) -> PairsOf:
    """Open the held-out pairs that several models have in common.

    Raises:
        SeqgenError: a model holds out none, or other pairs than another.
    """
    from seqgen.scoring.perplexity import held_out_pairs

    first, *others = [held_out_pairs(loaded) for loaded in models]
    for loaded, pairs in zip(models[1:], others, strict=True):
        if list(pairs) != list(first):
            names = f"{models[0].stored.name} and {loaded.stored.name}"
            raise SeqgenError(f"{names} hold out different pairs: give a FILE")
    return PairsOf("validation", lambda newlines: first)


def pairs_of_files(source: Input | None, vectors: str | None, target: Input) -> PairsOf:
    """Combine a file of sources, or of vectors, with a file of targets.

    Raises:
        UsageError: as they are opened: one is a token file.
        SeqgenError: likewise: the file of vectors is damaged.
    """

    def opened(newlines: str) -> Pairs:
        from seqgen.text.pairs import FilePairs, VectorPairs
        from seqgen.text.vector_files import open_vectors

        targets = lines_of(target, newlines)
        if source is None:
            return VectorPairs(open_vectors(vectors), targets, target.title)
        return FilePairs(lines_of(source, newlines), targets, (source.title, target.title))

    return PairsOf(target.name, opened, vectors=source is None)


def lines_of(source: Input, newlines: str) -> TextOf:
    """Open a file as lines of text; a token file is an error.

    Raises:
        UsageError: it is a token file.
    """
    if source.token_file is not None:
        raise UsageError(f"{source.title} is a token file; pairs are read as text")
    return TextOf(source, newlines)


SIDES = "go together; line n of --target is of source n"
WITH_TARGET = OptionRule(("--target",), f"{{flag}} and --target {SIDES}")
WITH_SOURCE = OptionRule(("--source", "--source-vectors"), f"--source and --target {SIDES}")
# The options of a file of pairs, by command.
ONE_FILE = (
    OptionRule(("DATA", "--data", "FILE"), "give {other}, or {flag} and --target, not both"),
)


class PairFiles(Options, panel=Panel.TEXT):
    """Options for files of pairs: sources and targets, or one file that a subclass adds."""

    source: str | None = setting(
        "For pairs in two files: the sources, a line each; needs --target.",
        reads="file",
        conflicts=("--source-vectors", *ONE_FILE),
        needs=WITH_TARGET,
    )
    source_vectors: str | None = redeclare(
        SourceVectorFile, "source_vectors", conflicts=ONE_FILE, needs=WITH_TARGET
    )
    target: str | None = setting(
        "For pairs in two files: the targets; line n belongs to line n of --source, or to source n "
        "of --source-vectors.",
        reads="file",
        needs=WITH_SOURCE,
    )

    @property
    def file(self) -> str | None:
        """File of the text, or of pairs in one file; overridden by subclasses."""
        return None

    @property
    def of_pairs(self) -> str | None:
        """First option given that only models of pairs support, or None."""
        sides = ("--source", "--source-vectors", "--target")
        return next((option for option in sides if option in self.given), None)

    @property
    def any(self) -> bool:
        """Check whether any file option was given."""
        return self.file is not None or self.of_pairs is not None


def given_pairs(inputs: Inputs, files: PairFiles) -> ScoredInput | None:
    """Open the files of pairs given on the command line; None if none were."""
    file, source, target = files.file, files.source, files.target
    check_one_pipe(source, target)
    if target is None:
        return None if file is None else inputs.open_one(file)
    sources = None if source is None else inputs.open_one(source)
    return pairs_of_files(sources, files.source_vectors, inputs.open_one(target))


def check_one_kind(models: Sequence[LoadedModel]) -> bool:
    """Check that models all read text or all read pairs; return True for pairs.

    Raises:
        UsageError: there are both: no FILE is for both.
    """
    kinds = {m.conditioning.noun: m for m in models}
    if len(kinds) > 1:
        (one, model), (other, second), *_ = kinds.items()
        raise UsageError(
            f"{model.stored.name} is a model of {one} and {second.stored.name} one of {other}: "
            "they cannot be scored together"
        )
    return models[0].conditioning.in_pairs


def held_out_input(models: Sequence[LoadedModel], quiet: bool) -> ScoredInput:
    """Open the held-out text, or held-out pairs, that the models have in common.

    Raises:
        SeqgenError: a model holds out nothing, or other text than another.
    """
    from seqgen.scoring.compare import common_text, share_held_out_text
    from seqgen.scoring.perplexity import last_held_out

    first, what = models[0], f"the held-out {models[0].conditioning.noun}"
    path = first.stored.validation_text
    alone = len(models) == 1 and not first.stored.scored_from
    if first.conditioning.in_pairs:
        held_out = held_out_pairs_by(models)
    elif path is None:
        raise SeqgenError(f"{first.stored.name} has no held-out text; give a text file")
    elif alone or share_held_out_text(models):
        held_out = Input("validation", None, path)
    else:
        text = common_text(models)
        what = last_held_out(len(text))
        held_out = Input("validation", None, Pipe(iter([text.encode()])), part=what)
    if not quiet:
        announce(f"scoring {what} of {' and '.join(loaded.stored.name for loaded in models)}")
    return held_out


def as_text(loaded: LoadedModel, given: ScoredInput) -> Iterable[str] | Pairs:
    """Read an input as the model scores it: text in pieces, or pairs.

    Raises:
        UsageError: it is a token file, and the model reads pairs; or it has examples.
        SeqgenError: the model does not read such sources.
    """
    if loaded.conditioning.in_pairs or isinstance(given, PairsOf):
        return as_pairs(loaded, given, loaded.data.newlines)
    if hooks.read_examples(loaded, given.content):
        raise UsageError(f"{given.title} has examples: only seqgen perplexity and eval score them")
    return given.chunks(loaded.data.newlines)


def as_scored(
    loaded: LoadedModel, given: ScoredInput, tell: Callable[[str], object] = str
) -> Iterable[str] | TokenFile | Pairs:
    """Read an input as `as_text` does, or open tokens or examples for a text model."""
    if isinstance(given, PairsOf) or loaded.conditioning.in_pairs:
        return as_text(loaded, given)
    examples = given.token_file or hooks.read_examples(loaded, given.content, tell)
    return examples or as_text(loaded, given)


def as_pairs(loaded: LoadedModel, given: ScoredInput, newlines: str) -> Pairs:
    """Read an input as pairs, and check that the model supports its sources.

    Args:
        loaded: what reads them: one with labels reads lines that have some, or that have those
            which it was told.
        given: the FILE.
        newlines: "keep", or "lf" for LF instead of CRLF.

    Raises:
        UsageError: a FILE is a token file.
        SeqgenError: the model does not read such sources.
    """
    if isinstance(given, Input):
        pairs = loaded.conditioning.read(lines_of(given, newlines), given.title)
    else:
        if given.vectors:
            loaded.conditioning.require_vectors()
        pairs = given.open(newlines)
    loaded.conditioning.check(pairs.source_features)
    return pairs


def check_one_pipe(*files: str | None) -> None:
    """Raise an error if two inputs are both standard input.

    Raises:
        UsageError: two of the names are "-".
    """
    require(files.count("-") < 2, "standard input can be only one of the files")


def translating(
    translation: Translation, scores: TranslationScores, batch_size: int
) -> Translating:
    """Build the settings for translating and scoring from command-line options.

    Raises:
        UsageError: an option is wrong.
    """
    from seqgen.scoring.translations import METRICS, Translating
    from seqgen.settings.scoring import MetricOptions

    return Translating(
        search=translation.search(batch_size),
        fit_targets=translation.max_tokens is None,
        metrics=tuple(MetricOptions(metric=scores.metric).by_metric(METRICS)),
        lengths=scores.by_length or None,
    )


def score_rows(evaluations: Sequence[Evaluation]) -> Iterator[list[str]]:
    """Yield table rows of translation scores: each metric, then each length bucket.

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


def report_truncated(model: str, cut: int, pairs: int, most: int, out: Output) -> None:
    """Report how many translations were cut off at the maximum length."""
    if cut:
        of = f"{count(cut)} of {plural(pairs, 'translation')}"
        out.notice(f"{model}: {of} cut at {most} tokens (--max-tokens)")

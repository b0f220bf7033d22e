"""`seqgen perplexity`: score text; fit mixtures and caches to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Input, Inputs, piped_input
from seqgen.cli.shell.model_options import Machine, ModelNames, run_task_variant
from seqgen.cli.shell.output import (
    Output,
    RecordedOutput,
    one_line,
    put,
    put_record,
    say,
    say_protocols,
)
from seqgen.cli.shell.pairs import (
    HELD_OUT,
    PairsOf,
    ScoredInput,
    SourceVectorFile,
    as_scored,
    as_text,
    check_one_kind,
    held_out_input,
    pairs_of_files,
)
from seqgen.cli.shell.source_attention import IN_PLACE_OF_ATTENTION, AttentionView, Picture
from seqgen.cli.shell.tables import declared_columns, figure, put_columns, weight
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import input_title
from seqgen.settings import (
    ONE_MODEL,
    Documents,
    OptionRule,
    Options,
    Panel,
    check_rules,
    file_argument,
    group,
    redeclare,
    require,
    setting,
)
from seqgen.settings.filters import TextSet
from seqgen.settings.generation import LookOptions
from seqgen.settings.options import added_options
from seqgen.settings.scoring import CacheOptions, Scoring, TextScoring
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel

T = TypeVar("T")


class TextFiles(Options):
    """FILE arguments of `seqgen perplexity`: the texts to score."""

    files: tuple[str, ...] = file_argument(
        "Text or token files, or - for standard input. Without a FILE, the model's held-out text "
        "is scored.",
        "",
    )

    @property
    def or_piped(self) -> tuple[str, ...]:
        """Files given on the command line, else standard input if something is piped in."""
        return ("-",) if not self.files and piped_input() is not None else self.files


class LineByLine(Options, panel=Panel.OUTPUT):
    """Options that score each line separately."""

    documents: Documents | None = redeclare(TextScoring, "documents")
    per_line: bool = setting(
        "Score each line alone; print its bits per character, a tab and the line.",
        common=True,
        conflicts=OptionRule(
            ("--documents stream",), "{flag} scores each line alone: leave out {other}"
        ),
    )


class ScoredText(TextFiles, panel=Panel.TEXT):
    """Options for the text to score, its labels and its sources."""

    label: tuple[str, ...] = setting(
        "For a model trained with --labels: FILE is plain text, and all its lines have this "
        "label. Can be repeated.",
        metavar="NAME",
    )
    source: str | None = setting(
        "Line n of this file is the source of line n of FILE, for a model of pairs.", reads="file"
    )
    vectors: SourceVectorFile = group(SourceVectorFile)


class ScoreViews(Options, panel=Panel.OUTPUT):
    """Options that show lines or tokens with their scores instead of a summary."""

    per_line: bool = redeclare(LineByLine, "per_line")
    per_token: bool = setting(
        "Print the bits of each token, a tab and the token; with --per-line, of each line alone.",
        common=True,
        conflicts=(ONE_MODEL, IN_PLACE_OF_ATTENTION),
    )
    show: bool = setting(
        "Print the text, coloured by how surprising each token is.",
        common=True,
        conflicts=(
            ONE_MODEL,
            OptionRule(("--per-line", "--per-token"), "give {other} or {flag}, not both"),
            "--no-end",
        ),
    )
    fit: str | None = setting(
        "Fit the weights of the mixture -m A+B on this text, and with --cache its strength and "
        "flatness; print the options to use. FILE may be held-out, the model's held-out text.",
        panel=Panel.MODEL,
        reads="file",
        conflicts=(
            ONE_MODEL,
            OptionRule(("--per-line", "--per-token", "--show"), "give {other} or {flag}, not both"),
            "--no-end",
            OptionRule(
                ("--cache-strength", "--cache-flatness"),
                "{flag} finds --cache-strength and --cache-flatness: leave them out",
            ),
        ),
    )


# The sets of texts that plugins describe, groups of the class `TextSet`.
TextSets = added_options("perplexity")


@takes_options
def perplexity(
    context: typer.Context,
    text: ScoredText,
    text_sets: TextSets,
    models: ModelNames,
    looked_up: CacheOptions,
    scoring: Scoring,
    views: ScoreViews,
    look: LookOptions,
    picture: Picture,
    machine: Machine,
    out: RecordedOutput,
) -> None:
    """Score text: perplexity and bits per token, word, character and byte; accuracy.

    Bits per character and byte include 8 bits for each byte of an unknown token. With several
    files or several models, the result is a table. With --per-line and several models, each line
    is preceded by the name of the model that predicts it best. --attention and --align apply to
    single pairs and imply --per-line. Masked models have a pseudo-perplexity.
    """
    if run_task_variant(context, models.names):
        return
    from seqgen.generation.from_source import check_sources
    from seqgen.scoring.perplexity import for_model, warning_of

    look = picture.of(look)
    views = replace(views, per_line=views.per_line or look.needs_attention)
    check_rules(models, scoring, views, look)  # now that some lines are scored alone
    loaded = _load(models, looked_up, scoring, views, machine, text.or_piped)
    out.uses(loaded)
    loaded = [one.with_labels(text.label) for one in loaded]
    if views.per_line:
        scoring = replace(scoring, documents="line")
    if text_sets.given:
        _put_set(loaded, text_sets, out)
        return
    for one in loaded:
        for_model(one, scoring)  # refuses a way to score that does not suit it
        if warning := warning_of(one, scoring):
            out.announce(warning)
    check_one_kind(loaded)
    check_sources(look, loaded[0])
    inputs = Inputs(out.quiet)
    sources = inputs.open(text.or_piped if views.fit is None else text.files)
    looks = AttentionView(look, picture.plot, maps=out.draws, inputs=sources)
    if text.source is not None or text.vectors.source_vectors is not None:
        sources = [_pairs_of_files(loaded, text, sources, inputs)]
    if views.fit is not None:
        on = held_out_input(loaded, quiet=True) if views.fit == HELD_OUT else None
        loaded = [fit_on(on or inputs.open_one(views.fit), loaded[0], scoring, out)]
        if not sources:
            return
    if text.label and not sources:
        raise UsageError("--label goes with a FILE of plain text: held-out lines have their own")
    sources = sources or [held_out_input(loaded, out.quiet)]
    scores = ScoreOutput(loaded, scoring, out)
    if views.per_line and not views.per_token:
        scores.per_line(sources, looks)
    elif views.per_token or views.show:
        scores.per_token(sources, views.show)
    else:
        scores.whole(sources)


def _put_set(loaded: Sequence[LoadedModel], text_sets: Options, out: Output) -> None:
    """Print the log-probability that each model generates a text in a set, given by a flag."""
    described: TextSet = next(each for each in text_sets.groups if each.given)
    about = {name: getattr(described, name) for name in described.fields()}
    for one in loaded:
        log_prob = described.log_prob(one)
        if not out.record({"model": one.name, **about, "logprob": log_prob}):
            put(f"{figure(log_prob)}\t{one.name}\n")


def _load(
    models: ModelNames,
    looked_up: CacheOptions,
    scoring: Scoring,
    views: ScoreViews,
    machine: Machine,
    files: Sequence[str],
) -> list[LoadedModel]:
    """Load the models to score with; a bidirectional one is split by direction if possible."""
    from seqgen.store.loading import Work, load_directions

    fit, cache = views.fit, looked_up.config
    work = Work.of_files([] if fit == HELD_OUT else files if fit is None else [*files, fit])
    adapts = scoring.adaptation is not None
    if adapts or views.per_token or views.show or fit is not None:
        return [machine.load(name, cache, None if adapts else work) for name in models.names]
    place, precision, names = machine.device, machine.precision, map(machine.seen, models.names)
    each = (load_directions(name, place, precision, cache, work) for name in names)
    return list(chain.from_iterable(each))


def _pairs_of_files(
    loaded: Sequence[LoadedModel], text: ScoredText, targets: Sequence[Input], inputs: Inputs
) -> PairsOf:
    """Pair the one FILE of targets with its file of sources.

    Raises:
        UsageError: there is no FILE, or more than one; or the models read no sources.
        SeqgenError: a model does not read vectors.
    """
    source, vectors = text.source, text.vectors.source_vectors
    flag = "--source-vectors" if source is None else "--source"
    if source is not None:
        loaded[0].conditioning.require_sources(flag)
    require(len(targets) == 1, f"{flag} goes with one FILE of targets, not {len(targets)}")
    for one in loaded if source is None else ():
        one.conditioning.require_vectors()
    return pairs_of_files(None if source is None else inputs.open_one(source), vectors, targets[0])


@dataclass(frozen=True)
class ScoreOutput:
    """Scores texts with models and prints the figures.

    Attributes:
        models: that score each text.
        scoring: how.
        out: takes the figures.
    """

    models: list[LoadedModel]
    scoring: Scoring
    out: Output

    def whole(self, sources: list[ScoredInput]) -> None:
        """Print one record or table row for each model and text."""
        from seqgen.scoring.perplexity import perplexity as score

        records = []
        for loaded in self.models:
            for source in sources:
                text = as_scored(loaded, source, self.out.announce)
                about = {"file": source.name, "part": source.part}
                records.append(score(loaded, text, scoring=self.scoring, **about))
                self.out.record(records[-1])
        put_figures(records, self.out, COLUMNS)

    def per_line(self, sources: list[ScoredInput], looks: AttentionView) -> None:
        """Print the figures of each line; with several models, also which one scores it best."""
        from seqgen.scoring.surprisal import attribute_lines, line_record

        models, names = self.models, [loaded.stored.name for loaded in self.models]
        several = len(models) > 1
        if several and not self.out.json:
            self.out.notice("\t".join(["best", *(f"bits/char {name}" for name in names), "line"]))
        # Each model converts the newlines of a line if it was trained that way.
        reader = max(models, key=lambda loaded: loaded.data.newlines == "keep")
        for source in sources:
            text = as_text(reader, source)
            for liked in at_least_one(attribute_lines(models, text, self.scoring), source.name):
                best, lines = liked.best, liked.lines
                look = looks.at(models[0], lines[0])
                looks.put(look, f"line {lines[0].index}")
                if self.out.json:
                    where = source.name, models[best], lines[best]
                    record = line_record(*where, self.scoring, source.part)
                    if several:
                        bits = (line.totals.bits for line in lines)
                        record |= {"best": names[best], "bits": dict(zip(names, bits, strict=True))}
                    put_record(record | ({} if look is None else look.keys()))
                    continue
                row = [names[best]] * several
                row += [figure(line.totals.bits_per_char) for line in lines]
                row.append(one_line(lines[0].text))
                if look is not None and look.alignment is not None:
                    row.append(look.alignment)
                put("\t".join(row) + "\n")
            self._sign(source)

    def per_token(self, sources: list[ScoredInput], show: bool) -> None:
        """Print the bits of each token under one model, or the text coloured by them."""
        from seqgen.cli.shell.coloured import put_coloured
        from seqgen.scoring.perplexity import for_model, protocol
        from seqgen.scoring.surprisal import score_tokens

        (loaded,) = self.models
        scoring = for_model(loaded, self.scoring)
        for source in sources:
            about = protocol(loaded, scoring, part=source.part)
            tokens = score_tokens(loaded, as_text(loaded, source), scoring)
            tokens = at_least_one(tokens, source.name)
            if show and not self.out.json:
                put_coloured(tokens, self.out)
                tokens = ()
            where = {"file": source.name, "model": loaded.stored.name}
            for token in tokens:
                if not self.out.record({**where, **asdict(token), "protocol": about}):
                    put(f"{figure(token.surprisal_bits)}\t{one_line(token.token)}\n")
            self._sign(source)

    def _sign(self, source: ScoredInput) -> None:
        """Print the scoring protocol of a text; with --verbose, the exact signature."""
        from seqgen.scoring.perplexity import for_model, protocol, scoring_signature
        from seqgen.text.pairs import Pairs
        from seqgen.text.reading import survey

        text = as_text(self.models[0], source) if self.out.explains else ()
        facts = text.survey() if isinstance(text, Pairs) else survey(text)
        for loaded in self.models:
            resolved = for_model(loaded, self.scoring)
            self.out.notice(f"{loaded.stored.name}: {protocol(loaded, resolved, part=source.part)}")
            if self.out.explains:
                signature = scoring_signature("perplexity", loaded, resolved, facts.sha256)
                say(f"{source.name}: {signature}")


def at_least_one(records: Iterator[T], file: str) -> Iterator[T]:
    """Yield the scored records, or raise an error if the file was empty.

    Raises:
        SeqgenError: there was nothing.
    """
    first = next(records, None)
    if first is None:
        raise SeqgenError(f"{input_title(file)} is empty: there is nothing to score")
    return chain([first], records)


# Fields of a `Perplexity` in the order of columns.
COLUMNS = (
    *("file", "model", "tokens", "nats_per_token", "perplexity", "perplexity_per_word"),
    *("bits_per_char", "bits_per_byte", "oov_bits_per_byte", "accuracy", "top5_accuracy", "oov"),
)


def put_figures(records: Sequence[Any], out: Output, first: Sequence[str] = ()) -> None:
    """Print a table of scores, without empty columns; does nothing with --json.

    Args:
        records: of a dataclass whose fields declare columns, among them `model`.
        out: how results are printed.
        first: fields whose columns come first.
    """
    if out.json:
        return
    several = len({record.model for record in records}) > 1
    columns = declared_columns(records, first)
    if not several:
        del columns["model"]
    put_columns(columns, records, left=2 if several else 1)
    say_protocols(records, out)


def fit_on(source: ScoredInput, loaded: LoadedModel, scoring: Scoring, out: Output) -> LoadedModel:
    """Fit mixture weights and a cache to a text, print them, and return the fitted model."""
    from seqgen.scoring.mixture_fitting import fit

    by = getattr(loaded.stored, "by", None)
    if by is not None:
        out.notice(
            f"{loaded.stored.name} has weights by {by}; --fit finds weights that are the same in "
            f"every context (seqgen mix PARTS --by {by} --fit FILE fits them by {by})"
        )
    mixed, result = fit(loaded, as_scored(loaded, source, out.announce), scoring)
    cache = mixed.cache
    if not out.record(result):
        put(f"{result.model}\n" if cache is None else f"{result.model} {cache}\n")
    stored = getattr(mixed.stored, "parts", (mixed.stored,))
    for part, value, perplexity in zip(stored, result.weights, result.components, strict=True):
        out.notice(f"{part.name}: weight {weight(value)}, perplexity {figure(perplexity)}")
    if cache is not None:
        out.notice(f"cache: strength {figure(cache.strength)}, flatness {figure(cache.flatness)}")
    tokens = plural(result.tokens, "token")
    out.notice(f"mixed: perplexity {figure(result.perplexity)} on {tokens} of {source.name}")
    return mixed

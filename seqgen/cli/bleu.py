"""`seqgen bleu`: score text against references. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs, piped_input
from seqgen.cli.shell.output import Output, RecordedOutput, put, put_record, say
from seqgen.cli.shell.pairs import check_one_pipe
from seqgen.cli.shell.tables import figure, interval, put_table
from seqgen.settings import Options, file_argument, require
from seqgen.settings.scoring import METRICS, BleuTest, MetricOptions

if TYPE_CHECKING:
    from seqgen.scoring.bleu import ComparedTexts
    from seqgen.settings.scoring import BleuOptions


class ScoredFiles(Options):
    """Arguments of `seqgen bleu`: hypothesis and reference files, compared line by line."""

    files: tuple[str, ...] = file_argument(
        "The text to score and its references, compared line by line. If HYP is - or left out, it "
        "is read from standard input.",
        "[HYP] REF...",
    )


@takes_options
def bleu(
    compared: ScoredFiles,
    metrics: MetricOptions,
    test: BleuTest,
    out: RecordedOutput,
) -> None:
    """Score text against one or several references: BLEU, chrF, chrF++ or TER, by sacreBLEU.

    A signature records exactly how a score was made; --verbose and --json show it. Lower TER is
    better; for the other metrics, higher is better.
    """
    from seqgen.metrics.bleu import looks_tokenized

    every = metrics.by_metric()
    texts = _read([*compared.files], [*test.against])
    tokenized = [name for name, lines in texts.systems.items() if looks_tokenized(lines)]
    plain = any(one.metric == "bleu" and one.tokenize != "none" for one in every)
    if plain and tokenized:
        out.notice(
            f"{tokenized[0]} looks tokenized (spaces before the last mark of its lines): BLEU "
            "tokenizes by itself, so give it plain text, or --tokenize none"
        )
    if test.sentence_level:
        _put_sentences(texts, every, out)
        return
    put_scores = _put_paired if test.against else _put_corpus
    for one in every:
        put_scores(texts, one, test, out)


def _read(files: list[str], against: list[str]) -> ComparedTexts:
    """Read the hypotheses and references; a single file is the reference of standard input.

    Raises:
        UsageError: there is no reference, standard input is wanted twice, or a file is several.
    """
    from seqgen.scoring.bleu import read_texts

    if len(files) == 1 and files != ["-"] and piped_input() is not None:
        files = ["-", *files]
    named = next((x for x in files if x in METRICS and not Path(x).exists()), None)
    require(named is None, f"there is no file {named}; each metric has its own --metric {named}")
    require(len(files) >= 2, "give HYP and at least one REF; HYP may be - or piped in")
    check_one_pipe(*files, *against)
    inputs = Inputs()
    hypothesis, *references = map(inputs.open_one, files)
    systems = [hypothesis, *map(inputs.open_one, against)]
    texts = {source.title: source.chunks() for source in systems}
    require(len(texts) == len(systems), "--against must be a file other than HYP")
    return read_texts(
        texts, {f"reference {n} ({s.name})": s.chunks() for n, s in enumerate(references, 1)}
    )


def _put_corpus(texts: ComparedTexts, options: BleuOptions, test: BleuTest, out: Output) -> None:
    """Print corpus scores, with a confidence interval if requested."""
    from seqgen.metrics.bleu import corpus_score
    from seqgen.scoring.bleu import record_of

    resamples = test.samples if test.confidence else 0
    score = corpus_score(
        texts.hypotheses, texts.references, options, bootstrap=resamples, seed=test.seed
    )
    if not out.record(record_of(score)):
        put((score.text if out.explains else score.short_text) + "\n")


def _put_sentences(texts: ComparedTexts, metrics: Sequence[BleuOptions], out: Output) -> None:
    """Print sentence scores, one row per line of text; metric signatures go to standard error."""
    from seqgen.metrics.bleu import sentence_scores
    from seqgen.scoring.bleu import record_of

    each = (sentence_scores(texts.hypotheses, texts.references, one) for one in metrics)
    scores = zip(*each, strict=True)
    for number, of_line in enumerate(scores):
        if out.json:
            for one in of_line:
                put_record(record_of(one, line=number))
            continue
        if number == 0 and out.explains:
            for one in of_line:
                say(f"{one.metric}|{one.signature}")
        put("\t".join(figure(one.score) for one in of_line) + "\n")


def _put_paired(texts: ComparedTexts, options: BleuOptions, test: BleuTest, out: Output) -> None:
    """Print the scores of several systems, and tests of their differences from the first."""
    from seqgen.scoring.bleu import paired_bleu, record_of

    rows = []
    for name, score in paired_bleu(texts, options, test.paired_test, test.samples, test.seed):
        out.record(record_of(score, file=name))
        mean = "" if score.interval is None else interval(score.mean, score.interval)
        p_value = "" if score.p_value is None else figure(score.p_value)
        rows.append((name, figure(score.score), mean, p_value))
    if not out.json:
        names = ("file", score.metric, "mean ± 95 %", f"p against {Path(rows[0][0]).name}")
        put_table(names, rows)
        if out.explains:
            say(f"{score.metric}|{score.signature}")

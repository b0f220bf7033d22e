"""What `seqgen perplexity` shows of masked models: their pseudo-perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqgen.cli.flags import takes_options
from seqgen.cli.inputs import Input, Inputs, piped_input
from seqgen.cli.kinds import OwnWay
from seqgen.cli.output import Output, one_line, put, say, say_protocols
from seqgen.cli.pairs import held_out_by
from seqgen.cli.reading import ExactMachine, ModelNames
from seqgen.cli.tables import count, figure, percentage, put_columns
from seqgen.configs import Documents, Options, Panel, require, same, setting
from seqgen.configs.scoring import TextScoring
from seqgen.errors import SeqgenError
from seqgen.files import title_of

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.masked.pseudo_perplexity import PseudoPerplexity


class TextFiles(Options):
    """The files that are scored."""

    files: tuple[str, ...] = setting(
        "Text or token files, or - for standard input. Without a FILE, the model's held-out text "
        "is scored.",
        reads="file",
        positional=True,
    )

    @property
    def or_piped(self) -> tuple[str, ...]:
        """The files that were given; without any, standard input if something is piped in."""
        return ("-",) if not self.files and piped_input() is not None else self.files


class LineByLine(Options, panel=Panel.OUTPUT):
    """Whether lines are scored alone."""

    documents: Documents | None = same(TextScoring, "documents")
    per_line: bool = setting(
        "Score each line alone; print its bits per character, a tab and the line.", common=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_stream(self.per_line, self.documents)


def refuse_stream(per_line: bool, documents: Documents | None) -> None:
    """Refuse one stream of text where lines are scored alone.

    Raises:
        UsageError: both are asked for.
    """
    both = per_line and documents == "stream"
    require(not both, "--per-line scores each line alone: leave out --documents stream")


@takes_options
def put_pseudo_perplexity(
    text: TextFiles, models: ModelNames, by_line: LineByLine, machine: ExactMachine, out: Output
) -> None:
    """Score files, standard input or what masked models hold out, and show the figures."""
    from seqgen.commands.loading import Work
    from seqgen.commands.masked.pseudo_perplexity import pseudo_perplexity
    from seqgen.commands.masked.scores import load_masked

    files = text.or_piped
    work = Work.of_files(files) if files else None
    how = machine.device, machine.precision, work
    loaded = [load_masked(name, *how) for name in models.names]
    sources = Inputs(out.quiet).open(files) or [held_out_by(loaded, out.quiet)]
    records = []
    for one in loaded:
        for source in sources:
            if by_line.per_line:
                _put_lines(one, source, out)
                continue
            chunks = source.chunks(one.data.newlines)
            documents = by_line.documents
            records.append(pseudo_perplexity(one, chunks, file=source.name, documents=documents))
            out.record(records[-1])
    if not out.json and not by_line.per_line:
        _table(records, out)


def _put_lines(loaded: LoadedModel, source: Input, out: Output) -> None:
    """Write the pseudo-log-likelihood of each line, a tab and the line."""
    from seqgen.commands.masked.pseudo_perplexity import pseudo_lines

    record = None
    for record in pseudo_lines(loaded, source.chunks(loaded.data.newlines), file=source.name):
        if out.record(record):
            continue
        put(f"{figure(record.pseudo_log_likelihood)}\t{one_line(record.text)}\n")
        if out.explains:
            say(record.signature)
    if record is None:
        raise SeqgenError(f"{title_of(source.name)} is empty: there is nothing to score")
    out.notice(f"{loaded.stored.name}: {record.protocol}")


PSEUDO_PERPLEXITY = OwnWay(put_pseudo_perplexity, "masked models")


COLUMNS = {
    "file": lambda r: r.file,
    "model": lambda r: r.model,
    "tokens": lambda r: count(r.tokens),
    "pseudo-nats/token": lambda r: figure(r.pseudo_nats_per_token),
    "pseudo-perplexity": lambda r: figure(r.pseudo_perplexity),
    "accuracy": lambda r: percentage(r.accuracy),
    "oov": lambda r: count(r.oov),
}


def _table(records: Sequence[PseudoPerplexity], out: Output) -> None:
    several = len({record.model for record in records}) > 1
    columns = {k: show for k, show in COLUMNS.items() if several or k != "model"}
    put_columns(columns, records, left=2 if several else 1)
    say_protocols(records, out)

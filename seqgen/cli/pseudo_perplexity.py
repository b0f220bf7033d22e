"""What `seqgen perplexity` shows of masked models: their pseudo-perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqgen.cli.inputs import Input, Inputs, piped_input
from seqgen.cli.kinds import OwnWay
from seqgen.cli.output import one_line, put, put_record, say, say_protocols
from seqgen.cli.pairs import held_out_by
from seqgen.cli.tables import count, figure, percentage, put_table
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import title_of

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.masked.pseudo_perplexity import PseudoPerplexity
    from seqgen.configs import Documents


def put_pseudo_perplexity(
    model: Sequence[str] | None,
    files: Sequence[str] | None,
    device: str,
    precision: str,
    documents: Documents | None,
    per_line: bool,
    json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Score files, standard input or what masked models hold out, and show the figures.

    Raises:
        UsageError: there is no such precision, or it goes without another option.
        SeqgenError: a text is empty, or a model holds out nothing.
    """
    from seqgen.commands.masked.load import load_masked
    from seqgen.commands.masked.pseudo_perplexity import pseudo_perplexity
    from seqgen.configs import PRECISIONS, choice

    if per_line and documents == "stream":
        raise UsageError("--per-line scores each line alone: leave out --documents stream")
    place = device, choice("--precision", precision, PRECISIONS)
    models = [load_masked(name, *place) for name in model or [None]]
    if not files and piped_input() is not None:
        files = ["-"]
    sources = Inputs(quiet).open(files or ()) or [held_out_by(models, quiet)]
    records = []
    for loaded in models:
        for source in sources:
            if per_line:
                _put_lines(loaded, source, json, verbose, quiet)
                continue
            chunks = source.chunks(loaded.data.newlines)
            how = {"file": source.name, "documents": documents}
            records.append(pseudo_perplexity(loaded, chunks, **how))
            if json:
                put_record(records[-1])
    if not json and not per_line:
        _table(records, verbose, quiet)


PSEUDO_PERPLEXITY = OwnWay(put_pseudo_perplexity, "masked models")


def _put_lines(loaded: LoadedModel, source: Input, json: bool, verbose: bool, quiet: bool) -> None:
    """Write the pseudo-log-likelihood of each line, a tab and the line."""
    from seqgen.commands.masked.pseudo_perplexity import pseudo_lines

    record = None
    for record in pseudo_lines(loaded, source.chunks(loaded.data.newlines), file=source.name):
        if json:
            put_record(record)
            continue
        put(f"{figure(record.pseudo_log_likelihood)}\t{one_line(record.text)}\n")
        if verbose and not quiet:
            say(record.signature)
    if record is None:
        raise SeqgenError(f"{title_of(source.name)} is empty: there is nothing to score")
    if not quiet:
        say(f"{loaded.stored.name}: {record.protocol}")


COLUMNS = {
    "file": lambda r: r.file,
    "model": lambda r: r.model,
    "tokens": lambda r: count(r.tokens),
    "pseudo-nats/token": lambda r: figure(r.pseudo_nats_per_token),
    "pseudo-perplexity": lambda r: figure(r.pseudo_perplexity),
    "accuracy": lambda r: percentage(r.accuracy),
    "oov": lambda r: count(r.oov),
}


def _table(records: Sequence[PseudoPerplexity], verbose: bool, quiet: bool) -> None:
    several = len({record.model for record in records}) > 1
    columns = {k: show for k, show in COLUMNS.items() if several or k != "model"}
    rows = [[show(record) for show in columns.values()] for record in records]
    put_table(list(columns), rows, left=2 if several else 1)
    if not quiet:
        say_protocols(records, verbose)

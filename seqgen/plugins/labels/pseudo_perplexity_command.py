"""`seqgen perplexity` for masked models: the pseudo-perplexity of texts."""

from __future__ import annotations

from seqgen.cli.perplexity import LineByLine, TextFiles, at_least_one, put_figures
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Input, Inputs
from seqgen.cli.shell.model_options import CommandVariant, ExactMachine, ModelNames
from seqgen.cli.shell.output import Output, RecordedOutput, one_line, put, say
from seqgen.cli.shell.pairs import held_out_input
from seqgen.cli.shell.tables import figure
from seqgen.store.loaded import LoadedModel


@takes_options
def put_pseudo_perplexity(
    text: TextFiles,
    models: ModelNames,
    by_line: LineByLine,
    machine: ExactMachine,
    out: RecordedOutput,
) -> None:
    """Score files, standard input or held-out texts with masked models; print the results."""
    from seqgen.plugins.labels.pseudo_perplexity import load_masked, pseudo_perplexity
    from seqgen.store.loading import Work

    files = text.or_piped
    work = Work.of_files(files) if files else None
    loaded = [load_masked(name, machine.device, machine.precision, work) for name in models.names]
    sources = Inputs(out.quiet).open(files) or [held_out_input(loaded, out.quiet)]
    records = []
    for one in loaded:
        for source in sources:
            if by_line.per_line:
                _put_pseudo_lines(one, source, out)
                continue
            chunks = source.chunks(one.data.newlines)
            documents = by_line.documents
            records.append(pseudo_perplexity(one, chunks, file=source.name, documents=documents))
            out.record(records[-1])
    if not by_line.per_line:
        put_figures(records, out)


def _put_pseudo_lines(loaded: LoadedModel, source: Input, out: Output) -> None:
    """Write each line's pseudo-log-likelihood, a tab, and the line."""
    from seqgen.plugins.labels.pseudo_perplexity import pseudo_lines

    lines = pseudo_lines(loaded, source.chunks(loaded.data.newlines), file=source.name)
    for record in at_least_one(lines, source.name):
        if out.record(record):
            continue
        put(f"{figure(record.pseudo_log_likelihood)}\t{one_line(record.text)}\n")
        if out.explains:
            say(record.signature)
    out.notice(f"{loaded.stored.name}: {record.protocol}")


PSEUDO_PERPLEXITY = CommandVariant(put_pseudo_perplexity, "masked models")

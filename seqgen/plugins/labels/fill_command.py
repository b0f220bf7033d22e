"""`seqgen fill`: predict the tokens in the blanks of a text."""

from __future__ import annotations

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import piped_input
from seqgen.cli.shell.model_options import Device, ModelName
from seqgen.cli.shell.output import RecordedOutput, one_line, put, put_record
from seqgen.cli.shell.prompts import piped_lines, say_unknown
from seqgen.cli.shell.tables import figure
from seqgen.errors import UsageError
from seqgen.settings import Options, Panel, argument, group, setting
from seqgen.settings.options import added_options

# The filters of words that plugins add, groups of the class `WordFilter`.
Filters = added_options("fill")


class Blanks(Options, panel=Panel.OUTPUT):
    """Options of `seqgen fill`: the texts with blanks, the filters, and how many tokens to list."""

    texts: tuple[str, ...] = argument(
        "Text with [MASK] in the place of each token to predict; each argument is one. If text is "
        "piped in, each of its lines is one.",
        "TEXT",
    )
    top: int | None = setting(
        "List the N most probable tokens for each [MASK], with their probabilities. By default the "
        "text is written with the most probable one.",
        low=1,
    )
    added: Filters = group(Filters)


@takes_options
def fill(blanks: Blanks, model: ModelName, machine: Device, out: RecordedOutput) -> None:
    """Fill in the blanks of a text, which are written [MASK].

    The model is one of `seqgen train TEXT --model bert`. Each blank is predicted from the text
    before and after it. With --top each line is a probability, a tab and a token; blanks follow one
    another in the order of the text, N lines each.
    """
    from seqgen.plugins.labels.fill import fill as filled
    from seqgen.plugins.labels.pseudo_perplexity import load_masked
    from seqgen.store.loading import Work
    from seqgen.text.reading import unix_newlines

    if not blanks.texts and piped_input() is None:
        raise UsageError("give a text with [MASK] in it, or pipe lines in")
    loaded = load_masked(model.model, machine.device, work=Work())
    out.uses([loaded])
    lines = blanks.texts or piped_lines("nothing to fill in", out, unix_newlines)
    for record in filled(loaded, lines, blanks.top or 1, blanks.added.groups):
        say_unknown(record.unknown, out, "text")
        if out.json:
            put_record(record)
        elif blanks.top is None:
            put(one_line(record.filled) + "\n")
        else:
            for tokens, probabilities in zip(record.tokens, record.probabilities, strict=True):
                for token, probability in zip(tokens, probabilities, strict=True):
                    put(f"{figure(probability)}\t{one_line(token)}\n")

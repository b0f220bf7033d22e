"""`seqgen restore`: restore corrupted lines by an associative memory."""

from __future__ import annotations

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import piped_input
from seqgen.cli.shell.model_options import FixedSeed, ModelName, Threads
from seqgen.cli.shell.output import RecordedOutput, one_line, put
from seqgen.cli.shell.prompts import piped_lines
from seqgen.errors import UsageError
from seqgen.settings import Options, Panel, argument, setting

# How a line that did not settle ended.
UNSETTLED = {
    "cycle": "goes back and forth between two states; try it without --synchronous",
    "limit": "did not settle",
}


class Corrupted(Options, panel=Panel.SEARCH):
    """Options of `seqgen restore`: the lines to restore, and how to update the units."""

    lines: tuple[str, ...] = argument(
        "Line to restore; each argument is one. If text is piped in, each of its lines is "
        "restored.",
        "LINE",
    )
    synchronous: bool = setting(
        "Update all units at once. By default they are updated one at a time, in random order, and "
        "the energy never rises."
    )


@takes_options
def restore(
    corrupted: Corrupted, model: ModelName, seed: FixedSeed, threads: Threads, out: RecordedOutput
) -> None:
    """Restore corrupted lines with a Hopfield network that has stored them.

    The model is one of `seqgen train LINES --model hopfield`. Unknown characters, and those
    missing at the end of a line, match anything. --json also shows the energy
    of the network after each sweep.
    """
    from seqgen.plugins.hopfield.restore import load_memory
    from seqgen.plugins.hopfield.restore import restore as restored

    if not corrupted.lines and piped_input() is None:
        raise UsageError("give a line to restore, or pipe lines in")
    memory = load_memory(model.model)
    out.uses([memory])
    texts = corrupted.lines or piped_lines("nothing to restore", out)
    for record in restored(memory, texts, synchronous=corrupted.synchronous, seed=seed.seed):
        if not out.record(record):
            put(one_line(record.text) + "\n")
        if record.ended in UNSETTLED:
            out.notice(f"line {record.index + 1} {UNSETTLED[record.ended]}")

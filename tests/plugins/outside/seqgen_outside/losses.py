"""`seqgen train --losses FILE`: the loss of every logged step, as a table."""

from pathlib import Path

from seqgen.settings import Panel, setting
from seqgen.settings.listening import ListenerOptions


class LossOptions(ListenerOptions, panel=Panel.OUTPUT):
    losses: str | None = setting("Write the loss of every logged step into this file.")


def listen(facts):
    """Return the listener of a run; None if there is no `--losses`."""
    from seqgen.training.events import Progress
    from seqgen.training.run import Listener

    class LossTable(Listener):
        def take(self, event):
            if isinstance(event, Progress):
                with Path(facts.options.losses).open("a") as file:
                    file.write(f"{event.step}\t{event.train_loss:.4f}\n")

    return LossTable() if facts.options.losses else None

"""Training listener that writes a TensorBoard log into the model's folder."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from seqgen.store import StoredModel
from seqgen.store.layout import TENSORBOARD
from seqgen.training.events import Event, Progress, SampleLine, Validated
from seqgen.training.listeners import RunFacts
from seqgen.training.run import Listener

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def listen(facts: RunFacts) -> Board | None:
    """Open a TensorBoard log if `--tensorboard` is given, else return None."""
    return Board(facts.stored, facts.step) if facts.options.tensorboard else None


class Board(Listener):
    """Training listener that writes a TensorBoard log into a model's folder.

    TensorBoard reopens its files by name. So writing starts only when the model is in its final
    place; events that arrive earlier are kept until then.

    Args:
        stored: the model.
        step: continue after this step; records of later steps are removed from the log.
    """

    def __init__(self, stored: StoredModel, step: int) -> None:
        self._stored, self._step = stored, step
        with stored.writing(TENSORBOARD):
            stored.refuse_link(TENSORBOARD)
        self._waiting: list[Event] = []

    @cached_property
    def _writer(self) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        folder = self._stored.path / TENSORBOARD
        return SummaryWriter(str(folder), purge_step=self._step + 1 if self._step else None)

    def take(self, event: Event) -> None:
        self._waiting.append(event)
        if self._stored.published:
            for waiting in self._waiting:
                self._write(waiting)
            self._waiting.clear()

    def _write(self, event: Event) -> None:
        if isinstance(event, Progress):
            for name in ("train_loss", "lr", "grad_norm", "tokens_per_second"):
                self._writer.add_scalar(name, getattr(event, name), event.step)
            for name, figure in event.figures.items():
                self._writer.add_scalar(name, figure, event.step)
        elif isinstance(event, Validated):
            self._writer.add_scalar("val_loss", event.val_loss, event.step)
        elif isinstance(event, SampleLine):
            self._writer.add_text("sample", event.text, event.step)

    def close(self) -> None:
        if self._stored.published:
            self._writer.close()

"""A run in TensorBoard, which shows the files in the model's folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from seqgen.plugins.trackers.tracker import Tracker
from seqgen.store import StoredModel
from seqgen.store.layout import TENSORBOARD

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def check_place(stored: StoredModel) -> None:
    """Check that the logs can be written into the model's folder.

    Raises:
        SeqgenError: they cannot.
    """
    with stored.writing(TENSORBOARD):
        stored.refuse_link(TENSORBOARD)


class Board(Tracker):
    """Logs for TensorBoard.

    TensorBoard reopens its files by name. So writing starts only when the model is in its final
    place; what arrives earlier is kept until then. Records of later steps than the one that a run
    continues from are removed.
    """

    def __init__(self, facts: Any) -> None:
        super().__init__(facts)
        self._waiting: list[Callable[[SummaryWriter], None]] = []

    @cached_property
    def _writer(self) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        _silence_writing_thread()
        folder = self.stored.path / TENSORBOARD
        return SummaryWriter(str(folder), purge_step=self.step + 1 if self.step else None)

    def _write(self, write: Callable[[SummaryWriter], None]) -> None:
        self._waiting.append(write)
        if self.stored.published:
            for waiting in self._waiting:
                waiting(self._writer)
            self._waiting.clear()

    def begin(self, settings: Mapping[str, Any]) -> None:
        self._write(lambda writer: writer.add_text("settings", _as_block(settings), self.step))

    def log(self, figures: Mapping[str, float], step: int) -> None:
        for name, figure in figures.items():
            self._write(
                lambda writer, name=name, figure=figure: writer.add_scalar(name, figure, step)
            )

    def log_sample(self, text: str, step: int) -> None:
        self._write(lambda writer: writer.add_text("sample", text, step))

    def finish(self, result: Mapping[str, Any]) -> None:
        if result:
            self._write(lambda writer: writer.add_text("result", _as_block(result)))
        if self.stored.published:
            self._writer.flush()  # raises what has failed in the thread
            self._writer.close()


def _silence_writing_thread() -> None:
    """Keep the thread that writes from printing a traceback; the next call raises its error."""
    from tensorboard.summary.writer import event_file_writer

    before = threading.excepthook
    if getattr(before, "__module__", None) == __name__:
        return

    def excepthook(raised: threading.ExceptHookArgs) -> None:
        if type(raised.thread).__module__ != event_file_writer.__name__:
            before(raised)

    threading.excepthook = excepthook


def _as_block(facts: Mapping[str, Any]) -> str:
    """Format facts as a block of Markdown, which TensorBoard renders."""
    text = json.dumps(facts, indent=1, default=str)
    return "".join(f"    {line}\n" for line in text.split("\n"))

"""Events reported by a training run; the receiver decides how to show them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from seqgen.metrics.perplexity import ScoreTotals
from seqgen.settings.training import TrainingConfig

# Where a line of a sample is cut on the screen, in characters.
SAMPLE_WIDTH = 80
# Work that takes longer than this many seconds, and shows nothing meanwhile, says what it is.
SLOW_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Started:
    """Event: training is about to start, with facts about model and data."""

    name: str
    architecture: str
    parameters: int
    vocab_size: int
    source_vocab_size: int | None = None  # where sources have a tokenizer of their own
    train_tokens: int
    val_tokens: int
    val_totals: ScoreTotals  # the size of the held-out text; empty if the loss codes no text
    training: TrainingConfig
    device: str
    unit: str = "token"


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """Event: an EM iteration, or a pass of a model that is trained without gradients.

    Attributes:
        step: steps done.
        share: how much of the budget is spent, 0 to 1.
        seconds: training time so far.
        tokens: tokens seen so far, or labels.
        train_loss: nats per token, or per label, the mean since the last record.
        tokens_per_second: since the last record, or over all passes.
    """

    step: int
    share: float
    seconds: float
    tokens: int
    train_loss: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class Progress(Iteration):
    """Event: a logged step of training by gradients.

    Attributes:
        train_loss_std: the standard deviation of the steps' losses around it; of single windows
            where a step has one.
        epoch_loss: the mean over the last whole epoch, None before its end.
        epoch_loss_std: the standard deviation of that epoch's steps.
        lr: the rate as a share of its peak.
        grad_norm: norm of the last gradient, before clipping.
        figures: those of the regime for the last step, by name.
    """

    train_loss_std: float
    epoch_loss: float | None
    epoch_loss_std: float | None
    lr: float
    grad_norm: float
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Validated:
    """Event: a validation during training, on a fixed part of the held-out data.

    Attributes:
        step: steps done.
        seconds: training time so far.
        val_loss: nats per token, or per label.
        best: it is the lowest so far.
        figures: what else was found, such as the accuracy of labels, by name.
    """

    step: int
    seconds: float
    val_loss: float
    best: bool
    figures: Mapping[str, float] = field(default_factory=dict)


class ListenerEvent:
    """Event of a plugin's listener: a dataclass of figures, logged as a record.

    Subclasses have the field `step`, which says how many steps are done.
    """

    def summary(self) -> list[str]:
        """Format the lines that show the last such event below the run's summary."""
        return []


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Event: a one-line message for the user.

    Attributes:
        text: the line.
        detail: it says how a choice was made, which is of interest to few.
    """

    text: str
    detail: bool = False


@dataclass(frozen=True, kw_only=True)
class EncodingProgress:
    """Event: the fraction of a large text that has been tokenized, 0 to 1."""

    fraction: float


@dataclass(frozen=True, kw_only=True)
class SampleLine:
    """Event: a sample written by the current model, always from the same random numbers."""

    step: int
    text: str

    @property
    def first_line(self) -> str:
        """First non-empty line, cut to `SAMPLE_WIDTH` characters."""
        return next((line for line in self.text.split("\n") if line.strip()), "")[:SAMPLE_WIDTH]


Event = Started | Iteration | Validated | ListenerEvent | Notice | EncodingProgress | SampleLine
Report = Callable[[Event], None]


@contextlib.contextmanager
def notify_if_slow(report: Report, doing: str) -> Iterator[None]:
    """Report a notice from a timer thread if the block takes longer than `SLOW_SECONDS`."""
    timer = threading.Timer(SLOW_SECONDS, report, [Notice(text=f"{doing} ...")])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

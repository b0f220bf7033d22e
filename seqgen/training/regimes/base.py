"""The interface of a training regime, and what it is given."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqgen import ranks
from seqgen.text.batches import IGNORED, Batch
from seqgen.training.reading import TrainingOutput, TrainingReader, sent

if TYPE_CHECKING:
    from seqgen.models.state import State
    from seqgen.training.parts import CheckpointPart


@dataclass(frozen=True)
class StepProgress:
    """Where training is.

    Attributes:
        step: the number of the step, from 0.
        share: how much of the budget is spent, 0 to 1; for a regime, of its own part of it.
        first_row: the number of the first of these rows in the step's batch, which may be
            processed in parts.
    """

    step: int
    share: float
    first_row: int = 0


class Loss(NamedTuple):
    """What an objective returns for some rows.

    Attributes:
        minimised: what is to be minimised, summed over the rows' targets.
        nats: the cross-entropy of the targets alone, summed.
        state: after the rows, with its graph; None if there is none to carry.
    """

    minimised: Tensor
    nats: Tensor
    state: State | None


def numbered(ids: Sequence[int]) -> str:
    """Return ids as a text, where only time is measured and no tokenizer is at hand."""
    return " ".join(map(str, ids))


@dataclass(frozen=True)
class TextRules:
    """How texts that the model writes in training are decoded and ended.

    Attributes:
        decode: turns ids into text, for costs that compare texts.
        end: the id that ends a document; None in a stream.
        never: the ids that are never written.
    """

    decode: Callable[[Sequence[int]], str] = numbered
    end: int | None = None
    never: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rows:
    """A batch, or some of its rows, on the model's device.

    Attributes:
        batch: the rows as arrays.
        device: the model's.
        past: the state before them, if one is carried, without its graph.
    """

    batch: Batch
    device: torch.device
    past: State | None

    @cached_property
    def tokens(self) -> Tensor:
        """What is read, (B, T) of int64."""
        return sent(self.batch.tokens, self.device)

    @cached_property
    def targets(self) -> Tensor:
        """The token after each, (B, T) of int64; IGNORED where there is none."""
        return sent(self.batch.targets, self.device)

    @cached_property
    def scored(self) -> np.ndarray:
        """Which targets there are, (B, T) of bool."""
        return self.batch.targets != IGNORED

    @cached_property
    def begins(self) -> np.ndarray:
        """The first column of each row with a target, (B,): after labels, and what is read again.

        0 in a row without targets.
        """
        return self.scored.argmax(1)

    def prefixes(self, given: int | None) -> np.ndarray:
        """Return how many columns of each row are read as they are, (B,); own tokens come after.

        Args:
            given: columns from `begins` on; None for the default, one where there is a source and
                else a quarter of them.
        """
        widths = self.batch.tokens.shape[1] - self.begins
        if given is None:
            given = 1 if self.batch.source is not None else np.maximum(1, widths // 4)
        return self.begins + np.minimum(given, widths)


class Regime(nn.Module):
    """One way of training: what the model reads, and what is minimised.

    A regime may own parts that learn or that count; they last by name in checkpoints.

    Args:
        reader: makes the training calls, as the configuration of the run says.
        text_rules: how the model's texts are decoded and ended.
    """

    def __init__(self, reader: TrainingReader, text_rules: TextRules) -> None:
        super().__init__()
        self.reader, self.config, self.text_rules = reader, reader.config, text_rules
        self._noted: dict[str, tuple[Tensor | float, int]] = {}

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        """Return the loss of some rows, summed over their targets."""
        raise NotImplementedError

    def read(self, rows: Rows, tokens: Tensor | None = None) -> TrainingOutput:
        """Read the rows after their past, or from their sources; with other tokens if given."""
        tokens, batch = rows.tokens if tokens is None else tokens, rows.batch
        return self.reader.read(tokens, rows.past, batch.source, batch.advance)

    def begin_step(self) -> None:
        """Forget the figures of the step before."""
        self._noted = {}

    def end_step(self) -> None:
        """Update what the regime owns, after the backward pass over all parts of the batch."""

    def note(self, name: str, total: Tensor | float, count: int) -> None:
        """Add to a figure of this step: its mean is logged."""
        before, counted = self._noted.get(name, (0.0, 0))
        self._noted[name] = (before + total, counted + count)

    def take_notes(self, other: Regime) -> None:
        """Add to the figures of this step those of another regime, which forgets them."""
        for name, (total, count) in other._noted.items():
            self.note(name, total, count)
        other.begin_step()

    def figures(self) -> dict[str, float]:
        """Return the figures of the last step over all ranks' rows, for the log."""
        sums: dict[str, tuple[float, int]] = {}
        own = {name: (float(total), count) for name, (total, count) in self._noted.items()}
        for noted in ranks.gathered(own):
            for name, (total, count) in noted.items():
                before, counted = sums.get(name, (0.0, 0))
                sums[name] = (before + total, counted + count)
        return {name: total / count for name, (total, count) in sums.items()}

    @contextlib.contextmanager
    def without_figures(self) -> Iterator[None]:
        """Forget the figures of the calls within, whose rows do not count."""
        noted = dict(self._noted)
        yield
        self._noted = noted

    def parts(self) -> dict[str, CheckpointPart]:
        """Name the parts of a checkpoint that the regime owns, such as a discriminator."""
        return {}

"""Interface of training regimes, and the data passed to them."""

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
from seqgen.training.reading import TrainingOutput, TrainingReader, to_device

if TYPE_CHECKING:
    from seqgen.models.state import State
    from seqgen.training.parts import CheckpointPart


@dataclass(frozen=True)
class StepProgress:
    """Step number and share of the budget of a training run.

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
    """Loss that an objective returns for some rows.

    Attributes:
        minimised: what is to be minimised, summed over the rows' targets.
        nats: the cross-entropy of the targets alone, summed.
        state: after the rows, with its graph; None if there is none to carry.
    """

    minimised: Tensor
    nats: Tensor
    state: State | None


def ids_as_text(ids: Sequence[int]) -> str:
    """Decode ids as their numbers, where speed is measured without a tokenizer."""
    return " ".join(map(str, ids))


@dataclass(frozen=True)
class TextRules:
    """Rules for decoding and ending the texts that the model generates in training.

    Attributes:
        decode: turns ids into text, for costs that compare texts.
        end: the id that ends a document; None in a stream.
        never: the ids that are never written.
    """

    decode: Callable[[Sequence[int]], str] = ids_as_text
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
        """Input tokens (B, T), int64."""
        return to_device(self.batch.tokens, self.device)

    @cached_property
    def targets(self) -> Tensor:
        """Target tokens (B, T), int64: the token after each input; IGNORED where there is none."""
        return to_device(self.batch.targets, self.device)

    @cached_property
    def scored(self) -> np.ndarray:
        """Mask (B, T) of the positions that have a target."""
        return self.batch.targets != IGNORED

    @cached_property
    def begins(self) -> np.ndarray:
        """Index (B,) of the first column with a target, after labels and repeated context.

        0 in a row without targets.
        """
        return self.scored.argmax(1)

    def prefixes(self, given: int | None) -> np.ndarray:
        """Compute how many columns (B,) of each row are teacher-forced before own tokens.

        Args:
            given: columns from `begins` on; None for the default, one where there is a source and
                else a quarter of them.
        """
        widths = self.batch.tokens.shape[1] - self.begins
        if given is None:
            given = 1 if self.batch.source is not None else np.maximum(1, widths // 4)
        return self.begins + np.minimum(given, widths)


class Regime(nn.Module):
    """Base of training regimes: what the model reads, and which loss is minimised.

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
        """Compute the loss of some rows, summed over their targets."""
        raise NotImplementedError

    def read(self, rows: Rows, tokens: Tensor | None = None) -> TrainingOutput:
        """Run the model on the rows, after their past or sources, with other tokens if given."""
        tokens, batch = rows.tokens if tokens is None else tokens, rows.batch
        return self.reader.read(tokens, rows.past, batch.source, batch.advance)

    def begin_step(self) -> None:
        """Clear the logged figures of the previous step."""
        self._noted = {}

    def end_step(self) -> None:
        """Update parameters owned by the regime, after the whole batch's backward pass."""

    def note(self, name: str, total: Tensor | float, count: int) -> None:
        """Add to a logged figure of this step, which is logged as a mean."""
        before, counted = self._noted.get(name, (0.0, 0))
        self._noted[name] = (before + total, counted + count)

    def take_notes(self, other: Regime) -> None:
        """Add the totals of another thread's regime to this one's, and reset the other's."""
        for name, (total, count) in other._noted.items():
            self.note(name, total, count)
        other.begin_step()

    def figures(self) -> dict[str, float]:
        """Compute the figures of the last step over all ranks, for the log."""
        sums: dict[str, tuple[float, int]] = {}
        totals = {name: (float(total), count) for name, (total, count) in self._noted.items()}
        for noted in ranks.gathered(totals):
            for name, (total, count) in noted.items():
                before, counted = sums.get(name, (0.0, 0))
                sums[name] = (before + total, counted + count)
        return {name: total / count for name, (total, count) in sums.items()}

    @contextlib.contextmanager
    def without_figures(self) -> Iterator[None]:
        """Discard the figures of calls within the block."""
        noted = dict(self._noted)
        yield
        self._noted = noted

    def parts(self) -> dict[str, CheckpointPart]:
        """Return the checkpoint parts that the regime owns by name, such as a discriminator."""
        return {}

"""Forward pass of training: logits, losses and activation penalties of rows of tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.engines.fast_layers import FastLinear
from seqgen.engines.precision import arithmetic
from seqgen.text.batches import IGNORED, Batch
from seqgen.training.chunked_loss import LEAST_LOGITS, cross_entropy_in_pieces

if TYPE_CHECKING:
    from seqgen.models.base import NeuralLanguageModel
    from seqgen.models.state import State
    from seqgen.settings.training import TrainingConfig
    from seqgen.text.sources import Source

# In each call, features (B, T, H) before their dropout and after it.
Seen = list[tuple[Tensor, Tensor]]


class ActivationPenalties:
    """Activation and temporal activation regularisation (Merity et al. 2017).

    alpha mean(d_t^2) + beta mean((h_t - h_{t-1})^2) is added to the loss of a token, with h_t the
    features before their dropout, d_t those after it, which the head reads, and means over units.
    It is minimised and never reported: a loss in nats stays one.

    Args:
        model: whose features these are; alpha and beta are in its configuration.
    """

    def __init__(self, model: NeuralLanguageModel) -> None:
        self._alpha = getattr(model.config, "activation_penalty", 0.0)
        self._beta = getattr(model.config, "temporal_penalty", 0.0)
        self._dropout = model.output_dropout if self else None

    def __bool__(self) -> bool:
        return self._alpha > 0 or self._beta > 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[Seen]:
        """Collect the features computed within the block."""
        seen: Seen = []
        if not self:
            yield seen
            return

        def keep(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen.append((inputs[0], output))

        handle = self._dropout.register_forward_hook(keep)
        try:
            yield seen
        finally:
            handle.remove()

    def cost(self, seen: Seen, targets: Tensor) -> Tensor:
        """Compute the penalty, summed over the non-padding targets (B, T)."""
        h, dropped = (torch.cat(parts, 1) for parts in zip(*seen, strict=True))  # (B, T, H)
        wide = torch.promote_types(h.dtype, torch.float32)
        there = targets != IGNORED
        total = self._alpha * dropped.to(wide).square().mean(-1)[there].sum()
        if self._beta and h.shape[1] > 1:
            change = h.to(wide).diff(dim=1).square().mean(-1)  # (B, T - 1)
            total = total + self._beta * change[there[:, 1:]].sum()
        return total


@dataclass(frozen=True)
class TrainingOutput:
    """Result of a training forward pass.

    Attributes:
        logits: (B, T, V).
        state: after the tokens, or after `advance` of them.
        seen: what the penalties on activations are computed from.
    """

    logits: Tensor
    state: State | None
    seen: Seen


class TrainingReader:
    """Runs training forward passes in the configured precision.

    Args:
        model: on its device, in its parameters' type.
        config: with a precision that is not "auto".
    """

    def __init__(self, model: NeuralLanguageModel, config: TrainingConfig) -> None:
        self.model, self.config = model, config
        self.penalties = ActivationPenalties(model)

    def read(
        self,
        tokens: Tensor,
        past: State | None,
        source: Source | None = None,
        advance: int | None = None,
        repeat: Sequence[int] | None = None,
    ) -> TrainingOutput:
        """Run the model on tokens (B, T).

        Args:
            tokens: of int64.
            past: the state before them, if one is carried.
            source: what the rows are written from, B sources; then there is no past.
            advance: return the state after this many columns; None for all of them.
            repeat: which row of the past, or of the source, each row has; None for its own.
        """
        model = self.model
        with arithmetic(self.config.precision, model.device), self.penalties.watched() as seen:
            if source is not None:
                past = model.remember(source)
            if repeat is not None and past is not None:
                past = past.select(repeat)
            logits, after = _logits(model, tokens, past, advance)  # (B, T, V)
        return TrainingOutput(logits, after, seen)

    def predict(self, batch: Batch) -> TrainingOutput:
        """Predict a batch's targets with a network that is not a language model."""
        with arithmetic(self.config.precision, self.model.device), self.penalties.watched() as seen:
            logits, after = self.model.predict(batch)  # (B, T', C)
        return TrainingOutput(logits, after, seen)

    def suits_pieces(self, batch: Batch) -> bool:
        """Whether the loss of a batch is computed in pieces: its logits would take much memory."""
        model = self.model
        plain = batch.source is None and batch.advance is None and not self.penalties
        plain = plain and model.predicts_by_head and type(model.head) is FastLinear
        return plain and batch.targets.size * model.head.out_features >= LEAST_LOGITS

    def costs_in_pieces(
        self, tokens: Tensor, past: State | None, targets: Tensor
    ) -> tuple[Tensor, Tensor, State | None]:
        """Compute the loss to minimise and the nats in pieces, and the state after the tokens.

        The head reads only what has a target.
        """
        model, counted = self.model, targets != IGNORED
        with arithmetic(self.config.precision, model.device):
            features, after = model.hidden(tokens, past)  # (B, T, H)
            scored = features[counted], model.head, targets[counted]
            minimised, nats = cross_entropy_in_pieces(*scored, self.config.label_smoothing)
        return minimised, nats, after

    def costs(
        self, reading: TrainingOutput, targets: Tensor, log_probs: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss to minimise and the plain nats, both summed over the scored targets.

        What is minimised has label smoothing and the penalties on activations besides the nats.

        Args:
            reading: of the tokens before each target.
            targets: (B, T) of int64, IGNORED where there is none.
            log_probs: (B, T, V), the reading's, where these are known.
        """
        if log_probs is None:
            log_probs = reading.logits.log_softmax(-1)
        minimised, nats = cross_entropy(
            log_probs.flatten(0, 1), targets.flatten(), self.config.label_smoothing
        )
        if self.penalties:
            minimised = minimised + self.penalty(reading, targets)
        return minimised, nats

    def penalty(self, reading: TrainingOutput, targets: Tensor) -> Tensor | float:
        """Compute the activation penalties, summed over the scored targets."""
        return self.penalties.cost(reading.seen, targets) if self.penalties else 0.0


def _logits(
    model: NeuralLanguageModel, tokens: Tensor, past: State | None, advance: int | None
) -> tuple[Tensor, State | None]:
    """Compute logits (B, T, V) and the state after `advance` columns."""
    if advance is None or advance == tokens.shape[1]:
        return model(tokens, past)
    if advance == 0:
        return model(tokens, past)[0], past
    first, state = model(tokens[:, :advance], past)
    rest, _ = model(tokens[:, advance:], state)
    return torch.cat([first, rest], dim=1), state


def cross_entropy(
    log_probs: Tensor, targets: Tensor, smoothing: float, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the loss to minimise and the plain nats, both summed over the scored targets.

    With smoothing s the probability s is spread evenly over the vocabulary, and the rest is the
    target's (Szegedy et al. 2016, section 7). One softmax serves both sums.

    Args:
        log_probs: (N, V).
        targets: (N,) of int64, IGNORED where there is none.
        smoothing: s, from 0 to below 1.
        weights: (N,), how much each target counts; None for one each.
    """
    if weights is None:
        nats = F.nll_loss(log_probs, targets, ignore_index=IGNORED, reduction="sum")
        weights = 1.0
    else:
        each = F.nll_loss(log_probs, targets, ignore_index=IGNORED, reduction="none")
        nats = (weights * each).sum()
    if not smoothing:
        return nats, nats
    evenly = -(weights * log_probs.mean(-1) * (targets != IGNORED)).sum()
    return (1 - smoothing) * nats + smoothing * evenly, nats


def to_device(ids: np.ndarray, device: torch.device) -> Tensor:
    """Copy ids to a device, without blocking the host on a GPU."""
    if device.type != "cuda":
        return torch.from_numpy(ids).to(device)
    return torch.from_numpy(ids).pin_memory().to(device, non_blocking=True)

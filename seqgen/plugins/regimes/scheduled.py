"""Scheduled sampling and free running: regimes that feed back the model's own tokens."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from seqgen.plugins.regimes import drawing
from seqgen.settings.training import TrainingConfig
from seqgen.training.reading import to_device
from seqgen.training.regimes.base import Rows, StepProgress
from seqgen.training.regimes.teacher_forcing import TeacherForcing


class MixedTokens(TeacherForcing):
    """Base of regimes that replace some input tokens by the model's own."""

    def real(self, rows: Rows, progress: StepProgress) -> np.ndarray:
        """Mark the input tokens (B, T) that stay real."""
        raise NotImplementedError

    def tokens(self, rows: Rows, progress: StepProgress) -> Tensor:
        return to_device(self.mixed(rows, progress), rows.device)

    def mixed(self, rows: Rows, progress: StepProgress) -> np.ndarray:
        """Replace unmarked input tokens (B, T) by the model's own."""
        real = self.real(rows, progress)
        # A row's first token is real, as are its labels, and what follows its last is not read.
        real |= np.arange(real.shape[1]) <= rows.begins[:, None]
        real[:, 1:] |= ~rows.scored[:, 1:]
        text_rules = self.text_rules
        # The row goes on to the end of the real text, so its end is not drawn either.
        never = text_rules.never if text_rules.end is None else (*text_rules.never, text_rules.end)
        pick = drawing.sampler(self.config.seed, progress, len(real), 1, never)
        model = self.reader.model
        with drawing.decoding_mode(model):
            return drawing.feed_back(
                model, drawing.open_rows(model, rows), rows.batch.tokens, real, pick
            )


class ScheduledSampling(MixedTokens):
    """Scheduled sampling (Bengio et al. 2015): a coin decides between the real and an own token.

    The real one is read with a probability that falls with the share of the regime's part of the
    budget; own ones are drawn from the model's distribution.
    """

    def real(self, rows: Rows, progress: StepProgress) -> np.ndarray:
        shape, probability = rows.batch.tokens.shape, real_probability(self.config, progress.share)
        self.note("real_probability", probability * shape[0], shape[0])
        by_token = self.config.sampling_unit == "token"
        columns = np.arange(shape[1]) if by_token else np.zeros(shape[1], np.int64)
        return drawing.coins(self.config.seed, progress, shape[0], columns) < probability


def real_probability(config: TrainingConfig, share: float) -> float:
    """Compute the probability of a real input token (Bengio et al. 2015, section 2.4).

    linear: max(floor, k - slope i);  exponential: k^i;  inverse-sigmoid: k / (k + exp(i / k))

    where i is the percentage of the regime's part of the budget that is spent; the paper's i
    counts updates.
    """
    k, i = config.sampling_k, 100 * share
    if config.sampling_decay == "linear":
        return max(config.sampling_floor, k - config.sampling_slope * i)
    if config.sampling_decay == "exponential":
        return k**i
    return k / (k + math.exp(i / k))


class FreeRunning(MixedTokens):
    """Free running: the model reads its own tokens after a prefix; targets are the real text."""

    def real(self, rows: Rows, progress: StepProgress) -> np.ndarray:
        columns = np.arange(rows.batch.tokens.shape[1])
        return columns < rows.prefixes(self.config.prefix)[:, None]

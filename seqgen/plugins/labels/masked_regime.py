"""Training regime of masked language models: predict hidden tokens from both sides."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from seqgen.engines.precision import arithmetic
from seqgen.hashing import uniforms
from seqgen.plugins.labels.masking import (
    Framed,
    MaskDraws,
    MaskedRows,
    choose,
    framed,
    joined,
    masked,
)
from seqgen.plugins.labels.models.bert import LEAST_PAIR, Bert
from seqgen.text.batches import IGNORED
from seqgen.training.reading import cross_entropy, to_device
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress

NEXT = 9  # the first word of the hash that draws second parts
FOLLOWS, PART, PLACE = range(3)  # its last word: what is drawn


class MaskedTokens(Regime):
    """Masked language modelling: -log P(x_t | the rest) at random positions (Devlin et al. 2019).

    Of each row a share `mask` of the tokens is drawn: [MASK] stands in the place of 80 % of them,
    a random token in the place of 10 %, and 10 % stay as they are. The draws of row r in step n
    follow from (seed, n, r). In evaluation [MASK] stands in the place of all of them.

    The sum over the hidden places is scaled to all tokens of the row, so that the loss is
    a mean over places. With `next_sentence`, which of two classes B is counts as much as that.
    """

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        model = self.reader.model
        draws = MaskDraws(self.config.seed, progress.step, progress.first_row)
        framed_rows, counts = framed_text(rows.batch.targets, self.text_rules.end, model)
        other = None
        if (
            model.config.next_sentence
            and self.training
            and rows.batch.tokens.shape[1] >= LEAST_PAIR
        ):
            framed_rows, other = self._with_second_part(rows, framed_rows, draws)
        words = model.words if self.training else None
        places = choose(framed_rows, model.config.mask, draws)
        read = masked(framed_rows, places, model.config.symbols, words, draws)
        with arithmetic(self.config.precision, model.device):
            values, at = (to_device(ids, model.device) for ids in (read.values, read.places))
            logits, follows = model(values, read.lengths, at)
        weights = torch.from_numpy(counts / np.maximum((places >= 0).sum(1), 1))  # (B,)
        minimised, nats = self._costs(logits, read, weights.to(logits))
        if other is not None:
            minimised = minimised + self._cost_of_order(follows, other, rows)
        return Loss(minimised, nats, None)

    def _costs(self, logits: Tensor, read: MaskedRows, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the loss to minimize and the nats at positions (B, M), weighted by row."""
        targets = to_device(read.targets, logits.device)
        each = weights[:, None].expand(targets.shape)
        flat = logits.log_softmax(-1).flatten(0, 1), targets.flatten()
        return cross_entropy(*flat, self.config.label_smoothing, each.flatten())

    def _with_second_part(
        self, rows: Rows, windows: Framed, draws: MaskDraws
    ) -> tuple[Framed, np.ndarray]:
        """Build rows [CLS] A [SEP] B [SEP]; also return which B were drawn from elsewhere, (B,)."""
        model, (count, width) = self.reader.model, rows.batch.targets.shape
        numbers = draws.first_row + np.arange(count)
        follows, part, place = (
            uniforms(NEXT, draws.seed, draws.step, numbers, what) for what in (FOLLOWS, PART, PLACE)
        )
        parts = 1 + (part * (width - 2)).astype(np.int64)  # tokens of A; B has at least one
        begin = (place * (model.text.size - width + 1)).astype(np.int64)
        elsewhere = model.text[begin[:, None] + np.arange(width)].astype(np.int64)
        other = follows >= 0.5
        following = np.where(other[:, None], elsewhere, rows.batch.targets)
        return joined(windows, parts, following, model.config.symbols), other

    def _cost_of_order(self, follows: Tensor, other: np.ndarray, rows: Rows) -> Tensor:
        """Compute the next-sentence loss, weighting each row by its number of tokens."""
        target_ids = torch.from_numpy(other.astype(np.int64)).to(follows.device)
        each = F.cross_entropy(follows, target_ids, reduction="none")  # (B,)
        hits = (follows.argmax(-1) == target_ids).sum()
        self.note("next_sentence_loss", each.sum().detach(), len(other))
        self.note("next_sentence_accuracy", hits, len(other))
        return (each * torch.from_numpy(rows.scored.sum(1)).to(each)).sum()


def framed_text(targets: np.ndarray, end: int | None, model: Bert) -> tuple[Framed, np.ndarray]:
    """Frame rows of text with [CLS] and [SEP], and count the targets of each row, (B,).

    Args:
        targets: (B, T) int64, the text; `IGNORED` where it has ended.
        end: what documents end with, in whose place is [SEP]; None for nothing.
        model: gives the symbols.
    """
    scored = targets != IGNORED
    inside = scored if end is None else scored & (targets != end)
    return framed(targets, inside.sum(1), model.config.symbols), scored.sum(1)

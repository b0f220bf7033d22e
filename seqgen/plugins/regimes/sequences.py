"""Sequence-level regimes: minimum risk and self-critical training on generated texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from seqgen import ranks
from seqgen.metrics.bleu import build_metric
from seqgen.plugins.regimes import drawing
from seqgen.settings.scoring import BleuOptions
from seqgen.text.batches import IGNORED
from seqgen.training.reading import TrainingOutput, TrainingReader, to_device
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress, TextRules

# Ids written, ids of the real text -> the cost.
Cost = Callable[[Sequence[int], Sequence[int]], float]


def cost_of(name: str, text_rules: TextRules) -> Cost:
    """Return the cost function named `name`: bleu, chrf or edit."""
    if name == "edit":
        return edit_cost
    metric = build_metric(BleuOptions(metric=name), sentences=True)

    def cost(written: Sequence[int], target_ids: Sequence[int]) -> float:
        texts = text_rules.decode(written), text_rules.decode(target_ids)
        if texts[0] == texts[1]:
            return 0.0  # sacreBLEU gives two empty texts no score
        return 1 - metric.sentence_score(texts[0], [texts[1]]).score / 100

    return cost


def edit_cost(written: Sequence[int], target_ids: Sequence[int]) -> float:
    """Compute the Levenshtein distance over the longer sequence's length."""
    if not written or not target_ids:
        return float(len(written) != len(target_ids))
    row = np.arange(len(target_ids) + 1)  # distances of the empty beginning
    target, places = np.asarray(target_ids), np.arange(len(target_ids) + 1)
    for token in written:
        kept = np.append(row[0] + 1, np.minimum(row[:-1] + (target != token), row[1:] + 1))
        # An insertion costs one more than what stands before it, however many there are.
        row = np.minimum.accumulate(kept - places) + places
    return int(row[-1]) / max(len(written), len(target_ids))


def costs(cost: Cost, written: np.ndarray, target_ids: np.ndarray) -> np.ndarray:
    """Compute the cost (B, K) of every generated text.

    Args:
        cost: of one.
        written: (B, K, L), IGNORED where a text has ended.
        target_ids: (B, N), the real ones, IGNORED likewise, also before they begin.
    """
    return np.array(
        [
            [cost(_ids(text), real) for text in texts]
            for texts, real in zip(written, map(_ids, target_ids), strict=True)
        ]
    )


def _ids(row: np.ndarray) -> list[int]:
    return row[row != IGNORED].tolist()


class GeneratedTexts(Regime):
    """Base of regimes that generate texts from each source or row prefix."""

    def __init__(self, reader: TrainingReader, text_rules: TextRules) -> None:
        super().__init__(reader, text_rules)
        self._cost = cost_of(self.config.cost, text_rules)

    def prompts(self, rows: Rows) -> np.ndarray:
        """Return the length (B,) of each row's prompt."""
        return rows.prefixes(self.config.prefix)

    def real(self, rows: Rows) -> np.ndarray:
        """Cut the real continuations (B, N) out of the rows."""
        targets, before = rows.batch.targets, self.prompts(rows)[:, None] - 1
        columns = before + np.arange(targets.shape[1] - before.min())
        there = columns < targets.shape[1]
        texts = np.take_along_axis(targets, np.where(there, columns, 0), 1)
        return np.where(there, texts, IGNORED)

    def written(self, rows: Rows, samples: int, pick: drawing.Pick) -> np.ndarray:
        """Generate K texts per row, (B, K, L), padded with IGNORED."""
        model = self.reader.model
        owners = np.repeat(np.arange(len(rows.scored)), samples)
        begun = rows.batch.tokens[owners], self.prompts(rows)[owners]
        most = self._most(rows)[owners]
        with drawing.decoding_mode(model):
            state = drawing.open_rows(model, rows, owners.tolist())
            ids = drawing.continue_prompts(model, state, *begun, most, self.text_rules.end, pick)
        return ids.reshape(-1, samples, ids.shape[1])

    def _most(self, rows: Rows) -> np.ndarray:
        """Compute the maximum length (B,) of each row's generated texts.

        As many as the real one has; or half as many more, if that one ends and the window allows.
        """
        real, window = self.real(rows), self.reader.model.window
        lengths = (real != IGNORED).sum(1)
        ends = (real == self.text_rules.end).any(1) if self.text_rules.end is not None else False
        most = np.where(ends, lengths + lengths // 2 + 5, lengths)
        return most if window is None else np.minimum(most, window - self.prompts(rows) + 1)

    def log_probs(self, rows: Rows, written: np.ndarray) -> tuple[Tensor, TrainingOutput, Tensor]:
        """Compute log p (B, K) of each text; also return the forward pass and its targets."""
        samples = written.shape[1]
        owners = np.repeat(np.arange(len(written)), samples)
        flat, prompts = written.reshape(len(owners), -1), self.prompts(rows)[owners]
        tokens, targets = join_prompts(rows.batch.tokens[owners], prompts, flat)
        # As wide as on the other ranks, so that all draw the same masks.
        padding = ((0, 0), (0, ranks.all_max(tokens.shape[1]) - tokens.shape[1]))
        tokens = np.pad(tokens, padding)
        targets = np.pad(targets, padding, constant_values=IGNORED)
        reading = self.reader.read(
            to_device(tokens, rows.device), rows.past, rows.batch.source, repeat=owners.tolist()
        )
        sent_targets = to_device(targets, rows.device)
        totals = sum_log_probs(reading.logits, sent_targets)
        return totals.unflatten(0, (-1, samples)), reading, sent_targets

    def costs(self, rows: Rows, written: np.ndarray, like: Tensor) -> Tensor:
        """Compute the cost (B, K) of each text, with device and type of `like`."""
        return torch.as_tensor(costs(self._cost, written, self.real(rows))).to(like)


class MinimumRisk(GeneratedTexts):
    """Minimum risk training (Shen et al. 2016, equations 9 to 11).

    sum_y Q(y) cost(y),  Q(y) = p(y)^alpha / sum_y' p(y')^alpha

    over the distinct ones among the sampled texts and the real one, which costs nothing. The sum
    of a row is added to those of the others, as the nats of tokens are.
    """

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        config, batch, real = self.config, rows.batch, self.read(rows)
        _, nats = self.reader.costs(real, rows.targets)
        pick = drawing.sampler(
            config.seed, progress, len(batch.tokens), config.risk_samples, self.text_rules.never
        )
        written = self.written(rows, config.risk_samples, pick)
        of_written, _, _ = self.log_probs(rows, written)  # (B, K)
        before = self.prompts(rows)[:, None] - 1
        later = np.arange(rows.scored.shape[1]) >= before
        texts = np.where(later, batch.targets, IGNORED)
        first = int(before.min())
        of_real = sum_log_probs(
            real.logits[:, first:], to_device(texts[:, first:].copy(), rows.device)
        )
        risk = expected_cost(
            torch.cat([of_real[:, None], of_written], 1),
            torch.nn.functional.pad(self.costs(rows, written, of_real), (1, 0)),
            to_device(mark_distinct(self.real(rows), written), rows.device),
            config.risk_sharpness,
        ).sum()
        self.note("expected_cost", risk.detach(), len(batch.tokens))
        return Loss(risk + self.reader.penalty(real, rows.targets), nats, real.state)


class Decoding(GeneratedTexts):
    """Training on decoded output: self-critical sequence training (Rennie et al. 2017, eq. 9).

    (cost(y) - cost(y_greedy)) log p(y)

    REINFORCE for one sampled text y, whose baseline is the output of greedy decoding: a sample
    that is better than what the model would write becomes more probable, a worse one less. The
    sum of a row is added to those of the others, as the nats of tokens are.
    """

    def forward(self, rows: Rows, progress: StepProgress) -> Loss:
        batch, never = rows.batch, self.text_rules.never
        with torch.no_grad():  # for the log, and for the state that is carried
            real = self.read(rows)
            _, nats = self.reader.costs(real, rows.targets)
        pick = drawing.sampler(self.config.seed, progress, len(batch.tokens), 1, never)
        written = self.written(rows, 1, pick)
        log_probs, reading, targets = self.log_probs(rows, written)
        of_greedy = self.costs(rows, self.written(rows, 1, drawing.greedy(never)), log_probs)
        of_sampled = self.costs(rows, written, log_probs)
        self.note("sampled_cost", of_sampled.sum(), len(of_sampled))
        self.note("greedy_cost", of_greedy.sum(), len(of_greedy))
        total = ((of_sampled - of_greedy) * log_probs).sum()
        return Loss(total + self.reader.penalty(reading, targets), nats, real.state)


def join_prompts(
    tokens: np.ndarray, prompts: np.ndarray, written: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate prompts and texts into input rows and target rows, both (B, T).

    Args:
        tokens: (B, N), rows that begin with their prompts.
        prompts: (B,), the length of each prompt.
        written: (B, L), the texts, IGNORED where one has ended.
    """
    lengths = (written != IGNORED).sum(1)
    width = max(int(prompts.max()), int((prompts + lengths).max()) - 1)
    nth = np.arange(1, width + 1) - prompts[:, None]  # of the text, the target of each column
    is_own = (nth >= 0) & (nth < written.shape[1])
    targets = np.where(is_own, np.take_along_axis(written, np.where(is_own, nth, 0), 1), IGNORED)
    read = np.zeros_like(targets)
    read[:, : tokens.shape[1]] = tokens[:, :width]
    own_before = np.concatenate([np.zeros((len(targets), 1), targets.dtype), targets[:, :-1]], 1)
    read = np.where(nth > 0, np.where(own_before == IGNORED, 0, own_before), read)
    return read, targets


def sum_log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum the log-probabilities (B,) of each row's targets (B, T) that are not IGNORED."""
    there = targets != IGNORED
    chosen = logits.log_softmax(-1).gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    return (chosen * there).sum(1)


def expected_cost(log_probs: Tensor, costs: Tensor, there: Tensor, sharpness: float) -> Tensor:
    """Compute the expected cost sum_y Q(y) cost(y) of each row, (B,).

    Args:
        log_probs: (B, K), of each text.
        costs: (B, K).
        there: (B, K) of bool; at least one of a row.
        sharpness: alpha.
    """
    powers = (sharpness * log_probs).masked_fill(~there, -torch.inf)
    return (powers.softmax(1) * costs).sum(1)


def mark_distinct(real: np.ndarray, written: np.ndarray) -> np.ndarray:
    """Mark the first of equal texts in each row; the real text comes first.

    Args:
        real: (B, N), IGNORED where a text has ended.
        written: (B, K, L) likewise.

    Returns:
        (B, 1 + K) of bool; a text that equals an earlier one is not there.
    """
    width = max(real.shape[1], written.shape[2])
    padded = (_pad_width(real[:, None], width), _pad_width(written, width))
    texts = np.concatenate(padded, 1)  # (B, 1 + K, width)
    equal = (texts[:, :, None] == texts[:, None]).all(-1)  # (B, 1 + K, 1 + K)
    return ~np.tril(equal, -1).any(2)


def _pad_width(ids: np.ndarray, width: int) -> np.ndarray:
    return np.pad(ids, ((0, 0), (0, 0), (0, width - ids.shape[2])), constant_values=IGNORED)

"""A recurrent decoder with attention for one token a row: its equations over arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.models.engines.arrays import Affine, ArrayMap
from seqgen.models.engines.ops import ArrayOps
from seqgen.models.engines.tensor_products import affine_of, as_array
from seqgen.models.seq2seq.attention import Additive, Score
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.recurrent_config import Seq2SeqConfig
from seqgen.models.seq2seq.recurrent_decoder import RecurrentDecoder
from seqgen.models.seq2seq.state import Seq2SeqState


class RowScore:
    """A `Score` over arrays: its own equation, called with parts that take arrays."""

    ops = ArrayOps

    def __init__(self, score: Score) -> None:
        self.equation, self.scale = type(score).forward, score.scale
        if isinstance(score, Additive):
            self.of_query = _by_rows(Affine(as_array(score.of_query.weight), None))
            self.v, self.of_covered = score.v.detach().numpy(), None
            if score.of_covered is not None:
                self.of_covered = score.of_covered.detach().numpy()

    def __call__(
        self, query: np.ndarray, keys: np.ndarray, covered: np.ndarray | None
    ) -> np.ndarray:
        """Return scores (S, N, L); see `Score.forward`."""
        return self.equation(self, query, keys, covered)


class RowSeq2Seq:
    """`Seq2Seq._advance` and the head, for a model whose weights do not change."""

    def __init__(
        self,
        config: Seq2SeqConfig,
        embedding: Tensor,
        head: nn.Linear,
        decoder: RecurrentDecoder,
        alignment: Score | None,
        combine: nn.Linear | None,
    ) -> None:
        self.config = config
        self.embedding = embedding.detach().numpy()
        self.steps = [layer.over_arrays().step for layer in decoder.layers]
        self.score = None if alignment is None else RowScore(alignment)
        self.combine = None if combine is None else Affine(as_array(combine.weight), None)
        self.head = affine_of(head)

    def __call__(
        self, tokens: Sequence[int], state: Seq2SeqState
    ) -> tuple[np.ndarray, Seq2SeqState]:
        """Read a token of each row; return logits (B, V) and the state after."""
        x, memory = self.embedding[list(tokens)], state.memory  # (B, E)
        inputs = [x] if state.fed is None else [x, state.fed.numpy()]
        if self.config.decoder == "bahdanau":
            context, alpha = self._attended(state.layers[-1][0].numpy(), x, state)
            inputs.append(context)
        s, layers = self._decoded(_joined(inputs), state)
        if self.config.decoder == "luong":
            context, alpha = self._attended(s, x, state)
        parts, covered = [s] if context is None else [s, context], state.covered
        if covered is not None:
            fertility = memory.of_rows(memory.keys[1]).squeeze(-1)
            covered = covered + torch.from_numpy(alpha) * fertility
        if self.config.bridge == "each":
            parts.append(memory.of_rows(memory.first[-1][0]).numpy())  # (B, H)
        if self.config.readout == "maxout":
            features = self.combine(*parts, x).reshape(len(x), -1, 2).max(-1)
        else:
            features = _joined(parts) if self.combine is None else np.tanh(self.combine(*parts))
        fed = None if state.fed is None else torch.from_numpy(features)
        return self.head(features), Seq2SeqState(layers, memory, fed, covered)

    def _attended(
        self, s: np.ndarray, x: np.ndarray, state: Seq2SeqState
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return a (B, H) and alpha (B, L) by states s or words x; None without attention."""
        if self.score is None:
            return None, None
        past = None if state.covered is None else state.covered.numpy()
        return read(self.score, s if self.config.query == "state" else x, state.memory, past)

    def _decoded(
        self, x: np.ndarray, state: Seq2SeqState
    ) -> tuple[np.ndarray, tuple[tuple[Tensor, ...], ...]]:
        """Run the recurrent layers on x (B, E); return the last one's h (B, H), and all parts."""
        after = []
        for index, (step, past) in enumerate(zip(self.steps, state.layers, strict=True)):
            parts = step(x, tuple(part.numpy() for part in past))
            x = x + parts[0] if self.config.residual and index > 0 else parts[0]
            after.append(tuple(map(torch.from_numpy, parts)))
        return x, tuple(after)


def read(
    score: RowScore, query: np.ndarray, memory: Memory, covered: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Do what `alignment.read` does, for queries (B, Q) and covered (B, L); also without T."""
    asked = memory.group(query)  # (S, G, Q)
    if covered is not None:
        covered = memory.group(covered)  # (S, G, L)
    scores = score(asked, memory.keys[0].numpy(), covered)
    if memory.there is not None:
        np.copyto(scores, -np.inf, where=~memory.there.numpy()[:, None])
    alpha = ArrayOps.softmax(scores)
    context = alpha @ memory.values[0].numpy()  # (S, G, H)
    return memory.ungroup(context), memory.ungroup(alpha)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return vectors (B, ...) side by side."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, 1)


def _by_rows(affine: Affine) -> ArrayMap:
    """Return a linear map of (..., I)."""
    return lambda x: affine(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)

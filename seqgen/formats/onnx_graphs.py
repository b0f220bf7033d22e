"""Models as functions of tensors alone, from which ONNX graphs are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.seq2seq.transformer import Seq2SeqTransformer
from seqgen.models.state import State
from seqgen.models.transformer.attention import for_each_query, full_attention
from seqgen.models.transformer.blocks import Attend
from seqgen.models.transformer.model import Transformer

# What a graph is traced with: any sizes, all different, and none of them 1, which broadcasts.
BATCH, LENGTH, PAST, SOURCE = 2, 5, 3, 4


@dataclass(frozen=True)
class Graph:
    """A module to be traced, and its inputs and outputs in order.

    Attributes:
        module: takes and returns tensors.
        inputs: by name an example, and the names of the sizes that may change, by axis.
        outputs: names.
    """

    module: nn.Module
    inputs: dict[str, tuple[Tensor, dict[int, str]]]
    outputs: list[str]


def tokens_of(length: int) -> tuple[Tensor, dict[int, str]]:
    """Return an example of tokens (B, T)."""
    axes = {0: "batch"} if length == 1 else {0: "batch", 1: "length"}
    return torch.ones(BATCH, length, dtype=torch.int64), axes


class RecurrentStep(nn.Module):
    """One token a row of a recurrent model: tokens (B, 1) and the state to logits (B, 1, V)."""

    def __init__(self, model: RecurrentLM, like: State) -> None:
        super().__init__()
        self.model, self.like = model, like

    def forward(self, tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        before = self.like.with_tensors(dict(zip(self.like.named(), state, strict=True)))
        logits, after = self.model(tokens, before)
        return logits, *after.tensors()


def recurrent_step(model: RecurrentLM) -> Graph:
    """Return the step of a recurrent model, whose state has rows of fixed sizes."""
    like = model.start(BATCH)
    inputs = {name: (x.clone(), {0: "batch"}) for name, x in like.named().items()}
    names = ["logits", *(f"next.{name}" for name in inputs)]
    return Graph(RecurrentStep(model, like), {"tokens": tokens_of(1), **inputs}, names)


class Caching:
    """Causal attention over keys and values (B, heads, P, D) of the past and those of the call.

    Attributes:
        past: for each layer its keys and values.
        present: the same with those of the call behind them.
    """

    def __init__(self, past: Sequence[Tensor], positions: Tensor) -> None:
        self.past = list(zip(past[::2], past[1::2], strict=True))
        self.there = torch.arange(past[0].shape[2] + positions.shape[0]) <= positions[:, None]
        self.present: list[Tensor] = []

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pairs = zip(self.past[layer], (k, v), strict=True)
        present = [torch.cat([before, now], 2) for before, now in pairs]
        self.present += present
        keys, values = (for_each_query(q, x) for x in present)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self.there)


class SourceReading:
    """What a decoder's blocks attend by: their past, and keys and values of a source for each row.

    Args:
        attend: for the past.
        source: for each layer keys and values (B, heads, L, D).
        there: which places a row's source has, (B, L).
    """

    def __init__(self, attend: Attend, source: Sequence[Tensor], there: Tensor) -> None:
        self.attend, self.there = attend, there
        self.pairs = list(zip(source[::2], source[1::2], strict=True))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attend(layer, q, k, v)

    def source(self, layer: int, q: Tensor) -> Tensor:
        """Return what queries (B, heads, T, D) read of their sources."""
        return full_attention(q, *self.pairs[layer], self.there)


def there_of(lengths: Tensor, width: Any) -> Tensor:
    """Return which of `width` places sources of these lengths (B,) have, (B, width)."""
    return torch.arange(width) < lengths[:, None]


class Whole(nn.Module):
    """Whole texts: tokens (B, T) that nothing comes before to logits (B, T, V)."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)[0]


class CachedStep(nn.Module):
    """More tokens of a transformer: tokens (B, T) and a past to logits (B, T, V) and the present.

    With `reads_source`, keys and values of the source and its lengths come after the tokens.
    """

    def __init__(self, model: Transformer, reads_source: bool) -> None:
        super().__init__()
        self.model, self.reads_source = model, reads_source

    def forward(self, tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        lengths, count = rest[0], 2 * len(self.model.blocks)
        source, past = rest[1 : 1 + count], rest[-count:]
        positions = torch.arange(tokens.shape[1]) + past[0].shape[2]
        attend = caching = Caching(past, positions)
        if self.reads_source:
            attend = SourceReading(caching, source, there_of(lengths, source[0].shape[2]))
        features = self.model.features_at(tokens, positions, attend)
        return self.model.head(features), *caching.present


class Encoding(nn.Module):
    """Sources (B, L) and their lengths (B,) to keys and values of each layer (B, heads, L, D)."""

    def __init__(self, model: Seq2SeqTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        there = there_of(lengths, source.shape[1])
        encoded = self.model.encoder.read(source, there)
        pairs = (block.cross.remember(encoded) for block in self.model.blocks)
        return tuple(x for pair in pairs for x in pair)


class WholePair(nn.Module):
    """Sources (B, L), their lengths and whole targets (B, T) to logits (B, T, V)."""

    def __init__(self, model: Seq2SeqTransformer) -> None:
        super().__init__()
        self.model, self.encoding = model, Encoding(model)

    def forward(self, source: Tensor, lengths: Tensor, tokens: Tensor) -> Tensor:
        memory, there = self.encoding(source, lengths), there_of(lengths, source.shape[1])
        positions = torch.arange(tokens.shape[1])
        empty = [x[:, :, :0] for x in memory]
        reading = SourceReading(Caching(empty, positions), memory, there)
        return self.model.head(self.model.features_at(tokens, positions, reading))


def transformer_graphs(model: Transformer) -> dict[str, Graph]:
    """Return the graphs of a transformer: whole texts, and a step."""
    past = _keys_and_values(model, "past", PAST, "past")
    inputs = {"tokens": tokens_of(LENGTH), **past}
    whole = Graph(Whole(model), {"tokens": tokens_of(LENGTH)}, ["logits"])
    return {"whole": whole, "step": Graph(CachedStep(model, False), inputs, _outputs(past))}


def pair_graphs(model: Seq2SeqTransformer) -> dict[str, Graph]:
    """Return the graphs of an encoder-decoder: whole pairs, the encoder, and the decoder's step."""
    source = {
        "source": (torch.ones(BATCH, SOURCE, dtype=torch.int64), {0: "batch", 1: "source"}),
        "source_lengths": (torch.tensor([SOURCE, SOURCE - 1]), {0: "batch"}),
    }
    memory = _keys_and_values(model, "memory", SOURCE, "source")
    past = _keys_and_values(model, "past", PAST, "past")
    tokens, lengths = tokens_of(LENGTH), source["source_lengths"]
    step = {"tokens": tokens, "source_lengths": lengths, **memory, **past}
    return {
        "whole": Graph(WholePair(model), {**source, "tokens": tokens}, ["logits"]),
        "encoder": Graph(Encoding(model), source, list(memory)),
        "step": Graph(CachedStep(model, True), step, _outputs(past)),
    }


def _keys_and_values(
    model: Transformer, name: str, length: int, axis: str
) -> dict[str, tuple[Tensor, dict[int, str]]]:
    config = model.config
    heads = config.num_heads if name == "memory" else config.kv_heads
    example = torch.zeros(BATCH, heads, length, config.head_width)
    return {
        f"{name}.{layer}.{part}": (example.clone(), {0: "batch", 2: axis})
        for layer in range(config.num_layers)
        for part in ("key", "value")
    }


def _outputs(past: dict[str, Any]) -> list[str]:
    return ["logits", *(name.replace("past.", "present.") for name in past)]

"""The sizes of what `python -m tests.benchmarks decode` measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seqgen.models.transformer.settings import TransformerConfig

ALPHABET = "".join(map(chr, range(32, 93)))
WINDOW = 256


@dataclass(frozen=True)
class Shape:
    """The size of a GPT-2, by what is written about it: 6 x 384 has 6 layers of width 384.

    Attributes:
        layers: how many.
        size: their width; a head has 64 of it.
        alphabet: the characters that it writes.
    """

    layers: int
    size: int
    alphabet: str = ALPHABET

    def __str__(self) -> str:
        words = "" if len(self.alphabet) < MANY else f", {len(self.alphabet):,} characters"
        return f"{self.layers} x {self.size}{words}"


MANY = 1000
SMALL = Shape(6, 384)
SMALL_WORDS = Shape(6, 384, "".join(map(chr, range(256, 256 + 8000))))
# GPT-2 small has 50,257 tokens; a newline and the special ones are added to these characters. None
# of them is U+2581, which a GGUF file cannot have.
GPT2_SMALL = Shape(12, 768, "".join(map(chr, range(256, 256 + 50_253))).replace("\u2581", ""))
GPT2_MEDIUM = Shape(24, 1024, GPT2_SMALL.alphabet)
BATCH, BEAMS = 16, 5
# Of translators: a joint subword vocabulary, and sources of 8 to 24 tokens, EOS included.
PAIR_VOCAB, SHORTEST, LONGEST = 6000, 8, 24
PAD, BOS, UNK, EOS = range(4)
# Makes texts and returns the number of tokens it made.
Run = Callable[[], int]


@dataclass(frozen=True)
class Texts:
    """What a GPT-2 is to write.

    Attributes:
        firsts: the token that each text begins with.
        tokens: how many follow it.
        beams: the beams of a search; 1 to sample.
    """

    firsts: Sequence[int]
    tokens: int
    beams: int = 1


def gpt2(shape: Shape, vocab_size: int) -> TransformerConfig:
    """Return GPT-2's form, which all libraries have; of 6 x 384 it has 10.7 million weights."""
    return TransformerConfig(
        vocab_size=vocab_size,
        window=WINDOW,
        hidden_size=shape.size,
        num_layers=shape.layers,
        num_heads=shape.size // 64,
        positions="learned",
        norm="layernorm",
        activation="gelu",
        qk_norm=False,
        bias=True,
        tie_weights=True,
    )

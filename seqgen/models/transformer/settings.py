"""Settings of a transformer: its size and its variant, from 2017 to Llama."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from seqgen.models.shared_settings import shared
from seqgen.settings import MOST_WIDTH, ModelConfig, OptionRule, Size, ranges, require, setting

# The angles of every position are kept at hand, hundreds of bytes each.
MOST_WINDOW = 1 << 18
# K-quants, the smallest types of llama.cpp, take rows of multiples of 256 numbers.
QUANT_BLOCK = 256


def round_ffn_width(width: int) -> int:
    """Round a feed-forward width from 1,024 on to a multiple of 256, for K-quants."""
    return width if width < 4 * QUANT_BLOCK else QUANT_BLOCK * round(width / QUANT_BLOCK)


def _is_every(number: int | None, layer: int) -> bool:
    """Check whether a layer, counted from 0, is one of every `number`."""
    return number is not None and (layer + 1) % number == 0


def _size(layers: int, heads: int, width: int, window: int, **least: float) -> Size:
    """Create a `Size` of a transformer, with the tokens and text that it needs at least."""
    shape = {"num_layers": layers, "num_heads": heads, "hidden_size": width, "seq_len": window}
    return Size(shape, **least)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """Configuration of a decoder-only transformer.

    The defaults are those of recent models (RoPE, RMSNorm, SwiGLU, QK-norm). The 2017 form
    (Vaswani et al.): positions=sinusoidal norm=layernorm norm_position=post activation=relu
    qk_norm=false bias=true scale_embedding=true. GPT-2: positions=learned norm=layernorm
    activation=gelu qk_norm=false bias=true tie_weights=true.
    """

    derived: ClassVar[frozenset[str]] = frozenset({"vocab_size", "window"})
    recipe: ClassVar[Mapping[str, Any]] = {
        "optimizer": "muon",
        "lr": 4e-3,
        "batch_size": 8,
        "seq_len": 128,
        "weight_decay": 0.1,
    }
    # By the rule of recurrent networks: four tokens of training for each parameter, and two of
    # text. Only the smallest has been measured (docs/evidence/experiments.md).
    sizes: ClassVar[tuple[Size, ...]] = (
        _size(12, 12, 768, 1024, tokens=3.4e8, text=1.7e8),
        _size(8, 8, 512, 512, tokens=1e8, text=5e7),
        _size(6, 6, 384, 256, tokens=4.3e7, text=2.1e7),
        _size(6, 4, 256, 256, tokens=1.9e7, text=9.5e6),
        _size(4, 4, 192, 128, tokens=7.2e6, text=3.6e6),
        _size(4, 4, 128, 128),
    )

    window: int = setting(
        "Tokens in the context window; it follows from seq_len.", low=1, high=MOST_WINDOW
    )
    hidden_size: int = shared("hidden_size", 128)
    num_layers: int = shared("num_layers", 4)
    num_heads: int = shared("num_heads", 4)
    num_kv_heads: int | None = setting(
        "Number of heads of keys and values, each read by as many queries (Ainslie et al. 2023);"
        " by default as many as num_heads, which it must divide.",
        bounds=ranges.WIDTHS,
    )
    head_size: int | None = setting(
        "Width of a head; by default the hidden size divided by num_heads.", bounds=ranges.WIDTHS
    )
    ffn_size: int | None = setting(
        "Width of the feed-forward layers; by default 4 times the hidden size, or 8/3"
        " of it with swiglu and geglu, from 1,024 on rounded to a multiple of 256.",
        low=1,
        high=4 * MOST_WIDTH,
    )
    positions: Literal["rope", "learned", "sinusoidal"] = setting("Position encoding.", "rope")
    position_size: int | None = setting(
        "With positions=learned or sinusoidal: width of position vectors that are concatenated"
        " with the embeddings, which are so much narrower than hidden_size; by default both have"
        " that width and are added.",
        bounds=ranges.WIDTHS,
        needs=("positions=learned", "positions=sinusoidal", OptionRule(("tie_weights=false",))),
    )
    norm: Literal["rmsnorm", "layernorm"] = setting("Normalisation layer.", "rmsnorm")
    norm_position: Literal["pre", "post", "output", "both"] = setting(
        "Normalise the input of each sublayer (pre), its residual sum (post), its output, as in"
        " OLMo 2 (output), or its input and its output, as in Gemma 2 and 3 (both).",
        "pre",
    )
    activation: Literal["swiglu", "geglu", "gelu", "gelu-exact", "relu", "silu"] = setting(
        "Activation of the feed-forward layers; gelu is GPT-2's, by a tanh, also in geglu.",
        "swiglu",
    )
    qk_norm: bool = shared("qk_norm", True)
    qk_norm_whole: bool = setting(
        "With qk_norm: normalise all queries of a token together, and all keys, as OLMo 2 does."
    )
    scale_attention: bool = setting(
        "Divide the scores of attention by the square root of the head's width (Vaswani et al."
        " 2017, section 3.2.1); false leaves plain dot products.",
        True,
    )
    attention_softcap: float | None = setting(
        "Squash the scores of attention softly into -C to C, by C tanh(x / C), as in Gemma 2.",
        above=0,
        high=1e6,
        needs="attention_dropout=0",
    )
    logit_softcap: float | None = setting("The same of the logits.", above=0, high=1e6)
    qkv_activation: Literal["tanh", "sigmoid", "relu"] | None = setting(
        "Nonlinearity of queries, keys and values, as in q = tanh(W x); none leaves them linear."
    )
    dense: bool = setting(
        "Let each block and the final norm read a learned sum of the embeddings and of the outputs"
        " of all blocks below (dense connections by depth-weighted sums, Pagliardini et al. 2024)."
    )
    bias: bool = setting("Give the linear layers biases.")
    qkv_bias: bool = setting(
        "Give the maps to queries, keys and values biases even if bias is false, as Qwen2 does."
    )
    scale_embedding: bool | None = setting(
        "Multiply embeddings by the square root of the hidden size (Vaswani et al. 2017, section "
        "3.4); by default where sinusoids are added to them."
    )
    embedding_norm: bool = setting(
        "Normalise the embeddings, positions included, before the first block, as BART does."
    )
    dropout: float = shared(
        "dropout", 0.1, " It applies to the embeddings and to the output of each sublayer."
    )
    attention_dropout: float = setting(
        "Probability of dropping an attention weight in training; much slower on a CPU.",
        0.0,
        ranges.SHARES_BELOW_1,
    )
    tie_weights: bool = shared("tie_weights", False)
    output_bias: bool = setting("Give the softmax layer a bias.")
    norm_eps: float = setting("Number added to the variance in normalisation.", 1e-5, ranges.SHARES)
    rope_theta: float = setting(
        "Base of the wavelengths of rotary position embeddings.", 10000.0, low=1, high=1e12
    )
    rope_scaling: Literal["linear", "llama3", "yarn"] | None = setting(
        "Stretch the wavelengths by rope_factor: all (linear), or the long ones (llama3, yarn)."
    )
    rope_factor: float = setting("With rope_scaling: how much longer.", 1.0, low=1, high=1e6)
    rope_low_factor: float = setting(
        "With llama3, yarn: waves longer than rope_original_window divided by this are stretched.",
        1.0,
        above=0,
        high=1e6,
    )
    rope_high_factor: float = setting(
        "With llama3, yarn: waves shorter than rope_original_window divided by this are kept; in"
        " between they are stretched in part. Models with yarn have 32.",
        4.0,
        above=0,
        high=1e6,
    )
    rope_original_window: int = setting(
        "With llama3, yarn: the window before it was made longer.", 8192, low=1, high=MOST_WINDOW
    )
    rope_gain: float = setting(
        "With yarn: what queries and keys are multiplied by; models with yarn have"
        " 0.1 ln(rope_factor) + 1.",
        1.0,
        above=0,
        high=100,
    )
    sliding_window: int | None = setting(
        "Tokens that each position attends to, itself included, as in Mistral (Jiang et al. 2023);"
        " by default all before it.",
        low=1,
        high=MOST_WINDOW,
    )
    full_layers: int = setting(
        "With sliding_window: the first N layers attend to all tokens, as in Qwen2.",
        0,
        low=0,
        high=ranges.LAYERS.high,
    )
    full_every: int | None = setting(
        "With sliding_window: every N-th layer attends to all tokens, as in Gemma 2 and 3.",
        bounds=ranges.LAYERS,
    )
    sliding_rope_theta: float | None = setting(
        "With sliding_window: the base of the wavelengths in layers where it slides, without"
        " rope_scaling, as in Gemma 3; by default rope_theta with its scaling.",
        low=1,
        high=1e12,
        needs=("sliding_window", OptionRule(("positions=rope",))),
    )
    nope_every: int | None = setting(
        "With positions=rope: every N-th layer knows no positions, as in SmolLM3.",
        bounds=ranges.LAYERS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_embedding is None:
            sinusoids_added = self.positions == "sinusoidal" and self.position_size is None
            object.__setattr__(self, "scale_embedding", sinusoids_added)
        heads = self.num_heads
        require(
            self.head_size is not None or self.hidden_size % heads == 0,
            f"num_heads must divide hidden_size, and {heads} does not divide {self.hidden_size}",
        )
        require(
            heads % self.kv_heads == 0,
            f"num_kv_heads must divide num_heads, and {self.kv_heads} does not divide {heads}",
        )
        even = self.positions != "rope" or self.head_width % 2 == 0
        require(even, f"rope needs an even head size, not {self.head_width}")
        if self.position_size is not None:
            leaves = self.position_size < self.hidden_size
            require(leaves, f"position_size must be less than hidden_size, {self.hidden_size}")
        low, high = self.rope_low_factor, self.rope_high_factor
        yarn = self.rope_scaling == "yarn"
        require(not yarn or self.rope_theta > 1, "rope_scaling=yarn needs a rope_theta above 1")
        fits = self.rope_scaling not in ("llama3", "yarn") or low < high
        require(fits, f"rope_low_factor must be less than rope_high_factor, {high:g}, not {low:g}")

    def suits_bf16(self, batch_size: int, seq_len: int) -> bool:
        # Multiplications of a square map of the stream; measured.
        return batch_size * seq_len * self.hidden_size**2 >= 1 << 22

    def span(self, layer: int) -> int | None:
        """Return a layer's attention span in tokens, itself included; None for no limit."""
        full = layer < self.full_layers or _is_every(self.full_every, layer)
        return None if full else self.sliding_window

    @property
    def spans(self) -> set[int | None]:
        """The distinct attention spans of all layers."""
        return {self.span(layer) for layer in range(self.num_layers)}

    def has_positions(self, layer: int) -> bool:
        """Check whether a layer rotates queries and keys, where any does."""
        return not _is_every(self.nope_every, layer)

    @property
    def embedding_width(self) -> int:
        """Width of the token embeddings."""
        return self.hidden_size - (self.position_size or 0)

    @property
    def position_width(self) -> int:
        """Width of the position vectors."""
        return self.position_size or self.hidden_size

    @property
    def head_width(self) -> int:
        """Width of one head's queries, keys and values."""
        return self.head_size or self.hidden_size // self.num_heads

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def qkv_widths(self) -> tuple[int, int, int]:
        """Total width of the heads of Q, K and V."""
        of_keys = self.kv_heads * self.head_width
        return self.num_heads * self.head_width, of_keys, of_keys

    def as_new(self, given: Collection[str]) -> ModelConfig:
        width = round_ffn_width(self.feed_forward_size)
        if "ffn_size" in given or width == self.feed_forward_size:
            return self
        return replace(self, ffn_size=width)

    @property
    def feed_forward_size(self) -> int:
        """Width of the feed-forward part's inner layer."""
        if self.ffn_size is not None:
            return self.ffn_size
        if self.activation not in ("swiglu", "geglu"):
            return 4 * self.hidden_size
        # Two matrices in instead of one: 8/3 H keeps the count (Shazeer 2020), in whole eights.
        return 8 * math.ceil(self.hidden_size / 3)

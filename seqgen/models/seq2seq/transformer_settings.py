"""The settings of the encoder-decoder transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seqgen.models.seq2seq.settings import SourceConfig
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.settings import MOST_TOKENS, Size, ranges, require, setting


@dataclass(frozen=True, kw_only=True)
class Seq2SeqTransformerConfig(SourceConfig, TransformerConfig):
    """A stack of blocks over the source, and one over the target that also reads the first's.

    The settings are the decoder-only transformer's, for both sides; so are the defaults, and
    what makes the form of 2017.
    """

    derived: ClassVar[frozenset[str]] = (
        SourceConfig.derived | TransformerConfig.derived | {"source_window", "decoder_start"}
    )
    recipe: ClassVar[Mapping[str, Any]] = SourceConfig.recipe
    sizes: ClassVar[tuple[Size, ...]] = (
        Size({"num_layers": 3, "hidden_size": 256, "tie_weights": True}, tokens=1.5e6, text=3e5),
        Size({"num_layers": 2, "hidden_size": 128, "tie_weights": True}),
    )

    sliding_window: ClassVar[None] = None
    full_layers: ClassVar[int] = 0

    encoder_layers: int | None = setting(
        "Number of encoder blocks; by default as many as num_layers.", bounds=ranges.LAYERS
    )
    source_window: int = setting(
        "Longest source in tokens, EOS included; it follows from max_source_len.",
        513,
        ranges.TOKENS,
    )
    decoder_start: int | None = setting(
        "Token that the decoder reads before the start of a text, as BART's does; for imported"
        " models.",
        low=0,
        high=MOST_TOKENS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.decoder_start is None or self.decoder_start < self.vocab_size
        require(known, f"decoder_start is token {self.decoder_start} of {self.vocab_size}")

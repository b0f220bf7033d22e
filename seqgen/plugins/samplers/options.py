"""Options of `sample` for DRY, XTC and top-n-sigma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from seqgen.settings import ranges
from seqgen.settings.filters import FilterOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import setting, texts

# As in the first description of DRY and in llama.cpp.
BREAKERS = ("\n", ":", '"', "*")
MOST_FACTOR = 1000


class Samplers(FilterOptions, panel=Panel.FILTERS):
    """Repetition penalty by length (DRY), exclusion of top choices (XTC), and top-n-sigma."""

    flags_before_temperature: ClassVar[tuple[str, ...]] = ("DRY", "--top-n-sigma")
    last_flags: ClassVar[tuple[str, ...]] = ("XTC",)

    dry_multiplier: float = setting(
        "DRY: from a token that would continue a repeated sequence of L tokens, subtract this many "
        "nats times --dry-base to the power of L minus --dry-allowed-length. 0 turns it off.",
        0.0,
        low=0,
        high=MOST_FACTOR,
    )
    dry_base: float = setting(
        "DRY: how fast the penalty grows with the length of the repetition.",
        1.75,
        low=1,
        high=MOST_FACTOR,
        needs="--dry-multiplier",
    )
    dry_allowed_length: int = setting(
        "DRY: penalize only repeated sequences of at least N tokens.",
        2,
        low=1,
        needs="--dry-multiplier",
    )
    dry_sequence_breaker: tuple[str, ...] = setting(
        r"DRY: repetitions are counted from the last occurrence of this string; \n, \t and \\ are "
        "read as escapes. Can be repeated; replaces the default.",
        reads="escapes",
        without=r"\n, colon, quotation mark and asterisk",
        needs="--dry-multiplier",
    )
    xtc_probability: float = setting(
        "XTC: with this probability at each token, remove all but the least probable of the tokens "
        "that reach --xtc-threshold. 0 turns it off.",
        0.0,
        ranges.SHARES,
    )
    xtc_threshold: float = setting(
        "XTC: which tokens are top choices, by their probability; above 0.5 there is never more "
        "than one.",
        0.1,
        ranges.SHARES,
        needs="--xtc-probability",
    )
    top_n_sigma: float | None = setting(
        "Keep tokens whose logit is within X standard deviations of the largest.",
        above=0,
        high=MOST_FACTOR,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        texts("--dry-sequence-breaker", self.dry_sequence_breaker)

    @property
    def draws(self) -> bool:
        return self.xtc_probability > 0

    def filters_before_temperature(self, generator: Any) -> Sequence[Any]:
        from seqgen.plugins.samplers.filters import Dry, TopNSigma

        made: list[Any] = []
        if self.dry_multiplier:
            loaded = generator.loaded
            dry = Dry(
                tokenizer=loaded.tokenizer,
                multiplier=self.dry_multiplier,
                base=self.dry_base,
                allowed_length=self.dry_allowed_length,
                breakers=self.dry_sequence_breaker or BREAKERS,
                backward=loaded.backward,
            )
            made.append(dry)
        if self.top_n_sigma is not None:
            made.append(TopNSigma(self.top_n_sigma))
        return made

    def last_filters(self, generator: Any) -> Sequence[Any]:
        if not self.xtc_probability:
            return ()
        from seqgen.plugins.samplers.filters import Xtc

        return [Xtc(self.xtc_probability, self.xtc_threshold, generator.options.seed)]

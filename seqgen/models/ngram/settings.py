"""Settings of counting and smoothing n-grams."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.registry import SHARED_DOCS
from seqgen.settings import ModelConfig, OptionRule, Span, ranges, require, setting, shorten
from seqgen.settings.model import Smoothing

# The highest order: V^N is still a number that can be written down.
MOST = 255
# Of a count below which n-grams are dropped.
MOST_DIGITS = 15


@dataclass(frozen=True, kw_only=True)
class NGramConfig(ModelConfig):
    """Configuration of an n-gram model and its smoothing."""

    order: int = setting(SHARED_DOCS["order"], 5, low=1, high=MOST, search=Span(2, 9))
    smoothing: Smoothing | None = setting(SHARED_DOCS["smoothing"], "modified-kneser-ney")
    delta: float = setting(
        "With smoothing=add-delta: number added to every count.", 0.1, above=0, high=1e9
    )
    backoff: float = setting(
        "With smoothing=stupid-backoff: factor for each order backed off (Brants et al. 2007).",
        0.4,
        ranges.POSITIVE_SHARES,
    )
    discount: float | None = setting(
        "With smoothing=kneser-ney: number subtracted from every count of an n-gram seen, for every"
        " order, such as 0.75; by default each order's is estimated from counts of counts.",
        bounds=ranges.POSITIVE_SHARES,
        needs=OptionRule(("smoothing=kneser-ney",), "discount needs --smoothing kneser-ney"),
    )
    interpolate_unigrams: bool = setting(
        "With smoothing=kneser-ney and modified-kneser-ney: discount unigrams too and interpolate"
        " them with the uniform distribution. Without it a word's unigram probability is the"
        " number of distinct tokens before it, divided by the number of distinct bigrams; tokens"
        " that never occurred, usually the unknown token among them, have probability 0.",
        True,
    )
    prune: str = setting(
        "Drop n-grams that occur this often or less: comma-separated numbers for orders 1"
        " (always 0), 2, 3 and so on; the last one also holds for higher orders.",
        "0",
    )

    prune_entropy: float = setting(
        "Drop n-grams without which the model's perplexity rises by less than this share, such as"
        " 1e-7 (Stolcke 1998).",
        0.0,
        low=0,
        high=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.interpolate_unigrams or self.smoothing in ("kneser-ney", "modified-kneser-ney"),
            "interpolate_unigrams=false needs --smoothing kneser-ney or modified-kneser-ney",
        )
        require(
            not self.prune_entropy or self.smoothing not in ("maximum-likelihood", "add-delta"),
            f"prune_entropy needs a smoothing that backs off, not {self.smoothing}",
        )
        parts = [part.strip() for part in self.prune.split(",")]
        require(
            all(part.isdecimal() and len(part) <= MOST_DIGITS for part in parts),
            f"prune is whole numbers with commas, such as 0,0,1, not {shorten(repr(self.prune))}",
        )
        limits = list(map(int, parts))
        require(limits[0] == 0, "prune begins with 0: every word keeps its unigram")
        require(limits == sorted(limits), "prune never falls from one order to the next")

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Count threshold of each order 1 to N: n-grams seen no more often are dropped."""
        limits = [int(part) for part in self.prune.split(",")]
        return tuple((limits + limits[-1:] * self.order)[: self.order])

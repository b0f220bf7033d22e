"""Ranges of numbers that many settings share."""

from seqgen.settings.setting import (
    MOST_LAYERS,
    MOST_RATE,
    MOST_SEED,
    MOST_STEPS,
    MOST_TOKENS,
    MOST_WIDTH,
    Bounds,
)

WIDTHS, LAYERS = Bounds(low=1, high=MOST_WIDTH), Bounds(low=1, high=MOST_LAYERS)
TOKENS, STEPS = Bounds(low=1, high=MOST_TOKENS), Bounds(low=1, high=MOST_STEPS)
SEEDS = Bounds(low=0, high=MOST_SEED)
SHARES, POSITIVE_SHARES = Bounds(low=0, high=1), Bounds(above=0, high=1)
SHARES_BELOW_1 = Bounds(low=0, below=1)
RATES, WEIGHTS = Bounds(above=0, high=MOST_RATE), Bounds(low=0, high=MOST_RATE)
FROM_1_TO_1000, UP_TO_1000 = Bounds(low=1, high=1000), Bounds(above=0, high=1000)
SIGNED_TO_1000 = Bounds(low=-1000, high=1000)

"""Ranges of numbers that many settings share, and the largest numbers that any may have."""

from seqgen.settings.setting import Bounds

# What no size, seed or count may pass: ids, seeds and file positions are 64-bit numbers.
MOST_SEED = (1 << 63) - 1
MOST_TOKENS = (1 << 31) - 1
MOST_STEPS = 10**12
# Texts that are worked on side by side.
MOST_ROWS = 1 << 16
# Texts that are written for each that is kept.
MOST_CANDIDATES = 10**6
# Widths past these make matrices of terabytes, which no machine can begin to train.
MOST_WIDTH = 1 << 20
MOST_LAYERS = 1000
MOST_RATE = 1e6
# Training with a loss this high, in nats per token, does not recover; a uniform guess costs log V,
# about ten.
MOST_NATS = 1e6

WIDTHS, LAYERS = Bounds(low=1, high=MOST_WIDTH), Bounds(low=1, high=MOST_LAYERS)
TOKENS, STEPS = Bounds(low=1, high=MOST_TOKENS), Bounds(low=1, high=MOST_STEPS)
SEEDS = Bounds(low=0, high=MOST_SEED)
SHARES, POSITIVE_SHARES = Bounds(low=0, high=1), Bounds(above=0, high=1)
SHARES_BELOW_1 = Bounds(low=0, below=1)
RATES, WEIGHTS = Bounds(above=0, high=MOST_RATE), Bounds(low=0, high=MOST_RATE)
FROM_1_TO_1000, UP_TO_1000 = Bounds(low=1, high=1000), Bounds(above=0, high=1000)
SIGNED_TO_1000 = Bounds(low=-1000, high=1000)

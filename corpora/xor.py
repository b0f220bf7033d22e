"""The temporal XOR of Elman (1990): two bits by chance, then the XOR of both, and so on.

python corpora/xor.py > corpora/xor.txt
python corpora/xor.py --bits 3000 --seed 7 > unseen.txt
seqgen perplexity unseen.txt --per-token --json | python corpora/xor.py --score
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Iterator


def stream(bits: int, seed: int) -> Iterator[int]:
    """Yield so many bits; every third is the XOR of the two before it."""
    draw = random.Random(seed)
    for _ in range(bits // 3):
        first, second = draw.getrandbits(1), draw.getrandbits(1)
        yield from (first, second, first ^ second)


def shares_right(surprisals: Iterable[float]) -> list[float]:
    """Return the share of bits that were predicted right: first, second and third ones.

    A bit is predicted right that had more than half of the probability: less than 1 bit of
    surprisal.
    """
    right = [surprisal < 1 for surprisal in surprisals]
    return [sum(right[place::3]) / len(right[place::3]) for place in range(3)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a stream of bits, or score predictions.")
    parser.add_argument("--bits", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1990)
    parser.add_argument("--score", action="store_true", help="read the records of perplexity")
    given = parser.parse_args()
    if given.score:
        shares = shares_right(json.loads(line)["surprisal_bits"] for line in sys.stdin)
        for name, share in zip(("first", "second", "third"), shares, strict=True):
            print(f"{name} bits predicted right: {share:.1%}")
    else:
        print("".join(map(str, stream(given.bits, given.seed))), end="")

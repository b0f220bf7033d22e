"""Print a pattern of stanzas whose first and third lines rhyme, and whose second and fourth do.

    python docs/recipes/rhymes.py TEXT NUMBER

The groups of words that rhyme are in `corpora/verse.py`; for verse of your own, write others. Every
number gives other groups. Words that rhyme may only end a line; all other words of TEXT may stand
anywhere.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "corpora"))

from verse import RHYMES, words_of


def pattern(text: str, number: int) -> str:
    """Return a regular expression of four lines."""
    rng = random.Random(number)
    first, second = (rng.sample(group, 6) for group in rng.sample(RHYMES, 2))
    ends = first[:3], second[:3], first[3:], second[3:]
    others = set(words_of(text)) - {word for group in RHYMES for word in group}
    word = f"({'|'.join(sorted(others))})"
    line = f"(?i:{word}(,? {word})* )"
    return "\n".join(f"{line}({'|'.join(words)})[?!]?" for words in ends)


if __name__ == "__main__":
    sys.stdout.write(pattern(Path(sys.argv[1]).read_text(encoding="utf-8"), int(sys.argv[2])))

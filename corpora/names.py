"""Names of six invented languages, each with its own sounds: a language, a tab and a name a line.

python corpora/names.py > corpora/names.tsv
seqgen sample --label Kheb -m names --num-samples 100 --json | python corpora/names.py --score Kheb
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass

from grammar import Rng

SEED, EACH = 1887, 1800


@dataclass(frozen=True)
class Language:
    """How names are built: one or two syllables of an onset and a rime, and an ending.

    Attributes:
        onsets: what a syllable begins with.
        rimes: what it goes on with.
        endings: what ends the name.
    """

    onsets: str
    rimes: str
    endings: str

    def name(self, rng: Rng) -> str:
        """Return a name."""
        parts = [rng.pick(self.onsets.split()) + rng.pick(self.rimes.split())
                 for _ in range(1 + rng.below(2))]  # fmt: skip
        return ("".join(parts) + rng.pick(self.endings.split())).capitalize()

    @property
    def pattern(self) -> re.Pattern[str]:
        """What matches its names, and no others."""
        parts = self.onsets, self.rimes, self.endings
        onset, rime, ending = ("|".join(part.split()) for part in parts)
        return re.compile(f"(?:(?:{onset})(?:{rime})){{1,2}}(?:{ending})", re.IGNORECASE)


LANGUAGES = {
    "Veldic": Language("v d br st h skj", "e ei or al ar ald", "sson dottir mund rik vig"),
    "Talari": Language("t l r m p n", "a i u ai au", "la ri nui ma kai"),
    "Kheb": Language("kh q z gh b sh", "ab ez ur im ash oth", "ek azar uddin ir"),
    "Myrish": Language("m w gw ll r dd", "y yn ow en yr ae", "dwen wyn lys thorn"),
    "Orsun": Language("ch y s t k d", "a e o un an in", "sun yama rou to"),
    "Castelan": Language("c v l f g p", "a o ia ue ar en", "ello etti ano osa ini"),
}


def lines() -> list[str]:
    """Return all lines: as many names of each language, none of them twice, in random order."""
    rng = Rng(SEED)
    made: list[str] = []
    for label, language in LANGUAGES.items():
        names: dict[str, None] = {}
        while len(names) < EACH:
            names.setdefault(language.name(rng))
        made += [f"{label}\t{name}" for name in names]
    return rng.sample(made, len(made))


def score(label: str, names: list[str]) -> list[str]:
    """Say how many names are of a language, how many of any, and how many are new."""
    known = {line.split("\t")[1] for line in lines()}
    of = {language: sum(bool(kind.pattern.fullmatch(name)) for name in names)
          for language, kind in LANGUAGES.items()}  # fmt: skip
    others = ", ".join(f"{count} {name}" for name, count in of.items() if count and name != label)
    return [
        f"{of[label]} of {len(names)} are names of {label}; others: {others or 'none'}",
        f"{len({name for name in names if name not in known})} are new",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write names, or score them.")
    parser.add_argument("--score", choices=LANGUAGES, help="read the records of sample")
    given = parser.parse_args()
    if given.score:
        read = [json.loads(record)["text"] for record in sys.stdin]
        print("\n".join(score(given.score, read)))
    else:
        print("\n".join(lines()))

"""Verse in quatrains: lines of eight syllables, of which the first and third and the others rhyme.

python corpora/verse.py > corpora/verse.txt
seqgen sample -m verse --num-samples 100 --stop '\\n\\n' --json | python corpora/verse.py --score
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator

from grammar import Rng

SEED, STANZAS = 1609, 1300
# Nouns of one syllable; those of a line rhyme.
RHYMES = [
    line.split()
    for line in """\
bay clay day hay tray spray
bee key knee sea tree tea
bone loan moan stone throne zone
brook book cook crook hook nook
bell dell shell spell well knell
bride guide pride ride side tide
crane grain lane plain rain train
crown down frown gown town clown
dune moon noon spoon tune rune
dust crust gust rust trust lust
fire lyre choir spire wire shire
flight height knight light night sight
flock clock dock knock lock rock
ground hound mound pound round sound
mist fist list twist wrist gist
song gong thong throng wrong prong""".splitlines()
]
NOUNS = "ant boat child cloud crow door drum fox friend frost ghost goose heart hill horse king"
NOUNS += " lamb leaf lord maid mouse oak owl priest road rose ship snake star thief thorn wind wolf"
TWO = "able ancient bitter broken careless distant early gentle golden hollow humble idle nimble"
TWO += " patient purple quiet sacred silent silver sleepy sober sudden tender wicked yellow"
ONE = "bold brief bright calm cold dark deep fair fierce grave late old plain proud shy slow warm"
VERBS = "danced dreamed laughed marched prayed roamed sang sat slept stood swam walked wept"
NOUNS, TWO, ONE, VERBS = NOUNS.split(), TWO.split(), ONE.split(), VERBS.split()
PATTERNS = [
    "The {two} {noun} beside the {rhyme}",
    "And {noun} and {noun} came to the {rhyme}",
    "I saw a {noun} without a {rhyme}",
    "No {two} {noun} can hold the {rhyme}",
    "We {verb} alone along the {rhyme}",
    "Her {noun} was {one} as any {rhyme}",
    "They left the {noun} and took the {rhyme}",
    "Until the {noun} forgot the {rhyme}",
    "My {one} and {two} {noun} and {rhyme}",
    "Who {verb} and {verb} about the {rhyme}?",
    "Oh {two} {noun}, oh {two} {rhyme}!",
    "The {noun} that {verb} behind the {rhyme}",
]
# Words of the patterns with two syllables or three; others have one.
LONGER = {"beside": 2, "without": 2, "alone": 2, "along": 2, "any": 2, "until": 2, "forgot": 2}
LONGER |= {"about": 2, "behind": 2} | dict.fromkeys(TWO, 2)
WORDS = {word for group in (NOUNS, ONE, VERBS, *RHYMES) for word in group} | LONGER.keys()
OTHERS = "the and came to i saw a no can hold we her was as they left took my who oh that"
WORDS |= set(OTHERS.split())
CLASS_OF = {word: number for number, words in enumerate(RHYMES) for word in words}


def stanzas() -> Iterator[list[str]]:
    """Yield stanzas of four lines."""
    rng = Rng(SEED)
    for _ in range(STANZAS):
        first, second = rng.sample(RHYMES, 2)
        ends = zip(rng.sample(first, 2), rng.sample(second, 2), strict=True)
        rhymes = [word for both in ends for word in both]
        patterns = rng.sample(PATTERNS, 4)
        yield [line(rng, *both) for both in zip(patterns, rhymes, strict=True)]


def line(rng: Rng, pattern: str, rhyme: str) -> str:
    """Return a line of a pattern."""
    for slot, words in (("noun", NOUNS), ("two", TWO), ("one", ONE), ("verb", VERBS)):
        while f"{{{slot}}}" in pattern:
            word = rng.pick([word for word in words if word not in pattern.split()])
            pattern = pattern.replace(f"{{{slot}}}", word, 1)
    return pattern.replace("{rhyme}", rhyme)


def words_of(text: str) -> list[str]:
    """Return the words of a line, in lower case."""
    return "".join(c if c.isalpha() else " " for c in text.lower()).split()


def scores(texts: Iterable[str]) -> dict[str, float]:
    """Return shares by name: of all stanzas, of the lines, and of the pairs of lines.

    A line has eight syllables if all its words are known and add up to that.
    """
    whole, eight, rhymed = [], [], []
    for text in texts:
        lines = [words_of(each) for each in text.strip("\n").split("\n")]
        whole.append(len(lines) == 4)
        eight += [all(w in WORDS for w in of) and sum(LONGER.get(w, 1) for w in of) == 8
                  for of in lines]  # fmt: skip
        if whole[-1] and all(lines):
            ends = [words[-1] for words in lines]
            for one, other in ((ends[0], ends[2]), (ends[1], ends[3])):
                alike = one in CLASS_OF and CLASS_OF[one] == CLASS_OF.get(other)
                rhymed.append(alike and one != other)
    named = {"stanzas of four lines": whole, "lines of eight syllables": eight, "rhymes": rhymed}
    return {name: sum(of) / max(1, len(of)) for name, of in named.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write verse, or score it.")
    parser.add_argument("--score", action="store_true", help="read the records of sample")
    if parser.parse_args().score:
        read = (json.loads(record) for record in sys.stdin)
        for name, share in scores(record["prompt"] + record["text"] for record in read).items():
            print(f"{name}: {share:.1%}")
    else:
        print("\n\n".join("\n".join(stanza) for stanza in stanzas()))

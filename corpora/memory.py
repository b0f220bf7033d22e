"""Write a text to learn from, and pairs that ask what was learnt: what can a model remember?

    python corpora/memory.py text > corpora/memory.txt
    python corpora/memory.py agreement > corpora/agreement.tsv
    python corpora/memory.py order > corpora/order.tsv
    python corpora/memory.py recall > corpora/recall.tsv

give the same bytes every time.  The text has two kinds of line.  A sentence has a subject, phrases
behind it and a verb that agrees with the subject:

    the writer of the books near the gate is old .

A note has three words, a name, some words, and the name again:

    note coat lost bell dorrit : lamp river coat ; dorrit .

A pair is `better<TAB>worse<TAB>group`, two lines of the same grammar but for one thing:

    agreement   the verb has the other number; the group is how many nouns of the other number
                (attractors) stand between subject and verb
    order       two words have changed places: neighbours, or words far apart.  Both lines have the
                same words, so that a model without memory is at chance
    recall      another name returns; the group is how many words stand between

No better line of a pair is in the text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from grammar import Rng

SENTENCES, NOTES = 5000, 5000
PAIRS = 100  # of each group
ATTRACTORS = 5  # pairs go one further than the text
MOST_WORDS = 32  # between a name and its return in the text; pairs go twice as far
DISTANCES = (1, 2, 4, 8, 16, 32, 64)

NOUNS = (
    ("writer", "writers"),
    ("baker", "bakers"),
    ("girl", "girls"),
    ("boy", "boys"),
    ("king", "kings"),
    ("sailor", "sailors"),
    ("farmer", "farmers"),
    ("dog", "dogs"),
    ("horse", "horses"),
    ("bird", "birds"),
    ("book", "books"),
    ("gate", "gates"),
    ("tree", "trees"),
    ("ship", "ships"),
    ("lamp", "lamps"),
    ("house", "houses"),
    ("river", "rivers"),
    ("coat", "coats"),
    ("wall", "walls"),
    ("bell", "bells"),
)
LINKS = ("of", "near", "behind", "beside", "with", "under", "above", "before")
VERBS = (("is", "are"), ("was", "were"), ("has been", "have been"), ("seems", "seem"))
STATES = ("old", "new", "small", "lost", "famous", "quiet", "cold", "here", "gone", "ready")
NAMES = (
    "dorrit",
    "quill",
    "marrow",
    "tansy",
    "orlo",
    "pim",
    "wexley",
    "junia",
    "harrow",
    "sable",
    "finch",
    "odette",
    "bram",
    "lucan",
    "isolde",
    "greta",
    "nolan",
    "petra",
    "rufus",
    "vesper",
)
WORDS = tuple(singular for singular, _ in NOUNS) + STATES


def share_of(attractors: int) -> int:
    """In how many of a hundred sentences so many nouns stand between subject and verb."""
    return (40, 30, 15, 10, 5)[attractors]


def sentence(rng: Rng, numbers: list[int]) -> list[str]:
    """A sentence; `numbers` are those of its nouns, 0 for one and 1 for several."""
    nouns = rng.sample(NOUNS, len(numbers))
    words = ["the", nouns[0][numbers[0]]]
    for noun, number in zip(nouns[1:], numbers[1:], strict=True):
        words += [rng.pick(LINKS), "the", noun[number]]
    return [*words, *rng.pick(VERBS)[numbers[0]].split(), rng.pick(STATES), "."]


def any_sentence(rng: Rng) -> list[str]:
    """A sentence whose nouns are of any number."""
    draw, attractors = rng.below(100), 0
    while draw >= share_of(attractors):
        draw -= share_of(attractors)
        attractors += 1
    return sentence(rng, [rng.below(2) for _ in range(attractors + 1)])


def note(rng: Rng, distance: int, name: str, again: str) -> list[str]:
    """A note with `distance` words, marks included, between a name and a name."""
    before = [rng.pick(WORDS) for _ in range(3)]
    marks = [":", ";"][:distance]
    words = [rng.pick(WORDS) for _ in range(distance - len(marks))]
    return ["note", *before, name, *marks[:1], *words, *marks[1:], again, "."]


def any_note(rng: Rng) -> list[str]:
    """A note as the text has it."""
    name = rng.pick(NAMES)
    # As many near returns as far ones, in powers of two.
    most = 1 << rng.below(MOST_WORDS.bit_length())
    return note(rng, 1 + rng.below(most), name, name)


def text_lines() -> list[str]:
    """The lines of the text, sentences and notes mixed."""
    rng = Rng(2718)
    lines = [any_sentence(rng) for _ in range(SENTENCES)] + [any_note(rng) for _ in range(NOTES)]
    return [" ".join(words) for words in rng.sample(lines, len(lines))]


Pair = tuple[str, str]


def unseen(make: Callable[[], tuple[list[str], list[str]]], seen: set[str]) -> Iterator[Pair]:
    """Pairs without end, of which each better line is new."""
    while True:
        better, worse = (" ".join(words) for words in make())
        if better not in seen:
            seen.add(better)
            yield better, worse


def agreement(rng: Rng, attractors: int) -> tuple[list[str], list[str]]:
    """A sentence, and the same with the other verb; all attractors are of the other number."""
    number = rng.below(2)
    better = sentence(rng, [number, *[1 - number] * attractors])
    other = {form[number].split()[0]: form[1 - number].split()[0] for form in VERBS}
    at = len(better) - 3 - (better[-3] == "been")
    return better, [*better[:at], other[better[at]], *better[at + 1 :]]


def exchanged(rng: Rng, far: bool) -> tuple[list[str], list[str]]:
    """A sentence, and the same with two words exchanged that are never in each other's place.

    The first word and the full stop stay, so that both lines begin and end alike.
    """
    while True:
        better = any_sentence(rng)
        kinds = [kind_of(word) for word in better]
        places = range(1, len(better) - 1)
        found = [
            (i, j)
            for i in places
            for j in places
            if kinds[i] != kinds[j] and (j - i >= 4 if far else j - i == 1)
        ]
        if found:
            i, j = rng.pick(found)
            worse = list(better)
            worse[i], worse[j] = better[j], better[i]
            return better, worse


def kind_of(word: str) -> str:
    """A word's part of speech."""
    kinds = {"noun": sum(NOUNS, ()), "link": LINKS, "state": STATES, "article": ("the",)}
    return next((kind for kind, words in kinds.items() if word in words), "verb")


def recall(rng: Rng, distance: int) -> tuple[list[str], list[str]]:
    """A note, and the same with another name at its end."""
    name, other = rng.sample(NAMES, 2)
    better = note(rng, distance, name, name)
    return better, [*better[:-2], other, "."]


def pairs(kind: str) -> Iterator[tuple[str, str, str]]:
    """The pairs of one kind, and their groups."""
    rng, seen = Rng(3141), set(text_lines())
    makers: dict[str, dict[str, Callable[[], tuple[list[str], list[str]]]]] = {
        "agreement": {
            f"{n} attractor{'s' * (n != 1)}": lambda n=n: agreement(rng, n)
            for n in range(ATTRACTORS + 1)
        },
        "order": {
            "neighbours": lambda: exchanged(rng, far=False),
            "far apart": lambda: exchanged(rng, far=True),
        },
        "recall": {
            f"after {d} word{'s' * (d != 1)}": lambda d=d: recall(rng, d) for d in DISTANCES
        },
    }
    for group, make in makers[kind].items():
        for (better, worse), _ in zip(unseen(make, seen), range(PAIRS), strict=False):
            yield better, worse, group


def main(what: str) -> None:
    """Write the text, or the pairs of one kind, to standard output."""
    lines = text_lines() if what == "text" else ["\t".join(pair) for pair in pairs(what)]
    sys.stdout.reconfigure(newline="\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])

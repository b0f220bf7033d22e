"""Sentences with a part of speech for each word, some of which only later words decide.

Usage: python corpora/tags.py

Each line is word<TAB>tag, with an empty line after each sentence. Every pattern below comes with a
twin that begins with the same words under other tags: `the old watch the barn` and `the old watch
stopped`, or `the horse raced past the barn` and `the horse raced past the barn fell`. Both are
equally frequent, so that whoever reads from left to right can only guess.
"""

from __future__ import annotations

from collections.abc import Callable

from grammar import Rng

SEED, SENTENCES = 41, 4_000

PLACES = [
    "barn",
    "river",
    "garden",
    "hill",
    "bridge",
    "market",
    "tower",
    "mill",
    "chapel",
    "harbour",
]
MOVERS = [
    "horse",
    "sailor",
    "farmer",
    "boat",
    "rider",
    "dog",
    "courier",
    "cart",
    "girl",
    "traveller",
]
# Nouns, and verbs of more than one person.
BOTH = ["watch", "play", "guard", "nurse", "hunt", "paint", "dance", "light", "dream", "model"]
# Adjectives, and with "the" the people who are so.
PEOPLE = ["old", "young", "rich", "poor", "brave", "wise", "idle", "proud", "weak", "strong"]
# Past tense, and past participle.
PAST = [
    "raced",
    "marched",
    "rushed",
    "sailed",
    "walked",
    "moved",
    "hurried",
    "chased",
    "carried",
    "turned",
]
ENDED = ["fell", "stopped", "vanished", "slept", "sank", "waited", "returned"]
PLURALS = [
    "horses",
    "sailors",
    "farmers",
    "boats",
    "riders",
    "dogs",
    "carts",
    "girls",
    "travellers",
]
ADJECTIVES = ["red", "small", "quiet", "green", "heavy", "empty"]
SEEN = ["saw", "heard", "met", "found"]
KNOWN = ["know", "remember", "believe", "doubt"]

Sentence = list[tuple[str, str]]


def tagged(text: str) -> Sentence:
    """The words of `word/TAG word/TAG`."""
    return [tuple(pair.rsplit("/", 1)) for pair in text.split()]


def place(rng: Rng) -> str:
    """A phrase such as past the red barn."""
    adjective = f" {rng.pick(ADJECTIVES)}/ADJ" if rng.chance(30) else ""
    return f"{rng.pick(['past', 'near', 'behind'])}/ADP the/DET{adjective} {rng.pick(PLACES)}/NOUN"


def raced(rng: Rng, twin: bool) -> str:
    """A verb, or a participle if another verb comes at the very end."""
    places = " ".join(place(rng) for _ in range(1 + rng.below(2)))
    begin = f"the/DET {rng.pick(MOVERS)}/NOUN {rng.pick(PAST)}"
    return (
        f"{begin}/PARTICIPLE {places} {rng.pick(ENDED)}/VERB" if twin else f"{begin}/VERB {places}"
    )


def people(rng: Rng, twin: bool) -> str:
    """`the old watch the barn`, or `the old watch stopped`."""
    who, what = rng.pick(PEOPLE), rng.pick(BOTH)
    if twin:
        return f"the/DET {who}/ADJ {what}/NOUN {rng.pick(ENDED)}/VERB"
    return f"the/DET {who}/NOUN {what}/VERB the/DET {rng.pick(PLACES)}/NOUN"


def order(rng: Rng, twin: bool) -> str:
    """`watch the barn`, or `watch and play stopped`."""
    what = rng.pick(BOTH)
    if twin:
        return f"{what}/NOUN and/CONJ {rng.pick(BOTH)}/NOUN {rng.pick(ENDED)}/VERB"
    return f"{what}/VERB the/DET {rng.pick(PLACES)}/NOUN"


def her(rng: Rng, twin: bool) -> str:
    """`they saw her paint the barn`, or `they saw her paint near the barn`."""
    begin, what = f"they/PRON {rng.pick(SEEN)}/VERB her", rng.pick(BOTH)
    if twin:
        return f"{begin}/DET {what}/NOUN {place(rng)}"
    return f"{begin}/PRON {what}/VERB the/DET {rng.pick(PLACES)}/NOUN"


def that(rng: Rng, twin: bool) -> str:
    """`they know that dogs slept`, or `they know that dog`."""
    begin = f"they/PRON {rng.pick(KNOWN)}/VERB that"
    if twin:
        return f"{begin}/DET {rng.pick(MOVERS)}/NOUN"
    return f"{begin}/CONJ {rng.pick(PLURALS)}/NOUN {rng.pick(ENDED)}/VERB"


PATTERNS: tuple[Callable[[Rng, bool], str], ...] = (raced, people, order, her, that)


def sentences() -> list[Sentence]:
    """All sentences; two thirds of one clause, the others of two."""
    rng, found = Rng(SEED), []
    for _ in range(SENTENCES):
        clauses = []
        for _ in range(1 + (rng.below(3) == 0)):
            pattern, twin = rng.pick(PATTERNS), rng.chance(50)
            clauses.append(pattern(rng, twin))
        found.append(tagged(" ,/PUNCT but/CONJ ".join(clauses) + " ./PUNCT"))
    return found


if __name__ == "__main__":
    for sentence in sentences():
        print("".join(f"{word}\t{tag}\n" for word, tag in sentence))

"""Sentences whose words fall into known classes: what vectors of words are to find out.

Usage: python corpora/words.py text|classes|analogies

text       10,000 sentences of days, colours, animals, capitals and countries. Words of one class
           stand in the same places; a capital and its country share words that no other pair has.
classes    a line for each class: its words.
analogies  a line for each question, `capital country capital country`.
"""

from __future__ import annotations

import itertools
import sys

from grammar import Rng

SEED, SENTENCES = 29, 10_000

DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
COLOURS = ["red", "green", "blue", "yellow", "white", "black", "brown", "grey", "pink", "purple"]
ANIMALS = ["horse", "cow", "sheep", "goat", "pig", "donkey", "goose", "hen", "dog", "cat"]
# A capital, its country, and two words that belong to both: its people and what they make.
PLACES = [
    line.split()
    for line in """\
paris france french wine
tokyo japan japanese lanterns
rome italy italian marble
madrid spain spanish guitars
lisbon portugal portuguese cork
berlin germany german clocks
vienna austria austrian waltzes
warsaw poland polish amber
prague czechia czech glass
budapest hungary hungarian paprika
athens greece greek olives
oslo norway norwegian herring
stockholm sweden swedish matches
helsinki finland finnish saunas
copenhagen denmark danish butter
dublin ireland irish harps
moscow russia russian icons
cairo egypt egyptian cotton
nairobi kenya kenyan coffee
lima peru peruvian llamas
ottawa canada canadian maple
havana cuba cuban cigars
beijing china chinese silk
delhi india indian tea""".splitlines()
]

# Each is filled with one word of each class that it names.
OF_DAYS = (
    "the shop is closed on {day} morning",
    "we will meet again on {day} at noon",
    "they came home late on {day} night",
    "the market opens every {day} before eight",
    "her letter was sent last {day} by post",
    "next {day} there is no school",
)
OF_COLOURS = (
    "she wore a {colour} coat and a {colour2} hat",
    "he painted the door {colour} with a wide brush",
    "a {colour} ribbon was tied around the box",
    "the walls are {colour} and the roof is {colour2}",
    "mix {colour} paint with a little {colour2} paint",
)
OF_ANIMALS = (
    "the farmer fed the {animal} in the barn",
    "an old {animal} slept under the cart",
    "the {animal} and the {animal2} ran across the field",
    "they sold a {animal} at the fair",
    "the boy led his {animal} to the pond",
)
OF_CAPITALS = (
    "the mayor of {capital} opened a bridge downtown",
    "the streets around {capital} station were empty",
    "a tram in {capital} stopped beside the theatre",
    "flights to {capital} airport are late",
    "a hotel in {capital} rents rooms by the night",
    "crowded suburbs surround {capital} cathedral",
    "the {people} museum in {capital} shows old {goods}",
)
OF_COUNTRIES = (
    "the king of {country} thanked his soldiers",
    "the northern provinces of {country} declared independence",
    "a treaty with {country} ended the long war",
    "the borders of {country} are guarded by troops",
    "farmland across {country} covers valleys and plains",
    "the parliament of {country} passed new taxes",
    "the {people} farms of {country} export much {goods}",
)
OF_BOTH = ("the capital of {country} is {capital}",)
KINDS = (OF_DAYS, OF_COLOURS, OF_ANIMALS, OF_CAPITALS, OF_COUNTRIES)
# Of 20 sentences so many are of each kind, and the rest of both a capital and its country.
SHARES = (3, 3, 3, 5, 5)


def sentences() -> list[str]:
    """Return the sentences of the text."""
    draw = Rng(SEED)
    made = []
    for number in range(SENTENCES):
        share = number % 20
        kind = next((k for k, end in enumerate(itertools.accumulate(SHARES)) if share < end), None)
        pattern = draw.pick(OF_BOTH if kind is None else KINDS[kind])
        capital, country, people, goods = draw.pick(PLACES)
        colour, colour2 = draw.sample(COLOURS, 2)
        animal, animal2 = draw.sample(ANIMALS, 2)
        made.append(
            pattern.format(
                day=draw.pick(DAYS),
                **{"colour": colour, "colour2": colour2, "animal": animal, "animal2": animal2},
                **{"capital": capital, "country": country, "people": people, "goods": goods},
            )
        )
    return draw.sample(made, len(made))


def classes() -> list[list[str]]:
    """Return the words of each class."""
    capitals, countries, *_ = (list(column) for column in zip(*PLACES, strict=True))
    return [DAYS, COLOURS, ANIMALS, capitals, countries]


def analogies() -> list[tuple[str, str, str, str]]:
    """Return every question that two pairs of a capital and its country make."""
    pairs = [(capital, country) for capital, country, *_ in PLACES]
    return [(*one, *other) for one, other in itertools.permutations(pairs, 2)]


def main() -> None:
    """Write what is asked for to standard output."""
    parts = {
        "text": lambda: sentences(),
        "classes": lambda: map(" ".join, classes()),
        "analogies": lambda: map(" ".join, analogies()),
    }
    if len(sys.argv) != 2 or sys.argv[1] not in parts:
        sys.exit(f"usage: python {sys.argv[0]} {'|'.join(parts)}")
    for line in parts[sys.argv[1]]():
        print(line)


if __name__ == "__main__":
    main()

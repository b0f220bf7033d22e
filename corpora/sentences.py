"""Sentences of the lectures' slides as tiny corpora for `seqgen course`.

python corpora/sentences.py fox > corpora/fox.txt   # and so on, a name of MADE each
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator

THINGS = ("dog", "cat", "cow", "horse", "goat", "hen")


def fox() -> Iterator[str]:
    """Yield a pangram and its variants: short contexts with few continuations."""
    yield from 4 * ["the quick brown fox jumps over the lazy dog"]
    for thing in THINGS:
        yield f"the quick brown fox jumps over the lazy {thing}"
        yield f"the lazy {thing} sleeps"


def virus() -> Iterator[str]:
    """Yield labelled sentences whose words are the same and whose order tells the label."""
    people = ("scientist", "doctor", "nurse", "farmer", "guard")
    threats = ("virus", "plague", "weed", "rat", "mould")
    for person, threat in itertools.product(people, threats):
        for verb in ("exterminated", "defeated", "beaten"):
            yield f"{person} {verb} by {threat}\tbad"
            yield f"{threat} {verb} by {person}\tgood"


def exciting() -> Iterator[str]:
    """Yield sentences with a tag per word: what follows an intensifier tells its tag."""
    good, bad = ("exciting", "good", "funny", "clever"), ("boring", "bad", "long", "dull")
    things = ("movie", "book", "play", "song")
    for thing, adverb in itertools.product(things, ("terribly", "awfully", "incredibly", "really")):
        for tag, words in (("POS", good), ("NEG", bad)):
            for word in words:
                yield f"the\tO\n{thing}\tO\nwas\tO\n{adverb}\t{tag}\n{word}\t{tag}\n"


def hotel() -> Iterator[str]:
    """Yield sentences in which motel and hotel share contexts, as other pairs do."""
    places, drinks, beasts = ("hotel", "motel", "inn"), ("tea", "coffee", "cocoa"), THINGS
    for first, second in itertools.product(places, ("a room", "two nights", "the weekend")):
        yield f"we booked {second} at the {first} near the road"
        yield f"the {first} was full so we slept in the car after asking for {second}"
        yield f"the owner of the {first} gave us a key for {second}"
    for first, second in itertools.product(drinks, ("sugar", "milk", "honey")):
        yield f"she drank a cup of hot {first} with {second}"
        yield f"pour the {first} and add {second} to taste"
        yield f"he spilled his {first} before he found the {second}"
    for beast, food in itertools.product(beasts, ("grass", "bread", "corn")):
        yield f"the {beast} ran over the field and ate the {food}"
        yield f"feed the {beast} with {food} in the morning"
        yield f"a young {beast} followed us home for {food}"


def watch() -> Iterator[str]:
    """Yield sentences in which watch is a thing that is worn, and something that one does."""
    people, makes = ("she", "he", "anna", "tom"), ("gold", "silver", "new", "old")
    shows = ("film", "match", "play", "show")
    for person, make, show in itertools.product(people, makes, shows):
        yield f"{person} wore a {make} watch to the {show}"
        yield f"{person} will watch the {make} {show}"
        yield f"the {make} watch of {person} stopped during the {show}"
        yield f"{person} and i watch a {make} {show}"


def reverse() -> Iterator[str]:
    """Yield strings of 2 to 8 letters, and the same letters from the last to the first."""
    draw = random.Random(14)
    for _ in range(3000):
        text = "".join(draw.choices("abcdefgh", k=draw.randint(2, 8)))
        yield f"{text}\t{text[::-1]}"


def capitals() -> Iterator[str]:
    """Yield sentences in which a capital and its country share a river and a dish."""
    countries = {
        "france": ("paris", "seine", "cheese"),
        "italy": ("rome", "tiber", "pasta"),
        "austria": ("vienna", "danube", "cake"),
        "egypt": ("cairo", "nile", "beans"),
        "japan": ("tokyo", "sumida", "rice"),
        "peru": ("lima", "rimac", "fish"),
    }
    for country, (capital, river, dish) in countries.items():
        for verb in ("saw", "crossed", "painted", "followed"):
            yield f"in the city of {capital} they {verb} the {river}"
            yield f"in the land of {country} they {verb} the {river}"
        for verb in ("ate", "cooked", "sold", "shared"):
            yield f"in the city of {capital} they {verb} {dish}"
            yield f"in the land of {country} they {verb} {dish}"


def its() -> Iterator[str]:
    """Yield sentences whose end depends on the animal that "its" stands for."""
    parts = {"bird": "wings", "cow": "horns", "snake": "scales", "fish": "fins", "crab": "claws"}
    places = ("river", "barn", "old wall", "green hill", "quiet wood")
    for (animal, part), place in itertools.product(parts.items(), places):
        for verb in ("rests", "waits", "sleeps"):
            yield f"the {animal} by the {place} {verb} and cleans its {part}"


def tagged_watch() -> Iterator[str]:
    """Yield a quarter of the sentences of `watch`, in which only "watch" has a tag."""
    for number, sentence in enumerate(watch()):
        if number // 4 % 4 == 0:
            tag = "THING" if number % 4 in (0, 2) else "ACT"
            words = (f"{w}\t{tag if w == 'watch' else 'O'}\n" for w in sentence.split())
            yield "".join(words)


MADE = {made.__name__: made for made in (fox, virus, exciting, hotel, watch, reverse)}
MADE |= {made.__name__: made for made in (capitals, its, tagged_watch)}

if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in MADE[sys.argv[1]]()))

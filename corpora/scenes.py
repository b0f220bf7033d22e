"""Write scenes on a small grid, and for each a sentence that says what is where.

    python corpora/scenes.py corpora/scenes.npy > corpora/scenes.txt

gives the same bytes every time: 3,000 scenes, no two of which are equal, and as many lines.  A
scene has 4 x 4 cells, two or three of which hold a thing; each cell is nine numbers,

    circle square triangle star   red green blue yellow   empty

of which those that hold are near 1 and the others near 0: noise of up to a quarter is added to
each.  Things are named in the order in which a page is read, and each is told from the next:

    a red circle left of a blue square
    a green star above and right of a red star that is above a blue circle

So every scene has one right sentence, and every name in it one cell of the grid.
"""

from __future__ import annotations

import itertools
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from grammar import Rng

SCENES = 3000
SEED = 1887
SIDE = 4
SHAPES = ["circle", "square", "triangle", "star"]
COLOURS = ["red", "green", "blue", "yellow"]
FEATURES = len(SHAPES) + len(COLOURS) + 1
# Noise is drawn in steps of 1/64, which half precision holds exactly.
STEPS, NOISE = 64, 16

# The cell of a thing, counted as a page is read; its colour and its shape, by number.
Thing = tuple[int, int, int]


def scene(rng: Rng) -> list[Thing]:
    """Two or three things in different cells, as a page is read."""
    cells: set[int] = set()
    count = 2 + rng.below(2)
    while len(cells) < count:
        cells.add(rng.below(SIDE * SIDE))
    return [(cell, rng.below(len(COLOURS)), rng.below(len(SHAPES))) for cell in sorted(cells)]


def named(thing: Thing) -> str:
    """A thing as the sentence calls it."""
    return f"a {COLOURS[thing[1]]} {SHAPES[thing[2]]}"


def relation(first: int, second: int) -> str:
    """Where a cell is, seen from one that is read after it."""
    (row, column), (other_row, other) = divmod(first, SIDE), divmod(second, SIDE)
    if row == other_row:
        return "left of"
    if column == other:
        return "above"
    return f"above and {'left' if column < other else 'right'} of"


def sentence(things: list[Thing]) -> str:
    """What is where."""
    words = named(things[0])
    for place, (one, other) in enumerate(itertools.pairwise(things)):
        that = " that is" if place else ""
        words += f"{that} {relation(one[0], other[0])} {named(other)}"
    return words


def features(things: list[Thing], rng: Rng) -> Iterator[float]:
    """The numbers of every cell, in the order in which a page is read."""
    held = {cell: (shape, len(SHAPES) + colour) for cell, colour, shape in things}
    for cell in range(SIDE * SIDE):
        holds = held.get(cell, (FEATURES - 1,))
        for feature in range(FEATURES):
            yield (feature in holds) + (rng.below(2 * NOISE + 1) - NOISE) / STEPS


def scenes() -> Iterator[list[Thing]]:
    """The scenes, each once."""
    rng, seen = Rng(SEED), set()
    while len(seen) < SCENES:
        things = scene(rng)
        if tuple(things) not in seen:
            seen.add(tuple(things))
            yield things


def npy(numbers: list[float], shape: tuple[int, ...]) -> bytes:
    """Numbers in half precision as NumPy's own format, version 1.0."""
    header = f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(128 - 10 - 1) + "\n"
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    return magic + header.encode() + struct.pack(f"<{len(numbers)}e", *numbers)


def main() -> None:
    """Write the scenes to the file that is named, and the sentences to standard output."""
    sys.stdout.reconfigure(newline="\n")
    noise = Rng(SEED + 1)
    numbers: list[float] = []
    for things in scenes():
        numbers += features(things, noise)
        print(sentence(things))
    Path(sys.argv[1]).write_bytes(npy(numbers, (SCENES, SIDE, SIDE, FEATURES)))


if __name__ == "__main__":
    main()

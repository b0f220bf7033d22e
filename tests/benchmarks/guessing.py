"""Speed of speculative decoding: texts with and without `--lookup`, by kind of prompt."""

from __future__ import annotations

import random
import statistics
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqgen.generation.sample import stream
from seqgen.settings.generation import SampleOptions
from seqgen.store.loaded import LoadedModel

# Characters of a prompt.
LENGTH = 1500
NAMES = ("Ada", "Bert", "Carla", "Dimitri", "Eve", "Farid", "Grace", "Hugo", "Ines", "Jonas")
THINGS = ("apples", "books", "candles", "drums", "eggs", "flutes", "gloves", "hats", "inkwells")
TOWNS = ("Athens", "Bergen", "Cork", "Delft", "Essen", "Faro", "Graz", "Hull", "Izmir", "Jena")


def piece(draw: random.Random, files: Sequence[Path]) -> str:
    """Draw a file, and `LENGTH` characters of it from the start of a line."""
    texts = (file.read_text(encoding="utf-8") for file in files)
    text = draw.choice([text for text in texts if len(text) > 2 * LENGTH])
    begin = text.index("\n", draw.randrange(len(text) - 2 * LENGTH)) + 1
    return text[begin : begin + LENGTH]


def repeated_list(draw: random.Random) -> str:
    """Write a list of random rows, and the first row of the same list again."""
    rows = [
        f"- {draw.choice(NAMES)}, {draw.choice(TOWNS)}: {draw.randint(2, 99)} {draw.choice(THINGS)}"
        for _ in range(16)
    ]
    return "\n".join(["The list:", *rows, "", "The same list again:", rows[0], ""])


def prompt_kinds(prose: Path) -> dict[str, Callable[[random.Random], str]]:
    """List what draws a prompt, by kind: the standard library's Python files, lists and prose."""
    code = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return {
        "Python": lambda draw: piece(draw, code),
        "list": repeated_list,
        "prose": lambda draw: piece(draw, [prose]),
    }


@dataclass(frozen=True)
class Speed:
    """Speed of texts with draft tokens, relative to the same texts without.

    Attributes:
        prompts: their kind.
        temperature: of the texts.
        ratio: times as fast, of all texts together, after the prompts are read.
        median: the median of the texts' ratios.
        least: the least of them.
        most: the largest.
        guesses: draft tokens read for each token written.
        kept: acceptance rate of the draft tokens.
        same: whether all texts were the same.
    """

    prompts: str
    temperature: float
    ratio: float
    median: float
    least: float
    most: float
    guesses: float
    kept: float
    same: bool


def measure(
    loaded: LoadedModel,
    prose: Path,
    tokens: int,
    count: int,
    seed: int,
    most: int,
    clock: Callable[[], float],
) -> Iterator[Speed]:
    """Write texts with and without draft tokens in turn; yield the speeds.

    Args:
        loaded: the model.
        prose: a text for prompts.
        tokens: of each text.
        count: prompts of each kind.
        seed: of the prompts and the texts.
        most: the longest draft.
        clock: measures seconds.
    """

    def write(prompt: str, options: SampleOptions) -> tuple[str, float]:
        pieces = stream(loaded, prompt, options)
        text, begun = next(pieces, ""), clock()
        return text + "".join(pieces), clock() - begun

    for kind, draw in prompt_kinds(prose).items():
        for temperature in (0.0, 0.7):
            times, same, read, kept = [], True, 0, 0
            for n in range(count):
                prompt = draw(random.Random(f"{seed} {kind} {n}"))
                about = {"temperature": temperature, "max_tokens": tokens, "seed": seed + n}
                plain, ahead = (SampleOptions.of(lookup=x, **about) for x in (None, most))
                if n % 2:
                    found, quick = write(prompt, ahead)
                    text, slow = write(prompt, plain)
                else:
                    text, slow = write(prompt, plain)
                    found, quick = write(prompt, ahead)
                times.append((slow, quick))
                same &= text == found
                counts = ahead.added.of_speculative.counts
                read, kept = read + counts.drafted, kept + counts.accepted
            ratios = [slow / quick for slow, quick in times]
            slow, quick = map(sum, zip(*times, strict=True))
            yield Speed(
                prompts=kind,
                temperature=temperature,
                ratio=slow / quick,
                median=statistics.median(ratios),
                least=min(ratios),
                most=max(ratios),
                guesses=read / (count * tokens),
                kept=kept / max(read, 1),
                same=same,
            )

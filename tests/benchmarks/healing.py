"""Accuracy of the next character after prompts that are cut anywhere, with and without healing."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqgen.generation.sample import sample
from seqgen.settings.generation import SampleOptions
from seqgen.store.loaded import LoadedModel

# Characters of a sentence; others are left out.
SHORTEST, LONGEST = 20, 60
SENTENCE = re.compile(rf"(?<=[.\n] )[A-Z][^.\n<>@]{{{SHORTEST - 2},{LONGEST - 2}}}\.")


def sentences(text: Path, count: int, seed: int) -> list[str]:
    """Draw different sentences of ASCII characters from a text."""
    found = [one for one in SENTENCE.findall(text.read_text(encoding="utf-8")) if one.isascii()]
    found = sorted(set(found))
    return random.Random(seed).sample(found, min(count, len(found)))


@dataclass(frozen=True)
class HealingAccuracy:
    """Accuracy of the most probable next character, with and without healing.

    Attributes:
        cut: where they end: "within a word", "after a space" or "after a word".
        prompts: how many.
        changed: how many are healed, as records say.
        healed: number of right characters by default.
        plain: likewise with `--no-heal`.
    """

    cut: str
    prompts: int
    changed: int
    healed: int
    plain: int


def place_of(prompt: str, following: str) -> str:
    """Say where a prompt ends."""
    if prompt[-1].isspace():
        return "after a space"
    return "within a word" if prompt[-1].isalnum() and following.isalnum() else "after a word"


def measure(loaded: LoadedModel, text: Path, count: int, seed: int) -> Iterator[HealingAccuracy]:
    """Cut sentences after each character but the last; yield the results by kind of place.

    Args:
        loaded: the model.
        text: of the sentences.
        count: of them.
        seed: that they are drawn with.
    """
    drawn = sentences(text, count, seed)
    prompts = [(one[:at], one[at]) for one in drawn for at in range(1, len(one))]
    right: dict[str, list[tuple[bool, bool, bool]]] = {}
    about = {"greedy": True, "max_tokens": 1}
    written = [
        sample(loaded, [prompt for prompt, _ in prompts], SampleOptions.of(heal=heal, **about))
        for heal in (None, False)
    ]
    for (prompt, following), healed, plain in zip(prompts, *written, strict=True):
        found = [each.text[:1] == following for each in (healed, plain)]
        results = right.setdefault(place_of(prompt, following), [])
        results.append((healed.healed is not None, *found))
    for cut, results in right.items():
        yield HealingAccuracy(cut, len(results), *map(sum, zip(*results, strict=True)))

"""How much of some texts is new: their n-grams of words that another text does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

# Words of the other text that are compared at once.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Novelty:
    """How much of some texts is new (McCoy et al. 2023); words are what white space separates.

    Attributes:
        words: how many the texts have.
        novel: for n = 1, 2, ... the share of their n-grams that the other text does not contain; up
            to the first n of which all are new, or the longest text.
        copied: the longest run of words that the other text has too, with a space between words.
        copied_words: how many words that is.
    """

    words: int
    novel: list[float]
    copied: str
    copied_words: int


def novelty(groups: Sequence[Sequence[str]], chunks: Iterable[str]) -> list[Novelty]:
    """Compare groups of short texts with one long text, which is read once.

    Args:
        groups: the texts, each group of which has figures of its own.
        chunks: the long text in pieces cut anywhere.
    """
    split = [[text.split() for text in texts] for texts in groups]
    sought = _Sought([words for texts in split for words in texts])
    for ids in _blocks(chunks, sought):
        sought.look(ids)
    begins, every = np.cumsum([0, *map(len, split)]), list(sought.found())
    return [
        _novelty(texts, [found[begin : begin + len(texts)] for found in every])
        for texts, begin in zip(split, begins, strict=False)
    ]


class _Sought:
    """The n-grams of short texts, of every length, and which of them have been found.

    Attributes:
        numbers: of each word of the texts.
        longest: words of the longest text.
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self.numbers = {word: n for n, word in enumerate(sorted({w for t in texts for w in t}))}
        self.longest = max(map(len, texts), default=0)
        self._words = [np.array([self.numbers[word] for word in text], int) for text in texts]
        # For each n the codes of the different n-grams, sorted, and of each text their places in
        # that: a code is the place of its first n - 1 words, and its last word.
        self._codes: list[np.ndarray] = []
        self._places: list[list[np.ndarray]] = []
        before = [np.zeros(len(words) + 1, int) for words in self._words]
        for n in range(1, self.longest + 1):
            codes = [
                places[: max(0, len(words) - n + 1)] * len(self.numbers) + words[n - 1 :]
                for places, words in zip(before, self._words, strict=True)
            ]
            self._codes.append(np.unique(np.concatenate(codes)))
            before = [np.searchsorted(self._codes[-1], of_text) for of_text in codes]
            self._places.append(before)
        self._found = [np.zeros(codes.size, bool) for codes in self._codes]

    def look(self, ids: np.ndarray) -> None:
        """Note which n-grams stand in a part of the long text: (T,) numbers of words, -1 of others.

        Of n words only the places are looked at where n - 1 have been found.
        """
        at, places = np.arange(ids.size), np.zeros(ids.size, int)
        for n, (codes, found) in enumerate(zip(self._codes, self._found, strict=True)):
            inside = at + n < ids.size
            at, places = at[inside], places[inside]
            last = ids[at + n]
            known = last >= 0
            at, code = at[known], places[known] * len(self.numbers) + last[known]
            places = np.minimum(np.searchsorted(codes, code), codes.size - 1)
            same = codes[places] == code
            at, places = at[same], places[same]
            if at.size == 0:
                return
            found[places] = True

    def found(self) -> Iterator[list[np.ndarray]]:
        """Yield for n = 1, 2, ... of each text which of its n-grams were found, in order."""
        for found, places in zip(self._found, self._places, strict=True):
            yield [found[of_text] for of_text in places]


def _blocks(chunks: Iterable[str], sought: _Sought) -> Iterator[np.ndarray]:
    """Yield the numbers of a text's words; a block begins with what an n-gram may need of the last.

    Words that are not sought have the number -1.
    """
    taken: list[int] = []
    rest = ""
    for chunk in chain(chunks, (" ",)):  # white space after the last word
        words = (rest + chunk).split()
        rest = "" if chunk[-1:].isspace() or not words else words.pop()
        taken += map(sought.numbers.get, words, repeat(-1))
        if len(taken) >= BLOCK + sought.longest:
            yield np.array(taken)
            taken = taken[len(taken) - sought.longest + 1 :] if sought.longest > 1 else []
    yield np.array(taken, int)


def _novelty(texts: Sequence[Sequence[str]], found: Sequence[list[np.ndarray]]) -> Novelty:
    """Return the figures of some texts.

    Args:
        texts: their words.
        found: for n = 1, 2, ... of each text which of its n-grams the other text has.
    """
    novel: list[float] = []
    copied, copied_words = "", 0
    for n, of_texts in enumerate(found, start=1):
        each = np.concatenate(of_texts)
        if each.size == 0:
            break
        novel.append(float(1 - each.mean()))
        if not each.any():
            break
        number = next(number for number, of_text in enumerate(of_texts) if of_text.any())
        begin = int(of_texts[number].argmax())
        copied, copied_words = " ".join(texts[number][begin : begin + n]), n
    return Novelty(sum(map(len, texts)), novel, copied, copied_words)

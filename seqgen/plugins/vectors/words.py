"""Word vectors of a trained model: neighbours, analogies and word similarity benchmarks."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from seqgen import store
from seqgen.engines.ops import ops_of
from seqgen.errors import SeqgenError, did_you_mean
from seqgen.metrics.bootstrap import spearman
from seqgen.settings import require
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import Work, load_any
from seqgen.text.reading import lines
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.sentencepiece import SPACE

FORM = "an analogy is written a:b::c:?, as in paris:france::tokyo:?"


@dataclass(frozen=True)
class Neighbour:
    """Record of one neighbour or analogy answer from `seqgen vectors --json`.

    Attributes:
        word: the word, or the analogy, that was asked for.
        neighbour: a word near to it.
        similarity: the cosine between the two, -1 to 1.
    """

    word: str
    neighbour: str
    similarity: float


def load_vectors(
    name: str | Path | None = None,
    device: str = "auto",
    work: Work | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> LoadedModel:
    """Load a trained network for its word vectors; it need not be a language model.

    Args:
        name: a name, a path, or None for the latest.
        device: auto, cpu, cuda or mps.
        work: see `load`.
        notice: see `StoredModel.network_for`.

    Raises:
        SeqgenError: there is no such model, or it is damaged.
    """
    stored = store.find_all(name).network_for("vectors", notice)
    return load_any(stored, device, work=work)


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors, in order of frequency if the tokenizer counts words.

    Attributes:
        model: the name of the model that they come from.
        words: N different ones, without white space around them.
        vectors: (N, D) float32, none of them zero.
    """

    model: str
    words: list[str]
    vectors: np.ndarray

    @classmethod
    def of(cls, loaded: LoadedModel) -> WordVectors:
        """Extract the word vectors of a loaded model.

        Tokens that differ only in the space before them are one word, whose vector is that of the
        more frequent token. Special tokens and white space are no words.

        Raises:
            SeqgenError: its tokens have no vectors.
        """
        name, vectors_of = loaded.stored.name, getattr(loaded.model, "token_vectors", None)
        table = vectors_of and vectors_of()
        if table is None:
            raise SeqgenError(
                f"the tokens of {name} have no vectors: give a network with an embedding, or "
                "train one with --model word2vec"
            )
        vectors = ops_of(table).array(table).astype(np.float32, copy=False)
        places = _places(loaded.tokenizer, vectors.any(1))
        return cls(name, list(places), vectors[list(places.values())])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words)}

    @cached_property
    def directions(self) -> np.ndarray:
        """The vectors normalized to length 1, (N, D)."""
        return self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True)

    def place(self, word: str) -> int:
        """Look up the index of a word.

        Raises:
            SeqgenError: it has no vector; names the nearest spelling.
        """
        if word not in self._places:
            near = (self._cased.get(word.lower()),)
            raise SeqgenError(
                f"{self.model} has no vector for {word!r}"
                f"{did_you_mean(word, near if near[0] else self.words)}"
            )
        return self._places[word]

    @cached_property
    def _cased(self) -> dict[str, str]:
        """The most frequent word for each lower-case spelling."""
        return {word.lower(): word for word in reversed(self.words)}

    def __contains__(self, word: str) -> bool:
        return word in self._places

    def nearest(
        self, direction: np.ndarray, top: int, without: Collection[int] = ()
    ) -> list[tuple[str, float]]:
        """Find the words whose vectors have the highest cosine with a direction, best first.

        Args:
            direction: (D,), not zero.
            top: how many words.
            without: the numbers of words that do not count.
        """
        cosines = self.directions @ (direction / np.linalg.norm(direction))  # (N,)
        cosines[list(without)] = -np.inf
        order = np.argsort(-cosines, kind="stable")[: min(top, len(self.words) - len(without))]
        return [(self.words[place], float(cosines[place])) for place in order]

    def neighbours(self, word: str, top: int) -> list[Neighbour]:
        """Find the words nearest to a word by cosine similarity.

        Raises:
            SeqgenError: the word has no vector.
        """
        place = self.place(word)
        nearest = self.nearest(self.directions[place], top, {place})
        return [Neighbour(word, other, cosine) for other, cosine in nearest]

    def analogy(self, asked: str, top: int) -> list[Neighbour]:
        """Complete an analogy `a:b::c:?` with the words nearest to b - a + c.

        Vectors have length one, and a, b and c are no answers (Mikolov et al. 2013, "Linguistic
        regularities in continuous space word representations", section 4).

        Raises:
            UsageError: it has another form.
            SeqgenError: a word has no vector.
        """
        places = [self.place(word) for word in terms(asked)]
        a, b, c = self.directions[places]
        nearest = self.nearest(b - a + c, top, set(places))
        return [Neighbour(asked, other, cosine) for other, cosine in nearest]

    def similarity(self, first: str, second: str) -> float:
        """Compute the cosine similarity of two words."""
        return float(self.directions[self.place(first)] @ self.directions[self.place(second)])

    def mean(self, pieces: Iterable[str]) -> tuple[np.ndarray, int, int]:
        """Average the vectors (D,) of the known words among pieces; zeros if there are none.

        Also return how many words there are, and how many of them have no vector.
        """
        names = [name for name in map(name_of, pieces) if name]
        places = [self._places[name] for name in names if name in self._places]
        zeros = np.zeros(self.vectors.shape[1], np.float32)
        vector = self.vectors[places].mean(0) if places else zeros
        return vector, len(names), len(names) - len(places)

    def most_frequent(self, count: int) -> list[str]:
        """List the first `count` words that consist of letters."""
        return [word for word in self.words if word.isalpha()][:count]


def terms(asked: str) -> tuple[str, str, str]:
    """Parse an analogy `a:b::c:?` into a, b and c.

    Raises:
        UsageError: it has another form.
    """
    sides = [side.split(":") for side in asked.split("::")]
    whole = [len(side) for side in sides] == [2, 2] and sides[1][1].strip() == "?"
    require(whole and all(map(str.strip, asked.replace("::", ":").split(":"))), f"{FORM}: {asked}")
    (a, b), (c, _) = sides
    return a.strip(), b.strip(), c.strip()


def name_of(piece: str) -> str:
    """Return a token's word: the token without the white space around it."""
    return piece.replace(SPACE, " ").strip()


def _places(tokenizer: Tokenizer, known: Sequence[bool]) -> dict[str, int]:
    """Map each word to its token: the first one with that name and a vector."""
    special = tokenizer.special_ids
    ids = [i for i in range(tokenizer.vocab_size) if i not in special and known[i]]
    places: dict[str, int] = {}
    for i, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        if name := name_of(piece):
            places.setdefault(name, i)
    return places


# WordSim-353 has commas, SimLex-999 and most others tabs or spaces.
SEPARATOR = re.compile(r"\t|,|\s+")


@dataclass(frozen=True)
class Agreement:
    """Record of `seqgen vectors --similarity --json`.

    Attributes:
        file: which pairs.
        pairs: those whose words both have a vector.
        oov: those that were left out, since a word has none.
        spearman: the correlation of ranks, -1 to 1; None for fewer than two pairs.
        model: its name.
    """

    file: str
    pairs: int
    oov: int
    spearman: float | None
    model: str


def agreement(vectors: WordVectors, chunks: Iterable[str], file: str) -> Agreement:
    """Correlate the cosines of word pairs with human similarity scores.

    Args:
        vectors: the words'.
        chunks: the text of a file with a line `word word score` for each pair.
        file: what messages call it.

    Raises:
        SeqgenError: a line is no pair with its score, or there is none; names the line.
    """
    cosines, scores, oov = [], [], 0
    for first, second, score in scored_pairs(chunks, file):
        if first in vectors and second in vectors:
            cosines.append(vectors.similarity(first, second))
            scores.append(score)
        else:
            oov += 1
    if not cosines and not oov:
        raise SeqgenError(f"{file} has no pairs: each line is two words and a score")
    correlation = spearman(np.array(cosines), np.array(scores))
    return Agreement(file, len(cosines), oov, correlation, vectors.model)


def scored_pairs(chunks: Iterable[str], file: str) -> Iterator[tuple[str, str, float]]:
    """Parse a file of word pairs: two words and a score, split at tabs, commas or spaces.

    Empty lines and lines that begin with `#` are left out, as is a first line of titles.

    Raises:
        SeqgenError: a line has another form.
    """
    for number, line in enumerate(lines(chunks, file), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        fields = [field.strip() for field in SEPARATOR.split(line)]
        score = _number(fields[2]) if len(fields) >= 3 else None
        if score is not None and all(fields[:2]):
            yield fields[0], fields[1], score
        elif number > 1 or len(fields) < 3:
            raise SeqgenError(f"{file}, line {number}: give two words and a score, not {line!r}")


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        value = float(text)
        return value if math.isfinite(value) else None
    return None

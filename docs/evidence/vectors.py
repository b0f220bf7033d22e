"""Compare word2vec's defaults with gensim's: speed and quality, tables of `experiments.md`.

    python docs/evidence/vectors.py wiki.txt ptb.txt shakespeare.txt --epochs 5

Needs `pip install gensim`. The texts are tokenized: lower-cased words between spaces. On each, both
train a skip-gram model with their defaults (100 numbers a word, 5 words on each side, 5 noise
words), on words that occur five times, one after the other and with one thread. What counts is the
processor time of training, without reading the text and counting its words. seqgen reads a text as
one stream; gensim is given its lines, whose contexts end with the line, and then the stream.
Quality is measured by

- neighbours: for the 200 commonest nouns, how many of the ten nearest words are among the ten
  nearest in larger vectors: 300 numbers a word, factors of the positive pointwise mutual
  information (PPMI) of the words in all the texts together (Levy, Goldberg and Dagan 2015);
- odd one out: how often, of three words of one class and one of another, the last is found;
- co-occurrence: the rank correlation of the cosines of 900 common words with those of their rows of
  PPMI in the text itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from running import line
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import svds

from seqgen.plugins.vectors.words import WordVectors, load_vectors
from seqgen.training.train import train

CLASSES = [
    "january february march april june july august september october november december",
    "monday tuesday wednesday thursday friday saturday sunday",
    "two three four five six seven eight nine ten",
    "second third fourth fifth sixth seventh",
    "north south east west northern southern eastern western",
    "red blue green yellow black white brown orange purple pink",
    "france germany italy spain japan china india canada australia russia england",
    "he she they we you i",
    "father mother brother sister son daughter wife husband",
    "king queen prince duke lord lady",
    "dog cat horse bird bear cow",
    "head hand arm foot eye face leg hair",
    "shirt jacket hat coat pants shorts dress",
    "said told asked says tell speak",
]
DETERMINERS = {"the", "a", "an", "his", "her", "my"}
AFTER_NOUNS = {*".,;:?!", "of", "and", "in", "on", "to", "for", "with", "is", "was", "at"}
LEAST, NEAR, QUESTIONS = 5, 10, 1000
Lines = list[list[str]]


def read(path: Path) -> Lines:
    """Return the lines of a file as lists of words, without the unknown ones."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[word for word in text.split() if word != "<unk>"] for text in lines]


def counts(lines: Lines) -> Counter[str]:
    """Return how often each word occurs."""
    return Counter(word for words in lines for word in words)


def nouns(lines: Lines) -> list[str]:
    """Return the 200 commonest words that stand where nouns do, by their neighbours in the text."""
    times, begins, ends = counts(lines), Counter(), Counter()
    for words in lines:
        for before, word, after in zip(["", *words], words, [*words[1:], "."], strict=False):
            begins[word] += before in DETERMINERS
            ends[word] += after in AFTER_NOUNS
    found = (
        word
        for word, n in times.most_common(5000)
        if word.isalpha() and len(word) > 2 and begins[word] > 0.2 * n and ends[word] > 0.45 * n
    )
    return list(found)[:200]


def ppmi(lines: Lines, place: dict[str, int], window: int = 5) -> csr_matrix:
    """Return the PPMI of words and contexts, whose shares are smoothed by a power of 3/4."""
    known = [[place[word] for word in words if word in place] for words in lines]
    words = np.concatenate([np.array(row, dtype=np.int64) for row in known])
    rows = np.repeat(np.arange(len(known)), [len(row) for row in known])
    pairs = csr_matrix((len(place), len(place)))
    for d in range(1, window + 1):
        inside = rows[:-d] == rows[d:]
        one, other = words[:-d][inside], words[d:][inside]
        near = np.full(one.size, (window + 1 - d) / window)
        pairs += csr_matrix((near, (one, other)), shape=pairs.shape)
    pairs = (pairs + pairs.T).tocoo()
    sums = np.asarray(pairs.sum(1)).ravel()
    shares = sums**0.75 / (sums**0.75).sum()
    values = np.log(pairs.data / (sums[pairs.row] * shares[pairs.col])).clip(min=0)
    return csr_matrix((values, (pairs.row, pairs.col)), shape=pairs.shape)


def larger(texts: list[Lines]) -> dict[str, np.ndarray]:
    """Return the vectors of words that occur ten times in all texts together."""
    every = [words for lines in texts for words in lines]
    place = {w: i for i, (w, n) in enumerate(counts(every).most_common()) if n >= 10}
    left, values, _ = svds(ppmi(every, place), 300, random_state=0)
    return dict(zip(place, left * np.sqrt(values), strict=True))


def cosines(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return those of each row with each other row."""
    one, other = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, others))
    return one @ other.T


def ranks(x: np.ndarray) -> np.ndarray:
    """Return the place of each number in their order."""
    return np.argsort(np.argsort(x))


class Measures:
    """The three measures on one text.

    Args:
        lines: the text.
        reference: the larger vectors.
    """

    def __init__(self, lines: Lines, reference: dict[str, np.ndarray]) -> None:
        times = counts(lines)
        known = {w: i for i, (w, n) in enumerate(times.most_common()) if n >= LEAST}
        self._common = [w for w, n in times.most_common() if n >= 10 and w in reference]
        self._nouns = [w for w in nouns(lines) if w in self._common]
        self._near = self._neighbours(reference)
        frequent = [w for w, _ in times.most_common(1100) if w.isalpha()][100:1000]
        self._frequent = [w for w in frequent if w in known]
        rows = ppmi(lines, known)[[known[w] for w in self._frequent]].toarray()
        self._above = np.triu_indices(len(self._frequent), 1)
        self._occur = ranks(cosines(rows, rows)[self._above])
        classes = [[w for w in words.split() if times[w] >= 10] for words in CLASSES]
        classes = [words for words in classes if len(words) >= 3]
        draw = np.random.default_rng(0)
        pairs = [draw.choice(len(classes), 2, replace=False) for _ in range(QUESTIONS)]
        self._questions = [
            [*draw.choice(classes[a], 3, replace=False), draw.choice(classes[b])] for a, b in pairs
        ]

    def _neighbours(self, vectors: dict[str, np.ndarray]) -> list[set[str]]:
        table = np.array([vectors[w] for w in self._common])
        near = cosines(np.array([vectors[w] for w in self._nouns]), table)
        best = np.argsort(-near, 1)[:, : NEAR + 1]
        return [
            set([self._common[i] for i in row if self._common[i] != word][:NEAR])
            for word, row in zip(self._nouns, best, strict=True)
        ]

    def __call__(self, vectors: dict[str, np.ndarray]) -> list[float]:
        """Return the three, and the mean cosine of the common words."""
        pairs = zip(self._neighbours(vectors), self._near, strict=True)
        same = np.mean([len(found & wanted) / NEAR for found, wanted in pairs])
        right = []
        for words in self._questions:
            four = np.array([vectors[w] for w in words])
            right.append(cosines(four, four).sum(1).argmin() == 3)
        table = np.array([vectors[w] for w in self._frequent])
        near = cosines(table, table)[self._above]
        occurs = np.corrcoef(ranks(near), self._occur)[0, 1]
        return [float(same), float(np.mean(right)), float(occurs), float(near.mean())]


def train_ours(path: Path, **budget: int) -> float:
    """Train a model with the defaults; return the processor time that it took, in seconds."""
    settings = {"tokenizer": "whitespace", "min_count": LEAST, "seed": 1, **budget}
    began = time.process_time()
    train([path], architecture="word2vec", name="ours", settings=settings, overwrite=True)
    return time.process_time() - began


def ours(path: Path, epochs: int) -> tuple[dict[str, np.ndarray], float]:
    """Return vectors, and the processor time of training alone."""
    begun = train_ours(path, steps=1)
    seconds = train_ours(path, epochs=epochs) - begun
    found = WordVectors.of(load_vectors("ours"))
    return dict(zip(found.words, found.vectors, strict=True)), seconds


def joined(lines: Lines, length: int = 1000) -> Lines:
    """Return the same words in pieces of one length, so that contexts reach across lines."""
    words = [word for line in lines for word in line]
    return [words[i : i + length] for i in range(0, len(words), length)]


def theirs(lines: Lines, epochs: int) -> tuple[dict[str, np.ndarray], float]:
    """Return gensim's vectors, and the processor time of training alone."""
    from gensim.models import Word2Vec

    model = Word2Vec(sg=1, min_count=LEAST, seed=1, workers=1)
    model.build_vocab(lines)
    began = time.process_time()
    model.train(lines, total_examples=len(lines), epochs=epochs)
    seconds = time.process_time() - began
    return dict(zip(model.wv.index_to_key, model.wv.vectors, strict=True)), seconds


def caption() -> str:
    """Return the machine, the date and the commit."""
    cpu = next(x for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x)
    root = Path(__file__).parent
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=root, text=True)
    return f"{cpu.split(':')[1].strip()}, one thread, {date.today()}, commit {commit.strip()}"


def main() -> None:
    """Train both on each text, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, nargs="+", help="tokenized and lower-cased")
    parser.add_argument("--epochs", type=int, default=5, help="passes over each text")
    given = parser.parse_args()
    torch.set_num_threads(1)
    reference = larger([read(path) for path in given.texts])
    sys.stdout.write(f"{caption()}\n\n")
    quality = "neighbours", "odd one out", "co-occurrence", "mean cosine"
    line(["text", "million words", "", "time, s", "words per second", *quality])
    line(["---"] * 9)
    with tempfile.TemporaryDirectory() as home:
        os.environ["SEQGEN_HOME"] = home
        for path in given.texts:
            lines = read(path)
            measures, words = Measures(lines, reference), sum(map(len, lines))
            for name, make, text in (
                ("seqgen", ours, path),
                ("gensim, by line", theirs, lines),
                ("gensim, as a stream", theirs, joined(lines)),
            ):
                vectors, seconds = make(text, given.epochs)
                speed = f"{given.epochs * words / seconds:,.0f}"
                figures = [f"{x:.2f}" for x in measures(vectors)]
                line([path.stem, f"{words / 1e6:.2f}", name, f"{seconds:.1f}", speed, *figures])


if __name__ == "__main__":
    main()

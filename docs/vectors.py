"""Compare word2vec with gensim's: speed and quality, the tables of `vectors.md`.

    python docs/vectors.py wiki.train.tokens wiki.valid.tokens --epochs 5

Needs `pip install gensim`. Both train a skip-gram model with negative sampling on the same lines:
100 numbers a word, 5 words on each side, 5 noise words, words that occur 5 times, frequent words
left out alike. Each uses one thread, and they take turns, so that both share the load of the
machine; what counts is the processor time of training, without reading the text and counting its
words. The quality is the held-out loss J of docs/vectors.md with 5 noise words, which is computed
for both by the same code, and how often the nearest word of a word is of its own class.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from running import line

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.training.train import train
from seqgen.commands.vectors.words import WordVectors, load_vectors
from seqgen.data.corpus import encode_corpus
from seqgen.tasks.validations.words import word_loss

CLASSES = [
    "January February March April May June July August September October November December",
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "two three four five six seven eight nine ten",
    "second third fourth fifth sixth seventh eighth tenth",
    "north south east west northeast northwest southeast southwest northern southern eastern "
    "western",
    "red blue green yellow black white brown grey purple",
    "France Germany Italy Spain Japan China India Canada Australia Russia Sweden England",
    "he she him her his",
    "father mother brother sister son daughter wife husband",
]
SHAPE = {"embedding_size": 100, "context_size": 5, "negatives": 5, "subsample": 1e-3}


class Lines:
    """The lines of a file as lists of words, as often as they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[list[str]]:
        with self.path.open(encoding="utf-8") as file:
            yield from (line.split() for line in file)


def ours(data: Path, name: str, **budget: float | str) -> float:
    """Train a model; return the processor time that it took, in seconds."""
    settings = {**SHAPE, "min_count": 5, "tokenizer": "whitespace", "documents": "line", "seed": 1}
    settings |= {"precision": "float32", **budget}
    began = time.process_time()
    train([data], architecture="word2vec", name=name, settings=settings, overwrite=True)
    return time.process_time() - began


def train_ours(data: Path, epochs: float, **settings: float | str) -> float:
    """Return the processor time of training alone: without reading, counting and storing."""
    begun = ours(data, "begun", steps=1, **settings)
    return ours(data, "ours", epochs=epochs, **settings) - begun


def train_theirs(data: Path, epochs: int, loaded: LoadedModel) -> float:
    """Train gensim's model, and put its vectors in the place of the loaded model's.

    Returns:
        The processor time of training alone, in seconds.
    """
    from gensim.models import Word2Vec

    model = Word2Vec(vector_size=100, window=5, negative=5, sample=1e-3, sg=1, min_count=5, seed=1)
    model.workers = 1
    model.build_vocab(Lines(data))
    began = time.process_time()
    model.train(Lines(data), total_examples=model.corpus_count, epochs=epochs)
    seconds = time.process_time() - began
    places = loaded.tokenizer.encode(" ".join(model.wv.index_to_key)).astype(np.int64)
    unknown = np.count_nonzero(places == loaded.tokenizer.unk_id)
    assert unknown <= 1, f"{unknown} words are missing"  # the <unk> of the text itself
    network = loaded.model
    for table, theirs in ((network.embedding, model.wv.vectors), (network.context, model.syn1neg)):
        table.weight.data[torch.from_numpy(places)] = torch.from_numpy(theirs)
    return seconds


def quality(loaded: LoadedModel, held_out: Path) -> tuple[float, float]:
    """Return the held-out loss in nats per token, and the share of neighbours of one class."""
    chunks = [held_out.read_text(encoding="utf-8")]
    corpus = encode_corpus(chunks, loaded.tokenizer, "line")
    vectors, right = WordVectors.of(loaded), []
    for words in map(str.split, CLASSES):
        right += [vectors.neighbours(w, 1)[0].neighbour in words for w in words if w in vectors]
    return word_loss(loaded.model, corpus), float(np.mean(right))


def main() -> None:
    """Train both, one after the other, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a text, tokenized, a sentence or more a line")
    parser.add_argument("held_out", type=Path, help="another of its kind")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the text")
    parser.add_argument("--gensim-epochs", type=int, help="passes of gensim, if not as many")
    parser.add_argument("--batch-size", type=int, help="rows of a step, if not the default")
    parser.add_argument("--optimizer", help="update rule, if not the default")
    parser.add_argument("--lr", type=float, help="learning rate, if not the default")
    parser.add_argument("--rounds", type=int, default=1, help="how often they take turns")
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen = {name: getattr(given, name) for name in ("batch_size", "optimizer", "lr")}
    settings = {name: value for name, value in chosen.items() if value is not None}
    words, theirs = sum(map(len, Lines(given.data))), given.gensim_epochs or given.epochs
    with tempfile.TemporaryDirectory() as home:
        os.environ["SEQGEN_HOME"] = home
        time_spent = "passes", "processor time, s", "words per second"
        line(["", *time_spent, "held-out loss", "neighbours right"])
        line(["---"] * 6)
        for _ in range(given.rounds):
            seconds = {"seqgen": train_ours(given.data, given.epochs, **settings)}
            loaded = load_vectors("ours")
            found = {"seqgen": quality(loaded, given.held_out)}
            seconds["gensim"] = train_theirs(given.data, theirs, loaded)
            found["gensim"] = quality(loaded, given.held_out)
            for (name, (loss, right)), epochs in zip(
                found.items(), (given.epochs, theirs), strict=True
            ):
                speed = epochs * words / seconds[name]
                figures = f"{epochs}", f"{seconds[name]:.1f}", f"{speed:,.0f}"
                line([name, *figures, f"{loss:.3f}", f"{right:.0%}"])


if __name__ == "__main__":
    main()

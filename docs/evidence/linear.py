"""Compare bags of n-grams with scikit-learn's linear classifiers: a table of `experiments.md`.

    python docs/evidence/linear.py surnames.tsv captions.txt

The first file has lines language, tab, surname: names are classified by language. The second has a
caption a line, as Multi30k's English side. Of these, the captions with exactly one of the words
"man" and "woman" are kept; the word is replaced by "person" and is the label. A tenth of each,
drawn at random, is the test. scikit-learn is trained on the rest; seqgen too, holding out a tenth
of it to choose the best weights. The table goes to standard output, every command to standard
error.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from functools import partial
from pathlib import Path

from running import Figures, line, records, run
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from seqgen.metrics.bootstrap import wilson_interval

COMMON = "--val 0.1 --batch-size 32 --precision float32 --threads 1 --seed 1 --quiet"
PERSON = re.compile(r"\b(man|woman)\b", re.IGNORECASE)
# The longest n-grams of each data set, and what they are n-grams of.
LONGEST = {"surnames": (5, "char"), "captions": (2, "word")}
Example = tuple[str, str]


def names_of(path: Path) -> list[Example]:
    """Return the different surnames of a file and their languages."""
    lines = dict.fromkeys(path.read_text(encoding="utf-8").splitlines())
    return [tuple(one.split("\t")[::-1]) for one in lines]


def captions_of(path: Path) -> list[Example]:
    """Return captions with the one word that is their label replaced."""
    kept = []
    for caption in dict.fromkeys(path.read_text(encoding="utf-8").splitlines()):
        found = PERSON.findall(caption)
        if len(found) == 1:
            kept.append((PERSON.sub("person", caption), found[0].lower()))
    return kept


def parts_of(folder: Path, name: str, examples: list[Example]) -> tuple[list[Example], ...]:
    """Divide examples into a test and the rest, and write both."""
    random.Random(1).shuffle(examples)
    parts = examples[: len(examples) // 10], examples[len(examples) // 10 :]
    for part, kept in zip(("test", "train"), parts, strict=True):
        text = "".join(f"{text}\t{label}\n" for text, label in kept)
        (folder / f"{name}-{part}.tsv").write_text(text, encoding="utf-8")
    return parts


def ours(folder: Path, name: str, options: str) -> Figures:
    """Train a classifier of seqgen; return its accuracy on the test, and the seconds it took."""
    given = f"train {name}-train.tsv --task classify {options} --epochs 5 {COMMON}"
    _, seconds = run(folder, f"{given} --name m --overwrite")
    found = records(run(folder, f"eval {name}-test.tsv -m m --quiet --json")[0])[0]
    return {**found["accuracy"], "seconds": seconds}


def theirs(test: list[Example], train: list[Example], analyzer: str, longest: int) -> Figures:
    """Return the same of TF-IDF and logistic regression."""
    begin = time.process_time()
    vectors = TfidfVectorizer(analyzer=analyzer, ngram_range=(1, longest), sublinear_tf=True)
    model = make_pipeline(vectors, LogisticRegression(C=10, max_iter=1000))
    model.fit(*map(list, zip(*train, strict=True)))
    seconds = time.process_time() - begin
    texts, labels = zip(*test, strict=True)
    hits = int((model.predict(list(texts)) == list(labels)).sum())
    low, high = wilson_interval(hits, len(test))
    return {"value": hits / len(test), "low": low, "high": high, "seconds": seconds}


def main() -> None:
    """Print a row for each data set and classifier."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("surnames", type=Path, help="a file of lines language, tab, surname")
    parser.add_argument("captions", type=Path, help="a file of captions")
    parser.add_argument("--folder", type=Path, default=Path("linear"), help="for files and models")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    line(["data", "training texts", "classifier", "accuracy", "processor seconds"])
    line(["---"] * 5)
    data = {"surnames": names_of(given.surnames), "captions": captions_of(given.captions)}
    for name, examples in data.items():
        test, train = parts_of(folder, name, examples)
        most, analyzer = LONGEST[name]
        trained, fitted = partial(ours, folder, name), partial(theirs, test, train, analyzer)
        rows = {
            "bag": partial(trained, "--model bag"),
            f"bag, ngrams={most}": partial(trained, f"--model bag --set ngrams={most}"),
            "birnn": partial(trained, "--model birnn --hidden-size 128 --layers 1"),
            "scikit-learn, 1-grams": partial(fitted, 1),
            f"scikit-learn, 1- to {most}-grams": partial(fitted, most),
        }
        if analyzer == "char":
            within = f"--model bag --set ngrams={most} --set within_words=true"
            rows[f"bag, ngrams={most}, within_words"] = partial(trained, within)
        for row, measure in rows.items():
            found = measure()
            value, low, high = (100 * found[key] for key in ("value", "low", "high"))
            shown = f"{value:.1f} [{low:.1f}, {high:.1f}]"
            line([name, f"{len(train):,}", row, shown, f"{found['seconds']:.1f}"])


if __name__ == "__main__":
    main()

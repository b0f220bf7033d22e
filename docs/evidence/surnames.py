"""Recognize the language of surnames, from few examples and from many: a table of `experiments.md`.

    python docs/evidence/surnames.py surnames.tsv

Each line of the file is language, tab, surname. Names that occur twice in a language count once. A
tenth of the names, drawn at random, is the test; the same for all. From the rest, 50 names of each
language, 500 or all are the training data: of a language that has fewer, all. A tenth of the
training data is held out for choosing the best weights. Rows that start from a pre-trained model
start from one that has read all names of the training part, without their languages.

Every run of a size has the same number of steps of 32 names. Finished cells are kept in --folder
and not made again; --models makes some rows alone. The table goes to standard output, every command
to standard error.
"""

from __future__ import annotations

import argparse
import random
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from running import Figures, kept, line, records, run

from seqgen import registry

SIZES = {"50": (50, 400), "500": (500, 1000), "all": (10**9, 2000)}  # names, steps
COMMON = "--val 0.1 --batch-size 32 --precision float32 --threads 1 --seed 1 --quiet"
NETWORK = "--hidden-size 128 --layers 1"
# What each row's classifier is trained by; {origin} is a model that has read the names alone.
ROWS = {
    "bag": "--model bag",
    "rnn": f"--model rnn {NETWORK}",
    "lstm": f"--model lstm {NETWORK}",
    "birnn": f"--model birnn {NETWORK}",
    "lstm, pre-trained": "--init-from {origin}",
    "bert, pre-trained": "--init-from {origin} --lr 5e-4",
}
# How the models that read names alone are trained.
ORIGINS = {
    "lstm, pre-trained": f"--model lstm {NETWORK} --dropout 0.2",
    "bert, pre-trained": "--preset bert-tiny",
}
ORIGIN = "--tokenizer char --documents line --epochs 3"


def split(data: Path, folder: Path) -> None:
    """Write the test, the training data of each size, and the names of the training part."""
    lines = data.read_text(encoding="utf-8").splitlines()
    names = [tuple(line.split("\t")[::-1]) for line in dict.fromkeys(lines)]
    draw = random.Random(1)
    draw.shuffle(names)
    test, rest = names[: len(names) // 10], names[len(names) // 10 :]
    parts = {"test": test}
    for size, (most, _) in SIZES.items():
        seen: dict[str, int] = {}
        parts[size] = []
        for name, language in rest:
            seen[language] = seen.get(language, 0) + 1
            if seen[language] <= most:
                parts[size].append((name, language))
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        text = "".join(f"{name}\t{language}\n" for name, language in pairs)
        (folder / f"{part}.tsv").write_text(text, encoding="utf-8")
    text = "".join(f"{name}\n" for name, _ in rest)
    (folder / "names.txt").write_text(text, encoding="utf-8")


def pretrained(folder: Path, row: str) -> str:
    """Return the name of the model that a row starts from; train it if it is not there."""
    name = f"origin-{row.split(',')[0]}"

    def train() -> Figures:
        options = f"{ORIGINS[row]} {ORIGIN} {COMMON}"
        return {"seconds": run(folder, f"train names.txt {options} --name {name} --overwrite")[1]}

    kept(folder / f"{name}.json", train)
    return name


def cell(folder: Path, row: str, size: str) -> Figures:
    """Train the classifier of a row on the data of a size; return its figures on the test."""
    origin = pretrained(folder, row) if row in ORIGINS else ""
    name = f"{row.replace(', ', '-')}-{size}"
    options = f"{ROWS[row].format(origin=origin)} --steps {SIZES[size][1]} {COMMON}"
    command = f"train {size}.tsv --task classify {options} --name {name} --overwrite"
    _, seconds = run(folder, command)
    found = records(run(folder, f"eval test.tsv -m {name} --threads 1 --quiet --json")[0])[0]
    return {"accuracy": found["accuracy"], "macro_f1": found["macro_f1"], "seconds": seconds}


def shown(figure: dict[str, float]) -> str:
    """Return a share with its interval, in percent."""
    value, low, high = (100 * figure[key] for key in ("value", "low", "high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


def main() -> None:
    """Make the cells that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a file of lines language, tab, surname")
    parser.add_argument("--folder", type=Path, default=Path("surnames"), help="keeps finished rows")
    parser.add_argument("--models", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    given = parser.parse_args()
    folder = given.folder.resolve()
    split(given.data, folder)
    heads = [f"{size}: {what}" for size in SIZES for what in ("accuracy", "macro-F1")]
    line(["model", *heads])
    line(["---"] * (len(heads) + 1))
    for row in given.models:
        if row.startswith("bert") and "bert" not in registry.ARCHITECTURES:
            continue
        made = [
            kept(folder / f"{row}-{size}.json", partial(cell, folder, row, size)) for size in SIZES
        ]
        figures = [found[key] for found in made for key in ("accuracy", "macro_f1")]
        line([row, *map(shown, figures)])


if __name__ == "__main__":
    main()

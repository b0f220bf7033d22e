"""Compare all training regimes in equal processor time: the tables of `regimes.md`.

    python docs/evidence/regimes.py tinyshakespeare.txt --seconds 180
    python docs/evidence/regimes.py corpora/dates.tsv --seconds 90

The file's last tenth is held out. Each regime trains for as many steps as take the given processor
time on one thread, which short runs measure first; programs that run beside it change this little.
The last weights are scored. `minimum-risk` and `decoding` start from the model of teacher forcing
at a low rate, so it is trained on as well, for a fair comparison. Finished rows are kept in
--folder and not made again. The table goes to standard output, every command to standard error.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from running import Figures, kept, line, records, run

from seqgen.metrics.diversity import diversity
from seqgen.settings.regimes import REGIMES

TEXT = "--model lstm --hidden-size 256 --layers 1 --batch-size 32 --seq-len 64"
PAIRS = "--model seq2seq --hidden-size 128 --layers 1 --batch-size 64"
COMMON = "--val none --dropout 0 --precision float32 --threads 1 --seed 1 --quiet"
LATER = "--init-from teacher-forcing --lr 2e-4"
# Minimum risk and decoding need a trained model; the first row is what they are compared with.
CONTINUED = "teacher-forcing, continued"
ROWS = [
    *(regime for regime in REGIMES if regime not in ("minimum-risk", "decoding")),
    CONTINUED,
    "minimum-risk",
    "decoding",
]
SAMPLES, LENGTH = 20, 500
# Heading and format of each column, by the key in a row's file.
TEXT_COLUMNS = {
    "steps": ("steps", "{:,}"),
    "bits": ("held-out bits/char", "{:.3f}"),
    "judge_bits": ("6-gram's bits/char", "{:.3f}"),
    "distinct_1": ("distinct-1", "{:.3f}"),
    "distinct_2": ("distinct-2", "{:.3f}"),
    "repetition": ("repetition", "{:.1%}"),
    "greedy_repetition": ("repetition, greedy", "{:.1%}"),
}
PAIR_COLUMNS = {
    "steps": ("steps", "{:,}"),
    "nats": ("held-out nats/token", "{:.3f}"),
    "bleu": ("BLEU", "{:.1f}"),
    "chrf": ("chrF", "{:.1f}"),
    "exact": ("exact match", "{:.1%}"),
}


class Place(NamedTuple):
    """What is trained on: both parts of the file, in the folder of the rows and of the models."""

    folder: Path
    train: Path
    held_out: Path
    recipe: str

    @property
    def pairs(self) -> bool:
        """Whether the file has pairs of texts."""
        return self.train.suffix == ".tsv"


def split(data: Path, folder: Path, options: str) -> Place:
    """Write the first nine tenths of the lines and the rest into two files."""
    lines = data.read_text(encoding="utf-8").splitlines(keepends=True)
    cut = len(lines) * 9 // 10
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{part}{data.suffix}" for part in ("train", "held-out")]
    for path, part in zip(paths, (lines[:cut], lines[cut:]), strict=True):
        path.write_text("".join(part), encoding="utf-8")
    recipe = f"{PAIRS if data.suffix == '.tsv' else TEXT} {options}"
    return Place(folder, *paths, recipe)


def steps_that_fill(place: Place, command: str, seconds: float) -> Figures:
    """Return how many steps of a command take so much processor time.

    Whole runs are timed, with their start subtracted: in some regimes late steps take longest.
    """

    def used(steps: int) -> float:
        return run(place.folder, f"{command} --steps {steps} --name trial --overwrite")[1]

    begin, steps = used(1), 16
    taken = max(used(steps) - begin, 0.1)
    if taken < seconds / 20:
        steps = math.ceil(steps * seconds / 20 / taken)
        taken = used(steps) - begin
    return {"steps": max(1, round(steps * seconds / taken))}


def train(place: Place, row: str, seconds: float) -> Figures:
    """Train the model of a row for so much processor time, or go on where that was stopped.

    Returns:
        The number of steps.
    """
    start = LATER if row in (CONTINUED, "minimum-risk", "decoding") else place.recipe
    regime = "teacher-forcing" if row == CONTINUED else row
    command = f"train {place.train.name} {start} --regime {regime} {COMMON}"
    name = model_of(row)
    known = place.folder / f"{name}.steps.json"
    steps = kept(known, lambda: steps_that_fill(place, command, seconds))
    if (place.folder / "home" / "models" / name).exists():
        run(place.folder, f"train --resume {name} --quiet")
    else:
        run(place.folder, f"{command} --steps {steps['steps']} --name {name}")
    return steps


def model_of(row: str) -> str:
    """Return the name of the model of a row."""
    return row.replace(", ", "-").replace(" ", "-")


def scores_of_pairs(place: Place, name: str) -> Figures:
    """Translate the held-out sources by 5 beams, and score the translations."""
    options = f"-m {name} --threads 1 --quiet --json"
    scores = "--perplexity --bleu --metric bleu --metric chrf"
    record = records(run(place.folder, f"eval {place.held_out.name} {options} {scores}")[0])[0]
    found = {metric["metric"]: metric["score"] for metric in record["translations"]["metrics"]}
    return {
        "nats": record["perplexity"]["nats_per_token"],
        "bleu": found["BLEU"],
        "chrf": found["chrF2"],
        "exact": record["translations"]["exact_match"],
    }


def scores_of_text(place: Place, name: str) -> Figures:
    """Score the held-out text, and what the model writes at temperature 1 and greedily."""
    options = f"-m {name} --threads 1 --quiet --json"
    held_out = records(run(place.folder, f"perplexity {place.held_out.name} {options}")[0])[0]
    sample = f"sample {options} --max-tokens {LENGTH} --seed 1"
    drawn, _ = run(place.folder, f"{sample} --num-samples {SAMPLES}")
    prompts = "".join(passage[:100].replace("\n", " ") + "\n" for passage in passages(place))
    greedy, _ = run(place.folder, f"{sample} --greedy", prompts)
    return {
        "bits": held_out["bits_per_char"],
        **scores_of_texts(place, [record["text"] for record in records(drawn)]),
        "greedy_repetition": diversity([record["text"] for record in records(greedy)]).repetition,
    }


def scores_of_texts(place: Place, texts: list[str]) -> Figures:
    """Return how probable a 6-gram finds the texts, and how varied they are."""
    for number, text in enumerate(texts):
        (place.folder / f"sample-{number}.txt").write_text(text, encoding="utf-8")
    files = " ".join(f"sample-{number}.txt" for number in range(len(texts)))
    judged = records(run(place.folder, f"perplexity {files} -m six-gram --quiet --json")[0])[
        : len(texts)
    ]
    characters = sum(record["characters"] for record in judged)
    varied = diversity(texts)
    return {
        "judge_bits": sum(r["bits_per_char"] * r["characters"] for r in judged) / characters,
        "distinct_1": varied.distinct_1,
        "distinct_2": varied.distinct_2,
        "repetition": varied.repetition,
    }


def passages(place: Place) -> list[str]:
    """Return passages of the held-out text, evenly spread."""
    text = place.held_out.read_text(encoding="utf-8")
    apart = len(text) // SAMPLES
    return [text[n * apart : n * apart + LENGTH] for n in range(SAMPLES)]


def row_of(place: Place, row: str, seconds: float) -> Figures:
    """Train and score the model of a row; a trained model is kept, too."""
    name = model_of(row)
    trained = kept(place.folder / f"{name}.trained.json", lambda: train(place, row, seconds))
    return trained | (scores_of_pairs if place.pairs else scores_of_text)(place, name)


def figures_of_real_text(place: Place) -> Figures:
    """Train the 6-gram that judges written texts, and score the real text by it."""
    run(
        place.folder,
        f"train {place.train.name} --model ngram --order 6 --val none --name six-gram --quiet",
    )
    return scores_of_texts(place, passages(place))


def main() -> None:
    """Make the rows that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a text, or pairs (.tsv)")
    parser.add_argument("--seconds", type=float, default=180, help="processor time of each regime")
    parser.add_argument("--folder", type=Path, default=Path("regimes"), help="keeps finished rows")
    parser.add_argument("--options", default="", help="more options of seqgen train")
    given = parser.parse_args()
    place = split(given.data, given.folder.resolve(), given.options)
    columns = PAIR_COLUMNS if place.pairs else TEXT_COLUMNS
    line(["regime", *(heading for heading, _ in columns.values())])
    line(["---"] * (len(columns) + 1))
    rows = {row: partial(row_of, place, row, given.seconds) for row in ROWS}
    if not place.pairs:
        rows = {"real text": partial(figures_of_real_text, place)} | rows
    for row, make in rows.items():
        found = kept(place.folder / f"{model_of(row)}.json", make)
        cells = (
            form.format(found[key]) if key in found else "" for key, (_, form) in columns.items()
        )
        line([row, *cells])


if __name__ == "__main__":
    main()

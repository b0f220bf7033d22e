"""Show how far gradients reach, at initialisation and after training: a table of `experiments.md`.

    python docs/evidence/gradients.py tinyshakespeare.txt --plot docs/evidence/gradients.svg

Trains small networks over characters, each for one step at a rate of almost zero and for --steps
steps, and runs `seqgen diagnose --plot` on both. Pictures, models and finished rows are kept in
--folder. The table goes to standard output, every command to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from seqgen.cli import run
from seqgen.cli.shell.pictures import save_picture

SIZE = "--layers 1 --hidden-size 64 --seq-len 128 --batch-size 16 --set dropout=0"
COMMON = "--seed 1 --precision float32 --val 0.01 --quiet"
ADAM = "--optimizer adam --lr 2e-3"
LARGE = "--model rnn --set recurrent_gain=3"
SGD = f"{LARGE} --optimizer sgd --lr 0.5"
NETWORKS = {
    "tanh, small W_h (gain 0.5)": f"--model rnn --set recurrent_gain=0.5 {ADAM}",
    "tanh, large W_h (gain 3)": f"{LARGE} {ADAM}",
    "ReLU, W_h begins as the identity": f"--model rnn --set activation=relu {ADAM}",
    "LSTM": f"--model lstm {ADAM}",
    "GRU": f"--model gru {ADAM}",
    "transformer": f"--model transformer --heads 4 {ADAM}",
}
# These begin as the second network does.
CLIPPED = {
    "tanh, gain 3, SGD, clipped at 1": f"{SGD} --clip-norm 1",
    "tanh, gain 3, SGD, not clipped": f"{SGD} --clip-norm 0",
}
AT = (1, 10, 50, 100)
Records = list[dict[str, Any]]


def records(command: str, may_fail: bool = False) -> Records:
    """Run a seqgen command that writes JSON Lines, and read them.

    Raises:
        SystemExit: it failed, unless it may.
    """
    sys.stderr.write(f"seqgen {command}\n")
    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(written):
        code = run([*shlex.split(command), "--json", "--threads", "1"])
    written.flush()
    if code != 0 and not may_fail:
        raise SystemExit(f"seqgen {command} ended with exit code {code}")
    return [json.loads(line) for line in written.buffer.getvalue().decode().splitlines()]


def diagnosed(data: Path, folder: Path, name: str, options: str) -> dict[str, Any]:
    """Train a model and diagnose it, unless that is done.

    Returns:
        What `diagnose` found by distance, and the held-out loss; nothing of a run that diverged.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        train = f"train {data} --name {name} --overwrite {COMMON} {SIZE} {options}"
        trained = records(train, may_fail=True)
        row: dict[str, Any] = {"distances": [], "val_loss": None}
        if trained:
            look = f"diagnose {data} -m {name} --distance 100 --plot {folder / name}.svg"
            found = [record for record in records(look) if "distance" in record]
            row = {"distances": found, "val_loss": trained[-1]["val_loss"]}
        path.with_suffix(".new").write_text(json.dumps(row), encoding="utf-8")
        path.with_suffix(".new").rename(path)
    return json.loads(path.read_text(encoding="utf-8"))


def put_row(network: str, stage: str, row: dict[str, Any]) -> None:
    """Write a row of the table: the loss, and norm and bound at some distances."""
    at = {record["distance"]: record for record in row["distances"]}
    loss = "diverges" if row["val_loss"] is None else f"{row['val_loss']:.2f}"
    cells = [network, stage, loss if stage == "trained" else ""]
    for key in ("grad_norm", "bound"):
        figures = [at[distance][key] if at else None for distance in AT]
        cells += ["" if figure is None else f"{figure:.2g}" for figure in figures]
    sys.stdout.write("| " + " | ".join(cells) + " |\n")
    sys.stdout.flush()


def draw(plot: Path, found: dict[str, list[Records]]) -> None:
    """Draw the gradient by distance before training and after it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for number, (axes, title) in enumerate(
        zip(panels, ("at initialisation", "after training"), strict=True)
    ):
        for name in NETWORKS:
            points = found[name][number]
            axes.plot(
                [record["distance"] for record in points],
                [record["grad_norm"] for record in points],
                label=name,
            )
        axes.set_yscale("log", nonpositive="mask")
        axes.set_ylim(1e-12, 1e9)
        axes.set_title(title)
        axes.set_xlabel("distance in tokens")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("norm of the gradient")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    save_picture(plot, figure)


def main() -> None:
    """Make what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="a text")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=Path("gradients"), help="keeps the rows")
    parser.add_argument("--plot", type=Path, help="one picture of all networks, .svg or .png")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["SEQGEN_HOME"] = str(folder / "home")
    begins, trains = "--steps 1 --lr 1e-9", f"--steps {given.steps}"
    found: dict[str, list[Records]] = {}
    for network, options in (NETWORKS | CLIPPED).items():
        stages = {"trained": trains}
        if network in NETWORKS:
            stages = {"at initialisation": begins} | stages
        for stage, budget in stages.items():
            name = "-".join(re.findall(r"[\w.]+", f"{network} {stage.split()[-1]}"))
            row = diagnosed(given.data.resolve(), folder, name, f"{options} {budget}")
            found.setdefault(network, []).append(row["distances"])
            put_row(network, stage, row)
    if given.plot:
        draw(given.plot, found)


if __name__ == "__main__":
    main()

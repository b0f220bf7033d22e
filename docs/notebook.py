"""Execute the notebook of the docs and write it with its outputs to `tutorials/notebook.ipynb`.

    python docs/notebook.py
    python docs/notebook.py --out FILE.ipynb

Needs nbclient, ipykernel and matplotlib. The models are trained in a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import nbclient
import nbformat

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
NOTEBOOK = DOCS / "tutorials" / "notebook.ipynb"

# Text cells, and code cells that begin with a line ">>>".
CELLS = [
    """# seqgen in a notebook

Train a language model on a play, sample from it, compare it with another model, and plot. The
notebook takes two minutes on two CPU cores. The text is `corpora/play.txt` of the seqgen
repository; any text file of your own will do.""",
    """>>>
import seqgen

result = seqgen.train("play.txt", name="play", minutes=0.6, seed=1)
result""",
    """`seqgen.train` shows one line of progress. By default it trains an LSTM and adds an n-gram
model where that helps. The table is the result; its rows are attributes, such as `result.val_loss`.

## Sample""",
    """>>>
model = seqgen.load("play")
model""",
    r""">>>
for piece in model.stream("Elsaby:\n", max_tokens=300, top_p=0.9, seed=3):
    print(piece, end="")""",
    """>>>
next(model.beam_search("The miller", beams=5, max_tokens=40))""",
    """## Compare

Both models are scored on the text that they hold out, in bits per byte. `low` and `high` are the
95 % interval.""",
    """>>>
seqgen.train("play.txt", name="counts", architecture="ngram", order=5)
compared = seqgen.compare(["play", "counts"])
compared""",
    """## Plot""",
    """>>>
import json
from pathlib import Path

import matplotlib.pyplot as plt

lines = (Path(result.path) / "metrics.jsonl").read_text().splitlines()
logged = [json.loads(line) for line in lines]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for name in ("train_loss", "val_loss"):
    points = [(one["step"], one[name]) for one in logged if name in one]
    left.plot(*zip(*points), label=name)
left.set(xlabel="step", ylabel="nats/token", title="the network while it learned")
left.legend()
right.bar([one.model for one in compared], [one.bits_per_byte for one in compared])
right.set(ylabel="bits/byte", title="held-out text")
figure.tight_layout()""",
]


def notebook() -> nbformat.NotebookNode:
    """Build the notebook without outputs."""
    made = nbformat.v4.new_notebook()
    for number, text in enumerate(CELLS):
        is_code = text.startswith(">>>\n")
        make = nbformat.v4.new_code_cell if is_code else nbformat.v4.new_markdown_cell
        made.cells.append(make(text.removeprefix(">>>\n"), id=f"cell-{number}"))
    return made


def execute(made: nbformat.NotebookNode) -> None:
    """Execute a notebook in a temporary folder, with the text and models of its own.

    Raises:
        CellExecutionError: a cell raised an exception.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "corpora" / "play.txt", folder)
        environment = {**os.environ, "SEQGEN_HOME": "seqgen", "PYTHONPATH": str(ROOT)}
        client = nbclient.NotebookClient(
            made,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=environment)


def main() -> None:
    """Write the notebook."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=NOTEBOOK, help="the file to write")
    out = parser.parse_args().out
    made = notebook()
    execute(made)
    made.metadata.pop("language_info", None)
    out.write_text(nbformat.writes(made) + "\n")


if __name__ == "__main__":
    main()

"""Measure what a longer text is worth: the table "Text by size" of the experiments.

    python docs/evidence/text_sizes.py tinyshakespeare.txt

The last 100,000 characters are held out. Of the rest, the first 10,000 to 1,000,000 train a 6-gram
model, a small LSTM for 600 steps, and the mixture of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = 10_000, 30_000, 100_000, 300_000, 1_000_000
HELD_OUT = 100_000
SMALL = ("--layers", "1", "--hidden-size", "128", "--precision", "float32", "--threads", "1")


def run(home: str, *arguments: str) -> list[dict]:
    """Run a command of seqgen in a home and return its records."""
    line = [sys.executable, "-m", "seqgen", *arguments, "--json", "-q"]
    environment = {**os.environ, "SEQGEN_HOME": home, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(record) for record in done.stdout.splitlines()]


def main(text: str) -> None:
    """Print a row of the table for each size."""
    whole = Path(text).read_text(encoding="utf-8")
    sys.stdout.write("| characters | 6-gram | lstm 1 x 128 | mixture |\n|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as home:
        held_out = Path(home) / "held-out.txt"
        held_out.write_text(whole[-HELD_OUT:], encoding="utf-8")
        for size in SIZES:
            part = Path(home) / f"{size}.txt"
            part.write_text(whole[:size], encoding="utf-8")
            data = ("train", str(part), "--val", str(held_out), "--seed", "1")
            steps = ("--steps", "600", "--with-ngram", "6", "--name", f"n{size}")
            run(home, *data, "--model", "lstm", *SMALL, *steps)
            run(home, *data, "--model", "ngram", "--order", "6", "--name", f"g{size}")
            bits = []
            for name in (f"g{size}", f"n{size}", f"n{size}-mixture"):
                scored = run(home, "perplexity", str(held_out), "-m", name)
                bits.append(f"{scored[0]['bits_per_char']:.3f}")
            sys.stdout.write(f"| {size:,} | {' | '.join(bits)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])

"""Compare the default learning rate with the one that `seqgen find-lr` suggests, on several texts.

    python docs/evidence/learning_rates.py DATA_FOLDER --out rates.jsonl

DATA_FOLDER has `tinyshakespeare.txt`, `names.txt`, `multi30k/train.en` and `ptb/ptb.train.txt`.
Each text trains a small LSTM and a small transformer for a fixed number of steps on one thread,
once by each rate and seed. A record a run is appended to the file; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "lstm": ["--layers", "1", "--hidden-size", "128"],
    "transformer": ["--layers", "2", "--hidden-size", "128", "--heads", "4", "--seq-len", "64"],
}


def texts(folder: Path) -> dict[str, list[str]]:
    """Return the DATA arguments of each text."""
    return {
        "play": [str(ROOT / "corpora" / "play.txt")],
        "Shakespeare": [str(folder / "tinyshakespeare.txt")],
        "names": [str(folder / "names.txt"), "--documents", "line"],
        "Multi30k English": [str(folder / "multi30k" / "train.en")],
        "PTB": [str(folder / "ptb" / "ptb.train.txt")],
    }


def run(command: str, arguments: list[str], home: str) -> list[dict]:
    """Run a command of seqgen and return its records."""
    line = [sys.executable, "-m", "seqgen", command, *arguments, "--json", "-q"]
    line += ["--precision", "float32", "--threads", "1"]
    environment = {**os.environ, "SEQGEN_HOME": home, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return [{"failed": done.stderr.strip().splitlines()[-1]}]
    return [json.loads(record) for record in done.stdout.splitlines()]


def main() -> None:
    """Run what is missing in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--texts", nargs="+")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    arguments = parser.parse_args()
    known = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    records = {tuple(record["key"]): record for record in map(json.loads, known)}

    def once(key: tuple, command: str, line: list[str], home: str) -> dict:
        if key not in records:
            made = run(command, line, home)
            records[key] = {"key": key, **made[-1]}
            if command == "find-lr":
                records[key]["points"] = [(p["lr"], p["loss"], p["smoothed"]) for p in made[:-1]]
            with arguments.out.open("a") as file:
                file.write(json.dumps(records[key]) + "\n")
            sys.stderr.write(f"{key} {made[-1]}\n")
        return records[key]

    steps = ["--steps", str(arguments.steps)]
    with tempfile.TemporaryDirectory() as home:
        for seed in map(str, arguments.seeds):
            for name, data in texts(arguments.folder).items():
                if arguments.texts and name not in arguments.texts:
                    continue
                for model in arguments.models:
                    line = [*data, "--model", model, *MODELS[model], *steps]
                    found = once((name, model, "find"), "find-lr", [*line, "--seed", "1"], home)
                    rates = {"default": [], "suggested": ["--lr", str(found["suggested_lr"])]}
                    for rate, flags in rates.items():
                        key = (name, model, rate, arguments.steps, seed)
                        flags += ["--seed", seed, "--name", f"m-{model}-{rate}-{seed}"]
                        once(key, "train", [*line, *flags, "--overwrite"], home)


if __name__ == "__main__":
    main()

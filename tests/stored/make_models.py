"""Make the stored models of this folder, and write down what they say.

They are from version 0.1.0, as it was before the second stage, and are not made again:
`test_stored_models.py` holds every later version to what they said then. This script stays as the
record of how they were made; a model of a later version gets a folder of its own beside them.

    python tests/stored/make_models.py OUT
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from stored_answers import LINES, PLACE, RUN, WIDTH, given, records, resumed, seqgen

TEXT, TOKENS = "tiny.txt", "tiny.tok"
FORM_OF_2017 = (
    "positions=sinusoidal norm=layernorm norm_position=post activation=relu qk_norm=false bias=true"
)
FORM_OF_GPT2 = (
    "positions=learned norm=layernorm activation=gelu qk_norm=false bias=true tie_weights=true"
)


# By name: the flags of `seqgen train` besides those that all have.
MODELS: dict[str, list[str]] = {
    "ngram-char": ["--model", "ngram", "--order", "3"],
    "ngram-kn": ["--model", "ngram", "--order", "3", "--smoothing", "kneser-ney"],
    "ngram-whitespace": ["--model", "ngram", "--order", "3", "--tokenizer", "whitespace", *LINES],
    "ngram-backoff": ["--model", "ngram", "--order", "3", "--smoothing", "stupid-backoff"],
    "window-char": ["--model", "window", "--hidden-size", "8", "--seq-len", "12"],
    "rnn-char": ["--model", "rnn", *WIDTH],
    "rnn-relu-byte": ["--model", "rnn", *WIDTH, "--tokenizer", "byte", *given("activation=relu")],
    "gru-char": ["--model", "gru", *WIDTH, *given("input=onehot")],
    "gru-before-word": [
        *("--model", "gru", "--tokenizer", "word", "--vocab-size", "20"),
        *WIDTH,
        *given("reset=before"),
    ],
    "lstm-char": ["--model", "lstm", *WIDTH],
    "lstm-lines-bpe": [
        *("--model", "lstm", "--tokenizer", "bpe", "--vocab-size", "280"),
        *WIDTH,
        *LINES,
    ],
    "lstm-unigram": [
        *("--model", "lstm", "--tokenizer", "unigram", "--vocab-size", "280"),
        *WIDTH,
    ],
    "lstm-two-layers": [
        *("--model", "lstm", *WIDTH, "--layers", "2", "--optimizer", "adam"),
        *given("residual=true tie_weights=true ema=0.9"),
    ],
    "transformer-char": ["--model", "transformer", *WIDTH, "--heads", "2"],
    "transformer-2017": ["--model", "transformer", *WIDTH, "--heads", "2", *given(FORM_OF_2017)],
    "transformer-gpt2": [
        *("--model", "transformer", *WIDTH, "--heads", "2", "--optimizer", "adamw"),
        *given(FORM_OF_GPT2),
        *LINES,
    ],
    "lstm-float32": ["--model", "lstm", *WIDTH, "--precision", "float32"],
}


def text() -> str:
    """Return a few hundred words over a small alphabet, in lines."""
    draw = random.Random(1)
    words = ["tea", "ten", "net", "eat", "neat", "at", "an", "ant", "tan", "state", "seat", "sea"]
    words += ["set", "sat", "as", "stand", "sand", "and"]
    lines = [" ".join(draw.choices(words, k=draw.randint(2, 7))) for _ in range(60)]
    return "\n".join(lines) + "\n"


def said_by(model: Path, data: Path) -> dict:
    """Return what a stored model writes, finds and scores; all of it must stay so.

    Args:
        model: its folder.
        data: a text.
    """
    at = ["-m", str(model)]
    exact = ["--precision", "float64"]
    samples = records(
        "sample", *at, *exact, "--seed", "3", "--num-samples", "2", "--max-tokens", "24"
    )
    beams = records(
        "beam-search", *at, *exact, "--beams", "3", "--nbest", "2", "--max-tokens", "10"
    )
    scores = records("perplexity", *at, *exact, str(data)) + records("perplexity", *at, *exact)
    keys = {
        "sample": (samples, ("text", "tokens", "logprob", "finish_reason")),
        "beam-search": (beams, ("text", "tokens", "logprob", "score", "finish_reason")),
        "perplexity": (scores, ("tokens", "characters", "bytes", "nll_nats", "oov", "protocol")),
    }
    return {
        command: [{key: record[key] for key in wanted} for record in found]
        for command, (found, wanted) in keys.items()
    }


def main(out: Path) -> None:
    """Make everything, in a fixed place, and leave it in `out`."""
    torch.set_num_threads(1)
    platform.platform = lambda *a, **k: "Linux"
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    os.environ["SEQGEN_HOME"] = str(PLACE / "home")
    os.chdir(PLACE)
    data = PLACE / TEXT
    data.write_text(text(), encoding="utf-8")
    models, expected = PLACE / "home" / "models", {}
    for name, flags in MODELS.items():
        counted = name.startswith("ngram")
        exact = [] if counted or "--precision" in flags else ["--precision", "float64"]
        seqgen("train", str(data), "--name", name, *flags, *exact, *([] if counted else RUN))
        (models / name / "lock").unlink(missing_ok=True)
        expected[name] = said_by(models / name, data)
        if not counted:
            copy = PLACE / "going-on" / name
            shutil.copytree(models / name, copy)
            expected[name]["resumed"] = resumed(copy, "--data", str(data))
    seqgen("tokenize", str(data), "-m", str(models / "lstm-char"), "--out", str(PLACE / TOKENS))
    out.mkdir(parents=True, exist_ok=True)
    shutil.copytree(models, out / "models")
    for part in (TEXT, TOKENS):
        shutil.copy(PLACE / part, out)
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

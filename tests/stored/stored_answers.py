"""What the scripts share that make the stored models, and the tests that ask them.

How exact an answer is follows from how it is computed, not from the machine that computed it:
another machine, or another version of a library, sums in another order, with other lengths of
vectors and with or without fused multiplications. With u = 2^-53 in float64 and 2^-24 in float32, a
sum of n terms is off by at most n u times the sum of their magnitudes.
"""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Where they are made stands in their records; resuming them needs --data.
PLACE = Path("/tmp/seqgen-tiny")
WIDTH = ["--hidden-size", "8", "--layers", "1", "--seq-len", "12", "--batch-size", "4"]
RUN = ["--steps", "8", "--stop-after", "4", "--checkpoint-every", "2", "--seed", "1"]
LINES = ["--documents", "line"]

# Computed in float64 as a whole (`--precision float64`): a token's log-probability comes from at
# most some 10^4 products and sums of magnitudes below 100: 10^4 x 100 x 2^-53 is 10^-10. A state
# carried over a text forgets errors, or it would forget nothing else.
FLOAT64 = 1e-9
# Read from an n-gram model's tables, whose logarithms are float32: one is off by as much as the
# last place of another library's `log`, 2^-23, and a token adds up to three of them.
TABLES = 4 * 2**-23
# Computed in float32, as predictions, vectors and the final validation of every run are: sums of
# at most 100 terms, in at most ten layers that follow one another: 10 x 100 x 2^-24 is 6 x 10^-5
# if all errors had one sign, and its square root's worth as they have not.
FLOAT32 = 1e-5
# Weights after four steps in float64. A step is off by lr x 77 x 10^-15 (Muon's polynomials raise
# a small singular value 77 times) or by lr x 10^-17 / 10^-8 where a gradient is zero but for
# rounding and Adam divides it by little more than its eps: with lr <= 0.3, both are below 10^-9.
WEIGHTS = 1e-9
# The same after steps in float32, of which a gradient has 4 to 5 digits.
WEIGHTS_OF_FLOAT32 = 1e-3


def given(settings: str) -> list[str]:
    """Return `--set` flags."""
    return [flag for setting in settings.split() for flag in ("--set", setting)]


def seqgen(*arguments: str) -> str:
    """Run one command and return its standard output.

    Raises:
        RuntimeError: it failed; with its standard error.
    """
    from seqgen.cli import run

    said = io.StringIO()
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = run(list(arguments))
    if code:
        raise RuntimeError(f"seqgen {' '.join(arguments)}: {code}: {said.getvalue()}")
    return out.buffer.getvalue().decode()


def records(*arguments: str) -> list[dict]:
    """Run one command with `--json` and return its records."""
    return [json.loads(line) for line in seqgen(*arguments, "--json").splitlines()]


def resumed(model: Path, *data: str) -> dict:
    """Resume a stored model to its end; return its last figures, and those of its weights."""
    (record,) = records("train", "--resume", str(model), *data, "--quiet")
    # Not the training loss: which steps the last one is of is a matter of the clock.
    kept = ("steps", "tokens", "val_loss", "stopped")
    return {**{key: record[key] for key in kept}, "weights": projections(model)}


def projections(model: Path) -> dict[str, float]:
    """Return a number for each stored tensor: its product with fixed numbers between -1 and 1.

    A value that has changed changes it by as much or less, so that it is as exact as the weights
    are; a hash is of one machine.
    """
    from safetensors.torch import load_file

    found = {}
    for name, tensor in sorted(load_file(model / "model.safetensors").items()):
        values = tensor.double().flatten().numpy()
        draw = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
        found[name] = float(values @ draw.uniform(-1, 1, values.size))
    return found


def require_same(found: Any, known: Any, close: float) -> None:
    """Require what is recorded: numbers that are no integers as close as said, all else the same.

    Args:
        found: a tree of lists and dictionaries; it may have keys that were not recorded.
        known: the recorded one.
        close: the greatest relative error; the greatest absolute one of numbers below 1.
    """
    if isinstance(known, dict):
        assert known.keys() <= found.keys()
        for key, value in known.items():
            require_same(found[key], value, close)
    elif isinstance(known, list):
        assert len(found) == len(known)
        for one, other in zip(found, known, strict=True):
            require_same(one, other, close)
    elif isinstance(known, float):
        assert found == pytest.approx(known, rel=close, abs=close)
    else:
        assert found == known

"""Choice between NumPy and torch to run a model, by the rules below.

Two engines run every network. PyTorch trains, and is fastest for large batches and on GPUs. Array
models (NumPy, with the compiled library where it is built) read and write on a CPU, and start
without loading PyTorch, which takes a second or more. Both give the same text, and
log-probabilities within 1e-5.

A command's model (`choose_engine`) is run over arrays unless a rule speaks for PyTorch:
1. The caller asks for a torch module: training, and the Python API unless a model's weights are in
   fewer bits than float32, which PyTorch would convert.
2. It is to compute on another device than the CPU, or in another precision than its own.
3. Its work is large: it reads more than `MOST_READ` tokens, or writes more than that many in more
   than `MOST_TEXTS` texts side by side.
4. There is no array model of it.
Models that are estimated by counting or EM are computed over arrays by either engine: rule 3 does
not apply to them.

While PyTorch runs a network, it takes a step of one token over arrays all the same
(`choose_for_step`) where that gives the same numbers in less time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Loading PyTorch takes as long as reading about so many tokens over arrays.
MOST_READ = 40_000
# With so few texts side by side both engines take the same steps.
MOST_TEXTS = 64
# So few rows are faster over arrays even by NumPy alone, without the compiled library.
MOST_ROWS_OF_NUMPY = 8


@dataclass(frozen=True)
class EngineChoice:
    """Chosen engine and the reason for it.

    Attributes:
        over_arrays: run the array model; else the torch module.
        reason: in a few words, for `--verbose`.
    """

    over_arrays: bool
    reason: str


ASKED_FOR = EngineChoice(False, "a torch module is asked for")
NO_ARRAY_MODEL = EngineChoice(False, "there is no array model of it")
COUNTED = EngineChoice(True, "it is estimated without gradients")
LITTLE_WORK = EngineChoice(True, "it is done before PyTorch would be loaded")


@dataclass(frozen=True)
class Workload:
    """Estimate of the tokens that a command will read and generate.

    Attributes:
        read: tokens to score, or more.
        written: tokens to write, of all texts together.
        rows: texts that are written side by side.
    """

    read: int
    written: int
    rows: int


def choose_engine(
    work: Callable[[], Workload] | None, device: str, precision: str, counted: bool
) -> EngineChoice:
    """Choose the engine for a command; see the module's rules 1 to 3.

    Args:
        work: returns what it is to do; None if a torch module is asked for.
        device: "auto", "cpu", or another.
        precision: "auto" is the model's own.
        counted: it is estimated without gradients, or all its parts are.
    """
    if work is None:
        return ASKED_FOR
    if device not in ("auto", "cpu"):
        return EngineChoice(False, f"it computes on {device}")
    if precision != "auto":
        return EngineChoice(False, f"it computes in {precision}")
    if counted:
        return COUNTED
    load = work()
    if load.read > MOST_READ:
        return EngineChoice(False, f"it reads more than {MOST_READ:,} tokens")
    if load.rows > MOST_TEXTS and load.written > MOST_READ:
        return EngineChoice(False, f"it writes {load.rows:,} texts side by side")
    return LITTLE_WORK


def choose_for_step(rows: int, most_rows: int | None, same_numbers: bool) -> bool:
    """Check whether a torch module should compute a one-token step in NumPy.

    Args:
        rows: of the step.
        most_rows: up to how many rows that is faster; None for any number.
        same_numbers: NumPy computes what torch would: on a CPU, in float32 or float64, and not in
            training or under autocast.
    """
    return same_numbers and (most_rows is None or rows <= most_rows)

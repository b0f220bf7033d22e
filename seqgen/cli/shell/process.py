"""Process setup before torch is imported: text encoding, threads, memory allocation."""

from __future__ import annotations

import os
import sys

from seqgen import ranks
from seqgen.cli.shell.output import write_utf8

# GNU OpenMP's threads spin long before they sleep. As soon as anything else runs on the machine
# that makes every step several times slower; spinning briefly costs nothing alone, except where
# one token's steps are so short that the threads would sleep between them.
BRIEFLY, THROUGH_A_TOKEN = "3000", "30000"
# glibc's parameters (malloc.h): what it keeps of freed memory, and from which size on it asks the
# system for each block.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MUCH, LITTLE = ((1 << 31) - 1, 1 << 25), (1 << 20, 1 << 20)

# More threads only get in each other's way, and OpenMP aborts where it cannot start them.
MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def prepare(work: str) -> None:
    """Set up the process and its environment variables for a command; keeps those the user has set.

    Args:
        work: what the command does most of the time; see `seqgen.hooks.Command`.
    """
    write_utf8()
    os.environ.setdefault("GOMP_SPINCOUNT", THROUGH_A_TOKEN if work == "tokens" else BRIEFLY)
    # NumPy's products are small ones (single steps of small models), which threads only slow.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if ranks.is_launched():  # PyTorch's warnings about the exchange of gradients mean nothing here
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if work in ("tokens", "steps"):
        keep_freed_memory(True)
    if work:
        exit_on_truncated_file()


def keep_freed_memory(keep: bool) -> None:
    """Tune glibc to keep freed memory for the next training step, or to return it.

    Given back and asked for anew, each page costs a fault: a fifth of an LSTM's training step. Runs
    that are to save memory have it given back: what one block is gathered into, by another thread,
    would not be found again for the next one.
    """
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        kept, largest = MUCH if keep else LITTLE
        mallopt(M_MMAP_THRESHOLD, largest)
        mallopt(M_TRIM_THRESHOLD, kept)


def exit_on_truncated_file() -> None:
    """Exit with a one-line error if a memory-mapped file is truncated (SIGBUS).

    It does so by a signal, which Python cannot handle: only the compiled library can.
    """
    from seqgen.engines.native.library import library

    if (native := library()) is not None:
        native.end_in_a_line()


def use_threads(threads: int | None) -> int | None:
    """Set the number of threads of torch and of the compiled kernels; None keeps the default.

    They read the variables when they are loaded; what is there already is told.
    """
    if threads is not None:
        for variable in THREAD_VARIABLES:
            os.environ[variable] = str(threads)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(threads)
        if native := sys.modules.get("seqgen.engines.native.library"):
            native.use_threads()
    return threads

"""Connecting the ranks to a process group, and disconnecting them.

torchrun supervises the processes: if one dies or fails, it ends the others and says which it was.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

from seqgen import ranks
from seqgen.errors import Interrupted, SeqgenError

# Seconds that an exchange may wait for a rank, which may compute alone for that long; PyTorch's.
DEFAULT_TIMEOUT = 1800.0
# Seconds within which torchrun ends the other ranks once one has failed.
ENDED_WITHIN = 3.0


@contextlib.contextmanager
def process_group(timeout: float | None = None) -> Iterator[None]:
    """Connect the processes that torchrun has started while the block runs; no-op for one.

    An error that all ranks have is raised on rank 0 alone; the others exit without a word.

    Args:
        timeout: seconds that an exchange waits for a rank that does not answer.

    Raises:
        SeqgenError: the ranks do not find each other, or one has died.
    """
    if not ranks.is_launched() or ranks.world_size() > 1:
        yield
        return
    timeout = timeout or DEFAULT_TIMEOUT
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise SeqgenError(
            f"rank {ranks.rank()} does not find the other processes within {timeout:g} seconds "
            f"({reason}); check the number of processes and the address that torchrun was given"
        ) from None
    ranks.mark_joined(True)
    try:
        yield
        dist.destroy_process_group()
    except KeyboardInterrupt:
        _ignore_signals()
        if not ranks.is_leader():
            raise SystemExit(Interrupted.exit_code) from None
        raise
    except SeqgenError as error:
        if ranks.is_leader():
            _ignore_signals()
            raise
        _wait_to_be_ended(error.exit_code)
        raise SeqgenError(f"rank {ranks.rank()}: {error}") from None
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        _ignore_signals()
        raise SeqgenError(
            "a process has died or does not answer; torchrun says which, and ends the others. The "
            "last checkpoint is good: resume with seqgen train --resume"
        ) from None
    finally:
        ranks.mark_joined(False)


def _wait_to_be_ended(code: int) -> None:
    """Wait for torchrun's signal that follows if rank 0 fails too, then exit.

    Raises:
        SystemExit: it has come.
    """
    try:
        time.sleep(ENDED_WITHIN)
    except KeyboardInterrupt:
        raise SystemExit(code) from None
    _ignore_signals()


def _ignore_signals() -> None:
    """Ignore further signals, so that this failing rank can report why."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

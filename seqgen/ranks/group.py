"""Connecting the ranks, and parting them again: orderly, or because one has failed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from seqgen import ranks
from seqgen.errors import Interrupted, SeqgenError
from seqgen.ranks.watch import Ending, Watch

DEFAULT_TIMEOUT = 60.0
# An exchange may wait for as long as another rank computes; `Watch` knows whether it is alive.
PATIENCE = timedelta(days=100)
# How long a rank waits for the others to say that they have failed in the same way.
AGREEMENT = 3.0


@contextlib.contextmanager
def together(timeout: float | None = None) -> Iterator[None]:
    """Connect the processes that torchrun has started, within; one alone does nothing.

    If a rank fails, the others end too. An error that all have is raised on rank 0 alone, and the
    others exit without a word.

    Args:
        timeout: seconds after which a rank that does not answer counts as dead.

    Raises:
        SeqgenError: the ranks do not find each other, or one has died.
    """
    if not ranks.launched() or ranks.world() > 1:
        yield
        return
    watch = _connect(timeout or DEFAULT_TIMEOUT)
    ranks.mark_joined(True)
    try:
        with _failing_together(watch):
            yield
        watch.finish()
    finally:
        ranks.mark_joined(False)
        if watch.ending is None:
            dist.destroy_process_group()


def _connect(timeout: float) -> Watch:
    rank, world = ranks.rank(), int(os.environ["WORLD_SIZE"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    watch = None
    try:
        store, *_ = next(dist.rendezvous("env://", timeout=timedelta(seconds=timeout)))
        watch = Watch(_own_store(store, timeout), rank, world, timeout)
        watch.wait_for_all()
        watch.start()
        store.set_timeout(PATIENCE)
        dist.init_process_group(
            backend,
            # Processes that torchrun starts anew must not find the addresses of those before.
            store=dist.PrefixStore(f"seqgen/{ranks.restarts()}", store),
            rank=rank,
            world_size=world,
            timeout=PATIENCE,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if watch is not None:
            watch.fail(1, reason)
        raise SeqgenError(
            f"rank {rank} does not find the other processes within {timeout:g} seconds ({reason}); "
            "see what torchrun was told of their number and of the first one's address"
        ) from None
    return watch


def _own_store(store: Any, timeout: float) -> Any:
    """Return the store that the ranks' states are in, with a connection of its own."""
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    wait = timedelta(seconds=timeout)
    own = dist.TCPStore(*where, is_master=False, timeout=wait, wait_for_workers=False)
    return dist.PrefixStore(f"seqgen-states/{ranks.restarts()}", own)


@contextlib.contextmanager
def _failing_together(watch: Watch) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _hear_no_more()
        # torchrun ends the others so as soon as one is gone.
        _end(watch, watch.cause(), Interrupted.exit_code)
        watch.fail(Interrupted.exit_code, "interrupted")
        _leave_it_to_first(Interrupted.exit_code)
        raise
    except SeqgenError as error:
        _hear_no_more()
        _fail(watch, error)
        raise
    except Exception as error:
        _hear_no_more()
        ending = watch.cause()
        if ending is None:  # no rank is gone: a fault of this one
            watch.fail(1, str(error).splitlines()[0] if str(error) else type(error).__name__)
            raise
        _end(watch, ending, ending.code)


def _hear_no_more() -> None:
    """Ignore further signals: this rank ends, and is to say why."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _end(watch: Watch, ending: Ending | None, code: int) -> None:
    """End this rank because of another one, if there is such an ending."""
    if ending is None:
        return
    line = watch.line(ending)
    watch.follow(ending)
    if watch.speaks(ending):
        raise SeqgenError(line) from None
    raise SystemExit(ending.code if not ending.died else code)


def _fail(watch: Watch, error: SeqgenError) -> None:
    """Tell the others of an error; exit if a lower rank says the same."""
    own = ranks.rank()
    ending = watch.cause(AGREEMENT) if own else None
    watch.fail(error.exit_code, str(error))
    if ending is not None and ending.rank != own and ending.message == str(error):
        raise SystemExit(error.exit_code)
    if own and ending is None:
        raise SeqgenError(f"rank {own}: {error}") from None


def _leave_it_to_first(code: int) -> None:
    """Exit where rank 0 says what is to be said."""
    if not ranks.leads():
        raise SystemExit(code)

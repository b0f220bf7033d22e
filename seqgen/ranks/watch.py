"""Noticing that another rank has died or failed, and ending this one then.

Every rank writes a beat into the store that torchrun keeps, and reads those of the others, in a
thread of its own: so a rank may compute for minutes while the others wait for it, and one that is
gone is known by name within the time-out, even if it hangs in the middle of an exchange.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

BEAT, FAILED, AFTER, DONE = "beat", "failed", "after", "done"
# Seconds between beats, and how long the main thread has to end by itself.
PAUSE, GRACE = 0.5, 5.0


@dataclass(frozen=True)
class Ending:
    """Why the ranks end.

    Attributes:
        rank: which of them was the first to end.
        died: it was killed, or does not answer; otherwise it has failed, and said why.
        code: the exit code that follows.
        message: what it said.
    """

    rank: int
    died: bool
    code: int = 1
    message: str = ""


class Watch:
    """Beats for this rank, and watches the others.

    Args:
        store: of torch.distributed, with a connection of its own.
        rank: of this process.
        world: how many there are.
        timeout: seconds without a beat after which a rank counts as dead.
    """

    def __init__(self, store: Any, rank: int, world: int, timeout: float) -> None:
        self._store, self._rank, self._world, self.timeout = store, rank, world, timeout
        self._seen: dict[int, tuple[str, float]] = {}
        self._beats: Counter[int] = Counter()  # new ones since `cause` began to wait
        self._allowed, self._stopped, self._leaving = timeout, threading.Event(), False
        self._known = threading.Event()
        self.ending: Ending | None = None
        self._thread = threading.Thread(target=self._run, name="seqgen-ranks", daemon=True)
        self._pause = min(PAUSE, timeout / 10)
        self._post(f"{BEAT} 0")
        store.set(f"who/{rank}", f"process {os.getpid()} on {socket.gethostname()}")

    def wait_for_all(self) -> None:
        """Wait until every rank is there.

        Raises:
            RuntimeError: some are not there within the time-out.
        """
        keys = [f"state/{rank}" for rank in range(self._world)]
        self._store.wait(keys, timedelta(seconds=self.timeout))

    def start(self) -> None:
        """Begin to beat and to watch; the others must be there."""
        self._thread.start()

    def finish(self) -> None:
        """End without a fault: the others need not wait for this rank."""
        self._leave(DONE)

    def fail(self, code: int, message: str) -> None:
        """Tell the others that this rank ends with an exit code, and what it says."""
        self._leave(f"{FAILED} {code} {message}")

    def follow(self, ending: Ending) -> None:
        """Tell the others that this rank ends because another one has."""
        self._leave(f"{AFTER} {ending.rank}" if ending.died else DONE)

    def cause(self, within: float | None = None) -> Ending | None:
        """Return why others have ended, or None if they have not.

        Args:
            within: seconds to wait for it; by default until a rank that was killed is known.
        """
        # An exchange has failed, so whoever has not beaten for some beats is gone.
        self._allowed = min(self.timeout, 4 * self._pause + 1)
        self._leaving = True  # the thread does not end the process from now on
        self._beats.clear()
        ends = time.monotonic() + (2 * self._allowed if within is None else within)
        while time.monotonic() < ends and not self._known.wait(self._pause / 5):
            if within is None and self._all_beat():
                break
        return self.ending

    def _all_beat(self) -> bool:
        """Return whether all other ranks have beaten, or ended in order, since `cause` began."""
        # A first new beat may have been on its way before.
        beats = [self._beats[rank] for rank in range(self._world) if rank != self._rank]
        return all(count > 2 for count in beats)

    def line(self, ending: Ending) -> str:
        """Return the line that names a rank that has died."""
        try:
            who = f" ({self._store.get(f'who/{ending.rank}').decode()})"
        except Exception:  # the store has gone with it
            who = ""
        return (
            f"rank {ending.rank}{who} has died or does not answer; the others end too. The last "
            "checkpoint is good: go on with seqgen train --resume"
        )

    def speaks(self, ending: Ending) -> bool:
        """Return whether this rank says that another one died: the lowest that is left does."""
        return ending.died and self._rank == (1 if ending.rank == 0 else 0)

    def _leave(self, state: str) -> None:
        self._leaving = True
        self._stopped.set()
        self._thread.join(GRACE)
        try:
            self._post(state)
        except Exception:  # the store has ended before
            self.ending = self.ending or Ending(0, died=True)

    def _post(self, state: str) -> None:
        self._store.set(f"state/{self._rank}", state)

    def _run(self) -> None:
        number = 0
        keys = [f"state/{rank}" for rank in range(self._world)]
        while not self._stopped.wait(self._pause):
            number += 1
            try:
                self._post(f"{BEAT} {number}")
                states = [value.decode() for value in self._store.multi_get(keys)]
            except Exception:  # torchrun, or the rank that keeps the store, has ended
                self.ending = Ending(0, died=True)
            else:
                self.ending = self._look(states)
            if self.ending is not None:
                self._known.set()
                self._end_process()
                return

    def _look(self, states: list[str]) -> Ending | None:
        """Return why the ranks end, if one of these states says so."""
        now = time.monotonic()
        for rank, state in enumerate(states):
            kind, _, rest = state.partition(" ")
            if kind == FAILED:
                code, _, message = rest.partition(" ")
                return Ending(rank, False, int(code), message)
            if kind == AFTER:
                return Ending(int(rest), died=True)
            before, since = self._seen.get(rank, ("", now))
            self._beats[rank] += state != before or kind == DONE
            self._seen[rank] = (state, now if state != before else since)
            silent = now - self._seen[rank][1]
            if kind == BEAT and rank != self._rank and silent > self._allowed:
                return Ending(rank, died=True)
        return None

    def _end_process(self) -> None:
        """End the process unless its main thread does: that may wait for a rank that is gone."""
        ends = time.monotonic() + min(GRACE, self.timeout / 2)
        while time.monotonic() < ends:
            if self._leaving:
                return
            time.sleep(self._pause / 5)
        if self.speaks(self.ending):
            os.write(2, f"seqgen: {self.line(self.ending)}\n".encode())
        with contextlib.suppress(Exception):  # the store may have ended
            self._post(f"{AFTER} {self.ending.rank}" if self.ending.died else DONE)
        os._exit(self.ending.code)

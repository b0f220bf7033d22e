"""Other work begins and ends when it is to, and none is left behind."""

from __future__ import annotations

import os
import time

import pytest

from . import neighbours
from .neighbours import Neighbour, busy


class Worker:
    """Stands for a process."""

    running = 0

    def __init__(self, command, env):
        Worker.running += 1

    def kill(self):
        Worker.running -= 1

    def wait(self):
        pass


@pytest.mark.parametrize(
    ("neighbour", "early", "late"),
    [
        (Neighbour(), 0, 0),
        (Neighbour(cores=0.5), 1, 1),
        (Neighbour(cores=1.0, end=0.1), 2, 0),
        (Neighbour(cores=2.0, begin=-0.5), 0, 4),
    ],
)
def test_other_work_comes_and_goes(neighbour, early, late, monkeypatch):
    monkeypatch.setattr(neighbours.subprocess, "Popen", Worker)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    began = time.monotonic()
    with busy(neighbour, 0.2):
        while neighbour.begin == 0 and Worker.running < early:
            time.sleep(0.001)
        if time.monotonic() - began < 0.05:  # the machine may be too busy to look in time
            assert Worker.running == early
        time.sleep(0.2)
        while Worker.running != late and time.monotonic() - began < 5:
            time.sleep(0.01)
        assert Worker.running == late
    assert Worker.running == 0

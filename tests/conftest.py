"""What every test gets: one torch thread, a home of its own, and the way to shared test data."""

from __future__ import annotations

import functools
import gc
import io
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import examples
import pytest
import torch
from hypothesis import settings
from places import ROOT

from seqgen import registry
from seqgen.engines.native.library import VARIABLE, library
from seqgen.engines.tensor_products import fastest_products
from seqgen.store import torch_models
from seqgen.training import session, speed, validations

# Programs that tests start, and the other processes of pytest, find compiled modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What is collected stays: see `pytest_collection_finish`.
gc.disable()
# No test reaches a hub of models, but for those that serve one on loopback.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("HF_TOKEN", None)

# The command line may say `--hypothesis-profile all`.
settings.register_profile("all", max_examples=examples.ALL)
settings.register_profile("few", max_examples=examples.FEW)
settings.load_profile("few")

BESIDE = ROOT.parent / "shared" / "data"


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with `fast_for` the cases whose id fits no pattern are long, or as it says."""
    cases_chosen = "[" in "".join(config.args) or config.getoption("lf", False)
    fast: dict[str, bool] = {}
    for item in items:
        mark = item.get_closest_marker("fast_for")
        if mark is not None and hasattr(item, "callspec"):
            # Without a plugin, no case at all may be left: pytest then has one that it skips.
            named = item.callspec.id == "NOTSET" or any(
                fnmatchcase(item.callspec.id, pattern) for pattern in mark.args
            )
            test = item.nodeid.partition("[")[0]
            fast[test] = fast.get(test, cases_chosen) or named
            if not named:
                item.add_marker(mark.kwargs.get("rest", "long"))
    for test in (test for test, found in fast.items() if not found):
        raise pytest.UsageError(f"{test}: fast_for names no case of it")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each process has its part of the files, whose tests share models, and helps at the end."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay: no full collection need walk them again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard() -> None:
    """A shell's background job ignores Ctrl-C, and so would every program that a test starts."""
    usual = {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}
    for name, handler in usual.items():
        number = getattr(signal, name, None)  # Windows has no hangup
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Bit-for-bit comparisons need one order of summation."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def small_and_unsynced() -> Iterator[None]:
    """Training shows short texts, and files are not forced to the disk: no test cuts the power.

    Without --model a network is trained alone: most tests are about something else than the n-gram
    model beside it; see `real_default`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "UNLESS_TOLD", registry.DEFAULT)
        for module in (session, validations):
            patch.setattr(module, "SAMPLE_TOKENS", 8)
        patch.setattr(os, "fsync", os.fstat)
        # The home of each test would measure it anew, for 40 ms.
        patch.setattr(torch_models, "fastest_products", functools.cache(fastest_products))
        # A trial has a slice for each way, and is not repeated until the speeds agree.
        patch.setattr(speed, "LONG_TRIAL_SECONDS", 0.0)
        yield


@pytest.fixture
def real_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --model, an n-gram model is added to the network, as it is for users."""
    monkeypatch.setattr(registry, "UNLESS_TOLD", registry.AUTO)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders for the homes of tests that have none of their own."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def home(
    request: pytest.FixtureRequest, homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A fresh `SEQGEN_HOME`; no test sees the user's models, nor another test's."""
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path") / "home"
    else:  # for each `tmp_path` pytest looks at those of all tests before: 7 ms after 5,000
        folder = next(homes) / "home"
        folder.parent.mkdir()
    monkeypatch.setenv("SEQGEN_HOME", str(folder))
    return folder


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Array models as on a machine where nothing is compiled."""
    monkeypatch.setenv(VARIABLE, "0")
    library.cache_clear()
    yield
    library.cache_clear()  # before the variable is as it was; nothing asks for a library until then


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Return what puts some content into standard input, by a pipe: less than it holds, 64 kB."""

    def fill(content: bytes) -> None:
        read, write = os.pipe()
        with os.fdopen(write, "wb") as file:
            file.write(content)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(read, "rb")))

    return fill


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return what finds a file of the shared test data, or skips the test for want of it."""
    folder = Path(os.environ.get("SEQGEN_TEST_DATA") or BESIDE)

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"{path} is missing; set SEQGEN_TEST_DATA to the folder that holds {name}")
        return path

    return find


@pytest.fixture
def cli(capfd) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process; return its exit code, its output and its messages."""
    from seqgen.cli import run

    def command(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return command

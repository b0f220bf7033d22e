"""No traceback, no hang and no gigabytes, whatever an option says and a file holds.

`fuzz_cases.py` makes the cases from a seed, `forked.py` runs each in a fork of one process.
"""

from __future__ import annotations

import random
import shutil

import fuzz_cases
import pytest
import typer
from forked import Outcome, Server
from places import STORED

from seqgen.cli import make_app

GIGABYTE = 1 << 30
# What no user should see: of Python, of libtorch, of an error that nothing foresaw.
UNWANTED = ("Traceback", "internal error", "frame #", "c10::", "Warning", "[Errno")
SEED = 20261122


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture
def place(tmp_path):
    """A folder with a small ARPA file and a model to rename, which commands run in."""
    (tmp_path / "small.arpa").write_text(fuzz_cases.ARPA, encoding="utf-8")
    models = tmp_path / "home" / "models"
    shutil.copytree(STORED / "models" / "lstm-char", models / "renamed")
    return tmp_path


def faults(outcome: Outcome) -> list[str]:
    """Return what is wrong with how a command ended; one that fails says why in its last line."""
    found = [word for word in UNWANTED if word in outcome.err]
    if outcome.code not in (0, 1, 2):
        found.append(f"code {outcome.code} after {outcome.seconds:.1f} s")
    if outcome.rss > GIGABYTE:
        found.append(f"{outcome.rss:,} bytes")
    *_, last = ["", *outcome.err.splitlines()]
    if outcome.code and not last.startswith("seqgen"):
        found.append(f"its last line is {last[:100]!r}")
    return found


def all_faults(server: Server, home, folder, cases) -> list[str]:
    """Run all commands of (what was done, command); return what is wrong with them."""
    found = []
    for what, command in cases:
        outcome = server.run(command, home, folder)
        lines = len(outcome.err.splitlines())
        if outcome.code and "--quiet" in command and lines != 1:
            found.append(f"{lines} lines: {what} {command} {outcome.err[-300:]}")
        shown = [argument[:60] for argument in command]
        found += [f"{fault}: {what} {shown} {outcome.err[-300:]}" for fault in faults(outcome)]
    return found


@pytest.mark.long
def test_values_of_options(server, place):
    cases = fuzz_cases.option_cases(random.Random(SEED), place, 240)
    assert len(cases) >= 300
    found = all_faults(server, place / "home", place, [("", command) for command in cases])
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "count",
    [pytest.param(50, marks=pytest.mark.slow), pytest.param(160, marks=pytest.mark.long)],
)
def test_damaged_models(count, server, place):
    draw = random.Random(SEED + 1)
    damaged = fuzz_cases.damaged_models(draw, place, count)
    cases = [(what, c) for what, path in damaged for c in fuzz_cases.model_commands(draw, path)]
    assert len(cases) >= count * 300 // 160
    found = all_faults(server, place / "home", place, cases)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_damaged_token_files(server, place):
    draw = random.Random(SEED + 2)
    damaged = fuzz_cases.token_files(draw, place, 50)
    cases = [(what, c) for what, path in damaged for c in fuzz_cases.token_commands(draw, path)]
    found = all_faults(server, place / "home", place, cases)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_damaged_arpa_files(server, place):
    draw = random.Random(SEED + 3)
    use = ["sample", "-m", "x", "--max-tokens", "5"]
    cases = []
    for what, path in fuzz_cases.arpa_files(draw, place, 50):
        cases += [(what, ["import", str(path), "--name", "x", "--overwrite"]), (what, use)]
    found = all_faults(server, place / "home", place, cases)
    assert not found, "\n".join(found)


def test_every_command_has_a_call(tmp_path):
    tree = typer.main.get_command(make_app())
    assert {name for name, _ in fuzz_cases.leaves(tree)} == {*fuzz_cases.commands(tmp_path)}


def test_the_judge_sees_faults():
    fine = Outcome(code=1, out="", err="seqgen: no such file\n", seconds=0.1, rss=1)
    assert not faults(fine)
    for change in (
        {"code": 99},
        {"code": None},
        {"code": -6},
        {"rss": 2 << 30},
        {"err": "Traceback (most recent call last):\nseqgen: x"},
        {"err": "seqgen: a\nb"},
        {"err": ""},
    ):
        assert faults(Outcome(**{**vars(fine), **change})), change

"""Training on several processes gives what one process gives; see `ranks_worker.py`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from forked import training_processes
from helpers_cli import installed, refusal
from ranks_worker import ARCHITECTURES, CASES, SHARDED, be_rank

from seqgen.engines.dropout import Dropout, RowSlice, drawing_for
from seqgen.text.batches import IGNORED, Batch, portions, row_numbers
from seqgen.text.sources import Source


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def variables(rank, world, port):
    several = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    several = {name: str(value) for name, value in several.items()} if world > 1 else {}
    return {"MASTER_ADDR": "127.0.0.1", **several}


def train(world, file, *arguments):
    """Run the worker as so many processes; return what rank 0 found."""
    port, start = free_port(), training_processes().Process
    ranks = [(variables(rank, world, port), [str(file), *arguments]) for rank in range(world)]
    processes = [start(target=be_rank, args=rank) for rank in ranks]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * world
    return torch.load(file)


def assert_alike(one, several, exactly=False):
    assert one.keys() == several.keys()
    for name, wanted in one.items():
        found = several[name]
        assert found["losses"] == pytest.approx(wanted["losses"], abs=1e-5), name
        (tensors, facts), (other, _) = wanted["snapshot"], found["snapshot"]
        assert facts["run"]["step"] > 0
        assert tensors.keys() == other.keys(), name
        for key, tensor in tensors.items():
            close = torch.equal if exactly else torch.allclose
            assert close(tensor, other[key]), (name, key)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return what finds the results of cases that one process trains, each once."""
    found = {}

    def of(names):
        if missing := [name for name in names if name not in found]:
            found.update(train(1, tmp_path_factory.mktemp("alone") / "found.pt", *missing))
        return {name: found[name] for name in names}

    return of


# A case of each kind of state, of a source, of rows that differ in number, and of a matrix's rule.
SOME = ["lstm-dropout", "seq2seq-transformer-dropout", "accumulate", "few-rows", "muon"]


def processes(names):
    """Of these cases some and all for two processes; for three, those of architectures."""
    of_three = [name for name in names if name in ARCHITECTURES]
    return pytest.mark.parametrize(
        ("world", "names"),
        [
            pytest.param(2, SOME, id="2-some", marks=pytest.mark.slow),
            pytest.param(2, names, id="2-all", marks=pytest.mark.long),
            pytest.param(3, of_three, id="3", marks=pytest.mark.long),
        ],
    )


@processes(list(CASES))
def test_several_processes_train_as_one_does(world, names, alone, tmp_path):
    """The random states and carried states included."""
    found = train(world, tmp_path / "found.pt", *names)
    assert_alike(alone(names), found)


@processes(SHARDED)
def test_divided_models_train_as_whole_ones_do(world, names, alone, tmp_path):
    found = train(world, tmp_path / "found.pt", *names, "--shard")
    assert_alike(alone(names), found)


@pytest.mark.long
@pytest.mark.parametrize(("first", "then"), [(2, 2), (2, 1), (1, 3), (3, 2)])
def test_a_run_goes_on_with_any_number_of_processes(first, then, alone, tmp_path):
    begun = tmp_path / "begun.pt"
    train(first, begun, *SOME, "--stop-at", "23")
    shard = ["--shard"] if (first, then) == (3, 2) else []
    found = train(then, tmp_path / "found.pt", *SOME, "--begun", str(begun), *shard)
    for name in SOME:
        losses = alone(SOME)[name]["losses"][-len(found[name]["losses"]) :]
        assert found[name]["losses"] == pytest.approx(losses, abs=1e-5)
    if first == then:
        unbroken = train(first, tmp_path / "unbroken.pt", *SOME)
        for name in SOME:
            wanted, tensors = unbroken[name]["snapshot"][0], found[name]["snapshot"][0]
            assert all(torch.equal(tensor, tensors[key]) for key, tensor in wanted.items()), name


def test_the_cases_are_there():
    assert set(SHARDED) < set(CASES)


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_row_is_computed_once(rows, pieces, world):
    found = [portions(rows, pieces, rank, world) for rank in range(world)]
    assert len({len(chosen) for chosen in found}) == 1  # so that all take part in every exchange
    computed = [place for chosen in found for place in row_numbers(chosen) if place >= 0]
    assert sorted(computed) == list(range(rows))
    assert all(portion.count for chosen in found for portion in chosen)


def test_a_portion_is_padded_as_its_piece():
    targets = np.arange(12).reshape(4, 3)
    source = Source(np.ones((4, 5), np.int64), np.array([5, 2, 3, 1]))
    batch = Batch(targets, targets, True, 12, source=source)
    first, second = portions(4, 1, 1, 2)[0].of(batch), portions(4, 2, 1, 2)[1].of(batch)
    assert first.source.values.shape == (2, 5)
    assert second.source.values.shape == (1, 3)  # the piece's longest source
    assert second.targets.tolist() == targets[3:].tolist()
    assert second.count == 12
    blank = portions(4, 4, 1, 2)[2]
    assert blank.blank and (blank.of(batch).targets == IGNORED).all()


def test_masks_are_those_of_the_rows():
    x, dropout = torch.ones(7, 3, 5, dtype=torch.float64), Dropout(0.4)
    torch.manual_seed(1)
    whole, after = dropout(x), torch.get_rng_state()
    for first, count in ((0, 2), (2, 3), (5, 2)):
        torch.manual_seed(1)
        with drawing_for(RowSlice(first, count, 7)):
            assert torch.equal(dropout(x[:count]), whole[first : first + count])
        assert torch.equal(torch.get_rng_state(), after)
    torch.manual_seed(1)
    with drawing_for(RowSlice(1, 2, 7)):  # three texts of each row, one below the other
        tripled = dropout(x[:6])
    torch.manual_seed(1)
    assert torch.equal(tripled, dropout(x.repeat(3, 1, 1))[3:9])


ONE_ENDS = """
import os, signal
from seqgen import ranks
from seqgen.errors import SeqgenError
from seqgen.ranks.group import process_group

with process_group():
    ranks.total(1.0)
    if ranks.rank() == 1:
        {}
    ranks.total(1.0)
"""


@pytest.mark.slow
@pytest.mark.fast_for("raise SeqgenError*", "*SIGKILL*")
@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ('raise SeqgenError("the disk is full")', "SeqgenError: rank 1: the disk is full"),
        ("raise KeyError(3)", "KeyError: 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "(SIGKILL)"),
        ("os.kill(os.getpid(), signal.SIGINT)", "rank      : 1"),
    ],
)
def test_if_one_process_ends_so_do_the_others(ends, said, tmp_path):
    """While they wait for it in an exchange, which alone would take half an hour to give up."""
    script = tmp_path / "one_ends.py"
    script.write_text(ONE_ENDS.format(ends))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    found = subprocess.run([*launcher, script], capture_output=True, text=True, timeout=100)
    assert found.returncode == 1
    assert said in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("budget", [["--steps", "4"], ["--minutes", "0.1"]])
def test_the_command_ends_with_the_result_of_the_run(budget, tmp_path, home):
    """Rank 0 alone validates, chooses and stores after the last step; the other waits for it."""
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 60)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    small = ["--model", "gru", "--hidden-size", "8", "--layers", "1", "--seq-len", "8"]
    command = [*launcher, "-m", "seqgen", "train", "a.txt", *small, *budget, "--quiet", "--json"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert found.returncode == 0, found.stderr
    (line,) = found.stdout.splitlines()
    assert json.loads(line)["stopped"] == budget[0].removeprefix("--")


ONE_FREEZES = """
import os, signal, sys, time
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_pre_hook
from seqgen.cli import run

def freeze(*_):
    Path("frozen").write_text(str(time.time()))
    os.kill(os.getpid(), signal.SIGSTOP)

if os.environ["RANK"] == "1":
    register_optimizer_step_pre_hook(freeze)
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.long
def test_a_frozen_process_is_given_up_after_the_timeout(tmp_path, home):
    """torchrun sees nothing, as it lives; it ends it once the one that waited has given up."""
    (tmp_path / "script.py").write_text(ONE_FREEZES)
    (tmp_path / "a.txt").write_text("to be or not to be\n" * 20)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    small = ["--hidden-size", "8", "--layers", "1", "--seq-len", "8", "--batch-size", "4"]
    train = ["train", "a.txt", *small, "--steps", "9", "--timeout", "15", "--quiet"]
    command = [*launcher, "script.py", *train]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        said = {line: time.time() for line in process.stderr}
    (line,) = (line for line in said if line.startswith("seqgen: "))
    assert "a process has died or does not answer" in line
    after = said[line] - float((tmp_path / "frozen").read_text())
    assert 14 < after < 25
    assert process.returncode == 1


def test_one_process_has_nothing_to_divide(capsys, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("to be or not to be\n" * 20)
    assert "torchrun" in refusal(capsys, "train", text, "--shard", "--steps", "1", "--quiet")


def test_processes_do_not_share_standard_input(capsys, monkeypatch):
    for name, value in variables(0, 2, 1).items():
        monkeypatch.setenv(name, value)
    assert "DATA as files" in refusal(capsys, "train", "-", "--steps", "1")
    for command in installed(["find-lr"]):
        assert "without torchrun" in refusal(capsys, command, __file__, "--steps", "1")


@pytest.mark.slow
def test_a_missing_file_is_reported_once(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*launcher, "-m", "seqgen", "train", "missing.txt", "--steps", "2"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in found.stderr.splitlines() if "missing.txt" in line]
    assert lines == ["seqgen: there is no file missing.txt"]
    assert found.returncode == 1

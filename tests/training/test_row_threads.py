"""Threads that divide the rows of a step train as one does, and so does a run that is resumed."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from helpers_cli import needs
from ranks_worker import CASES, run, trainer_of

from seqgen.training import loop, row_threads

STEPS = 4
# Where rows meet, or texts are written whose lengths decide what is drawn.
UNDIVIDED = {"batch-norm", "batch-norm-of-input"}
UNDIVIDED |= {"scheduled", "free-running", "professor-forcing", "minimum-risk", "decoding"}
DIVIDED = sorted(CASES.keys() - UNDIVIDED)
RESUMED = ["lstm-dropout", "gru-dropout", "transformer-dropout", "seq2seq-dropout"]
RESUMED += ["lines", "accumulate", "transformer-muon", "thaw"]
RESUMED += ["word2vec"] if "word2vec" in CASES else []
# In bf16 the casts of weights are made by each thread for itself.
IN_BF16 = ["lstm-dropout", "transformer-dropout"]


@pytest.fixture(autouse=True)
def every_step_is_logged(monkeypatch):
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)


def trained(name, threads, stop_at=None, begun=None, **more):
    case = CASES[name]
    settings = {"steps": STEPS, "row_threads": threads, **case.training, **more}
    return run(dataclasses.replace(case, training=settings), False, stop_at, begun)


def divided(monkeypatch):
    """Return a list that will hold how many threads each piece of a batch was divided among."""
    counts, plain = [], row_threads.RowThreads.add_gradients

    def counted(self, batch, parts):
        counts.append(len(parts))
        return plain(self, batch, parts)

    monkeypatch.setattr(row_threads.RowThreads, "add_gradients", counted)
    return counts


@pytest.mark.fast_for(
    "accumulate",
    "few-rows",
    "lines",
    "lstm-dropout",
    "muon",
    "seq2seq",
    "transformer-dropout",
    "unlikelihood",
    "word2vec",
)
@pytest.mark.parametrize("name", DIVIDED)
def test_threads_train_as_one_does(name, monkeypatch):
    """To rounding: losses, weights, carried states, random states and figures."""
    alone, counts = trained(name, 1), divided(monkeypatch)
    found = trained(name, 3)
    assert len(counts) >= STEPS
    assert min(counts) > 1
    assert found["losses"] == pytest.approx(alone["losses"], abs=1e-9)
    tensors, others = (one["snapshot"][0] for one in (alone, found))
    assert tensors.keys() == others.keys()
    for key, tensor in tensors.items():
        assert torch.allclose(tensor, others[key], rtol=1e-6, atol=1e-8), key


@pytest.mark.parametrize("name", CASES)
def test_what_is_divided(name):
    case = CASES[name]
    case = dataclasses.replace(case, training={**case.training, "row_threads": 2})
    trainer = trainer_of(case, False, [], None)
    assert (trainer.threads is None) == (name in UNDIVIDED)


@pytest.mark.fast_for("lstm-dropout", "transformer-muon", "word2vec")
@pytest.mark.parametrize("name", RESUMED)
def test_resuming_is_bit_for_bit(name):
    whole, begun = trained(name, 2), trained(name, 2, stop_at=2)
    again = trained(name, 2, begun=begun["snapshot"])
    assert again["losses"] == whole["losses"][2:]
    for key, tensor in whole["snapshot"][0].items():
        assert torch.equal(tensor, again["snapshot"][0][key]), key


@pytest.mark.parametrize("name", IN_BF16)
def test_bf16_is_the_same_every_time(name):
    one, other = (trained(name, 2, precision="bf16") for _ in range(2))
    assert one["losses"] == other["losses"]
    alone = trained(name, 1, precision="bf16")
    assert one["losses"] == pytest.approx(alone["losses"], abs=0.02)


def test_fewer_rows_than_threads(monkeypatch):
    counts = divided(monkeypatch)
    trained("few-rows", 4)
    assert set(counts) == {2}


def test_a_problem_in_another_thread_is_reported(monkeypatch):
    """And the threads of every operation are as many as before."""
    before, plain = torch.get_num_threads(), row_threads.gradients_of

    def broken(batch, trained, objective, generator, part):
        if part.portion.rows.start:
            raise ValueError("broken")
        return plain(batch, trained, objective, generator, part)

    monkeypatch.setattr(row_threads, "gradients_of", broken)
    with pytest.raises(ValueError, match="broken"):
        trained("lstm", 2)
    assert torch.get_num_threads() == before
    assert torch.is_autocast_cache_enabled()


@needs("regimes")
def test_figures_are_of_all_rows():
    """What a regime notes of its rows is logged as a mean over those of every thread."""
    figures = [trained("unlikelihood", threads)["figures"] for threads in (1, 3)]
    assert figures[0]
    assert figures[1] == pytest.approx(figures[0], abs=1e-9)

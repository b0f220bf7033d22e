"""Hopfield networks against the lectures' sums; what they restore, and which commands take one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from examples import examples
from helpers_cli import known_architectures, records, refusal, require_command
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from seqgen import store
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.plugins.hopfield.arrays import (
    HopfieldConfig,
    energy,
    hebbian,
    projection,
    recall,
    update_all,
    update_each,
)
from seqgen.plugins.hopfield.model import Hopfield
from seqgen.plugins.hopfield.restore import load_memory

quick = settings(deadline=None, max_examples=examples(25), derandomize=True)
seeds = st.integers(0, 10_000)


def signs(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.int8), shape)


def test_weights_are_the_lectures_sum():
    """w_ij = 1/n sum_u e_i^u e_j^u over n patterns; a unit has no connection to itself."""
    patterns = signs(3, 7)
    weights = hebbian(patterns)
    for i, j in itertools.product(range(7), repeat=2):
        total = sum(int(e[i]) * int(e[j]) for e in patterns) / len(patterns)
        assert weights[i, j] == pytest.approx(0 if i == j else total, abs=1e-15)


@pytest.mark.parametrize("rule", [hebbian, projection])
def test_weights_are_symmetric_without_a_diagonal(rule):
    weights = rule(signs(5, 20))
    assert (weights == weights.T).all() and (np.diag(weights) == 0).all()


def thresholds(units):
    """Draw one threshold for all units, or one for each."""
    numbers = st.sampled_from([0.0, 0.4, -1.3])
    return numbers | st.lists(numbers, min_size=units, max_size=units).map(np.array)


@given(seed=seeds, theta=thresholds(11))
@quick
def test_updates_are_the_lectures_rule(seed, theta):
    """s_i becomes +1 if sum_j w_ij s_j > theta_i, else -1: all from the old state, or in turn."""
    weights, s = hebbian(signs(4, 11, seed=seed)), signs(11, seed=seed + 1)
    order = np.random.default_rng(seed).permutation(11)

    def updated(i, state):
        field = sum(weights[i, j] * int(state[j]) for j in range(11))
        return 1 if field - (theta if np.ndim(theta) == 0 else theta[i]) > 1e-12 else -1

    assert update_all(weights, s, theta).tolist() == [updated(i, s) for i in range(11)]
    one_by_one = s.copy()
    for i in order:
        one_by_one[i] = updated(i, one_by_one)
    assert update_each(weights, s, order, theta).tolist() == one_by_one.tolist()


@given(seed=seeds, unknown=st.integers(0, 30), theta=thresholds(30))
@quick
def test_one_at_a_time_the_energy_never_rises(seed, unknown, theta):
    """After any single update, whatever the patterns and wherever it begins (Hopfield 1982)."""
    patterns, s = signs(1 + seed % 12, 30, seed=seed), signs(30, seed=seed + 1)
    s[:unknown] = 0
    weights = hebbian(patterns)
    before = energy(weights, s, theta)
    pairs = itertools.product(range(30), repeat=2)
    products = sum(weights[i, j] * int(s[i]) * int(s[j]) for i, j in pairs)
    each = [theta] * 30 if np.ndim(theta) == 0 else theta
    fields = sum(one * int(unit) for one, unit in zip(each, s, strict=True))
    assert before == pytest.approx(-0.5 * products + fields)
    for unit in np.random.default_rng(seed).permutation(30):
        s = update_each(weights, s, np.array([unit]), theta)
        after = energy(weights, s, theta)
        assert after <= before + 1e-9
        before = after
    found = recall(weights, s, synchronous=False, seed=seed, threshold=theta)
    assert found.ended == "stable"
    assert found.energies[-1] == pytest.approx(energy(weights, found.units, theta))
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(found.energies))


def test_all_at_once_two_states_may_follow_each_other():
    """Two units that want to be different both change at once, for ever; one by one they settle."""
    weights = np.array([[0.0, -1.0], [-1.0, 0.0]])
    both = np.array([1, 1], dtype=np.int8)
    assert update_all(weights, both).tolist() == [-1, -1]
    assert update_all(weights, update_all(weights, both)).tolist() == [1, 1]
    assert recall(weights, both, synchronous=True, seed=0).ended == "cycle"
    settled = recall(weights, both, synchronous=False, seed=0)
    assert settled.ended == "stable" and sorted(settled.units.tolist()) == [-1, 1]


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_stored_pattern_is_kept_and_restored(synchronous):
    patterns = signs(4, 200)
    weights = hebbian(patterns)
    for pattern in patterns:
        cue = pattern.copy()
        cue[:40] *= -1
        found = recall(weights, cue, synchronous=synchronous, seed=1)
        assert (found.units == pattern).all() and found.ended == "stable"
        assert found.energies[-1] == pytest.approx(energy(weights, pattern))
        assert len(recall(weights, pattern, synchronous=synchronous, seed=1).energies) == 1


def test_similar_patterns_are_kept_apart_by_projection():
    """Patterns that share most of their bits run into one under Hebb's rule."""
    patterns = np.tile(signs(200), (6, 1))
    patterns[:, :60] = signs(6, 60, seed=2)
    for rule, kept in ((projection, 6), (hebbian, 0)):
        weights = rule(patterns)
        same = [(update_all(weights, pattern) == pattern).all() for pattern in patterns]
        assert sum(same) == kept


def test_wrong_settings():
    for wrong in ({"length": 0}, {"bits": 0}, {"rule": "hebb"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            HopfieldConfig(vocab_size=3, **wrong)
    with pytest.raises(UsageError, match="must be at most 32,768 units, not 100,000"):
        HopfieldConfig(vocab_size=3, length=1000, bits=100)
    for wrong, why in {
        (0.5, 0.2): r"one number, or one for each of the 6 units \(length x bits\), not 2",
        (): "one for each of the 6 units .*, not 0",
        "1,x,3,4,5,6": "threshold must be a number, not 'x'",
        (0, 0, 0, 0, 0, 1e9): "threshold must be from -1e\\+06 to 1e\\+06",
        None: "threshold must be a number or a list, not None",
    }.items():
        with pytest.raises(UsageError, match=why):
            HopfieldConfig(vocab_size=3, length=2, bits=3, threshold=wrong)
    assert HopfieldConfig(vocab_size=3, threshold="-1.5").threshold == -1.5
    assert Hopfield(HopfieldConfig(vocab_size=3, length=2, bits=3)).parameter_count() == 15


# The command line.

LINES = ["to be or not to be", "the rest is silence", "all the world is a stage", "lord"]


@pytest.fixture
def memory(tmp_path, capsys):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in [*LINES, LINES[0]]))
    flags = ("--model", "hopfield", "--name", "m", "--seed", 1)
    return records(capsys, "train", path, *flags)[-1]


@pytest.mark.parametrize("flags", [(), ("--synchronous",)])
def test_each_unit_has_the_threshold_that_it_was_given(flags, memory, tmp_path, capsys):
    """Thresholds out of reach set every unit by their signs; they are stored with the model."""
    signed = [(-1) ** (i // 3) * 1000 for i in range(1024)]
    given = f"threshold={','.join(map(str, signed))}"
    train = ("train", tmp_path / "lines.txt", "--model", "hopfield", "--seed", 1, "--name", "each")
    records(capsys, *train, "--set", given)
    assert store.find("each").config["model"]["threshold"] == signed
    (found,) = records(capsys, "restore", "lord", "-m", "each", "--seed", 1, *flags)
    units = -np.sign(signed)
    model = load_memory("each").model
    lowest = -0.5 * units @ np.array(model.weights, dtype=np.float64) @ units - 1024 * 1000
    assert found["ended"] == "stable"
    assert found["energies"][-1] == pytest.approx(lowest)
    assert "threshold must be one number, or one for each of the 1,024 units" in refusal(
        capsys, *train, "--set", "threshold=0.5,0.2", "--overwrite"
    )


def test_a_threshold_no_unit_exceeds_turns_all_off(memory, tmp_path, capsys):
    """Its energy in that state is -1/2 sum_ij w_ij - n theta, with theta = 1000 and n = 1024."""
    flags = ("--model", "hopfield", "--set", "threshold=1000", "--name", "high", "--seed", 1)
    records(capsys, "train", tmp_path / "lines.txt", *flags)
    (found,) = records(capsys, "restore", LINES[0], "-m", "high")
    weights = load_memory("high").model.weights.astype(np.float64)
    assert found["ended"] == "stable"
    assert found["energies"][-1] == pytest.approx(-0.5 * weights.sum() - 1024 * 1000)


def test_lines_are_stored_and_restored(memory, capsys, stdin):
    assert memory["architecture"] == "hopfield" and memory["parameters"] == 1024 * 1023 // 2
    assert memory["val_loss"] is memory["steps"] is None
    wrong = ["to bq or nit to be", "the_rest_is_silence", "all the wo", "lord"]
    found = records(capsys, "restore", *wrong, "-m", "m")
    assert [record["text"] for record in found] == LINES
    assert [record["prompt"] for record in found] == wrong
    for record in found:
        assert record["ended"] == "stable" and record["model"] == "m"
        assert all(b <= a for a, b in itertools.pairwise(record["energies"]))
    assert found[3]["changed"] == 0 < found[0]["changed"]
    stdin("".join(f"{line}\n" for line in wrong).encode())
    assert run(["restore", "-m", "m", "--synchronous"]) == 0
    assert capsys.readouterr().out.splitlines() == LINES
    assert run(["models", "show", "m"]) == 0


@pytest.mark.parametrize(
    "command",
    [["sample"], ["beam-search", "a"], ["perplexity"], ["eval"], ["compare", "m", "m"], ["export"]],
)
def test_commands_that_need_a_language_model_say_so(memory, tmp_path, command, capsys):
    require_command(command[0])
    text = tmp_path / "lines.txt"
    more = {
        "perplexity": [text, "-m", "m"],
        "eval": [text, "-m", "m"],
        "compare": ["--data", text],
        "export": ["m", "--format", "arpa", "--out", tmp_path / "out.arpa"],
    }
    line = refusal(capsys, *command, *more.get(command[0], ["-m", "m"]))
    assert "m is an associative memory, no language model: it restores lines" in line


@pytest.mark.parametrize(("place", "number"), [((3, 5), 7.0), ((4, 4), 1.0), ((2, 9), np.nan)])
def test_weights_that_no_memory_has_are_damage(memory, place, number, capsys):
    path = store.find("m").path / store.WEIGHTS
    tensors = load_file(path)
    tensors["weights"][place] = number
    save_file(tensors, path)
    path.with_name("manifest.json").unlink()
    wrong = "damaged: the weights are not symmetric with a diagonal of zeros"
    assert wrong in refusal(capsys, "restore", "a", "-m", "m")


def test_bad_inputs(memory, tmp_path, capsys):
    text = tmp_path / "lines.txt"
    train = ("train", text, "--model", "hopfield")
    assert "line 3 has 24 tokens, more than length 20" in refusal(
        capsys, *train, "--set", "length=20", "-q"
    )
    assert "documents=stream has no meaning" in refusal(capsys, *train, "--documents", "stream")
    assert "restores only lines that it has stored" in refusal(capsys, *train, "--val", "0.1")
    assert "m was stored in one pass" in refusal(capsys, "train", "--resume", "m")
    assert "m was stored: it has no weights" in refusal(
        capsys, "train", text, "--init-from", "m", "--steps", 1
    )
    assert run(["restore", "x" * 40, "-m", "m"]) == 1
    assert "line 1 has 40 tokens; m stores lines of at most 32" in capsys.readouterr().err
    assert "give a line to restore, or pipe lines in" in refusal(capsys, "restore", "-m", "m")
    assert run(["train", str(text), "--model", "ngram", "--name", "n", "-q"]) == 0
    for other in ("n", "m:0.5+n:0.5"):
        line = refusal(capsys, "restore", "a", "-m", other)
        assert f"{other} is not an associative memory, which restore needs" in line


def test_the_kind_is_checked_before_a_model_is_loaded(tmp_path, capsys):
    text = tmp_path / "lines.txt"
    text.write_text("a line of words\n" * 20)
    for kind in known_architectures(["ngram", "word2vec"]):
        train = ["train", str(text), "--model", kind, "--name", "n", "--overwrite", "-q"]
        steps = ["--steps", "1", "--tokenizer", "word"] if kind == "word2vec" else []
        assert run([*train, *steps]) == 0
        (weights,) = (store.models_folder() / "n").glob("model.safetensors")
        weights.write_bytes(b"")
        assert "n is not an associative memory" in refusal(capsys, "restore", "a", "-m", "n")


def test_a_full_memory_is_announced(tmp_path, capsys):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{number:04}\n" for number in range(30)))
    flags = ["--set", "length=4", "--set", "bits=8", "--lr", "1"]
    assert run(["train", str(path), "--model", "hopfield", "--name", "m", *flags]) == 0
    said = capsys.readouterr().err
    assert "30 patterns in 32 units, 0.938 per unit; above 0.138, few are restored" in said
    assert "associative memories are stored in one pass; ignored: lr" in said

"""`sweep`: architectures at equal sizes, trained, kept, tabulated and drawn."""

from __future__ import annotations

import json
import shutil
import statistics

import pytest
from helpers_cli import records, refusal
from places import STORED

from seqgen import store
from seqgen.cli import run
from seqgen.plugins.tune import sweep
from seqgen.plugins.tune.sweep import SweepRecord
from seqgen.plugins.tune.sweep_command import picture, put_sizes, series
from seqgen.training import session
from seqgen.training.run import Diverged

TEXT = STORED / "tiny.txt"
SMALL = ("--parameters", "3k", "--steps", "2", "--precision", "float32", "--set", "num_layers=1")


def swept(capsys, *arguments):
    return records(capsys, "sweep", "--models", *arguments, *SMALL, TEXT)


def test_every_cell_is_trained_once_and_kept(capsys):
    first = swept(capsys, "rnn,gru", "--seeds", "1,2")
    assert [(one["seed"], one["architecture"]) for one in first] == [
        (1, "rnn"),
        (1, "gru"),
        (2, "rnn"),
        (2, "gru"),
    ]
    for one in first:
        model = store.find(one["name"])
        assert model.config["model"]["hidden_size"] == one["hidden_size"]
        assert model.config["training"]["seed"] == one["seed"]
        assert one["parameters"] == pytest.approx(3_000, rel=0.05)
        assert one["steps"] == 2 and one["stopped"] == "steps" and one["error"] is None
        assert one["name"].startswith(f"tiny-{one['architecture']}-3k-seed{one['seed']}-")
    written = {one["name"]: store.find(one["name"]).written for one in first}
    again = swept(capsys, "gru,rnn", "--seeds", "2")
    assert sorted(again, key=str) == sorted((one for one in first if one["seed"] == 2), key=str)
    assert all(store.find(name).written == then for name, then in written.items())
    assert len(store.list_models()) == 4


def test_another_budget_or_text_is_another_sweep(capsys, tmp_path):
    (one,) = swept(capsys, "rnn")
    (other,) = swept(capsys, "rnn", "--set", "batch_size=4")
    (copy,) = records(capsys, "sweep", "--models", "rnn", *SMALL, changed_copy(tmp_path))
    assert len({one["name"], other["name"], copy["name"]}) == 3
    held_out = changed_copy(tmp_path).rename(tmp_path / "val.txt")
    (first,) = swept(capsys, "rnn", "--set", f"val={held_out}")
    held_out.write_text(held_out.read_text() + "and more\n")
    (second,) = swept(capsys, "rnn", "--set", f"val={held_out}")
    assert first["name"] != second["name"]


def test_a_long_file_name_is_cut_in_the_names_of_models(capsys, tmp_path):
    path = tmp_path / f"{'a' * 240}.txt"
    shutil.copy(TEXT, path)
    (one,) = records(capsys, "sweep", "--models", "rnn", *SMALL, path)
    assert one["name"].startswith("a" * 60 + "-rnn-3k-")


def changed_copy(folder):
    path = folder / "tiny.txt"
    path.write_text(TEXT.read_text() + "more\n")
    return path


def test_it_is_what_train_gives(capsys):
    (one,) = swept(capsys, "rnn", "--seeds", "3")
    options = [*SMALL, "--model", "rnn", "--seed", "3", "--name", "alone"]
    (alone,) = records(capsys, "train", TEXT, *options)
    assert {key: alone[key] for key in ("val_loss", "parameters")} == {
        key: one[key] for key in ("val_loss", "parameters")
    }


def test_an_interrupted_cell_goes_on(capsys, monkeypatch):
    (whole,) = swept(capsys, "rnn", "--seeds", "5")
    store.remove(store.find(whole["name"]))
    stopping = {"after": 1}
    usual = session.Session._reason_to_stop

    def reason(self, run, stop):
        return "interrupted" if run.step == stopping["after"] else usual(self, run, stop)

    monkeypatch.setattr(session.Session, "_reason_to_stop", reason)
    capsys.readouterr()
    command = ["sweep", "--models", "rnn", "--seeds", "5", *SMALL, str(TEXT)]
    assert run([*command, "--quiet"]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip() == (
        f"seqgen: stopped in {whole['name']} at step 1; give the same command again to go on"
    )
    stopping["after"] = None
    (resumed,) = swept(capsys, "rnn", "--seeds", "5")
    assert (resumed["val_loss"], resumed["steps"]) == (whole["val_loss"], 2)


def test_a_cell_that_was_killed_before_its_first_checkpoint_begins_again(capsys):
    (whole,) = swept(capsys, "rnn", "--seeds", "5")
    model = store.find(whole["name"])
    model.write_record(**{**model.record, "result": None})
    shutil.rmtree(model.path / "checkpoints")
    (again,) = swept(capsys, "rnn", "--seeds", "5")
    assert (again["val_loss"], again["steps"]) == (whole["val_loss"], 2)


def test_an_interrupt_before_the_first_step_says_how_to_go_on(capsys, monkeypatch):
    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "train", interrupted)
    assert run(["sweep", "--models", "rnn", *SMALL, str(TEXT), "-q"]) == 130
    assert "give the same command again to go on" in capsys.readouterr().err


def test_a_cell_that_diverges_is_shown_and_the_sweep_goes_on(capsys, monkeypatch):
    usual = sweep.train

    def train(*data, architecture, **more):
        if architecture == "rnn":
            raise Diverged("the loss is nan at step 2 (nothing was saved)")
        return usual(*data, architecture=architecture, **more)

    monkeypatch.setattr(sweep, "train", train)
    failed, fine = swept(capsys, "rnn,gru")
    assert failed["stopped"] == "failed" and "nan" in failed["error"]
    assert failed["val_bits_per_char"] is None and fine["stopped"] == "steps"
    assert run(["sweep", "--models", "rnn,gru", *SMALL, str(TEXT)]) == 0
    said = capsys.readouterr()
    assert "rnn" in said.out and "failed" in said.out
    assert "failed: the loss is nan" in said.err


def test_real_divergence_is_told_apart(capsys):
    """With rates of a million a ReLU network overflows within some steps."""
    rate = ("--set", "lr=1e6", "--set", "clip_norm=0", "--set", "optimizer=sgd", "--steps", "9")
    form = ("--set", "activation=relu", "--set", "warmup=0", "--seeds", "1,2")
    command = ("sweep", "--models", "rnn", *SMALL, *form, *rate, TEXT)
    found = records(capsys, *command)
    assert [one["stopped"] for one in found] == ["failed", "failed"]
    assert all("diverged" in one["error"] for one in found)


def test_a_run_that_another_process_is_at_is_refused(capsys):
    (one,) = swept(capsys, "rnn")
    model = store.find(one["name"])
    record = model.record
    model.write_record(**{**record, "result": None})
    with model.locked():
        line = refusal(capsys, "sweep", "--models", "rnn", *SMALL, TEXT, "-q")
    assert one["name"] in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models", "rnn,lstn", *SMALL], "no architecture is called 'lstn'; did you mean 'lstm'"),
        (["--models", "rnn,ngram", *SMALL], "ngram is counted, and has no width to choose"),
        (["--models", "gru,seq2seq", *SMALL], "gru and seq2seq learn from different data"),
        (["--models", "seq2seq", "--parameters", "9k"], "tab"),
        (["--models", "rnn", "--steps", "2"], "--parameters is missing: "),
        (["--models", "rnn,", "--parameters", "3k"], "--models takes a list with commas between"),
        (["--models", "rnn", "--parameters", "3k,many"], "--parameters must be a whole number"),
        (["--models", "rnn", "--parameters", "1"], "the nearest are"),
        (["--models", "rnn", "--seeds", "x", "--parameters", "3k"], "--seeds"),
        (["--models", "rnn", "--seeds", "-1", "--parameters", "3k"], "--seeds must be at least 0"),
        (["--models", "rnn", *SMALL, "--set", "val=none"], "compares by held-out text"),
        (["--models", "rnn", *SMALL, "--set", "hidden_size=8"], "a sweep chooses it"),
        (["--models", "rnn", *SMALL, "--set", "colour=red"], "rnn has no setting 'colour'"),
        (["--models", "rnn", *SMALL, "--all"], "No such option: --all"),
        (["--models", "rnn", *SMALL, "--plot", "a.pdf"], "--plot writes .svg or .png"),
        (["--models", "rnn", *SMALL, "--seed", "1"], "No such option: --seed"),
        (["--models", "rnn", *SMALL, "--cache", "9"], "No such option: --cache"),
        (["--models", "rnn", *SMALL, "--batch-size", "8"], "No such option: --batch-size"),
        (["--models", "rnn", *SMALL, "--precision", "half"], "--precision"),
        (["--parameters", "3k"], "--models is missing: "),
    ],
)
def test_bad_requests_are_one_line_and_train_nothing(arguments, said, capsys):
    assert said in refusal(capsys, "sweep", *arguments, TEXT)
    assert not store.list_models()


def test_the_old_spelling_is_told_the_new_one(capsys):
    (one,) = swept(capsys, "rnn")
    assert run(["compare", "--sweep=rnn", *SMALL, str(TEXT), "--json"]) == 0
    then = capsys.readouterr()
    assert json.loads(then.out) == one and "now seqgen sweep --models;" in then.err
    said = refusal(capsys, "compare", "a", "--steps", "3")
    assert "No such option: --steps" in said and "now seqgen" not in said


def made(architecture, size, seed, bits):
    known = dict.fromkeys(SweepRecord.__dataclass_fields__)
    known |= {"architecture": architecture, "target_parameters": size, "seed": seed}
    return SweepRecord(**{**known, "parameters": size + 10, "val_bits_per_char": bits})


FOUND = [
    made("rnn", 1_000, 1, 3.0),
    made("rnn", 1_000, 2, 3.2),
    made("rnn", 30_000, 1, 2.5),
    made("rnn", 30_000, 2, None),
    made("gru", 1_000, 1, 2.8),
    made("gru", 1_000, 2, 2.9),
    made("gru", 30_000, 1, 2.0),
    made("gru", 30_000, 2, 2.2),
]


def test_the_table_by_hand(capsys):
    put_sizes(FOUND)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["bits/char", "1,000", "30.0", "K"]
    assert lines[1:3] == [["rnn", "3.1000", "failed"], ["gru", "2.8500", "2.1000"]]
    # Means 3.1 and 2.85; at the larger size 2.5, of the one that there is, and 2.1.
    assert lines[3] == ["range", "over", "architectures", "0.2500", "0.4000"]
    # 0.2 and 0.1; 0 of a single run, and 0.2.
    assert lines[4] == ["range", "over", "seeds", "0.1500", "0.1000"]


def test_the_series_leave_out_what_failed():
    assert series(FOUND) == {
        "rnn": [(1_010, pytest.approx(3.1))],
        "gru": [
            (1_010, pytest.approx(statistics.fmean([2.8, 2.9]))),
            (30_010, pytest.approx(2.1)),
        ],
    }


def test_the_picture_has_its_legend_and_sizes():
    title, *lines = picture(FOUND)
    assert title == "bits/char by parameters: a rnn, b gru"
    drawn = "\n".join(lines)
    assert drawn.count("a") == 1 and drawn.count("b") >= 1
    assert "1,000" in lines[-1] and "30.0 K" in lines[-1]
    assert picture([made("rnn", 9, 1, None)]) == []


def test_the_picture_in_a_file(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "sizes.svg"
    swept(capsys, "rnn,gru", "--plot", out)
    drawn = out.read_text()
    assert "rnn" in drawn and "bits/char" in drawn and "parameters" in drawn

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers_cli import records, refusal

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.plugins.tune import tune as tuning
from seqgen.plugins.tune.storage import LocalStorage
from seqgen.plugins.tune.study import RECORD, Study, TrialRecord, suggested_space
from seqgen.settings import Choices, Span

SPACE = {"lr": Span(0.001, 0.1, log=True), "rule": Choices(("adamw", "muon"))}
RECIPE = {"lr": 0.01, "rule": "adamw"}
SMALL = ("--set", "num_layers=1", "--set", "hidden_size=4", "--set", "batch_size=4", "--set")
SMALL = (*SMALL, "seq_len=8", "--trial-steps", "3", "--seed", "5", "--quiet")
TWO = ("--search", "lr=1e-3:1e-1:log", "--search", "dropout=0:0.5")


def a_study(name="s", sampler="random", seed=3):
    return Study.open(
        LocalStorage(name), {"samplers": sampler}, {"seed": seed, "budget": {"steps": 10}}
    )


def ended(trial, loss, stopped="steps"):
    record = {"trial": trial.index, "settings": trial.values, "seconds": 1.0}
    return TrialRecord(**record, val_loss=loss, stopped=stopped)


def try_out(study, count, loss=lambda values: values["lr"], most=100):
    """Run so many trials whose loss is a function of their settings; return their settings."""
    tried = []
    for _ in range(count):
        with study.begin(SPACE, RECIPE, most) as trial:
            study.end(trial, ended(trial, loss(trial.values)), trial.values)
        tried.append(trial.values)
    return tried


def test_an_architecture_suggests_what_its_settings_say():
    values = {"lr": 0.01, "batch_size": 32, "hidden_size": 128, "dropout": 0.1, "order": 5}
    space = suggested_space("lstm", {"weight_decay"}, values)
    assert space["lr"] == Span(0.00125, 0.08, log=True)
    assert space["hidden_size"] == Choices((64, 128, 256))
    assert space["dropout"] == Span(0.0, 0.5)
    assert set(space) == {"lr", "hidden_size", "dropout", "batch_size"}
    assert suggested_space("ngram", set(), values) == {"order": Span(2, 9)}


# A study on disk


@pytest.mark.slow
def test_trial_0_is_the_recipe_and_the_seed_decides_the_others():
    first, second, other = (
        try_out(a_study(name, seed=seed), 3) for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first[0] == RECIPE
    assert first == second
    assert first[1:] != other[1:]
    assert all(0.001 <= values["lr"] <= 0.1 for values in first)


def test_a_recipe_outside_the_ranges_is_tried_all_the_same():
    study = a_study()
    with study.begin(SPACE, {"lr": 5.0, "rule": "adamw"}, 1) as trial:
        assert trial.values == {"lr": 5.0, "rule": "adamw"}


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("random", marks=pytest.mark.slow)])
def test_a_study_that_goes_on_tries_what_it_would_have_tried(sampler):
    whole = try_out(a_study("whole", sampler), 9)
    assert try_out(a_study("parts", sampler), 4) == whole[:4]
    assert try_out(a_study("parts", sampler), 5) == whole[4:]


def test_a_killed_trial_is_tried_again_and_no_finished_one_is_lost():
    whole = try_out(a_study("whole"), 4)
    study = a_study()
    try_out(study, 2)
    with contextlib.ExitStack() as alive:  # what a kill leaves: no lock, and no end
        killed = study._next(SPACE, RECIPE, 100, alive)
        killed.should_stop(1.0, 4)
    assert killed.folder.is_dir()
    assert [record.trial for record in study.records()] == [0, 1]
    again = a_study()
    assert try_out(again, 2) == whole[2:]
    assert [record.trial for record in again.records()] == [0, 1, 2, 3]
    assert not list((again.folder / "trials").iterdir())


def test_two_processes_share_the_trials():
    one, other = a_study(), a_study()
    with one.begin(SPACE, RECIPE, 3) as first, other.begin(SPACE, RECIPE, 3) as second:
        assert (first.index, second.index) == (0, 1)
        with one.begin(SPACE, RECIPE, 3) as third, other.begin(SPACE, RECIPE, 3) as fourth:
            assert third.index == 2
            assert fourth is None
            other.end(second, ended(second, 2.0), {})
    assert [record.trial for record in one.records()] == [1]


def test_a_trial_that_is_worse_than_the_median_is_pruned_but_not_at_its_start():
    study = a_study()
    for loss in (1.0, 1.1, 1.2, 1.3):
        with study.begin(SPACE, RECIPE, 100) as trial:
            assert not any(trial.should_stop(loss, tenth) for tenth in range(1, 10))
            study.end(trial, ended(trial, loss), {})
    with study.begin(SPACE, RECIPE, 100) as trial:
        verdicts = [trial.should_stop(9.0, tenth) for tenth in range(1, 6)]
        assert verdicts == [False, False, True, True, True]
        study.end(trial, ended(trial, 9.0, "pruned"), {})
    assert not study.records()[-1].is_complete


@pytest.mark.slow
def test_importance_finds_the_setting_that_matters():
    study = a_study()
    try_out(study, 8, loss=lambda values: 1.0 + (values["rule"] == "muon"))
    found = study.importance(["lr", "rule"])
    assert list(found) == ["rule", "lr"]
    assert found["rule"] > 0.7
    assert sum(found.values()) == pytest.approx(1)


def test_importance_needs_trials_that_differ():
    study = a_study()
    try_out(study, 1)
    assert study.importance(["lr", "rule"]) == {}
    try_out(study, 2, loss=lambda values: 0.01)
    assert study.importance(["lr", "rule"]) == {}


@pytest.mark.slow
def test_tpe_learns_where_random_search_does_not():
    def best(sampler):
        tried = try_out(a_study(sampler, sampler), 30, lambda v: abs(v["lr"] - 0.002))
        late = [abs(values["lr"] - 0.002) for values in tried[15:]]
        return sum(late) / len(late)

    assert best("tpe") < best("random") / 2


def test_a_damaged_study_is_refused_in_one_line():
    study = a_study()
    (study.folder / "study.json").write_text("{")
    with pytest.raises(SeqgenError, match=r"study\.json is damaged"):
        a_study()


# The command


@pytest.mark.slow
def test_the_best_settings_train_to_the_loss_of_the_trial(capsys, text, home):
    *trials, last = records(capsys, "tune", text, "--trials", "4", *TWO, *SMALL)
    assert [record["trial"] for record in trials] == [0, 1, 2, 3]
    assert trials[0]["settings"] == {"lr": 0.01, "dropout": 0.1}
    whole = {r["trial"]: r["val_loss"] for r in trials if r["stopped"] == "steps"}
    assert last["best"] == min(whole, key=whole.get)
    assert last["val_loss"] == whole[last["best"]]
    assert last["recipe_val_loss"] == whole[0]
    assert sum(last["importance"].values()) == pytest.approx(1)
    train = ("train", text, "--config", last["config"], "--steps", "3", "--seed", "5", "--quiet")
    (result,) = records(capsys, *train, "--name", "m")
    assert result["val_loss"] == last["val_loss"]
    config = store.find("m").config
    assert config["training"]["lr"] == last["settings"]["lr"]
    assert config["model"]["dropout"] == last["settings"]["dropout"]
    assert config["training"]["seq_len"] == 8
    assert "hidden_size = 4\n" in Path(last["config"]).read_text()
    # The store has the one model alone, and the study no models at all.
    assert [model.name for model in store.list_models()] == ["m"]
    assert not list(home.rglob("studies/**/*.safetensors"))
    assert not list((home / "studies" / "text-tune" / "trials").iterdir())


@pytest.mark.slow
def test_trial_0_is_what_train_would_do(capsys, text):
    first, *_ = records(capsys, "tune", text, "--trials", "1", *TWO, *SMALL)
    same = ("--layers", "1", "--hidden-size", "4", "--batch-size", "4", "--seq-len", "8")
    (result,) = records(capsys, "train", text, *same, "--steps", "3", "--seed", "5", "--quiet")
    assert first["val_loss"] == result["val_loss"]


def test_the_same_name_goes_on_and_other_questions_are_refused(capsys, text, tmp_path):
    asked = ("tune", text, *TWO, *SMALL)
    before = records(capsys, *asked, "--trials", "2")
    after = records(capsys, *asked, "--trials", "3")
    assert after[:2] == before[:2]
    assert [record.get("trial") for record in after] == [0, 1, 2, None]
    more = "was begun with other"
    assert f"{more} settings" in refusal(capsys, *asked, "--trials", "3", "--set", "clip_norm=2")
    assert f"{more} values" in refusal(capsys, *asked, "--trials", "3", "--search", "beta1=0:0.9")
    assert f"{more} samplers" in refusal(capsys, *asked, "--trials", "3", "--sampler", "random")
    text.write_text("another text, that has other words in it\n" * 20)
    assert f"{more} data" in refusal(capsys, *asked, "--trials", "3")
    other = [argument if argument != "5" else "6" for argument in asked]
    assert "has --seed 5" in refusal(capsys, *other, "--trials", "3")


@pytest.mark.slow
def test_an_n_gram_model_searches_its_order(capsys, text):
    *trials, last = records(
        capsys, *("tune", text, "--model", "ngram", "--trials", "4", "--seed", "1", "--quiet")
    )
    assert trials[0]["settings"] == {"order": 5}
    assert all(2 <= record["settings"]["order"] <= 9 for record in trials)
    assert last["val_loss"] == min(record["val_loss"] for record in trials)


@pytest.mark.slow
def test_architectures_are_compared_and_contradictions_are_failed_trials(capsys, text):
    search = ("--search", "model=gru,lstm", "--search", "num_layers=1,2")
    small = ("--set", "hidden_size=8", "--set", "batch_size=4", "--trial-steps", "2", "--quiet")
    *trials, last = records(capsys, "tune", text, "--trials", "4", *search, *small, "--seed", "2")
    assert trials[0]["settings"]["model"] == "lstm"
    assert {record["settings"]["model"] for record in trials} == {"gru", "lstm"}
    assert last["settings"]["model"] in ("gru", "lstm")
    assert f'architecture = "{last["settings"]["model"]}"' in Path(last["config"]).read_text()
    heads = ("--model", "transformer", "--search", "num_heads=2,3", "--name", "heads")
    *trials, last = records(capsys, "tune", text, "--trials", "4", *heads, *small, "--seed", "2")
    failed = [record for record in trials if record["stopped"] == "failed"]
    assert all(record["settings"]["num_heads"] == 3 for record in failed)
    assert failed
    assert "num_heads" in failed[0]["error"]


def test_ctrl_c_is_one_line_and_the_trial_is_tried_again(capsys, text, monkeypatch):
    asked = ("tune", str(text), *TWO, *SMALL)
    (first, _) = records(capsys, *asked, "--trials", "1")
    true = tuning.train

    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "train", interrupted)
    assert run([*asked, "--trials", "2"]) == 130
    assert capsys.readouterr().err == (
        "seqgen: stopped in trial 1, and all trials before are kept; give the same command again "
        "to go on\n"
    )
    monkeypatch.setattr(tuning, "train", true)
    after = records(capsys, *asked, "--trials", "2")
    assert after[0] == first
    assert [record.get("trial") for record in after] == [0, 1, None]


@pytest.mark.slow
def test_a_folder_is_read_as_text_where_that_is_asked(capsys, tmp_path):
    """A folder whose only text is records: the hashes of the study are of what is trained on."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "page.html").write_text("<p>the cat sat on the mat</p>\n" * 40)
    (folder / "b.jsonl").write_text('{"text": "the dog sat on the log"}\n' * 40)
    asked = ("tune", folder, "--as-text", *TWO, *SMALL)
    before = records(capsys, *asked, "--trials", "1")
    assert records(capsys, *asked, "--trials", "2")[0] == before[0]
    (folder / "b.jsonl").write_text("changed\n" * 40)
    assert "was begun with other data" in refusal(capsys, *asked, "--trials", "3")


@pytest.mark.slow
def test_the_time_is_for_beginning_trials(capsys, text):
    *trials, last = records(capsys, "tune", text, "--minutes", "0.001", *TWO, *SMALL)
    assert [record["trial"] for record in trials] == [0]
    assert last["best"] == 0
    *trials, _ = records(capsys, "tune", text, "--minutes", "0.001", *TWO, *SMALL)
    assert [record["trial"] for record in trials] == [0, 1]


def started(text, trials, home):
    """Start the command in a process of its own; its records come by its standard output."""
    asked = ("tune", str(text), "--trials", str(trials), *TWO, *SMALL, "--json")
    environment = {**os.environ, "SEQGEN_HOME": str(home), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "seqgen", *asked]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


def essence(records):
    """Return what does not depend on time, of the records of trials."""
    return [(r["trial"], r["settings"], r["val_loss"]) for r in records if "trial" in r]


@pytest.mark.long
def test_kill_9_loses_no_trial_that_had_ended(text, home, tmp_path):
    whole, _ = started(text, 6, tmp_path / "other").communicate(timeout=1200)
    expected = essence(map(json.loads, whole.splitlines()))
    seen = []
    for count in (2, 4):
        with started(text, 6, home) as process:
            seen = [json.loads(process.stdout.readline()) for _ in range(count)]
            time.sleep(0.05 * count)
            process.kill()
    last, _ = started(text, 6, home).communicate(timeout=1200)
    after = [json.loads(line) for line in last.splitlines()]
    assert after[:4] == seen
    assert essence(after) == expected
    assert not list((home / "studies" / "text-tune" / "trials").iterdir())


@pytest.mark.slow
def test_two_processes_work_on_one_study(text, home):
    both = [started(text, 8, home) for _ in range(2)]
    outputs = [process.communicate(timeout=1200)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    found = [essence(map(json.loads, lines)) for lines in outputs]
    indices = [[trial for trial, _, _ in one] for one in found]
    assert all(len(set(one)) == len(one) for one in indices)
    assert sorted(max(indices, key=len)) == list(range(8))
    merged = {trial: (settings, loss) for one in found for trial, settings, loss in one}
    assert len(merged) == 8
    assert all(merged[t] == (settings, loss) for one in found for t, settings, loss in one)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --trials N or --minutes X"),
        (("--trials", "2", "--search", "lrr=1:2"), "did you mean 'lr'"),
        (("--trials", "2", "--search", "lr=2:1"), "must rise"),
        (("--trials", "2", "--search", "lr=1"), "only one value"),
        (("--trials", "2", "--search", "lr=-1:1"), "lr must be more than 0"),
        (("--trials", "2", "--search", "dropout=0:0.5:log"), "no :log"),
        (("--trials", "2", "--search", "schedule=1:2"), "schedule is not a number"),
        (("--trials", "2", "--search", "schedule=linear,cosin"), "did you mean 'cosine'"),
        (("--trials", "2", "--search", "tokenizer=char,byte"), "not comparable"),
        (("--trials", "2", "--search", "steps=1:2"), "the same for all trials"),
        (("--trials", "2", "--search", "model=gru,grru"), "did you mean 'gru'"),
        (("--trials", "2", "--search", "model=gru,seq2seq"), "learn from different data"),
        (("--trials", "2", *TWO, "--search", "lr=1:2"), "is given twice"),
        (("--trials", "2", *TWO, "--set", "lr=1"), "both searched and given"),
        (("--trials", "2", "--set", "steps=4"), "give --trial-steps"),
        (("--trials", "2", "--val", "none"), "no --val none"),
        (
            ("--trials", "2", "--sampler", "grid"),
            "--sampler must be one of tpe, random, not",
        ),
        (("--trials", "2", "--name", "a b"), "cannot be a model's name"),
        (("--trials", "2", "--trial-steps", "2", "--trial-minutes", "1"), "one budget"),
        (("--list",), "searches nothing"),
        (("--list", "--delete", "a"), "give either"),
    ],
)
def test_bad_inputs_are_one_line(capsys, text, arguments, said):
    assert said in refusal(capsys, "tune", text, *arguments)


def test_without_its_packages_a_line_says_what_to_install(capsys, text, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setitem(sys.modules, "sklearn", None)  # pip knows it by another name
    line = refusal(capsys, "tune", text, "--trials", "2")
    assert line.endswith("packages optuna and scikit-learn: pip install optuna scikit-learn")


def test_a_refused_command_leaves_no_study(capsys, text, home):
    refusal(capsys, "tune", text, "--trials", "2", "--search", "lrr=1:2")
    assert not (home / "studies").exists()


@pytest.mark.slow
def test_pairs_and_labels_are_tuned_too(capsys, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{n} a\t{n} b\n" for n in range(60)))
    small = ("--set", "hidden_size=4", "--trial-steps", "2", "--trials", "2", "--quiet")
    for kind in (("--model", "seq2seq"), ("--labels", "--name", "labelled")):
        *trials, last = records(
            capsys, "tune", pairs, *kind, "--search", "lr=1e-3:1e-2", *small, "--seed", "1"
        )
        assert len(trials) == 2
        assert last["val_loss"] > 0
        assert "seq_len" not in Path(last["config"]).read_text()


def test_records_are_json_with_stable_keys(capsys, text):
    *trials, last = records(capsys, "tune", text, "--trials", "1", *TWO, *SMALL)
    assert list(trials[0])[:5] == ["trial", "settings", "val_loss", "stopped", "seconds"]
    assert list(last)[:4] == ["best", "settings", "val_loss", "importance"]
    assert json.dumps(last)


def test_a_kill_after_the_record_was_kept_loses_nothing(home):
    study = a_study("killed")
    with pytest.raises(KeyboardInterrupt), study.begin(SPACE, RECIPE, 10) as trial:
        record = TrialRecord(
            trial=trial.index, settings={}, val_loss=2.0, seconds=1.0, stopped="steps"
        )
        trial.optuna.set_user_attr(RECORD, record.__dict__)
        raise KeyboardInterrupt  # before Optuna was told
    with study.begin(SPACE, RECIPE, 10) as following:
        assert following.index == trial.index + 1
    assert [(each.trial, each.val_loss) for each in study.records()] == [(0, 2.0)]


def test_files_of_others_in_the_folder_of_a_trial_stay(capsys):
    study = a_study("first")
    with study.begin(SPACE, RECIPE, 10) as trial:
        folder = trial.folder
        (folder / "mine").mkdir()
        (folder / "mine" / "notes.txt").write_text("mine")
    assert (folder / "mine" / "notes.txt").exists()
    said = refusal(capsys, "tune", "--delete", "first", "--yes")
    assert "did not write (mine/notes.txt)" in said
    assert (folder / "mine" / "notes.txt").exists()


def test_studies_are_listed_and_deleted(capsys, home):
    assert records(capsys, "tune", "--list") == []
    study = a_study("first")
    try_out(study, 3)
    with study.begin(SPACE, RECIPE, 10) as trial:
        ended_badly = TrialRecord(
            trial=trial.index, settings={}, val_loss=0.0, seconds=1.0, stopped="pruned"
        )
        study.end(trial, ended_badly, {})
        assert "a process works on" in refusal(capsys, "tune", "--delete", "first", "--yes")
    a_study("second")
    found = records(capsys, "tune", "--list")
    best = min(record.val_loss for record in study.records() if record.is_complete)
    assert [list(record.values())[:4] for record in found] == [
        ["first", 4, 3, best],
        ["second", 0, 0, None],
    ]
    assert "asks for confirmation" in refusal(capsys, "tune", "--delete", "first")
    assert run(["tune", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["first", "4", "3"]
    assert run(["tune", "--delete", "first", "--yes", "--quiet"]) == 0
    assert [path.name for path in (home / "studies").iterdir()] == ["second"]
    (home / "studies" / "second" / "notes.txt").write_text("mine")
    assert "notes.txt" in refusal(capsys, "tune", "--delete", "second", "--yes")
    (home / "studies" / "second" / "notes.txt").rename(home / "studies" / "second" / "trials" / "n")
    assert "did not write (n)" in refusal(capsys, "tune", "--delete", "second", "--yes")
    assert "no study 'first'" in refusal(capsys, "tune", "--delete", "first", "--yes")
    (home / "studies" / "notes.txt").write_text("mine")  # no study
    (home / "studies" / "second" / "study.db").write_text("no database")
    found = records(capsys, "tune", "--list")
    assert [(record["name"], record["trials"]) for record in found] == [("second", None)]

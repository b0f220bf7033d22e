"""`--print-jobs`: commands for a cluster, that may be killed and given twice."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers_cli import needs, records, refusal

from seqgen import store
from seqgen.cli import run

pytestmark = needs("tune")

SHAPE = ("--hidden-size", "4", "--layers", "1", "--batch-size", "4", "--seq-len", "8")
SWEEP = ("--models", "rnn,gru", "--parameters", "2k,3k", "--steps", "4", "--quiet")


@pytest.fixture
def text(text, tmp_path, monkeypatch):
    """The text in the current folder, under a name that a shell would split."""
    monkeypatch.chdir(tmp_path)
    return text.rename("a text.txt").name


def jobs(capsys, *arguments) -> list[list[str]]:
    """Return the arguments of the printed commands, without `seqgen`."""
    capsys.readouterr()
    assert run([*map(str, arguments), "--print-jobs"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line[0] == "seqgen" for line in lines)
    return [line[1:] for line in lines]


def test_the_jobs_of_a_sweep_train_what_the_sweep_would_train(capsys, text):
    sweep = ("sweep", text, "--models", "rnn,gru", "--parameters", "2k", "--steps", "4", "--quiet")
    printed = jobs(capsys, *sweep, "--seeds=1,2")
    assert len(printed) == 4
    assert not store.list_models()
    for job in (*printed, printed[0]):  # the order does not matter, nor that one is given twice
        assert run(job) == 0
    trained = {model.name: model.digest for model in store.list_models()}
    found = records(capsys, *sweep, "--seeds", "1,2")
    assert {record["name"] for record in found} == trained.keys()
    assert len(found) == 4
    assert {model.name: model.digest for model in store.list_models()} == trained
    wanted = {(a, 2000, s) for a in ("rnn", "gru") for s in (1, 2)}
    assert {(r["architecture"], r["target_parameters"], r["seed"]) for r in found} == wanted


def test_jobs_are_records_too(capsys, text):
    found = records(capsys, "sweep", text, *SWEEP, "--print-jobs")
    assert [record["index"] for record in found] == [0, 1, 2, 3]
    assert all(record["command"].startswith("seqgen sweep --models ") for record in found)


def test_the_jobs_of_members_are_networks_to_be_mixed(capsys, text):
    asked = ("train", text, "--members", "3", "--model", "gru", "--name=ens", "--seed", "5")
    printed = jobs(capsys, *asked, "--steps", "4", *SHAPE, "--quiet")
    said = "3 jobs; when all have ended: seqgen mix ens-1 ens-2 ens-3 --name ens\n"
    run([*asked, "--steps", "4", "--print-jobs"])
    assert capsys.readouterr().err == said
    for job in printed:
        assert run(job) == 0
    digests = [store.find(f"ens-{number}").digest for number in (1, 2, 3)]
    assert len(set(digests)) == 3
    assert [store.find(f"ens-{n}").config["training"]["seed"] for n in (1, 2, 3)] == [5, 6, 7]
    for job in printed:  # twice
        assert run(job) == 0
    assert [store.find(f"ens-{number}").digest for number in (1, 2, 3)] == digests
    (mixed,) = records(capsys, "mix", "ens-1", "ens-2", "ens-3", "--name", "ens")
    assert mixed["parts"] == ["ens-1", "ens-2", "ens-3"]


def members(text, *more):
    return ("train", text, "--members", "2", "--model", "gru", "--name", "m", "--seed", "1", *more)


def test_overwrite_is_for_the_mixture_of_the_members(capsys, text):
    asked = members(text, "--overwrite", "--steps", "2", *SHAPE)
    said = "2 jobs; when all have ended: seqgen mix m-1 m-2 --name m --overwrite\n"
    assert run([*asked, "--print-jobs"]) == 0
    assert capsys.readouterr().err == said
    for job in jobs(capsys, *asked, "--quiet"):
        assert "--overwrite" not in job
        assert run(job) == 0
    said = refusal(capsys, *asked, "--print-jobs")  # the jobs would do nothing
    assert "m-1, m-2 exist already" in said
    assert said.endswith("first run: seqgen models remove m-1 m-2")
    assert run(["models", "remove", "m-1", "m-2", "--yes"]) == 0
    assert len(jobs(capsys, *asked)) == 2


@pytest.mark.parametrize(
    ("data", "model", "more", "said"),
    [
        ("a text.txt", "ngram", (), "--members is for networks, which ngram is not"),
        ("a text.txt", "gru", ("--hidden-size", "0"), "--hidden-size"),
        ("a text.txt", "gru", ("--set", "hiddn_size=4"), "did you mean"),
        ("a text.txt", "gru", ("--init-from", "nosuch"), "no model"),
        ("no.txt", "gru", (), "there is no file no.txt"),
    ],
)
def test_members_that_could_not_be_trained_are_no_jobs(capsys, text, data, model, more, said):
    asked = [model if word == "gru" else word for word in members(data, *more)]
    for flags in (["--print-jobs"], []):
        assert said in refusal(capsys, *asked, *flags)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_a_job_is_a_line_whatever_its_words_contain(capsys, text):
    name = str(Path(text).rename("it's\na \\ \x1b[1m\x85text.txt"))
    for asked in (["sweep", name, *SWEEP], members(name, "--steps", "2")):
        capsys.readouterr()
        assert run([*asked, "--print-jobs"]) == 0
        (first, *_), count = (out := capsys.readouterr().out).splitlines(), out.count("\n")
        assert count == (4 if asked[0] == "sweep" else 2) and "\x1b" not in out
        shell = f"seqgen() {{ printf '%s\\0' \"$@\"; }}; {first}"
        words = subprocess.run(["bash", "-c", shell], capture_output=True, check=True).stdout
        assert os.fsencode(name) in words.split(b"\0")


def test_a_run_that_continues_is_the_run_that_never_stopped(capsys, text):
    asked = ["train", text, "--model", "gru", "--steps", "6", *SHAPE, "--seed", "1", "--quiet"]
    assert run([*asked, "--name", "whole"]) == 0
    assert run([*asked, "--name", "parts", "--continue", "--stop-after", "2"]) == 0
    assert store.result_of(store.find("parts"))["steps"] == 2
    assert run([*asked, "--name", "parts", "--continue"]) == 0
    parts, whole = (store.result_of(store.find(name)) for name in ("parts", "whole"))
    assert parts["val_loss"] == whole["val_loss"]
    assert run([*asked, "--name", "parts", "--continue"]) == 0
    assert "parts has finished" not in capsys.readouterr().err  # --quiet
    longer = ["8" if argument == "6" else argument for argument in asked]
    (result,) = records(capsys, *longer, "--name", "parts", "--continue")
    assert result["steps"] == 8


def test_a_counted_model_that_continues_has_finished(capsys, text):
    asked = ("train", text, "--model", "ngram", "--name", "counts", "--continue")
    (counted,) = records(capsys, *asked)
    digest = store.find("counts").digest
    assert records(capsys, *asked) == [counted]
    assert run([*asked, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert store.find("counts").digest == digest


def test_the_jobs_of_a_study_are_its_workers(capsys, text):
    asked = ("tune", text, "--trials", "4", "--trial-steps", "2", "--model", "gru")
    capsys.readouterr()
    assert run([*asked, "--print-jobs=3", "--storage", "j.log"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert set(map(tuple, map(shlex.split, lines))) == {
        ("seqgen", "tune", "--name", "a-text-tune", *asked[1:], "--storage", "j.log")
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sweep", "TEXT", *SWEEP, "--plot", "a.svg"), "give --print-jobs or --plot, not both"),
        (("sweep", "TEXT", "--models", "grru", *SWEEP[2:]), "did you mean 'gru'"),
        (("sweep", "no.txt", *SWEEP), "there is no file no.txt"),
        (("sweep", "-", *SWEEP), "jobs cannot read this standard input"),
        (("train", "TEXT"), "--print-jobs prints a job for each of --members K"),
        (("train", "TEXT", "--members", "2", "--name", "a"), "give --model ARCHITECTURE"),
        (("train", "TEXT", "--members", "2", "--model", "gru"), "give --name NAME"),
        (("train", "-", "--members", "2", "--model", "gru", "--name", "a"), "jobs cannot read"),
        (("train", "TEXT", "--members", "2", "--model", "gru", "--name", "a b"), "cannot be"),
        (("train", "TEXT", "--members", "2", "--with-ngram", "3", "--model", "gru"), "not both"),
    ],
)
def test_what_cannot_be_jobs_is_refused(capsys, text, arguments, said):
    given = [text if argument == "TEXT" else argument for argument in arguments]
    assert said in refusal(capsys, *given, "--print-jobs")
    assert not store.list_models()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--continue",), "--continue resumes the model of --name NAME"),
        (("--continue", "--name", "a", "--overwrite"), "not both"),
        (("--continue", "--name", "a b"), "cannot be a model's name"),
    ],
)
def test_continue_needs_a_name(capsys, text, arguments, said):
    assert said in refusal(capsys, "train", text, *arguments)


def test_print_jobs_is_no_option_in_python(text):
    import seqgen
    from seqgen.errors import UsageError

    with pytest.raises(UsageError, match="print_jobs is for the command line"):
        seqgen.train(text, members=2, architecture="gru", print_jobs=True, steps=2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_that_is_stopped_goes_on_when_it_is_given_again(capsys, text, number):
    """As a cluster stops it at its time limit, and as a machine fails."""
    sweep = ("--models", "gru", "--parameters", "2k", "--steps", "400", "--quiet")
    sweep = (*sweep, "--set", "checkpoint_every=20", "--set", "validate_every=100000")
    (job,) = jobs(capsys, "sweep", text, *sweep)
    process = subprocess.Popen([sys.executable, "-m", "seqgen", *job], stderr=subprocess.PIPE)
    while not store.list_models():
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGTERM else -number)
    (model,) = store.list_models()
    steps = model.read_checkpoint()[1]["run"]["step"]
    assert 20 <= steps < 400
    assert run(job) == 0
    (found,) = records(capsys, "sweep", text, *sweep)
    assert found["steps"] == 400

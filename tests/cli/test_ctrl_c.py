"""Ctrl-C in `seqgen train`, in real processes: what is saved, what is said, and what goes on."""

from __future__ import annotations

import hashlib
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seqgen import store
from seqgen.cli import run

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = ["--hidden-size", "8", "--layers", "1", "--dropout", "0.2", "--precision", "float32"]
RUN = ["--name", "x", "--seed", "1", "--threads", "1", "--set", "validate_every=3", "--steps", "6"]

# A console script that stops for a moment before it calls some functions, and says so by a byte; or
# that sets a number.
DRIVER = """
import functools, importlib, os, sys, time
import seqgen.__main__ as entry

ready, places = int(sys.argv[1]), sys.argv[2].split()
sys.argv[1:3] = []

def announce(function, *arguments, **options):
    os.write(ready, b".")
    time.sleep(0.5)
    return function(*arguments, **options)

def patch():
    for place in places:
        place, *value = place.split("=")
        module, path = place.split(":")
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(module))
        if value:
            setattr(owner, name, float(*value))
            continue
        function = getattr(owner, name)
        wrapped = lambda *a, function=function, **o: announce(function, *a, **o)
        setattr(owner, name, wrapped)

entry.use_utf8 = patch
entry.main()
"""

NOTHING = "seqgen: interrupted; nothing saved yet\n"
LOOP, SESSION, TRAIN = (f"seqgen.training.{name}:" for name in ("loop", "session", "train"))
STEP, VALIDATION = f"{LOOP}Trainer._step", "seqgen.training.validations:TextValidation.quick"
WRITING = "seqgen.store.folder:TrainingFolder.write_checkpoint"

BEFORE = {
    "options": ["seqgen.cli:run"],
    "reading": [f"{TRAIN}prepare_plan"],
    "choosing": [f"{TRAIN}choose_for_machine"],
    "folder": [f"{TRAIN}write_new"],
    "record": [f"{SESSION}Session.write_record"],
    "first-sample": [f"{SESSION}Session._show_sample"],
}
# Where the signal comes, how many there are, and after how many steps the run is saved.
AFTER = {
    "first-step": ([STEP], 1, 1),
    "first-line": ([f"{LOOP}Trainer._log", f"{LOOP}LOG_SECONDS=0"], 1, 1),
    "validation": ([VALIDATION], 1, 3),
    "saving": ([STEP, WRITING], 2, 1),
    "publishing": ([STEP, "seqgen.store.lifecycle:NewModel.publish"], 2, 1),
}


@pytest.fixture(autouse=True)
def text(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "text.txt").write_text(TEXT)
    return str(tmp_path / "text.txt")


def interrupted(places, times, arguments, number=signal.SIGINT):
    """Run a command that gets a signal at each of the first calls; return exit code and stderr."""
    read, write = os.pipe()
    call = [sys.executable, "-c", DRIVER, str(write), " ".join(places), *arguments]
    with subprocess.Popen(
        call,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[write],
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        os.close(write)
        for _ in range(times):
            assert os.read(read, 1) == b".", process.stderr.read()
            os.kill(process.pid, number)
        _, said = process.communicate(timeout=120)
    os.close(read)
    return process.returncode, said.decode()


def weights(name: str) -> str:
    return hashlib.sha256((store.find(name).path / store.WEIGHTS).read_bytes()).hexdigest()


def is_empty() -> bool:
    """Say whether no model is there, not even a hidden folder of one."""
    folder = store.models_folder()
    return not folder.exists() or not [path for path in folder.iterdir() if path.is_dir()]


def check_resumes_exactly(text: str, arguments: list[str]) -> None:
    """A resumed run gives the weights of one that was never interrupted."""
    assert run(["train", "--resume", "x", "--quiet", "--threads", "1"]) == 0
    whole = ["whole" if word == "x" else word for word in arguments]
    assert run(["train", text, *whole, "--quiet"]) == 0
    assert weights("x") == weights("whole")
    logged = [[r["step"] for r in store.find(n).logged(store.METRICS)] for n in ("x", "whole")]
    assert set(logged[1]) <= set(logged[0])


@pytest.mark.fast_for("folder")
@pytest.mark.parametrize("moment", BEFORE)
def test_before_the_first_step_nothing_is_saved(moment, text):
    code, said = interrupted(BEFORE[moment], 1, ["train", text, *RUN, *TINY, "--quiet"])
    assert (code, said) == (130, NOTHING)
    assert is_empty()


@pytest.mark.slow
def test_while_it_compiles_nothing_is_saved(text):
    compiled = ["--model", "transformer", "--set", "compile=true", *TINY]
    place = [f"{LOOP}Trainer.compile"]
    code, said = interrupted(place, 1, ["train", text, *RUN, *compiled, "--quiet"])
    assert (code, said) == (130, NOTHING)
    assert is_empty()


@pytest.mark.slow
def test_a_counted_model_has_nothing_to_resume(text):
    place = ["seqgen.training.estimate:write_record"]
    command = ["train", text, "--model", "ngram", "--name", "x", "--quiet"]
    assert interrupted(place, 1, command) == (130, NOTHING)
    assert is_empty()


@pytest.mark.fast_for("saving")
@pytest.mark.parametrize("moment", AFTER)
def test_from_the_first_step_on_the_run_is_saved(moment, text, capfd):
    places, times, steps = AFTER[moment]
    code, said = interrupted(places, times, ["train", text, *RUN, *TINY, "--quiet"])
    done = "1 step" if steps == 1 else f"{steps} steps"
    last = f"seqgen: stopped after {done}; resume with: seqgen train --resume x\n"
    assert (code, said) == (130, last)
    assert store.find("x").read_checkpoint()[1]["run"]["step"] == steps
    assert store.result_of(store.find("x"))["val_loss"] is None
    assert run(["models"]) == 0
    assert "0 validations" in capfd.readouterr().out
    check_resumes_exactly(text, [*RUN, *TINY])


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGTERM"), reason="there is no SIGTERM")
def test_sigterm_does_the_same(text):
    code, said = interrupted([STEP], 1, ["train", text, *RUN, *TINY, "-q"], signal.SIGTERM)
    assert code == 130 and said.endswith("resume with: seqgen train --resume x\n")
    check_resumes_exactly(text, [*RUN, *TINY])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [["--members", "2"], ["--with-ngram", "2"], ["--labels", "--val", "0.2"]], ids="".join
)
def test_every_kind_of_network_is_saved_and_resumed(kind, text):
    if "--labels" in kind:
        Path(text).write_text("".join(f"{'ab'[n % 2]}\tline {n}\n" for n in range(40)))
    command = [*RUN, *TINY, *kind]
    code, said = interrupted([STEP], 1, ["train", text, *command, "--quiet"])
    assert code == 130 and "stopped after 1 step; resume with" in said
    check_resumes_exactly(text, command)


@pytest.mark.slow
def test_the_final_validation_is_made_when_the_run_is_resumed(text):
    place = [f"{SESSION}load_best"]
    alone = [*RUN, *TINY, "--model", "lstm"]
    code, said = interrupted(place, 1, ["train", text, *alone, "--quiet"])
    assert code == 130
    assert said == (
        "seqgen: stopped before the final validation; resume with: seqgen train --resume x\n"
    )
    check_resumes_exactly(text, alone)


@pytest.mark.slow
def test_an_interrupt_while_resuming_changes_nothing(text):
    assert run(["train", text, *RUN, *TINY, "--quiet", "--stop-after", "2"]) == 0
    place = ["seqgen.training.resume:_reload_model_and_data"]
    code, said = interrupted(place, 1, ["train", "--resume", "x", "--quiet"])
    assert code == 130 and said.endswith("with: seqgen train --resume x\n")
    check_resumes_exactly(text, [*RUN, *TINY])


@pytest.mark.slow
def test_on_a_terminal_ctrl_c_is_a_key(text):
    """The terminal sends the signal; it also says that a long step is being finished."""
    slow = DRIVER.replace("sleep(0.5)", "sleep(2.5)")
    read, write = os.pipe()
    process, terminal = pty.fork()
    if not process:
        os.set_inheritable(write, True)
        arguments = [str(write), STEP, "train", text, *RUN, *TINY]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        os.execve(sys.executable, [sys.executable, "-c", slow, *arguments], environment)
    os.close(write)
    assert os.read(read, 1) == b"."
    os.write(terminal, b"\x03")
    shown = b""
    while piece := _read(terminal):
        shown += piece
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    for descriptor in (terminal, read):
        os.close(descriptor)
    plain = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace")).split())
    assert "finishing this step before saving" in plain
    assert "stopped after 1 step; resume with: seqgen train --resume x" in plain
    check_resumes_exactly(text, [*RUN, *TINY])


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""

"""`seqgen course`, its steps, and the page made from them."""

import importlib.util
import json
import re
import shlex
import sys

import pytest
import typer
from helpers_cli import has_plugin
from places import ROOT
from said import differences

from seqgen import registry, store
from seqgen.cli import all_commands, make_app, run
from seqgen.plugins.course import command as course
from seqgen.plugins.course.command import steps

sys.path.insert(0, str(ROOT / "docs"))
SPEC = importlib.util.spec_from_file_location("companion", ROOT / "docs" / "companion.py")
companion = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(companion)
BUILD = (ROOT / "hatch_build.py").read_text(encoding="utf-8")
NUMBERS = list(steps())


def has_plugins_of(number):
    """Say whether the plugins are there whose commands, models or files a step uses."""
    step = steps()[number]
    used = set(re.findall(r"plugins/(\w+)/", step.see))
    if any(" --task " in line for line in step.run):
        used.add("labels")
    commands = {words[1] for words in map(shlex.split, step.run) if words[0] == "seqgen"}
    models = {name for line in step.run for name in re.findall(r"--model (\S+)", line)}
    return (
        all(map(has_plugin, used))
        and commands <= {*all_commands()}
        and all(registry.known_architecture(name) for name in models)
    )


# The steps whose plugins are there.
USABLE = [number for number in NUMBERS if has_plugins_of(number)]


@pytest.fixture(scope="module")
def tree():
    return typer.main.get_command(make_app())


def test_each_part_has_six_to_ten_steps_and_each_step_is_short():
    parts = [step.part for step in steps().values()]
    assert len(set(parts)) == 5 and {*map(parts.count, parts)} <= {*range(6, 11)}
    assert max(step.seconds for step in steps().values()) <= 30
    for step in steps().values():
        assert max(map(len, step.equation.splitlines())) <= 76, step.number
        assert len(re.findall(r"[.?!](?:\s|$)", step.idea.strip())) <= 3, step.number


@pytest.mark.parametrize("number", USABLE)
def test_the_commands_of_a_step_parse(number, tree):
    for line in steps()[number].run:
        program, name, *arguments = shlex.split(line)
        if program == "python":
            assert (ROOT / name).is_file()
            continue
        inner = [name]
        command = tree.commands[name]
        while hasattr(command, "commands"):
            inner.append(arguments[0])
            command = command.commands[arguments.pop(0)]
        assert program == "seqgen"
        command.make_context(" ".join(inner), arguments)
        if name == "train":
            assert re.search(r"--name course-\S+ -q$", line), line


def test_a_model_is_trained_the_same_way_in_every_step():
    lines = {line for step in steps().values() for line in step.run if " train " in line}
    names = [re.search(r"--name (\S+)", line)[1] for line in lines]
    assert len(names) == len(set(names))


def test_a_step_trains_what_it_uses():
    for step in steps().values():
        text = " ".join(step.run)
        assert set(re.findall(r"course-\w[\w-]*", text)) == {*re.findall(r"--name (\S+)", text)}, (
            step.number
        )


def test_what_a_step_names_is_there():
    for step in map(steps().get, USABLE):
        for names, file in re.findall(r"((?:`\w+`(?:, )?)+) \(([\w/.]+\.py)\)", step.see):
            text = (ROOT / "seqgen" / file).read_text(encoding="utf-8")
            for name in re.findall(r"\w+", names):
                assert re.search(rf"^ *(?:class|def) {name}\b", text, re.M), (step.number, name)
        assert ".py)" in step.see


def test_the_wheel_has_the_texts_of_the_steps_in_less_than_a_megabyte():
    used = {
        name
        for step in steps().values()
        for line in step.run
        for name in re.findall(r"corpora/([\w.]+)", line)
    }
    packed = {
        n for line in re.findall("^TEXTS .*", BUILD, re.M) for n in re.findall('"(.+?)"', line)
    }
    assert used == packed
    assert sum((ROOT / "corpora" / name).stat().st_size for name in packed) < 1_000_000


def test_an_installed_text_is_found_without_a_checkout(tmp_path, monkeypatch):
    (tmp_path / "fox.txt").write_text("a fox\n")
    monkeypatch.setattr(course, "TEXTS", (tmp_path,))
    monkeypatch.chdir(tmp_path)
    assert course._text("corpora/fox.txt") == "fox.txt"


OUTPUTS = json.loads(companion.OUTPUTS.read_text(encoding="utf-8"))


def test_the_pages_and_their_pictures_are_current():
    """Made again by `python docs/companion.py`."""
    made = {path.name: path.read_text(encoding="utf-8") for path in companion.FOLDER.glob("*.md")}
    assert companion.pages(OUTPUTS) == made
    drawn = {f"{name}.svg": picture for name, (_, picture) in companion.pictures(OUTPUTS).items()}
    assert drawn == {path.name: path.read_text("utf-8") for path in companion.FOLDER.glob("*.svg")}


def test_list_step_and_unknown_step(capfd):
    assert run(["course"]) == 0
    out, err = capfd.readouterr()
    assert err == "" and max(map(len, out.splitlines())) <= 80
    assert [number for number in NUMBERS if f"  {number} " not in out] == []
    step = steps()["1.1"]
    assert run(["course", "1.1", "--no-run"]) == 0
    out, err = capfd.readouterr()
    assert err == "" and max(map(len, out.splitlines()[:8])) <= 80
    assert out.startswith(f"1.1 {step.title} ") and "Answer: " in out and "$ seqgen train " in out
    assert run(["course", "1.1", "--no-run", "--json"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["run"] == step.run and record["outputs"] == []
    assert run(["course", "9.9"]) == 2
    assert "no step '9.9'" in capfd.readouterr().err
    assert run(["course", "1"]) == 2
    assert "no step '1'; part 1 has 1.1 to 1.8" in capfd.readouterr().err


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(name, marks=pytest.mark.long if step.seconds > 6 else pytest.mark.slow)
        for name, step in ((number, steps()[number]) for number in USABLE)
    ],
)
def test_a_step_says_what_the_page_shows(number, capfd, monkeypatch):
    """Figures of networks within 5 %, others to the last digit; of texts, the number of lines."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["course", number, "--json", "-q"]) == 0
    step, outputs = steps()[number], json.loads(capfd.readouterr().out)["outputs"]
    kept = iter(OUTPUTS[number])
    trained = [line for line in step.run if " train " in line]
    networks = [line for line in trained if not re.search("--model (ngram|hmm|hopfield) ", line)]
    for line, output in zip(step.run, outputs, strict=True):
        if line in trained:
            assert output == ""
        elif networks and re.match("seqgen (sample|beam-search|fill)", line):
            assert output.count("\n") == next(kept).count("\n"), line
        else:
            said = output.replace(f"{ROOT}/", "")
            assert differences(next(kept), said, 0.05 if networks else 0.0) == [], f"{line}\n{said}"


@pytest.mark.slow
def test_a_model_that_is_there_is_not_trained_again(capfd):
    for again in ((), ("--again",)):
        assert run(["course", "1.1", *again]) == 0
        out, err = capfd.readouterr()
        assert "trained already" not in err
        assert "\nAnswer: " in out
    assert run(["course", "1.1"]) == 0
    assert "trained already" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.fast_for("stop-after")
@pytest.mark.parametrize("ended", [None, "stop-after", "interrupted"])
def test_a_model_whose_training_did_not_end_is_trained_again(ended, capfd):
    assert run(["course", "1.1"]) == 0
    record = store.models_folder() / "course-fox" / "training.json"
    table = json.loads(record.read_text())
    table["result"] = ended and table["result"] | {"stopped": ended}
    record.write_text(json.dumps(table))
    assert run(["course", "1.1"]) == 0
    assert "trained already" not in capfd.readouterr().err
    assert json.loads(record.read_text())["result"]["stopped"] is None

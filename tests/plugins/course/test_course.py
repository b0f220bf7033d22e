"""Every command of docs/evidence/lectures.md runs, in its order, on small texts and budgets."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers_cli import has_plugin
from places import ROOT, TESTS
from test_docs import commands, spans

from seqgen.cli import run

PAGE = ROOT / "docs" / "evidence" / "lectures.md"
LINES = {
    "hello.txt": 40,
    "memory.txt": 200,
    "dates.tsv": 60,
    "agreement.tsv": 12,
    "order.tsv": 12,
    "recall.tsv": 12,
    "play.txt": 400,
    "scenes.txt": 40,
    "words.txt": 2000,
    "tags.tsv": 600,
    "virus.tsv": 40,
}


def every_command():
    """Return the arguments of the commands that stand in the page's tables, in their order."""
    return [c for span in spans(PAGE) for c in commands(span)]


def small(arguments):
    """Return a command with a budget of three steps and narrow layers, where it trains."""
    line = " ".join(arguments)
    if arguments[0] == "tune":
        line = re.sub(r"--trials \S+ --trial-steps \S+", "--trials 2 --trial-steps 2", line)
        return [*line.split(" "), "--set", "hidden_size=8"]
    trains = arguments[0] in ("train", "sweep")
    if not trains or "ngram" in arguments:
        return arguments
    found = re.sub(r" --(minutes|steps|epochs) \S+", "", line)
    found += " --steps 3"
    own_width = "--hidden-size|--parameters|--init-from|hopfield|hmm|word2vec|glove|model bag"
    if not re.search(own_width, line):
        found += " --hidden-size 16"
    return found.split(" ")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make a folder with the beginnings of the corpora and the texts that the page names."""
    corpora = tmp_path / "corpora"
    corpora.mkdir()
    for name, count in LINES.items():
        lines = (ROOT / "corpora" / name).read_text("utf-8").splitlines(keepends=True)
        (corpora / name).write_text("".join(lines[:count]), "utf-8")
    scenes = np.load(ROOT / "corpora" / "scenes.npy")
    np.save(corpora / "scenes.npy", scenes[: LINES["scenes.txt"]])
    (corpora / "xor.txt").write_text((ROOT / "corpora" / "xor.txt").read_text("utf-8")[:600])
    play = (ROOT / "corpora" / "play.txt").read_text("utf-8")
    texts = {"shakespeare": play[:5000], "book": play[:3000], "mine": play[:3000]}
    texts |= {"yours": play[3000:6000], "whose": play[6000:6200], "lines": "to be or not to be\n"}
    texts["fox"] = "the quick brown fox jumped over the lazy dog\n" * 40
    texts["names"] = "Anna\nArthur\nBertha\nCarl\nDora\nEmil\nFrida\nGustav\nAda\nBen\n" * 3
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text, "utf-8")
    surnames = "Scottish\tMacGregor\nItalian\tRossi\nScottish\tMacLeod\nItalian\tBianchi\n"
    (tmp_path / "surnames.tsv").write_text(surnames * 5, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield tmp_path


def test_every_row_has_its_six_columns():
    """The place, the subject, where it is here, the command, what it gave, the lecture's figure."""
    text = PAGE.read_text("utf-8").split("\n## Lecture 0")[1].split("\n## Where")[0]
    rows = re.findall(r"^\| \d:\d+.*\|$", text, re.M)
    assert len(rows) > 140
    assert [row for row in rows if row.count("|") != 7] == []


def test_every_row_has_a_command_or_says_that_it_has_none():
    text = PAGE.read_text("utf-8").split("\n## Lecture 0")[1].split("\n## Where")[0]
    words = (
        "`seqgen ",
        "`python -m tests.benchmarks ",
        "not there yet",
        "none:",
        "[the lectures",
        "any `train`",
    )
    goes_with_another = re.compile(r"\| as (?:\d:\d+|the next row)|the same command")
    rows = re.findall(r"^\| \d:\d+.*\|$", text, re.M)
    silent = [r for r in rows if not any(w in r for w in words) and not goes_with_another.search(r)]
    assert silent == []


def has_plugin_of(file):
    """Say whether a file below `seqgen/` is of the core, or of a plugin that is there."""
    plugin = re.match(r"plugins/(\w+)/", file)
    return plugin is None or has_plugin(plugin[1])


def test_what_the_page_names_is_there():
    """Each class and function stands in the file beside it, and each test file exists.

    What plugins have that are gone is left out.
    """
    text = PAGE.read_text("utf-8")
    named = re.findall(r"((?:`\w+`, )*`\w+`),? \(([\w/]+\.py)\)", text)
    assert len(named) > 60
    gone = {file for _, file in named if not has_plugin_of(file)}
    lost = []
    for names, file in named:
        if file in gone:
            continue
        code = (ROOT / "seqgen" / file).read_text("utf-8")
        found = set(re.findall(r"^(?:class|def|    def) (\w+)", code, re.M))
        lost += [(name, file) for name in re.findall(r"\w+", names) if name not in found]
    assert lost == []
    there = {path.name for path in TESTS.rglob("test_*.py")}
    assert gone or set(re.findall(r"\btest_\w+\.py", text)) <= there


@pytest.fixture(scope="module")
def script():
    """docs/evidence/lectures.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_lectures", PAGE.with_suffix(".py"))
    module = sys.modules["docs_lectures"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_knows_every_row_and_command(script):
    found = script.rows(PAGE.read_text("utf-8"))
    text = PAGE.read_text("utf-8").split("\n## Lecture 0")[1].split("\n## Where")[0]
    assert len(found) == len(re.findall(r"^\| \d:\d+.*\|$", text, re.M))
    lines = {line for row in found for line in row.commands if not line.startswith("python ")}
    assert len(lines) > 100
    assert lines <= {s.removeprefix("seqgen ") for s in spans(PAGE)}


def test_a_row_brings_the_rows_that_train_its_models(script):
    table = """
| 0:1 | a | b | `seqgen train x.txt --name base` | | none |
| 0:2 | a | b | `seqgen train x.txt --name other` | | none |
| 0:3 | a | b | `seqgen train x.txt --init-from base --name tuned` | | none |
| 0:4 | a | b | `seqgen sample -m tuned` | 3 | 4 |
"""
    every = script.rows(table)
    assert [row.place for row in script.chosen(every, ["0:4"])] == ["0:1", "0:3", "0:4"]
    latest = script.rows(table + '| 0:5 | a | b | `seqgen sample "The "` | | none |\n')
    assert [row.place for row in script.chosen(latest, ["0:5"])] == ["0:1", "0:3", "0:5"]
    assert every[3] == script.Row("0:4", "a", ("sample -m tuned",), "3", "4")
    with pytest.raises(SystemExit, match="0:9"):
        script.chosen(every, ["0:9"])


@pytest.mark.slow
def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    page, folder = tmp_path / "page.md", tmp_path / "course"
    page.write_text(
        "| 0:1 | a | b | `seqgen train a.txt --model ngram --name a` | 1 | none |\n"
        "| 0:2 | a | b | `seqgen train lost.txt --name b` | | none |\n"
        "| 0:3 | a | b | `seqgen perplexity a.txt -m a` | 2 | none |\n"
        "| 0:4 | a | b | `seqgen compare a b` | | none |\n"
    )
    folder.mkdir()
    (folder / "a.txt").write_text("to be or not to be\n" * 20)
    line = [sys.executable, PAGE.with_suffix(".py"), "--page", page, "--folder", folder]
    logs = []
    for _ in range(2):
        done = subprocess.run(line, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "0:2: left out, lost.txt" in done.stdout
        assert "0:4: left out, b is not in" in done.stdout
        logs.append((folder / "done.jsonl").read_text())
    assert logs[0] == logs[1] and len(logs[0].splitlines()) == 2
    assert "perplexity" in json.loads(logs[0].splitlines()[1])["command"]
    assert "- the page: 2" in (folder / "results.md").read_text()
    assert "nats/token" in (folder / "results.md").read_text()


@pytest.mark.slow
def test_the_script_runs_benchmarks_too(script, tmp_path):
    page = "| 3:168 | a | b | `python -m tests.benchmarks points --steps 2 --json` | | none |\n"
    (row,) = script.rows(page)
    runs = script.Runs(tmp_path)
    runs.run(row.commands[0])
    assert runs.done[row.commands[0]]["code"] == 0
    assert "python -m tests.benchmarks points" in script.results([row], runs)
    assert "mean_distance" in script.results([row], runs)


@pytest.mark.long
def test_every_command_of_the_course_runs(folder, capsys):
    wrong = []
    for arguments in every_command():
        capsys.readouterr()
        if run(small(arguments)) != 0:
            wrong.append(f"{' '.join(arguments)}: {capsys.readouterr().err[-300:]}")
    assert not wrong, "\n".join(wrong)

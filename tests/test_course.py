"""docs/course.md: every command of its tables runs, in its order, on small texts and budgets."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from test_docs import ROOT, commands, spans

from seqgen.cli import run

PAGE = ROOT / "docs" / "course.md"
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
}


def every_command():
    """Return the arguments of the commands that stand in the page's tables, in their order."""
    return [c for span in spans(PAGE) for c in commands(span)]


def small(arguments):
    """Return a command with a budget of three steps and narrow layers, where it trains."""
    line = " ".join(arguments)
    trains = arguments[0] == "train" or "--sweep" in arguments
    if not trains or "ngram" in arguments:
        return arguments
    found = re.sub(r" --(minutes|steps) \S+", "", line)
    found += " --steps 3"
    if not re.search("--hidden-size|--parameters|--sweep|--init-from|hopfield|hmm|word2vec", line):
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
    words = ("`seqgen ", "not there yet", "none:", "[the lectures", "any `train`")
    goes_with_another = re.compile(r"\| as (?:\d:\d+|the next row)|the same command")
    rows = re.findall(r"^\| \d:\d+.*\|$", text, re.M)
    silent = [r for r in rows if not any(w in r for w in words) and not goes_with_another.search(r)]
    assert silent == []


def test_what_the_page_names_is_there():
    """Each class and function stands in the file beside it, and each test file exists."""
    text = PAGE.read_text("utf-8")
    named = re.findall(r"((?:`\w+`, )*`\w+`),? \(([\w/]+\.py)\)", text)
    assert len(named) > 60
    lost = []
    for names, file in named:
        code = (ROOT / "seqgen" / file).read_text("utf-8")
        found = set(re.findall(r"^(?:class|def|    def) (\w+)", code, re.M))
        lost += [(name, file) for name in re.findall(r"\w+", names) if name not in found]
    assert lost == []
    tests = re.findall(r"\b(test_\w+\.py)", text)
    assert [name for name in tests if not (ROOT / "tests" / name).exists()] == []


@pytest.mark.slow
def test_every_command_of_the_course_runs(folder, capsys):
    wrong = []
    for arguments in every_command():
        capsys.readouterr()
        if run(small(arguments)) != 0:
            wrong.append(f"{' '.join(arguments)}: {capsys.readouterr().err[-300:]}")
    assert not wrong, "\n".join(wrong)

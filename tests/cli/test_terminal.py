"""On a terminal, control characters of foreign text are shown; in a pipe they stay as they are."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import sys
import unicodedata
from pathlib import Path

import forked
import pytest
from helpers_cli import has_plugin, installed, needs
from helpers_io import quick, texts
from hypothesis import given
from hypothesis import strategies as st

from seqgen.cli import run
from seqgen.cli.shell.output import put_record
from seqgen.wording import escape_controls

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")

# All of C0 and C1 but what a file's name and a line cannot have, and whole commands: set the
# clipboard, clear the screen, colour by one byte, call the window "x".
CONTROLS = "".join(map(chr, [*range(1, 10), *range(11, 32), *range(0x7F, 0xA0)]))
COMMANDS = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\x1b]0;x\x1b\\"
# Joiners, a variation selector and marks of direction are part of a text.
JOINED = "a\u200db\u200cc\ufe0fd\u200fe\u202bf\u202cg"
FOREIGN = CONTROLS + COMMANDS + JOINED
# What the program itself writes: colours and styles, and how a bar is drawn again.
OWN = re.compile(r"\x1b\[([0-9;]*m|\?25[lh]|2K|1A)")
TINY = ["--layers", "1", "--hidden-size", "4", "--steps", "2"]
TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
foreign_texts = texts | st.text(st.sampled_from(FOREIGN + "\udc9b\udcff\udc41"))


def raw_controls(seen: str) -> set[str]:
    """Return the control characters that a terminal would obey."""
    plain = OWN.sub("", seen).replace("\r", "")  # the terminal's own line ends
    return {c for c in plain if unicodedata.category(c) == "Cc" and c not in "\n\t"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with models of foreign text: a file and a model have it in their names, too."""
    folder = tmp_path_factory.mktemp("terminal")
    text = folder / f"t{FOREIGN.replace('/', '')}.txt"
    text.write_text(f"{FOREIGN} and more\n" * 60)
    (folder / "pairs").write_text(f"{FOREIGN.replace(chr(9), '')}\t{FOREIGN}\n" * 30)
    (folder / "labels").write_text("".join(f"word {n}\tx{n % 2}\x1b[2J\n" for n in range(60)))
    (folder / "prompt").write_text(FOREIGN)
    (folder / "plain").write_text("a line of words\n" * 60)
    (folder / f"bytes{FOREIGN}").write_bytes(b"\xff")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        common = ["--model", "ngram", "--order", "6", "--val", "0.2", "--quiet"]
        assert run(["train", str(text), "--name", "m", *common]) == 0
        word = ["--tokenizer", "whitespace", "--name", "w"]
        assert run(["train", str(text), *word, *common]) == 0
        small = [*TINY, "--quiet"]
        assert (
            run(["train", str(folder / "pairs"), "--name", "p", "--model", "seq2seq", *small]) == 0
        )
        if has_plugin("labels"):
            labels = ["--task", "classify", "--model", "bag", "--name", "c", "--steps", "2", "-q"]
            assert run(["train", str(folder / "labels"), *labels]) == 0
    return folder


def seen_by(folder: Path, *arguments, given: bytes = b"") -> str:
    """Run a command whose output and messages go to a terminal; return what that got."""
    home = {"SEQGEN_HOME": str(folder / "home")}
    _, seen, _ = forked.program(arguments, given, on_terminal=[1, 2], **home, **TERMINAL)
    assert b"Traceback" not in seen
    return seen.decode()


SAMPLE = ("sample", "{text}", "-m", "m", "--max-tokens", "99", "--temperature", "0.1")
CASES = {
    "sample": ("sample", "-m", "m", "--prompt-file", "prompt", "--max-tokens", "200"),
    "echoed": (*SAMPLE, "--echo"),
    "several": (*SAMPLE, "--num-samples", "2"),
    "sample-json": (*SAMPLE, "--json"),
    "explain": (*SAMPLE, "--explain"),
    "beams": ("beam-search", "{text}", "-m", "m", "--max-tokens", "9", "--explain"),
    "translate": ("beam-search", "{text}", "-m", "p", "--explain", "--max-tokens", "9"),
    "perplexity": ("perplexity", "{file}", "-m", "m"),
    "per-token": ("perplexity", "{file}", "-m", "m", "--per-token"),
    "per-line": ("perplexity", "{file}", "-m", "m", "--per-line", "--json"),
    "coloured": ("perplexity", "{file}", "-m", "w", "--show"),
    "novelty": ("novelty", "{file}", "-m", "w"),
    "data": ("data", "{file}"),
    "tokenize": ("tokenize", "{file}", "-m", "m", "--pieces"),
    "tokenize-json": ("tokenize", "{file}", "-m", "m", "--json"),
    "stats": ("tokenize", "{file}", "-m", "w", "--stats"),
    "predict": ("predict", "labels", "-m", "c"),
    "classes": ("eval", "labels", "-m", "c"),
    "no-model": ("sample", "-m", "no{text}"),
    "no-file": ("perplexity", "no{text}", "-m", "m"),
    "no-data": ("data", "no{text}"),
    "no-option": ("sample", "--no{text}"),
    "no-value": ("sample", "--max-tokens", "no{text}"),
    "no-text": ("data", "bytes{text}"),
    "not-utf-8": ("perplexity", "bytes{text}", "-m", "m"),
    "train": ("train", "{file}", "--steps", "2", "--hidden-size", "4", "--layers", "1"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=needs("labels") if "c" in call else ())
        for case, call in CASES.items()
        if installed([call])
    ],
)
def test_no_foreign_text_moves_the_cursor(case, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (file,) = folder.glob("t*.txt")
    arguments = [part.format(text=FOREIGN, file=file.name) for part in CASES[case]]
    seen = seen_by(folder, *arguments)
    assert not raw_controls(seen)
    assert re.search(r"\\x[01789]|\\u00", seen), seen


class SeenStream(io.TextIOWrapper):
    """What a terminal gets."""

    def isatty(self) -> bool:
        return True


def leaves(facts, path=()):
    """Yield the path of each text, and of each list, of a JSON file."""
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        elif value is None or isinstance(value, str | list):
            yield (*path, key)


@pytest.mark.parametrize("name", ["config.json", "training.json"])
def test_no_word_about_a_model_moves_the_cursor(name, folder, tmp_path, monkeypatch):
    facts = json.loads((folder / "home" / "models" / "m" / name).read_text())
    shown = 0
    for path in leaves({"imported": None, **facts}):
        model = tmp_path / "-".join(path)
        shutil.copytree(folder / "home" / "models" / "m", model)
        changed = json.loads(json.dumps({**facts}))
        *inner, last = path
        place = changed
        for key in inner:
            place = place[key]
        place[last] = [FOREIGN] if isinstance(place.get(last), list) else FOREIGN
        (model / name).write_text(json.dumps(changed))
        for arguments in (["--all"], []):
            stream = SeenStream(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
            monkeypatch.setattr(sys, "stdout", stream)
            monkeypatch.setattr(sys, "stderr", stream)
            run(["models", "show", str(model), *arguments])
            seen = stream.buffer.getvalue().decode()
            assert not raw_controls(seen), path
            shown += "\\x1b" in seen
    assert shown >= 4


def test_no_log_of_the_server_moves_the_cursor(monkeypatch):
    serve = pytest.importorskip("seqgen.plugins.serve.command")
    stream = SeenStream(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    serve.SaidLog().emit(logging.makeLogRecord({"msg": f"{FOREIGN}{JOINED}"}))
    seen = stream.buffer.getvalue().decode()
    assert not raw_controls(seen) and "\\x1b" in seen and JOINED in seen


def test_a_pipe_gets_every_character_of_the_data(folder):
    """And messages without control characters: a log is read on a terminal later."""
    home = {"SEQGEN_HOME": str(folder / "home")}
    command = ["sample", FOREIGN, "-m", "m", "--echo", "--max-tokens", "0"]
    _, out, _ = forked.program(command, **home)
    assert out.decode() == FOREIGN + "\n"
    _, _, err = forked.program(["perplexity", f"no{FOREIGN}", "-m", "m"], **home)
    shown = escape_controls(FOREIGN.replace("\r", "\\r"))
    assert f"no{shown}" in err.decode()


def obeyed(character: str, after: str) -> bool:
    """Return whether a terminal may do something else with a character than to show it."""
    if character == "\r":
        return after != "\n"
    control = unicodedata.category(character) == "Cc" and character not in "\n\t"
    return control or "\udc80" <= character <= "\udcff"  # a byte that is not UTF-8


@given(foreign_texts)
def test_only_what_a_terminal_obeys_is_escaped(text):
    followed = zip(text, [*text[1:], ""], strict=False)
    wanted = [f"\\x{ord(c) % 256:02x}" if obeyed(c, after) else c for c, after in followed]
    assert escape_controls(text) == "".join(wanted)


@quick
@given(texts | st.text(st.sampled_from(FOREIGN)))
def test_a_record_on_a_terminal_is_harmless_json(text):
    with pytest.MonkeyPatch.context() as patch:
        stream = SeenStream(io.BytesIO(), encoding="utf-8")
        patch.setattr(sys, "stdout", stream)
        put_record({"text": text})
    line = stream.buffer.getvalue().decode()
    assert not raw_controls(line) and json.loads(line) == {"text": text}


# What `!` in a Jupyter notebook sets, and what editors and logs call their terminals.
NO_CURSOR = [{"JPY_PARENT_PID": "1", "TERM": "xterm-color", "FORCE_COLOR": "1"}]
NO_CURSOR += [{"TERM": "dumb"}, {"TERM": ""}, {"TERM": "unknown"}]


@pytest.mark.parametrize("variables", NO_CURSOR, ids=str)
def test_where_no_cursor_moves_progress_comes_in_lines(variables, folder, tmp_path):
    settings = ["--set", "validate_every=1"]
    command = ["train", folder / "plain", *TINY, *settings]
    home = {"SEQGEN_HOME": str(tmp_path)}
    code, seen, _ = forked.program(command, on_terminal=[1, 2], **home, **variables)
    assert code == 0, seen
    assert not re.search(rb"\x1b\[[0-9;?]*[^m0-9;?]|\r(?!\n)", seen)
    assert len([line for line in seen.split(b"\n") if b"tokens/s" in line]) == 1  # every 10 s

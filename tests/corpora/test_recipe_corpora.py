"""The corpora of docs/recipes/: the same bytes every time, and what their scripts count."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import chat
import cooking
import latex
import names
import pytest
import verse
from places import CORPORA, ROOT

FILES = {
    "chat": "chat.txt",
    "cooking": "cooking.tsv",
    "latex": "notes.tex",
    "names": "names.tsv",
    "verse": "verse.txt",
}


def text_of(name):
    return (CORPORA / FILES[name]).read_text("utf-8")


@pytest.mark.parametrize("name", FILES)
def test_the_script_gives_the_same_bytes(name):
    command = [sys.executable, str(CORPORA / f"{name}.py")]
    made = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    assert made == (CORPORA / FILES[name]).read_bytes() and 100_000 < len(made) < 200_000


def scored(name, records, *more):
    """Return the lines that a script says of records, or of a text."""
    given = records if isinstance(records, str) else "".join(json.dumps(r) + "\n" for r in records)
    command = [sys.executable, str(CORPORA / f"{name}.py"), "--score", *more]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.splitlines()


def test_every_stanza_of_the_verse_rhymes():
    records = [{"prompt": "", "text": text} for text in text_of("verse").strip().split("\n\n")]
    shares = ["stanzas of four lines: 100.0%", "lines of eight syllables: 100.0%", "rhymes: 100.0%"]
    assert scored("verse", records) == shares
    # One line is short of a syllable; a word does not rhyme with itself.
    stanza = "We sang alone along the bay\nI saw a fox without a tree\n"
    stanza += "The silver owl beside the bay\nI saw a wolf without key"
    assert verse.scores([stanza, "We sang"]) == {
        "stanzas of four lines": 1 / 2,
        "lines of eight syllables": 3 / 5,
        "rhymes": 1 / 2,
    }


def test_the_notes_balance():
    blocks = text_of("latex").strip().split("\n\n")
    assert all(map(latex.balances, blocks)) and len(blocks) > 1000
    records = [{"prompt": "\\begin{a} ", "text": text} for text in ("x \\end{a}", "$x \\end{a}")]
    assert scored("latex", records) == ["1 of 2 balance"]


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("", True),
        ("\\{ \\$ {$x$} \\\\[2pt]", True),
        ("\\left( {x} \\right) \\leftarrow", True),
        ("\\[ \\left( x \\right) \\]", True),
        ("{", False),
        ("}", False),
        ("{$}$", False),
        ("$x", False),
        ("\\left( x", False),
        ("\\begin{a}\\end{b}", False),
        ("\\begin{a}{\\end{a}}", False),
        ("\\[ x \\)", False),
    ],
)
def test_what_balances(source, right):
    assert latex.balances(source) == right


def test_names_are_of_one_language_and_there_once():
    pairs = [line.split("\t") for line in text_of("names").splitlines()]
    assert len({tuple(pair) for pair in pairs}) == len(pairs) == 6 * names.EACH
    for label, name in pairs:
        assert names.LANGUAGES[label].pattern.fullmatch(name)
    others = sum(
        any(kind.pattern.fullmatch(name) for key, kind in names.LANGUAGES.items() if key != label)
        for label, name in pairs
    )
    assert others < len(pairs) / 100
    records = [{"text": text} for text in ("Khabek", "Khabek", "Tarima", "Xx")]
    first, second = scored("names", records, "Kheb")
    assert first.startswith("2 of 4 are names of Kheb; others: 1 Talari")
    known = {name for _, name in pairs}
    assert second == f"{len({'Khabek', 'Tarima', 'Xx'} - known)} are new"


def test_recipes_use_exactly_their_list():
    pairs = [line.split("\t") for line in text_of("cooking").splitlines()]
    assert len({frozenset(source.split(", ")) for source, _ in pairs}) == len(pairs)
    for source, text in pairs:
        assert set(source.split(", ")) == cooking.used(text)
    records = [
        {"source": "rice, kale", "text": "Stew of kale. Toast the rice. Steam the kale."},
        {"source": "rice, kale", "text": "Stew of kale. Toast the rice. Stir in the milk."},
    ]
    assert scored("cooking", records) == [
        "1 of 2 use exactly their list",
        "1 ingredients left out, 1 made up",
    ]


def test_the_chat_is_in_order_and_in_style():
    lines = [line for line in text_of("chat").splitlines()[:-1] if line]
    assert chat.score(text_of("chat")) == [
        f"{len(lines)} of {len(lines)} lines have a time, a name and a message",
        f"{len(lines)} are messages of their writer",
        "0 times the clock goes back within a day",
    ]
    text = "[10:00] tib: lol\n[09:59] olga: lol\nhm\n[08:00] tib: not the map again\n[08:0"
    assert scored("chat", text) == [
        "3 of 4 lines have a time, a name and a message",
        "2 are messages of their writer",
        "1 times the clock goes back within a day",
    ]


def test_functions_are_parsed():
    path = ROOT / "docs" / "recipes" / "functions.py"
    spec = importlib.util.spec_from_file_location("functions", path)
    functions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(functions)
    texts = {"f(x):\n    return x\n": "stop", "f(x:\n": "length", "f():\n  '\\d'\n  a": "length"}
    records = [{"prompt": "def ", "text": t, "finish_reason": end} for t, end in texts.items()]
    assert functions.score(records) == [
        "2 of 3 parse (67%); they have 2.5 lines on average",
        "2 were cut at --max-tokens",
    ]

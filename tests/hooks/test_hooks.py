"""Plugins of other distributions: how they are found, and what those that are broken cost."""

import codecs
import json
import re

import pytest
from helpers_cli import has_plugin, needs
from places import ROOT
from strangers import add, install, seqgen

from seqgen import hooks

SAID = "import typer\n\ndef hello():\n    '''Say hello.'''\n    print('hello')\n"
HELLO = {"adds": 'commands={"hello": Command("command:hello", "Text")}'}


@pytest.fixture
def site(tmp_path):
    return tmp_path / "site"


@pytest.fixture
def run(site):
    return lambda *arguments: seqgen(*arguments, path=site)


def listed(run, name):
    code, out, err = run("plugins", "--others", "--json")
    assert code == 0
    records = {one["name"]: one for one in map(json.loads, out.splitlines())}
    keys = ["name", "version", "distribution", "summary", "adds", "problem"]
    assert all(list(one) == keys for one in records.values())
    return records[name], err


def test_a_command_of_another_distribution(site, run):
    install(site, "greeting", {"command.py": SAID}, **HELLO)
    assert run("hello") == (0, "hello\n", "")
    assert "  hello " in run("--help")[1].partition("Text:")[2]
    record, err = listed(run, "greeting")
    assert err == "" and record["problem"] is None
    assert (record["distribution"], record["version"]) == ("stranger-greeting", "1.5")
    assert record["summary"] == "The plugin greeting."
    assert record["adds"]["commands"] == ["hello"] and record["adds"]["architectures"] == []


def test_the_first_distribution_of_a_name_on_the_path_counts(site, tmp_path, monkeypatch):
    install(site, "twice")
    install(tmp_path / "second", "twice", release="0.1")
    monkeypatch.setattr("sys.path", ["", str(site), str(tmp_path / "second"), "/no/folder"])
    assert hooks._third_party_plugins() == [("twice", "stranger_twice", "stranger-twice", "1.5")]


def test_entries_of_other_groups_and_comments_are_passed_over():
    text = b"[a]\nb = c\n[seqgen.plugins]\n# d = e\nf= g\n\xff\nh =i\n[j]\nk = l\n"
    assert [*hooks._parse_entry_points(text)] == [("f", "g"), ("h", "i")]


BROKEN = {
    "raises": ("1/0", "ZeroDivisionError: division by zero"),
    "leaves": ("raise SystemExit(3)", "SystemExit: 3"),
    "lacks": ("x = 1", "AttributeError: module 'stranger_lacks' has no attribute 'PLUGIN'"),
    "misses": ("import no_such", "ModuleNotFoundError: No module named 'no_such'"),
    "newer": (
        "from seqgen.hooks import Plugin\nPLUGIN = Plugin(version=99)",
        "it is for version 99 of seqgen's hooks, and this is 1",
    ),
    "strange": (
        "from seqgen.hooks import Plugin\nPLUGIN = Plugin(wings=2)",
        "TypeError: Plugin.__init__() got an unexpected keyword argument 'wings'",
    ),
    "listing": (
        "from seqgen.hooks import Plugin\nPLUGIN = Plugin(commands=['x'])",
        "TypeError: commands is not a Mapping",
    ),
    "other": (
        "from types import SimpleNamespace\nPLUGIN = SimpleNamespace(version=1)",
        "AttributeError: 'types.SimpleNamespace' object has no attribute 'commands'",
    ),
}


@pytest.mark.fast_for("raises", "newer", rest="slow")
@pytest.mark.parametrize("name", BROKEN)
def test_a_plugin_that_cannot_be_used_costs_a_line(name, site, run):
    code, reason = BROKEN[name]
    install(site, name, {"__init__.py": code})
    line = f"seqgen: plugin {name} (stranger-{name} 1.5) is left out: {reason}\n"
    assert run("--version") == (0, f"seqgen {hooks.__version__}\n", line)
    assert run("models", "--quiet") == (0, "", "")
    assert run("no-command")[2].splitlines()[0] == line.strip()
    record, err = listed(run, name)
    assert (record["problem"], record["adds"], err) == (reason, {}, line)
    assert f"left out: {reason}" in run("plugins", "--others", "--quiet")[1]


def test_a_command_that_cannot_be_imported_costs_a_line_of_help(site, run):
    install(site, "greeting", {"command.py": "import no_such"}, **HELLO)
    line = (
        "seqgen: plugin greeting (stranger-greeting 1.5): its command hello is left out: "
        "ModuleNotFoundError: No module named 'no_such'\n"
    )
    assert run("hello") == (1, "", line)
    code, out, err = run("--help")
    assert (code, err) == (0, line) and "hello" not in out and "  train " in out
    assert run("--version")[2] == ""


@needs("tune")
def test_names_that_are_taken_are_left_out(site, run):
    adds = 'commands={"train": Command("command:hello", "Text"), "hello": Command("c:d", "Text")}'
    install(site, "first", {"command.py": SAID}, **HELLO)
    install(site, "second", {"command.py": SAID}, adds=adds)
    install(site, "tune")
    code, out, err = run("hello")
    assert (code, out) == (0, "hello\n")
    assert {*err.splitlines()} == {
        "seqgen: plugin tune (stranger-tune 1.5) is left out: tune "
        f"({hooks.DISTRIBUTION} {hooks.__version__}) has the same name",
        "seqgen: plugin second (stranger-second 1.5): its command hello is left out: "
        "plugin first has one of this name",
        "seqgen: plugin second (stranger-second 1.5): its command train is left out: "
        "seqgen has one of this name",
    }


PAGE = ROOT / "docs" / "plugins.md"


@pytest.mark.slow
def test_the_filter_of_the_page_filters(site, run, tmp_path):
    *_, code = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    install(site, "digits", {"digits.py": code}, adds='options={"writing": "digits:NoDigits"}')
    text = tmp_path / "text.txt"
    text.write_text("a1 b2 c3\n" * 50)
    trained = run("train", text, "--model", "ngram", "--order", 1, "--name", "n", "--quiet")
    assert trained == (0, "", "")
    common = ("sample", "--max-tokens", 40, "--seed", 1)
    assert re.search(r"\d", run(*common)[1])
    code, out, err = run(*common, "--no-digits")
    assert (code, err) == (0, "") and len(out) > 30 and not re.search(r"\d", out)
    if has_plugin("explain"):
        code, out, _ = run("sample", "a", "--no-digits", "--max-tokens", 2, "--explain")
        assert code == 0 and "no-digits" in out


READER = """
from seqgen.errors import SeqgenError

def read(path):
    head, _, body = path.read_bytes().partition(b"\\0")
    if head != b"rot13":
        raise SeqgenError(f"{path} is no document of this kind")
    if not body:
        raise ValueError("nothing to turn")
    import codecs
    yield codecs.decode(body.decode(), "rot13")
"""


def test_documents_are_read_as_texts(tmp_path, monkeypatch, cli):
    adds = 'document_readers={".rot": "rot:read", ".none": "gone:read"}'
    add(monkeypatch, tmp_path / "site", "rot", {"rot.py": READER}, adds)
    text, folder = "to be or not\n" * 50, tmp_path / "folder"
    folder.mkdir()
    document, plain = folder / "a.ROT", tmp_path / "a.txt"
    document.write_bytes(b"rot13\0" + codecs.encode(text, "rot13").encode())
    plain.write_text(text)
    common = ("--model", "ngram", "--quiet", "--name")
    for name, data in (("one", document), ("all", folder), ("text", plain)):
        assert cli("train", data, *common, name) == (0, "", "")
    scores = {cli("perplexity", document, "-m", name)[1] for name in ("one", "all", "text")}
    assert len(scores) == 1
    said = f"seqgen: {folder}/b.rot "
    for content, why in (
        (b"x", "is no document of this kind"),
        (
            b"rot13",
            "cannot be read by the plugin rot (stranger-rot 1.5): ValueError: nothing to turn",
        ),
    ):
        (folder / "b.rot").write_bytes(content)
        assert cli("train", folder / "b.rot", *common, "b") == (1, "", f"{said}{why}\n")
        # In a folder it is left out, and the rest is read.
        code, out, err = cli("train", folder, *common[:2], "--name", "all", "--overwrite")
        left_out = said.replace("seqgen: ", "left out: ")
        assert (code, out) == (0, "") and err.count(f"{left_out}{why}\n") == 1
        assert cli("perplexity", document, "-m", "all")[1] in scores
    (folder / "b.none").write_text("x")
    why = "ModuleNotFoundError: No module named 'stranger_rot.gone'"
    assert cli("train", folder / "b.none", *common, "b")[2].endswith(f"{why}\n")


ROWS = {
    "lstm": {"summary": "another one", "cell": "cell:Config"},
    "wrong": {"about": "no field of a row"},
}


SAME = """
from seqgen.settings import setting
from seqgen.settings.listening import ListenerOptions

class Same(ListenerOptions):
    steps: int = setting("Another option of this name.", 3)
    feathers: int = setting("How many feathers.", 3)
"""


def test_options_and_presets_of_names_that_are_taken_are_left_out(site, run):
    preset = '[preset.{}]\narchitecture = "ngram"\nsummary = "Of birds."\n'
    files = {"same.py": SAME, "presets.toml": preset.format("gpt") + preset.format("bird")}
    install(site, "wings", files, adds='options={"train": "same:Same"}')
    code, out, err = run("train", "--help")
    assert (code, err) == (
        0,
        "seqgen: of two options steps, the one that a plugin adds is left out\n",
    )
    assert "Another option" not in out and "How many feathers." in out
    records = [
        json.loads(line) for line in run("train", "--preset", "help", "--json")[1].splitlines()
    ]
    found = {one["name"]: one for one in records}
    assert found["bird"]["summary"] == "Of birds." != found["gpt"]["summary"]


@pytest.mark.slow
def test_parts_that_cannot_be_imported_are_left_out_one_by_one(site, run, tmp_path):
    adds = 'options={"eval": "options:Wings"}, tasks=("task:T",)'
    files = {"options.py": "1/0", "architectures.json": json.dumps(ROWS), "help.toml": "["}
    install(site, "parts", {**files, "task.py": ""}, adds=adds)
    text = tmp_path / "text.txt"
    text.write_text("ab ba\n" * 50)
    assert run("train", text, "--model", "ngram", "--name", "n", "--quiet") == (0, "", "")
    code, out, err = run("sample", "--max-tokens", 4)
    assert code == 0 and len(out.rstrip("\n")) <= 4
    said = "seqgen: plugin parts (stranger-parts 1.5): "
    assert [
        line.removeprefix(said).partition(" is left out: ")[0] for line in err.splitlines()
    ] == [
        "task:T",
        "its architecture lstm",
        "architectures.json",
    ]
    code, out, err = run("eval", "-h")
    assert code == 0 and "Examples:" in out and "help.toml is left out: TOMLDecodeError" in err
    assert f"{said}options:Wings is left out: ZeroDivisionError: division by zero\n" in err
    assert "Gers" in run("models", "--architectures")[1]

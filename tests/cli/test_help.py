"""The short help, topics, the manual page, and how wide messages are."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
import typer

import seqgen.cli
from seqgen.cli import make_app
from seqgen.cli.shell import help as help_page


def commands(command, name=""):
    """Yield every command and group by name, the program itself first."""
    yield name, command
    for own, found in getattr(command, "commands", {}).items():
        yield from commands(found, f"{name} {own}".strip())


ALL = dict(commands(typer.main.get_command(make_app())))


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_short_help_shows_examples_first_and_fits_a_screen(name, terminal, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(help_page, "is_terminal", lambda stream: terminal)
    code, out, err = cli(*name.split(), "-h")
    assert (code, err) == (0, "")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    most = 60 + 4 * terminal if name else 2 * len(ALL) + 40
    assert len(lines) <= most and max(map(len, lines)) <= 80
    titles = [line.strip("╭─╮ :") for line in lines if re.match(r"[A-Z]\w+:$|╭", line)]
    assert titles[0] == "Examples"
    options = [one for one in ALL[name].params if one.param_type_name == "option"]
    shown = sum(any(f"{flag} " in f"{line} " for line in lines) for o in options for flag in o.opts)
    few = len(options) <= help_page.MOST_SHORT
    assert shown >= 8 or few or not titles[1:]
    assert lines[-1].startswith(f"seqgen {name}".strip() + " --help lists")


def test_short_help_of_train_has_what_most_runs_need(cli):
    out = cli("train", "-h")[1]
    flags = re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", out, re.M)
    assert {"--model", "--minutes", "--name", "--resume", "--tokenizer", "--seed"} <= {*flags}
    assert 18 <= len(flags) <= 24 and "--split-seed" not in out


@pytest.mark.parametrize(
    ("panel", "flags"),
    [
        ("Pairs", {"--source", "--target", "--source-tokenizer", "--max-source-len"}),
        ("N-gram", {"--order", "--smoothing", "--with-ngram"}),
        ("Several processes", {"--shard"}),
        ("More", {"--split-seed", "--changed-data", "--keep", "--timeout", "--reset-state"}),
    ],
)
def test_help_of_train_has_panels(panel, flags, cli):
    text = cli("train", "--help")[1].partition(f"\n{panel}:\n")[2].split("\n\n")[0]
    assert flags <= {*re.findall(r"^ +(--[a-z-]+)", text, re.M)}


@pytest.mark.parametrize("topic", help_page.help_texts()["topics"])
def test_topics_of_help(topic, cli):
    code, out, err = cli("help", topic)
    assert (code, err) == (0, "") and max(map(len, out.splitlines())) <= 80
    assert json.loads(cli("help", topic, "--json")[1])["text"] in out
    assert f"  {topic} " in cli("help")[1]
    for option in re.findall(r"--[a-z-]+", out):
        assert any(option in one.opts for command in ALL.values() for one in command.params), option


@pytest.mark.parametrize("topic", ["sampling", "resume", "fine-tuning", "gpu"])
def test_a_topic_fits_a_screen_and_its_commands_can_be_typed(topic, cli):
    out = cli("help", topic)[1]
    assert len(out.splitlines()) < 24
    lines = re.findall(r"^  seqgen (.+?)(?: {3,}.*)?$", out, re.M)
    assert lines
    for line in lines:
        name, *arguments = shlex.split(line)
        if name in ALL:  # without its plugin, it is not
            ALL[name].make_context(name, arguments)


def test_short_help_of_train_explains_what_chosen_means_and_how_to_set(cli):
    out = " ".join(cli("train", "-h")[1].split())
    assert "chosen: made to fit the time budget." in out
    assert "as in --set patience=3" in out and "--epochs X" in out


def test_help_of_a_command_and_of_nothing_known(cli):
    assert cli("help", "models", "show") == cli("models", "show", "--help")
    assert cli("help", "pipe") == (
        2,
        "",
        "seqgen: there is no topic 'pipe'; did you mean 'pipes'?\n",
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [("average", "ema"), ("ema", "ema"), ("--grad-clip", "clip_norm"), ("learning-rate", "lr")],
)
def test_help_of_a_setting_says_what_explains_it(name, meant, cli):
    code, out, err = cli("help", "--", name)
    asked = f"seqgen train --set help={meant}"
    assert (code, out) == (2, "")
    assert err == f"seqgen: there is no topic {name!r}; {meant} is a setting: {asked}\n"
    assert re.search(rf"^  {meant} ", cli(*asked.split()[1:])[1], re.M)


def test_the_manual_has_every_command_and_option(cli, tmp_path):
    code, out, err = cli("--man")
    assert (code, err) == (0, "") and out.startswith(".TH SEQGEN 1 ")
    macros = {line.split()[0] for line in out.splitlines() if line.startswith(".")}
    assert macros == {*[".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".RS", ".RE", ".nf", ".fi"]}
    for name, command in ALL.items():
        assert f'.SS "seqgen {name} '.replace("-", "\\-") in out or not name
        for option in command.params:
            shown = option.param_type_name == "option" and not option.hidden
            long = [flag for flag in option.opts if shown and flag.startswith("--")]
            assert all(f.replace("-", "\\-") in out for f in long) or not name
    if groff := shutil.which("groff"):
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww"], input=out, capture_output=True, text=True
        )
        assert done.stderr == "" and "language models" in done.stdout
        lines = re.sub(r".\x08|\x1b\[[\d;]*m", "", done.stdout).splitlines()
        assert [line for line in lines if len(line) > 80] == []


def test_problems_are_wrapped_on_a_terminal_and_a_line_elsewhere(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    call = ["sample", "--ban", "a", "--pattern", "a", "--grammar", "b", "--max-tokens", "4"]
    _, _, line = cli(*call)
    assert line.count("\n") == 1
    call = ["help", "nothing of this name, and long enough to be wrapped at a narrow terminal"]
    _, _, line = cli(*call)
    for module in (help_page, seqgen.cli):
        monkeypatch.setattr(module, "is_terminal", lambda stream: True)
    _, _, wrapped = cli(*call)
    assert max(map(len, wrapped.splitlines())) <= 60 < len(line)
    assert " ".join(wrapped.split()) == line.strip()

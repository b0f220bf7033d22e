"""What a person sees first: help, tables, screens, completion, and small comforts."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
import typer
from helpers_cli import installed, needs
from places import ROOT, STORED
from rich.console import Console

from seqgen import registry, store
from seqgen.cli import make_app, run
from seqgen.cli.shell import completion, model_facts, progress, tables
from seqgen.cli.shell import help as help_page
from seqgen.cli.shell.flags import SETTING_OF
from seqgen.cli.shell.model_options import Threads
from seqgen.cli.shell.output import Output
from seqgen.cli.shell.process import MOST_THREADS
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.settings import DataConfig
from seqgen.settings.training import TrainingConfig
from seqgen.text.tokenizers import KINDS
from seqgen.training.events import Notice, Progress, Started, Validated
from seqgen.wording import column, plural

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = ["--hidden-size", "8", "--layers", "1", "--seed", "1", "--precision", "float32"]
MODELS = STORED / "models"
SHORT = ["--steps", "3", *TINY]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A home with one model."""
    folder = tmp_path_factory.mktemp("door")
    (folder / "text.txt").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        assert run(["train", str(folder / "text.txt"), "--name", "tiny", "--quiet", *SHORT]) == 0
    return folder


@pytest.fixture
def there(shared, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(shared / "home"))


def commands(command, name=""):
    """Yield every command and group by name, the program itself first."""
    yield name, command
    for own, found in getattr(command, "commands", {}).items():
        yield from commands(found, f"{name} {own}".strip())


SAME_EVERYWHERE = {
    (field.metadata["flag"].names or (f"--{name}",))[0]: field
    for name, field, _ in (*Threads.flags(), *Output.flags())
}
ALL = dict(commands(typer.main.get_command(make_app())))


# ---- help ----


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_help_fits_80_columns_and_ends_with_three_examples(name, terminal, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(help_page, "is_terminal", lambda stream: terminal)
    code, out, err = cli(*name.split(), "--help")
    assert (code, err) == (0, "")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert (plain != out) == terminal
    assert "…" not in plain and max(map(len, plain.splitlines())) <= 80
    examples = plain.partition("Examples:")[2].strip().splitlines()
    assert len(help_page.help_texts()["examples"][name]) == 3 and len(examples) == 6
    shown = set(re.findall(r"--?[\w-]+", plain))
    for option in ALL[name].params:
        if option.param_type_name == "option" and not option.hidden:
            long = [flag for flag in option.opts if flag.startswith("--")]
            assert set(option.opts) - set(long[1:]) <= shown  # further ones are old spellings


@pytest.mark.parametrize("name", ALL)
def test_options_are_explained_in_sentences_with_a_name_for_their_value(name):
    for option in ALL[name].params:
        if getattr(option, "hidden", False) or "completion" in option.name:
            continue
        assert option.help and option.help[0].isupper(), option.name
        assert option.help.rstrip().endswith("."), (option.name, option.help)
        flag = option.param_type_name == "option" and option.is_flag
        assert flag or option.metavar, option.name
        if option.param_type_name == "option":
            assert option.rich_help_panel or option.name == "version", option.name


@pytest.mark.parametrize("name", ALL)
def test_examples_are_commands_that_there_are(name):
    for line, _ in help_page.help_texts()["examples"][name]:
        called = next(part for part in re.split(r"\$\(|\||\)", line) if "seqgen" in part)
        _, *words = shlex.split(called.partition("seqgen")[1] + called.partition("seqgen")[2])
        own = max((n for n in ALL if words[: len(n.split())] == n.split()), key=len)
        assert own.startswith(name), line
        known = {flag for option in ALL[own].params for flag in option.opts}
        assert {word for word in words if re.match("--?[a-z]", word)} <= known, line


def test_the_top_level_is_grouped(cli):
    out = cli("--help")[1]
    titles = [line for line in out.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles[:5] == ["Train:", "Write:", "Measure:", "Text:", "Models:"]


def test_the_help_of_train_is_the_settings_own(cli):
    words = " ".join(cli("train", "--help")[1].split())
    defaults = {o.name: o.show_default for o in ALL["train"].params}
    docs = {**TrainingConfig.fields(), **DataConfig.fields()}
    docs = {name: field.metadata["doc"] for name, field in docs.items()} | registry.SHARED_DOCS
    named = {SETTING_OF.get(flag, flag): flag for flag in defaults}
    named = {name: flag for name, flag in named.items() if name in docs and name != "seed"}
    assert len(named) > 35
    for name in named:
        assert " ".join(docs[name].split()) in words, name
    for kind in registry.ARCHITECTURES.values():
        config = kind.load_config()
        # What is chosen for the architecture is not shown as if it had one default.
        chosen = {*config.recipe, *(name for size in config.sizes for name in size.settings)}
        assert all(defaults[named[name]] == "chosen" for name in chosen & named.keys())
        for name, field in config.fields().items():
            if name in registry.SHARED_DOCS:
                assert field.metadata["doc"].startswith(registry.SHARED_DOCS[name])


# ---- every setting of an architecture ----


@pytest.mark.parametrize("architecture", registry.ARCHITECTURES)
def test_every_setting_of_an_architecture_is_listed(architecture, cli):
    code, out, err = cli("models", "--architectures", architecture, "--json")
    assert (code, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    config = registry.architecture(architecture).load_config()
    groups = (("model", config), ("training", TrainingConfig), ("data", DataConfig))
    wanted = [(group, name) for group, kind in groups for name in kind.fields()]
    assert [(record["group"], record["setting"]) for record in records] == wanted
    found = {record["setting"]: record for record in records}
    assert found["schedule"]["choices"] == list(
        get_args(get_type_hints(TrainingConfig)["schedule"])
    )
    assert found["lr"]["default"] == config.recipe.get("lr", 1e-3)
    assert all(record["doc"] and record["type"] for record in records)


def test_the_list_of_settings_is_found(cli, monkeypatch):
    code, out, err = cli("train", "--model", "gru", "--set", "help")
    assert (code, err) == (0, "") and out == cli("models", "--architectures", "gru")[1]
    assert max(map(len, out.splitlines())) <= 80
    # Each setting begins in the third column, and goes on in a column further right.
    blocks = {b.split()[0]: b.split() for b in re.split(r"\n(?=\w|  \w|\n)", out) if b.split()}
    assert re.search(r"before, after.*\[default: after\]", " ".join(blocks["reset"]))
    one = cli("train", "--model", "gru", "--set", "help=weight-decay")[1].split()
    assert one == ["training:", *blocks["weight_decay"]]
    names = re.findall(r"^  (\w+) ", out.partition("training:")[2].partition("\n\n")[0], re.M)
    assert len(names) > 50 and names == sorted(names)
    found = re.findall(r"^  (\w+) ", cli("train", "--set", "help=rate")[1], re.M)
    assert {"lr", "muon_lr", "schedule"} < {*found} and "hidden_size" not in found
    code, out, err = cli("train", "--set", "help=dropuot")
    assert (code, out, err.count("\n")) == (2, "", 1) and "did you mean 'dropout'?" in err
    assert cli("models", "--architectures", "gruu")[0] == 2
    code, _, err = cli("train", __file__, "--model", "gru", "--set", "rest=before")
    assert code == 2 and "did you mean 'reset'?" in err
    assert "seqgen models --architectures gru" in err and err.count("\n") == 1


# ---- completion ----


def offered(flag, typed):
    """Return what a shell offers for an option of `train`."""
    command = ALL["train"]
    option = next(one for one in command.params if one.name == flag)
    context = typer.Context(command)
    return [item.value for item in option.shell_complete(context, typed)]


def test_what_is_completed_is_what_there_is(there):
    assert completion.tokenizers("") == list(KINDS)
    smoothing = get_type_hints(registry.architecture("ngram").load_config())["smoothing"]
    assert offered("smoothing", "") == list(get_args(get_args(smoothing)[0]))
    assert completion.models("ti") == ["tiny"] and completion.models("a:0.5+t") == ["a:0.5+tiny"]
    assert completion.models("x") == []
    assert completion.architectures("rn") == ["rnn"] and "gpt" in completion.preset_names("")
    assert offered("optimizer", "ad") == ["adagrad", "adam", "adamw"]


COMPLETE = """
import sys
from seqgen.cli import run
try:
    run([])
finally:
    sys.stderr.write(str("torch" in sys.modules))
"""


@pytest.mark.fast_for("*sample*", rest="slow")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [("seqgen sample -m t", "tiny"), ("seqgen train --model tr", "transformer")],
)
def test_a_shell_gets_completions_without_torch(line, wanted, shared):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE],
        env={
            **os.environ,
            **words,
            "PYTHONPATH": str(Path(registry.__file__).parents[1]),
            "SEQGEN_HOME": str(shared / "home"),
            "_SEQGEN_COMPLETE": "complete_bash",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == [wanted]
    assert done.stderr == "False"


# ---- numbers and tables ----


def test_numbers_for_people():
    assert [plural(n, "minute") for n in (0, 1, 1.0, 1.5, 2000)] == [
        *("0 minutes", "1 minute", "1 minute", "1.5 minutes", "2,000 minutes")
    ]
    counts = {9999: "9,999", 10_000: "10.0 K", 999_499: "999 K", 999_500: "1.00 M", 2.5e9: "2.50 B"}
    assert {n: tables.short_count(n) for n in counts} == counts
    spans = {0.42: "0.42 s", 3.21: "3.2 s", 9.96: "10 s", 59.7: "1 min 00 s", 7260: "2 h 01 min"}
    assert {t: tables.duration(t) for t in spans} == spans
    assert (tables.clock(65), tables.clock(3725)) == ("1:05", "1:02:05")
    now = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    ages = {
        "2026-01-31T11:59:30+00:00": "just now",
        "2026-01-31T11:56:59Z": "3 min ago",
        "2026-01-31T10:00:00+00:00": "2 h ago",
        "2026-01-30T12:00:00+00:00": "1 day ago",
        "2024-01-01T00:00:00+00:00": "2 years ago",
        "yesterday": "-",
    }
    assert {then: tables.age(then, now) for then in ages} == ages
    assert (tables.figure(-0.0, 2), tables.figure(-0.004, 2)) == ("0.00", "0.00")
    assert tables.figure(None) == tables.count(None) == tables.percentage(None) == "-"


def test_numbers_are_formatted_in_one_place():
    """No command has decimals, thousands or a percent sign of its own."""
    own, package = [], ROOT / "seqgen"
    commands = {*package.glob("cli/**/*.py"), *package.glob("plugins/*/*command.py")}
    drawings = {
        package / "cli" / "shell" / name for name in ("coloured_text.py", "page.py", "pictures.py")
    }
    for path in sorted(commands - drawings):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            spec = getattr(node, "format_spec", None)
            if spec and re.search(r"[,%_eEfgG]|\.\d", _literal(spec)):
                own.append(f"{path.name}:{node.lineno}")
    assert [where for where in own if not where.startswith("tables.py:")] == []
    assert own, "the test would see one"
    assert tables.interval(12.3, 0.5, 2) == "12.30 ± 0.50"
    assert tables.interval(1, None) == "1.0000" and tables.significant(1.25e13, 3) == "1.25e+13"


def _literal(format_spec):
    parts = (getattr(part, "value", None) for part in format_spec.values)
    return "".join(part for part in parts if isinstance(part, str))


def test_a_table_that_does_not_fit_is_turned(cli, monkeypatch, capfd):
    for module in (tables, sys.modules["seqgen.cli.shell.output"]):
        monkeypatch.setattr(module, "is_terminal", lambda stream: True)
    names, rows = ["model", *(f"figure-{n}" for n in range(9))], [["m" * 30, *["1.2345"] * 9]]
    monkeypatch.setenv("COLUMNS", "80")
    tables.put_table(names, rows)
    turned = capfd.readouterr().out
    assert max(map(len, turned.splitlines())) <= 80
    assert turned.count("1.2345") == 9 and turned.splitlines()[0] == "m" * 30
    monkeypatch.setenv("COLUMNS", "200")
    tables.put_table(names, rows)
    assert "m" * 30 + "   " in capfd.readouterr().out.splitlines()[3]


@dataclass
class _Row:
    name: str = column("name")
    size: int
    loss: float | None = column("loss", "figure", 2)
    steps: int = column("steps", "count")
    clipped: float = column("clipped", "percentage", unless=0)


def test_columns_are_declared_by_the_fields_of_records():
    rows = [_Row("a", 1, None, 12345, 0), _Row("b", 2, 0.125, 7, 0.0)]
    columns = tables.declared_columns(rows, ("name", "steps", "other"))
    assert list(columns) == ["name", "steps", "loss"]
    cells = [[show(row) for show in columns.values()] for row in rows]
    assert cells == [["a", "12,345", "-"], ["b", "7", "0.12"]]
    rows.append(_Row("c", 3, 1, 1, 0.5))
    assert tables.declared_columns(rows)["clipped"](rows[0]) == "0.00%"


def test_the_formats_of_declared_columns_exist():
    package = Path(tables.__file__).parents[2]
    declared = re.compile(r'\bcolumn\("[^"]+", "(\w+)"')
    forms = {path: declared.findall(path.read_text("utf-8")) for path in package.rglob("*.py")}
    of_core = [forms[path] for path in forms if package / "plugins" not in path.parents]
    assert len([*itertools.chain(*of_core)]) > 15
    assert {*itertools.chain(*forms.values())} <= set(tables.FORMATS)


# ---- screens ----


def test_the_list_of_models_has_a_line_each_of_at_most_80(there, cli):
    lines = cli("models")[1].splitlines()
    assert len(lines) == 2 and max(map(len, lines)) <= 80
    assert lines[1].split()[:3] == ["tiny", "lstm", "char"]
    assert lines[1].endswith(("just now", "ago"))


def test_show_hassix_facts_the_curve_and_what_is_not_the_default(there, cli):
    out = cli("models", "show", "tiny")[1]
    facts = out.partition("\n\n")[0].splitlines()
    names = ["model", "text", "tokenizer", "training", "validation", "written"]
    assert [line.split()[0] for line in facts] == names
    record = store.find("tiny").record
    assert f"{record['parameters']:,} parameters" in facts[0]
    assert f"{record['result']['val_bits_per_char']:.4f} bits/char" in facts[4]
    last = out.splitlines()[-3:]
    assert [line.split()[0] for line in last] == ["model", "training", "data"]
    # Neither what every architecture has by default (clip_norm) nor an LSTM's own (lr, muon).
    assert last[0].split(maxsplit=1)[1] == "hidden_size 8, num_layers 1"
    assert last[1].split(maxsplit=1)[1] == (
        "steps 3, precision float32, compile false, row_threads 1, seed 1"
    )
    assert last[2].split(maxsplit=1)[1] == "all as by default"
    everything = cli("models", "show", "tiny", "--all")[1]
    assert re.search(r"(?m)^clip_norm +1\.0$", everything)
    assert str(record["result"]["val_bits_per_char"]) in everything


def test_settings_that_follow_from_the_optimizer_and_the_schedule_are_its_defaults():
    config = store.StoredModel(MODELS / "lstm-char").config
    assert config["training"]["optimizer"] == "muon"
    chosen = {"optimizer": "sgd", "schedule": "slanted_triangular", "k2": 7}
    resolved = {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.0, "warmup": 0.1, "min_lr": 1 / 32}
    config["training"] = {**chosen, **resolved}
    config["model"] = {"vocab_size": 9, "forget_bias": None, "dropout": 0.1}
    apart = model_facts.settings_apart(config)
    said = "optimizer sgd, schedule slanted_triangular, k2 7"
    assert (apart["model"], apart["training"]) == ("forget_bias none", said)
    config["architecture"] = "of-a-later-version"
    assert "vocab_size 9" in model_facts.settings_apart(config)["model"]


def started():
    return Started(
        name="m",
        architecture="lstm",
        parameters=1,
        vocab_size=1,
        train_tokens=1000,
        val_tokens=100,
        val_totals=ScoreTotals(tokens=100, characters=100, bytes=100),
        training=TrainingConfig(minutes=1),
        device="cpu",
    )


def test_the_first_line_names_the_vocabulary_of_sources_of_their_own():
    from dataclasses import replace

    from seqgen.cli.shell.progress import describe, describe_further

    assert "1 parameter; 1,000 tokens to train on, 100 held out; 1 minute" in describe(started())
    assert describe_further(started()) == "1 token in the vocabulary; auto on cpu"
    apart = describe_further(replace(started(), vocab_size=1500, source_vocab_size=90))
    assert "90 tokens in the vocabulary of sources, 1,500 in that of targets; auto" in apart


def test_only_verbose_runs_say_how_choices_were_made(capfd):
    from seqgen.cli.shell.progress import LineDisplay

    said = []
    for verbose in (False, True):
        display = LineDisplay(verbose)
        for event in (Notice(text="bf16 is slow", detail=True), Notice(text="beware"), started()):
            display.take(event)
        said.append(capfd.readouterr().err.splitlines())
    assert [line.split(":")[0] for line in said[0]] == ["beware", "m"]
    assert said[1] == ["bf16 is slow", *said[0], "1 token in the vocabulary; auto on cpu"]


def events():
    yield started()
    yield Notice(text="a notice")
    for step, loss, best in ((10, 2.5, True), (20, 2.75, False)):
        yield Validated(step=step, seconds=1.0, val_loss=loss, best=best)
    yield Progress(
        step=1234567,
        share=0.25,
        seconds=30.0,
        tokens=5,
        train_loss=3.25,
        train_loss_std=0.0,
        epoch_loss=None,
        epoch_loss_std=None,
        lr=1.0,
        grad_norm=1.0,
        tokens_per_second=123456.0,
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_live_line_keeps_bar_loss_and_time_left(width, monkeypatch):
    shown = io.StringIO()
    terminal = Console(file=shown, width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "console", lambda stream: terminal)
    with progress.LiveDisplay() as live:
        for event in events():
            live.take(event)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).replace("\r", "\n").split("\n")
    assert max(map(len, lines)) <= width and not any("…" in line for line in lines)
    (last,) = {line for line in lines if "loss" in line}
    assert "\u2501" * 3 in last and " 25% loss 3.2500 " in last and last.endswith("ETA 1:30")
    assert ("tokens/s" in last, "bits/char" in last) == (width == 120, width > 60)
    # Validations stay above, and only the one that is no better says more.
    assert "step 10  val 2.5000  3.607 bits/char" in [line.strip() for line in lines]
    assert "step 20  val 2.7500  3.967 bits/char  (no better)" in [line.strip() for line in lines]
    assert any("1 minute, " in line for line in lines) and not any("best" in line for line in lines)


def test_signatures_are_for_those_who_ask(there, cli):
    for command in ("perplexity", "compare tiny", "eval --perplexity"):
        words = command.split() + ([] if command[0] == "c" else ["-m", "tiny"])
        assert "|version:" not in "".join(cli(*words)[1:]), command
        assert "|version:" in cli(*words, "--verbose")[2]
        assert "|version:" in cli(*words, "--json")[1]


# ---- comforts ----


def test_threads(there, cli):
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            patch.setenv(variable, "1")
        try:
            few = ["sample", "-m", "tiny", "--max-tokens", "1", "--quiet"]
            assert cli(*few, "--threads", "2")[0] == 0
            assert torch.get_num_threads() == 2 and os.environ["OMP_NUM_THREADS"] == "2"
        finally:
            torch.set_num_threads(before)


# What computes nothing on several threads, and what only lists or moves files.
WITHOUT_THREADS = {"bench plan", "bleu", "data", "help", "import", "plugins", "tokenize"}
WITHOUT_THREADS |= {name for name in ALL if name.split()[:1] == ["models"]}


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("", "bench", *WITHOUT_THREADS)])
def test_a_wrong_number_of_threads_is_refused_in_our_words(name, cli):
    range_of = f"from 1 to {MOST_THREADS}"
    for wrong, said in (("0", f"{range_of}, not 0"), ("many", "a whole number, not 'many'")):
        refusal = f"seqgen: --threads must be {said}\n"
        assert cli(*name.split(), "--threads", wrong) == (2, "", refusal)


def test_numbers_are_refused_in_our_words(cli):
    """Those of every command: no library's text is left."""
    refused = 0
    for name, command in ALL.items():
        for option in command.params:
            if getattr(option, "metavar", None) in ("N", "X", "R", "BETA"):
                flag = max(option.opts, key=len)
                code, _, err = cli(*name.split(), flag, "x")
                said = rf"seqgen: {flag} must be (a whole number( \(.*\))?|a number), not 'x'\n"
                assert code == 2 and re.fullmatch(said, err), (name, err)
                refused += 1
    assert refused > 80


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("", "bench")])
def test_every_command_takes_the_options_that_mean_the_same_everywhere(name):
    named = {flag: option for option in ALL[name].params for flag in option.opts}
    shared = {"--threads", "--json", "--quiet", "--verbose"}
    assert SAME_EVERYWHERE.keys() == shared
    for flag, field in SAME_EVERYWHERE.items():
        if flag != "--threads" or name not in WITHOUT_THREADS:
            assert named[flag].help == field.metadata["doc"]
    assert ("--threads" in named) == (name not in WITHOUT_THREADS)


@needs("replay")
@pytest.mark.parametrize("name", [name for name in ALL if name])
def test_record_is_offered_where_a_replay_repeats_the_results(name):
    from seqgen.plugins.replay.command import REPLAYED

    flags = {flag for option in ALL[name].params for flag in option.opts}
    assert ("--record" in flags) == (name in REPLAYED)


def test_rename_on_the_command_line(cli, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    ngram = ["--model", "ngram", "--order", "2", "--quiet"]
    assert cli("train", tmp_path / "text.txt", "--name", "a", *ngram)[0] == 0
    assert cli("train", tmp_path / "text.txt", "--name", "b", *ngram)[0] == 0
    code, out, err = cli("models", "rename", "a", "b")
    assert (code, out, err.count("\n")) == (2, "", 1) and "already exists" in err
    assert cli("models", "rename", "a", "../c")[0] == 2
    assert cli("models", "rename", "a", "c") == (0, "", "a is now c\n")
    assert cli("models", "path", "c")[1].rstrip().endswith("/c")
    assert cli("sample", "-m", "a")[0] == 1
    assert cli("sample", "-m", "c", "--max-tokens", "2", "--quiet")[0] == 0


@contextlib.contextmanager
def typing(monkeypatch, *lines):
    """Type lines at a terminal; an exception is a key, and the last one Ctrl-D."""
    typed = iter([*lines, EOFError()])

    def answer(prompt):
        line = next(typed)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr(builtins, "input", answer)
    for module in ("sample", "shell.writing"):
        monkeypatch.setattr(f"seqgen.cli.{module}.is_terminal", lambda stream: True)
    yield


def test_interactive_sampling(there, cli, monkeypatch):
    few = ["-m", "tiny", "--max-tokens", "5", "--quiet"]
    with typing(monkeypatch, "the cat", KeyboardInterrupt(), "\u65e5", "A dog"):
        code, out, err = cli("sample", "-i", *few, "--seed", "3")
    assert code == 0 and err.count("\n") == 1 and "does not know '\u65e5'" in err
    texts = [
        cli("sample", prompt, *few, "--echo", "--seed", str(seed))[1]
        for prompt, seed in (("the cat", 3), ("A dog", 5))
    ]
    # Each text ends with a newline; one more for the two keys, and for the refused prompt.
    assert out == texts[0] + "\n" + "\n" + texts[1] + "\n"


def test_ctrl_c_stops_the_text_and_not_the_session(there, cli, monkeypatch):
    from seqgen.generation import sample as task

    def stream(loaded, prompt, options):
        yield "begun"
        if prompt == "one":
            raise KeyboardInterrupt
        yield " and ended"

    monkeypatch.setattr(task, "stream", stream)
    with typing(monkeypatch, "one", "two"):
        code, out, err = cli("sample", "-i", "-m", "tiny", "--quiet", "--no-echo")
    assert (code, out, err) == (0, "begun\nbegun and ended\n\n", "")


@pytest.mark.parametrize(
    ("more", "pattern"),
    [([], "terminal"), (["a"], "PROMPT"), (["--json"], "--json"), (["--explain"], "--explain")],
)
def test_interactive_refuses_what_makes_no_sense(more, pattern, cli):
    code, out, err = cli("sample", "-i", *more)
    assert (code, out, err.count("\n")) == (2, "", 1) and pattern in err


def test_settings_are_found_by_what_other_tools_call_them(cli, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    code, _, err = cli("train", tmp_path / "text.txt", "--average", "0.9")
    assert code == 2 and err.count("\n") == 1 and "set it by --set ema=VALUE" in err
    assert cli("train", "--learning-rate", "x") == cli("train", "--lr", "x")
    # What `tune --set` refuses: a trial has a budget of its own.
    for command in installed([("tune", "--steps"), ("tune", "--epochs"), ("tune", "--max-steps")]):
        assert "did you mean --trial-steps?" in cli(*command, "1")[2]
    for name, meant in (("averaging", "ema"), ("n_embd", "hidden_size"), ("emaa", "ema")):
        code, _, err = cli("train", tmp_path / "text.txt", "--set", f"{name}=1", "--steps", "1")
        assert code == 2 and f"did you mean {meant!r}?" in err
    assert "--set" not in cli("sample", "--learning-rate", "1")[2]


@pytest.mark.parametrize(
    ("more", "pattern"),
    [
        (["--layers", "0"], "seqgen: --layers must be from 1"),
        (["--hidden-size=0"], "seqgen: --hidden-size must be at least 1"),
        (["--set", "hidden_size=0"], "seqgen: hidden_size must be at least 1"),
        (["--model", "ngram", "--layers", "3"], "--layers is for --model "),
        (
            ["--model", "transformer", "--hidden-size", "6", "--heads", "4"],
            "seqgen: --heads must divide --hidden-size",
        ),
    ],
)
def test_messages_name_flags_as_they_were_given(more, pattern, cli, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    code, _, err = cli("train", tmp_path / "text.txt", "--steps", "1", *more)
    assert (code, err.count("\n")) == (2, 1) and pattern in err


@pytest.mark.parametrize(
    ("command", "meant"),
    [("average", "seqgen train --set ema=0.999 averages weights"), ("resume", "seqgen train")],
)
def test_commands_are_found_by_what_other_tools_call_them(command, meant, cli):
    code, out, err = cli(command, "a", "b")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"seqgen: there is no command {command!r}: {meant}")

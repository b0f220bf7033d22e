import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from helpers_cli import has_plugin, installed, known_architectures
from places import ROOT

from seqgen import __version__
from seqgen.cli import run
from seqgen.cli.shell.output import one_line, unescape

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = ["--hidden-size", "8", "--layers", "1", "--seed", "1", "--precision", "float32"]
SHORT = ["--steps", "3", *TINY]

KEYS = {
    "sample": "index sample prompt text tokens logprob finish_reason seed model",
    "beam-search": "index rank prompt text tokens logprob score finish_reason model seed",
    "perplexity": "file model tokens characters bytes nll_nats perplexity perplexity_without_oov "
    "bits_per_token bits_per_char bits_per_byte oov accuracy protocol",
    "train": "name path architecture parameters steps tokens train_loss val_loss val_bits_per_char "
    "val_bits_per_byte seconds validation_seconds tokens_per_second stopped",
    "models": "name path architecture parameters tokenizer val_bits_per_char created",
}


def with_keys(command, line):
    """Read a record and check that it has the documented keys first, in order."""
    record, keys = json.loads(line), KEYS[command].split()
    assert list(record)[: len(keys)] == keys
    return record


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A text, and a home with one model trained on it: nobody writes into it."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        assert run(["train", str(folder / "text.txt"), "--name", "tiny", "--quiet", *SHORT]) == 0
    return folder


@pytest.fixture
def text(shared):
    return str(shared / "text.txt")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A home of one's own."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models"


@pytest.fixture
def there(shared, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(shared / "home"))


@pytest.fixture
def cli(capfdbinary, monkeypatch):
    """Run a command in this process; give back its code, output and errors."""

    def command(*arguments):
        capfdbinary.readouterr()
        code = run([str(a) for a in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return command


def environment(home=None, **more):
    package = str(ROOT)
    extra = {"OMP_NUM_THREADS": "1", "PYTHONPATH": package}
    return {**os.environ, **extra, **({"SEQGEN_HOME": str(home)} if home else {}), **more}


def program(*arguments, stdin=b"", home):
    """Run `seqgen` apart from this process; bytes come in by a pipe."""
    code, out, err = forked.program(arguments, stdin, SEQGEN_HOME=str(home))
    return code, out.decode(), err.decode()


def refused(outcome, code, pattern):
    """One plain line on standard error, nothing on standard output."""
    assert outcome[0] == code, outcome
    assert outcome[1] == ""
    assert outcome[2].count("\n") == 1 and outcome[2].endswith("\n"), outcome[2]
    assert outcome[2].startswith("seqgen") and "\x1b" not in outcome[2]
    assert re.search(pattern, outcome[2]), outcome[2]


# ---- usage ----


def test_version_and_help(cli):
    assert cli("--version") == (0, f"seqgen {__version__}\n", "")
    for command in (
        [],
        ["train"],
        ["sample"],
        ["perplexity"],
        ["bleu"],
        ["eval"],
        ["compare"],
        ["models"],
    ):
        code, out, err = cli(*command, "--help")
        assert (code, err) == (0, "")
        assert "Usage: seqgen" in out and "\x1b" not in out and "\u256d" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "pattern"),
    [
        (["trian"], 2, "trian"),
        (["sample", "--tempreature", "1"], 2, "tempreature"),
        (["sample", "--top-k", "many"], 2, "--top-k"),
        (["sample", "--temperature", "-1"], 2, "--temperature"),
        (["sample", "--top-k", "0"], 2, "--top-k"),
        (["sample", "--top-p", "1.5"], 2, "--top-p"),
        (["sample", "--max-tokens", "-1"], 2, "--max-tokens"),
        (["sample", "--num-samples", "0"], 2, "--num-samples"),
        (["sample", "--batch-size", "0"], 2, "batch-size"),
        (["sample", "--stop", ""], 2, "--stop"),
        (["sample", "--stop", b"\xff"], 2, "--stop is not UTF-8 text: byte 0xff at offset 0"),
        (["sample", "--ban", b"a\\n\xff"], 2, "--ban is not UTF-8 text: byte 0xff at offset 2"),
        (["sample", "--force", b"\xc3\xa9\xc3"], 2, "--force is not .*: byte 0xc3 at offset 2"),
        (["beam-search", "--stop", b"\xff"], 2, "--stop is not UTF-8 text"),
        (["beam-search", b"a\xff"], 1, "byte 0xff at offset 1"),
        (["sample", "--repetition-penalty", "1e39"], 2, "from 0.001 to 1,000, not 1e\\+39"),
        (
            ["sample", "--frequency-penalty", "1e38"],
            2,
            "--frequency-penalty must be from -1,000",
        ),
        (["sample", "--presence-penalty=-1e39"], 2, "--presence-penalty must be from -1,000 to"),
        (["beam-search", "--alpha", "200"], 2, "--alpha must be from -10 to 10, not 200"),
        (["beam-search", "--length-norm", "gnmt", "--alpha=-400"], 2, "--alpha must be from -10"),
        (["beam-search", "--max-tokens", "-1"], 2, "--max-tokens must be at least 0, not -1"),
        (["sample", "--seed", "-1"], 2, "seed"),
        (["sample", "--device", "abacus"], 2, "--device"),
        (["sample", "--precision", "int3"], 2, "--precision"),
        (["sample", "a", "--prompt-file", "b"], 2, "--prompt-file"),
        (["sample", "--prompt-file", "/nowhere"], 1, "/nowhere"),
        (["sample", "-m", "tyny"], 1, "did you mean 'tiny'"),
        (["sample", "-m", "./tiny"], 1, "no model folder"),
        (["sample", "-m", ".."], 2, "cannot be a model's name"),
        (["sample", "-m", ""], 2, "cannot be a model's name"),
        (["sample", "aZ"], 1, r"'Z' \(line 1, column 2"),
        (["sample", "a", "the\n\u00e9"], 1, "\\\\xe9|\u00e9"),
        (["sample", b"a\xff"], 1, "byte 0xff at offset 1"),
        (["perplexity", "/nowhere"], 1, "/nowhere"),
        (["perplexity", "--documents", "page"], 2, "--documents"),
        (["models", "show", "tyny"], 1, "did you mean 'tiny'"),
        (["models", "remove", "tiny"], 2, "--yes"),
        (["models", "remove"], 2, "(?i)names"),
        (["models", "--architectures", "show"], 2, "--architectures"),
        (["models", "frobnicate"], 2, "frobnicate"),
    ],
)
def test_wrong_usage_is_one_line(there, cli, arguments, code, pattern):
    arguments = [os.fsdecode(a) if isinstance(a, bytes) else a for a in arguments]
    if arguments[1:2] == ["a"] and code == 1:  # the record before the unknown comes first
        outcome = cli(*arguments, "--max-tokens", "2", "--quiet")
        assert outcome[1].count("\n") == 1
        refused((outcome[0], "", outcome[2]), code, r"prompt '.*': .*\(line 2, column 1\)")
        return
    quiet = [] if arguments[0] in ("models", "trian") else ["--quiet"]
    refused(cli(*arguments, *quiet), code, pattern)


@pytest.mark.parametrize(
    ("flags", "code", "pattern"),
    [
        (["--model", "lstn"], 2, "did you mean 'lstm'"),
        (["--model", "qqqq"], 2, r"; seqgen models --architectures lists all"),
        (["--name", "../x"], 2, "cannot be a model's name"),
        (["--name", "latest"], 2, "reserved"),
        (["--name", "tiny"], 2, "--overwrite"),
        (["--set", "hiden_size=3"], 2, "did you mean 'hidden_size'"),
        (["--set", "layers=1"], 2, "num_layers"),
        (["--set", "nonsense"], 2, "KEY=VALUE"),
        (["--set", "seq_len=inf"], 2, "seq_len must be a whole number"),
        (["--set", "beta1=nan"], 2, "beta1 must be a number"),
        (["--set", "forget_bias=1e999"], 2, "forget_bias"),
        (["--steps", "0"], 2, "steps"),
        (["--steps", "3", "--minutes", "1"], 2, "one budget"),
        (["--heads", "2"], 2, "--heads is for --model "),
        (["--tokenizer", "wrod"], 2, "did you mean 'word'"),
        (["--documents", "page"], 2, "documents"),
        (["--val", "1.5"], 2, "--val"),
        (["--val", "/nowhere"], 1, "/nowhere"),
        (["--vocab-size", "3"], 2, "--vocab-size must be at least 5"),
        (["--seed", str(1 << 64)], 2, "seed must be from 0 to 9,223,372,036,854,775,807, not"),
        (["--config", "/nowhere.toml"], 1, "/nowhere.toml"),
        (["--changed-data"], 2, "--changed-data"),
        (["--hidden-size", "10000000"], 2, "--hidden-size must be from 1 to 1,048,576, not"),
        (["--hidden-size", "1000000"], 1, "out of memory"),
        (["--lr", "fast"], 2, "--lr"),
    ],
)
def test_wrong_training_is_one_line_and_leaves_nothing(
    shared, there, cli, text, flags, code, pattern
):
    refused(cli("train", text, *flags), code, pattern)
    assert [p.name for p in (shared / "home" / "models").iterdir()] == ["tiny"]


@pytest.mark.parametrize(
    ("content", "flags", "pattern"),
    [
        (b"", [], "contains no text"),
        (b"\xef\xbb\xbf", [], "contains no text"),
        (b"\x00\x01\x80\x90\xff" * 9, [], r"byte 0x80 at offset 2"),
        (b"a", [], "nothing is left to train on"),
        (b"one line only", ["--documents", "line"], "nothing is left to train on"),
        (b"one-long-word", ["--tokenizer", "word", "--val", "0.01"], "validation part is empty"),
        (b"word", ["--tokenizer", "whitespace"], "validation part is empty"),
    ],
)
def test_unfit_texts_are_one_line(own, cli, tmp_path, content, flags, pattern):
    (tmp_path / "data").write_bytes(content)
    refused(cli("train", tmp_path / "data", *flags), 1, pattern)
    assert not own.exists()


def test_no_text_at_all(own, cli, tmp_path):
    refused(cli("train"), 2, "give a text file")
    refused(cli("train", tmp_path / "gone"), 1, "there is no file")
    refused(cli("tokenize", "To be"), 1, "no file To be; a text itself is read from standard input")
    refused(cli("train", "gru", tmp_path / "gone"), 2, "no file gru; .* give --model gru")
    refused(cli("train", "gpt"), 2, "give --preset gpt")
    (tmp_path / "book.txt").write_text("a text")
    refused(cli("train", tmp_path / "boook.txt"), 1, r"boook\.txt; did you mean 'book\.txt'\?$")
    refused(cli("train", ""), 2, "a file has no name")
    refused(cli("sample"), 1, "run seqgen train")
    refused(cli("perplexity"), 1, "run seqgen train")


def test_a_home_that_is_a_file_is_named_before_any_work(cli, text, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not an ARPA file")
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "file"))
    counted = ["--model", "ngram", "--minutes", "1"]  # which a note says are ignored
    calls = [["train", text, *counted], ["import", tmp_path / "file"], ["sample"]]
    for command in installed(calls):
        refused(cli(*command), 1, "^seqgen: SEQGEN_HOME=.* is a file; set it to a folder")


def test_a_file_whose_name_begins_with_a_dash(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("-dash.txt").write_text("a text")
    refused(cli("train", "-dash.txt"), 2, r"-dash\.txt; the file of this name is \./-dash\.txt")


def test_a_very_short_text_is_said(cli, tmp_path, own):
    (tmp_path / "t.txt").write_text("abc")
    code, _, err = cli("train", tmp_path / "t.txt", "--model", "ngram")
    assert code == 0 and "the text has 3 characters, too few to learn from; give a longer" in err


def test_a_step_that_reads_very_much_is_said(cli, tmp_path, own):
    (tmp_path / "t.txt").write_text("ab" * 200_000)
    small = ["--model", "lstm", "--layers", "1", "--hidden-size", "1", "--steps", "1"]
    code, _, err = cli("train", tmp_path / "t.txt", *small, "--seq-len", 10**9, "--device", "cpu")
    assert code == 0 and "a step reads 11,520,000 tokens and may take minutes; a smaller " in err


@pytest.mark.parametrize(
    ("out", "code", "pattern"),
    [
        ("none/x.tok", 2, r"there is no folder .*none: make it, or give another --out$"),
        ("/proc/x.tok", 1, "no file can be made in this folder; choose another$"),
    ],
)
def test_output_into_a_folder_that_is_not_there(shared, cli, text, tmp_path, out, code, pattern):
    call = cli("tokenize", text, "--tokenizer", "byte", "--out", tmp_path / out)
    refused(call, code, pattern)


@pytest.mark.parametrize("below", ["file", "proc"])
def test_a_home_that_cannot_be_written(cli, text, tmp_path, monkeypatch, below):
    (tmp_path / "file").write_text("x")
    home = tmp_path / "file" / "home" if below == "file" else Path("/proc/nowhere")
    monkeypatch.setenv("SEQGEN_HOME", str(home))
    refused(cli("train", text, *SHORT), 1, "cannot be written: .*set SEQGEN_HOME")


@pytest.mark.parametrize(
    ("name", "content", "pattern"),
    [
        ("c.toml", "steps = ", "is not TOML"),
        ("c.json", "{", "is not JSON"),
        ("c.json", "[1]", "contains no settings"),
        ("c.toml", "stpes = 3", "did you mean 'steps'"),
        ("c.toml", "architecture = 5", "no architecture"),
        ("c.toml", "steps = 'many'", "steps must be a whole number"),
    ],
)
def test_a_damaged_configuration_file_is_one_line(own, cli, text, tmp_path, name, content, pattern):
    (tmp_path / name).write_text(content)
    code, out, err = cli("train", text, "--config", tmp_path / name)
    refused((code, out, err), code, pattern)
    assert code in (1, 2)


# ---- train ----


def test_training_gives_one_record_and_its_val_loss_is_perplexity(own, cli, text):
    code, out, err = cli("train", text, "--name", "x", "--json", *SHORT)
    assert code == 0 and out.count("\n") == 1
    record = with_keys("train", out)
    assert (record["name"], record["steps"], record["stopped"]) == ("x", 3, "steps")
    assert record["path"] == str(own / "x")
    assert "\x1b" not in err and "x: 3 steps" in err
    code, out, _ = cli("perplexity", "--precision", "float32", "--json")
    score = with_keys("perplexity", out)
    assert score["file"] == "validation"
    assert score["nll_nats"] / score["tokens"] == pytest.approx(record["val_loss"], rel=1e-9)
    assert score["bits_per_char"] == pytest.approx(record["val_bits_per_char"], rel=1e-9)
    assert score["bits_per_byte"] == pytest.approx(record["val_bits_per_byte"], rel=1e-9)
    assert score["characters"] == len(TEXT) - len(TEXT) * 9 // 10


@pytest.mark.parametrize("architecture", ["rnn", "gru", "transformer"])
def test_every_architecture_on_lines(own, cli, text, architecture):
    flags = ["--documents", "line", "--model", architecture, "--name", "x", "--json", *SHORT]
    flags += ["--heads", "2"] if architecture == "transformer" else []
    code, out, _ = cli("train", text, *flags)
    assert code == 0
    val_loss = with_keys("train", out)["val_loss"]
    score = json.loads(cli("perplexity", "--precision", "float32", "--json")[1])
    assert score["nll_nats"] / score["tokens"] == pytest.approx(val_loss, rel=1e-6)
    code, out, _ = cli("sample", "--json", "--max-tokens", "40", "--seed", "1")
    assert code == 0 and with_keys("sample", out)["model"] == "x"


def test_quiet_says_nothing(own, cli, text):
    assert cli("train", text, "--quiet", *SHORT) == (0, "", "")
    assert cli("sample", "--quiet", "--max-tokens", "0") == (0, "\n", "")
    assert cli("perplexity", "--quiet", "--json")[2] == ""


def test_a_configuration_file_and_a_models_own(own, cli, text, tmp_path):
    (tmp_path / "c.toml").write_text(
        'architecture = "gru"\nseed = 5\n[model]\nhidden_size = 6\nnum_layers = 1\n'
        "[training]\nsteps = 2\nprecision = 'float32'\n[data]\nval = 0.2\n"
    )
    code, out, _ = cli("train", text, "--config", tmp_path / "c.toml", "--name", "a", "--json")
    first = json.loads(out)
    assert (code, first["architecture"], first["steps"], first["seed"]) == (0, "gru", 2, 5)
    code, out, _ = cli(
        "train", text, "--config", own / "a" / "config.json", "--name", "b", "--json"
    )
    again = json.loads(out)
    assert {k: v for k, v in again.items() if "loss" in k or k == "parameters"} == {
        k: v for k, v in first.items() if "loss" in k or k == "parameters"
    }
    # A flag wins over the file, and a budget over another budget.
    flags = ["--hidden-size", "4", "--epochs", "0.01", "--name", "c", "--json"]
    code, out, _ = cli("train", text, "--config", own / "a" / "config.json", *flags)
    assert json.loads(out)["parameters"] < first["parameters"]
    assert json.loads((own / "c" / "config.json").read_text())["training"]["steps"] is None


def test_overwrite(own, cli, text):
    assert cli("train", text, "--name", "x", "--quiet", *SHORT)[0] == 0
    before = (own / "x" / "config.json").read_text()
    refused(cli("train", text, "--name", "x", *SHORT), 2, "--overwrite")
    assert (own / "x" / "config.json").read_text() == before
    flags = ["--name", "x", "--overwrite", "--quiet", "--model", "gru"]
    assert cli("train", text, *flags, *SHORT)[0] == 0
    assert '"gru"' in (own / "x" / "config.json").read_text()


def test_stopping_and_going_on_is_the_same_as_not_stopping(own, cli, text):
    _, whole, _ = cli("train", text, "--name", "whole", "--json", "--steps", "6", *TINY)
    code, out, err = cli(
        "train", text, "--name", "parts", "--json", "--steps", "6", "--stop-after", "2", *TINY
    )
    assert (code, json.loads(out)["stopped"]) == (0, "stop-after")
    assert "seqgen train --resume parts" in err
    refused(cli("train", "--resume", "parts", "--hidden-size", "9"), 2, "change --hidden-size")
    refused(cli("train", "--resume", "parts", "--model", "gru"), 2, "--model")
    code, out, _ = cli("train", "--resume", "parts", "--json")
    whole, parts = json.loads(whole), json.loads(out)
    assert (code, parts["stopped"], parts["steps"]) == (0, "steps", 6)
    assert parts["val_loss"] == whole["val_loss"]
    names = ["model.safetensors", "tokenizer/tokenizer.json"]
    for name in names:
        assert (own / "whole" / name).read_bytes() == (own / "parts" / name).read_bytes()


def test_resuming_another_text_is_refused(own, cli, tmp_path):
    data = tmp_path / "data.txt"
    held_out = tmp_path / "val.txt"
    data.write_text(TEXT)
    held_out.write_text(TEXT[:50])
    flags = ["--name", "x", "--stop-after", "1", "--val", held_out, "--quiet", *SHORT]
    assert cli("train", data, *flags)[0] == 0
    held_out.unlink()  # its text is kept with the model
    data.write_text(TEXT + "cat")
    refused(cli("train", "--resume", "x", "--quiet"), 1, "is not the text x was trained on")
    data.unlink()
    refused(cli("train", "--resume", "x", "--quiet"), 1, "is gone; give --data|is gone")
    data.write_text(TEXT)
    assert cli("train", "--resume", "x", "--quiet")[0] == 0
    (own / "x" / "training.json").write_text("{}")
    refused(cli("train", "--resume", "x", "--quiet"), 1, r"training\.json is damaged")


def test_an_interrupt_before_the_first_step_leaves_nothing(own, cli, text, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("seqgen.training.session.Session._reason_to_stop", lambda *_: "interrupted")
        outcome = cli("train", text, "--name", "x", "--json", "--quiet", *SHORT)
    refused(outcome, 130, "interrupted; nothing saved yet$")
    assert list(own.iterdir()) == []
    refused(cli("sample", "-m", "x"), 1, "there is no model named 'x'")
    assert cli("train", text, "--name", "x", "--json", *SHORT)[0] == 0


def test_a_large_seed_is_exact(own, cli, text):
    seed = (1 << 62) + 1  # no float holds it
    _, out, _ = cli("train", text, "--name", "x", "--json", *SHORT, "--seed", seed)
    assert json.loads(out)["seed"] == seed
    assert json.loads((own / "x" / "config.json").read_text())["training"]["seed"] == seed


@pytest.mark.slow
def test_text_by_standard_input_is_kept(tmp_path):
    home = tmp_path / "home"
    code, out, _ = program("train", "--json", "--name", "x", *SHORT, stdin=TEXT.encode(), home=home)
    assert code == 0 and with_keys("train", out)["name"] == "x"
    (kept,) = (home / "cache" / "text").iterdir()
    assert kept.read_text() == TEXT


LONG = ["--name", "x", "--steps", "100000", "--checkpoint-every", "5"]


def begun(home, text, *flags):
    """Start a long training as a process; return it when it has taken some steps."""
    process = subprocess.Popen(
        [sys.executable, "-m", "seqgen", "train", text, *LONG, *TINY, *flags],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    model = home / "models" / "x"
    checkpoint, log = model / "checkpoints" / "last.safetensors", model / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (checkpoint.exists() and log.exists() and log.stat().st_size):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    return process


@pytest.mark.slow
def test_ctrl_c_saves_says_how_to_go_on_and_can_be_resumed(tmp_path, text):
    home = tmp_path / "home"
    process = begun(home, text, "--json")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    record = with_keys("train", out)
    assert record["stopped"] == "interrupted" and record["steps"] >= 5
    assert err.decode().endswith("resume with: seqgen train --resume x\n")
    assert b"Traceback" not in err
    code, out, _ = program("sample", "--max-tokens", "5", "--json", stdin=b"a\n", home=home)
    assert code == 0 and json.loads(out)["model"] == "x"
    steps = str(record["steps"] + 5)
    code, out, err = program("train", "--resume", "x", "--steps", steps, "--json", home=home)
    assert (code, json.loads(out)["stopped"], json.loads(out)["steps"]) == (0, "steps", int(steps))
    assert "learning-rate schedule now ends after" in err


@pytest.mark.slow
def test_a_killed_training_leaves_a_model_and_no_lock(tmp_path, text):
    home = tmp_path / "home"
    process = begun(home, text)
    second = program("train", "--resume", "x", home=home)
    refused(second, 1, "x is being trained by another run")
    process.kill()
    process.communicate(timeout=60)
    code, out, err = program("sample", "--max-tokens", "3", "--json", stdin=b"a\n", home=home)
    assert code == 0, err
    logged = (home / "models" / "x" / "metrics.jsonl").read_text().splitlines()
    more = json.loads(logged[-1])["step"] + 500  # a checkpoint may be ahead of the last log
    code, out, err = program("train", "--resume", "x", "--steps", str(more), "--json", home=home)
    assert code == 0, err
    record = json.loads(out)
    assert (record["steps"], record["stopped"]) == (more, "steps")
    refused(program("train", "--resume", "x", "--steps", "1", home=home), 2, "a longer budget")


# ---- sample ----


def records(out):
    return [with_keys("sample", line) for line in out.splitlines()]


FEW = ["--seed", "7", "--max-tokens", "12"]


def test_raw_text_for_one_prompt(there, cli):
    code, raw, err = cli("sample", "the", *FEW)
    assert (code, err) == (0, "")
    (record,) = records(cli("sample", "the", "--json", *FEW)[1])
    assert raw == record["text"] + "\n" and len(record["text"]) == record["tokens"] == 12
    assert (record["seed"], record["prompt"], record["model"]) == (7, "the", "tiny")
    assert record["finish_reason"] == "length" and record["logprob"] < 0
    assert cli("sample", "the", "--echo", *FEW)[1] == "the" + raw
    assert cli("sample", "the", "--max-tokens", "0", "--seed", "1") == (0, "\n", "")


def test_a_seed_that_was_drawn_is_reported(there, cli):
    assert cli("sample", "--max-tokens", "20")[2] == ""
    _, text, err = cli("sample", "--max-tokens", "20", "--verbose")
    engine, err = err.split("\n", 1)
    assert "run by" in engine
    seed = re.fullmatch(r"seed (\d+)\n", err)[1]
    assert cli("sample", "--max-tokens", "20", "--seed", seed) == (0, text, "")
    assert records(cli("sample", "--json")[1])[0]["seed"] >= 0
    beams = ["beam-search", "--nbest", "5", "--max-tokens", "9"]
    if has_plugin("searches"):
        assert cli(*beams, "--stochastic")[2] == ""
        _, text, err = cli(*beams, "--stochastic", "--verbose")
        err = err.split("\n", 1)[1]
        seed = re.fullmatch(r"seed (\d+)\n", err)[1]
        assert cli(*beams, "--stochastic", "--seed", seed) == (0, text, "")
        out = cli(*beams, "--stochastic", "--seed", seed, "--json")[1]
        assert {with_keys("beam-search", line)["seed"] for line in out.splitlines()} == {int(seed)}
    _, out, err = cli(*beams, "--json")
    assert (json.loads(out.splitlines()[0])["seed"], err) == (None, "")


def test_several_prompts_are_a_line_each(there, cli):
    _, out, _ = cli("sample", "the", "a", "--num-samples", "2", *FEW, "--json")
    found = records(out)
    assert [(r["index"], r["sample"], r["prompt"]) for r in found] == [
        (0, 0, "the"),
        (0, 1, "the"),
        (1, 0, "a"),
        (1, 1, "a"),
    ]
    _, plain, _ = cli("sample", "the", "a", "--num-samples", "2", *FEW)
    assert plain == "".join(one_line(r["text"]) + "\n" for r in found)
    echoed = cli("sample", "the", "a", "--num-samples", "2", "--echo", *FEW)[1]
    assert echoed == "".join(one_line(r["prompt"] + r["text"]) + "\n" for r in found)
    for size in ("1", "3"):
        sized = cli("sample", "the", "a", "--num-samples", "2", *FEW, "--batch-size", size)[1]
        assert sized == plain


def test_a_prompt_file_is_one_prompt(there, cli, tmp_path):
    (tmp_path / "p").write_bytes(b"\xef\xbb\xbfthe cat\nsat\n")
    assert (
        cli("sample", "--prompt-file", tmp_path / "p", *FEW)[:2]
        == cli("sample", "the cat\nsat\n", *FEW)[:2]
    )
    (tmp_path / "p").write_bytes(b"the \xff")
    refused(cli("sample", "--prompt-file", tmp_path / "p", *FEW), 1, "0xff at offset 4")


def test_greedy_is_temperature_zero(there, cli):
    greedy = cli("sample", "the", "--greedy", "--max-tokens", "20")
    assert greedy[0] == 0 and greedy[2] == ""
    assert (
        cli("sample", "the", "--temperature", "0", "--seed", "3", "--max-tokens", "20")[1]
        == (greedy[1])
    )


def test_stops(there, cli):
    many = ["--seed", "7", "--max-tokens", "200"]
    whole = cli("sample", "the", *many)[1]
    assert "\n" in whole[:-1]
    assert cli("sample", "the", "--stop", r"\n", *many)[1] == whole.split("\n")[0] + "\n"
    (record,) = records(cli("sample", "the", "--stop", r"\n", "--json", *many)[1])
    assert record["finish_reason"] == "stop"
    assert record["tokens"] == len(whole.split("\n")[0]) + 1
    assert cli("sample", "the", "--stop", r"\\n", *many)[1] == whole  # a backslash, then n


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (r"\n", "\n"),
        (r"\t", "\t"),
        (r"\\", "\\"),
        (r"\\n", "\\n"),
        (r"a\qb", r"a\qb"),
        ("\\", "\\"),
    ],
)
def test_escapes(typed, meant):
    assert unescape(typed) == meant


def test_a_line_of_text_can_be_read_back():
    for value in ("a\nb", "a\\nb", "\\", "\n\\\n", "\\\\n"):
        assert "\n" not in one_line(value)
        assert unescape(one_line(value)) == value


@pytest.fixture
def piped(there, stdin, cli):
    """Run with standard input from a pipe, in the shared home."""

    def command(*arguments, content=b""):
        stdin(content)
        return cli(*arguments)

    return command


def test_lines_in_lines_out(piped, there, cli):
    prompts = ["the", "", "a dog", "", "it"]
    lines = "\n".join(prompts).encode()
    how = ("--num-samples", "2", "--precision", "float64", *FEW)
    code, out, err = piped("sample", "--json", *how, content=lines)
    assert (code, err) == (0, "")
    assert [(r["index"], r["sample"], r["prompt"]) for r in records(out)] == [
        (i, j, p) for i, p in enumerate(prompts) for j in range(2)
    ]
    expected = cli("sample", *prompts, "--json", *how)[1]
    # Which prompts share a batch differs; that may change the last digits, and no text.
    for piped_record, record in zip(records(out), records(expected), strict=True):
        assert piped_record.pop("logprob") == pytest.approx(record.pop("logprob"), rel=1e-12)
        assert piped_record == record
    one = piped("sample", "--precision", "float64", *FEW, content=b"the\n")[1]
    assert one == one_line(records(expected)[0]["text"]) + "\n"  # a line, though it is one prompt


def test_an_empty_standard_input_gives_no_records_and_says_so(piped):
    code, out, err = piped("sample", "--json", "--seed", "1", content=b"")
    assert (code, out) == (0, "") and "standard input is empty" in err


def test_a_character_device_means_the_default_prompt(there, cli, monkeypatch):
    with open(os.devnull) as null:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", null)
        assert cli("sample", *FEW) == (0, cli("sample", "", *FEW)[1], "")


def test_an_unknown_in_piped_prompts(piped):
    code, out, err = piped("sample", "--json", *FEW, content="the\na\ncat \u00e9t\nit\n".encode())
    assert code == 1
    assert [r["index"] for r in records(out)] == [0, 1]
    unknown = "seqgen: standard input: the model does not know '\u00e9' (line 3, column 5);"
    assert err.startswith(unknown) and err.count("\n") == 1


def test_an_error_while_more_input_is_awaited_ends_at_once(shared):
    with subprocess.Popen(
        [sys.executable, "-m", "seqgen", "sample", "--json", *FEW],
        env=environment(shared / "home"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b"the\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["prompt"] == "the"  # before more has come
        process.stdin.write(b"aZ\n")
        process.stdin.flush()
        assert process.wait(60) == 1
        assert process.stderr.read().count(b"\n") == 1
        process.stdin.close()


def shell(line, home):
    done = subprocess.run(
        ["/bin/sh", "-c", line.replace("seqgen", f"{sys.executable} -m seqgen")],
        env=environment(home),
        capture_output=True,
        timeout=120,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_a_closed_pipe_ends_quietly(shared, tmp_path):
    (tmp_path / "prompts").write_text("the\n" * 3000)
    line = f"{{ seqgen sample --json --seed 1 --max-tokens 3; echo $? > {tmp_path}/code; }}"
    code, out, err = shell(f"cat {tmp_path}/prompts | {line} | head -1", shared / "home")
    assert (code, err) == (0, "")
    assert len(records(out)) == 1
    assert (tmp_path / "code").read_text() == "0\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("to", ["> /dev/full", ">&-"])
def test_output_that_cannot_be_written_is_one_line(shared, to):
    code, _, err = shell(f"seqgen sample a --seed 1 --max-tokens 3 {to}", shared / "home")
    assert code == 1 and err.count("\n") == 1 and err.startswith("seqgen: ")


# ---- perplexity ----


def test_perplexity_of_files_and_of_standard_input(there, cli, piped, tmp_path):
    first, second = tmp_path / "[b]1.txt", tmp_path / ("long-" * 30 + ".txt")
    first.write_text(TEXT[:100])
    second.write_text("the \u00e9 cat\n")
    code, out, err = cli("perplexity", first, second, "--json")
    assert (code, err) == (0, "")
    one, two = [with_keys("perplexity", line) for line in out.splitlines()]
    assert (one["file"], one["tokens"], one["characters"], one["oov"]) == (str(first), 100, 100, 0)
    assert (two["characters"], two["bytes"], two["oov"]) == (10, 11, 1)
    assert one["perplexity"] == pytest.approx(2 ** one["bits_per_token"])
    assert one["bits_per_token"] == pytest.approx(one["nll_nats"] / 100 / 0.6931471805599453)
    code, out, _ = piped("perplexity", "--json", content=first.read_bytes())
    assert code == 0
    assert json.loads(out) == {**one, "file": "-", "nll_nats": pytest.approx(one["nll_nats"])} | {
        key: pytest.approx(value) for key, value in one.items() if isinstance(value, float)
    }
    code, table, _ = cli("perplexity", first, second)
    assert code == 0 and "\x1b" not in table
    header, *rows = table.splitlines()
    assert len(rows) == 2 and header.split()[0] == "file"
    assert rows[0].split()[0] == str(first) and rows[1].split()[0] == str(second)


def test_perplexity_of_nothing(there, cli, tmp_path, piped):
    (tmp_path / "empty").write_text("")
    refused(cli("perplexity", tmp_path / "empty"), 1, "nothing to score")
    refused(piped("perplexity", content=b""), 1, "nothing to score")
    refused(piped("perplexity", content=b"a\xffb"), 1, "standard input is not UTF-8.*offset 1")


def test_perplexity_without_a_held_out_text(own, cli, text):
    assert cli("train", text, "--val", "none", "--quiet", *SHORT)[0] == 0
    refused(cli("perplexity"), 1, "no held-out text; give a text file")


def test_the_batch_size_changes_no_figure(there, cli, text):
    found = []
    for size in (1, 7, 32):
        out = cli("perplexity", text, "--documents", "line", "--json", "--batch-size", size)[1]
        found.append(json.loads(out))
    assert found[0]["nll_nats"] == pytest.approx(found[1]["nll_nats"], rel=1e-6)
    assert found[0]["nll_nats"] == pytest.approx(found[2]["nll_nats"], rel=1e-6)
    assert found[0]["accuracy"] == found[1]["accuracy"] == found[2]["accuracy"]


# ---- models ----


def test_models(shared, own, cli, text):
    assert cli("models", "--json") == (0, "", "")
    assert cli("train", text, "--name", "one", "--quiet", *SHORT)[0] == 0
    assert cli("train", text, "--name", "two", "--quiet", "--tokenizer", "word", *SHORT)[0] == 0
    code, out, err = cli("models", "--json")
    assert (code, err) == (0, "")
    two, one = [with_keys("models", line) for line in out.splitlines()]
    assert (one["name"], two["name"], two["tokenizer"]) == ("one", "two", "word")
    assert one["path"] == str(own / "one") and one["val_bits_per_char"] > 0
    assert cli("models", "list", "--json")[1] == out
    assert [line.split()[0] for line in cli("models")[1].splitlines()] == ["name", "two", "one"]
    assert cli("models", "path") == (0, f"{own / 'two'}\n", "")
    assert "hidden_size" in cli("models", "show", "one")[1]
    shown = json.loads(cli("models", "show", "one", "--json")[1])
    assert shown["config"]["model"]["hidden_size"] == 8
    code, out, err = cli("models", "remove", "one", own / "two", "--yes")
    assert (code, out) == (0, "") and err.count("removed") == 2
    assert list(own.iterdir()) == []


def test_a_damaged_model_is_one_line_everywhere(own, cli, text):
    assert cli("train", text, "--name", "x", "--quiet", *SHORT)[0] == 0
    for part in ("model.safetensors", "tokenizer/tokenizer.json", "config.json"):
        (own / "x" / part).write_bytes(b"{}")
        for command in (["sample"], ["perplexity"]):
            refused(cli(*command, "-m", "x", "--quiet"), 1, "damaged|format")
    refused(cli("models", "show", "x"), 1, "format")
    assert cli("models", "--json") == (0, "", "")
    assert cli("models", "remove", "x", "--yes")[0] == 0


def test_an_empty_cache_is_told(own, cli):
    assert cli("models", "cache") == (0, "", "the cache is empty\n")
    assert cli("models", "cache", "--quiet") == cli("models", "cache", "--json") == (0, "", "")


def test_the_list_of_architectures_fits_80_columns(cli):
    code, out, _ = cli("models", "--architectures")
    assert code == 0 and max(map(len, out.splitlines())) <= 80


def test_architectures(cli):
    out = cli("models", "--architectures", "--json")[1]
    cells = ["ugrnn", "mgu", "mut1", "mut2", "mut3", "mlstm", "rhn", "nas"]
    cells += ["mingru", "minlstm", "jordan", "grid"]
    of_plugins = ["hopfield", "bert", "elmo", "bag", "birnn", "encoder", "word2vec", "glove"]
    assert [json.loads(line)["name"] for line in out.splitlines()] == [
        "ngram",
        *known_architectures(["hmm", "window"]),
        "rnn",
        "gru",
        "lstm",
        *known_architectures([*cells, "hawk"]),
        "transformer",
        "seq2seq",
        "seq2seq-transformer",
        *known_architectures(of_plugins),
    ]


# ---- a terminal ----


def on_a_terminal(home, *arguments):
    """Run with all streams on a pseudo-terminal; return the code and what a person sees."""
    terminal = {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    run = forked.program(arguments, on_terminal=[0, 1, 2], SEQGEN_HOME=str(home), **terminal)
    return run[0], run[1].decode().replace("\r\n", "\n")


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_shows_progress_and_echoes(tmp_path, text):
    home = tmp_path / "home"
    code, seen = on_a_terminal(
        home, "train", text, "--name", "x", "--set", "validate_every=1", *SHORT
    )
    assert code == 0 and "Traceback" not in seen
    assert "\x1b[" in seen and "ETA" in seen and "validation loss" in seen
    code, seen = on_a_terminal(home, "sample", "the cat", *FEW)
    assert code == 0 and "the cat" in seen
    code, seen = on_a_terminal(home, "sample", "--tempreature", "1")
    assert code == 2 and "tempreature" in seen and "Traceback" not in seen

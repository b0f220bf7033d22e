"""What commands read and write: pipes, names, encodings, and no output over an input."""

import contextlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import forked
import pytest
import typer
from helpers_cli import has_plugin, installed, needs, refusal
from helpers_cli import records as records_of
from places import ROOT

from seqgen import store
from seqgen.cli import make_app, run
from seqgen.cli.shell.inputs import Pipe
from seqgen.cli.shell.output import write_utf8

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs FIFOs and POSIX signals")

TEXT = "the cat sat on the mat.\na dog ran; it was fun!\n" * 40
PAIRS = "the cat\tcat the\nthe\u00e9 dog\tdog the\n"
NGRAM = ["--model", "ngram", "--order", "2", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts, token files, and a home with n-gram models: nobody writes into it."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "text.txt").write_text(TEXT)
    (folder / "short.txt").write_text(TEXT[:480])
    (folder / "other.txt").write_text("it was another text, and a longer one.\n" * 40)
    (folder / "crlf.txt").write_bytes(TEXT.replace("\n", "\r\n").encode())
    (folder / "pairs.tsv").write_text(PAIRS)
    text = str(folder / "text.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        for name, *how in (
            ("lf", str(folder / "crlf.txt"), "--newlines", "lf"),
            ("words", text, "--tokenizer", "word"),
            ("words-3", text, "--tokenizer", "word", "--order", "3"),
            ("lines", text, "--documents", "line", "--split-seed", "3"),
            ("other", str(folder / "other.txt")),
            ("two", text, "--order", "3"),
            ("one", text),
        ):
            assert run(["train", *how, "--name", name, *NGRAM]) == 0
        made = ["--out", str(folder / "short.tok"), "-q"]
        assert run(["tokenize", str(folder / "short.txt"), "-m", "one", *made]) == 0
        for export in installed([["export", "one", "--out", str(folder / "one.arpa"), "-q"]]):
            assert run(export) == 0
        ids = io.BytesIO()
        patch.setattr(sys, "stdout", io.TextIOWrapper(ids, encoding="utf-8"))
        assert run(["tokenize", str(folder / "short.txt"), "-m", "one", "-q"]) == 0
        (folder / "ids.txt").write_bytes(ids.getvalue())
    return folder


@pytest.fixture
def there(folder, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(folder / "home"))


@pytest.fixture
def cli(capfdbinary):
    def command(*arguments):
        capfdbinary.readouterr()
        code = run([str(a) for a in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return command


@pytest.fixture
def fifo(tmp_path):
    """Return what makes a FIFO that gives a file's content once to whoever opens it."""

    def ring(number, frame):
        raise TimeoutError("a FIFO hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(120)

    def make(source):
        path = tmp_path / "fifo" / Path(source).name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
        content = Path(source).read_bytes()

        def write():
            with contextlib.suppress(BrokenPipeError):
                path.write_bytes(content)

        threading.Thread(target=write, daemon=True).start()
        return path

    yield make
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(outcome, code, part):
    """One plain line on standard error, nothing on standard output."""
    assert outcome[0] == code, outcome
    assert outcome[1] == "" and outcome[2].count("\n") == 1, outcome
    assert outcome[2].startswith("seqgen") and part in outcome[2], outcome[2]


def records(outcome):
    assert outcome[0] == 0, outcome[2]
    return [json.loads(line) for line in outcome[1].splitlines()]


# ---- pipes ----

READERS = {
    "perplexity": ("short.txt", ["perplexity", "{}", "-m", "one", "--json"]),
    "several models": ("short.txt", ["perplexity", "{}", "-m", "one", "-m", "two", "--json"]),
    "per line": ("short.txt", ["perplexity", "{}", "-m", "one", "--per-line", "--json"]),
    "per token": ("short.txt", ["perplexity", "{}", "-m", "one", "--per-token", "--json"]),
    "show": ("short.txt", ["perplexity", "{}", "-m", "one", "--show"]),
    "fit": ("short.txt", ["perplexity", "-m", "one+two", "--fit", "{}", "--json"]),
    "fit of tokens": ("short.tok", ["perplexity", "-m", "one+two", "--fit", "{}", "--json"]),
    "tokens": ("short.tok", ["perplexity", "{}", "-m", "one", "--json"]),
    "ids": ("short.txt", ["tokenize", "{}", "-m", "one"]),
    "statistics": ("short.txt", ["tokenize", "{}", "-m", "one", "--stats"]),
    "decode": ("ids.txt", ["tokenize", "{}", "-m", "one", "--decode"]),
    "decode tokens": ("short.tok", ["tokenize", "{}", "-m", "one", "--decode"]),
    "eval": ("short.txt", ["eval", "{}", "-m", "one", "--json"]),
    "eval of tokens": ("short.tok", ["eval", "{}", "-m", "one", "--json"]),
    "pairs": ("pairs.tsv", ["eval", "--pairs", "{}", "-m", "one", "--json"]),
    "compare": ("short.txt", ["compare", "one", "two", "--data", "{}", "--json"]),
    "compare on tokens": ("short.tok", ["compare", "one", "two", "--data", "{}", "--json"]),
    "hypothesis": ("short.txt", ["bleu", "{}", "short.txt", "--json"]),
    "reference": ("short.txt", ["bleu", "short.txt", "{}", "--json"]),
    "against": (
        "crlf.txt",
        ["bleu", "text.txt", "text.txt", "--against", "{}", "--json", "--samples", "20"],
    ),
    "prompt": ("short.txt", ["sample", "--prompt-file", "{}", "-m", "one", "--greedy", "--json"]),
    "beams": ("short.txt", ["beam-search", "--prompt-file", "{}", "-m", "one", "--json"]),
}
if not has_plugin("minimal_pairs"):
    del READERS["pairs"]
if not has_plugin("data"):
    del READERS["statistics"]


@pytest.mark.parametrize("case", READERS)
def test_a_fifo_is_read_as_a_file_is(case, folder, there, cli, fifo, monkeypatch):
    monkeypatch.chdir(folder)
    source, command = READERS[case]
    pipe, plain = fifo(folder / source), folder / source
    expected = cli(*(part.format(plain) for part in command))
    found = cli(*(part.format(pipe) for part in command))
    assert expected[0] == 0, expected[2]
    assert found[0] == 0, found[2]
    assert found[1].replace(str(pipe), str(plain)) == expected[1]


def test_training_and_writing_from_fifos(folder, cli, fifo, tmp_path):
    text, short = folder / "text.txt", folder / "short.txt"
    pipes = fifo(text), fifo(short)
    how = ["--model", "ngram", "--order", "2", "--json"]
    (plain,) = records(cli("train", text, "--val", short, *how))
    (piped,) = records(cli("train", pipes[0], "--val", pipes[1], *how))
    assert (plain["name"], piped["name"]) == ("text-ngram", "text-ngram-2")
    assert plain["val_loss"] == piped["val_loss"]
    for path in pipes:
        path.unlink()
    for command in installed(["import"]):
        arpa = fifo(folder / "one.arpa")
        assert cli(command, arpa, "--name", "again", "-q") == (0, "", "")
    for kind in (["--tokenizer", "byte"], ["--train", "char"]):
        outs = []
        for number, source in enumerate((fifo(text), text)):
            out = tmp_path / f"{kind[1]}{number}"
            assert cli("tokenize", source, *kind, "--out", out, "-q") == (0, "", "")
            outs.append((out / "tokenizer.json" if out.is_dir() else out).read_bytes())
        assert outs[0] == outs[1]
        (tmp_path / "fifo" / "text.txt").unlink()


def test_a_pipe_is_given_out_as_often_as_asked():
    coming = iter([b"ab", b"cd", b"e"])
    pipe = Pipe(coming)
    assert pipe.begins_with(b"ab") and not pipe.begins_with(b"abX")
    first, second = pipe.blocks(), pipe.blocks()
    assert next(first) == b"abcd" and b"".join(second) == b"abcde" == b"abcd" + b"".join(first)
    assert b"".join(pipe.pass_on()) == b"abcde"


def test_no_more_is_awaited_than_tells_a_text():
    def slow():
        yield b"a"
        raise AssertionError("one byte tells that this is not a token file")

    assert not Pipe(slow()).begins_with(b"seqgen.tokens")


def test_a_named_pipe_is_announced(folder, there, cli, fifo):
    path = fifo(folder / "short.txt")
    code, _, err = cli("perplexity", path, "-m", "one")
    assert code == 0 and f"reading the pipe {path}, which waits for a program that writes" in err


def test_standard_input_under_two_names_is_read_once(folder, there, cli, stdin):
    stdin(TEXT.encode())
    same = f"/dev/fd/{sys.stdin.fileno()}"
    (fitted, scored) = records(
        cli("perplexity", "-", "-m", "one+two", "--fit", same, "--json", "-q")
    )
    assert fitted["tokens"] == scored["tokens"] == len(TEXT)
    assert scored["perplexity"] == pytest.approx(fitted["perplexity"], rel=1e-4)


# ---- names ----

EMPTY = installed(
    [
        ["perplexity", ""],
        ["perplexity", "--fit", "", "-m", "one+two"],
        ["eval", ""],
        *([["eval", "--pairs", ""]] if has_plugin("minimal_pairs") else []),
        ["compare", "one", "--data", ""],
        ["bleu", "", "ref"],
        ["bleu", "hyp", ""],
        ["bleu", "hyp", "ref", "--against", ""],
        ["sample", "--prompt-file", ""],
        ["beam-search", "--prompt-file", ""],
        ["tokenize", ""],
        ["tokenize", "text.txt", "--tokenizer", ""],
        ["tokenize", "text.txt", "--tokenizer", "byte", "--out", ""],
        ["train", ""],
        ["train", "--data", ""],
        ["train", "text.txt", "--val", ""],
        ["train", "text.txt", "--config", ""],
        ["train", "text.txt", "--tokenizer", ""],
        ["import", ""],
        ["export", "one", "--out", ""],
    ]
)


@pytest.mark.parametrize("arguments", EMPTY, ids=" ".join)
def test_an_empty_name_is_wrong_usage(arguments, folder, there, cli, monkeypatch):
    monkeypatch.chdir(folder)
    refused(cli(*arguments), 2, "a file has no name")


def test_the_same_file_twice_is_read_once(folder, there, cli, tmp_path, home, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(home))
    text, link = folder / "text.txt", tmp_path / "link.txt"
    link.symlink_to(text)
    how = ["--model", "ngram", "--order", "2", "--json"]
    once = records(cli("train", text, *how, "--name", "once"))[0]
    outcome = cli("train", text, link, *how)
    twice = records(outcome)[0]
    assert twice["val_loss"] == once["val_loss"] and twice["name"] == "text-ngram"
    assert f"{link} is given twice; it is read once\n" in outcome[2]
    one = cli("tokenize", text, "--tokenizer", "byte")
    assert cli("tokenize", text, text, "--tokenizer", "byte", "-q") == one


def test_standard_input_twice_is_read_once_and_said(cli, stdin, home):
    stdin(TEXT.encode())
    code, _, err = cli("train", "-", "-", "--model", "ngram", "--order", "2")
    assert code == 0 and "standard input is given twice; it is read once\n" in err
    record = json.loads((home / "models" / "stdin-ngram" / "training.json").read_text())
    assert record["data"]["characters"] == len(TEXT)


def test_a_model_of_standard_input_has_a_name_to_say(cli, stdin, home):
    names = []
    for _ in range(2):
        stdin(TEXT.encode())
        (record,) = records(cli("train", "--model", "ngram", "--order", "2", "--json", "-q"))
        names.append(record["name"])
    assert names == ["stdin-ngram", "stdin-ngram-2"]
    # What is recorded is what lasts: the cache's file, and not a link to it.
    record = json.loads((home / "models" / names[0] / "training.json").read_text())
    (kept,) = record["data"]["files"]
    assert Path(kept).parent == home.resolve() / "cache" / "text"
    assert Path(kept).read_text() == TEXT


def test_standard_input_can_be_held_out(cli, folder, stdin, home):
    stdin(TEXT[:480].encode())
    (record,) = records(
        cli("train", folder / "text.txt", "--val", "-", "--name", "x", *NGRAM, "--json")
    )
    assert (home / "models" / "x" / "validation" / "text.txt").read_text() == TEXT[:480]
    kept = json.loads((home / "models" / "x" / "config.json").read_text())["data"]["val"]
    assert Path(kept).read_text() == TEXT[:480] and record["val_loss"] is not None


def test_held_out_lines_that_were_trained_on_are_told(cli, folder, tmp_path):
    (tmp_path / "val.txt").write_text("a dog ran; it was fun!\nnobody saw this\n\n")
    text, how = folder / "text.txt", ["--model", "ngram", "--order", "2"]
    said = "1 of 2 held-out lines (50.0%) are in the training part too"
    assert said in cli("train", text, "--val", tmp_path / "val.txt", *how)[2]
    assert "(100.0%) are in the training part" in cli("train", text, "--documents", "line", *how)[2]
    (tmp_path / "all.txt").write_text("".join(f"line {n}\n" for n in range(50)))
    for lines in (["--documents", "line"], ["--val", tmp_path / "val.txt"], []):
        assert "held-out lines" not in cli("train", tmp_path / "all.txt", *lines, *how)[2]


# ---- outputs ----


def test_no_output_over_an_input(cli, folder, tmp_path):
    book, link, hard = tmp_path / "book.txt", tmp_path / "link.txt", tmp_path / "hard.txt"
    book.write_text(TEXT)
    link.symlink_to(book)
    (tmp_path / "only").mkdir()
    only = tmp_path / "only"
    os.link(book, hard)
    os.link(book, only / "chapter.txt")
    for source, out in ((book, book), (link, book), (book, link), (book, hard), (only, book)):
        for overwrite in ([], ["--overwrite"]):
            outcome = cli("tokenize", source, "--tokenizer", "byte", "--out", out, *overwrite)
            refused(outcome, 2, "is an input and cannot be the output")
    assert book.read_text() == TEXT and link.is_symlink()
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "tokenizer.json").write_text(TEXT)
    trains = ("tokenize", tmp_path / "dir", "--train", "char", "--as-text")
    refused(cli(*trains, "--out", tmp_path / "dir"), 2, "in")
    assert (tmp_path / "dir" / "tokenizer.json").read_text() == TEXT


def test_no_output_over_standard_input(folder, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text(TEXT)
    with book.open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "seqgen", "tokenize", "--tokenizer", "byte", "--out", str(book)],
            stdin=file,
            capture_output=True,
        )
    assert done.returncode == 2 and b"is an input" in done.stderr
    assert book.read_text() == TEXT


def test_only_ones_own_output_is_replaced_and_only_when_told(cli, folder, there, tmp_path):
    text, stranger = folder / "text.txt", tmp_path / "notes"
    writers = {
        tmp_path / "x.tok": ["tokenize", text, "--tokenizer", "byte", "--out"],
        tmp_path / "x.arpa": ["export", "one", "-q", "--out"],
        tmp_path / "x.arpa.gz": ["export", "one", "-q", "--out"],
    }
    for own, write in writers.items():
        if not installed([write]):
            continue
        stranger.write_text("a stranger's")
        refused(cli(*write, stranger), 2, "exists and is not a")
        refused(cli(*write, stranger, "--overwrite"), 2, "exists and is not a")
        assert stranger.read_text() == "a stranger's"
        assert cli(*write, own)[0] == 0
        before = own.read_bytes()
        refused(cli(*write, own), 2, "add --overwrite")
        own.write_bytes(before[:20])  # as a run that was killed may leave it
        assert cli(*write, own, "--overwrite")[0] == 0 or own.suffix == ".gz"
        stranger.write_text("")  # as mktemp makes it
        assert cli(*write, stranger)[0] == 0 and stranger.stat().st_size
    refused(cli("tokenize", text, "--tokenizer", "byte", "--out", "/dev/null"), 2, "not a regular")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="no devices")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
@pytest.mark.parametrize("given", ["named", "beside", "held out"])
def test_a_device_is_no_input(device, given, cli, tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat on the mat\n" * 40)
    data = {"named": (), "beside": (tmp_path / "a.txt",), "held out": (tmp_path / "a.txt", "--val")}
    how = ("--model", "ngram", "--order", "2", "--name", "m")
    for command in installed([("train", *data[given], device, *how), ("data", device)]):
        refused(cli(*command), 1, f"{device} is a device")


def test_a_link_to_an_output_stays_a_link(cli, folder, there, tmp_path):
    pytest.importorskip("seqgen.plugins.exchange")
    real, link = tmp_path / "real.arpa", tmp_path / "link.arpa"
    link.symlink_to(real)
    assert cli("export", "one", "--out", link, "-q")[0] == 0
    assert link.is_symlink() and real.read_bytes() == (folder / "one.arpa").read_bytes()


def test_a_strangers_tokenizer_is_not_replaced(cli, folder, tmp_path):
    text, out = folder / "text.txt", tmp_path / "tokenizer"
    out.mkdir()
    write = ["tokenize", text, "--train", "char", "--out", out, "-q"]
    for name in ("tokenizer.json", "tokenizer.model"):
        (out / name).write_text('{"version": "1.0"}')
        refused(cli(*write, "--overwrite"), 2, "is not a tokenizer of seqgen")
        (out / name).unlink()
    assert cli(*write) == (0, "", "")
    refused(cli(*write), 2, "add --overwrite")
    assert cli(*write, "--overwrite") == (0, "", "")


def test_a_models_tokenizer_is_not_replaced(cli, folder, there):
    out = folder / "home" / "models" / "one" / "tokenizer"
    write = ["tokenize", folder / "text.txt", "--train", "char", "--out", out, "--overwrite"]
    refused(cli(*write), 2, "is the tokenizer of a model")


def test_a_model_is_not_replaced_by_what_it_holds(cli, folder, home, tmp_path):
    assert cli("train", folder / "text.txt", "--name", "x", *NGRAM)[0] == 0
    inside = home / "models" / "x"
    arpa = inside / "x.arpa"
    for export in installed([["export", "x", "--out", arpa, "-q"]]):
        assert cli(*export)[0] == 0
    replacing = [
        ["import", arpa],
        ["train", inside / "validation" / "text.txt", *NGRAM],
        ["train", folder / "text.txt", "--val", inside / "validation" / "text.txt", *NGRAM],
    ]
    for command in installed(replacing):
        refused(cli(*command, "--name", "x", "--overwrite"), 2, "which --overwrite would replace")
    assert arpa.exists() == bool(installed(["export"])) and (inside / "config.json").exists()


# ---- newlines, lines and held-out texts ----


def test_newlines_reach_prompts(cli, folder, there, stdin, tmp_path):
    greedy = ["-m", "lf", "--greedy", "--max-tokens", "5", "--json"]
    expected = records(cli("sample", "the cat\nsat", *greedy))
    assert records(cli("sample", "the cat\r\nsat", *greedy)) == expected
    (tmp_path / "prompt").write_bytes(b"the cat\r\nsat")
    assert records(cli("sample", "--prompt-file", tmp_path / "prompt", *greedy)) == expected
    stdin(b"the\r\na dog\r\n")
    piped = records(cli("sample", *greedy))
    assert [r["prompt"] for r in piped] == ["the", "a dog"]
    stdin(b"the\r\n")
    found = records(cli("beam-search", "-m", "lf", "--max-tokens", "3", "--json"))
    assert found[0]["prompt"] == "the"
    refused(cli("sample", "the\r\n", "-m", "one", "--greedy", "-q"), 1, "does not know '\\r'")


def test_newlines_reach_tokens_and_back(cli, folder, there, tmp_path):
    crlf, ids = folder / "crlf.txt", tmp_path / "ids"
    expected = cli("tokenize", folder / "text.txt", "-m", "lf")
    assert cli("tokenize", crlf, "-m", "lf") == expected
    assert "unknown" in cli("tokenize", crlf, "-m", "lf", "--newlines", "keep")[2]
    kept = cli("tokenize", crlf, "--tokenizer", "byte")[1]
    ids.write_text(kept)
    back = ["tokenize", ids, "--tokenizer", "byte", "--decode"]
    assert cli(*back)[1] == crlf.read_bytes().decode()
    assert cli(*back, "--newlines", "lf")[1] == TEXT
    texts = [record["text"] for record in records(cli(*back, "--newlines", "lf", "--json"))]
    assert "".join(texts) == TEXT


def test_lines_of_files_are_read_file_by_file(cli, tmp_path):
    """A stream is joined as `cat` joins files; lines, and lists of ids, are of one file each."""
    files = [tmp_path / "a", tmp_path / "b"]
    for file, text in zip(files, ("one\ntwo", "three"), strict=True):
        file.write_text(text)
    how = ("--tokenizer", "byte", "--json")

    def texts(*more):
        return [record["text"] for record in records(cli("tokenize", *files, *how, *more))]

    assert texts() == ["one\n", "twothree"]
    assert texts("--documents", "line") == ["one", "two", "three"]
    files[0].write_text("115 114")
    files[1].write_text("105")
    assert texts("--decode") == ["on", "e"]


def test_compared_models_read_newlines_in_their_own_way(cli, folder, there):
    """As `perplexity` has it for each of them, whoever else is compared."""
    crlf = folder / "crlf.txt"
    outcome = cli("compare", "lf", "one", "two", "--data", crlf, "--resamples", "50", "--json")
    compared, size = records(outcome), len(TEXT)
    for one in compared:
        alone = records(cli("perplexity", crlf, "-m", one["model"], "--json"))[0]
        keys = ("tokens", "characters", "bytes", "bits_per_byte", "oov", "oov_bits_per_byte")
        assert [one[key] for key in keys] == pytest.approx([alone[key] for key in keys])
        assert one["total_bits_per_byte"] == one["bits_per_byte"]
        assert one["low"] <= one["bits_per_byte"] <= one["high"]
    assert [one["bytes"] for one in compared] == [size, size + 80, size + 80]
    assert "lf read the text without its 80 carriage returns" in outcome[2]
    alike = cli("compare", "one", "two", "--data", crlf, "--resamples", "50", "--json")
    assert "carriage" not in alike[2]
    assert [r["high"] for r in records(alike)] == [one["high"] for one in compared[1:]]


def test_a_text_with_other_newlines_is_known_for_the_one_a_model_learnt(cli, folder, there):
    outcome = cli("compare", "lf", "other", "--data", folder / "crlf.txt", "--resamples", "9")
    assert "lf learnt from this very text" in outcome[2]


@pytest.mark.parametrize(
    "command", [["perplexity"], ["eval", "--perplexity"], ["compare", "lines"]]
)
def test_a_stream_under_a_model_of_lines_is_warned_of(command, cli, folder, there):
    text = ["--data", folder / "short.txt"] if command[0] == "compare" else [folder / "short.txt"]
    model = [] if command[0] == "compare" else ["-m", "lines"]
    outcome = cli(*command, *text, *model, "--documents", "stream")
    assert outcome[0] == 0 and "lines was trained on single lines" in outcome[2]
    assert "single lines" not in cli(*command, *text, *model)[2]
    assert "single lines" not in cli(*command, *text, *model, "--documents", "stream", "-q")[2]


@pytest.mark.parametrize("command", [["perplexity"], ["perplexity", "--per-line"], ["eval"]])
def test_models_that_hold_out_different_texts_share_no_table(command, cli, there):
    refused(cli(*command, "-m", "one", "-m", "other", "-q"), 1, "hold out different texts")


def test_models_of_one_text_are_scored_on_what_both_hold_out(cli, there):
    found = records(cli("perplexity", "-m", "one", "-m", "words", "--json"))
    assert len({record["characters"] for record in found}) == 1
    (common,) = {record["bytes"] for record in records(cli("compare", "one", "words", "--json"))}
    assert {record["bytes"] for record in found} == {common}
    both = records(cli("eval", "-m", "one", "-m", "words", "--perplexity", "--json"))
    assert [one["perplexity"]["nll_nats"] for one in both] == [r["nll_nats"] for r in found]


@needs("minimal_pairs")
def test_pairs_show_unknowns(cli, folder, there):
    outcome = cli("eval", "--pairs", folder / "pairs.tsv", "-m", "one")
    assert outcome[0] == 0 and "1 unknown" in outcome[1]
    outcome = cli("eval", "--pairs", folder / "pairs.tsv", "-m", "one", "--json")
    assert records(outcome)[0]["pairs"][0]["oov"] == 1


def test_eval_keeps_what_it_has(cli, folder, there, tmp_path):
    (tmp_path / "word").write_text("word")
    refused(cli("eval", tmp_path / "word", "-m", "one", "--bleu", "-q"), 1, "too short")
    (found,) = records(cli("eval", tmp_path / "word", "-m", "one", "--json"))
    assert found["perplexity"]["tokens"] == 4 and found["bleu"] is found["diversity"] is None
    assert "too short" in found["missing"]["continuations"]
    code, out, err = cli("eval", tmp_path / "word", "-m", "one")
    assert code == 0 and "bits/char" in out and "BLEU" not in out
    assert "one: no continuations: the text is too short" in err
    (tmp_path / "nothing").write_text("")
    refused(cli("eval", tmp_path / "nothing", "-m", "one", "-q"), 1, "nothing to score")


# ---- token files ----


def test_token_files_are_texts(cli, folder, there):
    text, tokens = folder / "short.txt", folder / "short.tok"
    for command in (
        ["perplexity", "-m", "one+two", "--json", "--fit", "{}"],
        ["eval", "{}", "-m", "one", "--json"],
        ["eval", "{}", "-m", "words", "--json"],
        ["compare", "one", "words", "--json", "--data", "{}"],
        ["perplexity", "{}", "-m", "one", "--per-line", "--json"],
        ["perplexity", "{}", "-m", "one", "--json"],
    ):
        found, expected = (cli(*(part.format(path) for part in command)) for path in (tokens, text))
        assert records(found) == [
            json.loads(line.replace(str(text), str(tokens))) for line in expected[1].splitlines()
        ]


def test_token_files_that_have_lost_their_text_are_refused_in_a_line(cli, folder, there, tmp_path):
    (tmp_path / "t.txt").write_text("the \u00e9t\u00e9\n")
    lost = tmp_path / "lost.tok"
    assert cli("tokenize", tmp_path / "t.txt", "-m", "one", "--out", lost, "-q")[0] == 0
    for command in (
        ["compare", "one", "two", "--data", lost],
        ["eval", lost, "-m", "one", "--bleu", "-q"],
        ["perplexity", lost, "-m", "one", "--per-token", "-q"],
    ):
        refused(cli(*command), 1, "give")
    (found,) = records(cli("eval", lost, "-m", "one", "--json", "-q"))
    assert found["perplexity"]["oov"] == 2 and "is lost" in found["missing"]["continuations"]
    refused(cli("perplexity", "-m", "words+words-3", "--fit", lost), 1, "another tokenizer")
    refused(cli("perplexity", lost, "-m", "lines", "-q"), 1, "--documents stream")
    how = ["--documents", "line", "--out", tmp_path / "line.tok", "-q"]
    assert cli("tokenize", folder / "short.txt", "-m", "one", *how)[0] == 0
    line = cli("perplexity", tmp_path / "line.tok", "-m", "one", "--documents", "line", "-q")
    refused(line, 1, "ends its lines with EOS")


# ---- encodings, streams and records ----


def program(home, *arguments, **more):
    package = str(ROOT)
    variables = {"PYTHONPATH": package, "OMP_NUM_THREADS": "1", "SEQGEN_HOME": str(home), **more}
    done = subprocess.run(
        [sys.executable, "-m", "seqgen", *map(os.fspath, arguments)],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


@needs("explain")
def test_utf8_is_written_to_a_stream_of_another_encoding(folder, there, monkeypatch):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    write_utf8()
    assert run(["beam-search", "the", "-m", "one", "--explain", "--max-tokens", "2", "-q"]) == 0
    assert run(["sample", "\u00e9", "-m", "one"]) == 1
    out, err = (stream.buffer.getvalue().decode("utf-8") for stream in streams)
    assert "\u2190 rank 0" in out and "\u00e9" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "locale",
    [
        {"PYTHONIOENCODING": "ascii:strict"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "C"],
)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("eval", marks=needs("minimal_pairs")),
        pytest.param("beam-search", marks=needs("explain")),
    ],
)
def test_utf8_is_written_whatever_the_locale_is(command, locale, folder, tmp_path):
    home = folder / "home"
    text = tmp_path / "\u00e9t\u00e9.txt"
    text.write_text(TEXT)
    commands = {
        "eval": ["eval", "-m", "one", text, "--pairs", folder / "pairs.tsv", "--bleu"],
        "beam-search": ["beam-search", "the", "-m", "one", "--explain", "--max-tokens", "2"],
    }
    expected = program(home, *commands[command], PYTHONUTF8="1")
    assert expected[0] == 0 and not expected[1].isascii()
    assert program(home, *commands[command], **locale) == expected


def test_arguments_are_utf8_whatever_the_locale_is(folder, tmp_path):
    text = tmp_path / "\u00e9t\u00e9.txt"
    text.write_text("\u00e9 \u03a9\n")
    c_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    asked = ["tokenize", text, "--tokenizer", "byte"]
    code, out, _ = program(folder / "home", *asked, **c_locale)
    assert (code, len(out.split())) == (0, len(text.read_bytes()))
    code, _, err = program(folder / "home", "sample", "\u03a9", "-m", "one", **c_locale)
    assert code == 1 and "does not know '\u03a9'" in err.decode()


def test_names_of_any_bytes_give_valid_json(folder, there, cli, tmp_path):
    name = tmp_path / os.fsdecode(b"a\xff.txt")
    name.write_text(TEXT)
    (record,) = records(cli("perplexity", name, "-m", "one", "--json"))
    assert record["file"] == str(tmp_path / r"a\xff.txt")


@pytest.mark.slow
def test_names_of_any_bytes_give_valid_json_in_any_locale(folder, tmp_path):
    names = [tmp_path / os.fsdecode(b"a\xff.txt"), tmp_path / "\u00e9.txt"]
    for name in names:
        name.write_text(TEXT)
    for locale in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        command = ["perplexity", *names, "-m", "one", "--json"]
        code, out, err = program(folder / "home", *command, **locale)
        assert code == 0, err
        found = [json.loads(line)["file"] for line in out.decode().splitlines()]
        assert found == [str(tmp_path / r"a\xff.txt"), str(names[1])]


WRITERS = [
    ["sample", "the", "-m", "one", "--max-tokens", "3"],
    ["sample", "the", "-m", "one", "--explain", "--max-tokens", "1"],
    ["beam-search", "the", "-m", "one", "--explain", "--max-tokens", "1"],
    ["perplexity", "short.txt", "-m", "one"],
    ["perplexity", "short.txt", "-m", "one", "--show"],
    ["perplexity", "-m", "one+two", "--fit", "short.txt"],
    ["eval", "short.txt", "-m", "one", "--perplexity"],
    ["compare", "one", "two"],
    ["bleu", "short.txt", "short.txt"],
    ["tokenize", "short.txt", "-m", "one"],
    ["tokenize", "short.txt", "-m", "one", "--stats"],
    ["tokenize", "ids.txt", "-m", "one", "--decode"],
    ["export", "one"],
    ["models"],
    ["models", "show", "one"],
    ["models", "path", "one"],
    ["models", "cache", "--json", "--clear"],
    ["train", "text.txt", "--json", *NGRAM, "--name", "closed"],
    ["--version"],
]


@pytest.mark.parametrize("arguments", installed(WRITERS), ids=" ".join)
def test_a_closed_standard_output_is_one_line(arguments, folder, there, cli, monkeypatch):
    """As `>&-` has it: Python then has no `sys.stdout`."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdout", None)
    code, out, err = cli(*arguments)
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == "seqgen: there is no standard output to write to"


def test_a_program_without_standard_output_ends_with_1(folder):
    script = 'exec "$0" -m seqgen models >&-'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable],
        env={**os.environ, "SEQGEN_HOME": str(folder / "home")},
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 1
    assert done.stderr == b"seqgen: there is no standard output to write to\n"


def commands(command, path=()):
    """Yield every command that can be run, with what it is called."""
    inside = getattr(command, "commands", None)
    if not inside or (path and command.invoke_without_command):
        yield " ".join(path), command
    for name, part in (inside or {}).items():
        yield from commands(part, (*path, name))


def test_every_command_is_quiet_and_has_records():
    found = dict(commands(typer.main.get_command(make_app())))
    known = ["models", "models path", "bench plan", "export", "tokenize"]
    assert {*installed(known)} <= found.keys()
    for name, command in found.items():
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert {"--json", "--quiet"} <= flags, name


def test_records_of_what_was_written_or_removed(cli, folder, home, tmp_path):
    text = folder / "text.txt"
    quiet = ["--json", "-q"]
    (made,) = records(cli("tokenize", text, "--train", "char", "--out", tmp_path / "t", *quiet))
    assert made == {"path": str(tmp_path / "t"), "kind": "char", "vocab_size": made["vocab_size"]}
    (written,) = records(
        cli("tokenize", text, "--tokenizer", "byte", "--out", tmp_path / "t.tok", *quiet)
    )
    sizes = {"tokens": len(TEXT), "characters": len(TEXT), "bytes": len(TEXT), "oov": 0}
    assert written == {"path": str(tmp_path / "t.tok"), **sizes}
    assert cli("train", text, "--name", "x", *NGRAM)[0] == 0
    where = {"name": "x", "path": str(home / "models" / "x")}
    assert records(cli("models", "path", "x", *quiet)) == [where]
    out = tmp_path / "x.arpa"
    exported = {"name": "x", "format": "arpa", "path": str(out)}
    for export in installed(["export"]):
        assert records(cli(export, "x", "--out", out, *quiet)) == [exported]
        refused(cli(export, "x", "--json"), 2, "--json needs --out FILE")
    assert records(cli("models", "remove", "x", "--yes", *quiet)) == [where]
    kept = [path.stat().st_size for path in store.measurements()]
    assert records(cli("models", "cache", "--clear", *quiet)) == [
        {"removed": len(kept), "bytes": sum(kept), "leftovers": 0}
    ]


def test_what_is_not_drawn_has_no_seed(cli, there):
    for how in (["--greedy"], ["--temperature", "0"], ["--greedy", "--seed", "3"]):
        outcome = cli("sample", "the", "-m", "one", "--max-tokens", "2", "--json", *how)
        assert records(outcome)[0]["seed"] is None and outcome[2] == ""
    drawn = cli("sample", "the", "-m", "one", "--max-tokens", "2", "--json", "--seed", "3")
    assert records(drawn)[0]["seed"] == 3


# ---- a narrow terminal ----


NARROW = [case for case in READERS if "token" not in case and case not in ("fit", "beams")]


@pytest.mark.parametrize("case", NARROW)
def test_eighty_columns_cut_no_figure(case, folder, monkeypatch):
    monkeypatch.chdir(folder)
    source, command = READERS[case]
    command = [part.format(source) for part in command if part != "--json"]
    home = {"SEQGEN_HOME": str(folder / "home")}
    code, plain, _ = forked.program(command, **home)
    assert code == 0
    terminal = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}
    narrow, seen, err = forked.program(command, on_terminal=[1], **home, **terminal)
    assert narrow == 0 and b"Traceback" not in err
    figures = {word for word in plain.decode().split() if any(c.isdigit() for c in word)}
    seen = seen.decode()
    assert "\u2026" not in seen
    assert not [figure for figure in figures if figure not in "".join(seen.split("\r\n"))]


@pytest.fixture
def ngram(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("ab ba\n" * 30)
    assert run(["train", str(text), "--model", "ngram", "--name", "n", "--quiet"]) == 0


def test_an_empty_standard_input_is_called_that(ngram, capsys, stdin):
    for more in ([], ["--per-line"], ["--per-token"]):
        stdin(b"")
        said = refusal(capsys, "perplexity", "-", "-m", "n", *more)
        assert "standard input is empty: there is nothing to score" in said


def test_tokens_of_lines_that_are_scored_alone_add_up_to_the_lines(ngram, capsys, tmp_path):
    (tmp_path / "lines.txt").write_text("ab ba\nb\n\nba\n")
    command = ("perplexity", tmp_path / "lines.txt", "-m", "n", "--per-line")
    for more in ((), ("--no-end",)):
        lines = records_of(capsys, *command, *more)
        tokens = records_of(capsys, *command, *more, "--per-token")
        assert len(lines) == 4 and len(tokens) == sum(line["tokens"] for line in lines)
        for line in lines:
            of_line = [token for token in tokens if token["line"] == line["line"]]
            assert [token["index"] for token in of_line] == list(range(line["tokens"]))
            nats = -sum(token["logprob"] for token in of_line)
            assert nats == pytest.approx(line["nll_nats"] or 0, abs=1e-9)
            text = "".join(token["text"] for token in of_line)
            assert text == line["text"] + ("" if more else "\n")
    assert "--per-token takes one model" in refusal(capsys, *command, "-m", "n", "--per-token")


def test_what_a_source_is_needed_for_is_refused_before_a_model_is_loaded(
    ngram, capsys, monkeypatch
):
    for module in ("sample", "shell.writing"):
        monkeypatch.setattr(f"seqgen.cli.{module}.is_terminal", lambda stream: True)
    (store.models_folder() / "n" / "model.safetensors").write_bytes(b"")
    for how in (["-i"], ["a"]):
        said = refusal(capsys, "sample", *how, "--attention", "-m", "n")
        assert "--attention is for models that write from sources; n is a model of text" in said

"""`seqgen tokenize`: lines in, lines out; what it writes, shows and refuses."""

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import sentencepiece
from helpers_cli import has_plugin, needs

from seqgen.cli import run
from seqgen.text.tokenfile import open_token_file

TEXT = "The cat sat.\n\n  a  cat \u2581 na\u00efve \U0001f468\u200d\U0001f469\n\tend\r\n" * 5
OPEN = TEXT + "no newline"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenize")
    (folder / "text.txt").write_bytes(OPEN.encode())
    for kind, size in {"char": None, "word": None, "bpe": "300", "unigram": "290"}.items():
        sized = ["--vocab-size", size] if size else []
        out = str(folder / kind)
        command = ["tokenize", str(folder / "text.txt"), "--train", kind, "--out", out, *sized]
        assert run([*command, "--quiet"]) == 0
    return folder


@pytest.fixture
def text(folder):
    return str(folder / "text.txt")


@pytest.fixture
def stdin(monkeypatch):
    """Return what makes standard input a file with some content."""

    def fill(content, path=None):
        read, write = os.pipe()
        with os.fdopen(write, "wb") as file:
            file.write(content)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(read, "rb")))

    return fill


@pytest.fixture
def go(capfdbinary):
    """Return what runs a command, and gives its exit code, its output and its messages."""

    def call(*arguments):
        code = run(["tokenize", *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return SimpleNamespace(code=code, out=out, err=err.decode(), lines=out.decode().split("\n"))

    return call


@pytest.mark.parametrize("kind", ["char", "word", "bpe", "unigram"])
def test_ids_and_back_through_pipes(go, stdin, folder, text, kind):
    ids = go(text, "--tokenizer", folder / kind)
    assert ids.code == 0 and ids.err == ""
    assert ids.out.count(b"\n") == OPEN.count("\n") + 1
    stdin(ids.out)
    assert go("--decode", "--tokenizer", folder / kind).out == OPEN.encode()
    records = go(text, "--json", "--tokenizer", folder / kind)
    stdin(records.out)
    assert go("--decode", "--tokenizer", folder / kind).out == OPEN.encode()


def test_bytes_need_no_training(go, text):
    lines = go(text, "--tokenizer", "byte").lines
    assert lines[0] == " ".join(str(4 + b) for b in b"The cat sat.\n")
    assert lines[1] == "14"
    assert lines[-2] == " ".join(str(4 + b) for b in b"no newline")


def test_ids_are_those_of_spm_on_the_same_model_file(go, tmp_path, folder, text):
    own = sentencepiece.SentencePieceProcessor(model_file=str(folder / "bpe" / "tokenizer.model"))
    safe = tmp_path / "safe.txt"
    safe.write_text("The cat sat.\n\n  a  cat na\u00efve\n", encoding="utf-8")
    expected = "".join(
        " ".join(map(str, own.encode(line + "\n"))) + "\n"
        for line in safe.read_text(encoding="utf-8").split("\n")[:-1]
    )
    model = folder / "bpe" / "tokenizer.model"
    assert go(safe, "--tokenizer", model).out.decode() == expected
    pieces = go(safe, "--tokenizer", model, "--pieces").lines
    assert pieces[0] == " ".join(own.encode("The cat sat.", out_type=str)) + " \\n"


def test_records_have_the_documented_keys(go, folder, text):
    records = list(map(json.loads, go(text, "--json", "--tokenizer", folder / "word").lines[:-1]))
    assert all(list(record) == ["index", "text", "ids", "pieces"] for record in records)
    assert [record["index"] for record in records] == list(range(OPEN.count("\n") + 1))
    assert "".join(record["text"] for record in records) == OPEN
    assert records[0]["pieces"] == ["The", " cat", " sat", ".", "\n"]
    assert all(len(record["ids"]) == len(record["pieces"]) for record in records)


def test_pieces_of_a_line_take_a_line(go, folder, text):
    shown = go(text, "--pieces", "--tokenizer", folder / "word").lines
    assert shown[0] == "The \u2581cat \u2581sat . \\n"
    assert shown[1] == "\\n"
    assert len(shown) == OPEN.count("\n") + 2


def test_documents_a_line(go, stdin, folder, text):
    shown = go(text, "--documents", "line", "--tokenizer", "byte").lines
    assert shown[0] == " ".join(["1", *(str(4 + b) for b in b"The cat sat."), "2"])
    assert shown[1] == "1 2"
    stdin("\n".join(shown).encode())
    back = go("--decode", "--documents", "line", "--tokenizer", "byte")
    assert back.out.decode() == OPEN + "\n"


def test_unknowns_are_counted(go, stdin, folder):
    stdin(b"The dog\n")
    done = go("--tokenizer", folder / "word")
    assert done.lines[0].split().count("3") == 1
    assert done.err == "1 unknown, written as <unk> (id 3)\n"


@needs("data")
def test_statistics_count_by_hand(go, folder, text):
    found = json.loads(go(text, "--stats", "--json", "--tokenizer", folder / "char").out)
    counts = Counter(OPEN)
    assert found["tokens"] == found["characters"] == len(OPEN)
    assert found["bytes"] == len(OPEN.encode())
    assert found["characters_per_token"] == 1
    assert found["bytes_per_token"] == len(OPEN.encode()) / len(OPEN)
    assert found["used"] == len(counts) and found["vocab_size"] == len(counts) + 4
    assert found["unknown"] == 0
    assert dict(map(tuple, found["frequent"])) == {
        c: n for c, n in counts.items() if [c, n] in found["frequent"]
    }
    assert [n for _, n in found["frequent"]] == sorted(counts.values(), reverse=True)[:20]
    words = json.loads(go(text, "--stats", "--json", "--tokenizer", folder / "word").out)
    assert words["longest"][0][0] in (" na\u00efve", " newline")
    table = go(text, "--stats", "--tokenizer", folder / "word").out.decode()
    assert "vocabulary used" in table and "\u2581cat (" in table


def test_a_token_file_is_written_read_and_told_of(go, folder, text, tmp_path):
    out = tmp_path / "x.tok"
    done = go(text, "--tokenizer", folder / "bpe", "--out", out)
    assert done.code == 0 and done.out == b""
    tokens = open_token_file(out).corpus.tokens
    assert done.err.startswith(f"{out}: {tokens.size} tokens of {len(OPEN)} characters")
    ids = go(text, "--tokenizer", folder / "bpe").out.split()
    assert list(map(int, ids)) == tokens.tolist()
    assert go(out, "--decode", "--tokenizer", out).out == OPEN.encode()
    if has_plugin("data"):
        stats = json.loads(go(out, "--stats", "--json", "--tokenizer", out).out)
        assert stats == json.loads(go(text, "--stats", "--json", "--tokenizer", folder / "bpe").out)
    refused = go(out, "--decode", "--tokenizer", folder / "unigram")
    assert refused.code == 1 and "has another tokenizer" in refused.err
    go(text, "--tokenizer", folder / "bpe", "--out", out, "--overwrite", "--documents", "line")
    assert go(out, "--decode", "--tokenizer", out).out.decode() == OPEN + "\n"


def test_compressed_files_folders_and_patterns(go, folder, text, tmp_path):
    plain = go(text, "--tokenizer", "byte").out
    (tmp_path / "in" / "deep").mkdir(parents=True)
    with gzip.open(tmp_path / "in" / "a.gz", "wb") as file:
        file.write(OPEN.encode())
    with lzma.open(tmp_path / "in" / "deep" / "b.xz", "wb") as file:
        file.write(OPEN.encode())
    assert go(tmp_path / "in" / "a.gz", "--tokenizer", "byte").out == plain
    assert go(tmp_path / "in" / "deep" / "b.xz", "--tokenizer", "byte").out == plain
    assert go(tmp_path / "in" / "*.gz", "--tokenizer", "byte").out == plain
    both = go(tmp_path / "in", "--json", "--tokenizer", "byte").lines[:-1]
    assert "".join(json.loads(line)["text"] for line in both) == OPEN + OPEN
    assert go(tmp_path / "in" / "**" / "*.?z", "--json", "--tokenizer", "byte").lines[:-1] == both
    none = go(tmp_path / "in" / "*.txt", "--tokenizer", "byte")
    assert none.code == 1 and none.err == f"seqgen: no file matches {tmp_path}/in/*.txt\n"


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_damaged_compressed_file_is_one_line(go, tmp_path, ending):
    path = tmp_path / f"text{ending}"
    packed = {".gz": gzip, ".xz": lzma}[ending].compress(os.urandom(5000).hex().encode())
    for content in (packed[:-200], packed[:50] + b"damaged" + packed[57:], b"plain text"):
        path.write_bytes(content)
        done = go(path, "--tokenizer", "byte")
        assert done.code == 1 and done.err.count("\n") == 1
        assert done.err.startswith(f"seqgen: {path} is damaged")


def test_zstandard_if_the_module_is_there(go, tmp_path, text):
    path = tmp_path / "text.zst"
    try:
        import zstandard
    except ImportError:
        path.write_bytes(b"x")
        done = go(path, "--tokenizer", "byte")
        assert done.code == 1 and "needs the package zstandard: pip install zstandard" in done.err
        return
    packed = zstandard.ZstdCompressor().compress(OPEN.encode())
    path.write_bytes(packed + packed)
    assert go(path, "--json", "--tokenizer", "byte").code == 0
    path.write_bytes(packed[:-3])
    assert go(path, "--tokenizer", "byte").code == 1


def test_invalid_utf8_and_wrong_ids_say_where(go, stdin, tmp_path):
    (tmp_path / "x.txt").write_bytes(b"ab\xffcd")
    done = go(tmp_path / "x.txt", "--tokenizer", "byte")
    assert done.code == 1 and "byte 0xff at offset 2" in done.err
    for wrong, message in (
        (b"5 6\n7 x 8\n", "line 2 is not a list of ids: '7 x 8'"),
        (b"5\n\n9999\n", "line 3: there is no token 9999; the vocabulary has 260"),
        (b"-1\n", "line 1: there is no token -1"),
        (b'{"text": "a"}\n', "line 1 is not a list of ids"),
    ):
        stdin(wrong)
        done = go("--decode", "--tokenizer", "byte")
        assert done.code == 1 and message in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "bpe"], "--train needs a folder to write"),
        (
            ["--train", "bpe", "--out", "x", "-m", "y"],
            "makes a tokenizer, cannot be combined with --model",
        ),
        (["-m", "x", "--tokenizer", "byte"], "not both"),
        (["--tokenizer", "byte", "--decode", "--pieces"], "give --decode or --pieces, not both"),
        (["--tokenizer", "byte", "--vocab-size", "9"], "--vocab-size belongs to --train"),
        (["--tokenizer", "bpe"], "has to learn a vocabulary from text first"),
        (["--tokenizer", "byte", "--documents", "lines"], "did you mean 'line'"),
        (["--train", "bpee", "--out", "x"], "did you mean 'bpe'"),
        (["--train", "byte", "--min-count", "3", "--out", "x"], "no meaning for bytes"),
        (["--train", "bpe", "--vocab-size", "262", "--out", "x"], "is too small"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(go, text, arguments, message):
    done = go(text, *arguments)
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1
    assert done.out == b""


def test_other_problems_are_exit_1(go, text, tmp_path):
    renamed = tmp_path / "no tokenizer" / "bl.json"
    renamed.parent.mkdir()
    renamed.write_text('{"version": "1.0", "model": {}}')
    for arguments, message in (
        ([text, "--tokenizer", tmp_path / "none"], "there is no tokenizer"),
        ([text, "--tokenizer", text], "is not a sentencepiece model"),
        ([text, "--tokenizer", renamed], "must be named tokenizer.json"),
        ([text, "--tokenizer", tmp_path], "missing or damaged"),
        ([text, "-m", "none"], "there is no model named 'none'"),
        ([tmp_path / "none.txt", "--tokenizer", "byte"], "there is no file"),
    ):
        done = go(*arguments)
        assert done.code == 1 and message in done.err and done.err.count("\n") == 1
    done = go(text, "--tokenizer", "byte", "--out", tmp_path / "no" / "x.tok")
    assert done.code == 2 and "there is no folder" in done.err and done.err.count("\n") == 1


def test_lines_come_as_soon_as_they_are_there():
    command = [sys.executable, "-m", "seqgen", "tokenize", "--tokenizer", "byte"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for line, ids in ((b"ab\n", b"101 102 14\n"), (b"\n", b"14\n"), (b"c\n", b"103 14\n")):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == ids
        process.stdin.write(b"d")
        process.stdin.close()
        assert process.stdout.read() == b"104\n"
    assert process.returncode == 0


@needs("data")
def test_tokenize_loads_no_torch(text):
    code = (
        "import sys; from seqgen.cli import run; "
        f"assert run(['tokenize', {text!r}, '--tokenizer', 'byte', '--stats']) == 0; "
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).returncode == 0


def test_a_mixture_has_the_tokenizer_of_its_parts(go, text, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    for name in ("one", "two"):
        assert run(["train", text, "--model", "ngram", "--order", "2", "--name", name, "-q"]) == 0
    both = go(text, "-m", "one+two:0.3")
    assert both.code == 0
    assert both.lines == go(text, "-m", "one").lines

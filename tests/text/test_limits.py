"""Any file is read in bounded memory: what has to be in memory whole has a limit."""

import gzip
import importlib
import io
import lzma
import tracemalloc

import numpy as np
import pytest
from helpers_cli import has_plugin, installed, needs, refusal
from helpers_io import cut, places, quick, texts
from hypothesis import given
from hypothesis import strategies as st

from seqgen.errors import SeqgenError, UsageError
from seqgen.limits import byte_lines, max_line_bytes, read_whole, whole_lines
from seqgen.text.corpus import Unknowns, encode_corpus
from seqgen.text.encoding import encode_blocks
from seqgen.text.overlap import overlap_of_lines
from seqgen.text.pairs import FilePairs, TabPairs
from seqgen.text.reading import Text, lines, survey
from seqgen.text.split import Split
from seqgen.text.tokenizers import KINDS

MB = 1_000_000
ZEROS = "\0" * 2_500_000


@pytest.fixture
def limit(monkeypatch):
    """Return what sets the limit, in bytes."""
    return lambda size: monkeypatch.setenv("SEQGEN_MAX_LINE_MB", str(size / MB))


@pytest.fixture
def bomb(tmp_path, limit):
    """Return a small file that holds a line longer than the limit."""
    limit(MB)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(ZEROS.encode()))
    return path


def test_the_limit_is_64_mb_unless_it_is_set(monkeypatch):
    monkeypatch.delenv("SEQGEN_MAX_LINE_MB", raising=False)
    assert max_line_bytes() == 64_000_000
    monkeypatch.setenv("SEQGEN_MAX_LINE_MB", "0.5")
    assert max_line_bytes() == 500_000
    for wrong in ("0", "-1", "nan", "inf", "much"):
        monkeypatch.setenv("SEQGEN_MAX_LINE_MB", wrong)
        with pytest.raises(UsageError, match=f"a number of megabytes above 0, not '{wrong}'"):
            max_line_bytes()


@pytest.mark.parametrize("reader", [lines, whole_lines])
@quick
@given(text=texts, at=places, most=st.integers(1, 12))
def test_a_line_longer_than_the_limit_is_refused_by_its_number(reader, text, at, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_MAX_LINE_MB", str(most / MB))
        sizes = [len(line.encode()) for line in text.split("\n")]
        long = next((n for n, size in enumerate(sizes, 1) if size > most), None)
        if long is None:
            assert "".join(reader(cut(text, at))) == text
            return
        with pytest.raises(SeqgenError, match=f"^x, line {long} is longer than"):
            list(reader(cut(text, at), name="x"))


@quick
@given(raw=st.lists(st.binary(max_size=9), max_size=6).map(b"\n".join), most=st.integers(1, 12))
def test_lines_of_bytes(raw, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_MAX_LINE_MB", str(most / MB))
        long = next((n for n, line in enumerate(io.BytesIO(raw), 1) if len(line) > most), None)
        if long is None:
            assert list(byte_lines(io.BytesIO(raw), "x")) == io.BytesIO(raw).readlines()
            return
        with pytest.raises(SeqgenError, match=f"^x, line {long} is longer than"):
            list(byte_lines(io.BytesIO(raw), "x"))


def test_a_text_that_is_held_whole(limit):
    limit(6)
    assert read_whole(["ab", "\u00e9\u00e9"], "x") == "ab\u00e9\u00e9"
    with pytest.raises(SeqgenError, match=r"^x is longer than 6e-06 MB"):
        read_whole(["abc", "\u00e9\u00e9"], "x")


def zeros():
    return iter([ZEROS[:MB], ZEROS[MB:]])


def examples():
    """Return the module of the plugin that reads lines with labels."""
    return importlib.import_module("seqgen.plugins.labels.examples")


def blocks(*arguments):
    """Cut a text as tokenizers of imported models do, in their plugin."""
    return importlib.import_module("seqgen.plugins.exchange.imported_tokenizers").blocks(*arguments)


class Zeros:
    chunks = staticmethod(zeros)


@pytest.mark.parametrize(
    "read",
    [
        lambda: list(TabPairs(Zeros, "x")),
        lambda: list(FilePairs(Zeros, Zeros, ("x", "y"))),
        pytest.param(lambda: examples().TEXTS.read(zeros(), "x"), marks=needs("labels")),
        pytest.param(lambda: examples().SENTENCES.read(zeros(), "x"), marks=needs("labels")),
        lambda: KINDS["whitespace"].train(zeros()),
        pytest.param(lambda: list(blocks(zeros(), 1 << 16)), marks=needs("exchange")),
    ],
)
def test_readers_of_lines_and_words_refuse_what_is_too_long(limit, read):
    limit(MB)
    with pytest.raises(SeqgenError, match="is longer than 1 MB"):
        read()


def test_commands_refuse_a_compressed_line_in_one_line(bomb, tmp_path, capsys):
    labels = has_plugin("labels")
    calls = [
        ["tokenize", bomb, "--tokenizer", "byte"],
        ["import", bomb],
        ["bleu", bomb, bomb],
        ["train", bomb, "--documents", "line"],
        ["train", bomb, "--model", "seq2seq"],
        ["train", bomb, "--labels", "--model", "lstm"],
        *([["train", bomb, "--task", "classify", "--model", "lstm"]] if labels else []),
    ]
    for command in installed(calls):
        assert "bomb.gz" in (said := refusal(capsys, *command)) or "the text" in said
        assert "line 1 is longer than 1 MB" in said and "SEQGEN_MAX_LINE_MB" in said


@pytest.mark.fast_for("byte", rest="slow")
@pytest.mark.parametrize("kind", ["char", "byte"])
def test_a_stream_is_encoded_in_pieces_however_long_its_lines_are(limit, tmp_path, kind):
    limit(MB)
    path = tmp_path / "bomb.xz"
    size = 1 << 25
    with lzma.open(path, "wb", preset=0) as file:
        for _ in range(size >> 20):
            file.write(b"\0" * (1 << 20))
    tokenizer = KINDS[kind].train(["\0 a\n"])
    tracemalloc.start()
    try:
        assert sum(ids.size for _, ids in encode_blocks(Text((path,)).chunks(), tokenizer)) == size
        assert tracemalloc.get_traced_memory()[1] < size // 2
    finally:
        tracemalloc.stop()


def test_unknown_tokens_of_a_stream_are_counted_without_a_list():
    tokenizer = KINDS["char"].train(["a"])
    unknowns = Unknowns(tokenizer)
    encode_corpus(["\u00e9a\u00e9"] * 3, tokenizer, "stream", unknowns=unknowns)
    assert (unknowns.bytes, unknowns.places, unknowns.sizes) == (12, [], [])


def test_long_lines_of_a_stream_are_compared_by_their_beginning(limit):
    limit(MB)
    beside = ZEROS + "\nb\n"
    split = Split(lambda: iter([ZEROS, "\na\n"]), lambda: cut(beside, range(0, 3 * MB, 10_007)))
    found = overlap_of_lines(split.train, split.val)
    assert (found.shared, found.items) == (1, 2)


def test_zstandard_is_unpacked_in_bounded_pieces(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path, size = tmp_path / "bomb.zst", 1 << 28
    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as packer:
        for _ in range(size >> 20):
            packer.write(b"\0" * (1 << 20))
    sizes = [len(chunk) for chunk in Text((path,)).chunks()]
    assert sum(sizes) == size and max(sizes) <= 40 << 20 < size
    content = np.random.default_rng(0).integers(97, 120, 3 << 20).astype(np.uint8).tobytes()
    path.write_bytes(zstandard.compress(content[:MB]) + zstandard.compress(content[MB:]))
    assert "".join(Text((path,)).chunks()).encode() == content
    assert survey(Text((path,)).chunks()).bytes == len(content)

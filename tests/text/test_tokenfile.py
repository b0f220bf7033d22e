"""Token files: what is written is what is read, and nothing else is ever read."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from typing import ClassVar

import numpy as np
import pytest
from examples import examples
from helpers_io import cut, places, quick, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.settings import DataConfig
from seqgen.text import encoding, token_writing, tokenfile
from seqgen.text import split as splitting
from seqgen.text.corpus import Corpus, GrowingArray, encode_corpus
from seqgen.text.encoding import write_frame
from seqgen.text.reading import Text, survey
from seqgen.text.split import split_text, split_tokens
from seqgen.text.token_writing import write_corpus, write_token_file
from seqgen.text.tokenfile import HEAD, MAGIC, is_token_file, open_token_file, read_tokenizer
from seqgen.text.tokenizers import KINDS
from seqgen.training.sorted_runs import STATM

PROSE = (
    "Die Größe der naïve Katze ist 3.14 \u2581 \x10 \U0001f468\u200d\U0001f469 -- don't!\n"
    "\n  zwei  Leerzeichen, \t日本語 und مرحبا\r\n" * 12
)
ENDLESS = PROSE + "the last line has no end"
MARK = 16
few = settings(quick, max_examples=examples(25))


@pytest.fixture(autouse=True)
def close_marks(monkeypatch):
    """Short texts have marks too."""
    for module in (tokenfile, token_writing, splitting):
        monkeypatch.setattr(module, "MARK", MARK)


@pytest.fixture(scope="module")
def tokenizers():
    sizes = {"bpe": 330, "unigram": 330}
    return {kind: KINDS[kind].train([ENDLESS], sizes.get(kind)) for kind in KINDS}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corpus.tok"


def counts(raw):
    codes = np.frombuffer(raw, dtype=np.uint8)
    return int(((codes & 0xC0) != 0x80).sum()), len(raw)


@pytest.mark.fast_for(
    "char-*", "byte-stream", "word-line", "bpe-stream", "wordpiece-line", rest="slow"
)
@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("kind", KINDS)
@given(text=st.one_of(texts, st.sampled_from([ENDLESS, PROSE])), at=places)
@few
def test_a_file_holds_what_encoding_gives(tokenizers, path, kind, documents, text, at):
    tokenizer = tokenizers[kind]
    written = write_token_file(path, cut(text, at), tokenizer, documents)
    file, corpus = open_token_file(path), encode_corpus([text], tokenizer, documents)
    assert file.corpus.tokens.tolist() == corpus.tokens.tolist()
    assert file.corpus.ends.tolist() == corpus.ends.tolist()
    assert (file.corpus.start, file.corpus.oov) == (corpus.start, corpus.oov)
    assert file.corpus.tokens.dtype == tokenizer.dtype
    assert file.facts == survey([text]) == written.facts
    assert (written.tokens, written.oov) == (corpus.tokens.size, corpus.oov)
    assert (file.documents, file.tokenizer.fingerprint) == (documents, tokenizer.fingerprint)
    assert file.tokenizer.encode(text).tolist() == tokenizer.encode(text).tolist()
    if documents == "line":
        lines = text.split("\n")
        lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        assert file.sections["characters"].tolist() == list(map(len, lines))
        assert file.sections["bytes"].tolist() == [len(line.encode()) for line in lines]


@pytest.mark.parametrize("kind", ["char", "byte", "word", "bpe", "unigram"])
@pytest.mark.parametrize("text", [PROSE, ENDLESS, "x" * 100, "é" * 7, ""])
def test_marks_count_what_the_tokens_before_them_stand_for(tokenizers, path, kind, text):
    text = text.replace("\u2581", "").replace("\x10", "")  # an escape may be cut in two
    tokenizer = KINDS[kind].train([text]) if kind in ("char", "word") else tokenizers[kind]
    write_token_file(path, [text], tokenizer, "stream")
    file = open_token_file(path)
    assert len(file.marks) == file.corpus.tokens.size // MARK
    for i, mark in enumerate(file.marks):
        raw = tokenizer.text_bytes(file.corpus.tokens[: (i + 1) * MARK])
        assert tuple(mark) == counts(raw)


@pytest.mark.fast_for("char", "byte", "bpe", rest="slow")
@pytest.mark.parametrize("kind", ["char", "byte", "word", "bpe", "unigram"])
@given(text=st.one_of(texts, st.sampled_from([PROSE, ENDLESS])), share=st.floats(0.001, 0.999))
@few
def test_a_stream_is_divided_as_its_text_would_be(tokenizers, tmp_path, kind, text, share):
    if not text:
        return
    plain = tmp_path / "plain.txt"
    plain.write_bytes(b"\xef\xbb\xbf" + text.encode())
    tokenizer = KINDS[kind].train([text]) if kind in ("char", "word") else tokenizers[kind]
    write_token_file(tmp_path / "x.tok", [text], tokenizer, "stream")
    file = open_token_file(tmp_path / "x.tok")
    train, val, facts = split_tokens(file, share, 0)
    before, after = (tokenizer.decode(part.tokens.tolist()) for part in (train, val))
    assert before + after == text
    assert (facts.characters, facts.bytes) == (len(after), len(after.encode()))
    wanted = int((1 - share) * len(text) + 1e-9)
    assert len(before) >= wanted
    config = DataConfig(val=str(share))
    by_text = "".join(split_text(Text((plain,)), survey([text]), config, tokenizer).train())
    if kind in ("char", "byte", "word"):
        assert before == by_text
    else:  # the text is cut where no vocabulary has a piece across
        assert wanted <= len(before) <= len(by_text)
    assert train.ends.tolist() == [train.tokens.size] * bool(train.tokens.size)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [PROSE, ENDLESS])
def test_lines_are_divided_as_their_text_would_be(tokenizers, tmp_path, monkeypatch, kind, text):
    monkeypatch.setattr(splitting, "PIECE", 50)
    monkeypatch.setattr(splitting, "TAKEN", 2)
    (tmp_path / "plain.txt").write_bytes(text.encode())
    tokenizer, plain = tokenizers[kind], Text((tmp_path / "plain.txt",))
    write_token_file(tmp_path / "x.tok", [text], tokenizer, "line")
    config = DataConfig(val="0.3", split_seed=4, documents="line")
    split = split_text(plain, survey([text]), config, tokenizer)
    *parts, facts = split_tokens(open_token_file(tmp_path / "x.tok"), 0.3, 4)
    for part, chunks in zip(parts, (split.train(), split.val()), strict=True):
        expected = encode_corpus(chunks, tokenizer, "line")
        assert part.tokens.tolist() == expected.tokens.tolist()
        assert part.ends.tolist() == expected.ends.tolist()
        assert part.oov == expected.oov
    known = survey(split.val())
    assert (facts.characters, facts.bytes) == (known.characters, known.bytes)


def test_unknowns_move_the_cut_to_a_mark(path):
    text = "abc\n" * 20 + "abX\n" * 8 + "abc\n" * 20
    tokenizer = KINDS["char"].train(["abc\n"])
    write_token_file(path, [text], tokenizer, "stream")
    train, val, facts = split_tokens(open_token_file(path), 0.5, 0)
    assert train.tokens.size % MARK == 0 and train.tokens.size >= len(text) // 2
    assert train.tokens.size + val.tokens.size == len(text)
    assert facts.characters == facts.bytes == val.tokens.size
    assert train.oov + val.oov == 8


def test_a_short_text_that_ids_do_not_tell_is_refused(tokenizers, path):
    write_token_file(path, ["a  b   c"], tokenizers["whitespace"], "stream")
    with pytest.raises(SeqgenError, match="give --val FILE"):
        split_tokens(open_token_file(path), 0.5, 0)


def test_documents_that_are_ids_already(tokenizers, path):
    for documents in ("stream", "line"):
        corpus = encode_corpus([ENDLESS], tokenizers["bpe"], documents)
        write_corpus(path, corpus, survey([ENDLESS]), tokenizers["bpe"])
        file = open_token_file(path)
        assert file.documents == documents
        assert file.corpus.tokens.tolist() == corpus.tokens.tolist()
        assert file.corpus.ends.tolist() == corpus.ends.tolist()
        assert file.facts == survey([ENDLESS])


def test_a_changed_byte_is_found_wherever_it_is(tokenizers, path):
    write_token_file(path, [PROSE[:60]], tokenizers["word"], "line")
    sound = path.read_bytes()
    table = json.loads(sound[HEAD.unpack(sound[: HEAD.size])[1] :])
    gaps = set(range(HEAD.size, len(sound)))  # padding between sections means nothing
    gaps -= set(range(HEAD.unpack(sound[: HEAD.size])[1], len(sound)))
    for place in table["sections"].values():
        size = place["count"] * np.dtype(place["dtype"]).itemsize
        gaps -= set(range(place["offset"], place["offset"] + size))
    for at in sorted(set(range(len(sound))) - gaps)[::3]:
        changed = bytearray(sound)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        with pytest.raises(SeqgenError) as problem:
            open_token_file(path)
        assert "\n" not in str(problem.value) and str(path) in str(problem.value)


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_every_length_but_the_right_one_is_refused(tokenizers, path, documents):
    write_token_file(path, [PROSE], tokenizers["bpe"], documents)
    sound = path.read_bytes()
    for size in {0, 1, len(MAGIC), HEAD.size - 1, HEAD.size, *range(0, len(sound), 97)}:
        path.write_bytes(sound[:size])
        with pytest.raises(SeqgenError, match="cut short"):
            open_token_file(path)
    path.write_bytes(sound + b"\0")
    with pytest.raises(SeqgenError, match="longer than it was"):
        open_token_file(path)


def test_what_is_no_token_file(path, tmp_path):
    path.write_text("hello, I am a text with the wrong name, long enough to have a head " * 2)
    with pytest.raises(SeqgenError, match="is not a token file of seqgen"):
        open_token_file(path)
    with pytest.raises(SeqgenError, match="there is no file"):
        open_token_file(tmp_path / "none.tok")
    assert is_token_file(path) and not is_token_file(tmp_path / "none.txt")


def test_a_later_format_is_refused(tokenizers, path, monkeypatch):
    monkeypatch.setattr(token_writing, "FORMAT", 2)
    write_token_file(path, ["abc"], tokenizers["byte"], "stream")
    with pytest.raises(SeqgenError, match="has format 2; this seqgen reads 1"):
        open_token_file(path)


def test_a_file_is_known_by_how_it_begins(tokenizers, tmp_path):
    path = tmp_path / "any.name"
    write_token_file(path, ["abc"], tokenizers["byte"], "stream")
    assert is_token_file(path)
    assert read_tokenizer(path).kind == "byte"


def test_a_text_that_cannot_be_read_leaves_nothing(tokenizers, path):
    def broken():
        yield "some text\n"
        raise SeqgenError("the disk fell out")

    path.write_text("before")
    with pytest.raises(SeqgenError, match="fell out"):
        write_token_file(path, broken(), tokenizers["byte"], "stream")
    assert path.read_text() == "before"
    assert list(path.parent.iterdir()) == [path]


WRITE = """
import itertools, sys
from pathlib import Path
from seqgen.text.token_writing import write_token_file
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.text.tokenizers import KINDS
from seqgen.training.sorted_runs import STATM
chunks = itertools.repeat("some text and more\\n" * 5000, int(sys.argv[2]))
try:
    write_token_file(Path(sys.argv[1]), chunks, KINDS["byte"].train(()), sys.argv[3],
                     lambda done: print(done, flush=True))
except SeqgenError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits a file's size the POSIX way")
@pytest.mark.fast_for("line", rest="slow")
@pytest.mark.parametrize("documents", ["stream", "line"])
def test_a_full_disk_is_one_line_and_leaves_what_was_there(path, documents):
    path.write_text("before")

    def small_disk():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    command = [sys.executable, "-c", WRITE, str(path), "200", documents]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small_disk)
    assert done.returncode == 1
    assert done.stderr == f"{path} cannot be written: File too large\n"
    assert path.read_text() == "before"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="kills the POSIX way")
def test_a_kill_during_writing_leaves_what_was_there(path):
    path.write_text("before")
    command = [sys.executable, "-c", WRITE, str(path), "1000000", "stream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(3):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert path.read_text() == "before"


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class Recorded(encoding.Worker):
    """A worker whose process can be found."""

    pids: ClassVar[list] = []

    def __init__(self, tokenizer):
        super().__init__(tokenizer)
        self.pids.append(self._process.pid)


@pytest.fixture
def workers(monkeypatch):
    monkeypatch.setattr(encoding, "Worker", Recorded)
    monkeypatch.setattr(encoding, "BLOCK", 200)
    monkeypatch.setattr(Recorded, "pids", [])
    return Recorded.pids


@pytest.mark.fast_for("word", rest="slow")
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_all_cores_give_what_one_gives_in_order(tokenizers, workers, kind):
    tokenizer, chunks = tokenizers[kind], cut(ENDLESS * 3, range(0, 9000, 77))
    alone = list(encoding.encode_blocks(chunks, tokenizer, cores=1))
    assert not workers
    together = list(encoding.encode_blocks(chunks, tokenizer, cores=3))
    assert len(workers) == 3 and not any(map(alive, workers))
    assert [raw for raw, _ in together] == [raw for raw, _ in alone]
    assert b"".join(raw for raw, _ in together) == (ENDLESS * 3).encode()
    for (_, ids), (_, expected) in zip(together, alone, strict=True):
        assert ids.tolist() == expected.tolist() and ids.dtype == expected.dtype


def test_sampled_segmentations_are_the_same_on_all_cores(tokenizers, workers):
    sampling = encoding.Sampling(0.2, seed=3, epoch=1)
    ways = [
        np.concatenate(
            [
                ids
                for _, ids in encoding.encode_blocks(
                    [ENDLESS], tokenizers["unigram"], sampling, cores
                )
            ]
        )
        for cores in (1, 2)
    ]
    assert ways[0].tolist() == ways[1].tolist()
    other = encode_corpus([ENDLESS], tokenizers["unigram"], "stream", encoding.Sampling(0.2, 3, 2))
    assert other.tokens.tolist() != ways[0].tolist()


def test_workers_end_when_nobody_listens(tokenizers, workers):
    blocks = encoding.encode_blocks([PROSE] * 50, tokenizers["word"], cores=2)
    for _ in range(encoding.ALONE + 2):
        next(blocks)
    assert len(workers) == 2
    blocks.close()
    assert not any(map(alive, workers))


def test_a_worker_that_is_killed_is_one_line(tokenizers, workers):
    blocks = encoding.encode_blocks([PROSE] * 50, tokenizers["word"], cores=2)
    for _ in range(encoding.ALONE + 2):
        next(blocks)
    for process in workers:
        os.kill(process, signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(SeqgenError, match="was killed; is there enough memory"):
        list(blocks)


def test_a_worker_says_nothing_when_whoever_started_it_is_gone(tokenizers):
    tokenizer = tokenizers["word"]
    asked = io.BytesIO()
    write_frame(asked, json.dumps({"kind": tokenizer.kind, **tokenizer.facts()}).encode())
    write_frame(asked, b"null")
    write_frame(asked, PROSE.encode())
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "seqgen.text.worker"],
        input=asked.getvalue(),
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_is_large_goes_to_a_file(monkeypatch):
    monkeypatch.setattr(GrowingArray, "SPILL", 100)
    small, large = GrowingArray(np.uint16), GrowingArray(np.uint16)
    small.add(np.arange(10))
    for start in range(0, 1000, 50):
        large.add(np.arange(start, start + 50))
    assert large._file is not None and small._file is None
    assert large.array().tolist() == list(range(1000))
    assert small.array().tolist() == list(range(10))
    assert isinstance(large.array().base, np.memmap)


def test_a_mapped_corpus_is_no_copy(tokenizers, path):
    write_token_file(path, [PROSE], tokenizers["byte"], "stream")
    corpus = open_token_file(path).corpus
    assert isinstance(corpus, Corpus) and isinstance(corpus.tokens.base, np.memmap)
    train, val, _ = split_tokens(open_token_file(path), 0.5, 0)
    for part in (train, val):
        assert not part.tokens.flags.owndata


@pytest.mark.skipif(not STATM.exists(), reason="Linux says how much of a file is in memory")
def test_an_opened_file_takes_no_memory(tokenizers, path, monkeypatch):
    for module in (tokenfile, token_writing):
        monkeypatch.setattr(module, "MARK", 1 << 16)
    text = "a" * (1 << 22)
    write_token_file(path, [text], tokenizers["byte"], "stream")

    def mapped():
        return int(STATM.read_text().split()[2]) * resource.getpagesize()

    before = mapped()
    corpus = open_token_file(path).corpus
    assert corpus.tokens.nbytes >= len(text)
    assert mapped() - before < len(text) / 8


@pytest.mark.slow
def test_the_tokens_do_not_depend_on_the_workers(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text(PROSE * (8 * encoding.BLOCK // len(PROSE.encode()) + 1))
    tokenizer = tmp_path / "bpe"
    train = ["tokenize", str(text), "--train", "word", "--out", str(tokenizer), "--quiet"]
    assert run(train) == 0
    asked = ["tokenize", str(text), "--tokenizer", str(tokenizer), "--quiet"]
    for workers in ("1", "3"):
        out = tmp_path / f"{workers}.tok"
        assert run([*asked, "--workers", workers, "--out", str(out)]) == 0
        shards = ["--shards", "2", "--out", str(tmp_path / workers)]
        assert run([*asked, "--workers", workers, *shards]) == 0
    one, three = ((tmp_path / f"{n}.tok").read_bytes() for n in (1, 3))
    assert one == three
    for name in ("shard-00000.tok", "shard-00001.tok"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--workers", "2"], "--workers goes with --out FILE, without --train"),
        (["--workers", "0", "--out", "a.tok"], "--workers must be at least 1"),
        (["--workers", "two", "--out", "a.tok"], "two"),
        (["--workers", "2", "--train", "char", "--out", "a"], "--workers goes with --out FILE"),
    ],
)
def test_workers_that_have_no_meaning_are_refused(asked, said, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("some text\n")
    tokenizer = [] if "--train" in asked else ["--tokenizer", "byte"]
    assert run(["tokenize", str(tmp_path / "text.txt"), *tokenizer, *asked]) == 2
    assert said in capsys.readouterr().err

import bz2
import gzip
import hashlib
import itertools
import lzma
import os
import re

import numpy as np
import pytest
from helpers_cli import needs
from helpers_io import AWKWARD, characters, cut, cut_bytes, places, quick, texts
from hypothesis import assume, example, given
from hypothesis import strategies as st

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.text import reading
from seqgen.text.file_kinds import extraction_advice, recognise_kind
from seqgen.text.reading import (
    Text,
    decode_blocks,
    join_files,
    left_out_files,
    lines,
    survey,
    text_files,
    unix_newlines,
)

KITCHEN_SINK = "".join(AWKWARD)
EVERYWHERE = list(range(400))


@quick
@given(text=texts, at=places)
@example(text=KITCHEN_SINK, at=EVERYWHERE)
def test_blocks_cut_inside_characters(text, at):
    blocks = cut_bytes(text.encode(), at)
    assert "".join(decode_blocks(blocks, "x")) == text.removeprefix("\ufeff")


@quick
@given(text=texts, at=places)
@example(text="\ufeff\ufeffx", at=[1, 2, 4])
def test_one_byte_order_mark_is_dropped(text, at):
    blocks = cut_bytes(b"\xef\xbb\xbf" + text.encode(), at)
    assert "".join(decode_blocks(blocks, "x")) == text


# None of these can begin, continue or end a character, wherever it stands.
NEVER_UTF8 = st.sampled_from([b"\xff", b"\xfe", b"\xc0", b"\xc1", b"\xf5", b"\xf8"])


@quick
@given(before=texts, bad=NEVER_UTF8, after=texts, at=places)
@example(before=KITCHEN_SINK, bad=b"\xff", after="x", at=EVERYWHERE)
def test_an_invalid_byte_is_found_where_it_is(before, bad, after, at):
    raw = before.encode() + bad + after.encode()
    with pytest.raises(SeqgenError) as caught:
        list(decode_blocks(cut_bytes(raw, at), "some file"))
    message = f"some file is not UTF-8 text: byte 0x{bad[0]:02x} at offset {len(before.encode())}"
    latin1 = "; if it is Latin-1, convert it with iconv -f latin1 -t utf-8"
    assert str(caught.value) in (message, message + latin1)


# What wide encodings are called by iconv, and how texts in them begin.
WIDE = {f"utf-{n}-{end}": (f"UTF-{n}{end.upper()}", b"") for n in (16, 32) for end in ("le", "be")}
WIDE |= {f"{k}, marked": (name[:6], "\ufeff".encode(k)) for k, (name, _) in WIDE.items()}
ASCII = st.text(st.characters(min_codepoint=1, max_codepoint=0x7F), min_size=20)


@pytest.mark.parametrize("kind", WIDE)
@quick
@given(before=ASCII, after=st.text(characters, max_size=10), first=st.integers(3, 40))
def test_wide_encodings_are_called_that(kind, before, after, first):
    name, mark = WIDE[kind]
    # U+00E9 is no UTF-8 in either order; most of a text in Latin letters is ASCII.
    text = before + "\u00e9" + " and so on" * 9 + after
    raw = mark + text.encode(kind.partition(",")[0])
    with pytest.raises(SeqgenError) as caught:
        first += name.startswith("UTF-32")  # a mark is never in two blocks
        list(decode_blocks([raw[:first], raw[first:]], "x"))
    told = f"x is not UTF-8 text but {name}; convert it with iconv -f {name} -t UTF-8"
    assert str(caught.value) == told


@pytest.mark.parametrize("kind", WIDE)
@quick
@given(text=ASCII)
def test_wide_encodings_of_ascii_are_no_text(kind, text):
    name, mark = WIDE[kind]
    raw = mark + text.encode(kind.partition(",")[0])
    with pytest.raises(SeqgenError, match=f"x is not UTF-8 text but {name}; .* -f {name} -t"):
        list(decode_blocks([raw], "x"))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "uint8"])
def test_numbers_are_not_taken_for_utf_16(dtype):
    values = np.random.default_rng(1).normal(0, 60, 1000).astype(dtype)
    for raw in (b"\xff" + values.tobytes(), bytes(500) + b"\xff" + values.tobytes()):
        with pytest.raises(SeqgenError, match=r"^x is not UTF-8 text: byte 0x"):
            list(decode_blocks([raw], "x"))


@quick
@given(text=texts, missing=st.integers(1, 3), at=places)
def test_a_text_that_breaks_off_inside_a_character(text, missing, at):
    whole = text.encode()
    raw = whole + "\U0001f600".encode()[:-missing]
    with pytest.raises(SeqgenError, match=f"offset {len(whole)}(;|$)"):
        list(decode_blocks(cut_bytes(raw, at), "x"))


@quick
@given(text=texts, bad=NEVER_UTF8, at=places, where=st.floats(0, 1))
def test_any_invalid_text_agrees_with_python(text, bad, at, where):
    raw = text.encode()
    place = int(where * len(raw))
    raw = raw[:place] + bad + raw[place:]
    with pytest.raises(UnicodeDecodeError) as expected:
        raw.decode()
    with pytest.raises(SeqgenError, match=f"offset {expected.value.start}(;|$)"):
        list(decode_blocks(cut_bytes(raw, at), "x"))


FILES = st.lists(st.text(st.sampled_from("\r\nab"), max_size=6), max_size=4)


@quick
@given(files=FILES, at=places)
@example(files=["a", "", "b", "\n", "c\n"], at=[1])
def test_each_file_has_its_own_lines(files, at):
    joined = list(lines(join_files((cut(text, at) for text in files), "\n")))
    apart = [line.removesuffix("\n") for text in files for line in lines([text])]
    assert [line.removesuffix("\n") for line in joined] == apart
    assert "".join(join_files((cut(text, at) for text in files), "")) == "".join(files)


@quick
@given(files=FILES, at=places)
@example(files=["a\n", "b\n\n", "", "c"], at=[1])
def test_each_file_has_its_own_sentences(files, at):
    def sentences(text):
        groups = itertools.groupby(text.split("\n"), key=bool)
        return [list(lines) for is_sentence, lines in groups if is_sentence]

    joined = "".join(join_files((cut(text, at) for text in files), "\n\n"))
    assert sentences(joined) == [one for text in files for one in sentences(text)]


@quick
@given(text=st.text(st.sampled_from("\r\na"), max_size=20), at=places)
def test_crlf_becomes_lf_across_pieces(text, at):
    assert "".join(unix_newlines(cut(text, at))) == text.replace("\r\n", "\n")


@quick
@given(text=texts, at=places)
def test_only_lf_ends_a_line(text, at):
    found = list(lines(cut(text, at)))
    assert "".join(found) == text
    parts = text.split("\n")
    expected = [p + "\n" for p in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    assert found == expected


@quick
@given(text=texts, at=places)
def test_a_survey_counts(text, at):
    facts = survey(cut(text, at))
    assert facts.characters == len(text)
    assert facts.bytes == len(text.encode())
    assert facts.lines == len(list(lines([text])))
    assert facts.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_an_empty_text_has_nothing():
    facts = survey([])
    assert (facts.characters, facts.bytes, facts.lines) == (0, 0, 0)
    assert facts.sha256 == survey(["", ""]).sha256 == hashlib.sha256(b"").hexdigest()
    assert list(lines([])) == list(lines(["", ""])) == list(decode_blocks([], "x")) == []


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(reading, "CHUNK_BYTES", 3)


def written(folder, contents):
    paths = []
    for number, content in enumerate(contents):
        paths.append(folder / f"{number:03}.txt")
        paths[-1].write_bytes(content)
    return tuple(paths)


@quick
@given(parts=st.lists(texts, max_size=4))
@example(parts=["a\r", "\nb"])
@example(parts=["a\n", "b"])
def test_several_files_are_joined_as_cat_would(parts, tmp_path, small_chunks):
    paths = written(tmp_path, [b"\xef\xbb\xbf" + part.encode() for part in parts])
    together = "".join(parts)
    assert "".join(Text(paths).chunks()) == together
    assert "".join(Text(paths, "lf").chunks()) == together.replace("\r\n", "\n")
    assert Text(paths).digest() == hashlib.sha256(together.encode()).hexdigest()


@quick
@given(parts=st.lists(texts, max_size=3), start=st.integers(0, 30), size=st.integers(0, 30))
def test_a_part_of_a_text(parts, start, size, tmp_path, small_chunks):
    assume(not any(part.startswith("\ufeff") for part in parts))
    text = Text(written(tmp_path, [part.encode() for part in parts]))
    together = "".join(parts)
    assert "".join(text.chunks(start, start + size)) == together[start : start + size]
    assert "".join(text.chunks(start)) == together[start:]
    assert all(text.chunks(start, start + size))  # no empty piece


def test_a_folder_is_its_files_by_sorted_path(tmp_path):
    for name in ("b/2.txt", "b/10.txt", "a.txt", "c", ".hidden", ".git/config", "b/.x"):
        path = tmp_path / "top" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = [p.relative_to(tmp_path / "top").as_posix() for p in text_files([tmp_path / "top"])]
    assert found == ["a.txt", "b/10.txt", "b/2.txt", "c"]
    other = tmp_path / "other.txt"
    other.write_text("x")
    assert text_files([other, str(tmp_path / "top"), other])[:2] == (other, tmp_path / "top/a.txt")
    # A folder that is hidden itself, or lies in a hidden one, is what was asked for.
    assert len(text_files([tmp_path / "top" / ".git"])) == 1


def test_what_is_not_there(tmp_path):
    with pytest.raises(SeqgenError, match=r"there is no file .*nothing\.txt"):
        text_files([tmp_path / "nothing.txt"])
    (tmp_path / "link.txt").symlink_to("gone.txt")
    with pytest.raises(SeqgenError, match=r"link.txt is a link to gone.txt, which does not exist"):
        text_files([tmp_path / "link.txt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SeqgenError, match="contains no file"):
        text_files([tmp_path / "empty"])
    with pytest.raises(SeqgenError, match="no file without a name"):
        text_files([""])  # an unset variable, and not the current folder
    with pytest.raises(SeqgenError, match="there is no file"):
        list(Text((tmp_path / "gone.txt",)).chunks())
    with pytest.raises(SeqgenError, match="Is a directory"):
        list(Text((tmp_path / "empty",)).chunks())


def test_the_offset_counts_bytes_of_its_own_file(tmp_path, small_chunks):
    good, bad = written(
        tmp_path, ["\ufeffgr\u00fc\u00df".encode(), "\ufeff\u00fc".encode() + b"\xff"]
    )
    with pytest.raises(SeqgenError, match=r"001\.txt is not UTF-8 text: byte 0xff at offset 5"):
        list(Text((good, bad)).chunks())


def test_characters_are_read_as_they_come(tmp_path, monkeypatch):
    """A large file is never held whole: pieces come while most of it is unread."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 1000)
    path = tmp_path / "large.txt"
    path.write_text("x" * 100_000)
    assert max(map(len, Text((path,)).chunks())) <= 1000


PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def test_a_folder_is_its_texts(tmp_path):
    for name, content in {
        "a.txt": "caf\u00e9\n".encode(),
        "b.png": PICTURE,
        "c.txt.gz": gzip.compress(b"packed\n"),
        "d.pdf": b"%PDF-1.4\n% no NUL here\n",
        "e.bin": b"x" * 8000 + b"\0",
        "f.txt": b"x" * 9000 + b"\0",  # a NUL is a character of a text
        "g.tok": b"seqgen.tokens\r\n\0",
        "h.zip": b"PK\x03\x04",
        "i.txt": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
    cache = tmp_path / "__pycache__"
    cache.mkdir()
    (cache / "j.pyc").write_bytes(b"\0")  # neither read nor counted as left out
    for name in (tmp_path, tmp_path / "*", tmp_path / "**"):
        read = [path.name for path in text_files([name])]
        assert read == ["a.txt", "c.txt.gz", "f.txt", "g.tok", "i.txt"]
        assert [path.name[0] for path in left_out_files(name)] == ["b", "d", "e", "h"]
    (cache / "k.txt").write_text("asked for")
    assert text_files([cache]) == text_files([cache / "*"]) == (cache / "k.txt",)
    assert text_files([tmp_path / "b.png"]) == (tmp_path / "b.png",)  # it is asked for
    with pytest.raises(SeqgenError, match=r"\*\.[a-z]* has no text: .*b\.png"):
        text_files([tmp_path / "*.png"])


def test_other_names_of_a_file_pipes_and_dangling_links_are_left_out(
    tmp_path,
):
    (tmp_path / "b.txt").write_text("text\n")
    (tmp_path / "a.txt").symlink_to("b.txt")
    (tmp_path / "c.txt").hardlink_to(tmp_path / "b.txt")
    (tmp_path / "d.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "e.txt")
    for name in (tmp_path, tmp_path / "*", f"{tmp_path}/**"):
        assert text_files([name]) == (tmp_path / "b.txt",)
        said = {path.name: why for path, why in left_out_files(name).items()}
        assert said == {
            "a.txt": f"{tmp_path}/a.txt is {tmp_path}/b.txt again",
            "c.txt": f"{tmp_path}/c.txt is {tmp_path}/b.txt again",
            "d.txt": f"{tmp_path}/d.txt is a link to nowhere, which does not exist",
            "e.txt": f"{tmp_path}/e.txt is a pipe or a device",
        }


# Files that are no UTF-8 text or damaged, perhaps only after their first megabyte, and why.
FAULTY = {
    "latin.txt": (b"caf\xe9\n", "is not UTF-8 text: byte 0xe9 at offset 3"),
    "late.txt": (b"a line\n" * 300_000 + b"\xff", "is not UTF-8 text: byte 0xff at offset 2100000"),
    "ends.txt": ("é".encode()[:1], "is not UTF-8 text: byte 0xc3 at offset 0"),
    "wide.txt": ("text\n".encode("utf-16"), "is not UTF-8 text but UTF-16"),
    "wider.txt": ("text\n".encode("utf-32"), "is not UTF-8 text but UTF-32"),
    "latin.txt.gz": (gzip.compress(b"caf\xe9\n"), "is not UTF-8 text: byte 0xe9 at offset 3"),
    "cut.txt.gz": (gzip.compress(b"text\n" * 99)[:-9], "is damaged: Compressed file ended"),
    "sum.txt.gz": (gzip.compress(b"text\n")[:-8] + b"\1" * 8, "is damaged: CRC check failed"),
    "none.txt.gz": (b"text\n", "is damaged: Not a gzipped file"),
    "cut.txt.xz": (lzma.compress(b"text\n" * 99)[:-9], "is damaged: Compressed file ended"),
    "none.txt.xz": (b"text\n", "is damaged: Input format not supported"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_damaged_text_is_an_error_by_its_name_and_left_out_of_a_folder(tmp_path, name):
    content, why = FAULTY[name]
    faulty = tmp_path / name
    faulty.write_bytes(content)
    said = re.escape(f"{faulty} {why}")
    with pytest.raises(SeqgenError, match=said):
        list(Text(text_files([faulty])).chunks())
    for data in (tmp_path, tmp_path / "*"):
        with pytest.raises(SeqgenError, match=rf"has no text: {said}"):
            text_files([data])
    (tmp_path / "a.txt").write_bytes(b"text\n")
    for data in (tmp_path, tmp_path / "*"):
        assert text_files([data]) == (tmp_path / "a.txt",)
        assert [*left_out_files(data)] == [faulty]
    faulty.write_bytes(b"text again\n")  # what was found out is not kept longer than the file
    if faulty.suffix == ".txt":
        assert text_files([tmp_path]) == tuple(sorted([tmp_path / "a.txt", faulty]))


def test_commands_leave_damaged_texts_out_of_a_folder(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, (content, _) in FAULTY.items():
        (folder / name).write_bytes(content)
    (folder / "0.txt").write_bytes(b"")
    (folder / "a.txt").write_text("the cat sat\n" * 20)
    assert run(["train", str(folder), "--model", "ngram", "--name", "m"]) == 0
    said = capsys.readouterr().err
    faults = [f"{folder / name} {why}" for name, (_, why) in sorted(FAULTY.items())]
    assert [fault in said for fault in faults] == [True] * 5 + [False] * (len(faults) - 5)
    assert f"{len(faults) - 5} more files left out: see seqgen data\n" in said
    assert store.find("m").read_table(store.RECORD)["data"]["characters"] == 240
    names = {str(folder / name) for name in FAULTY}
    for command in ("perplexity", "tokenize", "eval"):
        assert run([command, "-m", "m", str(folder), "--json"]) == 0
        out, err = capsys.readouterr()
        assert "more files left out" in err and not any(name in out for name in names), command
    # What stands beside them is not what was meant; nor is a damaged file that is named.
    (folder / "0.txt").unlink()
    (folder / "a.txt").rename(folder / "README.txt")
    for data in (folder, folder / "latin.txt"):
        assert run(["train", str(data), "--model", "ngram", "--name", "n"]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_files_that_may_hold_a_text_are_left_out_with_advice(tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("the cat sat\n" * 20)
    for name, head in {
        "b.parquet": b"PAR1\0",
        "c.pdf.gz": gzip.compress(b"%PDF-1.4\n"),
        "d.txt.bz2": bz2.compress(b"text"),
    }.items():
        (folder / name).write_bytes(head)
    (folder / "e.txt").symlink_to("a.txt")
    assert run(["train", str(folder), "--model", "ngram", "--name", "m"]) == 0
    said = capsys.readouterr().err
    for line in (
        f"{folder}/b.parquet is parquet: give --field NAME",
        f"{folder}/c.pdf.gz is a PDF: extract its text first",
        f"{folder}/d.txt.bz2 is compressed with bzip2: decompress it first",
        f"{folder}/e.txt is {folder}/a.txt again",
    ):
        assert f"left out: {line}" in said
    assert store.find("m").record["data"]["characters"] == 240
    os.mkfifo(folder / "f.gz")
    kind = recognise_kind(folder / "f.gz", b"\x1f\x8b")
    assert "or use the file itself instead of a pipe, with a name that ends in .gz" in (
        extraction_advice(kind, folder / "f.gz", b"")
    )


def test_a_picture_beside_a_text_is_told_and_does_not_stop_training(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("the cat sat\n" * 20)
    (tmp_path / "in" / "b.png").write_bytes(PICTURE)
    assert run(["train", str(tmp_path / "in"), "--model", "ngram", "--name", "m"]) == 0
    said = capsys.readouterr().err
    assert said.count(f"1 file of {tmp_path / 'in'} left out: not text (") == 1
    record = store.find("m").read_table(store.RECORD)
    assert record["data"]["files"] == [str(tmp_path / "in" / "a.txt")]


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("the cat", ()),
        ("the cat", ("--documents", "line")),
        ("a\tthe cat", ("--labels",)),
        ("the cat\tle chat", ("--model", "seq2seq")),
        pytest.param("the cat\ta\r\nthe dog\tb", ("--task", "classify"), marks=needs("labels")),
        pytest.param("cat\tN\r\nsat\tV", ("--task", "tag"), marks=needs("labels")),
    ],
)
def test_newlines_lf_reaches_every_kind_of_held_out_file(tmp_path, line, how):
    for name in ("train.txt", "val.txt"):
        (tmp_path / name).write_bytes(f"{line}\r\n".encode() * 40)
    files = [tmp_path / "train.txt", "--val", tmp_path / "val.txt", "--newlines", "lf"]
    model = () if "--model" in how else ("--model", "lstm")
    few = ("--hidden-size", "4", "--steps", "1", "--batch-size", "4", "--name", "m", "-q")
    assert run(["train", *map(str, files), *model, *how, *few]) == 0
    kept = [path.read_bytes() for path in (store.find("m").path / "validation").iterdir()]
    assert kept and all(b"\n" in content and b"\r" not in content for content in kept)

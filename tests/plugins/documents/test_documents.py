"""Documents and archives of texts as DATA: what is taken, what is left out, and hostile files."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from helpers_cli import needs

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.text.reading import decode_file, document_facts

pytestmark = needs("documents")
COUNT = ("--model", "ngram", "--order", "2", "--val", "none", "--name", "m", "--overwrite")
TEXT = "the cat sat on the mat\na dog ran, it was fun\n" * 20
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
OPEN_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"


def pack(path: Path, parts: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def docx(path: Path, body: str, main: str = "word/document.xml", **others: str) -> Path:
    relation = f'<Relationship Type="http://x/officeDocument" Target="/{main}"/>'
    parts = {"_rels/.rels": f'<Relationships xmlns="{PACKAGE}">{relation}</Relationships>'}
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    notes = {f"word/{name}.xml": content for name, content in others.items()}
    return pack(path, {**parts, main: document, **notes})


def odt(path: Path, body: str, **others: str) -> Path:
    spaces = f'xmlns:office="{OFFICE}" xmlns:text="{OPEN_TEXT}" xmlns:table="table"'
    content = f"<office:document-content {spaces}><office:text>{body}</office:text>"
    return pack(path, {"content.xml": f"{content}</office:document-content>", **others})


def epub(path: Path, chapters: dict[str, str], **others: str) -> Path:
    items = "".join(
        f'<item id="{n}" href="{name}" media-type="application/xhtml+xml"/>'
        for n, name in enumerate(chapters)
    )
    order = "".join(f'<itemref idref="{n}"/>' for n in reversed(range(len(chapters))))
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfile full-path="o/c.opf"/></container>',
        "o/c.opf": f"<package><manifest>{items}</manifest><spine>{order}</spine></package>",
        **{f"o/{name.replace('%20', ' ')}": page for name, page in chapters.items()},
    }
    return pack(path, parts | {name.replace("__", "/"): text for name, text in others.items()})


def pdf(path: Path, pages: list[str], password: str | None = None) -> Path:
    """Write pages by matplotlib; encrypt them by pypdf. A page of "" has a picture alone."""
    pypdf = pytest.importorskip("pypdf")
    figures = pytest.importorskip("matplotlib.figure")
    from matplotlib.backends.backend_pdf import PdfPages

    with PdfPages(path) as document:
        for page in pages:
            figure = figures.Figure()
            if page:
                figure.text(0.1, 0.5, page)
            else:
                figure.add_axes((0, 0, 1, 1), frame_on=False, xticks=[], yticks=[]).imshow([[1]])
            document.savefig(figure)
    if password is not None:
        writer = pypdf.PdfWriter(clone_from=path)
        writer.encrypt(password, "owner", algorithm="RC4-128")
        writer.write(path)
    return path


def text_of(path: Path) -> str:
    return "".join(decode_file(path))


def refused(capsys: pytest.CaptureFixture, path: Path) -> str:
    """Return the one line that refuses a file that is named."""
    assert run(["train", str(path), *COUNT]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"seqgen: {path} ")
    return line


def test_word_documents(tmp_path):
    body = (
        "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>One</w:t><w:tab/>"
        '<w:t xml:space="preserve"> two </w:t><w:br/><w:t>three</w:t></w:r></w:p>'
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc>"
        "<w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
        '<mc:AlternateContent xmlns:mc="mc"><mc:Choice><w:r><w:t>box</w:t></w:r></mc:Choice>'
        "<mc:Fallback><w:r><w:t>box</w:t></w:r></mc:Fallback></mc:AlternateContent>"
        "<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"
    )
    note = f'<w:footnotes xmlns:w="{WORD}"><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnotes>'
    wanted = "One\t two\nthree\na\tb\nbox\n"
    assert text_of(docx(tmp_path / "a.docx", body)) == wanted
    assert text_of(docx(tmp_path / "b.docx", body, "other/doc2.xml")) == wanted
    assert text_of(docx(tmp_path / "c.DOCX", body, footnotes=note)) == f"{wanted}\nA note.\n"


def test_opendocument_texts(tmp_path):
    body = (
        "\n  <text:h>Head</text:h>\n  <text:p>a  b<text:s text:c='3'/>c<text:tab/>d"
        "<text:line-break/>e</text:p><text:tracked-changes><text:p>x</text:p>"
        "</text:tracked-changes><table:table-row><table:table-cell><text:p>1</text:p>"
        "</table:table-cell><table:table-cell><text:p>2</text:p></table:table-cell>"
        "</table:table-row>"
    )
    assert text_of(odt(tmp_path / "a.odt", body)) == "Head\na b   c\td\ne\n1\t2\n"


def test_notes_and_descriptions_of_opendocument_do_not_divide_a_sentence(tmp_path):
    """Notes follow the text, as those of Word documents do."""
    note = (
        "<text:note><text:note-citation>1</text:note-citation><text:note-body>"
        "<text:p>A note.</text:p></text:note-body></text:note>"
    )
    svg = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
    frame = f"<text:span {svg}><svg:title>T</svg:title><svg:desc>D</svg:desc></text:span>"
    body = f"<text:p>The cat{note} sat{frame} on <text:title>a title</text:title>.</text:p>"
    body += f"<table:table-row><table:table-cell><text:p>1{note.replace('A ', 'Another ')}</text:p>"
    body += "</table:table-cell><table:table-cell><text:p>2</text:p></table:table-cell>"
    body += "</table:table-row>"
    wanted = "The cat sat on a title.\n1\t2\n\nA note.\nAnother note.\n"
    assert text_of(odt(tmp_path / "a.odt", body)) == wanted


def test_books_are_read_in_the_order_of_their_spine(tmp_path, capsys):
    chapters = {"last%20one.xhtml": "<p>last</p>", "b.html": "<title>t</title><h1>First</h1>&nbsp;"}
    path = epub(tmp_path / "a.epub", {**chapters, "empty.html": "<img/>"})
    assert text_of(path) == "First\n\nlast\n"
    section = {"a.xhtml": "<p>one <![CDATA[<two>]]></p>"}
    assert text_of(epub(tmp_path / "d.epub", section)) == "one <two>\n"
    assert run(["train", str(path), *COUNT]) == 0
    said = f"{path}: 3 chapters, 12 characters, 1 chapter without text\n"
    assert said in capsys.readouterr().err
    fonts = '<e><CipherReference URI="o/font.otf"/></e>'
    others = {"META-INF__encryption.xml": fonts}
    assert text_of(epub(tmp_path / "b.epub", chapters, **others)) == "First\n\nlast\n"
    others = {"META-INF__encryption.xml": fonts.replace("font.otf", "b.html")}
    assert "DRM" in refused(capsys, epub(tmp_path / "c.epub", chapters, **others))


PAGES = {
    "blocks": (b"<p>a<p>b<div>c<div>d</div></div>e<br>f", "a\n\nb\nc\nd\ne\nf\n"),
    "spaces": (b"<p> a\n  b <i> c</i></p>\n<pre>x\n  y</pre>", "a b c\n\nx\n  y\n"),
    "hidden": (b"<script>if (a<b) {}</script><style>p{}</style><nav>home</nav>a", "a\n"),
    "unclosed": (b"a<ul><li>b<li>c</ul><svg><title>no", "a\n\nb\nc\n"),
    "cells": (b"<table><tr><td>1<td>2<tr><th>3</th><th>4</th></table>", "1\t2\n3\t4\n"),
    "entities": (b"&lt;b&gt; &eacute;&#8212;&amp;amp; &nosuch;", "<b> é—&amp; &nosuch;\n"),
    "latin": ("<meta charset=iso-8859-1>café “x”".encode("cp1252"), "café “x”\n"),
    "declared": ('<?xml version="1.0" encoding="koi8-r"?>да'.encode("koi8-r"), "да\n"),
    "unknown": (b"<meta charset='nonsense'>caf\xe9", "café\n"),
    "lies": ('<meta http-equiv=x content="a; charset=latin1">é'.encode(), "é\n"),
    "wide": ("\ufeff<p>wide</p>".encode("utf-16-le"), "wide\n"),
    "xhtml": (b"<html><script src='a'/><p/>b</html>", "b\n"),
    "cdata": (b"<?xml version='1.0'?><p>a<![CDATA[ <b> & ]]>c</p>", "a <b> & c\n"),
    "comment": (b"<p>a<![CDATA[ b ]]>c</p>", "ac\n"),
    "damaged": (
        "<meta charset=utf-8>d\u00e9j\u00e0 vu \u00e9t\u00e9 ".encode() + b"\xff!",
        "d\u00e9j\u00e0 vu \u00e9t\u00e9 \ufffd!\n",
    ),
    "no utf-8": ("<meta charset=utf-8>d\u00e9j\u00e0 vu".encode("latin-1"), "d\u00e9j\u00e0 vu\n"),
    "gb2312": ("<meta charset=gb2312>\u6731\u9555\u57fa".encode("gbk"), "\u6731\u9555\u57fa\n"),
    "shift_jis": ("<meta charset=Shift_JIS>\u2460\u7530".encode("cp932"), "\u2460\u7530\n"),
    "x-sjis": ("<meta charset=x-sjis>\u7530".encode("cp932"), "\u7530\n"),
    "euc-kr": ("<meta charset=euc-kr>\ub620\ubc29".encode("cp949"), "\ub620\ubc29\n"),
    "latin5": (
        "<meta charset=iso-8859-9>\u201c\u011fa\u201d".encode("cp1254"),
        "\u201c\u011fa\u201d\n",
    ),
    "controls": (b"a\x00\x07b\r\nc", "ab c\n"),
}


@pytest.mark.parametrize("page", PAGES)
def test_pages(page, tmp_path):
    content, wanted = PAGES[page]
    (tmp_path / "a.html").write_bytes(content)
    assert text_of(tmp_path / "a.html") == wanted


def test_a_page_is_read_with_its_tags_as_text(tmp_path, capsys):
    path, folder = tmp_path / "pages" / "a.html", tmp_path / "pages"
    folder.mkdir()
    path.write_text(f"<p>{TEXT}</p>")
    shorn = TEXT.replace("\n", " ").strip() + "\n"
    for data in (path, folder, f"{folder}/*"):
        assert run(["train", str(data), *COUNT]) == 0
        assert "characters" in capsys.readouterr().err
        assert facts()["characters"] == len(shorn)
        assert run(["train", str(data), "--as-text", *COUNT]) == 0
        assert "read" not in capsys.readouterr().err
        assert facts()["characters"] == len(path.read_text())
    held_out = ("--val", str(path), *COUNT[:4], *COUNT[6:])
    assert run(["train", str(path), "--as-text", *held_out]) == 0
    assert store.find("m").validation_text.read_text() == path.read_text()
    out = ("--out", str(tmp_path / "t"), "--overwrite", "--quiet")
    for more, known in (((), False), (("--as-text",), True)):
        assert run(["tokenize", str(path), "--train", "char", *more, *out]) == 0
        capsys.readouterr()
        (tmp_path / "b.txt").write_text("<")
        run(["tokenize", str(tmp_path / "b.txt"), "--tokenizer", str(tmp_path / "t"), "--pieces"])
        assert ("<unk>" in capsys.readouterr().out) != known


def facts() -> dict:
    return store.find("m").record["data"]


def test_pdf_files(tmp_path, capsys):
    pages = ["Once upon a time", "", "there was a cat"]
    path = pdf(tmp_path / "a.pdf", pages)
    assert text_of(path).split("\n") == ["Once upon a time", "there was a cat", ""]
    assert run(["train", str(path), *COUNT]) == 0
    said = capsys.readouterr().err
    assert f"{path}: 3 pages, 33 characters, 1 page without text\n" in said
    assert text_of(pdf(tmp_path / "b.pdf", pages, "")) == text_of(path)
    assert "encrypted" in refused(capsys, pdf(tmp_path / "c.pdf", pages, "secret"))
    assert "OCR" in refused(capsys, pdf(tmp_path / "d.pdf", [""]))
    raw = path.read_bytes()
    for content in (b"", b"hello", raw[:200], raw[: len(raw) // 2].replace(b"obj", b"jbo")):
        (tmp_path / "e.pdf").write_bytes(content)
        assert "damaged" in refused(capsys, tmp_path / "e.pdf")


def test_rtf_documents(tmp_path, capsys):
    pytest.importorskip("striprtf")
    path = tmp_path / "a.rtf"
    path.write_bytes(
        rb"{\rtf1\ansi\ansicpg1252{\fonttbl\f0\fswiss Arial;}{\*\generator x;}"
        rb"\f0 some {\b bold} caf\'e9 \u8212?\par next\par}"
    )
    assert text_of(path) == "some bold café —\nnext\n"
    for content, why in ((b"text", "is no RTF"), (rb"{\rtf1}", "has no text")):
        path.write_bytes(content)
        assert why in refused(capsys, path)


def test_a_missing_package_is_named(tmp_path, capsys, monkeypatch):
    for package, name in (("pypdf", "a.pdf"), ("striprtf", "a.rtf")):
        monkeypatch.setitem(sys.modules, package, None)
        path = tmp_path / name
        path.write_bytes(b"{\\rtf1 text}")
        assert f"needs the package {package}: pip install {package}" in refused(capsys, path)


@needs("data")
def test_what_cannot_be_read_is_left_out_of_a_folder(tmp_path, capsys):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT)
    (folder / "b.html").write_text("<p>page</p>")
    (folder / "c.png").write_bytes(b"\x89PNG\r\n")
    epubs = [f"{folder}/d{number}.epub" for number in range(7)]
    for name in epubs:
        Path(name).write_bytes(b"broken")
    for data in (str(folder), f"{folder}/*"):
        assert run(["train", data, *COUNT]) == 0
        said = capsys.readouterr().err.splitlines()
        assert [line for line in said if "left out" in line] == [
            f"1 file of {data} left out: not text ({folder}/c.png)",
            *(f"left out: {name} is damaged: File is not a zip file" for name in epubs[:5]),
            "2 more files left out: see seqgen data",
        ]
        assert f"{folder}/b.html: 5 characters" in said
        counted = [n for n, line in enumerate(said) if "tokens counted" in line]
        assert all(n < counted[0] for n, line in enumerate(said) if "left out" in line)
        assert facts()["characters"] == len(f"{TEXT}page\n")
    assert run(["data", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["documents"] == {f"{folder}/b.html": "5 characters"}
    assert report["samples"] == {f"{folder}/b.html": "page"}
    damaged = {name: f"{name} is damaged: File is not a zip file" for name in epubs}
    assert report["left_out"] == {f"{folder}/c.png": f"{folder}/c.png is not text", **damaged}
    assert run(["data", str(folder)]) == 0
    out = capsys.readouterr().out
    assert re.search(rf"^documents +{folder}/b.html: 5 characters\n +page$", out, re.MULTILINE)
    assert re.search(rf"^left out +{folder}/c.png is not text$", out, re.MULTILINE)
    assert all(f"{line}\n" in out for line in damaged.values())
    for name in ("a.txt", "b.html"):
        (folder / name).unlink()
    assert run(["train", str(folder), *COUNT]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line == (
        f"seqgen: {folder} has no text: {folder}/d0.epub is damaged: File is not a zip file"
    )
    # A README beside documents is not what was meant.
    (folder / "README").write_text(TEXT)
    assert run(["train", str(folder), *COUNT]) == 1


@needs("data")
def test_more_documents_than_are_named_are_counted(tmp_path, capsys):
    for number in range(8):
        (tmp_path / f"{number}.html").write_text("<p>page</p>")
    assert run(["train", str(tmp_path), *COUNT]) == 0
    said = capsys.readouterr().err
    assert said.count(": 5 characters\n") == 5
    assert "3 more documents read: see seqgen data\n" in said
    assert run(["data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count(": 5 characters\n") == 8 and len(re.findall("^ +page$", out, re.M)) == 5
    (tmp_path / "0.html").write_text("<p>" + "word " * 100)
    assert run(["data", str(tmp_path), "--json"]) == 0
    samples = json.loads(capsys.readouterr().out)["samples"]
    assert len(samples) == 8 and len(samples[f"{tmp_path}/0.html"]) <= 60


@pytest.mark.slow
def test_hostile_archives_are_refused(tmp_path, capsys):
    zeros = b"a" * (80 << 20)
    assert "zip bomb" in refused(capsys, pack(tmp_path / "a.zip", {"a.txt": zeros}))
    assert "zip bomb" in refused(
        capsys, pack(tmp_path / "a.odt", {"content.xml": zeros, "META-INF/manifest.xml": "<a/>"})
    )
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        about = tarfile.TarInfo("a.txt")
        about.size = len(zeros)
        archive.addfile(about, io.BytesIO(zeros))
    assert "zip bomb" in refused(capsys, tmp_path / "a.tar.gz")
    laughs = '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><d>&b;</d>'
    outside = '<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd">]><d>&a;</d>'
    for hostile in (laughs, outside):
        assert "entities" in refused(capsys, pack(tmp_path / "b.odt", {"content.xml": hostile}))
    deep = "<a>" * 100_000
    assert "XML has an error" in refused(capsys, pack(tmp_path / "c.odt", {"content.xml": deep}))
    (tmp_path / "d.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99))
    assert "encrypted" in refused(capsys, tmp_path / "d.docx")
    assert "no part content.xml" in refused(capsys, pack(tmp_path / "e.odt", {"a": "b"}))
    sealed = {"META-INF/manifest.xml": "<m><encryption-data/></m>", "content.xml": "x"}
    assert "encrypted" in refused(capsys, pack(tmp_path / "f.odt", sealed))
    raw = bytearray(odt(tmp_path / "g.odt", f"<text:p>{TEXT}</text:p>").read_bytes())
    raw[60:70] = bytes(10)
    (tmp_path / "g.odt").write_bytes(raw)
    assert "damaged" in refused(capsys, tmp_path / "g.odt")


def endless_pdf(path: Path) -> Path:
    """Write a PDF of 100 KB that names one page 15,000 times, each time to be read again."""
    pypdf = pytest.importorskip("pypdf")
    from pypdf.generic import ArrayObject, DecodedStreamObject, NameObject, NumberObject

    writer = pypdf.PdfWriter(clone_from=pdf(path, ["words"]))
    (page,) = writer.pages
    stream = DecodedStreamObject()
    stream.set_data(b"BT /F1 1 Tf " + b"(a) Tj " * 500 + b"ET")
    page[NameObject("/Contents")] = writer._add_object(stream)
    pages = writer.root_object["/Pages"]
    pages[NameObject("/Kids")] = ArrayObject(list(pages["/Kids"]) * 15_000)
    pages[NameObject("/Count")] = NumberObject(15_000)
    writer.write(path)
    return path


@needs("data")
@pytest.mark.slow
def test_a_document_that_takes_too_long_is_left_out(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT)
    hostile = endless_pdf(folder / "b.pdf")
    (folder / "c.html").write_text("<p>page</p>")
    pack(folder / "d.zip", {"in.pdf": hostile.read_bytes(), "in.txt": TEXT})
    handler, before = signal.getsignal(signal.SIGPROF), time.process_time()
    monkeypatch.setenv("SEQGEN_MAX_DOCUMENT_SECONDS", "1")
    monkeypatch.setattr("seqgen.plugins.documents.deadline.SECONDS_PER_MB", 10)
    assert run(["train", str(folder), *COUNT]) == 0
    assert facts()["characters"] == len(f"{TEXT}page\n{TEXT}")
    said = capsys.readouterr().err
    assert 90_000 < hostile.stat().st_size < 110_000
    reason = "takes more than 2 seconds to read; SEQGEN_MAX_DOCUMENT_SECONDS raises the limit"
    assert f"left out: {hostile} {reason}\n" in said
    assert "1 file left out (in.pdf takes more than 2 seconds to read)" in said
    assert time.process_time() - before < 20  # the whole would take minutes
    assert signal.getsignal(signal.SIGPROF) is handler
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    for wrong in ("-1", "nan", "long"):
        monkeypatch.setenv("SEQGEN_MAX_DOCUMENT_SECONDS", wrong)
        assert run(["train", str(hostile), *COUNT]) == 2
        assert f"number of seconds above 0, not '{wrong}'" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_ends_the_reading_of_a_hostile_document(tmp_path):
    hostile = endless_pdf(tmp_path / "b.pdf")
    command = [sys.executable, "-m", "seqgen", "train", str(hostile), *COUNT]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(4)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[1]
    assert process.returncode == 130 and "Traceback" not in said


def tarred(path: Path, parts: dict[str, bytes]) -> Path:
    """Write a tar file, compressed as its name says; by zstandard where `tarfile` cannot."""
    raw = io.BytesIO()
    compressed = path.suffix in (".zst", ".tzst")
    with tarfile.open(fileobj=raw, mode="w" if compressed else TAR[path.name]) as archive:
        for part, content in parts.items():
            about = tarfile.TarInfo(part)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
        link = tarfile.TarInfo("x/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    zstandard = pytest.importorskip("zstandard") if compressed else None
    path.write_bytes(zstandard.compress(raw.getvalue()) if zstandard else raw.getvalue())
    return path


TAR = {"a.tar": "w", "a.tgz": "w:gz", "a.tar.gz": "w:gz", "a.tar.xz": "w:xz", "a.tar.bz2": "w:bz2"}


@pytest.mark.parametrize("name", ["a.zip", *TAR, "a.tar.zst", "a.tzst"])
def test_archives_of_texts(name, tmp_path, capsys):
    parts = {
        "x/a.txt": TEXT.encode(),
        "x/b.txt": b"no newline",
        "x/c.html": b"<p>page</p>",
        "x/d.png": b"\x89PNG\0",
        "x/e.jsonl": b'{"text": "a"}\n',
        "x/f.txt": b"\xe9",
        "x/g.epub": b"broken",
        "x/.hidden.txt": b"hidden",
        "__MACOSX/a.txt": b"hidden",
    }
    path = tmp_path / name
    if name == "a.zip":
        pack(path, parts)
    else:
        tarred(path, parts)
    wanted = f"{TEXT}no newline\npage\n"
    assert text_of(path) == wanted
    assert run(["train", str(path), *COUNT]) == 0
    assert facts()["characters"] == len(wanted)
    reasons = (
        "x/d.png is an image, an archive or a program",
        "x/e.jsonl is a file of records (JSON)",
        "x/f.txt is not UTF-8 text: byte 0xe9 at offset 0",
        "x/g.epub is damaged: File is not a zip file",
    )
    said = f"3 files, {len(wanted)} characters, 4 files left out ({'; '.join(reasons)})"
    assert f"{path}: {said}\n" in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 20])
    assert "damaged" in refused(capsys, path)


def test_an_archive_without_texts_is_refused(tmp_path, capsys):
    path = pack(tmp_path / "a.zip", {"a.png": b"\x89PNG\0"})
    assert "has no text: a.png is an image, an archive or a program" in refused(capsys, path)
    assert "has no text" in refused(capsys, pack(path, {}))


@pytest.mark.parametrize("name", ["a.zip", "a.tar"])
def test_members_in_a_folder_above_are_read_as_nothing_is_unpacked(name, tmp_path):
    parts = {"../../up.txt": b"up", "ok/../in.txt": b"in", "x/..hidden/a.txt": b"hidden"}
    path = tmp_path / name
    if name == "a.zip":
        pack(path, parts)
    else:
        tarred(path, parts)
    assert text_of(path) == "up\nin"
    assert document_facts(path).taken == "2 files, 5 characters"


def test_members_of_a_zip_archive_that_cannot_be_unpacked_are_left_out(tmp_path, capsys):
    """One has a compression that zipfile has not, one is encrypted, one has another checksum."""
    names = ["deflate64.txt", "sealed.txt", "damaged.txt", "fine.txt"]
    path = pack(tmp_path / "a.zip", dict.fromkeys(names, TEXT))
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        places = [facts.header_offset for facts in archive.infolist()]
    # Fields of the local headers and, in the same order, of the central directory (APPNOTE 4.3).
    central = [found.start() for found in re.finditer(rb"PK\x01\x02", raw)]
    for local, entry in ((places[0] + 8, central[0] + 10), (places[1] + 6, central[1] + 8)):
        raw[local] = raw[entry] = 9 if local == places[0] + 8 else 1
    raw[central[2] + 16] ^= 255
    path.write_bytes(raw)
    assert text_of(path) == TEXT
    taken = document_facts(path).taken
    assert "3 files left out (deflate64.txt is compressed in a way that Python cannot read" in taken
    assert "(deflate64); sealed.txt is encrypted; damaged.txt cannot be unpacked: Bad CRC" in taken


UNFINISHED = {
    "tags": "<a ",
    "quotes": "<a b='",
    "comments": "<!--x",
    "ends": "</a",
    "sections": "<![CDATA[",
    "conditions": "<![if x",
    "hidden": "<nav>",
    "references": "&#",
    "paragraphs": "<p>",
}


@pytest.mark.parametrize("kind", UNFINISHED)
def test_the_time_of_a_damaged_page_grows_with_its_length_alone(kind):
    """Read in a time that no quadratic parser meets: 60 kB of tags took 40 s by `html.parser`."""
    from seqgen.plugins.documents.html import text_of_html

    before = time.process_time()
    text = text_of_html("text " * 20_000 + "<br>" + UNFINISHED[kind] * 60_000 + "</svg>" * 20_000)
    assert time.process_time() - before < 8
    assert text.startswith("text text")


def test_unfinished_tags_and_comments_at_the_end_are_dropped(tmp_path):
    from seqgen.plugins.documents.html import text_of_html

    for end in ("<a href='x", "<!-- x", "</p", "<!doctype", "<?x", "<![CDATA[x", "<script>x"):
        assert text_of_html(f"<p>a &lt; b{end}") == "a < b\n"
    assert text_of_html("a <") == "a <\n" and text_of_html("a &am") == "a &am\n"
    assert text_of_html("<!-->a<!---->b<!--c--!>d<!-- > e -- >f") == "abdf\n"
    assert text_of_html("<![if IE]>a<![endif]><![CDATA[ > ]]>b<![x[y>c") == "abc\n"
    (tmp_path / "a.html").write_text("<nav>" + "<a " * 9)
    with pytest.raises(SeqgenError, match="has no text besides its tags"):
        text_of(tmp_path / "a.html")
    (tmp_path / "b.html").write_text("&#" + "9" * 5000)
    with pytest.raises(SeqgenError, match="is damaged"):
        text_of(tmp_path / "b.html")


def test_a_run_on_documents_resumes_and_extracts_once(tmp_path, monkeypatch):
    from seqgen.plugins.documents import office

    path = odt(tmp_path / "a.odt", "".join(f"<text:p>{line}</text:p>" for line in TEXT.split("\n")))
    calls = []
    read = office.ZipParts.read
    monkeypatch.setattr(office.ZipParts, "read", lambda *args: calls.append(args) or read(*args))
    tiny = ("--model", "rnn", "--steps", "4", "--hidden-size", "4", "--name", "r", "-q")
    assert run(["train", str(path), *tiny, "--stop-after", "2"]) == 0
    moved = path.rename(tmp_path / "moved.odt")
    assert run(["train", "--resume", "r", "--data", str(moved), "-q"]) == 0
    assert len(calls) == 1


def test_an_archive_is_extracted_once_and_again_when_it_has_changed(tmp_path, monkeypatch):
    from seqgen.plugins.documents import archives

    path = pack(
        tmp_path / "a.zip", {"b.txt": b"second\n", "a.txt": b"first\n", "c.png": b"\x89PNG\0"}
    )
    calls = []
    extract = archives._extract
    monkeypatch.setattr(archives, "_extract", lambda path: calls.append(path) or extract(path))
    before = text_of(path)
    assert sorted(before.splitlines()) == ["first", "second"]
    assert "1 file left out (c.png is an image" in document_facts(path).taken
    assert text_of(path.rename(tmp_path / "moved.zip")) == before
    assert len(calls) == 1
    pack(path, {"a.txt": b"another\n"})
    assert text_of(path) == "another\n"
    assert len(calls) == 2


def test_an_archive_is_read_where_the_cache_cannot_be_written(tmp_path, monkeypatch):
    path = pack(tmp_path / "a.zip", {"a.txt": b"text\n"})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cache").write_text("a file")
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    assert text_of(path) == "text\n"


def test_documents_are_read_where_the_cache_cannot_be_written(tmp_path, monkeypatch):
    path = odt(tmp_path / "a.odt", "<text:p>text</text:p>")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cache").write_text("a file")
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    assert text_of(path) == "text\n"


@pytest.mark.long
def test_files_of_other_programs(tmp_path):
    """What python-docx, odfpy and fpdf2 write."""
    docx = pytest.importorskip("docx", reason="python-docx is missing")
    opendocument = pytest.importorskip("odf.opendocument", reason="odfpy is missing")
    fpdf = pytest.importorskip("fpdf", reason="fpdf2 is missing")
    from odf.text import H, P, S

    document = docx.Document()
    document.add_heading("Title", 1)
    document.add_paragraph("First\tparagraph, “quoted”.")
    cells = document.add_table(1, 2).rows[0].cells
    cells[0].text, cells[1].text = "a", "b"
    document.sections[0].header.paragraphs[0].text = "of every page"
    document.save(tmp_path / "a.docx")
    assert text_of(tmp_path / "a.docx") == "Title\nFirst\tparagraph, “quoted”.\na\tb\n"
    document = opendocument.OpenDocumentText()
    document.text.addElement(H(outlinelevel=1, text="Title"))
    paragraph = P(text="some")
    paragraph.addElement(S(c=2))
    paragraph.addText("text")
    document.text.addElement(paragraph)
    document.save(tmp_path / "a.odt")
    assert text_of(tmp_path / "a.odt") == "Title\nsome  text\n"
    document = fpdf.FPDF()
    document.set_font("helvetica", size=12)
    for number in range(3):
        document.add_page()
        document.multi_cell(0, 8, f"Page {number} of the file.\nA second line.")
    document.output(tmp_path / "a.pdf")
    wanted = "".join(f"Page {n} of the file.\nA second line.\n" for n in range(3))
    assert text_of(tmp_path / "a.pdf") == wanted


def test_a_document_that_begins_with_much_white_space_has_a_sample(cli, tmp_path):
    blank = " " * 5000
    text = f'<w:p><w:r><w:t xml:space="preserve">{blank}the cat sat</w:t></w:r></w:p>'
    path = docx(tmp_path / "a.docx", text)
    code, out, _ = cli("data", path, "--json")
    assert code == 0
    assert json.loads(out)["samples"] == {str(path): "the cat sat"}

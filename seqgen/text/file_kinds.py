"""File types, recognised by name and first bytes: binary files, archives, records, markup."""

from __future__ import annotations

import csv
import functools
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqgen import hooks
from seqgen.files import parse_toml
from seqgen.wording import first_names

# Files that are decompressed as they are read.
UNPACKED = frozenset({".gz", ".xz", ".zst"})
JSON_TEXT = ".ipynb"
JSON_LINES, PARQUET = frozenset({".jsonl", ".ndjson", ".json"}), ".parquet"
# The first bytes, by which a file is known.
HEAD_BYTES = 8192
# Byte order marks by what iconv calls the encoding; that of UTF-32 may begin with UTF-16's.
MARKS = {"UTF-32": (b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "UTF-16": (b"\xff\xfe", b"\xfe\xff")}
# Token files, and these marks: texts, whatever else their bytes say.
TOKENS = b"seqgen.tokens"
TEXTS = (TOKENS, *MARKS["UTF-32"], *MARKS["UTF-16"])


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """A recognised file type.

    Attributes:
        name: what messages call it.
        remedy: what to do with a file to train on its text: `{file}` is its name, quoted for a
            shell, `{stem}` the beginning of a new name beside it, `{folder}` where it is, and
            `{names}` the names of its columns or keys; `{instead}` asks for the file instead of a
            pipe.
        beginnings: bytes of which one begins it.
        at: where they stand.
        parts: bytes of which one is in its head, if there are any.
        endings: of its name; one of them is enough, if it begins so.
        holds: "data" is no text, but may hold one, and "nothing" holds none; "records" are text
            with other text in it; "markup" is trained on with a notice.
    """

    name: str
    remedy: str = "give text files"
    beginnings: tuple[bytes, ...] = ()
    at: int = 0
    parts: tuple[bytes, ...] = ()
    endings: tuple[str, ...] = ()
    holds: Literal["data", "nothing", "records", "markup"] = "data"

    @property
    def is_text(self) -> bool:
        """Whether the file's bytes are characters."""
        return self.holds in ("records", "markup")

    def matches(self, ending: str, head: bytes) -> bool:
        """Check whether a file's ending and first bytes match this type."""
        if not self.beginnings:
            return ending in self.endings
        if not head.startswith(self.beginnings, self.at):
            return False
        more = self.parts or self.endings
        return not more or ending in self.endings or any(part in head for part in self.parts)


@functools.cache
def file_kinds() -> tuple[FileKind, ...]:
    """Read the file types from `file_kinds.toml`; the first that matches a file counts."""
    table = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(map(_file_kind, table["kind"]))


def _file_kind(row: dict[str, Any]) -> FileKind:
    for name in ("beginnings", "parts"):
        row[name] = tuple(text.encode("latin-1") for text in row.get(name, ()))
    return FileKind(**{**row, "endings": tuple(row.get("endings", ()))})


# How texts begin that are trained on with a notice, by the ending that they might have.
PAGES = {
    ending: re.compile(rb"(?:\xef\xbb\xbf)?\s*" + begins, re.IGNORECASE)
    for ending, begins in (
        (".html", rb"<(?:!doctype\s+html|html)\b"),
        (".xml", rb"<\?xml\b"),
        (JSON_TEXT, rb'\[?\s*\{\s*"[^"\n]*"\s*:'),
    )
}


def recognise_kind(path: Path, head: bytes) -> FileKind | None:
    """Recognise a file's type; None for plain text and unknown types.

    Args:
        path: its name.
        head: its first `HEAD_BYTES`, decompressed where it is read so.
    """
    if head.startswith(TEXTS):
        return None
    ending = next((page for page, begins in PAGES.items() if begins.match(head)), "")
    named = ending_of_name(path)
    if not ending or (named in JSON_LINES and ending == JSON_TEXT):
        ending = named
    return next((kind for kind in file_kinds() if kind.matches(ending, head)), None)


def ending_of_name(path: Path) -> str:
    """Return a file name's ending, such as ".txt", ignoring that of its compression."""
    *others, last = path.suffixes or [""]
    return (others[-1] if others and last.lower() in UNPACKED else last).lower()


def ending_of_text(text: str) -> str:
    """Choose `.jsonl` or `.txt` for a text without a name, by its first line."""
    return ".jsonl" if _names_in(text.encode(), ".jsonl") else ".txt"


def extraction_advice(kind: FileKind, path: Path, head: bytes) -> str:
    """Name the type of a file, and advise how to extract its text: "a PDF: ..."."""
    instead = "" if path.is_file() else "the file itself instead of a pipe, with "
    path = Path("FILE") if instead else path
    stem = path.name.removesuffix("".join(path.suffixes)) or path.name
    while any(path.with_name(f"{stem}{ending}").exists() for ending in (".txt", ".jsonl")):
        stem += "-text"  # nor may the command replace the file itself or another one
    names = _names_in(head, ending_of_name(path))
    if ending_of_name(path) in hooks.by_name("record_readers") and kind.holds != "nothing":
        remedy = "give {instead}--field NAME for the column of the texts{names}"
        remedy += ", or --as-text to train on all of it" if kind.is_text else ""
    else:
        remedy = kind.remedy if head.strip() or kind.holds != "records" else "it has no records"
    return f"{kind.name}: " + remedy.format(
        file=shlex.quote(str(path)),
        stem=shlex.quote(str(path.with_name(stem))),
        folder=str(path.parent),
        instead=instead,
        names=f" ({first_names(names, 8)})" if names else "",
    )


def _names_in(head: bytes, ending: str) -> list[str]:
    """List the keys of the first record, or the columns of a table, as far as its head shows."""
    text = head.decode("utf-8-sig", "replace")
    line = text.partition("\n")[0]
    try:
        if ending in JSON_LINES:  # or a list of records
            record, _ = json.JSONDecoder().raw_decode(text.lstrip("[ \t\r\n"))
            return list(record) if isinstance(record, dict) else []
        return next(csv.reader([line]), []) if ending == ".csv" else []
    except (ValueError, RecursionError, csv.Error):
        return []

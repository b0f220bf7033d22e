"""Texts in records: a field of JSON Lines or of a list in JSON, or a column of a table."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from seqgen import hooks
from seqgen.errors import SeqgenError, UsageError, did_you_mean
from seqgen.limits import require_within_limit
from seqgen.text.file_kinds import JSON_LINES, ending_of_name
from seqgen.text.reading import CHUNK_BYTES, decode_file, files_in, joined_blocks, lines
from seqgen.wording import first_names, plural

# Lines that a notice names.
NAMED = 5
NO_RECORDS = "; tables are not read from pipes; a record is a line of JSON, or one item of a list"
# What Hugging Face datasets saves beside the shards of a data set, and of one in several splits.
BESIDE_SHARDS = re.compile(r"(dataset_(info|dict)|state)\.json|cache-.*\.arrow")
SPLITS = "dataset_dict.json"
# How a list of records begins in JSON, and what is between two of them.
LIST_BEGINS, BETWEEN = re.compile(r"\s*\[\s*(?=[{\]])"), re.compile(r"[\s,]*")


class NoText(SeqgenError):  # noqa: N818
    """No record has a text at the key."""


class OtherKeys(NoText):
    """No record has a text at the key, and there are records with other keys."""


def holds_records(path: Path) -> bool:
    """Check whether a file name is that of JSON Lines, or of a table that a plugin reads."""
    return ending_of_name(path) in {*JSON_LINES, *hooks.by_name("record_readers")}


def record_files(name: str) -> list[Path] | None:
    """List the files of a folder or pattern, those of records first; None for the name of a file.

    Raises:
        UsageError: it is a folder of several splits, as Hugging Face datasets saves them.
        SeqgenError: there is no file of records.
    """
    inside = files_in(name)
    if inside is None:
        return None
    if any(path.name == SPLITS for path in inside):
        splits = sorted({path.parent for path in inside if path.name == "state.json"})
        one = next((path for path in splits if path.name == "train"), name)
        names = first_names([path.name for path in splits])
        raise UsageError(f"{name} has the splits {names}: give one, as {one}; --val takes another")
    inside = [path for path in inside if not BESIDE_SHARDS.fullmatch(path.name)]
    if not any(map(holds_records, inside)):
        endings = first_names(sorted({".jsonl", *hooks.by_name("record_readers")}))
        raise SeqgenError(f"{name} has no file of records ({endings})")
    return sorted(inside, key=lambda path: (not holds_records(path), path))


@dataclass
class Texts:
    """One-pass reader of the texts in one file of records.

    Attributes:
        name: of the file.
        key: where a record has its text; see `value_at`.
        beside: other keys at which a record must have a text too.
        one_line: write each text on a line of its own, with spaces for its newlines.
        taken: texts read so far.
        left_out: records without a text, so far, and the first of their lines, from 1.
        known: the keys of the last record.
        is_empty: whether no record so far has anything at the key.
    """

    name: str
    key: str
    one_line: bool = False
    beside: tuple[str, ...] = ()
    taken: int = 0
    left_out: int = 0
    first: list[int] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    is_empty: bool = True

    def of_json(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the texts of JSON Lines, or of a list in JSON, each with a newline.

        Raises:
            NoText: no record has a text.
        """
        for number, record in json_records(chunks, self.name):
            yield from self.texts_of(record, number)
        self.check()

    def of_file(self, path: Path) -> Iterator[str]:
        """Yield the texts of a file; see `of_json`."""
        table = ending_of_name(path) not in JSON_LINES
        yield from self.of_table(path) if table else self.of_json(decode_file(path))

    def of_table(self, path: Path) -> Iterator[str]:
        """Yield the texts of a table, such as a parquet file, batch by batch; see `of_json`.

        Raises:
            NoText: there is no such column, or it has no text.
            SeqgenError: the file is damaged.
        """
        known: list[str] = []
        whole = (self.key, *self.beside)
        whole = {*whole, *(one for key in whole for one in key.split(","))}
        keys = {*whole, *(key.partition(".")[0] for key in whole)}
        for number, record in table_records(path, self.name, keys, known):
            yield from self.texts_of(record, number)
        self.known = known
        self.check()

    def texts_of(self, record: Any, number: int) -> Iterator[str]:
        """Yield the text of a record with a newline; nothing, and count it, if it has none."""
        text, *others = (value_at(record, key) for key in (self.key, *self.beside))
        self.is_empty &= text is None
        if not all(isinstance(one, str) and not has_surrogates(one) for one in (text, *others)):
            self.known = list(record) if isinstance(record, dict) and record else self.known
            self.left_out += 1
            self.first += [number] if len(self.first) < NAMED else []
            return
        self.taken += 1
        if self.one_line:
            text = text.removesuffix("\n").replace("\r\n", " ").replace("\n", " ")
        yield text if text.endswith("\n") else f"{text}\n"

    def check(self) -> None:
        """Raise `NoText` if no record so far has a text."""
        if not self.taken:
            keys = f"; its records have {', '.join(self.known[:8])}" if self.known else ""
            if self.key in self.known and not self.beside:
                what = "empty" if self.is_empty else "never text"
                raise NoText(f"{self.key!r} in {self.name} is {what}{keys}")
            absent = next((key for key in self.beside if key not in self.known), self.key)
            absent = absent if self.key in self.known else self.key
            hint = did_you_mean(absent, self.known) or keys or NO_RECORDS
            kind = OtherKeys if self.known else NoText
            raise kind(f"{self.name} has no record with a text {absent!r}{hint}")

    @property
    def notice(self) -> str | None:
        """One-line notice of skipped records and ambiguous columns; None without any."""
        said = []
        if self.left_out:
            more = ", ..." if self.left_out > len(self.first) else ""
            said.append(
                f"{plural(self.left_out, 'record')} of {self.name} left out, without a text "
                f"{' and '.join(map(repr, (self.key, *self.beside)))}: "
                f"{', '.join(map(str, self.first))}{more}"
            )
        if (columns := self.known.count(self.key)) > 1:  # of parquet
            said.append(f"{self.name} has {columns} columns {self.key!r}, and the last is read")
        return "; ".join(said) or None


def json_records(chunks: Iterable[str], name: str) -> Iterator[tuple[int, Any]]:
    """Yield the number, from 1, and the value of each line of JSON Lines; None if damaged.

    For a file of one or more JSON lists, yield their items, numbered throughout.

    Raises:
        SeqgenError: a line or an item is too long, or a list is damaged.
    """
    blocks = joined_blocks(chunks, CHUNK_BYTES)
    first = next(blocks, "")
    if begins := LIST_BEGINS.match(first):
        yield from enumerate(_items(first[begins.end() :], blocks, name), start=1)
        return
    for number, line in enumerate(lines(chain([first], blocks), name), start=1):
        if line.strip():
            yield number, _parsed(line)


def _items(text: str, blocks: Iterator[str], name: str) -> Iterator[Any]:
    """Yield the items of a list in JSON, of which `text` follows the bracket.

    Raises:
        SeqgenError: the list is damaged, or an item is too long.
    """
    decoder, count = json.JSONDecoder(), 0
    while True:
        at = BETWEEN.match(text).end()
        while text[at : at + 1] not in ("", "]"):
            try:
                item, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):  # the item may end in a later block
                break
            yield item
            count, at = count + 1, BETWEEN.match(text, end).end()
        if text.startswith("]", at):
            text = text[at + 1 :] + next(blocks, "")
            while not text.strip() and (block := next(blocks, "")):
                text = block
            if not text.strip():
                return
            if not (begins := LIST_BEGINS.match(text)):
                raise SeqgenError(
                    f"{name} has something other than a JSON list after item {count:,}"
                )
            text = text[begins.end() :]
            continue
        text = text[at:] + (block := next(blocks, ""))
        if not block:
            raise SeqgenError(f"{name} is damaged JSON after item {count:,} of its list")
        require_within_limit(text.removesuffix(block), f"item {count + 1:,} of {name}")


def value_at(record: Any, key: str) -> Any:
    """Look up a key of a record, or `a.b`, the key b of what is at the key a; None without it.

    `a,b` is what is at both keys, such as a label and its text, on one line with a tab in between.
    """
    if not isinstance(record, dict):
        return None
    if "," in key and key not in record:
        values = [value_at(record, one) for one in key.split(",")]
        known = all(isinstance(value, (str, int)) for value in values)
        return "\t".join(re.sub(r"[\t\r\n]+", " ", str(one)) for one in values) if known else None
    first, _, rest = key.partition(".")
    return record.get(key) if key in record or not rest else value_at(record.get(first), rest)


def table_records(
    path: Path, name: str, keys: Collection[str], columns: list[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number, from 1, and the values of each row of a table.

    Args:
        path: of the file.
        name: what errors call it.
        keys: of the columns that are read, as far as they exist.
        columns: filled with the names of all columns.

    Raises:
        SeqgenError: the file is damaged, or a package that reads it is not installed.
    """
    plugin, target = hooks.by_name("record_readers")[ending_of_name(path)]
    return plugin.load(target)(path, name, keys, columns)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def has_surrogates(text: str) -> bool:
    r"""Check for unpaired surrogates, which JSON can encode as `\ud800` but UTF-8 cannot."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)

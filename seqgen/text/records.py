"""Texts in records: a field of JSON Lines, or a column of a parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError, did_you_mean
from seqgen.packages import require_packages
from seqgen.text.file_kinds import JSON_LINES, PARQUET, ending_of_name
from seqgen.text.reading import lines
from seqgen.wording import plural

# Lines that a notice names.
NAMED = 5


def holds_records(path: Path) -> bool:
    """Check whether a file name is that of JSON Lines or parquet."""
    return ending_of_name(path) in {*JSON_LINES, PARQUET}


def is_parquet(path: Path) -> bool:
    """Check whether a file name is that of a parquet file."""
    return ending_of_name(path) == PARQUET


@dataclass
class Texts:
    """One-pass reader of the texts in one file of records.

    Attributes:
        name: of the file.
        key: where a record has its text.
        one_line: write each text on a line of its own, with spaces for its newlines.
        taken: texts read so far.
        left_out: records without a text, so far, and the first of their lines, from 1.
        known: the keys of the last record.
        is_empty: whether no record so far has anything at the key.
    """

    name: str
    key: str
    one_line: bool = False
    taken: int = 0
    left_out: int = 0
    first: list[int] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    is_empty: bool = True

    def of_json(self, chunks: Iterable[str]) -> Iterator[str]:
        """Yield the texts of JSON Lines, each with a newline.

        Raises:
            SeqgenError: no record has a text.
        """
        for number, line in enumerate(lines(chunks, self.name), start=1):
            if line.strip():
                yield from self._of(_parsed(line), number)
        self._check()

    def of_parquet(self, path: Path) -> Iterator[str]:
        """Yield the texts of a parquet file, batch by batch; see `of_json`.

        Raises:
            SeqgenError: there is no such column, it has no text, or the file is damaged.
        """
        require_packages(self.name, "pyarrow")
        import pyarrow
        from pyarrow import parquet

        try:
            file = parquet.ParquetFile(path)
            names = file.schema_arrow.names
            columns = [self.key] if self.key in names else []
            batches = file.iter_batches(columns=columns) if columns else ()
            records = (record for batch in batches for record in batch.to_pylist())
            for number, record in enumerate(records, start=1):
                yield from self._of(record, number)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # names, or texts
            raise SeqgenError(f"{self.name} cannot be read as parquet: {error}") from None
        self.known = names
        self._check()

    def _of(self, record: Any, number: int) -> Iterator[str]:
        text = record.get(self.key) if isinstance(record, dict) else None
        self.is_empty &= text is None
        if not isinstance(text, str) or _has_surrogates(text):
            self.known = list(record) if isinstance(record, dict) and record else self.known
            self.left_out += 1
            self.first += [number] if len(self.first) < NAMED else []
            return
        self.taken += 1
        if self.one_line:
            text = text.removesuffix("\n").replace("\r\n", " ").replace("\n", " ")
        yield text if text.endswith("\n") else f"{text}\n"

    def _check(self) -> None:
        if not self.taken:
            keys = f"; its records have {', '.join(self.known[:8])}" if self.known else ""
            if self.key in self.known:
                what = "empty" if self.is_empty else "never text"
                raise SeqgenError(f"{self.key!r} in {self.name} is {what}{keys}")
            hint = did_you_mean(self.key, self.known) or keys
            raise SeqgenError(f"{self.name} has no record with a text {self.key!r}{hint}")

    @property
    def notice(self) -> str | None:
        """One-line notice of skipped records and ambiguous columns; None without any."""
        said = []
        if self.left_out:
            more = ", ..." if self.left_out > len(self.first) else ""
            said.append(
                f"{plural(self.left_out, 'record')} of {self.name} left out, without a text "
                f"{self.key!r}: {', '.join(map(str, self.first))}{more}"
            )
        if (columns := self.known.count(self.key)) > 1:  # of parquet
            said.append(f"{self.name} has {columns} columns {self.key!r}, and the last is read")
        return "; ".join(said) or None


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _has_surrogates(text: str) -> bool:
    r"""Check for unpaired surrogates, which JSON can encode as `\ud800` but UTF-8 cannot."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)

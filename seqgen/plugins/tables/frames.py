"""Texts of Python objects for `seqgen.train`: strings, records, data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from os.path import isfile
from typing import Any

from seqgen.errors import UsageError
from seqgen.settings import require
from seqgen.text.records import Texts
from seqgen.training.events import Notice
from seqgen.wording import first_names


def texts_of_objects(
    items: Iterable[Any], field: str | None, options: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the texts of a column, of records, or of other strings; report what has none.

    Each ends with a newline; with documents "line", that is its only one.

    Args:
        items: strings, records (dictionaries), or a data frame; see `_rows`.
        field: the key or column of the texts; "text" if None.
        options: of `seqgen.train`.
    """
    if isinstance(items, Mapping) or hasattr(type(items), "columns"):
        items = _rows(items, field or "text")
    settings = {**options.get("settings", {}), **options}
    found = Texts("the data", field or "text", one_line=settings.get("documents") == "line")
    for number, item in enumerate(items, start=1):
        _require_no_file(item, first=number == 1)
        record = item if isinstance(item, dict) else {found.key: item}
        yield from found.texts_of(record, number)
    found.check()
    if found.notice:
        options.get("report", lambda event: None)(Notice(text=found.notice))


def _require_no_file(item: Any, first: bool) -> None:
    """Refuse a path, and a string that is the name of a file if it is the first text.

    Raises:
        UsageError: says how to give the names of files.
    """
    named = isinstance(item, PathLike) or (first and isinstance(item, str) and isfile(item))  # noqa: PTH113  (a text may be long)
    require(not named, f"the data has names of files, such as {str(item)!r}: give them as a list")


def _rows(data: Any, field: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data frame, as far as the columns of `field` go.

    Args:
        data: a frame of pandas or polars, which may be lazy, a table of pyarrow, or a mapping.
        field: the column of the texts, `a.b` or `a,b`; see `seqgen.text.records.value_at`.

    Raises:
        UsageError: there is no such column, or two of that name; or `data` has no columns but
            splits, as `datasets.load_dataset` returns them.
    """
    if hasattr(type(data), "collect"):  # a lazy frame of polars
        data = data.collect()
    of_arrow = hasattr(type(data), "to_batches")
    columns = data if isinstance(data, Mapping) else data.column_names if of_arrow else data.columns
    labels = {str(label): label for label in columns}
    read = _columns(field, [*labels])
    if of_arrow:
        for batch in data.select(read).to_batches():
            yield from batch.to_pylist()
        return
    for name in read:
        require([*map(str, columns)].count(name) == 1, f"the data has two columns {name!r}")
    for row in zip(*(data[labels[name]] for name in read), strict=True):
        yield dict(zip(read, row, strict=True))


def _columns(field: str, names: list[str]) -> list[str]:
    """List the columns that a field reads.

    Raises:
        UsageError: one of them does not exist.
    """
    found = []
    for key in [field] if field in names else field.split(","):
        column = key if key in names else key.partition(".")[0]
        if column not in names:
            advice = f"give field, or one part of the data: {first_names(names)}"
            raise UsageError(f"the data has no column {column!r}; {advice}")
        found.append(column)
    return [*dict.fromkeys(found)]

"""Wording of messages and tables: counts, lists of names, headings, unprintable characters."""

from __future__ import annotations

import dataclasses
import html
import re
import reprlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Characters that can move the cursor, set the clipboard or hide a text, and bytes of a file's name
# that are not UTF-8. A tab, a newline and a return before it only end a column or a line.
_CONTROLS = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\udc80-\udcff]|\r(?!\n)")

# A cell of a table in a notebook is cut after so many characters.
LONGEST_CELL = 2000


def plural(count: float, noun: str) -> str:
    """Format a count with its noun: "1 minute", "1,334 steps", "0.5 epochs".

    Args:
        count: written with separators; a fraction with as many digits as it needs.
        noun: in the singular.
    """
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun if count == 1 else noun + 's'}"


def format_settings(settings: Mapping[str, Any]) -> str:
    """Format settings with their values: "hidden_size 1,024, lr 0.01414"."""
    return ", ".join(f"{name} {format_value(value)}" for name, value in settings.items())


def first_names(names: Sequence[str], most: int = 20) -> str:
    """List about `most` names and the number of the rest, from 2 on: "A, B and 1,234 more"."""
    most += len(names) == most + 1
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def format_value(value: Any) -> str:
    """Format the value of a setting for messages: "none", "true", "1,024", "0.01414"."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def replace_unprintable(text: str, kept: str = "") -> str:
    """Replace the characters of a text that cannot be displayed by U+FFFD.

    Spaces of every width can be shown; what breaks lines or turns the direction cannot.

    Args:
        text: any.
        kept: other characters that stay as they are.
    """
    return "".join(
        c if c.isprintable() or c in kept or unicodedata.category(c) == "Zs" else "\ufffd"
        for c in text
    )


def escape_controls(text: str, escape: str = "\\x{:02x}") -> str:
    r"""Escape control characters as `\x1b`, so that a terminal displays and does not obey them.

    Joiners, variation selectors and marks of right-to-left text stay: they are part of a text.

    Args:
        text: it.
        escape: how to write the number of a character.
    """
    return _CONTROLS.sub(lambda match: escape.format(ord(match[0]) & 0xFF), text)


def column(
    heading: str,
    form: str = "str",
    *digits: int,
    shown: str | None = None,
    unless: Any = ...,
    **field: Any,
) -> Any:
    """Declare a field of a record (a dataclass) as a column of the table that a command prints.

    Args:
        heading: of the column.
        form: the format of its values, a name in `seqgen.cli.shell.tables.FORMATS`.
        digits: the number of digits, for formats that take one; their default if left out.
        shown: the property of the record that is shown; the field itself if left out.
        unless: the table has no such column if all records have this value.
        field: further arguments of `dataclasses.field`, such as `default`.
    """
    about = {"heading": heading, "form": form, "digits": digits}
    about |= {"shown": shown, "unless": unless}
    return dataclasses.field(metadata=about, **field)


class ShortRepr:
    """Mixin for dataclasses of results: a repr of a line or two, with long values cut."""

    LONGEST = 200

    def __repr__(self) -> str:
        parts: list[str] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and parts[-1:] != ["..."]:
                part = f"{field.name}={_short(value)}"
                fits = len(", ".join([*parts, part])) <= self.LONGEST
                parts.append(part if fits or not parts else "...")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return html_table(pair for pair in vars(self).items() if pair[1] is not None)


class Records(list[Any]):
    """List of result records, shown as a table in notebooks."""

    def _repr_html_(self) -> str:
        names = dict.fromkeys(k for r in self for k, v in vars(r).items() if v is not None)
        return html_table([names, *([vars(r)[name] for name in names] for r in self)])


def html_table(rows: Iterable[Iterable[Any]]) -> str:
    """Format rows of values as an HTML table for notebooks; long texts keep their lines."""
    cells = ("".join(map(_cell, row)) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _cell(value: Any) -> str:
    text = "" if value is None else html.escape(format_value(value)[:LONGEST_CELL])
    return f'<td style="text-align: left; white-space: pre-wrap">{text}</td>'


def _short(value: Any) -> str:
    limits = reprlib.Repr()
    limits.maxstring = limits.maxother = 60
    return f"{value:.5g}" if isinstance(value, float) else limits.repr(value)

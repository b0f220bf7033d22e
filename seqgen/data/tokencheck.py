"""Checks of a token file's content, which may be wrong even if its checksums are right."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqgen.data.text import Survey

# Items that are checked at once, so that a file of any size is checked in bounded memory.
BLOCK = 1 << 20


def whole_number(table: object, name: str, most: int) -> int:
    """Return a number of a table that counts something.

    Raises:
        ValueError: it is missing, no whole number, negative, or above `most`.
    """
    value = table.get(name) if isinstance(table, dict) else None
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is no whole number from 0 to {most}")
    return value


def survey(table: object) -> Survey:
    """Return the facts about a text that a table holds.

    Raises:
        ValueError: some are missing or wrong.
    """
    if not isinstance(table, dict) or not isinstance(table.get("sha256"), str):
        raise ValueError("the text's facts are no table with a sha256")
    counts = {name: whole_number(table, name, 1 << 62) for name in ("characters", "bytes", "lines")}
    return Survey(**counts, sha256=table["sha256"])


def check_ids(tokens: np.ndarray, vocab_size: int) -> None:
    """Refuse ids that the tokenizer does not have.

    Raises:
        ValueError: names the largest.
    """
    for at in range(0, tokens.size, BLOCK):
        largest = int(tokens[at : at + BLOCK].max())
        if largest >= vocab_size:
            raise ValueError(f"there is a token {largest}, and the vocabulary has {vocab_size}")


def check_sections(sections: Mapping[str, np.ndarray], documents: str, mark: int) -> None:
    """Refuse document ends that do not divide the tokens, and marks that do not increase.

    Args:
        sections: by name, each of its own type.
        documents: "stream" or "line".
        mark: tokens between two marks.

    Raises:
        ValueError: says what does not fit.
    """
    tokens, ends = sections["tokens"].size, sections["ends"]
    parted = bool(ends.size) == bool(tokens)
    if documents == "line" and not (parted and _rises(ends, 1, tokens, tokens)):
        raise ValueError("the documents' ends are not in order, or not the text's")
    for name in ("characters", "bytes"):
        if documents == "line" and sections[name].size not in (0, ends.size):
            raise ValueError(f"there are not as many {name} as documents")
    marks = sections["marks"]
    # The newline that ended the last document came after the last possible mark.
    fits = (0, tokens // mark, (tokens - 1) // mark) if documents == "line" else (0, tokens // mark)
    if marks.size % 2 or marks.size // 2 not in fits:
        raise ValueError("there are not as many marks as the tokens have")
    for column in marks.reshape(-1, 2).T:
        if not _rises(column, 0, 1 << 62, None, steps=0):
            raise ValueError("the marks are not in order")


def _rises(values: np.ndarray, low: int, high: int, last: int | None, steps: int = 1) -> bool:
    """Return whether values go up by `steps` or more each, from `low` to `high`, up to `last`."""
    if not values.size:
        return True
    inside = low <= int(values[0]) and int(values[-1]) <= high
    ends_well = last is None or int(values[-1]) == last
    pieces = (values[at : at + BLOCK + 1] for at in range(0, values.size, BLOCK))
    # Compared element by element: a difference of distant numbers could overflow their type.
    ordered = all(bool(np.all(piece[1:] >= piece[:-1] + steps)) for piece in pieces)
    return inside and ends_well and ordered

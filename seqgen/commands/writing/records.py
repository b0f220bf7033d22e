"""What the records of `seqgen sample` and `seqgen beam-search` have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Attention in records: a millionth is finer than any picture, and rows still sum to one.
DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a text read of its source.

    Attributes:
        attention: (layers, heads, T, L), by all layers and heads; None if it is not asked for.
        target_pieces: the T tokens of the text, its end included, as a person sees them.
        source_pieces: the L tokens of the source, its end included.
        alignment: pairs `i-j` of places, the source's first; None if it is not asked for.
    """

    attention: np.ndarray | None = field(compare=False)  # arrays have no one answer to ==
    target_pieces: list[str]
    source_pieces: list[str]
    alignment: str | None

    def keys(self) -> dict[str, Any]:
        """Return its part of a record, in order, as JSON can hold it."""
        keys: dict[str, Any] = {}
        if self.attention is not None:
            keys["attention"] = self.attention.astype(np.float64).round(DIGITS).tolist()
            keys["target_pieces"] = self.target_pieces
            keys["source_pieces"] = self.source_pieces
        if self.alignment is not None:
            keys["alignment"] = self.alignment
        return keys


@dataclass(frozen=True, kw_only=True)
class OfSource:
    """What a record has besides when its text is written from a source; `prompt` is then empty.

    Attributes:
        source: what the text is written from.
        source_unknown: how many of its tokens the model does not know.
        look: what the text read of it; None if nothing is asked for.
    """

    source: str
    source_unknown: int
    look: Look | None = None

    def keys(self) -> dict[str, Any]:
        """Return its part of a record, in order, as JSON can hold it."""
        of_source = {"source": self.source, "source_unknown": self.source_unknown}
        return of_source if self.look is None else {**of_source, **self.look.keys()}


class Written:
    """A dataclass of a text's figures, which may have an `OfSource`, or a label."""

    of_source: OfSource | None
    label: str | None

    @property
    def look(self) -> Look | None:
        """What the text read of its source, if that is asked for."""
        return None if self.of_source is None else self.of_source.look

    @property
    def alignment(self) -> str | None:
        """Which source tokens its tokens read most, if that is asked for."""
        return None if self.look is None else self.look.alignment

    def record(self) -> dict[str, Any]:
        """Return the keys of `--json`, in order: its own, then those of its source."""
        optional = ("label", "missing")
        names = [field.name for field in dataclasses.fields(self)]
        keys = {name: getattr(self, name) for name in names if name not in ("of_source", *optional)}
        extra = {name: getattr(self, name, None) for name in optional}
        keys |= {name: value for name, value in extra.items() if value is not None}
        return keys if self.of_source is None else {**keys, **self.of_source.keys()}

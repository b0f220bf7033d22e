"""What the records of `seqgen sample` and `seqgen beam-search` have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class OfSource:
    """What a record has besides when its text is written from a source; `prompt` is then empty.

    Attributes:
        source: what the text is written from.
        source_unknown: how many of its tokens the model does not know.
    """

    source: str
    source_unknown: int

    def keys(self) -> dict[str, Any]:
        """Return its part of a record, in order, as JSON can hold it."""
        return {"source": self.source, "source_unknown": self.source_unknown}


class Written:
    """A dataclass of a text's figures, the last of which may be an `OfSource`."""

    of_source: OfSource | None

    def record(self) -> dict[str, Any]:
        """Return the keys of `--json`, in order: its own, then those of its source."""
        names = (field.name for field in dataclasses.fields(self))
        own = {name: getattr(self, name) for name in names if name != "of_source"}
        return own if self.of_source is None else {**own, **self.of_source.keys()}

"""A model whose folder another process writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seqgen.store.model import StoredModel
from seqgen.store.writing import MetricsLog


class NoLog(MetricsLog):
    """A log that nothing is written to."""

    def __init__(self) -> None:
        """Open nothing."""

    def write(self, record: dict[str, Any]) -> None:
        """Write nothing."""


@dataclass(frozen=True)
class KeptElsewhere(StoredModel):
    """A model of a run on several ranks, as those see it that do not write: nothing is written.

    Attributes:
        known: the tables of its configuration that this process would have written.
    """

    known: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        return self.known or super().config

    def write_config(self, architecture: str, preset: str | None = None, **groups: Any) -> None:
        self.known.update({"architecture": architecture, "preset": preset, **groups})

    def replace_part(self, part: str, *pieces: bytes | memoryview) -> None:
        """Write nothing."""

    def write_weights(self, model: Any) -> None:
        """Write nothing."""

    def write_checkpoint(self, tensors: Any, facts: dict[str, Any], keep: int = 1) -> None:
        """Write nothing."""

    def rewind(self, step: int) -> None:
        """Change nothing."""

    def seal(self) -> None:
        """Write nothing."""

    def keep_current_hashes(self) -> None:
        """Change nothing."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock nothing: rank 0 does."""
        yield

    @contextlib.contextmanager
    def log(self, part: str) -> Iterator[MetricsLog]:
        yield NoLog()

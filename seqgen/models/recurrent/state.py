"""The state of recurrent language models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqgen.models.engines.ops import Leaf
from seqgen.models.state import State

if TYPE_CHECKING:
    from seqgen.models.memory.recent import Recent


@dataclass
class RecurrentState(State):
    """What the layers hand on, and what a pointer looks back at.

    Attributes:
        layers: for each layer, the parts that its cell hands on, (B, H) unless it says otherwise.
        recent: the last positions; None in a model without a pointer.
    """

    layers: tuple[tuple[Leaf, ...], ...]
    recent: Recent | None = None

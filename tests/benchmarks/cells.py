"""Every recurrent cell beside an LSTM with as many parameters: what both commands measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqgen import registry
from seqgen.engines.memory_limit import nearest_widths
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.settings import MOST_WIDTH

# The cases of cells are measured where `--only` begins with this word.
CELL = "cell"
SIZE = 256


def names_cells(only: str | None) -> bool:
    """Return whether the cells are asked for, and not the other cases."""
    return only is not None and only.startswith(CELL)


def recurrent_architectures() -> list[str]:
    """Return the architectures that are a stack of cells."""
    rows = registry.ARCHITECTURES.items()
    return [name for name, row in rows if issubclass(row.load_model(), RecurrentLM)]


def name_of(architecture: str) -> str:
    """Return what the case of a cell is called."""
    return f"{CELL} {architecture} 1 x {SIZE}"


def cell_model(architecture: str, vocab_size: int, size: int = SIZE, **more: Any) -> RecurrentLM:
    """Return a model of one layer."""
    row = registry.architecture(architecture)
    shape = {"vocab_size": vocab_size, "hidden_size": size, "num_layers": 1}
    return row.load_model()(row.load_config()(**shape, **more))


def nearest_size(count: Callable[[int], int], parameters: int) -> int:
    """Return the width at which `count`, which grows with it, is nearest to `parameters`."""
    near = nearest_widths(count, range(1, MOST_WIDTH + 1), parameters)
    return min(near, key=lambda size: abs(count(size) - parameters))

"""The recurrent cell that a setting names, for networks that are built of any."""

from __future__ import annotations

from seqgen import registry
from seqgen.errors import UsageError, did_you_mean
from seqgen.models.recurrent.cells.cell import Cell
from seqgen.models.recurrent.config import CellRegularisers, RecurrentConfig
from seqgen.models.recurrent.model import RecurrentLM


def recurrent_cell(config: CellRegularisers) -> tuple[type[Cell], RecurrentConfig]:
    """Return the layer that `config.cell` names, and the configuration of its cells.

    Args:
        config: with `cell`, and the size of the cells as recurrent language models name it.

    Raises:
        UsageError: no recurrent architecture has that name.
    """
    kind = registry.ARCHITECTURES.get(config.cell)
    model = kind and kind.load_model()
    if model is None or not issubclass(model, RecurrentLM):
        every = registry.ARCHITECTURES.items()
        known = [name for name, row in every if issubclass(row.load_model(), RecurrentLM)]
        hint = did_you_mean(config.cell, known) if kind is None else ""
        raise UsageError(
            f"cell is a recurrent architecture ({', '.join(known)}), not {config.cell}{hint}"
        )
    names = ("hidden_size", "num_layers", "residual", "dropout", "vocab_size")
    shared = {name: getattr(config, name) for name in names} | config.cell_regularisers()
    cell = kind.load_config()(**shared)
    model.cell.require_suits(cell)
    return model.cell, cell

"""The recurrent cell that a setting names, for networks that are built of any."""

from __future__ import annotations

from seqgen import registry
from seqgen.errors import UsageError, did_you_mean
from seqgen.models.recurrent.config import CellRegularisers, RecurrentConfig


def recurrent_cell(config: CellRegularisers) -> RecurrentConfig:
    """Return the configuration of the cells that `config.cell` names.

    Args:
        config: with `cell`, and the size of the cells as recurrent language models name it.

    Raises:
        UsageError: no recurrent architecture has that name.
    """
    kind = registry.ARCHITECTURES.get(config.cell)
    if kind is None or not _is_recurrent(kind):
        known = [name for name, row in registry.ARCHITECTURES.items() if _is_recurrent(row)]
        hint = did_you_mean(config.cell, known) if kind is None else ""
        raise UsageError(
            f"cell is a recurrent architecture ({', '.join(known)}), not {config.cell}{hint}"
        )
    names = ("hidden_size", "num_layers", "residual", "dropout", "vocab_size")
    shared = {name: getattr(config, name) for name in names} | config.cell_regularisers()
    cell = kind.load_config()(**shared)
    cell.equation.require_suits(cell)
    return cell


def _is_recurrent(row: registry.Architecture) -> bool:
    return row.model == registry.RECURRENT["model"]

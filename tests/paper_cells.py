"""Comparison of recurrent cells with equations of papers, transcribed in NumPy a row at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from seqgen import registry
from seqgen.models.recurrent.cell import Cell

H, V, B, T = 4, 5, 2, 5
EXACT = {"rtol": 0, "atol": 1e-12}


def sigma(x):
    return 1 / (1 + np.exp(-x))


def blocks(matrix, count):
    """Return the blocks of a matrix or a bias whose maps lie below one another."""
    return np.split(matrix, count)


@dataclass(frozen=True)
class PaperCell:
    """One form of a cell, and its equations as a paper has them.

    Attributes:
        architecture: of the registry.
        width: of the input.
        equations: take the cell's parameters by name, one input x and the parts before; and give
            those after.
        settings: of the form.
    """

    architecture: str
    width: int
    equations: Callable[..., tuple[np.ndarray, ...]]
    settings: dict[str, Any] = field(default_factory=dict)

    def layer(self, random: bool = True) -> Cell:
        """Return a layer in float64, with random parameters or as it begins."""
        row = registry.architecture(self.architecture)
        config = row.load_config()(vocab_size=V, hidden_size=H, **self.settings)
        torch.manual_seed(0)
        layer = Cell(self.width, config).double()
        if random:
            for parameter in layer.parameters():
                parameter.data.normal_(0, 0.7)
        return layer

    @torch.no_grad()
    def check(self) -> None:
        """Compare the layer with the equations, step by step."""
        layer = self.layer()
        p = {key: tensor.numpy() for key, tensor in layer.named_parameters()}
        x = torch.randn(B, T, self.width, dtype=torch.float64)
        start = tuple(torch.randn_like(part) for part in layer.start(B))
        outputs, after = layer.sequence(x, start)
        for row in range(B):
            state = tuple(part[row].numpy() for part in start)
            for t in range(T):
                state = self.equations(p, x[row, t].numpy(), *state)
                np.testing.assert_allclose(outputs[row, t], state[0], **EXACT)
            for got, wanted in zip(after, state, strict=True):
                np.testing.assert_allclose(got[row], wanted, **EXACT)


class PaperCells(dict[str, PaperCell]):
    """Cells by the name of their form."""

    def paper(self, name, architecture, width=3, **settings):
        """Register the equations of an architecture, for one form of it."""

        def keep(equations):
            self[name] = PaperCell(architecture, width, equations, settings)
            return equations

        return keep

"""Events of `seqgen train --diagnose` with the figures of an update, and their summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seqgen.cli.shell.tables import MISSING, count, number, percentage
from seqgen.training.events import ListenerEvent

if TYPE_CHECKING:
    from seqgen.plugins.inspect.attention_figures import HeadFigures
    from seqgen.plugins.inspect.diagnose.distance import Distance
    from seqgen.plugins.inspect.diagnose.layers import LayerFigures


@dataclass(frozen=True, kw_only=True)
class Diagnosed(ListenerEvent):
    """Event with the figures of an update, for `--diagnose`.

    Attributes:
        step: steps done, this one included.
        share: how much of the budget was spent before it, 0 to 1.
        layers: every layer's figures, in the order of use.
        distances: the gradient of a loss by distance, from 0; of models that read sources none.
        heads: how widely each head attends, of a transformer.
    """

    step: int
    share: float
    layers: list[LayerFigures]
    distances: list[Distance] = field(default_factory=list)
    heads: list[HeadFigures] = field(default_factory=list)

    def summary(self) -> list[str]:
        """Format the event as one line per layer."""
        lines = [f"layers at step {count(self.step)}:"]
        width = max(len(figures.layer) for figures in self.layers)
        for figures in self.layers:
            parts = {
                "weights": number(figures.weight_norm),
                "gradient": number(figures.grad_norm),
                "update ratio": number(figures.update_ratio),
                "saturated": percentage(figures.saturated, 1),
                "dead": percentage(figures.dead, 1),
                "spectral radius": number(figures.spectral_radius),
            }
            known = (f"{name} {value}" for name, value in parts.items() if value != MISSING)
            lines.append(f"  {figures.layer:<{width}}  {', '.join(known)}")
        return lines

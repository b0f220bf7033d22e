"""What a training call drops in a recurrent layer, drawn once for all its time steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from seqgen.engines.dropout import masked
from seqgen.models.recurrent.equation import Maps, unchanged

# Cuts an update vector (B, H), or (T, B, H) of a linear cell.
Cut = Callable[[Any], Any]


@dataclass(frozen=True)
class Noise:
    """One training call's masks for a layer; in evaluation there are none.

    Attributes:
        maps: of the past, some of their weights set to zero (Merity et al. 2018).
        past: for each of the maps by name that reads the past, its mask (B, I) on what it reads
            (Gal and Ghahramani 2016).
        update: drops elements of the update vector (Semeniuta et al. 2016): with a mask for the
            whole call, or with one a step; None where nothing is dropped.
        shared: the update's mask (B, H), if it is one for the whole call.
    """

    maps: Maps
    past: dict[str, Tensor]
    update: Cut | None = None
    shared: Tensor | None = None

    @property
    def weights_alone(self) -> bool:
        """Whether there is nothing but dropped weights, which kernels take as they do any."""
        return not self.past and not self.drops_updates

    @property
    def drops_updates(self) -> bool:
        """Whether elements of the update vector are dropped."""
        return self.update is not None or self.shared is not None

    def rows(self, count: int) -> Noise:
        """Return the noise of the first rows."""
        past = {name: mask[:count] for name, mask in self.past.items()}
        shared = None if self.shared is None else self.shared[:count]
        return replace(self, past=past, shared=shared)

    def into(self, w: SimpleNamespace) -> SimpleNamespace:
        """Return the maps `w` with masks on what they read, and `w.dropped` for update vectors."""
        for name, mask in self.past.items():
            setattr(w, name, Masked(getattr(w, name), mask))
        w.dropped = self.update or unchanged
        if self.shared is not None:
            w.dropped = lambda g: masked(g, self.shared)
        return w


class Masked:
    """A map that reads h * mask."""

    def __init__(self, map_: Callable[..., Tensor], mask: Tensor) -> None:
        self.map, self.mask = map_, mask

    def __call__(self, h: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return W (h * mask) + b, and `plus` added to it if given."""
        return self.map(masked(h, self.mask), plus)

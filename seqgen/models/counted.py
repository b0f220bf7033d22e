"""What models that are estimated without gradients have in common: tables, not parameters."""

from __future__ import annotations

from typing import Any

from seqgen.models.base import LanguageModel


class CountedModel(LanguageModel):
    """A language model whose numbers are buffers: tables of probabilities or their logarithms."""

    counted = True

    def _apply(self, *args: Any, **kwargs: Any) -> CountedModel:
        super()._apply(*args, **kwargs)
        for name, table in self._buffers.items():
            if table.is_floating_point() and table.itemsize < 4:
                self._buffers[name] = table.float()  # probabilities are never in less
        return self

    def parameter_count(self) -> int:
        """Return how many numbers the tables hold."""
        return sum(t.numel() for t in self.buffers() if t.is_floating_point())

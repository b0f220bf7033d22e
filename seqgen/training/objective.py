"""Training objective: a module that computes the loss, callable by loop, compiler or wrapper."""

from __future__ import annotations

import contextlib
import functools
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from seqgen import hooks
from seqgen.registry import load_object
from seqgen.settings.regimes import DEFAULT_REGIME
from seqgen.training.reading import TrainingReader
from seqgen.training.regimes.base import Loss, Regime, Rows, StepProgress, TextRules

if TYPE_CHECKING:
    from seqgen.models.base import NeuralLanguageModel
    from seqgen.models.state import State
    from seqgen.settings.training import TrainingConfig
    from seqgen.text.batches import Batch
    from seqgen.training.parts import CheckpointPart


class Objective(nn.Module):
    """A model and its training regimes, which are used one after the other.

    In evaluation mode it is the plain loss, whatever the regime.

    Args:
        model: on its device, in its parameters' type.
        config: with a precision that is not "auto".
        text_rules: how texts that the model writes in training are decoded and ended.
    """

    def __init__(
        self, model: NeuralLanguageModel, config: TrainingConfig, text_rules: TextRules
    ) -> None:
        super().__init__()
        self.model, self._phases = model, config.phases
        reader = TrainingReader(model, config)

        def load_regime(name: str) -> Regime:
            plain = name == DEFAULT_REGIME
            kind = load_object(model.trained_by) if plain else hooks.load_method("regime", name)
            return kind(reader, text_rules)

        self._plain = load_regime(DEFAULT_REGIME)
        names = dict.fromkeys(phase.regime for phase in self._phases)
        self.regimes = nn.ModuleDict({name: load_regime(name) for name in names})
        self._name = self._phases[0].regime

    def forward(self, batch: Batch, state: State | None, progress: StepProgress) -> Loss:
        """Compute the loss of a batch, or of some of its rows.

        Args:
            batch: the rows.
            state: the state before them, if one is carried, without its graph.
            progress: where training is.
        """
        rows = Rows(batch, self.model.device, state)
        if not self.training:
            return self._plain(rows, progress)
        share, last = progress.share, self._phases[-1]
        phase = next((phase for phase in self._phases if share < phase.end), last)
        within_phase = min(1.0, (share - phase.begin) / (phase.end - phase.begin))
        self._name = phase.regime
        return self.current(rows, replace(progress, share=within_phase))

    @functools.cached_property
    def _all_parameters(self) -> list[nn.Parameter]:
        """Parameters of the model and the regimes; listing them takes a while in every step."""
        return [*self.parameters()]

    @property
    def current(self) -> Regime:
        """Regime of the last training step; before the first step, the first regime."""
        return self.regimes[self._name]

    def begin_step(self) -> None:
        """Clear gradients and logged figures of the previous step."""
        for parameter in self._all_parameters:
            parameter.grad = None
        for regime in self.regimes.values():
            regime.begin_step()

    def end_step(self) -> None:
        """Update parameters owned by the regime, after the whole batch's backward pass."""
        self.current.end_step()

    def without_figures(self) -> AbstractContextManager[None]:
        """Discard the figures of calls within the block."""
        held = contextlib.ExitStack()
        for regime in self.regimes.values():
            held.enter_context(regime.without_figures())
        return held

    def take_notes(self, other: Objective) -> None:
        """Add the figures that another objective collected for other rows of this step."""
        self.current.take_notes(other.current)

    def figures(self) -> dict[str, float]:
        """Collect the regime's logged figures of the last step by name."""
        return self.current.figures()

    def parts(self) -> dict[str, CheckpointPart]:
        """Collect the checkpoint parts of the regimes by name, such as a discriminator."""
        return {name: part for r in self.regimes.values() for name, part in r.parts().items()}

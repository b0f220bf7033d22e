"""Monitoring of a training run: periodic figures of its layers, and warnings."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from seqgen.models.base import NeuralLanguageModel
from seqgen.models.mixture.members import members_of
from seqgen.models.network import copy_network
from seqgen.models.recurrent.cell import Cell
from seqgen.models.transformer.model import Transformer
from seqgen.plugins.inspect.attention_figures import attention_figures
from seqgen.plugins.inspect.diagnose.distance import gradients_by_distance, window_length, windows
from seqgen.plugins.inspect.diagnose.events import Diagnosed
from seqgen.plugins.inspect.diagnose.layers import Update, units_of
from seqgen.plugins.inspect.diagnose.warnings import Warnings
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batch
from seqgen.text.corpus import Corpus
from seqgen.training.events import Event, Notice, Report, Validated
from seqgen.training.listeners import RunFacts
from seqgen.training.optimizers import rate
from seqgen.training.parts import CheckpointPart
from seqgen.training.run import Budget, Listener, Run

# Looks come after this step, after twice as many, and so on: their cost is soon nothing.
FIRST_LOOK = 4
# With `--diagnose` there are so many more, evenly over the budget.
LOOKS = 20
# Rows of a batch whose units are looked at, and windows in which gradients are followed.
ROWS = 4
# Spectral radii take seconds in wider layers.
WIDEST = 512


def listen(facts: RunFacts) -> TrainingWatch | None:
    """Create the watch of a training run; of members trained together, it watches the first."""
    if facts.model is None:
        return None
    return TrainingWatch(
        members_of(facts.model)[0],
        facts.config,
        facts.budget,
        facts.report,
        facts.options.diagnose,
        facts.corpus,
        facts.unit,
    )


class TrainingWatch(Listener):
    """Observer of a training run that draws no random numbers and changes no gradients.

    Args:
        model: that is trained.
        config: of the run.
        budget: of the run.
        report: takes `Notice` for each warning, and `Diagnosed` with `records`.
        records: report the figures of layers, and look more often.
        corpus: what is trained on: with `records`, gradients are followed and attention is
            looked at in a few windows of it, always the same ones.
        unit: what losses are per.
    """

    def __init__(
        self,
        model: NeuralLanguageModel,
        config: TrainingConfig,
        budget: Budget,
        report: Report,
        records: bool,
        corpus: Corpus | None = None,
        unit: str = "token",
    ) -> None:
        self.model, self.config, self.budget = model, config, budget
        self.report, self.records = report, records
        self.warnings = Warnings(config, lambda text: report(Notice(text=text)), unit)
        self._corpus = corpus
        # Those of `LOOKS` that have passed; None until the first step of this process.
        self._looks: int | None = None
        self._has_relus = True  # until a look has found none

    @contextlib.contextmanager
    def updating(self, run: Run, batch: Batch) -> Iterator[None]:
        if not self._is_due(run):
            yield
            return
        share = self.budget.share(run)
        update = Update(self.model)
        yield
        layers = update.figures(self._units(batch), radius=self.records and self._is_narrow)
        after = Run(step=run.step + 1)
        # The very first steps are large beside the initial weights.
        if after.step >= self.model.settles:
            self.warnings.layers(after, layers, rate(self.config, share, run.step, run.warmed))
        if self.records:
            inside = self._look_inside()
            self.report(Diagnosed(step=after.step, share=share, layers=layers, **inside))

    def parts(self) -> dict[str, CheckpointPart]:
        return {"warnings": self.warnings}

    def stepped(self, run: Run, loss: float, norm: float) -> None:
        self.warnings.step(run, loss, norm)

    def take(self, event: Event) -> None:
        """Handle an event of the run."""
        if isinstance(event, Validated):
            self.warnings.validation(event.val_loss)

    def _is_due(self, run: Run) -> bool:
        doubled, rest = divmod(run.step + 1, FIRST_LOOK)
        is_double = rest == 0 and doubled & (doubled - 1) == 0
        return (self.records and self._is_next_look(run)) or is_double

    def _is_next_look(self, run: Run) -> bool:
        """Check whether this step begins the next of `LOOKS` parts of the budget."""
        if self._looks is None:  # a resumed run continues after the step before
            before = dataclasses.replace(run, step=run.step - 1)
            self._looks = int(LOOKS * self.budget.share(before)) if run.step else -1
        looks = int(LOOKS * self.budget.share(run))
        is_next, self._looks = looks > self._looks, max(looks, self._looks)
        return is_next

    @property
    def _is_narrow(self) -> bool:
        cells = [layer for layer in self.model.stack or () if isinstance(layer, Cell)]
        return all(cell.hidden_size <= WIDEST for cell in cells)

    @cached_property
    def _windows(self) -> tuple[Tensor, Tensor] | None:
        """Input windows and target tokens, (B, T) each; None for models without text."""
        corpus, model = self._corpus, self.model
        if corpus is None or corpus.sources is not None:
            return None
        if not isinstance(model, NeuralLanguageModel):
            return None
        tokens, targets = windows(corpus, window_length(model, corpus), ROWS)
        return torch.from_numpy(tokens).to(model.device), torch.from_numpy(targets).to(model.device)

    def _look_inside(self) -> dict[str, Any]:
        """Compute the fields of `Diagnosed` that depend on the windows.

        They are of a copy in float64: gradients soon fall below what float32 can hold.
        """
        if self._windows is None:
            return {}
        tokens, targets = self._windows
        kind = torch.float32 if self.model.device.type == "mps" else torch.float64
        model = copy_network(self.model).eval().to(kind).requires_grad_(True)
        heads = attention_figures(model, tokens) if isinstance(model, Transformer) else []
        return {"distances": gradients_by_distance(model, tokens, targets[:, -1]), "heads": heads}

    @torch.no_grad()
    def _units(self, batch: Batch) -> dict[int, dict[str, float | None]]:
        """Compute unit statistics on some rows of the batch.

        Without records they are only for warnings about ReLUs, so a network without these has none.
        """
        if self.model.stack is None or not (self.records or self._has_relus):
            return {}
        rows = batch.first(ROWS)
        tokens = torch.from_numpy(rows.tokens).to(self.model.device)
        by_layer = units_of(self.model, tokens, rows.source)
        self._has_relus = any(figures["dead"] is not None for figures in by_layer.values())
        return by_layer

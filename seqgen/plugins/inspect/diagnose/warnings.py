"""Warnings about problems in a training run, with advice."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqgen.plugins.inspect.diagnose.layers import LayerFigures
from seqgen.settings.training import TrainingConfig
from seqgen.training.run import Run

# Steps whose mean loss is compared with the lowest such mean; and by how much it may exceed that,
# as a share, in nats, and in standard deviations of those steps: batches of long sentences have
# higher losses than those of short ones.
SMOOTH, RISE, LEAST_RISE, LEAST_SPREADS = 20, 1.25, 0.3, 1.5
# A gradient without clipping explodes where it is so many times the median of those before it, or
# so large from the start.
MEMORY, JUMP, HUGE = 100, 100.0, 1e4
# With clipping it explodes where it is so many times what it is clipped to (and more than that many
# times 1), in so many more steps than not.
CLIPPED, CLIPPED_STEPS = 1000.0, 10
# A layer's gradient vanishes below this share of the largest layer's, per weight.
VANISHED = 1e-7
# Share of dead ReLUs.
DEAD = 0.9
# The update ratio of the layer that changes most: at the peak rate it is more than the first, and
# at no step more than the second. Narrow transformers, whose weights begin small, reach 0.3.
TOO_LOW, TOO_HIGH = 1e-6, 0.35
# The held-out loss rises if so many validations in a row exceed the best by this share.
WORSE, WORSE_BY = 3, 1.05
# What of `Warnings` is a number, by its name in a checkpoint.
NUMBERS = "lowest", "best", "trained_at_best", "worse", "enormous"


class Warnings:
    """Detector of training problems that reports each only once; stored in checkpoints.

    Args:
        config: of the run.
        say: takes the lines.
        unit: what losses are per.
    """

    def __init__(
        self, config: TrainingConfig, say: Callable[[str], None], unit: str = "token"
    ) -> None:
        self._config, self._say, self._unit = config, say, unit
        self._said: set[str] = set()
        self._losses: deque[float] = deque(maxlen=SMOOTH)
        self._norms: deque[float] = deque(maxlen=MEMORY)
        self._lowest = math.inf
        self._best = self._trained_at_best = math.inf
        self._worse = 0
        self._enormous = 0  # steps with an enormous gradient, minus those without, at least 0
        self._largest: tuple[str, float] | None = None
        self._vanishing: set[str] = set()

    def tensors(self) -> dict[str, Tensor]:
        """Save what was reported and observed, so that a resumed run does not repeat warnings."""
        numbers = {name: getattr(self, f"_{name}") for name in NUMBERS}
        names = [f"said.{kind}" for kind in self._said]
        names += [f"vanishing.{layer}" for layer in self._vanishing]
        seen = {"losses": list(self._losses), "norms": list(self._norms)}
        values = {**numbers, **dict.fromkeys(sorted(names), True), **seen}
        return {name: torch.tensor(x, dtype=torch.float64) for name, x in values.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the result of `tensors`; older checkpoints have none, so all counts restart."""
        if not tensors:
            return
        for name in NUMBERS:
            setattr(self, f"_{name}", tensors[name].item())
        self._said, self._vanishing = (
            {name.removeprefix(kind) for name in tensors if name.startswith(kind)}
            for kind in ("said.", "vanishing.")
        )
        self._losses.extend(tensors["losses"].tolist())
        self._norms.extend(tensors["norms"].tolist())

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._say(f"warning: {text}")

    def step(self, run: Run, loss: float, norm: float) -> None:
        """Check the loss and gradient norm of a step.

        Args:
            run: after the step.
            loss: nats per token, or per label.
            norm: of the gradient, before clipping.
        """
        self._losses.append(loss)
        if len(self._losses) == SMOOTH:
            mean = statistics.fmean(self._losses)
            rise, least = mean - self._lowest, max((RISE - 1) * self._lowest, LEAST_RISE)
            if rise > least and rise > LEAST_SPREADS * statistics.pstdev(self._losses):
                self._warn(
                    "loss",
                    f"the loss rises: {mean:.2f} nats/{self._unit} at step {run.step}, after "
                    f"{self._lowest:.2f}; try a third of --lr, or a longer warm-up",
                )
            self._lowest = min(self._lowest, mean)
        self._look_at_norm(run, norm)

    def _look_at_norm(self, run: Run, norm: float) -> None:
        config = self._config
        if config.clip_norm:
            self._look_at_clipped(run, norm)
        if config.clip_norm or config.clip_value:
            return
        usual = statistics.median(self._norms) if len(self._norms) >= 10 else math.inf
        if norm > JUMP * usual or norm > HUGE:
            self._warn(
                "explodes",
                f"the gradient explodes: its norm is {norm:.3g} at step {run.step}, and nothing "
                "clips it; try --clip-norm 1",
            )
        self._norms.append(norm)

    def _look_at_clipped(self, run: Run, norm: float) -> None:
        """Check for huge clipped gradients: a single direction may dominate the update."""
        clip_norm = self._config.clip_norm
        is_enormous = norm > CLIPPED * max(1.0, clip_norm)
        self._enormous = max(0, self._enormous + (1 if is_enormous else -1))
        if self._enormous == CLIPPED_STEPS:
            where = ""
            if self._largest is not None:
                layer, share = self._largest
                where = f" ({share:.0%} of its square is that of {layer})"
            self._warn(
                "explodes",
                f"the gradient explodes: its norm is {norm:.3g} at step {run.step}{where}, and "
                f"clipping to {clip_norm:g} leaves next to nothing for other layers; try smaller "
                "initial weights, a shorter --seq-len, or gated cells (--model lstm)",
            )

    def layers(self, run: Run, layers: Sequence[LayerFigures], rate: float) -> None:
        """Check the figures of all layers.

        Args:
            run: after the update that they are of.
            layers: every layer.
            rate: of the update, as a share of its peak.
        """
        squares = {x.layer: x.grad_norm**2 for x in layers if x.grad_norm is not None}
        if total := sum(squares.values()):
            layer = max(squares, key=squares.get)
            self._largest = layer, squares[layer] / total
        self._look_at_ratios(run, layers, rate)
        self._look_at_gradients(run, layers)
        for layer in layers:
            if layer.dead is not None and layer.dead >= DEAD:
                self._warn(
                    "dead",
                    f"{layer.dead:.0%} of the ReLUs of {layer.layer} are dead at step {run.step}: "
                    "they give 0 for every token; try a smaller --lr, or another activation",
                )

    def _look_at_ratios(self, run: Run, layers: Sequence[LayerFigures], rate: float) -> None:
        ratios = {x.layer: x.update_ratio for x in layers if x.update_ratio is not None}
        if not ratios:
            return
        layer = max(ratios, key=ratios.get)
        if ratios[layer] > TOO_HIGH:
            self._warn(
                "high",
                f"the learning rate is too high: step {run.step} has changed {layer} by "
                f"{ratios[layer]:.0%} of its norm (usual: 0.1% to 10%); try a tenth of --lr",
            )
        elif ratios[layer] / rate < TOO_LOW:
            self._warn(
                "low",
                f"the learning rate is too low: at its peak a step changes no layer by more than "
                f"{ratios[layer] / rate:.1g} of its norm (usual: 0.001 to 0.1); try a larger --lr",
            )

    def _look_at_gradients(self, run: Run, layers: Sequence[LayerFigures]) -> None:
        relative = {
            x.layer: x.grad_norm / max(x.weight_norm, 1e-30)
            for x in layers
            if x.grad_norm is not None
        }
        most = max(relative.values(), default=0.0)
        vanished = {name for name, norm in relative.items() if norm < VANISHED * most}
        # Twice in a row: a single batch may leave a layer alone.
        for name in sorted(vanished & self._vanishing):
            self._warn(
                "vanishes",
                f"the gradient vanishes: that of {name} is less than {VANISHED:g} of the largest "
                f"layer's at step {run.step}; try fewer layers, residual=true, or gated cells",
            )
        self._vanishing = vanished

    def validation(self, loss: float) -> None:
        """Check a validation loss, in nats per token or per label."""
        trained = statistics.fmean(self._losses) if self._losses else math.inf
        if loss <= self._best:
            self._best, self._trained_at_best = loss, trained
        self._worse = self._worse + 1 if loss > WORSE_BY * self._best else 0
        if self._worse == WORSE:
            why = "the model overfits; try --patience 3, or more --dropout"
            if trained > self._trained_at_best:
                why = "that of the training text rises too; try a smaller --lr"
            self._warn(
                "held-out",
                f"the held-out loss rises: {loss:.3f} nats/{self._unit}, after {self._best:.3f}; "
                f"the best weights are kept; {why}",
            )

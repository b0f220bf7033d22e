"""Which learning rate suits a model and its data: nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqgen.commands.interrupts import ending_as_ctrl_c
from seqgen.commands.training.estimate import Estimator
from seqgen.commands.training.plan import Plan
from seqgen.commands.training.train import RunRequest, prepare_run
from seqgen.configs import require
from seqgen.models.engines.precision import choose_device, parameter_type, restored_randomness
from seqgen.tasks.datasets.prepared import batches_for
from seqgen.training.events import Report
from seqgen.training.rate_finder import FoundRate, RampPoint
from seqgen.training.rate_finder import find_rate as ramp


@ending_as_ctrl_c()
def find_rate(
    data: Sequence[str | Path],
    *,
    device: str = "auto",
    report: Report = lambda event: None,
    put: Callable[[RampPoint], None] = lambda point: None,
    **asked: Any,
) -> tuple[list[RampPoint], FoundRate]:
    """Begin the run that `train` with these arguments would begin, with a rate that rises.

    Args:
        data: see `train`.
        device: auto, cpu, cuda or mps.
        report: takes events of preparing.
        put: takes each step of the ramp.
        asked: other fields of `RunRequest`.

    Raises:
        UsageError: the architecture is not trained by gradients, or see `train`.
        Diverged: the loss is no number from the start.
    """
    place = choose_device(device)
    ready = prepare_run(RunRequest(data=data, **asked), place, report, _require_gradients)
    training = ready.training
    with restored_randomness(place):
        model = ready.initial_model()
        model.to(device=place, dtype=parameter_type(training.precision))
        batches = batches_for(model, ready.prepared, training, ready.plan.data)
        return ramp(model, batches, training, put)


def _require_gradients(plan: Plan) -> None:
    """Refuse an architecture that is not trained by gradients."""
    name = plan.architecture
    by_gradients = Estimator.of(name) is None
    require(by_gradients, f"{name} is not trained by gradients: it has no learning rate to find")

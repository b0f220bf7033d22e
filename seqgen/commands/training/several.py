"""What a run on several processes asks before it begins."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from seqgen import ranks, store
from seqgen.configs import TrainingConfig, require
from seqgen.errors import SeqgenError
from seqgen.models.engines.deferred_init import Unfilled
from seqgen.models.engines.precision import parameter_type
from seqgen.training.events import Report


def report_of_first(report: Report) -> Report:
    """Return what takes events: on rank 0 what is given, on the others nothing."""
    return report if ranks.leads() else lambda event: None


def require_parallel(shard: bool) -> None:
    """Refuse to shard in one process."""
    require(
        not shard or ranks.world() > 1,
        "--shard divides a model among processes: start several, as in torchrun "
        "--nproc-per-node 2 -m seqgen train DATA --shard",
    )


def require_divisible(training: TrainingConfig, diagnose: bool) -> None:
    """Refuse what a run whose model is divided among the ranks cannot do.

    Raises:
        UsageError: says what to leave out.
    """
    adapts = training.lora is not None
    refused = {"unfreeze": bool(training.unfreeze), "lora": adapts, "--diagnose": diagnose}
    for name, asked in refused.items():
        require(not asked, f"--shard does not go with {name}: leave out one of them")


def unfilled_for(training: TrainingConfig, make: Callable[[int], nn.Module]) -> Unfilled:
    """Return a model that is to be divided among the ranks, without content.

    Args:
        training: says what type its parameters have.
        make: builds it to be divided among so many machines.
    """
    kind = parameter_type(training.precision)
    return Unfilled.build(lambda: make(ranks.machines()).to(dtype=kind))


def is_begun(name: str | None) -> bool:
    """Return whether torchrun has started this run anew, and its model has a checkpoint.

    Raises:
        UsageError: torchrun may do so, and the run has no name to be found by.
    """
    if not ranks.restarts_are_allowed():
        return False
    require(
        name is not None,
        "give --name: by it a run that torchrun restarts (--max-restarts) finds its model",
    )
    if not ranks.restarts():
        return False
    try:
        stored = store.find(name)
        return stored.record.get("launcher") == ranks.launcher()
    except SeqgenError:
        return False

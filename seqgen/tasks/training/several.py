"""What a run on several processes asks before it begins."""

from __future__ import annotations

from seqgen import ranks, store
from seqgen.configs import TrainingConfig, require
from seqgen.errors import SeqgenError
from seqgen.training.events import Report

# Regimes that only read texts.
DIVISIBLE_REGIMES = ("teacher-forcing", "unlikelihood")


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
    # The other regimes let the model write, which takes all of its weights.
    writing = [p.regime for p in training.phases if p.regime not in DIVISIBLE_REGIMES]
    adapts = training.lora is not None
    refused = {"unfreeze": bool(training.unfreeze), "lora": adapts, "--diagnose": diagnose}
    refused |= {f"--regime {regime}": True for regime in writing}
    for name, asked in refused.items():
        require(not asked, f"--shard does not go with {name}: leave out one of them")


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

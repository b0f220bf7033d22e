"""Which runs can train several networks side by side: `seqgen train --members`."""

from __future__ import annotations

from seqgen import ranks, registry
from seqgen.configs import READING_REGIMES, DataConfig, TrainingConfig, require


def check_members(architecture: str, training: TrainingConfig, data: DataConfig) -> None:
    """Refuse members where they have no meaning.

    Raises:
        UsageError: says why.
    """
    if training.members is None:
        return
    row = registry.architecture(architecture)
    reads = all(phase.regime in READING_REGIMES for phase in training.phases)
    refused = {
        f"is for networks, which {architecture} is not": row.estimator is not None,
        "is for models of text": not row.task.of(data.labels).beside_ngrams,
        "trains new networks: leave out --init-from": training.init_from is not None,
        "is for regimes that only read texts": not reads,
        "trains in one process: leave out torchrun": ranks.world() > 1,
    }
    why = next((why for why, is_so in refused.items() if is_so), None)
    require(why is None, f"--members {why}")

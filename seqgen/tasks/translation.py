"""Translation: generate a target from a source, a text or vectors."""

from __future__ import annotations

from seqgen.tasks.task import OF_WINDOWS, Task

# A pair is a line, or one in each of two files.
TRANSLATION = Task(
    name="sequence-to-sequence",
    learns="pairs of a source and a target",
    try_it='beam-search "a source"',
    dataset="seqgen.training.datasets.pairs:PairDataset",
    data_defaults={"documents": "line"},
    meaningless=OF_WINDOWS,
    fixed={"direction": "forward", "documents": "line"},
    longest="max_target_len",
    takes_targets=True,
    stored_as="pairs",
)

"""Searches: hyperparameters, learning rates, and architectures at equal sizes.

Pages: docs/tuning.md, docs/learning-rate.md, docs/cluster/index.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "find-lr": Command("find_lr:find_lr", "Train", work="steps"),
        "tune": Command("command:tune", "Train", work="steps"),
        "sweep": Command("sweep_command:sweep", "Train", work="steps"),
    },
    options={"train": "jobs:MemberJobs"},
    former_flags={
        ("train", "--find-lr"): ("find-lr", ""),
        ("compare", "--sweep"): ("sweep", "--models"),
    },
)

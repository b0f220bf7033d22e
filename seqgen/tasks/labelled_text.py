"""Texts with labels: each is learned given its labels (`--labels`)."""

from __future__ import annotations

from seqgen.tasks.task import Task

LABELLED_TEXT = Task(
    name="labelled-text",
    learns="a text with labels",
    try_it="sample --label NAME",
    dataset="seqgen.training.datasets.labelled:LabelledDataset",
    fixed={"documents": "line"},
    stops_early=True,
    stored_as="text",
)

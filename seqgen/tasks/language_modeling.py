"""Language modeling: predict the next token of a text, optionally given labels (`--labels`)."""

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

LANGUAGE_MODELING = Task(
    name="language-modeling",
    learns="a text",
    try_it="sample",
    fixed={},
    stops_early=True,
    beside_ngrams=True,
    gives_features=True,
    stored_as="text",
    labelled=LABELLED_TEXT,
)

"""Language modeling: a text is learned token by token."""

from __future__ import annotations

from seqgen.tasks.labelled_text import LABELLED_TEXT
from seqgen.tasks.task import Task

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

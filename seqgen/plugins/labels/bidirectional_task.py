"""Two language models that share weights, one from each end of a text, for their features."""

from __future__ import annotations

from seqgen.tasks.task import Task

# Each direction needs to know the end where it begins.
BIDIRECTIONAL = Task(
    name="bidirectional-lm",
    learns="a text from both of its ends",
    try_it="perplexity",
    validation="seqgen.plugins.labels.validation:BothWaysValidation",
    model_is="reads a text from both of its ends and writes none: use seqgen train --features, "
    "seqgen vectors, or seqgen perplexity for each direction",
    data_defaults={"documents": "line", "tokenizer": "whitespace"},
    gives_features=True,
)

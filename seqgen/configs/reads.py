"""The kinds of data that models learn from, and what follows from each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Reads = Literal[
    "text",
    "pairs",
    "labels",
    "vectors",
    "patterns",
    "words",
    "masked",
    "both-ways",
    "sentences",
    "classify",
    "tag",
]

# What can be told by features, and what such a model is called.
TASKS = {"classify": "classifier", "tag": "tagger"}
NO_LANGUAGE_MODELS = {
    "masked": "is a masked model, no language model: use seqgen fill, seqgen perplexity, or "
    "--init-from with --task",
    "sentences": "is an encoder, no language model",
    "classify": "is a classifier, no language model: use seqgen predict and seqgen eval",
    "tag": "is a tagger, no language model: use seqgen predict and seqgen eval",
    "patterns": "is an associative memory, no language model: it restores lines, with "
    "seqgen restore",
    "both-ways": "reads a text from both of its ends and writes none: use seqgen train --features, "
    "seqgen vectors, or seqgen perplexity for each direction",
    "words": "is made of vectors of words and is no language model: use seqgen vectors",
}
# A pair is a line, or one in each of two files; a line that was held out would not be restored;
# vectors are not to predict text; and what reads both ways needs to know both ends.
DATA_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "pairs": {"documents": "line"},
    "patterns": {"documents": "line", "val": "none"},
    "words": {"tokenizer": "word", "val": "none"},
    "masked": {"tokenizer": "bpe"},
    "both-ways": {"documents": "line", "tokenizer": "whitespace"},
    "classify": {"documents": "line", "source_unknowns": 0.01},
    "tag": {"documents": "line", "tokenizer": "whitespace", "source_unknowns": 0.02},
}
# What models read whose features an encoder can read (`--features`).
FEATURES = ("text", "words", "both-ways")
# For messages: what a model learns from.
LEARNS = {
    "text": "a text",
    "pairs": "pairs of a source and a target",
    "patterns": "lines",
    "words": "words in their contexts",
    "masked": "a text",
    "both-ways": "a text from both of its ends",
    "classify": "texts with a label",
    "tag": "sentences with a tag for each word",
}

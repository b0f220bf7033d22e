"""The task of learning word vectors from neighbouring words."""

from __future__ import annotations

from seqgen.tasks.task import Task

# The vectors are not to predict text, so all of it is learned from.
WORD_VECTORS = Task(
    name="word-vectors",
    learns="words in their contexts",
    try_it="vectors",
    validation="seqgen.plugins.vectors.validation:WordValidation",
    model_is="is made of vectors of words and is not a language model: use seqgen vectors",
    data_defaults={"tokenizer": "word", "val": "none"},
    gives_features=True,
)

"""Vectors of words and texts: word2vec, GloVe, nearest neighbours and analogies.

Pages: docs/vectors.md
"""

from __future__ import annotations

from seqgen.hooks import Command, ModelFormat, Plugin

PLUGIN = Plugin(
    commands={
        "vectors": Command("command:vectors", "Measure", work="reads"),
    },
    tasks=("task:WORD_VECTORS",),
    methods={"embedding": {"text-vectors": "embedder:TextEmbedder"}},
    formats={
        "word2vec": ModelFormat(
            form="lines", importer="files:read_model", recogniser="files:begins"
        ),
    },
)

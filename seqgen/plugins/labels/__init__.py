"""Classifiers, taggers and masked models: prediction of labels and of hidden tokens; WordPiece.

Pages: docs/labels.md, docs/bert.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "fill": Command("fill_command:fill", "Write", work="reads"),
        "predict": Command("predict_command:predict", "Measure", work="reads"),
    },
    tasks=(
        "task:CLASSIFICATION",
        "task:TAGGING",
        "task:MASKED_LM",
        "task:BIDIRECTIONAL",
    ),
    tokenizers={
        "uncased": "uncased:UncasedTokenizer",
        "wordpiece": "wordpiece:WordPieceTokenizer",
    },
    methods={"input": {"char-cnn": "models.char_cnn_piece:CharCNNPiece"}},
    options={"recipe": "options:FeatureFlags"},
)

"""The plugins of seqgen, a folder each; the core works without any of them."""

# The architectures, tasks, tokenizers and methods of plugins, and the endings of architectures with
# a head: for messages if the plugin's folder is missing. Models of older versions do not name their
# plugin.
BROUGHT = {
    "cache": ("continuous-cache", "fitted-cache"),
    "data": ("token-statistics",),
    "exchange": ("huggingface", "marian", "sentencepiece"),
    "explain": ("explained-tokens", "search-tree"),
    "hmm": ("hmm",),
    "hopfield": ("hopfield",),
    "labels": (
        "bag",
        "bert",
        "birnn",
        "elmo",
        "encoder",
        "classify",
        "tag",
        "classifier",
        "tagger",
        "wordpiece",
        "char-cnn",
    ),
    "more_cells": (
        "ugrnn",
        "mgu",
        "mut1",
        "mut2",
        "mut3",
        "mlstm",
        "rhn",
        "nas",
        "mingru",
        "minlstm",
        "jordan",
        "grid",
        "hawk",
    ),
    "regimes": (
        "scheduled",
        "free-running",
        "professor-forcing",
        "minimum-risk",
        "decoding",
        "unlikelihood",
    ),
    "searches": ("stochastic-beams", "exhaustive-search"),
    "smoothings": ("stupid-backoff", "witten-bell", "jelinek-mercer", "katz"),
    "textbook": ("textbook-rule",),
    "vectors": ("glove", "word2vec"),
    "window": ("window",),
}

"""seqgen: train a language model on a text file, write with it, and score text with it."""

__version__ = "0.1.0"

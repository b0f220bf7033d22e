"""Feed-forward language model over a window of tokens."""

"""Training regimes: what the model reads, and what is minimised."""

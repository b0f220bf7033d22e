"""Scoring with a model: perplexity, comparisons, the metrics of written text."""

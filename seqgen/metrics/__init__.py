"""Metrics: perplexity, BLEU, diversity and their statistics, from counts that add up over texts."""

"""Decoder-only transformers: blocks, attention, positions and the cache."""

"""Encoder-decoders: a source is encoded once, and a decoder writes from it."""

"""Encoder-decoders: encode a source once, then generate the target from it."""

"""Mixtures: interpolation of several language models."""

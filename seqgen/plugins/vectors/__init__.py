"""Vectors of words and of texts from a trained model."""

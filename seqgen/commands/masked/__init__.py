"""Masked models: filling in what is hidden, and scoring by it."""

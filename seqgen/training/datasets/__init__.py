"""Datasets: each kind of data is opened, split and encoded, and reloaded to resume a run."""

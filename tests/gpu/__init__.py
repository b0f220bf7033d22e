"""Checks and measurements for ten minutes on a GPU; see check.sh."""

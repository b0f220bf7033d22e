"""Hawk: gated linear recurrences in residual blocks, without attention (De et al. 2024)."""

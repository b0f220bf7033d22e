"""Hawk: gated linear recurrences in residual blocks, without attention (De et al. 2024)."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()

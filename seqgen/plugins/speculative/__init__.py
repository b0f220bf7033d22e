"""Tokens read ahead, guessed by lookup in the text or by a smaller model: the same text sooner."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(options={"sample": "options:ReadingAhead"})

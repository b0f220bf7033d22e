"""Texts of a given form: regular expressions, grammars, JSON schemas."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()

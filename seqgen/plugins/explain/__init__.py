"""Explanations of sampled texts: how each token was chosen, and what each filter removed."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(methods={"output": {"explained-tokens": "tokens:put_tokens"}})

"""Hidden Markov models, estimated by EM."""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin()

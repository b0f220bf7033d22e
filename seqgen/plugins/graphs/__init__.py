"""CUDA graphs: steps of decoding that a GPU replays, with no kernel started one by one.

Pages: docs/gpu.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(device_steps=("steps:replay_steps",))

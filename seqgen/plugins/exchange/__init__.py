"""Models in the formats of other tools: ARPA, GGUF, Hugging Face, ONNX, peft."""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "import": Command("command:import_", "Models", work="reads"),
        "export": Command("command:export", "Models"),
    },
)

"""HTTP server for trained models: requests of many clients are batched.

Pages: docs/serve.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "serve": Command("command:serve", "Write", work="reads"),
    },
)

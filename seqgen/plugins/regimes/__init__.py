"""Training regimes besides teacher forcing, such as scheduled sampling and minimum risk.

Pages: docs/regimes.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

PLUGIN = Plugin(
    methods={
        "regime": {
            "scheduled": "scheduled:ScheduledSampling",
            "free-running": "scheduled:FreeRunning",
            "professor-forcing": "professor:ProfessorForcing",
            "minimum-risk": "sequences:MinimumRisk",
            "decoding": "sequences:Decoding",
            "unlikelihood": "unlikelihood:Unlikelihood",
        },
    },
)

"""The options `--log` and `--tensorboard` of `seqgen train`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqgen.errors import UsageError, did_you_mean
from seqgen.packages import require_packages
from seqgen.settings import Panel, setting
from seqgen.settings.listening import ListenerOptions

# What `--log` may name: each is a package of this name.
TRACKERS = ("tensorboard", "trackio", "wandb")


class TrackerOptions(ListenerOptions, panel=Panel.OUTPUT):
    """Options that log the run for programs that show runs."""

    log: str | None = setting(
        "Also log the run for tensorboard, trackio or wandb; or several: trackio,wandb.",
        metavar="NAMES",
    )
    tensorboard: bool = setting("The same as --log tensorboard.", hidden=True)

    @property
    def trackers(self) -> set[str]:
        """The names of the programs that are given."""
        names = set((self.log or "").replace(",", " ").split())
        return names | ({"tensorboard"} if self.tensorboard else set())

    def require_possible(self, divided: bool) -> None:
        for name in sorted(self.trackers):
            if name not in TRACKERS:
                hint = did_you_mean(name, TRACKERS) or f": give {', '.join(TRACKERS)}"
                raise UsageError(f"--log knows no {name!r}{hint}")
            require_packages(f"--log {name}", name)
        if self.log is not None and not self.trackers:
            raise UsageError(f"--log names nothing: give {', '.join(TRACKERS)}")

    def conclude(self, model: str, events: Sequence[Any]) -> None:
        if self.trackers:
            from seqgen.plugins.trackers.listeners import finish_all

            finish_all()

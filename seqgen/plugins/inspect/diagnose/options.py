"""Options of `seqgen train` that log the state of every layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqgen.cli.shell.output_files import Curves, check_picture
from seqgen.errors import SeqgenError
from seqgen.settings import OptionRule, Panel, redeclare, require, setting
from seqgen.settings.listening import ListenerOptions


class DiagnoseOptions(ListenerOptions, panel=Panel.OUTPUT):
    """Options for logging layers, gradients and attention during training."""

    diagnose: bool = setting(
        "Also log how every layer is doing, how far gradients reach (--plot draws it), and how "
        "widely attention spreads."
    )
    plot: Path | None = redeclare(
        Curves,
        "plot",
        needs=OptionRule(
            ("--diagnose",),
            "{flag} is for --diagnose; seqgen models show draws the losses of a run",
        ),
    )

    def require_possible(self, divided: bool) -> None:
        apart = "--shard does not go with --diagnose: leave out one of them"
        require(not (divided and self.diagnose), apart)
        self.check_outputs(list)

    def require_model(self, models_text: bool) -> None:
        require(
            models_text or self.plot is None,
            "--plot draws how far gradients reach, which only networks that model text have: "
            "leave it out",
        )

    def check_outputs(self, inputs: Callable[[], Sequence[Any]]) -> None:
        if self.plot is not None:
            check_picture(self.plot, inputs())

    def conclude(self, model: str, events: Sequence[Any]) -> None:
        """Plot the gradients by distance, with their bound."""
        if self.plot is None:
            return
        from seqgen.plugins.inspect.diagnose.command import draw_distances
        from seqgen.plugins.inspect.diagnose.events import Diagnosed

        place = self.plot.resolve()
        last = next((event for event in events if isinstance(event, Diagnosed)), None)
        if last is None or not last.distances:
            raise SeqgenError(f"{place} is not drawn: the run ended before gradients were measured")
        draw_distances(place, model, last.distances)

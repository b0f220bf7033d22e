"""The option of `seqgen train` that writes logs for TensorBoard."""

from __future__ import annotations

from seqgen.packages import require_packages
from seqgen.settings import Panel, setting
from seqgen.settings.listening import ListenerOptions


class TensorBoardOptions(ListenerOptions, panel=Panel.OUTPUT):
    """Whether a run is logged for TensorBoard."""

    tensorboard: bool = setting("Also write logs for TensorBoard (needs the package tensorboard).")

    def require_possible(self, divided: bool) -> None:
        if self.tensorboard:
            require_packages("--tensorboard", "tensorboard")

"""The option `--tensorboard` of `seqgen train`."""

from __future__ import annotations

from seqgen.packages import require_packages
from seqgen.settings import Panel, setting
from seqgen.settings.listening import ListenerOptions


class TensorBoardOptions(ListenerOptions, panel=Panel.OUTPUT):
    """The option `--tensorboard`: log the run for TensorBoard."""

    tensorboard: bool = setting("Also write logs for TensorBoard (needs the package tensorboard).")

    def require_possible(self, divided: bool) -> None:
        if self.tensorboard:
            require_packages("--tensorboard", "tensorboard")

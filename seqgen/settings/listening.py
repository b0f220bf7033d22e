"""Base class of the options that plugins add to training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seqgen.settings.options import Options


class ListenerOptions(Options):
    """Options of a training listener, which a plugin adds to `seqgen train`.

    Plugins name their subclasses in `hooks.Plugin.options["train"]`. Only what a subclass needs of
    these methods has to be written.
    """

    def print_instead(self, given: Mapping[str, Any], out: Any) -> bool:
        """Print something instead of training; return whether that was done.

        Args:
            given: the settings, the name, the architecture and the data that the command gives.
            out: its `cli.shell.output.Output`.
        """
        return False

    def require_possible(self, divided: bool) -> None:
        """Refuse options that cannot work in this run, before any data is read.

        Args:
            divided: the model is divided among processes.

        Raises:
            SeqgenError: says what to leave out or to install.
        """

    def require_model(self, models_text: bool) -> None:
        """Refuse options that the model to be trained does not support.

        Args:
            models_text: it is a network that models a text; no n-gram model, translator or
                classifier.

        Raises:
            SeqgenError: says what to leave out.
        """

    def check_outputs(self, inputs: Callable[[], Sequence[Any]]) -> None:
        """Refuse to overwrite the command's input files, before they are read.

        Args:
            inputs: opens the files of DATA; each is a `cli.shell.inputs.Input`.

        Raises:
            SeqgenError: names the file.
        """

    def conclude(self, model: str, events: Sequence[Any]) -> None:
        """Write the listener's output when the run has ended or was interrupted.

        Args:
            model: its name.
            events: the last `ListenerEvent` of each kind that listeners reported.

        Raises:
            SeqgenError: it cannot be written; the model is stored.
        """

"""Options of training that plugins add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seqgen.settings.options import Options


class ListenerOptions(Options):
    """Options of a listener, which a plugin adds to `seqgen train` (and to `train` in Python).

    Plugins name their subclasses in `hooks.Plugin.options["train"]`. Only what a subclass needs of
    these methods has to be written.
    """

    def require_possible(self, divided: bool) -> None:
        """Refuse what cannot be done, before any data is read.

        Args:
            divided: the model is divided among processes.

        Raises:
            SeqgenError: says what to leave out or to install.
        """

    def require_model(self, models_text: bool) -> None:
        """Refuse what the model to be trained cannot give, before any data is read.

        Args:
            models_text: it is a network that models a text; no n-gram model, translator or
                classifier.

        Raises:
            SeqgenError: says what to leave out.
        """

    def check_outputs(self, inputs: Callable[[], Sequence[Any]]) -> None:
        """Refuse to write over what the command reads, before it is read.

        Args:
            inputs: opens the files of DATA; each is a `cli.shell.inputs.Input`.

        Raises:
            SeqgenError: names the file.
        """

    def conclude(self, model: str, events: Sequence[Any]) -> None:
        """Write what was asked for besides the model, when the run has ended or was interrupted.

        Args:
            model: its name.
            events: the last `ListenerEvent` of each kind that listeners reported.

        Raises:
            SeqgenError: it cannot be written; the model is stored.
        """

"""Run the training listeners of plugins; a failing listener is dropped with a warning.

A listener sees the events and steps of a run, and never changes it (`training.run.Listener`). A
plugin names functions in `hooks.Plugin.listeners`. Each is called when a run begins, with the
`RunFacts`, and returns a listener, or None if it has nothing to do:

    def listen(facts):
        return LossFile(facts.options.losses, facts.step) if facts.options.losses else None

Their options of `seqgen train` are `settings.listening.ListenerOptions`. Only the first of several
processes has listeners.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqgen import hooks
from seqgen.errors import SeqgenError, first_line
from seqgen.training.events import Event, ListenerEvent, Notice, Progress, Report
from seqgen.training.run import Budget, Listener, Run

if TYPE_CHECKING:
    from torch import Tensor

    from seqgen.models.network import Network
    from seqgen.settings.training import TrainingConfig
    from seqgen.store import StoredModel
    from seqgen.text.batches import Batch
    from seqgen.text.corpus import Corpus
    from seqgen.training.parts import CheckpointPart


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a training run for the listeners of plugins.

    Attributes:
        stored: the model on disk; it is published with its first checkpoint.
        model: that is trained; None if it is divided among processes, where none has all of it.
        config: the settings of training.
        budget: when training ends.
        report: takes events of the listener's own: a `Notice`, or a `ListenerEvent`.
        corpus: what is trained on.
        unit: what losses are per: "token" or "label".
        step: how many steps are done; 0 of a new run.
        options: the plugin's `ListenerOptions`; None if it adds none.
    """

    stored: StoredModel
    model: Network | None
    config: TrainingConfig
    budget: Budget
    report: Report
    corpus: Corpus
    unit: str
    step: int
    options: Any = None


class LastEvents:
    """Forwards events and remembers each listener's last event of each kind.

    Attributes:
        fastest: the highest speed that was reported, in tokens per second; 0 before.
    """

    def __init__(self, report: Report) -> None:
        self._report, self.fastest = report, 0.0
        self._last: dict[type, ListenerEvent] = {}

    def __call__(self, event: Event) -> None:
        """Pass an event on."""
        if isinstance(event, ListenerEvent):
            self._last[type(event)] = event
        if isinstance(event, Progress):
            self.fastest = max(self.fastest, event.tokens_per_second)
        self._report(event)

    @property
    def events(self) -> list[ListenerEvent]:
        """The remembered events."""
        return [*self._last.values()]


class Listeners(Listener):
    """Composite of several listeners; one that fails is dropped with a warning.

    Args:
        report: takes the warnings.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._listeners: dict[str, Listener] = {}

    def open(self, facts: Callable[[str], RunFacts]) -> None:
        """Open the listeners of all plugins.

        Args:
            facts: of the run, for the plugin of this name.

        Raises:
            SeqgenError: an option asks for something that cannot be done.
        """
        for number, (plugin, listen) in enumerate(hooks.listeners()):
            run_facts = facts(plugin)
            try:
                listener = listen(run_facts)
            except SeqgenError:
                raise
            except Exception as error:  # whatever a stranger's code raises
                self._warn(plugin, error)
                continue
            if listener is not None:
                self._listeners[f"{plugin}:{number}"] = listener

    def updating(self, run: Run, batch: Batch) -> AbstractContextManager[None]:
        stack = contextlib.ExitStack()
        for name, listener in list(self._listeners.items()):
            stack.enter_context(_Updating(lambda x=listener: x.updating(run, batch), self, name))
        return stack

    def stepped(self, run: Run, loss: float, norm: float) -> None:
        for name, listener in list(self._listeners.items()):
            with self.guarded(name):
                listener.stepped(run, loss, norm)

    def take(self, event: Event) -> None:
        for name, listener in list(self._listeners.items()):
            with self.guarded(name):
                listener.take(event)

    def parts(self) -> dict[str, CheckpointPart]:
        parts: dict[str, CheckpointPart] = {}
        for name, listener in list(self._listeners.items()):
            with self.guarded(name):
                for key, part in listener.parts().items():
                    parts.setdefault(key, _Part(part, self, name))
        return parts

    def close(self) -> None:
        for name, listener in list(self._listeners.items()):
            with self.guarded(name):
                listener.close()

    @contextlib.contextmanager
    def guarded(self, name: str) -> Iterator[None]:
        """Drop a listener if it raises within the block."""
        try:
            yield
        except Exception as error:
            listener = self._listeners.pop(name, None)
            if listener is not None:
                self._warn(name.partition(":")[0], error)
                with contextlib.suppress(Exception):
                    listener.close()

    def _warn(self, plugin: str, error: Exception) -> None:
        why = first_line(error)
        if not isinstance(error, SeqgenError | OSError):
            why = f"{type(error).__name__}: {why}"
        self._report(Notice(text=f"warning: plugin {plugin} no longer sees this run: {why}"))


class _Updating:
    """Guarded context of one listener around an update."""

    def __init__(
        self, make: Callable[[], AbstractContextManager[None]], listeners: Listeners, name: str
    ) -> None:
        self._make, self._listeners, self._name = make, listeners, name
        self._entered: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        with self._listeners.guarded(self._name):
            context = self._make()
            context.__enter__()
            self._entered = context

    def __exit__(self, *raised: Any) -> None:
        if self._entered is not None:
            with self._listeners.guarded(self._name):
                self._entered.__exit__(*raised)


@dataclass(frozen=True)
class _Part:
    """Guarded checkpoint part of a listener."""

    part: CheckpointPart
    listeners: Listeners
    name: str

    def tensors(self) -> dict[str, Tensor]:
        """Return its state; empty if it fails."""
        tensors: dict[str, Tensor] = {}
        with self.listeners.guarded(self.name):
            tensors = self.part.tensors()
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from a checkpoint."""
        with self.listeners.guarded(self.name):
            self.part.restore(tensors)

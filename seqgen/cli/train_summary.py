"""The summary of a run that `seqgen train` shows on a terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import registry, store
from seqgen.cli.output import console, is_terminal, say
from seqgen.cli.tables import (
    MISSING,
    count,
    duration,
    figure,
    named_figures,
    number,
    percentage,
    weight,
)
from seqgen.errors import SeqgenError
from seqgen.training.events import SAMPLE_WIDTH
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.training.session import TrainingResult
    from seqgen.training.events import Diagnosed, Event, Report

# The summary ends with this many lines of a sample.
SAMPLE_LINES = 6
# The rate falls to the end of a run, and with it the loss; if the best validation came before this
# share of the steps, the model has begun to learn the text by heart. That takes so many passes over
# the text at least; a run that is best before has other troubles.
USED_UP, LEAST_PASSES = 0.75, 2.0
# Columns before a figure of the summary.
INDENT = 17


def how_to_resume(result: TrainingResult) -> str:
    """Return the line that ends a run which was stopped before its budget was spent."""
    done = plural(result.steps, "step")
    return f"stopped after {done}; resume with: seqgen train --resume {result.name}"


def summarise(result: TrainingResult) -> None:
    """Write to standard error how a run ended, how good its model is, and what to try."""
    if result.stopped == "stop-after":
        say(how_to_resume(result))
        return
    counted = result.steps is None
    work = f"{plural(result.tokens, 'token')} counted" if counted else plural(result.steps, "step")
    parts = [f"{result.name}: {work} in {duration(result.seconds)}"]
    if result.val_loss is not None:
        parts.append(f"validation loss {figure(result.val_loss)} nats/{_unit(result)}")
    if result.val_accuracy is not None:
        parts.append(f"accuracy {percentage(result.val_accuracy)}")
    if result.val_bits_per_char is not None:
        parts.append(f"{figure(result.val_bits_per_char)} bits/char")
        if result.val_oov_bits_per_byte:
            share = result.val_oov_bits_per_byte / result.val_bits_per_byte
            parts[-1] += f" ({percentage(share, 0)} of it for unknown tokens)"
    say(", ".join(parts))
    if result.steps is not None:
        _table(result)
    if result.members:
        _put_members(result.name, result.members)
    if result.mixture:
        _put_mixture(result.name, result.mixture)
    name = result.mixture["name"] if result.mixture else result.name
    say(f"try: seqgen {_writes(result)} -m {name}")


def _put_members(name: str, members: Mapping[str, Any]) -> None:
    """Show what networks that were trained side by side have, alone and together."""
    each = zip(members["losses"], members["weights"], strict=True)
    rows = {f"{name}-{i}": (loss, weight(value)) for i, (loss, value) in enumerate(each, 1)}
    cost = f"together; each token that it writes takes {len(rows)} steps"
    _put_parts({**rows, name: (members["loss"], cost)}, members["tokens"])


def _put_mixture(network: str, mixture: Mapping[str, Any]) -> None:
    """Show what a network, an n-gram model and their mixture have."""
    shares = zip((network, mixture["ngram"]), mixture["weights"], strict=True)
    weights = ", ".join(f"{name} {weight(value)}" for name, value in shares)
    if mixture["by_order"]:
        weights += " on average, and others by order"
    rows = {
        network: (mixture["network_loss"], ""),
        mixture["ngram"]: (mixture["ngram_loss"], f"{mixture['order']}-gram"),
        mixture["name"]: (mixture["mixture_loss"], weights),
    }
    _put_parts(rows, mixture["tokens"])


def _put_parts(rows: Mapping[str, tuple[float, str]], tokens: int) -> None:
    """Show the loss of each model, and what is said of it; tokens are those that were scored."""
    say("  weights fitted on the first half of the held-out part;")
    # Of a large held-out part, not all are used.
    say(f"  nats/token on {plural(tokens, 'token')} of the other half:")
    width = max(map(len, rows))
    for name, (loss, about) in rows.items():
        say(f"    {name:<{width}}  {figure(loss)}  {about}".rstrip())


def _writes(result: TrainingResult) -> str:
    """Return the command that the new model is for."""
    stored = store.StoredModel(Path(result.path))
    vectors = stored.config["model"].get("source_features") is not None
    return "beam-search --source-vectors FILE" if vectors else stored.task.try_it


def _unit(result: TrainingResult) -> str:
    """Return what a loss is per, and what is counted."""
    return registry.unit_of(result.architecture)


def _table(result: TrainingResult) -> None:
    """Show how a run ended, and what its model writes."""
    early = {
        "patience": "early: validation stopped improving",
        "converged": "early: the text's likelihood stopped rising",
    }
    stopped = early.get(result.stopped, "the budget is spent")
    rows = {
        "parameters": count(result.parameters),
        f"{_unit(result)}s": (
            f"{count(result.tokens)}, {count(result.tokens_per_second)} per second"
        ),
        "training loss": f"{figure(result.train_loss)} nats/{_unit(result)}",
        "stopped": stopped,
    }
    if result.epoch_loss is not None:
        spread = f"standard deviation of its steps {figure(result.epoch_loss_std)}"
        rows["last epoch"] = f"{figure(result.epoch_loss)} nats/{_unit(result)}, {spread}"
    if result.val_loss is not None:
        if result.best_step is not None:
            rows["best"] = f"step {count(result.best_step)}"
            if _is_used_up(result):
                rows["best"] += "; this text is used up: longer training would not help"
        if result.val_perplexities is not None:
            rows["perplexity"] = named_figures(result.val_perplexities)
        rows["validation"] = f"{result.protocol}; {duration(result.validation_seconds)}"
    if result.layer_weights is not None:
        rows["features"] = named_figures(result.layer_weights)
    room = max(40, console(sys.stderr).width - INDENT) if is_terminal(sys.stderr) else sys.maxsize
    for key, value in rows.items():
        first, *more = textwrap.wrap(value, room)
        say(f"  {key:<14} {first}")
        for line in more:
            say(f"{'':{INDENT}}{line}")
    for line in (result.sample or "").strip("\n").splitlines()[:SAMPLE_LINES]:
        say(f"  | {line[:SAMPLE_WIDTH]}")


def _is_used_up(result: TrainingResult) -> bool:
    """Return whether a longer run on the same text would not give a better model."""
    if (result.epochs or 0.0) < LEAST_PASSES:
        return False
    return result.stopped == "patience" or result.best_step < USED_UP * result.steps


class LastLook:
    """Passes events on, and keeps the last figures of the layers (`--diagnose`)."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last: Diagnosed | None = None

    def __call__(self, event: Event) -> None:
        """Pass an event on."""
        if hasattr(event, "layers"):
            self._last = event
        self._report(event)

    def draw(self, place: Path, model: str) -> None:
        """Draw the gradient by distance, with its bound.

        Raises:
            SeqgenError: there is none.
        """
        from seqgen.cli.diagnose import draw_distances

        if self._last is None or not self._last.distances:
            raise SeqgenError(f"{place} is not drawn: only models of text have such gradients")
        draw_distances(place, model, self._last.distances)

    def put(self) -> None:
        """Write the figures to standard error, a line per layer, if there are any."""
        if self._last is None:
            return
        say(f"layers at step {count(self._last.step)}:")
        width = max(len(figures.layer) for figures in self._last.layers)
        for figures in self._last.layers:
            parts = {
                "weights": number(figures.weight_norm),
                "gradient": number(figures.grad_norm),
                "update ratio": number(figures.update_ratio),
                "saturated": percentage(figures.saturated, 1),
                "dead": percentage(figures.dead, 1),
                "spectral radius": number(figures.spectral_radius),
            }
            known = (f"{name} {value}" for name, value in parts.items() if value != MISSING)
            say(f"  {figures.layer:<{width}}  {', '.join(known)}")

"""`seqgen models compare-runs`: settings of runs that differ, and what came of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.model_facts import losses_by_step, unit_of_loss
from seqgen.cli.shell.output import Output, one_line, put, put_record
from seqgen.cli.shell.output_files import Curves, check_picture
from seqgen.cli.shell.tables import MISSING, count, curve, figure, put_table
from seqgen.errors import SeqgenError
from seqgen.settings import REQUIRED, Options, Panel, argument, flatten_settings, require, setting
from seqgen.wording import format_value, plural

if TYPE_CHECKING:
    from seqgen.scoring.compare import Comparison
    from seqgen.store import StoredModel

# Figures of runs that are compared, in this order, beside the settings that differ.
FIGURES = ("parameters", "steps", "tokens", "seconds", "train_loss", "val_loss")
FIGURES = (*FIGURES, "val_bits_per_char", "val_bits_per_byte")
WHOLE_NUMBERS = ("parameters", "steps", "tokens")
MARKS = "123456789abcdefghijklmnopqrstuvwxyz"


class RunsToCompare(Options, panel=Panel.OTHER):
    """Arguments of `seqgen models compare-runs`: the models, and whether they are scored."""

    names: tuple[str, ...] = argument(
        "Trained models (seqgen models lists them).", "NAMES", default=REQUIRED, completes="models"
    )
    intervals: bool = setting(
        "Score the text that all of them held out, for intervals of the figures and of their "
        "differences.",
        True,
        names=("--intervals/--no-intervals",),
    )


@takes_options
def compare_runs(compared: RunsToCompare, curves: Curves, out: Output) -> None:
    """Compare how models were trained: settings that differ, figures, and curves of the loss.

    If the models held out the same text, it is scored with each of them, for 95 % intervals of the
    bits per byte and of the differences from the best model, as in `seqgen compare`.
    """
    found = {model.name: model for model in map(store.find, compared.names)}
    require(len(found) >= 2, "give two models or more")
    settings = {
        name: {"architecture": model.config["architecture"], **flatten_settings(model.config)}
        for name, model in found.items()
    }
    losses = {name: losses_by_step(model)["validation"] for name, model in found.items()}
    results = {name: store.result_of(model) for name, model in found.items()}
    if curves.plot is not None:
        _draw_validation(losses, unit_of_loss(found[next(iter(found))]), curves.plot)
    scores = _scores(found, out) if compared.intervals else {}
    keys = dict.fromkeys(key for of_one in settings.values() for key in of_one)
    values = {key: [of_one.get(key) for of_one in settings.values()] for key in keys}
    differing = [key for key, of_all in values.items() if any(v != of_all[0] for v in of_all)]
    if out.json:
        for name in found:
            own = {key: settings[name].get(key) for key in differing}
            record = {"name": name, "settings": own, "result": results[name]}
            put_record(record | {"held_out": asdict(scores[name]) if scores else None})
        return
    hashes = [model.record.get("data", {}).get("sha256") for model in found.values()]
    # Settings that only one of the architectures has are no difference between runs.
    shared = [key for key in differing if _is_comparable(key, settings.values())]
    rows = [
        [key, *(format_value(own[key]) if key in own else MISSING for own in settings.values())]
        for key in shared
    ]
    if len(set(hashes)) > 1:
        rows.append(["text (SHA-256)", *(str(one or MISSING)[:8] for one in hashes)])
    begins = [model.scored_from for model in found.values()]
    if len(set(begins)) > 1:
        rows.append(["held-out text scored from character", *(count(one + 1) for one in begins)])
    if own := len(differing) - len(shared):
        out.notice(f"{plural(own, 'setting')} that not all of them have: --json lists them")
    rows += [*_rows_of_results(results), *_rows_of_scores(scores)]
    put_table(["", *found], rows)
    _put_curves(losses)


def _is_comparable(key: str, settings: Collection[Mapping[str, Any]]) -> bool:
    """Check whether every run has the setting, or the runs that have it differ."""
    values = [of_one[key] for of_one in settings if key in of_one]
    return len(values) == len(settings) or any(value != values[0] for value in values)


def _rows_of_results(results: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Format the figures of training that any of the runs has, a row each."""
    rows = []
    for key in FIGURES:
        figures = [of_one.get(key) for of_one in results.values()]
        if any(one is not None for one in figures):
            title = "steps taken" if key == "steps" else key  # the setting is the budget
            rows.append([title, *map(count if key in WHOLE_NUMBERS else figure, figures)])
    return rows


def _scores(found: Mapping[str, StoredModel], out: Output) -> dict[str, Comparison]:
    """Score the text that all models held out; empty, with a notice, if there is no such text."""
    from seqgen.plugins.runs.intervals import score_held_out

    try:
        scores = score_held_out(list(found.values()))
    except SeqgenError as error:
        out.notice(f"no intervals: {error}")
        return {}
    size = next(iter(scores.values())).bytes
    out.notice(f"intervals: 95 %, by bootstrap over {plural(size, 'byte')} that all held out")
    return scores


def _rows_of_scores(scores: Mapping[str, Comparison]) -> list[list[str]]:
    """Format the bits per byte of the held-out text, a row for each fact."""
    if not scores:
        return []
    every = scores.values()
    return [
        ["held-out bits/byte", *(figure(one.bits_per_byte) for one in every)],
        ["95 %", *(_interval(one.low, one.high) for one in every)],
        *(
            [title, *("best" if one.model == one.best else shown(one) for one in every)]
            for title, shown in (
                ("difference from best", lambda one: figure(one.difference)),
                ("95 %", lambda one: _interval(one.difference_low, one.difference_high)),
                ("p", lambda one: figure(one.p_value)),
            )
        ),
    ]


def _interval(low: float | None, high: float | None) -> str:
    return MISSING if low is None else f"{figure(low)} to {figure(high)}"


def _put_curves(losses: Mapping[str, list[tuple[float, float]]]) -> None:
    """Draw the validation losses of the runs by step, if there are any."""
    marks = dict(zip(losses, MARKS, strict=False))
    lines = curve([(mark, losses[name]) for name, mark in marks.items()])
    if lines:
        names = ", ".join(f"{mark} {one_line(name)}" for name, mark in marks.items())
        put("\n".join(["", f"validation loss by step: {names}", *lines, ""]))


def _draw_validation(
    losses: Mapping[str, list[tuple[float, float]]], unit: str, plot: Path
) -> None:
    """Plot the validation losses of several models by step.

    Raises:
        SeqgenError: none were logged.
    """
    from seqgen.cli.shell.pictures import draw_lines

    drawn = {name: points for name, points in losses.items() if points}
    if not drawn:
        raise SeqgenError("these models have no losses by step: there is nothing to draw")
    draw_lines(check_picture(plot, ()), drawn, "step", unit, log="", title="validation loss")

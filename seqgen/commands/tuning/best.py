"""The settings of a study's best trial, as a configuration file for `train --config`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.files import write_bytes

if TYPE_CHECKING:
    from seqgen.commands.tuning.study import TrialRecord


def write_best(
    path: Path,
    best: TrialRecord,
    settings: Mapping[str, Any],
    budget: Mapping[str, Any],
    seed: int,
    unit: str,
) -> None:
    """Write the settings of a trial as TOML.

    Args:
        path: of the file.
        best: the trial.
        settings: all of its settings, but those of its budget and of the machine.
        budget: of the trial.
        seed: of its training.
        unit: what its loss is per.
    """
    given = ", ".join(f"--{name} {value:g}" for name, value in budget.items())
    lines = [
        f"# Trial {best.trial} of seqgen tune: {best.val_loss:.4f} nats per {unit} on the held-out",
        f"# part, with {given} --seed {seed}.",
    ]
    found = {name: value for name, value in settings.items() if name in best.settings}
    others = {name: value for name, value in settings.items() if name not in best.settings}
    about = {name: others.pop(name) for name in ("architecture", "preset") if name in others}
    lines += [*map(_assignment, about.items())]
    lines += ["", "# Found by the search.", *map(_assignment, found.items())]
    if others:
        heading = "# Given, or chosen for the time of a trial: delete a line to have it chosen anew"
        lines += ["", heading, *map(_assignment, others.items())]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def _assignment(setting: tuple[str, Any]) -> str:
    name, value = setting
    # TOML knows no null; "none" is what settings read. All else it writes as JSON does.
    value = _typed("none" if value is None else value)
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _typed(value: Any) -> Any:
    """Return the number, or the truth value, that a `--set` has given as text."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if isinstance(read, int | float) else value

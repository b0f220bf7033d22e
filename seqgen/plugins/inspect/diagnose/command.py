"""`seqgen diagnose`: gradients by distance, weights, units and attention of a trained model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen import store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs
from seqgen.cli.shell.model_options import Device, ModelName
from seqgen.cli.shell.output import RecordedOutput, put
from seqgen.cli.shell.output_files import Curves, check_picture
from seqgen.cli.shell.tables import curve, declared_columns, figure, put_columns, put_table
from seqgen.settings import Options, Panel, file_argument, setting
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.plugins.inspect.diagnose.diagnose import Diagnosis
    from seqgen.plugins.inspect.diagnose.distance import Distance

# The table has these distances; the picture, the file and the records have all.
SHOWN = (0, 1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750, 1000)


class Measured(Options, panel=Panel.MEASURED):
    """Measurements to make, and the text to make them on."""

    text: str = file_argument("A text file, or - for standard input.", "TEXT")
    distance: int | None = setting(
        "How many tokens back to follow the gradient of a loss.",
        low=0,
        without="100, or what the model's window and the lines of the text allow",
    )
    layer: int | None = setting(
        "Follow gradients to the output of this layer, counted from 0.",
        low=0,
        without="the last of a recurrent network, else the vectors that the first one reads",
    )


@takes_options
def diagnose(
    measured: Measured, model: ModelName, curves: Curves, machine: Device, out: RecordedOutput
) -> None:
    """Look inside a neural model: how far its gradients reach, and how each layer is doing.

    Shows the gradient of a loss by distance through time, with its bound for plain recurrent
    networks; norms of weights, gradients and updates by layer; saturated and dead units; and the
    entropy of a transformer's attention.
    """
    from seqgen.plugins.inspect.diagnose.diagnose import diagnose as look
    from seqgen.store.loading import load

    source = Inputs(out.quiet).open_one(measured.text)
    plot = None if curves.plot is None else check_picture(curves.plot, [source])
    precision = "float32" if machine.device == "mps" else "float64"
    stored = store.find_all(model.model).network_for("diagnose", out.announce)
    loaded = load(stored, machine.device, precision)
    out.uses([loaded])
    chunks = source.chunks(loaded.data.newlines)
    diagnosis = look(loaded, chunks, measured.distance, measured.layer)
    if plot is not None:
        draw_distances(plot, diagnosis.summary.model, diagnosis.distances)
    found = diagnosis.distances, diagnosis.layers, diagnosis.heads, [diagnosis.summary]
    if out.records(chain.from_iterable(found)):
        return
    _put_distances(diagnosis)
    put_columns(declared_columns(diagnosis.layers), diagnosis.layers)
    _put_heads(diagnosis)
    about = diagnosis.summary
    size = plural(about.tokens, "token")
    out.notice(f"{about.model}: means over {plural(about.windows, 'window')} of {size}")


def _put_distances(diagnosis: Diagnosis) -> None:
    """Print the gradients at some distances as a table, and all as a picture."""
    last = diagnosis.distances[-1].distance
    bounded = diagnosis.distances[0].bound is not None
    shown = [d for d in diagnosis.distances if d.distance in SHOWN or d.distance == last]
    put_columns(declared_columns(shown), shown, left=0)
    lines = curve(
        [
            ("-", [(d.distance, math.log10(d.bound)) for d in diagnosis.distances if d.bound]),
            (
                "o",
                [(d.distance, math.log10(d.grad_norm)) for d in diagnosis.distances if d.grad_norm],
            ),
        ]
    )
    if lines:
        marks = "o gradient norm, - its bound" if bounded else "o gradient norm"
        put("\n".join(["", f"log10 of the norm by distance: {marks}", *lines, "", ""]))


def _put_heads(diagnosis: Diagnosis) -> None:
    if not diagnosis.heads:
        return
    put("\n")
    measures = {
        "attention entropy, nats": lambda h: (h.entropy, h.entropy_unscaled),
        "gradient of its softmax": lambda h: (h.softmax_gradient, h.softmax_gradient_unscaled),
    }
    for name, measure in measures.items():
        rows = [
            [f"layer {h.layer}, head {h.head}", *(figure(x, 3) for x in measure(h))]
            for h in diagnosis.heads
        ]
        put_table([name, "as trained", "without 1/sqrt(D)"], rows)
    loss, without = diagnosis.summary.loss, diagnosis.summary.loss_unscaled
    uniform = figure(diagnosis.heads[0].entropy_uniform, 3)
    put(
        f"\nuniform attention would have {uniform} nats; loss {figure(loss)} nats/token, "
        f"{figure(without)} without 1/sqrt(D)\n"
    )


def draw_distances(plot: Path, model: str, points: Sequence[Distance]) -> None:
    """Plot a model's gradients by distance, and their bound if they have one."""
    from seqgen.cli.shell.pictures import draw_lines

    series = {"gradient norm": [(d.distance, d.grad_norm) for d in points]}
    if points[0].bound is not None:
        series["its bound"] = [(d.distance, d.bound) for d in points]
    title = f"{model}: gradient of a loss by distance"
    draw_lines(plot, series, "distance in tokens", "norm", log="y", marker="", title=title)

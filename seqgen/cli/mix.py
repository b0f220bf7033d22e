"""`seqgen mix`: a model made of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import completion, options
from seqgen.cli.fit import HELD_OUT
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import Inputs, file_name
from seqgen.cli.output import put_record, say
from seqgen.cli.outputs import check_replaced_model
from seqgen.cli.pairs import ScoredInput, as_text, held_out_by
from seqgen.cli.tables import figure, weight
from seqgen.configs.panels import MODEL, SAVING
from seqgen.errors import UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.commands.mixing import Mixed


def _numbers(text: str) -> list[float]:
    """Return the numbers of `--weights`.

    Raises:
        UsageError: one is no number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--weights is numbers with commas, such as 0.7,0.3, not {text!r}"
        ) from None


def mix(
    parts: Annotated[
        list[str],
        typer.Argument(
            help="Trained models to mix, two or more: names or paths.",
            metavar="PARTS",
            show_default=False,
            autocompletion=completion.models,
        ),
    ],
    name: Annotated[
        str | None, value("NAME", SAVING, "Name of the mixture.", default="made from the parts'")
    ] = None,
    weights: Annotated[
        str | None,
        value("X,X", MODEL, "Weights of the parts, which sum to 1.", default="fitted by EM"),
    ] = None,
    fit: Annotated[
        str | None,
        value(
            "FILE",
            MODEL,
            "Fit the weights on this text.",
            default="the first half of what all parts hold out",
            parser=file_name,
        ),
    ] = None,
    by: Annotated[
        str | None,
        value(
            "order",
            MODEL,
            "Fit weights for each length of context that the first n-gram model among the parts "
            "has seen.",
            default=False,
            complete=completion.one_of("order"),
        ),
    ] = None,
    copy: Annotated[
        bool,
        flag(
            "--copy",
            SAVING,
            "Keep copies of the parts, so that the mixture also works where they are not.",
        ),
    ] = False,
    overwrite: Annotated[
        bool, flag("--overwrite", SAVING, "Replace the model of that name.")
    ] = False,
    batch_size: options.BatchSize = 32,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Mix models into a new one, which every command takes.

    The probability of a token is the weighted sum of what the parts give it. They must have the
    same tokenizer. The new model refers to its parts; with --copy it keeps copies.
    """
    from seqgen.commands.mixing import combine, store_mixture
    from seqgen.configs import PRECISIONS, choice

    if weights is not None and fit is not None:
        raise UsageError("give --weights or --fit, not both")
    if by not in (None, "order"):
        raise UsageError(f"--by is order, not {by}")
    numbers = None if weights is None else _numbers(weights)
    if overwrite and fit not in (None, "-", HELD_OUT):
        check_replaced_model(name, [fit])
    loaded = combine(parts, device, choice("--precision", precision, PRECISIONS))
    source = _text(loaded, None if fit == HELD_OUT else fit, weights is None, quiet)
    mixed = store_mixture(
        loaded,
        name=name,
        weights=numbers,
        text=None if source is None else lambda model: as_text(model, source),
        by_order=by is not None,
        held_out=fit in (None, HELD_OUT),
        copy=copy,
        overwrite=overwrite,
        batch_size=batch_size,
    )
    if json:
        put_record(mixed)
    if not quiet:
        _report(mixed)


def _text(loaded: LoadedModel, fit: str | None, needed: bool, quiet: bool) -> ScoredInput | None:
    """Return the text to fit weights on; or, if none is needed, None where none is held out.

    Raises:
        UsageError: the parts hold out no text, or different ones, and no other is given.
    """
    if fit is not None:
        return Inputs(quiet).open_one(fit)
    if loaded.stored.holds_out:
        return held_out_by([loaded], quiet=True)
    if not needed:
        return None
    names = " and ".join(part.name for part in loaded.stored.parts)
    raise UsageError(
        f"{names} have no held-out text in common: give --fit FILE with text that none of them "
        "was trained on, or --weights"
    )


def _report(mixed: Mixed) -> None:
    """Say what was stored."""

    def weighted(weights: Sequence[float]) -> str:
        pairs = zip(mixed.parts, weights, strict=True)
        return ", ".join(f"{part} {weight(value)}" for part, value in pairs)

    nats = "" if mixed.nll_nats is None else f"; {figure(mixed.nll_nats)} nats in all"
    if mixed.held_out_loss is not None:
        nats += (
            f", {figure(mixed.held_out_loss)} nats/token on the half of the held-out text that "
            "the weights were not fitted on"
        )
    say(f"{mixed.name}: {weighted(mixed.weights)}{nats}")
    for order, row in enumerate(mixed.by_order or ()):
        say(f"  after {plural(order, 'token')} matched: {weighted(row)}")

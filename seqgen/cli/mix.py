"""`seqgen mix`: build a mixture of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from seqgen import store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs
from seqgen.cli.shell.model_options import ExactMachine
from seqgen.cli.shell.output import Output, RecordedOutput, say
from seqgen.cli.shell.output_files import check_replaced_model
from seqgen.cli.shell.pairs import HELD_OUT, ScoredInput, as_scored, held_out_input
from seqgen.cli.shell.tables import figure, weight
from seqgen.errors import UsageError
from seqgen.settings import (
    REQUIRED,
    Options,
    Panel,
    argument,
    ranges,
    require,
    setting,
    with_default,
)
from seqgen.settings.generation import WritingOptions
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.scoring.mixing import MixtureRecord
    from seqgen.store.loaded import LoadedModel


class Mixing(Options, panel=Panel.SAVING):
    """Options of `seqgen mix`: parts, weights, and the name of the mixture."""

    parts: tuple[str, ...] = argument(
        "Trained models to mix, two or more: names or paths.",
        "PARTS",
        default=REQUIRED,
        completes="models",
    )
    name: str | None = setting(
        "Name of the mixture.", metavar="NAME", without="made from the parts'"
    )
    weights: tuple[float, ...] = setting(
        "Weights of the parts, which sum to 1.",
        bounds=ranges.SHARES,
        listed=True,
        metavar="X,X",
        panel=Panel.MODEL,
        without="fitted by EM",
        conflicts="--fit",
    )
    fit: str | None = setting(
        "Fit the weights on this text.",
        reads="file",
        panel=Panel.MODEL,
        without="the first half of what all parts hold out",
    )
    by: Literal["order", "context"] | None = setting(
        "What the mixture depends on: order, weights for each length of context that the first "
        "n-gram model among the parts has seen; or context, a gate that also sees how sure each "
        "part is of the next token.",
        panel=Panel.MODEL,
    )
    copy: bool = setting(
        "Keep copies of the parts, so that the mixture also works where they are not.",
    )
    overwrite: bool = setting("Replace the model of that name.")
    batch_size: int = with_default(WritingOptions, "batch_size", 32)

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in self.parts:
            name, _, weight = part.rpartition(":")
            weighted = name and weight[:1].isdigit() and "/" not in part
            require(not weighted, f"write {name} instead of {part}: --weights X,X sets weights")


@takes_options
def mix(mixing: Mixing, machine: ExactMachine, out: RecordedOutput) -> None:
    """Mix models into a new one, which works in every command.

    The probability of a token is the weighted sum of its probabilities in the parts. Parts with
    different tokenizers are mixed byte by byte. The new model refers to its parts; with --copy it
    keeps copies.
    """
    from seqgen.scoring.mixing import combine, store_mixture
    from seqgen.store.loading import Work
    from seqgen.training.events import notify_if_slow

    fit = mixing.fit
    if mixing.overwrite and fit not in (None, "-", HELD_OUT):
        check_replaced_model(mixing.name, [fit])
    work = Work.of_files([] if fit in (None, HELD_OUT) else [fit])
    loaded = combine(mixing.parts, machine.device, machine.precision, work)
    out.uses([loaded])
    for name in mixing.parts:
        if by := getattr(store.find_all(name), "by", None):
            said = f"the weights of {name} that depend on the context are left out"
            fits = f"; --by {by} fits them for all parts"
            out.notice(said if mixing.by == by or mixing.weights else said + fits)
    source = _text(loaded, None if fit == HELD_OUT else fit, not mixing.weights, out)
    with notify_if_slow(lambda event: out.notice(event.text), "scoring a text with the parts"):
        mixed = store_mixture(
            loaded,
            name=mixing.name,
            weights=mixing.weights or None,
            text=None if source is None else lambda model: as_scored(model, source),
            by=mixing.by,
            held_out=fit in (None, HELD_OUT),
            copy=mixing.copy,
            overwrite=mixing.overwrite,
            batch_size=mixing.batch_size,
        )
    out.record(mixed)
    if not out.quiet:
        _report(mixed)


def _text(loaded: LoadedModel, fit: str | None, needed: bool, out: Output) -> ScoredInput | None:
    """Open the text to fit mixture weights on; None if nothing is held out and no fit is needed.

    Raises:
        UsageError: the parts hold out no text, or different ones, and no other is given.
    """
    if fit is not None:
        return Inputs(out.quiet).open_one(fit)
    if loaded.stored.holds_out:
        return held_out_input([loaded], quiet=True)
    if not needed:
        return None
    names = " and ".join(part.name for part in loaded.stored.parts)
    raise UsageError(
        f"{names} have no held-out text in common: give --fit FILE with text that none of them "
        "was trained on, or --weights"
    )


def _report(mixed: MixtureRecord) -> None:
    """Print where the mixture is stored, with its parts and weights."""

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
    if mixed.gate is not None:
        say(f"  mixed by a gate of {plural(sum(map(len, mixed.gate)), 'coefficient')}")

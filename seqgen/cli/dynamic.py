"""The options of dynamic evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from seqgen.cli.help import value
from seqgen.cli.options import refuse_without
from seqgen.configs.panels import MODEL
from seqgen.errors import UsageError

if TYPE_CHECKING:
    from seqgen.commands.scoring.dynamic import Dynamic

Rate = Annotated[
    float | None,
    value(
        "RATE",
        MODEL,
        "Train the model on the text while it is scored, by SGD with this learning rate (dynamic "
        "evaluation). The stored model stays as it is.",
        default=False,
    ),
]
Decay = Annotated[
    float | None,
    value(
        "X",
        MODEL,
        "Share by which the weights return to the trained ones at each update of --dynamic.",
        default="0",
    ),
]
Segment = Annotated[
    int | None,
    value(
        "N",
        MODEL,
        "Number of tokens between the updates of --dynamic.",
        default="20 characters or bytes; 5 other tokens",
    ),
]


def dynamic_of(
    rate: float | None, decay: float | None, segment: int | None, per_line: bool
) -> Dynamic | None:
    """Return how a model is to learn from the text that it scores, or None.

    Raises:
        UsageError: a value is out of bounds or belongs to nothing; or lines are scored alone.
    """
    from seqgen.commands.scoring.dynamic import Dynamic

    if rate is None:
        given = {"--dynamic-decay": decay, "--dynamic-segment": segment}
        refuse_without("--dynamic: give its learning rate as well", given)
        return None
    if per_line:
        raise UsageError("give --per-line or --dynamic, not both")
    return Dynamic(rate, decay or 0.0, segment)

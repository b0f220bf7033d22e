"""Choose the width of a network for a number of parameters, as `--parameters` asks."""

from __future__ import annotations

import functools
from collections.abc import Collection

from seqgen.engines.memory_limit import nearest_widths, parameter_count
from seqgen.errors import UsageError
from seqgen.settings import MOST_WIDTH, require
from seqgen.training.datasets.prepared import VocabSizes
from seqgen.training.plan import Plan

WIDTH = "hidden_size"
# How far the nearest count may be from the one that is asked for.
TOLERANCE = 0.05
# The narrowest network of any architecture has a width below this, unless a setting fixes it.
NARROWEST_BELOW = 2048


def prepare_width_search(plan: Plan, flags: Collection[str]) -> Plan:
    """Start `--parameters` from the smallest valid width; refuse it where a width is fixed.

    What a budget would choose beside the width, such as the number of layers, keeps its default.

    Raises:
        UsageError: the width is given or does not exist, or no width goes with the rest.
    """
    require(WIDTH not in flags, "give --parameters or --hidden-size, not both")
    require(
        not plan.is_estimated,
        f"--parameters has no meaning: {plan.architecture} is counted, and has no width",
    )
    require(plan.origin is None, "--parameters is fixed by --init-from")
    fields = plan.config_class.fields()
    chosen = {name for size in plan.config_class.sizes for name in size.settings} - {WIDTH}
    shape = {name: fields[name].default for name in chosen & fields.keys() - plan.given.keys()}
    if "seq_len" in chosen:  # learned positions have as many parameters as the window has tokens
        shape["seq_len"] = plan.training.seq_len
    return plan.with_given({**shape, WIDTH: _allowed_widths(plan.with_given(shape))[0]})


def with_parameters(plan: Plan, parameters: int, sizes: VocabSizes, seq_len: int) -> Plan:
    """Choose the width whose number of parameters is nearest to the one asked for.

    Every parameter counts: embeddings and softmax layer too, shared ones once.

    Args:
        plan: what is to be trained, with an open width.
        parameters: how many are asked for.
        sizes: of the vocabularies.
        seq_len: the training window, which learned positions depend on.

    Raises:
        UsageError: no width comes within `TOLERANCE`; names the nearest two.
    """

    @functools.cache
    def count(width: int) -> int:
        shape = plan.with_given({WIDTH: width}).model_config(sizes, seq_len)
        return parameter_count(plan.model_class, shape)

    near = nearest_widths(count, _allowed_widths(plan), parameters)
    best = min(near, key=lambda width: abs(count(width) - parameters))
    if abs(count(best) - parameters) > TOLERANCE * parameters:
        nearest = " and ".join(f"{count(width):,} ({WIDTH} {width:,})" for width in near)
        raise UsageError(
            f"--parameters: {plan.architecture} has no width with about {parameters:,} parameters; "
            f"the nearest {'are' if len(near) > 1 else 'is'} {nearest}"
        )
    return plan.with_given({WIDTH: best})


def _allowed_widths(plan: Plan) -> range:
    """List the widths that the other settings allow, such as multiples of the number of heads.

    Raises:
        UsageError: none does; why the first does not.
    """

    def why_not(width: int) -> UsageError | None:
        try:
            plan.with_given({WIDTH: width}).check_shape()
        except UsageError as error:
            return error
        return None

    wrong = why_not(1)
    if wrong is None:
        return range(1, MOST_WIDTH + 1)
    unit = next((n for n in range(2, NARROWEST_BELOW) if why_not(n) is None), None)
    if unit is None:
        raise wrong
    # All multiples are possible, as with heads, or one width alone, that of a tied embedding.
    return range(unit, unit + 1 if why_not(2 * unit) else MOST_WIDTH + 1, unit)

"""Settings drawn from each configuration's own bounds, so that no two widths need be equal."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args, get_origin

from helpers_cli import known_architectures
from hypothesis import strategies as st

from seqgen import registry
from seqgen.errors import UsageError
from seqgen.settings.setting import Bounds

# Numbers are drawn from their lowest value on, so that models stay small.
MOST_ABOVE_LOWEST = 7
# Settings in words, whose values no type lists.
WORDS = {"cell": known_architectures(["rnn", "gru", "lstm", "rhn", "mingru"])}


def values_of(name: str, kind: Any, bounds: Bounds) -> st.SearchStrategy[Any]:
    """Return the values of a setting: some at its bounds, some between."""
    if name in WORDS:
        return st.sampled_from(WORDS[name])
    options = get_args(kind) if get_origin(kind) not in (None, Literal) else (kind,)
    return st.one_of(*(_values_of_type(option, bounds) for option in options))


def _values_of_type(kind: Any, bounds: Bounds) -> st.SearchStrategy[Any]:
    if kind is type(None):
        return st.none()
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    low = next(x for x in (bounds.low, bounds.above) if x is not None)
    high = min(x for x in (bounds.high, bounds.below, low + MOST_ABOVE_LOWEST) if x is not None)
    if kind is int:
        return st.integers(low, high)
    return st.sampled_from([low, 0.7 * low + 0.3 * high, high]).filter(bounds.__contains__)


@st.composite
def settings_of(draw: st.DrawFn, architecture: str, base: dict[str, Any]) -> dict[str, Any]:
    """Draw settings with which a model of the architecture can be made.

    Settings are drawn in a random order. One that does not go with those before it, which the
    architecture refuses, is left out.

    Args:
        draw: of hypothesis.
        architecture: its name in the registry.
        base: what holds where nothing else is drawn; it makes a small model.
    """
    row = registry.architecture(architecture)
    config_class = row.load_config()
    kinds, fields = config_class.types(), config_class.fields()
    drawable = [name for name in fields if kinds[name] is not str or name in WORDS]
    chosen = draw(st.lists(st.sampled_from(drawable), unique=True, max_size=8))
    known = {field.name for field in dataclasses.fields(config_class)}
    settings = {name: value for name, value in base.items() if name in known}
    settings["vocab_size"] = draw(st.integers(2, 9))
    for name in chosen:
        value = draw(values_of(name, kinds[name], fields[name].metadata["bounds"]))
        tried = {**settings, name: value}
        try:
            row.load_model()(config_class(**tried))
        except UsageError as refused:
            assert "\n" not in str(refused)
            continue
        settings = tried
    return settings

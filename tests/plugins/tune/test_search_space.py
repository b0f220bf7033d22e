"""The values of --search."""

import pytest

from seqgen.errors import UsageError
from seqgen.plugins.tune.search_space import convert_dimension, read_search, scale_dimension
from seqgen.settings import Bounds, Choices, Span


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("lr=1e-3:1e-1:log", "lr", Span("1e-3", "1e-1", True)),
        ("dropout = 0:0.5", "dropout", Span("0", "0.5")),
        ("hidden-size=8,16", "hidden_size", Choices(("8", "16"))),
    ],
)
def test_three_forms_are_read(text, name, values):
    assert read_search(text) == (name, values)


@pytest.mark.parametrize("text", ["lr", "=1:2", "lr=", "lr=1:2:3", "lr=1:2:log:4", "lr=1,,2"])
def test_other_forms_are_refused(text):
    with pytest.raises(UsageError, match="--search takes"):
        read_search(text)


@pytest.mark.parametrize(
    ("texts", "kind", "low", "values"),
    [
        (Span("1", "4"), int, 1, Span(1, 4)),
        (Span("1", "4"), float | None, None, Span(1.0, 4.0)),
        (Choices(("1", "1.0", "2")), float, None, Choices((1.0, 2.0))),
        (Choices(("none", "3")), int | None, 1, Choices((None, 3))),
    ],
)
def test_ends_get_the_type_of_the_setting_and_keep_its_bounds(texts, kind, low, values):
    assert convert_dimension("x", texts, kind, Bounds(low=low)) == values


def test_multiples_are_taken_of_the_recipe():
    span = Span(0.5, 2, log=True, relative=True)
    assert scale_dimension(span, 0.01) == Span(0.005, 0.02, log=True)
    choices = Choices((0.25, 0.5, 1, 2), relative=True)
    assert scale_dimension(choices, 2) == Choices((1, 2, 4))

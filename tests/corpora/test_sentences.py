"""The texts and scripts of the course: the same bytes every time, and numbers that must hold."""

import math
import random

import derivatives
import points
import pytest
import sentences
from places import ROOT

FILES = {"tagged_watch": "watch.tsv", "virus": "virus.tsv", "exciting": "exciting.tsv"}
FILES["reverse"] = "reverse.tsv"


@pytest.mark.parametrize("name", sentences.MADE)
def test_a_text_is_what_its_function_yields(name):
    path = ROOT / "corpora" / FILES.get(name, f"{name}.txt")
    assert path.read_text("utf-8") == "".join(f"{line}\n" for line in sentences.MADE[name]())


@pytest.mark.parametrize("way", derivatives.WAYS)
def test_all_ways_to_differentiate_agree(way):
    near = 1e-3 if "1e-12" in way else 1e-8
    for x1, x2 in ((2.0, 5.0), (0.7, -1.3)):
        found = derivatives.WAYS[way](x1, x2)
        assert found == pytest.approx((1 / x1 + x2, x1 - math.cos(x2)), rel=near)


def test_the_way_of_a_point_is_the_last_draw_or_the_mean_of_all():
    draw = random.Random(1)
    drawn = [draw.choice(points.POINTS) for _ in range(points.STEPS)]
    assert points.run(False)[1:] == pytest.approx(drawn)
    means = [sum(drawn[: k + 1]) / (k + 1) for k in range(points.STEPS)]
    assert points.run(True)[1:] == pytest.approx(means)
    assert points.run(False, stochastic=False)[1:] == pytest.approx([0.0] * points.STEPS)

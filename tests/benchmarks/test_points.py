"""The lectures' 21 points against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from helpers_cli import needs, records, refusal

from benchmarks.__main__ import run
from benchmarks.points import CASES, DECAYS, POINTS, drawn, measure
from seqgen.training.optimizers import OPTIMIZERS, POLYNOMIALS

pytestmark = needs("textbook")  # some of the cases
STEPS, RATE, SEED = 60, 0.5, 3


def in_numpy(rule, s, gradient, decay):
    """Return the path of a rule, written out for one number."""
    x, theta, path = np.arange(-10.0, 11.0), -20.0, [-20.0]
    b1, b2 = (0.95, None) if rule == "muon" else (0.9, 0.99)
    eps, mu = 1e-8, s.get("momentum", 0.0)
    m = v = 0.0
    squares = []
    for k, i in enumerate(drawn(STEPS, SEED)):
        rate = {"constant": 1.0, "alpha_0/(1+k)": 1 / (1 + k), "alpha_0/sqrt(k)": (k + 1) ** -0.5}
        alpha = RATE * rate[decay]
        g = 2 * (theta - x.mean()) if gradient == "full" else 2 * (theta - x[i])
        root = (lambda v: np.sqrt(v + eps)) if s.get("eps_inside") else lambda v: np.sqrt(v) + eps
        if rule == "sgd":
            m = g if k == 0 else mu * m + (1 - s.get("dampening", 0.0)) * g
            theta -= alpha * (g + mu * m if s.get("nesterov") else m)
        elif rule == "adagrad":
            squares.append(g * g)
            theta -= alpha * g / root(sum(squares[-s.get("adagrad_window", 10**9) :]))
        elif rule == "rmsprop":
            v = b2 * v + (1 - b2) * g * g
            theta -= alpha * g / root(v)
        elif rule in ("adam", "adamw"):
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            theta -= alpha * (m / (1 - b1 ** (k + 1))) / root(v / (1 - b2 ** (k + 1)))
        else:
            m = b1 * m + g
            u = np.sign(g + b1 * m)
            for a, b, c in POLYNOMIALS:
                u = a * u + b * u**3 + c * u**5
            theta -= alpha * u
        path.append(theta)
    return path


@pytest.mark.fast_for(
    "sgd constant0",
    "adam eps_inside constant",
    "rmsprop eps_inside constant",
    "muon constant",
    rest="slow",
)
@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c.name} {c.decay}" for c in CASES])
def test_every_path_is_that_of_numpy(number):
    case = CASES[number]
    found = measure(STEPS, RATE, SEED)[number]
    expected = in_numpy(case.rule, case.settings, case.gradient, case.decay)
    np.testing.assert_allclose(found.path, expected, rtol=1e-12, atol=1e-12)
    assert found.final == found.path[-1]
    assert found.final_loss == pytest.approx(np.mean((POINTS - found.final) ** 2))


@pytest.mark.slow
def test_what_the_lectures_say_of_the_problem():
    """The full gradient arrives at once; one point at a time bounces, unless the rate falls."""
    full, constant, falling, root = measure(1000, 0.5, 0)[:4]
    assert full.path[1:] == [0.0] * 1000
    # theta - 0.5 * 2 (theta - x) = x: a constant rate jumps to the point that was drawn.
    np.testing.assert_allclose(constant.path[1:], POINTS[drawn(1000, 0)], atol=1e-9)
    assert constant.mean_distance > 4
    # The first step leaves theta_0 for good; from then on theta is near the mean of all points.
    assert falling.mean_distance < 0.5 and root.mean_distance < 2
    assert set(DECAYS) == {"constant", "alpha_0/(1+k)", "alpha_0/sqrt(k)"}


@pytest.mark.slow
def test_the_command_draws_tables_and_pictures(tmp_path, capsys):
    found = records(capsys, "points", "--steps", 20, by=run)
    keys = ["rule", "gradient", "decay", "final", "final_loss", "mean_distance", "path"]
    assert [list(record) for record in found] == [keys] * len(CASES)
    assert {record["rule"].split()[0] for record in found} == set(OPTIMIZERS)
    capsys.readouterr()
    assert run(["points", "--steps", "20"]) == 0
    shown = capsys.readouterr().out
    assert "theta by step" in shown and "alpha_0/sqrt(k)" in shown
    assert ".svg or .png" in refusal(capsys, "points", "--plot", "a.gif", by=run)
    pytest.importorskip("matplotlib")
    assert run(["points", "--steps", "20", "--plot", str(tmp_path / "a.svg")]) == 0
    assert "theta" in (tmp_path / "a.svg").read_text()

"""The mean of 21 points by stochastic gradient descent, as in a lecture (course step 2.8).

python corpora/points.py          # theta of three runs after 0, 1, 2, 5, 10, ... steps
python corpora/points.py --all    # after every step
"""

from __future__ import annotations

import random
import sys

POINTS = [float(x) for x in range(-10, 11)]
START, RATE, STEPS = -20.0, 0.5, 100


def run(decay: bool, stochastic: bool = True, seed: int = 1) -> list[float]:
    """Return theta from `START` on: steps along the gradient of (x - theta)^2.

    Args:
        decay: step k has the rate 0.5 / (1 + k) instead of 0.5.
        stochastic: take the gradient of one random point instead of the mean over all.
        seed: draws the points.
    """
    theta, draw = [START], random.Random(seed)
    for k in range(STEPS):
        seen = [draw.choice(POINTS)] if stochastic else POINTS
        gradient = sum(2 * (theta[-1] - x) for x in seen) / len(seen)
        theta.append(theta[-1] - (RATE / (1 + k) if decay else RATE) * gradient)
    return theta


if __name__ == "__main__":
    runs = run(False, stochastic=False), run(False), run(True)
    shown = range(STEPS + 1) if "--all" in sys.argv else (0, 1, 2, 5, 10, 20, 50, 99, 100)
    sys.stdout.write("step  all points  one point  one point, decay\n")
    for k in shown:
        full, plain, decayed = (theta[k] + 0.0 for theta in runs)
        sys.stdout.write(f"{k:4}{full:12.3f}{plain:11.3f}{decayed:18.3f}\n")

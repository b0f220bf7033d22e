"""Four ways to differentiate f(x1, x2) = ln x1 + x1 x2 - sin x2 (course step 2.7).

python corpora/derivatives.py
"""

from __future__ import annotations

import math
import sys

import sympy  # installed with torch
import torch


def f(x1, x2, log=math.log, sin=math.sin):
    """Return f for numbers, symbols, dual numbers or tensors."""
    return log(x1) + x1 * x2 - sin(x2)


def by_hand(x1, x2):
    """Return both derivatives by calculus."""
    return 1 / x1 + x2, x1 - math.cos(x2)


def numerical(x1, x2, h=1e-6):
    """Return central differences: two calls of f per input, with an error of O(h^2)."""
    first = (f(x1 + h, x2) - f(x1 - h, x2)) / (2 * h)
    return first, (f(x1, x2 + h) - f(x1, x2 - h)) / (2 * h)


def symbolic():
    """Return both derivatives as expressions: rules on symbols, before any number is known."""
    x1, x2 = sympy.symbols("x1 x2")
    expression = f(x1, x2, sympy.log, sympy.sin)
    return {x: sympy.diff(expression, x) for x in (x1, x2)}


def by_symbols(x1, x2):
    """Return both derivatives by putting numbers into the expressions."""
    found = symbolic()
    given = dict(zip(found, (x1, x2), strict=True))
    return tuple(float(expression.subs(given)) for expression in found.values())


class Dual:
    """A value and its derivative with respect to one input."""

    def __init__(self, value, slope=0.0):
        """Take both."""
        self.value, self.slope = value, slope

    def __add__(self, other):
        """Return the sum: slopes add up."""
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other):
        """Return the difference."""
        return Dual(self.value - other.value, self.slope - other.slope)

    def __mul__(self, other):
        """Return the product, by the product rule."""
        slope = self.slope * other.value + self.value * other.slope
        return Dual(self.value * other.value, slope)

    def log(self):
        """Return the logarithm, by the chain rule."""
        return Dual(math.log(self.value), self.slope / self.value)

    def sin(self):
        """Return the sine, by the chain rule."""
        return Dual(math.sin(self.value), self.slope * math.cos(self.value))


def forward(x1, x2):
    """Return forward mode's derivatives: one pass of dual numbers per input."""
    first = f(Dual(x1, 1.0), Dual(x2), Dual.log, Dual.sin)
    return first.slope, f(Dual(x1), Dual(x2, 1.0), Dual.log, Dual.sin).slope


def reverse(x1, x2):
    """Return reverse mode's derivatives, by PyTorch: one pass back for all inputs."""
    inputs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (x1, x2)]
    f(*inputs, torch.log, torch.sin).backward()
    return tuple(x.grad.item() for x in inputs)


WAYS = {
    "by hand": by_hand,
    "numerical": numerical,
    "numerical, h = 1e-12": lambda x1, x2: numerical(x1, x2, 1e-12),
    "symbolic": by_symbols,
    "automatic, forward": forward,
    "automatic, reverse": reverse,
}

if __name__ == "__main__":
    for symbol, expression in symbolic().items():
        sys.stdout.write(f"df/d{symbol} = {expression}\n")
    sys.stdout.write(f"\nf(2, 5) = {f(2.0, 5.0):.6f}\n\n{'':<22}{'df/dx1':>14}{'df/dx2':>14}\n")
    for name, way in WAYS.items():
        first, second = way(2.0, 5.0)
        sys.stdout.write(f"{name:<22}{first:14.9f}{second:14.9f}\n")

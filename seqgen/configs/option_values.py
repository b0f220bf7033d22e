"""Options of the command line that are a choice, or texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from seqgen.configs.settings import require, short
from seqgen.errors import did_you_mean

PRECISIONS = ("auto", "float32", "float64", "bf16")
# Of commands that only write or score.
READING_PRECISIONS = (*PRECISIONS, "int8")
COUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:e\+?(\d{1,2}))?([kmb]?)", re.IGNORECASE)
THOUSANDS = {"": 0, "k": 3, "m": 6, "b": 9}


def choice(flag: str, value: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is allowed.

    Raises:
        UsageError: it is not; names the flag and what is.
    """
    allowed = list(allowed)
    hint = did_you_mean(value, allowed) or f"; it is one of {', '.join(allowed)}"
    require(value in allowed, f"{flag} is not {value!r}{hint}")
    return value


def count_of(flag: str, text: str) -> int:
    """Return the whole number that "30000", "3e4", "30k" or "1.5M" means.

    Raises:
        UsageError: it means none, or none above 0; names the flag.
    """
    match = COUNT.fullmatch(text.strip())
    number = Fraction(0)
    if match is not None:
        digits, exponent, unit = match.groups()
        power = int(exponent or 0) + THOUSANDS[unit.lower()]
        number = Fraction(digits.rstrip(".")) * 10**power
    whole = number.denominator == 1 and number > 0
    require(whole, f"{flag} must be a whole number (30000, 3e4, 30k or 1.5M), not {short(text)!r}")
    return int(number)

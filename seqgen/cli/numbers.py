"""Numbers on the command line that may be left out, or are listed with commas."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.cli.tables import count
from seqgen.configs import require

# Options whose number may be left out, and what stands for it then.
WITHOUT_NUMBER = {"--with-ngram": "0"}


def fill_in_numbers(arguments: Sequence[str]) -> list[str]:
    """Return arguments with a number after each option that may stand without one."""
    filled: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            return filled + list(arguments[at:])
        following = next(iter(arguments[at + 1 : at + 2]), "")
        alone = argument in WITHOUT_NUMBER and not following.removeprefix("-").isdecimal()
        filled.append(f"{argument}={WITHOUT_NUMBER[argument]}" if alone else argument)
    return filled


def listed_numbers(flag: str, text: str, most: int, example: str) -> list[int]:
    """Return numbers from 1 on that stand with commas between them.

    Args:
        flag: the option, for a message.
        text: its value.
        most: the largest.
        example: of such a value.

    Raises:
        UsageError: it is another text, or one of them is larger.
    """
    parts = [part.strip() for part in text.split(",")]
    # Python refuses to read numbers of thousands of digits.
    digits = [p.lstrip("0") if p.isdecimal() else "" for p in parts]
    fitting = all(0 < len(p) <= len(str(most)) and int(p) <= most for p in digits)
    require(fitting, f"{flag} is numbers from 1 to {count(most)} with commas, such as {example}")
    return [int(p) for p in digits]

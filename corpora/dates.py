"""Write pairs to translate: dates and numbers in words, a tab, and the same in digits.

    python corpora/dates.py > corpora/dates.tsv

gives the same bytes every time: 10,000 pairs, no two of which have the same source.  Half of them
are dates, in several wordings,

    the third of March 1987            1987-03-03
    Tuesday, 3 March 1987              1987-03-03
    March 3rd, nineteen eighty-seven   1987-03-03

and the others are numbers below a million, cardinal, ordinal, negative, or with decimals:

    four hundred and two thousand and six    402006
    the sixty-first                          61st
    minus nineteen                           -19
    seven point oh five                      7.05

Every source has one target.  The words of a date stand in another order than its digits, and the
day of the week has to be passed over, so that a model must find its place in the source; the
digits of a number depend on words that may be missing (`two thousand and six`).
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator

from grammar import Rng

PAIRS = 10_000
SEED = 1752
FIRST, LAST = datetime.date(1600, 1, 1), datetime.date(2099, 12, 31)

SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def cardinal(n: int) -> str:
    """A number from 0 to 999,999 in words."""
    if n < 20:
        return SMALL[n]
    if n < 100:
        return TENS[n // 10] + (f"-{SMALL[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{SMALL[n // 100]} hundred" + (f" and {cardinal(n % 100)}" if n % 100 else "")
    rest = n % 1000
    joint = "" if rest == 0 else " and " if rest < 100 else " "
    return f"{cardinal(n // 1000)} thousand{joint}{cardinal(rest) if rest else ''}"


def ordinal(n: int) -> str:
    """An ordinal from 1 to 999,999 in words: its last word changes."""
    words = cardinal(n)
    at = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[at:]
    if last in ORDINALS:
        return words[:at] + ORDINALS[last]
    return words[:at] + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def ending(n: int) -> str:
    """An ordinal in digits: 1st, 2nd, 3rd, 4th, 11th."""
    teens = n % 100 in (11, 12, 13)
    return str(n) + ("th" if teens else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th"))


def year(n: int) -> str:
    """A year as it is said: nineteen eighty-seven, nineteen oh four, two thousand and six."""
    century, rest = divmod(n, 100)
    if rest == 0:
        return cardinal(n) if century % 10 == 0 else f"{cardinal(century)} hundred"
    if 2000 <= n < 2010:
        return f"two thousand and {cardinal(rest)}"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def date(rng: Rng) -> tuple[str, str]:
    """A day in words, and as the international standard writes it."""
    day = FIRST + datetime.timedelta(days=rng.below((LAST - FIRST).days + 1))
    month, weekday = MONTHS[day.month - 1], DAYS[day.weekday()]
    said = rng.pick([str(day.year), year(day.year)])
    wordings = [
        f"the {ordinal(day.day)} of {month} {said}",
        f"the {ordinal(day.day)} day of {month} in the year {said}",
        f"{month} the {ordinal(day.day)}, {said}",
        f"{month} {ending(day.day)}, {said}",
        f"{day.day} {month} {said}",
        f"{month[:3]} {day.day}, {said}",
        f"{said}, on the {ordinal(day.day)} of {month}",
    ]
    text = rng.pick(wordings)
    return (f"{weekday}, {text}" if rng.chance(30) else text), day.isoformat()


def number(rng: Rng) -> tuple[str, str]:
    """A number in words, and in digits."""
    n = rng.below(rng.pick([100, 1000, 10_000, 1_000_000]))
    kind = rng.below(10)
    if kind < 5:
        return cardinal(n), str(n)
    if kind < 7:
        return f"the {ordinal(n + 1)}", ending(n + 1)
    if kind < 8:
        return f"minus {cardinal(n + 1)}", str(-n - 1)
    digits = [rng.below(10) for _ in range(1 + rng.below(3))]
    said = " ".join("oh" if digit == 0 else SMALL[digit] for digit in digits)
    return f"{cardinal(n)} point {said}", f"{n}.{''.join(map(str, digits))}"


def pairs() -> Iterator[tuple[str, str]]:
    """The pairs: dates and numbers in turn, each source once."""
    rng, seen = Rng(SEED), set()
    makers: tuple[Callable[[Rng], tuple[str, str]], ...] = (date, number)
    while len(seen) < PAIRS:
        source, target = makers[len(seen) % 2](rng)
        if source not in seen:
            seen.add(source)
            yield source, target


def main() -> None:
    """Write the pairs to standard output."""
    sys.stdout.reconfigure(newline="\n")
    for source, target in pairs():
        print(f"{source}\t{target}")


if __name__ == "__main__":
    main()

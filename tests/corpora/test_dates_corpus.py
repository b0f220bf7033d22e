"""The pairs of dates and numbers: the same bytes every time, each source with its one answer."""

import datetime
import subprocess
import sys

import dates
import pytest
from places import CORPORA

from seqgen.text.pairs import TabPairs
from seqgen.text.reading import Text


def test_the_script_gives_the_same_bytes():
    command = [sys.executable, str(CORPORA / "dates.py")]
    made = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    assert made == (CORPORA / "dates.tsv").read_bytes()


def test_every_source_is_there_once_and_dates_are_days():
    pairs = list(TabPairs(Text((CORPORA / "dates.tsv",)), "dates.tsv"))
    assert len({source for source, _ in pairs}) == len(pairs) == 10_000
    days = [(source, target) for source, target in pairs if target[1:].count("-") == 2]
    assert len(days) == 5000
    for source, target in days:
        day = datetime.date.fromisoformat(target)
        assert day.strftime("%b") in source
        weekday = source.split(",")[0]
        if weekday.endswith("day"):
            assert weekday == day.strftime("%A")


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (0, "zero"),
        (40, "forty"),
        (99, "ninety-nine"),
        (100, "one hundred"),
        (315, "three hundred and fifteen"),
        (2006, "two thousand and six"),
        (402_000, "four hundred and two thousand"),
        (999_999, "nine hundred and ninety-nine thousand nine hundred and ninety-nine"),
    ],
)
def test_numbers_in_words(n, words):
    assert dates.cardinal(n) == words


def test_no_two_numbers_have_the_same_words():
    assert len({dates.cardinal(n) for n in range(0, 1_000_000, 7)}) == len(range(0, 1_000_000, 7))


def test_ordinals_endings_and_years():
    said = [dates.ordinal(n) for n in (1, 12, 20, 21, 100, 1003, 2000)]
    assert said == [
        "first",
        "twelfth",
        "twentieth",
        "twenty-first",
        "one hundredth",
        "one thousand and third",
        "two thousandth",
    ]
    endings = [dates.ending(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 111, 1002)]
    assert endings == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "111th",
        "1002nd",
    ]
    years = [dates.year(n) for n in (1600, 1904, 1987, 2000, 2006, 2010, 2099)]
    assert years == [
        "sixteen hundred",
        "nineteen oh four",
        "nineteen eighty-seven",
        "two thousand",
        "two thousand and six",
        "twenty ten",
        "twenty ninety-nine",
    ]

"""Numbers with commas between them, as `--states` and `--ranks` take them."""

import pytest

from seqgen.cli.flags import listed_numbers
from seqgen.errors import UsageError


@pytest.mark.parametrize(
    ("text", "numbers"), [("8", [8]), ("8, 64", [8, 64]), ("0008", [8]), ("9999", [9999])]
)
def test_numbers_are_read(text, numbers):
    assert listed_numbers("--states", text, 9999, "8,64") == numbers


@pytest.mark.parametrize(
    "text", ["", "0", "8,", "-1", "1.5", "x", "10000", "000123456", "9" * 5000]
)
def test_others_are_refused(text):
    with pytest.raises(UsageError, match="--states is numbers from 1 to 9,999 with commas"):
        listed_numbers("--states", text, 9999, "8,64")

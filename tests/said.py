"""Whether a page shows what the program says: the same words, and figures within a tolerance."""

from __future__ import annotations

import json
import re

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?")
# What a clock says, and sizes, whose unit depends on how large they are.
TIME = re.compile(r"(?:(?<![\w.])\d[\d.,]* (?:h|min|ms|µs|s|seconds?|minutes?)\b ?)+")
UNIT = re.compile(r"# (?:K|M|B|bytes|kB|MB|GB)\b")
# The last characters of a line of a picture drawn in text, and the shades of attention.
FRAMES, SHADES = "│┐┘", re.compile("[░▒▓█]+")


def differences(shown: str, said: str, near: float | None = 0.0) -> list[str]:
    """Return the lines of a page that the program does not say; [] if the page is right.

    A line `...` stands for any lines, and one that ends in ` ...` for any end. Times and speeds are
    not compared, and pictures drawn in text only where `near` is 0.

    Args:
        shown: what the page shows.
        said: what the program writes.
        near: the largest relative difference of two figures, apart from one unit of the last digit
            shown; None compares no figures, and lines in any order.
    """
    wanted, found = _lines(shown, near), _lines(said, near)
    if near is None:
        forms = {_form(line) for line in found}
        return [line for line in wanted if line != "..." and _form(line) not in forms]
    missing, at, skips = [], 0, False
    for line in wanted:
        if line == "...":
            skips = True
            continue
        last = len(found) if skips else at + 1
        place = next((i for i in range(at, last) if _same(line, found[i : i + 1], near)), None)
        if place is None:
            missing.append(line)
        at, skips = at + 1 if place is None else place + 1, False
    return missing + [f"not shown: {line}" for line in found[at:] if not skips]


def _lines(text: str, near: float | None) -> list[str]:
    lines, speeds = [], []
    for line in text.rstrip().split("\n"):
        drawn = line.rstrip().endswith(tuple(FRAMES)) or re.match(r" *(?:└┬| \d[\d ]*$)", line)
        if drawn and near != 0:
            continue
        if "tokens/s" in line and not re.search(r"\d tokens/s", line):
            speeds = [found.end() for found in re.finditer("tokens/s", line)]
        for end in speeds:
            line = re.sub(r"[\d,.]+$", "~", line[:end]) + line[end:]
        line = TIME.sub("<time> ", line)
        lines.append(" ".join((SHADES.sub("", line) if near else line).split()))
    return lines


def _form(line: str) -> str:
    """Return a line with # for each figure; of a record only its keys."""
    if line.startswith("{"):
        return " ".join(json.loads(line))
    line = NUMBER.sub("#", line).replace("~", "#").replace("best", "#")
    return re.sub(r"-+", "-", UNIT.sub("#", line))


def _same(shown: str, said: list[str], near: float) -> bool:
    if not said:
        return False
    other = said[0]
    if shown.endswith(" ..."):
        words = shown.split()[:-1]
        shown, other = " ".join(words), " ".join(other.split()[: len(words)])
    if NUMBER.sub("#", shown) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(other), strict=True)
    return all(_close(a, b, near) for a, b in pairs)


def _close(shown: str, said: str, near: float) -> bool:
    if shown == said:
        return True
    a, b = (float(text.rstrip("%").replace(",", "")) for text in (shown, said))
    mantissa, _, exponent = shown.rstrip("%").partition("e")
    places = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - places) if places or exponent else 0.0
    return abs(a - b) <= max(near * abs(a), 1.001 * unit)

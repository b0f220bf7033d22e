"""Pictures of lines: the names never lie on the lines where there are many."""

from __future__ import annotations

import re

import pytest

from seqgen.cli.shell.pictures import NAMES_INSIDE, draw_lines

pytest.importorskip("matplotlib", reason="--plot needs matplotlib, the extra `plot`")


def corners(drawn, group):
    """Return the x of every corner of the first path of a group of an SVG."""
    path = re.search(rf'<g id="{group}">.*? d="([^"]*)"', drawn, re.DOTALL)[1]
    return [float(x) for x in re.findall(r"[MLQ] ([\d.]+)", path)]


@pytest.mark.parametrize(("lines", "beside"), [(NAMES_INSIDE, False), (NAMES_INSIDE + 1, True)])
def test_the_names_of_many_lines_stand_beside_the_picture(lines, beside, tmp_path):
    path = tmp_path / "a.svg"
    series = {f"line {n}": [(x, x * n) for x in range(4)] for n in range(lines)}
    draw_lines(path, series, "x", "y", log="", marker="")
    drawn = path.read_text()
    assert all(f">{name}</text>" in drawn for name in series)
    legend = drawn[drawn.index('<g id="legend_1">') :]
    assert (min(corners(legend, "patch_[0-9]+")) > max(corners(drawn, "patch_2"))) == beside


def test_lines_of_one_colour_differ_in_style(tmp_path):
    path = tmp_path / "a.svg"
    draw_lines(path, {str(n): [(0, n), (1, n)] for n in range(11)}, "x", "y", log="", marker="")
    groups = re.findall(r'<path d="[^"]*" clip-path="[^"]*" style="([^"]*)"', path.read_text())
    lines = [style for style in groups if "stroke-width: 1.5" in style]
    assert len(lines) == len(set(lines)) == 11

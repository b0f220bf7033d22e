"""Counts in bounded memory: exact below the limit, and close to the truth above it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest

from seqgen.plugins.data.counting import Curve, LineCounts, WordCounts


def zipf_words(count: int, seed: int) -> list[str]:
    """Words of which many occur once, in the order of a text whose subject changes."""
    draw = random.Random(seed)
    ranks = [int(draw.paretovariate(0.3)) for _ in range(count)]
    return [
        f"w{rank}" if rank < 200 else f"{n // (count // 4)}-{rank}" for n, rank in enumerate(ranks)
    ]


@pytest.mark.parametrize(("limit", "within"), [(10**9, 0), (3000, 0.1)])
def test_words(limit, within):
    words = zipf_words(60_000, 1)
    exact, found = Counter(words), WordCounts(limit)
    for at in range(0, len(words), 7):
        found.add(words[at : at + 7])
        assert len(found.counts) <= limit
    assert found.read == len(words) and (found.share < 1) == (within > 0)
    assert found.distinct == pytest.approx(len(exact), rel=within)
    assert all(found.counts[word] == exact[word] for word in found.sampled())
    highest = sorted(exact.values(), reverse=True)[:100]
    assert found.highest()[:100] == pytest.approx(highest, rel=within / 10)


@pytest.mark.parametrize(("limit", "within"), [(10**9, 0), (2000, 0.1)])
def test_copies_of_lines(limit, within):
    draw = random.Random(2)
    lines = [f"line {int(draw.paretovariate(0.4))}" for _ in range(20_000)]
    exact, found = Counter(lines), LineCounts(limit)
    for line in lines:
        found.add(line, marked=line.endswith("7"))
    found.finish()
    assert found.total <= limit
    assert found.counts.size / found.total == pytest.approx(len(exact) / len(lines), rel=within)
    sampled = [line for line in lines if found.is_sampled(line)]
    assert len(sampled) == found.total
    chosen = [sampled[place] for place in found.first.tolist()]
    assert chosen == list(dict.fromkeys(sampled))  # where each occurs first
    assert found.counts.tolist() == [exact[line] for line in chosen]
    assert found.marked.tolist() == [line.endswith("7") for line in chosen]


def test_points_of_a_curve():
    curve, every = Curve(), [(n, n // 3) for n in range(5001)]
    for x, y in every:
        curve.add(x, y)
    found = curve.spread(40)
    assert len(found) > 30 and found[0] == (1, 0) and found[-1] == every[-1]
    assert all(point in every for point in found)
    short = Curve()
    short.add(3, 2)
    assert short.spread(40) == [(3, 2)] and Curve().spread(40) == []


def test_figures_of_more_words_and_lines_than_are_kept(tmp_path, monkeypatch):
    """The estimates of a whole report are close to its exact figures."""
    from seqgen.plugins.data import counting
    from seqgen.plugins.data.report import data_report
    from seqgen.settings import DataConfig
    from seqgen.text.reading import Text

    words = zipf_words(120_000, 3)
    made = [" ".join(words[at : at + 8]) for at in range(0, len(words), 8)]
    made += [f"{line} again and again" for line in made[:2000]] * 3
    (tmp_path / "t.txt").write_text("\n".join(made) + "\n")

    def report():
        return data_report(Text((tmp_path / "t.txt",)), DataConfig(val="none"), {})

    exact = report()
    assert exact.vocabulary > 4 * 4000
    for name, limit in (("WordCounts", 4000), ("LineCounts", 4000)):
        whole = getattr(counting, name)
        monkeypatch.setattr(
            f"seqgen.plugins.data.report.{name}", lambda whole=whole, limit=limit: whole(limit)
        )
    found = report()
    assert (found.words, found.lines) == (exact.words, exact.lines)
    assert found.vocabulary == pytest.approx(exact.vocabulary, rel=0.1)
    assert found.repeated_lines == pytest.approx(exact.repeated_lines, rel=0.1)
    assert found.zipf["exponent"] == pytest.approx(exact.zipf["exponent"], rel=0.05)
    assert found.heaps["exponent"] == pytest.approx(exact.heaps["exponent"], rel=0.1)
    assert found.unseen_words == pytest.approx(exact.unseen_words, rel=0.25, abs=0.01)


@pytest.mark.long
def test_memory_does_not_grow_with_the_text(tmp_path):
    """Of 30 and of 120 MB of lines without copies, with two million words in each 30 MB."""
    used = []
    for number, size in enumerate((30, 120)):
        path = tmp_path / f"{number}.txt"
        with path.open("w") as file:
            for n in range(size * 15_000):
                file.write(f"some words of line {n:x} and of {n * 7919:x} again and again\n")
        command = "import resource, sys; from seqgen.cli import run; run(sys.argv[1:]); "
        command += "sys.stderr.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))"
        asked = [sys.executable, "-c", command, "data", path, "--json", "--quiet", "--val", "none"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        used.append(int(done.stderr.splitlines()[-1]))
    assert used[1] < 1.6 * used[0], used

"""Texts from installed packages: each once, whole, and the same wherever the files lie."""

import pytest

from benchmarks.package_text import texts, write


@pytest.fixture
def packages(tmp_path):
    def folder(name):
        place = tmp_path / name
        (place / "a").mkdir(parents=True)
        (place / "a" / "one.rst").write_text("one\r\n" * 200)
        (place / "two.md").write_text("two\n" * 200)
        (place / "copyright").write_text("three\n" * 200)
        (place / "copy.txt").write_text("two\n" * 200)
        (place / "short.txt").write_text("short\n")
        (place / "latin.txt").write_bytes(b"\xe9t\xe9\n" * 200)
        (place / "data.txt").write_bytes(b"\0" * 600)
        (place / "code.py").write_text("four = 4\n" * 200)
        return place

    return folder


def test_texts_are_there_once_in_an_order_of_their_own(packages):
    first, second = packages("first"), packages("second")
    (second / "two.md").rename(second / "a" / "renamed.md")
    found = list(texts("docs", [first]))
    assert found == list(texts("docs", [second])) == list(texts("docs", [first, second]))
    assert sorted(found) == [f"{word}\n" * 200 + "\n" for word in ("one", "three", "two")]
    assert list(texts("source", [first])) == ["four = 4\n" * 200 + "\n"]


def test_as_many_bytes_as_are_asked_for(packages, tmp_path):
    out, folder = tmp_path / "out.txt", packages("first")
    assert write("docs", 900, out, [folder]) == out.stat().st_size >= 900
    assert write("docs", 10**9, out, [folder]) == 200 * (4 + 6 + 4) + 3

"""The report on a text: every figure by hand, and each thing that would hurt is planted."""

from __future__ import annotations

import random

import pytest
from helpers_cli import records, refusal

from seqgen.cli import run

pytest.importorskip("datasketch")


def lines_of_words(draw: random.Random, words: list[str], count: int) -> list[str]:
    return [" ".join(draw.choices(words, k=9)) for _ in range(count)]


@pytest.fixture(scope="module")
def clean():
    """Lines of 30 characters and more, none like another."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghij", k=5)) for _ in range(400)]
    return lines_of_words(draw, words, 500)


def report(capsys, path, text: str | bytes, *options: str) -> dict:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (found,) = records(capsys, "data", path, *options)
    return found


def test_figures_by_hand(tmp_path, capsys):
    text = "the cat sat\n\nдом the ☃\nthe cat sat on the long long mat and slept\r\n"
    found = report(capsys, tmp_path / "t.txt", text, "--val", "none")
    assert (found["bytes"], found["characters"], found["lines"]) == (
        len(text.encode()),
        len(text),
        4,
    )
    assert (found["empty_lines"], found["crlf_lines"], found["median_line"]) == (1, 1, 11)
    assert (found["words"], found["vocabulary"]) == (16, 10)
    assert found["alphabet"] == len(set(text))
    assert found["rare_characters"] == sum(text.count(c) == 1 for c in set(text))
    assert found["longest_lines"][0] == {"line": 3, "characters": 42, "text": text[23:65]}
    letters = [c for c in text if c.isalpha()]
    assert found["scripts"] == {
        "latin": pytest.approx(1 - 3 / len(letters)),
        "cyrillic": pytest.approx(3 / len(letters)),
    }
    assert found["zipf"]["points"][:2] == [[1, 4], [2, 2]]
    assert found["heaps"]["points"][-1] == [16, 10]
    assert found["held_out"] is None
    assert any("CRLF" in warning for warning in found["warnings"])


def test_a_clean_text_has_no_warning(clean, tmp_path, capsys):
    found = report(capsys, tmp_path / "t.txt", "\n".join(clean) + "\n")
    assert found["warnings"] == [] and found["held_out"] == {"lines": 50, "trained_on": 0}
    assert found["near_copies"] == {"lines": 500, "share": 0}
    # Words drawn evenly: tenths have hardly a word of their own.
    assert len(found["unseen_words"]) == 10 and max(found["unseen_words"]) < 0.01


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda t: t[:450] + t[:5] + t[450:495], "5 of 50 held-out lines of 30 characters"),
        (lambda t: t[:450] + [line.upper() for line in t[450:]], "the end is unlike the rest"),
        (
            lambda t: [*t, "cafÃ© â€œso be itâ€\x9d"],
            "UTF-8 read as Windows-1252, or U+FFFD, in 3 places",
        ),
        (lambda t: ["All rights reserved.", *t[:9]] * 5 + t[9:], "boilerplate"),
        (lambda t: [*t, "caf\ufffd"], "or U+FFFD, in 1 place: the text"),
        (lambda t: ["All rights reserved by the owners of it", *t[:9]] * 5 + t[9:], "boilerplate"),
        (lambda t: t[:100] * 2 + t[100:], "are copies of earlier ones"),
        (lambda t: t[:100] + [f"{line[:-1]}!" for line in t[:100]] + t[100:], "near-copies"),
        (lambda t: [*t[:9], *(f"{line}\r" for line in t[9:])], "--newlines lf"),
        (lambda t: [*t, "a\x07b"], "1 control character: each"),
        (lambda t: [*t, "".join(map(chr, range(0x4E00, 0x4E40)))], "occur once"),
    ],
)
def test_what_would_hurt_is_found(plant, said, clean, tmp_path, capsys):
    found = report(capsys, tmp_path / "t.txt", "\n".join(plant(clean)) + "\n")
    assert any(said in warning for warning in found["warnings"]), found["warnings"]


def test_what_is_not_mojibake(tmp_path, capsys):
    text = "Ça va, Ãdílio? “Été” — naïve Ångström, Â, São Paulo, ÂŒ\n"
    assert report(capsys, tmp_path / "t.txt", text, "--val", "none")["mojibake"] == 0


def test_near_copies_against_brute_force(tmp_path, capsys):
    draw = random.Random(2)
    made = ["".join(draw.choices("abcdefgh ", k=120)) for _ in range(60)]
    made += [line[:k] + "zzz" + line[k + 3 :] for line, k in zip(made[:9], range(9), strict=True)]
    grams = [{line[i : i + 5] for i in range(len(line) - 4)} for line in made]
    exact = sum(
        any(len(one & other) >= 0.8 * len(one | other) for other in grams[:n])
        for n, one in enumerate(grams)
    )
    found = report(capsys, tmp_path / "t.txt", "\n".join(made) + "\n", "--val", "none")
    assert exact == 9 and abs(round(found["near_copies"]["share"] * 69) - exact) <= 2


def test_train_warns_of_a_stream_whose_end_is_trained_on(clean, tmp_path, capsys):
    def said(made: list[str]) -> str:
        (tmp_path / "t.txt").write_text("\n".join(made) + "\n")
        how = ("--model", "ngram", "--order", "2", "--name", "m", "--overwrite")
        assert run(["train", str(tmp_path / "t.txt"), *how]) == 0
        return capsys.readouterr().err

    assert "held-out lines" not in said(clean)
    warning = said(clean[:450] + clean[:5] + clean[450:495])
    assert "5 of 50 held-out lines of 30 characters or more (10.0%) are in the training" in warning


def test_what_is_written_for_people(clean, tmp_path, capsys):
    (tmp_path / "t.txt").write_text("\n".join(clean[:100] * 2))
    assert run(["data", str(tmp_path / "t.txt")]) == 0
    out, err = capsys.readouterr()
    assert "near-copies" in out and "copies" in err and "1e1" in err
    (tmp_path / "e.txt").write_text("")
    assert "contains no text" in refusal(capsys, "data", tmp_path / "e.txt")

"""`seqgen vectors`: against vectors chosen by hand; what it refuses; word2vec's files."""

from __future__ import annotations

import gzip
import re
import sys

import numpy as np
import pytest
import torch
from helpers_cli import records, refusal, require_command

from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.metrics.bootstrap import mean_ranks, spearman
from seqgen.plugins.vectors.picture import Box, place_labels, principal_components, width_of
from seqgen.plugins.vectors.words import WordVectors, load_vectors, terms

# On two axes, capital (or not) and country; the third sets all apart from the others.
CHOSEN = """\
6 3
paris 1 1 0.5
france 0 1 0.5
tokyo 1 -1 0.5
japan 0 -1 0.5
motel 0.1 0.1 -2
Hotel 0 0.1 -2
"""
WORDS = ["paris", "france", "tokyo", "japan", "motel", "Hotel"]


@pytest.fixture
def chosen(tmp_path, capsys):
    path = tmp_path / "vectors.txt"
    path.write_text(CHOSEN)
    require_command("import")
    (record,) = records(capsys, "import", path, "--name", "v", "--quiet")
    assert record["architecture"] == "word2vec"
    return path


@pytest.fixture
def lstm(tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("the paris hotel is in france .\nthe tokyo motel is in japan .\n" * 20)
    how = ("--model", "lstm", "--steps", 2, "--hidden-size", 8, "--tokenizer", "word")
    records(capsys, "train", path, *how, "--name", "l", "--seed", 1, "--quiet")
    return path


def cosine(a, b):
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))


def test_neighbours_are_in_order_of_the_cosine(chosen, capsys):
    found = records(capsys, "vectors", "-m", "v", "--neighbours", "paris", "--top", 3)
    assert [list(record) for record in found] == [["word", "neighbour", "similarity"]] * 3
    assert [record["neighbour"] for record in found] == ["france", "tokyo", "motel"]
    wanted = [(0, 1, 0.5), (1, -1, 0.5), (0.1, 0.1, -2)]
    for record, vector in zip(found, wanted, strict=True):
        assert record["similarity"] == pytest.approx(cosine((1, 1, 0.5), vector), abs=1e-6)
    assert len(records(capsys, "vectors", "-m", "v", "--neighbours", "paris")) == 5


def test_analogies(chosen, capsys):
    """Of unit vectors: b - a + c, without the three that are given."""
    asked = "paris:france::tokyo:?"
    found = records(capsys, "vectors", "-m", "v", "--analogy", asked, "--top", 1)
    unit = {line.split()[0]: np.array(line.split()[1:], float) for line in CHOSEN.split("\n")[1:7]}
    unit = {word: vector / np.linalg.norm(vector) for word, vector in unit.items()}
    target = unit["france"] - unit["paris"] + unit["tokyo"]
    assert [record["neighbour"] for record in found] == ["japan"]
    assert found[0]["word"] == asked
    assert found[0]["similarity"] == pytest.approx(cosine(target, unit["japan"]), abs=1e-6)
    assert run(["vectors", "-m", "v", "--analogy", asked, "--neighbours", "motel"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["word", "neighbour", "similarity"] and len(lines) == 1 + 5 + 3


@pytest.mark.parametrize("wrong", ["a:b:c:?", "a:b::c:d", "a:b::c", "a::b", ":b::c:?", "a:b::c:?:"])
def test_analogies_of_another_form(wrong):
    with pytest.raises(UsageError, match=r"an analogy is written a:b::c:\?"):
        terms(wrong)


def test_words_without_a_vector(chosen, capsys):
    ask = ("vectors", "-m", "v", "--neighbours")
    assert "v has no vector for 'motell'; did you mean 'motel'?" in refusal(capsys, *ask, "motell")
    assert "did you mean 'Hotel'?" in refusal(capsys, *ask, "hotel")
    assert "v has no vector for 'xyzzy'" in refusal(capsys, *ask, "xyzzy")
    assert run([*ask, "xyzzy"]) == 1


def test_agreement_with_people(chosen, tmp_path, capsys):
    """Spearman's correlation by hand, from the differences of ranks."""
    path = tmp_path / "pairs.tsv"
    path.write_text(
        "Word 1,Word 2,Human (mean)\n# comment\nparis\tfrance\t9\nparis,tokyo,5\n"
        "paris japan 6\nparis\tmotel\t1\nparis\tlondon\t3\n"
    )
    (found,) = records(capsys, "vectors", "-m", "v", "--similarity", path)
    # cosines: france > tokyo > motel > japan; scores: france > japan > tokyo > motel
    assert found["spearman"] == pytest.approx(1 - 6 * (1 + 1 + 4) / (4 * (16 - 1)))
    assert (found["pairs"], found["oov"]) == (4, 1)
    path.write_text("paris france 1\nparis tokyo\n")
    assert "for a word give --neighbours WORD" in refusal(capsys, "vectors", "paris", "-m", "v")
    line = refusal(capsys, "vectors", "-m", "v", "--similarity", path)
    assert "line 2: give two words and a score, not 'paris tokyo'" in line
    path.write_text("\n")
    assert "has no pairs" in refusal(capsys, "vectors", "-m", "v", "--similarity", path)


def test_ranks_of_equal_values_are_shared():
    assert mean_ranks(np.array([3.0, 1.0, 3.0, 7.0])).tolist() == [2.5, 1.0, 2.5, 4.0]
    # Pearson's correlation of (1, 2.5, 2.5, 4) and (1, 2, 3, 4), by hand.
    assert spearman(np.array([1, 3, 3, 7]), np.array([1, 2, 3, 4])) == pytest.approx(
        4.5 / np.sqrt(4.5 * 5)
    )
    assert spearman(np.array([1, 1]), np.array([1, 2])) is None
    assert spearman(np.array([1]), np.array([1])) is None


def test_vectors_of_any_network(lstm, tmp_path, capsys):
    """The rows of its embedding; a word with a space before it and without is one."""
    loaded = load_vectors("l")
    words = WordVectors.of(loaded)
    ids = {piece.strip(): i for i, piece in enumerate(loaded.tokenizer.vocabulary)}
    assert {"the", "paris", "."} <= set(words.words) and "<unk>" not in words.words
    row = loaded.model.embedding.weight[ids["paris"]].detach().numpy()
    np.testing.assert_array_equal(words.vectors[words.place("paris")], row)
    out = tmp_path / "all.vec"
    assert run(["vectors", "-m", "l", "--format", "word2vec", "--out", str(out), "-q"]) == 0
    require_command("import")
    records(capsys, "import", out, "--name", "again", "--quiet")
    again = WordVectors.of(load_vectors("again"))
    assert sorted(again.words) == sorted(words.words)
    for word in words.words:
        one, other = (v.vectors[v.place(word)] for v in (again, words))
        np.testing.assert_array_equal(one, other)
    assert "exists: add --overwrite" in refusal(capsys, "vectors", "-m", "l", "--out", out)
    every = records(capsys, "vectors", "-m", "l")
    assert [record["word"] for record in every] == words.words
    assert run(["vectors", "-m", "l", "--format", "npy", "--out", str(out), "--overwrite"]) == 0
    np.testing.assert_array_equal(np.load(out), words.vectors)


def test_vectors_of_texts(lstm, chosen, tmp_path, capsys, stdin):
    """The features after each token, their mean or the last; of word vectors, the mean."""
    loaded = load_vectors("l")
    line = "the paris hotel"
    ids = [loaded.framing.start, *loaded.tokenizer.encode(line).tolist()]
    with torch.no_grad():
        features, _ = loaded.model.hidden(torch.tensor([ids]), None)
    for pool, wanted in (("mean", features[0, 1:].mean(0)), ("last", features[0, -1])):
        stdin(f"{line}\n\n".encode())
        found = records(capsys, "vectors", "-m", "l", "--file", "-", "--pool", pool)
        assert [record["index"] for record in found] == [0, 1]
        np.testing.assert_allclose(found[0]["vector"], wanted.numpy(), atol=1e-6)
        np.testing.assert_allclose(found[1]["vector"], features[0, 0].numpy(), atol=1e-6)
    path = tmp_path / "lines.txt"
    path.write_bytes(b"paris motel nowhere\r\n\r\nparis\r\nno where\r\n")
    assert run(["vectors", "-m", "v", "--file", str(path)]) == 0
    said = capsys.readouterr()
    first, empty, _, unknown = said.out.splitlines()
    np.testing.assert_allclose([float(x) for x in first.split()], [0.55, 0.55, -0.75], atol=1e-6)
    assert empty == unknown == "0 0 0"
    zeros = "no word with a vector in lines 2, 4, which got zeros"
    assert said.err == f"seqgen: {path}: {zeros}\n" or said.err == f"{path}: {zeros}\n"
    found = records(capsys, "vectors", "-m", "v", "--file", path)
    assert [(r["tokens"], r["unknown"]) for r in found] == [(3, 1), (0, 0), (1, 0), (2, 2)]
    assert [r["text"] for r in found] == ["paris motel nowhere", "", "paris", "no where"]
    assert run(["vectors", "-m", "v", "--file", str(path), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    out = tmp_path / "lines.npy"
    assert (
        run(["vectors", "-m", "v", "--file", str(path), "--format", "npy", "--out", str(out)]) == 0
    )
    assert np.load(out).shape == (4, 3)


def test_the_picture(chosen, tmp_path, capsys):
    path = tmp_path / "words.svg"
    assert run(["vectors", "-m", "v", "--plot", str(path), "-q"]) == 0
    svg = path.read_text()
    assert re.findall(r">(\w+)</text>", svg) == WORDS
    assert (
        run(["vectors", "-m", "v", "--neighbours", "motel", "--top", "1", "--plot", str(path)]) == 0
    )
    assert re.findall(r">(\w+)</text>", path.read_text()) == ["motel", "Hotel"]
    assert "--plot writes .svg or .png" in refusal(capsys, "vectors", "-m", "v", "--plot", "a.gif")
    image = tmp_path / "words.png"
    assert run(["vectors", "-m", "v", "--plot", str(image), "-q"]) == 0
    assert image.read_bytes().startswith(b"\x89PNG")
    path.write_text("mine")
    assert "is not a picture" in refusal(capsys, "vectors", "-m", "v", "--plot", path)


def test_a_picture_beside_what_is_written(chosen, tmp_path, capsys):
    """Neither is dropped for the other."""
    plot, out = tmp_path / "words.svg", tmp_path / "out.npy"
    ask = ["vectors", "-m", "v", "--plot", plot]
    found = records(capsys, *ask)
    assert [record["word"] for record in found] == WORDS and "<svg" in plot.read_text()
    plot.unlink()
    assert run([*map(str, ask), "--format", "npy", "--out", str(out), "-q"]) == 0
    assert np.load(out).shape == (6, 3) and "<svg" in plot.read_text()
    plot.unlink()
    assert run([*map(str, ask), "--format", "text", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == WORDS and "<svg" in plot.read_text()


def test_labels_meet_no_label_and_no_point():
    draw = np.random.default_rng(0)
    points = [tuple(p) for p in draw.normal(0, 40, (60, 2))]
    labels = ["word" * int(n) for n in draw.integers(1, 4, 60)]
    boxes = place_labels(points, labels)
    dots = [Box(x, y, 0.01, 0.01) for x, y in points]
    for i, box in enumerate(boxes):
        assert box.width == width_of(labels[i])
        assert not any(box.overlaps(other) for other in [*boxes[:i], *dots])


def test_principal_components():
    """Distances of points in a plane stay as they are, however it lies in space."""
    draw = np.random.default_rng(1)
    plane = draw.normal(size=(9, 2)) * (3, 1)
    turn, _ = np.linalg.qr(draw.normal(size=(5, 5)))
    found, shares = principal_components(plane @ turn[:2] + 7)
    between = [np.linalg.norm(p[:, None] - p[None], axis=-1) for p in (plane, found)]
    np.testing.assert_allclose(between[1], between[0], atol=1e-9)
    assert shares.sum() == pytest.approx(1) and shares[0] > shares[1]
    one, shares = principal_components(np.ones((1, 3)))
    assert one.tolist() == [[0, 0]] and shares.tolist() == [0, 0]


@pytest.mark.slow
def test_what_has_no_vectors_says_so(lstm, tmp_path, capsys):
    assert run(["train", str(lstm), "--model", "ngram", "--name", "n", "-q"]) == 0
    ask = ("vectors", "-m", "n")
    assert "the tokens of n have no vectors" in refusal(capsys, *ask, "--neighbours", "paris")
    assert "n has no vectors for texts" in refusal(capsys, *ask, "--file", lstm)
    onehot = ("--model", "rnn", "--set", "input=onehot", "--steps", "1", "--name", "o", "-q")
    assert run(["train", str(lstm), *onehot]) == 0
    assert "the tokens of o have no vectors" in refusal(capsys, "vectors", "-m", "o")
    said = refusal(capsys, "vectors", "-m", "l+o")
    assert "is a mixture: vectors takes one of its parts, l or o" in said


def test_wrong_usage(chosen, capsys):
    ask = ("vectors", "-m", "v")
    for more, said in (
        (("--neighbours", "paris", "--similarity", chosen), "not both"),
        (("--neighbours", "paris", "--format", "npy"), "--format is for vectors"),
        (("--json", "--format", "npy"), "--format does not go with --json"),
        (("--file", chosen, "--format", "word2vec"), "has a word for each vector"),
        (("--file", chosen, "--plot", "a.svg"), "--plot draws words"),
        (("--file", chosen, "--pool", "last"), "v has no state after a text"),
        (("--file", chosen, "--pool", "max"), "--pool must be one of mean, last, none"),
        (("--format", "bin"), "--format must be one of text, npy, word2vec"),
        (("--pool", "mean"), "--pool belongs to --file"),
        (("--top", 10, "--file", chosen), "--top belongs to --neighbours"),
        (("--overwrite",), "--overwrite belongs to --out"),
    ):
        assert said in refusal(capsys, *ask, *more), more


@pytest.mark.parametrize("head", [True, False])
def test_files_of_vectors_are_known_by_themselves(head, tmp_path, capsys):
    """With word2vec's first line, and without it, as GloVe writes them; compressed too.

    A byte order mark and the line ends of Windows change nothing.
    """
    content = CHOSEN if head else CHOSEN.split("\n", 1)[1]
    path = tmp_path / "v.txt.gz"
    path.write_bytes(gzip.compress(content.replace("\n", "\r\n").encode("utf-8-sig")))
    require_command("import")
    (record,) = records(capsys, "import", path, "--quiet")
    assert record["name"] == "v"
    words = WordVectors.of(load_vectors("v"))
    assert words.words == WORDS
    np.testing.assert_allclose(words.vectors[words.place("motel")], [0.1, 0.1, -2], rtol=1e-6)


def test_words_with_other_white_space_are_written_as_they_were_read(tmp_path, capsys):
    """Only ASCII white space separates a line of a file of vectors, for word2vec as for gensim."""
    spaces = [c for c in map(chr, range(0x80, sys.maxunicode + 1)) if c.isspace()]
    words = [f"New{space}York" for space in spaces]
    assert "New\u00a0York" in words
    path = tmp_path / "v.txt"
    rows = [f"{word} {number + 1} 0.5" for number, word in enumerate(words)]
    path.write_text("\n".join([f"{len(words)} 2", *rows, ""]), encoding="utf-8")
    require_command("import")
    records(capsys, "import", path, "--quiet")
    out = tmp_path / "written.txt"
    assert run(["vectors", "-m", "v", "--format", "word2vec", "--out", str(out), "-q"]) == 0
    assert sorted(out.read_bytes().split(b"\n")) == sorted(path.read_bytes().split(b"\n"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("2 3\na 1 2 3\n", "has 1 words, but its first line says 2"),
        ("1 3\na 1 2\n", "line 2: a word and 3 numbers are expected"),
        ("a 1 2 3\nb 1 2\n", "line 2: a word and 3 numbers are expected"),
        ("2 2\na 1 2\na 1 2\n", "line 3: the word 'a' occurs twice"),
        ("1 2\na 1 x\n", "line 2 is not a word in UTF-8 with its numbers"),
        ("1 2\na 1 nan\n", "line 2 has a number that is not finite"),
        ("0 2\n", "has no vectors"),
    ],
)
def test_broken_files(content, said, tmp_path, capsys):
    path = tmp_path / "v.txt"
    path.write_text(content)
    require_command("import")
    assert said in refusal(capsys, "import", path)

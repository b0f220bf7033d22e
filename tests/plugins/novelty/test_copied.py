"""What texts have copied, against a search by brute force; the index; the command."""

from __future__ import annotations

import random

import pytest
from helpers_cli import records, refusal

from seqgen import store
from seqgen.cli import run
from seqgen.plugins.novelty import suffix_index
from seqgen.plugins.novelty.novelty import LENGTHS
from seqgen.plugins.novelty.suffix_index import EMPTY, SuffixIndex, order_of

pytest.importorskip("pydivsufsort")


def longest_of(text: str, known: str) -> int:
    lengths = range(len(text) + 1)
    return max(
        n for n in lengths if any(text[i : i + n] in known for i in range(len(text) - n + 1))
    )


@pytest.mark.fast_for("a-3", "ab-*", "abc*-8", "xy*-20")
@pytest.mark.parametrize("most", [3, 8, 20, 1024])
@pytest.mark.parametrize("alphabet", ["a", "ab", "abcé\0", "xy😀"])
def test_matches_as_a_search_by_brute_force(most, alphabet, tmp_path, monkeypatch):
    monkeypatch.setattr(suffix_index, "MOST", most)
    monkeypatch.setattr(suffix_index, "BLOCK", 11)
    draw = random.Random(f"{most}{alphabet}")
    for size in range(0, 60, 4):
        known = "".join(draw.choices(alphabet, k=size)).encode()
        texts = ["".join(draw.choices(alphabet + "z", k=draw.randrange(30))) for _ in range(3)]
        texts = [*(text.encode() for text in texts), known[5:30]]
        (tmp_path / "text").write_bytes(known + EMPTY)
        order_of(known).tofile(tmp_path / "order")
        index = SuffixIndex.open(tmp_path / "text", tmp_path / "order")
        for text, found in zip(texts, index.matches(texts), strict=True):
            ends = [range(len(text) - i + 1) for i in range(len(text))]
            whole = [
                max(n for n in each if text[i : i + n] in known) for i, each in enumerate(ends)
            ]
            # A match is followed to `MOST` bytes at least.
            assert [min(n, most) for n in found.tolist()] == [min(n, most) for n in whole]
            assert all(n <= m for n, m in zip(found.tolist(), whole, strict=True))
            start, longest = index.longest(text, found)
            assert longest == max(whole, default=0)
            assert text[start : start + longest] in known
            if longest:
                part = text[start : start + longest]
                assert index.first(part) == known.find(part)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files of 200 lines each, with letters of two and four bytes."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    draw = random.Random(1)
    words = ["cat", "dôg", "sat", "mat", "on", "the😀", "a"]
    for name in ("a.txt", "b.txt"):
        lines = (" ".join([*draw.choices(words, k=draw.randrange(9)), f"{n}"]) for n in range(200))
        (tmp_path / name).write_text("".join(f"{line}{name[0]}\n" for line in lines))
    return tmp_path / "a.txt", tmp_path / "b.txt"


def check(found: dict, text: str, known: str, lines: dict[str, list[str]]) -> None:
    """Hold a record to a search by brute force; `lines` are those of each file."""
    longest = longest_of(text, known)
    start = next(i for i in range(len(text) + 1) if text[i : i + longest] in known)
    part = text[start : start + longest]
    assert (found["longest"], found["start"], found["copied"]) == (longest, start, part)
    if part:
        line = lines[found["file"]][found["line"]] + "\n"
        begin = (line + "".join(each + "\n" for each in lines[found["file"]][found["line"] + 1 :]))[
            found["source_start"] :
        ]
        assert begin.startswith(part) or "\n" in part
    for n in LENGTHS:
        grams = [text[i : i + n] for i in range(len(text) - n + 1)]
        share = sum(gram in known for gram in grams) / len(grams) if grams else None
        assert found["share"]["characters"][str(n)] == (share and pytest.approx(share))


def test_lines_against_files(files, tmp_path, capsys):
    draw = random.Random(2)
    known = "".join(file.read_text() for file in files)
    texts = ["zzz", "", known[300:345].replace("\n", "?"), known[5000:5070].replace("\n", "?")]
    texts += ["".join(draw.choices(known.replace("\n", ""), k=60)) for _ in range(10)]
    (tmp_path / "q.txt").write_text("\n".join(texts) + "\n")
    lines = {str(file): file.read_text().split("\n") for file in files}
    lines = {name.rpartition("/")[2]: each for name, each in lines.items()}
    how = ("novelty", "q.txt", "--documents", "line", "--against", "a.txt", "--against", "b.txt")
    *found, total = records(capsys, *how)
    assert [record["index"] for record in found] == list(range(len(texts)))
    for text, record in zip(texts, found, strict=True):
        check(record, text, known, lines)
    assert found[3]["file"] == "b.txt" and "tokens" not in found[3]["share"]
    assert total["total"]["longest"] == max(record["longest"] for record in found)
    assert total["total"]["held_out"] is None
    # The second time the index is read from the cache.
    assert records(capsys, *how) == [*found, total]
    kinds = [row["kind"] for row in records(capsys, "models", "cache")]
    assert kinds.count("index") == 3
    assert run(["models", "cache", "--clear", "-q"]) == 0
    assert records(capsys, "models", "cache") == []


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_against_the_part_that_a_model_was_trained_on(documents, files, tmp_path, capsys):
    how = ("--model", "ngram", "--order", "5", "--tokenizer", "word", "--documents", documents)
    assert run(["train", "a.txt", "b.txt", "--name", "m", "-q", *how]) == 0
    held_out = store.find("m").validation_text.read_text()
    lines = {str(file): file.read_text().split("\n") for file in files}
    whole = "".join(file.read_text() for file in files)
    known = whole.removesuffix(held_out)
    if documents == "line":
        out = held_out.splitlines()
        kept = [one for one in whole.splitlines() if one not in out or out.remove(one)]
        known = "".join(one + "\n" for one in kept)
    text = held_out[:90] + known[200:260]
    (tmp_path / "q.txt").write_text(text)
    (found, total) = records(capsys, "novelty", "q.txt", "-m", "m")
    text_lines = {name.rpartition("/")[2]: each for name, each in lines.items()}
    found["file"] = found["file"].rpartition("/")[2]
    check(found, text, known, text_lines)
    tokens = store_tokens(text)
    for n in LENGTHS:
        grams = ["".join(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
        share = sum(gram in known for gram in grams) / len(grams) if grams else None
        assert found["share"]["tokens"][str(n)] == (share and pytest.approx(share))
    others = held_out[: len(text)]
    for n in LENGTHS:
        grams = [others[i : i + n] for i in range(len(others) - n + 1)]
        share = sum(gram in known for gram in grams) / len(grams)
        held_out_share = total["total"]["held_out"]["characters"][str(n)]
        assert held_out_share == pytest.approx(share)


def test_models_of_one_text_in_other_files(files, tmp_path, capsys):
    """Each names the file, and counts the lines, of its own."""
    how = ("--model", "ngram", "--documents", "line", "-q")
    (tmp_path / "all.txt").write_text("".join(file.read_text() for file in files))
    assert run(["train", "a.txt", "b.txt", "--name", "two", *how]) == 0
    assert run(["train", "all.txt", "--name", "one", *how]) == 0
    (tmp_path / "q.txt").write_text("".join(files[1].read_text().splitlines(True)[50:60]))
    places = {}
    for name in ("two", "one"):
        found, _ = records(capsys, "novelty", "q.txt", "-m", name)
        places[name] = (found["file"].rpartition("/")[2], found["line"])
    assert places["two"][0] == "b.txt" and places["one"] == ("all.txt", places["two"][1] + 200)


def test_the_text_of_a_mixture_is_that_of_its_parts(files, tmp_path, capsys):
    net = ("--model", "rnn", "--hidden-size", "4", "--steps", "1", "-q")
    assert run(["train", "a.txt", "--name", "wn", "--with-ngram", "3", *net]) == 0
    assert run(["train", "a.txt", "--name", "twins", "--members", "2", *net]) == 0
    assert run(["train", "a.txt", "--name", "own", *net]) == 0
    own = records(capsys, "novelty", "b.txt", "-m", "own")
    for mixed in ("wn", "twins", "wn+own"):
        assert records(capsys, "novelty", "b.txt", "-m", mixed) == own
    write = ("sample", "-m", "wn", "--max-copy", "4", "--max-tokens", "30", "--seed", "1")
    (written,) = records(capsys, *write)
    known = files[0].read_text().removesuffix(store.find("wn").validation_text.read_text())
    assert longest_of(written["text"], known) < 4
    (evaluated,) = records(capsys, "eval", "-m", "twins", "--novelty", "--passages", "2")
    assert evaluated["novelty"]["model"]["share"]["characters"]
    # Another part held out, or another file.
    assert run(["train", "a.txt", "--model", "ngram", "--val", "0.2", "--name", "other", "-q"]) == 0
    said = "were trained on different texts"
    assert said in refusal(capsys, "novelty", "b.txt", "-m", "wn+other")
    tokens = ("--tokenizer", str(store.find("wn").path / store.TOKENIZER))
    more = ("--name", "b", *tokens, "-q")
    assert run(["train", "b.txt", "--model", "ngram", *more]) == 0
    assert "different texts" in refusal(capsys, "sample", "-m", "wn+b", "--max-copy", "9")


def store_tokens(text: str) -> list[str]:
    from seqgen.text.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(store.find("m").path / store.TOKENIZER)
    ends = tokenizer.byte_ends(text).tolist()
    raw = text.encode()
    return [raw[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]


def test_a_model_that_knows_its_text_by_heart(files, capsys):
    how = ("--model", "ngram", "--order", "12", "--smoothing", "maximum-likelihood")
    assert run(["train", "a.txt", "--name", "m", "-q", *how]) == 0
    *found, total = records(capsys, "novelty", "-m", "m")
    assert len(found) == total["total"]["texts"] == 16
    share = total["total"]["share"]["characters"]
    assert share["10"] > 0.98 and max(one["longest"] for one in found) >= 12
    (evaluated,) = records(capsys, "eval", "-m", "m", "--novelty", "--passages", "5")
    shares = [evaluated["novelty"][who]["share"]["characters"]["10"] for who in ("model", "text")]
    assert shares[0] > shares[1]
    assert evaluated["perplexity"] is evaluated["bleu"] is None
    assert evaluated["novelty"]["text"]["longest"] > 0
    (plain,) = records(capsys, "eval", "-m", "m", "--passages", "5")
    assert plain["novelty"] is None


def test_what_is_refused(files, tmp_path, capsys):
    assert run(["train", "a.txt", "--model", "ngram", "--name", "m", "-q"]) == 0
    assert "--documents" in refusal(capsys, "novelty", "a.txt", "--documents", "word")
    assert "-m" in refusal(capsys, "novelty", "a.txt", "-m", "m", "--against", "b.txt")
    files[0].write_text("other\n")
    assert "a.txt has changed since m read it" in refusal(capsys, "novelty", "b.txt", "-m", "m")
    files[0].unlink()
    assert "the training text of m is gone" in refusal(capsys, "novelty", "b.txt", "-m", "m")
    (tmp_path / "pairs.tsv").write_text("a\tb\nb\tc\n" * 9)
    how = ("--steps", "1", "--layers", "1", "--hidden-size", "4", "-q", "--batch-size", "2")
    assert run(["train", "pairs.tsv", "--model", "seq2seq", "--name", "p", *how]) == 0
    assert "from text alone" in refusal(capsys, "novelty", "b.txt", "-m", "p", "-q")
    assert "novelty" in refusal(capsys, "eval", "-m", "p", "--novelty", "-q")

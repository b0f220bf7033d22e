"""What a model reads of its source: attention in records, alignment, coverage, copied words."""

from __future__ import annotations

import functools
import io
import math
import sys

import numpy as np
import pytest
import torch
from architectures import contexts
from helpers_cli import needs, records, refusal
from small_pairs import pairs_of, trained

from seqgen.cli import run
from seqgen.cli.shell.pictures import draw_heat_map
from seqgen.cli.shell.source_attention import put_heat_map
from seqgen.errors import UsageError
from seqgen.generation import from_source as source_attention
from seqgen.generation.from_source import (
    AttentionToSource,
    CopyingDecoder,
    check_sources,
    coverage_penalty,
    whole_words,
    written_pieces,
)
from seqgen.generation.prompts import read_prompt
from seqgen.models.seq2seq.from_source import split_windows
from seqgen.settings.generation import ChosenHeads, SourceOptions
from seqgen.store.loading import load
from seqgen.text.tokenizers.byte import ByteTokenizer
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.word import WhitespaceTokenizer, WordTokenizer
from seqgen.training.train import train

ARCHITECTURES = {
    "seq2seq": {},
    "seq2seq-transformer": {"num_layers": 2},
}
BOTH = pytest.mark.parametrize("architecture", ARCHITECTURES)


@pytest.fixture
def tsv(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs_of()))
    return path


def made(tsv, architecture="seq2seq", **settings):
    return trained(tsv, architecture=architecture, **ARCHITECTURES[architecture] | settings)


@torch.no_grad()
def attended(loaded, source, target):
    """Return what a model says that a target (ids) reads of a source, by its own calls."""
    own, tokenizer = loaded.source_tokenizer, loaded.tokenizer
    ids = [*own.encode(source).tolist(), own.eos_id]
    memory = loaded.model.encode(torch.tensor([ids]), [len(ids)])
    return loaded.model.attend(torch.tensor([[tokenizer.bos_id, *target[:-1]]]), memory)[0].numpy()


def said(capsys, *arguments):
    """Run a command in this process; return what it writes to both streams."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 0
    return capsys.readouterr()


# ---- attention in records ----


@pytest.mark.fast_for("*-seq2seq")
@BOTH
@pytest.mark.parametrize("command", [["beam-search", "--nbest", 2], ["sample", "--seed", 1]])
def test_records_have_what_every_layer_and_head_read(architecture, command, tsv, capsys):
    loaded = made(tsv, architecture)
    how = ["-m", "t", "--max-tokens", 6]
    found = records(capsys, *command, "one two", "six", *how, "--attention")
    plain = records(capsys, *command, "one two", "six", *how)
    for record, same in zip(found, plain, strict=True):
        weights = np.array(record.pop("attention"))
        target, source = record.pop("target_pieces"), record.pop("source_pieces")
        assert record == same
        assert source == [*record["source"], "<eos>"]
        assert "".join(piece for piece in target if piece != "<eos>") == record["text"]
        assert len(target) == record["tokens"]
        ids = [loaded.tokenizer.eos_id if t == "<eos>" else loaded.ids(t)[0] for t in target]
        np.testing.assert_allclose(weights, attended(loaded, record["source"], ids), atol=2e-6)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-4)


@pytest.mark.fast_for("seq2seq")
@BOTH
def test_a_given_target_reads_as_a_written_one(architecture, tsv, capsys):
    made(tsv, architecture)
    flags = ["--attention", "--align", "-m", "t"]
    (found,) = records(capsys, "sample", "two six", *flags, "--greedy", "--min-tokens", 3)
    pairs = tsv.with_name("one.tsv")
    pairs.write_text(f"one\to\ntwo six\t{found['text']}\n")
    scored = records(capsys, "perplexity", pairs, *flags)
    assert [record["line"] for record in scored] == [0, 1]
    for key in ("target_pieces", "source_pieces", "alignment"):
        if found["finish_reason"] == "eos" or key == "source_pieces":
            assert scored[1][key] == found[key]
    count = len(loaded_text(found))
    both = (np.array(r["attention"])[:, :, :count] for r in (scored[1], found))
    np.testing.assert_allclose(*both, atol=2e-6)


def loaded_text(record):
    """Return the pieces of a text without its end."""
    return [piece for piece in record["target_pieces"] if piece != "<eos>"]


def test_a_text_past_the_window_is_read_as_it_was_written(tsv, capsys):
    loaded = made(tsv, "seq2seq-transformer", max_target_len=5, positions="learned")
    (found,) = records(
        capsys, "sample", "one", "-m", "t", "--greedy", "--min-tokens", 20, "--max-tokens", 20,
        "--attention"
    )  # fmt: skip
    window = loaded.model.window
    assert window == 6
    ids = loaded.ids(found["text"])
    read = [loaded.tokenizer.bos_id, *ids[:-1]]
    memory = loaded.model.encode(torch.tensor([[*loaded.ids("one"), 2]]), [4])
    weights = np.array(found["attention"])
    for place, begin in enumerate(contexts(20, window, None)):
        one = loaded.model.attend(torch.tensor([read[begin : place + 1]]), memory)[0, :, :, -1]
        np.testing.assert_allclose(weights[:, :, place], one.detach().numpy(), atol=2e-6)


@pytest.mark.parametrize("window", [1, 2, 5, 6, None])
@pytest.mark.parametrize("length", [1, 5, 6, 7, 19])
def test_windows_are_those_of_scoring(length, window):
    found = [0] * length
    last = 0
    for begin, past, end in split_windows(length, window):
        assert begin + past == last and (window is None or end - begin <= window)
        found[begin + past : end] = [begin] * (end - begin - past)
        last = end
    assert found == contexts(length, window, None)


def test_an_ensemble_reads_as_its_parts_do_on_average(tsv, capsys):
    a, b = trained(tsv, "a"), trained(tsv, "b", "seq2seq-transformer")
    mixed = load("a:0.75+b:0.25")
    source = [*a.ids("one two"), a.tokenizer.eos_id]
    target = [[*a.ids("ot"), a.tokenizer.eos_id]]
    (found,) = AttentionToSource(mixed, source)(target)
    each = [AttentionToSource(one, source)(target)[0].mean((0, 1)) for one in (a, b)]
    np.testing.assert_allclose(found[0, 0], 0.75 * each[0] + 0.25 * each[1], atol=1e-6)
    (record,) = records(capsys, "beam-search", "one", "-m", "a+b", "--attention")
    assert np.shape(record["attention"])[:2] == (1, 1)


@pytest.mark.slow
def test_parts_of_an_ensemble_have_windows_of_their_own(tsv):
    a, b = (made_with_window(tsv, name, most) for name, most in (("a", 9), ("b", 5)))
    assert (a.model.window, b.model.window) == (10, 6)
    source = [*a.ids("one two"), a.tokenizer.eos_id]
    target = [a.ids("otosoxottsoxtsoxto")]  # three windows of b, and more than one of a
    (found,) = AttentionToSource(load("a+b"), source)(target)
    each = [AttentionToSource(one, source)(target)[0].mean((0, 1)) for one in (a, b)]
    np.testing.assert_allclose(found[0, 0], (each[0] + each[1]) / 2, atol=1e-6)


def made_with_window(tsv, name, most):
    """Train a transformer whose targets have at most so many tokens."""
    return trained(tsv, name, "seq2seq-transformer", max_target_len=most, positions="learned")


def test_one_layer_or_one_head_can_be_chosen(tsv, capsys):
    made(tsv, "seq2seq-transformer")
    weights = np.random.default_rng(0).random((2, 3, 4, 5))
    np.testing.assert_allclose(ChosenHeads().mean(weights), weights.mean((0, 1)))
    np.testing.assert_allclose(ChosenHeads(layer=1).mean(weights), weights[1].mean(0))
    np.testing.assert_allclose(ChosenHeads(head=0).mean(weights), weights[:, 0].mean(0))
    np.testing.assert_allclose(ChosenHeads(layer=0, head=2).mean(weights), weights[0, 2])
    how = ["beam-search", "one two", "-m", "t", "--attention", "--max-tokens", 4]
    (found,) = records(capsys, *how, "--align", "--layer", 1, "--head", 0)
    own = np.array(found["attention"])[1, 0, : len(loaded_text(found)), :-1]
    pairs = [f"{place}-{token}" for token, place in enumerate(own.argmax(1))]
    assert found["alignment"] == " ".join(pairs)
    line = refusal(capsys, *how, "--layer", 2)
    assert line == "seqgen: --layer is from 0 to 1 for t, not 2"
    assert "--head is from 0 to 1 for t" in refusal(capsys, *how, "--head", 2)
    assert "add that, or --align" in refusal(capsys, "beam-search", "one", "-m", "t", "--head", 0)


# ---- alignment ----


def test_an_alignment_by_hand():
    weights = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    assert source_attention.pharaoh(source_attention.align(weights)) == "1-0 0-1 2-2"
    assert source_attention.align(np.zeros((2, 0))) == []
    # Target words: tokens 0 and 1, then 2. Source words: token 0, then 2; 1 is white space.
    summed = source_attention.by_words(weights, [0, 0, 1], [0, None, 1])
    np.testing.assert_allclose(summed, [[0.6, 0.4], [0.1, 0.7]])
    assert source_attention.pharaoh(source_attention.align(summed)) == "0-0 1-1"


def test_words_are_what_white_space_separates():
    pieces = [b"Gr", "ö".encode(), b"n", b" ", b" tea", b",", b"\xe2\x82", b"\xac x", b""]
    assert source_attention.word_numbers(pieces) == [0, 0, 0, None, 1, 1, 1, 1, None]
    tokenizer = WordTokenizer(["So", ",", " he"])
    found = source_attention.pieces_of(tokenizer, "So, he said")
    assert found == [b"So", b",", b" he", b" said"]
    assert source_attention.word_numbers(found) == [0, 0, 1, 2]


def test_every_token_has_its_part_of_the_text():
    tokenizer = ByteTokenizer.train([])
    ids = [*map(int, tokenizer.encode("aé €")), tokenizer.eos_id]
    whole = written_pieces(tokenizer.decoder(), ids, {tokenizer.eos_id}, "aé €")
    assert whole == [b"a", b"\xc3", b"\xa9", b" ", b"\xe2", b"\x82", b"\xac", b""]
    trimmed = written_pieces(tokenizer.decoder(), ids, {tokenizer.eos_id}, "aé")
    assert trimmed == [b"a", b"\xc3", b"\xa9", b"", b"", b"", b"", b""]


def test_pairs_follow_a_tab(tsv, capsys):
    made(tsv)
    how = ["-m", "t", "--max-tokens", 4]
    found = records(capsys, "beam-search", "one two", "six", *how, "--align")
    assert all("attention" not in record for record in found)
    lines = said(capsys, "beam-search", "one two", "six", *how, "--align").out.splitlines()
    assert lines == [f"{r['text']}\t{r['alignment']}" for r in found]
    (line,) = said(capsys, "sample", "one two", *how, "--greedy", "--align").out.splitlines()
    assert line.count("\t") == 1
    words = records(capsys, "beam-search", "one two", "six", *how, "--align-words")
    for record in words:
        text, source = record["text"].split(), record["source"].split()
        pairs = [tuple(map(int, pair.split("-"))) for pair in record["alignment"].split()]
        assert [token for _, token in pairs] == list(range(len(text)))
        assert all(place < len(source) for place, _ in pairs)
    # What might begin a stop string is held back while it is written, and still has its words.
    for record in words:
        longer = ["--stop", f"{record['text']} and more", "--align-words"]
        (other,) = records(capsys, "beam-search", record["source"], *how, *longer)
        assert (other["text"], other["alignment"]) == (record["text"], record["alignment"])
    assert "not both" in refusal(capsys, "beam-search", "one", *how, "--align", "--align-words")
    scored = said(capsys, "perplexity", tsv, "-m", "t", "--align", "-q").out.splitlines()
    assert len(scored) == 40
    assert {line.count("\t") for line in scored} == {2}


def test_an_empty_source_aligns_with_nothing(tsv, capsys):
    made(tsv)
    how = ["-m", "t", "--max-tokens", 3, "--align", "--attention"]
    (found,) = records(capsys, "beam-search", "", *how, "--coverage-penalty", 1)
    assert (found["alignment"], found["source_pieces"]) == ("", ["<eos>"])
    assert "heat" not in said(capsys, "beam-search", "", *how).out


# ---- coverage and length ----


def test_the_coverage_penalty_by_hand():
    weights = np.array([[0.6, 0.3, 0.1], [0.5, 0.2, 0.3]])
    # Columns sum to 1.1, which counts as 1, to 0.5 and to 0.4.
    assert coverage_penalty(weights, 2.0) == pytest.approx(2 * (math.log(0.5) + math.log(0.4)))
    assert math.isfinite(coverage_penalty(np.zeros((2, 3)), 1.0))


@BOTH
def test_scores_have_the_coverage_penalty_of_the_equation(architecture, tsv, capsys):
    """s(Y, X) = log P(Y | X) / ((5 + |Y|) / 6)^alpha + beta sum_i log(min(sum_j p_ij, 1))."""
    made(tsv, architecture)
    how = ["--max-tokens", 5, "--length-norm", "gnmt", "--alpha", 0.7, "--nbest", 3]
    penalty = ["--coverage-penalty", 0.3, "--attention"]
    found = records(capsys, "beam-search", "one two", "", "-m", "t", *how, *penalty)
    assert len(found) == 6
    for record in found:
        read = np.array(record["attention"]).mean((0, 1))[:, :-1].sum(0)
        covered = 0.3 * np.log(np.minimum(read, 1)).sum()
        expected = record["logprob"] / ((5 + record["tokens"]) / 6) ** 0.7 + covered
        assert record["score"] == pytest.approx(expected, abs=1e-4)
    assert found[0]["score"] > found[1]["score"] > found[2]["score"]
    plain = records(capsys, "beam-search", "one two", "-m", "t", *how)
    assert plain[0]["score"] != pytest.approx(found[0]["score"], abs=1e-3)


@needs("explain")
def test_a_ratio_limits_each_text_by_its_own_source(tsv, capsys):
    made(tsv)
    sources = ["one two", "six", "", "three"]
    how = ["-m", "t", "--min-tokens", 9, "--max-tokens", 12]
    limits = [4, 2, 1, 3]  # half of the source's tokens, its end included, at least 1
    greedy = ["sample", *sources, *how, "--greedy", "--max-ratio", 0.5]
    beams = ["beam-search", *sources, *how, "--max-ratio", 0.5]
    for command in (greedy, beams):
        found = records(capsys, *command)
        assert [r["tokens"] for r in found] == limits
        assert {r["finish_reason"] for r in found} == {"length"}
    for source, limit, record in zip(sources, limits, found, strict=True):
        own = ["-m", "t", "--max-tokens", limit, "--min-tokens", limit]
        (alone,) = records(capsys, "beam-search", source, *own)
        assert alone["text"] == record["text"]
    tree = records(capsys, *beams, "--explain")
    assert {node["step"] for node in tree if node["index"] == 2} == {0}


def test_a_ratio_is_a_decimal_fraction(tsv):
    loaded = made(tsv)
    prompt = read_prompt(loaded, 0, "o" * 99)  # 100 tokens with its end
    assert SourceOptions(max_ratio=0.29).limit(prompt.places, 500) == 29
    assert SourceOptions(max_ratio=10).limit(prompt.places, 500) == 500
    assert SourceOptions(max_ratio=0.001).limit(prompt.places, 500) == 1
    for wrong in (-1, 0, math.inf, math.nan):
        with pytest.raises(UsageError, match="--max-ratio"):
            SourceOptions(max_ratio=wrong)


# ---- unknown words ----


@pytest.fixture
def names(tmp_path):
    """A translator of words, to which every name is unknown."""
    path = tmp_path / "names.tsv"
    lines = [f"my name is N{n} now\tich heisse N{n} jetzt\n" for n in range(30)]
    path.write_text("".join(lines))
    settings = {"tokenizer": "whitespace", "vocab_size": 12, "steps": 40, "lr": 0.02}
    train([path], architecture="seq2seq", name="t", settings={
        **settings, "hidden_size": 16, "seed": 1, "num_layers": 1, "batch_size": 16,
    })  # fmt: skip
    return load("t")


@pytest.mark.parametrize("command", [["beam-search"], ["sample", "--greedy"]])
def test_an_unknown_word_is_copied_from_the_source(command, names, tmp_path, capsys):
    source = "my name is Zoë now"
    how = [*command, source, "-m", "t", "--attention"]
    (found,) = records(capsys, *how, "--copy-unknown")
    assert "<unk>" in found["target_pieces"]
    words = source.split()
    mean = np.array(found["attention"]).mean((0, 1))[:, : len(words)]
    expected = [
        words[row.argmax()] if piece == "<unk>" else piece
        for row, piece in zip(mean, found["target_pieces"], strict=True)
        if piece != "<eos>"
    ]
    assert found["text"].split() == expected
    assert "<unk>" not in found["text"]
    assert found["tokens"] == len(found["target_pieces"])
    # Its log-probability is that of the text with <unk> in it.
    pair = tmp_path / "pair.tsv"
    unknown = " ".join(piece for piece in found["target_pieces"] if piece != "<eos>")
    pair.write_text(f"{source}\t{unknown}\n")
    (scored,) = records(capsys, "perplexity", pair, "-m", "t")
    assert -scored["nll_nats"] == pytest.approx(found["logprob"], abs=1e-4)
    (plain,) = records(capsys, *how)
    assert "<unk>" not in plain["target_pieces"]
    assert said(capsys, *how[:-1], "--copy-unknown").out == found["text"] + "\n"


def test_the_whole_word_is_copied_from_a_source_of_characters(tmp_path, capsys):
    path = tmp_path / "names.tsv"
    lines = [f"my name is N{n}ë, now\tich heisse N{n}ë, jetzt\n" for n in range(30)]
    path.write_text("".join(lines))
    settings = {"tokenizer": "word", "source_tokenizer": "char", "min_count": 2}
    settings |= {"steps": 20, "lr": 0.02, "hidden_size": 16, "seed": 1, "num_layers": 1}
    train([path], architecture="seq2seq", name="t", settings=settings | {"batch_size": 16})
    source = "my name is Zoë, now"
    how = ["beam-search", source, "-m", "t", "--attention", "--copy-unknown"]
    (found,) = records(capsys, *how)
    unknown = found["target_pieces"].index("<unk>")
    row = np.array(found["attention"]).mean((0, 1))[unknown, : len(source)]
    place = np.where([character == " " for character in source], -1, row).argmax()
    ends = {2: "my", 7: "name", 10: "is", 14: "Zoë", 15: ",", 19: "now"}
    word = next(word for end, word in ends.items() if place < end)
    before = "".join(found["target_pieces"][:unknown])
    assert found["text"].startswith(f"{before} {word}" if word.isalnum() else before + word)


def test_whole_words_of_pieces():
    raw = "is Zoë, O'Brien".encode()
    by_byte = [raw[n : n + 1] for n in range(len(raw))]
    of_word = [b"is", " Zoë".encode(), b",", b" O'Brien"]
    assert whole_words(by_byte, of_word) == [
        "is", "is", "", "Zoë", "Zoë", "Zoë", "Zoë", ",", "", *["O'Brien"] * 7
    ]  # fmt: skip
    subwords = [b"is", b" Z", "oë,".encode(), b" O'", b"Brien"]
    assert whole_words(subwords, of_word) == ["is", "Zoë", "Zoë,", "O'Brien", "O'Brien"]
    of_white_space = [b"is", " Zoë,".encode(), b" O'Brien"]
    assert whole_words(of_word, of_white_space) == ["is", "Zoë,", "Zoë,", "O'Brien"]
    characters = [character.encode() for character in raw.decode()]
    assert whole_words(characters, characters) == [c.strip() for c in raw.decode()]


def test_a_copied_word_stands_as_the_tokenizer_writes_words():
    for tokenizer, words, written in (
        (WordTokenizer(["So", ",", " he"]), ["Zoë", "!"], "So Zoë, he!"),
        (WhitespaceTokenizer(["So", ",", "he"]), ["Zoë", "!"], "So Zoë , he !"),
        (CharTokenizer("So, he"), ["ë", "!"], None),
    ):
        text = "So<unk>, he<unk>" if isinstance(tokenizer, WordTokenizer) else "So <unk> , he <unk>"
        if written is None:
            text, written = "Soë, he!", "Soë, he!"
        ids = tokenizer.encode(text).tolist()
        if isinstance(tokenizer, WordTokenizer):
            ids = [4 + 1, tokenizer.unk_id, 4 + 2, 4 + 3, tokenizer.unk_id]
        decoder = CopyingDecoder(tokenizer.decoder(), tokenizer, words)
        assert "".join(map(decoder.push, ids)) + decoder.flush() == written


# ---- heat maps and pictures ----


def test_a_heat_map_fits_and_leaves_the_data_alone(tsv, capsys):
    made(tsv, "seq2seq-transformer")
    source = "one two three " * 5
    how = ["beam-search", source, "six", "-m", "t", "--max-tokens", 5]
    shown, plain = said(capsys, *how, "--attention"), said(capsys, *how)
    assert shown.out == plain.out
    assert all(len(line) <= 80 for line in shown.err.splitlines())
    assert shown.err.count("mean of 2 layers, mean of 2 heads") == 2
    assert "\x1b" not in shown.err
    assert said(capsys, *how, "--attention", "--quiet").err == ""
    assert "layer" not in said(capsys, *how, "--attention", "--json").err


def test_typed_sources_show_their_attention(tsv, capsys, monkeypatch):
    """`sample -i --attention` against a run for each source."""
    made(tsv)
    how = ["-m", "t", "--greedy", "--max-tokens", 4, "--attention", "--align"]
    each = [said(capsys, "sample", source, *how, "--seed", 1) for source in ("one", "two six")]
    typed = iter(["one", "two six"])

    def answer(prompt):
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("seqgen.cli.sample.is_terminal", lambda stream: True)
    session = said(capsys, "sample", "-i", *how)
    texts = [one.out.rstrip("\n").split("\t") for one in each]
    assert session.out == "".join(f"{text}\n{pairs}\n\n" for text, pairs in texts) + "\n"
    maps = [one.err.split("\n", 1)[1] for one in each]  # below the title
    first, second = session.err.split("source 1: ")
    assert first.endswith(maps[0]) and second.endswith(maps[1])


def test_a_heat_map_by_hand(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    weights = np.array([[0.0, 0.8], [0.4, 0.2]])
    put_heat_map(weights, ["ab", "<eos>"], ["xy", " "], "title")
    assert written.getvalue().rstrip("\n").split("\n") == [
        "title; darkest 0.80",
        "      x",
        "      y ␣",
        "ab      ██",
        "<eos> ▒▒░░",
    ]


@pytest.mark.slow
def test_pictures_are_drawn(tsv, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib, the extra `plot`")
    made(tsv, "seq2seq-transformer")
    how = ["beam-search", "one two", "six", "-m", "t", "--max-tokens", 3, "--quiet", "--plot"]
    said(capsys, *how, tmp_path / "a.svg")
    first, second = ((tmp_path / name).read_text() for name in ("a.svg", "a-1.svg"))
    assert "source 0, rank 0: mean of 2 layers" in first and "source 1, rank 0" in second
    assert ">w</text>" in first
    assert ">x</text>" in second
    tsv.write_text("one\to\nsix\ts\n")
    for _ in range(2):  # the second time over the first
        said(capsys, "perplexity", tsv, "-m", "t", "--quiet", "--plot", tmp_path / "b.png")
    assert (tmp_path / "b-1.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "b-2.png").exists()
    tsv.rename(tmp_path / "text.svg")
    line = refusal(capsys, *how, tmp_path / "text.svg")
    assert "exists and is not a picture of seqgen: give another --plot" in line


def test_a_picture_has_labels_as_they_are(tmp_path):
    pytest.importorskip("matplotlib", reason="--plot needs matplotlib, the extra `plot`")
    draw = functools.partial(draw_heat_map, tmp_path / "a.svg", np.eye(2))
    draw(["$a$", "<b>"], ["\\alpha", "\u4e2d"], "a title")
    picture = (tmp_path / "a.svg").read_text()
    for text in ("$a$", "&lt;b&gt;", "\\alpha", "\u4e2d", "a title"):
        assert f">{text}</text>" in picture
    draw(["$a$", "<b>"], ["\\alpha", "\u4e2d"], "a title")
    assert (tmp_path / "a.svg").read_text() == picture
    draw_heat_map(tmp_path / "b.png", np.zeros((0, 1)), [], ["<eos>"], "nothing")


def test_a_picture_needs_matplotlib(tsv, tmp_path, capsys, monkeypatch):
    made(tsv)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    how = ["beam-search", "one", "-m", "t", "--plot"]
    line = refusal(capsys, *how, tmp_path / "a.svg")
    assert line == "seqgen: --plot needs the package matplotlib: pip install matplotlib"
    assert "--plot writes .svg or .png files" in refusal(capsys, *how, tmp_path / "a.pdf")


# ---- sources in files ----


def test_sources_of_a_file_are_those_of_lines(tsv, tmp_path, capsys):
    made(tsv)
    lines = tmp_path / "sources"
    lines.write_text("one two\n\nsix\n")
    for command in (["beam-search"], ["sample", "--greedy"]):
        how = [*command, "-m", "t", "--max-tokens", 4]
        found = records(capsys, *how, "--source", lines)
        assert found == records(capsys, *how, "one two", "", "six")
        assert said(capsys, *how, "--source", lines).out.count("\n") == 3
    assert "not both" in refusal(capsys, "sample", "one", "-m", "t", "--source", lines)
    lines.write_text("")
    assert "no source, no text" in said(capsys, *how, "--source", lines).err


def test_targets_are_scored_with_the_sources_of_a_file(tsv, tmp_path, capsys):
    made(tsv)
    source, target = tmp_path / "s", tmp_path / "t"
    source.write_text("".join(f"{one}\n" for one, _ in pairs_of()))
    target.write_text("".join(f"{two}\n" for _, two in pairs_of()))
    for way in ([], ["--per-line"]):
        joined = records(capsys, "perplexity", tsv, "-m", "t", *way)
        apart = records(capsys, "perplexity", target, "--source", source, "-m", "t", *way)
        assert len(joined) == len(apart)
        for one, other in zip(joined, apart, strict=True):
            assert other.pop("file") == str(target) and one.pop("file") == str(tsv)
            assert one == other
    target.write_text("o\tt\n")
    source.write_text("one\ttwo\n")
    (found,) = records(
        capsys, "perplexity", target, "--source", source, "-m", "t", "--align", "--attention"
    )
    assert (found["source"], found["text"]) == ("one\ttwo", "o\tt")
    assert len(found["alignment"].split()) == 3
    target.write_text("o\nt\n")
    assert "2 lines" in refusal(capsys, "perplexity", target, "--source", source, "-m", "t")
    assert "one FILE of targets" in refusal(capsys, "perplexity", "--source", source, "-m", "t")


# ---- what makes no sense ----


def test_models_of_text_read_no_source(tsv, capsys):
    train([tsv], architecture="ngram", name="text", settings={"documents": "line"})
    what = "is for models that write from sources; text is a model of text"
    loaded = load("text")
    for flag, given in (
        ("--attention", {"attention": True}),
        ("--align", {"align": True}),
        ("--align-words", {"align_words": True}),
        ("--layer", {"heads": ChosenHeads(layer=0)}),
        ("--max-ratio", {"max_ratio": 2.0}),
        ("--copy-unknown", {"copy_unknown": True}),
    ):
        with pytest.raises(UsageError, match=f"{flag} {what}"):
            check_sources(SourceOptions(**given), loaded)
    beams = ["beam-search", "-m", "text"]
    assert refusal(capsys, *beams, "one", "--attention") == f"seqgen: --attention {what}"
    assert refusal(capsys, *beams, "--source", tsv) == f"seqgen: --source {what}"
    line = refusal(capsys, *beams, "one", "--coverage-penalty", "1")
    assert line == f"seqgen: --coverage-penalty {what}"
    line = refusal(capsys, "sample", "one", "-m", "text", "--greedy", "--align")
    assert line == f"seqgen: --align {what}"
    assert "--align is for" in refusal(capsys, "perplexity", tsv, "-m", "text", "--align")
    assert "--source is for" in refusal(capsys, "perplexity", tsv, "-m", "text", "--source", tsv)


def test_models_without_attention_say_so(tsv, capsys):
    made(tsv, attention="none")
    line = refusal(capsys, "beam-search", "one", "-m", "t", "--copy-unknown")
    assert line == "seqgen: this model has no attention; train one without attention=none"
    assert "no attention" in refusal(
        capsys, "beam-search", "one", "-m", "t", "--coverage-penalty", 1
    )
    assert "no attention" in refusal(capsys, "perplexity", tsv, "-m", "t", "--attention")
    records(capsys, "beam-search", "one", "-m", "t", "--max-ratio", 1)


def test_flags_that_contradict_each_other(tsv, capsys):
    made(tsv)
    beams, sample = ["beam-search", "one", "-m", "t"], ["sample", "one", "-m", "t", "--seed", 1]
    assert "give --attention or --explain" in refusal(capsys, *beams, "--attention", "--explain")
    assert "give --align or --suggest" in refusal(capsys, *sample, "--align", "--suggest", 2)
    line = refusal(capsys, *beams, "--stochastic", "--coverage-penalty", 1)
    assert "--coverage-penalty has no say" in line
    assert "--coverage-penalty" in refusal(capsys, *beams, "--coverage-penalty", -1)
    line = refusal(capsys, "perplexity", tsv, "-m", "t", "-m", "t", "--attention")
    assert "--attention takes one model" in line
    assert "not both" in refusal(capsys, "perplexity", tsv, "-m", "t", "--align", "--per-token")


def test_vectors_are_places_with_numbers(tmp_path, capsys):
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(12, 4, 3)))
    (tmp_path / "t").write_text("one\ntwo\n" * 6)
    settings = {"hidden_size": 8, "num_layers": 1, "steps": 2, "seed": 1}
    sides = [tmp_path / "v.npy"], [tmp_path / "t"]
    train(sides[0], targets=sides[1], architecture="seq2seq", name="t", settings=settings)
    how = ["beam-search", "--source-vectors", tmp_path / "v.npy", "-m", "t", "--max-tokens", 3]
    found = records(capsys, *how, "--attention", "--align", "--coverage-penalty", 0.5)
    assert len(found) == 12
    for record in found:
        weights = np.array(record["attention"]).mean((0, 1))
        assert record["source_pieces"] == ["0", "1", "2", "3"]
        covered = 0.5 * np.log(np.minimum(weights.sum(0), 1)).sum()
        expected = record["logprob"] / record["tokens"] + covered
        assert record["score"] == pytest.approx(expected, abs=1e-4)
        own = weights[: len(loaded_text(record))].argmax(1)
        pairs = [f"{place}-{token}" for token, place in enumerate(own)]
        assert record["alignment"] == " ".join(pairs)
    assert "reads vectors" in refusal(capsys, *how, "--copy-unknown")
    assert "reads vectors" in refusal(capsys, *how, "--align-words")

"""`-m NAME:bytes` in the commands, and mixtures over different tokenizers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers_cli import needs, records, refusal
from places import ROOT, STORED
from trained_models import train_models

import seqgen
from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.plugins.bytes.view import by_bytes
from seqgen.scoring.perplexity import perplexity
from seqgen.store.loading import Work, load
from seqgen.text.tokenizers.byte import OFFSET

SMALL = (
    "--layers",
    "1",
    "--hidden-size",
    "16",
    "--steps",
    "20",
    "--batch-size",
    "4",
    "--seed",
    "1",
)
SUBWORDS = ("--tokenizer", "bpe", "--vocab-size", "300")
NGRAM = ("--model", "ngram", "--order", "3")
MODELS = {
    "subwords": (*NGRAM, *SUBWORDS),
    "unigram": (*NGRAM, "--tokenizer", "unigram", "--vocab-size", "300"),
    "characters": (*NGRAM,),
    "words": (*NGRAM, "--tokenizer", "word", "--set", "min_count=2"),
    "byte": (*NGRAM, "--tokenizer", "byte"),
    "lines": (*NGRAM, *SUBWORDS, "--documents", "line"),
    "gru": (*SUBWORDS, "--model", "gru", *SMALL),
    "transformer": (*SUBWORDS, "--model", "transformer", "--heads", "2", "--seq-len", "24", *SMALL),
    "backward": (*NGRAM, "--direction", "backward"),
    "lossy": (*NGRAM, "--tokenizer", "whitespace"),
}
TEXT = (ROOT / "corpora" / "verse.txt").read_text()[:8000]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return train_models(tmp_path_factory.mktemp("bytes"), TEXT, MODELS)


@pytest.fixture(autouse=True)
def at_home(home, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(home))


def nats(name, text, work=None):
    return perplexity(load(name, work=work), [text]).nll_nats


@pytest.mark.fast_for("words", rest="slow")
@pytest.mark.parametrize("name", ["subwords", "unigram", "words", "lines", "gru", "transformer"])
def test_all_covers_are_at_least_as_probable_as_one(name):
    for at in range(0, 2000, 500):
        text = TEXT[at : at + 60]
        tokens = load(name)
        if (tokens.encode([text]).tokens == tokens.tokenizer.unk_id).any():
            continue  # which has a price of its own
        assert nats(f"{name}:bytes=all", text) <= nats(name, text) + 1e-6


def test_one_cover_is_as_probable_as_its_tokens():
    text = "".join(letter for letter in TEXT[:300] if letter.isascii())
    for how in ("bytes", "bytes=all"):
        found = nats(f"characters:{how}", text)
        assert found == pytest.approx(nats("characters", text), abs=1e-6 * len(text))


@pytest.mark.parametrize("most", [1, 8, 64])
def test_all_covers_are_finite_on_a_text_of_another_kind(most):
    """The tokenizer's own split is always kept, so that few covers do as well as its tokens."""
    text = (ROOT / "README.md").read_text()[:700]
    found = nats(f"subwords:bytes=all,{most}", text)
    assert found <= nats("subwords", text) + 1e-6


def test_both_views_of_words_are_near_the_tokens_price_of_unknown_words():
    """A bit for each place where an unknown word may end, beside the 8 of each byte."""
    text = (
        "The day \u201cPrivet\u201d \u043c\u043e\u0439 \u0434\u0440\u0443\u0433, and day is near "
        * 4
    )
    loaded = load("words")
    scored = perplexity(loaded, [text])
    tokens = scored.bits_per_byte * len(text.encode())
    for how in ("bytes", "bytes=all"):
        assert nats(f"words:{how}", text) / math.log(2) < tokens + len(text)


@pytest.mark.parametrize("name", ["subwords", "gru"])
def test_both_engines_agree(name):
    by_arrays, by_torch = (nats(f"{name}:bytes", TEXT[:200], work) for work in (Work(), None))
    assert by_arrays == pytest.approx(by_torch, abs=1e-3)


def test_a_model_of_bytes_is_its_own_view():
    assert nats("byte:bytes", TEXT[:200]) == nats("byte", TEXT[:200])


@pytest.mark.parametrize("name", list(MODELS))
def test_every_distribution_sums_to_1(name):
    if name in ("backward", "lossy"):
        pytest.skip("it has no such view")
    model = load(f"{name}:bytes", work=Work()).model
    state = model.start(2)
    ends = b"th\xc3\xa9 \xff\n", b"The day"
    for column in zip(*ends, strict=True):
        log_probs, state = model.step([OFFSET + byte for byte in column], state)
        assert np.exp(log_probs.astype(np.float64)).sum(-1) == pytest.approx(1, abs=1e-5)


def test_the_number_of_covers_is_an_option(capsys, tmp_path):
    file = tmp_path / "text"
    text = TEXT[:10]
    file.write_text(text)
    few, name = ("--covers", 2, "-q"), "subwords:bytes=all"
    (scored,) = records(capsys, "perplexity", "-m", name, file, *few)
    assert scored["model"] == f"{name},2"
    assert 0 < scored["left_out_mass"] < 1
    assert scored["nll_nats"] == pytest.approx(nats(f"{name},2", text))
    wanted = nats(f"{name},1000", text)
    (scored,) = records(capsys, "perplexity", "-m", name, file, "--covers", 10**5, "-q")
    assert scored["nll_nats"] == pytest.approx(wanted)
    assert scored["left_out_mass"] < 1e-9
    (one,) = records(capsys, "sample", "Th", "-m", name, "--max-tokens", 5, "--seed", 1, *few)
    assert one["model"] == f"{name},2"
    assert 0 < one["left_out_mass"] < 1
    (one,) = records(capsys, "beam-search", "Th", "-m", name, "--max-tokens", 3, *few)
    assert one["left_out_mass"] > 0
    mixed = f"{name}:0.5+byte:0.5"
    (scored,) = records(capsys, "perplexity", "-m", mixed, file, *few)
    assert scored["left_out_mass"] > 0
    compared = records(capsys, "compare", "byte", f"{name},2", "--data", file, "-q")
    assert ["left_out_mass" in one for one in compared] == [False, True]
    (plain,) = records(capsys, "perplexity", "-m", "subwords:bytes", file, "-q")
    assert "left_out_mass" not in plain
    for other in ("subwords", "subwords:bytes"):
        said = refusal(capsys, "perplexity", "-m", other, "-m", name, file, *few)
        assert f"--covers goes with NAME:bytes=all, and {other} is none" in said
    for option in ("all,0", "all,x", "all,", "all,\u0665", "most", ",5"):
        assert "not :bytes=" in refusal(capsys, "perplexity", "-m", f"byte:bytes={option}", file)


def test_commands_take_the_view(capsys, tmp_path):
    (tmp_path / "text").write_text(TEXT[:120])
    file = tmp_path / "text"
    (scored,) = records(capsys, "perplexity", "-m", "subwords:bytes", file, "-q")
    assert (scored["model"], scored["tokens"]) == ("subwords:bytes", 120)
    how = ("-m", "gru:bytes", "--max-tokens", 12, "--seed", 1, "-q")
    (one,) = records(capsys, "sample", "Th", *how)
    assert one["tokens"] == 12
    several = records(capsys, "sample", "Th", "A day", "Th", *how)
    assert several[0]["text"] == one["text"]
    best = records(capsys, "beam-search", "Th", "-m", "subwords:bytes", "--max-tokens", 6, "-q")
    assert len(best) == 1
    assert records(capsys, "compare", "subwords:bytes", "byte", "--data", file, "-q")


def test_the_protocol_says_how_the_tokens_are_read(capsys, tmp_path):
    file = tmp_path / "text"
    file.write_text(TEXT[:80])

    def protocol(name):
        (scored,) = records(capsys, "perplexity", "-m", name, file, "-q")
        return scored["protocol"]

    own = "covers of bpe tokens, the tokenizer's own"
    assert protocol("subwords:bytes") == (
        f"one stream after a newline; byte tokens; {own}; unknowns scored as <unk>"
    )
    assert "covers of bpe tokens, up to 8 at a time" in protocol("subwords:bytes=all,8")
    window = "window 24, stride 12"
    assert window in protocol("transformer")
    assert f"{own}; {window} of these tokens" in protocol("transformer:bytes")
    assert protocol("gru+characters").count("covers of") == 2
    assert "covers" not in protocol("byte:bytes")
    said = refusal(capsys, "perplexity", "-m", "transformer:bytes", file, "--stride", 3)
    assert "--stride is for models over tokens" in said
    framing = load("transformer").framing
    after_bos = replace(load("transformer"), own_framing=replace(framing, start=1))
    assert "one stream after BOS" in perplexity(by_bytes(after_bos), [TEXT[:30]]).protocol


def test_texts_are_split_into_bytes(capsys, tmp_path):
    (tmp_path / "text").write_text("Thé day")
    for name in ("subwords:bytes", "subwords+characters"):
        assert run(["tokenize", str(tmp_path / "text"), "-m", name]) == 0
        assert len(capsys.readouterr().out.split()) == 8


def test_models_with_different_tokenizers_are_mixed_by_bytes(capsys):
    parts = [load(f"{name}:bytes", work=Work()).model for name in ("subwords", "characters")]
    mixture = load("subwords:0.25+characters:0.75", work=Work())
    assert mixture.tokenizer.kind == "byte"
    states, mixed = [part.start(1) for part in parts], mixture.model.start(1)
    for token in (OFFSET + byte for byte in b"\nThe day"):
        each = []
        for at, part in enumerate(parts):
            log_probs, states[at] = part.step([token], states[at])
            each.append(np.exp(log_probs))
        log_probs, mixed = mixture.model.step([token], mixed)
        assert np.exp(log_probs) == pytest.approx(0.25 * each[0] + 0.75 * each[1], abs=1e-9)


@pytest.mark.slow
def test_a_mixture_by_bytes_can_be_stored(capsys):
    arguments = ("mix", "gru", "words", "byte", "--name", "three", "-q")
    (mixed,) = records(capsys, *arguments)
    assert sum(mixed["weights"]) == pytest.approx(1)
    (scored,) = records(capsys, "perplexity", "-m", "three", "-q")
    assert scored["nll_nats"] == pytest.approx(mixed["nll_nats"], rel=1e-9)
    (shown,) = records(capsys, "models", "show", "three")
    assert shown["tokenizer"] == "byte"
    assert records(capsys, "sample", "-m", "three", "--max-tokens", 5, "--seed", 1, "-q")
    for part in ("gru", "words", "byte"):
        (alone,) = records(capsys, "perplexity", "-m", f"{part}:bytes", "-q")
        assert scored["nll_nats"] < alone["nll_nats"] + 1


def test_the_grammar_of_names():
    found = store.find_all("subwords:bytes=all:0.25+characters")
    assert [part.view for part in found.parts] == ["bytes=all", ""]
    assert found.weights == (0.25, 0.75)
    assert found.name == "subwords:bytes=all:0.25+characters:0.75"
    assert store.find_all(found.name).digest == found.digest
    one, plain = store.find_all("gru:bytes"), store.find_all("gru")
    assert (one.name, plain.name) == ("gru:bytes", "gru")
    assert one.digest != plain.digest
    assert one.digest == store.find_all(f"{plain.path}:bytes").digest


def test_a_path_with_a_colon_wins(home, tmp_path):
    place = tmp_path / "a:bytes"
    place.symlink_to(home / "models" / "gru")
    found = store.find_all(f"{place}")
    assert found.view == ""
    assert store.find_all(f"{place}:bytes").view == "bytes"


def test_a_bare_folder_is_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("gru:bytes", "gru", "gru:bytes=all"):
        (tmp_path / name).mkdir()
    assert store.find_all("gru:bytes").view == "bytes"
    assert [part.view for part in store.find_all("gru:bytes=all+byte").parts] == ["bytes=all", ""]
    assert store.find_all("gru").path.parent != tmp_path


@pytest.mark.parametrize("copy", [False, True])
def test_a_stored_mixture_keeps_the_views_of_its_parts(capsys, copy):
    views = ("subwords:bytes=all,8", "byte")
    options = ("--weights", "0.5,0.5", "-q", "--name", f"viewed-{copy}", *["--copy"] * copy)
    (mixed,) = records(capsys, "mix", *views, *options)
    assert mixed["parts"] == list(views)
    stored = store.find_all(mixed["name"])
    assert [part.view for part in stored.parts] == ["bytes=all,8", ""]
    unnamed = load("subwords:bytes=all,8:0.5+byte:0.5")
    for text in (TEXT[:40], TEXT[500:540]):
        found = perplexity(load(mixed["name"]), [text]).nll_nats
        assert found == pytest.approx(perplexity(unnamed, [text]).nll_nats)
        assert found != pytest.approx(nats("subwords:0.5+byte:0.5", text), rel=1e-9)
    (shown,) = records(capsys, "models", "show", mixed["name"])
    assert [part["name"] for part in shown["mixture"]["parts"]] == list(views)
    assert shown["config"]["data"]["vocab_size"] is None
    assert all(part["path"] for part in shown["mixture"]["parts"])


def test_refusals_are_one_line(capsys):
    for name, said in {
        "gru:bytes=some": "a model is seen as :bytes, :bytes=all or :bytes=all,N, not :bytes=some",
        "gru:bytes=": "a model is seen as :bytes, :bytes=all or :bytes=all,N, not :bytes=",
        "gru:bytes=all,\u0665": "not :bytes=all,\u0665",
        "gru:byte": "'gru:byte' cannot be a model's name: a name has no colon; to read models,",
        ":bytes": "cannot be a model's name",
        "nobody:bytes": "there is no model named 'nobody'",
        "gru:bytes:0.5": "cannot be a model's name",
        "gru:bytes+": "a mixture is written A+B",
        "gru+gru:bytes": "gru is given twice",
        "backward:bytes": "reads from right to left",
        "lossy:bytes": "its whitespace tokenizer changes texts",
        "gru:0.5+lossy:0.5": "its whitespace tokenizer changes texts",
        "gru+lines": "different --documents",
        "gru+backward": "different tokenizers and cannot be mixed",
    }.items():
        assert said in refusal(capsys, "sample", "T", "-m", name, "-q")


def test_models_of_other_data_have_no_such_view(tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("ab\tba\nabb\tbba\n" * 20)
    how = ("--model", "seq2seq", "--steps", "1", "--hidden-size", "8", "--layers", "1")
    assert run(["train", str(tmp_path / "pairs.tsv"), "--name", "pairs", "-q", *how]) == 0
    capsys.readouterr()
    assert ":bytes is for models of text" in refusal(capsys, "sample", "a", "-m", "pairs:bytes")
    with pytest.raises(SeqgenError, match="models of text"):
        by_bytes(load("pairs"))


@needs("labels")
def test_classifiers_have_no_such_view(capsys):
    name = str(STORED / "kinds" / "models" / "bag-classifier")
    for command in ("eval", "predict"):
        said = refusal(capsys, command, ROOT / "README.md", "-m", f"{name}:bytes")
        assert "bag-classifier:bytes is a classifier, no language model" in said


def test_the_end_of_a_line_is_the_end_of_all_covers():
    text = "".join(f"{line}\n" for line in TEXT.splitlines()[:3])
    tokens, seen = nats("lines", text), nats("lines:bytes=all", text)
    assert math.isfinite(seen)
    assert seen <= tokens + 1e-6


@pytest.mark.slow
def test_samples_by_tokens_and_by_all_covers_are_of_one_distribution():
    """Chi-square of the first two bytes of texts, whose tokens have up to three."""
    samples = 6000
    found = []
    for name in ("subwords", "subwords:bytes=all"):
        how = {"num_samples": samples, "max_tokens": 2, "batch_size": 500, "seed": len(name)}
        texts = seqgen.load(name).sample("the d", **how)
        found.append(Counter(record.text.encode()[:2] for record in texts))
    both = found[0] + found[1]
    common = [text for text, count in both.items() if count >= 20]
    chi = 0.0
    for counts in found:
        observed = [counts[text] for text in common]
        observed.append(samples - sum(observed))
        expected = [both[text] / 2 for text in common]
        expected.append(samples - sum(expected))
        pairs = zip(observed, expected, strict=True)
        chi += sum((seen - mean) ** 2 / mean for seen, mean in pairs if mean)
    degrees = len(common)
    assert chi < degrees + 4 * math.sqrt(2 * degrees)

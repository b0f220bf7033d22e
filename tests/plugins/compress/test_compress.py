"""Compression: every file comes back byte for byte, in as many bits as perplexity says."""

from __future__ import annotations

import base64
import contextlib
import random
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from helpers_cli import has_plugin, needs, records, refusal
from places import ROOT, STORED

from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.plugins.compress import archive as module
from seqgen.plugins.compress.archive import LEAST, STEPS, compress, decompress, weights_of
from seqgen.scoring.perplexity import perplexity
from seqgen.settings.scoring import Adaptive, Scoring
from seqgen.store.loading import Work, load
from seqgen.training import with_ngram

pytest.importorskip("constriction")
SMALL = ("--layers", "1", "--hidden-size", "8", "--steps", "4", "--batch-size", "4")
NETWORK = ("--seq-len", "16", "--seed", "1", *SMALL)
MODELS = {
    "characters": ("--model", "ngram", "--order", "4"),
    "lines": ("--model", "ngram", "--order", "3", "--documents", "line"),
    "words": ("--model", "ngram", "--order", "2", "--tokenizer", "word", "--set", "min_count=3"),
    "zeros": ("--model", "ngram", "--order", "3", "--smoothing", "maximum-likelihood"),
    "subwords": ("--tokenizer", "bpe", "--vocab-size", "300", "--model", "gru", *NETWORK),
    "bytes": ("--tokenizer", "byte", "--model", "transformer", "--heads", "2", *NETWORK),
}
if has_plugin("hmm"):
    MODELS["states"] = ("--model", "hmm", "--set", "num_states=3", "--steps", "2", "--seed", "1")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One model of each kind, loaded as the command does; and their home."""
    home = tmp_path_factory.mktemp("compress") / "home"
    text = home.parent / "text.txt"
    text.write_text((ROOT / "corpora" / "verse.txt").read_text()[:6000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(home))
        for name, how in MODELS.items():
            assert run(["train", str(text), "--name", name, "-q", *how]) == 0
        yield {name: load(name, "cpu", work=Work()) for name in MODELS} | {"home": home}


def random_file(draw: random.Random, text: str) -> bytes:
    """Return a file of anything: text, other scripts, bytes that are no text, or nothing."""
    pieces = [
        lambda: text[(at := draw.randrange(len(text))) : at + draw.randrange(90)].encode(),
        lambda: draw.choice(
            ["\u2581", "é", "😀\u0301", "\ufeff", "<unk>", "\x00", "日本"]
        ).encode(),
        lambda: draw.randbytes(draw.choice([1, 2, 5])),
        lambda: draw.choice([b"\n", b"\r\n", b"\n\n", b"  ", b"\xed\xa0\x80", b"\xf0\x9f"]),
        lambda: b"\xff" * draw.choice([254, 255, 256, 257, 600]),
    ]
    weights = [6, 2, 1, 2, 0.2]
    return b"".join(made() for made in draw.choices(pieces, weights, k=draw.randrange(9)))


def check_round_trips(models, seeds) -> None:
    text = (ROOT / "corpora" / "verse.txt").read_text()
    names = list(MODELS)
    for seed in seeds:
        loaded, raw = models[names[seed % len(names)]], random_file(random.Random(seed), text)
        content = compress(loaded, raw, adapt=seed % 3 == 0).content
        assert b"".join(decompress(loaded, content)) == raw, (seed, loaded.name)


def test_every_file_comes_back(models, monkeypatch):
    check_round_trips(models, range(28))
    monkeypatch.setattr(module, "BLOCK", 7)
    check_round_trips(models, range(28, 42))


@pytest.mark.long
def test_a_thousand_files_come_back(models):
    check_round_trips(models, range(1000, 2000))


def claimed(capsys, path, name: str) -> float:
    """Return how many bytes a text takes by its perplexity."""
    (found,) = records(capsys, "perplexity", path, "-m", name)
    return found["bits_per_byte"] * found["bytes"] / 8


@pytest.mark.parametrize("name", ["characters", "lines", "subwords"])
def test_the_size_is_that_of_perplexity(name, models, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(models["home"]))
    path = tmp_path / "t.txt"
    path.write_text((ROOT / "corpora" / "verse.txt").read_text()[7000:10000])
    (sizes,) = records(capsys, "compress", path, "-m", name)
    expected = claimed(capsys, path, name)
    assert abs(sizes["compressed"] - expected) <= 0.001 * expected + 64
    assert sizes["bits_per_byte"] == sizes["compressed"] * 8 / 3000


TEN = ["verse", "play", "chat", "words", "notes", "dates", "names", "cooking", "tags", "scenes"]


@pytest.mark.long
@pytest.mark.parametrize("name", TEN)
@pytest.mark.parametrize("how", ["characters", "lines", "words", "net"])
def test_sizes_of_ten_texts(name, how, tmp_path, capsys):
    found = next((ROOT / "corpora").glob(f"{name}.t[esx]*"))
    text = found.read_text()[:120_000]
    (tmp_path / "train.txt").write_text(text[:100_000])
    (tmp_path / "test.txt").write_text(text[100_000:])
    more = {
        "net": ("--model", "lstm", "--steps", "30", *NETWORK[2:]),
        "words": ("--model", "ngram", "--order", "3", "--tokenizer", "word"),
    }
    options = more.get(how) or MODELS[how]
    assert run(["train", str(tmp_path / "train.txt"), "--name", "m", "-q", *options]) == 0
    path = tmp_path / "test.txt"
    (found,) = records(capsys, "perplexity", path, "-m", "m")
    expected = found["bits_per_byte"] * found["bytes"] / 8
    (sizes,) = records(capsys, "compress", path, "-m", "m")
    # The length of an unknown word, some 3 bits, is in the file and not in the perplexity.
    lengths = found["oov"] / 2
    below = sizes["compressed"] - expected
    assert -0.001 * expected - 64 <= below <= 0.001 * expected + 64 + lengths


def test_probabilities_are_whole_numbers_that_do_not_depend_on_the_machine():
    with localcontext() as context:
        context.prec = 60
        for i in (0, 1, 17, 2048, 4095):
            exact = Decimal(2) ** (LEAST - Decimal(i) / STEPS)
            assert module.POWERS[i] == int(exact)
    logits = np.random.default_rng(0).normal(0, 3, 500)
    logits[7] = -np.inf
    weights = weights_of(logits.astype(np.float32))
    assert (weights == np.floor(weights)).all() and weights.max() < 2**53 and weights[7] == 0
    expected = np.exp(logits - logits.max())
    np.testing.assert_allclose(weights / weights.max(), expected, rtol=2e-4, atol=2e-12)


def test_a_file_of_counts_is_portable_and_one_of_a_network_says_what_made_it(models, monkeypatch):
    raw = (ROOT / "corpora" / "verse.txt").read_bytes()[9000:10000]
    files = {name: compress(models[name], raw).content for name in ("characters", "bytes")}
    assert b"numpy" not in compress(models["characters"], raw, adapt=True).content
    assert b"numpy" not in files["characters"] and b"numpy" in files["bytes"]
    monkeypatch.setattr(module, "_build", lambda loaded: "9.9, numpy 9, VAX")
    assert b"".join(decompress(models["characters"], files["characters"])) == raw
    # Elsewhere the text comes out if the predictions are the same, and else one line.
    assert b"".join(decompress(models["bytes"], files["bytes"])) == raw
    monkeypatch.setattr(module, "weights_of", lambda logits: weights_of(logits * 1.001))
    with pytest.raises(
        SeqgenError, match=r"was made with .*numpy.*, and this is 9.9, numpy 9, VAX"
    ):
        list(decompress(models["bytes"], files["bytes"]))


def test_counts_of_the_file_are_mixed_in_by_hand():
    adaptation, model = module.Adaptation(), np.full(4, 2.0**30)
    for token in (0, 1, 2, 0, 1):
        weights = adaptation.mixed(model)
        assert weights is model  # no two tokens have come before together
        adaptation.read(token)
    # After 0 1 came 2, once: with weight 1 of 4, p(2) = 1/4 + 3/4 1/4.
    probs = adaptation.mixed(model) / 2.0**40
    np.testing.assert_allclose(probs, [3 / 16, 3 / 16, 7 / 16, 3 / 16], rtol=1e-9)
    adaptation.read(2)
    # The counts had 4/7 of the probability of what came: their weight is now 11/7 of 5.
    probs = adaptation.mixed(model) / 2.0**40
    np.testing.assert_allclose(probs[0], 11 / 35 + 24 / 35 / 4, rtol=1e-9)


def test_a_file_of_another_kind_is_smaller_with_its_own_counts(models):
    raw = b"".join(b"%d: the quick brown fox\n" % n for n in range(60))
    for name in ("characters", "lines", "zeros"):
        alone, adapted = (len(compress(models[name], raw, a).content) for a in (False, True))
        assert adapted < 0.3 * alone, name


@pytest.fixture(scope="module")
def learning(models):
    """Models that learn from the file, loaded as the command does with --adapt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(models["home"]))
        text = str(models["home"].parent / "text.txt")
        for name, more in (("net", []), ("default", ["--with-ngram", "3", "--val", "0.3"])):
            patch.setattr(with_ngram, "WORTH_KEEPING", -1.0)
            assert (
                run(["train", text, "--name", name, "-q", "--model", "lstm", *NETWORK, *more]) == 0
            )
        return {name: load(name, "cpu") for name in ("net", "default")}


@pytest.mark.slow
@needs("dynamic")
@pytest.mark.parametrize("name", ["net", "default"])
def test_networks_and_mixtures_learn_from_the_file(name, learning, monkeypatch, tmp_path, capsys):
    """It comes back, in the bits of dynamic evaluation if nothing else is mixed in; or in fewer."""
    loaded, text = learning[name], (ROOT / "corpora" / "verse.txt").read_text()[6000:9000]
    before = [weight.clone() for weight in loaded.model.parameters()]
    plain = compress(loaded, text.encode()).content
    content = compress(loaded, text.encode(), adapt=True).content
    assert module.was_learning(content) and not module.was_learning(plain)
    assert len(content) < len(plain)
    again = load(loaded.stored, "cpu")  # another copy
    assert b"".join(decompress(again, content)) == text.encode()
    assert compress(again, text.encode(), adapt=True).content == content
    monkeypatch.setattr(module, "ADAPTS", 0)
    alone = compress(loaded, text.encode(), adapt=True).content
    assert b"".join(decompress(loaded, alone)) == text.encode()
    scoring = Scoring(adaptive=Adaptive(of_dynamic=module.learning_by(loaded)))
    bits = perplexity(loaded, [text], scoring=scoring).bits_per_byte * len(text.encode())
    assert 8 * len(alone) == pytest.approx(bits, abs=8 * 100)
    after = zip(before, loaded.model.parameters(), strict=True)
    assert all((a == b).all() for a, b in after)


@pytest.mark.fast_for("2", rest="slow")
@needs("dynamic")
@pytest.mark.parametrize("threads", [1, 2])
def test_files_of_anything_come_back_from_a_model_that_learns(threads, learning, monkeypatch):
    """Also damaged ones are refused; however many threads there are."""
    monkeypatch.setattr(module, "BLOCK", 50)
    text, before = (ROOT / "corpora" / "verse.txt").read_text(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(8):
            raw = random_file(random.Random(seed), text)
            content = compress(learning["default"], raw, adapt=True).content
            assert b"".join(decompress(learning["default"], content)) == raw
            assert torch.get_num_threads() == threads
            with pytest.raises(SeqgenError):
                b"".join(decompress(learning["default"], content[:-1]))
    finally:
        torch.set_num_threads(before)


@needs("dynamic")
@pytest.mark.usefixtures("learning")
def test_a_file_that_a_model_has_learned_from_by_command(
    models, tmp_path, capfdbinary, monkeypatch
):
    monkeypatch.setenv("SEQGEN_HOME", str(models["home"]))
    text, packed = tmp_path / "text", tmp_path / "packed"
    text.write_bytes((ROOT / "corpora" / "verse.txt").read_bytes()[6000:6800])
    for command, given in ((("compress", text), "default"), (("decompress", packed), "default")):
        capfdbinary.readouterr()
        flags = ["--adapt"] if command[0] == "compress" else []
        assert run([*map(str, command), "-m", given, "-q", *flags]) == 0
        packed.write_bytes(capfdbinary.readouterr().out)
    assert packed.read_bytes() == text.read_bytes()


@pytest.mark.parametrize("name", [*MODELS])
def test_other_models_mix_in_counts_alone(name, models):
    assert module.learning_by(models[name]) is None


def texts_of_damaged(loaded, content: bytes) -> list[bytes]:
    """Return what comes out of a file of which a bit is flipped, or the end is cut off."""
    damaged = [content[:size] for size in range(len(content))]
    for at, byte in enumerate(content):
        damaged += [content[:at] + bytes([byte ^ 1 << k]) + content[at + 1 :] for k in range(8)]
    found = []
    for file in [*damaged, content + b"\0"]:
        with contextlib.suppress(SeqgenError):
            found.append(b"".join(decompress(loaded, file)))
    return found


@pytest.mark.fast_for(
    "bytes-False",
    "subwords-True",
    "words-False",
    "zeros-True",
    "characters-False",
    "lines-True",
    "states-True",
    rest="slow",
)
@pytest.mark.parametrize("adapt", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_every_flipped_bit_and_every_cut_is_refused(name, adapt, models):
    raw = b"The moon \xff is\n" * 3
    for text in (raw, b"", raw[:-1]):
        content = compress(models[name], text, adapt).content
        assert texts_of_damaged(models[name], content) == []


# What the first format made of this text under the stored model `ngram-char`.
FIRST_TEXT = b"seat as ten\ntan tan\nan eat tan sand ant seat sat\ntan set nea\xff\xff\xff"
FIRST_FORMAT = {
    False: "k1NHMQLAStEW1lE9nXX+pweMXoserHP+bxHMpZlMXZYAAEZh",
    True: "k1NHMQbAStEW1lE9nXX+pzg8WYrHu66YU8TH1kx9zzoAAHD4",
}


@pytest.mark.fast_for("False", rest="slow")
@pytest.mark.parametrize("adapt", FIRST_FORMAT)
def test_files_of_the_first_format_are_still_read(adapt):
    loaded = load(STORED / "models" / "ngram-char", "cpu", work=Work())
    content = base64.b64decode(FIRST_FORMAT[adapt])
    assert b"".join(decompress(loaded, content)) == FIRST_TEXT
    # It has no checksum of the whole file: its last bits may mean nothing, but no text is wrong.
    assert set(texts_of_damaged(loaded, content)) <= {FIRST_TEXT}
    endless = content[:11] + b"\xff" * 300_000 + content[12:]
    with pytest.raises(SeqgenError, match="damaged"):
        list(decompress(loaded, endless))


def test_the_commands(models, tmp_path, capfdbinary, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(models["home"]))
    raw = b"The moon \xff is\n" * 9
    (tmp_path / "t.txt").write_bytes(raw)
    assert run(["compress", str(tmp_path / "t.txt"), "-m", "words", "--adapt"]) == 0
    out, err = capfdbinary.readouterr()
    assert f"126 bytes compressed to {len(out)}".encode() in err
    (tmp_path / "t.sg").write_bytes(out)
    assert run(["decompress", str(tmp_path / "t.sg"), "-m", "words"]) == 0
    assert capfdbinary.readouterr().out == raw


def test_what_is_refused(models, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(models["home"]))
    text = tmp_path / "t.txt"
    text.write_text("moon\n" * 30)
    assert "not a file that seqgen compress" in refusal(capsys, "decompress", text, "-m", "lines")
    (tmp_path / "t.sg").write_bytes(compress(models["words"], b"moon").content)
    assert "another model" in refusal(capsys, "decompress", tmp_path / "t.sg", "-m", "lines")
    for name, how in {
        "lossy": ("--tokenizer", "whitespace"),
        "back": ("--direction", "backward"),
    }.items():
        options = ("--model", "ngram", "-q", "--overwrite", *how)
        assert run(["train", str(text), "--name", name, *options]) == 0
        assert f"{name} " in refusal(capsys, "compress", text, "-m", name)

"""From right to left: what a forward model is of the mirrored text, a backward one is of the text.

Every test against this twin is bit for bit: the same counts, the same weights, the same draws.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers_cli import installed, records, refusal
from hypothesis import given
from hypothesis import strategies as st

from seqgen.cli import run
from seqgen.generation.backward import BackwardContinuation, BackwardDecoder
from seqgen.store.loading import load
from seqgen.text.corpus import Corpus, encode_corpus
from seqgen.text.direction import reading_order, reverse_corpus
from seqgen.text.tokenizers import KINDS

WORDS = ["the cat sat", "a dog ran off", "the dog sat down", "cats ran", "on a mat", "down, off"]
TEXT = "".join(f"{WORDS[i * i % 6]} {WORDS[i % 5]}\n" for i in range(60))
MIRRORED = {
    "stream": TEXT[::-1],
    "line": "".join(line[::-1] + "\n" for line in TEXT.splitlines()),
}
NETWORK = ("--layers", 1, "--hidden-size", 8, "--steps", 4, "--batch-size", 8, "--seq-len", 16)


def train(*arguments) -> None:
    """Train in this process."""
    assert run(["train", *map(str, arguments), "--quiet"]) == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store with backward models `B-KIND-DOCUMENTS` of a text, and their twins `F-...`."""
    folder = tmp_path_factory.mktemp("direction")
    (folder / "text.txt").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        for documents, mirrored in MIRRORED.items():
            (folder / f"{documents}.txt").write_text(mirrored)
            for kind, more in (("ngram", ("--order", 3)), ("gru", (*NETWORK, "--seed", 1))):
                common = ("--documents", documents, "--model", kind, "--val", "none", *more)
                name = f"{kind}-{documents}"
                backward = ("--direction", "backward", "--name", f"B-{name}")
                train(folder / "text.txt", *common, *backward)
                train(folder / f"{documents}.txt", *common, "--name", f"F-{name}")
        yield folder


NAMES = [f"{kind}-{documents}" for kind in ("ngram", "gru") for documents in ("stream", "line")]


@given(st.lists(st.lists(st.integers(4, 9), max_size=5), max_size=5))
def test_documents_are_turned_and_their_ends_stay(documents):
    tokens = np.array([t for d in documents for t in (*d, 2)], dtype=np.uint8)
    ends = np.cumsum([len(d) + 1 for d in documents], dtype=np.int64)
    corpus = Corpus(tokens, ends, 1, end=2)
    found = reverse_corpus(corpus)
    assert found.tokens.tolist() == [t for d in documents for t in (*d[::-1], 2)]
    assert found.tokens[reading_order(corpus)].tolist() == tokens.tolist()


@pytest.mark.parametrize("block", [1, 2, 1 << 20])
@pytest.mark.parametrize("documents", ["stream", "line"])
def test_a_text_is_turned_in_pieces(documents, block, monkeypatch):
    monkeypatch.setattr("seqgen.text.direction.BLOCK", block)
    tokenizer = KINDS["char"].train([TEXT])
    text = "the cat\na dog\n\non"
    mirrored = text[::-1] if documents == "stream" else "tac eht\ngod a\n\nno"
    found = reverse_corpus(encode_corpus([text], tokenizer, documents))
    wanted = encode_corpus([mirrored], tokenizer, documents)
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert found.ends.tolist() == wanted.ends.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_totals_are_those_of_the_mirrored_text(home, capsys, name):
    weights = [load(f"{way}-{name}").model.state_dict() for way in "BF"]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    documents = name.split("-")[1]
    (found,) = records(capsys, "perplexity", home / "text.txt", "-m", f"B-{name}")
    (twin,) = records(capsys, "perplexity", home / f"{documents}.txt", "-m", f"F-{name}")
    assert found["nll_nats"] == pytest.approx(twin["nll_nats"], rel=1e-9)
    assert (found["tokens"], found["bytes"]) == (twin["tokens"], twin["bytes"])
    assert "from right to left" in found["protocol"]
    assert "right" not in twin["protocol"]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_reported_in_the_order_of_the_text(home, tmp_path, capsys, name):
    file = tmp_path / "some.txt"
    file.write_text("a cat\nthe dog sat\n")
    tokens = records(capsys, "perplexity", file, "-m", f"B-{name}", "--per-token")
    assert "".join(one["text"] for one in tokens) == "a cat\nthe dog sat\n"
    (whole,) = records(capsys, "perplexity", file, "-m", f"B-{name}")
    assert -sum(one["logprob"] for one in tokens) == pytest.approx(whole["nll_nats"], rel=1e-6)
    lines = records(capsys, "perplexity", file, "-m", f"B-{name}", "--per-line")
    mirrored = tmp_path / "mirrored.txt"
    mirrored.write_text("tac a\ntas god eht\n")
    twins = records(capsys, "perplexity", mirrored, "-m", f"F-{name}", "--per-line")
    for line, twin in zip(lines, twins, strict=True):
        assert line["nll_nats"] == pytest.approx(twin["nll_nats"], rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_printed_forwards(home, capsys, name):
    common = ("--seed", 3, "--num-samples", 4, "--max-tokens", 20)
    found = records(capsys, "sample", "sat", "-m", f"B-{name}", *common, "--stop", "t", *FORCED)
    twins = records(capsys, "sample", "tas", "-m", f"F-{name}", *common, "--stop", "t", *DECROF)
    assert [one["text"][::-1] for one in found] == [twin["text"] for twin in twins]
    assert [one["logprob"] for one in found] == [twin["logprob"] for twin in twins]
    assert {one["prompt"] for one in found} == {"sat"}


FORCED, DECROF = ("--force", "dog ", "--ban", "of"), ("--force", " god", "--ban", "fo")


@pytest.mark.parametrize("name", NAMES)
def test_beams_are_printed_forwards(home, capsys, name):
    common = ("--nbest", 3, "--max-tokens", 12)
    found = records(capsys, "beam-search", "sat", "-m", f"B-{name}", *common, "--stop", "e c")
    twins = records(capsys, "beam-search", "tas", "-m", f"F-{name}", *common, "--stop", "c e")
    assert [one["text"][::-1] for one in found] == [twin["text"] for twin in twins]
    assert [one["finish_reason"] for one in found] == [twin["finish_reason"] for twin in twins]


def test_the_prompt_is_echoed_after_the_text(home, capsys):
    arguments = ["sample", "sat", "-m", "B-gru-line", "--seed", "3", "--quiet"]
    assert run([*arguments, "--echo"]) == 0
    echoed = capsys.readouterr().out
    assert run(arguments) == 0
    assert echoed == capsys.readouterr().out.removesuffix("\n") + "sat\n"
    assert run([*arguments, "--echo", "--num-samples", "2"]) == 0
    assert all(line.endswith("sat") for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("kind", ["char", "byte", "word", "whitespace", "unigram"])
def test_every_tokenizer_writes_the_text_it_read(kind):
    text = "Ein schöner Tag, 12 €\N{GRINNING FACE} wird gut" if kind != "whitespace" else "a b c d"
    lines = [f"{text}\n"] * 20
    tokenizer = KINDS[kind].train(lines, 300 if kind == "unigram" else None)
    ids = tokenizer.encode(text).tolist()[::-1]
    for split in range(len(ids)):
        right = tokenizer.decode(ids[:split][::-1])
        if "\ufffd" in right:
            continue  # a prompt is whole characters
        pushed = BackwardDecoder(tokenizer, ids[:split])
        mirrored = "".join([*map(pushed.push, ids[split:]), pushed.flush()])
        assert mirrored[::-1] + right == text


def test_fine_tuning_keeps_the_direction(home, capsys):
    text = home / "text.txt"
    for name, own, other in (("B", "backward", "forward"), ("F", "forward", "backward")):
        how = ("train", text, "--init-from", f"{name}-gru-line", "--steps", 1, "-q")
        said = refusal(capsys, *how, "--direction", other)
        assert f"--direction is fixed by --init-from: {name}-gru-line reads {own}" in said
        records(capsys, *how, "--direction", own, "--name", f"{name}-on")


class WholeText:
    """What `BackwardDecoder` is to return, from all ids at every token."""

    def __init__(self, tokenizer, history):
        self.decode, self.ids, self.sent = tokenizer.decode, [*reversed(history)], 0
        self.right = len(self.decode(self.ids))

    def push(self, token):
        self.ids.insert(0, token)
        return self.new(self.text().lstrip("\ufffd"))

    def flush(self):
        return self.new(self.text())

    def text(self):
        whole = self.decode(self.ids)
        return whole[: len(whole) - self.right]

    def new(self, text):
        piece = text[::-1][self.sent :]
        self.sent += len(piece)
        return piece


@pytest.mark.parametrize("kind", ["char", "byte", "word", "whitespace", "unigram"])
@pytest.mark.parametrize("seed", range(8))
def test_a_text_that_is_written_backward_is_decoded_as_a_whole(kind, seed):
    """Also where bytes make no characters; of these, more may be certain sooner."""
    text = "Ein schöner Tag, 12 €\N{GRINNING FACE} wird gut"
    tokenizer = KINDS[kind].train([f"{text}\n"] * 20, 300 if kind == "unigram" else None)
    draw = np.random.default_rng(seed)
    if kind == "byte":  # mostly parts of longer characters
        raw = draw.choice([*b"\x80\x82\xac\xe2\xf0\x9f\xc3a"], 60).tolist()
        ids = tokenizer.encode_utf8(bytes(raw))
    else:
        ids = draw.integers(4, tokenizer.vocab_size, 60)
    ids = [int(i) for i in ids]
    history = tokenizer.encode("gut").tolist()[::-1]
    mine, whole = BackwardDecoder(tokenizer, history), WholeText(tokenizer, history)
    written, certain = "", ""
    for token in ids:
        written += mine.push(token)
        certain += whole.push(token)
        assert written.startswith(certain) and not written[len(certain) :].strip("\ufffd")
    assert written + mine.flush() == certain + whole.flush()


def test_a_text_that_is_written_backward_takes_time_in_proportion(monkeypatch):
    tokenizer = KINDS["byte"].train(["a€"])
    decoded, once = [], tokenizer.decode
    monkeypatch.setattr(tokenizer, "decode", lambda ids: decoded.append(len(ids)) or once(ids))
    for text in ("a€" * 200, "a" * 800):
        decoded.clear()
        ids = tokenizer.encode(text)[::-1].tolist()
        decoder = BackwardDecoder(tokenizer)
        assert "".join([*map(decoder.push, ids), decoder.flush()])[::-1] == text
        assert sum(decoded) < 40 * len(ids)


@pytest.mark.parametrize("kind", ["byte", "char"])
def test_a_stop_string_leaves_what_is_to_the_right_of_it(kind):
    tokenizer = KINDS[kind].train(["abcdé€ "])
    text = BackwardContinuation(BackwardDecoder(tokenizer), ("€b",), 99, {})
    for token in tokenizer.encode("cd€bcdé ab")[::-1].tolist():
        if text.finish_reason is None:
            text.push(token)
    assert (text.text, text.finish_reason) == ("cdé ab", "stop")


def test_forward_and_backward_are_compared_on_one_text(home, capsys):
    names = ("B-gru-line", "F-gru-line", "B-ngram-stream")
    found = records(capsys, "compare", *names, "--data", home / "text.txt")
    for one in found:
        (alone,) = records(capsys, "perplexity", home / "text.txt", "-m", one["model"])
        assert one["bits_per_byte"] == pytest.approx(alone["bits_per_byte"], rel=1e-6)
        assert one["bytes"] == len(TEXT)


@pytest.mark.slow
def test_a_backward_run_resumes_and_is_fine_tuned(home):
    common = (home / "text.txt", "--direction", "backward", "--model", "gru", "--seed", 2)
    train(*common, *NETWORK, "--name", "whole")
    train(*common, *NETWORK, "--name", "parts", "--stop-after", 2)
    assert run(["train", "--resume", "parts", "--quiet"]) == 0
    weights = [load(name).model.state_dict() for name in ("whole", "parts")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    train(home / "text.txt", "--init-from", "whole", "--steps", 2, "--name", "tuned")
    assert load("tuned").backward


def test_validation_is_what_perplexity_gives(home, capsys):
    train(
        *(home / "text.txt", "--direction", "backward", "--model", "gru", *NETWORK),
        *("--name", "validated", "--seed", 1),
    )
    (found,) = records(capsys, "perplexity", "-m", "validated")
    result = load("validated").stored.record["result"]
    assert found["nll_nats"] / found["tokens"] == pytest.approx(result["val_loss"], rel=1e-6)


def test_labels_stand_before_the_end_of_the_text(home, tmp_path, capsys):
    texts = {"f": "x\tabc\ny\tcab\n" * 20, "b": "x\tcba\ny\tbac\n" * 20}
    for way, text in texts.items():
        (tmp_path / way).write_text(text)
        direction = "backward" if way == "b" else "forward"
        train(
            *(tmp_path / way, "--labels", "--direction", direction, "--name", f"l-{way}"),
            *("--model", "gru", "--seed", 1, "--val", "none", *NETWORK),
        )
    weights = [load(f"l-{way}").model.state_dict() for way in "fb"]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    common = ("--label", "x", "--seed", 2)
    (forward,) = records(capsys, "sample", "-m", "l-f", *common)
    (backward,) = records(capsys, "sample", "-m", "l-b", *common)
    assert forward["text"] == backward["text"][::-1]


def test_an_imported_model_reads_forwards_whatever_it_is_like(home, tmp_path):
    pytest.importorskip("seqgen.plugins.exchange")
    arpa = tmp_path / "forward.arpa"
    assert run(["export", "F-ngram-line", "--format", "arpa", "--out", str(arpa), "--quiet"]) == 0
    like = ("--like", "B-ngram-line", "--name", "imported", "--quiet")
    assert run(["import", str(arpa), *like]) == 0
    assert not load("imported").backward


def test_what_needs_the_other_direction_is_refused(home, capsys):
    mixed = "F-gru-line+B-gru-line"
    assert "different directions" in refusal(capsys, "sample", "-m", mixed)
    said = refusal(capsys, "eval", home / "text.txt", "-m", "B-gru-line", "--bleu", "--quiet")
    assert "writes from right to left" in said
    for export in installed(["export"]):
        said = refusal(capsys, export, "B-ngram-line", "--format", "arpa", "--out", "-")
        assert "reads from right to left" in said
    said = refusal(capsys, "train", home / "text.txt", "--direction", "up", "--steps", 1)
    assert "direction" in said
    pairs = ("--model", "seq2seq", "--direction", "backward", "--steps", 1)
    assert "direction=backward has no meaning" in refusal(
        capsys, "train", home / "text.txt", *pairs
    )

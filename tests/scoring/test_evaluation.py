"""Perplexity by every protocol against a loop over single tokens; pairs; continuations; compare."""

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from architectures import CASES, STANDING, VOCAB, contexts, first_of_each, over, representatives
from helpers_cli import needs
from helpers_io import cut, places, quick, texts
from hypothesis import given
from hypothesis import strategies as st

from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.generation.passages import ContinuationProtocol, continue_passages, find_passages
from seqgen.metrics import bootstrap
from seqgen.metrics.bootstrap import figure_signature
from seqgen.metrics.diversity import distinct, diversity, repetition, zipf_exponent
from seqgen.scoring.compare import common_text, compare, score_each_line
from seqgen.scoring.perplexity import for_model, perplexity
from seqgen.scoring.surprisal import attribute_lines, score_lines, score_tokens
from seqgen.settings import DataConfig
from seqgen.settings.scoring import Scoring
from seqgen.store import StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.text.corpus import Unknowns, encode_corpus
from seqgen.text.reading import WordMeter
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.word import WhitespaceTokenizer, WordTokenizer

TOKENIZER = CharTokenizer("\nab")
# Of every architecture one that gives every text a probability.
ONE_OF_EACH = representatives(
    first_of_each([case for case in CASES if case.variant != "maximum-likelihood"])
)
LN2 = math.log(2)


@dataclass(frozen=True)
class Stored(StoredModel):
    """A model that is on no disk."""

    name: str = "m"
    digest: str = "0" * 64
    held_out: str = ""
    config = {"architecture": "lstm"}  # noqa: RUF012
    record = {}  # noqa: RUF012
    size = 1


def loaded_as(model, documents="stream", tokenizer=TOKENIZER, **stored):
    from pathlib import Path

    data = DataConfig(documents=documents, tokenizer=tokenizer.kind)
    return LoadedModel(Stored(Path("m"), **stored), model.eval(), tokenizer, data)


@torch.no_grad()
def token_by_token(loaded, text, documents, stride=None):
    """Return (token, log-probability, rank) of each document's tokens, a model call a token."""
    model, framing = loaded.model, loaded.framing_of(documents)
    parts = text.split("\n") if documents == "line" else [text]
    if documents == "line" and parts[-1] == "":
        parts.pop()
    found = []
    for part in parts:
        targets = loaded.tokenizer.encode(part).tolist()
        targets += [framing.end] if documents == "line" else []
        read = [framing.start, *targets[:-1]]
        own = []
        for i, begin in enumerate(contexts(len(targets), model.window, stride)):
            logits = model(torch.tensor([read[begin : i + 1]]))[0][0, -1]
            order = sorted(range(VOCAB), key=lambda v: (-logits[v].item(), v))
            own.append(
                (targets[i], logits.log_softmax(-1)[targets[i]].item(), order.index(targets[i]))
            )
        found.append(own)
    return found


def text_about(window):
    """Lines of every length about a window's edges, with unknowns, and no end to the last."""
    random = np.random.default_rng(3)
    lengths = random.permutation(range(2 * (window or 4) + 3))
    return "\n".join("".join(random.choice(list("aab\u00e9"), n)) for n in lengths) + "\na"


PROTOCOLS = [("stream", None), ("stream", 1), ("stream", 3), ("line", None), ("line", 2)]
TYPICAL = ("*-ngram-add-delta", "*-hmm-smooth", "*-window-plain", "*-rnn-tanh", "*-lstm-plain")


@pytest.mark.fast_for(
    "*-lstm-plain",
    "*-ngram-add-delta",
    "stream-stream-*-window-plain",
    "stream-line-*-rnn-tanh",
    "line-*-hmm-smooth",
    "stream-stream-None-transformer-default",
    "stream-line-2-mixture-three",
    "stream-line-2-cached-lstm",
    rest="slow",
)
@over(ONE_OF_EACH)
@pytest.mark.parametrize(("documents", "stride"), PROTOCOLS)
@pytest.mark.parametrize("trained", ["stream", "line"])
def test_perplexity_is_that_of_a_loop_over_tokens(case, documents, stride, trained):
    model = case.loud()
    if documents == "stream" and trained == "line":
        documents = "line"
    stride = min(stride, model.window or stride) if stride else None
    loaded, text = loaded_as(model, trained), text_about(model.window)
    wanted = [t for own in token_by_token(loaded, text, documents, stride) for t in own]
    found = perplexity(
        loaded, cut(text, (7, 40)), scoring=Scoring(documents=documents, stride=stride, top5=True)
    )
    nats = -sum(log_prob for _, log_prob, _ in wanted)
    oov = [lp for token, lp, _ in wanted if token == TOKENIZER.unk_id]
    size, words = len(text.encode()), len(text.split())
    # A line's end is a word; the last one has an end in `line` alone.
    words += text.count("\n") + (documents == "line")
    expected = {
        "tokens": len(wanted),
        "nll_nats": nats,
        "perplexity": math.exp(nats / len(wanted)),
        "perplexity_without_oov": math.exp((nats + sum(oov)) / (len(wanted) - len(oov))),
        "bits_per_token": nats / LN2 / len(wanted),
        "bits_per_char": (nats / LN2 + 16 * len(oov)) / len(text),
        "bits_per_byte": (nats / LN2 + 16 * len(oov)) / size,
        "oov": len(oov),
        "accuracy": sum(rank == 0 for _, _, rank in wanted) / len(wanted),
        "top5_accuracy": sum(rank < 5 for _, _, rank in wanted) / len(wanted),
        "words": words,
        "perplexity_per_word": math.exp(nats / words),
        "oov_bytes": 2 * len(oov),
        "oov_bits_per_byte": 16 * len(oov) / size,
        "total_bits_per_byte": (nats / LN2 + 16 * len(oov)) / size,
    }
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9), name


@pytest.mark.fast_for(*STANDING)
@over(representatives(CASES))
def test_windows_and_strides_neither_drop_nor_double_a_token(case):
    model = case.loud()
    window = model.window or 6
    loaded = loaded_as(model)
    for stride in {1, (window + 1) // 2, window}:
        for length in (1, window - 1, window, window + 1, 2 * window, 2 * window + stride + 1):
            text = ("abba" * length)[: max(1, length)]
            (wanted,) = token_by_token(loaded, text, "stream", stride)
            found = list(score_tokens(loaded, [text], Scoring(stride=stride, top5=True)))
            assert "".join(token.text for token in found) == text
            assert [token.index for token in found] == list(range(len(text)))
            for token, (_, log_prob, rank) in zip(found, wanted, strict=True):
                assert token.logprob == pytest.approx(log_prob, abs=1e-9)
                assert token.surprisal_bits == pytest.approx(-log_prob / LN2, abs=1e-9)
                assert token.rank == rank


@pytest.mark.fast_for(
    *TYPICAL,
    "3-transformer-default",
)
@over(ONE_OF_EACH)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_line_alone(case, batch_size):
    loaded = loaded_as(case.loud(), "line")
    text = text_about(loaded.model.window)
    wanted = token_by_token(loaded, text, "line")
    scoring = Scoring(batch_size=batch_size)
    found = list(score_lines(loaded, iter(cut(text, (5, 9, 60))), scoring))
    assert [line.index for line in found] == list(range(len(wanted)))
    assert [line.text for line in found] == text.split("\n")
    for line, own in zip(found, wanted, strict=True):
        assert line.scored.tokens.tolist() == [token for token, _, _ in own]
        np.testing.assert_allclose(line.scored.log_probs, [lp for _, lp, _ in own], atol=1e-9)
        unknowns = line.text.count("\u00e9")
        assert (line.totals.oov, line.totals.oov_bytes) == (unknowns, 2 * unknowns)
        bits = -sum(lp for _, lp, _ in own) / LN2
        assert line.totals.bits == pytest.approx(bits + 16 * unknowns)
    whole = perplexity(loaded, [text])
    assert sum(line.totals.nll_nats for line in found) == pytest.approx(whole.nll_nats)
    assert sum(line.totals.bytes for line in found) == whole.bytes
    assert sum(line.totals.words for line in found) == whole.words


@pytest.mark.fast_for(*STANDING, "transformer-default", "cached-lstm", rest="slow")
@over(ONE_OF_EACH)
def test_lines_without_their_ends(case):
    loaded = loaded_as(case.loud(), "line")
    text, scoring = text_about(loaded.model.window), Scoring(no_end=True)
    wanted = [own[:-1] for own in token_by_token(loaded, text, "line")]
    found = list(score_lines(loaded, [text], scoring))
    for line, own in zip(found, wanted, strict=True):
        assert line.scored.tokens.tolist() == [token for token, _, _ in own]
        assert line.totals.nll_nats == pytest.approx(-sum(lp for _, lp, _ in own), abs=1e-9)
        assert line.totals.characters == len(line.text)
    whole = perplexity(loaded, [text], scoring=scoring)
    assert whole.nll_nats == pytest.approx(-sum(lp for own in wanted for _, lp, _ in own))
    assert whole.tokens == sum(map(len, wanted)) == len(list(score_tokens(loaded, [text], scoring)))
    assert whole.characters == len(text.replace("\n", ""))
    assert whole.bytes == sum(line.totals.bytes for line in found)
    assert whole.words == len(text.split()) == sum(line.totals.words for line in found)
    assert "EOS not scored" in whole.protocol and "ends:unscored" in whole.signature
    with pytest.raises(UsageError, match="--no-end goes with --documents line"):
        perplexity(loaded, [text], scoring=Scoring(documents="stream", no_end=True))


def test_the_model_that_likes_a_line_best():
    models = [loaded_as(case.loud()) for case in ONE_OF_EACH[:4:3]]
    text = text_about(8)
    apart = [list(score_lines(m, [text], Scoring())) for m in models]
    best = []
    for number, liked in enumerate(attribute_lines(models, [text], Scoring())):
        bits = [lines[number].totals.bits for lines in apart]
        assert [line.totals.bits for line in liked.lines] == pytest.approx(bits)
        assert bits[liked.best] == min(bits)
        best.append(liked.best)
    assert len(best) == len(apart[0]) and set(best) == {0, 1}


def test_a_stride_that_does_not_fit_is_refused():
    case = next(case for case in CASES if case.architecture == "transformer")
    with pytest.raises(UsageError, match="from 1 to 8, the window of m"):
        perplexity(loaded_as(case.build()), ["ab"], scoring=Scoring(stride=9))
    with pytest.raises(UsageError, match="--stride must be at least 1, not 0"):
        Scoring(stride=0)


@quick
@given(texts, places)
def test_words_are_runs_of_no_white_space(text, ends):
    meter = WordMeter()
    assert "".join(meter.watch(cut(text, ends))) == text
    assert (meter.words, meter.newlines) == (len(text.split()), text.count("\n"))


@quick
@given(st.text(st.sampled_from("ab\u00e9\u65e5 \n"), max_size=40))
def test_bytes_of_unknowns(text):
    for kind, known in ((CharTokenizer, "\nab"), (WordTokenizer, ["a", " a"])):
        tokenizer = kind(known)
        unknowns = Unknowns(tokenizer, each=True)
        encode_corpus([text], tokenizer, "stream", unknowns=unknowns)
        ids = tokenizer.encode(text)
        # What is known decodes to itself; the rest of the bytes are the unknowns'.
        known_bytes = len(
            tokenizer.decode([i for i in ids.tolist() if i != tokenizer.unk_id]).encode()
        )
        assert unknowns.bytes == len(text.encode()) - known_bytes
        assert unknowns.places == np.flatnonzero(ids == tokenizer.unk_id).tolist()


def test_unknown_words_between_white_space_cost_no_white_space():
    unknowns = Unknowns(WhitespaceTokenizer(["cat"]), each=True)
    encode_corpus(["the  cat <unk> s\u00e5\n"], unknowns.tokenizer, "stream", unknowns=unknowns)
    # The text `<unk>` is what the token says.
    assert (unknowns.places, unknowns.sizes) == ([0, 2, 3], [3, 0, 3])


def test_signatures_say_how_a_number_was_made():
    assert figure_signature("n", seed=3, model="ab", x=1).startswith(
        "n|model:ab|x:1|seed:3|version:"
    )
    loaded = loaded_as(next(c for c in CASES if c.architecture == "transformer").build())
    found = {
        perplexity(loaded, [text], scoring=Scoring(documents=documents, stride=stride)).signature
        for text in ("ab", "ba")
        for documents in ("stream", "line")
        for stride in (None, 3)
    }
    assert len(found) == 8
    one = perplexity(loaded, ["ab"]).signature
    assert (
        "|documents:stream|tokens:char|unknowns:scored+8bits/byte|window:8/4|precision:float64|"
        in one
    )
    assert one == perplexity(loaded, iter(["a", "b"])).signature


# ---- diversity ----


def test_diversity_by_hand():
    split = [["a", "b", "a", "b"], ["a", "c"]]
    assert distinct(split, 1) == 3 / 6
    assert distinct(split, 2) == 3 / 4  # ab ba ab ac
    assert distinct(split, 3) == 1
    assert distinct([["a"]], 2) is None
    assert repetition([["x"] * 6, ["p", "q", "r", "s"]], 4) == pytest.approx((2 / 3 + 0) / 2)
    assert repetition([["x"]]) is None
    # Frequencies 64, 32, 16 at ranks 1, 2, 4 lie on a line of slope -1; so do 64 / rank.
    words = [w for rank in range(1, 9) for w in [str(rank)] * (840 // rank)]
    assert zipf_exponent(words) == pytest.approx(1, abs=1e-9)
    assert zipf_exponent(["a", "a"]) is None


def test_equal_texts_have_full_self_bleu():
    same = diversity(["the cat sat on the mat"] * 3)
    assert same.self_bleu == pytest.approx(100)
    assert diversity(["the cat sat on the mat", "a dog ran far away home"]).self_bleu < 5
    assert diversity(["one"]).self_bleu is None


# ---- bootstrap ----


def test_blocks_keep_order_and_balance():
    sizes = np.random.default_rng(0).integers(1, 30, 1000)
    blocks = bootstrap.group_into_blocks(sizes, 50)
    assert (np.diff(blocks) >= 0).all() and (np.diff(blocks) <= 1).all()
    assert blocks[0] == 0 and blocks[-1] == 49
    each = np.bincount(blocks, sizes)
    assert each.max() - each.min() <= 2 * sizes.max()
    assert bootstrap.group_into_blocks(np.array([5, 5, 5]), 50).tolist() == [0, 1, 2]


def test_resampled_ratios_have_the_spread_of_the_mean():
    random = np.random.default_rng(1)
    totals = random.normal(10, 2, (400, 1))
    samples = bootstrap.resampled_ratios(totals, np.ones(400), seed=5)[:, 0]
    # The bootstrap's spread is the standard error of the mean: 2 / sqrt(400).
    assert samples.std() == pytest.approx(totals.std() / 20, rel=0.1)
    low, high = bootstrap.percentile_interval(samples)
    assert low < totals.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * totals.std() / 20, rel=0.15)
    again = bootstrap.resampled_ratios(np.hstack([totals, totals + 1]), np.ones(400), seed=5)
    np.testing.assert_allclose(again[:, 0], samples)
    np.testing.assert_allclose(again[:, 1] - again[:, 0], 1)  # the same blocks


def test_p_values_are_small_only_for_one_sided_differences():
    assert bootstrap.p_value(np.full(999, 0.1)) == 2 / 1000
    assert bootstrap.p_value(np.array([-1.0, 1.0] * 50)) == 1
    assert bootstrap.p_value(np.zeros(10)) == 1


def test_wilson_by_the_textbook():
    """Wilson's interval of 9 in 10 (Brown, Cai and DasGupta 2001): 0.596 to 0.982."""
    assert bootstrap.wilson_interval(9, 10) == pytest.approx((0.5958, 0.9821), abs=1e-4)
    assert bootstrap.wilson_interval(0, 5)[0] == 0 and bootstrap.wilson_interval(5, 5)[1] == 1


# ---- continuations ----


def test_passages_of_a_stream_are_pieces_of_it():
    text = " ".join(f"w{n}" for n in range(1000)) + "\n"
    found = find_passages(text, "stream", ContinuationProtocol(passages=10))
    assert len(found) == 10
    for passage in found:
        assert passage.prefix + passage.rest in text
        assert (len(passage.prefix.split()), len(passage.rest.split())) == (32, 32)
    assert found[0].prefix.startswith("w0 ") and found[-1].rest.endswith(" w999")
    assert len(find_passages(text, "stream", ContinuationProtocol(passages=500))) == 15
    (short,) = find_passages("one two three", "stream", ContinuationProtocol())
    assert (short.prefix, short.rest) == ("one", " two three")
    for empty in ("", "one", "\n"):
        with pytest.raises(SeqgenError, match="too short"):
            find_passages(empty, "stream", ContinuationProtocol())


def test_passages_of_lines_are_their_halves():
    found = find_passages("a b c \n\nd\n", "line", ContinuationProtocol())
    assert [(p.prefix, p.rest, p.ends) for p in found] == [("a", " b c ", True), ("", "d", True)]


def test_continuations_are_as_long_as_the_real_ones():
    text = "ab ba ab ba " * 20
    tokenizer = CharTokenizer("\nab ")
    case = next(c for c in CASES if c.architecture == "lstm")
    loaded = loaded_as(case.loud(vocab_size=tokenizer.vocab_size), tokenizer=tokenizer)
    protocol = ContinuationProtocol(passages=5, prefix_words=3, words=4)
    passages = find_passages(text, "stream", protocol)
    written = continue_passages(loaded, passages, protocol)
    assert [len(w) for w in written] == [len(p.rest) for p in passages]
    assert written == continue_passages(loaded, passages, replace(protocol, batch_size=2))
    assert written != continue_passages(loaded, passages, replace(protocol, seed=1))
    unknown = [replace(passages[0], prefix="zz")]
    assert len(continue_passages(loaded, unknown, protocol)[0]) == len(passages[0].rest)


# ---- compare ----


@pytest.mark.fast_for(
    *TYPICAL,
    "line-transformer-default",
)
@over(ONE_OF_EACH)
@pytest.mark.parametrize("trained", ["stream", "line"])
def test_lines_share_out_the_bits_of_the_text(case, trained):
    loaded = loaded_as(case.loud(), trained)
    text = text_about(loaded.model.window)
    found = score_each_line(loaded, text, for_model(loaded))
    wanted = token_by_token(loaded, text, trained)
    if trained == "line":
        bits = [-sum(lp for _, lp, _ in own) / LN2 for own in wanted]
    else:
        bits, line = [0.0] * len(text.split("\n")), 0
        for token, log_prob, _ in wanted[0]:
            bits[line] -= log_prob / LN2
            line += token == TOKENIZER.newline_id
    paid = [16 * line.count("\u00e9") for line in text.split("\n")]
    np.testing.assert_allclose(found.bits, np.add(bits, paid), atol=1e-8)
    assert found.bits.sum() == pytest.approx(found.totals.bits)


def test_compare_pays_for_unknowns_and_finds_the_best():
    text = "ab\nba\u00e9\n" * 60
    models = [
        loaded_as(case.loud(), name=name) for name, case in zip("xyz", ONE_OF_EACH[:3], strict=True)
    ]
    found = compare(models, text)
    for one, loaded in zip(found, models, strict=True):
        own = perplexity(loaded, [text])
        assert one.bits_per_byte == pytest.approx(own.bits_per_byte)
        assert one.oov_bits_per_byte == pytest.approx(8 * 2 * 60 / len(text.encode()))
        tokens_alone = own.nll_nats / LN2 / len(text.encode())
        assert one.bits_per_byte == pytest.approx(tokens_alone + one.oov_bits_per_byte)
        assert one.total_bits_per_byte == one.bits_per_byte
        assert one.low <= one.bits_per_byte <= one.high
    totals = [one.bits_per_byte for one in found]
    best = found[totals.index(min(totals))]
    assert {one.best for one in found} == {best.model}
    assert [one.p_value is None for one in found] == [one is best for one in found]
    assert found == compare(models, text)
    with pytest.raises(UsageError, match="twice"):
        compare([models[0], models[0]], text)


# ---- the commands ----

TEXT = "the cat sat on the mat and the dog ran far away.\n" * 300


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A home with models of one text, by characters and by words, and one of another text."""
    folder = tmp_path_factory.mktemp("evaluation")
    (folder / "text.txt").write_text(TEXT)
    (folder / "other.txt").write_text("it was another text.\n" * 40)
    small = ["--hidden-size", "8", "--layers", "1", "--steps", "2", "--seed", "1", "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        text, other = str(folder / "text.txt"), str(folder / "other.txt")
        ngram = ["--model", "ngram", "--order", "2", "--quiet"]
        assert run(["train", text, "--name", "words", "--tokenizer", "word", *ngram]) == 0
        assert run(["train", other, "--name", "other", *ngram]) == 0
        assert run(["train", text, "--name", "chars", *small]) == 0
    return folder


@pytest.fixture
def cli(trained, capfdbinary, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(trained / "home"))

    def command(*arguments):
        capfdbinary.readouterr()
        code = run([str(a) for a in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return command


def records(outcome):
    code, out, err = outcome
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_eval_of_nothing_but_a_model(cli):
    (found,) = records(cli("eval", "-m", "words", "--json"))
    (wanted,) = records(cli("perplexity", "-m", "words", "--json"))
    assert found["perplexity"] == wanted
    assert found["bleu"]["score"] > 50  # a text that repeats one line
    assert found["bleu"]["text_score"] is not None
    assert found["diversity"]["text"]["distinct_1"] < 0.5
    for part in ("perplexity", "bleu", "diversity"):
        assert "|model:" in found[part]["signature"]
    assert "|seed:0|" in found["bleu"]["signature"]


def test_eval_of_what_is_asked_for(cli, tmp_path):
    (found,) = records(cli("eval", "-m", "chars", "--bleu", "--json", "--passages", "3"))
    assert found["perplexity"] is None and found["diversity"] is None
    assert found["bleu"]["passages"] == 3


@needs("minimal_pairs")
def test_eval_of_minimal_pairs(cli, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the cat sat\tthe sat cat\n")
    both = records(cli("eval", "-m", "chars", "-m", "words", "--pairs", pairs, "--json"))
    assert [(r["model"], r["pairs"][0]["pairs"]) for r in both] == [("chars", 1), ("words", 1)]
    assert both[1]["pairs"][0]["preferred"] == 1
    code, out, err = cli("eval", "-m", "chars", "-m", "words", "--pairs", pairs)
    assert code == 0 and out.splitlines()[1].startswith("pairs: all (1)")
    assert "|model:" not in err
    told = cli("eval", "-m", "chars", "-m", "words", "--pairs", pairs, "--verbose")[2]
    assert "words: pairs|model:" in told


@pytest.mark.fast_for("line", rest="slow")
@pytest.mark.parametrize("documents", ["stream", "line"])
def test_a_held_out_token_file_is_read_as_text(cli, trained, monkeypatch, tmp_path, documents):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path))
    text = trained / "text.txt"
    how = ("--documents", documents)
    assert cli("tokenize", text, "--tokenizer", "byte", *how, "--out", tmp_path / "t.tok")[0] == 0
    count = ("--model", "ngram", "--order", "2", "--quiet")
    assert cli("train", tmp_path / "t.tok", *count, "--name", "tokens", *how)[0] == 0
    assert cli("train", text, "--tokenizer", "byte", *count, "--name", "text", *how)[0] == 0
    ours, theirs = (records(cli("eval", "-m", m, "--json"))[0] for m in ("tokens", "text"))
    for one in (ours, theirs):
        del one["model"], one["perplexity"]["model"]
    assert ours == theirs


def test_compare_takes_what_all_hold_out(cli):
    found = records(cli("compare", "words", "chars", "--json"))
    assert [r["model"] for r in found] == ["words", "chars"]
    assert found[0]["bytes"] == found[1]["bytes"]
    assert found[0]["best"] == "words" and found[1]["p_value"] < 0.05
    _code, out, err = cli("compare", "words", "chars")
    # The worst first; the best last.
    assert [row.split()[0] for row in out.splitlines()] == ["model", "chars", "words"]
    assert "the shared held-out part" in err


def test_compare_refuses_different_texts(cli, trained):
    code, out, err = cli("compare", "words", "other")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "hold out different texts" in err and "--data FILE" in err
    code, _, err = cli("compare", "--all", "--data", trained / "other.txt")
    assert code == 0 and "other learnt from this very text" in err
    assert cli("compare")[0] == 2 and cli("compare", "words", "--all")[0] == 2


def test_common_text_is_the_shortest_that_all_end_with(tmp_path):
    def holding(text, name, begin=0):
        path = tmp_path / "models" / name / "validation"
        path.mkdir(parents=True, exist_ok=True)
        (path / "text.txt").write_text(text)
        stored = StoredModel(path.parent)
        groups = {"model": {}, "data": {}} | ({"scored_from": begin} if begin else {})
        stored.write_config("lstm", **groups)
        return replace(loaded_as(CASES[0].build()), stored=stored)

    assert common_text([holding("abc def", "a"), holding("c def", "b")]) == "c def"
    assert common_text([holding("abc def", "d", 4), holding("c def", "b")]) == "def"
    with pytest.raises(SeqgenError, match="b and c hold out different texts"):
        common_text([holding("c def", "b"), holding("longer but other", "c")])


@pytest.mark.slow
def test_per_line_and_per_token_commands(cli, trained):
    text = trained / "text.txt"
    lines = records(cli("perplexity", text, "-m", "words", "--per-line", "--json"))
    assert [line["line"] for line in lines] == list(range(300))
    assert lines[0]["text"] == TEXT.split("\n")[0]
    both = records(cli("perplexity", text, "-m", "words", "-m", "chars", "--per-line", "--json"))
    assert {line["best"] for line in both} == {"words"}
    assert set(both[0]["bits"]) == {"words", "chars"}
    _, out, _ = cli("perplexity", text, "-m", "words", "-m", "chars", "--per-line")
    assert out.splitlines()[0].split("\t")[0] == "words" and out.count("\n") == 300
    tokens = records(cli("perplexity", text, "-m", "chars", "--per-token", "--json"))
    assert "".join(token["text"] for token in tokens) == TEXT
    assert {"token", "logprob", "surprisal_bits"} < tokens[0].keys()
    (whole,) = records(cli("perplexity", text, "-m", "chars", "--json"))
    assert -sum(token["logprob"] for token in tokens) == pytest.approx(whole["nll_nats"], rel=1e-6)
    _code, out, _ = cli("perplexity", text, "-m", "chars", "--show")
    shown, digits = out.splitlines()[:2]
    assert shown == TEXT.split("\n")[0]
    assert len(digits) == len(shown) + 1 and digits.isdigit()


def test_each_of_several_models_reads_newlines_as_it_was_trained(cli, tmp_path):
    """Whichever is named first; one has learned that a line ends with CR, the other converts it."""
    text = tmp_path / "text.txt"
    text.write_bytes(b"ab ba\r\nba ab\r\n" * 20)
    for newlines in ("keep", "lf"):
        train = ("train", text, "--model", "ngram", "--order", "2", "--name", newlines, "-q")
        assert cli(*train, "--newlines", newlines)[0] == 0
    lines = ("perplexity", text, "--per-line", "--json")
    alone = {name: records(cli(*lines, "-m", name)) for name in ("keep", "lf")}
    for names in (("keep", "lf"), ("lf", "keep")):
        both = records(cli(*lines, "-m", names[0], "-m", names[1]))
        for name in names:
            bits = [line["bits"][name] for line in both]
            per_char = [one["bits_per_char"] * one["characters"] for one in alone[name]]
            assert bits == pytest.approx(per_char)
    assert alone["keep"][0]["characters"] == alone["lf"][0]["characters"] + 1


def test_surprise_is_coloured_from_green_to_red():
    from seqgen.cli.shell.coloured import BITS, _in_colour

    shown = _in_colour([("a", 0.0), ("bc", 6.0), ("d", 40.0)], BITS)
    assert shown.plain == "abcd"
    colours = [span.style.bgcolor.triplet for span in shown.spans]
    assert [(c.red, c.green) for c in colours] == [(0, 255), (255, 255), (255, 0)]


def test_nothing_to_score_is_one_line(cli, tmp_path):
    (tmp_path / "empty").write_text("")
    for how in ([], ["--per-line"], ["--per-token"], ["--show", "-q"]):
        code, out, err = cli("perplexity", tmp_path / "empty", "-m", "chars", *how)
        assert (code, out) == (1, "")
        assert err.endswith("is empty: there is nothing to score\n") and err.count("\n") == 1


def test_several_models_and_files_are_a_table(cli, trained):
    files = [trained / "text.txt", trained / "other.txt"]
    code, out, err = cli("perplexity", *files, "-m", "words", "-m", "chars", "-v")
    assert code == 0
    rows = [row.split()[:2] for row in out.splitlines()]
    assert rows[0] == ["file", "model"]
    assert rows[1:] == [[str(f), m] for m in ("words", "chars") for f in files]
    assert err.count("perplexity|model:") == 4
    for wrong in (["--per-line", "--show"], ["--per-line", "--documents", "stream"]):
        assert cli("perplexity", *wrong)[0] == 2
    assert cli("perplexity", "-m", "words", "-m", "chars", "--show")[0] == 2


def test_several_models_read_one_standard_input(cli, trained, stdin):
    stdin(TEXT.encode())
    code, out, _ = cli("perplexity", "-m", "words", "-m", "chars", "--json")
    assert code == 0
    assert [json.loads(r)["bytes"] for r in out.splitlines()] == [len(TEXT)] * 2


def test_text_without_words_has_no_figure_by_word(cli, tmp_path):
    (tmp_path / "blank").write_text("   ")
    code, out, _ = cli("eval", tmp_path / "blank", "-m", "words", "--perplexity")
    assert code == 0 and out.splitlines()[2].split() == ["perplexity", "per", "word", "-"]


def test_bits_stand_below_whole_characters():
    from seqgen.cli.shell.coloured import _pieces, lines_of
    from seqgen.scoring.surprisal import Token

    tokens = [
        Token(0, i, "", 0.0, bits, None, text)
        for i, (text, bits) in enumerate([("", 2.0), ("\u00e9", 3.0), ("a", 1.0), ("\n", 4.0)])
    ]
    assert list(lines_of(_pieces(tokens))) == [[("\u00e9", 5.0), ("a", 1.0), ("", 4.0)]]


def test_compare_says_that_a_text_holds_no_token():
    loaded = loaded_as(ONE_OF_EACH[0].build(), tokenizer=WhitespaceTokenizer(["a"]))
    with pytest.raises(SeqgenError, match="no token of m"):
        score_each_line(loaded, "  ", for_model(loaded))

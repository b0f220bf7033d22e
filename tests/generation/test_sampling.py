import itertools
import math
import shutil
import threading
import time
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers_cli import refusal
from helpers_io import quick
from hypothesis import given
from hypothesis import strategies as st
from known_models import ALPHABET, SMALL, fake, real
from places import STORED
from safetensors.numpy import load_file, save_file

from seqgen import registry
from seqgen.engines.arrays import Products
from seqgen.errors import SeqgenError, UsageError
from seqgen.generation.continuation import Continuation
from seqgen.generation.draw import CounterDraw
from seqgen.generation.processors import Forbid
from seqgen.generation.prompts import available_batches
from seqgen.generation.sample import Writer, fixed_sample, sample, stream
from seqgen.generation.text_batch import Row, SamplingPolicy
from seqgen.generation.text_batch import sample as write
from seqgen.hashing import uniforms
from seqgen.scoring.loop import add_up, score_corpus
from seqgen.settings.generation import SampleOptions
from seqgen.text.corpus import encode_corpus
from seqgen.text.tokenizers import KINDS
from seqgen.training.events import SampleLine

WORDS = KINDS["word"].train(["the cat sat\n\nthe mat the cat\n"])


EVERY = ["fake", *SMALL]


def build(name, *args, **kwargs):
    return fake(*args, **kwargs) if name == "fake" else real(name, *args, **kwargs)


PROMPTS = ["", "a", "abca", "b", "a", "cab cab ab\nabc", "ba"]


FREELY = {"seed": 11, "max_tokens": 15, "temperature": 1.2}


def texts_of(loaded, prompts, **options):
    settings = {"seed": 11, "max_tokens": 15, "temperature": 1.2} | options
    return [
        (s.index, s.sample, s.prompt, s.text)
        for s in sample(loaded, prompts, SampleOptions(**settings))
    ]


@pytest.mark.fast_for("fake-*", "lstm-stream", "transformer-line")
@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("name", EVERY)
def test_a_text_depends_on_its_seed_and_numbers_alone(name, documents):
    loaded = build(name, documents=documents)
    expected = texts_of(loaded, PROMPTS, num_samples=3)
    assert [(i, j) for i, j, *_ in expected] == list(itertools.product(range(7), range(3)))
    assert [p for _, _, p, _ in expected] == [p for p in PROMPTS for _ in range(3)]
    for batch_size in (1, 2, 5, 100):
        assert texts_of(loaded, PROMPTS, num_samples=3, batch_size=batch_size) == expected
    # Fewer samples are the first of more; a lone prompt is the first of several.
    assert texts_of(loaded, PROMPTS) == [record for record in expected if record[1] == 0]
    assert texts_of(loaded, PROMPTS[:1], num_samples=3) == expected[:3]
    assert texts_of(loaded, iter(PROMPTS), num_samples=3) == expected  # as if piped
    if documents == "stream":
        streamed = "".join(
            stream(loaded, "", SampleOptions(seed=11, max_tokens=15, temperature=1.2))
        )
        assert streamed == expected[0][3]


@pytest.mark.parametrize("name", EVERY)
def test_rows_may_be_worked_in_any_order(name):
    loaded = build(name, documents="line")
    tokenizer, seed = loaded.tokenizer, 4
    rows = [
        Row(i, j, (tokenizer.bos_id, *tokenizer.encode(p).tolist()))
        for i, p in enumerate(PROMPTS)
        for j in range(2)
    ]

    def all_texts(order):
        def begin(row):
            return Continuation(tokenizer.decoder(), (), 12, {tokenizer.eos_id: "eos"})

        policy = SamplingPolicy([Forbid((0, 1, 3))], CounterDraw(seed))
        steps = write(loaded.model, order, begin, policy)
        return {step.row: (step.continuation.text, step.continuation.tokens) for step in steps}

    assert all_texts(rows) == all_texts(rows[::-1]) == all_texts(rows[3:] + rows[:3])


@pytest.mark.parametrize("name", EVERY)
def test_other_numbers_give_other_texts(name):
    loaded = build(name)
    by_seed = {texts_of(loaded, ["a"], seed=seed)[0][3] for seed in range(8)}
    by_sample = {text for *_, text in texts_of(loaded, ["a"], num_samples=8)}
    by_prompt = {text for *_, text in texts_of(loaded, ["a"] * 8)}
    assert min(map(len, (by_seed, by_sample, by_prompt))) >= 6


def test_texts_follow_the_table_by_hand():
    """One row by hand: hash, cumulated chances, the token; nothing of `decoding` is used."""
    loaded, seed = fake(), 23
    for index, prompt in enumerate(PROMPTS):
        history = [0, ALPHABET.newline_id, *ALPHABET.encode(prompt).tolist()]
        text = []
        for t in range(9):
            chances = loaded.model.chances(*history[-2:])
            chances[[0, 1, 2, 3]] = 0
            below, u = np.cumsum(chances), float(uniforms(seed, index, 0, t))
            history.append(int(np.flatnonzero(below > u * below[-1])[0]))
            text.append(ALPHABET.decode([history[-1]]))
        records = texts_of(loaded, PROMPTS, seed=seed, max_tokens=9, temperature=1)
        assert records[index][3] == "".join(text)


@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("name", EVERY)
def test_logprob_is_what_scoring_gives(name, documents):
    loaded = build(name, documents=documents)
    options = SampleOptions(seed=3, max_tokens=20, top_k=2, temperature=0.5, num_samples=4)
    for record in sample(loaded, [""], options):
        ended = record.finish_reason == "eos"
        assert documents == "line" or not ended
        tokenizer = loaded.tokenizer
        tokens = np.array(
            [*tokenizer.encode(record.text).tolist(), *([tokenizer.eos_id] if ended else [])]
        )
        assert record.tokens == len(tokens)
        corpus = encode_corpus([record.text], tokenizer, "stream")
        corpus = replace(
            corpus, tokens=tokens, ends=np.array([len(tokens)]), start=loaded.framing.start
        )
        totals = add_up(score_corpus(loaded.model, corpus), tokenizer)
        assert record.logprob == pytest.approx(-totals.nll_nats, abs=1e-9)
        assert totals.tokens == record.tokens


NEWLINE, EOS, LETTERS = 4, 2, {5, 6, 7, 8}


@pytest.mark.parametrize(
    ("documents", "possible"), [("stream", LETTERS | {NEWLINE}), ("line", LETTERS | {EOS})]
)
def test_a_stream_has_no_end_and_a_line_no_newline(documents, possible):
    loaded, drawn = fake(documents=documents), set()
    writer = Writer(loaded, SampleOptions(seed=1, max_tokens=20))

    def choose(rows, step, log_probs):
        chosen = writer.choose(rows, step, log_probs)
        drawn.update(chosen)
        return chosen

    rows = [Row(i, 0, (loaded.framing.start,)) for i in range(30)]
    list(write(loaded.model, rows, writer.begin, SamplingPolicy(writer.processors, choose)))
    assert drawn == possible


def test_greedy_and_temperature_zero_and_top_k_one_agree():
    loaded = real("lstm")
    ways = [{"greedy": True}, {"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}]
    assert len({str(texts_of(loaded, PROMPTS, **way)) for way in ways}) == 1


def test_no_tokens():
    records = list(sample(fake(), ["a", ""], SampleOptions(seed=0, max_tokens=0, num_samples=2)))
    assert [(r.index, r.sample, r.text, r.tokens, r.logprob, r.finish_reason) for r in records] == [
        (i, j, "", 0, 0.0, "length") for i in (0, 1) for j in (0, 1)
    ]
    assert list(stream(fake(), "a", SampleOptions(seed=0, max_tokens=0))) == []
    assert list(sample(fake(), [], SampleOptions(seed=0))) == []


def test_a_prompt_is_read_once_for_all_its_samples():
    loaded = fake()
    texts_of(loaded, ["abc abc"], num_samples=6, max_tokens=3)
    assert loaded.model.calls == [(1, 8), (6, 1), (6, 1)]


def test_a_finished_row_leaves_the_batch():
    loaded = fake(documents="line")
    texts_of(loaded, [""], num_samples=30, max_tokens=30)
    rows = [shape[0] for shape in loaded.model.calls[1:]]
    assert rows == sorted(rows, reverse=True) and rows[-1] < 30


@pytest.mark.parametrize("tokenizer", [ALPHABET, WORDS], ids=["char", "word"])
@pytest.mark.parametrize("piped", [False, True])
def test_records_before_an_unknown_come_out(tokenizer, piped):
    prompts = {
        "char": ["a", "b", "abc\nabZ", "c"],
        "word": ["the", "", "the cat\nthe dog", "the"],
    }[tokenizer.kind]
    where = {"char": r"'Z' \(line 2, column 3\)", "word": r"' dog' \(line 2, column 4\)"}
    loaded = fake(tokenizer)
    got = []
    with pytest.raises(SeqgenError, match=f"prompt '.*{where[tokenizer.kind]}") as caught:
        for record in sample(
            loaded,
            iter(prompts) if piped else prompts,
            SampleOptions(seed=0, max_tokens=3, num_samples=2),
        ):
            got.append((record.index, record.sample))  # noqa: PERF401
    assert got == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert caught.value.exit_code == 1


def test_settings_without_meaning():
    for wrong in (
        {"max_tokens": -1},
        {"num_samples": 0},
        {"batch_size": 0},
        {"stop": [""]},
        {"temperature": -1.0},
        {"top_k": 0},
        {"top_p": 2.0},
    ):
        with pytest.raises(UsageError, match="--"):
            SampleOptions(seed=0, **wrong)


def test_a_fixed_sample_is_always_the_same():
    loaded = real("gru")
    text = fixed_sample(loaded, tokens=40)
    assert text == fixed_sample(loaded, tokens=40)
    line = SampleLine(step=3, text=f"\n \n{text}").first_line
    assert "\n" not in line and len(line) <= 80


# ---- reading prompts ahead ----


@pytest.mark.slow
@quick
@given(items=st.lists(st.text(max_size=2)), size=st.integers(1, 5))
def test_every_item_comes_once_in_order(items, size):
    for source in (items, iter(items), tuple(items)):
        batches = list(available_batches(source, size))
        assert list(itertools.chain(*batches)) == items
        assert all(1 <= len(batch) <= size for batch in batches)
    assert all(len(batch) == size for batch in list(available_batches(items, size))[:-1])


def test_a_batch_never_waits_to_fill():
    gate = threading.Event()

    def slowly():
        yield "one"
        assert gate.wait(30)
        yield "two"

    batches = available_batches(slowly(), 100)
    assert next(batches) == ["one"]
    gate.set()
    assert list(batches) == [["two"]]


def test_records_come_while_more_prompts_are_awaited():
    gate = threading.Event()

    def slowly():
        yield from ("a", "b")
        assert gate.wait(30)
        yield "c"

    records = sample(fake(), slowly(), SampleOptions(seed=0, max_tokens=2))
    assert [next(records).index, next(records).index] == [0, 1]
    gate.set()
    assert [record.index for record in records] == [2]


def test_reading_ahead_is_bounded():
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield str(number)

    batches = available_batches(endless(), 2)
    assert next(batches)[0] == "0"
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(taken) < 20


def test_an_abandoned_iterator_leaves_no_thread():
    before = set(threading.enumerate())  # some may end meanwhile, which is not this test's
    for _ in range(5):
        next(sample(fake(), map(str, itertools.repeat("a")), SampleOptions(seed=0, max_tokens=1)))
    deadline = time.monotonic() + 10
    while (new := {*threading.enumerate()} - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not new


@pytest.mark.parametrize("source", [iter, list])
@pytest.mark.parametrize("wrong", [3, None, bytearray(b"b"), SeqgenError("an item")])
def test_an_item_that_is_no_text_is_an_error(source, wrong):
    got = []
    with pytest.raises(SeqgenError, match="prompt 1 is not text but ") as caught:
        for record in sample(
            fake(), source(["a", wrong, "b"]), SampleOptions(seed=0, max_tokens=1)
        ):
            got.append(record.index)  # noqa: PERF401
    assert got == [0]
    assert repr(wrong) in str(caught.value)


def test_an_error_of_the_source_comes_after_what_was_read():
    def failing():
        yield "a"
        yield "b"
        raise SeqgenError("byte 0xff at offset 4")

    got = []
    with pytest.raises(SeqgenError, match="offset 4"):
        for batch in available_batches(failing(), 10):
            got += batch
    assert got == ["a", "b"]


# --- whole texts against the chances that enumeration gives them


def by_hand(chances, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0, typical=1.0):
    """The filters' definitions, on {token: chance}, in the documented order."""

    def first(p, order, mass):
        kept, before = {}, 0.0
        for token in order:
            if kept and before >= mass:
                break
            kept[token] = p[token]
            before += p[token]
        return kept

    def whole(p):
        return {token: chance / sum(p.values()) for token, chance in p.items() if chance > 0}

    p = whole({token: chance ** (1 / temperature) for token, chance in chances.items()})
    likeliest = sorted(p, key=lambda token: (-p[token], token))
    p = whole({token: p[token] for token in likeliest[:top_k]})
    p = whole(first(p, [token for token in likeliest if token in p], top_p))
    p = whole({token: chance for token, chance in p.items() if chance >= min_p * max(p.values())})
    entropy = -sum(chance * math.log(chance) for chance in p.values())
    usual = sorted(p, key=lambda token: (abs(-math.log(p[token]) - entropy), token))
    return p if typical == 1 else whole(first(p, usual, typical))


@pytest.mark.fast_for("options7", rest="slow")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 1.7},
        {"top_k": 2},
        {"top_p": 0.7},
        {"min_p": 0.3},
        {"typical": 0.6},
        {"temperature": 1.3, "top_k": 4, "top_p": 0.9, "min_p": 0.05, "typical": 0.9},
    ],
)
def test_texts_come_as_often_as_enumeration_says(options):
    loaded, number, length = fake(), 3000, 3
    possible = [v for v in range(loaded.model.vocab_size) if v not in loaded.never]
    start = loaded.framing.start, *loaded.ids("a")
    expected = {(): 1.0}
    for _ in range(length):
        longer = {}
        for text, chance in expected.items():
            of_next = loaded.model.chances(*(start + text)[-2:])
            for token, p in by_hand({v: of_next[v] for v in possible}, **options).items():
                longer[(*text, token)] = chance * p
        expected = longer
    settings = {
        "seed": 5,
        "max_tokens": length,
        "num_samples": number,
        "batch_size": 500,
        **options,
    }
    found = Counter(
        tuple(loaded.ids(record.text))
        for record in sample(loaded, ["a"], SampleOptions(**settings))
    )
    assert set(found) <= set(expected)
    # Rare texts count as one; a chi-square of n degrees is above n + 5 sqrt(2 n) once in 1e5.
    common = [text for text, p in expected.items() if number * p >= 5]
    pairs = [(found[text], number * expected[text]) for text in common]
    rare = number - sum(n for n, _ in pairs), number - sum(wanted for _, wanted in pairs)
    pairs += [rare] if rare[1] >= 5 else []
    assert len(pairs) > 2
    distance = sum((n - wanted) ** 2 / wanted for n, wanted in pairs)
    degrees = len(pairs) - 1
    assert distance < degrees + 5 * math.sqrt(2 * degrees)


@pytest.mark.slow
def test_ten_thousand_prompts_stream_through_in_flat_memory():
    loaded, read = fake(), 0

    def prompts():
        nonlocal read
        for read in range(1, 10_001):  # noqa: B007
            yield "ab"

    options = SampleOptions(seed=1, max_tokens=1, batch_size=16)
    records = sample(loaded, prompts(), options)
    assert next(records).index == 0
    assert read < 1000
    tracemalloc.start()
    try:
        for _ in itertools.islice(records, 2000):
            loaded.model.calls.clear()
        early, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        count = 2001
        for record in records:
            assert record.index == count
            count += 1
            loaded.model.calls.clear()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak - early < 1_000_000


@pytest.mark.parametrize("name", SMALL)
def test_a_long_prompt_is_read_in_pieces(name, monkeypatch):
    loaded = real(name)
    prompt, options = "abc ab" * 9, SampleOptions(seed=2, max_tokens=9)
    (whole,) = sample(loaded, [prompt], options)
    monkeypatch.setattr("seqgen.generation.text_batch.PIECE", 7)
    lengths = []
    loaded.model.register_forward_pre_hook(lambda _, given: lengths.append(given[0].shape[1]))
    (pieces,) = sample(loaded, [prompt], options)
    assert pieces.text == whole.text
    assert pieces.logprob == pytest.approx(whole.logprob)
    assert max(lengths) == 7


@pytest.mark.fast_for("lstm-*", "rnn-products0")
@pytest.mark.parametrize("products", [Products("threaded"), Products("single", "packed")])
@pytest.mark.parametrize("name", SMALL)
def test_threads_share_a_model(name, products, monkeypatch):
    monkeypatch.setattr("seqgen.engines.arrays._Settings.products", products)
    loaded = real(name)

    def write(seed):
        (record,) = sample(loaded, ["ab"], SampleOptions(seed=seed, max_tokens=60))
        return record.text

    alone = [write(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4))) == alone


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("given", ["embedding", "onehot"])
def test_steps_know_no_more_inputs_by_heart_than_pays(name, given, monkeypatch):
    kind = registry.architecture(name)
    config = kind.load_config()(vocab_size=9, hidden_size=8, num_layers=2, input=given)
    model = kind.load_model()(config).eval()
    with torch.inference_mode():
        known, _ = model.step([3, 5], model.start(2))
        monkeypatch.setattr("seqgen.engines.arrays.MOST_KNOWN", 8)
        del model.__dict__["_prepared"]
        worked_out, _ = model.step([3, 5], model.start(2))
        called, _ = model(torch.tensor([[3], [5]]), model.start(2))
    np.testing.assert_allclose(worked_out, known, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(called[:, 0].numpy(), known, rtol=1e-5, atol=1e-6)


def test_weights_that_are_no_numbers_are_one_error(home, capsys):
    shutil.copytree(STORED / "kinds" / "models" / "lstm", home / "models" / "m")
    (home / "models" / "m" / "manifest.json").unlink()
    file = home / "models" / "m" / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "head.weight": tensors["head.weight"] * np.float32(math.nan)}, file)
    (file.parent / "x.txt").write_text("and so on\n")
    reduced = (["sample", "--precision", kind] for kind in ("int8", "int4", "bf16"))
    for command in (["sample"], ["beam-search"], ["perplexity", file.parent / "x.txt"], *reduced):
        assert "probabilities are not numbers" in refusal(capsys, *command, "-m", "m")

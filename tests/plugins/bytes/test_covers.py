"""Probabilities of bytes against sums over all sequences of tokens."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from examples import examples
from helpers_cli import has_plugin
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prefix_model import PrefixModel
from small_vocabulary import SmallBPE

from seqgen.plugins.bytes.covers import Segmentation
from seqgen.plugins.bytes.view import keeps_texts, seen_by_bytes
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import KINDS
from seqgen.text.tokenizers.byte import OFFSET, ByteTokenizer

START, END = ByteTokenizer.newline_id, ByteTokenizer.eos_id
FRAMING = Framing(1, 2, 2, (0, 1, 3))
quick = settings(deadline=None, max_examples=examples(30), derandomize=True)
letters = st.sampled_from("abc")
texts = st.text(letters, max_size=8)
seeds = st.integers(0, 1 << 20)


@st.composite
def vocabularies(draw, most=36):
    """Draw 3 to `most` + 3 pieces, each merged of two before it."""
    pieces, merges = ["a", "b", "c"], []
    for _ in range(draw(st.integers(0, most))):
        pair = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        if len("".join(pair)) < 6 and "".join(pair) not in pieces:
            merges.append(pair)
            pieces.append("".join(pair))
    return SmallBPE(merges, draw(st.lists(st.sampled_from(pieces), max_size=2)))


def by_bytes(model, tokenizer, every, most=1 << 30, least=0.0, framing=FRAMING):
    return seen_by_bytes(model, Segmentation(tokenizer, every), framing, most, least)


def distributions(model, raw):
    """Return the probabilities (T + 1, 260) before each byte and after the last."""
    state, rows = model.start(1), []
    for token in (START, *(OFFSET + byte for byte in raw)):
        log_probs, state = model.step([token], state)
        rows.append(np.exp(log_probs[0]))
    return np.array(rows)


class BruteForce:
    """Sums over token sequences, by recursion.

    A sequence covers a text if its own text begins with it and its last token is needed for that.
    Its tokens that end within the first `settled` letters must be `allowed`.
    """

    def __init__(self, model, tokenizer, allowed=lambda tokens: True):
        self.model, self.allowed = model, allowed
        self.tokens = range(4, tokenizer.vocab_size)
        self.texts = tokenizer.texts
        self.start = FRAMING.start

    def total(self, text, settled=None, ended=False):
        settled = len(text) if settled is None else settled
        return self._sum((self.start,), text, 0, settled, ended)

    def _sum(self, tokens, rest, at, settled, ended):
        chances = self.model.chances(list(tokens))
        if not rest:
            return chances[2] if ended else 1.0
        total = 0.0
        for token in self.tokens:
            text = self.texts[token]
            end = at + len(text)
            if not (text.startswith(rest) or rest.startswith(text)):
                continue
            if end <= settled and not self.allowed((*tokens[1:], token)):
                continue
            if len(text) >= len(rest):
                if not ended or text == rest:
                    after = (*tokens, token)
                    total += chances[token] * (self.model.chances(list(after))[2] if ended else 1)
            else:
                after = self._sum((*tokens, token), rest[len(text) :], end, settled, ended)
                total += chances[token] * after
        return total


@given(tokenizer=vocabularies(), text=texts, seed=seeds)
@quick
def test_every_cover_counts(tokenizer, text, seed):
    model = PrefixModel(tokenizer.vocab_size, seed)
    brute = BruteForce(model, tokenizer)
    found = distributions(by_bytes(model, tokenizer, True), text.encode())
    assert found.sum(-1) == pytest.approx(1, abs=1e-9)
    for at, probs in enumerate(found):
        before = brute.total(text[:at])
        for letter in "abc":
            wanted = brute.total(text[:at] + letter) / before
            assert probs[OFFSET + ord(letter)] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        wanted = brute.total(text[:at], ended=True) / before
        assert probs[END] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        assert probs[OFFSET + ord("d")] == 0


@given(tokenizer=vocabularies(12), text=texts, seed=seeds)
@quick
def test_canonical_covers(tokenizer, text, seed):
    def allowed(tokens):
        return tokenizer.encode(tokenizer.decode(tokens)).tolist() == list(tokens)

    model = PrefixModel(tokenizer.vocab_size, seed)
    brute = BruteForce(model, tokenizer, allowed)
    found = distributions(by_bytes(model, tokenizer, False), text.encode())
    assert found.sum(-1) == pytest.approx(1, abs=1e-9)
    for at, probs in enumerate(found):
        # Tokens that end with the next byte are not compared with the ones before them yet.
        sums = [brute.total(text[:at] + letter, settled=at) for letter in "abc"]
        other = probs[END] + probs[ByteTokenizer.unk_id]
        wanted = (1 - other) * np.array(sums) / sum(sums)
        assert probs[[OFFSET + ord(letter) for letter in "abc"]] == pytest.approx(wanted, rel=1e-9)


@pytest.fixture(scope="module")
def unigram():
    """Train a unigram tokenizer on lines of a, b and c, most of which can be split in many ways."""
    draws = np.random.default_rng(1).integers(0, 3, (300, 12))
    lines = ["".join("abc"[letter] for letter in row) for row in draws]
    return KINDS["unigram"].train(["\n".join(lines)], 310)


@given(text=st.text(letters, max_size=6), seed=seeds)
@quick
def test_canonical_covers_of_unigram(unigram, text, seed):
    """Three tokens can differ from the tokenizer's own where each two of them do not."""

    def allowed(tokens):
        text = "".join(map(pieces.__getitem__, tokens))
        return unigram.encode(text).tolist() == list(tokens)

    pieces = [raw.decode(errors="replace") for raw in unigram.token_bytes]
    model, framing = PrefixModel(unigram.vocab_size, seed), Framing.of(unigram, "line")
    brute = BruteForce(model, SimpleNamespace(texts=pieces, vocab_size=unigram.vocab_size), allowed)
    brute.start = framing.start
    found = distributions(by_bytes(model, unigram, False, framing=framing), text.encode())
    for at, probs in enumerate(found):
        sums = np.array([brute.total(text[:at] + letter, settled=at) for letter in "abc"])
        own = probs[[OFFSET + ord(letter) for letter in "abc"]]
        assert own / own.sum() == pytest.approx(sums / sums.sum(), rel=1e-9)


@given(
    tokenizer=vocabularies(), text=st.text(letters, max_size=25), seed=seeds,
    every=st.booleans(), least=st.sampled_from([0.05, 0.4]),
)  # fmt: skip
@quick
def test_covers_that_are_read_late(tokenizer, text, seed, every, least):
    """Some tokens are impossible, so that all covers that were read can vanish at once."""
    model = by_bytes(PrefixModel(tokenizer.vocab_size, seed, 0.3), tokenizer, every, 64, least)
    probs = distributions(model, text.encode())
    assert probs.sum(-1) == pytest.approx(1, abs=1e-9)
    assert (probs >= 0).all()


def test_bytes_after_an_improbable_token_are_guessed():
    """They begin tokens there as often as one byte earlier, but for a tenth."""
    tokenizer = SmallBPE([("a", "b")])
    model = PrefixModel(tokenizer.vocab_size, 7)
    a, b, c, ab = (tokenizer.texts.index(piece) for piece in ("a", "b", "c", "ab"))
    chances = model.chances([FRAMING.start])
    text = chances[[a, b, c, ab]].sum()
    guess = {"a": chances[a] + chances[ab], "b": chances[b], "c": chances[c]}
    guess = {letter: 0.9 * mass / text + 0.1 / 256 for letter, mass in guess.items()}
    found = distributions(by_bytes(model, tokenizer, False, least=0.999), b"ac")
    for letter, prob in guess.items():
        wanted = chances[a] * prob + (chances[ab] if letter == "b" else 0)
        assert found[1, OFFSET + ord(letter)] == pytest.approx(wanted / (chances[a] + chances[ab]))
    assert found[1, OFFSET + ord("d")] == pytest.approx(
        chances[a] * 0.1 / 256 / (chances[a] + chances[ab])
    )


def test_a_larger_share_reads_fewer_rows():
    tokenizer = SmallBPE([("a", "b"), ("ab", "c"), ("c", "a"), ("abc", "ab"), ("b", "c")])
    model, text = PrefixModel(tokenizer.vocab_size, 1), b"abcabcaabcbabcabbc" * 3
    rows = []
    for least in (0, 0.03, 0.3):
        model.rows = 0
        seen = by_bytes(model, tokenizer, False, least=least)
        distributions(seen, text)
        assert seen.bytes_read == len(text)
        rows.append(model.rows)
    assert rows[0] > rows[1] > rows[2] >= len(text) / max(map(len, tokenizer.texts[4:]))


@pytest.mark.slow
@given(
    tokenizer=vocabularies(), texts=st.lists(st.text(letters, min_size=4, max_size=4), min_size=2),
    seed=seeds, every=st.booleans(),
)  # fmt: skip
@quick
def test_a_text_in_a_batch_has_the_probabilities_that_it_has_alone(tokenizer, texts, seed, every):
    model = by_bytes(PrefixModel(tokenizer.vocab_size, seed), tokenizer, every, least=1e-3)
    alone = [distributions(model, text.encode()) for text in texts]
    rows = np.array([[START, *(OFFSET + byte for byte in text.encode())] for text in texts])
    together, _ = model(rows)
    assert np.exp(together) == pytest.approx(np.array(alone), abs=1e-12)


def test_states_can_be_copied_selected_and_joined():
    tokenizer = SmallBPE([("a", "b"), ("ab", "c"), ("c", "a")])
    model = by_bytes(PrefixModel(tokenizer.vocab_size, 3), tokenizer, True)
    _, first = model(np.array([[START, *(OFFSET + b for b in b"abca")]] * 2))
    _, second = model(np.array([[START, *(OFFSET + b for b in b"ab")]]))
    kept = first.copy()
    _, first = model.step([OFFSET + ord("b"), OFFSET + ord("c")], first)
    joined = type(kept).cat([second, kept.select([1, 0, 1]), first])
    found, _ = model.step([OFFSET + ord(letter) for letter in "cabccc"], joined)
    wanted = ["abc", "abcaa", "abcab", "abcac", "abcabc", "abcacc"]
    for row, text in zip(found, wanted, strict=True):
        assert np.exp(row) == pytest.approx(distributions(model, text.encode())[-1], abs=1e-12)


class UnknownBruteForce:
    """Sums over sequences of tokens and unknown pieces whose text begins with some bytes.

    An unknown piece costs its token, 1/256 for each byte, and 1/2 where it may end or go on.

    Args:
        model: over the tokens.
        tokenizer: theirs.
        start: the start token.
        ends: whether a text is one unknown piece.
        goes_on: whether a longer text can be one.
        allowed: whether pieces of text can follow one another.
    """

    def __init__(self, model, tokenizer, start, ends, goes_on, allowed):
        self.model, self.texts = model, tokenizer.token_bytes
        self.known = [i for i, raw in enumerate(self.texts) if raw and i >= 4]
        self.unknown, self.start = tokenizer.unk_id, start
        self.ends, self.goes_on, self.allowed = ends, goes_on, allowed

    def total(self, raw, settled):
        """Sum over all that begin with `raw`; what ends or dies after `settled` is not checked."""
        return self._sum((self.start,), (), raw, settled)

    def _sum(self, tokens, pieces, raw, settled):
        if not raw:
            return 1.0
        chances, at = self.model.chances(list(tokens)), sum(map(len, pieces))
        total = 0.0
        for token in self.known:
            text = self.texts[token]
            if text.startswith(raw) and len(text) > len(raw):
                total += chances[token]
            elif raw.startswith(text):
                after = (*pieces, text)
                if at + len(text) > settled or self.allowed(after):
                    rest = raw[len(text) :]
                    total += chances[token] * self._sum((*tokens, token), after, rest, settled)
        mass = chances[self.unknown]
        for size in range(1, len(raw) + 1):
            text, mass = raw[:size], mass / 256
            after = (*pieces, text)
            if at + size > settled:
                return total + mass  # its last byte is possible until it was read
            ends, goes_on = self.ends(text), self.goes_on(text)
            share = mass / max(1, ends + goes_on)
            if ends and self.allowed(after):
                tokens_after = (*tokens, self.unknown)
                total += share * self._sum(tokens_after, after, raw[size:], settled)
            if not (goes_on and self.allowed(after, grows=True)):
                return total
            mass = share
        return total + mass


def is_beginning_of_character(raw):
    """Check by all characters of a few blocks, and by the length that the first byte tells."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start == 0
    return False


@given(text=st.text("abé€ü—😀", min_size=1, max_size=4), seed=seeds, every=st.booleans())
@quick
def test_several_unknown_characters(text, seed, every):
    tokenizer = KINDS["char"]("ab \nü")
    model, framing = PrefixModel(tokenizer.vocab_size, seed), Framing.of(tokenizer, "stream")

    def ends(raw):
        return raw.decode(errors="replace") in list("é€—😀")

    brute = UnknownBruteForce(
        model, tokenizer, framing.start, ends, is_beginning_of_character, lambda *_, **__: True
    )
    raw = text.encode()
    probs = distributions(by_bytes(model, tokenizer, every, framing=framing), raw)
    found = np.prod([probs[at, OFFSET + byte] for at, byte in enumerate(raw)])
    assert found == pytest.approx(brute.total(raw, len(raw) - 1), rel=1e-9)


WORDS = re.compile(r" ?\w+(?:['\u2019]\w+)*| ?[^\w\s]|\s")


@given(
    text=st.text("ab '.é", min_size=1, max_size=6), seed=seeds, every=st.booleans(),
)  # fmt: skip
@quick
def test_several_unknown_words(text, seed, every):
    tokenizer = KINDS["word"](["a", " b", "ab", ".", " "])
    model, framing = PrefixModel(tokenizer.vocab_size, seed), Framing.of(tokenizer, "stream")
    words = {"a", " b", "ab", ".", " ", "\n"}

    def decoded(raw):
        return raw.decode(errors="ignore"), is_beginning_of_character(raw[-1:])

    def ends(raw):
        word, cut = decoded(raw)
        return not cut and bool(WORDS.fullmatch(word)) and word not in words

    def goes_on(raw):
        word, cut = decoded(raw)
        return (cut and not word) or bool(WORDS.fullmatch(f"{word}xq"))

    def allowed(pieces, grows=False):
        if every:
            return True
        *before, last = pieces
        last, cut = decoded(last)
        if cut and not last:
            return True
        before = [piece.decode() for piece in before]
        last += "xq" * grows
        return WORDS.findall("".join(before) + last) == [*before, last]

    brute = UnknownBruteForce(model, tokenizer, framing.start, ends, goes_on, allowed)
    raw = text.encode()
    probs = distributions(by_bytes(model, tokenizer, every, framing=framing), raw)
    for at in range(len(raw)):
        found, wanted = probs[at, OFFSET:], np.zeros(256)
        for byte in range(256):
            wanted[byte] = brute.total(raw[:at] + bytes([byte]), at)
        assert found / found.sum() == pytest.approx(wanted / wanted.sum(), rel=1e-9)


@given(raw=st.binary(max_size=6), seed=seeds)
@quick
def test_unknown_pieces(raw, seed):
    tokenizer = KINDS["char"]("ab \nü")
    model = PrefixModel(tokenizer.vocab_size, seed)
    framing = Framing.of(tokenizer, "stream")
    probs = distributions(by_bytes(model, tokenizer, True, framing=framing), raw)
    assert probs.sum(-1) == pytest.approx(1, abs=1e-9)
    assert (probs[: len(raw), OFFSET:] > 0).all()  # no byte is impossible


def test_an_unknown_character_costs_its_token_and_its_bytes():
    tokenizer = KINDS["char"]("ab \n")
    model, framing = PrefixModel(tokenizer.vocab_size, 5), Framing.of(tokenizer, "stream")
    probs = distributions(by_bytes(model, tokenizer, False, framing=framing), "aéb".encode())
    a, b = (tokenizer.encode(letter)[0] for letter in "ab")
    past = [framing.start]
    unknown = tokenizer.unk_id
    wanted = model.chances(past)[a] * model.chances([*past, a])[unknown] / 256**2
    # Nothing else has these bytes, and a character ends where it ends. The last letter may be
    # known, or the first of another unknown piece.
    after = model.chances([*past, a, unknown])
    wanted *= after[b] + after[unknown] / 256
    found = np.prod([probs[at, OFFSET + byte] for at, byte in enumerate("aéb".encode())])
    assert found == pytest.approx(wanted, rel=1e-9)


def test_bytes_that_no_token_has_are_left_out_of_what_is_read():
    tokenizer = SmallBPE([("a", "b")])
    model = by_bytes(PrefixModel(tokenizer.vocab_size, 2), tokenizer, True)
    probs = distributions(model, b"axb")
    assert probs[1, OFFSET + ord("x")] == 0
    assert probs[2:].sum(-1) == pytest.approx(1, abs=1e-9)


def test_only_the_most_probable_covers_are_kept():
    tokenizer = SmallBPE([("a", "b"), ("ab", "c"), ("c", "a"), ("abc", "ab"), ("b", "c")])
    model = by_bytes(PrefixModel(tokenizer.vocab_size, 1), tokenizer, True, most=3)
    state = model.start(1)
    for token in (START, *(OFFSET + byte for byte in b"abcabcab")):
        log_probs, state = model.step([token], state)
        (covers,) = state.texts
        assert len(covers.read) + len(covers.unread) <= 3
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-9)
    assert model.left_out > 0
    assert not by_bytes(model.inner, tokenizer, False).notes  # which leaves most covers out


def dropped_shares(model, tokenizer, text, most):
    """List the share of the mass that is dropped at each letter, by explicit sequences of tokens.

    Also list the mass before that, relative to what was kept at the letter before.
    """
    tokens, kept, shares, masses = range(4, tokenizer.vocab_size), {(): ""}, [], []
    for letter in text:
        found = {}
        for read, rest in kept.items():
            chances = model.chances([FRAMING.start, *read])
            start = np.prod(
                [model.chances([FRAMING.start, *read[:at]])[token] for at, token in enumerate(read)]
            )
            longer = [t for t in tokens if len(tokenizer.texts[t]) > len(rest) + 1]
            longer = [t for t in longer if tokenizer.texts[t].startswith(rest + letter)]
            found[read] = rest + letter, start * chances[longer].sum()
            for token in tokens:
                if tokenizer.texts[token] == rest + letter:
                    found[(*read, token)] = "", start * chances[token]
        found = {read: cover for read, cover in found.items() if cover[1]}
        own = {
            read for read in found if tokenizer.encode(tokenizer.decode(read)).tolist() == [*read]
        }
        best = sorted(found, key=lambda read: (read not in own, -found[read][1]))
        best = best[: max(most, len(own))]
        masses.append(sum(mass for _, mass in found.values()))
        assume(masses[-1] > 0)  # the covers that were kept can go on
        kept = {read: found[read][0] for read in best}
        shares.append(1 - sum(found[read][1] for read in best) / masses[-1])
    return shares, masses


@given(tokenizer=vocabularies(12), text=texts, seed=seeds, most=st.integers(1, 6))
@quick
def test_the_mass_that_is_left_out(tokenizer, text, seed, most):
    model = PrefixModel(tokenizer.vocab_size, seed)
    seen = by_bytes(model, tokenizer, True, most)
    found = distributions(seen, text.encode())
    assert found.sum(-1) == pytest.approx(1, abs=1e-9)
    shares, masses = dropped_shares(model, tokenizer, text, most)
    ((key, share),) = seen.notes
    assert key == "left_out_mass"
    assert share == pytest.approx(np.mean([*shares] or [0]), abs=1e-12)
    # Until a cover is dropped, the masses are those of all sequences.
    brute = BruteForce(model, tokenizer)
    for at, mass in enumerate(masses[: 1 + next((i for i, x in enumerate(shares) if x > 0), 8)]):
        assert mass == pytest.approx(brute.total(text[: at + 1]), rel=1e-9)


@given(tokenizer=vocabularies(), text=texts, seed=seeds)
@quick
def test_a_limit_that_is_not_reached_changes_nothing(tokenizer, text, seed):
    model = PrefixModel(tokenizer.vocab_size, seed)
    limited, all_of_them = (by_bytes(model, tokenizer, True, most) for most in (1 << 12, 1 << 30))
    found, wanted = (distributions(each, text.encode()) for each in (limited, all_of_them))
    np.testing.assert_array_equal(found, wanted)
    assert limited.notes == all_of_them.notes
    assert dict(limited.notes)["left_out_mass"] == pytest.approx(0, abs=1e-12)


def test_weights_of_long_texts_do_not_vanish():
    tokenizer = SmallBPE([("a", "b")])
    model = by_bytes(PrefixModel(tokenizer.vocab_size, 4), tokenizer, False, least=1e-3)
    probs = distributions(model, b"abacbc" * 60)
    assert np.isfinite(probs).all()
    assert probs.sum(-1) == pytest.approx(1, abs=1e-9)


@pytest.mark.skipif(not has_plugin("exchange"), reason="needs the plugin exchange")
def test_a_tokenizer_over_bytes_from_elsewhere():
    pytest.importorskip("tokenizers")
    from hf_models import byte_level

    from seqgen.plugins.exchange.imported_tokenizers import HuggingFaceTokenizer

    content = json.loads(byte_level(vocab_size=400).to_str())
    for missing in ("\u0104", "\u00f2"):  # the bytes 4 and F2, which SmolLM2 lacks as well
        del content["model"]["vocab"][missing]
    ids = sorted(content["model"]["vocab"].values())
    vocab = {name: ids.index(i) for name, i in content["model"]["vocab"].items()}
    content["model"]["vocab"] = vocab
    content["added_tokens"][0]["id"] = vocab["<|endoftext|>"]
    tokenizer = HuggingFaceTokenizer(json.dumps(content).encode())
    assert not tokenizer.lossless
    assert keeps_texts(tokenizer)
    segmentation = Segmentation(tokenizer, False)
    # Two newlines are split in two before a word, and joined before the end of a text.
    newline = tokenizer.newline_id
    assert segmentation.is_own(segmentation.path_of([newline]), newline, b"\n")
    framing = Framing(vocab["<|endoftext|>"], None, vocab["<|endoftext|>"], ())
    model = PrefixModel(tokenizer.vocab_size, 3)
    text = "The cat's\n\n day \u00e9".encode()
    probs = distributions(by_bytes(model, tokenizer, False, least=1e-3, framing=framing), text)
    assert probs.sum(-1) == pytest.approx(1, abs=1e-9)
    assert (probs[np.arange(len(text)), [OFFSET + byte for byte in text]] > 0).all()
    assert probs[0, OFFSET + 4] == 0


def test_tokenizers_that_change_texts_are_known():
    for kind, keeps in (("char", True), ("word", True), ("whitespace", False)):
        assert keeps_texts(KINDS[kind].train(["The day is here . \n The day\n"])) == keeps

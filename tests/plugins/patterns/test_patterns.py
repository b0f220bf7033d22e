"""Patterns: the automaton against `re`, what is allowed against enumeration, texts of all kinds."""

import itertools
import random
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers_cli import needs, records, refusal

import seqgen
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.generation.processors import History
from seqgen.plugins.patterns.automaton import LOST, NEVER, Automaton, Vocabulary
from seqgen.plugins.patterns.constraint import Constraint
from seqgen.plugins.patterns.network import CharacterNetwork
from seqgen.plugins.patterns.regex import RegexReader

BYTES = Vocabulary.of([bytes([byte]) for byte in range(256)])


def automaton_of(pattern, vocabulary=BYTES):
    network = CharacterNetwork(vocabulary.backward)
    return Automaton(network.finish(RegexReader(network).add(network.start, pattern)), vocabulary)


def walked(automaton, tokens):
    state = automaton.start
    for token in tokens:
        state = int(automaton.after(state)[token])
    return state


def accepts(automaton, text):
    return automaton.accepts(walked(automaton, text.encode()))


def random_pattern(draw, depth, letters="abc"):
    """A pattern over a few letters, of all that is understood."""
    kind = draw.randrange(8) if depth else 0
    if kind <= 1:
        few = "".join(draw.sample(letters, 2))
        items = [*letters, ".", rf"[{few}]", rf"[^{letters[0]}]", r"\w", rf"[{letters[0]}-c]"]
        return draw.choice(items)
    inner = random_pattern(draw, depth - 1, letters)
    if kind == 2:
        return f"(?:{inner}|{random_pattern(draw, depth - 1, letters)})"
    if kind == 3:
        return f"({inner}){draw.choice(['*', '+', '?', '*?', '{2}', '{1,3}', '{2,}'])}"
    return inner + random_pattern(draw, depth - 1, letters)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"\d{4}-\d\d", ["2026-11", "2026-1", "٢٠٢٦-11", "a026-11"]),
        (r"(?i)straße|\W", ["STRAßE", "straße", "-", "é", "STRASSE"]),
        (r"^(a|^b)$|^$", ["a", "b", "", "ab"]),
        (r"[^\s,]+(, [^\s,]+)*", ["né, 日本, x", "a,b", "a, "]),
        (r"(?s:.)x(?a:\w)", ["\nxa", "𝔘xz", "axé", "axb"]),
        (r"(?a)\w(?u:\w)\w", ["aéa", "aéé", "aaa"]),
        (r"(?a)(?u:\W)", ["-", "ſ", "é"]),
        (r"(?u:(?a:\w(?u:\w)(?i:\w)))", ["aéa", "aéé", "éaa"]),
        (r"(?i)(?a:k)(?ai:[^s])(?u-i:k)(?u:k)", ["ksk", "KſkK", "kakK", "kakk", "K\u017fkk"]),
        (r"[\u0400-\u04ff\U0001f600-\U0001f64f]{2,3}", ["жы", "😀ж😁", "ж", "жжжж", "ax"]),
        (r"(?x) a  b # c", ["ab", "a b"]),
    ],
)
def test_language_is_that_of_re(pattern, texts):
    automaton = automaton_of(pattern)
    assert [accepts(automaton, t) for t in texts] == [bool(re.fullmatch(pattern, t)) for t in texts]
    assert len({accepts(automaton, t) for t in texts}) == 2  # some match and some do not


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("--pattern", "(([[]a|[a&&b]|[||a]|[~~]|[--b]))"),
        ("--grammar", "start: A\nA: /(([[]a|[a&&b]|[||a]|[~~]))/"),
        ("--json-schema", '{"pattern": "^([[]|[a&&b])$"}'),
    ],
)
def test_python_does_not_warn_of_sets(kind, text):
    add = {"--pattern": "regex.add_pattern", "--grammar": "grammar.add_grammar"}
    called = add.get(kind, "json_schema.add_schema")
    module = called.partition(".")[0]
    lines = [
        f"from seqgen.plugins.patterns import network, {module}",
        "network = network.CharacterNetwork(False)",
        f"{called}(network, network.start, {text!r})",
    ]
    # What calls these functions is a part of seqgen, so the module has such a name.
    code = f"exec({chr(10).join(lines)!r}, {{'__name__': 'seqgen.caller'}})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stderr == ""


@pytest.mark.parametrize("count", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_random_patterns_match_what_re_matches(count):
    draw = random.Random(0)
    texts = ["".join(t) for n in range(5) for t in itertools.product("abc", repeat=n)]
    for _ in range(count):
        pattern = random_pattern(draw, 3)
        automaton = automaton_of(pattern)
        matched = re.compile(pattern).fullmatch
        for text in texts:
            assert accepts(automaton, text) == bool(matched(text)), (pattern, text)


def test_every_character_of_classes():
    for pattern in (r"\w", r"[^\W\d_]", r"(?i)[a-zµ]", r"(?i)[^k]", r"."):
        automaton = automaton_of(pattern)
        matched = re.compile(pattern).fullmatch
        for code in [*range(0x3000), *range(0x1F600, 0x1F650), 0x10FFFF]:
            assert accepts(automaton, chr(code)) == bool(matched(chr(code))), (pattern, code)


def completions(pattern, tokens, most):
    """Every sequence of at most so many tokens whose bytes match, by trying all."""
    matched = re.compile(pattern).fullmatch
    return {
        sequence
        for length in range(most + 1)
        for sequence in itertools.product(range(len(tokens)), repeat=length)
        if matched("".join(tokens[i] for i in sequence))
    }


def test_exactly_the_prefixes_that_can_be_completed_are_allowed():
    draw = random.Random(1)
    checked = 0
    for _ in range(60):
        pattern = random_pattern(draw, 3, "ab")
        pieces = ["a", "b", "ab", "ba", "aab", "c"]
        tokens = draw.sample(pieces, 4)
        vocabulary = Vocabulary.of([t.encode() for t in tokens] + [None])  # the last one is the end
        automaton = automaton_of(pattern, vocabulary)
        for most in (0, 1, 3, 4):
            whole = completions(pattern, tokens, most)
            try:
                constraint = Constraint(automaton, most, 4, [4], [])
            except UsageError:
                assert not whole
                continue
            prefixes = {sequence[:n] for sequence in whole for n in range(len(sequence) + 1)}
            for prefix in prefixes:
                checked += 1
                allowed = constraint([History(prefix)], np.full((1, 5), np.log(0.2)))[0] > -np.inf
                expected = [(*prefix, token) in prefixes for token in range(4)]
                begins = [constraint.can_begin((*prefix, token)) for token in range(4)]
                assert begins == expected and constraint.can_begin(prefix)
                assert allowed.tolist() == [*expected, prefix in whole], (pattern, prefix)
    assert checked > 1000


def test_end_has_the_mass_of_all_that_ends():
    automaton = automaton_of("a+", Vocabulary.of([b"a", b"b", b"aa", b"ab", None, None]))
    constraint = Constraint(automaton, 3, 5, [5], [4])  # 4 is never written, 5 is the end
    log_probs = np.log([[0.1, 0.2, 0.3, 0.05, 0.25, 0.1]])
    begun, going = (
        constraint([History()], constraint.outcomes([History()], log_probs)),
        [History([0])],
    )
    np.testing.assert_allclose(np.exp(begun[0]), [0.25, 0, 0.75, 0, 0, 0])
    merged = constraint.outcomes(going, log_probs)
    np.testing.assert_allclose(np.exp(merged[0]), [0.1, 0, 0.3, 0, 0.25, 0.35])
    kept = np.exp(constraint(going, merged)[0])
    np.testing.assert_allclose(kept, np.array([0.1, 0, 0.3, 0, 0, 0.35]) / 0.75)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(a", "unterminated"),
        (r"(a)\1", "back-reference"),
        (r"a(?=b)", "look-around"),
        (r"a\bb", "boundary"),
        (r"a$b", "no text"),
        (r"(a|^)b*x^", "no text"),
        (r"[^\s\S]", "no text"),
        pytest.param("(a{1000}){1000}", "100,000 places", marks=pytest.mark.slow),
        pytest.param("(a|b)*a(a|b){20}", "states", marks=pytest.mark.slow),
        pytest.param(".*.{0,3000}(?:a|.)$", "states", marks=pytest.mark.slow),
        ("a{99999999999999999999}", "too large"),
        ("a" * 1_000_000, "1,000,000 characters"),
        ("(?:" * 20_000 + "a" + ")" * 20_000, "nested too deeply"),
    ],
)
def test_hostile_patterns_are_one_error_soon(pattern, told):
    begun = time.process_time()
    with pytest.raises(UsageError, match=told) as refused:
        automaton_of(pattern)
    assert "\n" not in str(refused.value)
    assert time.process_time() - begun < 20


def test_catastrophic_backtracking_is_none():
    automaton = automaton_of("(a|a)*(a*)*b")
    assert automaton.accepts(walked(automaton, b"a" * 5000 + b"b"))
    assert walked(automaton, b"a" * 5000 + b"c") == LOST
    assert automaton.cost(automaton.start) == 1 and automaton.cost(LOST) == NEVER


TEXT = "A date: 2026-11-24. Über 30 Häuser, and a(b)c!\nThe 3 cats sat. 日本 😀\n" * 30
FORMS = {
    "char": r"\d{4}-\d\d-\d\d|[A-Z][a-zü]+( [a-z]+){1,3}",
    "byte": r"[ä-ü日😀]{2,3}[^\x00-\x7f]?",
    "word": r"( ?[A-Za-z]+){2,4}\.",
    "bpe": r"[A-Z][a-z]* (\d+ )?[a-z日]{1,9}\.?",
    "whitespace": r"[a-zA-Z]+( [a-z0-9]+){2}",
}


@pytest.mark.fast_for("forward-*", "backward-bpe", "backward-char", rest="slow")
@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_texts_of_every_tokenizer_match(kind, direction, home, tmp_path):
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    size = ["--vocab-size", "320"] if kind == "bpe" else []
    how = ["--model", "ngram", "--order", "3", "--tokenizer", kind, "--direction", direction]
    assert run(["train", str(data), "--name", "m", *how, *size, "--quiet"]) == 0
    model = seqgen.load("m")
    texts = []
    for prompt in ("", "The"):
        # What comes after a word begins with a space where tokens are words alone.
        space = " " if prompt and kind == "whitespace" else ""
        form = f"{FORMS[kind]}{space}" if direction == "backward" else f"{space}{FORMS[kind]}"
        options = {"pattern": form, "num_samples": 20, "max_tokens": 25, "seed": 3, "top_k": 20}
        for record in model.sample(prompt, **options):
            assert re.fullmatch(form, record.text), record.text
            assert record.finish_reason == "pattern"
            texts.append(record.text)
    assert len(set(texts)) > 3


def test_command_line(home, tmp_path, capsys):
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    assert run(["train", str(data), "--model", "ngram", "--order", "3", "--quiet"]) == 0
    written = records(capsys, "sample", "A", "--pattern", r" \d+\.?", "--seed", "1", "--top-k", "9")
    assert re.fullmatch(r" \d+\.?", written[0]["text"]) and written[0]["finish_reason"] == "pattern"
    (one,) = records(capsys, "sample", "A", "--pattern", r"", "--seed", "1")
    assert one["text"] == "" and one["tokens"] == 1
    for arguments, told in (
        (["--pattern", "q+"], "cannot write 'q'"),
        (["--pattern", "a{9}", "--max-tokens", "8"], "at least 9 tokens"),
        (["--pattern", "a", "--stop", "b"], "--stop"),
        (["--pattern", "a", "--min-tokens", "1"], "--min-tokens"),
        (["--pattern", "(a"], "--pattern: missing )"),
        (["--pattern", "a+ .", "--force", "aa1"], "--force: no text of the form"),
        (["--pattern", "a", "--suggest", "3"], "--suggest writes no text"),
    ):
        assert told in refusal(capsys, "sample", *arguments)


def test_a_text_that_cannot_go_on_is_a_dead_end(home, tmp_path, capsys):
    data = tmp_path / "text.txt"
    data.write_text("abcabcabc\n" * 9)
    how = ["--model", "ngram", "--order", "2", "--smoothing", "maximum-likelihood"]
    assert run(["train", str(data), "--quiet", *how]) == 0
    # After a the model never writes c, so that nothing continues the text.
    (one,) = records(capsys, "sample", "--pattern", "ac", "--seed", "1")
    assert (one["text"], one["tokens"], one["finish_reason"]) == ("a", 1, "dead-end")
    assert one["logprob"] == pytest.approx(0, abs=1e-6)


@needs("searches")
@pytest.mark.parametrize("pattern", ["(ab|b){2,3}a?", "a*ba*", "[^a]*", "(a|b)+"])
def test_beams_equal_exhaustive_search(pattern, home, tmp_path, capsys):
    data = tmp_path / "text.txt"
    data.write_text("abbabaab\n" * 5 + "bbab\naab\n")
    for documents in ("stream", "line"):
        how = ["--model", "ngram", "--order", "2", "--documents", documents, "--name", documents]
        assert run(["train", str(data), "--quiet", *how]) == 0
        search = ["--pattern", pattern, "--max-tokens", "5", "-m", documents, "--nbest", "5"]
        of_beams = records(capsys, "beam-search", *search, "--beams", "300")
        of_all = records(capsys, "beam-search", *search, "--exhaustive")
        assert [r["text"] for r in of_beams] == [r["text"] for r in of_all]
        for one, other in zip(of_beams, of_all, strict=True):
            assert one["logprob"] == pytest.approx(other["logprob"])
            assert re.fullmatch(pattern, one["text"]) and one["finish_reason"] == "pattern"
        assert len({r["text"] for r in of_all}) == len(of_all) == 5


@needs("searches")
@pytest.mark.parametrize("documents", ["stream", "line"])
@pytest.mark.parametrize("wanted", [["bb"], ["ba", "ab"], ["aa", "bba"], ["aa", "bb", "bab"]])
def test_beams_with_required_texts_equal_the_best_that_have_them(
    documents, wanted, home, tmp_path, capsys
):
    data = tmp_path / "text.txt"
    data.write_text("abbabaab\n" * 5 + "bbab\naab\n")
    how = ["--model", "ngram", "--order", "3", "--documents", documents]
    assert run(["train", str(data), "--quiet", *how]) == 0
    search = ["--max-tokens", "5", "--length-norm", "none", "--quiet"]
    every = records(capsys, "beam-search", *search, "--exhaustive", "--nbest", "4000")
    have = [r for r in every if all(text in r["text"] for text in wanted)]
    include = [part for text in wanted for part in ("--include", text)]
    found = records(capsys, "beam-search", *search, *include, "--beams", "4000", "--nbest", "3")
    if not have:  # five characters are too few for all three
        assert len(wanted) == 3 and found[0]["missing"]
        return
    assert [r["text"] for r in found] == [r["text"] for r in have[:3]]
    assert all(r["missing"] == [] for r in found)
    few = records(capsys, "beam-search", *search, *include, "--beams", "3")
    assert few[0]["missing"] == [] and few[0]["logprob"] <= have[0]["logprob"] + 1e-9


def test_terms_of_a_translator(home, tmp_path, capsys):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"the {a} sees a {b}\tnu {b} ta {a}\n" for a in "xyz" for b in "pqr"))
    small = ["--layers", "1", "--hidden-size", "8", "--steps", "3", "--tokenizer", "char"]
    how = ["--model", "seq2seq", *small, "--seed", "1", "--val", "none"]
    assert run(["train", str(pairs), "--name", "pairs", "--quiet", *how]) == 0
    terms = tmp_path / "terms.tsv"
    terms.write_text("\ufeffx\tnuta\r\n\nsees a\tzzz\ne\trr\n", encoding="utf-8")
    search = ["beam-search", "the x sees a p", "the y", "--terms", terms, "--max-tokens", "20"]
    first, second = records(capsys, *search, "--quiet")
    assert "nuta" in first["text"] and "zzz" in first["text"] and first["missing"] == []
    assert "missing" not in second  # none of its words is a term: "e" is part of one
    (both,) = records(capsys, *search[:2], *search[3:], "--pattern", "[a-z]{1,2}nuta.*")
    assert re.fullmatch("[a-z]{1,2}nuta.*", both["text"]) and both["missing"] == []
    (short,) = records(capsys, *search[:2], *search[3:-1], "5", "--quiet")
    assert short["missing"]
    bad = tmp_path / "bad.tsv"
    bad.write_text("x\tnuta\nno tab\n")
    assert "line 2 has no term" in refusal(capsys, *search[:2], "--terms", bad)
    assert "there is no file" in refusal(capsys, *search[:2], "--terms", tmp_path / "none")
    assert "cannot write 'Q'" in refusal(capsys, *search[:2], "--include", "Q")
    refused = refusal(capsys, *search[:2], "--include", "x", "--stochastic")
    assert "--include cannot be combined with --stochastic" in refused
    text = ["--model", "ngram", "--name", "text", "--quiet"]
    assert run(["train", str(pairs), *text]) == 0
    assert "--terms" in refusal(capsys, "beam-search", "x", "--terms", terms, "-m", "text")

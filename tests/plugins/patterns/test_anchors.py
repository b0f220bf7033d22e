"""Anchors in any place: the language is exactly that of `re`, of jsonschema and of lark."""

import itertools
import json
import random
import re

import pytest
from anchored import anchored_pattern
from test_grammars import automaton_of, jsonschema, lark, lark_accepts, write
from test_patterns import accepts

from seqgen.errors import UsageError
from seqgen.plugins.patterns.automaton import Vocabulary
from seqgen.plugins.patterns.grammar import add_grammar
from seqgen.plugins.patterns.json_schema import add_schema
from seqgen.plugins.patterns.regex import add_pattern

WITH_END = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
TABLE = [
    r"^cat$|dog",
    r"(^[a-z]$)",
    r"\Aabc\Z",
    r"(?:^x)y",
    r"x(?:y$)",
    r"x(^a|b$)?",
    r"(^a|b)+c?",
    r"(a|$)*b?",
    r"^^(a|^b)$$",
    r"a$\n",
    r"(?m)a$\n?^",
    r"a\Z\n?",
    r"(?m)^a$(\n^b$)*",
    r"(?m)a$.?|^b",
    r"(?m:^a)\n?(?m:^b)|a\n^b",
    r"(?s).$.",
]


def texts_over(characters, longest):
    """Every text of some characters up to a length."""
    return [
        "".join(text)
        for length in range(longest + 1)
        for text in itertools.product(characters, repeat=length)
    ]


def check_pattern(pattern, texts):
    """Compare with `re` on every text; return whether any text belongs to the pattern."""
    matched = [bool(re.compile(pattern).fullmatch(text)) for text in texts]
    try:
        automaton = automaton_of(add_pattern, pattern)
    except UsageError as error:
        assert "no text" in str(error) and not any(matched), (pattern, str(error))
        return False
    for text, expected in zip(texts, matched, strict=True):
        assert accepts(automaton, text) == expected, (pattern, text)
    return True


@pytest.mark.parametrize("pattern", TABLE)
def test_language_is_that_of_re(pattern):
    letters = sorted({*"a\n", *re.sub(r"\\.|\(\?\w+|[^a-z]", "", pattern)})
    texts = [*texts_over(letters, 3 if len(letters) < 6 else 2), "cat", "dog", "cat\n", "xdog"]
    assert check_pattern(pattern, texts)


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.long)])
def test_random_anchors_hold_where_those_of_re_do(count):
    draw, texts = random.Random(4), texts_over("ab\n", 4)
    written = 0
    for _ in range(count):
        flags = draw.choice(["", "(?m)", "(?s)", "(?ms)"])
        written += check_pattern(flags + anchored_pattern(draw, 4, ["a", "b", r"\n"]), texts)
    assert count / 3 < written < count


@pytest.mark.parametrize("backward", [False, True])
def test_anchors_of_texts_that_are_written_backward(backward):
    vocabulary = Vocabulary.of([bytes([byte]) for byte in range(256)], backward)
    for pattern in TABLE:
        automaton = automaton_of(add_pattern, pattern, vocabulary)
        for text in texts_over("abxy\n", 3):
            state = automaton.start
            for byte in text.encode()[:: -1 if backward else 1]:
                state = int(automaton.after(state)[byte])
            assert automaton.accepts(state) == bool(re.fullmatch(pattern, text)), (pattern, text)


SCHEMA_TABLE = [
    *TABLE[:9],
    r'^a"b$',
    r"^a\\\\b$",
    r"^\\$",
    r'["\\]',
    r"^\t[^a]\x01?$",
    r"^[\x00-\x1f\x7f]{2}$",
    r"\A.\Z|\n",
    r"^\S\D\W$",
    r"^[^\S]|[^\w]$",
    r"cat",
    r"",
]


def check_schema(pattern, texts, draw, most=12):
    """Compare with jsonschema on JSON as it is written; return whether there are texts.

    In JSON Schema $ is the end of a text, as \\Z is in Python, whose own $ holds in more places.
    """
    as_python, exactly = (
        jsonschema.Draft202012Validator({"type": "string", "pattern": form}).is_valid
        for form in (pattern, pattern.replace("$", r"\Z"))
    )
    schema = json.dumps({"type": "string", "pattern": pattern})
    try:
        automaton = automaton_of(add_schema, schema, WITH_END)
    except UsageError as error:
        assert "no text" in str(error) and not any(map(exactly, texts)), (pattern, str(error))
        return False
    for text in texts:
        held = accepts(automaton, json.dumps(text, ensure_ascii=False))
        assert held == exactly(text), (pattern, text)
    for _ in range(5):
        text = json.loads(write(automaton, max(automaton.cost(automaton.start), most), draw))
        assert as_python(text) and exactly(text), (pattern, text)
    return True


@pytest.mark.parametrize("pattern", SCHEMA_TABLE)
def test_patterns_of_schemas_are_those_of_jsonschema(pattern):
    texts = [*texts_over('ab"\\\t\n\x01', 2), "cat", "dog", "cats", "dogma", "x", "xy", "axy"]
    texts += ['a"b', "a\\b", "a\\\\b", "abc", "abcd", "\x1f\x05", "é", "\t\r"]
    assert check_schema(pattern, texts, random.Random(1))


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.long)])
def test_random_patterns_of_schemas_are_those_of_jsonschema(count):
    draw, texts = random.Random(6), texts_over('a"\\\n', 3)
    written = 0
    for _ in range(count):
        pattern = anchored_pattern(draw, 4, ["a", '"', r"\\", r"\n"])
        written += check_schema(pattern, texts, draw)
    assert count / 3 < written <= count


def test_a_rule_that_can_never_end_is_not_left():
    automaton = automaton_of(add_grammar, r'start: "b" | "a" start /[^\s\S]/')
    assert accepts(automaton, "b") and not accepts(automaton, "ab")


def test_a_pattern_stands_in_any_string_of_a_schema():
    part = {"type": "string", "pattern": '^("|\\\\)$|^a'}
    schema = {
        "type": "array",
        "items": {"type": "object", "properties": {"k": part}, "required": ["k"]},
    }
    automaton = automaton_of(add_schema, json.dumps(schema))
    for texts in itertools.product(['"', "\\", "ab", "b", '""'], repeat=2):
        value = [{"k": text} for text in texts]
        valid = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert accepts(automaton, json.dumps(value)) == valid, value


GRAMMARS = [  # and a pattern of the same language, in which anchors see the whole text
    ("start: A\nA: {A}", "{A}"),
    ('start: A "x"?\nA: {A}', "(?:{A})x?"),
    ('start: "x" A | A "y"\nA: {A}', "x(?:{A})|(?:{A})y"),
    ("start: A+\nA: {A}", "(?:{A})+"),
    ('start: B A "b"\nB: "x" | "y"\nA: {A}', "[xy](?:{A})b"),
    ('start: A | "x" start "x"\nA: {A}', "|".join(n * "x" + "(?:{A})" + n * "x" for n in range(4))),
]


@pytest.mark.parametrize(
    "terminal",
    [
        r"/[a-z]{1,3}$/",
        r"/^cat$|dog/",
        r"/(^[a-z]$)/",
        r"/\Aabc\Z/",
        r"/(?:^x)y/",
        r"/#[^\n]*$/m",
        r"/^[ab]+\n/m",
        r"/[ab]+$\n?/m",
    ],
)
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_anchors_of_terminals_see_the_whole_text(grammar, terminal):
    letters = "catdog" if "cat" in terminal else "abxy\n#"
    check_grammar(grammar, terminal, texts_over(letters, 4), random.Random(2))


def check_grammar(grammar, terminal, texts, draw, lark_too=True):
    """Compare with `re` on every text, and texts that are written with lark; return if any are."""
    _, inner, mode = terminal.split("/")
    text, pattern = grammar[0].replace("{A}", terminal), grammar[1].replace("{A}", inner)
    matched = [bool(re.fullmatch(pattern, text, re.MULTILINE if mode else 0)) for text in texts]
    try:
        automaton = automaton_of(add_grammar, text, WITH_END)
    except UsageError as error:
        assert ("no text" in str(error) and not any(matched)) or "zero-width" in str(error)
        return False
    for one, expected in zip(texts, matched, strict=True):
        assert accepts(automaton, one) == expected, (text, one)
    parser = lark.Lark(text, parser="earley", lexer="dynamic_complete")
    for _ in range(8 if lark_too else 0):
        written = write(automaton, max(automaton.cost(automaton.start), 8), draw)
        assert lark_accepts(parser, written), (text, written)
    return True


def unambiguous_pattern(draw):
    """A pattern whose longest match is the first that `re` tries, as lark's lexer needs it."""
    parts = [
        draw.choice(["", "", "", "^", "$"]) + few + draw.choice(["", "*", "{1,2}"])
        for few in draw.sample(["a", "b", "[cd]", "x", r"\n"], draw.randrange(1, 4))
    ]
    pattern = "".join(parts) + draw.choice(["", "", "$"])
    return f"(?:{pattern})|y{draw.choice(['', '$'])}" if draw.random() < 0.3 else pattern


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.long)])
def test_random_terminals_are_those_of_lark(count):
    draw, texts, written = random.Random(7), texts_over("abx\n", 4), 0
    for at in range(count):
        if at % 2:
            inner = unambiguous_pattern(draw)
        else:
            inner = anchored_pattern(draw, 3, ["a", "b", r"\n"])
        terminal = f"/{inner}/{draw.choice(['', 'm'])}"
        written += check_grammar(draw.choice(GRAMMARS), terminal, texts, draw, bool(at % 2))
    assert count / 4 < written < count

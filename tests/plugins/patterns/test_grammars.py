"""Grammars and JSON schemas: what is written is valid by lark and jsonschema, whatever is drawn."""

import json
import random
import re
import time
from urllib.parse import quote

import pytest
from helpers_cli import records, refusal
from test_patterns import accepts

import seqgen
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.generation.processors import History
from seqgen.plugins.patterns.automaton import NEVER, Automaton, Vocabulary
from seqgen.plugins.patterns.constraint import Constraint
from seqgen.plugins.patterns.grammar import add_grammar
from seqgen.plugins.patterns.json_schema import add_schema
from seqgen.plugins.patterns.network import CharacterNetwork

lark = pytest.importorskip("lark")
jsonschema = pytest.importorskip("jsonschema")

TERMINALS = "start: A0" + "".join(f"\nA{n}: A{n + 1} A{n + 1}" for n in range(40)) + '\nA40: "a"'

BYTES = Vocabulary.of([bytes([byte]) for byte in range(256)])
SUM = """
start: sum
sum: product | sum "+" product
product: atom | product "*" atom
atom: "n" | "-" atom | "(" sum ")"
"""
JSON = r"""
start: value
value: object | array | ESCAPED_STRING | SIGNED_INT | "true" | "null"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
array: "[" [value ("," value)*] "]"
%import common (SIGNED_INT, ESCAPED_STRING, WS)
%ignore WS
"""


def automaton_of(add, text, vocabulary=BYTES):
    network = CharacterNetwork(vocabulary.backward)
    return Automaton(network.finish(add(network, network.start, text)), vocabulary)


def lark_accepts(parser, text):
    try:
        parser.parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


@pytest.mark.parametrize(
    "grammar",
    [
        SUM,
        'start: "a" start "b" |',
        'start: start start "a" | "b"',
        'start: x\nx: "a" y | "b"\ny: x "c" | x',
        'start: "(" start ")" start | "a"',
        'start: ("a" | "b" start "b")+ "c"?',
    ],
)
def test_language_is_that_of_lark(grammar):
    automaton = automaton_of(add_grammar, grammar)
    parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete")
    letters = sorted({c for t in parser.terminals for c in t.pattern.value})
    texts, seen = [""], []
    while texts:  # all texts that begin in the language, and every one that leaves it
        text = texts.pop()
        seen.append(text)
        assert accepts(automaton, text) == lark_accepts(parser, text), text
        state = automaton.start
        for byte in text.encode():
            state = int(automaton.after(state)[byte])
        if len(text) < 6 and automaton.cost(state) < NEVER:
            texts += [text + letter for letter in letters]
    assert {accepts(automaton, text) for text in seen} == {True, False}


@pytest.mark.parametrize("add_and_text", [(add_grammar, SUM), (add_grammar, JSON)])
def test_texts_are_completed_within_the_length(add_and_text):
    add, text = add_and_text
    parser = lark.Lark(text, parser="earley", lexer="dynamic_complete")
    pieces = [
        *(bytes([b]) for b in range(33, 127)),
        b"((",
        b"+(n",
        b'": ',
        b"[[",
        b"n)",
        b'"a',
        None,
    ]
    automaton = automaton_of(add, text, Vocabulary.of(pieces))
    draw, end = random.Random(3), len(pieces) - 1
    for most in (1, 3, 4, 9, 30):
        constraint = Constraint(automaton, most, end, [end], [])
        for _ in range(20):
            tokens = []
            while len(tokens) < most:
                place = constraint.place(History(tokens))
                mask = constraint._mask(place)
                allowed = [t for t in range(len(pieces)) if mask[t] == 0]
                assert allowed  # never a dead end
                token = draw.choice(allowed)
                if token == end:
                    break
                tokens.append(token)
            written = b"".join(pieces[t] for t in tokens).decode()
            assert lark_accepts(parser, written), written


PATTERNS = ["^[a-c]{1,4}$", "x[0-9]", "^(a|é)+", "^cat$|dog", '(^|")[a-z]"$', r"\\\S$", "^\\t."]


def random_bounds(draw):
    schema = {"type": draw.choice(["integer", "number", ["integer", "number"], ["null", "number"]])}
    low = draw.choice([0, 1, 18, -3, -120, -(10**12), 99])
    far = draw.choice([2, 9, 11, 95, 100, 5_000, 10**13])
    if draw.random() < 0.8:
        schema[draw.choice(["minimum", "exclusiveMinimum"])] = low
    if draw.random() < 0.8:
        schema[draw.choice(["maximum", "exclusiveMaximum"])] = low + far
    if len(schema) == 3 and 2 < far < 10_000 and draw.random() < 0.3:
        return {**schema, "multipleOf": draw.choice([1, 2, 2.0])}
    words = [word for word in schema if word != "type"]
    return {**schema, **{word: float(schema[word]) for word in words if draw.random() < 0.2}}


def random_schema(draw, depth):
    kind = draw.randrange(10 if depth else 6)
    if kind == 0:
        return {"type": "string", "minLength": draw.randrange(2), "maxLength": draw.randrange(2, 6)}
    if kind == 1:
        return {"type": "string", "pattern": draw.choice(PATTERNS)}
    if kind == 2:
        return random_bounds(draw)
    if kind == 3:
        return {"type": draw.choice(["number", "integer", "boolean", "null"])}
    if kind == 4:
        return {"enum": ["a", 'q"', 3, None, [1, {"b": 2.5}]][: draw.randrange(1, 6)]}
    if kind == 5:
        return {"type": "string", "format": draw.choice(["date", "time", "ipv4", "uuid", "email"])}
    if kind == 6 and draw.random() < 0.5:
        tagged = [
            {"type": "object", "properties": {"t": {"const": n}, **more}, "required": ["t"]}
            for n in range(draw.randrange(1, 4))
            for more in [{"v": random_schema(draw, depth - 1)} if draw.random() < 0.5 else {}]
        ]
        if draw.random() < 0.5:
            return {"oneOf": [*tagged, {"type": "string"}, {"enum": [1, None]}]}
        return {"allOf": tagged[:1], "properties": {"w": random_schema(draw, depth - 1)}}
    if kind == 6:
        return {"anyOf": [random_schema(draw, depth - 1) for _ in range(draw.randrange(1, 3))]}
    if kind == 7:
        least = draw.randrange(3)
        more = {"maxItems": least + draw.randrange(3)} if draw.random() < 0.5 else {}
        return {"type": "array", "items": random_schema(draw, depth - 1), "minItems": least, **more}
    if kind == 8:
        first = [random_schema(draw, depth - 1) for _ in range(draw.randrange(1, 3))]
        return {"type": "array", "prefixItems": first, "items": draw.choice([False, {}])}
    if draw.random() < 0.2:
        return {"type": "object", "additionalProperties": random_schema(draw, depth - 1)}
    names = draw.sample(["a", "b c", "ü", 'd"', "e"], draw.randrange(4))
    properties = {name: random_schema(draw, depth - 1) for name in names}
    required = [name for name in names if draw.random() < 0.5]
    closed = {"additionalProperties": False} if draw.random() < 0.5 else {}
    return {"type": "object", "properties": properties, "required": required, **closed}


def write(automaton, most, draw):
    """Write a text by uniform draws."""
    constraint = Constraint(automaton, most, 256, [256], [])
    tokens = []
    while len(tokens) < most:
        mask = constraint._mask(constraint.place(History(tokens)))
        token = draw.choice([t for t in range(257) if mask[t] == 0])
        if token == 256:
            break
        tokens.append(token)
    return bytes(tokens).decode()


def check_schemas(count, seed, depth=3):
    draw, refused = random.Random(seed), 0
    vocabulary = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
    for _ in range(count):
        schema = random_schema(draw, draw.randrange(depth + 1))
        try:
            automaton = automaton_of(add_schema, json.dumps(schema), vocabulary)
        except UsageError as error:  # some few of very many are too large
            assert re.search("more than .* (places|states)", str(error))
            refused += 1
            continue
        text = write(automaton, max(automaton.cost(automaton.start), 80), draw)
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert refused <= count // 100


@pytest.mark.parametrize(
    "count",
    [
        5,
        pytest.param(60, marks=pytest.mark.slow),
        pytest.param(10_000, marks=pytest.mark.long),
    ],
)
def test_random_schemas_are_followed(count):
    check_schemas(count, 5)


def test_an_object_may_have_many_optional_properties():
    part = {"type": "string", "pattern": "^[A-Z].*$"}
    schema = {"type": "object", "properties": {f"k{n}": part for n in range(60)}}
    vocabulary = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
    automaton = automaton_of(add_schema, json.dumps(schema), vocabulary)
    draw, names = random.Random(3), set()
    for _ in range(30):
        value = json.loads(write(automaton, 60, draw))
        jsonschema.Draft202012Validator(schema).validate(value)
        names.update(value)
    assert len(names) > 5


A, B = {"type": "integer"}, {"type": ["string", "null"], "maxLength": 2}
VALUES = {  # of every keyword of JSON Schema that says what is valid, and of some others
    "type": [["integer", "number"], ["string", "number"], ["object", "array"], "array", "object"],
    **dict.fromkeys(("minimum", "exclusiveMinimum"), (0, -3.0, 0.5)),
    **dict.fromkeys(("maximum", "exclusiveMaximum"), (9, 12.0, 4.5)),
    "multipleOf": (2, 3.0, 0.5),
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minContains"), (0, 1, 2.0)),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maxContains"), (2, 3.0, 1)),
    "pattern": ("^a|b$", "a", r'^"\\?$'),
    "format": ("date", "ipv4", "hostname"),
    **dict.fromkeys(
        ("items", "contains", "unevaluatedItems", "additionalItems"), (A, B, False, {})
    ),
    "prefixItems": ([A], [A, B]),
    "uniqueItems": (True, False),
    "properties": ({"a": A}, {"a": B, "b": A}, {}),
    "required": (["a"], ["a", "b"], []),
    **dict.fromkeys(
        ("additionalProperties", "unevaluatedProperties", "propertyNames"), (A, B, False, {})
    ),
    "patternProperties": ({"a": B},),
    **dict.fromkeys(("dependentRequired", "dependencies"), ({"a": ["b"]},)),
    "dependentSchemas": ({"a": {"required": ["b"]}},),
    **dict.fromkeys(("enum", "examples"), ([1, 2.0, "a", None], [{"a": 1}, [2]])),
    **dict.fromkeys(("const", "default"), (1, "a", {"b": None})),
    **dict.fromkeys(("anyOf", "oneOf"), ([A, B], [{"enum": [3]}, {"const": "a"}])),
    "allOf": ([{"properties": {"a": A}}, {"properties": {"a": A, "b": B}, "required": ["a"]}],),
    **dict.fromkeys(("not", "if", "then", "else"), (A, {"required": ["a"]})),
    "$ref": ("#/$defs/a", "#"),
    "$defs": ({"a": A},),
    "contentEncoding": ("base64",),
}


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.long)])
def test_every_keyword_is_followed_or_refused(count):
    draw, written = random.Random(9), 0
    vocabulary = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
    for _ in range(count):
        words = draw.sample(list(VALUES), draw.randrange(1, 5)) + ["type"] * (draw.random() < 0.6)
        schema = {word: draw.choice(VALUES[word]) for word in words}
        try:
            automaton = automaton_of(add_schema, json.dumps(schema), vocabulary)
        except UsageError as error:
            assert "\n" not in str(error)
            continue
        written += 1
        for _ in range(3):
            text = write(automaton, max(automaton.cost(automaton.start), 30), draw)
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert count / 10 < written < count


@pytest.mark.parametrize("kinds", [["number"], ["integer", "number"], ["null", "number", "string"]])
@pytest.mark.parametrize("factor", [3, 4.0, 1])
def test_multiples_are_followed_wherever_types_unite(kinds, factor):
    schema = {"type": kinds, "multipleOf": factor, "minimum": -8.0, "exclusiveMaximum": 1.3e1}
    valid = jsonschema.Draft202012Validator(schema).is_valid
    automaton = automaton_of(add_schema, json.dumps(schema))
    for number in range(-20, 20):
        assert accepts(automaton, str(number)) == valid(number)
        assert not accepts(automaton, f"{number}.5")
    assert accepts(automaton, "null") == ("null" in kinds)


def test_whole_numbers_may_have_a_point():
    plain = {"type": "string", "minLength": 1, "maxLength": 3}
    wide = {"type": "number", "minimum": 0, "maximum": 20}
    for schema in (plain, wide):
        floats = {w: float(n) if isinstance(n, int) else n for w, n in schema.items()}
        automata = [automaton_of(add_schema, json.dumps(one)) for one in (schema, floats)]
        for text in ('""', '"a"', '"abc"', '"abcd"', "-1", "0", "19.5", "20", "21"):
            expected = jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
            expected &= text[0] == '"' or schema is wide
            assert [accepts(one, text) for one in automata] == [expected] * 2, (schema, text)


@pytest.mark.parametrize("comment", ["//", "#", ' //"', '#/ "'])
def test_what_is_in_a_comment_is_no_option(comment):
    automaton = automaton_of(
        add_grammar, f'{comment} what{"?" * 40}\nstart: "a" {comment} or [{"?" * 40}\n    | "b"\n'
    )
    assert [accepts(automaton, text) for text in "abc"] == [True, True, False]


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_every_number_between_bounds_is_written(kind):
    """Every decimal of two digits before and one behind the point, against the schema itself."""
    texts = [str(n) for n in range(-31, 32)]
    texts += [f"{n}.{tenth}" for n in range(-31, 32) for tenth in range(1, 10)]
    texts += [f"-0.{tenth}" for tenth in range(1, 10)]
    draw = random.Random(2)
    for _ in range(25):
        schema = {"type": kind}
        schema[draw.choice(["minimum", "exclusiveMinimum"])] = low = draw.randrange(-25, 25)
        schema[draw.choice(["maximum", "exclusiveMaximum"])] = low + draw.randrange(2, 25)
        valid = jsonschema.Draft202012Validator(schema).is_valid
        automaton = automaton_of(add_schema, json.dumps(schema))
        for text in texts:
            assert accepts(automaton, text) == valid(json.loads(text)), (schema, text)


def test_alternatives_that_exclude_one_another():
    schema = {
        "oneOf": [
            {"$ref": "#/$defs/cat"},
            {
                "type": "object",
                "properties": {"kind": {"enum": ["dog", "wolf"]}, "age": {"type": "integer"}},
                "required": ["kind"],
            },
            {
                "type": "array",
                "items": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "maxItems": 1,
            },
        ],
        "$defs": {
            "named": {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
            },
            "cat": {
                "allOf": [
                    {"$ref": "#/$defs/named"},
                    {"properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
                ]
            },
        },
    }
    automaton = automaton_of(add_schema, json.dumps(schema))
    for text, holds in {
        '{"name": "x", "kind": "cat"}': True,
        '{"kind": "cat"}': False,
        '{"kind": "wolf", "age": 3}': True,
        '{"kind": "wolf", "age": "3"}': False,
        '[{"a": true, "b": false}]': True,
        '[{"a": 1}]': False,
        "[]": True,
    }.items():
        assert accepts(automaton, text) == holds
        assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)) == holds


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "prefixItems": [{"const": n} for n in range(3)], "maxItems": 1},
        {"type": "array", "prefixItems": [{"const": 1}], "maxItems": 0},
        {"description": "anything"},
        {
            "type": "object",
            "properties": {
                "a/properties/b": {"const": 1},
                "a": {"type": "object", "properties": {"b": {"const": "x"}}, "required": ["b"]},
            },
            "required": ["a/properties/b", "a"],
        },
        {
            "allOf": [
                {"properties": {"z": {"$ref": "#/properties/a"}}, "required": ["z"]},
                {"properties": {"a": {"properties": {"q": {"const": 1}}, "required": ["q"]}}},
            ],
            "properties": {"a": {"type": "object", "properties": {"p": {"type": "integer"}}}},
            "required": ["a"],
        },
        {
            "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a~1list~10"}}],
            "$defs": {"a/list/0": {"const": 1}, "a": {"type": "array", "items": {"const": 2}}},
        },
    ],
)
def test_texts_are_valid(schema):
    vocabulary = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
    automaton = automaton_of(add_schema, json.dumps(schema), vocabulary)
    draw = random.Random(2)
    for _ in range(20):
        value = json.loads(write(automaton, 60, draw))
        jsonschema.Draft202012Validator(schema).validate(value)


NAMES = ["a b", "a%20b", "a~b", "a~1b", "a/b", "", "x", "0", "$id", "é", "%", "#"]
DRAFTS = [
    *(f"https://json-schema.org/draft/{year}/schema" for year in ("2020-12", "2019-09")),
    *(f"http://json-schema.org/draft-0{n}/schema#" for n in (3, 4, 6, 7)),
]


def schema_of_references(draw):
    """A schema whose parts are referred to, rightly or wrongly, and may be other resources."""
    words = {  # each of which only some drafts know, or makes a resource or an anchor
        "$schema": draw.choice(DRAFTS),
        **dict.fromkeys(("$id", "id"), draw.choice(["http://b/", "#x"])),
        "$anchor": "x",
        "prefixItems": [{"type": "string"}],
        "exclusiveMinimum": 3,
        "const": 1.0,
    }

    def part(depth):
        if depth and draw.random() < 0.5:
            step = draw.choice(NAMES)
            for plain, escaped in draw.choice([[], [("~", "~0"), ("/", "~1")]]):
                step = step.replace(plain, escaped)
            step = quote(step, safe="~$") if draw.random() < 0.5 else step
            way = draw.choice(["#/$defs/"] * 5 + ["#/properties/", "#$defs/", "#", "http://b#/"])
            found = {"$ref": way + step}
        else:
            found = draw.choice(
                [
                    {"type": "integer"},
                    {"type": "string", "maxLength": 1},
                    {"type": "array", "items": {"type": "integer"}},
                    {"properties": {draw.choice(NAMES): {"const": 1}}},
                ]
            )
        if draw.random() < 0.2:
            word = draw.choice(list(words))
            found = {word: words[word], **found}
        if depth > 1:
            names = draw.sample(NAMES, 6)
            found["$defs"] = {name: part(depth - 1) for name in names}
            if "$ref" not in found and draw.random() < 0.5:
                found["properties"] = {name: part(depth - 1) for name in names[:2]}
        return found

    schema = part(3)
    return {"$schema": draw.choice(DRAFTS), **schema} if draw.random() < 0.5 else schema


@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.long)])
def test_references_and_drafts_are_followed_or_refused(count):
    draw, written = random.Random(7), 0
    vocabulary = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
    for _ in range(count):
        schema = schema_of_references(draw)
        try:
            automaton = automaton_of(add_schema, json.dumps(schema), vocabulary)
        except UsageError as error:
            assert "\n" not in str(error)
            continue
        written += 1
        valid = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
        for _ in range(2):
            text = write(automaton, max(automaton.cost(automaton.start), 20), draw)
            valid.validate(json.loads(text))
    assert count / 5 < written < count


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("a b", "#/$defs/a%20b"),
        ("a b", "#/$defs/a b"),
        ("a%20b", "#/$defs/a%2520b"),
        ("a/~b", "#/$defs/a~1~0b"),
        ("a/b", "#/$defs/a%7E1b"),
        ("é", "#/%24defs/%C3%A9"),
        ("", "#/$defs/"),
        ("$id", "#/$defs/$id"),
    ],
)
def test_references_name_any_part(name, target):
    others = {other: {"const": 2} for other in NAMES}
    schema = {"$ref": target, "$defs": {**others, name: {"const": 1}}}
    automaton = automaton_of(add_schema, json.dumps(schema))
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert [accepts(automaton, text) for text in "12"] == [valid(1), valid(2)] == [True, False]


PARTS = [
    {"type": "object", "properties": {"p": {"type": "integer"}}},
    {"type": "object", "properties": {"p": {"const": 1}}, "required": ["p"]},
    {"properties": {"p": {"const": True}, "q": {"$ref": "#/properties/a"}}},
    {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]},
    {"$ref": "#/properties/b"},
    {"$ref": "#/allOf/0/properties/a"},
]


def joined_schema(draw):
    """A schema of objects that `allOf` joins, some of whose properties are also referred to."""

    def of_object():
        names = draw.sample("abz", draw.randrange(1, 3))
        required = [name for name in names if draw.random() < 0.7]
        properties = {name: draw.choice(PARTS) for name in names}
        return {"type": "object", "properties": properties, "required": required}

    return {"allOf": [of_object() for _ in range(draw.randrange(1, 3))], **of_object()}


@pytest.mark.parametrize("count", [80, pytest.param(10_000, marks=pytest.mark.long)])
def test_what_is_joined_is_another_schema_than_its_parts(count):
    draw, written = random.Random(8), 0
    vocabulary = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
    for _ in range(count):
        schema = joined_schema(draw)
        try:
            automaton = automaton_of(add_schema, json.dumps(schema), vocabulary)
        except UsageError as error:
            assert "\n" not in str(error)
            continue
        written += 1
        text = write(automaton, max(automaton.cost(automaton.start), 40), draw)
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert count / 5 < written < count


def test_a_schema_that_refers_to_itself():
    schema = {
        "type": "object",
        "properties": {
            "v": {"type": "integer"},
            "next": {"$ref": "#"},
            "to": {"$ref": "#/$defs/t"},
        },
        "required": ["v"],
        "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 2}},
    }
    vocabulary = Vocabulary.of([*(bytes([byte]) for byte in range(256)), None])
    automaton = automaton_of(add_schema, json.dumps(schema), vocabulary)
    assert automaton.cost(automaton.start) == len('{"v": 0}')
    draw, depths = random.Random(1), set()
    for _ in range(60):
        value = json.loads(write(automaton, 90, draw))
        jsonschema.Draft202012Validator(schema).validate(value)
        depths.add(json.dumps(value).count("next"))
    assert len(depths) > 1


@pytest.mark.parametrize(
    ("add", "text", "told"),
    [
        (add_grammar, "start: missing", "missing"),
        (add_grammar, "start: (", "Unclosed"),
        (add_grammar, 'begin: "a"', "start"),
        (add_grammar, "start: start", "no text"),
        (add_grammar, 'start: x "a" | "c"\nx: start "b" | "d"', "begins with itself"),
        (add_grammar, 'start: A\nA: /a(?=b)/ "b"', "look-around"),
        (add_grammar, "start: " + '"a"? ' * 40, "start has more than 4,096 productions"),
        (add_grammar, "start: /a/ " + '"a"? ' * 40 + "/b/", "more than 4,096 productions"),
        (add_grammar, "start: " + '("a"|"b") ' * 40, "more than 4,096 productions"),
        (add_grammar, 'start: (("a"|"b")~10)~10', "more than 4,096 productions"),
        (add_grammar, 'start: "a"* ' + '"a"* ' * 40, "more than 4,096 productions"),
        (add_grammar, 'start: t{"a"}\nt{x}: t{t{x}} | x', "template t is copied"),
        (add_grammar, TERMINALS, "terminal A27 is too large"),
        (add_grammar, 'start: "' + "\\" * 71, "line 1 has a string"),
        (add_grammar, 'start: "a" //"/\n /' + "\\" * 71, "line 2 has a string or a regular"),
        (add_grammar, "%declare A\nstart: A", "A is declared"),
        (add_grammar, 'start: "b".."a"', "bad character range"),
        (add_grammar, 'start: "ab".."cd"', "lark cannot read it"),
        (add_grammar, 'start: A\nA: "a"~10000000000', "number is too large"),
        (add_grammar, 'start: "' + "a" * 200_000 + '"', "characters"),
        (add_schema, "{", "not JSON"),
        (add_schema, "3", "not a schema"),
        (add_schema, '{"type": "strange"}', "strange"),
        (add_schema, '{"type": "integer", "multipleOf": 3}', "too far apart"),
        (add_schema, '{"type": "integer", "multipleOf": 0.5}', "whole number above 0"),
        (add_schema, '{"type": "integer", "minimum": 3, "exclusiveMaximum": 3}', "between"),
        (add_schema, '{"type": "number", "minimum": 3, "maximum": 2}', "no number between"),
        (add_schema, '{"type": "number", "minimum": 0.5}', "only whole numbers"),
        (add_schema, '{"type": "number", "minimum": true}', "only whole numbers"),
        (add_schema, '{"type": ["number", "string"], "multipleOf": 3}', "too far apart"),
        (add_schema, '{"type": ["number", "integer"], "multipleOf": 0.5}', "above 0"),
        (add_schema, '{"type": "string", "pattern": "a\\\\b"}', "word boundary"),
        (add_schema, '{"type": "string", "pattern": "a$b"}', "no text"),
        (add_schema, '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        (add_schema, '{"oneOf": []}', "no text"),
        (add_schema, '{"oneOf": [{"type": "integer"}, {"type": "number"}]}', "0 and 1 may both"),
        (add_schema, '{"oneOf": [{"enum": [1, 2]}, {"const": 2}]}', "0 and 1 may both hold"),
        (add_schema, '{"oneOf": [{}, {"const": 2}]}', "0 and 1 may both hold"),
        (add_schema, '{"oneOf": [{"required": []}, {"const": 2}]}', "0 and 1 may both hold"),
        (add_schema, '{"allOf": [{"$ref": "#"}]}', "nested too deeply"),
        (add_schema, '{"allOf": [{"type": "object"}, {"type": "string"}]}', "open objects"),
        (add_schema, '{"allOf": [{"additionalProperties": false}, {}]}', "open objects"),
        (add_schema, '{"$ref": "#/no"}', "'#/no', which does not exist"),
        (add_schema, '{"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}', "only # and #/... are"),
        (add_schema, '{"$ref": "#$defs/a", "$defs": {"a": {}}}', "only # and #/... are"),
        (add_schema, '{"$ref": "#/examples/00", "examples": [{}]}', "which does not exist"),
        (
            add_schema,
            '{"$ref": "#/$defs/a/$defs/b", "$defs": {"a": {"$id": "b", "$defs": {"b": {}}}}}',
            r"#/\$defs/a has \$id, which is only followed at the top",
        ),
        (
            add_schema,
            '{"anyOf": [{"$schema": "https://json-schema.org/draft/2020-12/schema", "const": 1}]}',
            r"#/anyOf/0 has \$schema, which is only",
        ),
        (add_schema, '{"$schema": "http://json-schema.org/draft-04/schema#"}', "draft-04/schema'"),
        (
            add_schema,
            '{"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]}',
            r"# has prefixItems, which the draft of its \$schema has not",
        ),
        (add_schema, '{"$ref": "#"}', "no text"),
        (add_schema, '{"type": "array", "items": {"$ref": "#"}, "minItems": 1}', "no text"),
        (add_schema, '{"type": "string", "pattern": "(a"}', "unterminated"),
        (add_schema, '{"type": "object", "required": ["a"]}', "not a property"),
        (add_schema, '{"type": "array", "items": false, "minItems": 1}', "more than there can be"),
        (add_schema, '{"$ref": "#/$defs/a", "additionalProperties": false}', "beside \\$ref"),
        (add_schema, '{"anyOf": [{"const": 1}], "additionalProperties": false}', "beside anyOf"),
        (
            add_schema,
            '{"allOf": [{"type": "object"}], "additionalProperties": {"type": "string"}}',
            "open objects",
        ),
        (
            add_schema,
            '{"allOf": [{"$ref": "#/$defs/a", "required": ["b"]}], "$defs": {"a": {}}}',
            "required beside",
        ),
        *(
            (add_schema, f'{{"{word}": 5}}', f"{word} of a wrong type: 5")
            for word in ("type", "enum", "anyOf", "allOf", "properties", "required", "pattern")
        ),
        (add_schema, '{"type": [[]]}', "type with other things than strings"),
        (add_schema, '{"required": [{}], "properties": {}}', "required with other things"),
        (add_schema, '{"oneOf": [{"enum": 5}, {"enum": [1]}]}', "enum of a wrong type"),
        (add_schema, '{"enum": [1e999]}', "1e999 is no number, or too large"),
        (add_schema, '{"enum": [NaN]}', "NaN is no number"),
        (add_schema, '{"enum": [' + "9" * 5_000 + "]}", "not JSON"),
        (add_schema, '{"type": "string", "minLength": true}', "whole numbers"),
        (add_schema, '{"type": "array", "minItems": null}', "whole numbers"),
        (add_schema, "[" * 100_000, "nested too deeply"),
        (add_schema, r'{"enum": ["\ud800"]}', r"not UTF-8 text: U\+D800"),
        (add_schema, r'{"properties": {"\ud800": {}}}', r"not UTF-8 text: U\+D800"),
    ],
)
def test_what_cannot_be_followed_is_one_error(add, text, told):
    with pytest.raises(UsageError, match=told) as refused:
        automaton_of(add, text)
    assert "\n" not in str(refused.value)


def test_command_line(home, tmp_path, capsys):
    data = tmp_path / "text.txt"
    data.write_text('[1, 2] {"a": "b", "c": null} (n+n)*-n true\n' * 20)
    schema, grammar = tmp_path / "s.json", tmp_path / "g.lark"
    schema.write_text('{"type": "array", "items": {"enum": [1, "b", null]}}')
    grammar.write_text(SUM)
    for kind, direction in (("char", "forward"), ("bpe", "forward"), ("char", "backward")):
        size = ["--vocab-size", "300"] if kind == "bpe" else []
        how = ["--model", "ngram", "--order", "3", "--tokenizer", kind, "--direction", direction]
        assert run(["train", str(data), "--name", "m", *how, *size, "--quiet", "--overwrite"]) == 0
        several = ["--num-samples", "15", "--max-tokens", "20", "--seed", "2"]
        for record in records(capsys, "sample", "--json-schema", schema, *several):
            assert set(json.loads(record["text"])) <= {1, "b", None}
            assert record["finish_reason"] == "pattern"
        (same,) = records(capsys, "sample", "--json-schema", schema.read_text(), "--seed", "2")
        (that,) = records(capsys, "sample", "--json-schema", schema, "--seed", "2")
        assert same["text"] == that["text"]
        parser = lark.Lark(SUM, parser="earley", lexer="dynamic_complete")
        texts = {r["text"] for r in records(capsys, "sample", "--grammar", grammar, *several)}
        assert len(texts) > 1 and all(lark_accepts(parser, text) for text in texts)
        (best,) = records(capsys, "beam-search", "--grammar", grammar, "--max-tokens", "9")
        assert lark_accepts(parser, best["text"])
    assert "not both" in refusal(capsys, "sample", "--grammar", grammar, "--pattern", "a")
    assert "there is no file" in refusal(capsys, "sample", "--json-schema", tmp_path / "none")
    grammar.write_text("start: A\nA: /q/")
    assert "cannot write 'q'" in refusal(capsys, "sample", "--grammar", grammar)
    model = seqgen.load("m")
    (one,) = model.sample("", json_schema=str(schema), max_tokens=9, seed=1)
    assert re.fullmatch(r"\[.*\]", one.text)


LINES = r"""start: line+
?line: name "=" expr _NL -> assign | COMMENT
!expr: [sign] NUMBER ("+" expr)? | "(" expr ")"~1..3
sign: "+" | _sep{"-", ","}
_sep{x, s}: x (s x)*
name.2: /[a-z_]\w*/i
NUMBER: /\d+(\.\d+)?/ | "a".."f"
_NL: /\r?\n/+
COMMENT: /#[^\n]*$/m
%ignore /[ \t]/
"""
BITS = [
    *'?*+~|()[]{}"/\\:.^$!#\0\né',
    *(
        "~1..3",
        "~0..99",
        "~999999999",
        "->",
        "//",
        "..",
        "start",
        "NUMBER",
        "_sep{x}",
        "_sep{_sep{x}}",
    ),
    *(
        "%import common.WS",
        "%import .x",
        "%ignore",
        "%declare A",
        "%override sign: A",
        "a: b\nb: a",
    ),
    *('("a"|"b")', '["a"]', "/x*/", "/(?=a)/", "/(a|b)*/", "/\\1/", "/[/", "(" * 40, "9" * 50),
]


def mutated(draw):
    """A grammar in which a few characters were changed."""
    text = draw.choice([SUM, JSON, LINES])
    for _ in range(draw.choice([1, 1, 1, 4])):
        begin = draw.randrange(len(text) + 1)
        end = min(len(text), begin + draw.randrange(1, 9))
        change = draw.randrange(4)
        new = ["", draw.choice(BITS) + text[begin:end], text[begin:end] * 9, draw.choice(BITS)]
        text = text[:begin] + new[change] + text[end:]
    return text


@pytest.mark.parametrize("count", [60, pytest.param(5_000, marks=pytest.mark.long)])
def test_a_damaged_grammar_is_read_or_refused_in_one_line(count):
    draw, read = random.Random(2), 0
    for _ in range(count):
        text, begun = mutated(draw), time.process_time()
        try:
            automaton_of(add_grammar, text)
            read += 1
        except UsageError as error:
            assert str(error) and "\n" not in str(error), text
        assert time.process_time() - begun < 20, text
    assert 0 < read < count

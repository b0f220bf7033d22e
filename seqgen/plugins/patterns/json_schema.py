"""JSON Schema as grammar rules; unsupported keywords are errors.

JSON is written compactly: no white space but one space after each comma and colon, and the
properties of an object in the order of the schema. So every text that is written is valid, but not
every valid text can be written.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from seqgen.errors import UsageError
from seqgen.plugins.patterns.grammar import Builder, Symbol, Terminal
from seqgen.plugins.patterns.network import (
    LAST,
    CharacterNetwork,
    Ranges,
    common,
    inverse,
    plain,
    ranges_of,
)
from seqgen.plugins.patterns.regex import RegexReader, require_short
from seqgen.settings import require

ANNOTATIONS = {
    *("$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default"),
    *("examples", "deprecated", "readOnly", "writeOnly", "additionalProperties"),
}
# Drafts in which the keywords that are followed mean the same, but for some that they do not know.
DRAFTS = {
    "https://json-schema.org/draft/2020-12/schema": set(),
    "https://json-schema.org/draft/2019-09/schema": {"prefixItems"},
    "http://json-schema.org/draft-07/schema": {"prefixItems"},
    "http://json-schema.org/draft-06/schema": {"prefixItems"},
}
BOUNDS = "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"
KEYWORDS = {
    "string": {"minLength", "maxLength", "pattern", "format"},
    **{kind: {*BOUNDS, "multipleOf"} for kind in ("number", "integer")},
    "boolean": set(),
    "null": set(),
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "object": {"properties", "required"},
}
WHOLE = {"enum", "const", "anyOf", "oneOf", "$ref"}  # each says everything
TYPES = {
    **dict.fromkeys(("enum", "anyOf", "oneOf", "allOf", "prefixItems", "required"), (list,)),
    **{"properties": (dict,), "pattern": (str,), "format": (str,), "type": (str, list)},
    **dict.fromkeys(("$schema", "$id"), (str,)),
}
INDEX = re.compile(r"0|[1-9][0-9]*")
INTEGER = r"-?(0|[1-9]\d{0,14})"
# The largest integer that is written, so that each is exact as a float.
LARGEST = 10**15 - 1
NUMBER = rf"{INTEGER}(\.\d{{1,15}})?([eE][+-]?\d\d?)?"
CHARACTER = r'[^"\\\x00-\x1f\x7f]'
STRING = rf'({CHARACTER}|\\["\\/bfnrt])'
FORMATS = {
    "date": r"(19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])",
    "time": r"([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ",
    "uuid": "-".join(rf"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12)),
    "email": r"[a-z0-9]+(\.[a-z0-9]+)*@[a-z0-9]+(\.[a-z0-9]+)+",
    "ipv4": r"\.".join([r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"] * 4),
}
FORMATS["date-time"] = FORMATS["date"] + "T" + FORMATS["time"]
# Multiples between bounds are listed.
MOST_LISTED = 10_000
# What is written in a string as it is, and what is not.
UNESCAPED = ranges_of([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, LAST)])
ESCAPED = inverse(UNESCAPED)
DELETE = "\x7f"


def add_schema(network: CharacterNetwork, place: int, text: str) -> int:
    """Add the JSON texts that a schema describes from a place to a new one.

    Raises:
        UsageError: it is no schema, has a keyword that is not followed, or is too large.
    """
    require_short(text)
    try:
        schema = json.loads(text, parse_float=_finite, parse_constant=_finite)
        rules = _Rules(network, schema)
        return Builder(network, rules.rules).add(place, "#")
    except ValueError as error:  # a whole number may have more digits than Python reads
        raise UsageError(f"it is not JSON: {error}") from None
    except RecursionError:
        raise UsageError("it is nested too deeply") from None


class _Rules:
    """Grammar rules of a schema: one for each part, named by its path."""

    def __init__(self, network: CharacterNetwork, schema: Any) -> None:
        self.network, self.schema, self.rules = network, schema, {}
        self._named: dict[str, Any] = {}  # the schema of each rule, which may be joined by allOf
        self._reader = RegexReader(network)
        self._unknown: set[str] = set()  # keywords that its draft has not
        if isinstance(schema, dict) and "$schema" in schema:
            draft = str(schema["$schema"]).removesuffix("#")
            why = f"# has the $schema {draft!r}; {', '.join(DRAFTS)} are followed"
            require(draft in DRAFTS, why)
            self._unknown = DRAFTS[draft]
        self._rule("#", schema)

    def _matches(self, pattern: str) -> Terminal:
        return lambda place: self._reader.add(place, pattern, re.ASCII)

    def _writes(self, text: str) -> Terminal:
        return lambda place: self.network.write(place, text)

    def _value(self, value: Any) -> Terminal:
        return self._writes(json.dumps(value, ensure_ascii=False))

    def _rule(self, path: str, schema: Any) -> str:
        """Create the rule of a schema at `path`, and return the rule's name.

        What `allOf` joins there is another schema than what a reference finds there. A path has no
        ~ but in ~0 and ~1, so names with another one are free.
        """
        while self._named.setdefault(path, schema) is not schema:
            path += "~"
        if path in self.rules:
            return path
        self.rules[path] = productions = []
        if schema is True or (
            isinstance(schema, dict) and not schema.keys() - ANNOTATIONS and _is_open(schema)
        ):
            schema = {"type": ["string", "number", "boolean", "null"]}
        self._is_schema(path, schema)
        if "allOf" in schema:
            schema = self._all_of(path, schema)
        whole = [word for word in schema if word in WHOLE]
        implied = [kind for kind, words in KEYWORDS.items() if words & schema.keys()]
        kinds = schema.get("type", implied)
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        unknown = next((kind for kind in kinds if kind not in KEYWORDS), None)
        require(unknown is None, f"{path} has the type {unknown!r}, which JSON Schema has not")
        understood = {"type"} | ANNOTATIONS | set(whole[:1])
        if not whole:
            understood = understood.union(*(KEYWORDS[kind] for kind in kinds))
        other = next((word for word in schema if word not in understood), None)
        require(other is None, f"{path} has the keyword {other!r}, which is not followed here")
        if whole:
            self._has_no_others(path, whole[0], schema)
            productions += self._whole(path, whole[0], schema)
        else:
            require(bool(kinds), f"{path} has no type")
            for kind in kinds:
                productions += getattr(self, f"_{kind}")(path, schema)
        return path

    def _whole(self, path: str, word: str, schema: dict) -> list[list[Symbol]]:
        kinds = schema.get("type")
        require(kinds is None or word in ("enum", "const"), f"{path} has type beside {word}")
        if word == "$ref":
            return [[self._rule(*self._referred(path, schema["$ref"]))]]
        if word in ("anyOf", "oneOf"):
            ways = schema[word]
            if word == "oneOf":
                for first, second in itertools.combinations(range(len(ways)), 2):
                    apart = self._exclude(path, ways[first], ways[second])
                    why = f"alternatives {first} and {second} may both hold; say anyOf"
                    require(apart, f"{path} has oneOf, and its {why}")
            return [[self._rule(f"{path}/{word}/{n}", one)] for n, one in enumerate(ways)]
        values = [schema["const"]] if word == "const" else schema["enum"]
        kinds = [kinds] if isinstance(kinds, str) else kinds
        allowed = [value for value in values if kinds is None or _kind_of(value) & set(kinds)]
        return [[self._value(value)] for value in allowed]

    def _is_schema(self, path: str, schema: Any) -> None:
        right = isinstance(schema, dict)
        require(right, f"{path} is {json.dumps(schema)[:40]}, which is not a schema to write")
        for word, types in TYPES.items():
            right = word not in schema or isinstance(schema[word], types)
            require(
                right, f"{path} has {word} of a wrong type: {json.dumps(schema.get(word))[:40]}"
            )
        if schema is not self.schema:
            self._is_of_this_document(path, schema)
        other = next(iter(self._unknown & schema.keys()), None)
        require(other is None, f"{path} has {other}, which the draft of its $schema has not")
        for word in ("type", "required"):
            right = all(isinstance(one, str) for one in schema.get(word, []))
            require(right, f"{path} has {word} with other things than strings")

    def _is_of_this_document(self, path: str, part: dict) -> None:
        word = next((word for word in ("$id", "$schema") if isinstance(part.get(word), str)), None)
        require(word is None, f"{path} has {word}, which is only followed at the top")

    def _has_no_others(self, path: str, word: str, schema: dict) -> None:
        others = "additionalProperties" if not _is_open(schema) else None
        require(others is None, f"{path} has {others} beside {word}, which is not followed here")

    def _resolved(self, path: str, schema: Any) -> dict:
        """Resolve a schema's `$ref` and `allOf`."""
        self._is_schema(path, schema)
        if "$ref" in schema:
            self._has_no_others(path, "$ref", schema)
            other = next(iter(schema.keys() - ANNOTATIONS - {"$ref"}), None)
            require(other is None, f"{path} has {other} beside $ref, which is not followed here")
            return self._resolved(path, self._referred(path, schema["$ref"])[1])
        return self._all_of(path, schema) if "allOf" in schema else schema

    def _all_of(self, path: str, schema: dict) -> dict:
        """Merge the object schemas of `allOf` into one."""
        rest = {word: value for word, value in schema.items() if word != "allOf"}
        ways = [self._resolved(path, one) for one in schema["allOf"]]
        if rest.keys() - ANNOTATIONS or not _is_open(rest):
            ways.append(rest)
        if len(ways) == 1:
            return ways[0]
        properties: dict[str, Any] = {}
        required: list[str] = []
        for way in ways:
            plain = way.keys() <= KEYWORDS["object"] | ANNOTATIONS | {"type"}
            of_object = plain and way.get("type", "object") == "object"
            require(
                of_object and _is_open(way), f"{path} has allOf of other things than open objects"
            )
            for name, one in way.get("properties", {}).items():
                known = properties.get(name, one)
                same = json.dumps(known, sort_keys=True) == json.dumps(one, sort_keys=True)
                properties[name] = one if same else {"allOf": [known, one]}
            required += [name for name in way.get("required", []) if name not in required]
        kind = {"type": "object"} if any("type" in way for way in ways) else {}
        return {**kind, "properties": properties, "required": required}

    def _exclude(self, path: str, first: Any, second: Any) -> bool:
        """Check whether two schemas clearly have no valid value in common."""
        both = [self._resolved(path, one) for one in (first, second)]
        values = [_values(one) for one in both]
        if None not in values:
            return not any(a == b for a in values[0] for b in values[1])
        if not set.intersection(*map(_kinds, both)):
            return True
        shared = [set(one.get("required", [])) & one.get("properties", {}).keys() for one in both]
        return all(_kinds(one) == {"object"} for one in both) and any(
            self._exclude(path, *(one["properties"][name] for one in both))
            for name in set.intersection(*shared)
        )

    def _referred(self, path: str, name: Any) -> tuple[str, Any]:
        within = isinstance(name, str) and (name == "#" or name.startswith("#/"))
        require(within, f"{path} refers to {name!r}; only # and #/... are followed")
        found, there = self.schema, "#"
        for step in unquote(name).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            there += f"/{_escaped(step)}"
            at = int(step) if isinstance(found, list) and INDEX.fullmatch(step) else step
            try:
                found = found[at]
            except (LookupError, TypeError):
                raise UsageError(f"{path} refers to {name!r}, which does not exist") from None
            if isinstance(found, dict):
                self._is_of_this_document(there, found)
        return there, found

    def _string(self, path: str, schema: dict) -> list[list[Symbol]]:
        least, most = _count(path, schema, "Length")
        pattern = schema.get("pattern")
        if "format" in schema:
            named = FORMATS.get(schema["format"])
            unknown = f"has the format {schema['format']!r}; {', '.join(FORMATS)} are known"
            require(named is not None, f"{path} {unknown}")
            alone = pattern is None and not least and most is None
            require(alone, f"{path} has format beside pattern or a length")
            return [[self._matches(f'"{named}"')]]
        if pattern is None:
            return [[self._matches(f'"{STRING}{{{least},{"" if most is None else most}}}"')]]
        require(not least and most is None, f"{path} has a length beside pattern")
        match = functools.partial(_write_string, self.network, _found_in_texts(pattern))
        return [[self._writes('"'), match, self._writes('"')]]

    def _number(self, path: str, schema: dict) -> list[list[Symbol]]:
        if "multipleOf" in schema:  # of a whole number
            return self._integer(path, schema)
        if not schema.keys() & KEYWORDS["number"]:
            return [[self._matches(NUMBER)]]
        low, high, above, below = _bounds(path, schema)
        negative = _decimals(max(-high, 0), -low, below and high <= 0, above)
        positive = _decimals(max(low, 0), high, above and low >= 0, below)
        forms = [f"-({form})" for form in negative] + positive
        require(bool(forms), f"{path} has no number between its bounds")
        return [[self._matches("|".join(forms))]]

    def _integer(self, path: str, schema: dict) -> list[list[Symbol]]:
        if not schema.keys() & KEYWORDS["integer"]:
            return [[self._matches(INTEGER)]]
        low, high, above, below = _bounds(path, schema)
        low, high = low + above, high - below
        if "multipleOf" in schema:
            factor = _whole(schema["multipleOf"])
            right = factor is not None and factor > 0
            require(right, f"{path}: multipleOf is a whole number above 0")
            few = (high - low) // factor < MOST_LISTED
            require(few, f"{path} has multipleOf, and its bounds are too far apart for that")
            return [[self._value(n)] for n in range(-(-low // factor) * factor, high + 1, factor)]
        forms = [f"-{form}" for form in _whole_numbers(max(1, -high), -low)]
        forms += _whole_numbers(max(0, low), high)
        require(bool(forms), f"{path} has no whole number between its bounds")
        return [[self._matches("|".join(forms))]]

    def _boolean(self, path: str, schema: dict) -> list[list[Symbol]]:
        return [[self._writes("true")], [self._writes("false")]]

    def _null(self, path: str, schema: dict) -> list[list[Symbol]]:
        return [[self._writes("null")]]

    def _array(self, path: str, schema: dict) -> list[list[Symbol]]:
        least, most = _count(path, schema, "Items")
        first = schema.get("prefixItems", [])[:most]
        names = [self._rule(f"{path}/prefixItems/{n}", one) for n, one in enumerate(first)]
        item = None
        if schema.get("items", True) is not False and most != len(first):
            item = self._rule(f"{path}/items", schema.get("items", True))
        elif most is None or most > len(first):
            most = len(first)
        require(most is None or least <= most, f"{path}: minItems is more than there can be")
        return [[self._writes("["), self._listed(f"{path}~list", names, item, least, most)]]

    def _listed(
        self, path: str, names: Sequence[str], item: str | None, least: int, most: int | None
    ) -> str:
        """Create the rules of an array's items and its closing bracket."""
        count = max(least, len(names) if most is None else most, len(names))
        require(count <= MOST_LISTED, f"{path} has more than {MOST_LISTED:,} items")
        end = self._writes("]")
        rule = None
        if most is None:  # any number more
            rule = f"{path}~more"
            self.rules[rule] = [[end], [self._writes(", "), item, rule]]
        for at in range(count, -1, -1):
            productions: list[list[Symbol]] = []
            if at >= least:
                productions.append([end])
            if at < count or most is None:
                name = names[at] if at < len(names) else item
                following = f"{path}/{at + 1}" if at < count else rule
                comma = [self._writes(", ")] if at else []
                productions.append([*comma, name, following])
            self.rules[f"{path}/{at}"] = productions
        return f"{path}/0"

    def _object(self, path: str, schema: dict) -> list[list[Symbol]]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others = schema.get("additionalProperties")
        if not properties and not required and isinstance(others, dict):
            return self._map(path, others)
        lacking = next((name for name in required if name not in properties), None)
        require(lacking is None, f"{path} requires {lacking!r}, which is not a property")
        members = [
            (name in required, [self._value(name), self._writes(": "), rule])
            for name, one in properties.items()
            for rule in [self._rule(f"{path}/properties/{_escaped(name)}", one)]
        ]
        # Of each member on: after none that was written, and after one.
        for at in range(len(members), -1, -1):
            for written in (False, True):
                name = f"{path}~from/{at}/{written}"
                if at == len(members):
                    self.rules[name] = [[self._writes("}")]]
                    continue
                needed, member = members[at]
                comma = [self._writes(", ")] if written else []
                self.rules[name] = [[*comma, *member, f"{path}~from/{at + 1}/True"]]
                if not needed:
                    self.rules[name].append([f"{path}~from/{at + 1}/{written}"])
        return [[self._writes("{"), f"{path}~from/0/False"]]

    def _map(self, path: str, values: dict) -> list[list[Symbol]]:
        """Create the productions of an object with arbitrary property names."""
        more, end = f"{path}~more", self._writes("}")
        name = [self._matches(f'"{STRING}*"'), self._writes(": ")]
        member = [*name, self._rule(f"{path}/additionalProperties", values), more]
        self.rules[more] = [[end], [self._writes(", "), *member]]
        return [[self._writes("{"), end], [self._writes("{"), *member]]


def _found_in_texts(pattern: str) -> CharacterNetwork:
    """Build the network of all texts in which a pattern is found, without JSON escapes."""
    found = CharacterNetwork()
    reader = RegexReader(found, ecma=True)
    place = found.start
    for part in (r"(?s:.*)", pattern, r"(?s:.*)"):
        place = reader.add(place, part)
    found.end = place
    found.follow_anchors()
    return found


def _write_string(network: CharacterNetwork, texts: CharacterNetwork, place: int) -> int:
    """Add texts as the content of a JSON string from a place to a new one."""
    copies = [network.place() for _ in texts.empty]
    network.join(place, copies[texts.start])
    for here, reads, empty in zip(copies, texts.reads, texts.empty, strict=True):
        for after in empty:
            network.join(here, copies[after])
        network.reads[here] += [(ranges, _in_string, copies[after]) for ranges, _, after in reads]
    network.single += [
        written for c in texts.single for written in json.dumps(c, ensure_ascii=False)[1:-1]
    ]
    return copies[texts.end]


def _in_string(ranges: Ranges) -> list[tuple[tuple[int, int], ...]]:
    """Spell characters as they appear in a JSON string, escaped where necessary."""
    escaped = [chr(n) for low, high in common(ranges, ESCAPED) for n in range(low, high + 1)]
    written = [json.dumps(c)[1:-1] if c != DELETE else r"\u007f" for c in escaped]
    return [
        *plain(common(ranges, UNESCAPED)),
        *(tuple((byte, byte) for byte in text.encode()) for text in written),
    ]


def _is_open(schema: dict) -> bool:
    """Check whether an object may have any additional properties."""
    return schema.get("additionalProperties", True) in (True, {})


def _escaped(name: str) -> str:
    """Escape a name for use in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _values(schema: dict) -> list[Any] | None:
    """List the values of `const` or `enum`; None without them."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _kinds(schema: dict) -> set[str]:
    """List the types that a schema allows, with "number" for "integer"."""
    values = _values(schema)
    if values is not None:
        kinds = set().union(*map(_kind_of, values))
    else:
        plain = schema.keys() <= ANNOTATIONS.union({"type"}, *KEYWORDS.values())
        named = schema.get("type", []) if plain else []  # without a type, anything else is valid
        kinds = {named} if isinstance(named, str) else set(named)
    return {"number" if kind == "integer" else kind for kind in kinds} or set(KEYWORDS)


def _bounds(path: str, schema: dict) -> tuple[int, int, bool, bool]:
    """Compute the lower and upper integer bounds, and whether each is exclusive."""
    bounds = []
    for side, sign in (("Minimum", -1), ("Maximum", 1)):
        limits = [(LARGEST, True)]
        for word, included in ((side.lower(), True), (f"exclusive{side}", False)):
            given = schema.get(word, sign * LARGEST)
            bound = _whole(given)
            right = bound is not None
            require(right, f"{path} has the {word} {given!r}; only whole numbers are followed")
            limits += [(sign * bound, included)] if word in schema else []
        limit, included = min(limits)  # the sharpest; of two equal ones the one that is excluded
        bounds.append((sign * limit, not included))
    (low, above), (high, below) = bounds
    return low, high, above, below


def _whole(value: Any) -> int | None:
    """Convert an integral number such as 2.0 to an int; None for anything else."""
    return int(value) if "integer" in _kind_of(value) else None


def _whole_numbers(low: int, high: int) -> list[str]:
    """List patterns for the integers from `low` (0 or more) to `high`: [7-9], [12]\\d, 30."""
    forms = []
    while low <= high:
        free = 0  # digits at the end of `low` that may be any
        while low and low % 10 ** (free + 1) == 0 and low + 10 ** (free + 1) - 1 <= high:
            free += 1
        before, digit = divmod(low // 10**free, 10)
        last = min(9, digit + (high + 1 - low) // 10**free - 1)
        forms.append(f"{before or ''}[{digit}-{last}]" + rf"\d{{{free}}}" * (free > 0))
        low += (last + 1 - digit) * 10**free
    return forms


def _decimals(low: int, high: int, above: bool, below: bool) -> list[str]:
    """List patterns for decimals from `low` (0 or more) to `high`; the flags exclude a bound."""
    places = max(1, 15 - len(str(high)))  # as many as a float tells apart
    forms = _whole_numbers(low + above, high - below)
    if above and low < high:
        forms.append(rf"{low}\.\d{{0,{places - 1}}}[1-9]")
    whole = "|".join(_whole_numbers(low + above, high - 1))
    return [*forms, rf"({whole})\.\d{{1,{places}}}"] if whole else forms


def _kind_of(value: Any) -> set[str]:
    """List the JSON Schema types of a value."""
    if isinstance(value, bool) or value is None:
        return {"null" if value is None else "boolean"}
    if isinstance(value, int | float):
        return {"number", "integer"} if value == int(value) else {"number"}
    return {{str: "string", list: "array", dict: "object"}[type(value)]}


def _count(path: str, schema: dict, of: str) -> tuple[int, int | None]:
    """Read the minimum and maximum count of items, properties or characters."""
    given = [word for word in (f"min{of}", f"max{of}") if word in schema]
    counts = {word: _whole(schema[word]) for word in given}
    right = all(n is not None and n >= 0 for n in counts.values())
    require(right, f"{path}: min{of} and max{of} are whole numbers")
    least, most = counts.get(f"min{of}", 0), counts.get(f"max{of}")
    require(most is None or least <= most, f"{path}: min{of} is more than max{of}")
    return least, most


def _finite(text: str) -> float:
    """Parse a number of a schema; it must be finite."""
    number = float(text)
    require(math.isfinite(number), f"{text[:40]} is no number, or too large")
    return number

"""Context-free grammars as networks: recursive rules are called, others are inlined."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seqgen.errors import UsageError
from seqgen.packages import require_packages
from seqgen.plugins.patterns.network import CharacterNetwork, reached
from seqgen.plugins.patterns.regex import RegexReader, require_short
from seqgen.settings import require

# Leads from a place of a network to a new one by what a terminal matches.
Terminal = Callable[[int], int]
# A rule by its name, or a terminal.
Symbol = str | Terminal
# The productions of each rule.
Rules = Mapping[str, Sequence[Sequence[Symbol]]]
# A rule's options and alternatives are written out, so that each multiplies the productions.
MOST_PRODUCTIONS = 4_096
# Templates are copied for each set of arguments, and terminals for each use in another.
MOST_COPIES, MOST_NAME = 1_000, 1_000
MOST_PARTS, CHARACTERS_OF_A_PART = 10_000, 10
# A string, a comment or an expression of a grammar; and where a definition begins.
QUOTED = re.compile(r'"(?:\\[^\n]|[^"\\\n])*"|(?://|#)[^\n]*|/(?!/)(?:\\(?s:.)|[^/\\])*/')
DEFINITION = re.compile(r"^[ \t]*(?:%\w+[ \t]+)?[?!]*(_?[A-Za-z]\w*)[^\n:|]*:", re.MULTILINE)
# Repeats of fewer are written out by lark, and of more in rules of at most ten parts.
FEW_REPEATS, PARTS_OF_REPEATS = 50, 10
# The end of a string in lark's `common.ESCAPED_STRING`, which is a look-behind.
ESCAPED, PLAIN = r".*?(?<!\\)(\\\\)*?", r"(?:[^\"\\\n]|\\.)*"


class Builder:
    """Builder that adds grammar rules to a network.

    A rule that begins or ends with itself is a loop. One that contains itself in another way is
    called, and one that does not is written out wherever it is used.

    Args:
        network: to add to.
        rules: by name.
    """

    def __init__(self, network: CharacterNetwork, rules: Rules) -> None:
        self.network, self.rules = network, rules
        self._uses = {
            name: {
                symbol
                for production in productions
                for symbol in _inner(name, production)
                if isinstance(symbol, str)
            }
            for name, productions in rules.items()
        }
        self._written: dict[tuple[str, int], int] = {}  # a rule, and where it leads: its beginning
        self._calls_itself = functools.cache(
            lambda rule: rule in reached(self._uses[rule], self._uses.__getitem__)
        )

    def add(self, place: int, symbol: Symbol) -> int:
        """Add the texts of a symbol from a place to a new one.

        Raises:
            UsageError: it is too large.
        """
        if not isinstance(symbol, str):
            return symbol(place)
        if not self._calls_itself(symbol):
            return self._write_out(place, symbol)
        if symbol not in self.network.rules:
            start = self.network.place()
            self.network.rules[symbol] = start, self.network.place()  # it may be met again below
            end = self._write_out(start, symbol)
            self.network.join(end, self.network.rules[symbol][1])
        return self.network.call(place, symbol)

    def _write_out(self, place: int, rule: str, after: int | None = None) -> int:
        """Inline a rule from a place to another: to `after` if given, else to a new one."""
        network, productions = self.network, self.rules[rule]
        loops = any(rule in (*production[:1], *production[-1:]) for production in productions)
        before = network.place()
        end = network.place() if after is None or loops else after
        network.join(place, before)
        for production in productions:
            begins, ends = production[:1] == [rule], production[-1:] == [rule]
            if begins and len(production) == 1:
                continue
            here = end if begins else before
            *symbols, last = _inner(rule, production) or [None]
            for symbol in symbols:
                here = self.add(here, symbol)
            self._add_last(here, last, before if ends else end)
        if after is not None and end != after:
            network.join(end, after)
        return end

    def _add_last(self, place: int, symbol: Symbol | None, after: int) -> None:
        """Add the last symbol of a production up to `after`; a rule is inlined there only once."""
        network = self.network
        if symbol is None:
            network.join(place, after)
        elif not isinstance(symbol, str) or self._calls_itself(symbol):
            network.join(self.add(place, symbol), after)
        elif (symbol, after) in self._written:
            network.join(place, self._written[symbol, after])
        else:
            self._written[symbol, after] = begin = network.place()
            network.join(place, begin)
            self._write_out(begin, symbol, after)


def _inner(rule: str, production: Sequence[Symbol]) -> Sequence[Symbol]:
    """Remove a rule's own name from the beginning and end of its production."""
    production = production[1:] if production[:1] == [rule] else production
    return production[:-1] if production[-1:] == [rule] else production


def add_grammar(network: CharacterNetwork, place: int, text: str) -> int:
    """Add the texts of a lark grammar, from its rule `start`, from a place to a new one.

    Raises:
        SeqgenError: lark is not installed.
        UsageError: it is no grammar, or has what an automaton cannot follow, or is too large.
    """
    require_short(text)
    require_packages("--grammar", "lark")
    read = _lark(text)
    patterns = {terminal.name: terminal.pattern for terminal in read.terminals}
    reader = RegexReader(network)

    def match(here: int, name: str) -> int:
        require(name in patterns, f"{name} is declared, but nothing says what it matches")
        pattern = patterns[name].to_regexp().replace(ESCAPED, PLAIN)
        flags = sum(getattr(re, flag.upper()) for flag in patterns[name].flags)
        try:
            return reader.add(here, pattern, flags)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None

    def skip(here: int) -> int:
        """Lead on by any number of the terminals that stand anywhere."""
        after = network.place()
        network.join(here, after)
        for name in read.ignore_tokens:
            network.join(match(after, name), after)
        return after

    rules: dict[str, list[list[Symbol]]] = {}
    for rule in read.rules:
        symbols = [_terminal(match, skip, s.name) if s.is_term else s.name for s in rule.expansion]
        rules.setdefault(rule.origin.name, []).append(symbols)
    return Builder(network, rules).add(skip(place), "start")


def _lark(text: str) -> Any:
    """Parse a grammar with lark.

    Raises:
        UsageError: it is no grammar, or lark would write it out at great length.
    """
    from lark import Lark
    from lark.load_grammar import load_grammar

    try:
        _require_short_terminals(text)
        grammar, _ = load_grammar(text, "<string>", [], False)
        _require_few_copies(grammar)
        for rule, *_, tree, _options in grammar.rule_defs:
            _productions(rule, tree)
        return Lark(grammar, parser="earley", lexer="dynamic", maybe_placeholders=False)
    except UsageError:
        raise
    except RecursionError:
        raise UsageError("its groups are nested too deeply") from None
    except Exception as error:  # lark raises many kinds: its own, those of re, failed assertions
        cause = getattr(error, "orig_exc", error)
        parts = cause.args if len(cause.args) > 1 and type(cause.args[0]) is str else [cause]
        said = ": ".join(map(str, parts)).strip().partition("\n")[0].rstrip(" :")
        raise UsageError(said or f"lark cannot read it ({type(cause).__name__})") from None


def _require_short_terminals(text: str) -> None:
    """Raise a `UsageError` if nested terminals would expand to very long expressions.

    Nor may a string or an expression have no end: lark's search for it takes exponential time.
    """
    bare = QUOTED.sub(lambda quoted: re.sub(".", ".", quoted[0]), text)
    begun = re.search(r'["/]', bare)
    line = bare.count("\n", 0, begun.start()) + 1 if begun else 0
    require(begun is None, f"line {line} has a string or a regular expression without an end")
    _, *definitions = DEFINITION.split(bare)
    bodies = dict(zip(definitions[::2], definitions[1::2], strict=True))
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            sizes[name] = 0  # a terminal that contains itself is an error of lark's
            body = bodies.get(name, "")
            parts = sum(map(size, re.findall(r"\b_?[A-Z]\w*", body)))
            sizes[name] = 1 + len(body) // CHARACTERS_OF_A_PART + parts
            small = sizes[name] <= MOST_PARTS
            require(small, f"the terminal {name} is too large with all that it is made of")
        return sizes[name]

    for name in filter(str.isupper, bodies):
        size(name)


def _require_few_copies(grammar: Any) -> None:
    """Raise a `UsageError` if templates would expand to very many copies."""
    bodies = {name: (params, tree) for name, params, tree, _ in grammar.rule_defs}
    copies: set[str] = set()
    waiting = [({}, tree) for params, tree in bodies.values() if not params]

    def named(part: Any, names: dict[str, str]) -> str:
        """Return the name of an argument, in which templates are copied too."""
        while getattr(part, "data", None) == "value":
            part = part.children[0]
        if getattr(part, "data", None) != "template_usage":
            name = str(getattr(part, "name", part))
            return names.get(name, name)
        template, *arguments = part.children
        given = [named(argument, names) for argument in arguments]
        copy = f"{template.name}{{{','.join(given)}}}"
        few = len(copy) <= MOST_NAME and len(copies) < MOST_COPIES
        require(few, f"the template {template.name} is copied for too many different arguments")
        if copy not in copies and template.name in bodies:
            copies.add(copy)
            params, tree = bodies[template.name]
            waiting.append((dict(zip(params, given, strict=False)), tree))
        return copy

    while waiting:
        names, tree = waiting.pop()
        for use in tree.find_data("template_usage"):
            named(use, names)


def _productions(rule: str, part: Any) -> int:
    """Count the productions that a part of a rule expands to.

    Raises:
        UsageError: there are too many.
    """
    inner = [_productions(rule, child) for child in getattr(part, "children", ())]
    data = getattr(part, "data", None)
    number = math.prod(inner)
    if data == "expansions":
        number = sum(inner)
    elif data == "maybe":
        number += 1
    elif data == "expr":
        of, (sign, *counts) = inner[0], part.children[1:]
        number = {"?": of + 1, "*": 2, "+": 1}.get(str(sign), 1)
        if counts:
            least, most = int(counts[0]), int(counts[-1])
            few = most < FEW_REPEATS
            number = sum(of**n for n in range(least, most + 1)) if few else of**PARTS_OF_REPEATS
    few = number <= MOST_PRODUCTIONS
    why = f"has more than {MOST_PRODUCTIONS:,} productions when its options are written out"
    require(few, f"the rule {rule} {why}; split it")
    return number


def _terminal(match: Callable[[int, str], int], skip: Callable[[int], int], name: str) -> Terminal:
    return lambda here: skip(match(here, name))

"""Context-free grammars as networks: a rule is written out where it is used, or else called."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

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
# A production of a rule has all its options written out, so that each doubles their number.
MOST_OPTIONS = 12
# The end of a string in lark's `common.ESCAPED_STRING`, which is a look-behind.
ESCAPED, PLAIN = r".*?(?<!\\)(\\\\)*?", r"(?:[^\"\\\n]|\\.)*"


class Builder:
    """Adds rules to a network.

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

    def add(self, place: int, symbol: Symbol) -> int:
        """Lead from a place to a new one by what a symbol describes.

        Raises:
            UsageError: it is too large.
        """
        if not isinstance(symbol, str):
            return symbol(place)
        if symbol not in reached(self._uses[symbol], self._uses.__getitem__):
            return self._write_out(place, symbol)
        if symbol not in self.network.rules:
            start = self.network.place()
            self.network.rules[symbol] = start, self.network.place()  # it may be met again below
            end = self._write_out(start, symbol)
            self.network.join(end, self.network.rules[symbol][1])
        return self.network.call(place, symbol)

    def _write_out(self, place: int, rule: str) -> int:
        network = self.network
        before, after = network.place(), network.place()
        network.join(place, before)
        for production in self.rules[rule]:
            begins, ends = production[:1] == [rule], production[-1:] == [rule]
            if begins and len(production) == 1:
                continue
            here = after if begins else before
            for symbol in _inner(rule, production):
                here = self.add(here, symbol)
            network.join(here, before if ends else after)
        return after


def _inner(rule: str, production: Sequence[Symbol]) -> Sequence[Symbol]:
    """Return a production without the rule itself at its beginning and its end."""
    production = production[1:] if production[:1] == [rule] else production
    return production[:-1] if production[-1:] == [rule] else production


def add_grammar(network: CharacterNetwork, place: int, text: str) -> int:
    """Lead from a place to a new one by a grammar in the syntax of lark, from its rule `start`.

    Raises:
        SeqgenError: lark is not installed.
        UsageError: it is no grammar, or has what an automaton cannot follow, or is too large.
    """
    require_short(text)
    require_packages("--grammar", "lark")
    from lark import Lark
    from lark.exceptions import LarkError

    for rule in re.split(r"\n(?=[ \t]*[?!]*[a-z_]\w*)", re.sub(r'"(\\.|[^"\\])*"|/.*/', "", text)):
        options = rule.count("?") + rule.count("[")
        require(options <= MOST_OPTIONS, f"a rule has more than {MOST_OPTIONS} options; split it")
    try:
        read = Lark(text, parser="earley", lexer="dynamic", maybe_placeholders=False)
    except (LarkError, re.error, OSError) as error:
        raise UsageError(str(error).strip().partition("\n")[0]) from None
    except RecursionError:
        raise UsageError("its groups are nested too deeply") from None
    patterns = {terminal.name: terminal.pattern for terminal in read.terminals}
    reader = RegexReader(network)

    def match(here: int, name: str) -> int:
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


def _terminal(match: Callable[[int, str], int], skip: Callable[[int], int], name: str) -> Terminal:
    return lambda here: skip(match(here, name))

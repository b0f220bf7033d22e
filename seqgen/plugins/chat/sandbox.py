"""The sandbox in which chat templates run, with limits on time and on the size of every value.

A template is a program that came with a model. Jinja's own sandbox keeps it from files and from
Python's objects, but not from running for years or filling the memory. Here loops, macros and
blocks look at the time, and whatever makes a value (operators, lists, calls, filters) at its size.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.limits import gives_up, seconds_at_most
from seqgen.packages import require_packages

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.nodes import Node
    from jinja2.parser import Parser

# What a template may take for a conversation: seconds of its thread; characters of any one value,
# at any depth; and characters of all that it writes, with what macros write. All are far above what
# any real template needs.
SECONDS, LONGEST, MOST_WRITTEN = 1.5, 20_000_000, 80_000_000
# What an item of a list counts as, in characters.
ITEM = 8
# The largest width that a text is padded to, or number of parts that a list is divided into.
WIDEST = 1_000_000
PADDING = {"batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "wordwrap"}
PADDING |= {"zfill"}
# A large width in a format such as %10d or {:10}, or one that an argument gives: %*d or {:{}}.
WIDTH = re.compile(r"%[^%a-zA-Z]*([0-9]{7}|\*)|\{[^}]*([0-9]{7}|\{)")
# The items counted between two looks at the time.
COUNTED = 1 << 16
TEXTS, CONTAINERS = (str, bytes), (list, tuple, set, frozenset)

# Characters that the templates which run now have written.
_written: ContextVar[int] = ContextVar("written", default=0)


class EndlessTemplateError(SeqgenError):
    """A template takes too long, or writes too much."""


@contextmanager
def limits() -> Iterator[None]:
    """Limit the time that a template takes in a block, and what it writes."""
    before = _written.set(0)
    try:
        with seconds_at_most(SECONDS):
            yield
    finally:
        _written.reset(before)


@functools.lru_cache(maxsize=16)
def compile_template(source: str) -> Template:
    """Compile a template in which loops look at the time, and values at their size.

    Raises:
        SeqgenError: Jinja is not installed.
        TemplateSyntaxError: of Jinja, where the source is broken.
    """
    require_packages("a chat template", "jinja2")
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    def call(name: str, *arguments: Node) -> Node:
        return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)

    class Limits(NodeTransformer):
        """Adds what looks at the time and at sizes."""

        def timed(self, node: Any) -> Node:
            self.generic_visit(node)
            node.body.insert(0, nodes.ExprStmt(call("check_time")))
            return node

        def bounded(self, node: Any) -> Node:
            self.generic_visit(node)
            is_target = getattr(node, "ctx", "load") != "load"  # as in `for a, b in pairs`
            return node if is_target else call("bounded", node)

        visit_For = visit_Macro = visit_CallBlock = visit_Block = timed  # noqa: N815
        visit_List = visit_Tuple = visit_Dict = bounded  # noqa: N815

        def visit_Concat(self, node: Any) -> Node:  # noqa: N802
            return call("concatenated", *self.generic_visit(node).nodes)

    environment = _environment()
    tree = Limits().visit(environment.parse(source))
    for node in tree.find_all(nodes.Node):
        node.lineno = node.lineno or 1
    tree.set_environment(environment)
    return environment.from_string(tree)


def _check_time() -> None:
    if time.thread_time() > gives_up.get():
        raise EndlessTemplateError(f"fails: it is not done after {SECONDS:g} seconds")


def _check_length(length: int) -> None:
    if length > LONGEST:
        raise EndlessTemplateError(f"fails: it makes a text of more than {LONGEST:,} characters")


def bounded(value: Any) -> Any:
    """Return a value that has at most `LONGEST` characters, at any depth; of a generator, a list.

    Raises:
        EndlessTemplateError: it has more.
    """
    if isinstance(value, GeneratorType):
        value = _listed(value)
    length, counted, waiting = 0, 0, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, TEXTS):
            length += len(one)
        elif isinstance(one, CONTAINERS):
            length += ITEM * len(one)
            waiting += one
        elif isinstance(one, Mapping):
            length += ITEM * len(one)
            waiting += [*one.keys(), *one.values()]
        _check_length(length)
        counted += 1
        if counted % COUNTED == 0:
            _check_time()
    return value


def _listed(values: Iterator[Any]) -> list[Any]:
    items, length = [], 0
    for value in values:
        items.append(value)
        length += ITEM + (len(value) if isinstance(value, TEXTS) else 0)
        _check_length(length)
        if len(items) % COUNTED == 0:
            _check_time()
    return items


def _concatenated(*values: Any) -> str:
    _check_length(sum(len(value) for value in values if isinstance(value, str)))
    return bounded("".join(map(str, values)))


def _counted(value: Any) -> Any:
    """Add what a template writes to all that it has written."""
    written = str(value) if isinstance(value, (*CONTAINERS, Mapping)) else value
    if isinstance(written, str):
        _written.set(_written.get() + len(written))
        if _written.get() > MOST_WRITTEN:
            _check_length(LONGEST + 1)
    return written


def _check_growth(name: str, arguments: list[Any]) -> None:
    """Raise an error if a filter or a method of a text would make a text that is too long.

    Args:
        name: of the filter or method.
        arguments: with the text first.
    """
    if name in PADDING and any(isinstance(x, int) and abs(x) > WIDEST for x in arguments):
        _check_length(LONGEST + 1)
    texts = [value for value in arguments if isinstance(value, TEXTS)]
    if not texts:
        return
    first, *others = texts
    if name in ("format", "format_map", "%") and WIDTH.search(str(first)):
        _check_length(LONGEST + 1)
    if name == "replace" and len(others) == 2 and type(first) is type(others[0]):
        _check_length(first.count(others[0]) * len(others[1]))
    if name == "join" or name == "indent":
        separated = max((len(x) for x in arguments if isinstance(x, CONTAINERS)), default=0)
        lines = first.count("\n") if isinstance(first, str) else 0
        _check_length(max(separated, lines) * max(map(len, texts)))
    if name in ("expandtabs", "translate"):
        widths = [abs(x) for x in arguments if isinstance(x, int)]
        tables = [x.values() for x in arguments if isinstance(x, Mapping)]
        widths += [len(x) for table in tables for x in table if isinstance(x, str)]
        _check_length(len(first) * max(widths, default=1))


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Limit the results of a filter."""

    @functools.wraps(function)  # with the mark of one that takes the context first
    def run(*arguments: Any, **named: Any) -> Any:
        arguments = tuple(map(_made, arguments))
        _check_growth(name, [*arguments, *named.values()])
        return bounded(function(*arguments, **named))

    return run


def _made(value: Any) -> Any:
    return bounded(value) if isinstance(value, GeneratorType) else value


@functools.cache
def _environment() -> Any:
    """Make the sandbox in which templates run, with what transformers offers them."""
    from jinja2 import TemplateError
    from jinja2.ext import Extension
    from jinja2.nodes import Scope
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """The block `generation`, which marks answers for training, and writes what it holds."""

        tags = frozenset(["generation"])

        def parse(self, parser: Parser) -> Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return Scope(body, lineno=line)

    def tojson(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **form)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    class UnprintedNamespace(Namespace):
        """Namespace that is written without what it holds, which may be itself."""

        __repr__ = staticmethod(lambda: "<Namespace>")

    class Sandbox(ImmutableSandboxedEnvironment):
        """Sandbox in which the results of operators and calls have a limit, too."""

        intercepted_binops = frozenset(["+", "*", "**", "%"])
        check_time, bounded = staticmethod(_check_time), staticmethod(bounded)
        concatenated = staticmethod(_concatenated)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "**" and all(isinstance(one, int) for one in (left, right)):
                _check_length(left.bit_length() * right)
            if operator == "*":
                for repeated, times in ((left, right), (right, left)):
                    if isinstance(repeated, TEXTS + CONTAINERS) and isinstance(times, int):
                        _check_length(len(repeated) * times)
            if operator == "%":
                _check_growth(operator, [left, right])
            return bounded(super().call_binop(context, operator, left, right))

        def wrap_str_format(self, value: Any) -> Any:
            """Limit the widths in a format."""
            formatted = super().wrap_str_format(value)
            if formatted is not None:
                _check_growth("format", [value.__self__])
            return formatted

        def call(self, context: Any, called: Any, *arguments: Any, **named: Any) -> Any:
            text = getattr(called, "__self__", None)
            if isinstance(text, TEXTS):
                arguments = tuple(map(_made, arguments))
                _check_growth(called.__name__, [text, *arguments, *named.values()])
            return bounded(super().call(context, called, *arguments, **named))

    extensions = [Generation, "jinja2.ext.loopcontrols"]
    made = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=_counted)
    del made.globals["lipsum"]  # writes at random, as much as is asked for
    made.filters["tojson"] = tojson
    made.filters = {name: _limited(name, function) for name, function in made.filters.items()}
    made.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    made.globals["namespace"] = UnprintedNamespace
    return made

"""The sandbox in which chat templates run, with limits on time and on the size of every value.

A template is a program that came with a model. Jinja's own sandbox keeps it from files and from
Python's objects, but not from running for years or filling the memory. Here loops, macros and
blocks check the time, and operators, lists, calls and filters check the size of their results;
where a result may be much longer than the arguments, before it is made.
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
from string import Formatter
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
# at any depth; of all values of more than `LARGE` characters; and of all that it writes, with what
# macros write. All are far above what any real template needs.
SECONDS, LONGEST, MOST_WRITTEN = 1.5, 20_000_000, 80_000_000
LARGE, MOST_LARGE = 1_000_000, 400_000_000
# What an item of a list counts as, in characters; and the largest number, in bits.
ITEM, MOST_BITS = 8, 100_000
# The longest text for filters that take more time than in proportion to its length.
LONGEST_FOR_SLOW = 100_000
SLOW = frozenset({"striptags", "urlize", "wordwrap"})
# The widest indent of JSON, and the longest separators.
LARGEST_FORM = 1000
# What `repr` writes for a character at most.
REPR = 10
# A field of a % format: its width and precision.
PERCENT_FIELD = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|[0-9]*)(?:\.(\*|[0-9]*))?")
# The items counted between two looks at the time.
COUNTED = 1 << 16
TEXTS, CONTAINERS = (str, bytes), (list, tuple, set, frozenset)

# Characters that the templates which run now have written, and those of large values.
_written: ContextVar[int] = ContextVar("written", default=0)
_large: ContextVar[int] = ContextVar("large", default=0)


class EndlessTemplateError(SeqgenError):
    """A template takes too long, or writes too much."""


@contextmanager
def limits() -> Iterator[None]:
    """Limit the time that a template takes in a block, and what it makes and writes."""
    before = [(total, total.set(0)) for total in (_written, _large)]
    try:
        with seconds_at_most(SECONDS):
            yield
    finally:
        for total, token in before:
            total.reset(token)


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

        def visit_TemplateData(self, node: Any) -> Node:  # noqa: N802
            return call("literal", nodes.Const(node.data))  # whose length is then counted, too

    environment = _environment()
    tree = Limits().visit(environment.parse(source))
    for node in tree.find_all(nodes.Node):
        node.lineno = node.lineno or 1
    tree.set_environment(environment)
    return environment.from_string(tree)


def _check_time() -> None:
    if time.thread_time() > gives_up.get():
        raise EndlessTemplateError(f"fails: it is not done after {SECONDS:g} seconds")


def _check_length(length: int, most: int = LONGEST) -> None:
    if length > most:
        raise EndlessTemplateError(f"fails: it makes a text of more than {LONGEST:,} characters")


def _size(value: Any) -> int:
    """Count the characters of a value at any depth; an item of a list counts as `ITEM`.

    Raises:
        EndlessTemplateError: it has more than `LONGEST`, or a number has more than `MOST_BITS`.
    """
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
        elif isinstance(one, int):
            length += one.bit_length() // 3
            _check_length(one.bit_length(), MOST_BITS)
        _check_length(length)
        counted += 1
        if counted % COUNTED == 0:
            _check_time()
    return length


def bounded(value: Any) -> Any:
    """Return a value that has at most `LONGEST` characters, at any depth; of a generator, a list.

    Raises:
        EndlessTemplateError: it has more, or all large values together have too many.
    """
    if isinstance(value, GeneratorType):
        value = _listed(value)
    length = _size(value)
    if length > LARGE:
        _large.set(_large.get() + length)
        _check_length(_large.get(), MOST_LARGE)
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
        _check_length(_written.get(), MOST_WRITTEN)
    return written


# The functions below estimate how long the result of a filter or a method of texts is at most. They
# have its parameters; what else is given in a wrong way, Jinja refuses.


def _length_padded(text: Any, width: int = 80, *others: Any) -> int:
    return len(str(text)) + abs(width)


def _of_expandtabs(text: str, tabsize: int = 8) -> int:
    return len(text) * (1 + abs(tabsize))


def _length_indented(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> int:
    lines = len(str(s).splitlines()) + 1
    return len(str(s)) + lines * (abs(width) if isinstance(width, int) else len(width))


def _length_joined(value: Any, d: Any = "", attribute: Any = None) -> int:
    items = len(value) if hasattr(value, "__len__") else 0
    return _size(value) + items * len(str(d))


def _length_of_joining(separator: str, items: Any) -> int:
    return _length_joined(items, separator)


def _of_replace(s: Any, old: Any, new: Any, count: int | None = None) -> int:
    return len(str(s)) + str(s).count(str(old)) * len(str(new))


def _of_parts(value: Any, number: int, fill_with: Any = None) -> int:
    return ITEM * abs(number) + _size(fill_with) * abs(number)


def _of_wordwrap(s: Any, width: int = 79, *others: Any, wrapstring: Any = "", **more: Any) -> int:
    longest = max(len(str(one)) for one in (wrapstring, *others, " "))
    return len(str(s)) * (1 + longest)


def _of_round(value: Any, precision: int = 0, method: str = "common") -> int:
    return LONGEST + 1 if abs(precision) > MOST_BITS // 4 else abs(precision)


def _of_translate(text: str, table: Any) -> int:
    values = table.values() if isinstance(table, Mapping) else ()
    return len(text) * max((len(x) for x in values if isinstance(x, str)), default=1)


def _of_percent(text: Any, *arguments: Any, **named: Any) -> int:
    fields = PERCENT_FIELD.findall(str(text))
    widths = [part for field in fields for part in field if part]
    return _of_fields(str(text), len(fields), widths, "*" in widths, [*arguments, named])


def _of_format(text: str, *arguments: Any, **named: Any) -> int:
    try:
        specs = [spec for _, name, spec, _ in Formatter().parse(text) if name is not None]
    except ValueError:  # as Python will say
        return 0
    widths = [digits for spec in specs for digits in re.findall("[0-9]+", spec)]
    from_arguments = any("{" in spec for spec in specs)
    return _of_fields(text, len(specs), widths, from_arguments, [*arguments, named])


def _of_fields(
    text: str, fields: int, widths: list[str], from_arguments: bool, arguments: list[Any]
) -> int:
    numbers = [int(width) for width in widths if width.isdecimal() and len(width) < ITEM]
    if len(numbers) < sum(map(str.isdecimal, widths)):
        return LONGEST + 1
    if from_arguments:
        single = [x for one in arguments for x in (one if isinstance(one, tuple) else (one,))]
        numbers += [abs(x) for x in single if isinstance(x, int)]
    longest = max(map(_size, arguments), default=0)
    return len(text) + fields * (max(numbers, default=0) + REPR * longest)


OF_FILTERS: dict[str, Callable[..., int]] = {
    "batch": _of_parts,
    "center": _length_padded,
    "format": _of_percent,
    "indent": _length_indented,
    "join": _length_joined,
    "replace": _of_replace,
    "round": _of_round,
    "slice": _of_parts,
    "wordwrap": _of_wordwrap,
}
OF_METHODS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _length_padded),
    "expandtabs": _of_expandtabs,
    "join": _length_of_joining,
    "replace": _of_replace,
    "translate": _of_translate,
}


def _check_growth(of_result: Callable[..., int] | None, *arguments: Any, **named: Any) -> None:
    """Raise an error if the result of a filter or method would be too long."""
    if of_result is not None:
        try:
            length = of_result(*arguments, **named)
        except TypeError:  # the arguments are wrong, as Jinja or Python will say
            return
        _check_length(length)


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Limit the results of a filter."""
    passes = hasattr(function, "jinja_pass_arg")  # the context, or the like, is the first argument

    @functools.wraps(function)  # with that mark
    def run(*arguments: Any, **named: Any) -> Any:
        arguments = tuple(map(_made, arguments))
        own = arguments[passes:]
        _check_growth(OF_FILTERS.get(name), *own, **named)
        if name in SLOW and own:
            _check_length(len(str(own[0])), LONGEST_FOR_SLOW)
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
        _check_length(_size([*form.values()]), LARGEST_FORM)
        indent = form.get("indent")
        if indent is None:
            return json.dumps(value, ensure_ascii=ensure_ascii, **form)
        _check_length(indent if isinstance(indent, int) else 0, LARGEST_FORM)
        pieces = json.JSONEncoder(ensure_ascii=ensure_ascii, **form).iterencode(value)
        return "".join(_listed(pieces))

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    class UnprintedNamespace(Namespace):
        """Namespace that is written without what it holds, which may be itself."""

        __repr__ = staticmethod(lambda: "<Namespace>")

    class Sandbox(ImmutableSandboxedEnvironment):
        """Sandbox in which the results of operators and calls have a limit, too."""

        intercepted_binops = frozenset(["+", "-", "*", "**", "%", "//"])
        check_time, bounded = staticmethod(_check_time), staticmethod(bounded)
        concatenated, literal = staticmethod(_concatenated), staticmethod(str)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "**" and all(isinstance(one, int) for one in (left, right)):
                _check_length(left.bit_length() * right, MOST_BITS)
            if operator == "*":
                for repeated, times in ((left, right), (right, left)):
                    if isinstance(repeated, TEXTS + CONTAINERS) and isinstance(times, int):
                        _check_length(_size(repeated) * times)
            if operator == "%" and isinstance(left, str):
                _check_growth(_of_percent, left, right)
            return bounded(super().call_binop(context, operator, left, right))

        def wrap_str_format(self, value: Any) -> Any:
            """Limit what a format makes."""
            formatted = super().wrap_str_format(value)
            if formatted is None:
                return None

            def run(*arguments: Any, **named: Any) -> str:
                _check_growth(_of_format, value.__self__, *arguments, **named)
                return formatted(*arguments, **named)

            return run

        def call(self, context: Any, called: Any, *arguments: Any, **named: Any) -> Any:
            text = getattr(called, "__self__", None)
            if isinstance(text, TEXTS):
                arguments = tuple(map(_made, arguments))
                _check_growth(OF_METHODS.get(called.__name__), text, *arguments, **named)
            return bounded(super().call(context, called, *arguments, **named))

    extensions = [Generation, "jinja2.ext.loopcontrols"]
    made = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=_counted)
    del made.globals["lipsum"]  # writes at random, as much as is asked for
    made.filters["tojson"] = tojson
    made.filters = {name: _limited(name, function) for name, function in made.filters.items()}
    made.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    made.globals["namespace"] = UnprintedNamespace
    return made

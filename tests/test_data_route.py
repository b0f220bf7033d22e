"""The data of `train` on its way: how many functions receive it only to hand it on.

Followed are what is to be read and how (`DataFiles`, `DataConfig`), the dataset, its tokens, what
is prepared of it, and the plan that goes with them; by their annotations, in all that `train` may
call: a call by a name is taken for a call of everything that has this name.

A *stay* is a parameter that a function only hands on, or a field of a class that keeps it. A
*climb* is a call that hands data to a module of a higher layer, as the names of functions in a task
may do; imports never point up (`test_layers.py`).

    python tests/test_data_route.py
"""

import ast
import collections
import functools
import re

from helpers_cli import has_plugin
from test_layers import LEVEL, MODULES, layer, nodes, parsed, statements

DATA = {"DataFiles", "DataConfig", "Dataset", "Tokenizers", "Prepared", "Plan"}
START = "train"
Function = collections.namedtuple("Function", "module name node")


@functools.cache
def functions():
    """Return all functions of the package, and its classes, as `Function`s."""
    kinds = ast.FunctionDef | ast.ClassDef
    return [
        Function(module, node.name, node)
        for module, path in MODULES.items()
        for node, _ in statements(parsed(path))
        if isinstance(node, kinds)
    ]


@functools.cache
def names_in(node):
    """Return all names and attributes in a function: what it may call, or hand on to be called."""
    found = (getattr(n, "id", getattr(n, "attr", None)) for n in nodes(node))
    return frozenset(found) - {None}


def loaded_by_name():
    """Return the modules that each fact of a task names, as "module:name", by the fact."""
    found = collections.defaultdict(set)
    for module in (m for m in MODULES if m.startswith("seqgen.tasks.") or m.endswith("task")):
        for node in nodes(parsed(MODULES[module])):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Constant) and ":" in str(value.value):
                name = node.arg if isinstance(node, ast.keyword) else getattr(node, "target", None)
                name = name.id if isinstance(name, ast.Name) else name
                target = str(value.value).partition(":")[0]
                if target in MODULES and isinstance(name, str):
                    found[name].add(target)
    return found


def reachable(starts, called_by):
    """Return these functions and all that they may call; `called_by` gives those of one."""
    waiting, found = [*starts], {}
    while waiting:
        each = waiting.pop()
        if id(each.node) not in found:
            found[id(each.node)] = each
            waiting += called_by(each)
    return list(found.values())


@functools.cache
def reached():
    """Return the functions that `train` may call, and the classes that it may make."""
    by_name, of_module = collections.defaultdict(list), collections.defaultdict(list)
    for each in functions():
        by_name[each.name].append(each)
        of_module[each.module].append(each)
    named = loaded_by_name()

    def called_by(each):
        inside = names_in(each.node)
        called = [other for name in inside & by_name.keys() for other in by_name[name]]
        if "load_object" in inside:
            targets = set().union(*(named[fact] for fact in inside & named.keys()))
            called += [other for module in targets for other in of_module[module]]
        return called

    return reachable(by_name[START], called_by)


def is_data(annotation):
    """Return whether something is data by its annotation: itself, or it or None."""
    words = set(re.findall(r"\w+", "" if annotation is None else ast.unparse(annotation)))
    return bool(words & DATA) and words <= {*DATA, "None", "Self"}


def parameters(function):
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [one.arg for one in every if is_data(one.annotation)]


def looks_into(function, name):
    """Return whether a function does more with a parameter than hand it on, or keep it."""
    for node in nodes(function):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Name) and child.id == name:
                handed_on = ast.Call | ast.keyword | ast.Starred | ast.Return | ast.Tuple | ast.Dict
                kept = isinstance(node, ast.Assign) and node.value is child
                if not kept and not isinstance(node, handed_on):
                    return True
    return False


def fields(node):
    """Return the fields of a class that keep data."""
    declared = [n for n in node.body if isinstance(n, ast.AnnAssign)]
    return [n.target.id for n in declared if is_data(n.annotation)]


def stays(functions):
    """Yield where data stays: the module, the function or the class, and the parameter or field."""
    for each in functions:
        if isinstance(each.node, ast.ClassDef):
            held = fields(each.node)
        else:
            held = [x for x in parameters(each.node) if not looks_into(each.node, x)]
            if all(isinstance(n, ast.Expr | ast.Pass) for n in each.node.body):
                held = []  # an abstract method
        yield from ((each.module, each.name, one) for one in held)


def climbs(functions):
    """Yield what hands data, a parameter or a field, to modules of higher layers by name."""
    named = loaded_by_name()
    classes = [each.node for each in functions if isinstance(each.node, ast.ClassDef)]
    kept = {name for node in classes for name in fields(node)}
    for each in functions:
        inside = names_in(each.node)
        if isinstance(each.node, ast.ClassDef) or "load_object" not in inside:
            continue
        if not (inside & kept or parameters(each.node)):
            continue
        for fact in sorted(inside & named.keys()):
            higher = [m for m in named[fact] if LEVEL[layer(m)] < LEVEL[layer(each.module)]]
            yield from ((each.module, each.name, module) for module in sorted(higher))


def test_data_is_not_handed_on_by_many():
    on_the_way = reached()
    found = sorted(stays(on_the_way))
    assert ("seqgen.training.session", "Session", "prepared") in found
    assert len(found) <= 60
    assert len({module for module, _, _ in found}) <= 25


def test_data_rarely_climbs():
    found = sorted(climbs(reached()))
    # Validations and datasets of plugins; a core alone has none.
    assert found or not (has_plugin("labels") or has_plugin("vectors"))
    assert len(found) < 10


if __name__ == "__main__":
    way = [each for each in reached() if isinstance(each.node, ast.FunctionDef)]
    received = [(each.module, each.name, one) for each in way for one in parameters(each.node)]
    kinds = {"receive data": received, "stays": stays(reached()), "climbs": climbs(reached())}
    for kind, found in kinds.items():
        found = sorted(found)
        files = len({module for module, _, _ in found})
        print(f"{len(found)} {kind} in {files} files", *map(" ".join, found), sep="\n  ")  # noqa: T201

"""The prompts of `sample` on their way to the model: how many functions only hand them on.

Followed are prompts as the command line has them (`GivenPrompts`), as text or vectors, with their
ids (`Prompt`), and as rows of a batch (`Row`): by annotations, in all that `sample` may call by
name in the layers that a prompt passes. Beam search has a way of its own.

    python tests/test_prompt_route.py
"""

import ast
import re

from test_data_route import functions, looks_into, names_in, reachable
from test_layers import layer

START = "seqgen.cli.sample", "sample"
PROMPTS = {"GivenPrompts", "Prompt", "Prompts", "Row"}
LAYERS = {"cli", "cli.shell", "generation"}
OTHERS = re.compile(r"beam|exhaustive|constraint|passages|generation\.model$")


def prompts_of(function):
    """Return the names of the parameters that are prompts, or several."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    written = {one.arg: ast.unparse(one.annotation) for one in every if one.annotation}
    return [
        name
        for name, kind in written.items()
        if "str | Vectors" in kind or PROMPTS & {*re.findall(r"\w+", kind)}
    ]


def route():
    """Return the functions that receive prompts: the module, the name, and whether it uses one."""
    there = [
        each
        for each in functions()
        if layer(each.module) in LAYERS and not OTHERS.search(each.module)
    ]

    def called_by(each):
        inside = names_in(each.node)
        return [other for other in there if other.name in inside]

    starts = [each for each in there if (each.module, each.name) == START]
    found = reachable(starts, called_by)
    way = [each for each in found if isinstance(each.node, ast.FunctionDef)]
    received = [(each, prompts_of(each.node)) for each in way]
    return sorted(
        (each.module, each.name, any(looks_into(each.node, one) for one in names))
        for each, names in received
        if names
    )


def test_prompts_are_not_handed_on_by_many():
    found = route()
    assert ("seqgen.cli.sample", "sample", True) in found
    handed_on = [(module, name) for module, name, uses in found if not uses]
    assert ("seqgen.generation.prompts", "read_prompt") in handed_on
    assert len(handed_on) <= 12
    assert len({module for module, *_ in found}) <= 8


if __name__ == "__main__":
    for module, name, uses in route():
        print(module, name, "uses it" if uses else "hands it on")  # noqa: T201

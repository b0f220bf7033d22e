"""A kind of task has one home: nothing outside it names the kind or asks which it is.

That is a file of `seqgen/tasks`, or one of a plugin that its `Plugin.tasks` names.
"""

import ast
import re
from importlib import import_module

import pytest
from test_layers import MODULES, layer, nodes, parsed

from seqgen import hooks, registry
from seqgen.registry import load_object
from seqgen.tasks.task import Task

HOMES = {
    f"{one.module}.{target.partition(':')[0]}"
    for one in hooks.plugins()
    for target in one.plugin.tasks
} | {module for module in MODULES if layer(module).split(".")[0] == "tasks"}
OUTSIDE = [module for module in MODULES if module not in HOMES]
ROWS = registry.ARCHITECTURES.values()
NAMED = {task for row in ROWS for task in (*row.tasks, row.task.labelled) if task is not None}
TASKS = sorted(NAMED, key=lambda task: task.name)
NAMES = {name for task in TASKS for name in (task.name, task.called) if name is not None}
# The registry's rows are where architectures and kinds of task meet; the table of the plugins says
# which of them brings what.
MAY_NAME_KINDS = {"seqgen.registry", "seqgen.plugins"}
CONSTANTS = {
    name
    for module in HOMES
    for name, value in vars(import_module(module)).items()
    if isinstance(value, Task)
}

# A source without one of these cannot name a kind, and need not be parsed.
WORDS = rf"\b(?:{'|'.join(map(re.escape, (*NAMES, *CONSTANTS)))})\b"
MAY_NAME_ONE = re.compile(rf"seqgen\.tasks|task\s*\.\s*(?:name|stored_as)|{WORDS}")


def named_kinds(tree):
    """Yield what a module names of kinds: their modules, and their names as strings."""
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("seqgen.tasks"):
            module = node.module.split(".")
            if module[-1] not in ("task", "tasks") and len(module) == 3:
                yield node.module
        elif isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.value
        elif getattr(node, "id", getattr(node, "attr", None)) in CONSTANTS:
            yield ast.unparse(node)


def compared_tasks(tree):
    """Yield the comparisons of a task, or of its name, with a constant."""
    for node in nodes(tree):
        if isinstance(node, ast.Compare | ast.Match) and any(
            getattr(part, "attr", "").startswith(("name", "stored_as")) for part in nodes(node)
        ):
            text = ast.unparse(node)
            if "task.name" in text or "task.stored_as" in text:
                yield text


def test_no_module_outside_tasks_names_a_kind():
    found = {}
    for module in (m for m in OUTSIDE if m not in MAY_NAME_KINDS):
        if MAY_NAME_ONE.search(MODULES[module].read_text(encoding="utf-8")):
            tree = parsed(MODULES[module])
            found[module] = [*named_kinds(tree), *compared_tasks(tree)]
    assert found  # some speak of tasks, in documentation or as they should
    assert {module: named for module, named in found.items() if named} == {}


def test_the_walk_finds_a_kind_that_is_named():
    """The registry's module has all of the ways in which one can be named."""
    tree = ast.parse(MODULES["seqgen.registry"].read_text(encoding="utf-8"))
    assert {"seqgen.tasks.translation", "TRANSLATION"} <= {*named_kinds(tree)}
    asks = "if row.task.name == 'sequence-to-sequence' or task is registry.TRANSLATION: pass"
    assert {*named_kinds(ast.parse(asks))} == {"sequence-to-sequence", "registry.TRANSLATION"}
    assert [*compared_tasks(ast.parse(asks))] == ["row.task.name == 'sequence-to-sequence'"]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_parts_of_every_kind_are_there(task: Task):
    parts = [task.dataset, task.validation, *task.serves.values()]
    parts += filter(None, [task.head, task.array_head, task.head_config, task.features])
    assert all(callable(load_object(part)) for part in parts)
    assert task.default_trunk is None or registry.architecture(task.default_trunk)
    assert task.learns and task.try_it

"""A kind of task has one home: nothing outside `seqgen/tasks` names one or asks which it is."""

import ast

import pytest
from test_layers import MODULES, layer

from seqgen import registry
from seqgen.registry import load_object
from seqgen.tasks.task import Task

OUTSIDE = [m for m in MODULES if layer(m).split(".")[0] != "tasks"]
ROWS = registry.ARCHITECTURES.values()
NAMED = {task for row in ROWS for task in (*row.tasks, row.task.labelled) if task is not None}
TASKS = sorted(NAMED, key=lambda task: task.name)
NAMES = {name for task in TASKS for name in (task.name, task.called) if name is not None}
# The registry's rows are where architectures and kinds of task meet.
MAY_NAME_KINDS = {"seqgen.registry"}
# Words that are names of kinds too, but of something else there.
OTHER_WORDS = {"seqgen.cli.translations": {"translation"}}


def named_kinds(tree):
    """Yield what a module names of kinds: their modules, and their names as strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("seqgen.tasks"):
            module = node.module.split(".")
            if module[-1] not in ("task", "tasks") and len(module) == 3:
                yield node.module
        elif isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.value


def compared_tasks(tree):
    """Yield the comparisons of a task, or of its name, with a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.Match):
            text = ast.unparse(node)
            if "task.name" in text or "task.stored_as" in text:
                yield text


@pytest.mark.parametrize("module", OUTSIDE)
def test_no_module_outside_tasks_names_a_kind(module):
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    found = set() if module in MAY_NAME_KINDS else set(named_kinds(tree))
    assert found <= OTHER_WORDS.get(module, set())
    assert not list(compared_tasks(tree)) or module in MAY_NAME_KINDS


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_parts_of_every_kind_are_there(task: Task):
    parts = [task.dataset, task.validation, *task.serves.values()]
    assert all(callable(load_object(part)) for part in [*parts, *filter(None, [task.head])])
    assert task.learns and task.try_it

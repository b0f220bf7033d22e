"""The task of storing lines in an associative memory that restores them."""

from __future__ import annotations

from seqgen.tasks.task import Task

# A line that was held out could not be restored.
ASSOCIATIVE_MEMORY = Task(
    name="associative-memory",
    learns="lines, and restores only lines that it has stored",
    try_it='restore "a line"',
    serves={"restore": "seqgen.plugins.hopfield.restore:restore"},
    model_is="is an associative memory, no language model: it restores lines, with seqgen restore",
    data_defaults={"documents": "line", "val": "none"},
    fixed={"direction": "forward", "documents": "line", "val": "none"},
)

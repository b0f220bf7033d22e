"""The kinds of task: what a model is to learn, and all that follows from it; a file each."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class Moved:
    """Finds the modules of `seqgen.commands` under the names that they had before, for a release.

    It stands last among the finders, so that the modules of this package come first.
    """

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return how to make a module that forwards; None if there is nothing to forward to."""
        if not name.startswith("seqgen.tasks."):
            return None
        found = find_spec(name.replace("tasks", "commands", 1))
        package = found is not None and found.submodule_search_locations is not None
        return found and ModuleSpec(name, cls, is_package=package)

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave it to Python to make the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Let a module have everything that the one has which it is called now."""
        new = module.__name__.replace("tasks", "commands", 1)
        warnings.warn(f"{module.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        module.__getattr__ = import_module(new).__getattribute__


sys.meta_path.append(Moved)

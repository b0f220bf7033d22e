"""Record of a command for `--record`: all that is needed to reproduce its results."""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import __version__

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel

# What a command says in another way, or another time, and has the same results.
NO_OPTIONS = frozenset({"json", "quiet", "verbose", "record_run", "seed"})
PACKAGES = ("numpy", "torch")


@dataclass
class Invocation:
    """Running command, with the models and files that it has used so far.

    Attributes:
        arguments: what was typed after `seqgen`.
        options: the value of each option, defaults included, but for the seed.
        seed: given or drawn; None where nothing is drawn.
        models: all that it has loaded.
        files: the SHA-256 of each that is read, by name.
        stdin: whether standard input is read.
        recording: whether its records say all this.
        began: when it began, in seconds of `time.monotonic`.
    """

    arguments: list[str]
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    models: list[LoadedModel] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    stdin: bool = False
    recording: bool = False
    began: float = field(default_factory=time.monotonic)

    def take(self, values: Mapping[str, Any]) -> None:
        """Store the command's option values, and turn recording on."""
        self.recording = True
        given = {k: v for k, v in values.items() if v is not None and k not in NO_OPTIONS}
        self.options = {key: _plain(value) for key, value in given.items()}
        self.seed = values.get("seed")

    def notes(self, name: str | None) -> dict[str, Any]:
        """Collect what the model of a name, or its parts, say of their figures."""
        # Models that predict labels have no such name, and no notes.
        models = [each.model for each in self.models if getattr(each, "name", "") == name]
        return dict(note for model in models for part in model.parts for note in part.notes)

    def read(self, path: Path) -> None:
        """Add an input file to the record; a model's own files are part of the model."""
        from seqgen import store

        if self.recording and not path.resolve().is_relative_to(store.models_folder().resolve()):
            from seqgen.store.manifest import digest_of

            self.files[str(path)] = digest_of(path)

    def facts(self) -> dict[str, Any]:
        """Build the value of `run` in a record."""
        command, *arguments = self.arguments
        return {
            "command": command,
            "arguments": arguments,
            "options": self.options,
            "seed": self.seed,
            "models": {each.stored.name: each.stored.digest for each in self.models},
            "files": self.files,
            "stdin": self.stdin,
            "versions": versions(),
            "machine": machine(),
        }


def _plain(value: Any) -> Any:
    """Convert a value to JSON types."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


@functools.cache
def versions() -> dict[str, str]:
    """List the versions of Python and of packages that affect results, without importing them."""
    from importlib import metadata

    packages = {package: metadata.version(package) for package in PACKAGES}
    return {"seqgen": __version__, "python": platform.python_version(), **packages}


@functools.cache
def machine() -> dict[str, str]:
    """Describe the platform and processor of this machine."""
    from seqgen.store.cache import processor

    return {"platform": platform.platform(), "processor": processor()}


# The command that this process runs.
run = Invocation([])


def begin(arguments: list[str]) -> None:
    """Start the record of a command."""
    global run
    run = Invocation(arguments)

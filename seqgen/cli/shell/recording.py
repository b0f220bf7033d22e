"""How a record was made, which `--record` puts into it: all that is needed to make it again."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable, Mapping
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
    """A command, as far as it is known.

    Attributes:
        arguments: what was typed after `seqgen`.
        options: the value of each option, defaults included, but for the seed.
        seed: given or drawn; None where nothing is drawn.
        models: the digest of each, by name.
        files: the SHA-256 of each that is read, by name.
        stdin: whether standard input is read.
        recording: whether its records say all this.
    """

    arguments: list[str]
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    models: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    stdin: bool = False
    recording: bool = False

    def take(self, values: Mapping[str, Any]) -> None:
        """Note the options of the command, by name, and that its records are to say them."""
        self.recording = True
        given = {k: v for k, v in values.items() if v is not None and k not in NO_OPTIONS}
        self.options = {key: _plain(value) for key, value in given.items()}
        self.seed = values.get("seed")

    def use(self, models: Iterable[LoadedModel]) -> None:
        """Note models."""
        if self.recording:
            self.models |= {loaded.stored.name: loaded.stored.digest for loaded in models}

    def read(self, path: Path) -> None:
        """Note a file; those of a model are noted with the model."""
        from seqgen import store

        if self.recording and not path.resolve().is_relative_to(store.models_folder().resolve()):
            from seqgen.store.manifest import digest_of

            self.files[str(path)] = digest_of(path)

    def facts(self) -> dict[str, Any]:
        """Return the value of `run` in a record."""
        command, *arguments = self.arguments
        return {
            "command": command,
            "arguments": arguments,
            "options": self.options,
            "seed": self.seed,
            "models": self.models,
            "files": self.files,
            "stdin": self.stdin,
            "versions": versions(),
            "machine": machine(),
        }


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that results depend on; no package is loaded for it."""
    from importlib import metadata

    packages = {package: metadata.version(package) for package in PACKAGES}
    return {"seqgen": __version__, "python": platform.python_version(), **packages}


@functools.cache
def machine() -> dict[str, str]:
    """Return the platform and the processor of this machine."""
    from seqgen.store.cache import processor

    return {"platform": platform.platform(), "processor": processor()}


# The command that this process runs.
run = Invocation([])


def begin(arguments: list[str]) -> None:
    """Note that a command begins."""
    global run
    run = Invocation(arguments)

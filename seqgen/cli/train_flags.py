"""Which flags of `seqgen train` are no settings, and which have no meaning together."""

from __future__ import annotations

from pathlib import Path

import typer

from seqgen import presets, registry
from seqgen.errors import UsageError

# Flags that are not settings.
ITSELF = frozenset(
    {
        "data",
        "data_option",
        "source",
        "source_vectors",
        "target",
        "val_source",
        "model",
        "task",
        "preset",
        "name",
        "overwrite",
        "config",
        "set_",
        "device",
        "threads",
        "json",
        "quiet",
    }
    | {"parameters", "stop_after", "resume", "changed_data", "tensorboard"}
    | {"diagnose", "find_lr", "plot", "shard", "timeout"}
)


def refuse(context: typer.Context, what: str, flags: tuple[str, ...]) -> None:
    """Refuse flags that were given and have no meaning with something else.

    Raises:
        UsageError: names the flag.
    """
    for flag in flags:
        if context.params[flag]:
            raise UsageError(f"--{flag.replace('_', '-')} has no meaning with {what}")


def check_no_model_name(data: list[str]) -> None:
    """Refuse `seqgen train gru book.txt` with the flag that was meant."""
    for name in data:
        for flag, known in (("model", registry.ARCHITECTURES), ("preset", presets.PRESETS)):
            if name in known and not Path(name).exists():
                raise UsageError(
                    f"there is no file {name}; to train that {flag}, give --{flag} {name}"
                )

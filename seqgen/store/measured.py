"""Measurements of this machine, kept so that each is made once."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seqgen.errors import SeqgenError
from seqgen.files import json_bytes
from seqgen.store.kept_data import measurements_folder


def kept_measurement(about: dict[str, Any]) -> dict[str, Any] | None:
    """Return the kept result of a measurement, or None.

    Args:
        about: what was measured, as JSON can hold it.
    """
    try:
        return json.loads(_place(about).read_text(encoding="utf-8"))["found"]
    except (OSError, SeqgenError, ValueError, TypeError, KeyError):
        return None


def keep_measurement(about: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any] | None:
    """Keep the result of a measurement; return the kept one, or None if none can be kept.

    If two processes measure at once, the first result that is kept counts for both.
    """
    content = json_bytes({"machine": _machine(), "about": about, "found": measured})
    try:
        place = _place(about)
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        _put(Path(temporary), place, lambda: kept_measurement(about) is None)
    except (OSError, SeqgenError):
        return None
    return kept_measurement(about)


def _put(temporary: Path, place: Path, damaged: Callable[[], bool]) -> None:
    """Move a file to its place, unless another process has put one there that is not damaged."""
    try:
        os.link(temporary, place)
    except FileExistsError:
        # Asked only now: what another process has just put there is whole, because it was linked.
        if damaged():
            temporary.replace(place)
    except OSError:
        temporary.replace(place)  # a file system without links
    finally:
        temporary.unlink(missing_ok=True)


def _place(about: dict[str, Any]) -> Path:
    key = json.dumps([_machine(), about], sort_keys=True)
    return measurements_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _machine() -> dict[str, Any]:
    """Return what a measurement depends on."""
    return {
        "node": platform.node(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.processor())

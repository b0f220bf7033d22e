"""Plugins of other distributions, as pip would have installed them into a folder."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from places import ROOT

from seqgen import hooks

INIT = '''"""{about}"""
from seqgen.hooks import Command, Plugin, Route
PLUGIN = Plugin({adds})
'''


def install(
    site: Path, name: str, files: Mapping[str, str] | None = None, adds: str = "", **more: str
) -> Path:
    """Lay a plugin into a folder of `sys.path`; returns the folder of its package.

    Args:
        site: that folder.
        name: of the plugin; its package is called `stranger_NAME`, its distribution alike.
        files: its modules by file name, besides `__init__.py` unless it is among them.
        adds: the arguments of its `Plugin`.
        more: `release`, the distribution's version.
    """
    release = more.get("release", "1.5")
    package = site / f"stranger_{name}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(INIT.format(about=f"The plugin {name}.", adds=adds))
    for file, content in (files or {}).items():
        (package / file).write_text(content)
    metadata = site / f"stranger_{name}-{release}.dist-info"
    metadata.mkdir()
    about = f"Metadata-Version: 2.1\nName: stranger-{name}\nVersion: {release}\n\nName: none\n"
    (metadata / "METADATA").write_text(about)
    entries = f"[console_scripts]\nx = y:z\n\n[seqgen.plugins]\n{name} = stranger_{name}\n"
    (metadata / "entry_points.txt").write_text(entries)
    return package


def add(
    monkeypatch: pytest.MonkeyPatch, site: Path, name: str, files: Mapping[str, str], adds: str
) -> None:
    """Lay a plugin into a folder, and have this process find it; see `install`."""
    package = install(site, name, files, adds).name
    monkeypatch.syspath_prepend(site)
    plugin = importlib.import_module(package).PLUGIN
    added = hooks.InstalledPlugin(name, package, f"stranger-{name}", "1.5", plugin)
    every = (*hooks.plugins(), added)
    monkeypatch.setattr(hooks, "plugins", lambda: every)
    monkeypatch.setattr(hooks, "by_name", functools.cache(hooks.by_name.__wrapped__))


def seqgen(
    *arguments: str | Path, path: Path, python: str = sys.executable
) -> tuple[int, str, str]:
    """Run a command with a folder on `sys.path`; returns its code, output and messages."""
    done = subprocess.run(
        [python, "-m", "seqgen", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (path, ROOT)))},
    )
    return done.returncode, done.stdout, done.stderr

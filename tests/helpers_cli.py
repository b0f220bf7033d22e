"""Commands that tests run in their own process, and what comes of them."""

from __future__ import annotations

import json

from seqgen.cli import run


def records(capsys, *arguments) -> list[dict]:
    """Run a command in this process; return its records."""
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refusal(capsys, *arguments) -> str:
    """Return the one line that a refused command says."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.strip("\n").split("\n")
    return line

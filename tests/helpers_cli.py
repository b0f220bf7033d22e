"""Commands that tests run in their own process, and what comes of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from places import STORED

from seqgen import hooks, registry
from seqgen.cli import all_commands, run
from seqgen.settings.model import Smoothing
from seqgen.text.tokenizers import STORED as STORED_TOKENIZERS
from seqgen.text.tokenizers import kind_in

# Options of the core that need a plugin.
OPTIONS_OF = {
    "--cache": "cache",
    "--explain": "explain",
    "--stats": "data",
    "--stochastic": "searches",
}
Calls = TypeVar("Calls", Mapping[Any, Any], Sequence[Any])


def installed(calls: Calls) -> Calls:
    """Return the calls, or what there is by call, whose command's and option's plugins are there.

    Args:
        calls: texts or parts, that begin with the name of a command.
    """

    def is_there(call: str | Sequence[str]) -> bool:
        words = call.split() if isinstance(call, str) else list(map(str, call))
        there = all(has_plugin(name) for flag, name in OPTIONS_OF.items() if flag in words)
        return words[0].split()[0] in all_commands() and there

    if isinstance(calls, Mapping):
        return {call: about for call, about in calls.items() if is_there(call)}
    return [call for call in calls if is_there(call)]


def has_plugin(name: str) -> bool:
    """Say whether a plugin is there."""
    return name in {one.name for one in hooks.plugins()}


def known_architectures(names: Iterable[str]) -> list[str]:
    """Select the architectures of the core, and those of plugins that are there."""
    return [name for name in names if registry.known_architecture(name) is not None]


def known_smoothings() -> list[str]:
    """List the smoothings of n-grams of the core, and those of plugins that are there."""
    return [name for name in get_args(Smoothing) if hooks.missing_plugin(name) is None]


def needs(*plugins: str) -> pytest.MarkDecorator:
    """Return the mark of a test, or of a case, that is skipped without one of these plugins."""
    gone = sorted(name for name in plugins if not has_plugin(name))
    return pytest.mark.skipif(bool(gone), reason=f"without the plugin {', '.join(gone)}")


def is_usable(model: Path) -> bool:
    """Say whether the plugins of a stored model's architecture, tokenizers and regime are there."""
    config = json.loads((model / "config.json").read_text())
    architecture, regime = config["architecture"], config.get("training", {}).get("regime", "")
    known = architecture == "mixture" or registry.known_architecture(architecture) is not None
    known &= hooks.missing_plugin(regime) is None
    kinds = {kind_in(folder) for folder in model.glob("*tokenizer")} - {None}
    return known and STORED_TOKENIZERS.keys() >= kinds


def known_kinds(names: Iterable[str]) -> list[str]:
    """Return the stored models of `kinds` whose plugins are there, and those of their questions.

    Args:
        names: of the models.
    """
    return [name for name in names if is_known_kind(name)]


@functools.cache
def is_known_kind(name: str) -> bool:
    """Say whether the plugins of a stored model of `kinds`, and of its questions, are there."""
    from make_kinds import KINDS, RECIPES

    known = is_usable(STORED / "kinds" / "models" / name)
    questions = [*KINDS[RECIPES[name].kind].questions.values()]
    return known and len(installed(questions)) == len(questions)


def require_command(name: str) -> None:
    """Skip the rest of a test where the plugin of a command is not there."""
    if name not in all_commands():
        pytest.skip(f"no plugin has the command {name}")


def records(capsys, *arguments, by=run) -> list[dict]:
    """Run a command in this process; return its records."""
    capsys.readouterr()
    assert by([*map(str, arguments), "--json"]) == 0
    # A record may hold other breaks of lines, such as U+2028.
    return [json.loads(line) for line in capsys.readouterr().out.split("\n") if line]


def refusal(capsys, *arguments, by=run) -> str:
    """Return the one line that a refused command says."""
    capsys.readouterr()
    assert by([*map(str, arguments)]) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.strip("\n").split("\n")
    return line


def train_one_of_each(text: Path, steps: int) -> None:
    """Train a tiny LSTM, a transformer and an n-gram model: `net`, `tf` and `grams`."""
    common = ("--batch-size", "4", "--seq-len", "16", "--seed", "1", "--quiet")
    small = ("--layers", "1", "--hidden-size", "4", "--steps", str(steps), *common)
    for name, more in (
        ("net", ("--model", "lstm", *small)),
        ("tf", ("--model", "transformer", "--heads", "2", *small)),
        ("grams", ("--model", "ngram", "--order", "3", "--quiet")),
    ):
        assert run(["train", str(text), "--name", name, *more]) == 0

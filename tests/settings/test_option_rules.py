"""Options that exclude or need others: declared where an option is, checked in one place."""

from dataclasses import dataclass

import pytest

from seqgen.cli.shell.flags import takes_options
from seqgen.errors import UsageError
from seqgen.settings.options import Options, Panel, group
from seqgen.settings.setting import (
    NOT_TOGETHER,
    ONE_MODEL,
    Config,
    OptionRule,
    check_rules,
    setting,
)

KINDS = "--whole", "--lines", "--words"


class Kinds(Options, panel=Panel.TEXT):
    """Flags of which one is given."""

    whole: bool = setting("The text.", conflicts=KINDS)
    lines: bool = setting("Its lines.", conflicts=KINDS)
    words: bool = setting("Its words.", conflicts=KINDS)


class Shown(Options, panel=Panel.OUTPUT):
    """Options that say more about others, or exclude them."""

    metric: tuple[str, ...] = setting("What is measured.", without="bleu")
    smooth: float = setting("Smooth BLEU.", 0.0, only_for="--metric bleu")
    lowercase: bool = setting("Ignore case.", needs=("--lines", "--words"))
    model: tuple[str, ...] = setting("Models.")
    colour: bool = setting("Colour the text.", conflicts=(ONE_MODEL, "--metric ter"))
    grey: int = setting("Or in grey.", 0, conflicts=OptionRule((Panel.TEXT,), NOT_TOGETHER))
    kinds: Kinds = group(Kinds)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"words": True, "whole": True}, "give --whole or --words, not both"),
        ({"smooth": 1, "metric": ("ter", "chrf")}, "--smooth is for --metric bleu, not ter"),
        ({"lowercase": True, "whole": True}, "--lowercase belongs to --lines or --words"),
        ({"colour": True, "model": ("a", "b")}, "--colour takes one model"),
        ({"colour": True, "metric": ("ter",)}, "give --colour or --metric ter, not both"),
        ({"grey": 2, "lines": True}, "--grey cannot be combined with --lines"),
    ],
)
def test_a_broken_rule_names_the_options_as_typed(given, error):
    with pytest.raises(UsageError, match=f"^{error}$"):
        Shown.of(**given)


def test_rules_that_hold():
    Shown.of(smooth=1)  # bleu is the default
    Shown.of(smooth=1, metric=("ter", "bleu"), lowercase=True, words=True, model=("a",))
    Shown.of(colour=True, model=("a",))


class Of(Options, panel=Panel.MODEL):
    """An option of another group."""

    within: int = setting("A number.", 0, needs="--without", conflicts="--absent")


def test_rules_about_options_that_a_command_does_not_have_hold():
    assert Of(within=1).within == 1


class Other(Options, panel=Panel.MODEL):
    """What the option of another group needs."""

    without: bool = setting("A flag.")


def test_groups_of_a_command_are_checked_together():
    with pytest.raises(UsageError, match=r"^--within belongs to --without$"):
        check_rules(Of(within=1), Other())
    got = []

    @takes_options
    def command(of: Of, other: Other) -> None:
        """Do something."""
        got.append((of, other))

    with pytest.raises(UsageError, match="--within belongs to --without"):
        command(within=1, without=False)
    command(within=1, without=True)
    assert got == [(Of(within=1), Other(without=True))]


@dataclass(frozen=True, kw_only=True)
class Shape(Config):
    """Settings of which some need others."""

    places: str = setting("Kind of places.", "turned")
    width: int | None = setting(
        "Their width.",
        needs=("places=learned", "places=added", OptionRule(("tied=false",))),
    )
    tied: bool = setting("Share a matrix.")
    cap: float | None = setting("A bound.", needs="drop=0")
    drop: float = setting("A share.", 0.0)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"width": 2}, "width needs places=learned or places=added"),
        ({"width": 2, "places": "added", "tied": True}, "width needs tied=false"),
        ({"cap": 1, "drop": 0.5}, "cap needs drop=0"),
    ],
)
def test_settings_declare_rules_too(given, error):
    with pytest.raises(UsageError, match=f"^{error}$"):
        Shape(**given)
    assert Shape(width=2, places="learned", cap=1.0).drop == 0

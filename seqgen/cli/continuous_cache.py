"""The options of a continuous cache."""

from __future__ import annotations

from typing import Annotated

import typer

from seqgen.cli.help import MODEL
from seqgen.cli.options import refuse_without
from seqgen.configs.cache import FLATNESS, STRENGTH, CacheConfig

Cache = Annotated[
    int | None,
    typer.Option(
        help="Look up what followed at the last N positions where the model's features were alike "
        "(a continuous cache). For models with hidden vectors.",
        metavar="N",
        rich_help_panel=MODEL,
        show_default="no cache",
    ),
]
CacheStrength = Annotated[
    float | None,
    typer.Option(
        help="Weight of the cache, from 0 to below 1.",
        metavar="X",
        rich_help_panel=MODEL,
        show_default=str(STRENGTH),
    ),
]
CacheFlatness = Annotated[
    float | None,
    typer.Option(
        help="Multiply products of features by this: the smaller, the flatter the cache's "
        "distribution.",
        metavar="X",
        rich_help_panel=MODEL,
        show_default=str(FLATNESS),
    ),
]


def cache_of(
    size: int | None, strength: float | None, flatness: float | None
) -> CacheConfig | None:
    """Return the cache that options ask for, or None.

    Raises:
        UsageError: a value is out of bounds, or there is no `--cache` that it belongs to.
    """
    if size is None:
        given = {"--cache-strength": strength, "--cache-flatness": flatness}
        refuse_without("a cache: give --cache N as well", given)
        return None
    return CacheConfig(
        size,
        STRENGTH if strength is None else strength,
        FLATNESS if flatness is None else flatness,
    )

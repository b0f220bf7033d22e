"""The options of a continuous cache."""

from __future__ import annotations

from typing import Annotated

import typer

from seqgen.configs.cache import FLATNESS, STRENGTH
from seqgen.configs.panels import MODEL

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

"""`seqgen perplexity --fit`: weights of mixtures, and how strong a cache should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqgen.cli.inputs import Input
from seqgen.cli.output import Output, put
from seqgen.cli.pairs import as_text
from seqgen.cli.tables import figure, weight
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.loaded import LoadedModel
    from seqgen.configs.scoring import Scoring

# The value of --fit that means no file.
HELD_OUT = "held-out"


def fit_on(source: Input, loaded: LoadedModel, scoring: Scoring, out: Output) -> LoadedModel:
    """Fit a mixture's weights and a cache to a text; print them, and return the model with them."""
    from seqgen.commands.scoring.mix import fit

    if getattr(loaded.stored, "by_order", ()):
        out.notice(
            f"{loaded.stored.name} has weights by order; --fit finds weights that are the same in "
            "every context (seqgen mix PARTS --by order --fit FILE fits them by order)"
        )
    text = as_text(loaded, source)
    mixed, result = fit(loaded, text, scoring)
    cache = mixed.cache
    if not out.record(result):
        put(f"{result.model}\n" if cache is None else f"{result.model} {cache}\n")
    stored = getattr(mixed.stored, "parts", (mixed.stored,))
    for part, value, perplexity in zip(stored, result.weights, result.components, strict=True):
        out.notice(f"{part.name}: weight {weight(value)}, perplexity {figure(perplexity)}")
    if cache is not None:
        out.notice(f"cache: strength {figure(cache.strength)}, flatness {figure(cache.flatness)}")
    tokens = plural(result.tokens, "token")
    out.notice(f"mixed: perplexity {figure(result.perplexity)} on {tokens} of {source.name}")
    return mixed

"""`seqgen perplexity --fit`: weights of mixtures, and how strong a cache should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqgen.cli.inputs import Source
from seqgen.cli.output import put, put_record, say
from seqgen.cli.pairs import as_text
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.tasks.loaded import LoadedModel
    from seqgen.tasks.scoring.perplexity import Scoring

# The value of --fit that means no file.
HELD_OUT = "held-out"


def fit_on(
    source: Source, loaded: LoadedModel, scoring: Scoring, json: bool, quiet: bool
) -> LoadedModel:
    """Fit a mixture's weights and a cache to a text; print them, and return the model with them."""
    from seqgen.tasks.scoring.mix import fit

    text = as_text(loaded, source)
    how = {"documents": scoring.documents, "batch_size": scoring.batch_size}
    mixed, found = fit(loaded, text, **how)
    cache = mixed.cache
    if json:
        put_record(found)
    else:
        put(f"{found.model}\n" if cache is None else f"{found.model} {cache}\n")
    if not quiet:
        stored = getattr(mixed.stored, "parts", (mixed.stored,))
        for part, weight, perplexity in zip(stored, found.weights, found.components, strict=True):
            say(f"{part.name}: weight {weight:.4f}, perplexity {perplexity:.4f}")
        if cache is not None:
            say(f"cache: strength {cache.strength:.4f}, flatness {cache.flatness:g}")
        tokens = plural(found.tokens, "token")
        say(f"mixed: perplexity {found.perplexity:.4f} on {tokens} of {source.name}")
    return mixed

"""Bits per byte of the text that several models held out, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.cli.shell.pairs import as_pairs, check_one_kind, held_out_input
from seqgen.errors import SeqgenError
from seqgen.scoring.compare import Comparison, common_text, compare
from seqgen.store import StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import is_language_model, load
from seqgen.text.pairs import Pairs


def score_held_out(stored: Sequence[StoredModel]) -> dict[str, Comparison]:
    """Compare models on the text that all held out; return their rows by their names.

    Raises:
        SeqgenError: they held out different texts or none, or are not all language models.
    """
    others = [model.name for model in stored if not is_language_model(model)]
    if others:
        raise SeqgenError(f"{others[0]} is not a language model; seqgen compare has its figures")
    models = [load(model) for model in stored]
    return {row.model: row for row in compare(models, _held_out_by_all(models))}


def _held_out_by_all(models: Sequence[LoadedModel]) -> str | Pairs:
    """Open the text or the pairs that all models held out.

    Raises:
        SeqgenError: they held out different ones, or none.
    """
    if not check_one_kind(models):
        return common_text(models)
    newlines = "lf" if all(loaded.data.newlines == "lf" for loaded in models) else "keep"
    held_out = held_out_input(models, quiet=True)
    pairs, *_ = [as_pairs(loaded, held_out, newlines) for loaded in models]
    return pairs

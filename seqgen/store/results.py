"""Training results in model records, including those of version 0.1.0."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.store.cache import data_of
from seqgen.store.layout import TOKENIZER
from seqgen.store.mixtures import current_parts

if TYPE_CHECKING:
    from seqgen.metrics.perplexity import ScoreTotals
    from seqgen.store.model import StoredModel

UNITS = ("bits_per_char", "bits_per_byte", "oov_bits_per_byte")
# A result has this key since bits per character and byte include the bytes of unknown tokens.
UNKNOWNS = "val_oov_bits_per_byte"


def bits_record(score: Any) -> dict[str, float | None]:
    """Convert the bits of a held-out score to keys of a training result."""
    return {f"val_{unit}": getattr(score, unit) for unit in UNITS}


def result_of(stored: StoredModel) -> dict[str, Any]:
    """Read the `result` of a model's record; empty if there is none.

    Early versions left the bytes of unknown tokens out of `val_bits_per_char` and
    `val_bits_per_byte`. Such figures are computed again if the held-out text is there. If it is
    not, they stay as they are, too low, and `val_oov_bits_per_byte` is None.

    Raises:
        SeqgenError: the record is missing or damaged.
    """
    record = stored.record
    result = record.get("result")
    if not isinstance(result, dict):
        return {}
    if UNKNOWNS in result or result.get("val_bits_per_byte") is None:
        return result
    if data_of(record).get("val_oov") == 0:
        return {**result, UNKNOWNS: 0.0}
    with contextlib.suppress(SeqgenError, OSError):
        if (held_out := _held_out(stored)) is not None:
            return result | bits_record(held_out.with_bits_of_tokens(result["val_bits_per_byte"]))
    return {**result, UNKNOWNS: None}


def is_unfinished(result: dict[str, Any]) -> bool:
    """Check whether a run was stopped before its budget was spent."""
    return result.get("stopped") in ("interrupted", "stop-after")


def awaits_validation(result: dict[str, Any]) -> bool:
    """Check whether a run was stopped before its first validation."""
    return is_unfinished(result) and result.get("val_loss") is None


def awaits_mixture(stored: StoredModel, result: dict[str, Any]) -> bool:
    """Check whether training has ended, but not the mixing with an n-gram model."""
    return bool(stored.config["training"].get("with_ngram")) and result.get("protocol") is None


def leaves_unknowns_out(result: dict[str, Any]) -> bool:
    """Check whether the bits of a result exclude unknown tokens."""
    return result.get("val_bits_per_char") is not None and result[UNKNOWNS] is None


def _held_out(stored: StoredModel) -> ScoreTotals | None:
    """Count the size and the unknowns of a held-out text; None if it is missing.

    Raises:
        SeqgenError, OSError: the text, the tokenizer or a mixture's part cannot be read.
    """
    from seqgen.metrics.perplexity import ScoreTotals
    from seqgen.text.corpus import unknown_bytes
    from seqgen.text.reading import Surveyor, Text
    from seqgen.text.tokenfile import is_token_file
    from seqgen.text.tokenizers import load_tokenizer

    if stored.is_mixture:  # all parts hold out the same text
        parts = [part for _, part in current_parts(stored) if part is not None]
        return _held_out(parts[0]) if parts else None
    pairs = stored.validation_pairs
    path = stored.validation_text if pairs is None else pairs[1]
    if path is None or is_token_file(path):
        return None
    surveyor, documents = Surveyor(), stored.config["data"].get("documents", "stream")
    tokenizer = load_tokenizer(stored.path / TOKENIZER)
    lost = unknown_bytes(surveyor.watch(Text((path,)).chunks()), tokenizer, documents)
    facts = surveyor.facts
    return ScoreTotals(characters=facts.characters, bytes=facts.bytes, oov_bytes=lost)

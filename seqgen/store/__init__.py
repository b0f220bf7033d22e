"""Trained models on disk: a folder each, found by name, by path, or as the latest."""

from seqgen.store.cache import cached_files, clear_tokens, keep_text, text_of, tokens_folder
from seqgen.store.finding import (
    LATEST,
    check_free,
    check_name,
    create,
    find,
    find_all,
    list_models,
    now,
    remove,
    removed_if_stillborn,
    rename,
)
from seqgen.store.mixture import StoredMixture, as_given
from seqgen.store.model import (
    CHECKPOINTS,
    CONFIG,
    FORMAT,
    LAST,
    LOCK,
    METRICS,
    RECORD,
    SAMPLES,
    VALIDATION,
    VALIDATION_TOKENS,
    WEIGHTS,
    StoredModel,
)
from seqgen.store.places import home, models_folder
from seqgen.store.writing import Log

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "FORMAT",
    "LAST",
    "LATEST",
    "LOCK",
    "METRICS",
    "RECORD",
    "SAMPLES",
    "VALIDATION",
    "VALIDATION_TOKENS",
    "WEIGHTS",
    "Log",
    "StoredMixture",
    "StoredModel",
    "as_given",
    "cached_files",
    "check_free",
    "check_name",
    "clear_tokens",
    "create",
    "find",
    "find_all",
    "home",
    "keep_text",
    "list_models",
    "models_folder",
    "now",
    "remove",
    "removed_if_stillborn",
    "rename",
    "text_of",
    "tokens_folder",
]

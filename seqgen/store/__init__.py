"""Trained models on disk: a folder each, found by name, by path, or as the latest."""

from seqgen.store.building import NewModel, building, clean
from seqgen.store.elsewhere import KeptElsewhere
from seqgen.store.finding import (
    LATEST,
    LONGEST_NAME,
    check_free,
    check_name,
    find,
    find_all,
    find_parts,
    is_free,
    list_models,
    now,
    rename,
)
from seqgen.store.kept_data import (
    cached_files,
    clear_cache,
    keep_text,
    measurements,
    text_of,
    tokens_folder,
)
from seqgen.store.layout import (
    CHECKPOINTS,
    CONFIG,
    FORMAT,
    LABELS,
    LAST,
    LOCK,
    METRICS,
    RECORD,
    SAMPLES,
    SOURCE_TOKENIZER,
    TOKENIZER,
    VALIDATION,
    VALIDATION_PAIRS,
    VALIDATION_TOKENS,
    VALIDATION_VECTORS,
    WEIGHTS,
)
from seqgen.store.mixture_parts import mixture_weights, parts_now, write_mixture
from seqgen.store.model import StoredModel
from seqgen.store.origins import origins_of
from seqgen.store.places import home, models_folder, studies_folder
from seqgen.store.removing import check_removable, needing, remove
from seqgen.store.results import bits_record, leaves_unknowns_out, result_of
from seqgen.store.stored_mixture import StoredMixture, as_given
from seqgen.store.writing import MetricsLog

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "FORMAT",
    "LABELS",
    "LAST",
    "LATEST",
    "LOCK",
    "LONGEST_NAME",
    "METRICS",
    "RECORD",
    "SAMPLES",
    "SOURCE_TOKENIZER",
    "TOKENIZER",
    "VALIDATION",
    "VALIDATION_PAIRS",
    "VALIDATION_TOKENS",
    "VALIDATION_VECTORS",
    "WEIGHTS",
    "KeptElsewhere",
    "MetricsLog",
    "NewModel",
    "StoredMixture",
    "StoredModel",
    "as_given",
    "bits_record",
    "building",
    "cached_files",
    "check_free",
    "check_name",
    "check_removable",
    "clean",
    "clear_cache",
    "find",
    "find_all",
    "find_parts",
    "home",
    "is_free",
    "keep_text",
    "leaves_unknowns_out",
    "list_models",
    "measurements",
    "mixture_weights",
    "models_folder",
    "needing",
    "now",
    "origins_of",
    "parts_now",
    "remove",
    "rename",
    "result_of",
    "studies_folder",
    "text_of",
    "tokens_folder",
    "write_mixture",
]

"""Trained models on disk: one folder each, found by name, by path, or as the latest."""

from seqgen.store.cache import (
    cached_files,
    clear_cache,
    data_of,
    foreign_files,
    keep_text,
    kept_index_files,
    measurements,
    text_of,
    tokens_folder,
)
from seqgen.store.finding import (
    LONGEST_NAME,
    check_free,
    check_name,
    find,
    find_all,
    find_parts,
    is_free,
    is_stored,
    list_models,
    now,
    origins_of,
    rename,
    with_parts,
)
from seqgen.store.folder import MetricsLog
from seqgen.store.layout import (
    CHECKPOINTS,
    CONFIG,
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
    WEIGHTS,
    home,
    models_folder,
    studies_folder,
)
from seqgen.store.lifecycle import building, check_removable, clean, dependent_models, remove
from seqgen.store.mixtures import StoredMixture, mixture_weights, model_argument, write_mixture
from seqgen.store.model import ReadOnlyModel, StoredModel
from seqgen.store.results import (
    awaits_mixture,
    awaits_validation,
    bits_record,
    is_unfinished,
    leaves_unknowns_out,
    result_of,
)

"""Frozen, documented, validated settings: the base of every configuration, and training's own."""

from seqgen.configs.config_files import read_config, resolve, settings_of
from seqgen.configs.data import DOCUMENTS, DataConfig, Direction, Documents
from seqgen.configs.model import DROPOUT_BY_OVERFITTING_RATIO, ModelConfig, Size, by_ratio
from seqgen.configs.option_values import PRECISIONS, choice, count_of, no_text, texts
from seqgen.configs.regimes import REGIMES, RegimeConfig
from seqgen.configs.search import SHARED_SEARCH, Choices, Dimension, Span, read_search
from seqgen.configs.settings import (
    MOST_LAYERS,
    MOST_NATS,
    MOST_RATE,
    MOST_ROWS,
    MOST_SEED,
    MOST_STEPS,
    MOST_TOKENS,
    MOST_WIDTH,
    Bounds,
    Config,
    conform,
    require,
    setting,
    short,
)
from seqgen.configs.training import (
    BUDGETS,
    DEFAULT_MINUTES,
    FINISHED,
    RESUMABLE,
    TrainingConfig,
    Windows,
    recipe_of,
    with_default_budget,
)
from seqgen.errors import UsageError

__all__ = [
    "BUDGETS",
    "DEFAULT_MINUTES",
    "DOCUMENTS",
    "DROPOUT_BY_OVERFITTING_RATIO",
    "FINISHED",
    "MOST_LAYERS",
    "MOST_NATS",
    "MOST_RATE",
    "MOST_ROWS",
    "MOST_SEED",
    "MOST_STEPS",
    "MOST_TOKENS",
    "MOST_WIDTH",
    "PRECISIONS",
    "REGIMES",
    "RESUMABLE",
    "SHARED_SEARCH",
    "Bounds",
    "Choices",
    "Config",
    "DataConfig",
    "Dimension",
    "Direction",
    "Documents",
    "ModelConfig",
    "RegimeConfig",
    "Size",
    "Span",
    "TrainingConfig",
    "UsageError",
    "Windows",
    "by_ratio",
    "choice",
    "conform",
    "count_of",
    "no_text",
    "read_config",
    "read_search",
    "recipe_of",
    "require",
    "resolve",
    "setting",
    "settings_of",
    "short",
    "texts",
    "with_default_budget",
]

"""Frozen, documented, validated settings: the base of every configuration, and training's own."""

from seqgen.configs.config_files import read_config, resolve, settings_of
from seqgen.configs.data import DOCUMENTS, DataConfig, Direction, Documents
from seqgen.configs.model import ModelConfig, Size, by_ratio
from seqgen.configs.options import (
    PRECISIONS,
    READING_PRECISIONS,
    choice,
    count_of,
)
from seqgen.configs.regimes import REGIMES, RegimeConfig
from seqgen.configs.settings import (
    MOST_LAYERS,
    MOST_NATS,
    MOST_RATE,
    MOST_ROWS,
    MOST_SEED,
    MOST_STEPS,
    MOST_TOKENS,
    MOST_WIDTH,
    SHARED_SEARCH,
    Bounds,
    Choices,
    Config,
    Dimension,
    Span,
    conform,
    no_text,
    read_search,
    require,
    setting,
    short,
    texts,
)
from seqgen.configs.training import (
    BUDGETS,
    FINISHED,
    RESUMABLE,
    TrainingConfig,
    Windows,
    recipe_of,
    with_default_budget,
)
from seqgen.errors import UsageError

"""Settings: the base class of every configuration, and the settings of data, models and regimes."""

from seqgen.errors import UsageError
from seqgen.files import parse_toml
from seqgen.settings.config_files import (
    flatten_settings,
    read_config,
    resolve,
    unknown_setting,
)
from seqgen.settings.data import DataConfig, Direction, Documents
from seqgen.settings.model import ModelConfig, Size, look_up_ratio
from seqgen.settings.options import (
    CHOSEN,
    PANELS,
    WHOLE_NUMBERS,
    NumberFormat,
    Options,
    Panel,
    Precision,
    ReadingPrecision,
    group,
    is_group,
    parse_count,
    redeclare,
    settings_group,
    with_default,
)
from seqgen.settings.regimes import DEFAULT_REGIME, READING_REGIMES, REGIMES, RegimeConfig
from seqgen.settings.setting import (
    MOST_LAYERS,
    MOST_NATS,
    MOST_RATE,
    MOST_SEED,
    MOST_STEPS,
    MOST_TOKENS,
    MOST_WIDTH,
    NO_BOUNDS,
    ONE_MODEL,
    REQUIRED,
    Bounds,
    Choices,
    Config,
    Dimension,
    Flag,
    OptionRule,
    Span,
    argument,
    check_rules,
    conform,
    file_argument,
    require,
    setting,
    shorten,
    why_not_utf8,
)

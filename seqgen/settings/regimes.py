"""Training regimes: settings of what the model reads and which loss is minimised."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from seqgen.errors import look_up
from seqgen.settings import ranges
from seqgen.settings.options import Panel
from seqgen.settings.setting import Config, require, setting

Regime = Literal[
    "teacher-forcing",
    "scheduled",
    "free-running",
    "professor-forcing",
    "minimum-risk",
    "decoding",
    "unlikelihood",
]
REGIMES: tuple[str, ...] = get_args(Regime)
DEFAULT_REGIME = "teacher-forcing"
# In these the model only reads texts; in the others it writes some of its own. In some it writes
# all but a prefix.
READING_REGIMES = (DEFAULT_REGIME, "unlikelihood")
WRITING_REGIMES = ("free-running", "professor-forcing", "minimum-risk", "decoding")
# k of each kind of decay (Bengio et al. 2015, section 2.4).
DECAYS = {"linear": 1.0, "exponential": 0.97, "inverse-sigmoid": 15.0}


def regime_setting(
    *regimes: str, doc: str, usual: Any = None, by_default: str = "", **about: Any
) -> Any:
    """Declare a setting that only some regimes have; those of other regimes stay None.

    Args:
        regimes: their names.
        doc: what it means, in a line.
        usual: its value if it is not given; None where that follows from the data or from others.
        by_default: that value in words; by default it is written as it is.
        about: see `setting`.
    """
    value = by_default or (f"{usual:g}" if isinstance(usual, float) else usual)
    field = setting(f"regime {', '.join(regimes)}: {doc}; by default {value}.", None, **about)
    owned = {"regimes": regimes, "usual": usual}
    return dataclasses.field(default=None, metadata={**field.metadata, **owned})


class Phase(NamedTuple):
    """A phase of training: one regime, from one share of the budget to another."""

    regime: str
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class RegimeConfig(Config):
    """Settings of the training regime: the model's input and the loss.

    The settings of a regime that is used get their values at construction if they are None; those
    of other regimes stay None.
    """

    regime: Regime = setting(
        "What the model reads while it trains, and what is minimised: the real text "
        "(teacher-forcing), real and own tokens mixed (scheduled), its own text (free-running), "
        "the real text judged by a discriminator (professor-forcing), the expected cost of sampled "
        "texts (minimum-risk), the cost of its own output (decoding), or the real text with a "
        "penalty on repetition (unlikelihood). docs/regimes.md explains each.",
        DEFAULT_REGIME,
        panel=Panel.OPTIMISATION,
        metavar="KIND",
    )
    regime_schedule: str | None = setting(
        "Several regimes one after the other, each with its share of the budget, such as "
        "teacher-forcing:0.5,scheduled:0.5."
    )
    sampling_decay: Literal["linear", "exponential", "inverse-sigmoid"] | None = regime_setting(
        "scheduled", doc="how the probability of reading the real token falls", usual="linear"
    )
    sampling_unit: Literal["token", "sequence"] | None = regime_setting(
        "scheduled",
        doc="choose between real and own tokens anew for each token, or once for each window, "
        "document or pair",
        usual="token",
    )
    sampling_k: float | None = regime_setting(
        "scheduled",
        doc="the decay's k",
        by_default="1 for linear, 0.97 for exponential, 15 for inverse-sigmoid",
        bounds=ranges.UP_TO_1000,
    )
    sampling_slope: float | None = regime_setting(
        "scheduled",
        doc="of a linear decay, how much the probability falls with each hundredth of the budget",
        by_default="0.01",
        bounds=ranges.SHARES,
    )
    sampling_floor: float | None = regime_setting(
        "scheduled",
        doc="of a linear decay, the probability falls no lower than this",
        by_default="0.5",
        bounds=ranges.SHARES,
    )
    prefix: int | None = regime_setting(
        *WRITING_REGIMES,
        doc="number of real tokens that each text begins with",
        by_default="1 for pairs, and a quarter of the window or document for text",
        bounds=ranges.TOKENS,
    )
    unlikelihood_weight: float | None = regime_setting(
        "unlikelihood", doc="weight of the penalty", usual=1.0, bounds=ranges.WEIGHTS
    )
    adversarial_weight: float | None = regime_setting(
        "professor-forcing",
        doc="weight of the discriminator's verdict in what the model minimises",
        usual=1.0,
        bounds=ranges.WEIGHTS,
    )
    discriminator_size: int | None = regime_setting(
        "professor-forcing", doc="width of the discriminator", usual=64, bounds=ranges.WIDTHS
    )
    discriminator_lr: float | None = regime_setting(
        "professor-forcing",
        doc="learning rate of the discriminator",
        usual=1e-3,
        bounds=ranges.RATES,
    )
    cost: Literal["bleu", "chrf", "edit"] | None = regime_setting(
        "minimum-risk",
        "decoding",
        doc="what a written text costs: 1 - sentence BLEU, 1 - chrF, or the edit distance in "
        "tokens over the longer length",
        usual="chrf",
    )
    risk_samples: int | None = regime_setting(
        "minimum-risk",
        doc="number of texts sampled for each source or prefix",
        usual=8,
        bounds=ranges.FROM_1_TO_1000,
    )
    risk_sharpness: float | None = regime_setting(
        "minimum-risk",
        doc="alpha, the power of the texts' probabilities",
        usual=5e-3,
        bounds=ranges.UP_TO_1000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        used = {phase.regime for phase in self.phases}
        for name, field in self.fields().items():
            regimes, given = field.metadata.get("regimes"), getattr(self, name)
            if regimes and used.isdisjoint(regimes):
                needed = " or ".join(f"--regime {regime}" for regime in regimes)
                require(given is None, f"{name} has no meaning without {needed}")
            elif regimes and given is None:
                object.__setattr__(self, name, field.metadata["usual"])
        if "scheduled" in used:
            self._fill_in_decay()

    def _fill_in_decay(self) -> None:
        """Complete and check the decay of scheduled sampling: k, slope and floor."""
        kind, k = self.sampling_decay, self.sampling_k
        k = DECAYS[kind] if k is None else k
        object.__setattr__(self, "sampling_k", k)
        if kind == "inverse-sigmoid":
            require(k >= 1, f"sampling_k of an inverse-sigmoid decay must be at least 1, not {k:g}")
        else:
            require(k <= 1, f"sampling_k of this decay must be at most 1, not {k:g}")
        for name, value in (("sampling_slope", 0.01), ("sampling_floor", 0.5)):
            given = getattr(self, name)
            if kind == "linear":
                object.__setattr__(self, name, value if given is None else given)
            else:
                require(given is None, f"{name} has no meaning without sampling_decay=linear")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of training, each a regime with its part of the budget.

        Raises:
            UsageError: the schedule cannot be read, or its shares do not add up to 1.
        """
        if self.regime_schedule is None:
            return (Phase(self.regime, 0.0, 1.0),)
        require(
            self.regime == DEFAULT_REGIME, "give --regime or --set regime_schedule=..., not both"
        )
        phases, begin = [], 0.0
        for part in self.regime_schedule.split(","):
            name, _, share = part.strip().partition(":")
            regime = look_up("regime", name, dict(zip(REGIMES, REGIMES, strict=True)))
            phases.append(Phase(regime, begin, begin + _share(part, share)))
            begin = phases[-1].end
        require(
            math.isclose(begin, 1.0, abs_tol=1e-6),
            f"the shares of regime_schedule must add up to 1, not {begin:g}",
        )
        return tuple(phases)


def _share(part: str, text: str) -> float:
    """Parse the share of the budget in a phase such as `scheduled:0.5`.

    Raises:
        UsageError: it is no number, or not above 0 and at most 1.
    """
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    require(
        0 < share <= 1,
        "regime_schedule is REGIME:SHARE,REGIME:SHARE,... with shares above 0 and at most 1, not "
        f"{part.strip()!r}",
    )
    return share

"""Training regimes: settings of what the model reads and which loss is minimised."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
# In these the model only reads texts; in the others it writes some of its own.
READING_REGIMES = (DEFAULT_REGIME, "unlikelihood")
# k of each kind of decay (Bengio et al. 2015, section 2.4).
DECAYS = {"linear": 1.0, "exponential": 0.97, "inverse-sigmoid": 15.0}
# The settings that only some regimes have, with the value that one which is not given gets; None
# where it follows from the data.
OWNERS: Mapping[str, tuple[str, ...]] = {
    "sampling_decay": ("scheduled",),
    "sampling_unit": ("scheduled",),
    "sampling_k": ("scheduled",),
    "sampling_slope": ("scheduled",),
    "sampling_floor": ("scheduled",),
    "prefix": ("free-running", "professor-forcing", "minimum-risk", "decoding"),
    "unlikelihood_weight": ("unlikelihood",),
    "adversarial_weight": ("professor-forcing",),
    "discriminator_size": ("professor-forcing",),
    "discriminator_lr": ("professor-forcing",),
    "cost": ("minimum-risk", "decoding"),
    "risk_samples": ("minimum-risk",),
    "risk_sharpness": ("minimum-risk",),
}
VALUES: Mapping[str, Any] = {
    "sampling_decay": "linear",
    "sampling_unit": "token",
    "unlikelihood_weight": 1.0,
    "adversarial_weight": 1.0,
    "discriminator_size": 64,
    "discriminator_lr": 1e-3,
    "cost": "chrf",
    "risk_samples": 8,
    "risk_sharpness": 5e-3,
}


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
    sampling_decay: Literal["linear", "exponential", "inverse-sigmoid"] | None = setting(
        "regime scheduled: how the probability of reading the real token falls; by default linear."
    )
    sampling_unit: Literal["token", "sequence"] | None = setting(
        "regime scheduled: choose between real and own tokens anew for each token, or once for "
        "each window, document or pair; by default token."
    )
    sampling_k: float | None = setting(
        "regime scheduled: the decay's k; by default 1 for linear, 0.97 for exponential, 15 for "
        "inverse-sigmoid.",
        bounds=ranges.UP_TO_1000,
    )
    sampling_slope: float | None = setting(
        "regime scheduled, linear decay: how much the probability falls with each hundredth of "
        "the budget; by default 0.01.",
        bounds=ranges.SHARES,
    )
    sampling_floor: float | None = setting(
        "regime scheduled, linear decay: the probability falls no lower than this; by default 0.5.",
        bounds=ranges.SHARES,
    )
    prefix: int | None = setting(
        "Regimes that write: number of real tokens that each text begins with; by default 1 for "
        "pairs, and a quarter of the window or document for text.",
        bounds=ranges.TOKENS,
    )
    unlikelihood_weight: float | None = setting(
        "regime unlikelihood: weight of the penalty; by default 1.", bounds=ranges.WEIGHTS
    )
    adversarial_weight: float | None = setting(
        "regime professor-forcing: weight of the discriminator's verdict in what the model "
        "minimises; by default 1.",
        bounds=ranges.WEIGHTS,
    )
    discriminator_size: int | None = setting(
        "regime professor-forcing: width of the discriminator; by default 64.", bounds=ranges.WIDTHS
    )
    discriminator_lr: float | None = setting(
        "regime professor-forcing: learning rate of the discriminator; by default 0.001.",
        bounds=ranges.RATES,
    )
    cost: Literal["bleu", "chrf", "edit"] | None = setting(
        "regimes minimum-risk and decoding: what a written text costs: 1 - sentence BLEU, "
        "1 - chrF, or the edit distance in tokens over the longer length; by default chrf."
    )
    risk_samples: int | None = setting(
        "regime minimum-risk: number of texts sampled for each source or prefix; by default 8.",
        bounds=ranges.FROM_1_TO_1000,
    )
    risk_sharpness: float | None = setting(
        "regime minimum-risk: alpha, the power of the texts' probabilities; by default 0.005.",
        bounds=ranges.UP_TO_1000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        used = {phase.regime for phase in self.phases}
        for name, owners in OWNERS.items():
            if used.isdisjoint(owners):
                needed = " or ".join(f"--regime {owner}" for owner in owners)
                require(getattr(self, name) is None, f"{name} has no meaning without {needed}")
            elif getattr(self, name) is None:
                object.__setattr__(self, name, VALUES.get(name))
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

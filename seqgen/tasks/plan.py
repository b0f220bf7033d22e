"""What is to be trained and how: the user's settings, and what follows from text and machine."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from seqgen import presets, registry
from seqgen.configs import (
    BUDGETS,
    RULE_RECIPES,
    DataConfig,
    ModelConfig,
    TrainingConfig,
    conform,
    require,
    resolve,
    settings_of,
    with_default_budget,
)
from seqgen.data.batches import Batches
from seqgen.errors import UsageError
from seqgen.models.base import LanguageModel
from seqgen.models.precision import Precision, choose_precision, own_randomness, parameter_type
from seqgen.tasks.fine_tune import Origin, architecture_of, origin_of
from seqgen.tasks.prepare import Prepared
from seqgen.training.events import Notice, Report
from seqgen.training.speed import compiled_speedup, speed_at_first

# Compiling takes up to a minute: from so many minutes of training on, if steps are so much faster.
COMPILED_FROM_MINUTES, LEAST_SPEEDUP = 10, 1.03


def override(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of both; those above win, and any budget above drops those below."""
    if any(above.get(name) is not None for name in BUDGETS):
        below = {name: value for name, value in below.items() if name not in BUDGETS}
    return {**below, **above}


@dataclass(frozen=True)
class Plan:
    """What is to be trained, before any text is read.

    Attributes:
        architecture: its name.
        model_class: its class.
        origin: the model it begins from, if any.
        given: the settings by name, but for those of the recipe.
        model: those of the model.
        training: how it is trained.
        data: how text is read.
    """

    architecture: str
    model_class: type[LanguageModel]
    origin: Origin | None
    given: dict[str, Any]
    model: dict[str, Any]
    training: TrainingConfig
    data: DataConfig

    def model_config(self, vocab_size: int, seq_len: int) -> ModelConfig:
        """Return the model's configuration, with what follows from the text and from training."""
        if self.origin is not None:
            return self.origin.config(self.given, seq_len)
        config_class = registry.architecture(self.architecture).load_config()
        follows = {"vocab_size": vocab_size, "window": seq_len}
        derived = {name: follows[name] for name in config_class.derived}
        return config_class(**derived, **self.model)

    def suited(self, prepared: Prepared, device: torch.device, report: Report) -> Plan:
        """Return the plan with the settings that suit the minutes there are; what is given stays.

        What decides is measured, and so only where something is left to decide.
        """
        config_class = registry.architecture(self.architecture).load_config()
        sizes = self._possible(config_class.sizes)
        chosen = _without(self.given, {**sizes[0], **config_class.regularised(1.0)})
        if self.training.minutes is None or self.origin is not None or not chosen:
            return self
        training = self.fitted(prepared, device, lambda event: None)
        batches = prepared.batches(training, self.data, self.model_class.carries_state)
        vocab_size = prepared.tokenizer.vocab_size
        for size in sizes:
            plan = self._having(size)
            speed, parameters = plan._tried(vocab_size, training, batches, device)
            tokens = 60 * self.training.minutes * speed
            if tokens >= config_class.tokens_for_size:
                break
        corpus = prepared.train.tokens.size
        passes = tokens / corpus
        regularised = config_class.regularised(passes * parameters / corpus)
        chosen = _without(self.given, {**size, **regularised})
        settings = ", ".join(f"{name} {value}" for name, value in chosen.items())
        why = f"so that {tokens:,.0f} tokens, {passes:.1f} passes over the text, fit the time"
        report(Notice(text=f"{self.architecture} with {settings}, {why}"))
        return self._having(chosen)

    def _possible(self, sizes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return what the sizes leave open, but for those that what is given does not allow."""
        found: list[dict[str, Any]] = []
        for size in sizes:
            size = _without(self.given, size)
            with contextlib.suppress(UsageError):
                self._having(size).model_config(1, self.training.seq_len)
                if size not in found:
                    found.append(size)
        return found

    def _having(self, settings: Mapping[str, Any]) -> Plan:
        groups = _groups(self.architecture, {**self.given, **settings})
        return replace(self, **dict(zip(("model", "training", "data"), groups, strict=True)))

    def _tried(
        self, vocab_size: int, training: TrainingConfig, batches: Batches, device: torch.device
    ) -> tuple[float, int]:
        """Return how many tokens a second the model as it is trains on, and its parameters."""
        training = replace(training, precision=self._precision(training, device))
        with own_randomness(device):
            model = self._untrained(vocab_size, training, device)
            return speed_at_first(model, batches, training), model.parameter_count()

    def _untrained(
        self, vocab_size: int, training: TrainingConfig, device: torch.device
    ) -> LanguageModel:
        torch.manual_seed(training.seed)
        model = self.model_class(self.model_config(vocab_size, training.seq_len))
        return model.to(device=device, dtype=parameter_type(training.precision))

    def compiled(
        self, training: TrainingConfig, prepared: Prepared, device: torch.device, report: Report
    ) -> TrainingConfig:
        """Settle whether steps are compiled: in long runs, where a trial shows that it pays."""
        if training.compile is not None:
            return training
        long = training.minutes is not None and training.minutes >= COMPILED_FROM_MINUTES
        # Documents of many lengths would need code for each.
        if not (long and self.model_class.compiles and self.data.documents == "stream"):
            return replace(training, compile=False)
        batches = prepared.batches(training, self.data, self.model_class.carries_state)
        with own_randomness(device):
            model = self._untrained(prepared.tokenizer.vocab_size, training, device)
            times, why_not = compiled_speedup(model, batches, training)
        pays = times >= LEAST_SPEEDUP
        found = f"{times:.2f} times as fast" if why_not is None else why_not
        report(Notice(text=f"steps are {'' if pays else 'not '}compiled: {found}"))
        return replace(training, compile=pays)

    def fitted(self, prepared: Prepared, device: torch.device, report: Report) -> TrainingConfig:
        """Settle what depends on the text and the machine, so that it is written down once."""
        training, given, corpus = self.training, self.given, prepared.train
        settled: dict[str, Any] = {}
        if training.seq_len > corpus.tokens.size:
            settled["seq_len"] = int(corpus.tokens.size)
            report(Notice(text=f"the text has {corpus.tokens.size} tokens, so --seq-len is that"))
        if "batch_size" not in given and corpus.ends.size > 1:
            # Documents shorter than the window: more of them, so that a step has as many tokens;
            # but not so many that a small corpus is through in a few steps.
            mean = min(training.seq_len, corpus.tokens.size / corpus.ends.size)
            rows = round(training.batch_size * training.seq_len / mean)
            settled["batch_size"] = max(training.batch_size, min(rows, corpus.ends.size // 16))
        if training.init_from is not None and prepared.train.oov:
            report(
                Notice(text=f"{prepared.train.oov:,} tokens are unknown to {training.init_from}")
            )
        if given.get("seed") is None:
            settled["seed"] = secrets.randbelow(1 << 31)
        training = replace(training, **settled)
        return replace(training, precision=self._precision(training, device))

    def _precision(self, training: TrainingConfig, device: torch.device) -> Precision:
        """Return what the user's precision means for this model on this machine."""
        shape = self.model_config(1, training.seq_len)
        large = shape.suits_bf16(training.batch_size, training.seq_len)
        return choose_precision(self.training.precision, device, large)


def preset_of(
    name: str | None, architecture: str | None, config: Mapping[str, Any]
) -> presets.Preset | None:
    """Return the preset that the user or the configuration file names, if any.

    Raises:
        UsageError: there is none of that name, or something else is meant to be trained.
    """
    in_file = conform("preset", config.get("preset"), str | None)
    name = in_file if name is None else name
    if name is None:
        return None
    require(in_file in (None, name), f"--preset {name}: the configuration file has {in_file}")
    preset = presets.preset(name)
    named = architecture or config.get("architecture")
    same = named in (None, preset.architecture)
    require(same, f"the preset {name} is for --model {preset.architecture}, not {named}")
    return preset


def plan_of(
    architecture: str | None,
    preset: presets.Preset | None,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    flags: Collection[str],
) -> Plan:
    """Put together the user's settings, the file's, the preset's, the origin's, the recipe's.

    Raises:
        UsageError: a setting is unknown or wrong, or settled by something else.
        SeqgenError: there is no such model to begin from.
    """
    origin = origin_of({**settings_of(config), **settings})
    if origin is not None:
        origin.require_own(architecture, flags)
    named = architecture or (preset and preset.architecture)
    architecture = architecture_of(origin, named, config)
    kind = registry.architecture(architecture)
    config_class, model_class = kind.load_config(), kind.load_model()
    given = override(preset.settings if preset else {}, settings_of(config, config_class))
    given = override(given, settings)
    if origin is not None:
        given = origin.settings(given)
    groups = _groups(architecture, given)
    plan = Plan(architecture, model_class, origin, given, *groups)
    _require_sense(plan.training, plan.data, model_class)
    plan.model_config(1, plan.training.seq_len)  # for its checks alone
    return plan


def _without(given: Collection[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in given}


def _groups(
    architecture: str, given: Mapping[str, Any]
) -> tuple[dict[str, Any], TrainingConfig, DataConfig]:
    """Deal out what is given, and below it the recipe: model, training, data."""
    config_class = registry.architecture(architecture).load_config()
    recipe = {**config_class.recipe, **RULE_RECIPES.get(given.get("optimizer"), {})}
    model, training, data = resolve(
        {**recipe, **given}, architecture, (config_class, TrainingConfig, DataConfig)
    )
    return model, with_default_budget(TrainingConfig(**training)), DataConfig(**data)


def _require_sense(
    training: TrainingConfig, data: DataConfig, model_class: type[LanguageModel]
) -> None:
    """Refuse settings that the other groups leave without a meaning.

    Raises:
        UsageError: names the setting.
    """
    carries = model_class.carries_state and not training.reset_state
    require(training.k2 is None or carries, "k2 is for models that carry their state along")
    validates = data.val != "none"
    require(training.patience is None or validates, "patience needs validation: no --val none")
    compiles = not model_class.counted and model_class.compiles
    require(
        not training.compile or compiles,
        "compile=true is for the transformer; other models have nothing to compile",
    )

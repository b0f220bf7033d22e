"""Tasks: facts about each kind of task, and the names of the parts that implement it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Settings that only some kinds of data give a meaning to.
OF_WINDOWS = ("seq_len",)
OF_TARGETS = ("source_tokenizer", "val_target", "max_target_len")
OF_PAIRS = (*OF_TARGETS, "source_unknowns", "max_source_len", "batch_tokens")


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A kind of task. Code outside this package asks for its facts, never for its name.

    Attributes:
        name: what it is called; of those with a `head`, the value of `--task` too.
        learns: what a model learns from, for messages.
        try_it: the command that a new model is for, and what to give it.
        serves: commands that are for its models alone, or that treat them in a way of their own,
            and the "module:name" of the function that does.
        model_is: what its models are, where they are no language models, and which commands are
            for them; None for language models.
        unit: what a loss is a mean over.
        data_defaults: settings of data whose defaults are others than in general.
        meaningless: settings that have no meaning.
        fixed: settings of data that can have one value only.
        inherits: of the fixed settings, those that a model which training begins from may have
            otherwise.
        longest: the setting that limits how long a row is, where rows are never cut; None where
            they are windows of `seq_len` tokens.
        stops_early: training may stop by itself once a text is learned by heart.
        beside_ngrams: n-gram models learn from the same data, and can be mixed with its models.
        gives_features: an encoder can read the features of its models (`--features`).
        takes_targets: each text is a target with a source, and targets may come in files of their
            own (`--target`).
        shows_attention: its models, though no language models, have attention that can be shown.
        stored_as: what the configuration of a mixture calls it.
        head: "module:name" of what makes a model class of the class whose features it learns on;
            None where a model learns by itself.
        array_head: the same of array models.
        head_config: "module:name" of what makes its configuration class of that of the features.
        default_trunk: the architecture that has these features, if none is named.
        features: "module:name" of the `training.fine_tune.FeatureSource` of its models: another
            model whose features they read too (`--features`); None where they read none.
        example_format: how its examples stand in files, for the help of `--task`.
        head_settings: the settings that such a model has besides those of the features, with their
            defaults.
        head_recipe: the training settings that are its defaults on a language model's features.
        called: what a model with such a head is called: it ends the name of the architecture.
        dataset: "module:name" of the `Dataset` that reads what it learns from.
        validation: "module:name" of the `Validation` of its models.
        labelled: the task that `--labels` makes of it; None where there can be no labels.
    """

    name: str
    learns: str
    try_it: str
    dataset: str = "seqgen.training.datasets.text:TextDataset"
    validation: str = "seqgen.training.validations:TextValidation"
    serves: Mapping[str, str] = field(default_factory=dict)
    model_is: str | None = None
    unit: str = "token"
    data_defaults: Mapping[str, Any] = field(default_factory=dict)
    meaningless: tuple[str, ...] = OF_PAIRS
    fixed: Mapping[str, Any] = field(default_factory=lambda: {"direction": "forward"})
    inherits: tuple[str, ...] = ()
    longest: str | None = None
    stops_early: bool = False
    beside_ngrams: bool = False
    gives_features: bool = False
    takes_targets: bool = False
    shows_attention: bool = False
    stored_as: str | None = None
    head: str | None = None
    array_head: str | None = None
    head_config: str | None = None
    default_trunk: str | None = None
    features: str | None = None
    example_format: str = ""
    head_settings: Mapping[str, Any] = field(default_factory=dict)
    head_recipe: Mapping[str, Any] = field(default_factory=dict)
    called: str | None = None
    labelled: Task | None = None

    def of(self, labels: bool) -> Task:
        """Return the task itself, or its labelled variant (`--labels`)."""
        return self.labelled if labels and self.labelled is not None else self

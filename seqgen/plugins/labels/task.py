"""Tasks of this plugin: classification, tagging, masked language modelling, and ELMo."""

from __future__ import annotations

from dataclasses import replace

from seqgen.tasks.task import OF_TARGETS, OF_WINDOWS, Task

# The training settings that suit most networks with such a head.
RECIPE = {"optimizer": "adamw", "lr": 2e-3, "batch_size": 32, "weight_decay": 0.01}

CLASSIFICATION = Task(
    name="classify",
    learns="texts with a label",
    try_it="predict FILE",
    dataset="seqgen.plugins.labels.datasets:LabelledTextDataset",
    validation="seqgen.plugins.labels.validation:LabelValidation",
    serves={
        "predict": "seqgen.plugins.labels.predict:predict",
        "eval": "seqgen.plugins.labels.scores_output:LABEL_SCORES",
        "compare": "seqgen.plugins.labels.scores_output:LABEL_COMPARISON",
    },
    model_is="is a classifier, no language model: use seqgen predict and seqgen eval",
    unit="label",
    data_defaults={"documents": "line", "source_unknowns": 0.01},
    meaningless=(*OF_WINDOWS, *OF_TARGETS, "subword_sampling"),
    fixed={"direction": "forward", "documents": "line"},
    inherits=("documents",),
    longest="max_source_len",
    stops_early=True,
    head="seqgen.plugins.labels.models.labeller:classifier_of",
    array_head="seqgen.plugins.labels.models.labeller_arrays:classifier_of",
    head_config="seqgen.plugins.labels.settings:labelling_config",
    default_trunk="birnn",
    features="seqgen.plugins.labels.feature_model:FeatureModel",
    example_format="text<TAB>label, a line each",
    head_settings={"pooling": None},
    head_recipe=RECIPE,
    called="classifier",
)
TAGGING = replace(
    CLASSIFICATION,
    name="tag",
    learns="sentences with a tag for each word",
    dataset="seqgen.plugins.labels.datasets:TaggedSentenceDataset",
    model_is="is a tagger, no language model: use seqgen predict and seqgen eval",
    data_defaults={"documents": "line", "tokenizer": "whitespace", "source_unknowns": 0.02},
    head="seqgen.plugins.labels.models.labeller:tagger_of",
    array_head="seqgen.plugins.labels.models.labeller_arrays:tagger_of",
    example_format="columns, word<TAB>tag, with an empty line after each sentence",
    called="tagger",
)
# Hidden tokens are predicted from those on both sides.
MASKED_LM = Task(
    name="masked-lm",
    learns="a text",
    try_it='fill "a [MASK] text"',
    validation="seqgen.plugins.labels.validation:MaskedValidation",
    serves={
        "fill": "seqgen.plugins.labels.fill:fill",
        "perplexity": "seqgen.plugins.labels.pseudo_perplexity_command:PSEUDO_PERPLEXITY",
    },
    model_is="is a masked model, no language model: use seqgen fill, seqgen perplexity, "
    "seqgen inspect --attention, or --init-from with --task",
    shows_attention=True,
    data_defaults={"tokenizer": "bpe"},
)
# Two language models share weights, one from each end of a text, for their features. Each direction
# needs to know the end where it begins.
BIDIRECTIONAL = Task(
    name="bidirectional-lm",
    learns="a text from both of its ends",
    try_it="perplexity",
    validation="seqgen.plugins.labels.validation:BothWaysValidation",
    model_is="reads a text from both of its ends and writes none: use seqgen train --features, "
    "seqgen vectors, or seqgen perplexity for each direction",
    data_defaults={"documents": "line", "tokenizer": "whitespace"},
    gives_features=True,
)

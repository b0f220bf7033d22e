"""Masked language modeling: hidden tokens are predicted from those on both sides."""

from __future__ import annotations

from seqgen.tasks.task import Task

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

"""A kind of task of the tests' own: whether the second of two sentences goes with the first."""

from seqgen.tasks.task import OF_TARGETS, OF_WINDOWS, Task

PAIRS_WITH_LABEL = Task(
    name="sentence-pairs",
    learns="pairs of sentences with a label",
    try_it="eval FILE",
    dataset="toy_data:SentencePairs",
    validation="seqgen.plugins.labels.validation:LabelValidation",
    serves={"eval": "toy_data:EVAL"},
    model_is="compares two sentences, no language model: use seqgen eval",
    unit="label",
    data_defaults={"documents": "line", "tokenizer": "word"},
    meaningless=(*OF_WINDOWS, *OF_TARGETS, "source_unknowns"),
    fixed={"direction": "forward", "documents": "line"},
    longest="max_source_len",
)

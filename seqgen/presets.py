"""Settings of known models, by name. A new preset is a row here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqgen.errors import named


@dataclass(frozen=True)
class Preset:
    """A known model: its name, its architecture, what it is in one line, and its settings.

    `settings` are fields of the architecture's, the training and the data configuration. What
    they leave out comes from the architecture's recipe, as without a preset. With `needs_origin`
    it fine-tunes a trained model, and has no meaning without one.
    """

    name: str
    architecture: str
    summary: str
    settings: Mapping[str, Any]
    needs_origin: bool = False


# The transformer in the form that GPT-2 gave it (Radford et al. 2019).
GPT2: Mapping[str, Any] = {
    "positions": "learned",
    "norm": "layernorm",
    "activation": "gelu",
    "qk_norm": False,
    "bias": True,
    "tie_weights": True,
}

# The sizes and the training of small transformers for translation.
SMALL_TRANSLATOR: Mapping[str, Any] = {
    "tokenizer": "bpe",
    "num_layers": 3,
    "num_heads": 4,
    "hidden_size": 256,
    "dropout": 0.3,
    "label_smoothing": 0.1,
    "batch_size": 64,
    "optimizer": "muon",
    "lr": 4e-3,
    "epochs": 20.0,
}

# The transformer in the form of Vaswani et al. (2017); sources and targets share their tokens.
FORM_OF_2017: Mapping[str, Any] = {
    "positions": "sinusoidal",
    "norm": "layernorm",
    "norm_position": "post",
    "activation": "relu",
    "qk_norm": False,
    "bias": True,
    "scale_embedding": True,
    "tie_weights": True,
}

# Windows of 50 characters in the order of the text, one a step, each from a zero state. The
# lectures do not name their update rule. They recommend Adam or plain SGD; this is Adam, with the
# settings that they quote (Kingma and Ba 2015).
_LECTURES: Mapping[str, Any] = {
    "tokenizer": "char",
    "input": "onehot",
    "dropout": 0.0,
    "seq_len": 50,
    "batch_size": 1,
    "reset_state": True,
    "windows": "sequential",
    "optimizer": "adam",
    "lr": 1e-3,
    "beta2": 0.999,
    "weight_decay": 0.0,
    "schedule": "constant",
    "warmup": 0.0,
    "clip_norm": 0.0,
}

# Word models of text that is already cut into words, such as Penn Treebank.
_WORDS: Mapping[str, Any] = {
    "tokenizer": "whitespace",
    "input": "embedding",
    "tie_weights": True,
    "warmup": 0.0,
}

# Pre-training as in Devlin et al. (2019), appendix A.2: rows of 512 places, of which two are
# symbols. Nine tenths of their steps have rows of 128 places.
_BERT: Mapping[str, Any] = {
    "mask": 0.15,
    "next_sentence": True,
    "tokenizer": "wordpiece",
    "vocab_size": 30_000,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "seq_len": 510,
    "batch_size": 256,
    "optimizer": "adamw",
    "lr": 1e-4,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.01,
    "clip_norm": 1.0,  # as in the program that they published
    "schedule": "linear",
    "warmup": 0.01,  # 10,000 steps
    "steps": 1_000_000,
}

_ROWS = (
    Preset(
        "lectures-rnn",
        "rnn",
        "an RNN of 64 units from university lectures: one-hot input, windows of 50, 7 epochs",
        {**_LECTURES, "num_layers": 1, "hidden_size": 64, "epochs": 7.0},
    ),
    Preset(
        "lectures-lstm",
        "lstm",
        "an LSTM of 256 units from the same lectures, trained in the same way, 15 epochs",
        {**_LECTURES, "num_layers": 1, "hidden_size": 256, "epochs": 15.0},
    ),
    Preset(
        "gpt",
        "transformer",
        "nanoGPT's recipe for a CPU (Karpathy 2022): GPT-2's form, 4 layers of 128, 2,000 steps",
        {
            **GPT2,
            "bias": False,
            "tokenizer": "char",
            "num_layers": 4,
            "num_heads": 4,
            "hidden_size": 128,
            "dropout": 0.0,
            "seq_len": 64,
            "batch_size": 12,
            "optimizer": "adamw",
            "lr": 1e-3,
            "beta2": 0.99,
            "weight_decay": 0.1,
            "schedule": "cosine",
            "warmup": 0.05,  # 100 steps
            "min_lr": 0.1,
            "steps": 2000,
            "precision": "float32",
        },
    ),
    Preset(
        "awd-lstm",
        "lstm",
        "words as in Merity et al. (2018): 3 LSTM layers of 1150, weights dropped, 500 epochs",
        {
            **_WORDS,
            "num_layers": 3,
            "hidden_size": 1150,
            "embedding_size": 400,
            "last_size": 400,
            "forget_bias": 0.0,
            "variational": True,
            "word_dropout": 0.1,
            "input_dropout": 0.4,
            "dropout": 0.3,
            "output_dropout": 0.4,
            "weight_drop": 0.5,
            "activation_penalty": 2.0,
            "temporal_penalty": 1.0,
            "seq_len": 70,
            "batch_size": 40,
            "optimizer": "sgd",
            "lr": 30.0,
            "momentum": 0.0,
            "weight_decay": 1.2e-6,
            "schedule": "constant",
            "clip_norm": 0.25,
            # In the place of NT-ASGD's mean of the weights; some six epochs of Penn Treebank.
            "ema": 0.9995,
            "epochs": 500.0,
        },
    ),
    Preset(
        "melis-lstm",
        "lstm",
        "the best LSTM of Melis et al. (2018) on Penn Treebank: 4 layers of 723, 100,000 steps",
        {
            **_WORDS,
            "num_layers": 4,
            "hidden_size": 723,
            "forget_bias": 1.0,
            # As the output they take the sum of all layers' outputs, which this makes it.
            "residual": True,
            "input_dropout": 0.6336,
            "dropout": 0.3091,
            "state_dropout": 0.6428,
            "output_dropout": 0.7009,
            "seq_len": 35,
            "batch_size": 64,
            "optimizer": "adam",
            "lr": 3.96e-3,
            "beta1": 0.0,
            "beta2": 0.999,
            "weight_decay": 7.449e-5,
            "schedule": "step",
            "step_share": 0.9,
            "step_factor": 0.1,
            "clip_norm": 10.0,
            "steps": 100_000,
        },
    ),
    Preset(
        "transformer-2017",
        "seq2seq-transformer",
        "the base model of Vaswani et al. (2017): 6 + 6 blocks of 512, 100,000 steps",
        {
            **FORM_OF_2017,
            "tokenizer": "bpe",
            "num_layers": 6,
            "num_heads": 8,
            "hidden_size": 512,
            "ffn_size": 2048,
            "dropout": 0.1,
            "label_smoothing": 0.1,
            "batch_tokens": 25_000,
            "optimizer": "adam",
            "lr": 512**-0.5 * 4000**-0.5,  # their rate at the end of the warm-up, its peak
            "beta2": 0.98,
            "eps": 1e-9,
            "weight_decay": 0.0,
            "clip_norm": 0.0,
            "schedule": "inverse_sqrt",
            "warmup": 0.04,  # 4,000 steps
            # They average the last five checkpoints, some 6,000 steps in all.
            "ema": 0.9995,
            "steps": 100_000,
        },
    ),
    Preset(
        "transformer-small",
        "seq2seq-transformer",
        "a small translator of today: 3 + 3 blocks of 256, pre-norm, RMSNorm, RoPE, SwiGLU, Muon",
        {
            "positions": "rope",
            "norm": "rmsnorm",
            "norm_position": "pre",
            "activation": "swiglu",
            "qk_norm": True,
            "bias": False,
            "tie_weights": True,
            **SMALL_TRANSLATOR,
        },
    ),
    Preset(
        "pegasus-small",
        "seq2seq-transformer",
        "the same in the form of Pegasus, to be exported: pre-norm, LayerNorm, sinusoids, ReLU",
        {
            **FORM_OF_2017,
            "norm_position": "pre",
            **SMALL_TRANSLATOR,
        },
    ),
    Preset(
        "bert-tiny",
        "bert",
        "a small BERT for minutes of a CPU: 2 layers of 128, WordPiece, Muon",
        {
            "tokenizer": "wordpiece",
            "num_layers": 2,
            "num_heads": 2,
            "hidden_size": 128,
            "dropout": 0.1,
            "seq_len": 64,
            "batch_size": 32,
            "optimizer": "muon",
            "lr": 4e-3,
        },
    ),
    Preset(
        "bert-base",
        "bert",
        "BERT-Base (Devlin et al. 2019): 12 layers of 768, 1,000,000 steps",
        {**_BERT, "num_layers": 12, "num_heads": 12, "hidden_size": 768},
    ),
    Preset(
        "bert-large",
        "bert",
        "BERT-Large (Devlin et al. 2019): 24 layers of 1024, 1,000,000 steps",
        {**_BERT, "num_layers": 24, "num_heads": 16, "hidden_size": 1024},
    ),
    # They have 2,048 filters over up to seven characters; here no width has more than 200.
    Preset(
        "elmo",
        "elmo",
        "the language models of Peters et al. (2018): 2 + 2 LSTM layers of 4096, mapped to 512",
        {
            "tokenizer": "whitespace",
            "documents": "line",
            "input": "char-cnn",
            "char_size": 16,
            "char_filters": 200,
            "char_widths": 7,
            "char_length": 50,
            "char_highways": 2,
            "num_layers": 2,
            "hidden_size": 4096,
            "projection": 512,
            "residual": True,
            "epochs": 10.0,
        },
    ),
    # The last of the three steps of Howard and Ruder (2018): --init-from names a language model
    # that has been fine-tuned on the texts. Their chain-thaw takes an epoch a layer.
    Preset(
        "ulmfit",
        "lstm-classifier",
        "a language model fine-tuned into a classifier, layer by layer (Howard and Ruder 2018)",
        {
            "pooling": "all",
            "optimizer": "adam",
            "lr": 1e-2,
            "beta1": 0.7,
            "schedule": "slanted_triangular",
            "layer_decay": 1 / 2.6,
            "unfreeze": 0.5,
        },
        needs_origin=True,
    ),
)

PRESETS: dict[str, Preset] = {row.name: row for row in _ROWS}


def preset(name: str) -> Preset:
    """Return the preset called `name`.

    Raises:
        UsageError: there is none; names the nearest.
    """
    return named("preset", name, PRESETS)

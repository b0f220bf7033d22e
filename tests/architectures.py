"""Tiny models of every architecture in the registry, for the tests that hold for all of them."""

from __future__ import annotations

import copy
import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from helpers_cli import has_plugin, known_smoothings
from torch import Tensor

from seqgen import registry
from seqgen.models.base import LanguageModel, NeuralLanguageModel
from seqgen.models.mixture.model import Mixture
from seqgen.models.mixture.weights import MixtureWeights
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.settings import ModelConfig
from seqgen.settings.scoring import CacheConfig
from seqgen.tasks.language_modeling import LANGUAGE_MODELING
from seqgen.text.corpus import Corpus
from seqgen.training import counting

VOCAB = 7
# What a configuration gets where it has such a field. Nothing here is a default of seqgen.
TINY = {
    "vocab_size": VOCAB,
    "window": 8,
    "hidden_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "dropout": 0.0,
}
FORM_OF_2017 = {
    "positions": "sinusoidal",
    "norm": "layernorm",
    "norm_position": "post",
    "activation": "relu",
    "qk_norm": False,
    "bias": True,
    "scale_embedding": True,
}
GROUPED = {"num_kv_heads": 1, "head_size": 6, "qkv_bias": True, "activation": "gelu-exact"}
GROUPED |= {"rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_window": 6}
YARN = {"rope_scaling": "yarn", "rope_factor": 3.0, "rope_high_factor": 3.0, "rope_gain": 1.1}
YARN |= {"rope_original_window": 40}
MIXED = {"sliding_window": 3, "full_every": 2, "sliding_rope_theta": 100.0}
GPT2 = {
    "positions": "learned",
    "norm": "layernorm",
    "activation": "gelu",
    "qk_norm": False,
    "bias": True,
    "tie_weights": True,
}
RECURRENT = [
    name
    for name, row in registry.ARCHITECTURES.items()
    if issubclass(row.load_model(), RecurrentLM)
]
# An architecture without a row here is tested as its defaults make it.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "rnn": {
        "tanh": {},
        "relu": {"activation": "relu"},
        "onehot": {"input": "onehot"},
        "residual": {"residual": True, "num_layers": 3},
        "tied": {"tie_weights": True},
        "narrow": {"embedding_size": 5, "num_layers": 1},
    },
    "gru": {
        "after": {"reset": "after"},
        "before": {"reset": "before"},
        "onehot": {"reset": "before", "input": "onehot"},
    },
    "lstm": {
        "plain": {},
        "onehot": {"input": "onehot"},
        "residual": {"residual": True},
        "tied": {"tie_weights": True, "num_layers": 1},
        "dense": {"dense": True, "num_layers": 3, "embedding_size": 5, "last_size": 6},
        "dense-onehot": {"dense": True, "input": "onehot"},
        "projected": {"projection": 5, "peepholes": True, "layer_norm": True, "residual": True},
        "pointer": {"pointer": 4, "num_layers": 1, "embedding_size": 5},
    },
    "transformer": {
        "default": {},
        "2017": FORM_OF_2017,
        "gpt2": GPT2,
        "odd": {"window": 5},
        "gpt2-odd": {**GPT2, "window": 5},
        "one": {"window": 1, "num_layers": 1},
        "grouped": GROUPED,
        "sliding": {"sliding_window": 5, "num_kv_heads": 1},
        "sliding-above": {"sliding_window": 2, "full_layers": 1, **YARN},
        "unscaled": {"scale_attention": False, "qkv_activation": "tanh", "num_kv_heads": 1},
        "joined": {"positions": "sinusoidal", "position_size": 3, "scale_embedding": True},
        "joined-learned": {"positions": "learned", "position_size": 2, "embedding_norm": True},
        "dense": {"dense": True},
        "olmo2": {"norm_position": "output", "qk_norm_whole": True, "num_kv_heads": 1},
        "gemma": {"norm_position": "both", "activation": "geglu", "scale_embedding": True, **MIXED},
        "softcap": {"attention_softcap": 2.0, "num_kv_heads": 1},
        "nope": {"nope_every": 2},
    },
    "ngram": {smoothing: {"order": 3, "smoothing": smoothing} for smoothing in known_smoothings()}
    # Of order 3, two words that are equally probable differ in their last bit.
    | {name: {"order": 2, "smoothing": name} for name in known_smoothings() if name == "katz"},
    "hmm": {
        "smooth": {"num_states": 5},
        "likeliest": {"num_states": 3, "delta": 0.0},
    },
    "hawk": {
        "default": {},
        "odd": {"recurrent_size": 5, "conv_width": 1, "num_layers": 1, "tie_weights": True},
    },
    "window": {
        "plain": {"context_size": 5},
        "direct": {"context_size": 5, "direct": True},
        "linear": {"context_size": 5, "hidden_size": 0, "direct": True},
    },
}
if has_plugin("labels"):
    spelled = {"input": "char-cnn", "char_filters": 2, "embedding_size": 5, "char_widths": 3}
    VARIANTS["rnn"]["spelled"] = spelled

# Forms of a cell that the models around it do not see, for the tests of cells alone.
FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "rnn": {"sigmoid": {"activation": "sigmoid"}},
    "jordan": {"sigmoid": {"activation": "sigmoid", "decay": 0.6}},
    "mingru": {"linear": {"positive": False}},
    "rhn": {"highway": {"depth": 1}},
    "lstm": {
        "1997": {"forget_gate": False, "output_activation": "none"},
        "coupled": {"coupled": True, "peepholes": True},
        "peepholes": {"peepholes": True},
        "1997-peepholes": {"forget_gate": False, "peepholes": True},
        "projection": {"projection": 2},
        "layer-norm": {"layer_norm": True},
    },
}


def two_iterations(model: Any, corpus: Corpus) -> None:
    """Fill a hidden Markov model by two iterations of EM."""
    from seqgen.plugins.hmm import baum_welch

    baum_welch.fit(model, corpus, [0], 3, lambda done: "steps" if done.number == 2 else None)


# How the models of an architecture that is not trained by gradients are filled.
ESTIMATES: dict[str, Any] = {
    "ngram": lambda model, corpus: counting.fit(model, corpus, impossible=[0]),
    "hmm": two_iterations,
}
# The models that were made already: each test gets a copy, which is quicker made.
LOUD: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True)
class Case:
    """One configuration of one architecture."""

    architecture: str
    variant: str
    settings: dict[str, Any]

    def config(self, **more: Any) -> Any:
        """Return the configuration, `more` above the rest; unknown names in TINY are left out."""
        config_class = registry.architecture(self.architecture).load_config()
        known = {field.name for field in dataclasses.fields(config_class)}
        tiny = {name: value for name, value in TINY.items() if name in known}
        return config_class(**{**tiny, **self.settings, **more})

    def build(self, dtype: torch.dtype = torch.float64, seed: int = 1, **more: Any) -> Any:
        """Return the model as it is initialised, in evaluation mode."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = registry.architecture(self.architecture).load_model()(self.config(**more))
        model.to(dtype)
        if model.counted:
            ESTIMATES[self.architecture](model, counted_text(seed))
        return model.eval()

    def loud(self, dtype: torch.dtype = torch.float64, **more: Any) -> Any:
        """Return the model with large random parameters, so that a wrong past is plain to see."""
        key = (type(self), self.architecture, self.variant, dtype, repr((self.settings, more)))
        if key not in LOUD:
            LOUD[key] = model = self.build(dtype, **more)
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(2)
                for parameter in model.parameters():
                    parameter.normal_(0, 0.4)
        return copy.deepcopy(LOUD[key])

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """Return how wide the parts are that a recurrent architecture's cell hands on."""
        return self.config().equation.widths(self.config())

    @property
    def neural(self) -> bool:
        """Whether it has parameters to train."""
        return issubclass(
            registry.architecture(self.architecture).load_model(), NeuralLanguageModel
        )


@dataclass(frozen=True)
class MixtureCase(Case):
    """A count-based model and two neural ones, mixed by weights, by order or by a gate."""

    def config(self, **more: Any) -> Any:
        return ModelConfig(vocab_size=more.get("vocab_size", VOCAB))

    def build(self, dtype: torch.dtype = torch.float64, seed: int = 1, **more: Any) -> Any:
        parts = [
            Case(name, "part", {**settings, **more}).build(dtype, seed)
            for name, settings in (
                ("ngram", {"order": 3}),
                ("lstm", {}),
                ("rnn", {}),
            )
        ]
        weights = [0.2, 0.3, 0.5]
        if self.variant == "by-order":
            table = [weights, [0.5, 0.4, 0.1], [0.1, 0.1, 0.8]]
            return Mixture(parts, MixtureWeights(weights, table)).to(dtype).eval()
        if self.variant == "gate":
            gate = np.random.default_rng(3).normal(0, 0.05, (3 + 9, 3))
            gate[:3] += weights
            return Mixture(parts, MixtureWeights(weights, gate=gate)).to(dtype).eval()
        return Mixture(parts, MixtureWeights(weights)).to(dtype).eval()

    @property
    def neural(self) -> bool:
        return False


@dataclass(frozen=True)
class CachedCase(Case):
    """A neural model beside a continuous cache that is shorter than most texts of tests."""

    def config(self, **more: Any) -> Any:
        return ModelConfig(vocab_size=more.get("vocab_size", VOCAB))

    def build(self, dtype: torch.dtype = torch.float64, seed: int = 1, **more: Any) -> Any:
        from seqgen.plugins.cache.model import CachedModel

        inner = Case(self.variant, "inner", self.settings).build(dtype, seed, **more)
        return CachedModel(inner, CacheConfig(size=5, strength=0.4, flatness=0.7)).eval()

    @property
    def neural(self) -> bool:
        return False


CASES = [
    Case(name, variant, settings)
    for name, row in registry.ARCHITECTURES.items()
    if row.task is LANGUAGE_MODELING
    for variant, settings in VARIANTS.get(name, {"default": {}}).items()
]
CASES += [MixtureCase("mixture", name, {}) for name in ("three", "by-order", "gate")]
if has_plugin("cache"):
    CASES += [CachedCase("cached", name, {}) for name in ("lstm", "rnn")]
NEURAL = [case for case in CASES if case.neural]


# For `fast_for`, where what is tested stands around cells and forms: one of each way to read.
STANDING = (
    "*ngram-kneser-ney",
    "*hmm-smooth",
    "*window-plain",
    "*rnn-tanh",
    "*lstm-plain",
    "*hawk-odd",
    "*transformer-2017",  # of sources too
    "*mixture-three",
    "*cached-rnn",
    "*seq2seq-additive",
)

# Every architecture that has its own equations, in a variant or two.
ONE_OF_EACH = (*STANDING, "*-default", "*gru-after", "*transformer-gpt2")

# Models that write from a source have cases of their own.
PAIR_VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "seq2seq": {
        "additive": {},
        "lstm-all": {
            "cell": "lstm",
            "bridge": "each",
            "input_feeding": True,
            "coverage": True,
            "residual": True,
            "source_vocab_size": 9,
        },
        "thought": {"attention": "none", "encoder": "reversed", "num_layers": 1},
        "dot-of-words": {
            "cell": "rnn",
            "attention": "dot",
            "query": "word",
            "scaled": True,
            "encoder": "forward",
            "bridge": "each",
        },
        "general": {
            "attention": "general",
            "bridge": "none",
            "embedding_size": 5,
            "input_feeding": True,
            "share_embeddings": False,
        },
        "first-input": {
            "attention": "none",
            "bridge": "input",
            "embedding_size": 5,
            "input_feeding": True,
        },
        "bag": {"encoder": "none", "attention": "dot", "tie_weights": True},
        "bahdanau": {"decoder": "bahdanau", "readout": "concat", "embedding_size": 5},
        "bahdanau-all": {
            "decoder": "bahdanau",
            "cell": "lstm",
            "bridge": "each",
            "input_feeding": True,
            "coverage": True,
            "residual": True,
        },
        "concat-fed": {"readout": "concat", "bridge": "input", "input_feeding": True},
        "maxout": {
            "decoder": "bahdanau",
            "readout": "maxout",
            "bridge": "each",
            "input_feeding": True,
            "embedding_size": 5,
        },
    },
    "seq2seq-transformer": {
        "default": {},
        "2017": {**FORM_OF_2017, "tie_weights": True, "encoder_layers": 1},
        "unscaled": {"scale_attention": False, "qkv_activation": "sigmoid", "num_layers": 1},
        "joined": {"positions": "sinusoidal", "position_size": 3, "num_layers": 1},
        "learned-odd": {**GPT2, "window": 5, "source_vocab_size": 9, "num_layers": 1},
        "dense": {"dense": True, "encoder_layers": 3},
    },
}
PAIRS = [
    Case(name, variant, settings)
    for name, variants in PAIR_VARIANTS.items()
    for variant, settings in variants.items()
]


class FixedSource(LanguageModel):
    """An encoder-decoder all of whose rows have one source: a language model like any other."""

    def __init__(self, inner: Any, source: list[int]) -> None:
        super().__init__()
        self.inner, self.config, self.source = inner, inner.config, source
        self.window = inner.window

    def memory(self, batch: int) -> Any:
        return self.inner.encode(torch.tensor([self.source]), [len(self.source)]).select(
            [0] * batch
        )

    def forward(self, tokens: Tensor, state: Any = None, last: int | None = None) -> Any:
        return self.inner(tokens, state or self.memory(len(tokens)), last)

    def start(self, batch: int, stride: int | None = None) -> Any:
        with torch.no_grad():
            return self.inner.start(self.memory(batch), stride)

    def step(self, tokens: Any, state: Any) -> Any:
        return self.inner.step(tokens, state)


@dataclass(frozen=True)
class FixedCase(Case):
    """A case of `PAIRS` through one source."""

    def build(self, dtype: torch.dtype = torch.float64, seed: int = 1, **more: Any) -> Any:
        return FixedSource(super().build(dtype, seed, **more), [3, 1, 4, 1, 5]).eval()

    @property
    def neural(self) -> bool:
        return False


FIXED = [FixedCase(case.architecture, case.variant, case.settings) for case in PAIRS]


def over(cases: list[Case]) -> pytest.MarkDecorator:
    """Parametrise a test by `case`."""
    names = [f"{case.architecture}-{case.variant}" for case in cases]
    return pytest.mark.parametrize("case", cases, ids=names)


def first_of_each(cases: list[Case]) -> list[Case]:
    """Return one case an architecture, for the slower tests."""
    return list({case.architecture: case for case in reversed(cases)}.values())[::-1]


def representatives(cases: list[Case]) -> list[Case]:
    """Return the cases without those that differ from earlier ones by a recurrent cell alone.

    What stands around a cell is `RecurrentLM`'s. Where a test does not depend on the equation,
    the first architecture of the registry with a state of a shape (the widths of its parts)
    stands for all of that shape.
    """
    first: dict[tuple[int, ...], str] = {}
    return [
        case
        for case in cases
        if case.architecture not in RECURRENT
        or first.setdefault(case.widths, case.architecture) == case.architecture
    ]


def ids(*shape: int, seed: int = 0, vocab: int = VOCAB) -> Tensor:
    """Return random tokens."""
    return torch.randint(vocab, shape, generator=torch.Generator().manual_seed(seed))


def counted_text(seed: int) -> Corpus:
    """Return forty random documents, for what is estimated from counts."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 12, 40)
    # Squared, so that some tokens are common and some rare.
    tokens = 1 + (random.random(lengths.sum()) ** 2 * (VOCAB - 1)).astype(np.uint8)
    return Corpus(tokens, lengths.cumsum(), start=0)


def contexts(length: int, window: int | None, stride: int | None) -> list[int]:
    """Return, for each token of a text, where the context that it is read in begins.

    This is the anchored window by its definition: a row that holds W tokens falls back to its
    last W - S, then takes the next.
    """
    if window is None:
        return [0] * length
    stride = max(1, window // 2) if stride is None else stride
    begins, held = [], 0
    for index in range(length):
        if held == window:
            held = window - stride
        begins.append(index - held)
        held += 1
    return begins


@torch.no_grad()
def from_scratch(model: LanguageModel, text: list[int], stride: int | None = None) -> Tensor:
    """Return the logits (T, V) after each token of a text, no state and no cache used.

    Each context is read by a training call of its own; tokens that are read in one and the same
    context share the call, which is right because no logits depend on later tokens (tested).
    """
    begins = contexts(len(text), model.window, stride)
    logits = []
    for begin in sorted(set(begins)):
        end = len(text) - begins[::-1].index(begin)
        seen, _ = model(torch.tensor([text[begin:end]]))
        logits.append(seen[0, begins.index(begin) - begin :])
    return torch.cat(logits)

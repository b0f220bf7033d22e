"""The architectures seqgen knows. A new one is a file in `models/` and a row here."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from seqgen.configs.model import LabellingConfig, labelling_config
from seqgen.errors import UsageError, named
from seqgen.tasks.bidirectional import BIDIRECTIONAL
from seqgen.tasks.classification import ON_FEATURES
from seqgen.tasks.language_modeling import LANGUAGE_MODELING
from seqgen.tasks.masked_lm import MASKED_LM
from seqgen.tasks.memory import ASSOCIATIVE_MEMORY
from seqgen.tasks.task import Task
from seqgen.tasks.translation import TRANSLATION
from seqgen.tasks.word_vectors import WORD_VECTORS

# The settings of each architecture and their defaults; `python docs/settings.py` writes them.
DEFAULTS = Path(__file__).with_name("defaults.json")


@dataclass(frozen=True)
class Architecture:
    """A kind of model: its name, where its classes live, what it is in one line, its tasks.

    `model` and `config` are "module:Class", imported only when used, so that listing
    architectures loads no torch; a module that begins with a dot is one of `seqgen.models`. The
    configuration of a class X is XConfig beside it, unless `config` says otherwise. `tasks` are
    those that it can serve, the first by default. `estimator` is the "module:name" of the
    `Estimator` of one that is not trained by gradients, `arrays` the "module:Class" of its
    `ArrayModel`, if it has one.
    """

    name: str
    model: str
    summary: str
    tasks: tuple[Task, ...] = (LANGUAGE_MODELING, *ON_FEATURES)
    config: str | None = None
    estimator: str | None = None
    arrays: str | None = None

    @property
    def task(self) -> Task:
        """What its models learn."""
        return self.tasks[0]

    @property
    def is_encoder(self) -> bool:
        """Whether it only makes features: its models need a head."""
        return self.task.head is not None

    def load_model(self) -> Any:
        """Import and return the LanguageModel class."""
        return load_object(self.model)

    def load_config(self) -> Any:
        """Import and return the ModelConfig class."""
        return load_object(self.config or f"{self.model}Config")

    def load_arrays(self) -> Any:
        """Import and return the ArrayModel class; None if there is none."""
        return self.arrays and load_object(self.arrays)

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Return its default settings without importing its code, and so without torch.

        `model` has all settings that a user may set, `training` those of its own recipe, and
        `settings` what there is to say of each of the former.
        """
        return json.loads(DEFAULTS.read_text(encoding="utf-8"))[self.name]

    def for_task(self, task: str) -> Architecture:
        """Return the architecture that learns a task, one of `ON_FEATURES`, on this one's features.

        Raises:
            UsageError: there is no such task, or it has no features to learn from.
        """
        chosen = named("task", task, {one.name: one for one in ON_FEATURES})
        if chosen not in self.tasks:
            more = " with --features" if self.task.gives_features else ""
            raise UsageError(
                f"--task is for encoders and for networks that model text, and {self.name} is "
                f"neither; try --model birnn{more}"
            )
        summary = f"{chosen.called} on the features of {self.name}"
        about = f"{self.name}-{chosen.called}", self.model, summary, (chosen,)
        return TaskArchitecture(*about, trunk=self)


@dataclass(frozen=True)
class TaskArchitecture(Architecture):
    """An architecture that learns on the features of another, its `trunk`."""

    trunk: Architecture | None = None
    is_encoder: ClassVar[bool] = False

    def load_model(self) -> Any:
        """Import and return the class of the models with a head on the trunk."""
        return load_object(self.task.head)(self.trunk.load_model())

    def load_arrays(self) -> Any:
        """Import and return the class of the array models; None if there is none."""
        trunk = self.trunk.load_arrays()
        return trunk and load_object(self.task.array_head)(trunk)

    def load_config(self) -> Any:
        """Import and return the class of their configuration."""
        return labelling_config(self.trunk.load_config())

    def defaults(self) -> dict[str, dict[str, Any]]:
        """Return its default settings, also without importing its code."""
        model = {**self.trunk.defaults()["model"], "pooling": None}
        training = self.trunk.defaults()["training"] if self.trunk.is_encoder else None
        return {"model": model, "training": training or dict(LabellingConfig.recipe)}


def load_object(target: str) -> Any:
    """Import a "module:name" and return what it names; ".module" is one of `seqgen.models`."""
    module, name = target.split(":")
    return getattr(importlib.import_module(module, "seqgen.models"), name)


# What all recurrent cells are run by, each with a configuration that names its equation.
RECURRENT = ".recurrent.model:RecurrentLM"
RECURRENT_ARRAYS = ".recurrent.array_model:RecurrentArrays"


def _cell(name: str, config: str, summary: str) -> Architecture:
    """Return the row of a recurrent cell, whose file has its name."""
    config = f".recurrent.cells.{name}:{config}"
    return Architecture(name, RECURRENT, summary, config=config, arrays=RECURRENT_ARRAYS)


_ROWS = (
    Architecture(
        "ngram",
        ".ngram.model:NGram",
        "counted n-grams, up to modified Kneser-Ney smoothing",
        (LANGUAGE_MODELING,),
        config=".ngram.config:NGramConfig",
        arrays=".ngram.array_model:NGramArrays",
        estimator="seqgen.commands.training.estimate:COUNTING",
    ),
    Architecture(
        "hmm",
        ".hmm.model:HMM",
        "hidden Markov model, by Baum and Welch's EM (Rabiner 1989)",
        (LANGUAGE_MODELING,),
        config=".hmm.array_model:HMMConfig",
        arrays=".hmm.array_model:HMMArrays",
        estimator="seqgen.commands.training.estimate:EXPECTATION",
    ),
    Architecture(
        "window",
        ".window:Window",
        "network over the last few tokens (Bengio et al. 2003)",
        config=".window_arrays:WindowConfig",
        arrays=".window_arrays:WindowArrays",
    ),
    _cell("rnn", "RNNConfig", "Elman's recurrent network (1990); tanh, sigmoid or ReLU"),
    _cell("gru", "GRUConfig", "gated recurrent unit (Cho et al. 2014), in two forms"),
    _cell("lstm", "LSTMConfig", "long short-term memory (Gers et al. 2000) and its forms"),
    _cell("ugrnn", "UGRNNConfig", "update gate recurrent network (Collins et al. 2017)"),
    _cell("mgu", "MGUConfig", "minimal gated unit, with one gate (Zhou et al. 2016)"),
    _cell("mut1", "MUT1Config", "first cell of a search by mutation (Jozefowicz 2015)"),
    _cell("mut2", "MUT2Config", "second cell of a search by mutation (Jozefowicz 2015)"),
    _cell("mut3", "MUT3Config", "third cell of a search by mutation (Jozefowicz 2015)"),
    _cell("mlstm", "MLSTMConfig", "multiplicative LSTM (Krause et al. 2016)"),
    _cell("rhn", "RHNConfig", "recurrent highway network (Zilly et al. 2017)"),
    _cell("nas", "NASConfig", "cell of a search by reinforcement (Zoph and Le 2017)"),
    _cell("mingru", "MinGRUConfig", "minimal GRU, for a parallel scan (Feng et al. 2024)"),
    _cell("minlstm", "MinLSTMConfig", "minimal LSTM, for a parallel scan (Feng et al. 2024)"),
    _cell("jordan", "JordanConfig", "Jordan's network: its own predictions read back (1986)"),
    _cell("grid", "GridConfig", "Grid LSTM over time and depth (Kalchbrenner et al. 2016)"),
    Architecture(
        "hawk",
        ".recurrent.hawk:Hawk",
        "linear recurrences with gates, in blocks (De et al. 2024)",
        config=".recurrent.hawk_arrays:HawkConfig",
        arrays=".recurrent.hawk_arrays:HawkArrays",
    ),
    Architecture(
        "transformer",
        ".transformer.model:Transformer",
        "decoder-only transformer; 2017, GPT-2 or Llama style",
        config=".transformer.config:TransformerConfig",
        arrays=".transformer.array_model:TransformerArrays",
    ),
    Architecture(
        "seq2seq",
        ".seq2seq.recurrent:Seq2Seq",
        "recurrent encoder-decoder, with attention or without",
        (TRANSLATION,),
        config=".seq2seq.recurrent_config:Seq2SeqConfig",
        arrays=".seq2seq.recurrent_arrays:Seq2SeqArrays",
    ),
    Architecture(
        "seq2seq-transformer",
        ".seq2seq.transformer:Seq2SeqTransformer",
        "encoder-decoder transformer (Vaswani et al. 2017)",
        (TRANSLATION,),
        config=".seq2seq.transformer_config:Seq2SeqTransformerConfig",
        arrays=".seq2seq.transformer_arrays:Seq2SeqTransformerArrays",
    ),
    Architecture(
        "word2vec",
        ".words.word2vec:Word2Vec",
        "vectors of words (Mikolov et al. 2013); no language model",
        (WORD_VECTORS,),
        config=".words.config:Word2VecConfig",
        arrays=".words.array_model:WordArrays",
    ),
    Architecture(
        "glove",
        ".words.glove:GloVe",
        "vectors of words from counts (Pennington et al. 2014)",
        (WORD_VECTORS,),
        config=".words.config:GloVeConfig",
        arrays=".words.array_model:WordArrays",
    ),
    Architecture(
        "bert",
        ".encoders.bert:Bert",
        "fills in masked tokens (Devlin et al. 2019); for --task",
        (MASKED_LM, *ON_FEATURES),
        config=".encoders.config:BertConfig",
        arrays=".encoders.transformer_arrays:BertArrays",
    ),
    Architecture(
        "elmo",
        ".encoders.elmo:ELMo",
        "LSTMs from both ends, for --features (Peters et al. 2018)",
        (BIDIRECTIONAL,),
        config=".encoders.config:ELMoConfig",
        arrays=".encoders.elmo_arrays:ELMoArrays",
    ),
    Architecture(
        "bag",
        ".encoders.bag:Bag",
        "bag of words, for --task (Joulin et al. 2017)",
        ON_FEATURES,
        config=".encoders.config:BagConfig",
        arrays=".encoders.bag_arrays:BagArrays",
    ),
    Architecture(
        "birnn",
        ".encoders.birnn:BiRNN",
        "bidirectional recurrent encoder, for --task",
        ON_FEATURES,
        config=".encoders.config:BiRNNConfig",
        arrays=".encoders.birnn_arrays:BiRNNArrays",
    ),
    Architecture(
        "encoder",
        ".encoders.transformer:SentenceTransformer",
        "bidirectional transformer encoder, for --task",
        ON_FEATURES,
        config=".encoders.config:EncoderConfig",
        arrays=".encoders.transformer_arrays:SentenceTransformerArrays",
    ),
    Architecture(
        "hopfield",
        ".memory.hopfield:Hopfield",
        "restores lines (Hopfield 1982); not a language model",
        (ASSOCIATIVE_MEMORY,),
        config=".memory.hopfield_arrays:HopfieldConfig",
        arrays=".memory.hopfield_arrays:HopfieldArrays",
        estimator="seqgen.commands.training.estimate:STORING",
    ),
)

ARCHITECTURES: dict[str, Architecture] = {row.name: row for row in _ROWS}
DEFAULT, DEFAULT_ENCODER = "lstm", "birnn"
# The name of no architecture: `train` is to choose what suits the text.
AUTO = "auto"


def architecture(name: str) -> Architecture:
    """Return the architecture called `name`; of a classifier or tagger such as lstm-tagger, too.

    Raises:
        UsageError: there is none; names the nearest.
    """
    trunk, _, ending = str(name).rpartition("-")
    task = next((task for task in ON_FEATURES if task.called == ending), None)
    if task is not None and trunk in ARCHITECTURES:
        return ARCHITECTURES[trunk].for_task(task.name)
    return named("architecture", name, ARCHITECTURES)


def known_architecture(name: str) -> Architecture | None:
    """Return the architecture of that name; None if this version knows none."""
    try:
        return architecture(name)
    except UsageError:
        return None


def unit_of(name: str) -> str:
    """Return what losses of an architecture are per; "token" if this version knows none such."""
    return row.task.unit if (row := known_architecture(name)) else "token"


def to_train(name: str | None) -> str | None:
    """Return the architecture that `train --model` names; None if `train` is to choose.

    Raises:
        UsageError: there is none; names the nearest, which may be `AUTO`.
    """
    if name is None or name == AUTO:
        return None
    if known_architecture(name) is None:
        named("architecture", name, {**ARCHITECTURES, AUTO: None})
    return name


def trunk_of(name: str) -> Architecture:
    """Return the architecture whose features one of this name works on: its own, or its trunk's."""
    return getattr(row := architecture(name), "trunk", row)


def for_task(name: str, task: str | None) -> Architecture:
    """Return the architecture of that name, learning labels if there is a task.

    Args:
        name: of an architecture, or already of a classifier or a tagger.
        task: the name of one of `ON_FEATURES`; None leaves it as it is.

    Raises:
        UsageError: the task is unknown or missing, or is not for this architecture.
    """
    row = architecture(name)
    if task is not None:
        return trunk_of(name).for_task(task)
    if row.is_encoder:
        tasks = " or ".join(each.name for each in row.tasks)
        raise UsageError(f"{name} is an encoder, which learns labels: give --task {tasks}")
    return row


def task_of_mixture(stored_as: str | None) -> Task:
    """Return the task of a mixture's parts, which its configuration names."""
    tasks = (row.task for row in ARCHITECTURES.values())
    return next((task for task in tasks if task.stored_as == stored_as), LANGUAGE_MODELING)


def owners_of(setting: str) -> list[str]:
    """Return the architectures that have a setting of their own called `setting`."""
    return [row.name for row in ARCHITECTURES.values() if setting in row.load_config().fields()]


# What settings of several architectures mean, and those with a flag in `train`: help needs no more.
SHARED_DOCS = {
    "num_layers": "Number of stacked layers.",
    "hidden_size": "Width of each layer, in units.",
    "num_heads": "Number of attention heads; it must divide the hidden size.",
    "dropout": "Probability of dropping each unit in training.",
    "order": "Length of the longest n-grams, in tokens.",
    "smoothing": "How an n-gram model assigns probability to n-grams it has not seen.",
}

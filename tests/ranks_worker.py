"""Train small models as one of several ranks, and keep the losses and the weights.

    python tests/ranks_worker.py FILE [--shard] [--stop-at STEP] [--from FILE] [CASE...]

Started by `test_ranks.py`, with the variables that torchrun sets, or alone.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from seqgen import hooks, ranks, registry
from seqgen.engines.precision import parameter_type
from seqgen.models.deferred_init import DeferredModel
from seqgen.ranks.group import process_group
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import training_batches
from seqgen.text.corpus import Corpus
from seqgen.text.sources import TokenSources
from seqgen.training import loop
from seqgen.training.events import Progress
from seqgen.training.regimes.base import TextRules
from seqgen.training.run import Hooks

VOCAB, END, STEPS = 13, 2, 30
SMALL = {"hidden_size": 8, "num_layers": 2}
HEADS = {"num_heads": 2}
DROPOUT = {"dropout": 0.3}


@dataclass(frozen=True)
class Case:
    """A run: an architecture, its settings, and those of training."""

    architecture: str
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    documents: str = "stream"


def _case(architecture: str, model: dict[str, Any] | None = None, **training: Any) -> Case:
    documents = training.pop("documents", "stream")
    return Case(architecture, {**SMALL, **(model or {})}, training, documents)


CASES = {
    "rnn": _case("rnn"),
    "lstm": _case("lstm"),
    "gru": _case("gru"),
    "transformer": _case("transformer", HEADS),
    "seq2seq": _case("seq2seq"),
    "seq2seq-transformer": _case("seq2seq-transformer", HEADS),
    "rnn-dropout": _case("rnn", {**DROPOUT, "zoneout": 0.2}),
    "lstm-dropout": _case("lstm", {**DROPOUT, "weight_drop": 0.4, "state_dropout": 0.2}),
    "gru-dropout": _case("gru", {**DROPOUT, "update_dropout": 0.3, "word_dropout": 0.1}),
    "transformer-dropout": _case("transformer", {**HEADS, **DROPOUT, "attention_dropout": 0.2}),
    "seq2seq-dropout": _case("seq2seq", DROPOUT),
    "seq2seq-transformer-dropout": _case(
        "seq2seq-transformer", {**HEADS, **DROPOUT, "attention_dropout": 0.2}
    ),
    "minlstm-dropout": _case("minlstm", {**DROPOUT, "update_dropout": 0.3}),
    "variational": _case("lstm", {**DROPOUT, "variational": True, "activation_penalty": 1.0}),
    "batch-norm": _case("rnn", {"batch_norm": True}),
    "batch-norm-of-input": _case("rnn", {"batch_norm": True, "batch_norm_at": "input"}),
    "word2vec": Case("word2vec", {"embedding_size": 6, "context_size": 2, "subsample": 0.1}),
    "lines": _case("lstm", DROPOUT, documents="line"),
    "accumulate": _case("gru", DROPOUT, accumulate=2),
    "muon": _case("lstm", optimizer="muon", ema=0.9),
    "transformer-muon": _case("transformer", {**HEADS, **DROPOUT}, optimizer="muon", ema=0.9),
    "each-clipped": _case("lstm", optimizer="sgd", clip_norm=0.1, clip_norm_scope="each"),
    "thaw": _case("lstm", unfreeze=0.6, layer_decay=0.5),
    "scheduled": _case("lstm", DROPOUT, regime="scheduled"),
    "free-running": _case("gru", regime="free-running"),
    "professor-forcing": _case("gru", regime="professor-forcing", discriminator_size=4),
    "unlikelihood": _case("lstm", regime="unlikelihood"),
    "minimum-risk": _case("seq2seq", DROPOUT, regime="minimum-risk", cost="edit", risk_samples=3),
    "decoding": _case("seq2seq", DROPOUT, regime="decoding", cost="edit"),
    "few-rows": _case("lstm", DROPOUT, batch_size=2),
}
CASES = {  # without those of plugins that are gone
    name: case
    for name, case in CASES.items()
    if registry.known_architecture(case.architecture)
    and hooks.missing_plugin(case.training.get("regime", "")) is None
}


# Those that differ in the architecture and its dropout alone.
SIX = ("rnn", "lstm", "gru", "transformer", "seq2seq", "seq2seq-transformer")
ARCHITECTURES = [*SIX, *(f"{name}-dropout" for name in SIX)]
# Those whose parameters can be divided.
SHARDED = [name for name in CASES if name != "thaw"]


def corpus_of(case: Case) -> Corpus:
    """Return a text, or pairs of a source and the source turned around."""
    random = np.random.default_rng(5)
    pairs = registry.architecture(case.architecture).task.takes_targets
    if not pairs and case.documents == "stream":
        return Corpus(random.integers(3, VOCAB, 400).astype(np.uint8), np.array([400]), start=3)
    texts = [random.integers(3, VOCAB, length).tolist() for length in random.integers(2, 9, 40)]
    tokens = np.array(list(itertools.chain(*([*text[::-1], END] for text in texts))), np.uint8)
    ends = np.cumsum([len(text) + 1 for text in texts])
    sources = TokenSources.of([[*text, END] for text in texts]) if pairs else None
    return Corpus(tokens, ends, start=1, sources=sources)


def trainer_of(case: Case, shard: bool, events: list[Any], stop_at: int | None) -> loop.Trainer:
    """Return the trainer of a case, which adds its events to a list."""
    row = registry.architecture(case.architecture)
    settings = dict(case.model)
    if row.task.takes_targets:
        settings["source_vocab_size"] = VOCAB
    if "transformer" in case.architecture:
        settings["window"] = 12
    torch.manual_seed(1)
    kind, shape = row.load_model(), row.load_config()(vocab_size=VOCAB, **settings)
    corpus = corpus_of(case)

    def make() -> Any:
        model = kind(shape).double()
        if hasattr(model, "survey"):
            model.survey(corpus.tokens, [0, 1, 2])
        return model

    unfilled = DeferredModel.build(make) if shard else None
    model = unfilled.shell(torch.device("cpu")) if unfilled else make()
    given = {"steps": STEPS, "precision": "float64", "seed": 4, "batch_size": 5, "lr": 0.02}
    config = TrainingConfig(**{**given, **case.training})
    model.to(dtype=parameter_type(config.precision))
    carry = getattr(model, "carries_state", False)
    batches = training_batches(corpus, case.documents, carry, config.batch_size, 6, config.seed)
    hooks = Hooks(
        keep_best=lambda: None,
        checkpoint=lambda: None,
        report=events.append,
        stop=lambda run: "stop-after" if run.step == stop_at else None,
    )
    rules = TextRules(end=END if case.documents == "line" or row.task.takes_targets else None)
    return loop.Trainer(model, batches, config, hooks, rules, unfilled)


def run(case: Case, shard: bool, stop_at: int | None, begun: Any) -> dict[str, Any]:
    """Train, from a snapshot if one is given; return the losses and a snapshot."""
    events: list[Any] = []
    torch.manual_seed(2)
    trainer = trainer_of(case, shard, events, stop_at)
    torch.manual_seed(3)
    if begun is not None:
        trainer.restore(*begun)
    trainer.train()
    losses = [event.train_loss for event in events if isinstance(event, Progress)]
    tensors, facts = trainer.snapshot()
    snapshot = {name: tensor.clone() for name, tensor in tensors.items()}, facts
    return {"losses": losses, "snapshot": snapshot, "figures": trainer.objective.figures()}


def be_rank(variables: dict[str, str], arguments: Sequence[str]) -> None:
    """Be a process of `torchrun`, with its variables; see `main`."""
    os.environ.update(variables)
    torch.set_num_threads(1)
    main(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the cases that the arguments name, or the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--shard", action="store_true")
    parser.add_argument("--stop-at", type=int)
    parser.add_argument("--begun")
    given = parser.parse_args(arguments)
    loop.LOG_SECONDS = 0.0
    before = torch.load(given.begun) if given.begun else {}
    found = {}
    with process_group(30.0):
        for name in given.cases or CASES:
            begun = before[name]["snapshot"] if name in before else None
            found[name] = run(CASES[name], given.shard, given.stop_at, begun)
    if ranks.is_leader():
        torch.save(found, given.file)


if __name__ == "__main__":
    main()

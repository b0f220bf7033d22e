"""The training loop by itself, and whole runs in one go and in parts."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import ids
from safetensors.torch import load_file

from seqgen import registry, store
from seqgen.settings.training import TrainingConfig
from seqgen.store import StoredModel
from seqgen.text.batches import OverlappingWindows, training_batches
from seqgen.text.corpus import Corpus
from seqgen.training import loop
from seqgen.training.events import Progress
from seqgen.training.loop import Trainer
from seqgen.training.resume import resume
from seqgen.training.run import Hooks
from seqgen.training.train import train


def settings_of(**more):
    return TrainingConfig(**{"steps": 4, "precision": "float64", **more})


def corpus_of(*lengths):
    return Corpus(ids(sum(lengths)).numpy().astype(np.uint8), np.cumsum(lengths), start=6)


def run_loop(monkeypatch, model, corpus, documents="stream", batch_size=3, seq_len=5, **more):
    """Train with every step logged; return the trainer and its Progress events."""
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)
    config = settings_of(batch_size=batch_size, seq_len=seq_len, **more)
    carry = model.carries_state and not config.reset_state
    batches = training_batches(corpus, documents, carry, batch_size, seq_len, seed=3)
    if config.k2 is not None:
        batches = OverlappingWindows(batches, config.k2)
    events = []
    hooks = Hooks(report=events.append)
    trainer = Trainer(model, batches, config, hooks)
    trainer.train()
    return trainer, [event for event in events if isinstance(event, Progress)]


TINY = {
    "hidden_size": 8,
    "num_layers": 2,
    "seq_len": 6,
    "batch_size": 3,
    "dropout": 0.2,
    "seed": 5,
    "precision": "float32",
    "steps": 7,
    "validate_every": 3,
}


def settings_for(name, **more):
    known = {**registry.architecture(name).load_config().fields(), **TrainingConfig.fields()}
    fitting = {key: value for key, value in {**TINY, "num_heads": 2}.items() if key in known}
    return {**fitting, **more}


def everything(stored: StoredModel):
    """Return all that a run leaves behind but its times."""
    tensors, facts = stored.read_checkpoint()
    run = {k: v for k, v in facts["run"].items() if not k.endswith("seconds")}
    return load_file(stored.path / store.WEIGHTS), tensors, run


def assert_same(one: StoredModel, other: StoredModel):
    for a, b in zip(everything(one)[:2], everything(other)[:2], strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert torch.equal(a[name], b[name]), name
    a, b = everything(one)[2], everything(other)[2]
    # What is logged is a mean since the last log, and stopping logs.
    assert {k: v for k, v in a.items() if k != "train_loss"} == {
        k: v for k, v in b.items() if k != "train_loss"
    }


def both_ways(text, name, stops, **more):
    settings = settings_for(name, **more)
    whole = train([text], architecture=name, name="whole", settings=settings)
    part = train([text], architecture=name, name="part", settings=settings, stop_after=stops[0])
    assert (part.stopped, part.steps) == ("stop-after", stops[0])
    place = store.find("part").path
    for number, stop in enumerate([*stops[1:], None]):
        # Wherever it lands, it goes on.
        place = place.rename(place.with_name("part" if number % 2 else "moved"))
        part = resume(place, stop_after=stop)
    assert part.stopped == whole.stopped
    assert (part.steps, part.tokens) == (whole.steps, whole.tokens)
    assert part.val_loss == whole.val_loss
    assert_same(store.find("whole"), StoredModel(place))


CATS = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 8
FIVE_STEPS = {"steps": 5, "hidden_size": 8, "num_layers": 1, "seed": 1}


@contextlib.contextmanager
def home_with_models(folder: Path, held_out: str) -> Iterator[dict[str, str]]:
    """Train `counts`, of n-grams, and the LSTMs `net` and `lines` in a home of their own.

    Yields the setting of the validation text, for more models of the text `folder`/text.
    """
    text, val = folder / "text", folder / "val"
    text.write_text(CATS)
    val.write_text(held_out)
    same = {"val": str(val)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        train([text], architecture="ngram", name="counts", settings=same)
        train([text], architecture="lstm", name="net", settings={**FIVE_STEPS, **same})
        lines = {**FIVE_STEPS, "documents": "line"}
        train([text], architecture="lstm", name="lines", settings=lines)
        yield same


def write_few_words(path: Path) -> Path:
    """Write a text of few words, the same each time."""
    draw = random.Random(0)
    words = ("so", "it", "goes", "on", "and", "ends")
    lines = (" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(30))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path

"""How a model's training went, from its logs; also while it goes on."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen import registry, store

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Course:
    """A training run.

    Attributes:
        unit: what losses are per, "token" or "label".
        train_loss: nats per unit, by step.
        val_loss: the same, of validations during training.
        lr: by step, the learning rate.
        grad_norm: by step, before clipping.
        samples: steps, and what the model wrote at each from the same draws.
        running: another process is training the model now.
    """

    unit: str
    train_loss: Points
    val_loss: Points
    lr: Points
    grad_norm: Points
    samples: list[tuple[int, str]]
    running: bool


def course(model: store.StoredModel) -> Course:
    """Return how a model's training went so far."""
    records = model.logged(store.METRICS)
    curves = {
        key: [(r["step"], r[key]) for r in records if isinstance(r.get(key), int | float)]
        for key in ("train_loss", "val_loss", "lr", "grad_norm")
    }
    peak = (model.config.get("training") or {}).get("lr")
    curves["lr"] = [(step, share * peak) for step, share in curves["lr"]] if peak else []
    samples = [(r["step"], r["text"]) for r in model.logged(store.SAMPLES) if "text" in r]
    unit = registry.unit_of(model.config["architecture"])
    return Course(unit, **curves, samples=samples, running=model.is_locked)

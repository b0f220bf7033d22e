"""Output of `seqgen models show`: a record, six main facts, a loss curve, or every detail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen import registry, store
from seqgen.cli.shell.output import one_line, put
from seqgen.cli.shell.tables import (
    MISSING,
    age,
    byte_size,
    count,
    curve,
    duration,
    figure,
    named_figures,
    percentage,
    put_facts,
    significant,
    weight,
)
from seqgen.errors import SeqgenError
from seqgen.settings import DataConfig
from seqgen.settings.training import TrainingConfig, adapt_recipe
from seqgen.store.mixtures import current_parts
from seqgen.wording import column, first_names, plural

# What stands for the figures of a run that was stopped before its first validation.
UNVALIDATED = "0 validations"


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """Record of a model in `seqgen models --json`; its keys in order, None if unknown."""

    name: str = column("name")
    path: str
    architecture: str | None = column("architecture", "text")
    parameters: int | None = column("parameters", "short_count")
    tokenizer: str | None = column("tokenizer", "text")
    val_bits_per_char: float | None = column("bits/char", shown="bits")
    created: str | None = column("created", "age")
    val_oov_bits_per_byte: float | None
    val_loss: float | None
    stopped: str | None

    @property
    def leaves_unknowns_out(self) -> bool:
        """Check whether the bits exclude unknown tokens."""
        return store.leaves_unknowns_out(vars(self))

    @property
    def bits(self) -> str:
        """Held-out bits per character, for a table."""
        if store.awaits_validation(vars(self)):
            return UNVALIDATED
        return "> " * self.leaves_unknowns_out + figure(self.val_bits_per_char, 3)


def describe(model: store.StoredModel) -> ModelRecord:
    """Build the record of a model."""
    from seqgen.text.tokenizers import kind_in

    config, record, result, kind, tokenizer, counts = {}, {}, {}, None, None, []
    with contextlib.suppress(SeqgenError):
        config, kind = model.config, model.kind
        record, result = model.record, store.result_of(model)
        counts = [part.record.get("parameters") or 0 for part in (model, model.ngram) if part]
        # The configuration may name the tokenizer by a path.
        tokenizer = kind_in(model.path / "tokenizer") or config["data"].get("tokenizer")
    return ModelRecord(
        name=model.name,
        path=str(model.path),
        architecture=kind,
        parameters=sum(counts) or None,
        tokenizer=tokenizer,
        val_bits_per_char=result.get("val_bits_per_char"),
        created=record.get("created"),
        val_oov_bits_per_byte=result.get("val_oov_bits_per_byte"),
        val_loss=result.get("val_loss"),
        stopped=result.get("stopped"),
    )


def put_model(model: store.StoredModel, tokenizer: dict[str, Any], everything: bool) -> None:
    """Print a model's six main facts, loss curve and settings, or every detail."""
    put_facts(_all_facts(model, tokenizer) if everything else six_facts(model, tokenizer))
    for line in _loss_curve(model):
        put(f"{line}\n")
    if not everything:
        put("\n")
        put_facts(settings_apart(model.config))


def _all_facts(model: store.StoredModel, tokenizer: dict[str, Any]) -> dict[str, str]:
    config, record = model.config, model.record
    facts = {
        **vars(describe(model)),
        **dict(_named_facts("mixture", mixture_facts(model) or {})),
        **{k: v for part in ("model", "training", "data") for k, v in config[part].items()},
        **{f"tokenizer: {k}": v for k, v in tokenizer.items()},
        **dict(_named_facts("result", store.result_of(model))),
        **{f"{grams['order']}-grams": _ngrams(grams) for grams in record.get("ngrams") or ()},
    }
    return {key: _in_line(value) for key, value in facts.items() if value is not None}


def _named_facts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a nested table as dotted names with values."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _named_facts(f"{name}: {key}", inner)


def six_facts(model: store.StoredModel, tokenizer: dict[str, Any]) -> dict[str, str]:
    """List the six main facts of a model, and those of its kind."""
    config, record = model.config, model.record
    result, data = store.result_of(model), store.data_of(record)
    training = config.get("training") or {}
    parameters = plural(describe(model).parameters or 0, "parameter")
    facts = {"model": f"{model.name}: {model.kind}, {parameters}"}
    if adapter := config.get("adapter"):
        facts["adapters"] = f"of rank {adapter['rank']} on {adapter['base']['name']}"
    if began := training.get("init_from"):
        facts["began from"] = began + _since(model, "init_from")
    if data:  # neither a mixture nor an imported model is of a text that is known here
        files = first_names([Path(file).name for file in data.get("files") or ()], 5)
        characters = plural(data.get("characters") or 0, "character")
        facts["text"] = f"{files or MISSING}, {characters}"
    if types := model.reduced_types:
        facts["weights"] = f"{', '.join(types)} as in the file, {byte_size(model.size)}"
    size = data.get("vocab_size") or tokenizer.get("vocab_size")
    size = size or config["model"].get("vocab_size")
    facts["tokenizer"] = f"{tokenizer['kind']}, {plural(size or 0, 'token')}"
    if "labels" in tokenizer:
        facts["labels"] = tokenizer["labels"]
    imported = record.get("imported")
    mixed = _mixed(model, result.get("mixture") or {})
    if not mixed or model.ngram is not None:
        facts["training"] = _import(imported) if imported else _training(model, result)
    facts |= mixed
    facts["validation"] = _validation(result, registry.unit_of(config["architecture"]))
    loss = record.get("held_out_loss")
    if loss is not None:  # of a mixture, on the held-out half that its weights were not fitted on
        facts["validation"] += f"; {figure(loss)} nats/token on the half that fitted no weights"
    if features := training.get("features"):
        weights = result.get("layer_weights")
        facts["features"] = features + _since(model, "features")
        facts["features"] += f": {named_figures(weights)}" if weights else ""
    facts["written"] = f"{age(record.get('created'))}, {model.path}"
    return facts


def _import(origin: str | dict[str, str]) -> str:
    """Say where a model was imported from: a path, or a repository on the Hugging Face Hub."""
    if isinstance(origin, str):
        return f"imported from {origin}"
    file = f", file {origin['file']}" if "file" in origin else ""
    return (
        f"imported from hf:{origin['repository']}{file}, revision {origin['revision']}, commit "
        f"{origin['commit'][:12]}"
    )


def _since(model: store.StoredModel, setting: str) -> str:
    """Report whether a model that this one was trained from has been changed or removed since."""
    origin = store.origins_of(model)[setting]
    if origin is None:
        return ", which is gone or has been trained again"
    renamed = origin.name != Path(model.config["training"][setting]).name
    return f", now called {origin.name}" if renamed else ""


def mixture_facts(model: store.StoredModel) -> dict[str, Any] | None:
    """Build the key `mixture` of `seqgen models show --json`; None for other models.

    `parts` has the `name` of each when it was mixed, and its `path` now: null if it is gone or has
    changed since. A copy is in the mixture's folder.
    """
    if not model.is_mixture:
        return None
    weights, by_order, gate = store.mixture_weights(model)
    parts = [
        {
            "name": ":".join(filter(None, (reference.name, reference.view))),
            "path": None if part is None else str(part.path.resolve()),
        }
        for reference, part in current_parts(model)
    ]
    tables = {"by_order": by_order, "gate": gate}
    each = {name: list(map(list, table)) or None for name, table in tables.items()}
    return {"parts": parts, "weights": list(weights), **each}


def _mixed(model: store.StoredModel, result: dict[str, Any]) -> dict[str, str]:
    """Describe the parts and weights of a mixture; empty for other models.

    Args:
        model: of any kind.
        result: of a run with an n-gram model, the key `mixture` of its record.
    """
    facts = mixture_facts(model)
    if facts is None:
        return {}
    names = [part["name"] for part in facts["parts"]]

    def weighted(weights: Sequence[float]) -> str:
        return " + ".join(f"{n}:{weight(w)}" for n, w in zip(names, weights, strict=True))

    coefficients = plural(sum(map(len, facts["gate"] or ())), "coefficient")
    return {
        "parts": ", ".join(_part(model, **part) for part in facts["parts"]),
        **({} if facts["gate"] else {"weights": weighted(facts["weights"])}),
        **{
            f"after {order} matched": weighted(row)
            for order, row in enumerate(facts["by_order"] or ())
        },
        **({"gate": f"{coefficients}, for weights by token"} if facts["gate"] else {}),
        **(
            {
                "alone": f"network {figure(result['network_loss'])}, n-gram model "
                f"{figure(result['ngram_loss'])} nats/token, on the part validated below"
            }
            if model.ngram is not None and result
            else {}
        ),
    }


def _part(mixture: store.StoredModel, name: str, path: str | None) -> str:
    """Describe where a part of a mixture is stored."""
    if path is None:
        return f"{name} (gone or changed since: mix again with seqgen mix)"
    if Path(path) == mixture.path.resolve():
        return f"{name} (trained with the others)" if mixture.members else f"{name} (the network)"
    if Path(path).is_relative_to(mixture.path.resolve()):
        copy = "a copy in the mixture's folder" if mixture.ngram is None else "counted beside it"
        return f"{name} ({copy})"
    now = Path(path).name
    renamed = "" if now == name.partition(":")[0] else f", now called {now}"
    return f"{name} (referred to{renamed})"


def _training(model: store.StoredModel, result: dict[str, Any]) -> str:
    resume = f"seqgen train --resume {model.name}"
    if not result:
        last = next((r for r in reversed(model.logged(store.METRICS)) if "step" in r), None)
        so_far = f"{plural(last['step'], 'step')} so far" if last else "no result"
        return f"{so_far}; resume with: {resume}"
    seen = plural(result.get("tokens") or 0, registry.unit_of(model.config["architecture"]))
    steps = result.get("steps")
    work = f"{seen} counted" if steps is None else f"{plural(steps, 'step')}, {seen}"
    ends = not store.is_unfinished(result) and not store.awaits_mixture(model, result)
    resume = "" if ends else f"; resume with: {resume}"
    return f"{work} in {duration(result.get('seconds'))}{resume}"


def _validation(result: dict[str, Any], unit: str) -> str:
    if store.awaits_validation(result):
        return UNVALIDATED
    if result.get("val_loss") is None:
        return MISSING
    best = result.get("best_step")
    of = "" if best is None else f", best at step {count(best)}"
    bits, nats = result.get("val_bits_per_char"), figure(result["val_loss"])
    if result.get("val_accuracy") is not None:
        return f"{percentage(result['val_accuracy'])} right, {nats} nats/{unit}{of}"
    in_bits = "" if bits is None else f"{figure(bits)} bits/char, "
    if store.leaves_unknowns_out(result):
        in_bits = f"over {figure(bits)} bits/char (unknown tokens left out), "
    return f"{in_bits}{nats} nats/{unit}{of}"


def settings_apart(config: dict[str, Any]) -> dict[str, str]:
    """Group the settings of a model that differ from its architecture's defaults."""
    lines = {}
    for group, defaults in _defaults(config).items():
        apart = [
            f"{name} {_in_line(value)}"
            for name, value in (config.get(group) or {}).items()
            # What has no default follows from the data, such as the size of the vocabulary.
            if value != defaults.get(name, value)
        ]
        lines[group] = ", ".join(apart) or "all as by default"
    return lines


def _defaults(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Compute an architecture's default settings under its optimizer and schedule, by group."""
    row = registry.known_architecture(config["architecture"])
    # A later version may have stored an architecture that this one does not know.
    defaults = row.defaults() if row else {"model": dict.fromkeys(config["model"]), "training": {}}
    given = config.get("training") or {}
    recipe = {"schedule": TrainingConfig.schedule, **defaults["training"]}
    chosen = {"schedule": given.get("schedule", recipe["schedule"])}
    training = TrainingConfig(**{**adapt_recipe(given, recipe), **chosen}).to_dict()
    data = DataConfig(**(row.task.data_defaults if row else {}))
    return {
        "model": defaults["model"],
        "training": {**training, "schedule": recipe["schedule"]},
        "data": data.to_dict(),
    }


def _in_line(value: Any) -> str:
    """Format a value on one line, in the syntax of `--set`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return one_line(value) if isinstance(value, str) else str(value)


def losses_by_step(model: store.StoredModel) -> dict[str, list[tuple[float, float]]]:
    """Read the training and validation losses of a model by step; empty if it has none."""
    records = model.logged(store.METRICS)
    return {
        name: [(record["step"], record[key]) for record in records if key in record]
        for name, key in (("training", "train_loss"), ("validation", "val_loss"))
    }


def unit_of_loss(model: store.StoredModel) -> str:
    """Name the unit of a model's loss: nats/token or nats/label."""
    return f"nats/{registry.unit_of(model.config['architecture'])}"


def _loss_curve(model: store.StoredModel) -> list[str]:
    """Draw a model's losses by step as text, if it was trained in steps."""
    losses = losses_by_step(model)
    lines = curve([(".", losses["training"]), ("o", losses["validation"])])
    title = f"{unit_of_loss(model)} by step: . in training, o in validation (during training)"
    return ["", title, *lines] if lines else []


def _ngrams(grams: dict[str, Any]) -> str:
    """Describe the stored n-grams of one order."""
    parts = [f"{count(grams['stored'])} stored of {significant(grams['possible'], 4)} possible"]
    if grams["held_out_unseen"] is not None:
        parts.append(f"{percentage(grams['held_out_unseen'])} of the held-out ones never seen")
    if grams["discounts"]:
        parts.append("discounts " + " ".join(significant(d, 6) for d in grams["discounts"]))
    return "; ".join(parts)

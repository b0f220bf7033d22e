"""Training without gradients: n-grams counted, EM for hidden Markov models, lines stored."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from seqgen import registry, store
from seqgen.errors import SeqgenError
from seqgen.plugins.hopfield.arrays import CAPACITY, RULES
from seqgen.plugins.hopfield.model import Hopfield
from seqgen.scoring.perplexity import for_model, protocol
from seqgen.settings import TrainingConfig
from seqgen.store import METRICS
from seqgen.store.loaded import LoadedModel
from seqgen.text.corpus import Corpus
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import Tokenizer
from seqgen.training import baum_welch, counting
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.events import Iteration, Notice, Report
from seqgen.training.run import Budget, Run
from seqgen.training.session import TrainingResult, as_stored, validation_figures, write_record
from seqgen.training.validating import final_validation
from seqgen.wording import plural


@dataclass(frozen=True)
class EstimationResult:
    """What came of an estimation; None where a figure has no meaning.

    Attributes:
        seconds: how long it took.
        tokens: how many tokens were read, over all passes.
        steps: passes over the text, of an iterative estimation.
        train_loss: nats per token of the training part.
        stopped: why the passes ended.
        seed: what it drew its random numbers from.
        facts: returns what else belongs in the model's record.
    """

    seconds: float
    tokens: int
    steps: int | None = None
    train_loss: float | None = None
    stopped: str | None = None
    seed: int | None = None
    facts: Callable[[], dict[str, Any]] = field(default=dict)


@dataclass(frozen=True)
class Estimator:
    """How the models of one architecture are estimated; `Architecture.estimator` names one.

    Attributes:
        run: fills a model, in a folder that has its configuration and tokenizer.
        models: what such models are called, in the plural.
        done: what was done to them, and how: "counted", "in one pass".
        heeds: the settings of `TrainingConfig` that it follows; it ignores the others.
    """

    run: Callable[[LoadedModel, Prepared, TrainingConfig, Report], EstimationResult]
    models: str
    done: tuple[str, str]
    heeds: frozenset[str] = frozenset()

    @classmethod
    def of(cls, architecture: str) -> Estimator | None:
        """Return an architecture's; None for one that is trained by gradients."""
        target = registry.architecture(architecture).estimator
        return None if target is None else registry.load_object(target)

    def ignored(self, settings: Sequence[str]) -> Notice | None:
        """Return a notice that names given settings of gradient training, which are ignored."""
        names = [n for n in settings if n in TrainingConfig.fields() and n not in self.heeds]
        text = f"{self.models} are {' '.join(self.done)}; ignored: {', '.join(names)}"
        return Notice(text=text) if names else None


def estimate(
    loaded: LoadedModel,
    prepared: Prepared,
    training: TrainingConfig,
    report: Report,
    about: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Estimate a model, store and publish it, and score the held-out part.

    Args:
        loaded: the model, in a folder that has its configuration and tokenizer.
        prepared: the text.
        training: of which the architecture's estimator says what it follows.
        report: takes events.
        about: what else belongs in the model's record.
    """
    started = store.now()
    stored = loaded.stored
    estimator = Estimator.of(stored.config["architecture"])
    estimated = estimator.run(loaded, prepared, training, report)
    facts = {"created": started, "seed": estimated.seed, **(about or {})}
    stored.write_weights(loaded.model)
    write_record(loaded, prepared, **facts, result=None)
    stored.seal()
    stored.publish()
    totals, seconds = None, 0.0
    if prepared.val is not None:
        totals, seconds = final_validation(as_stored(loaded))
    if totals is not None and not math.isfinite(totals.nll_nats):
        report(Notice(text="the held-out text has tokens of probability 0: its loss is infinite"))
        totals = None
    result = TrainingResult(
        name=stored.name,
        path=str(stored.path),
        architecture=stored.config["architecture"],
        parameters=loaded.model.parameter_count(),
        steps=estimated.steps,
        tokens=estimated.tokens,
        train_loss=estimated.train_loss,
        **validation_figures(totals and totals.nats_per_token, prepared),
        seconds=estimated.seconds,
        validation_seconds=seconds,
        tokens_per_second=estimated.tokens / estimated.seconds,
        stopped=estimated.stopped,
        seed=estimated.seed,
        protocol=protocol(loaded, for_model(loaded)) if totals else None,
    )
    facts |= {"result": dataclasses.asdict(result)}
    write_record(loaded, prepared, **facts, **estimated.facts())
    return result


def count_ngrams(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> EstimationResult:
    """Count the n-grams of the training part and fill the model; see `Estimator.run`."""
    corpus = prepared.as_read(prepared.train)
    never = impossible(prepared.tokenizer, loaded.framing)
    fit_result = counting.fit(loaded.model, corpus, never, training.most_bytes)
    if fit_result.fallbacks:
        report(_announced(fit_result))
    return EstimationResult(
        seconds=fit_result.seconds,
        tokens=int(corpus.tokens.size),
        facts=lambda: {"ngrams": _ngrams(loaded, prepared, fit_result)},
    )


COUNTING = Estimator(
    count_ngrams, "n-gram models", ("counted", "in one pass"), frozenset({"memory"})
)


def impossible(tokenizer: Tokenizer, framing: Framing) -> list[int]:
    """Return the ids that cannot occur in a text; they get no probability."""
    return [token for token in framing.never if token != tokenizer.unk_id]


def _announced(fit_result: counting.NGramFit) -> Notice:
    """Return one notice that names all orders with fallback discounts."""
    runs: list[list[int]] = []
    for n in fit_result.fallbacks:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    orders = [f"{run[0]}-" + (f" to {run[-1]}-" if len(run) > 1 else "") for run in runs]
    used = ", ".join(f"{d:g}" for d in fit_result.discounts[fit_result.fallbacks[0] - 1])
    grams = f"{', '.join(orders)}grams"
    return Notice(text=f"too few counts to estimate discounts for {grams}; using {used}")


def _ngrams(
    loaded: LoadedModel, prepared: Prepared, fit_result: counting.NGramFit
) -> list[dict[str, Any]]:
    """Return the facts that `models show` prints about each order."""
    unseen: list[float | None] = [None] * len(fit_result.ngrams)
    if prepared.val is not None:
        parts = (prepared.as_read(part) for part in (prepared.val, prepared.train))
        unseen = counting.unseen_fractions(loaded.model, *parts)
    discounts = fit_result.discounts or [[]] * len(fit_result.ngrams)
    return [
        {"order": n, "stored": stored, "possible": loaded.model.vocab_size**n}
        | {"held_out_unseen": unseen_of_order, "discounts": amounts}
        for n, (stored, unseen_of_order, amounts) in enumerate(
            zip(fit_result.ngrams, unseen, discounts, strict=True), start=1
        )
    ]


def run_em(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> EstimationResult:
    """Fill the model by EM, an iteration a step and an epoch; see `Estimator.run`."""
    corpus, stored = prepared.as_read(prepared.train), loaded.stored
    size, budget = int(corpus.tokens.size), Budget.of(training, steps_per_epoch=1)

    with stored.log(METRICS) as metrics:

        def enough(done: baum_welch.Pass) -> str | None:
            share = budget.share(Run(step=done.number, seconds=done.seconds))
            event = Iteration(
                step=done.number,
                share=share,
                seconds=done.seconds,
                tokens=done.number * size,
                train_loss=done.nats_per_token,
                tokens_per_second=done.number * size / done.seconds,
            )
            metrics.write(dataclasses.asdict(event))
            report(event)
            return training.budget if share >= 1 else None

        never = impossible(prepared.tokenizer, loaded.framing)
        fit_result = baum_welch.fit(loaded.model, corpus, never, training.seed, enough)
    last = fit_result.passes[-1]
    return EstimationResult(
        seconds=last.seconds,
        tokens=last.number * size,
        steps=last.number,
        train_loss=last.nats_per_token,
        stopped=fit_result.stopped,
        seed=training.seed,
    )


EXPECTATION = Estimator(
    run_em,
    "hidden Markov models",
    ("estimated", "by EM"),
    frozenset({"seed", "steps", "epochs", "minutes"}),
)


def store_lines(
    loaded: LoadedModel, prepared: Prepared, training: TrainingConfig, report: Report
) -> EstimationResult:
    """Store the lines of the training part; see `Estimator.run`."""
    began = time.perf_counter()
    framing, units = loaded.framing, loaded.model.config.units
    never = impossible(prepared.tokenizer, framing)
    stored = store_patterns(loaded.model, prepared.train, never, framing.end, training.seed)
    load = f"{plural(stored, 'pattern')} in {plural(units, 'unit')}, {stored / units:.3f} per unit"
    full = stored > CAPACITY * units
    more = f"; above {CAPACITY:g}, few are restored: raise bits" if full else ""
    report(Notice(text=load + more))
    return EstimationResult(
        seconds=time.perf_counter() - began,
        tokens=int(prepared.train.tokens.size),
        seed=training.seed,
        facts=lambda: {"patterns": stored},
    )


STORING = Estimator(
    store_lines, "associative memories", ("stored", "in one pass"), frozenset({"seed"})
)


def store_patterns(
    model: Hopfield, corpus: Corpus, impossible: Sequence[int], end: int, seed: int
) -> int:
    """Store every distinct line; return how many there are.

    What follows a line's end is random: if it were the same for all lines, short ones would run
    into one another.

    Args:
        model: its configuration says how lines become patterns.
        corpus: the lines, each with its end.
        impossible: ids that no line has, such as padding.
        end: the id that ends each line.
        seed: what the tokens' codes are drawn from, and what follows the ends.

    Raises:
        SeqgenError: a line is too long.
    """
    config = model.config
    lines = padded(corpus, config.length, end)
    random = np.random.default_rng(seed)
    signs = np.array([-1, 1], dtype=np.int8)
    codes = random.choice(signs, (config.length, config.vocab_size, config.bits))
    codes[:, list(impossible)] = 0
    patterns = codes[np.arange(config.length), lines]  # (P, L, bits)
    ended = np.cumsum(lines == end, axis=1) > 1
    patterns[ended] = random.choice(signs, (np.count_nonzero(ended), config.bits))
    patterns = patterns.reshape(len(lines), -1)  # (P, n)
    model.codes.copy_(torch.from_numpy(codes))
    model.weights.copy_(torch.from_numpy(RULES[config.rule](patterns)))
    return len(patterns)


def padded(corpus: Corpus, length: int, end: int) -> np.ndarray:
    """Return the distinct lines of a corpus, each filled up with `end`, (P, length) of int64.

    Raises:
        SeqgenError: a line is longer.
    """
    sizes = np.diff(corpus.ends, prepend=0) - 1  # without the end
    if sizes.max() > length:
        number = int(np.argmax(sizes > length))
        raise SeqgenError(
            f"line {number + 1} has {sizes[number]:,} tokens, more than length {length:,}; "
            f"shorten it, or give --set length={sizes.max()}"
        )
    at = corpus.starts[:, None] + np.arange(length)
    inside = np.arange(length) < sizes[:, None]
    lines = np.where(inside, corpus.tokens[np.where(inside, at, 0)], end).astype(np.int64)
    return np.unique(lines, axis=0)

"""`--with-ngram`: count an n-gram model, and mix it with the trained network."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from seqgen import store
from seqgen.errors import Interrupted, SeqgenError
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.scoring.loop import parallel_rows
from seqgen.scoring.mixing import write_stored
from seqgen.scoring.mixture_fitting import fit_on_half, fitting_part, token_log_probs
from seqgen.settings import DataConfig, require
from seqgen.settings.training import FINISHED, TrainingConfig
from seqgen.store import StoredMixture, StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import load_stored, mixture_of, require_alike
from seqgen.text.corpus import Corpus
from seqgen.text.framing import Framing
from seqgen.training import family
from seqgen.training.choosing import SMALL_TEXT, recommended_order
from seqgen.training.counting import fit
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.estimate import estimate
from seqgen.training.estimators import impossible
from seqgen.training.events import Notice, Report, notify_if_slow
from seqgen.training.plan import Plan
from seqgen.training.session import (
    Session,
    TrainingResult,
    load_best,
    validation_figures,
    write_new,
)
from seqgen.wording import plural

# The value of `with_ngram` for which the order is chosen by held-out loss.
OPEN = 0
# Orders that are tried, in turn, until one is no better than the one before: of characters or
# bytes, and of longer tokens.
SPELLED_ORDERS, ORDERS = range(4, 11), range(2, 7)
# Orders are tried, and mixtures recommended, by counts of so many tokens at the start of the
# text: that takes seconds.
MOST_COUNTED = 3_000_000
# Rows and tokens per row of the held-out text on which orders are tried and mixtures recommended.
TRIED_ROWS, TRIED_LENGTH = 32, 512
# A mixture that is better by so many nats per token is recommended.
WORTH_IT = 0.01


@dataclass(frozen=True)
class MixedWithNGram:
    """The key `mixture` of the final record of `seqgen train --json`.

    Attributes:
        name: the mixture's.
        path: its folder.
        ngram: the name of the n-gram model.
        order: its order.
        weights: the network's and the n-gram model's.
        by_order: their weights for each order matched, from 0 on; None where they are the same.
        gate: the coefficients of a gate, used instead of weights; None where it is no better.
        tokens: of the half of the held-out part that the weights were not fitted on.
        network_loss: the network's on that half, in nats per token.
        ngram_loss: likewise the n-gram model's.
        mixture_loss: likewise the mixture's.
    """

    name: str
    path: str
    ngram: str
    order: int
    weights: list[float]
    by_order: list[list[float]] | None
    gate: list[list[float]] | None
    tokens: int
    network_loss: float
    ngram_loss: float
    mixture_loss: float


def for_small_text(plan: Plan, prepared: Prepared, report: Report) -> Plan:
    """Add an n-gram model to the plan of `--model auto` if the text is small.

    Args:
        plan: of a network.
        prepared: the text.
        report: takes a line that says so, or why it is not done.
    """
    small = prepared.facts.bytes < SMALL_TEXT
    if not small or plan.training.with_ngram is not None:
        return plan
    size = f"the text has only {plural(prepared.facts.bytes, 'byte')}"
    network = plan.architecture, plan.training, prepared.config
    if why_not := family.why_not_mixable(*network, prepared=prepared):
        report(Notice(text=f"{size}, but no mixture is made: --with-ngram {why_not}"))
        return plan
    report(Notice(text=f"{size}: an n-gram model is counted too, and mixed with the network"))
    return plan.with_given({"with_ngram": OPEN})


def order_of(
    architecture: str, training: TrainingConfig, prepared: Prepared, report: Report
) -> int | None:
    """Return the order of the n-gram model; None without `--with-ngram`.

    One left open is the order with the lowest loss on the first half of the held-out part.

    Raises:
        UsageError: the network cannot be mixed with one.
    """
    if training.with_ngram is None:
        return None
    why_not = family.why_not_mixable(architecture, training, prepared.config, prepared=prepared)
    require(why_not is None, f"--with-ngram {why_not}")
    if training.with_ngram != OPEN:
        return training.with_ngram
    half = parallel_rows(prepared.val, 1, prepared.val.tokens.size // 2)
    part = parallel_rows(half, TRIED_ROWS, TRIED_LENGTH)
    losses: dict[int, float] = {}
    direction = prepared.config.direction
    for order in SPELLED_ORDERS if prepared.spelled else ORDERS:
        model = _count_sample(prepared, order)
        losses[order] = -token_log_probs(model, part, direction=direction).mean()
        if losses[order] > min(losses.values()):
            break
    best = min(losses, key=losses.get)
    loss = f"{losses[best]:.4f} nats/token on held-out text"
    tried = f"order {best}, the best of {min(losses)} to {max(losses)}"
    report(Notice(text=f"n-gram model: {tried}, has {loss}"))
    return best


def finish(session: Session, result: TrainingResult) -> TrainingResult:
    """Count and mix after a run with `--with-ngram`; after others, recommend it if it helps.

    Args:
        session: whose run has ended.
        result: of the run.

    Raises:
        Interrupted: before the mixture was stored; the network is.
    """
    if result.stopped not in FINISHED:
        return result
    if session.training.with_ngram is None:
        with notify_if_slow(session.report, "trying a mixture with an n-gram model"):
            _recommend(session)
        return result
    try:
        with notify_if_slow(session.report, "counting n-grams and fitting the mixture"):
            mixed = _mix(session)
    except KeyboardInterrupt:
        name = session.stored.name
        raise Interrupted(
            f"stopped before the mixture was stored; resume with: seqgen train --resume {name}"
        ) from None
    result = replace(result, mixture=asdict(mixed))
    session.write_record(result)
    return result


def _mix(session: Session) -> MixedWithNGram:
    """Count the n-gram model, and store it and the mixture."""
    prepared, stored = session.prepared, session.stored
    network = load_best(session.loaded)
    names = family.family_names(stored.name)
    ngram = _find_stored_ngram(session, network, names[0]) or _count(session, names[0])
    counted = ngram.stored
    part = fitting_part(prepared.val)
    fitted = fit_on_half([network.model, ngram.model], part, direction=prepared.config.direction)
    networks, shares = (stored,), (1.0,)
    if isinstance(network.stored, StoredMixture):
        networks, shares = network.stored.parts, network.stored.weights

    def divided(weights: Sequence[float]) -> tuple[float, ...]:
        """Return weights with the network's divided among its members, if it has any."""
        of_network, of_ngram = weights
        return (*(of_network * share for share in shares), of_ngram)

    weights, by_order = divided(fitted.weights), tuple(map(divided, fitted.by_order))
    mixture = StoredMixture(stored.path, (*networks, counted), weights, by_order, fitted.gate)
    parts = [*network.model.parts, ngram.model]
    loss = fitted.all_nats / part.tokens.size if part is prepared.val else None
    folder = write_stored(
        replace(network, stored=mixture, model=mixture_of(parts, mixture)),
        name=family.find_replaceable(names[1], session.family),
        stem=names[1],
        copy=True,
        overwrite=True,
        result=validation_figures(loss, prepared),
        about={family.FAMILY: session.family, "held_out_loss": fitted.losses[-1]},
    )
    network_loss, ngram_loss, mixture_loss = fitted.losses
    return MixedWithNGram(
        name=folder.name,
        path=str(folder.path),
        ngram=counted.name,
        order=counted.config["model"]["order"],
        weights=list(fitted.weights),
        by_order=list(map(list, fitted.by_order)) or None,
        gate=list(map(list, fitted.gate)) or None,
        tokens=fitted.tokens,
        network_loss=network_loss,
        ngram_loss=ngram_loss,
        mixture_loss=mixture_loss,
    )


def _count(session: Session, stem: str) -> LoadedModel:
    """Count an n-gram model of the network's text, and store it."""
    prepared, order = session.prepared, session.training.with_ngram
    model = NGram(NGramConfig(vocab_size=prepared.tokenizer.vocab_size, order=order))
    name = family.find_replaceable(stem, session.family)
    with store.building(name, stem, overwrite=True) as folder:
        framing = session.loaded.framing
        tokens = prepared.tokenizer, prepared.config
        loaded = LoadedModel(folder, model, *tokens, own_framing=framing)
        write_new(loaded, prepared, "ngram")
        about = {family.FAMILY: session.family}
        estimate(loaded, prepared, session.training, session.report, about)
    return load_stored(StoredModel(folder.path), session.loaded.model.device, "auto")


def _find_stored_ngram(session: Session, network: LoadedModel, stem: str) -> LoadedModel | None:
    """Find the n-gram model that an earlier run stored with the network, if still valid."""
    order = session.training.with_ngram
    for stored in family.models_of_family(stem, session.family):
        with contextlib.suppress(SeqgenError, OSError, LookupError, TypeError):
            sha256 = stored.record["data"]["sha256"]
            same_text = sha256 == session.prepared.facts.sha256
            same_reading = stored.settings("data", DataConfig) == session.prepared.config
            if same_text and same_reading and stored.config["model"]["order"] == order:
                stored.check()
                loaded = load_stored(stored, network.model.device, "auto")
                require_alike(network, loaded)
                return loaded
    return None


def _recommend(session: Session) -> None:
    """Recommend a mixture if it scores better and the budget was in minutes."""
    prepared = session.prepared
    name, architecture = session.stored.name, session.stored.config["architecture"]
    network = architecture, session.training, prepared.config, name, prepared
    if family.why_not_mixable(*network) is not None or session.training.minutes is None:
        return
    part = parallel_rows(prepared.val, TRIED_ROWS, TRIED_LENGTH)
    if part.tokens.size < 2:
        return
    model = load_best(session.loaded).model
    ngram = _count_sample(prepared, recommended_order(prepared)).to(model.device)
    fitted = fit_on_half([model, ngram], part, direction=prepared.config.direction)
    alone, _, mixed = fitted.losses
    if alone - mixed > WORTH_IT:
        better = f"about {alone - mixed:.2f} nats/token better than {name} alone"
        command = f"seqgen train --resume {name} --with-ngram"
        session.report(Notice(text=f"mixed with an n-gram model it is {better}: {command}"))


def _count_sample(prepared: Prepared, order: int) -> NGram:
    """Count an n-gram model of the training part, or of the start of a large one."""
    model = NGram(NGramConfig(vocab_size=prepared.tokenizer.vocab_size, order=order))
    train: Corpus = prepared.train
    if train.tokens.size > MOST_COUNTED:
        train = parallel_rows(train, 1, MOST_COUNTED)
    framing = Framing.of(prepared.tokenizer, prepared.config.documents)
    fit(model, prepared.as_read(train), impossible(prepared.tokenizer, framing))
    return model.eval()

"""N-gram models beside networks: counted after training, and mixed with the network if it helps."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from seqgen import ranks
from seqgen.engines.memory_limit import memory
from seqgen.errors import Interrupted, SeqgenError
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.scoring.loop import parallel_rows
from seqgen.scoring.mixture_fitting import token_log_probs
from seqgen.settings import DataConfig, require
from seqgen.settings.training import FINISHED, TrainingConfig
from seqgen.store import StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import load_stored, require_alike
from seqgen.text.framing import Framing
from seqgen.training.counting import fit
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.deadline import Deadline
from seqgen.training.estimate import store_estimate
from seqgen.training.estimators import BYTES_COUNTED, impossible_ids
from seqgen.training.events import Event, Notice, Report, notify_if_slow
from seqgen.training.plan import Plan, why_not_mixable
from seqgen.training.scored_part import fit_on_first_half, score_alone
from seqgen.training.session import (
    Session,
    TrainingResult,
    keep_settings,
    load_best,
    write_new,
)

# The name of the n-gram model's folder in the network's.
PART = "ngram"
# The value of `with_ngram` for which the order is chosen by held-out loss.
OPEN = 0
# Orders that are tried, of characters or bytes and of longer tokens; from the first one up or else
# down, until one is no better than the one before.
SPELLED_ORDERS, ORDERS = (4, 5, 6, 8, 10, 15, 20), range(2, 7)
FIRST_SPELLED_ORDER, FIRST_ORDER = 6, 3
# A model of an order above 10 takes about 6 bytes for each token and each of the order, so that it
# is tried only if the order times the tokens is less.
LARGEST_MODEL = 30_000_000
# Orders are tried by counts of so many tokens at the start of the text: that takes seconds.
MOST_COUNTED = 3_000_000
# In timed runs so many tokens a minute are counted at most for each order that is tried, and orders
# are tried for this share of the budget.
TRIED_PER_MINUTE, ORDER_SHARE = 1_500_000, 0.02
# The n-gram model of a timed run is counted on so many tokens a minute at most, divided by its
# order squared: that takes about a third of the budget, as measured on texts of 10 to 100 MB.
COUNTED_PER_MINUTE = 600_000_000
# Rows and tokens per row of the held-out text on which orders are tried.
TRIED_ROWS, TRIED_LENGTH = 32, 512
# The part of the held-out tokens from which those rows are: well within the text's first half.
TRIED_PART = 0.4
# A mixture is kept if it is better than the network by more nats per token, and no worse than its
# n-gram model by more.
WORTH_KEEPING = 0.005
# After a timed run, weights are fitted in this share of the time that is left.
FIT_SHARE = 0.5


@dataclass(frozen=True)
class MixedWithNGram:
    """The key `mixture` of the final record of `seqgen train --json`.

    Attributes:
        name: the model's.
        path: its folder.
        order: of the n-gram model in it.
        weights: the network's and the n-gram model's.
        by_order: their weights for each order matched, from 0 on; None where they are the same.
        gate: the coefficients of a gate, used instead of weights; None where it is no better.
        tokens: of the part of the held-out text on which nothing was fitted.
        network_loss: the network's on that part, in nats per token.
        ngram_loss: likewise the n-gram model's.
        mixture_loss: likewise the mixture's, which is the model's `val_loss`.
    """

    name: str
    path: str
    order: int
    weights: list[float]
    by_order: list[list[float]] | None
    gate: list[list[float]] | None
    tokens: int
    network_loss: float
    ngram_loss: float
    mixture_loss: float


def add_ngrams(plan: Plan, prepared: Prepared, report: Report, detail: bool) -> Plan:
    """Add an n-gram model to the plan of `--model auto` where one is possible.

    Args:
        plan: of a network.
        prepared: the text.
        report: takes a line that says why not.
        detail: that line is a detail.
    """
    if plan.training.with_ngram is not None:
        return plan
    network = plan.architecture, plan.training, prepared.config
    if why_not := why_not_mixable(*network, prepared=prepared):
        report(Notice(text=f"the network is trained alone: --with-ngram {why_not}", detail=detail))
        return plan
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
    why_not = why_not_mixable(architecture, training, prepared.config, prepared=prepared)
    require(why_not is None, f"--with-ngram {why_not}")
    if training.with_ngram != OPEN:
        return training.with_ngram
    return ranks.run_on_leader(lambda: _best_order(training, prepared, report))


def _best_order(training: TrainingConfig, prepared: Prepared, report: Report) -> int:
    """Find the order with the lowest loss on the first half of the held-out part."""
    begin = parallel_rows(prepared.val, 1, max(1, int(prepared.val.tokens.size * TRIED_PART)))
    part = parallel_rows(begin, TRIED_ROWS, TRIED_LENGTH)
    minutes = training.minutes or math.inf
    tokens = min(MOST_COUNTED, TRIED_PER_MINUTE * minutes)
    deadline = Deadline.after(ORDER_SHARE * 60 * minutes)
    losses: dict[int, float] = {}

    def improves(order: int) -> bool:
        """Measure the loss of an order; tell whether it is the lowest so far."""
        model = _count_sample(prepared, order, training.most_bytes, tokens)
        losses[order] = -token_log_probs(model, part, direction=prepared.config.direction).mean()
        return losses[order] == min(losses.values())

    spelled = FIRST_SPELLED_ORDER, SPELLED_ORDERS
    first, orders = spelled if prepared.spelled else (FIRST_ORDER, ORDERS)
    longest = max(10, LARGEST_MODEL // prepared.train.tokens.size)
    improves(first)
    higher = [order for order in orders if first < order <= longest]
    lower = [order for order in reversed(orders) if order < first]
    for others in (higher, lower):
        while others and not deadline.has_passed and improves(others.pop(0)):
            pass
        if min(losses, key=losses.get) > first:
            break
    best = min(losses, key=losses.get)
    loss = f"{losses[best]:.4f} nats/token on held-out text"
    tried = f"order {best}, the best of {min(losses)} to {max(losses)}"
    report(Notice(text=f"n-gram model: {tried}, has {loss}", detail=True))
    return best


def count_ngrams(session: Session) -> None:
    """Count the n-gram model of a run with `--with-ngram`, and store it in the network's folder.

    That comes before training, so that a budget in minutes knows how long it took.
    """
    if session.training.with_ngram is not None:
        _counted_model(session)


def _counted_model(session: Session) -> StoredModel:
    """Find the n-gram model that is stored with the network, or count it."""
    if (part := _find_counted(session)) is None:
        with notify_if_slow(session.report, "counting n-grams"):
            part = _count(session)
    return part


def finish(session: Session, result: TrainingResult) -> TrainingResult:
    """Add the n-gram part after a run with `--with-ngram`.

    Args:
        session: whose run has ended.
        result: of the run, without a final validation if there is to be an n-gram part.

    Raises:
        Interrupted: before that was done; the network is stored.
    """
    if result.stopped not in FINISHED or session.training.with_ngram is None:
        return result
    again = "the mixture was fitted again, so it has its old weights"
    pending = "the n-gram model was added" if session.stored.ngram is None else again
    try:
        with session.scoring_threads():
            with notify_if_slow(session.report, "fitting the mixture with the n-gram model"):
                parts = _mix(session)
            session.write_record(result)  # no figures until the mixture is validated
            pending = "the final validation"
            result = session.validated(result)
            mixed = None if parts is None else _mixed(session, parts, result.val_loss)
            kept = mixed and _keep_best(session, mixed)
            if kept is not mixed:
                mixed, result = kept, session.validated(result, again=kept is not None)
    except KeyboardInterrupt:
        resume = f"resume with: seqgen train --resume {session.stored.name}"
        raise Interrupted(f"stopped before {pending}; {resume}") from None
    if mixed is not None and result.members:
        result = replace(result, members={**result.members, "loss": mixed.network_loss})
    result = replace(result, mixture=mixed and asdict(mixed))
    session.write_record(result)
    return result


def _mix(session: Session) -> tuple[LoadedModel, LoadedModel] | None:
    """Fit the weights of the network and the n-gram model, and store them.

    Returns:
        Both; None if there is too little text to fit on, and the network is stored alone.
    """
    stored = session.stored
    network = load_best(replace(session.loaded, stored=stored.networks))
    ngram = load_stored(_counted_model(session), network.model.device, "auto")
    require_alike(network, ngram)
    models = network.model, ngram.model
    fitted, half = fit_on_first_half(network, models, FIT_SHARE * session.deadline.left)
    if fitted is None:
        session.report(
            Notice(text="too little is held out to fit weights: no n-gram model is added")
        )
        _leave_out(session)
        return None
    shares = network.model.weights.ravel().tolist() if stored.members else [1.0]

    def divided(weights: Sequence[float]) -> list[float]:
        """Return weights with the network's divided among its members, if it has any."""
        of_network, of_ngram = weights
        return [*(of_network * share for share in shares), of_ngram]

    path = ngram.stored.path.relative_to(stored.path).as_posix()
    part = replace(ngram.stored.reference, path=path)
    tables = {
        "weights": divided(fitted.weights),
        "by_order": list(map(divided, fitted.by_order)),
        "gate": list(map(list, fitted.gate)),
    }
    keep_settings(stored, ngram={"part": part.to_dict(), **tables}, scored_from=half)
    return network, ngram


def _mixed(
    session: Session, parts: Sequence[LoadedModel], mixture_loss: float | None
) -> MixedWithNGram:
    """Describe a stored mixture, with the losses of its parts where the mixture's is measured."""
    stored = session.stored
    alone = score_alone(parts, stored.scored_from)
    tables = stored.config["ngram"]
    *of_networks, of_ngram = tables["weights"]
    return MixedWithNGram(
        name=stored.name,
        path=str(stored.path),
        order=parts[1].model.config.order,
        weights=[sum(of_networks), of_ngram],
        by_order=[[sum(row[:-1]), row[-1]] for row in tables["by_order"]] or None,
        gate=tables["gate"] or None,
        tokens=alone[0].tokens,
        network_loss=alone[0].nats_per_token,
        ngram_loss=alone[1].nats_per_token,
        mixture_loss=mixture_loss,
    )


def _keep_best(session: Session, mixed: MixedWithNGram) -> MixedWithNGram | None:
    """Keep the mixture, or one part alone: weights may be wrong where the text changes.

    Returns:
        What is stored now; the n-gram model alone is a mixture without weight for the network. None
        for the network alone.
    """
    stored, alone = session.stored, min(mixed.network_loss, mixed.ngram_loss)
    if mixed.mixture_loss is None or alone - mixed.mixture_loss > WORTH_KEEPING:
        return mixed
    if mixed.network_loss - mixed.ngram_loss <= WORTH_KEEPING:
        with_it = f"with an n-gram model of order {mixed.order} it is no better"
        session.report(Notice(text=f"{with_it}: the network is stored alone"))
        _leave_out(session)
        return None
    if mixed.mixture_loss - mixed.ngram_loss <= WORTH_KEEPING:
        return mixed
    session.report(Notice(text="the n-gram model alone is better than the mixture, and used alone"))
    tables = {**stored.config["ngram"], "by_order": [], "gate": []}
    tables["weights"] = [*(0.0 for _ in tables["weights"][1:]), 1.0]
    keep_settings(stored, ngram=tables)
    only = {"weights": [0.0, 1.0], "by_order": None, "gate": None}
    return replace(mixed, **only, mixture_loss=mixed.ngram_loss)


def _count(session: Session) -> StoredModel:
    """Count an n-gram model of the network's text, and store it in the network's folder."""
    prepared, stored, order = session.prepared, session.stored, session.training.with_ngram
    _leave_out(session)
    model = NGram(NGramConfig(vocab_size=prepared.tokenizer.vocab_size, order=order))
    tokens = prepared.tokenizer, prepared.config
    loaded = LoadedModel(stored.new_part(PART), model, *tokens, own_framing=session.loaded.framing)
    write_new(loaded, prepared, "ngram")
    if (counted := _counted_part(session)) is not prepared:
        part = f"first {counted.train.tokens.size:,} of {prepared.train.tokens.size:,} tokens"
        session.report(Notice(text=f"n-grams are counted on the {part}, to save time and memory"))

    def report(event: Event) -> None:
        session.report(replace(event, detail=True) if isinstance(event, Notice) else event)

    store_estimate(loaded, counted, session.training, report)
    return stored.part(PART)


def _counted_part(session: Session) -> Prepared:
    """Cut the training part to what a budget in minutes can count, within half of the memory."""
    training, order = session.training, session.training.with_ngram
    most = COUNTED_PER_MINUTE * (training.minutes or math.inf) / order**2
    if training.minutes is not None and training.memory is None:
        most = min(most, memory() / 2 / (BYTES_COUNTED * order))
    return _beginning(session.prepared, most)


def _leave_out(session: Session) -> None:
    """Delete the n-gram part, if there is one; the network is stored alone then."""
    stored = session.stored
    if stored.ngram is not None:
        keep_settings(stored, ngram=None, scored_from=stored.networks.scored_from or None)
    stored.delete_parts()


def _find_counted(session: Session) -> StoredModel | None:
    """Find the n-gram model that was counted and stored with the network, if it is valid."""
    part = session.stored.part(PART)
    with contextlib.suppress(SeqgenError, OSError, LookupError, TypeError):
        same_text = part.record["data"]["sha256"] == session.prepared.facts.sha256
        same_reading = part.settings("data", DataConfig) == session.prepared.config
        same_order = part.config["model"]["order"] == session.training.with_ngram
        size = _counted_part(session).train.tokens.size
        same_part = part.record.get("tokens", size) == size
        if same_text and same_reading and same_order and same_part:
            part.check()
            return part
    return None


def _count_sample(prepared: Prepared, order: int, most_bytes: int | None, tokens: float) -> NGram:
    """Count an n-gram model of the training part, or of the first tokens of a large one."""
    model = NGram(NGramConfig(vocab_size=prepared.tokenizer.vocab_size, order=order))
    framing = Framing.of(prepared.tokenizer, prepared.config.documents)
    text = prepared.as_read(_beginning(prepared, tokens).train)
    fit(model, text, impossible_ids(prepared.tokenizer, framing), most_bytes)
    return model.eval()


def _beginning(prepared: Prepared, tokens: float) -> Prepared:
    """Cut a training part after so many tokens, and the held-out part in proportion."""
    val, size = prepared.val, prepared.train.tokens.size
    if size <= tokens:
        return prepared
    if val is not None:
        val = parallel_rows(val, 1, max(1, int(val.tokens.size * tokens / size)))
    return replace(prepared, train=parallel_rows(prepared.train, 1, int(tokens)), val=val)

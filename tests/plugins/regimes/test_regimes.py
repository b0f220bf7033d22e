"""Each regime's loss and gradient against the same unrolled by hand, row by row and token by token.

All in float64, on models whose weights do not move: the rate is next to nothing.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from architectures import NEURAL, PAIRS, VOCAB, Case, first_of_each, ids, over, representatives
from hypothesis import given
from hypothesis import strategies as st
from training_runs import corpus_of

from seqgen.hashing import uniforms
from seqgen.plugins.regimes.scheduled import real_probability
from seqgen.plugins.regimes.sequences import cost_of, edit_cost, mark_distinct
from seqgen.plugins.regimes.unlikelihood import unlikelihood
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import IGNORED, Batch, portions, training_batches
from seqgen.text.corpus import Corpus
from seqgen.text.sources import TokenSources
from seqgen.training import loop
from seqgen.training.events import Progress
from seqgen.training.loop import Trainer
from seqgen.training.objective import Objective
from seqgen.training.regimes.base import StepProgress, TextRules
from seqgen.training.run import Hooks

SEED, END, NEVER = 4, 5, (0,)
REGIME, TOKEN, COIN = 6, 0, 1
TEXTS = representatives(first_of_each(NEURAL))
WRITERS = first_of_each(PAIRS)
FEW = [case for case in TEXTS if case.architecture in ("lstm", "transformer")] + WRITERS


def documents(*lengths):
    """Return documents of random tokens, END at the end of each and nowhere else."""
    texts = [[*(1 + ids(n - 1, seed=n, vocab=4)).tolist(), END] for n in lengths]
    return Corpus(np.concatenate(texts).astype(np.uint8), np.cumsum(lengths), start=6)


def pairs(*lengths):
    sources = TokenSources.of([ids(1 + n % 4, seed=n).tolist() for n in range(len(lengths))])
    texts = documents(*lengths)
    return Corpus(texts.tokens, texts.ends, 6, sources=sources)


def trainer_of(case, monkeypatch, steps=1, lines=False, batch_size=3, accumulate=1, **settings):
    """Return a trainer of a loud model that writes or reads as the regime says, and its events."""
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)
    model = case.loud()
    of_pairs = case in PAIRS
    corpus = pairs(2, 5, 3, 4) if of_pairs else documents(3, 6, 4, 5) if lines else corpus_of(40)
    kind = "line" if lines or of_pairs else "stream"
    batches = training_batches(corpus, kind, model.carries_state, batch_size, 6, seed=3)
    still = {"lr": 1e-30, "weight_decay": 0.0, "clip_norm": 0.0, "precision": "float64"}
    config = TrainingConfig(seed=SEED, steps=steps, accumulate=accumulate, **{**still, **settings})
    text_rules = TextRules(end=END if lines or of_pairs else None, never=NEVER)
    events = []
    hooks = Hooks(report=events.append)
    return Trainer(model, batches, config, hooks, text_rules), events


class Unrolled:
    """Reads the rows of a batch one at a time, each from its beginning, by training calls."""

    def __init__(self, model, batch, pasts=None):
        self.model, self.batch = model, batch
        self.pasts = pasts or [None] * len(batch.tokens)

    def past(self, row):
        source = self.batch.source
        if source is None:
            return self.pasts[row]
        values = torch.from_numpy(source.values[row : row + 1, : source.lengths[row]])
        return self.model.encode(values, [source.lengths[row]])

    def logits(self, row, inputs):
        return self.model(torch.tensor([inputs]), self.past(row))[0][0]

    def features(self, row, inputs):
        return self.model.hidden(torch.tensor([inputs]), self.past(row))[0][0]

    def log_prob(self, row, inputs, targets):
        """Return the log-probability of the last tokens, each after all before it."""
        log_probs = self.logits(row, inputs).log_softmax(-1)[-len(targets) :]
        return sum(log_probs[t, target] for t, target in enumerate(targets))

    def real(self, row):
        """Return what a row reads, and its targets, without padding."""
        targets = self.batch.targets[row]
        length = int((targets != IGNORED).sum())
        return self.batch.tokens[row, :length].tolist(), targets[:length].tolist()

    def drawn(self, row, inputs, step, column, which=0, never=NEVER):
        mass = self.logits(row, inputs)[-1].detach().softmax(-1).tolist()
        mass = [0.0 if token in never else p for token, p in enumerate(mass)]
        draw = float(uniforms(REGIME, SEED, step, row, column, TOKEN, which)) * sum(mass)
        return next(token for token in range(VOCAB) if sum(mass[: token + 1]) > draw)

    def mixed(self, row, step, is_real, never):
        tokens, _ = self.real(row)
        inputs = tokens[:1]
        for t in range(1, len(tokens)):
            own = self.drawn(row, inputs, step, t, never=never)
            inputs.append(tokens[t] if is_real(t) else own)
        return inputs

    def written(self, row, prompt, most, choose, end):
        """Return what the model writes after the first tokens of a row."""
        begin, _ = self.real(row)
        text, padded = [], self.batch.tokens[row].tolist()
        begin = padded[:prompt]
        while len(text) < most and (not text or text[-1] != end):
            text.append(choose(begin + text, prompt + len(text)))
        return begin, text


def check(trainer, event, wanted, nats, count):
    """Compare a step's gradient and loss with those of a reference on the same weights."""
    assert event.train_loss == pytest.approx(nats.item() / count, rel=1e-10)
    named = dict(trainer.model.named_parameters())
    given = {name: p.grad for name, p in named.items()}
    gradient = torch.autograd.grad(wanted / count, list(named.values()), allow_unused=True)
    for name, own in zip(named, gradient, strict=True):
        known = torch.zeros_like(named[name]) if given[name] is None else given[name]
        own = torch.zeros_like(known) if own is None else own
        torch.testing.assert_close(known, own, rtol=1e-8, atol=1e-11, msg=name)


def run_steps(trainer, events):
    trainer.train()
    return [event for event in events if isinstance(event, Progress)][-1]


def cross_entropy(logits, targets):
    return F.cross_entropy(logits, torch.tensor(targets), reduction="sum")


# ---- regimes that read their own tokens ----


def check_own_tokens(trainer, event, is_real, steps, never):
    """Unroll all steps, because what is read changes the state that is carried."""
    model, pasts = trainer.model, None
    for step in range(steps):
        batch = trainer.batches.batch(step)
        rows, total, after = Unrolled(model, batch, None if batch.fresh else pasts), 0.0, []
        differ = False
        for row in range(len(batch.tokens)):
            tokens, targets = rows.real(row)
            inputs = rows.mixed(
                row, step, functools.partial(is_real, step, row, len(targets)), never
            )
            differ |= inputs != tokens
            total = total + cross_entropy(rows.logits(row, inputs), targets)
            after.append(model(torch.tensor([inputs]), rows.past(row))[1])
        pasts = [state and state.detach() for state in after]
        if not model.carries_state:
            pasts = None
    assert differ
    check(trainer, event, total, total, batch.count)


@pytest.mark.fast_for(
    "*-lstm-plain", "*-rnn-tanh", "token-transformer-default", "sequence-seq2seq-additive"
)
@over(TEXTS + WRITERS)
@pytest.mark.parametrize("unit", ["token", "sequence"])
def test_scheduled_sampling_unrolled(case, unit, monkeypatch):
    settings = {"regime": "scheduled", "sampling_k": 0.4, "sampling_floor": 0.4}
    steps = 1 if case in PAIRS else 2
    trainer, events = trainer_of(case, monkeypatch, steps, sampling_unit=unit, **settings)
    event = run_steps(trainer, events)
    assert event.figures == pytest.approx({"real_probability": 0.4})

    def is_real(step, row, length, t):
        column = t if unit == "token" else 0
        return float(uniforms(REGIME, SEED, step, row, column, COIN)) < 0.4

    never = (*NEVER, END) if case in PAIRS else NEVER
    check_own_tokens(trainer, event, is_real, steps, never)


@pytest.mark.fast_for("None-*", "2-lstm-plain", "2-transformer-default", rest="slow")
@over(TEXTS + WRITERS)
@pytest.mark.parametrize("prefix", [None, 2])
def test_free_running_unrolled(case, prefix, monkeypatch):
    lines = case not in PAIRS and prefix == 2
    trainer, events = trainer_of(case, monkeypatch, 1, lines, regime="free-running", prefix=prefix)
    event = run_steps(trainer, events)
    # A quarter of six columns, and one, are the same: the first.
    check_own_tokens(
        trainer,
        event,
        lambda step, row, length, t: t < (prefix or 1),
        1,
        (*NEVER, END) if lines or case in PAIRS else NEVER,
    )


@pytest.mark.fast_for("*-lstm-plain", "scheduled-*")
@over(FEW)
@pytest.mark.parametrize(
    "regime", ["scheduled", "free-running", "professor-forcing", "minimum-risk", "decoding"]
)
def test_what_is_drawn_does_not_depend_on_the_parts_of_a_batch(case, regime, monkeypatch):
    gradients = []
    more = {"sampling_k": 0.5} if regime == "scheduled" else {}
    for accumulate in (1, 2):
        trainer, events = trainer_of(
            case, monkeypatch, batch_size=4, accumulate=accumulate, regime=regime, **more
        )
        gradients.append((run_steps(trainer, events), trainer))
    (one, whole), (other, parts) = gradients
    assert other.train_loss == pytest.approx(one.train_loss, rel=1e-12)
    assert other.figures == pytest.approx(one.figures)
    for p, q in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        if p.grad is not None:
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, [1.0, 0.75, 0.5, 0.5]),
        ({"sampling_floor": 0.0, "sampling_slope": 0.008}, [1.0, 0.8, 0.6, 0.2]),
        ({"sampling_decay": "exponential"}, [1.0, 0.97**25, 0.97**50, 0.97**100]),
        (
            {"sampling_decay": "inverse-sigmoid", "sampling_k": 10},
            [10 / 11, 10 / (10 + np.e**2.5), 10 / (10 + np.e**5), 10 / (10 + np.e**10)],
        ),
    ],
)
def test_how_the_probability_of_real_tokens_falls(settings, wanted):
    config = TrainingConfig(steps=1, regime="scheduled", **settings)
    assert [real_probability(config, s) for s in (0, 0.25, 0.5, 1)] == pytest.approx(wanted)


# ---- unlikelihood ----


@over(FEW)
def test_unlikelihood_unrolled(case, monkeypatch):
    settings = {"regime": "unlikelihood", "unlikelihood_weight": 0.7, "label_smoothing": 0.1}
    trainer, events = trainer_of(case, monkeypatch, **settings)
    event, batch = run_steps(trainer, events), trainer.batches.batch(0)
    rows, wanted, nats, penalty = Unrolled(trainer.model, batch), 0.0, 0.0, 0.0
    for row in range(len(batch.tokens)):
        tokens, targets = rows.real(row)
        log_probs = rows.logits(row, tokens).log_softmax(-1)
        for t, target in enumerate(targets):
            nats = nats - log_probs[t, target]
            wanted = wanted - 0.9 * log_probs[t, target] - 0.1 * log_probs[t].mean()
            for token in {*tokens[: t + 1]} - {target}:
                penalty = penalty - (1 - log_probs[t, token].exp()).log()
    check(trainer, event, wanted + 0.7 * penalty, nats, batch.count)
    assert event.figures == pytest.approx({"unlikelihood": penalty.item() / batch.count})


def test_unlikelihood_takes_no_softmax_more_than_teacher_forcing(monkeypatch):
    calls, once = [], torch.Tensor.log_softmax
    monkeypatch.setattr(
        torch.Tensor, "log_softmax", lambda x, *how: calls.append(x.shape) or once(x, *how)
    )
    taken = {}
    for regime in ("teacher-forcing", "unlikelihood"):
        calls.clear()
        case = Case("gru", "plain", {})
        run_steps(*trainer_of(case, monkeypatch, regime=regime))
        taken[regime] = list(calls)
    assert taken["unlikelihood"] == taken["teacher-forcing"] != []


def test_unlikelihood_of_a_certain_token_is_finite():
    logits = torch.tensor([[[50.0, 0.0], [50.0, 0.0]]], requires_grad=True)
    loss = unlikelihood(
        logits.log_softmax(-1), torch.tensor([[0, 0]]), torch.tensor([[1, IGNORED]])
    )
    loss.backward()
    assert loss.item() == pytest.approx(-np.log(1e-5), rel=1e-4) and logits.grad.isfinite().all()


# ---- professor forcing ----


def last_of_gru(gru, features, suffix):
    """Return the last state (S,) of one direction over features (T, H), by the GRU's equation."""
    w_ih, w_hh, b_ih, b_hh = (
        getattr(gru, f"{name}_l0{suffix}")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h = features.new_zeros(w_hh.shape[1])
    for x in features.flip(0) if suffix else features:
        (xr, xz, xn), (hr, hz, hn) = (w_ih @ x + b_ih).chunk(3), (w_hh @ h + b_hh).chunk(3)
        z = (xz + hz).sigmoid()
        h = (1 - z) * (xn + (xr + hr).sigmoid() * hn).tanh() + z * h
    return h


def judged(discriminator, features):
    """Return the probability that features (T, H) are of real text."""
    gru, (first, _, second) = discriminator.read, discriminator.judge
    last = torch.cat([last_of_gru(gru, features, ""), last_of_gru(gru, features, "_reverse")])
    return second(first(last).relu()).sigmoid().squeeze()


@pytest.mark.fast_for("*-lstm-plain", "0.5-transformer-default", "0.8-seq2seq-additive")
@over(FEW)
@pytest.mark.parametrize("accuracy", [0.5, 0.8, 1.0])
def test_professor_forcing_unrolled(case, accuracy, monkeypatch):
    """Below 75 % the model does not hear of the discriminator; above 99 % that one rests."""
    settings = {"adversarial_weight": 0.6, "discriminator_size": 4, "prefix": 2}
    trainer, events = trainer_of(
        case, monkeypatch, lines=case not in PAIRS, regime="professor-forcing", **settings
    )
    regime = trainer.objective.current
    discriminator = regime.discriminator
    discriminator.accuracy.fill_(accuracy)
    before = [p.detach().clone() for p in discriminator.parameters()]
    event, batch = run_steps(trainer, events), trainer.batches.batch(0)
    after = [p.detach().clone() for p in discriminator.parameters()]
    given = [p.grad for p in discriminator.parameters()]
    with torch.no_grad():
        for p, old in zip(discriminator.parameters(), before, strict=True):
            p.copy_(old)
    rows, nats, fooled, own, right = Unrolled(trainer.model, batch), 0.0, 0.0, 0.0, 0
    for row in range(len(batch.tokens)):
        tokens, targets = rows.real(row)
        nats = nats + cross_entropy(rows.logits(row, tokens), targets)
        mixed = rows.mixed(row, 0, lambda t: t < 2, (*NEVER, END))
        real, free = rows.features(row, tokens), rows.features(row, mixed)
        fooled = fooled - judged(discriminator, free).log()
        of_real, of_free = (judged(discriminator, x.detach()) for x in (real, free))
        own = own - of_real.log() - (1 - of_free).log()
        right += (of_real > 0.5).item() + (of_free < 0.5).item()
    check(trainer, event, nats + 0.6 * fooled * (accuracy > 0.75), nats, batch.count)
    wanted = torch.autograd.grad(own / batch.count, list(discriminator.parameters()))
    share = right / (2 * len(batch.tokens))
    assert event.figures == {"discriminator_accuracy": pytest.approx(share)}
    assert discriminator.accuracy.item() == pytest.approx(share)
    for g, w, old, new in zip(given, wanted, before, after, strict=True):
        if accuracy > 0.99:
            assert g is None and torch.equal(old, new)
            continue
        torch.testing.assert_close(g, w, rtol=1e-8, atol=1e-12)
        step = -1e-3 * w / (w.abs() + 1e-8)  # Adam's first
        torch.testing.assert_close(new - old, step, rtol=1e-6, atol=1e-12)


# ---- whole texts ----


@functools.cache
def distance(a, b):
    """Return the edit distance, by its definition."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        distance(a[1:], b[1:]) + (a[0] != b[0]), distance(a[1:], b) + 1, distance(a, b[1:]) + 1
    )


def cost(text, wanted):
    return distance((*text,), (*wanted,)) / max(len(text), len(wanted), 1)


@given(st.lists(st.integers(1, 3), max_size=6), st.lists(st.integers(1, 3), max_size=6))
def test_the_edit_cost_is_the_distance_by_definition(a, b):
    assert edit_cost(a, b) == pytest.approx(cost(a, b))


def test_costs_of_texts_are_sacrebleus():
    words = ["", "the", "cat", "sat", "on", "mat"]
    text_rules = TextRules(decode=lambda ids: " ".join(words[i] for i in ids))
    texts, real = ([1, 2, 3, 4, 1, 5], [1, 2, 4, 1, 5], [5], []), [1, 2, 3, 4, 1, 2]
    scores = {"bleu": sacrebleu.sentence_bleu, "chrf": sacrebleu.sentence_chrf}
    for name, score in scores.items():
        for text in texts:
            wanted = score(text_rules.decode(text), [text_rules.decode(real)]).score
            assert cost_of(name, text_rules)(text, real) == pytest.approx(1 - wanted / 100)
        assert cost_of(name, text_rules)(real, real) == cost_of(name, text_rules)([], []) == 0.0


def test_texts_that_occur_twice_count_once():
    real = np.array([[1, 2, IGNORED]])
    written = np.array([[[1, 2], [2, 1], [2, 1], [2, IGNORED]]])
    assert mark_distinct(real, written).tolist() == [[True, False, True, False, True]]


def most_of(case, trainer, lines, prompt, wanted):
    """Return how long a text may be: as long as the real one, or longer if that one ends."""
    most = len(wanted)
    if END in wanted and (lines or case in PAIRS):
        most += len(wanted) // 2 + 5
    window = trainer.model.window
    return most if window is None else min(most, window - prompt + 1)


def row_of(case, trainer, rows, row, lines, prompt):
    """Return a row's real text after the prompt, how long own ones may be, and their end."""
    _, targets = rows.real(row)
    wanted = targets[prompt - 1 :]
    end = END if lines or case in PAIRS else None
    return wanted, most_of(case, trainer, lines, prompt, wanted), end


@pytest.mark.fast_for("*-lstm-plain", "False-transformer-default", "True-seq2seq-additive")
@over(FEW)
@pytest.mark.parametrize("lines", [False, True])
def test_minimum_risk_unrolled(case, lines, monkeypatch):
    settings = {"cost": "edit", "risk_samples": 3, "risk_sharpness": 0.3, "prefix": 2}
    trainer, events = trainer_of(case, monkeypatch, lines=lines, regime="minimum-risk", **settings)
    event, batch = run_steps(trainer, events), trainer.batches.batch(0)
    rows, nats, risk = Unrolled(trainer.model, batch), 0.0, 0.0
    for row in range(len(batch.tokens)):
        tokens, targets = rows.real(row)
        nats = nats + cross_entropy(rows.logits(row, tokens), targets)
        wanted, most, end = row_of(case, trainer, rows, row, lines, 2)
        texts = {tuple(wanted)}
        for which in range(3):
            choose = functools.partial(drawn_as, rows, row, which)
            begin, text = rows.written(row, 2, most, choose, end)
            texts.add(tuple(text))
        texts = sorted(texts)
        powers = [
            (0.3 * rows.log_prob(row, [*begin, *text][:-1], text)).exp() if text else torch.ones(())
            for text in texts
        ]
        total = sum(powers)
        risk = risk + sum(q / total * cost(t, wanted) for q, t in zip(powers, texts, strict=True))
    check(trainer, event, risk, nats, batch.count)
    assert event.figures == pytest.approx({"expected_cost": risk.item() / len(batch.tokens)})


def drawn_as(rows, row, which, inputs, column):
    return rows.drawn(row, inputs, 0, column, which)


@pytest.mark.fast_for("*-lstm-plain", "False-transformer-default", "True-seq2seq-additive")
@over(FEW)
@pytest.mark.parametrize("lines", [False, True])
def test_self_critical_training_unrolled(case, lines, monkeypatch):
    trainer, events = trainer_of(
        case, monkeypatch, lines=lines, regime="decoding", cost="edit", prefix=2
    )
    event, batch = run_steps(trainer, events), trainer.batches.batch(0)
    rows, nats, total, costs = Unrolled(trainer.model, batch), 0.0, 0.0, []

    for row in range(len(batch.tokens)):

        def best(inputs, column, row=row):
            logits = rows.logits(row, inputs)[-1].detach().clone()
            logits[list(NEVER)] = -np.inf
            return int(logits.argmax())

        tokens, targets = rows.real(row)
        nats = nats + cross_entropy(rows.logits(row, tokens), targets)
        wanted, most, end = row_of(case, trainer, rows, row, lines, 2)
        begin, text = rows.written(row, 2, most, functools.partial(drawn_as, rows, row, 0), end)
        _, usual = rows.written(row, 2, most, best, end)
        costs.append((cost(text, wanted), cost(usual, wanted)))
        if text:
            log_prob = rows.log_prob(row, [*begin, *text][:-1], text)
            total = total + (costs[-1][0] - costs[-1][1]) * log_prob
    check(trainer, event, total, nats, batch.count)
    sampled, usual = np.mean(costs, 0)
    assert event.figures == pytest.approx({"sampled_cost": sampled, "greedy_cost": usual})


# ---- what holds for all ----


REGIMES = ("scheduled", "free-running", "professor-forcing", "minimum-risk", "decoding")


@pytest.mark.parametrize("regime", [*REGIMES, "unlikelihood"])
def test_in_evaluation_the_loss_is_the_plain_one(regime, monkeypatch):
    case = Case("lstm", "plain", {})
    trainer, _ = trainer_of(case, monkeypatch, regime=regime)
    plain, _ = trainer_of(case, monkeypatch)
    assert trainer._loss_after_update() == plain._loss_after_update()


@pytest.mark.parametrize("regime", REGIMES)
def test_drawing_uses_no_random_state_and_leaves_the_model_training(regime, monkeypatch):
    trainer, _ = trainer_of(Case("gru", "", {"reset": "after"}), monkeypatch, regime=regime)
    before = torch.get_rng_state()
    trainer.train()
    assert torch.equal(torch.get_rng_state(), before) and trainer.model.training


OF_LABELLED = {
    "scheduled": {"sampling_decay": "exponential", "sampling_k": 1e-9},
    "free-running": {"prefix": 1},
    "minimum-risk": {"prefix": 1, "cost": "edit", "risk_samples": 2},
    "decoding": {"prefix": 1, "cost": "edit"},
}


@pytest.mark.parametrize("regime", OF_LABELLED)
def test_rows_with_different_numbers_of_labels_begin_with_all_of_them(regime):
    """And each row is written, and costs, what it would alone."""
    model = Case("lstm", "plain", {}).loud()
    begin, labels = 6, [[4], [4, 3, 2], [3, 1]]
    texts = [[1, 2, 1, 2, 3, 1, END], [2, 3, 1, END], [1, 1, 2, END]]
    full = np.full((3, 10), IGNORED)
    for row, label, text in zip(full, labels, texts, strict=True):
        row[: len(label) + 2 + len(text)] = [begin, *label, begin, *text]
    tokens, targets = np.where(full == IGNORED, 0, full)[:, :-1], full[:, 1:].copy()
    for row, label in zip(targets, labels, strict=True):
        row[: len(label) + 1] = IGNORED
    batch = Batch(tokens, targets, True, 1)
    of_all = {"steps": 1, "seed": SEED, "precision": "float64"}
    config = TrainingConfig(**of_all, regime=regime, **OF_LABELLED[regime])
    objective = Objective(model, config, TextRules(end=END, never=NEVER)).train()
    seen, reader = [], objective.current.reader
    plain = reader.read
    reader.read = lambda read, *more, repeat=None, **rest: (
        seen.append((read.clone(), repeat)) or plain(read, *more, repeat=repeat, **rest)
    )
    whole = objective(batch, None, StepProgress(0, 0.5)).minimised.item()
    for read, repeat in seen:
        for row, owner in zip(read.tolist(), repeat or range(3), strict=True):
            first = [begin, *labels[owner], begin]
            assert row[: len(first)] == first
    assert any(not np.array_equal(read[:3], tokens) for read, _ in seen)
    parts = [
        objective(part.of(batch), None, StepProgress(0, 0.5, part.rows.start)).minimised.item()
        for part in portions(len(batch.tokens), 3, 0, 1)
    ]
    assert whole == pytest.approx(sum(parts), rel=1e-9)


def test_regimes_follow_one_another_by_share(monkeypatch):
    schedule = "teacher-forcing:0.5,scheduled:0.25,decoding:0.25"
    trainer, events = trainer_of(
        Case("lstm", "plain", {}), monkeypatch, 8, regime_schedule=schedule, cost="edit"
    )
    trainer.train()
    figures = [event.figures for event in events if isinstance(event, Progress)]
    assert figures[:4] == [{}] * 4
    # Half a percent of its part at a time: 1, then 1 - 0.01 * 50.
    assert [f["real_probability"] for f in figures[4:6]] == pytest.approx([1.0, 0.5])
    assert [sorted(f) for f in figures[6:]] == [["greedy_cost", "sampled_cost"]] * 2

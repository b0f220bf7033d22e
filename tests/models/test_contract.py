"""What holds for every LanguageModel of the registry: calls, states, pieces, rows, scores."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from architectures import (
    CASES,
    FIXED,
    NEURAL,
    STANDING,
    VOCAB,
    contexts,
    first_of_each,
    from_scratch,
    ids,
    over,
    representatives,
)
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgen.engines import arrays
from seqgen.models import base
from seqgen.models import inference as reader
from seqgen.models.mixture import equations as mixture_model
from seqgen.models.ngram import look_ups
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.state import State

CASES = [*CASES, *FIXED]
LENGTH = 21  # past every window here, several times
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-10}
quick = settings(deadline=None, max_examples=examples(8), derandomize=True)

pytestmark = [pytest.mark.usefixtures("no_gradients"), pytest.mark.fast_for(*STANDING)]


@pytest.fixture
def no_gradients():
    with torch.no_grad():
        yield


def in_pieces(model, tokens, cuts, stride=None):
    """Feed tokens (B, T) cut at `cuts`; return all logits."""
    state = model.start(tokens.shape[0], stride)
    logits = []
    for begin, end in itertools.pairwise([0, *cuts, tokens.shape[1]]):
        piece, state = model(tokens[:, begin:end], state)
        logits.append(piece)
    return torch.cat(logits, 1)


def test_the_anchored_window_by_hand():
    assert contexts(10, 4, 2) == [0, 0, 0, 0, 2, 2, 4, 4, 6, 6]
    assert contexts(8, 4, 1) == [0, 0, 0, 0, 1, 2, 3, 4]
    assert contexts(8, 4, 4) == [0, 0, 0, 0, 4, 4, 4, 4]
    assert contexts(9, 5, None) == [0, 0, 0, 0, 0, 2, 2, 4, 4]
    assert contexts(3, None, None) == [0, 0, 0]


@pytest.mark.fast_for("*")
@over(CASES)
def test_shapes_type_and_no_nan(case):
    model = case.loud()
    tokens = ids(3, min(5, model.window or 5))
    length = tokens.shape[1]
    logits, _ = model(tokens)
    assert logits.shape == (3, length, VOCAB)
    assert logits.dtype == torch.float64
    assert not logits.isnan().any()
    assert (logits > -torch.inf).any(-1).all()
    for last in range(1, length + 1):
        torch.testing.assert_close(model(tokens, last=last)[0], logits[:, -last:], **EXACT)
    through_state, _ = model(tokens, model.start(3), last=1)
    torch.testing.assert_close(through_state, logits[:, -1:], **EXACT)


@pytest.mark.fast_for("*")
@over(CASES)
def test_a_state_and_a_training_call_agree(case):
    model = case.loud()
    tokens = ids(2, min(8, model.window or 8))
    torch.testing.assert_close(model(tokens, model.start(2))[0], model(tokens)[0], **EXACT)


@over(CASES)
@given(cuts=st.sets(st.integers(1, LENGTH - 1)).map(sorted))
@settings(quick, max_examples=5)
def test_any_split_gives_the_same_logits(case, cuts):
    model, tokens = case.loud(), ids(2, LENGTH)
    whole = in_pieces(model, tokens, [])
    torch.testing.assert_close(in_pieces(model, tokens, cuts), whole, **EXACT)


@pytest.mark.fast_for(*(f"{one}-3" for one in STANDING))
@pytest.mark.parametrize("rows", [1, 3, 12])
@over(CASES)
def test_a_step_is_a_call_of_one_token(case, rows, monkeypatch):
    model, tokens = case.loud(), ids(rows, LENGTH)
    expected = in_pieces(model, tokens, range(1, LENGTH))
    for products in ("single", "threaded"):
        monkeypatch.setattr(arrays._Settings, "products", arrays.Products(products))
        model = case.loud()  # what was prepared for the other products is not kept
        state = model.start(rows)
        for t, column in enumerate(tokens.T.tolist()):
            logits, state = model.step(column, state)
            assert logits.dtype == np.float64
            torch.testing.assert_close(torch.from_numpy(logits), expected[:, t], **EXACT)


@over(CASES)
def test_steps_and_calls_mix_with_the_verbs_of_states(case):
    model, tokens = case.loud(), ids(3, LENGTH)
    (a, b, c), rest = tokens[:, :4].tolist(), tokens[:, 4:]
    state = model.start(3)
    for column in zip(a, b, c, strict=True):
        _, state = model.step(column, state)
    kept = state.copy()
    _, state = model.step([5, 5, 5], state)
    pair = kept.copy().select([2, 0])
    four = type(kept).cat([pair, kept.select([1, 1])])
    logits, _ = model(rest[[2, 0, 1, 1]], four)
    whole = torch.cat([tokens[:, :4], rest], 1)[[2, 0, 1, 1]]
    torch.testing.assert_close(logits, in_pieces(model, whole, [4])[:, 4:], **EXACT)


@over(NEURAL)
def test_steps_in_float32_agree_with_calls(case):
    model, tokens = case.loud().float(), ids(1, LENGTH)
    by_call, by_step = model.start(1), model.start(1)
    token = tokens[0, :1].tolist()
    for _ in range(LENGTH):
        called, by_call = model(torch.tensor([token]), by_call)
        stepped, by_step = model.step(token, by_step)
        called = called[:, 0].log_softmax(-1)
        stepped = torch.from_numpy(stepped).log_softmax(-1)
        torch.testing.assert_close(stepped, called, rtol=0, atol=1e-4)
        token = called.argmax(-1).tolist()
        assert stepped.argmax(-1).tolist() == token


@over(representatives(first_of_each(NEURAL)))
def test_a_step_uses_the_weights_as_they_are_now(case):
    model = case.loud()
    before, _ = model.step([1], model.start(1))
    for parameter in model.parameters():
        parameter.mul_(0.5)
    logits, _ = model.step([1], model.start(1))
    expected, _ = model(torch.tensor([[1]]), model.start(1))
    torch.testing.assert_close(torch.from_numpy(logits), expected[:, 0], **EXACT)
    assert not np.allclose(before, logits)


@over(representatives(CASES))
def test_every_stride_is_what_its_definition_says(case):
    model, text = case.loud(), ids(1, LENGTH, seed=3)
    window = model.window or 2
    for stride in {None, 1, min(2, window), window - window // 3, window}:
        wanted = [
            model(text[:, begin : i + 1])[0][0, -1]
            for i, begin in enumerate(contexts(LENGTH, model.window, stride))
        ]
        together = in_pieces(model, text, [], stride)[0]
        torch.testing.assert_close(together, torch.stack(wanted), **EXACT)
        apart = from_scratch(model, text[0].tolist(), stride)
        torch.testing.assert_close(apart, together, **EXACT)


@over(CASES)
def test_the_past_is_read_and_the_future_is_not(case):
    model = case.loud()
    length = min(6, model.window or 6)
    tokens = ids(1, length)
    for changed in range(length):
        other = tokens.clone()
        other[0, changed] = (other[0, changed] + 1) % VOCAB
        same = (model(tokens)[0] == model(other)[0]).all(-1)[0]
        assert same[:changed].all()
        assert not same[changed]


@over(representatives(CASES))
def test_rows_are_independent(case):
    model, tokens = case.loud(), ids(4, LENGTH)
    together = in_pieces(model, tokens, [4, 9])
    for row in range(4):
        torch.testing.assert_close(
            in_pieces(model, tokens[[row]], [4, 9]), together[[row]], **EXACT
        )


class Pool:
    """Some states of one model, and for each of their rows all that it has read."""

    def __init__(self, model, stride) -> None:
        self.model, self.stride = model, stride
        self.states: list[tuple[Any, list[list[int]]]] = []
        self.known: dict[tuple[int, ...], torch.Tensor] = {}

    def open(self, batch):
        self.states.append((self.model.start(batch, self.stride), [[] for _ in range(batch)]))

    def feed(self, which, tokens):
        state, past = self.states[which]
        past = [row + new for row, new in zip(past, tokens, strict=True)]
        logits, state = self.model(torch.tensor(tokens), state)
        self.states[which] = state, past
        for got, row, new in zip(logits, past, tokens, strict=True):
            wanted = self.alone(row)[-len(new) :]
            torch.testing.assert_close(got, wanted, **EXACT)

    def alone(self, row):
        if tuple(row) not in self.known:
            self.known[tuple(row)] = from_scratch(self.model, row, self.stride)
        return self.known[tuple(row)]

    def select(self, which, rows):
        state, past = self.states[which]
        self.states[which] = state.select(rows), [list(past[row]) for row in rows]

    def cat(self, first, second):
        (one, past), (other, more) = self.states[first], self.states[second]
        self.states = [s for i, s in enumerate(self.states) if i not in (first, second)]
        self.states.append((type(one).cat([one, other]), past + more))

    def copy(self, which):
        state, past = self.states[which]
        self.states.append((state.copy(), [list(row) for row in past]))


def run_program(pool, data):
    """Do random things to states, each step compared with every row alone from scratch."""
    pool.open(data.draw(st.integers(1, 3)))
    for _ in range(data.draw(st.integers(3, 9))):
        which = data.draw(st.integers(0, len(pool.states) - 1))
        rows = len(pool.states[which][1])
        verb = data.draw(st.sampled_from(["feed", "feed", "feed", "select", "cat", "copy", "open"]))
        if verb == "feed":
            length = data.draw(st.integers(1, 7))
            row = st.lists(st.integers(0, VOCAB - 1), min_size=length, max_size=length)
            pool.feed(which, data.draw(st.lists(row, min_size=rows, max_size=rows)))
        elif verb == "select":
            pool.select(
                which, data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=4))
            )
        elif verb == "open" and len(pool.states) < 3:
            pool.open(data.draw(st.integers(1, 2)))
        elif verb == "copy" and len(pool.states) < 3:
            pool.copy(which)
        elif verb == "cat" and len(pool.states) > 1:
            others = [i for i in range(len(pool.states)) if i != which]
            other = data.draw(st.sampled_from(others))
            if rows + len(pool.states[other][1]) <= 6:
                pool.cat(which, other)
    for which, (_, past) in enumerate(pool.states):
        pool.feed(which, [[row[0] if row else 1, 2] for row in past])


@over(representatives(CASES))
@given(data=st.data())
@quick
def test_random_programs_of_states_equal_each_row_alone(case, data):
    model = case.loud()
    stride = data.draw(st.sampled_from([None, *range(1, min(3, model.window or 3) + 1)]))
    run_program(Pool(model, stride), data)


@over(representatives(CASES))
def test_ragged_rows_slide_each_at_its_own_time(case):
    model = case.loud()
    texts = [ids(n, seed=n).tolist() for n in (1, 3, 4, 6, 8, 11)]
    states = [model(torch.tensor([text]), model.start(1))[1] for text in texts]
    state, more = type(states[0]).cat(states), ids(6, LENGTH, seed=9)
    got = []
    for piece in more.split([1, 1, 3, 2, 7, 7], 1):
        logits, state = model(piece, state)
        got.append(logits)
    for row, text in enumerate(texts):
        wanted = from_scratch(model, text + more[row].tolist())[len(text) :]
        torch.testing.assert_close(torch.cat(got, 1)[row], wanted, **EXACT)


@over(representatives(CASES))
def test_a_copy_does_not_change_when_the_original_goes_on(case):
    model, text, after = case.loud(), ids(2, 6), ids(2, LENGTH, seed=4)
    _, state = model(text, model.start(2))
    kept, again = state.copy(), state.copy()
    wanted, _ = model(after, kept)
    for token in ids(2, LENGTH, seed=5).split(1, 1):
        _, state = model(token, state)
    state.select([1, 1])
    torch.testing.assert_close(model(after, again)[0], wanted, **EXACT)
    # A copy shares nothing that a call writes, and no call writes to a memory.
    memory = getattr(state, "memory", None)
    read_only = {x.data_ptr() for x in memory.tensors()} if isinstance(memory, Memory) else set()
    for original, copied in zip(state.tensors(), state.copy().tensors(), strict=True):
        if original.data_ptr() in read_only:
            continue
        assert not original.numel() or original.data_ptr() != copied.data_ptr()


@over(representatives(CASES))
def test_rows_that_were_one_part_after_select(case):
    model, text = case.loud(), ids(1, 7)
    _, state = model(text, model.start(1))
    state = state.select([0, 0, 0])
    after = ids(3, LENGTH, seed=6)
    logits, _ = model(after, state)
    for row in range(3):
        wanted = from_scratch(model, text[0].tolist() + after[row].tolist())[7:]
        torch.testing.assert_close(logits[row], wanted, **EXACT)


@over(representatives(CASES))
def test_rows_part_again_after_a_long_text(case):
    """A long text fills windows many times over; what two rows shared before is gone then."""
    model, common = case.loud(), ids(1, LENGTH)
    text, after = ids(2, 3 * LENGTH, seed=3), ids(2, 4, seed=4)
    _, state = model(common, model.start(1))
    _, state = model(text, state.select([0, 0]))
    logits, _ = model(after, state.select([0, 0]))
    whole = torch.cat([common.expand(2, -1), text[[0, 0]], after], 1)
    expected = in_pieces(model, whole, [])[:, -4:]
    # What a ReLU network remembers grows and grows, and what rounding leaves with it.
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=EXACT["atol"])


@over(representatives(CASES))
def test_a_state_is_rebuilt_from_its_tensors_by_name(case):
    model, text, after = case.build(), ids(2, 5), ids(2, 3, seed=4)
    with torch.no_grad():
        _, state = model(text, model.start(2))
        named = {name: tensor.clone() for name, tensor in state.copy().named().items()}
        assert [x.shape for x in named.values()] == [x.shape for x in state.tensors()]
        rebuilt = model(text, model.start(2))[1].with_tensors(dict(reversed(named.items())))
        assert torch.equal(model(after, rebuilt)[0], model(after, state)[0])
    state = model.start(2)
    with pytest.raises(KeyError, match="more"):
        state.with_tensors({**state.named(), "more": torch.zeros(2)})


@over(representatives(CASES))
def test_detach_keeps_the_values_and_drops_the_graph(case):
    model = case.loud()
    with torch.set_grad_enabled(model.window is None):  # a cache takes no part in a graph
        _, state = model(ids(2, 5), model.start(2))
    values = [tensor.clone() for tensor in state.tensors()]
    detached = state.detach()
    assert not any(tensor.requires_grad for tensor in detached.tensors())
    for tensor, value in zip(detached.tensors(), values, strict=True):
        # Slots that nobody has written to may hold anything, NaN too.
        torch.testing.assert_close(tensor, value.detach(), rtol=0, atol=0, equal_nan=True)


@over(NEURAL)
def test_a_call_through_start_is_differentiable_or_refused(case):
    """Gradients through a started state are those of the training call, or an error says no."""
    model, tokens = case.loud(), ids(2, 5)
    with torch.enable_grad():
        if model.window is not None:
            with pytest.raises(ValueError, match="no part in a graph") as refused:
                model(tokens, model.start(2))
            assert "\n" not in str(refused.value)
            return
        losses = [
            model(tokens, state)[0].logsumexp(-1).square().sum() for state in (None, model.start(2))
        ]
        wanted, got = (torch.autograd.grad(loss, model.parameters()) for loss in losses)
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-12)


@over(representatives(CASES))
def test_a_step_is_outside_of_every_graph(case):
    model, tokens = case.loud(), ids(2, 4)
    with torch.enable_grad():
        logits, _ = model.step([1, 2], model.start(2))
        _, state = model(tokens) if model.window is None else (None, None)
        if state is not None and any(tensor.requires_grad for tensor in state.tensors()):
            with pytest.raises(ValueError, match=r"pass state.detach\(\)"):
                model.step([1, 2], state)
            again, _ = model.step([1, 2], state.detach())
            wanted = in_pieces(model, torch.cat([tokens, torch.tensor([[1], [2]])], 1), [])[:, -1]
            torch.testing.assert_close(torch.from_numpy(again), wanted.detach(), **EXACT)
    wanted, _ = model(torch.tensor([[1], [2]]), model.start(2))
    torch.testing.assert_close(torch.from_numpy(logits), wanted[:, 0], **EXACT)


@over(representatives(CASES))
def test_scores_hits_and_ranks_are_those_of_the_logits(case, monkeypatch):
    model, tokens, targets = case.loud(), ids(3, LENGTH), ids(3, LENGTH, seed=1)
    expected = in_pieces(model, tokens, []).log_softmax(-1)
    wanted = expected.gather(-1, targets[..., None])[..., 0]
    # By sorting: most probable first, among equals the smaller id.
    order = expected.argsort(dim=-1, descending=True, stable=True)
    places = (order == targets[..., None]).int().argmax(-1)
    hits = order[..., 0] == targets
    for at_once in (1, 100, 1 << 20):  # logits made in one piece, and in pieces of one
        for module in (reader, look_ups, mixture_model):
            monkeypatch.setattr(module, "LOGITS_AT_ONCE", at_once)
        for want in ("log_probs", "hits", "ranks"):
            scores, _ = model.score(tokens, targets, model.start(3), want)
            torch.testing.assert_close(scores.log_probs, wanted, **EXACT)
            assert scores.hits is None if want == "log_probs" else torch.equal(scores.hits, hits)
            assert scores.ranks is None if want != "ranks" else torch.equal(scores.ranks, places)


@over(representatives(CASES))
def test_the_state_after_score_goes_on(case):
    model, tokens, targets = case.loud(), ids(2, 9), ids(2, 9, seed=1)
    _, state = model.score(tokens, targets, model.start(2))
    after = ids(2, 9, seed=2)
    wanted = in_pieces(model, torch.cat([tokens, after], 1), [])[:, 9:]
    torch.testing.assert_close(model(after, state)[0], wanted, **EXACT)


def test_equal_logits_rank_by_id():
    class Flat(base.LanguageModel):
        config = CASES[0].config()

        def forward(self, tokens, state=None, last=None):
            return torch.tensor([1.0, 3.0, 3.0, 3.0, -torch.inf, 0.0, 3.0]).expand(
                *tokens.shape, 7
            ), state

        def start(self, batch, stride=None):
            return State()

    model, targets = Flat(), torch.arange(7)[None]
    scores, _ = model.score(torch.zeros_like(targets), targets, model.start(1), "ranks")
    assert scores.ranks.tolist() == [[4, 0, 1, 2, 6, 5, 3]]
    hits, _ = model.score(torch.zeros_like(targets), targets, model.start(1), "hits")
    assert hits.hits.tolist() == [[False, True, *[False] * 5]]
    assert scores.log_probs[0, 4] == -torch.inf
    assert scores.log_probs.exp().sum().item() == pytest.approx(1)


@over(representatives(CASES))
def test_a_window_is_kept_where_there_is_no_state(case):
    model = case.build()
    if model.window is None:
        model(ids(1, 50))
        return
    model(ids(1, model.window))
    with pytest.raises(ValueError, match="do not fit the window"):
        model(ids(1, model.window + 1))
    for stride in (0, model.window + 1):
        with pytest.raises(ValueError, match="stride"):
            model.start(1, stride)


@over(CASES)
def test_float32_agrees_whatever_the_pieces(case):
    model, tokens = case.build(torch.float32), ids(2, LENGTH)
    whole = in_pieces(model, tokens, [])
    assert whole.dtype == torch.float32
    split = in_pieces(model, tokens, range(1, LENGTH))
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # torch on the speed of its rms_norm
@over(CASES)
def test_logits_are_float32_under_autocast(case):
    model = case.build(torch.float32)
    for length in {1, min(6, model.window or 6)}:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            trained, _ = model(ids(2, length))
            decoded, _ = model(ids(2, length), model.start(2))
        for logits in (trained, decoded):
            assert logits.dtype == torch.float32
            torch.testing.assert_close(logits, model(ids(2, length))[0], rtol=0.1, atol=0.1)


@over(representatives(first_of_each(CASES)))
def test_old_slots_are_given_back(case):
    """What a state holds does not grow with the text once the window is full."""
    model = case.build()
    state, sizes = model.start(2), []
    for token in ids(2, 15 * (model.window or 4)).split(1, 1):
        _, state = model(token, state)
        sizes.append(sum(tensor.numel() for tensor in state.tensors()))
    assert max(sizes) <= 4 * sizes[model.window or 4]

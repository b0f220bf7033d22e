"""What holds for every model that writes from a source, whose rows have sources of their own."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from architectures import (
    PAIRS,
    RECURRENT,
    VOCAB,
    Case,
    FixedSource,
    first_of_each,
    from_scratch,
    ids,
    over,
)
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from prefix_tables import search_options
from torch import nn

from seqgen.cli import run
from seqgen.engines.parts import NestedPart, Piece
from seqgen.errors import SeqgenError, UsageError
from seqgen.generation.beam import search
from seqgen.generation.beam_groups import SearchRules
from seqgen.generation.continuation import Continuation
from seqgen.generation.draw import greedy
from seqgen.generation.text_batch import Row, SamplingPolicy, sample
from seqgen.models.base import load_weights, weights_of
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.seq2seq import attention as scoring
from seqgen.models.seq2seq.attention import attend
from seqgen.models.seq2seq.layers import SourceLayers, stack_cells
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.seq2seq.model import CrossAttend, Seq2Seq, Seq2SeqConfig, Seq2SeqTransformer
from seqgen.models.seq2seq.recurrent_equations import SCORES
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.presets import SHARED
from seqgen.text.sources import TokenSources
from seqgen.text.tokenizers.char import CharTokenizer

EXACT = {"rtol": 0, "atol": 1e-10}
SOURCES = [[3, 1, 4], [1], [5, 2, 6, 5, 3, 5], [2, 6], [6, 6, 6, 1, 2]]
# Together they have every kind of attention, encoder, bridge, decoder and readout.
SOME = (
    "seq2seq-additive",
    "seq2seq-thought",
    "seq2seq-bag",
    "seq2seq-general",
    "seq2seq-lstm-all",
    "seq2seq-maxout",
    "seq2seq-concat-fed",
    "seq2seq-transformer-2017",
    "seq2seq-transformer-default",
)
quick = settings(deadline=None, max_examples=examples(8), derandomize=True)


def remember(model, *sources):
    return model.remember(TokenSources.of(sources).rows(range(len(sources))))


def alone(model, source, text):
    """Return the logits (T, V) after each token, from training calls of one row."""
    return from_scratch(FixedSource(model, source), text)


@pytest.mark.fast_for(*SOME, rest="slow")
@over(PAIRS)
def test_padding_rows_and_their_order_change_nothing(case):
    model = case.loud()
    tokens = ids(len(SOURCES), min(6, model.window or 6))
    logits, _ = model(tokens, remember(model, *SOURCES))
    for row, source in enumerate(SOURCES):
        wanted, _ = model(tokens[[row]], remember(model, source))
        torch.testing.assert_close(logits[[row]], wanted, **EXACT)
    order = [3, 0, 4, 2, 1]
    turned, _ = model(tokens[order], remember(model, *[SOURCES[i] for i in order]))
    torch.testing.assert_close(turned, logits[order], **EXACT)
    # Whatever stands in the padding.
    padded = TokenSources.of(SOURCES).rows(range(len(SOURCES)))
    inside = torch.arange(padded.values.shape[1]) < torch.from_numpy(padded.lengths)[:, None]
    values = torch.where(inside, torch.from_numpy(padded.values), 2)
    values = F.pad(values, (0, 3), value=1)
    other, _ = model(tokens, model.encode(values, padded.lengths.tolist()))
    torch.testing.assert_close(other, logits, **EXACT)


@over(PAIRS)
def test_every_token_of_the_source_is_read(case):
    model, tokens = case.loud(), ids(1, 1)
    source = SOURCES[2]
    logits, _ = model(tokens, remember(model, source))
    for place in range(len(source)):
        other = [*source[:place], (source[place] + 1) % VOCAB, *source[place + 1 :]]
        assert not torch.allclose(model(tokens, remember(model, other))[0], logits)


@over(PAIRS)
def test_order_matters_but_to_a_bag(case):
    model, tokens = case.loud(), ids(1, 3)
    one, _ = model(tokens, remember(model, [1, 2, 3]))
    other, _ = model(tokens, remember(model, [3, 2, 1]))
    assert torch.allclose(one, other) == (case.variant == "bag")


@pytest.mark.fast_for(*SOME, rest="slow")
@over(PAIRS)
@torch.no_grad()
def test_steps_equal_teacher_forcing(case):
    model = case.loud()
    length = 2 * model.window + 3 if model.window else 9
    tokens = ids(len(SOURCES), length)
    state, stepped = model.start(remember(model, *SOURCES)), []
    for column in tokens.T.tolist():
        logits, state = model.step(column, state)
        stepped.append(torch.from_numpy(logits))
    for row, source in enumerate(SOURCES):
        wanted = alone(model, source, tokens[row].tolist())
        torch.testing.assert_close(torch.stack(stepped, 1)[row], wanted, **EXACT)


@pytest.mark.fast_for(*SOME, rest="slow")
@over(PAIRS)
@torch.no_grad()
def test_scores_are_those_of_the_logits(case):
    model = case.loud()
    tokens, targets = ids(len(SOURCES), 12), ids(len(SOURCES), 12, seed=1)
    scores, _ = model.score(tokens, targets, model.start(remember(model, *SOURCES)))
    for row, source in enumerate(SOURCES):
        logits = alone(model, source, tokens[row].tolist()).log_softmax(-1)
        torch.testing.assert_close(
            scores.log_probs[row], logits.gather(1, targets[row, :, None])[:, 0], **EXACT
        )


VERBS = ["feed", "feed", "select", "select", "cat", "copy", "open"]


class Pool:
    """Some states of one model, and for each row its source and all that it has read."""

    def __init__(self, model):
        self.model, self.states = model, []

    def open(self, which):
        memory = remember(self.model, *[SOURCES[i] for i in which])
        self.states.append((self.model.start(memory), [(i, ()) for i in which]))

    def feed(self, which, tokens, by_step):
        state, rows = self.states[which]
        if by_step:
            logits, state = self.model.step([row[0] for row in tokens], state)
            logits, tokens = torch.from_numpy(logits)[:, None], [row[:1] for row in tokens]
        else:
            logits, state = self.model(torch.tensor(tokens), state)
        rows = [(i, (*past, *new)) for (i, past), new in zip(rows, tokens, strict=True)]
        self.states[which] = state, rows
        for got, (i, past) in zip(logits, rows, strict=True):
            wanted = alone(self.model, SOURCES[i], list(past))[-len(got) :]
            torch.testing.assert_close(got, wanted, **EXACT)

    def select(self, which, picked):
        state, rows = self.states[which]
        self.states[which] = state.select(picked), [rows[i] for i in picked]

    def cat(self, which):
        picked = [self.states[i] for i in which]
        self.states = [s for i, s in enumerate(self.states) if i not in which]
        joined = type(picked[0][0]).cat([state for state, _ in picked])
        self.states.append((joined, [row for _, rows in picked for row in rows]))

    def copy(self, which):
        state, rows = self.states[which]
        self.states.append((state.copy(), list(rows)))


@pytest.mark.fast_for("seq2seq-additive", "seq2seq-thought", "seq2seq-transformer-2017")
@over(PAIRS)
@given(data=st.data())
@quick
@torch.no_grad()
def test_random_programs_over_ragged_sources(case, data):
    pool = Pool(case.loud())
    some_sources = st.lists(st.integers(0, len(SOURCES) - 1), min_size=1, max_size=3)
    pool.open(data.draw(some_sources))
    for _ in range(data.draw(st.integers(3, 9))):
        which = data.draw(st.integers(0, len(pool.states) - 1))
        rows = len(pool.states[which][1])
        verb = data.draw(st.sampled_from(VERBS))
        if verb == "feed":
            length = data.draw(st.integers(1, 5))
            row = st.lists(st.integers(0, VOCAB - 1), min_size=length, max_size=length)
            tokens = data.draw(st.lists(row, min_size=rows, max_size=rows))
            pool.feed(which, tokens, data.draw(st.booleans()))
        elif verb == "select":
            pool.select(
                which, data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=5))
            )
        elif verb == "open" and len(pool.states) < 3:
            pool.open(data.draw(some_sources))
        elif verb == "copy" and len(pool.states) < 3:
            pool.copy(which)
        elif verb == "cat" and sum(len(rows) for _, rows in pool.states) <= 8:
            pool.cat(data.draw(st.permutations(range(len(pool.states)))))
    for which, (_, rows) in enumerate(pool.states):
        pool.feed(which, [[1 + i % 3, 2] for i in range(len(rows))], by_step=False)


@over(PAIRS)
@torch.no_grad()
def test_rows_of_one_source_read_one_memory(case):
    """Reordering beams copies no memory; sources that nothing reads any more are given back."""
    model = case.loud()
    state = model.start(remember(model, *SOURCES[:4])).select([0] * 3 + [1] * 3 + [2] * 3 + [3] * 3)
    begun = state.memory
    assert all(x.shape[0] == 4 for x in begun.tensors())
    state = state.select([0, 0, 2, 5, 5, 5, 7, 6, 8, 11, 9, 9])
    assert state.memory is begun
    state = state.select([9, 4, 1, 8])
    assert [*map(id, state.memory.tensors())] == [*map(id, begun.tensors())]
    state = state.select([1, 1, 1])
    assert all(x.shape[0] == 1 for x in state.memory.tensors())
    assert state.memory.owners == [0, 0, 0]


@torch.no_grad()
def test_states_of_the_same_sources_join_without_copies():
    model = first_of_each(PAIRS)[0].loud()
    state = model.start(remember(model, *SOURCES))
    kept = state.copy()
    joined = type(state).cat([state.select([3, 1, 2]), kept.select([1, 4, 0])])
    assert joined.memory.owners == [3, 1, 2, 1, 4, 0]
    assert [*map(id, joined.memory.tensors())] == [*map(id, kept.memory.tensors())]


@quick
@given(owners=st.lists(st.integers(0, 2), min_size=1, max_size=9))
def test_rows_are_grouped_by_source_as_arrays_too(owners):
    keys = torch.zeros(3, 1, 2)
    memory = Memory((keys,), (keys,), (), [1, 1, 1], owners)
    x = torch.randn(len(owners), 4, 2)
    grouped = memory.group(x.numpy())
    torch.testing.assert_close(torch.from_numpy(grouped), memory.group(x), rtol=0, atol=0)
    for row, (owner, own) in enumerate(zip(owners, x, strict=True)):
        place = owners[:row].count(owner)
        assert (grouped[owner, place] == own.numpy()).all()
    assert (memory.ungroup(grouped) == x.numpy()).all()


def searched(model, sources, config):
    """Return the texts and their log-probabilities for each source, searched side by side."""
    wanted = [Row(i, 0, (1,), i) for i in range(len(sources))]
    opens = model.opens(TokenSources.of(sources))
    found = dict(search(model, wanted, SearchRules(config, reasons={2: "eos"}), opens=opens))
    return [[(h.tokens, h.logprob) for h in found[i]] for i in range(len(sources))]


@pytest.mark.fast_for("seq2seq-additive", "seq2seq-thought", "seq2seq-transformer-2017")
@over(PAIRS)
def test_beams_are_those_of_each_source_alone(case):
    model, config = case.loud(), search_options(beams=4, nbest=3, max_tokens=9)
    together = searched(model, SOURCES, config)
    for source, found in zip(SOURCES, together, strict=True):
        (by_itself,) = searched(model, [source], config)
        assert [t for t, _ in found] == [t for t, _ in by_itself]
        for tokens, logprob in found:
            logits = alone(model, source, [1, *tokens[:-1]]).log_softmax(-1)
            assert logprob == pytest.approx(logits[range(len(tokens)), list(tokens)].sum().item())


@over(first_of_each(PAIRS))
def test_samples_of_equal_sources_share_a_memory(case, monkeypatch):
    model, tokenizer = case.loud(), CharTokenizer("abc")
    encoded, encode = [], model.encode
    monkeypatch.setattr(
        model, "encode", lambda values, lengths: encoded.append(lengths) or encode(values, lengths)
    )
    rows = [Row(i, j, (1,), handle) for i, handle in enumerate([2, 0, 2]) for j in range(2)]

    def begin(row):
        return Continuation(tokenizer.decoder(), (), 6, {})

    opens = model.opens(TokenSources.of(SOURCES))
    steps = list(sample(model, rows, begin, SamplingPolicy((), greedy), opens))
    assert encoded == [[6, 3]]
    total = {step.row: step.continuation.logprob for step in steps}
    text, source = [1], SOURCES[2]
    for _ in range(6):
        text.append(alone(model, source, text)[-1].argmax().item())
    logits = alone(model, source, text[:-1]).log_softmax(-1)
    wanted = logits[range(6), text[1:]].sum().item()
    assert [total[row] for row in rows if row.handle == 2] == pytest.approx([wanted] * 4)


@over(PAIRS)
@torch.no_grad()
def test_attention_is_a_distribution_over_the_places_there_are(case):
    model = case.loud()
    tokens, memory = ids(len(SOURCES), 4), remember(model, *SOURCES)
    if case.settings.get("attention") == "none":
        with pytest.raises(UsageError, match="no attention"):
            model.attend(tokens, memory)
        return
    alpha = model.attend(tokens, memory)
    config = model.config
    layers, heads = (config.num_layers, config.num_heads) if model.window else (1, 1)
    assert alpha.shape == (len(SOURCES), layers, heads, 4, 6)
    torch.testing.assert_close(alpha.sum(-1), torch.ones_like(alpha[..., 0]), **EXACT)
    for row, source in enumerate(SOURCES):
        assert (alpha[row, ..., len(source) :] == 0).all()
        (by_itself,) = model.attend(tokens[[row]], remember(model, source))
        torch.testing.assert_close(alpha[row, ..., : len(source)], by_itself, **EXACT)
    twice = model.attend(tokens[[2, 2, 0]], memory.select([2, 2, 0]))
    torch.testing.assert_close(twice, alpha[[2, 2, 0]], **EXACT)


class Whole(nn.Module):
    """Encoding and the training call in one, so that derivatives go through both."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, targets, values, lengths):
        logits, _ = self.model(tokens, self.model.encode(values, lengths))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


@pytest.mark.fast_for(
    "seq2seq-additive", "seq2seq-thought", "seq2seq-transformer-2017", rest="slow"
)
@over(PAIRS)
def test_gradients_of_every_parameter(case):
    fields = case.config().to_dict()
    small = {"vocab_size": 4, "hidden_size": 4, "ffn_size": 3, "num_layers": 1, "embedding_size": 4}
    small = {name: value for name, value in small.items() if name in fields}
    if fields["source_vocab_size"]:
        small["source_vocab_size"] = 4
    whole = Whole(case.loud(**small))
    names = [name for name, _ in whole.named_parameters()]
    tokens, targets = ids(2, 3, vocab=4), ids(2, 3, seed=3, vocab=4)
    values, lengths = ids(2, 4, seed=5, vocab=4), [4, 2]

    def loss(*parameters):
        tensors = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(whole, tensors, (tokens, targets, values, lengths))

    parameters = tuple(p.detach().clone().requires_grad_() for p in whole.parameters())
    assert torch.autograd.gradcheck(
        loss, parameters, eps=1e-6, atol=1e-6, rtol=1e-4, fast_mode=True
    )
    gradients = torch.autograd.grad(loss(*parameters), parameters)
    idle = [name for name, g in zip(names, gradients, strict=True) if g.abs().max() == 0]
    assert not idle


@pytest.mark.fast_for("seq2seq-additive", "seq2seq-thought", "seq2seq-transformer-2017")
@over(PAIRS)
def test_pairs_are_learned_by_heart(case):
    """Every target is its source's own: nothing is learned without reading the source."""
    more = {"hidden_size": 16, "num_layers": 1}
    if "window" in case.config().to_dict():
        more |= {"window": 8, "qk_norm": False}
    torch.manual_seed(0)
    model = case.build(torch.float32, **more).train()
    sources = [[3, 4, 5], [5, 4], [6, 3, 3, 5], [4], [6, 6]]
    targets = torch.tensor([[4, 3, 6], [6, 5, 2], [3, 3, 2], [5, 6, 4], [2, 2, 2]])
    tokens = F.pad(targets[:, :-1], (1, 0), value=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        logits, _ = model(tokens, remember(model, *sources))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.05:
            break
    assert loss < 0.05


@over(PAIRS)
def test_weights_come_back(case):
    model, other = case.loud(), case.build(seed=9)
    load_weights(other, weights_of(model))
    tokens = ids(2, 3)
    wanted, _ = model(tokens, remember(model, *SOURCES[:2]))
    torch.testing.assert_close(
        other(tokens, remember(other, *SOURCES[:2]))[0], wanted, rtol=0, atol=0
    )


@over(PAIRS)
def test_layers_in_order_begin_with_the_encoder(case):
    model = case.build()
    groups = model.parameters_in_order()
    every = [id(p) for group in groups for p in group]
    assert sorted(every) == sorted(map(id, model.parameters()))
    encoder = {id(p) for p in model.encoder.parameters()}
    other = {
        id(p) for n, p in model.named_parameters(remove_duplicate=False) if "encoder." not in n
    }
    if encoder - other:
        assert {id(p) for p in groups[0]} == encoder - other
    assert id(model.head.weight) in {id(p) for p in groups[-1]}


@over(PAIRS)
def test_without_a_memory_there_is_no_model(case):
    model = case.build()
    for call in (lambda: model(ids(1, 2)), lambda: model.start(None), lambda: model.start(3)):
        with pytest.raises(ValueError, match="writes from a source"):
            call()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("directions", [(False,), (True,), (False, True)])
@torch.no_grad()
def test_recurrent_encoders_are_torchs_over_packed_rows(cell, directions):
    """Against nn.LSTM and nn.GRU, which read rows packed by their lengths."""
    config = LSTMConfig(vocab_size=9, hidden_size=3, num_layers=2, dropout=0.0)
    if cell == "gru":
        from seqgen.models.recurrent.cells.gru import GRUConfig

        config = GRUConfig(vocab_size=9, hidden_size=3, num_layers=2, dropout=0.0)
    equations = stack_cells(config, 5, len(directions))
    encoder = NestedPart(SourceLayers, Piece(), equations, directions).module().double()
    both = len(directions) == 2
    theirs = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](
        5, 3, 2, batch_first=True, bidirectional=both, dtype=torch.float64
    )
    for name, parameter in encoder.named_parameters():
        parameter.normal_(0, 0.5, generator=torch.Generator().manual_seed(len(name)))
    for index, cells in enumerate(encoder.layers):
        for layer, backwards in zip(cells, directions, strict=True):
            suffix = f"_l{index}" + "_reverse" * (both and backwards)
            getattr(theirs, "weight_ih" + suffix).copy_(layer.weight_ih)
            getattr(theirs, "weight_hh" + suffix).copy_(layer.weight_hh)
            getattr(theirs, "bias_ih" + suffix).copy_(layer.bias)
            getattr(theirs, "bias_hh" + suffix).zero_()
            if cell == "gru":
                getattr(theirs, "bias_hh" + suffix)[6:] = layer.bias_hn
    lengths = [2, 5, 1, 5, 3]
    x = torch.randn(5, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y, final = encoder(x, lengths)
    turned = x
    if directions == (True,):
        turned = torch.stack(
            [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(x, lengths, strict=True)]
        )
    packed = nn.utils.rnn.pack_padded_sequence(turned, lengths, True, enforce_sorted=False)
    packed, last = theirs(packed)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    if directions == (True,):
        wanted = torch.stack(
            [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(wanted, lengths, strict=True)]
        )
    torch.testing.assert_close(y, wanted, **EXACT)
    parts = last if cell == "lstm" else (last,)
    for layer in range(2):
        for got, part in zip(final[layer], parts, strict=True):
            each = part.unflatten(0, (2, -1))[layer]  # (directions, S, H)
            torch.testing.assert_close(got, torch.cat(list(each), -1), **EXACT)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", ["dot", "general", "additive", "covered"])
@torch.no_grad()
def test_attention_is_what_its_equation_says(kind, scaled):
    random = torch.Generator().manual_seed(1)
    encoded = torch.randn(2, 3, 4, generator=random)
    lengths, owners = [3, 2], [1, 0, 1]
    query = torch.randn(3, 2, 4, generator=random)
    covered = torch.rand(3, 2, 3, generator=random) if kind == "covered" else None
    covers = kind == "covered"
    score = NestedPart(SCORES["additive" if covers else kind], 4, 4, scaled, covers).module()
    if covers:
        score.of_covered.normal_(generator=random)
    memory = Memory((score.keys(encoded),), (encoded,), (), lengths, owners)
    context, alpha = attend(score, query, memory, covered)
    for row, source in enumerate(owners):
        for t in range(2):
            scores = []
            for j in range(lengths[source]):
                q, h = query[row, t], encoded[source, j]
                if kind == "dot":
                    e = q @ h
                elif kind == "general":
                    e = q @ (score.map.weight @ h)
                else:
                    inner = score.of_query.weight @ q + score.of_key.weight @ h + score.of_key.bias
                    if covered is not None:
                        inner = inner + covered[row, t, j] * score.of_covered
                    e = score.v @ inner.tanh()
                scores.append(e.item() / (2.0 if scaled else 1.0))
            shares = [math.exp(e) / sum(map(math.exp, scores)) for e in scores]
            got = alpha[row, t].tolist()
            assert got == pytest.approx([*shares, *[0.0] * (3 - len(shares))], abs=1e-5)
            wanted = sum(a * h for a, h in zip(shares, encoded[source], strict=False))
            torch.testing.assert_close(context[row, t], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("coverage", [False, True])
@pytest.mark.parametrize("most", [1, 100, 400])
def test_long_texts_are_compared_in_pieces(most, coverage, monkeypatch):
    """In little memory the same scores and gradients, and nothing large is kept for a gradient."""
    torch.manual_seed(0)
    score = NestedPart(SCORES["additive"], 4, 5, False, coverage).module().double()
    rows = (torch.randn(3, size, 4, dtype=torch.float64, requires_grad=True) for size in (7, 6))
    queries, encoded = rows
    encoded = torch.cat([encoded, encoded[..., :1]], -1)  # (S, L, H)
    covered = torch.rand(3, 7, 6, dtype=torch.float64) if coverage else None
    leaves = [queries, *score.parameters()]

    def measured():
        kept = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x: kept.append(x.numel()) or x, lambda x: x
        )
        with hooks:
            scores = score.in_pieces(queries, score.keys(encoded), covered)
        loss = scores.softmax(-1).square().sum()
        return scores, torch.autograd.grad(loss, leaves, retain_graph=True), max(kept)

    scores, gradients, kept = measured()
    assert kept == 3 * 7 * 6 * 5
    monkeypatch.setattr(scoring, "MOST_NUMBERS", most)
    in_pieces, same, kept = measured()
    assert kept <= 3 * 7 * 6  # what goes in and out
    with torch.no_grad():
        read_only = score.in_pieces(queries, score.keys(encoded), covered)
    for ours in (in_pieces, read_only):
        torch.testing.assert_close(ours, scores, rtol=0, atol=1e-12)
    torch.testing.assert_close(same, gradients, rtol=0, atol=1e-12)


@torch.no_grad()
def test_coverage_adds_up_what_was_read():
    """One source, by hand: C_j after t steps is the sum of alpha_j over its fertility."""
    case = next(case for case in PAIRS if case.settings.get("coverage"))
    model = case.loud()
    memory = remember(model, SOURCES[0])
    tokens = ids(1, 5)
    alpha = model.attend(tokens, memory)[0, 0, 0]  # (T, L)
    _, state = model(tokens, model.start(memory))
    encoded = memory.values[0][0]
    fertility = 2 * (encoded @ model.fertility.map.weight[0] + model.fertility.map.bias).sigmoid()
    torch.testing.assert_close(state.covered[0], alpha.sum(0) / fertility, **EXACT)


def transformer_2017(**more):
    settings = {"num_layers": 2, "num_heads": 2, "hidden_size": 8, "ffn_size": 12, "dropout": 0.0}
    return Seq2SeqTransformer(
        Seq2SeqTransformerConfig(
            vocab_size=11, window=8, **SHARED["form-of-2017"], **settings, **more
        )
    ).double()


def copied(ours, theirs):
    """Give nn.MultiheadAttention, or what holds one, our weights."""
    theirs.self_attn.in_proj_weight.copy_(ours.attention.query_key_value.weight)
    theirs.self_attn.in_proj_bias.copy_(ours.attention.query_key_value.bias)
    pairs = [
        (ours.attention.output, theirs.self_attn.out_proj),
        (ours.attention_norm, theirs.norm1),
        (ours.feed_forward.inner, theirs.linear1),
        (ours.feed_forward.output, theirs.linear2),
    ]
    crosses = getattr(ours, "cross", None) is not None
    if crosses:
        cross = theirs.multihead_attn
        both = ours.cross.query, ours.cross.key_value
        cross.in_proj_weight.copy_(torch.cat([part.weight for part in both]))
        cross.in_proj_bias.copy_(torch.cat([part.bias for part in both]))
        pairs += [(ours.cross.output, cross.out_proj), (ours.cross_norm, theirs.norm2)]
    pairs.append(
        (
            ours.feed_forward_norm,
            theirs.norm3 if crosses else theirs.norm2,
        )
    )
    for one, other in pairs:
        other.weight.copy_(one.weight)
        other.bias.copy_(one.bias)


@torch.no_grad()
def test_the_form_of_2017_is_torchs_transformer():
    model = transformer_2017().eval()
    for number, parameter in enumerate(model.parameters()):
        parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(number))
    shape = {"dim_feedforward": 12, "dropout": 0.0, "batch_first": True, "dtype": torch.float64}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, **shape), 2)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, **shape), 2)
    theirs = nn.Transformer(8, 2, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    theirs = theirs.double().train()  # not the fused kernels of evaluation
    for ours, layer in zip(model.encoder.blocks, encoder.layers, strict=True):
        copied(ours, layer)
    for ours, layer in zip(model.blocks, decoder.layers, strict=True):
        copied(ours, layer)
    values, lengths, tokens = ids(3, 6, vocab=11), [6, 2, 4], ids(3, 7, seed=1, vocab=11)
    padding = torch.arange(6) >= torch.tensor(lengths)[:, None]
    places = torch.arange(8)[:, None]
    wave = places / 10000 ** (torch.arange(0, 8, 2) / 8)  # (T, H / 2)
    waves = torch.stack([wave.sin(), wave.cos()], -1).flatten(1).double()
    table = model.embedding.weight
    wanted = theirs(
        table[values] * math.sqrt(8) + waves[:6],
        table[tokens] * math.sqrt(8) + waves[:7],
        tgt_mask=torch.ones(7, 7, dtype=torch.bool).triu(1),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    logits, _ = model(tokens, model.encode(values, lengths))
    # Sinusoids are kept in float32.
    torch.testing.assert_close(logits, wanted @ table.T, rtol=0, atol=1e-5)


def test_embeddings_are_shared_where_the_tokenizer_is_joint():
    joint = transformer_2017()
    assert joint.encoder.inputs.weight is joint.embedding.weight is joint.head.weight
    apart = transformer_2017(source_vocab_size=5)
    assert apart.encoder.inputs.weight.shape == (5, 8)
    own = transformer_2017(share_embeddings=False)
    assert own.encoder.inputs.weight is not own.embedding.weight
    with pytest.raises(UsageError, match="one tokenizer"):
        transformer_2017(source_vocab_size=5, share_embeddings=True)


@torch.no_grad()
def test_a_transformer_knows_where_a_vector_stands():
    """Equal vectors at different places differ; from distances alone they would not."""
    settings = {"num_layers": 1, "num_heads": 2, "hidden_size": 8, "window": 8}
    for positions in ("rope", "sinusoidal", "learned"):
        config = Seq2SeqTransformerConfig(
            vocab_size=5, source_features=3, positions=positions, **settings
        )
        encoded, _ = Seq2SeqTransformer(config).eval().encoder(torch.ones(1, 4, 3), [4])
        distances = torch.cdist(encoded, encoded)[0] + torch.eye(4)
        assert distances.min() > 1e-3, positions


def test_vectors_are_sources_too():
    for model_class, config_class, more in (
        (Seq2Seq, Seq2SeqConfig, {"encoder": "none"}),
        (Seq2Seq, Seq2SeqConfig, {}),
        (Seq2SeqTransformer, Seq2SeqTransformerConfig, {"window": 8, "num_heads": 2}),
    ):
        config = config_class(vocab_size=5, source_features=3, hidden_size=8, **more)
        model = model_class(config).eval()
        values = torch.randn(2, 4, 3)
        both, _ = model(ids(2, 3, vocab=5), model.encode(values, [4, 1]))
        one, _ = model(ids(2, 3, vocab=5)[[1]], model.encode(values[[1], :1], [1]))
        torch.testing.assert_close(both[[1]], one, rtol=0, atol=1e-5)


@pytest.mark.parametrize("readout", ["tanh", "concat", "maxout"])
@pytest.mark.parametrize("decoder", ["luong", "bahdanau"])
@torch.no_grad()
def test_both_decoders_are_their_papers_equations(decoder, readout):
    """One source and an Elman cell, place by place (Luong et al. 2015, section 3; Bahdanau et al.
    2015, section 3.1), the readout over [s; a] without a tanh, and theirs (appendix A.2.2)."""
    settings = {"cell": "rnn", "num_layers": 1, "decoder": decoder, "readout": readout}
    model = Case("seq2seq", "", settings).loud()
    memory = remember(model, SOURCES[0])
    (encoded,), (cell,), score = memory.values[0], model.decoder.layers, model.alignment
    tokens = ids(1, 5)

    def attended(s):
        energies = [
            score.v @ torch.tanh(score.of_query.weight @ s + score.of_key(h)) for h in encoded
        ]
        total = sum(e.exp() for e in energies)
        return sum(e.exp() / total * h for e, h in zip(energies, encoded, strict=True))

    def stepped(x, s):
        return torch.tanh(cell.weight_ih @ x + cell.weight_hh @ s + cell.bias)

    s, wanted = memory.first[0][0][0], []
    for token in tokens[0]:
        y = model.embedding.weight[token]
        if decoder == "bahdanau":
            a = attended(s)  # s_t-1
            s = stepped(torch.cat([y, a]), s)
        else:
            s = stepped(y, s)
            a = attended(s)
        both = torch.cat([s, a])
        features = torch.tanh(model.combine.weight @ both) if readout == "tanh" else both
        if readout == "maxout":
            t = model.combine.weight @ torch.cat([both, y])
            features = torch.stack([max(t[2 * i], t[2 * i + 1]) for i in range(len(t) // 2)])
        wanted.append(model.head.weight @ features + model.head.bias)
    torch.testing.assert_close(model(tokens, memory)[0][0], torch.stack(wanted), **EXACT)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@torch.no_grad()
def test_a_vector_may_be_the_first_input(cell):
    shape = {"hidden_size": 6, "source_features": 3, "num_layers": 1, "cell": cell}
    form = {"attention": "none", "encoder": "none", "bridge": "input"}
    model = Seq2Seq(Seq2SeqConfig(vocab_size=5, **shape, **form)).double().eval()
    vectors, tokens = torch.randn(2, 1, 3).double(), ids(2, 4, vocab=5)
    logits, _ = model(tokens, model.encode(vectors, [1, 1]))
    read = model.encoder.inputs(vectors).tanh()  # (2, 1, H)
    (layer,) = model.decoder.layers
    inputs = torch.cat([read, model.embedding(tokens)], 1)
    h, _ = layer.sequence(inputs, layer.start(2))
    torch.testing.assert_close(logits, model.head(h[:, 1:]), **EXACT)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"attention": "none", "bridge": "none"}, "source would not be read"),
        ({"coverage": True, "attention": "dot"}, "coverage"),
        ({"decoder": "bahdanau", "attention": "none"}, "bahdanau needs attention"),
        ({"tie_weights": True, "readout": "concat"}, "readout=tanh"),
        ({"hidden_size": 7}, "even hidden_size"),
        (
            {"attention": "dot", "query": "word", "embedding_size": 4},
            "embedding_size equal to hidden_size",
        ),
        ({"tie_weights": True, "embedding_size": 4}, "embedding_size equal to hidden_size"),
        ({"source_features": 2, "source_vocab_size": 2}, "tokens or vectors"),
    ],
)
def test_settings_that_make_no_sense(settings, said):
    with pytest.raises(UsageError, match=said):
        Seq2SeqConfig(vocab_size=5, **settings)


@pytest.mark.fast_for("seq2seq-rnn", "seq2seq-lstm", "seq2seq-grid")
@over([Case("seq2seq", name, {"cell": name, "bridge": "each"}) for name in RECURRENT])
def test_any_cell_may_read_a_source_and_write_a_target(case):
    test_padding_rows_and_their_order_change_nothing(case)
    test_steps_equal_teacher_forcing(case)
    test_weights_come_back(case)
    model = case.loud()
    model(ids(5, 4), remember(model, *SOURCES))[0].sin().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_a_cell_is_a_recurrent_architecture():
    with pytest.raises(UsageError, match=r"\(rnn, gru, lstm.*\), not transformer"):
        Seq2Seq(Seq2SeqConfig(vocab_size=5, cell="transformer"))


def test_learned_positions_end():
    config = Seq2SeqTransformerConfig(
        vocab_size=5, window=4, positions="learned", source_window=3, hidden_size=8
    )
    model = Seq2SeqTransformer(config)
    model.encode(ids(1, 3, vocab=5), [3])
    with pytest.raises(SeqgenError, match="a source has 4 tokens"):
        model.encode(ids(1, 4, vocab=5), [4])


@pytest.mark.parametrize("name", ["seq2seq", "seq2seq-transformer"])
def test_a_text_is_no_list_of_pairs(name, tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("a b\n" * 50)
    assert run(["train", str(path), "--model", name, "--steps", "1"]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"seqgen: {path}, line 1 has no tab; each line is source<TAB>target "
        "(for two files give --source and --target)\n"
    )


@torch.no_grad()
def test_cross_attention_by_plain_dot_products_of_activated_maps():
    """softmax(sigma(Q x) sigma(K h)^T) sigma(V h), head by head, h being the source's features."""
    settings = {"scale_attention": False, "qkv_activation": "sigmoid", "qk_norm": False}
    model = Case("seq2seq-transformer", "plain", {**settings, "num_layers": 1}).loud()
    cross = model.blocks[0].cross
    memory = model.encode(torch.tensor([[3, 1, 4, 1, 5]]), [5])
    h = model.encoder(torch.tensor([[3, 1, 4, 1, 5]]), [5])[0][0]  # (L, H)
    x = torch.linspace(-2, 3, 24, dtype=torch.float64).view(1, 3, 8) ** 2
    query = (cross.query.weight @ x[0].T).sigmoid().T  # (T, H)
    keys, values = (cross.key_value.weight @ h.T).sigmoid().T.split(8, 1)
    read = []
    for own in (slice(0, 4), slice(4, 8)):
        weights = (query[:, own] @ keys[:, own].T).softmax(-1)
        read.append(weights @ values[:, own])
    wanted = torch.cat(read, 1) @ cross.output.weight.T
    reading = CrossAttend(model.attend_within, memory, model.encoder.attend_to_all)
    torch.testing.assert_close(cross(x, reading)[0], wanted, rtol=1e-9, atol=1e-9)

"""Decoding from sources, which it knows by a number alone: each text is that of its own source."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers_cli import needs
from prefix_tables import Seen, Table, search_options

from seqgen.generation.beam import search
from seqgen.generation.beam_groups import Ending, SearchRules
from seqgen.generation.continuation import Continuation
from seqgen.generation.draw import CounterDraw
from seqgen.generation.hypotheses import LengthNorm
from seqgen.generation.text_batch import Row, SamplingPolicy, prefill, sample
from seqgen.text.tokenizers.char import CharTokenizer

HANDLES = [5, 5, 3, 5]


class Openings:
    """Opens states whose past begins with the handle's number, and keeps what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, handles):
        self.asked.append(list(handles))
        return Seen(100 + torch.tensor(handles)[:, None])


def test_prefill_reads_each_prompt_of_each_source_once():
    """The prompts are of one length, since this state cannot be padded; others are joined."""
    model, opens = Table(4), Openings()
    every = list(itertools.product(HANDLES, [(0, 3), (0, 1), (0, 1), (2, 1)]))
    handles, prompts = zip(*every, strict=True)
    logits, state = prefill(model, list(prompts), opens, list(handles))
    (asked,) = opens.asked
    assert len(asked) == len(set(every)) == 6
    for row, (handle, prompt) in enumerate(every):
        np.testing.assert_array_equal(logits[row], model.after((100 + handle, *prompt)).numpy())
        assert state.tokens[row].tolist() == [100 + handle, *prompt]


def test_prefill_opens_a_state_for_each_length():
    opens = Openings()
    with pytest.raises(RuntimeError, match="Sizes of tensors"):  # `Seen` cannot be joined
        prefill(Table(4), [(0,), (0, 1), (1,)], opens, [7, 8, 9])
    assert opens.asked == [[7, 9], [8]]


@pytest.mark.parametrize("width", [2, 3])
def test_a_search_is_that_of_its_own_source(width):
    model, config = Table(3), search_options(beams=width, nbest=2, max_tokens=5)
    every = itertools.product([(0,), (1,)], [5, 3])
    sources = [Row(i, 0, prompt, handle) for i, (prompt, handle) in enumerate(every)]
    together = dict(
        search(model, sources, SearchRules(config, reasons={2: "eos"}), opens=Openings())
    )
    texts = set()
    for place, source in enumerate(sources):
        ((_, alone),) = search(
            model, [source], SearchRules(config, reasons={2: "eos"}), opens=Openings()
        )
        assert [h.tokens for h in together[place]] == [h.tokens for h in alone]
        total = 0.0
        for n, token in enumerate(alone[0].tokens):
            past = (100 + source.handle, *source.tokens, *alone[0].tokens[:n])
            total += model.after(past).log_softmax(-1)[token].item()
        assert alone[0].logprob == pytest.approx(total)
        texts.add(tuple(h.tokens for h in alone))
    assert len(texts) == 4  # the source and the prompt both matter


@needs("searches")
def test_exhaustive_search_reads_the_source():
    from seqgen.plugins.searches.exhaustive import exhaustive

    model = Table(3)
    for handle in (1, 2, 3):
        source = Row(0, 0, (0,), handle)
        rules = SearchRules(search_options(beams=81, nbest=3, max_tokens=4), reasons={2: "eos"})
        tried = exhaustive(model, Ending(source, rules), Openings())
        ((_, found),) = search(model, [source], rules, opens=Openings())
        assert [h.tokens for h in tried] == [h.tokens for h in found]
        assert [h.logprob for h in tried] == pytest.approx([h.logprob for h in found])


def test_a_sample_is_that_of_its_own_source():
    model, tokenizer = Table(8), CharTokenizer("abc")
    rows = [
        Row(i, j, prompt, handle)
        for i, (prompt, handle) in enumerate([((0,), 5), ((0,), 3), ((1,), 5), ((1,), 3)])
        for j in range(3)
    ]

    def texts(some):
        def begin(row):
            return Continuation(tokenizer.decoder(), (), 6, {})

        steps = sample(model, some, begin, SamplingPolicy((), CounterDraw(3)), Openings())
        return {s.row: s.continuation.logprob for s in steps}

    together = texts(rows)
    assert len(together) == 12
    for row in rows:
        assert texts([row])[row] == pytest.approx(together[row])
    assert len({round(x, 9) for x in together.values()}) == 12


def penalty(source, tokens):
    """Something at most 0 that depends on the whole text and on its source."""
    return -1.5 * (5 - len(tokens)) - (sum(tokens) + source.handle) % 3


@needs("searches")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("nbest", [1, 4])
def test_a_penalty_of_finished_texts_is_part_of_the_search(seed, nbest):
    """With beams enough the n best are those of every text there is, penalised."""
    from seqgen.plugins.searches.exhaustive import exhaustive

    model, norm = Table(3, seed), LengthNorm("gnmt", 1.0)
    source = Row(0, 0, (0,), 4)
    config = search_options(beams=3**5, nbest=3**5, norm=norm, max_tokens=5)
    plain = Ending(source, SearchRules(config, reasons={2: "eos"}))
    every = exhaustive(model, plain, Openings())
    expected = {h.tokens: h.score + penalty(source, h.tokens) for h in every}
    best = sorted(expected, key=lambda tokens: (-expected[tokens], tokens))[:nbest]
    assert best != [h.tokens for h in every][:nbest]
    rules = SearchRules(replace(config, nbest=nbest), reasons={2: "eos"}, penalty=penalty)
    ((_, found),) = search(model, [source], rules, opens=Openings())
    tried = exhaustive(model, Ending(source, rules), Openings())
    for hypotheses in (found, tried):
        assert [h.tokens for h in hypotheses] == best
        assert [h.score for h in hypotheses] == pytest.approx([expected[t] for t in best])


@pytest.mark.parametrize("stochastic", [False, pytest.param(True, marks=needs("searches"))])
def test_a_source_may_have_a_limit_of_its_own(stochastic):
    model = Table(3)
    limits = [1, 3, None, 9]
    sources = [Row(0, 0, (0,), 5, limit) for limit in limits]
    config = search_options(beams=3, nbest=3, max_tokens=4, stochastic=stochastic)
    together = dict(search(model, sources, SearchRules(config), opens=Openings()))
    for place, limit in enumerate((1, 3, 4, 4)):
        alone = search_options(beams=3, nbest=3, max_tokens=limit, stochastic=stochastic)
        source = Row(0, 0, (0,), 5)
        ((_, found),) = search(model, [source], SearchRules(alone), opens=Openings())
        assert [h.tokens for h in together[place]] == [h.tokens for h in found]
        assert {len(h.tokens) for h in found} == {limit}

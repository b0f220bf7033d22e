"""The compiled look-ups and draws of n-gram models beside those by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers_cli import known_smoothings

from seqgen.engines.native.library import library
from seqgen.generation.continuation import Continuation
from seqgen.generation.draw import CounterDraw
from seqgen.generation.processors import Forbid, Temperature
from seqgen.generation.text_batch import Row, SamplingPolicy, sample
from seqgen.models.distributions import normalise
from seqgen.models.ngram.arrays import NGramArrays
from seqgen.models.ngram.model import NGram
from seqgen.models.ngram.settings import NGramConfig
from seqgen.text.corpus import Corpus
from seqgen.text.tokenizers import Decoder
from seqgen.training.counting import fit

SMOOTHINGS = known_smoothings()
V, NEVER = 600, (0, 1, 3)
pytestmark = pytest.mark.skipif(library() is None, reason="the kernels are not compiled here")


class Mute(Decoder):
    def push(self, token):
        return ""


def tokens_of(seed, *shape):
    """Words of very different frequencies, 4 and more."""
    skewed = np.random.default_rng(seed).pareto(0.7, shape) * 3
    return np.minimum(skewed, V - 5).astype(np.int64) + 4


def both(smoothing, order, **more):
    """Return one model with the compiled tables, and without."""
    corpus = Corpus(tokens_of(0, 4000), np.arange(10, 4001, 10), 1)
    model = NGram(NGramConfig(vocab_size=V, order=order, smoothing=smoothing, **more)).eval()
    fit(model, corpus, [0, 1])
    tables = {name: table.numpy() for name, table in model.state_dict().items()}
    compiled, plain = (NGramArrays(model.config, tables) for _ in range(2))
    vars(plain)["native"] = None
    assert compiled.native is not None
    return compiled, plain


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 5])
def test_scores_have_the_same_bits(smoothing, order):
    compiled, plain = both(smoothing, order)
    for seed in (0, 1):  # the text counted, and another
        tokens = tokens_of(seed, 4000).reshape(20, 200)
        for targets in (np.roll(tokens, -1, 1), tokens_of(2, 20, 200)):
            for want in ("log_probs", "hits"):
                found = [m.score(tokens, targets, m.start(20), want) for m in (compiled, plain)]
                (ours, state), (theirs, wanted) = found
                assert ours.log_probs.tobytes() == theirs.log_probs.tobytes()
                assert want == "log_probs" or (ours.hits == theirs.hits).all()
                assert (state.ids == wanted.ids).all()


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("more", [{"order": 1}, {"order": 5}, {"order": 4, "prune": "0,0,1"}])
def test_steps_have_the_same_bits(smoothing, more):
    """Of the distributions and of the contexts, also those of the drawer."""
    compiled, plain = both(smoothing, **more)
    ours, theirs = compiled.start(20), plain.start(20)
    for column in tokens_of(5, 20, 30).T.tolist():
        found, ours = compiled.step(column, ours)
        wanted, theirs = plain.step(column, theirs)
        assert found.tobytes() == wanted.tobytes() and (ours.ids == theirs.ids).all()
        assert compiled.matched_by(ours).tolist() == plain.matched_by(theirs).tolist()
        if compiled.drawer is not None:
            assert compiled.drawer.logits(ours).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("smoothing", [s for s in SMOOTHINGS if s != "add-delta"])
@pytest.mark.parametrize("more", [{}, {"prune": "0,0,1"}])
def test_a_draw_is_that_of_the_whole_row(smoothing, more):
    """Also next to the borders between two words, where rounding decides."""
    compiled, _ = both(smoothing, 4, **more)
    text, generator = tokens_of(3, 40, 30), np.random.default_rng(4)
    _, state = compiled(text, compiled.start(40))
    rows = Forbid(NEVER)((), normalise(compiled.drawer.logits(state)))
    cumulated = np.exp(rows.astype(np.float64)).cumsum(-1)
    total, sure = cumulated[:, -1:], []
    borders = (cumulated / total)[:, generator.integers(0, V, 20)]
    near = [borders + distance for distance in (0, 1e-9, -1e-9, 1e-6, -1e-6, 1e-4, -1e-4)]
    for some in (generator.random(borders.shape), *near):
        for uniforms in np.clip(some, 0, 1 - 1e-16).T.copy():
            words, own = compiled.drawer.draw(state, uniforms, np.array(NEVER))
            wanted = (cumulated <= uniforms[:, None] * total).sum(-1)
            assert ((words == wanted) | (words < 0)).all()
            found = np.flatnonzero(words >= 0)
            sure.append(found.size)
            whole = normalise(compiled.drawer.logits(state))[found, words[found]]
            np.testing.assert_allclose(own[found], whole, rtol=0, atol=1e-5)
    assert min(sure[:20]) > 30  # of 40, drawn at random


@pytest.mark.fast_for("more0", rest="slow")
@pytest.mark.parametrize("more", [[], [Temperature(0.7)]])
def test_texts_are_the_same(more):
    """Whatever the batch, and with filters that need whole rows."""
    written = []
    for model in both("modified-kneser-ney", 3):
        for size in (1, 7, 50):
            rows = [Row(0, j, (1, 5)) for j in range(50)]
            texts = {}
            for at in range(0, 50, size):
                for step in sample(
                    model,
                    rows[at : at + size],
                    lambda _: Continuation(Mute(), (), 40, {2: "eos"}),
                    SamplingPolicy([Forbid(NEVER), *more], CounterDraw(9)),
                ):
                    texts[step.row.sample] = step.continuation
            written.append([(texts[j].ids, texts[j].logprob) for j in range(50)])
    for other in written[1:]:
        assert [ids for ids, _ in other] == [ids for ids, _ in written[0]]
        np.testing.assert_allclose(
            [total for _, total in other], [total for _, total in written[0]], atol=1e-4
        )


def test_models_in_float64_are_looked_up_by_numpy():
    model = NGram(NGramConfig(vocab_size=V, order=2)).to(torch.float64)
    assert model.arrays.native is None and model.arrays.drawer is None

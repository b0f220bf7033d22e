"""Greedy and beam search against the transformers package, on the same weights in float32.

Where definitions differ: its early stopping is a guess unless `early_stopping="never"`, which
is ours; its repetition penalty acts on logits, which are made log-probabilities first, so that
it is ours; its length penalty is our alpha with the `avg` norm.
"""

import pytest
import torch
from prefix_tables import search_options

from seqgen.generation import text_batch
from seqgen.generation.beam import search
from seqgen.generation.beam_groups import SearchRules
from seqgen.generation.continuation import Continuation
from seqgen.generation.draw import greedy
from seqgen.generation.hypotheses import LengthNorm
from seqgen.generation.processors import MinTokens, NoRepeatNgram, RepetitionPenalty
from seqgen.generation.text_batch import Row, SamplingPolicy
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.text.tokenizers import Decoder

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

VOCAB, WINDOW, EOS = 23, 64, 22
PROMPTS = [(3, 1, 4), (1, 5), (9, 2, 6, 5, 3), (5,)]


@pytest.fixture(scope="module")
def pair():
    """GPT-2 of random weights, and ours with the same."""
    torch.manual_seed(8)
    config = transformers.GPT2Config(
        vocab_size=VOCAB,
        n_positions=WINDOW,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=0,
    )
    theirs = transformers.GPT2LMHeadModel(config).float().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.35)
    ours = Transformer(
        TransformerConfig(
            vocab_size=VOCAB,
            window=WINDOW,
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            positions="learned",
            norm="layernorm",
            activation="gelu",
            qk_norm=False,
            bias=True,
            tie_weights=True,
        )
    )
    gpt = theirs.transformer
    with torch.no_grad():
        ours.embedding.weight.copy_(gpt.wte.weight)
        ours.position_embedding.weight.copy_(gpt.wpe.weight)
        for mine, block in zip(ours.blocks, gpt.h, strict=True):
            maps = [
                (mine.attention.query_key_value, block.attn.c_attn),
                (mine.attention.output, block.attn.c_proj),
                (mine.feed_forward.inner, block.mlp.c_fc),
                (mine.feed_forward.output, block.mlp.c_proj),
            ]
            for linear, convolution in maps:
                linear.weight.copy_(convolution.weight.T)
                linear.bias.copy_(convolution.bias)
            mine.attention_norm.load_state_dict(block.ln_1.state_dict())
            mine.feed_forward_norm.load_state_dict(block.ln_2.state_dict())
        ours.final_norm.load_state_dict(gpt.ln_f.state_dict())
    return ours.eval(), theirs


def generated(theirs, prompt, **options):
    """What transformers writes after a prompt, up to and with the end."""
    tokens = theirs.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), **options
    )[0, len(prompt) :].tolist()
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens


class Ids(Decoder):
    def push(self, token):
        return f"{token} "


def greedily(ours, prompts, processors, max_tokens):
    """What our greedy decoding writes after each prompt, all of them in one batch."""
    texts = {prompt: [] for prompt in prompts}

    rows = [Row(i, 0, prompt) for i, prompt in enumerate(prompts)]
    begin = lambda row: Continuation(Ids(), (), max_tokens, {EOS: "eos"})  # noqa: E731
    seen = {}
    for step in text_batch.sample(ours, rows, begin, SamplingPolicy(processors, greedy)):
        seen[step.row.tokens] = step.continuation
    for prompt, text in seen.items():
        texts[prompt] = [int(t) for t in text.text.split()]
        texts[prompt] += [EOS] if text.finish_reason == "eos" else []
    return texts


def test_logits_agree(pair):
    ours, theirs = pair
    tokens = torch.randint(0, VOCAB, (3, WINDOW))
    with torch.no_grad():
        assert torch.allclose(ours(tokens)[0], theirs(tokens).logits, atol=1e-4)


@pytest.mark.parametrize("max_tokens", [5, 40])
def test_greedy(pair, max_tokens):
    ours, theirs = pair
    found = greedily(ours, PROMPTS, [], max_tokens)
    for prompt in PROMPTS:
        expected = generated(theirs, prompt, max_new_tokens=max_tokens, do_sample=False)
        assert found[prompt] == expected


@pytest.mark.parametrize("theta", [1.3, 2.0])
def test_greedy_with_penalty_ngrams_and_minimum(pair, theta):
    ours, theirs = pair
    processors = [MinTokens(10, (EOS,)), RepetitionPenalty(theta), NoRepeatNgram(3)]
    found = greedily(ours, PROMPTS, processors, 30)
    same = transformers.LogitsProcessorList(
        [
            # Ours is a penalty of log-probabilities, and comes before n-grams are removed.
            transformers.LogitNormalization(),
            transformers.RepetitionPenaltyLogitsProcessor(theta),
            transformers.NoRepeatNGramLogitsProcessor(3),
        ]
    )
    for prompt in PROMPTS:
        expected = generated(
            theirs,
            prompt,
            max_new_tokens=30,
            do_sample=False,
            min_new_tokens=10,
            logits_processor=same,
        )
        assert found[prompt] == expected


@pytest.mark.fast_for("6-*")
@pytest.mark.parametrize("beams", [2, 4, 7])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("max_tokens", [6, 25])
def test_beams(pair, beams, alpha, max_tokens):
    ours, theirs = pair
    config = search_options(beams=beams, norm=LengthNorm("avg", alpha), max_tokens=max_tokens)
    sources = [Row(i, 0, prompt) for i, prompt in enumerate(PROMPTS)]
    found = dict(search(ours, sources, SearchRules(config, reasons={EOS: "eos"})))
    for place, prompt in enumerate(PROMPTS):
        expected = generated(
            theirs,
            prompt,
            max_new_tokens=max_tokens,
            do_sample=False,
            num_beams=beams,
            length_penalty=alpha,
            early_stopping="never",
        )
        assert list(found[place][0].tokens) == expected


@pytest.mark.parametrize("ngram", [2, 3])
def test_beams_without_repeated_ngrams(pair, ngram):
    ours, theirs = pair
    config = search_options(beams=4, max_tokens=20)
    for prompt in PROMPTS:
        processors = [MinTokens(4, (EOS,)), NoRepeatNgram(ngram)]
        ((_, found),) = search(
            ours, [Row(0, 0, prompt)], SearchRules(config, processors, {EOS: "eos"})
        )
        expected = generated(
            theirs,
            prompt,
            max_new_tokens=20,
            do_sample=False,
            num_beams=4,
            min_new_tokens=4,
            no_repeat_ngram_size=ngram,
            early_stopping="never",
        )
        assert list(found[0].tokens) == expected

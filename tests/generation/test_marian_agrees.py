"""Encoder-decoders against the transformers package's Marian, on the same weights in float32.

Ours read the sources side by side, padded, and their beams share one memory a source; theirs are
one source at a time. Where definitions differ see `test_transformers_agree`.
"""

import pytest
import torch
from prefix_tables import search_options

from seqgen.generation.beam import search
from seqgen.generation.beam_groups import SearchRules
from seqgen.generation.hypotheses import LengthNorm
from seqgen.generation.processors import Forbid
from seqgen.generation.text_batch import Row
from seqgen.models.seq2seq.model import Seq2SeqTransformer
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.presets import SHARED
from seqgen.text.sources import TokenSources

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

VOCAB, WINDOW, SIZE, PAD, BOS, EOS = 19, 64, 16, 0, 1, 2
SOURCES = [[3, 11, 4, EOS], [EOS], [9, 12, 6, 5, 13, 7, 8, EOS], [5, 5, EOS], [3, 11, 4, EOS]]


@pytest.fixture(scope="module")
def pair():
    """Marian of random weights, and ours with the same."""
    torch.manual_seed(3)
    shape = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": 2, "attention_heads": 4, "ffn_dim": 24}.items()
    }
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        max_position_embeddings=WINDOW,
        d_model=SIZE,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **shape,
    )
    theirs = transformers.MarianMTModel(config).float().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.35)
    ours = Seq2SeqTransformer(
        Seq2SeqTransformerConfig(
            vocab_size=VOCAB,
            window=WINDOW,
            hidden_size=SIZE,
            num_layers=2,
            num_heads=4,
            ffn_size=24,
            **SHARED["form-of-2017"],
        )
    )
    copy_marian(theirs.model, ours)
    return ours.eval(), theirs


@torch.no_grad()
def copy_marian(theirs, ours):
    """Give our model Marian's weights, and Marian our sinusoids, which interleave."""
    ours.embedding.weight.copy_(theirs.shared.weight)
    for side in (theirs.encoder, theirs.decoder):
        side.embed_positions.weight.copy_(ours.waves)
    for mine, layer in zip(ours.encoder.blocks, theirs.encoder.layers, strict=True):
        copy_layer(mine, layer)
    for mine, layer in zip(ours.blocks, theirs.decoder.layers, strict=True):
        copy_layer(mine, layer)
        cross = layer.encoder_attn
        copy_stacked(mine.cross.query, cross.q_proj)
        copy_stacked(mine.cross.key_value, cross.k_proj, cross.v_proj)
        copy_stacked(mine.cross.output, cross.out_proj)
        copy_stacked(mine.cross_norm, layer.encoder_attn_layer_norm)


def copy_layer(mine, layer):
    own = layer.self_attn
    copy_stacked(mine.attention.query_key_value, own.q_proj, own.k_proj, own.v_proj)
    copy_stacked(mine.attention.output, own.out_proj)
    copy_stacked(mine.attention_norm, layer.self_attn_layer_norm)
    copy_stacked(mine.feed_forward.inner, layer.fc1)
    copy_stacked(mine.feed_forward.output, layer.fc2)
    copy_stacked(mine.feed_forward_norm, layer.final_layer_norm)


def copy_stacked(mine, *theirs):
    mine.weight.copy_(torch.cat([part.weight for part in theirs]))
    mine.bias.copy_(torch.cat([part.bias for part in theirs]))


@pytest.mark.slow
@torch.no_grad()
def test_logits_agree(pair):
    ours, theirs = pair
    tokens = torch.randint(3, VOCAB, (len(SOURCES), 12))
    read = TokenSources.of(SOURCES).rows(range(len(SOURCES)))
    logits, _ = ours(tokens, ours.remember(read))
    values = torch.from_numpy(read.values)
    there = (torch.arange(values.shape[1]) < torch.from_numpy(read.lengths)[:, None]).long()
    wanted = theirs(input_ids=values, attention_mask=there, decoder_input_ids=tokens).logits
    torch.testing.assert_close(logits, wanted, rtol=0, atol=1e-4)


@pytest.mark.fast_for("6-*")
@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
@pytest.mark.parametrize("max_tokens", [6, 20])
def test_beams_agree(pair, beams, alpha, max_tokens):
    ours, theirs = pair
    config = search_options(beams=beams, norm=LengthNorm("avg", alpha), max_tokens=max_tokens)
    searched = [Row(i, 0, (BOS,), i) for i in range(len(SOURCES))]
    opens = ours.opens(TokenSources.of(SOURCES))
    found = dict(
        search(ours, searched, SearchRules(config, [Forbid((PAD, BOS))], {EOS: "eos"}), opens=opens)
    )
    for place, source in enumerate(SOURCES):
        tokens = theirs.generate(
            torch.tensor([source]),
            attention_mask=torch.ones(1, len(source), dtype=torch.int64),
            max_new_tokens=max_tokens,
            do_sample=False,
            num_beams=beams,
            length_penalty=alpha,
            early_stopping="never" if beams > 1 else False,
            suppress_tokens=[PAD, BOS],
        )[0, 1:].tolist()
        expected = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        assert list(found[place][0].tokens) == expected

"""`python -m tests.benchmarks train`: what it counts, the plain recipe, and what it prints."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks import gpt, train
from benchmarks.__main__ import run
from benchmarks.baselines import PlainGPT, PlainWindow
from benchmarks.pair_baselines import PlainSeq2Seq, PlainTranslator
from seqgen.errors import SeqgenError
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.seq2seq.model import Seq2Seq, Seq2SeqConfig, Seq2SeqTransformer
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.presets import SHARED
from seqgen.text.sources import TokenSources


def test_operations_by_hand():
    lstm = RecurrentLM(LSTMConfig(vocab_size=7, hidden_size=4, num_layers=1, embedding_size=3))
    # Per token: four gates of 4 x 3 and 4 x 4, a head of 7 x 4; 2 operations, three times.
    assert train.flops_per_token(lstm, 9) == 6 * (4 * (12 + 16) + 28)
    shape = {"vocab_size": 7, "window": 9, "hidden_size": 4, "num_layers": 2, "num_heads": 2}
    transformer = Transformer(TransformerConfig(**shape, ffn_size=5, activation="relu"))
    block = 4 * 16 + 2 * 20 + 2 * 9 * 4  # projections, feed-forward, scores and what they read
    assert train.flops_per_token(transformer, 9) == 6 * (2 * block + 28)


def test_peak_memory_sees_what_was_let_go():
    held = train.peak_memory(lambda: np.ones(50_000_000, np.uint8).sum(), torch.device("cpu"))
    if held is None:
        pytest.skip("this system tells no peak memory")
    assert held > 50_000_000


def test_the_plain_gpt_is_the_gpt2_form():
    """The benchmark's two sides are one function, up to GELU's approximation."""
    torch.manual_seed(0)
    plain = PlainGPT(11, window=6, size=8, layers=2, heads=2, dropout=0.0).eval()
    shape = {"vocab_size": 11, "window": 6, "hidden_size": 8, "num_layers": 2, "num_heads": 2}
    ours = Transformer(TransformerConfig(**shape, **SHARED["gpt2"], dropout=0.0)).eval()
    assert ours.parameter_count() == sum(p.numel() for p in plain.parameters())
    with torch.no_grad():
        ours.embedding.weight.copy_(plain.embedding.weight)
        ours.position_embedding.weight.copy_(plain.positions.weight)
        for block, other in zip(ours.blocks, plain.blocks, strict=True):
            block.attention_norm.load_state_dict(other.norm1.state_dict())
            block.feed_forward_norm.load_state_dict(other.norm2.state_dict())
            block.attention.query_key_value.load_state_dict(other.query_key_value.state_dict())
            block.attention.output.load_state_dict(other.output.state_dict())
            block.feed_forward.inner.load_state_dict(other.feed_forward[0].state_dict())
            block.feed_forward.output.load_state_dict(other.feed_forward[2].state_dict())
    tokens = torch.randint(11, (3, 6))
    torch.testing.assert_close(ours(tokens)[0], plain(tokens), rtol=1e-4, atol=1e-4)


def test_the_plain_window_is_the_window_model():
    window = pytest.importorskip("seqgen.plugins.window.model")
    torch.manual_seed(0)
    plain = PlainWindow(5, context=3, embedding_size=4, hidden_size=6, dropout=0.0)
    shape = {"context_size": 3, "embedding_size": 4, "hidden_size": 6}
    ours = window.Window(window.WindowConfig(vocab_size=5, **shape, dropout=0.0))
    with torch.no_grad():
        ours.embedding.weight[:5] = plain.embedding.weight
        ours.embedding.weight[5] = plain.embedding.weight[0]  # stands before the text
    ours.layer.load_state_dict(plain.layer.state_dict())
    ours.head.load_state_dict(plain.head.state_dict())
    tokens = torch.randint(5, (2, 7))
    torch.testing.assert_close(ours(tokens)[0], plain(tokens))


SOURCES = TokenSources.of([[3, 1, 4], [1, 5], [9, 2, 6, 5, 3]]).rows(range(3))


def agree_on_pairs(ours, plain):
    """Hold both to the same logits on targets (3, 4) of ragged sources."""
    tokens = torch.randint(11, (3, 4))
    theirs = plain(tokens, torch.from_numpy(SOURCES.values), torch.from_numpy(SOURCES.lengths))
    logits, _ = ours(tokens, ours.remember(SOURCES))
    torch.testing.assert_close(logits, theirs, rtol=1e-4, atol=1e-5)


def test_the_plain_recurrent_translator_is_the_model():
    torch.manual_seed(0)
    plain = PlainSeq2Seq(11, 8, dropout=0.0)
    config = Seq2SeqConfig(vocab_size=11, hidden_size=8, num_layers=1, dropout=0.0)
    ours = Seq2Seq(config)
    with torch.no_grad():
        directions = ["_l0", "_l0_reverse"]
        layers = [*ours.encoder.layers[0], ours.decoder.layers[0]]
        theirs = [(plain.encoder, suffix) for suffix in directions] + [(plain.decoder, "_l0")]
        for mine, (module, suffix) in zip(layers, theirs, strict=True):
            for name in ("weight_ih", "weight_hh"):
                getattr(mine, name).copy_(getattr(module, name + suffix))
            bias, second = (getattr(module, name + suffix) for name in ("bias_ih", "bias_hh"))
            # Ours has one bias for the gates, and a second only for the candidate.
            mine.bias_hn.copy_(second.chunk(3)[2])
            second.chunk(3)[2].zero_()
            mine.bias.copy_(bias + second)
            second.chunk(3)[2].copy_(mine.bias_hn)
        ours.embedding.weight.copy_(plain.embedding.weight)
        score = ours.alignment
        score.of_query.weight.copy_(plain.of_query.weight)
        score.of_key.load_state_dict(plain.of_key.state_dict())
        score.v.copy_(plain.v.weight[0])
        ours.combine.weight.copy_(plain.combine.weight)
        ours.head.load_state_dict(plain.head.state_dict())
    agree_on_pairs(ours, plain)


def test_the_plain_translator_is_the_form_of_2017():
    torch.manual_seed(0)
    plain = PlainTranslator(11, 6, 8, layers=2, heads=2, dropout=0.0)
    shape = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "ffn_size": 32}
    config = Seq2SeqTransformerConfig(
        vocab_size=11, window=6, **shape, **SHARED["form-of-2017"], dropout=0.0
    )
    ours = Seq2SeqTransformer(config)
    assert ours.parameter_count() == sum(p.numel() for p in plain.parameters())
    pairs = [
        *zip(ours.encoder.blocks, plain.transformer.encoder.layers, strict=True),
        *zip(ours.blocks, plain.transformer.decoder.layers, strict=True),
    ]
    with torch.no_grad():
        ours.embedding.weight.copy_(plain.embedding.weight)
        for mine, theirs in pairs:
            maps = [
                (mine.attention.query_key_value, _projections(theirs.self_attn)),
                (mine.attention.output, theirs.self_attn.out_proj),
                (mine.attention_norm, theirs.norm1),
                (mine.feed_forward.inner, theirs.linear1),
                (mine.feed_forward.output, theirs.linear2),
                (mine.feed_forward_norm, getattr(theirs, "norm3", theirs.norm2)),
            ]
            if mine.cross is not None:
                every = _projections(theirs.multihead_attn)
                for name in ("weight", "bias"):
                    parts = getattr(every, name).split([8, 16])
                    getattr(mine.cross.query, name).copy_(parts[0])
                    getattr(mine.cross.key_value, name).copy_(parts[1])
                maps += [
                    (mine.cross.output, theirs.multihead_attn.out_proj),
                    (mine.cross_norm, theirs.norm2),
                ]
            for one, other in maps:
                one.weight.copy_(other.weight)
                one.bias.copy_(other.bias)
    agree_on_pairs(ours, plain)


def _projections(attention):
    return SimpleNamespace(weight=attention.in_proj_weight, bias=attention.in_proj_bias)


def test_the_recipes_loss_scores_every_token_once():
    torch.manual_seed(0)
    model = PlainGPT(5, gpt.WINDOW, size=8, layers=1, heads=2, dropout=0.0)
    tokens = torch.randint(5, (1 + 3 * gpt.WINDOW + 10,))
    nats, half = [], gpt.WINDOW // 2
    for i in range(1, len(tokens)):
        # From the second half window on, each token has half a window before it, or more.
        begin = max(0, (i - 1) // half - 1) * half
        logits = model(tokens[None, begin:i])[0, -1]
        nats.append(F.cross_entropy(logits, tokens[i]).item())
    assert gpt._loss_over(model, tokens) == pytest.approx(np.mean(nats), rel=1e-5)


@pytest.mark.slow
def test_the_recipe_learns_and_its_text_must_be_long_enough(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcd" * 400)
    result = gpt.plain_gpt(text, steps=30)
    assert result.val_loss < 1.0 < np.log(4)
    text.write_text("abcd" * 100)
    with pytest.raises(SeqgenError, match="too short"):
        gpt.plain_gpt(text, steps=1)


@pytest.mark.slow
def test_bench_train_prints_a_record_a_case(capsys):
    command = ["train", "--seconds", "0.1", "--repeats", "1", "--only", "rnn", "--json"]
    assert run([*command, "--precision", "float32", "--device", "cpu", "--quiet"]) == 0
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert record["case"] == "rnn 2 x 256"
    assert (record["precision"], record["device"]) == ("float32", "cpu")
    speeds = record["tokens_per_second"], record["baseline_tokens_per_second"]
    assert record["ratio"] == pytest.approx(speeds[0] / speeds[1])
    assert record["gflops"] > 0


@pytest.mark.slow
def test_bench_train_measures_a_cell_beside_an_lstm_as_large(capsys):
    command = ["train", "--seconds", "0.1", "--repeats", "1", "--only", "cell gru"]
    assert run([*command, "--json", "--precision", "float32", "--device", "cpu", "--quiet"]) == 0
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert record["case"] == "cell gru 1 x 256"
    size = int(record["baseline"].removeprefix("nn.LSTM 1 x "))
    # V H twice, 4 gates of H x H twice, and PyTorch's two biases.
    counts = {h: 2 * train.VOCAB * h + 8 * h * h + 8 * h + train.VOCAB for h in range(1, 400)}
    assert size == min(counts, key=lambda h: abs(counts[h] - record["parameters"]))


@pytest.mark.slow
def test_bench_train_counts_the_targets_of_pairs(capsys):
    command = ["train", "--seconds", "0.1", "--repeats", "1", "--only", "seq2seq gru"]
    assert run([*command, "--json", "--precision", "float32", "--device", "cpu", "--quiet"]) == 0
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (record["case"], record["baseline"]) == ("seq2seq gru 256", "nn.GRU, attention")
    assert record["tokens_per_second"] > 0


@pytest.mark.long
def test_bench_train_prints_a_table(capsys):
    assert run(["train", "--seconds", "0.1", "--repeats", "1", "--only", "gru 2"]) == 0
    shown = capsys.readouterr().out
    assert "gru 2 x 256" in shown
    assert "nn.GRU, float32" in shown


def test_bench_train_runs_the_recipe(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\n" * 50)
    command = ["train", str(text), "--recipe", "gpt", "--steps", "2", "--json"]
    assert run(command) == 0
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (record["recipe"], record["steps"]) == ("gpt", 2)
    assert record["val_loss"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipe", "gpt"], "--recipe needs a TEXT"),
        (["book.txt"], "TEXT is for --recipe"),
        (["--recipe", "lstm", "book.txt"], "gpt"),
        (["--optimizer", "sgd"], "adamw"),
        (["--only", "lstn"], "no case has 'lstn' in its name; there are window of 8, 256; rnn"),
    ],
)
def test_bench_train_refuses(arguments, words, capsys):
    assert run(["train", *arguments]) == 2
    assert words in capsys.readouterr().err

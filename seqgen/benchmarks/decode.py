"""Decoding against plain baselines: how many tokens a second, counting those really made."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from seqgen.benchmarks import cases_with, cells
from seqgen.data.sources import TokenSources
from seqgen.decoding.beam import search
from seqgen.decoding.beam_groups import BeamConfig, SearchPrompt
from seqgen.decoding.continuation import Continuation
from seqgen.decoding.draw import CounterDraw
from seqgen.decoding.processors import Forbid
from seqgen.decoding.sampling import Row, sample
from seqgen.models.base import LanguageModel
from seqgen.models.cells.lstm import LSTM, LSTMConfig
from seqgen.models.seq2seq_transformer import (
    Seq2SeqTransformer,
    Seq2SeqTransformerConfig,
)
from seqgen.models.transformer import Transformer
from seqgen.models.transformer_config import TransformerConfig
from seqgen.presets import FORM_OF_2017
from seqgen.tokenizers import Tokenizer
from seqgen.tokenizers.char import CharTokenizer

ALPHABET = "".join(map(chr, range(32, 93)))
WINDOW = 256
BATCH, BEAMS = 16, 5
# Of translators: a joint subword vocabulary, and sources of 8 to 24 tokens, EOS included.
PAIR_VOCAB, SHORTEST, LONGEST = 6000, 8, 24
PAD, BOS, UNK, EOS = range(4)
# Makes texts and returns the number of tokens it made.
Run = Callable[[], int]


@dataclass(frozen=True)
class Timing:
    """The keys of `seqgen bench decode --json`, in order.

    `ratio` is the median of the ratios of neighbouring runs. `bandwidth_fraction` is the speed
    over that at which every step would do nothing but read the weights and caches it needs from
    memory; small models live in the processor's cache and may be above 1.
    """

    case: str
    baseline: str
    tokens_per_second: float | None
    baseline_tokens_per_second: float | None
    ratio: float | None
    bandwidth_fraction: float | None
    runs: int
    threads: int
    skipped: str | None = None


@dataclass(frozen=True)
class Case:
    """Something to measure: a name, our run, the baseline's, and what a token must read."""

    name: str
    baseline: str
    ours: Run
    theirs: Run
    bytes_per_token: float


def measure(tokens: int, repeats: int, only: str | None = None) -> Iterator[Timing]:
    """Yield a timing for each case.

    Args:
        tokens: tokens of each text, from 1 to 255.
        repeats: alternated runs of each, after one that is not counted.
        only: cases whose name contains this; those of the cells where it begins with "cell".
    """
    cases: dict[str, Callable[[int], Case]] = {
        "lstm 2 x 256, batch 1": _lstm,
        "transformer 6 x 384, batch 1": lambda n: _transformer(n, 1),
        f"transformer 6 x 384, batch {BATCH}": lambda n: _transformer(n, BATCH),
        f"transformer 6 x 384, {BEAMS} beams, batch {BATCH}": _beams,
        _name_of_translator(3, 256): lambda n: _translator(3, 256, n),
        _name_of_translator(6, 512): lambda n: _translator(6, 512, n),
    }
    if cells.names_cells(only):
        names = cells.recurrent_architectures()
        cases = {cells.name_of(name): partial(_cell, name) for name in names}
    chosen = cases_with(only, list(cases))
    bandwidth = memory_bandwidth()
    for name in chosen:
        try:
            case = cases[name](tokens)
        except ImportError as error:
            reason = f"{error}; pip install transformers to measure against it"
            none = (None,) * 4
            yield Timing(name, "transformers", *none, 0, torch.get_num_threads(), reason)
            continue
        yield _timed(case, repeats, bandwidth)


def _timed(case: Case, repeats: int, bandwidth: float) -> Timing:
    case.ours()
    case.theirs()
    # Neighbours in time share what else the machine does, so each pair gives a ratio.
    pairs = [(_speed(case.ours), _speed(case.theirs)) for _ in range(repeats)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Timing(
        case=case.name,
        baseline=case.baseline,
        tokens_per_second=ours,
        baseline_tokens_per_second=theirs,
        ratio=statistics.median(a / b for a, b in pairs),
        bandwidth_fraction=ours * case.bytes_per_token / bandwidth,
        runs=repeats,
        threads=torch.get_num_threads(),
    )


def _speed(run: Run) -> float:
    start = time.perf_counter()
    made = run()
    return made / (time.perf_counter() - start)


def memory_bandwidth(size: int = 1 << 28) -> float:
    """Return the bytes a second at which memory is read, the best of some passes over `size`."""
    block = torch.ones(size // 4)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        block.sum()
        best = max(best, size / (time.perf_counter() - start))
    return best


def _write(model: LanguageModel, tokenizer: Tokenizer, batch: int, tokens: int) -> Run:
    """Return our sampling, as `seqgen sample` does it."""
    never = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id, tokenizer.eos_id)

    def run() -> int:
        rows = [Row(i, 0, (tokenizer.newline_id,)) for i in range(batch)]
        steps = sample(
            model,
            rows,
            lambda row: Continuation(tokenizer.decoder(row.tokens), (), tokens, None),
            [Forbid(never)],
            CounterDraw(1),
        )
        return sum(1 for _ in steps)

    return run


def _lstm(tokens: int) -> Case:
    tokenizer = CharTokenizer(ALPHABET)
    model = LSTM(LSTMConfig(vocab_size=tokenizer.vocab_size, hidden_size=256, num_layers=2))
    return Case(
        name="lstm 2 x 256, batch 1",
        baseline="a loop over nn.LSTM",
        ours=_write(model.eval(), tokenizer, 1, tokens),
        theirs=plain_lstm(tokenizer.vocab_size, tokens),
        # One row of the embedding is read.
        bytes_per_token=4 * (model.parameter_count() - model.embedding.weight.numel()),
    )


def _cell(architecture: str, tokens: int) -> Case:
    """Return the case of a cell's steps beside those of our LSTM with as many parameters."""
    vocab_size = len(ALPHABET)
    model = cells.cell_model(architecture, vocab_size)
    size = cells.nearest_size(
        lambda n: cells.cell_model("lstm", vocab_size, n).parameter_count(),
        model.parameter_count(),
    )
    return Case(
        name=cells.name_of(architecture),
        baseline=f"lstm 1 x {size}",
        ours=_steps(model, tokens),
        theirs=_steps(cells.cell_model("lstm", vocab_size, size), tokens),
        bytes_per_token=4 * (model.parameter_count() - model.embedding.weight.numel()),
    )


def _steps(model: LanguageModel, tokens: int) -> Run:
    """Return what takes steps of one row, without choosing tokens."""
    model.eval()

    @torch.inference_mode()
    def run() -> int:
        state = model.start(1)
        for token in range(tokens):
            _, state = model.step([token % model.vocab_size], state)
        return tokens

    return run


def plain_lstm(vocab_size: int, tokens: int, hidden_size: int = 256) -> Run:
    """Return what samples from `nn.LSTM` as tutorials do: embed, step, softmax, multinomial."""
    embedding = nn.Embedding(vocab_size, hidden_size)
    lstm = nn.LSTM(hidden_size, hidden_size, num_layers=2, batch_first=True)
    head = nn.Linear(hidden_size, vocab_size)

    @torch.no_grad()
    def run() -> int:
        made = []
        token, state = torch.zeros(1, 1, dtype=torch.int64), None
        for _ in range(tokens):
            output, state = lstm(embedding(token), state)
            probs = head(output[:, -1]).softmax(-1)
            token = torch.multinomial(probs, 1)
            made.append(token.item())
        return len(made)

    return run


def _shared_shape(vocab_size: int) -> TransformerConfig:
    """Return GPT-2's form, which both libraries have: 6 layers of 384, 10.7 million weights."""
    return TransformerConfig(
        vocab_size=vocab_size,
        window=WINDOW,
        hidden_size=384,
        num_layers=6,
        num_heads=6,
        positions="learned",
        norm="layernorm",
        activation="gelu",
        qk_norm=False,
        bias=True,
        tie_weights=True,
    )


def _bytes_per_token(model: Transformer, rows: int, texts: int, tokens: int) -> float:
    """Return what a step of `rows` rows reads, for each of the `texts` tokens it makes."""
    config = model.config
    cache = 2 * config.num_layers * config.hidden_size * tokens / 2
    positions = model.position_embedding.weight.numel()
    return 4 * (model.parameter_count() - positions + rows * cache) / texts


def _transformer(tokens: int, batch: int) -> Case:
    tokenizer = CharTokenizer(ALPHABET)
    theirs = _transformers_model(tokenizer.vocab_size)
    model = Transformer(_shared_shape(tokenizer.vocab_size)).eval()
    start = torch.full((batch, 1), tokenizer.newline_id)

    def generate() -> int:
        options = {"do_sample": True, "top_k": 0}
        return theirs.generate(start, max_new_tokens=tokens, **options)[:, 1:].numel()

    return Case(
        name=f"transformer 6 x 384, batch {batch}",
        baseline="transformers generate",
        ours=_write(model, tokenizer, batch, tokens),
        theirs=generate,
        bytes_per_token=_bytes_per_token(model, batch, batch, tokens),
    )


def _beams(tokens: int) -> Case:
    tokenizer = CharTokenizer(ALPHABET)
    theirs = _transformers_model(tokenizer.vocab_size)
    model = Transformer(_shared_shape(tokenizer.vocab_size)).eval()
    never = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id, tokenizer.eos_id)
    # Prompts that differ, so that none of the searches is another's.
    firsts = range(tokenizer.newline_id, tokenizer.newline_id + BATCH)
    start = torch.tensor(firsts)[:, None]

    def ours() -> int:
        sources = [SearchPrompt(i, (first,)) for i, first in enumerate(firsts)]
        config = BeamConfig(beams=BEAMS, max_tokens=tokens)
        results = search(model, sources, config, [Forbid(never)], None)
        return sum(len(beams[0].tokens) for _, beams in results)

    def generate() -> int:
        options = {"do_sample": False, "num_beams": BEAMS}
        return theirs.generate(start, max_new_tokens=tokens, **options)[:, 1:].numel()

    return Case(
        name=f"transformer 6 x 384, {BEAMS} beams, batch {BATCH}",
        baseline="transformers beams",
        ours=ours,
        theirs=generate,
        bytes_per_token=_bytes_per_token(model, BATCH * BEAMS, BATCH, tokens),
    )


def _name_of_translator(layers: int, size: int) -> str:
    return f"seq2seq-transformer {layers} x {size}, {BEAMS} beams, {BATCH} sources"


def _translator(layers: int, size: int, tokens: int) -> Case:
    """Return the form of 2017 and Marian, which has the same, on the same sources.

    Neither ends a text by itself.
    """
    draw, heads = np.random.default_rng(0), size // 64
    lengths = draw.integers(SHORTEST, LONGEST + 1, BATCH)
    sources = TokenSources.of([[*draw.integers(4, PAIR_VOCAB, n - 1), EOS] for n in lengths])
    settings = {"num_layers": layers, "num_heads": heads, "hidden_size": size}
    shape = {"vocab_size": PAIR_VOCAB, "window": WINDOW, "ffn_size": 4 * size, **settings}
    model = Seq2SeqTransformer(Seq2SeqTransformerConfig(**shape, **FORM_OF_2017)).eval()

    def ours() -> int:
        searched = [SearchPrompt(i, (BOS,), i) for i in range(BATCH)]
        config = BeamConfig(beams=BEAMS, max_tokens=tokens)
        never = [Forbid((PAD, BOS, UNK, EOS))]
        results = search(model, searched, config, never, None, opens=model.opens(sources))
        return sum(len(beams[0].tokens) for _, beams in results)

    cache = 2 * layers * size * (tokens / 2 + lengths.mean() / BEAMS)
    read = model.parameter_count() - sum(p.numel() for p in model.encoder.parameters())
    return Case(
        name=_name_of_translator(layers, size),
        baseline="transformers Marian",
        ours=ours,
        theirs=_marian(sources, layers, size, tokens),
        bytes_per_token=4 * (read + BATCH * BEAMS * cache) / BATCH,
    )


def _marian(sources: TokenSources, layers: int, size: int, tokens: int) -> Run:
    """Return what searches with Marian (Junczys-Dowmunt et al. 2018) of random weights.

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import MarianConfig, MarianMTModel

    shape = {"layers": layers, "attention_heads": size // 64, "ffn_dim": 4 * size}
    config = MarianConfig(
        vocab_size=PAIR_VOCAB,
        max_position_embeddings=WINDOW,
        d_model=size,
        activation_function="relu",
        scale_embedding=True,
        bos_token_id=None,
        eos_token_id=None,
        forced_eos_token_id=None,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
        **{f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in shape.items()},
    )
    model = MarianMTModel(config).float().eval()
    read = sources.rows(range(len(sources)))
    values, lengths = torch.from_numpy(read.values), torch.from_numpy(read.lengths)
    there = (torch.arange(values.shape[1]) < lengths[:, None]).long()

    def run() -> int:
        options = {"do_sample": False, "num_beams": BEAMS, "max_new_tokens": tokens}
        return model.generate(values, attention_mask=there, **options)[:, 1:].numel()

    return run


def _transformers_model(vocab_size: int) -> nn.Module:
    """Return GPT-2 of the shared shape, in float32, that never ends a text by itself.

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=WINDOW,
        n_embd=384,
        n_layer=6,
        n_head=6,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).float().eval()

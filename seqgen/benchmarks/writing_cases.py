"""What `seqgen bench decode` measures: models with random weights, and plain baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from seqgen.benchmarks import cells
from seqgen.data.sources import TokenSources
from seqgen.decoding.beam import search
from seqgen.decoding.beam_groups import BeamConfig, SearchPrompt
from seqgen.decoding.continuation import Continuation
from seqgen.decoding.draw import CounterDraw
from seqgen.decoding.processors import Forbid
from seqgen.decoding.sampling import Row, sample
from seqgen.models.base import LanguageModel
from seqgen.models.cells.lstm import LSTM, LSTMConfig
from seqgen.models.precision import in_precision
from seqgen.models.seq2seq_transformer import (
    Seq2SeqTransformer,
)
from seqgen.models.seq2seq_transformer_config import Seq2SeqTransformerConfig
from seqgen.models.transformer import Transformer
from seqgen.models.transformer_config import TransformerConfig
from seqgen.presets import FORM_OF_2017
from seqgen.tokenizers import Tokenizer
from seqgen.tokenizers.char import CharTokenizer

ALPHABET = "".join(map(chr, range(32, 93)))
WINDOW = 256


@dataclass(frozen=True)
class Shape:
    """The size of a GPT-2, by what is written about it: 6 x 384 has 6 layers of width 384.

    Attributes:
        layers: how many.
        size: their width; a head has 64 of it.
        alphabet: the characters that it writes.
    """

    layers: int
    size: int
    alphabet: str = ALPHABET

    def __str__(self) -> str:
        return f"{self.layers} x {self.size}"


SMALL = Shape(6, 384)
# GPT-2 small has 50,257 tokens; a newline and the special ones are added to these characters.
GPT2_SMALL = Shape(12, 768, "".join(map(chr, range(256, 256 + 50_252))))
BATCH, BEAMS = 16, 5
# Of translators: a joint subword vocabulary, and sources of 8 to 24 tokens, EOS included.
PAIR_VOCAB, SHORTEST, LONGEST = 6000, 8, 24
PAD, BOS, UNK, EOS = range(4)
# Of a weight, by precision.
BYTES = {"float32": 4, "bf16": 2, "int8": 1}
# Makes texts and returns the number of tokens it made.
Run = Callable[[], int]


@dataclass(frozen=True)
class Case:
    """Something to measure: a name, our run, the baseline's, and what a token must read."""

    name: str
    baseline: str
    ours: Run
    theirs: Run
    bytes_per_token: float


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


def in_title(precision: str) -> str:
    """Return the end of the name of a case in some precision."""
    return "" if precision == "float32" else f", {precision}"


def lstm(tokens: int, precision: str = "float32") -> Case:
    """Return the case of our LSTM beside a loop over `nn.LSTM` in float32."""
    tokenizer = CharTokenizer(ALPHABET)
    model = LSTM(LSTMConfig(vocab_size=tokenizer.vocab_size, hidden_size=256, num_layers=2))
    return Case(
        name=f"lstm 2 x 256, batch 1{in_title(precision)}",
        baseline="a loop over nn.LSTM",
        ours=_write(in_precision(model.eval(), precision), tokenizer, 1, tokens),
        theirs=plain_lstm(tokenizer.vocab_size, tokens),
        # One row of the embedding is read.
        bytes_per_token=BYTES[precision]
        * (model.parameter_count() - model.embedding.weight.numel()),
    )


def cell(architecture: str, tokens: int) -> Case:
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


def _gpt2(shape: Shape, vocab_size: int) -> TransformerConfig:
    """Return GPT-2's form, which both libraries have; of 6 x 384 it has 10.7 million weights."""
    return TransformerConfig(
        vocab_size=vocab_size,
        window=WINDOW,
        hidden_size=shape.size,
        num_layers=shape.layers,
        num_heads=shape.size // 64,
        positions="learned",
        norm="layernorm",
        activation="gelu",
        qk_norm=False,
        bias=True,
        tie_weights=True,
    )


def _bytes_per_token(
    model: Transformer, rows: int, texts: int, tokens: int, precision: str = "float32"
) -> float:
    """Return what a step of `rows` rows reads, for each of the `texts` tokens it makes."""
    config = model.config
    cache = 2 * config.num_layers * config.hidden_size * tokens / 2
    weights = model.parameter_count() - model.position_embedding.weight.numel()
    return (BYTES[precision] * weights + 4 * rows * cache) / texts


def name_of_transformer(batch: int, shape: Shape, precision: str, theirs: str) -> str:
    """Return what the case of a transformer is called."""
    beside = f" beside {theirs}" if theirs != "float32" else ""
    return f"transformer {shape}, batch {batch}{in_title(precision)}{beside}"


def transformer(
    tokens: int,
    batch: int,
    shape: Shape = SMALL,
    precision: str = "float32",
    their_precision: str = "float32",
) -> Case:
    """Return the case of our GPT-2 beside that of the transformers package.

    Raises:
        ImportError: transformers is not installed.
    """
    tokenizer = CharTokenizer(shape.alphabet)
    theirs = _transformers_model(shape, tokenizer.vocab_size)
    if their_precision == "bf16":
        theirs = theirs.to(torch.bfloat16)
    model = Transformer(_gpt2(shape, tokenizer.vocab_size)).eval()
    start = torch.full((batch, 1), tokenizer.newline_id)

    def generate() -> int:
        options = {"do_sample": True, "top_k": 0}
        return theirs.generate(start, max_new_tokens=tokens, **options)[:, 1:].numel()

    return Case(
        name=name_of_transformer(batch, shape, precision, their_precision),
        baseline=f"transformers generate{in_title(their_precision)}",
        ours=_write(in_precision(model, precision), tokenizer, batch, tokens),
        theirs=generate,
        bytes_per_token=_bytes_per_token(model, batch, batch, tokens, precision),
    )


def beams(tokens: int) -> Case:
    """Return the case of our beam search beside that of the transformers package.

    Raises:
        ImportError: transformers is not installed.
    """
    tokenizer = CharTokenizer(ALPHABET)
    theirs = _transformers_model(SMALL, tokenizer.vocab_size)
    model = Transformer(_gpt2(SMALL, tokenizer.vocab_size)).eval()
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


def name_of_translator(layers: int, size: int) -> str:
    """Return what the case of a translator is called."""
    return f"seq2seq-transformer {layers} x {size}, {BEAMS} beams, {BATCH} sources"


def translator(layers: int, size: int, tokens: int) -> Case:
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
        name=name_of_translator(layers, size),
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


def _transformers_model(shape: Shape, vocab_size: int) -> nn.Module:
    """Return GPT-2 of a shape, in float32, that never ends a text by itself.

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=WINDOW,
        n_embd=shape.size,
        n_layer=shape.layers,
        n_head=shape.size // 64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).float().eval()

"""What the benchmark of decoding measures: models with random weights, and plain baselines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from seqgen.engines.precision import in_precision
from seqgen.engines.quantized import OF_HEAD
from seqgen.generation.beam import search
from seqgen.generation.beam_groups import SearchRules
from seqgen.generation.continuation import Continuation
from seqgen.generation.draw import CounterDraw
from seqgen.generation.processors import Forbid
from seqgen.generation.text_batch import Row, SamplingPolicy, sample
from seqgen.models.base import LanguageModel
from seqgen.models.recurrent.cells.lstm import LSTMConfig
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.seq2seq.model import Seq2SeqTransformer
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.models.transformer.model import Transformer
from seqgen.presets import SHARED
from seqgen.settings.generation import BeamOptions
from seqgen.text.sources import TokenSources
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.char import CharTokenizer

from . import cells
from .peers import (
    ctranslate2_gpt2,
    ctranslate2_marian,
    llama_cpp_gpt2,
    marian,
    transformers_gpt2,
)
from .shapes import (
    ALPHABET,
    BATCH,
    BEAMS,
    BOS,
    EOS,
    LONGEST,
    PAD,
    PAIR_VOCAB,
    SHORTEST,
    UNK,
    WINDOW,
    Run,
    Shape,
    Texts,
    gpt2,
)

# Of a weight, by precision.
BYTES = {"float32": 4, "bf16": 2, "int8": 1, "int4": 0.5625}


@dataclass(frozen=True)
class Case:
    """Something to measure: a name, our run, the baseline's, and what a token must read."""

    name: str
    baseline: str
    ours: Run
    theirs: Run
    bytes_per_token: float


def write_texts(model: LanguageModel, tokenizer: Tokenizer, texts: Texts) -> Run:
    """Return our sampling, as `seqgen sample` does it."""

    def run() -> int:
        rows = [Row(i, 0, (first,)) for i, first in enumerate(texts.firsts)]
        steps = sample(
            model,
            rows,
            lambda row: Continuation(tokenizer.decoder(row.tokens), (), texts.tokens, {}),
            SamplingPolicy([_never(tokenizer)], CounterDraw(1)),
        )
        return sum(1 for _ in steps)

    return run


def _search(model: LanguageModel, tokenizer: Tokenizer, texts: Texts) -> Run:
    """Return our beam search, as `seqgen beam-search` does it."""
    config = BeamOptions(beams=texts.beams, max_tokens=texts.tokens)

    def run() -> int:
        prompts = [Row(i, 0, (first,)) for i, first in enumerate(texts.firsts)]
        results = search(model, prompts, SearchRules(config, [_never(tokenizer)]))
        return sum(len(beams[0].tokens) for _, beams in results)

    return run


def _never(tokenizer: Tokenizer) -> Forbid:
    """Return what keeps texts from ending before they have all of their tokens."""
    return Forbid((tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id, tokenizer.eos_id))


def _in_title(precision: str) -> str:
    """Return the end of the name of a case in some precision."""
    return "" if precision == "float32" else f", {precision}"


def lstm(tokens: int, precision: str = "float32") -> Case:
    """Return the case of our LSTM beside a loop over `nn.LSTM` in float32."""
    tokenizer = CharTokenizer(ALPHABET)
    texts = Texts((tokenizer.newline_id,), tokens)
    model = RecurrentLM(LSTMConfig(vocab_size=tokenizer.vocab_size, hidden_size=256, num_layers=2))
    return Case(
        name=f"lstm 2 x 256, batch 1{_in_title(precision)}",
        baseline="a loop over nn.LSTM",
        ours=write_texts(in_precision(model.eval(), precision), tokenizer, texts),
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


def _bytes_per_token(
    model: Transformer, rows: int, texts: int, tokens: int, precision: str = "float32"
) -> float:
    """Return what a step of `rows` rows reads, for each of the `texts` tokens it makes."""
    config = model.config
    cache = 2 * config.num_layers * config.hidden_size * tokens / 2
    head = config.vocab_size * config.hidden_size
    others = model.parameter_count() - model.position_embedding.weight.numel() - head
    weights = BYTES[precision] * others + BYTES[OF_HEAD.get(precision, precision)] * head
    return (weights + 4 * rows * cache) / texts


def name_of_transformer(
    batch: int, shape: Shape, precision: str, beside: str, beams: int = 1
) -> str:
    """Return what the case of a transformer is called; see `transformer`."""
    search = f"{beams} beams, " if beams > 1 else ""
    peer = f" beside {beside}" if beside != "float32" else ""
    return f"transformer {shape}, {search}batch {batch}{_in_title(precision)}{peer}"


def transformer(
    tokens: int, batch: int, shape: Shape, precision: str, beside: str, beams: int = 1
) -> Case:
    """Return the case of our GPT-2 beside another library's.

    Args:
        tokens: of each text.
        batch: texts.
        shape: of both models.
        precision: of ours.
        beside: "float32" or "bf16", of the transformers package; "int8", ours; or what has our
            `precision`, "CTranslate2" or "llama.cpp".
        beams: of a search; 1 to sample.

    Raises:
        ImportError: that library is not installed.
    """
    tokenizer = CharTokenizer(shape.alphabet)
    newline, vocab_size = tokenizer.newline_id, tokenizer.vocab_size
    # Prompts that differ, so that none of the searches is another's.
    texts = Texts(range(newline, newline + batch), tokens, beams)
    write = write_texts if beams == 1 else _search
    in_ours = {"CTranslate2": ctranslate2_gpt2, "llama.cpp": llama_cpp_gpt2}

    def model(kind: str) -> Transformer:
        return in_precision(Transformer(gpt2(shape, vocab_size)).eval(), kind)

    if beside == "int8":
        baseline, theirs = "seqgen, int8", write(model("int8"), tokenizer, texts)
    elif beside in in_ours:
        baseline = f"{beside}{_in_title(precision)}"
        theirs = in_ours[beside](shape, vocab_size, texts, precision)
    else:
        baseline = f"transformers{_in_title(beside)}"
        theirs = transformers_gpt2(shape, vocab_size, texts, beside)
    mine = model(precision)
    return Case(
        name=name_of_transformer(batch, shape, precision, beside, beams),
        baseline=baseline,
        ours=write(mine, tokenizer, texts),
        theirs=theirs,
        bytes_per_token=_bytes_per_token(mine, batch * beams, batch, tokens, precision),
    )


def name_of_translator(layers: int, size: int, beside: str = "") -> str:
    """Return the name of a translator's case; see `translator`."""
    peer = f", beside {beside}" if beside else ""
    return f"seq2seq-transformer {layers} x {size}, {BEAMS} beams, {BATCH} sources{peer}"


def translator(layers: int, size: int, tokens: int, beside: str = "") -> Case:
    """Return the form of 2017 and Marian, which has the same, on the same sources.

    Neither ends a text by itself.

    Args:
        layers: of both models.
        size: their width.
        tokens: of each text.
        beside: "" for the transformers package's Marian; "float32" or "int8" for CTranslate2's, and
            ours in the same.

    Raises:
        ImportError: that library is not installed.
    """
    draw, heads = np.random.default_rng(0), size // 64
    lengths = draw.integers(SHORTEST, LONGEST + 1, BATCH)
    sources = TokenSources.of([[*draw.integers(4, PAIR_VOCAB, n - 1), EOS] for n in lengths])
    settings = {"num_layers": layers, "num_heads": heads, "hidden_size": size}
    shape = {"vocab_size": PAIR_VOCAB, "window": WINDOW, "ffn_size": 4 * size, **settings}
    model = Seq2SeqTransformer(Seq2SeqTransformerConfig(**shape, **SHARED["form-of-2017"])).eval()
    in_encoder = sum(p.numel() for p in model.encoder.parameters())
    read = BYTES[beside or "float32"] * (model.parameter_count() - in_encoder)
    if beside:
        baseline = f"CTranslate2{_in_title(beside)}"
        theirs = ctranslate2_marian(sources, layers, size, tokens, beside)
        model = in_precision(model, beside)
    else:
        baseline, theirs = "transformers Marian", marian(sources, layers, size, tokens)

    def ours() -> int:
        searched = [Row(i, 0, (BOS,), i) for i in range(BATCH)]
        config = BeamOptions(beams=BEAMS, max_tokens=tokens)
        never = [Forbid((PAD, BOS, UNK, EOS))]
        results = search(model, searched, SearchRules(config, never), opens=model.opens(sources))
        return sum(len(beams[0].tokens) for _, beams in results)

    cache = 2 * layers * size * (tokens / 2 + lengths.mean() / BEAMS)
    return Case(
        name=name_of_translator(layers, size, beside),
        baseline=baseline,
        ours=ours,
        theirs=theirs,
        bytes_per_token=(read + 4 * BATCH * BEAMS * cache) / BATCH,
    )

"""Training steps against plain float32 PyTorch: tokens a second, and how near to the machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqgen import registry
from seqgen.engines.precision import Precision, choose_device, choose_precision, parameter_type
from seqgen.models.base import NeuralLanguageModel
from seqgen.models.network import hidden_matrices
from seqgen.models.seq2seq.transformer_equations import SourceAttention
from seqgen.models.transformer.equations import Attention
from seqgen.presets import SHARED
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batch, Batches, training_batches
from seqgen.text.corpus import Corpus
from seqgen.text.sources import TokenSources
from seqgen.training.deadline import Deadline
from seqgen.training.speed import bf16_speedup, faster_precision, speed

from . import cases_with, cells
from .baselines import PlainGPT, PlainRecurrent, PlainWindow, plain_step
from .pair_baselines import PlainSeq2Seq, PlainTranslator

VOCAB, DROPOUT = 66, 0.1
# Of pairs: a joint subword vocabulary, sides of 8 to 24 tokens, EOS included.
PAIR_VOCAB, SHORTEST, LONGEST = 6000, 8, 24


def _noise() -> Corpus:
    """Return a stream of random tokens."""
    tokens = np.random.default_rng(0).integers(1, VOCAB, 1 << 20).astype(np.uint8)
    return Corpus(tokens, np.array([tokens.size]), start=1)


def _noise_pairs() -> Corpus:
    """Return pairs of random tokens and lengths."""
    draw = np.random.default_rng(0)
    sides = []
    for lengths in draw.integers(SHORTEST, LONGEST + 1, (2, 1 << 13)):
        tokens = draw.integers(1, PAIR_VOCAB, lengths.sum()).astype(np.uint16)
        sides.append((tokens, lengths.cumsum()))
    source, target = sides
    return Corpus(*target, start=1, sources=TokenSources(*source))


@dataclass(frozen=True)
class Timing:
    """The keys of `python -m tests.benchmarks train --json`, in order.

    `ratio` is the median of the ratios of neighbouring runs. `gflops` counts the products of
    matrices alone, three for each in the model (one forward, two backward); `matmul_gflops` is
    what one large product reaches here in the same precision. `peak_memory` is the most bytes
    the process held while ours trained (Linux), or of a GPU's memory.
    """

    case: str
    baseline: str
    precision: str
    device: str
    tokens_per_second: float
    baseline_tokens_per_second: float
    ratio: float
    gflops: float
    matmul_gflops: float
    peak_memory: int | None
    parameters: int
    runs: int
    threads: int


@dataclass(frozen=True)
class Case:
    """A model to train, the plain one beside it, the shape of a batch, and what is trained on."""

    name: str
    baseline: str
    architecture: str
    settings: dict[str, Any]
    plain: Callable[[], nn.Module]
    batch_size: int
    seq_len: int
    vocab_size: int = VOCAB
    corpus: Callable[[], Corpus] = _noise


def _recurrent(architecture: str, kind: type[nn.RNNBase], size: int) -> Case:
    return Case(
        name=f"{architecture} 2 x {size}",
        baseline=f"nn.{kind.__name__}",
        architecture=architecture,
        settings={"hidden_size": size, "num_layers": 2},
        plain=lambda: PlainRecurrent(kind, VOCAB, size, 2, DROPOUT),
        batch_size=32,
        seq_len=64,
    )


def _transformer(layers: int, size: int, form: str, batch_size: int) -> Case:
    heads, window = size // 32, 128
    return Case(
        name=f"transformer {layers} x {size}, {form}",
        baseline="plain GPT-2",
        architecture="transformer",
        settings={
            "hidden_size": size,
            "num_layers": layers,
            "num_heads": heads,
            **(SHARED["gpt2"] if form == "GPT-2's form" else {}),
        },
        plain=lambda: PlainGPT(VOCAB, window, size, layers, heads, DROPOUT),
        batch_size=batch_size,
        seq_len=window,
    )


def _pairs(
    name: str,
    baseline: str,
    architecture: str,
    settings: dict[str, Any],
    plain: Callable[[], nn.Module],
) -> Case:
    return Case(
        name=f"{architecture} {name}",
        baseline=baseline,
        architecture=architecture,
        settings=settings,
        plain=plain,
        batch_size=64,
        seq_len=LONGEST,
        vocab_size=PAIR_VOCAB,
        corpus=_noise_pairs,
    )


def _translator(layers: int, size: int, form: str) -> Case:
    heads = size // 64
    settings: dict[str, Any] = {"num_layers": layers, "num_heads": heads, "hidden_size": size}
    if form == "form of 2017":
        settings |= {**SHARED["form-of-2017"], "ffn_size": 4 * size}
    return _pairs(
        f"{layers} x {size}, {form}",
        "nn.Transformer",
        "seq2seq-transformer",
        settings,
        lambda: PlainTranslator(PAIR_VOCAB, LONGEST, size, layers, heads, DROPOUT),
    )


CASES = (
    Case(
        name="window of 8, 256",
        baseline="nn.Linear",
        architecture="window",
        settings={"context_size": 8, "embedding_size": 64, "hidden_size": 256},
        plain=lambda: PlainWindow(VOCAB, 8, 64, 256, DROPOUT),
        batch_size=32,
        seq_len=64,
    ),
    _recurrent("rnn", nn.RNN, 256),
    _recurrent("gru", nn.GRU, 256),
    _recurrent("lstm", nn.LSTM, 256),
    _recurrent("lstm", nn.LSTM, 384),
    _transformer(4, 128, "GPT-2's form", 8),
    _transformer(4, 128, "default form", 8),
    _transformer(6, 256, "GPT-2's form", 16),
    _transformer(6, 256, "default form", 16),
    _pairs(
        "gru 256",
        "nn.GRU, attention",
        "seq2seq",
        {"hidden_size": 256, "num_layers": 1, "cell": "gru"},
        lambda: PlainSeq2Seq(PAIR_VOCAB, 256, DROPOUT),
    ),
    _translator(3, 256, "form of 2017"),
    _translator(3, 256, "default form"),
)


def _cell(architecture: str) -> Case:
    """Return the case of a cell beside PyTorch's LSTM, of the size that has as many parameters."""
    large = cells.cell_model(architecture, VOCAB).parameter_count()

    def plain(size: int) -> nn.Module:
        return PlainRecurrent(nn.LSTM, VOCAB, size, 1, 0.0)

    size = cells.nearest_size(lambda n: sum(p.numel() for p in plain(n).parameters()), large)
    return Case(
        name=cells.name_of(architecture),
        baseline=f"nn.LSTM 1 x {size}",
        architecture=architecture,
        settings={"hidden_size": cells.SIZE, "num_layers": 1},
        plain=lambda: plain(size),
        batch_size=32,
        seq_len=64,
    )


def measure(
    seconds: float,
    repeats: int,
    only: str | None = None,
    precision: Precision = "auto",
    optimizer: str = "adamw",
    device: str = "auto",
) -> Iterator[Timing]:
    """Yield a timing for each case.

    Args:
        seconds: how long a run is.
        repeats: alternated runs of each, after one that is not counted.
        only: cases whose name contains this; those of the cells where it begins with "cell".
        precision: ours; the baselines compute in float32.
        optimizer: ours; the baselines use AdamW, fused.
        device: where both train.
    """
    cases: dict[str, Callable[[], Case]] = {case.name: lambda case=case: case for case in CASES}
    if cells.names_cells(only):
        names = cells.recurrent_architectures()
        cases = {cells.name_of(name): partial(_cell, name) for name in names}
    chosen = cases_with(only, list(cases))
    place = choose_device(device)
    precision = choose_precision(precision, place)
    training = TrainingConfig(minutes=seconds / 60, precision=precision, optimizer=optimizer)
    for name in chosen:
        yield _timed(cases[name](), training, repeats, place)


def model_of(case: Case) -> NeuralLanguageModel:
    kind = registry.architecture(case.architecture)
    config_class = kind.load_config()
    derived = {"vocab_size": case.vocab_size, "window": case.seq_len}
    shape = {name: derived[name] for name in config_class.derived & derived.keys()}
    return kind.load_model()(config_class(**shape, **case.settings, dropout=DROPOUT))


def _timed(case: Case, training: TrainingConfig, repeats: int, device: torch.device) -> Timing:
    training = replace(training, batch_size=case.batch_size, seq_len=case.seq_len)
    torch.manual_seed(0)
    model = model_of(case)
    model.to(device=device, dtype=parameter_type(training.precision))
    batches = training_batches(
        case.corpus(), "stream", model.carries_state, case.batch_size, case.seq_len, seed=0
    )
    if training.precision == "auto":
        speedup, _ = bf16_speedup(model, batches, training, Deadline())
        training = replace(training, precision=faster_precision(speedup))
    kind = torch.bfloat16 if training.precision == "bf16" else parameter_type(training.precision)
    peak = matmul_speed(kind, device)
    plain = case.plain().to(device)
    rule = torch.optim.AdamW(plain.parameters(), fused=True)  # as ours

    def ours() -> float:
        return speed(model, batches, training)

    def theirs() -> float:
        return _plain_speed(plain, rule, batches, 60 * training.minutes, device)

    memory = peak_memory(ours, device)
    theirs()
    # Neighbours in time share what else the machine does, so each pair gives a ratio.
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    reached, plain_speed = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Timing(
        case=case.name,
        baseline=case.baseline,
        precision=training.precision,
        device=str(device),
        tokens_per_second=reached,
        baseline_tokens_per_second=plain_speed,
        ratio=statistics.median(a / b for a, b in pairs),
        gflops=reached * flops_per_token(model, case.seq_len) / 1e9,
        matmul_gflops=peak / 1e9,
        peak_memory=memory,
        parameters=model.parameter_count(),
        runs=repeats,
        threads=torch.get_num_threads(),
    )


def _plain_speed(
    model: nn.Module,
    rule: torch.optim.Optimizer,
    batches: Batches,
    seconds: float,
    device: torch.device,
) -> float:
    made, steps, start = 0, 0, time.monotonic()
    while time.monotonic() - start < seconds:
        batch = batches.batch(steps)
        plain_step(model, rule, *_sent(batch, device)).item()  # which waits for a GPU
        made, steps = made + batch.count, steps + 1
    return made / (time.monotonic() - start)


def _sent(batch: Batch, device: torch.device) -> list[Tensor]:
    """Return targets (B, T) and what the model reads: tokens, and sources with their lengths."""
    arrays = [batch.targets, batch.tokens]
    if batch.source is not None:
        arrays += [batch.source.values, batch.source.lengths]
    return [torch.from_numpy(x).to(device) for x in arrays]


def flops_per_token(model: NeuralLanguageModel, seq_len: int) -> int:
    """Return the floating-point operations of one token's products, forward and backward.

    Two for each weight of a matrix, and as many again for each of its two gradients; and in
    attention the same for queries with keys and weights with values, over the whole window. Of
    a pair both sides count as equally long.
    """
    weights = sum(matrix.numel() for matrix, _ in hidden_matrices(model))
    weights += model.head.weight.numel()
    attentions = sum(isinstance(part, Attention | SourceAttention) for part in model.modules())
    weights += 2 * attentions * seq_len * model.config.hidden_size
    return 6 * weights


@cache
def matmul_speed(kind: torch.dtype, device: torch.device) -> float:
    """Return the floating-point operations a second of a square product, the best of some."""
    size = 2048 if device.type == "cpu" else 8192
    a, b = torch.ones(2, size, size, dtype=kind, device=device)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(a, b)[0, 0].item()  # which waits for a GPU
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def peak_memory(run: Callable[[], Any], device: torch.device) -> int | None:
    """Return the most bytes held during `run`, on a GPU or by the process; None if none is told."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return torch.cuda.max_memory_allocated(device)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    except OSError:
        run()
        return None
    run()
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

"""The plain GPT recipe for a CPU, run in full: what `seqgen train --minutes` is compared with.

The recipe is nanoGPT's for a laptop (Karpathy 2022): 4 layers, 4 heads, width 128, 64 characters
of context, 12 windows a step, no dropout, no biases, AdamW at 1e-3 with 100 steps of warm-up and a
cosine down to a tenth, 2,000 steps, float32.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqgen.errors import SeqgenError
from seqgen.text.reading import decode_file

from .baselines import PlainGPT, plain_step

WINDOW, BATCH, PEAK, WARMUP = 64, 12, 1e-3, 100


@dataclass(frozen=True)
class RecipeResult:
    """The keys of `python -m tests.benchmarks train --recipe gpt --json`, in order.

    `seconds` are those of the training steps alone. `val_loss`, in nats a character, is over the
    whole last tenth of the text, in windows of 64 that slide by 32, as `seqgen perplexity` has it.
    """

    recipe: str
    parameters: int
    steps: int
    seconds: float
    tokens_per_second: float
    val_loss: float
    threads: int


def plain_gpt(
    text: Path,
    steps: int,
    seed: int = 0,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> RecipeResult:
    """Run the recipe on the first nine tenths of a text.

    Args:
        text: a file of UTF-8.
        steps: steps of training; the schedule is fitted to them.
        seed: draws weights and windows.
        report: is told the step and the loss, ten times.

    Raises:
        SeqgenError: the text cannot be read, or has no ten windows.
    """
    characters = "".join(decode_file(text))
    alphabet = {c: i for i, c in enumerate(sorted(set(characters)))}
    tokens = torch.tensor([alphabet[c] for c in characters])
    if len(tokens) < 10 * (WINDOW + 1):
        raise SeqgenError(f"{text} is too short for the recipe: give at least 650 characters")
    train, val = tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = PlainGPT(len(alphabet), WINDOW, 128, layers=4, heads=4, dropout=0.0, bias=False)
        rule = torch.optim.AdamW(_groups(model), betas=(0.9, 0.99))
        start = time.monotonic()
        for step in range(steps):
            for group in rule.param_groups:
                group["lr"] = _rate(step, steps)
            begin = torch.randint(len(train) - WINDOW, (BATCH, 1))
            windows = train[begin + torch.arange(WINDOW + 1)]  # (B, W + 1)
            loss = plain_step(model, rule, windows[:, 1:], windows[:, :-1])
            if (step + 1) % max(1, steps // 10) == 0:
                report(step + 1, loss.item())
        seconds = time.monotonic() - start
    return RecipeResult(
        recipe="gpt",
        parameters=sum(p.numel() for p in model.parameters()),
        steps=steps,
        seconds=seconds,
        tokens_per_second=steps * BATCH * WINDOW / seconds,
        val_loss=_loss_over(model, val),
        threads=torch.get_num_threads(),
    )


def _groups(model: PlainGPT) -> list[dict[str, Any]]:
    """Return matrices, which decay, and vectors, which do not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


def _rate(step: int, steps: int) -> float:
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    done = (step - WARMUP) / max(1, steps - WARMUP)
    return PEAK * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def _loss_over(model: PlainGPT, tokens: Tensor) -> float:
    """Return the mean loss of all tokens but the first, in windows that slide by half a window.

    So `seqgen perplexity` scores a transformer. Beyond the first half window, no token has less
    than half a window before it.
    """
    model.eval()
    half, inputs, targets = WINDOW // 2, tokens[:-1], tokens[1:]
    windows, ends = inputs.unfold(0, WINDOW, half), targets.unfold(0, WINDOW, half)[:, half:]
    scored = half * (len(windows) + 1)
    pieces = [(inputs[None, :half], targets[None, :half])]
    pieces += zip(windows.split(64), ends.split(64), strict=True)
    if scored < len(targets):
        pieces.append((inputs[None, scored - half :], targets[None, scored:]))
    return sum(_nats(model, *piece) for piece in pieces) / len(targets)


def _nats(model: PlainGPT, tokens: Tensor, targets: Tensor) -> float:
    """Return the loss of the last tokens of rows, those that have targets."""
    logits = model(tokens)[:, -targets.shape[1] :]
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()

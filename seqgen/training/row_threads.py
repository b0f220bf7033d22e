"""Row threads: the rows of a batch are divided among threads, each on one core.

Within an operation PyTorch's threads wait for each other, several times in every time step of a
recurrent network. Here each thread computes its rows from the first layer to the gradients alone,
and they meet once a step.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqgen import ranks
from seqgen.engines.dropout import RowSlice, drawing_for
from seqgen.models.network import Network, copy_network
from seqgen.models.recurrent.cell import BatchNorm
from seqgen.models.state import State
from seqgen.settings.regimes import READING_REGIMES
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batch, Portion, portions
from seqgen.training.objective import Objective
from seqgen.training.regimes.base import Loss, StepProgress, TextRules


def can_divide_rows(model: Network, config: TrainingConfig) -> bool:
    """Check whether the rows of a batch can be computed by separate threads.

    They cannot where rows meet, as in the statistics of batch normalisation, or where the model
    writes texts, whose lengths decide about what is drawn. On GPUs, under torchrun and in compiled
    code the work is divided already, and where several networks are trained, each has a thread.
    """
    alone = ranks.world_size() == 1 and model.device.type == "cpu" and not config.compile
    alone = alone and config.members is None and not config.checkpointing
    reads = all(phase.regime in READING_REGIMES for phase in config.phases)
    return alone and reads and not any(isinstance(part, BatchNorm) for part in model.modules())


@dataclass(frozen=True)
class ThreadWork:
    """Work of one thread: rows of a batch, their state, and the training progress."""

    portion: Portion
    past: State | None
    progress: StepProgress


class RowThreads:
    """Computes the gradients of a batch by several threads, each on some of the rows.

    Every thread has a copy of the model that shares its weights, and a copy of torch's generator:
    it draws for all rows and keeps what its own get, so losses are those of one thread but for
    rounding. Gradients are added up in the order of the threads, and so the same every time.

    Args:
        objective: what is minimised; the first thread is the caller's and computes with it.
        config: with a number of threads.
        text_rules: see `Objective`.
    """

    def __init__(self, objective: Objective, config: TrainingConfig, text_rules: TextRules) -> None:
        self._count, model = config.row_threads, objective.model
        weights = list(itertools.chain(model.parameters(), model.buffers()))
        others = (copy_network(model, weights) for _ in range(self._count - 1))
        copies = (Objective(other, config, text_rules).train() for other in others)
        self._objectives = [objective, *copies]
        self._generators = [torch.Generator() for _ in self._objectives]
        self._pool = ThreadPoolExecutor(self._count - 1, initializer=use_cores)

    def portions(self, rows: int, pieces: int) -> list[list[Portion]]:
        """Divide a batch into portions: one for each piece and thread."""
        threads = range(self._count)
        divided = zip(*(portions(rows, pieces, i, self._count) for i in threads), strict=True)
        return [[one for one in piece if not one.blank] for piece in divided]

    def add_gradients(self, batch: Batch, parts: Sequence[ThreadWork]) -> list[Loss]:
        """Add the gradients of a piece of a batch; return its losses.

        Args:
            batch: all of it.
            parts: of the piece, one a thread at most.
        """
        trained = [p for p in self._objectives[0].parameters() if p.requires_grad]
        random = torch.get_rng_state()
        for generator in self._generators:
            generator.set_state(random)
        compute = functools.partial(gradients_of, batch, trained)
        first, *others = zip(self._objectives, self._generators, parts, strict=False)
        with _one_core():
            promised = [self._pool.submit(compute, *other) for other in others]
            try:
                computed = [compute(*first)]
            finally:
                wait(promised)
            computed += [each.result() for each in promised]
        torch.set_rng_state(self._generators[0].get_state())
        for other in self._objectives[1 : len(parts)]:
            self._objectives[0].take_notes(other)
        with torch.no_grad():
            for parameter, *gradients in zip(trained, *(each for _, each in computed), strict=True):
                for gradient in gradients:
                    add_gradient(parameter, gradient)
        return [loss for loss, _ in computed]


def gradients_of(
    batch: Batch,
    trained: Sequence[Tensor],
    objective: Objective,
    generator: torch.Generator | None,
    part: ThreadWork,
) -> tuple[Loss, Sequence[Tensor | None]]:
    """Compute the detached loss of some rows, and the gradients of `trained`.

    Args:
        batch: all of it.
        trained: parameters of the objective.
        objective: what is minimised.
        generator: what is drawn by; None for torch's own.
        part: the rows.
    """
    portion = part.portion
    total = portion.piece.stop - portion.piece.start
    first = portion.rows.start - portion.piece.start
    with drawing_for(RowSlice(first, portion.count, total, generator=generator)):
        place = replace(part.progress, first_row=portion.rows.start)
        loss = objective(portion.of(batch), part.past, place)
    gradients = torch.autograd.grad(loss.minimised / batch.count, trained, allow_unused=True)
    state = None if loss.state is None else loss.state.detach()
    return Loss(loss.minimised.detach(), loss.nats.detach(), state), gradients


def add_gradient(parameter: Tensor, gradient: Tensor | None) -> None:
    """Add a tensor to a parameter's gradient, if there is one."""
    if gradient is None:
        return
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient


def use_cores(count: int = 1) -> None:
    """Set the number of cores of this thread, and turn off its cache of weight casts.

    Threads would find each other's in the cache, or not: sums of gradients could round either way.
    """
    torch.set_num_threads(count)
    torch.set_autocast_cache_enabled(False)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Compute on one core within the block, then restore the settings."""
    threads, caches = torch.get_num_threads(), torch.is_autocast_cache_enabled()
    use_cores()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_autocast_cache_enabled(caches)

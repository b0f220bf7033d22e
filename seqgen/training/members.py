"""Joint training of a mixture's members: one thread each, on all rows of a batch.

They share batches, schedule, validations and checkpoints, and nothing else: a member's gradients,
their norm and its random numbers are its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from torch import nn

from seqgen.engines.dropout import RowSlice, drawing_for
from seqgen.models.mixture.equations import MixtureState
from seqgen.models.mixture.members import SEEDS, Members
from seqgen.models.state import State
from seqgen.settings.training import TrainingConfig
from seqgen.text.batches import Batch, Portion, portions
from seqgen.training.objective import Objective
from seqgen.training.parts import CheckpointPart
from seqgen.training.regimes.base import Loss, StepProgress, TextRules
from seqgen.training.row_threads import ThreadWork, add_gradient, gradients_of, use_cores


class JointObjective(nn.Module):
    """Objective of all members, each minimised separately; same interface as `Objective`.

    Args:
        model: the members.
        config: see `Objective`.
        text_rules: see `Objective`.
    """

    def __init__(self, model: Members, config: TrainingConfig, text_rules: TextRules) -> None:
        super().__init__()
        self.model = model
        self.each = nn.ModuleList(Objective(part, config, text_rules) for part in model.components)

    @property
    def regimes(self) -> nn.ModuleList:
        """Training regimes of all members."""
        return nn.ModuleList(one.regimes for one in self.each)

    def forward(self, batch: Batch, state: State | None, progress: StepProgress) -> Loss:
        """Compute the summed loss and the mean nats of all members; see `Objective`."""
        pasts, generators = self.pasts(state), self.generators()
        rows = len(batch.tokens)
        losses = []
        for one, past, generator in zip(self.each, pasts, generators, strict=True):
            with drawing_for(generator and RowSlice(0, rows, rows, generator=generator)):
                losses.append(one(batch, past, progress))
        return join_losses(losses)

    def pasts(self, state: MixtureState | None) -> Sequence[State | None]:
        """Return each member's recurrent state before some rows."""
        return [None] * len(self.each) if state is None else state.children

    def generators(self) -> list[torch.Generator | None]:
        """Seed a random generator for each member; None where torch's global one is used."""
        if not self.training or self.model.device.type != "cpu":
            return [None] * len(self.each)
        seeds = torch.randint(SEEDS - 1, (len(self.each),)).tolist()
        return [torch.Generator().manual_seed(seed) for seed in seeds]

    def begin_step(self) -> None:
        """Clear gradients and logged figures of the previous step."""
        for one in self.each:
            one.begin_step()

    def end_step(self) -> None:
        """Update parameters owned by the regimes, such as a discriminator."""
        for one in self.each:
            one.end_step()

    def figures(self) -> dict[str, float]:
        """Collect the first member's logged figures by name."""
        return self.each[0].figures()

    def parts(self) -> dict[str, CheckpointPart]:
        """Collect the checkpoint parts of the members' regimes by name."""
        return {
            f"{name}-{number}": part
            for number, one in enumerate(self.each)
            for name, part in one.parts().items()
        }


def join_losses(losses: Sequence[Loss]) -> Loss:
    """Combine the losses of several members into one `Loss`."""
    states = tuple(loss.state for loss in losses)
    return Loss(
        sum(loss.minimised for loss in losses),
        sum(loss.nats for loss in losses) / len(losses),
        None if None in states else MixtureState(states),
    )


class MemberThreads:
    """Computes gradients of the members, one thread each.

    Args:
        objective: of the members.
    """

    def __init__(self, objective: JointObjective) -> None:
        self._objective, cores = objective, torch.get_num_threads()
        threads = min(len(objective.each), cores)
        use = functools.partial(use_cores, cores // threads)
        self._pool = ThreadPoolExecutor(threads, initializer=use)

    def portions(self, rows: int, pieces: int) -> list[list[Portion]]:
        """Split a batch into pieces; every member computes all of them."""
        return [[piece] for piece in portions(rows, pieces, 0, 1)]

    def add_gradients(self, batch: Batch, parts: Sequence[ThreadWork]) -> list[Loss]:
        """Add the gradients of a piece of a batch; return its loss.

        Args:
            batch: all of it.
            parts: one, the piece.
        """
        [part] = parts
        joint = self._objective
        own = [replace(part, past=past) for past in joint.pasts(part.past)]
        trained = [[p for p in one.parameters() if p.requires_grad] for one in joint.each]
        compute = functools.partial(gradients_of, batch)
        computed = list(self._pool.map(compute, trained, joint.each, joint.generators(), own))
        for parameters, (_, gradients) in zip(trained, computed, strict=True):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                add_gradient(parameter, gradient)
        return [join_losses([loss for loss, _ in computed])]

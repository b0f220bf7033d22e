"""Update rules by name, with weight decay only where it belongs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from seqgen.configs import TrainingConfig
from seqgen.models.base import NeuralLanguageModel


class Muon(Optimizer):
    """Momentum whose update is made orthogonal, matrix by matrix (Jordan et al. 2024).

    m <- mu m + g;  u = g + mu m;  W <- W - lr sqrt(max(1, rows / columns)) orth(u)

    where orth replaces all singular values by about one. Gates stacked in one tensor are
    separate maps, and are made orthogonal each for itself.

    Args:
        matrices: the 2-dimensional parameters, each with the number of maps stacked in it.
        lr: the step, in units of an orthogonal matrix.
        momentum: mu.
        weight_decay: decoupled, times lr.
    """

    def __init__(
        self,
        matrices: list[tuple[torch.nn.Parameter, int]],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([p for p, _ in matrices], defaults)
        self._stacked = dict(matrices)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every matrix that has a gradient; those of one shape are worked together."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update = self._momentum(parameter, group["momentum"])
                    for maps in (parameter, update):
                        shape = (len(maps) // self._stacked[parameter], maps.shape[1])
                        by_shape.setdefault(shape, []).append(maps.view(-1, *shape))
            for shape, pairs in by_shape.items():
                step = orthogonalised(torch.cat(pairs[1::2]))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for maps, update in zip(
                    pairs[::2], step.split([len(p) for p in pairs[::2]]), strict=True
                ):
                    maps.mul_(1 - group["lr"] * group["weight_decay"])
                    maps.add_(update, alpha=-scale)

    def _momentum(self, parameter: Tensor, mu: float) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(mu).add_(parameter.grad)
        return parameter.grad.add(state["momentum"], alpha=mu)


def orthogonalised(matrices: Tensor, steps: int = 5) -> Tensor:
    """Return matrices (N, R, C) with their singular values moved to about one.

    A Newton-Schulz iteration of the fifth order, X <- a X + (b A + c A^2) X with A = X X^T,
    with the coefficients of Jordan et al. (2024), which bring values into about 0.7 to 1.2.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for _ in range(steps):
        square = torch.bmm(x, x.mT)
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if tall else x


def _adamw(model: NeuralLanguageModel, config: TrainingConfig) -> list[Optimizer]:
    return [_adamw_over(list(model.parameters()), config)]


def _muon(model: NeuralLanguageModel, config: TrainingConfig) -> list[Optimizer]:
    matrices = list(model.hidden_matrices())
    chosen = {id(parameter) for parameter, _ in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    if not matrices:
        return [_adamw_over(others, config)]
    lr = 5 * config.lr if config.muon_lr is None else config.muon_lr
    muon = Muon(matrices, lr=lr, weight_decay=config.weight_decay)
    return [muon, _adamw_over(others, config)]


def _adamw_over(parameters: list[Tensor], config: TrainingConfig) -> AdamW:
    matrices = [p for p in parameters if p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
    )


OPTIMIZERS: dict[str, Callable[[NeuralLanguageModel, TrainingConfig], list[Optimizer]]] = {
    "adamw": _adamw,
    "muon": _muon,
}


class Rule:
    """The optimisers of a model as one, with rates that follow a schedule."""

    def __init__(self, model: NeuralLanguageModel, config: TrainingConfig) -> None:
        self.optimizers = OPTIMIZERS[config.optimizer](model, config)
        self._peaks = [[group["lr"] for group in o.param_groups] for o in self.optimizers]

    def step(self, rate: float) -> None:
        """Update the parameters from their gradients, at `rate` times each peak rate."""
        for optimizer, peaks in zip(self.optimizers, self._peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = rate * peak
            optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return all that the optimisers remember, by name."""
        return {
            f"{i}.{key}.{name}": torch.as_tensor(value)
            for i, optimizer in enumerate(self.optimizers)
            for key, state in optimizer.state_dict()["state"].items()
            for name, value in state.items()
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in self.optimizers]
        for path, value in tensors.items():
            i, key, name = path.split(".", 2)
            states[int(i)].setdefault(int(key), {})[name] = value
        for optimizer, state in zip(self.optimizers, states, strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})

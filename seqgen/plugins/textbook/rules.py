"""Adagrad, RMSprop and Adam in the forms of textbooks, which PyTorch does not have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seqgen.settings.training import TrainingConfig
from seqgen.training.optimizers import FastImportOptimizer


def textbook_rule(groups: Iterable[Any], config: TrainingConfig) -> Optimizer:
    """Make the configured optimizer: adagrad, rmsprop, adam, adamw, or the AdamW part of muon.

    Args:
        groups: parameters, in groups as every optimizer of torch takes them.
        config: with `eps_inside`, or for adagrad with a window.
    """
    rule, eps, inside = config.optimizer, config.eps, config.eps_inside
    if rule == "adagrad":
        return TextbookAdagrad(groups, config.adagrad_window, eps=eps, inside=inside)
    if rule == "rmsprop":
        return TextbookRMSprop(groups, config.beta2, eps=eps, inside=inside)
    betas = config.beta1, config.beta2
    return TextbookAdam(groups, betas, eps=eps, inside=inside, decoupled=rule != "adam")


class Preconditioned(FastImportOptimizer):
    """Base of the textbook optimizers: the shared update from moments m and v.

    Args:
        groups: parameters, in groups as every optimizer of torch takes them.
        eps: keeps the denominator from being zero.
        inside: add eps to v, inside the root.
        decoupled: weight decay shrinks the weights; otherwise it is added to the gradient.
    """

    def __init__(
        self, groups: Iterable[Any], eps: float, inside: bool, decoupled: bool = False
    ) -> None:
        super().__init__(groups, {"lr": 1.0, "weight_decay": 0.0})
        self._eps, self._inside, self._decoupled = eps, inside, decoupled

    @abstractmethod
    def moments(self, state: dict[str, Tensor], gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Update and return the moments m and v; `state["step"]` counts from 1."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            lr, decay = group["lr"], group["weight_decay"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient, state = parameter.grad, self.state[parameter]
                if decay and self._decoupled:
                    parameter.mul_(1 - lr * decay)
                elif decay:
                    gradient = gradient.add(parameter, alpha=decay)
                state["step"] = state.get("step", torch.tensor(0.0)) + 1
                m, v = self.moments(state, gradient)
                root = (v + self._eps).sqrt() if self._inside else v.sqrt() + self._eps
                parameter.addcdiv_(m, root, value=-lr)


class TextbookAdagrad(Preconditioned):
    """Adagrad (Duchi et al. 2011), with v the sum over the last `window` gradients, or over all.

    Args:
        window: L, how many squares are added up, the current one included; None for all.
        options: see `Preconditioned`.
    """

    def __init__(self, groups: Iterable[Any], window: int | None, **options: Any) -> None:
        super().__init__(groups, **options)
        self._window = window

    def moments(self, state: dict[str, Tensor], gradient: Tensor) -> tuple[Tensor, Tensor]:
        length = self._window or 1
        if "squares" not in state:
            state["squares"] = gradient.new_zeros(length, *gradient.shape)
        place = state["squares"][(int(state["step"]) - 1) % length]
        place.copy_(gradient.square() + (0 if self._window else place))
        return gradient, state["squares"].sum(0)


class TextbookRMSprop(Preconditioned):
    """RMSprop (Tieleman and Hinton 2012): v <- beta2 v + (1 - beta2) g^2."""

    def __init__(self, groups: Iterable[Any], beta2: float, **options: Any) -> None:
        super().__init__(groups, **options)
        self._beta2 = beta2

    def moments(self, state: dict[str, Tensor], gradient: Tensor) -> tuple[Tensor, Tensor]:
        v = state.setdefault("v", torch.zeros_like(gradient))
        return gradient, v.lerp_(gradient.square(), 1 - self._beta2)


class TextbookAdam(Preconditioned):
    """Adam (Kingma and Ba 2015): means of g and g^2, both divided by 1 - beta^t."""

    def __init__(self, groups: Iterable[Any], betas: tuple[float, float], **options: Any) -> None:
        super().__init__(groups, **options)
        self._betas = betas

    def moments(self, state: dict[str, Tensor], gradient: Tensor) -> tuple[Tensor, Tensor]:
        corrected = []
        for name, value, beta in zip("mv", (gradient, gradient.square()), self._betas, strict=True):
            mean = state.setdefault(name, torch.zeros_like(gradient))
            mean.lerp_(value, 1 - beta)
            corrected.append(mean / (1 - beta ** int(state["step"])))
        return corrected[0], corrected[1]

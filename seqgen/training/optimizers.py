"""Optimizers, learning-rate schedules, gradient clipping and weight averaging.

`sgd`, `adagrad`, `rmsprop` and `adam` add weight decay to the gradient, as an L2 penalty does;
`adamw` and `muon` subtract it from the weights (Loshchilov and Hutter 2019).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from torch.optim.swa_utils import get_ema_multi_avg_fn

from seqgen import hooks
from seqgen.models.network import Network, hidden_matrices
from seqgen.ranks.divided import divided_as, is_divided, on_first, part_of, whole_of
from seqgen.settings.training import TrainingConfig
from seqgen.training.parts import OptimizerState, require_like


class FastImportOptimizer(Optimizer):
    """Mixin for optimizers that avoids importing torch's compiler, which takes over a second.

    torch's own load it with the first call, only to keep it out of these methods.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


@functools.cache
def fast_import(kind: type[Optimizer]) -> Any:
    """Make a subclass of a torch optimizer that imports fast; see `FastImportOptimizer`."""
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (FastImportOptimizer, kind), {"step": step})


class Muon(FastImportOptimizer):
    """Momentum whose update is made orthogonal, matrix by matrix (Jordan et al. 2024).

    m <- mu m + g;  u = g + mu m;  W <- W - lr sqrt(max(1, rows / columns)) orth(u)

    where orth replaces all singular values by about one. Maps that are stacked in one matrix, as
    gates are, are orthogonalised separately. A matrix that is divided among the ranks is gathered
    for that.

    Args:
        groups: 2-dimensional parameters, in groups as every optimiser of torch takes them.
        maps: for each parameter, the rows of every map in it.
        lr: the step, in units of an orthogonal matrix.
        momentum: mu.
        weight_decay: decoupled, times lr.
        product_type: the type in which orth multiplies: bf16 where it is fast, as Jordan does.
    """

    def __init__(
        self,
        groups: Iterable[Any],
        maps: dict[nn.Parameter, tuple[int, ...]],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        product_type: torch.dtype | None = None,
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._maps, self._product_type = maps, product_type

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every matrix that has a gradient; matrices of one shape are batched."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[Tensor]] = {}
            changes: dict[Tensor, Tensor] = {}  # of matrices that are divided among the ranks
            decay = 1 - group["lr"] * group["weight_decay"]
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update = whole_of(self._momentum(parameter, group["momentum"]))
                    rows = self._maps[parameter]
                    whole = parameter
                    if is_divided(parameter):
                        whole = changes[parameter] = torch.zeros_like(update)
                    for maps in zip(_maps_of(whole, rows), _maps_of(update, rows), strict=True):
                        by_shape.setdefault(tuple(maps[0].shape[1:]), []).extend(maps)
            for shape, pairs in by_shape.items():
                updates = torch.cat(pairs[1::2])  # (N, R, C)
                step = orthogonalise(updates.to(self._product_type or updates.dtype))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                parts = step.split([len(maps) for maps in pairs[::2]])
                for maps, update in zip(pairs[::2], parts, strict=True):
                    maps.mul_(decay).add_(update, alpha=-scale)
            for parameter, change in changes.items():
                parameter.mul_(decay).add_(divided_as(parameter, change))

    def _momentum(self, parameter: Tensor, mu: float) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(mu).add_(parameter.grad)
        return parameter.grad.add(state["momentum"], alpha=mu)


def _maps_of(matrix: Tensor, rows: tuple[int, ...]) -> list[Tensor]:
    """Split a matrix of stacked maps into views (N, R, C), grouped by size."""
    if len(set(rows)) == 1:
        return [matrix.view(len(rows), rows[0], -1)]
    return [part[None] for part in matrix.split(rows)]


# Of the fifth order in a singular value s: a s + b s^3 + c s^5. Each is the one nearest to 1 on the
# interval that the step before it brings [0.01, 1] to, widened by a hundredth for rounding (Remez'
# exchange, as in Amsel et al. 2025, "The Polar Express"). After the third it is [0.72, 1.28].
POLYNOMIALS = (
    (8.0172, -22.9410, 16.6113),
    (3.6119, -2.6521, 0.5123),
    (2.6610, -1.9451, 0.4357),
)
TINY = 1e-7


def orthogonalise(matrices: Tensor) -> Tensor:
    """Orthogonalise matrices (N, R, C) approximately, by Newton-Schulz iteration.

    Iterations X <- a X + (b A + c A^2) X with A = X X^T, as in Jordan et al. (2024). They begin
    from X / (sum of the fourth powers of its singular values)^(1/4), which no value exceeds and
    which for most matrices is far nearer to the largest than Frobenius' norm: so three
    iterations do what takes five from there.
    """
    x = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp_min(TINY)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for step, (a, b, c) in enumerate(POLYNOMIALS):
        square = torch.bmm(x, x.mT)
        if step == 0:
            bound = square.norm(dim=(-2, -1), keepdim=True).sqrt().clamp_min(TINY)
            x, square = x / bound, square / bound.square()
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if tall else x


@dataclass(frozen=True)
class ParameterGroup:
    """A parameter with its learning-rate factor and weight decay.

    Attributes:
        parameter: what is trained.
        layer: the number of its layer; 0 is the input's.
        factor: its rate as a multiple of the full rate.
        maps: the rows of each map in it; none if it is not a matrix between embedding and head.
    """

    parameter: nn.Parameter
    layer: int
    factor: float
    maps: tuple[int, ...]


def parameter_groups(
    model: Network, layer_decay: float, head_factor: float = 1.0
) -> list[ParameterGroup]:
    """List each trained parameter of a model once, in the model's order.

    The layer below the head learns at `layer_decay` times the full rate, and each layer further
    down at that times the rate of the one above it (Howard and Ruder 2018, section 3.2: 1/2.6).
    The head learns at `head_factor` times the full rate. What two layers share is the upper's.
    """
    layers = model.parameters_in_order()
    layer_of = {p: i for i, parameters in enumerate(layers) for p in parameters}
    maps = dict(hidden_matrices(model))
    top = len(layers) - 1
    factors = [*(layer_decay ** (top - layer) for layer in range(top)), head_factor]
    return [
        ParameterGroup(p, layer_of[p], factors[layer_of[p]], maps.get(p, ()))
        for p in model.parameters()
        if p.requires_grad
    ]


def _groups(chosen: list[ParameterGroup], lr: float, weight_decay: float) -> list[dict[str, Any]]:
    """Make torch parameter groups: one for each learning rate and weight decay."""
    groups: dict[tuple[bool, float], dict[str, Any]] = {}
    for member in sorted(chosen, key=lambda member: member.parameter.ndim < 2):
        decays = member.parameter.ndim >= 2
        settings = {"lr": lr * member.factor, "weight_decay": weight_decay if decays else 0.0}
        group = groups.setdefault((decays, member.factor), {"params": [], **settings})
        group["params"].append(member.parameter)
    return list(groups.values())


def _has_fused(chosen: list[ParameterGroup]) -> bool:
    """Check whether torch's fused update applies, which is six times faster on a CPU.

    It does not where they are divided among ranks, for not every rule has such a call then.
    """
    parameters = [member.parameter for member in chosen]
    on_known = all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)
    return on_known and not any(map(is_divided, parameters))


def _rule(
    kind: type[Optimizer], chosen: list[ParameterGroup], config: TrainingConfig, **settings: Any
) -> list[Optimizer]:
    """Make an optimizer of torch, or as textbooks have it where torch has no such form."""
    groups = _groups(chosen, config.lr, config.weight_decay)
    window = kind is Adagrad and config.adagrad_window
    if window or config.eps_inside:
        option = "adagrad_window" if window else "eps_inside"
        return [hooks.load_method("optimizer", "textbook-rule", option)(groups, config)]
    return [fast_import(kind)(groups, **settings)]


def _sgd(chosen: list[ParameterGroup], config: TrainingConfig) -> list[Optimizer]:
    groups = _groups(chosen, config.lr, config.weight_decay)
    names = "momentum", "dampening", "nesterov"
    settings = {name: getattr(config, name) for name in names}
    return [fast_import(SGD)(groups, **settings, fused=_has_fused(chosen))]


def _adagrad(chosen: list[ParameterGroup], config: TrainingConfig) -> list[Optimizer]:
    on_cpu = all(member.parameter.device.type == "cpu" for member in chosen)
    return _rule(Adagrad, chosen, config, eps=config.eps, fused=on_cpu and _has_fused(chosen))


def _rmsprop(chosen: list[ParameterGroup], config: TrainingConfig) -> list[Optimizer]:
    settings = {"alpha": config.beta2, "eps": config.eps, "momentum": config.momentum}
    return _rule(RMSprop, chosen, config, **settings)


def _adaptive(
    kind: type[Adam], chosen: list[ParameterGroup], config: TrainingConfig
) -> list[Optimizer]:
    settings = {"betas": (config.beta1, config.beta2), "eps": config.eps}
    return _rule(kind, chosen, config, **settings, fused=_has_fused(chosen))


def _muon(chosen: list[ParameterGroup], config: TrainingConfig) -> list[Optimizer]:
    matrices = [member for member in chosen if member.maps]
    others = [member for member in chosen if not member.maps]
    lr = 5 * config.lr if config.muon_lr is None else config.muon_lr
    maps = {member.parameter: member.maps for member in matrices}
    groups = _groups(matrices, lr, config.weight_decay)
    product_type = torch.bfloat16 if config.precision == "bf16" else None
    rules: list[Optimizer] = []
    if matrices:
        rules.append(Muon(groups, maps, lr, config.muon_momentum, product_type=product_type))
    return rules + (_adaptive(AdamW, others, config) if others else [])


OPTIMIZERS: dict[str, Callable[[list[ParameterGroup], TrainingConfig], list[Optimizer]]] = {
    "sgd": _sgd,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adam": functools.partial(_adaptive, Adam),
    "adamw": functools.partial(_adaptive, AdamW),
    "muon": _muon,
}


class UpdateRule(OptimizerState):
    """All optimizers of a model, with scheduled learning rates."""

    def __init__(self, model: Network, config: TrainingConfig) -> None:
        self._parameters = parameter_groups(model, config.layer_decay, config.head_factor)
        self._layers = len(model.parameters_in_order())
        self._unfreeze, self._thawed = config.unfreeze, self._layers
        super().__init__(OPTIMIZERS[config.optimizer](self._parameters, config))
        self._peaks = [
            [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
            for optimizer in self.optimizers
        ]
        self._final_decay = config.final_weight_decay

    def take_rates(self, other: UpdateRule) -> None:
        """Take over the peak learning rates and weight decay of a rule for the same parameters.

        These are grouped as the other rule has them, because those of one rate may get several.
        """
        for optimizer, new in zip(self.optimizers, other.optimizers, strict=True):
            optimizer.param_groups = new.param_groups
        self._peaks, self._final_decay = other._peaks, other._final_decay

    def thaw(self, progress: float) -> bool:
        """Unfreeze the layers that train once a share `progress` (0 to 1) of the budget is spent.

        The head is trained from the start, the layers join one by one from the top down (Howard
        and Ruder 2018, section 3.3).

        Returns:
            Whether others are trained than before.
        """
        thawed = self._layers
        if progress < self._unfreeze:
            thawed = 1 + math.floor((self._layers - 1) * progress / self._unfreeze)
        if thawed == self._thawed:
            return False
        self._thawed = thawed
        for member in self._parameters:
            member.parameter.requires_grad_(member.layer >= self._layers - thawed)
        return True

    def step(self, rate: float) -> None:
        """Update the parameters at `rate` times their peak learning rates."""
        decay_share = self._final_decay + (1 - self._final_decay) * rate
        for optimizer, peaks in zip(self.optimizers, self._peaks, strict=True):
            for group, (peak, decay) in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"], group["weight_decay"] = rate * peak, decay_share * decay
            optimizer.step()
        # Fused updates do not raise a tensor's version, on which caches of the weights rely
        # (ArraySteps.prepared).
        for member in self._parameters:
            torch.autograd.graph.increment_version(member.parameter)


class Average:
    """The exponential moving average of parameters: a <- d a + (1 - d) p after every update.

    At update k, d is min(decay, (1 + k) / (10 + k)), so that the random start is soon forgotten.

    Args:
        model: whose trained parameters as they are now begin the average.
        decay: d in the long run.

    Attributes:
        means: the averages, in the order of the parameters.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.means = [p.detach().clone() for p in self._parameters]

    def update(self, step: int) -> None:
        """Update the average after update `step`, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(self.means, self._parameters, None)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Swap the averages into the model within the block."""
        trained = [p.detach().clone() for p in self._parameters]
        self._fill(self.means)
        try:
            yield
        finally:
            self._fill(trained)

    @torch.no_grad()
    def _fill(self, values: list[Tensor]) -> None:
        # In place, so that caches that compare a parameter's version see that it has changed.
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """Return the averages by parameter number."""
        return on_first({str(i): mean for i, mean in enumerate(self.means)})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the averages from a checkpoint.

        Raises:
            KeyError, RuntimeError: it is of another model.
        """
        for i, mean in enumerate(self.means):
            require_like(f"average {i}", tensors[str(i)], mean)
            part_of(tensors[str(i)], mean)


def clip_gradients(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> Tensor:
    """Clip gradients by norm (jointly or each) and by value; return the norm before clipping.

    With clip_norm_scope=each, every matrix and vector is scaled down by itself, where its own norm
    exceeds clip_norm: the direction of the whole gradient changes.
    """
    with_gradients = [p for p in parameters if p.grad is not None]
    kind = float(config.clip_norm_type)
    norm = get_total_norm([p.grad for p in with_gradients], kind)
    if config.clip_norm:
        together = config.clip_norm_scope == "all"
        for group in [with_gradients] if together else [[each] for each in with_gradients]:
            group_norm = norm if group is with_gradients else get_total_norm([group[0].grad], kind)
            clip_grads_with_norm_(group, config.clip_norm, group_norm)
    if config.clip_value:
        clip_grad_value_(with_gradients, config.clip_value)
    return whole_of(norm)


# Each maps the progress after warm-up to a share of the peak rate: the share of the rest of the
# budget that is spent, 0 to 1, and the time in lengths of the warm-up, or in steps without one.
DECAYS: dict[str, Callable[[TrainingConfig, float, float], float]] = {
    "constant": lambda config, share, time: 1.0,
    # Robbins and Monro (1951): alpha_0 / (1 + k).
    "inverse_time": lambda config, share, time: 1 / (1 + time),
    # After a warm-up of w steps this is sqrt(w / k) at step k (Vaswani et al. 2017, section 5.3).
    "inverse_sqrt": lambda config, share, time: (1 + time) ** -0.5,
    # Rounding must not hide that three steps of a third make a whole.
    "step": lambda config, share, time: (
        config.step_factor ** math.floor(share / config.step_share + 1e-9)
    ),
    "cosine": lambda config, share, time: 0.5 * (1 + math.cos(math.pi * share)),
    "linear": lambda config, share, time: 1 - share,
    # With its own start, `begins`, Howard and Ruder (2018, equation 3).
    "slanted_triangular": lambda config, share, time: 1 - share,
    # Warm-up, stable, decay (Hu et al. 2024).
    "wsd": lambda config, share, time: min(1.0, (1 - share) / config.decay_share),
}
# A rate of exactly 0 would waste the first step of a run with a budget in minutes.
LEAST = 0.01


def initial_rate(config: TrainingConfig) -> float:
    """Return the learning rate at the start of warmup, relative to the peak."""
    return config.min_lr if config.schedule == "slanted_triangular" else 0.0


def rate(config: TrainingConfig, progress: float, step: int, warmed: bool = False) -> float:
    """Compute the scheduled learning rate relative to its peak.

    It rises linearly over `config.warmup`, then decays to `config.min_lr`.

    Args:
        config: names the schedule.
        progress: how much of the budget is spent, 0 to 1.
        step: steps done, k.
        warmed: whether the warm-up is over, as in a run that is resumed with a longer budget.
    """
    warmup = config.warmup
    if progress < warmup and not warmed:
        begin = initial_rate(config)
        return max(LEAST, begin + (1 - begin) * progress / warmup)
    past = max(0.0, progress - warmup)
    share, time = min(1.0, past / (1 - warmup)), past / warmup if warmup else step
    return config.min_lr + (1 - config.min_lr) * DECAYS[config.schedule](config, share, time)

"""Low-rank adapters (LoRA): a small trained update of each weight matrix of a frozen model.

LoRA (Hu et al. 2021, section 4.1) replaces a matrix W by

    W + (alpha / r) B A

with A (r, columns) drawn from a normal distribution and B (rows, r) zero at first, so that
training begins with the model as it was. Only A and B are trained. Maps that are stacked in one
matrix, as those to queries, keys and values or the gates of a cell, each have an A and a B.

In a linear layer the update is added to W x, so that no matrix of the size of W is kept, and W may
be stored in fewer bits (QLoRA, Dettmers et al. 2023). Elsewhere it is added to W: a recurrent layer
uses W many times in a call, and no equation has to know of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seqgen.engines.blocks import BlockMatrix
from seqgen.engines.fast_layers import FastLinear, frozen_linear, numbers_of
from seqgen.models.network import Network, hidden_matrices

A, B = "lora_a", "lora_b"


class LowRankUpdate(nn.Module):
    """Low-rank update of a matrix W (R, C): W + (alpha / r) B A for each map stacked in it.

    Args:
        weight: W.
        maps: the rows of each map.
        rank: r; a map that has fewer rows or columns gets that many.
        alpha: the scale.
    """

    def __init__(self, weight: Tensor, maps: Sequence[int], rank: int, alpha: float) -> None:
        super().__init__()
        self.scale, columns = alpha / rank, weight.shape[1]
        ranks = [min(rank, rows, columns) for rows in maps]
        sizes = zip(maps, ranks, strict=True)
        # A of inputs with variance 1 then has variance 1.
        normal = [columns**-0.5 * torch.randn(r, columns).to(weight) for r in ranks]
        self.a = nn.ParameterList(normal)
        self.b = nn.ParameterList(weight.new_zeros(rows, r) for rows, r in sizes)

    def of(self, x: Tensor) -> Tensor:
        """Apply the update but for its scale to inputs x (..., C): B A x, (..., R)."""
        low = F.linear(x, torch.cat([*self.a])).split([len(a) for a in self.a], -1)
        return torch.cat([F.linear(z, b) for z, b in zip(low, self.b, strict=True)], -1)

    def forward(self, weight: Tensor) -> Tensor:
        with torch.autocast(weight.device.type, enabled=False):
            return weight + low_rank_update(self.a, self.b, self.scale)


class AdaptedLinear(FastLinear):
    """Linear layer with a frozen matrix W and an adapter: y = W x + b + (alpha / r) B A x.

    Attributes:
        keeps_only_input: training keeps x alone, which may be computed again without W x.
    """

    keeps_only_input = True

    def forward(self, x: Tensor) -> Tensor:
        if self.quantized is not None:
            return self.quantized.over(x)
        (update,), frozen = self.parametrizations.weight, self.stored
        frozen = self.parametrizations.weight.original if frozen is None else frozen
        low_rank = update.of(x)  # first, so that what is computed again ends here
        return torch.add(frozen_linear(x, frozen, self.bias), low_rank, alpha=update.scale)


def low_rank_update(a: Iterable[Tensor], b: Iterable[Tensor], scale: float) -> Tensor:
    """Compute a low-rank update: scale B A of each stacked map, concatenated by rows."""
    return scale * torch.cat([high @ low for low, high in zip(a, b, strict=True)])


def add_adapters(network: Network, rank: int, alpha: float) -> None:
    """Freeze a network and add an adapter to every matrix between embedding and head.

    A is drawn from torch's generator.

    Args:
        network: with its weights, on the CPU.
        rank: r.
        alpha: the scale.

    Raises:
        ValueError: the network has no such matrix.
    """
    maps = dict(hidden_matrices(network))
    places = [
        (module, name, parameter)
        for module in network.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter in maps
    ]
    if not places:
        raise ValueError("there are no matrices between embedding and head")
    network.requires_grad_(False)
    for module, name, parameter in places:
        adapter = LowRankUpdate(parameter, maps[parameter], rank, alpha)
        if type(module) is FastLinear:
            module.__class__ = AdaptedLinear
            network.takes_arrays = False  # which would need a copy of the updated matrices
        # Not checked, for the check makes each updated matrix, whose memory comes back in pieces.
        parametrize.register_parametrization(module, name, adapter, unsafe=True)


def keep_stored(network: Network, tensors: Mapping[str, Tensor | BlockMatrix]) -> dict[str, Tensor]:
    """Give linear layers that adapters suit their matrices in the types of a file.

    Args:
        network: without weights as yet.
        tensors: its weights by name.

    Returns:
        The weights to load. One number, not a number, stands for each matrix that is kept.
    """
    suited, weights = {parameter for parameter, _ in hidden_matrices(network)}, {}
    named = dict(network.named_modules())
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        module = named.get(path)
        if isinstance(tensor, Tensor) and (tensor.ndim < 2 or tensor.itemsize > 2):
            weights[name] = tensor
        elif type(module) is FastLinear and leaf == "weight" and module.weight in suited:
            module.stored = tensor
            weights[name] = torch.full((1, 1), math.nan).expand(tensor.shape)
        else:
            weights[name] = numbers_of(tensor, torch.float32)
    return weights


def share_stored(network: Network, other: Network) -> None:
    """Give a network the matrices that another of the same layers keeps as in its file."""
    for module, same in zip(network.modules(), other.modules(), strict=True):
        if isinstance(same, FastLinear):
            module.stored = same.stored


def convert_stored(network: Network, kind: torch.dtype = torch.float32) -> None:
    """Convert the matrices that a network keeps as in its file to a floating-point type."""
    for module in network.modules():
        if isinstance(module, FastLinear) and module.stored is not None:
            chain = module.parametrizations.weight if parametrize.is_parametrized(module) else None
            weight = module.weight if chain is None else chain.original
            weight.data, module.stored = numbers_of(module.stored, kind), None


def store_frozen(network: Network, kind: torch.dtype) -> None:
    """Store the frozen matrices of linear layers with adapters in another floating-point type."""
    for module in network.modules():
        if isinstance(module, AdaptedLinear) and module.stored is None:
            frozen = module.parametrizations.weight.original
            frozen.data = frozen.data.to(kind)


def adapters_of(network: nn.Module) -> dict[str, LowRankUpdate]:
    """List the adapters of a network by the names of their matrices."""
    return {
        f"{path}.{matrix}" if path else matrix: chain[0]
        for path, module in network.named_modules()
        if parametrize.is_parametrized(module)
        for matrix, chain in module.parametrizations.items()
        if isinstance(chain[0], LowRankUpdate)
    }


def adapter_tensors(network: nn.Module) -> dict[str, Tensor]:
    """List the tensors A and B of every adapter by the names used in files."""
    return {
        f"{matrix}.{part}.{number}": tensor
        for matrix, adapter in adapters_of(network).items()
        for part, tensors in ((A, adapter.a), (B, adapter.b))
        for number, tensor in enumerate(tensors)
    }


def merge_adapters(
    weights: Mapping[str, Tensor], adapters: Mapping[str, Tensor], alpha: float, rank: int
) -> dict[str, Tensor]:
    """Add the updates of adapters to a model's weights.

    Args:
        weights: by name.
        adapters: what `adapter_tensors` gave.
        alpha: the scale.
        rank: r.

    Raises:
        ValueError: the adapters do not fit the weights.
    """
    pairs: dict[str, dict[str, list[Tensor]]] = {}
    for (matrix, part, _), tensor in sorted(_places(adapters), key=lambda place: place[0]):
        pairs.setdefault(matrix, {A: [], B: []})[part].append(tensor)
    updated = dict(weights)
    for matrix, pair in pairs.items():
        weight = weights.get(matrix)
        if weight is None or not _fits(weight, pair[A], pair[B]):
            raise ValueError(f"the adapter of {matrix[:80]} does not fit its matrix")
        wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
        updated[matrix] = wide + low_rank_update(pair[A], pair[B], alpha / rank).to(wide)
    return updated


def _places(adapters: Mapping[str, Tensor]) -> Iterator[tuple[tuple[str, str, int], Tensor]]:
    """Yield for each stored adapter tensor: matrix name, A or B, number of the map, tensor.

    Raises:
        ValueError: it is of no adapter.
    """
    for name, tensor in adapters.items():
        matrix, part, number = ("", "", *name.rsplit(".", 2))[-3:]
        fits = tensor.ndim == 2 and tensor.is_floating_point()
        if part not in (A, B) or not number.isdecimal() or not fits:
            raise ValueError(f"{name[:80]} is not part of an adapter")
        yield (matrix, part, int(number)), tensor


def _fits(weight: Tensor, a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Check whether the concatenated products B A have the shape of a matrix."""
    rows, columns = weight.shape if weight.ndim == 2 else (-1, -1)
    whole = len(a) == len(b) and sum(map(len, b)) == rows
    pairs = zip(a, b, strict=False)
    return whole and all(x.shape == (y.shape[1], columns) for x, y in pairs)

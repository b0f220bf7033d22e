"""Model layers, declared once for both NumPy and torch.

A `Part` names its pieces. Each `Piece` knows the shapes of its weights, and builds itself either
over arrays, from stored weights, or as a torch module with newly initialised parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from seqgen.engines.arrays import identity, linear_map
from seqgen.engines.ops import ArrayOps, Leaf, Ops
from seqgen.engines.weights import Shapes, Weights, linear_shapes

if TYPE_CHECKING:
    from torch import nn

NormKind = Literal["rmsnorm", "layernorm"]
# By name, in the order in which they are made; None is a piece that is absent.
Pieces = dict[str, "Piece | None"]


class Part:
    """Module of a model that runs over arrays or tensors; its layers are attributes.

    Attributes:
        ops: the operations of its engine.
    """

    ops: Ops

    def pieces(self, *about: Any) -> Pieces:
        """Declare its layers by name, and store the arguments that `run` needs."""
        raise NotImplementedError

    def run(self, *inputs: Any) -> Any:
        """Compute the output; called when the part is called."""
        raise NotImplementedError


class Piece:
    """Declaration of a layer. The base class is the identity, without weights."""

    def shapes(self) -> Shapes:
        """List the shapes of its weights by name suffix."""
        return {}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        """Build the layer over arrays from stored weights."""
        return identity

    def module(self) -> nn.Module | nn.Parameter:
        """Build the layer as a new torch module or parameter."""
        from torch import nn

        return nn.Identity()


@dataclass(frozen=True)
class Linear(Piece):
    """Declaration of a linear layer.

    Attributes:
        inputs: number of input units.
        outputs: number of output units.
        bias: whether it has a bias.
        maps: the rows of each map, where one matrix stacks several.
        init: initialises the layer in place; None for PyTorch's default.
    """

    inputs: int
    outputs: int
    bias: bool = True
    maps: tuple[int, ...] = ()
    init: Callable[[Any], Any] | None = None

    def shapes(self) -> Shapes:
        return linear_shapes("", self.inputs, self.outputs, self.bias)

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return linear_map(weights)

    def module(self) -> nn.Module:
        from seqgen.engines.fast_layers import FastLinear

        layer = FastLinear(self.inputs, self.outputs, bias=self.bias)
        if self.maps:
            layer.maps = {"weight": self.maps}
        if self.init is not None:
            self.init(layer)
        return layer


@dataclass(frozen=True)
class Table(Piece):
    """Declaration of an embedding table, indexed by row number.

    Attributes:
        rows: number of vectors.
        width: size of each vector.
        init: initialises the table in place; None for a standard normal distribution.
    """

    rows: int
    width: int
    init: Callable[[Any], Any] | None = None

    def shapes(self) -> Shapes:
        return {".weight": (self.rows, self.width)}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return weights.weight.__getitem__

    def module(self) -> nn.Module:
        from torch import nn

        table = nn.Embedding(self.rows, self.width)
        if self.init is not None:
            self.init(table.weight.data)
        return table


@dataclass(frozen=True)
class Norm(Piece):
    """Declaration of a normalisation layer.

    Attributes:
        kind: which.
        size: of the vectors.
        eps: added to the variance, or to the mean square.
        bias: whether a layer normalisation has a bias.
    """

    kind: NormKind
    size: int
    eps: float
    bias: bool = False

    def shapes(self) -> Shapes:
        biased = self.bias and self.kind == "layernorm"
        return {f".{name}": (self.size,) for name in ("weight", "bias")[: 1 + biased]}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        about = {"gain": weights.weight, "eps": self.eps}
        if self.kind == "rmsnorm":
            return functools.partial(ops.rms_norm, **about)
        return functools.partial(ops.layer_norm, bias=weights.get("bias"), **about)

    def module(self) -> nn.Module:
        from torch import nn

        from seqgen.engines.fast_layers import RMSNorm

        if self.kind == "rmsnorm":
            return RMSNorm(self.size, eps=self.eps)
        return nn.LayerNorm(self.size, eps=self.eps, bias=self.bias)


@dataclass(frozen=True)
class DropoutPiece(Piece):
    """Declaration of a dropout layer.

    Attributes:
        p: its probability.
        shared: "time" if one mask serves all T; see `Dropout`.
    """

    p: float
    shared: Literal["nothing", "time"] = "nothing"

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return NoDropout()

    def module(self) -> nn.Module:
        from seqgen.engines.dropout import Dropout

        return Dropout(self.p, self.shared)


class NoDropout:
    """Dropout over arrays, which are never trained: the identity."""

    def __call__(self, x: Leaf, mask: None = None) -> Leaf:
        return x

    def shared_mask(self, rows: int, size: int, like: Leaf) -> None:
        """Return None: no mask."""


@dataclass(frozen=True)
class Numbers(Piece):
    """Declaration of a bare parameter tensor.

    Attributes:
        shape: its shape.
        init: initialises it in place; None for zeros.
    """

    shape: tuple[int, ...]
    init: Callable[[Any], Any] | None = None

    def shapes(self) -> Shapes:
        return {"": self.shape}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return weights.itself

    def module(self) -> nn.Parameter:
        import torch

        numbers = torch.zeros(self.shape)
        if self.init is not None:
            self.init(numbers)
        return torch.nn.Parameter(numbers)


class NestedPart(Piece):
    """Declaration of a nested part of class `kind`, built with the arguments `about`."""

    def __init__(self, kind: type[Part], *about: Any) -> None:
        self.kind, self.about = kind, about

    def shapes(self) -> Shapes:
        return {f".{name}": shape for name, shape in shapes_of(self.kind, *self.about).items()}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        part = _over_arrays(self.kind)()
        fill_over_arrays(part, part.pieces(*self.about), weights, ops)
        return part

    def module(self) -> Any:
        part = _module(self.kind)()
        fill(part, part.pieces(*self.about))
        return part


@dataclass(frozen=True)
class Stack(Piece):
    """Declaration of a numbered list of layers."""

    items: Sequence[Piece]

    def shapes(self) -> Shapes:
        each = enumerate(self.items)
        return {f".{i}{name}": shape for i, one in each for name, shape in one.shapes().items()}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return [one.over_arrays(weights.part(i), ops) for i, one in enumerate(self.items)]

    def module(self) -> nn.Module:
        from torch import nn

        items = [one.module() for one in self.items]
        numbers = all(isinstance(one, nn.Parameter) for one in items)
        return nn.ParameterList(items) if numbers else nn.ModuleList(items)


def glorot(layer: nn.Linear) -> None:
    """Initialize a linear layer by Glorot and Bengio (2010), with zero bias."""
    from torch import nn

    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def shapes_of(kind: type, *about: Any) -> Shapes:
    """List the weight shapes of a part or model class, by name."""
    pieces = kind.__new__(kind).pieces(*about).items()
    each = (
        (name + more, shape) for name, one in pieces if one for more, shape in one.shapes().items()
    )
    return dict(each)


def fill_over_arrays(owner: Any, pieces: Pieces, weights: Weights, ops: Ops = ArrayOps) -> None:
    """Build the layers of a part or model over arrays from its weights."""
    owner.ops = ops
    for name, piece in pieces.items():
        setattr(owner, name, piece and piece.over_arrays(weights.part(name), ops))


def fill(owner: nn.Module, pieces: Pieces) -> None:
    """Build the layers of a torch module."""
    from seqgen.engines.tensor_ops import TensorOps

    owner.ops = TensorOps
    for name, piece in pieces.items():
        setattr(owner, name, piece and piece.module())


@functools.cache
def _over_arrays(kind: type[Part]) -> type[Part]:
    """Make the array version of a part class."""
    return type(kind.__name__, (kind,), {"__call__": kind.run})


@functools.cache
def _module(kind: type[Part]) -> type[Part]:
    """Make the torch module version of a part class."""
    from torch import nn

    def reduce(self: Any) -> tuple[Any, ...]:
        return _empty, (kind,), self.__getstate__()  # pickle cannot find a class made here by name

    return type(kind.__name__, (kind, nn.Module), {"forward": kind.run, "__reduce__": reduce})


def _empty(kind: type[Part]) -> Part:
    """Make an empty torch module of a part class, for unpickling."""
    made = _module(kind)
    return made.__new__(made)

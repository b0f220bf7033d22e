"""What a model consists of, written once: for arrays, for torch modules, for shapes of weights.

A `Part` names its pieces, and each `Piece` can be made of stored weights over arrays, or as a torch
module that is trained, which draws its beginning; and it says which shapes its weights have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from seqgen.models.engines.arrays import unchanged
from seqgen.models.engines.ops import ArrayOps, Leaf, Ops
from seqgen.models.engines.weights import Shapes, Weights, linear_shapes

if TYPE_CHECKING:
    from torch import nn

NormKind = Literal["rmsnorm", "layernorm"]
# By name, in the order in which they are made; None is a piece that is absent.
Pieces = dict[str, "Piece | None"]


class Part:
    """A part of a model, over arrays or tensors: it has its pieces as attributes of their names.

    Attributes:
        ops: the operations on what it takes.
    """

    ops: Ops

    def pieces(self, *about: Any) -> Pieces:
        """Return what it consists of, and keep what `run` needs to know of what it is about."""
        raise NotImplementedError

    def run(self, *inputs: Any) -> Any:
        """Compute what it is for: calling it does this."""
        raise NotImplementedError


class Piece:
    """A piece of a part; as it stands here, one without weights that changes nothing."""

    def shapes(self) -> Shapes:
        """Return the shapes of its weights, by what follows its own name."""
        return {}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        """Return it over arrays, made of its weights."""
        return unchanged

    def module(self) -> nn.Module | nn.Parameter:
        """Return it as a new torch module, or as a parameter."""
        from torch import nn

        return nn.Identity()


@dataclass(frozen=True)
class Linear(Piece):
    """A linear map.

    Attributes:
        inputs: their number.
        outputs: their number.
        bias: whether one is added.
        maps: the rows of each, where several maps lie below one another in one matrix.
        begin: fills the layer with what training begins with; None for what PyTorch draws.
    """

    inputs: int
    outputs: int
    bias: bool = True
    maps: tuple[int, ...] = ()
    begin: Callable[[Any], Any] | None = None

    def shapes(self) -> Shapes:
        return linear_shapes("", self.inputs, self.outputs, self.bias)

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return weights.affine()

    def module(self) -> nn.Module:
        from seqgen.models.engines import onednn_linear

        layer = onednn_linear.Linear(self.inputs, self.outputs, bias=self.bias)
        if self.maps:
            layer.maps = {"weight": self.maps}
        if self.begin is not None:
            self.begin(layer)
        return layer


@dataclass(frozen=True)
class Table(Piece):
    """A table of vectors: a function of the numbers of its rows.

    Attributes:
        rows: their number.
        width: of the vectors.
        begin: fills a tensor with what training begins with; None for normal numbers.
    """

    rows: int
    width: int
    begin: Callable[[Any], Any] | None = None

    def shapes(self) -> Shapes:
        return {".weight": (self.rows, self.width)}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return weights.weight.__getitem__

    def module(self) -> nn.Module:
        from torch import nn

        table = nn.Embedding(self.rows, self.width)
        if self.begin is not None:
            self.begin(table.weight.data)
        return table


@dataclass(frozen=True)
class Norm(Piece):
    """A normalisation of vectors.

    Attributes:
        kind: which.
        size: of the vectors.
        eps: added to the variance, or to the mean square.
        bias: whether one is added, by a layer normalisation.
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

        from seqgen.models.engines.rms_norm import RMSNorm

        if self.kind == "rmsnorm":
            return RMSNorm(self.size, eps=self.eps)
        return nn.LayerNorm(self.size, eps=self.eps, bias=self.bias)


@dataclass(frozen=True)
class Drop(Piece):
    """Dropout, which is for training alone.

    Attributes:
        p: its probability.
        shares: whether a mask may be one for all T.
    """

    p: float
    shares: bool = False

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return Kept()

    def module(self) -> nn.Module:
        from seqgen.models.dropout import Dropout

        return Dropout(self.p, self.shares)


class Kept:
    """What stands for dropout over arrays: it drops nothing."""

    def __call__(self, x: Leaf, mask: None = None) -> Leaf:
        return x

    def shared_mask(self, rows: int, size: int, like: Leaf) -> None:
        """Draw nothing."""


@dataclass(frozen=True)
class Numbers(Piece):
    """Trained numbers that are read as they are.

    Attributes:
        shape: theirs.
        begin: fills a tensor with what training begins with; None for zeros.
    """

    shape: tuple[int, ...]
    begin: Callable[[Any], Any] | None = None

    def shapes(self) -> Shapes:
        return {"": self.shape}

    def over_arrays(self, weights: Weights, ops: Ops) -> Any:
        return weights.itself

    def module(self) -> nn.Parameter:
        import torch

        numbers = torch.zeros(self.shape)
        if self.begin is not None:
            self.begin(numbers)
        return torch.nn.Parameter(numbers)


class Made(Piece):
    """A part of a kind, whose `pieces` follow from `about`."""

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
    """Pieces of one kind, numbered from 0."""

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
    """Begin with a matrix as Glorot and Bengio (2010) draw it, and a bias of zero."""
    from torch import nn

    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def shapes_of(kind: type, *about: Any) -> Shapes:
    """Return the shapes of the weights of a part of a kind, or of a model."""
    pieces = kind.__new__(kind).pieces(*about).items()
    each = (
        (name + more, shape) for name, one in pieces if one for more, shape in one.shapes().items()
    )
    return dict(each)


def fill_over_arrays(owner: Any, pieces: Pieces, weights: Weights, ops: Ops = ArrayOps) -> None:
    """Give a part, or a model, its pieces over arrays, made of its weights."""
    owner.ops = ops
    for name, piece in pieces.items():
        setattr(owner, name, piece and piece.over_arrays(weights.part(name), ops))


def fill(owner: nn.Module, pieces: Pieces) -> None:
    """Give a torch module its pieces."""
    from seqgen.models.engines.tensor_ops import TensorOps

    owner.ops = TensorOps
    for name, piece in pieces.items():
        setattr(owner, name, piece and piece.module())


@functools.cache
def _over_arrays(kind: type[Part]) -> type[Part]:
    """Return the class of the parts of a kind over arrays."""
    return type(kind.__name__, (kind,), {"__call__": kind.run})


@functools.cache
def _module(kind: type[Part]) -> type[Part]:
    """Return the class of the torch modules of a kind."""
    from torch import nn

    return type(kind.__name__, (kind, nn.Module), {"forward": kind.run})

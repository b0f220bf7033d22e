"""One-token steps of torch models, computed by NumPy or the compiled library where faster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from seqgen.engines.arrays import in_fewer_bits
from seqgen.engines.choice import choose_for_step
from seqgen.engines.fast_layers import quantize_linear_layers
from seqgen.engines.tensor_products import as_array, as_tensor, weights_as_arrays
from seqgen.errors import SeqgenError
from seqgen.models.arrays import NeuralArrays
from seqgen.models.base import require_no_graph
from seqgen.models.distributions import DAMAGED
from seqgen.models.state import State

T = TypeVar("T")


class ArraySteps:
    """Mixin of neural language models: decode single tokens with the array model.

    Attributes:
        arrays: the class of its array model.
    """

    arrays: ClassVar[type[NeuralArrays]]
    head: nn.Linear
    quantizable: ClassVar[bool] = False
    """Whether the weight matrices can be quantized; see `quantize`."""
    quantized: str | None = None
    """Precision of the quantized matrices, a key of `QUANTIZED`; None if not quantized."""

    takes_arrays: bool = True
    """Whether NumPy may view the weights; false if their memory is released between uses."""

    def quantize(self, precision: str) -> None:
        """Quantize the weight matrices; the model can no longer be trained.

        Args:
            precision: a key of `QUANTIZED`.

        Raises:
            ValueError: they are already.
            SeqgenError: a weight is NaN or infinite, which rounding would hide.
        """
        if self.quantized is not None:
            raise ValueError(f"the matrices are in {self.quantized} already")
        if not all(weight.isfinite().all() for weight in self.parameters()):
            raise SeqgenError(DAMAGED)
        quantize_linear_layers(self, precision)
        self.quantized = precision
        self.forget_prepared()

    def suits_arrays(self) -> bool:
        """Check whether NumPy steps give torch's numbers: CPU, float32 or 64, evaluation."""
        weight = self.head.weight
        exact = weight.dtype in (torch.float32, torch.float64)
        plain = not self.training and not torch.is_autocast_enabled("cpu")
        return self.takes_arrays and exact and plain and weight.device.type == "cpu"

    @property
    def most_array_rows(self) -> int | None:
        """Largest batch for which array steps are faster than torch; None for no limit."""
        return None

    def forward(
        self, tokens: Tensor, state: State | None = None, last: int | None = None
    ) -> tuple[Tensor, State | None]:
        return super().forward(tokens, state and state.map(as_tensor), last)

    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        as_before = state.is_of_arrays and not self.training
        same_numbers = as_before or self.suits_arrays()
        if not choose_for_step(len(tokens), self.most_array_rows, same_numbers):
            return super().step(tokens, state)
        if as_before:
            return self.kept(self.as_arrays).step(tokens, state)  # of the same weights
        require_no_graph(state)
        return self.over_arrays().step(tokens, state.map(as_array))

    def over_arrays(self) -> NeuralArrays:
        """Return the array model with this model's weights; cached until a weight changes."""
        return self.prepared(self.as_arrays)

    def as_arrays(self) -> NeuralArrays:
        """Build an array model that shares memory with this model's weights."""
        return self.arrays(self.config, weights_as_arrays(self))

    def forget_prepared(self) -> None:
        """Drop the cached array model, so that the memory of the weights can be freed."""
        self.__dict__.pop("_prepared", None)

    def prepared(self, make: Callable[[], T]) -> T:
        """Return `make()`, cached until a weight changes in place.

        Replacing a parameter by another is not noticed.
        """
        known = self.__dict__.get("_prepared")
        if known is None or not known.holds():
            del known
            self.forget_prepared()  # before the new one takes memory
            # Not by setattr: nn.Module might then register it as a part of the model.
            tensors = itertools.chain(self.parameters(), self.buffers())
            with in_fewer_bits(self.quantized):
                known = self.__dict__["_prepared"] = CachedValue(tensors, make)
        return known.value

    def kept(self, make: Callable[[], T]) -> T:
        """Return the value cached by `prepared` without checking that weights are unchanged."""
        known = self.__dict__.get("_prepared")
        return self.prepared(make) if known is None else known.value


class CachedValue:
    """Value computed from weights, with a fingerprint of the weights at that time.

    The value holds closures over one model's tensors, so it is neither copied nor pickled.
    """

    def __init__(self, weights: Iterable[Tensor], make: Callable[[], Any]) -> None:
        # Tensors made in inference mode have no version counter, and nothing trains them.
        self.weights = [weight for weight in weights if not weight.is_inference()]
        self.marks, self.value = _marks(self.weights), make()

    def holds(self) -> bool:
        """Check whether the weights are unchanged since the value was computed."""
        return self.marks == _marks(self.weights)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(None), ()


def _marks(weights: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Compute the address and version counter of each tensor, which change with its content."""
    return [(weight.data_ptr(), weight._version) for weight in weights]

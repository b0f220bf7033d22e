"""Training calls that run compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Compilable:
    """Beside an `nn.Module`: the part of a training call that is over tensors alone, compiled."""

    over_tensors: Callable[..., Tensor] | None = None
    """What a training call runs over tensors alone, in a model that has such a part."""
    _compiled: Callable[..., Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Compiled code is bound to this object, so a copy begins without.
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def compile_training(self) -> None:
        """Have training calls run `over_tensors` compiled.

        The code is made in the first such call, in tens of seconds.
        """
        self._compiled = torch.compile(self.over_tensors)

    def forget_compiled(self) -> None:
        """Have training calls run it as it is written again."""
        self._compiled = None

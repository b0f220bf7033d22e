"""One-token steps of a transformer with fixed shapes, captured as CUDA graphs and replayed.

A step of a small transformer starts some fifty kernels, and starting them takes several times as
long as the GPU computes. A CUDA graph starts all of them in one call, but does the same to the same
memory every time. So a `FixedStep` computes over all slots of a cache, with a mask for those that
no token has yet, and reads the number of the newest slot from the device.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from seqgen.models.base import require_no_graph
from seqgen.models.transformer.context import AnchoredContext
from seqgen.models.transformer.model import Transformer

if TYPE_CHECKING:
    from seqgen.models.base import TorchModel
    from seqgen.models.transformer.kv_cache import KVCache

# A cache whose blocks have stayed in place for so many steps probably stays longer. Capturing a
# graph takes as long as ten steps without one.
STEPS_BEFORE_CAPTURE = 4
# Largest ratio of the rows of a graph to those of a step: padding rows cost time.
MOST_PADDING = 2


class FixedStep:
    """A step of one token per row over all slots of a cache, whose shapes never change.

    Attributes:
        rows: B, of the cache; a step may have fewer.
        logits: (B, V) after the last step.

    Args:
        model: in evaluation mode.
        state: a cache with room for another token.
    """

    def __init__(self, model: Transformer, state: KVCache) -> None:
        self.model, self.rows, self.slots = model, len(state.starts), state.tokens.shape[1]
        self.blocks = state.tokens, state.keys, state.values
        # The newest slot, then the first slot and the token of each row.
        self.inputs = torch.zeros(1 + 2 * self.rows, dtype=torch.int64, device=model.device)
        self.logits = model.like.new_empty(0)

    def set_inputs(self, tokens: Sequence[int], starts: Sequence[int], slot: int) -> None:
        """Copy the inputs of a step to the device.

        Padding rows read token 0 into a window of one token.

        Args:
            tokens: of each row that the step has.
            starts: the first slot of each row's window.
            slot: where the tokens go.
        """
        spare = self.rows - len(tokens)
        numbers = [slot, *starts, *[slot] * spare, *tokens, *[0] * spare]
        self.inputs.copy_(torch.tensor(numbers))

    def compute(self) -> None:
        """Add the input tokens to the cache, and compute the logits after them."""
        slot, starts = self.inputs[:1], self.inputs[1 : 1 + self.rows]
        tokens = self.inputs[1 + self.rows :, None]  # (B, 1)
        visible = self._visible_slots(slot, starts)
        ids, keys, values = self.blocks
        ids.index_copy_(1, slot, tokens)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys[layer].index_copy_(2, slot, k)
            values[layer].index_copy_(2, slot, v)
            of_layer = visible[self.model.config.span(layer)]
            return self.model.attend_to_past(q, keys[layer], values[layer], of_layer)

        features = self.model.features_at(tokens, (slot - starts)[:, None], attend)
        self.logits = self.model.logits(features, tokens, None)[:, -1]

    def _visible_slots(self, slot: Tensor, starts: Tensor) -> dict[int | None, Tensor]:
        """Compute which slots each row sees, (B, 1, 1, C), for every span of the layers."""
        config, places = self.model.config, torch.arange(self.slots, device=slot.device)
        own = (places >= starts[:, None]) & (places <= slot)  # (B, C)
        spans = {config.span(layer) for layer in range(config.num_layers)}
        visible = {span: own if span is None else own & (places > slot - span) for span in spans}
        return {span: each[:, None, None] for span, each in visible.items()}


class CapturedStep(FixedStep):
    """A `FixedStep` as a CUDA graph.

    Args:
        model: in evaluation mode, on a CUDA device.
        state: a cache with room for another token.
    """

    def __init__(self, model: Transformer, state: KVCache) -> None:
        super().__init__(model, state)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Libraries allocate memory and choose kernels in their first call, which must not be
            # captured. It writes to the next slot, which the first replay writes to again.
            self.set_inputs([0] * self.rows, [state.end] * self.rows, state.end)
            self.compute()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.compute()

    def run(self, tokens: Sequence[int], state: KVCache) -> np.ndarray:
        """Replay the step for the rows of a cache that lies in this graph's blocks."""
        self.set_inputs(tokens, state.starts, state.end)
        self.graph.replay()
        state.end += 1
        return self.logits[: len(tokens)].cpu().numpy()


class ReplayedSteps:
    """The step of a model: by a graph where its cache stays in place, else as its class has it.

    Args:
        model: a transformer on a CUDA device.
    """

    kind = CapturedStep

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.graph: CapturedStep | None = None
        self._place: tuple[int, ...] = ()
        self._same_place = 0
        self._cleared: weakref.ref[Tensor] | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> ReplayedSteps:
        return type(self)(copy.deepcopy(self.model, memo))

    def step(self, tokens: Sequence[int], state: KVCache) -> tuple[np.ndarray, KVCache]:
        """Feed one token per row to the model; see `InferenceModel.step`."""
        if not self._can_replay(state):
            return self.plain(tokens, state)
        place = self._place_of(state)
        if place != self._place:
            self._place, self._same_place, self.graph = place, 0, None
        rows = len(state.starts)
        if self.graph is not None and not rows <= self.graph.rows <= MOST_PADDING * rows:
            self._same_place, self.graph = 0, None
        self._same_place += 1
        if self._same_place <= STEPS_BEFORE_CAPTURE:
            return self.plain(tokens, state)
        require_no_graph(state)
        self._clear(state)
        if self.graph is None:
            self.graph = self.kind(self.model, state)
        return self.graph.run(tokens, state), state

    def plain(self, tokens: Sequence[int], state: KVCache) -> tuple[np.ndarray, KVCache]:
        """Take the step of the model's class."""
        return type(self.model).step(self.model, tokens, state)

    def _can_replay(self, state: KVCache) -> bool:
        """Check that the next token has a slot and no row's window is full."""
        room = state.end < state.tokens.shape[1] and not state.is_of_arrays
        full = state.end - min(state.starts, default=0) >= self.model.window
        return room and not full and not self.model.training and not torch.is_grad_enabled()

    def _place_of(self, state: KVCache) -> tuple[int, ...]:
        """List what a graph depends on: the slots, and where weights and blocks lie.

        A graph holds its blocks, so that no others can lie where they do.
        """
        blocks = self.model.like, *state.tensors()
        return state.tokens.shape[1], *(block.data_ptr() for block in blocks)

    def _clear(self, state: KVCache) -> None:
        """Zero the slots that no token has yet: a weight of 0 times NaN would be NaN."""
        if self._cleared is None or self._cleared() is not state.keys[0]:
            for block in (*state.keys, *state.values):
                block[:, :, state.end :] = 0
            self._cleared = weakref.ref(state.keys[0])


def replay_steps(model: TorchModel) -> None:
    """Have a transformer on a CUDA device replay its steps; leave other models as they are."""
    alone = isinstance(model, Transformer) and type(model).attending is AnchoredContext.attending
    if alone and model.device.type == "cuda":
        model.step = ReplayedSteps(model).step

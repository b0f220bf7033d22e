"""Vectors of texts: the mean of a network's last hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from seqgen.engines.ops import ops_of, without_gradients
from seqgen.errors import SeqgenError
from seqgen.models.inference import HiddenStateModel

if TYPE_CHECKING:
    from seqgen.generation.prompts import Prompt
    from seqgen.models.state import State
    from seqgen.store.loaded import LoadedModel

# Tokens that are read at a time, to limit the memory that activations take.
PIECE = 1024


class TextEmbedder:
    """Computes the vectors of texts by a network.

    Args:
        loaded: the model.

    Raises:
        SeqgenError: it has no hidden states, such as an n-gram model or a mixture.
        UsageError: it writes from sources or labels.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        loaded.conditioning.require_nothing("an embedding")
        self.name, self.model = loaded.stored.name, loaded.model
        if not isinstance(self.model, HiddenStateModel):
            said = "is not a single network, so that texts have no hidden states"
            raise SeqgenError(f"{self.name} {said}")

    def embed(self, prompt: Prompt, added: int, piece: int = PIECE) -> Iterator[np.ndarray | None]:
        """Yield the vector (H,) of a text, in float32 and of length 1; before it, None after parts.

        It is the mean of the hidden states, from which the model predicts, after each token of the
        text.

        Args:
            prompt: the text.
            added: how many of its tokens are start tokens, which count only if it has no others.
            piece: how many tokens are read at a time.

        Raises:
            SeqgenError: the text is longer than the window.
        """
        model, length = self.model, len(prompt.tokens)
        if model.window is not None and length > model.window:
            raise SeqgenError(
                f"text {prompt.index} has {length:,} tokens, and {self.name} reads "
                f"{model.window:,}: give shorter texts"
            )
        state, total = model.start(1), 0.0
        ids, first = np.array([prompt.tokens]), added if added < length else 0
        for begin in range(0, length, piece):
            hidden, state = self._hidden(ids[:, begin : begin + piece], state)
            total = total + hidden[max(0, first - begin) :].sum(0, dtype=np.float64)
            yield None
        yield (total / np.linalg.norm(total)).astype(np.float32)

    @without_gradients
    def _hidden(self, ids: np.ndarray, state: State) -> tuple[np.ndarray, State | None]:
        """Compute the hidden states (T, H) after tokens (1, T), and the new state."""
        hidden, state = self.model.hidden(self.model.ids(ids), state)
        return ops_of(hidden).array(hidden)[0], state

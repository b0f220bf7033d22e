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


def require_hidden_states(loaded: LoadedModel) -> HiddenStateModel:
    """Return the network of a model whose texts have vectors.

    Raises:
        SeqgenError: it is another model, such as an n-gram model or a mixture.
        UsageError: it writes from sources or labels.
    """
    loaded.conditioning.require_nothing("an embedding")
    if not isinstance(loaded.model, HiddenStateModel):
        name = loaded.stored.name
        raise SeqgenError(f"{name} is not a single network, so that texts have no hidden states")
    return loaded.model


def embed(
    loaded: LoadedModel, prompt: Prompt, added: int, piece: int = PIECE
) -> Iterator[np.ndarray | None]:
    """Yield the vector (H,) of a text, in float32 and of length 1; None after each part before it.

    It is the mean of the hidden states, from which the model predicts, after each token of the
    text.

    Args:
        loaded: the model.
        prompt: the text.
        added: how many of its tokens are start tokens, which count only if there is nothing else.
        piece: how many tokens are read at a time.

    Raises:
        SeqgenError: see `require_hidden_states`; or the text is longer than the window.
    """
    model, length = require_hidden_states(loaded), len(prompt.tokens)
    if model.window is not None and length > model.window:
        raise SeqgenError(
            f"text {prompt.index} has {length:,} tokens, and {loaded.stored.name} reads "
            f"{model.window:,}: give shorter texts"
        )
    state, total = model.start(1), 0.0
    ids, first = np.array([prompt.tokens]), added if added < length else 0
    for begin in range(0, length, piece):
        hidden, state = _hidden(model, ids[:, begin : begin + piece], state)
        total = total + hidden[max(0, first - begin) :].sum(0, dtype=np.float64)
        yield None
    yield (total / np.linalg.norm(total)).astype(np.float32)


@without_gradients
def _hidden(
    model: HiddenStateModel, ids: np.ndarray, state: State
) -> tuple[np.ndarray, State | None]:
    """Compute the hidden states (T, H) after tokens (1, T), and the new state."""
    hidden, state = model.hidden(model.ids(ids), state)
    return ops_of(hidden).array(hidden)[0], state

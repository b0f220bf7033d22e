"""Interface of language models for scoring and decoding, independent of the engine.

Torch modules (`base.py`) are for training, large batches and GPUs; array models (`arrays.py`) run
in NumPy, and a command starts them without loading PyTorch. Ids, states and logits are tensors for
the one and arrays for the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from seqgen.engines.ops import Leaf, Ops, without_gradients
from seqgen.models.scores import FromLogits, Predictions, ScoreDetail, Scores

if TYPE_CHECKING:
    from seqgen.models.state import State
    from seqgen.settings import ModelConfig
    from seqgen.text.sources import Sources

# Scoring makes at most this many logits at a time (32 MB in float32).
LOGITS_AT_ONCE = 1 << 23


class Configured:
    """Base of models and networks that are built from a configuration.

    Attributes:
        config: what built it.
        notes: keys and values that the JSON records of commands have about its figures.
    """

    config: ModelConfig
    notes: Iterable[tuple[str, Any]] = ()

    @property
    def vocab_size(self) -> int:
        """Vocabulary size V."""
        return self.config.vocab_size

    @property
    def parts(self) -> Sequence[Configured]:
        """Component models without their caches; of a single model, itself."""
        return [self]


class InferenceModel(Configured, ABC):
    """Language model for scoring and decoding: p(next token | tokens so far).

    Attributes:
        window: how many tokens one training call may hold, or None where there is no limit.
        source_window: how many values a source may have, its EOS included, or None where there is
            no limit.
        orders: how many lengths of context, from 0 on, it tells apart, as an n-gram model does by
            `matched`; None for a model that has no such lengths.
        rows_at_least: how many rows scoring works on side by side at least: many where the
            tokens cost less than the call.
        normalised: whether its logits are log-probabilities to the last bits, so that nobody need
            normalise them.
        protocol: what the protocol of a score says about how it reads texts.
    """

    rows_at_least: ClassVar[int] = 1
    normalised: bool = False
    protocol: Sequence[str] = ()
    window: int | None = None
    source_window: int | None = None
    orders: int | None = None

    @property
    @abstractmethod
    def precision(self) -> str:
        """Data type of the computation, or the precision of quantized matrices."""

    @abstractmethod
    def parameter_count(self) -> int:
        """Count the trained parameters; shared ones count once, adapters not at all."""

    @abstractmethod
    def __call__(
        self, tokens: Leaf, state: State | None = None, last: int | None = None
    ) -> tuple[Leaf, State | None]:
        """Predict the token after each.

        Args:
            tokens: (B, T) of `ids`, T >= 1.
            state: of what came before, used up by the call.
            last: give logits for the last so many positions only.

        Returns:
            Logits (B, T, V), or (B, last, V), and the state after the tokens.
        """

    @abstractmethod
    def ids(self, ids: np.ndarray) -> Leaf:
        """Convert token ids of any shape to the engine's int64 array or tensor."""

    @abstractmethod
    def start(self, batch: int, stride: int | None = None) -> State:
        """Create an empty state of `batch` rows for scoring and decoding.

        Args:
            batch: rows B.
            stride: how many tokens a full window drops at a time (transformers; W/2 if None);
                models without a window ignore it.
        """

    @abstractmethod
    def step(self, tokens: Sequence[int], state: State) -> tuple[np.ndarray, State]:
        """Feed one token per row to the model and compute the next logits.

        Args:
            tokens: B ids.
            state: of what came before, used up by the call.

        Returns:
            The logits after each, an array (B, V), and the state after.
        """

    @property
    def most_together(self) -> int:
        """Longest prompt that `read_together` accepts, in tokens; 0 if it is not supported."""
        return 0

    def read_together(self, prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, State]:
        """Read prompts of different lengths in one batch, faster but with the same results.

        Args:
            prompts: B of ids, at least one and at most `most_together` each.

        Returns:
            The logits after each, an array (B, V), and the state after.
        """
        raise NotImplementedError

    def opens(
        self, sources: Sources, stride: int | None = None
    ) -> Callable[[Sequence[int]], State]:
        """Return a function that opens a state for the given source numbers.

        A model of text reads a source, such as labels, as the tokens that come first.

        Args:
            sources: of this model's own ids.
            stride: see `start`.
        """

        @without_gradients
        def opened(handles: Sequence[int]) -> State:
            source = sources.rows(handles)
            states, places = [], []
            for length in np.unique(source.lengths).tolist():
                rows = np.flatnonzero(source.lengths == length)
                tokens = self.ids(source.values[rows, :length])
                states.append(self(tokens, self.start(len(rows), stride), last=1)[1])
                places += rows.tolist()
            state = type(states[0]).cat(states) if len(states) > 1 else states[0]
            return state if places == sorted(places) else state.select(np.argsort(places).tolist())

        return opened

    def score(
        self, tokens: Leaf, targets: Leaf, state: State, want: ScoreDetail = "log_probs"
    ) -> tuple[Scores, State]:
        """Score each target token: log-probability, and if wanted hit or rank.

        Args:
            tokens: (B, T) of `ids`, what is read.
            targets: (B, T) of `ids`, the token to be scored after each.
            state: from `start` or an earlier call; used up.
            want: "log_probs"; "hits" as well; or "ranks" and hits as well.

        Returns:
            The scores, and the state after.
        """
        length = max(1, self.most_at_once // tokens.shape[0])
        scores = []
        for begin in range(0, tokens.shape[1], length):
            piece = slice(begin, begin + length)
            predictions, state = self.predictions(tokens[:, piece], state)
            scores.append(predictions.score(targets[:, piece], want))
        return Scores.cat(scores), state

    def predictions(self, tokens: Leaf, state: State) -> tuple[Predictions, State]:
        """Read tokens (B, T); return lazily computed predictions after each, and the new state.

        A model that need not write out whole distributions overrides this and `most_at_once`.
        """
        logits, state = self(tokens, state)
        return FromLogits(logits), state

    @property
    def drawer(self) -> Drawer | None:
        """Sampler that needs no full distribution; None if the model has none."""
        return None

    @property
    def most_at_once(self) -> int:
        """Largest number of tokens over all rows that one call of `predictions` may get."""
        return LOGITS_AT_ONCE // self.vocab_size

    @property
    def quick_ranks(self) -> bool:
        """Whether ranks cost little more than hits."""
        return True


class Drawer(Protocol):
    """Sampler of tokens that never computes the full distribution."""

    def draw(
        self, state: State, uniforms: np.ndarray, never: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw a token for each row from uniform random numbers.

        Args:
            state: not used up.
            uniforms: (B,), in [0, 1); the token is the first whose cumulative probability exceeds
                it.
            never: tokens that are never drawn, ascending.

        Returns:
            Tokens (B,), -1 where it depends on the rounding of the row's probabilities; and the
            log-probability of each, (B,).
        """

    def logits(self, state: State) -> np.ndarray:
        """Compute the logits (B, V) of the next token of each row."""

    def read(self, tokens: Sequence[int], state: State) -> State:
        """Advance the state by one token per row."""


class HiddenStateModel(InferenceModel):
    """Language model that computes hidden states and applies a linear `head` to them.

    Attributes:
        head: the map to logits.
        ops: the operations of its engine.
        like: of the type of the features, where the model is.
    """

    head: Callable[[Leaf], Leaf]
    ops: Ops
    like: Leaf

    @abstractmethod
    def hidden(self, tokens: Leaf, state: Any) -> tuple[Leaf, State | None]:
        """Compute the hidden states (B, T, H) after each token, and the new state.

        Args:
            tokens: (B, T).
            state: of what came before, used up; None for nothing.
        """

    @property
    def predicts_by_head(self) -> bool:
        """Whether the logits are what the head makes of the features, and nothing else."""
        return type(self).logits is HiddenStateModel.logits

    def layer_features(self, tokens: Leaf) -> list[Leaf]:
        """Compute the output (B, T, H) of every layer on tokens at the start of texts.

        The last is what the head reads. A model that is no stack of layers has that alone.

        Raises:
            ValueError: the tokens do not fit the window.
        """
        return [self.hidden(tokens, self.start(len(tokens)))[0]]

    def predict(
        self, tokens: Leaf, state: Any = None, last: int | None = None
    ) -> tuple[Leaf, State | None]:
        """Compute logits for the token after each; see `InferenceModel.__call__`."""
        features, after = self.hidden(tokens, state)
        return self.logits(features, tokens, state, last), after

    def logits(self, features: Leaf, tokens: Leaf, past: Any, last: int | None = None) -> Leaf:
        """Compute the logits (B, T, V) from hidden states, or for the `last` positions only.

        A model that predicts from more than the features of one position overrides this.

        Args:
            features: (B, T, H) of `hidden`.
            tokens: (B, T), which `hidden` read.
            past: the state that `hidden` was given, which may be used up.
            last: see `InferenceModel.__call__`.
        """
        return self.ops.wide(self.head(features if last is None else features[:, -last:]))

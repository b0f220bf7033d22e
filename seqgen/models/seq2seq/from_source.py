"""Interface of encoder-decoders: encode a source once, then decode from its memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from seqgen.engines.ops import Leaf
from seqgen.models.inference import HiddenStateModel
from seqgen.models.seq2seq.memory import Memory
from seqgen.models.state import State
from seqgen.text.sources import Source, Sources

if TYPE_CHECKING:
    from seqgen.models.seq2seq.settings import SourceConfig


class FromSource(HiddenStateModel):
    """Conditional language model p(next target token | source, target tokens so far).

    Its states are opened on a memory: `model.start(memory)` opens one for scoring and decoding.
    `None` is no state of such a model. A torch module takes a memory in the place of a state for
    training, which keeps the graph and no cache.
    """

    config: SourceConfig

    @abstractmethod
    def encode(self, values: Leaf, lengths: Sequence[int]) -> Memory:
        """Encode sources; row i of the memory reads source i.

        Args:
            values: (S, L) of int64, or (S, L, F), padded on the right.
            lengths: how long each is, S of them, each at least 1.
        """

    @abstractmethod
    def start(self, memory: Memory, stride: int | None = None) -> State:
        """Create a state for scoring and decoding, with a row for each of the memory's owners.

        Raises:
            ValueError: there is no memory.
        """

    def attend(self, tokens: Leaf, memory: Memory) -> Leaf:
        """Compute the attention weights of each target token on each source position.

        A text past the window is read in windows, as it is written and scored.

        Args:
            tokens: (B, T) of int64, what the decoder reads, BOS first.
            memory: with B rows.

        Returns:
            (B, layers, heads, T, L); each row of L sums to one.

        Raises:
            UsageError: the model has no attention.
        """
        pieces = [
            self.attend_in_window(tokens[:, begin:end], memory)[:, :, :, past:]
            for begin, past, end in split_windows(tokens.shape[1], self.window)
        ]
        return self.ops.along(3, *pieces)

    @abstractmethod
    def attend_in_window(self, tokens: Leaf, memory: Memory) -> Leaf:
        """Compute `attend` for at most as many tokens as the window holds."""

    def remember(self, source: Source) -> Memory:
        """Encode a batch of sources to a memory."""
        values = self.ids(source.values)
        if self.config.source_features is not None:
            values = self.ops.like(values, self.like)
        return self.encode(values, source.lengths.tolist())

    def opens(
        self, sources: Sources, stride: int | None = None
    ) -> Callable[[Sequence[int]], State]:
        """Return a function that opens a state for the given source numbers.

        Each call encodes the distinct ones of its handles side by side.

        Args:
            sources: what is written from.
            stride: see `start`.
        """

        def opened(handles: Sequence[int]) -> State:
            distinct = list(dict.fromkeys(handles))
            number = {handle: i for i, handle in enumerate(distinct)}
            memory = self.remember(sources.rows(distinct))
            rows = [number[handle] for handle in handles]
            return self.start(memory.select(rows), stride)

        return opened


def split_windows(length: int, window: int | None) -> list[tuple[int, int, int]]:
    """Split a text into windows: start, number of tokens read before, and end of each.

    A row that holds W tokens falls back to its last W - S, S being half the window (see
    `KVCache`).

    Args:
        length: of the text, at least 1.
        window: W; None for one context.
    """
    if window is None or length <= window:
        return [(0, 0, length)]
    stride = max(1, window // 2)
    spans = [(0, 0, window)]
    while spans[-1][2] < length:
        begin = spans[-1][0] + stride
        spans.append((begin, window - stride, min(begin + window, length)))
    return spans


def require_memory(memory: Memory | None) -> Memory:
    """Return the memory; raise an error if it is None.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(memory, Memory):
        raise ValueError("this model writes from a source: give encode(values, lengths)")
    return memory

"""Dropout with cheap random masks on CPUs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

# Sixteen random bits decide about an element: p is met to within 1 / 65536.
LEVELS = 1 << 16


@dataclass(frozen=True)
class RowSlice:
    """Rows `first` to `first + count - 1` of a batch of `total` that threads or processes share.

    Attributes:
        blank: another process has these too, and nothing that is computed of them counts.
        generator: what the rows are drawn by; None for torch's own.
    """

    first: int
    count: int
    total: int
    blank: bool = False
    generator: torch.Generator | None = None


class _OfThread(threading.local):
    rows: RowSlice | None = None


_thread = _OfThread()


class Draw(Protocol):
    """Function that draws random numbers of a shape from a generator; None is torch's default."""

    def __call__(self, shape: Sequence[int], *, generator: torch.Generator | None) -> Tensor: ...


@contextlib.contextmanager
def drawing_for(rows: RowSlice | None) -> Iterator[None]:
    """Have this thread draw within what these rows would get if it had all rows; None for all."""
    before, _thread.rows = _thread.rows, rows
    try:
        yield
    finally:
        _thread.rows = before


def draws_for_some_rows() -> bool:
    """Check whether this thread has only a slice of the batch."""
    return _thread.rows is not None


def rows_are_blank() -> bool:
    """Check whether this thread's rows are padding whose results are ignored."""
    return _thread.rows is not None and _thread.rows.blank


def draw_for_rows(draw: Draw, shape: Sequence[int], dim: int | None = 0) -> Tensor:
    """Draw random numbers (..., B, ...) for this thread's rows along `dim`; see `drawing_for`.

    All processes and threads draw for all rows and keep their own, so their generators stay alike.
    A row may stand for several, one below the other. Where the rows are only some of the process's,
    as those of an encoder that have not ended yet, they are drawn as they are.

    Args:
        draw: makes the numbers.
        shape: of what is returned.
        dim: where its rows are; None if it has none.
    """
    rows = _thread.rows
    if rows is None:
        return draw(shape, generator=None)
    if dim is None or shape[dim] % rows.count:
        return draw(shape, generator=rows.generator)
    times = shape[dim] // rows.count
    whole = list(shape)
    whole[dim] = times * rows.total
    numbers = draw(whole, generator=rows.generator)
    return numbers.narrow(dim, times * rows.first, shape[dim])


class Dropout(nn.Module):
    """Dropout with probability p; in training, the remaining elements are scaled up.

    On a CPU torch draws one number an element, which takes a fifth of a training step; here one
    64-bit draw decides about four elements. The expectation is exact: what is kept is scaled by
    the probability that the sixteen bits really have.

    Args:
        p: the probability.
        shared: with "time", a row of x (B, T, H) has one mask for all T (Gal and Ghahramani 2016).
        rows: the dimension of x that its rows are along.
    """

    def __init__(
        self, p: float, shared: Literal["nothing", "time"] = "nothing", rows: int = 0
    ) -> None:
        super().__init__()
        self.p, self.shared, self.rows = p, shared, rows

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply dropout to x, with a given mask from `shared_mask` or a new one."""
        if not self.training or self.p == 0:
            return x
        if self.shared == "time":
            mask = self.shared_mask(x.shape[0], x.shape[2], x) if mask is None else mask
            return apply_mask(x, mask)
        if x.device.type != "cpu" and not draws_for_some_rows():
            return F.dropout(x, self.p)
        return apply_mask(x, scaled_mask(x.shape, self.p, x, self.rows))

    def shared_mask(self, rows: int, width: int, like: Tensor) -> Tensor | None:
        """Draw one mask for all chunks (rows, T, width) of a training call; None if unused."""
        if self.shared == "nothing" or not self.training or self.p == 0:
            return None
        return scaled_mask((rows, 1, width), self.p, like)


class WordDropout(nn.Module):
    """Embedding dropout: zeroes all occurrences of a token with probability p per call.

    This drops rows of the embedding matrix (Gal and Ghahramani 2016; Merity et al. 2018).
    """

    def __init__(self, p: float, vocab_size: int) -> None:
        super().__init__()
        self.p, self.vocab_size = p, vocab_size

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Zero the vectors x (B, T, E) of dropped tokens (B, T)."""
        if not self.training or self.p == 0:
            return x
        return apply_mask(x, scaled_mask((self.vocab_size, 1), self.p, x, None)[tokens])


def apply_mask(x: Tensor, mask: Tensor) -> Tensor:
    """Multiply x by a mask, keeping x's type.

    The product is rounded to bf16, never the scale: that would be off the same way for every
    element.
    """
    return (x * mask).to(x.dtype)


def scaled_mask(shape: Sequence[int], p: float, like: Tensor, rows: int | None = 0) -> Tensor:
    """Draw a mask of zeros with probability p, otherwise 1 / (1 - p), on `like`'s device.

    The type is that of `like`, or float32 if that is wider.

    Args:
        shape: of the mask.
        p: the probability.
        like: what it is for.
        rows: the dimension along which the mask has the batch's rows; None for a mask of weights.
    """
    return keep_mask(shape, p, like, rows).mul_(LEVELS / (LEVELS - _dropped(p)))


def keep_mask(shape: Sequence[int], p: float, like: Tensor, rows: int | None = 0) -> Tensor:
    """Draw a mask of zeros with probability p, otherwise ones; see `scaled_mask`."""
    wide = torch.promote_types(like.dtype, torch.float32)
    if like.device.type != "cpu":

        def draw(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
            ones = torch.empty(*shape, dtype=wide, device=like.device)
            return ones.bernoulli_(1 - _dropped(p) / LEVELS, generator=generator)

        return draw_for_rows(draw, shape, rows)

    def draw_bits(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        """Return sixteen random bits for each element, as a number.

        It is no view of what is drawn: a compiled function that returned one would fail.
        """
        size = torch.Size(shape)
        words = torch.empty(-(-size.numel() // 4), dtype=torch.int64)
        words.random_(-(1 << 63), None, generator=generator)
        return words.view(torch.int16)[: size.numel()].view(size).to(wide)

    bits = draw_for_rows(draw_bits, shape, rows)
    # Values above the threshold survive; clamp turns the comparison into a 0/1 mask without
    # a branch.
    return bits.sub_(_dropped(p) - LEVELS // 2 - 1).clamp_(0, 1)


def _dropped(p: float) -> int:
    """Convert p to the number of 16-bit values that drop an element."""
    return min(round(p * LEVELS), LEVELS - 1)

"""Filters on the next token's distribution: pure functions of history and log-probabilities.

They apply in a fixed order: tokens that are never written (`Forbid`), banned sequences, the minimum
length, forced tokens, the constraint and the filters of plugins (`settings.filters`), the three
penalties, no repeated n-gram, temperature, top-k, top-p, min-p, locally typical. Plugins may add
filters before temperature and at the end. Each takes and returns normalised log-probabilities
(B, V), so each works on the output of the previous one. No filter removes every token: the most
probable one always stays. Only those that plugins add, such as the constraint of a pattern
(`constraint.TextConstraint`), may end a text instead.

They work on NumPy arrays, whatever device the model is on. That gives the same numbers everywhere,
and for small vocabularies a call costs a fraction of torch's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqgen.models.distributions import normalise
from seqgen.settings import require
from seqgen.settings.generation import SampleOptions

if TYPE_CHECKING:
    from seqgen.text.tokenizers import Decoder, Tokenizer

# (history: each row's tokens so far, log_probs (B, V)) -> log_probs (B, V)
Processor = Callable[[Sequence[Sequence[int]], np.ndarray], np.ndarray]

IMPOSSIBLE = -np.inf
# Prompts whose n-grams are remembered, as many as are usually continued side by side.
MOST_PROMPTS = 32
# Of a row's mass, what `Forbid` takes out by a difference.
MOST_TAKEN = 0.5


@dataclass(frozen=True, eq=False)
class PromptOverlap(ABC):
    """End of a prompt at which no token ends: the first token of the text continues it.

    Attributes:
        text: the whole characters there that are decoded with the text, and are no part of it.
        first_token: filter that leaves as the first token only those that may continue the prompt.
    """

    text: str
    first_token: Processor

    @abstractmethod
    def decoder(self, tokenizer: Tokenizer, history: Sequence[int]) -> Decoder:
        """Return a streaming decoder for the tokens after `history`, which leaves `text` out."""


class History(list):
    """Token history of a row: the prompt with its start symbol, then the generated tokens.

    Attributes:
        prompt: how many of them belong to the prompt; in a plain sequence of ids, none.
        place: the numbers of its prompt and sample, which random draws depend on.
        overlap: what the first generated token has in common with the prompt; None for nothing.
        kept: what filters know of the tokens so far, so that a row that grows is read once.
    """

    def __init__(
        self,
        tokens: Sequence[int] = (),
        prompt: int = 0,
        place: tuple[int, int] = (0, 0),
        overlap: PromptOverlap | None = None,
    ) -> None:
        super().__init__(tokens)
        self.prompt, self.place, self.overlap = prompt, place, overlap
        self.kept: dict[object, Any] = {}


def written(tokens: Sequence[int]) -> Sequence[int]:
    """Return the generated tokens of a row, without the prompt."""
    return tokens[getattr(tokens, "prompt", 0) :]


def remove_tokens(log_probs: np.ndarray, removed: np.ndarray) -> np.ndarray:
    """Remove tokens from (B, V) and renormalise; a row that would be empty keeps its argmax.

    Args:
        log_probs: (B, V), normalised.
        removed: (B, V) of bool, the tokens to remove.
    """
    kept = np.where(removed, IMPOSSIBLE, log_probs)
    nothing = kept.max(-1, keepdims=True) == IMPOSSIBLE  # (B, 1)
    if nothing.any():
        kept = np.where(nothing, TopK(1)((), log_probs), kept)
    return normalise(kept)


def normalise_or_end(log_probs: np.ndarray, dead_id: int | None) -> np.ndarray:
    """Renormalise (B, V); an empty row gets the end token `dead_id`, or stays empty for None."""
    empty = np.maximum.reduce(log_probs, -1) == IMPOSSIBLE  # (B,)
    if not empty.any():
        return normalise(log_probs)
    if dead_id is not None:
        log_probs[empty, dead_id] = 0.0
        return normalise(log_probs)
    log_probs[~empty] = normalise(log_probs[~empty])
    return log_probs


def before_and_after(
    processors: Sequence[Processor],
    history: Sequence[Sequence[int]],
    log_probs: np.ndarray,
    outcomes: Processor | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute log-probabilities (B, V) before and after all filters.

    `outcomes` makes one outcome of several tokens first; see `constraint.TextConstraint.outcomes`.
    """
    before = after = log_probs if outcomes is None else outcomes(history, log_probs)
    for processor in processors:
        after = processor(history, after)
    return before, after


class Checked:
    """Base class of filters for one setting of `SampleOptions`; the first field is its value."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        SampleOptions.check(self.name.replace("-", "_"), next(iter(vars(self).values())))


@dataclass(frozen=True)
class Forbid:
    """Never generate these tokens: pad, bos, unk; and EOS for streams, newline for lines."""

    name: ClassVar[str] = "forbidden"
    ids: tuple[int, ...]

    @cached_property
    def distinct(self) -> np.ndarray:
        """Distinct ids as int64."""
        return np.array(sorted(set(self.ids)), dtype=np.int64)  # np.unique loads numpy.ma

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        ids = self.distinct
        of_each = np.exp(log_probs[:, ids], dtype=np.float64)
        taken = np.add.reduce(of_each, -1, keepdims=True)  # (B, 1)
        # What is left is divided by its mass, which takes one pass; where that is little, the
        # difference would be inexact.
        little = taken[:, 0] > MOST_TAKEN
        kept = log_probs - np.log1p(-np.minimum(taken, MOST_TAKEN)).astype(log_probs.dtype)
        kept[:, ids] = IMPOSSIBLE
        if little.any():
            kept[little] = self._exactly(log_probs[little])
        return kept

    def _exactly(self, log_probs: np.ndarray) -> np.ndarray:
        kept = log_probs.copy()
        kept[:, self.ids] = IMPOSSIBLE
        nothing = np.maximum.reduce(kept, -1, keepdims=True) == IMPOSSIBLE  # (B, 1)
        if nothing.any():
            # A count-based model may allow no other token: then all others are equally probable.
            others = np.zeros_like(kept)
            others[:, self.ids] = IMPOSSIBLE
            kept = np.where(nothing, others, kept)
        return normalise(kept)


@dataclass(frozen=True)
class Ban:
    """Never generate these sequences of tokens: removes the token that would complete one.

    A sequence may begin in the prompt and be completed in the text.
    """

    name: ClassVar[str] = "ban"
    sequences: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        require(all(self.sequences), "a banned sequence needs at least one token")

    @cached_property
    def after(self) -> dict[int, dict[tuple[int, ...], list[int]]]:
        """Map the prefixes of banned sequences, by length, to the tokens that complete them."""
        tokens_after: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for *before, last in self.sequences:
            tokens_after.setdefault(len(before), {}).setdefault(tuple(before), []).append(last)
        return tokens_after

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        removed = np.zeros_like(log_probs, dtype=bool)
        for row, tokens in enumerate(history):
            for length, after in self.after.items():
                end = tuple(tokens[-length:]) if length else ()
                removed[row, after.get(end, [])] = True
        return remove_tokens(log_probs, removed)


@dataclass(frozen=True)
class MinTokens(Checked):
    """Prevent a text from ending before `tokens` tokens are generated."""

    name: ClassVar[str] = "min-tokens"
    tokens: int
    ends: Collection[int]

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        removed = np.zeros_like(log_probs, dtype=bool)
        early = np.array([len(written(tokens)) < self.tokens for tokens in history])
        removed[:, sorted(self.ends)] = early[:, None]
        return remove_tokens(log_probs, removed)


@dataclass(frozen=True)
class Force:
    """Force every text to begin with these tokens, whatever their probability."""

    name: ClassVar[str] = "force"
    ids: tuple[int, ...]

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        forced = log_probs.copy()
        for row, tokens in enumerate(history):
            at = len(written(tokens))
            if at < len(self.ids):
                forced[row] = IMPOSSIBLE
                forced[row, self.ids[at]] = 0.0
        return forced


@dataclass(frozen=True)
class RepetitionPenalty(Checked):
    """Multiply the log-probability of every token seen, in prompt or text, by theta.

    Above 1 this makes repetition rarer. Theta is from 0.001 to 1000. Keskar et al. (2019, section
    4.1) divide positive logits by theta and multiply negative ones, so their penalty changes if a
    constant is added to all logits. Log-probabilities are free of that, and never positive.
    """

    name: ClassVar[str] = "repetition-penalty"
    theta: float

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        seen = counts(history, log_probs, of_prompt=True) > 0
        return normalise(np.where(seen, log_probs * self.theta, log_probs))


@dataclass(frozen=True)
class PresenceAndFrequency:
    """Subtract `presence` + count x `frequency` nats from every token written before.

    The prompt does not count. Both penalties are from -1000 to 1000.
    """

    name: ClassVar[str] = "presence-frequency"
    presence: float = 0.0
    frequency: float = 0.0

    def __post_init__(self) -> None:
        SampleOptions.check("presence_penalty", self.presence)
        SampleOptions.check("frequency_penalty", self.frequency)

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        times = counts(history, log_probs, of_prompt=False)  # (B, V)
        return normalise(log_probs - self.presence * (times > 0) - self.frequency * times)


def counts(history: Sequence[Sequence[int]], like: np.ndarray, of_prompt: bool) -> np.ndarray:
    """Count the occurrences of each token in each row, as (B, V) of `like`'s type.

    Args:
        history: the rows.
        like: log-probabilities (B, V).
        of_prompt: count the tokens of the prompts, too.
    """
    size = like.shape[-1]
    return np.stack([_counted(tokens, size, of_prompt) for tokens in history]).astype(like.dtype)


def _counted(tokens: Sequence[int], size: int, of_prompt: bool) -> np.ndarray:
    kept, key = getattr(tokens, "kept", {}), (_counted, of_prompt)
    read, times = kept.get(key, (0, None))
    if times is None:
        times = np.bincount((tokens if of_prompt else written(tokens)) or [], minlength=size)
    else:
        for token in tokens[read:]:
            times[token] += 1
    kept[key] = len(tokens), times
    return times


class NgramIndex:
    """Index from `context` tokens to the tokens that followed them in a growing row.

    These are known by a hash that moves along the row (Karp and Rabin 1987), so that a token takes
    the same time after any number of others and for any length. Of 32,768 tokens, two different
    contexts have equal hashes with a probability below 1e-5.

    Args:
        context: n - 1.
        base: of the tokens that the row begins with; not changed.
    """

    MODULUS, FACTOR = (1 << 61) - 1, 0x1D3F_84A5_B7C6_9E21

    def __init__(self, context: int, base: NgramIndex | None = None) -> None:
        self.context, self._base = context, base
        self._leaving = pow(self.FACTOR, context, self.MODULUS)
        self._read, self._hash = (0, 0) if base is None else (base._read, base._hash)
        self._after: dict[int, int | set[int]] = {}  # most are followed by one token

    def read(self, tokens: Sequence[int]) -> None:
        """Add a row's new tokens to the index."""
        for at in range(self._read, len(tokens)):
            token = int(tokens[at])
            moved = self._hash * self.FACTOR + token + 1
            if at >= self.context:
                known = self._after.setdefault(self._hash, token)
                if isinstance(known, set):
                    known.add(token)
                elif known != token:
                    self._after[self._hash] = {known, token}
                moved -= (int(tokens[at - self.context]) + 1) * self._leaving
            self._hash = moved % self.MODULUS
        self._read = len(tokens)

    def following(self) -> set[int]:
        """Find the tokens that have followed the row's last `context` tokens."""
        return self._found(self._hash)

    def _found(self, key: int) -> set[int]:
        followers = self._after.get(key, set())
        followers = followers if isinstance(followers, set) else {followers}
        return followers if self._base is None else followers | self._base._found(key)


@dataclass(frozen=True)
class NoRepeatNgram(Checked):
    """Prevent n-grams from repeating in prompt and text (Paulus et al. 2018, 2.5)."""

    name: ClassVar[str] = "no-repeat-ngram"
    n: int

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        removed = np.zeros_like(log_probs, dtype=bool)
        for row, tokens in enumerate(history):
            removed[row, list(self.repeated(tokens))] = True
        return remove_tokens(log_probs, removed)

    def repeated(self, tokens: Sequence[int]) -> set[int]:
        """Find the tokens that would repeat an n-gram."""
        kept = getattr(tokens, "kept", {})
        index = kept.get(self)
        if index is None:
            prompt = tuple(tokens[: getattr(tokens, "prompt", 0)])
            index = kept[self] = NgramIndex(self.n - 1, self._of_prompt(prompt))
        index.read(tokens)
        return index.following()

    @cached_property
    def _prompts(self) -> dict[tuple[int, ...], NgramIndex]:
        return {}

    def _of_prompt(self, prompt: tuple[int, ...]) -> NgramIndex:
        """Index a prompt once for all texts that continue it."""
        index = self._prompts.pop(prompt, None)
        if index is None:
            index = NgramIndex(self.n - 1)
            index.read(prompt)
        self._prompts[prompt] = index
        if len(self._prompts) > MOST_PROMPTS:
            del self._prompts[next(iter(self._prompts))]
        return index


@dataclass(frozen=True)
class Temperature(Checked):
    """Divide log-probabilities by T: below 1 sharper, above 1 flatter. 0 is the argmax."""

    name: ClassVar[str] = "temperature"
    temperature: float

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        if self.temperature == 0:
            return TopK(1)(history, log_probs)
        # The maximum is subtracted first, and the divisor and its inverse must fit float32. Else a
        # whole row may become -inf, or -inf / inf a NaN.
        below = log_probs - log_probs.max(-1, keepdims=True)
        with np.errstate(over="ignore"):  # too small for float32: -inf
            return normalise(below / min(max(self.temperature, 1e-37), 1e37))


@dataclass(frozen=True)
class TopK(Checked):
    """Keep exactly the k most probable tokens; among equals, those with smaller ids."""

    name: ClassVar[str] = "top-k"
    k: int

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        if self.k >= log_probs.shape[-1]:
            return log_probs
        least = np.partition(log_probs, -self.k, axis=-1)[:, -self.k, None]  # (B, 1)
        above, equal = log_probs > least, log_probs == least
        room = self.k - np.count_nonzero(above, axis=-1, keepdims=True)  # (B, 1)
        kept = above | (equal & (equal.cumsum(-1) <= room))
        return normalise(np.where(kept, log_probs, IMPOSSIBLE))


def likeliest(log_probs: np.ndarray) -> np.ndarray:
    """Sort the tokens of (..., V) by probability, descending; ties by smaller id."""
    return np.argsort(-log_probs, axis=-1, kind="stable")


def likeliest_up_to(mass: float, log_probs: np.ndarray) -> np.ndarray:
    """Take the first columns of `likeliest`, (B, K), until every row holds at least `mass`.

    This avoids sorting a large vocabulary for the sake of a few probable tokens.
    """
    for width in (256, 2048):
        if 4 * width > log_probs.shape[-1]:
            break
        # A partition picks arbitrarily among equals, so values equal to the smallest do not count.
        ids = np.sort(np.argpartition(log_probs, -width, axis=-1)[:, -width:], axis=-1)
        values = np.take_along_axis(log_probs, ids, -1)
        sure = values > values.min(-1, keepdims=True)
        if (np.exp(values, dtype=np.float64).sum(-1, where=sure) >= mass).all():
            return np.take_along_axis(ids, likeliest(values), -1)
    return likeliest(log_probs)


@dataclass(frozen=True)
class TopP(Checked):
    """Keep the fewest most probable tokens whose total reaches p (Holtzman et al. 2020).

    A token stays if the total of all more probable tokens is below p.
    """

    name: ClassVar[str] = "top-p"
    p: float

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        if self.p == 1:
            return log_probs
        order = likeliest_up_to(self.p, log_probs)
        mass = np.exp(np.take_along_axis(log_probs, order, -1), dtype=np.float64)
        removed = mass.cumsum(-1) - mass >= self.p  # (B, K), in order
        removed[:, 0] = False
        return remove_tokens(log_probs, _by_token(order, removed, log_probs))


def _by_token(order: np.ndarray, removed: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Scatter the mask `removed` (B, K) over sorted tokens to token ids (B, V); others are True."""
    of_all = np.ones_like(like, dtype=bool)
    np.put_along_axis(of_all, order, removed, -1)
    return of_all


@dataclass(frozen=True)
class MinP(Checked):
    """Keep tokens at least p times as probable as the most probable (Nguyen et al. 2024)."""

    name: ClassVar[str] = "min-p"
    p: float

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        probs = np.exp(log_probs, dtype=np.float64)
        return remove_tokens(log_probs, probs < self.p * probs.max(-1, keepdims=True))


@dataclass(frozen=True)
class Typical(Checked):
    """Keep the tokens whose surprisal is nearest to the entropy (Meister et al. 2023).

    Tokens are ordered by | -log p(v) - H |, then by id. A token stays if the total of those before
    it is below `mass`.
    """

    name: ClassVar[str] = "typical"
    mass: float

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        if self.mass == 1:
            return log_probs
        probs = np.exp(log_probs, dtype=np.float64)
        surprisal = -log_probs.astype(np.float64)
        nats = np.multiply(probs, surprisal, out=np.zeros_like(probs), where=probs > 0)
        distance = np.abs(surprisal - nats.sum(-1, keepdims=True))  # (B, V)
        order = np.argsort(distance, axis=-1, kind="stable")
        ordered = np.take_along_axis(probs, order, -1)
        return remove_tokens(
            log_probs, _by_token(order, ordered.cumsum(-1) - ordered >= self.mass, probs)
        )

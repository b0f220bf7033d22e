"""Base class of samplers and searchers: filters and end conditions that the options request."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from seqgen.generation.backward import BackwardContinuation
from seqgen.generation.continuation import DEAD_END, Continuation
from seqgen.generation.processors import Forbid, Force, MinTokens, Processor, PromptOverlap
from seqgen.generation.prompts import Prompt, first_unknown
from seqgen.generation.text_batch import Row
from seqgen.generation.token_bytes import end_and_dead_end
from seqgen.settings import require

if TYPE_CHECKING:
    from seqgen.generation.constraint import TextConstraint
    from seqgen.settings.generation import WritingOptions
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.tokenizers import Decoder


class cached_property_without_lock(cached_property):  # noqa: N801
    """`cached_property` without the class-wide lock of Python before 3.12.

    A constraint that one request prepares would hold up the texts of all others.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__(function)
        self.lock = contextlib.nullcontext()


@dataclass(frozen=True)
class Generator:
    """Base class of samplers and searchers: a loaded model with its options and filters.

    Attributes:
        loaded: the model.
        options: what is asked.
        dead_ends: a token ends a text that cannot go on; otherwise no token is left to it.
    """

    loaded: LoadedModel
    options: WritingOptions
    dead_ends: ClassVar[bool] = True

    @property
    def dead_id(self) -> int | None:
        """Token that ends a text at a dead end, or None to leave no token possible."""
        return end_and_dead_end(self.loaded.tokenizer)[1] if self.dead_ends else None

    @cached_property_without_lock
    def constraint(self) -> TextConstraint | None:
        """Constraint on the form of texts (pattern, grammar), or None."""
        made = (filters.constraint(self) for filters in self.options.added_filters)
        return next((one for one in made if one is not None), None)

    @cached_property_without_lock
    def reasons(self) -> Mapping[int, str]:
        """Reasons for which texts finish, by end token."""
        form = self.constraint
        reasons = dict.fromkeys(self.loaded.framing.stops, "eos") if form is None else form.reasons
        dead = self.dead_ends and self.added_filters
        return {**reasons, self.dead_id: DEAD_END} if dead else reasons

    def open(self, decoder: Decoder, limit: int | None = None) -> Continuation:
        """Start an empty text of at most `limit` tokens, in the model's direction."""
        kind = BackwardContinuation if self.loaded.backward else Continuation
        options = self.options
        most = options.max_tokens if limit is None else limit
        return kind(decoder, options.stop, most, self.reasons, options.min_tokens)

    @property
    def outcomes(self) -> Processor | None:
        """Constraint's function that merges end tokens, or None without a constraint."""
        return None if self.constraint is None else self.constraint.outcomes

    @cached_property_without_lock
    def added_filters(self) -> list[Processor]:
        """Filters of plugins that the options request."""
        return [made for filters in self.options.added_filters for made in filters.filters(self)]

    @property
    def possible(self) -> Forbid:
        """Filter that removes tokens that are never generated."""
        copies, loaded = self.options.of_source.copy_unknown, self.loaded
        unknown = loaded.tokenizer.unk_id if copies else None
        never = tuple(token for token in loaded.never if token != unknown)
        return Forbid(never if self.constraint is None else self.constraint.never)

    @property
    def formed(self) -> list[Processor]:
        """Filters for the minimum length, the forced beginning and the constraint.

        Raises:
            UsageError: the model does not know what every text is to begin with, or no text of the
                form begins with it.
        """
        options, loaded, form = self.options, self.loaded, self.constraint
        ends, processors = loaded.framing.stops, []
        if options.min_tokens and ends:
            processors.append(MinTokens(options.min_tokens, ends))
        if force := options.force:
            unknown = first_unknown(loaded, force)
            require(unknown is None, f"--force: the model does not know {unknown and unknown[0]!r}")
            ids = loaded.ids(force)
            said = f"--force: no text of the form that is asked for begins with {force!r}"
            require(form is None or form.can_begin(ids), said)
            processors.append(Force(ids))
        return processors if form is None else [*processors, form]

    def filters_for(self, overlaps: Iterable[PromptOverlap | None]) -> list[Processor]:
        """List the filters for some texts: those of their first tokens, then all others."""
        first = dict.fromkeys(one.first_token for one in overlaps if one is not None)
        return [*first, *self.processors]

    def prepare_prompts(self, batches: Iterable[list[Prompt]]) -> Iterator[list[Prompt]]:
        """Yield batches of prompts as the options of plugins change them."""
        for batch in batches:
            for filters in self.options.added_filters:
                batch = [filters.prompt(self, prompt) for prompt in batch]
            yield batch

    def row(self, prompt: Prompt, handle: int, sample: int = 0) -> Row:
        """Describe one of the texts to generate after a prompt, or all of a beam search."""
        limit = self.limit(prompt)
        return Row(prompt.index, sample, prompt.tokens, handle, limit, prompt.overlap)

    def limit(self, prompt: Prompt) -> int:
        """Compute the maximum number of tokens of a text."""
        return self.options.of_source.limit(prompt.places, self.options.max_tokens)

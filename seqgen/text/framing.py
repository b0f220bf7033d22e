"""Framing of texts: the tokens at their start and end, and tokens that are never generated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Framing:
    """The ids that start and end a document.

    A document is a sequence of scored tokens. The model reads `start` (never scored) before the
    first of them; where `end` is set, it is the last of them.

    Attributes:
        start: what stands before a document. An empty prompt is this token alone.
        end: what a scored document ends with; None for a stream.
        stop: what ends a text that the model writes; None if only its length does.
        never: what the model never writes.
        starts_prompts: whether a prompt that is not empty comes after `start`, too.
        also_stop: what ends a text that the model writes besides `stop`.
    """

    start: int
    end: int | None
    stop: int | None
    never: tuple[int, ...] = ()
    starts_prompts: bool = True
    also_stop: tuple[int, ...] = ()

    @property
    def stops(self) -> tuple[int, ...]:
        """All ids that end a generated text."""
        return (*(() if self.stop is None else (self.stop,)), *self.also_stop)

    @classmethod
    def of(cls, tokenizer: Tokenizer, documents: Documents) -> Framing:
        """Return the framing of a model trained on a stream or on one document per line.

        A stream starts after a newline that is not shown, and has no end; a line is
        BOS line EOS. Where a newline may be part of a longer token, a stream starts after BOS.

        Raises:
            SeqgenError: the tokenizer, which is from elsewhere, has no token that ends a line.
        """
        line = documents == "line"
        start = tokenizer.newline_id if tokenizer.line_safe and not line else tokenizer.bos_id
        if line and tokenizer.eos_id is None:
            raise SeqgenError(
                "no token of the tokenizer ends a line: name one in its files (eos_token), or use "
                "--documents stream"
            )
        if line and tokenizer.eos_id == tokenizer.unk_id and not tokenizer.complete:
            raise SeqgenError(
                "the tokenizer ends texts with its token of unknown words, so each of these would "
                "end a line: name another eos_token in its files, or use --documents stream"
            )
        end = tokenizer.eos_id if line else None
        never = [tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id]
        # A stream has no end; a line, which ends with EOS, holds no newline.
        never.append(tokenizer.eos_id if end is None else tokenizer.newline_id)
        return cls(start, end, end, tuple(i for i in never if i not in (None, end)))

    @classmethod
    def of_new_model(cls, tokenizer: Tokenizer, documents: Documents) -> Framing:
        """Return the framing of a model about to be trained; see `of`.

        Raises:
            SeqgenError: see `of`; or no token can begin its texts.
        """
        framing = cls.of(tokenizer, documents)
        if framing.start is None:
            raise SeqgenError(
                "no token of the tokenizer begins texts: name one in its files (bos_token)"
            )
        return framing

    def as_documents(
        self, tokenizer: Tokenizer, trained_as: Documents, read_as: Documents
    ) -> Framing:
        """Convert the framing to another way of reading texts, by line or as a stream.

        A line under a model of a stream starts as a stream does. It ends with what the model
        ends its texts with, or with a newline if nothing does.

        Args:
            tokenizer: the model's.
            trained_as: how texts were read in training.
            read_as: how they are read now.

        Raises:
            SeqgenError: no token of the model ends a line.
        """
        if trained_as == read_as:
            return self
        if read_as == "stream":
            return Framing.of(tokenizer, "stream")
        end = tokenizer.newline_id if self.stop is None else self.stop
        if end is None:
            raise SeqgenError("the model has no token that ends a line; use --documents stream")
        return replace(self, end=end, stop=end)

    def opened(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Prepend the ids that start a text to those of a prompt."""
        ids = tuple(ids)
        return (self.start, *ids) if self.starts_prompts or not ids else ids

    def to_dict(self) -> dict[str, Any]:
        """Convert the framing to a table for JSON."""
        table = {**asdict(self), "never": list(self.never), "also_stop": list(self.also_stop)}
        if not self.also_stop:  # earlier versions read only what they know
            del table["also_stop"]
        return table

    @classmethod
    def read(cls, table: Any, vocab_size: int) -> Framing:
        """Read a stored framing; the inverse of `to_dict`.

        Args:
            table: what is stored.
            vocab_size: all ids are smaller.

        Raises:
            ValueError: it is something else, or names a token that there is not.
        """
        names = {"start", "end", "stop", "never", "starts_prompts"}
        if not isinstance(table, dict) or table.keys() - {"also_stop"} != names:
            raise ValueError("framing is not a table of start, end, stop, never and starts_prompts")
        never, also, flag = table["never"], table.get("also_stop", []), table["starts_prompts"]
        if not (isinstance(never, list) and isinstance(also, list) and type(flag) is bool):
            raise ValueError("never or also_stop is not a list, or starts_prompts no true or false")
        optional = [table[name] for name in ("end", "stop") if table[name] is not None]
        for token in (table["start"], *optional, *never, *also):
            if type(token) is not int or not 0 <= token < vocab_size:
                raise ValueError(f"framing names the token {str(token)[:40]}, which does not exist")
        ends = table["end"], table["stop"]
        return cls(table["start"], *ends, tuple(never), flag, tuple(also))

"""The tokenizer of a Hugging Face folder, and how it begins and ends texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.configs import short
from seqgen.data.framing import Framing
from seqgen.errors import SeqgenError
from seqgen.formats.hf_weights import read_table
from seqgen.tokenizers import read_facts
from seqgen.tokenizers.from_elsewhere import (
    HuggingFaceTokenizer,
    TokenizerFromElsewhere,
    WholeSentencepieceTokenizer,
)

# No vocabulary comes near this.
LARGEST = 1 << 28
SPECIAL = ("bos", "eos", "pad")


@dataclass(frozen=True)
class Ends:
    """What a folder's tables say of the tokens that begin and end texts.

    Attributes:
        table: `tokenizer_config.json`.
        ids: by name (bos, eos, pad) what the model's own configuration has.
        never: what it says is never to be written (`suppress_tokens`).
    """

    table: dict[str, Any]
    ids: dict[str, Any]
    never: list[Any]

    @classmethod
    def of(cls, folder: Path) -> Ends:
        """Read a folder's tables; those that are missing say nothing.

        Raises:
            SeqgenError: one is damaged.
        """
        named = _table(folder / "special_tokens_map.json")
        table = {**named, **_table(folder / "tokenizer_config.json")}
        config = {**_table(folder / "config.json"), **_table(folder / "generation_config.json")}
        never = config.get("suppress_tokens")
        ids = {name: config.get(f"{name}_token_id") for name in SPECIAL}
        return cls(table, ids, never if isinstance(never, list) else [])

    def name(self, which: str) -> str | None:
        """Return what the tokenizer calls a special token."""
        named = self.table.get(f"{which}_token")
        named = named.get("content") if isinstance(named, dict) else named
        return named if isinstance(named, str) else None

    def id_of(self, which: str, tokenizer_id: int | None, vocab_size: int) -> int | None:
        """Return the id of a special token: the model's, else the tokenizer's.

        A model may end texts with several; the first is that of the tokenizer, if it is among
        them. See `others`.

        Args:
            which: "bos", "eos" or "pad".
            tokenizer_id: the tokenizer's.
            vocab_size: ids are smaller.

        Raises:
            SeqgenError: there is no such token.
        """
        token = self.ids[which]
        if isinstance(token, list) and token:
            token = tokenizer_id if tokenizer_id in token else token[0]
        if token is None:
            return tokenizer_id
        if type(token) is not int or not -1 <= token < vocab_size:
            raise SeqgenError(f"{which}_token_id is {short(repr(token))}, which there is not")
        return None if token < 0 else token

    def other_stops(self, stop: int | None, vocab_size: int) -> tuple[int, ...]:
        """Return the tokens that end texts besides `stop`.

        Raises:
            SeqgenError: there is no such token.
        """
        tokens = self.ids["eos"]
        if not isinstance(tokens, list):
            return ()
        for token in tokens:
            if type(token) is not int or not 0 <= token < vocab_size:
                raise SeqgenError(f"eos_token_id has {short(repr(token))}, which there is not")
        return tuple(dict.fromkeys(token for token in tokens if token != stop))


def _table(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    table = read_table(path)
    if not isinstance(table, dict):
        raise SeqgenError(f"{path} holds no table")
    return table


def read(folder: Path, vocab_size: int | None = None) -> tuple[TokenizerFromElsewhere, Framing]:
    """Read the tokenizer of a folder.

    Args:
        folder: with `tokenizer.json` or `tokenizer.model`.
        vocab_size: the tokens of the model; None where there is no model.

    Returns:
        The tokenizer, and how a model with it begins and ends its texts.

    Raises:
        SeqgenError: there is none, or it is damaged, or it is not understood.
    """
    ends = Ends.of(folder)
    path = folder / "tokenizer.json"
    try:
        if path.is_file():
            tokenizer = HuggingFaceTokenizer(_content(path), vocab_size)
            _name_special(tokenizer, ends)
            before, after = _frame(tokenizer, ends)
        else:
            path = folder / "tokenizer.model"
            if not path.is_file():
                raise SeqgenError(
                    f"{folder} has no tokenizer.json and no tokenizer.model; write one: "
                    "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) in transformers"
                )
            tokenizer = WholeSentencepieceTokenizer(_content(path), vocab_size)
            begins = ends.table.get("add_bos_token", True) and tokenizer.bos_id is not None
            before, after = [tokenizer.bos_id] if begins else [], []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SeqgenError(f"{path} is damaged: {error}") from None
    if after or len(before) > 1:
        pieces = " ".join(tokenizer.pieces([*before, *after]))
        raise SeqgenError(f"{path} puts {pieces} around every text, which seqgen does not do")
    return tokenizer, _framing(tokenizer, ends, before, path)


def is_folder(folder: Path) -> bool:
    """Return whether a folder has a `tokenizer.json` of Hugging Face, and not one of seqgen."""
    try:
        return "kind" not in read_facts(folder)
    except (OSError, ValueError):
        return False


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise SeqgenError(f"{path} is larger than any tokenizer: {path.stat().st_size:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise SeqgenError(f"{path} cannot be read: {error.strerror or error}") from None


def _name_special(tokenizer: HuggingFaceTokenizer, ends: Ends) -> None:
    """Set the special ids that the tables name."""
    for which in SPECIAL:
        name = ends.name(which)
        if name is not None:
            setattr(tokenizer, f"{which}_id", tokenizer.id_of(name))


def _frame(tokenizer: HuggingFaceTokenizer, ends: Ends) -> tuple[list[int], list[int]]:
    """Return the ids that are put before and after every text.

    As in transformers, `add_bos_token` and `add_eos_token` go before what tokenizer.json says.
    """
    flags = [ends.table.get(f"add_{which}_token") for which in ("bos", "eos")]
    if flags == [None, None]:
        return tokenizer.frame()
    ids = tokenizer.bos_id, tokenizer.eos_id
    both = zip(flags, ids, strict=True)
    before, after = ([token] if flag and token is not None else [] for flag, token in both)
    return before, after


def _framing(
    tokenizer: TokenizerFromElsewhere, ends: Ends, before: list[int], path: Path
) -> Framing:
    """Return how texts begin and end, and give the tokenizer the same special ids."""
    size = tokenizer.vocab_size
    stop = ends.id_of("eos", tokenizer.eos_id, size)
    start = before[0] if before else ends.id_of("bos", tokenizer.bos_id, size)
    start = stop if start is None else start
    if start is None:
        raise SeqgenError(f"{path}: no token begins texts (bos_token), and none ends them")
    tokenizer.bos_id, tokenizer.eos_id = start, stop
    never = tuple(token for token in ends.never if type(token) is int and 0 <= token < size)
    others = ends.other_stops(stop, size)
    return Framing(start, None, stop, never, bool(before), others)

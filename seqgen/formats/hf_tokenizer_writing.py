"""Tokenizers as Hugging Face's `tokenizer.json`, which gives the same ids as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqgen.data.framing import Framing
from seqgen.errors import SeqgenError
from seqgen.files import json_bytes, parse_json
from seqgen.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer
from seqgen.tokenizers.base import SPECIALS
from seqgen.tokenizers.byte_level import BYTE_OF
from seqgen.tokenizers.from_elsewhere import HuggingFaceTokenizer

# Any one character. In the library's expressions a dot leaves out the newline.
ANY_CHARACTER = "[\\s\\S]"


def files_of(
    tokenizer: Tokenizer, framing: Framing, name: str, source: bool = False
) -> dict[str, bytes]:
    """Return the files of a tokenizer, by name.

    Args:
        tokenizer: of characters or bytes, or one that came from a `tokenizer.json`.
        framing: how the model's texts begin and end.
        name: what messages call the model.
        source: what stands around a text is what stands around a source of an encoder-decoder.

    Raises:
        SeqgenError: a `tokenizer.json` cannot hold this kind.
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        table = parse_json(tokenizer.content)
        special = {which: tokenizer.name_of(i) for which, i in _special(tokenizer) if i is not None}
        if not source and _begins(tokenizer) != framing.starts_prompts:
            start = (tokenizer.name_of(framing.start), framing.start)
            table["post_processor"] = _template(start if framing.starts_prompts else None)
    elif isinstance(tokenizer, ByteTokenizer | CharTokenizer):
        names = _names(tokenizer)
        table = _table(tokenizer, names)
        start, end = framing.start, tokenizer.eos_id
        around = (None, (names[end], end)) if source else ((names[start], start), None)
        table["post_processor"] = _template(*around)
        special = {
            which: SPECIALS[token]
            for which, token in _special(tokenizer)
            if which != "bos" or token == framing.start
        }
    else:
        raise SeqgenError(
            f"{name} has a tokenizer of kind {tokenizer.kind}, which tokenizer.json cannot hold as "
            "it is; char, byte and huggingface can be written"
        )
    about = {f"{which}_token": text for which, text in special.items()}
    about |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return {"tokenizer.json": json_bytes(table), "tokenizer_config.json": json_bytes(about)}


def _special(tokenizer: Tokenizer) -> list[tuple[str, int | None]]:
    return [(which, getattr(tokenizer, f"{which}_id")) for which in ("pad", "bos", "eos", "unk")]


def _begins(tokenizer: HuggingFaceTokenizer) -> bool:
    """Return whether the file itself puts something before every text."""
    before, _ = tokenizer.frame()
    return bool(before)


def _template(
    start: tuple[str, int] | None, end: tuple[str, int] | None = None
) -> dict[str, Any] | None:
    """Return what puts tokens, named and numbered, before and after every text; None for none."""
    known = dict(token for token in (start, end) if token is not None)
    if not known:
        return None
    begin, close = (
        [] if token is None else [{"SpecialToken": {"id": token[0], "type_id": 0}}]
        for token in (start, end)
    )
    text, other = ({"Sequence": {"id": side, "type_id": 0}} for side in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [*begin, text, *close],
        "pair": [*begin, text, other, *close],
        "special_tokens": {
            name: {"id": name, "ids": [token], "tokens": [name]} for name, token in known.items()
        },
    }


def _names(tokenizer: ByteTokenizer | CharTokenizer) -> list[str]:
    """Return what each id is called in the file."""
    if isinstance(tokenizer, CharTokenizer):
        return [*SPECIALS, *tokenizer.alphabet]
    names = {byte: character for character, byte in BYTE_OF.items()}
    return [*SPECIALS, *(names[byte] for byte in range(256))]


def _table(tokenizer: ByteTokenizer | CharTokenizer, names: list[str]) -> dict[str, Any]:
    """Return a tokenizer.json without what puts tokens before a text."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": name, **plain, "special": True} for i, name in enumerate(SPECIALS)
    ]
    vocabulary = {name: i for i, name in enumerate(names)}
    shared = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    parts = _of_bytes if isinstance(tokenizer, ByteTokenizer) else _of_characters
    return {**shared, "normalizer": None, **parts(vocabulary)}


def _of_bytes(vocabulary: Mapping[str, int]) -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = True
    return {
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def _of_characters(vocabulary: Mapping[str, int]) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": ANY_CHARACTER}}
    return {
        "pre_tokenizer": {**split, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": SPECIALS[-1]},
    }

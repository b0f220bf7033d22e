"""Byte-level vocabularies: what their characters stand for, and how texts are cut for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from seqgen.limits import require_short

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SIGNS, SPACES = r" ?[^\s\p{L}\p{N}]+", r"\s*[\r\n]+|\s+(?!\S)|\s+"
# How a text is split before bytes are merged, by the names that GGUF files give it (`pre`).
PATTERNS = {
    "qwen2": rf"{CONTRACTIONS}|{BEFORE}\p{{L}}+|\p{{N}}|{SIGNS}[\r\n]*|{SPACES}",
    "llama-bpe": rf"{CONTRACTIONS}|{BEFORE}\p{{L}}+|\p{{N}}{{1,3}}|{SIGNS}[\r\n]*|{SPACES}",
    "tekken": rf"{BEFORE}{UPPER}*{LOWER}+|{BEFORE}{UPPER}+{LOWER}*|\p{{N}}|"
    rf"{SIGNS}[\r\n/]*|{SPACES}",
}
_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_GPT2 = {**_LEVEL, "use_regex": True}
# The steps of a `tokenizer.json` that split so. GPT-2's own pattern is part of ByteLevel.
SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_GPT2],
    "smollm": [{"type": "Digits", "individual_digits": True}, _GPT2],
} | {
    name: [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
        {**_LEVEL, "use_regex": False},
    ]
    for name, regex in PATTERNS.items()
}
# A word ends and one of Latin letters begins, after one space: all of the patterns cut there.
_BETWEEN_WORDS = re.compile("[A-Za-z](?= [A-Za-z])")
BLOCK = 1 << 20


def _byte_names() -> dict[str, int]:
    """Return the byte that each character stands for in byte-level vocabularies, as in GPT-2.

    Bytes that are printable characters of Latin-1 stand for themselves, the others for the
    characters from U+0100 on (Radford et al. 2019).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_names()


def name_of_split(steps: Any) -> str | None:
    """Return the name of how a `tokenizer.json` splits a text; None if `SPLITS` lacks it.

    Args:
        steps: its `pre_tokenizer`.
    """
    steps = steps.get("pretokenizers", [steps]) if isinstance(steps, dict) else []
    found = [_without_defaults(step) for step in steps]
    known = ((name, list(map(_without_defaults, split))) for name, split in SPLITS.items())
    return next((name for name, split in known if split == found), None)


def _without_defaults(step: dict[str, Any]) -> dict[str, Any]:
    """Return what decides how a step splits; offsets do not."""
    defaults = {"use_regex": True} if step.get("type") == "ByteLevel" else {}
    return defaults | {key: value for key, value in step.items() if key != "trim_offsets"}


def can_be_cut(table: Mapping[str, Any]) -> bool:
    """Return whether the tokens of a `tokenizer.json` never cross what `blocks` cuts at."""
    normal = table.get("normalizer")
    plain = normal is None or normal.get("type") == "NFC"
    added = table.get("added_tokens") or []
    whole = all(
        " " not in token["content"] and not token["lstrip"] and not token["rstrip"]
        for token in added
    )
    level = table["model"].get("type") == "BPE"
    return plain and whole and level and name_of_split(table.get("pre_tokenizer")) is not None


def blocks(chunks: Iterable[str], size: int = BLOCK) -> Iterator[str]:
    """Cut a text anew, between two words, into pieces of about `size` characters.

    Their ids, joined, are those of the whole text; see `can_be_cut`.
    """
    held, search_from = "", 2 * size
    for chunk in chunks:
        held += chunk
        while len(held) > search_from:
            cut = _BETWEEN_WORDS.search(held, size)
            if cut is None:
                require_short(held, "the text: what no space between two words divides")
                # It is searched again when there is twice as much of it.
                search_from = 2 * len(held)
                break
            yield held[: cut.end()]
            held, search_from = held[cut.end() :], 2 * size
    yield held

"""Byte-level vocabularies: what their characters stand for, and how texts are cut for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# How a text is cut before bytes are merged, by the names of GGUF files; None is GPT-2's way.
PATTERNS = {
    "gpt-2": None,
    "qwen2": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}",
    "llama-bpe": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}",
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


def named_pattern(cut: Any) -> str | None:
    """Return the name of how a `tokenizer.json` cuts a text; None if it has none in `PATTERNS`.

    Args:
        cut: its `pre_tokenizer`.
    """
    steps = cut.get("pretokenizers", [cut]) if isinstance(cut, dict) else []
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        usual = steps[0].get("use_regex", True) and not steps[0].get("add_prefix_space")
        return "gpt-2" if usual else None
    if kinds != ["Split", "ByteLevel"] or steps[1].get("use_regex", True):
        return None
    pattern = steps[0].get("pattern", {}).get("Regex")
    isolated = steps[0].get("behavior") == "Isolated" and not steps[0].get("invert")
    names = {known: name for name, known in PATTERNS.items() if known is not None}
    return names.get(pattern) if isolated else None


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
    return plain and whole and level and named_pattern(table.get("pre_tokenizer")) is not None


def blocks(chunks: Iterable[str], size: int = BLOCK) -> Iterator[str]:
    """Cut a text anew, between two words, into pieces of about `size` characters.

    Their ids, joined, are those of the whole text; see `can_be_cut`.
    """
    held = ""
    for chunk in chunks:
        held += chunk
        while len(held) > 2 * size:
            cut = _BETWEEN_WORDS.search(held, size)
            if cut is None:
                break
            yield held[: cut.end()]
            held = held[cut.end() :]
    yield held

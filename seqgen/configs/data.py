"""How text is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from seqgen.configs.settings import MOST_SEED, MOST_TOKENS, Config, setting

Documents = Literal["stream", "line"]
DOCUMENTS: tuple[str, ...] = get_args(Documents)


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """How text becomes tokens, and which part of it is held out."""

    tokenizer: str = setting(
        "char, byte, word, whitespace, bpe or unigram; or a tokenizer's file or folder", "char"
    )
    vocab_size: int | None = setting(
        "keep only the most frequent N tokens", None, low=1, high=MOST_TOKENS
    )
    min_count: int = setting("keep only what occurs so often in the text", 1, low=1, high=MOST_SEED)
    subword_sampling: float | None = setting(
        "cut training text anew every epoch, by chance: alpha of unigram, dropout of bpe",
        None,
        above=0,
        high=1,
    )
    documents: Documents = setting("one stream of text, or one document a line", "stream")
    val: str = setting("held-out part: a file, a share such as 0.05, or none", "0.1")
    split_seed: int = setting(
        "draws the held-out lines of --documents line", 0, low=0, high=MOST_SEED
    )
    newlines: Literal["keep", "lf"] = setting("keep CRLF as it is, or make it LF", "keep")

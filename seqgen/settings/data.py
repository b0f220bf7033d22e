"""Settings of the data: tokenizer, documents and held-out part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from seqgen.settings import ranges
from seqgen.settings.options import Panel
from seqgen.settings.setting import MOST_SEED, Config, OptionRule, setting

Documents = Literal["stream", "line"]
DOCUMENTS: tuple[str, ...] = get_args(Documents)
Direction = Literal["forward", "backward"]
LossOn = Literal["answers", "all"]
# How the names of files of vectors end.
VECTOR_FILES = (".npy", ".safetensors")
HELD_OUT_SIDES = "--val-source and --val-target go together"


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """Settings of tokenization and of the validation split."""

    tokenizer: str = setting(
        "What a token is: char, byte, word, whitespace, uncased, bpe, unigram or wordpiece; or "
        "the file or folder of a tokenizer, such as a tokenizer.json.",
        "char",
        metavar="KIND",
        reads="file",
        completes="tokenizers",
        panel=Panel.TEXT,
        common=True,
    )
    source_tokenizer: str | None = setting(
        "For pairs: tokenizer of the sources; by default sources and targets share one.",
        metavar="KIND",
        reads="file",
        completes="tokenizers",
        panel=Panel.PAIRS,
    )
    vocab_size: int | None = setting(
        "Keep only the N most frequent tokens. For bpe, unigram and wordpiece: number of tokens "
        "to learn.",
        bounds=ranges.TOKENS,
        panel=Panel.TEXT,
        common=True,
    )
    min_count: int = setting(
        "Keep only tokens that occur at least this often in the training text.",
        1,
        low=1,
        high=MOST_SEED,
    )
    subword_sampling: float | None = setting(
        "Segment the training text differently, at random, in every epoch: alpha of unigram, "
        "dropout of bpe.",
        bounds=ranges.POSITIVE_SHARES,
    )
    documents: Documents = setting(
        "Treat the text as one continuous stream, or each line as a separate document.",
        "stream",
        panel=Panel.TEXT,
        common=True,
    )
    direction: Direction = setting(
        "Learn to write from left to right (forward), or from right to left (backward): a prompt "
        "is then the end of the text.",
        "forward",
        metavar="KIND",
        panel=Panel.TEXT,
    )
    labels: bool = setting(
        "Each line is label<TAB>text: learn to write a text given its labels, with | between "
        "several.",
        panel=Panel.TEXT,
    )
    loss_on: LossOn | None = setting(
        "For conversations, and prompts with completions: learn only the answers (the default), "
        "or all of the text.",
        metavar="answers|all",
        panel=Panel.TEXT,
    )
    val: str = setting(
        "What to hold out for validation: a share of the text such as 0.05, a file, or none.",
        "0.1",
        metavar="X|FILE|none",
        reads="file",
        panel=Panel.TEXT,
        common=True,
    )
    val_target: str | None = setting(
        "Held-out targets of pairs in two files, for --val-source (in a --config file, val).",
        reads="file",
        panel=Panel.PAIRS,
        needs=OptionRule(("--val-source",), HELD_OUT_SIDES),
    )
    split_seed: int = setting(
        "Random seed for choosing the held-out lines or pairs.", 0, ranges.SEEDS, panel=Panel.MORE
    )
    max_source_len: int = setting(
        "Leave out pairs with a source longer than this many tokens.",
        512,
        ranges.TOKENS,
        panel=Panel.PAIRS,
    )
    max_target_len: int = setting(
        "Leave out pairs with a target longer than this many tokens.",
        512,
        ranges.TOKENS,
        panel=Panel.PAIRS,
    )
    source_unknowns: float = setting(
        "For pairs: share of the source tokens that each step of training replaces by <unk>, at "
        "random, so that the model learns to read unknown words. Tokenizers without unknown tokens "
        "(byte, bpe and unigram) replace none.",
        0.001,
        ranges.SHARES_BELOW_1,
    )
    as_text: bool = setting(
        "Read .json, .jsonl and .csv files as text, keys and commas included.",
        panel=Panel.TEXT,
    )
    newlines: Literal["keep", "lf"] = setting(
        "Keep CRLF line ends as they are, or turn them into LF.", "keep", panel=Panel.TEXT
    )

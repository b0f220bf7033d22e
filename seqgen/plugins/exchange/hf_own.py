"""Export of seqgen's tokenizers as a `tokenizer.json` that gives the same ids for every text.

No special token is listed under `added_tokens`: the library would read its name in a text, such as
the `<unk>` of Penn Treebank, as the token itself. The decoder leaves them out instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby, pairwise
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.plugins.exchange.imported_tokenizers import BYTE_OF, SPLITS
from seqgen.text.tokenizers import Tokenizer, char
from seqgen.text.tokenizers.base import SPECIALS
from seqgen.text.tokenizers.byte import ByteTokenizer
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.sentencepiece import (
    ESCAPE,
    ESCAPED,
    NORMAL,
    PER_NAT,
    SPACE,
    UNKNOWN,
    USER,
    BPETokenizer,
    SentencepieceTokenizer,
    Subword,
    UnigramTokenizer,
    pieces_of,
)
from seqgen.text.tokenizers.word import WordTokenizer

# Any one character. In the library's expressions a dot leaves out the newline.
ANY_CHARACTER = "[\\s\\S]"
# An escape that an even number of others stands before.
ESCAPED_SPACE = f"(?<!{ESCAPE})(?:{ESCAPE}{ESCAPE})*\\K{ESCAPE}_"
IS_UNKNOWN = f"\\A{SPECIALS[-1]}\\z"
FUSE = [{"type": "Fuse"}]


def table_of(tokenizer: Tokenizer, name: str) -> tuple[dict[str, Any], list[str]]:
    """Build a `tokenizer.json` without start and end tokens; also return the token names.

    Args:
        tokenizer: of characters, bytes or words, or pieces learnt by seqgen.
        name: what messages call the model.

    Raises:
        SeqgenError: a `tokenizer.json` cannot hold it with the same ids.
    """
    parts = next((write for kind, write in WRITERS.items() if isinstance(tokenizer, kind)), None)
    if parts is None:
        kinds = "char, byte, word, bpe, unigram"
        raise SeqgenError(
            f"{name} has a tokenizer of kind {tokenizer.kind}, which tokenizer.json cannot hold as "
            f"it is; {kinds} and huggingface can be written"
        )
    try:
        names, table = parts(tokenizer)
    except ValueError as error:
        raise SeqgenError(
            f"{name} has a {tokenizer.kind} tokenizer that another program would not read alike: "
            f"{error}"
        ) from None
    shared = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
    hidden = "|".join(map(re.escape, (names[i] for i in range(len(SPECIALS) - 1))))
    steps = [_replace(f"\\A(?:{hidden})\\z", "", regex=True), *table.pop("decoder")]
    decoder = {"type": "Sequence", "decoders": steps}
    return {**shared, "normalizer": None, **table, "decoder": decoder}, names


def _replace(pattern: str, content: str, regex: bool = False) -> dict[str, Any]:
    kind = "Regex" if regex else "String"
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _split(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}}
    return {**split, "behavior": "Isolated", "invert": False}


def _numbered(names: list[str]) -> dict[str, int]:
    """Map each token name to its id, checking that the names are distinct.

    Raises:
        ValueError: two have the same.
    """
    table = {name: i for i, name in enumerate(names)}
    if len(table) != len(names):
        raise ValueError("two of its tokens have the same name")
    return table


def _byte_table(_: ByteTokenizer) -> tuple[list[str], dict[str, Any]]:
    (level,) = SPLITS["gpt-2"]
    names = {byte: character for character, byte in BYTE_OF.items()}
    spelled = [*SPECIALS, *(names[byte] for byte in range(256))]
    model = {"type": "BPE", "vocab": _numbered(spelled), "merges": []}
    return spelled, {"pre_tokenizer": level, "decoder": [level], "model": model}


def _looked_up(names: list[str], pattern: str) -> tuple[list[str], dict[str, Any]]:
    """Build a `tokenizer.json` that splits text by a pattern and looks the pieces up."""
    model = {"type": "WordLevel", "vocab": _numbered(names), "unk_token": SPECIALS[-1]}
    return names, {"pre_tokenizer": _split(pattern), "decoder": FUSE, "model": model}


def _character_table(tokenizer: CharTokenizer) -> tuple[list[str], dict[str, Any]]:
    names, table = _looked_up([*SPECIALS, *tokenizer.alphabet], ANY_CHARACTER)
    return names, {**table, "decoder": [_replace(IS_UNKNOWN, char.UNKNOWN, True), *FUSE]}


def _word_table(tokenizer: WordTokenizer) -> tuple[list[str], dict[str, Any]]:
    # The library's \w and \s hold other characters than Python's, so each is written out.
    word, space = _class_of(r"\w"), _class_of(r"\s")
    pattern = tokenizer.pattern.pattern.replace(r"[^\w\s]", f"[^{word}{space}]")
    pattern = pattern.replace(r"\w", f"[{word}]").replace(r"\s", f"[{space}]")
    return _looked_up(tokenizer.vocabulary, pattern.replace(r"\u2019", "\u2019"))


def _class_of(pattern: str) -> str:
    """Write the characters that a pattern matches as ranges of a regex character class."""
    matches = re.compile(pattern).match
    codes = [code for code in range(sys.maxunicode + 1) if matches(chr(code))]
    runs = (
        [code for _, code in run] for _, run in groupby(enumerate(codes), lambda x: x[1] - x[0])
    )
    return "".join(f"\\x{{{run[0]:X}}}-\\x{{{run[-1]:X}}}" for run in runs)


def learnt_pieces(tokenizer: SentencepieceTokenizer) -> list[Subword]:
    """List the sentencepiece pieces of a tokenizer, checking that seqgen trained it.

    Raises:
        ValueError: it does not.
    """
    pieces = pieces_of(tokenizer.model)
    users = [piece.text for piece in pieces if piece.kind == USER]
    if not tokenizer.lossless or users != ["\n"] or len(pieces) != tokenizer.vocab_size:
        raise ValueError("it was not learnt by seqgen, and changes texts or lacks tokens")
    if [piece.text for piece in pieces[: len(SPECIALS)]] != [*SPECIALS]:
        raise ValueError("its special tokens are not those of seqgen")
    characters = {piece.text for piece in pieces if len(piece.text) == 1}
    lacking = {c for piece in pieces if piece.kind == NORMAL for c in piece.text} - characters
    if lacking:
        raise ValueError(f"it has pieces with {min(lacking)!r}, and no such piece")
    return pieces


def _piece_table(
    names: list[str], model: dict[str, Any], pattern: str
) -> tuple[list[str], dict[str, Any]]:
    """Build a `tokenizer.json` that marks spaces as seqgen does, then splits by a pattern."""
    doubled = [_replace(ESCAPE, ESCAPED[ESCAPE]), _replace(SPACE, ESCAPED[SPACE])]
    rules = [*doubled, _replace(" ", SPACE)]
    back = [_replace(IS_UNKNOWN, UNKNOWN, regex=True), _replace(SPACE, " ")]
    back += [{"type": "ByteFallback"}, *FUSE]
    back += [_replace(ESCAPED_SPACE, SPACE, regex=True), _replace(ESCAPED[ESCAPE], ESCAPE)]
    return names, {
        "normalizer": {"type": "Sequence", "normalizers": rules},
        "pre_tokenizer": _split(pattern),
        "decoder": back,
        "model": {**model, "byte_fallback": True},
    }


def _merge_table(tokenizer: BPETokenizer) -> tuple[list[str], dict[str, Any]]:
    pieces = learnt_pieces(tokenizer)
    names = [piece.text for piece in pieces]
    model = {"type": "BPE", "vocab": _numbered(names), "merges": merges_of(pieces)}
    return _piece_table(names, {**model, "unk_token": SPECIALS[-1]}, "\\n")


def _unigram_table(tokenizer: UnigramTokenizer) -> tuple[list[str], dict[str, Any]]:
    pieces = learnt_pieces(tokenizer)
    if not all((piece.score * PER_NAT).is_integer() for piece in pieces):  # see `round_scores`
        raise ValueError(
            "it was learnt by an earlier version, whose scores other programs add up to other "
            "sums, so that equally likely segmentations ('0000000') differ; learn it again"
        )
    scores = {piece.text: piece.score for piece in pieces if piece.kind in (NORMAL, USER)}
    # The library would read the names of bytes and special tokens in a text as these tokens. Their
    # single characters, at most six, are likelier; those that no piece has are cut out before.
    hidden = 7 * min(scores.values())
    names = [piece.text for piece in pieces]
    vocab = [(name, scores.get(name, hidden)) for name in names]
    lacking = {c for name in names for c in name} - scores.keys()
    cut = "".join(f"\\x{{{ord(c):X}}}" for c in sorted({"\n", *lacking}))
    model = {"type": "Unigram", "unk_id": tokenizer.unk_id, "vocab": vocab}
    return _piece_table(names, model, f"[{cut}]")


def merges_of(pieces: list[Subword]) -> list[tuple[str, str]]:
    """Find the two parts that each piece is merged from, best piece first.

    sentencepiece merges whatever two neighbours make a piece, the one with the highest score
    first. Yet each piece is only ever made from one pair: what is merged inside of it does not
    depend on what is around it, so it comes about as it does in a text that is the piece alone.

    Raises:
        ValueError: two pieces have the same score, so that the place in a text decides.
    """
    scores = {piece.text: piece.score for piece in pieces if piece.kind == NORMAL}
    longer = sorted((text for text in scores if len(text) > 1), key=lambda text: -scores[text])
    if len({scores[text] for text in longer}) < len(longer):
        raise ValueError("two of its pieces have the same score")
    pairs = (_last_merge(text, _by_score(scores)) for text in longer)
    return [pair for pair in pairs if pair is not None]


# How early two neighbours are merged, the largest first; None if they are not.
Priority = Callable[[str, str], float | None]


def _by_score(scores: Mapping[str, float]) -> Priority:
    """Build sentencepiece's merge priority: the score of the piece that two parts form."""
    return lambda left, right: scores.get(left + right)


def _last_merge(text: str, priority: Priority) -> tuple[str, str] | None:
    """Merge the characters of a piece down to two parts; None if they do not merge so far."""
    parts = list(text)
    while len(parts) > 1:
        ranks = [priority(*pair) for pair in pairwise(parts)]
        known = [(rank, -i) for i, rank in enumerate(ranks) if rank is not None]
        if not known:
            return None
        if len(parts) == 2:
            return parts[0], parts[1]
        at = -max(known)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return None


def scores_of(names: Iterable[str], merges: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Compute sentencepiece scores that reproduce a list of BPE merges.

    As each piece is only ever made from one pair (see `merges_of`), the place of that pair in the
    list is its score, if sentencepiece makes it from the same pair.

    Args:
        names: the pieces that merging may make.
        merges: pairs, the first to be merged first.

    Raises:
        ValueError: there are no such scores.
    """
    ranks = {pair: float(-i) for i, pair in enumerate(merges)}
    last = {name: _last_merge(name, lambda *pair: ranks.get(pair)) for name in names}
    never = -float(len(ranks))
    scores = {name: never if pair is None else ranks[pair] for name, pair in last.items()}
    for name, pair in last.items():
        if len(name) > 1 and _last_merge(name, _by_score(scores)) != pair:
            raise ValueError(f"its piece {name!r} would be merged from other parts")
    return scores


def marks_spaces(table: Mapping[str, Any]) -> bool:
    """Check whether a tokenizer that writes spaces as U+2581 adds one before a text.

    Raises:
        ValueError: it does not do that alone before it merges, as Llama 2's does.
    """
    normalizer, before = table.get("normalizer"), table.get("pre_tokenizer") or {}
    steps = normalizer.get("normalizers", [normalizer]) if normalizer else []
    replace_spaces, prepend_space = _replace(" ", SPACE), {"type": "Prepend", "prepend": SPACE}
    if not before and steps in ([replace_spaces], [prepend_space, replace_spaces]):
        return len(steps) == 2
    # With a prefix, this step leaves out the space before a text that begins with one.
    metaspace = {"type": "Metaspace", "replacement": SPACE, "split": False}
    if not steps and {**before, **metaspace, "prepend_scheme": "never"} == before:
        return False
    raise ValueError("it changes or splits texts before it merges")


WRITERS: dict[type[Tokenizer], Callable[[Any], tuple[list[str], dict[str, Any]]]] = {
    CharTokenizer: _character_table,
    ByteTokenizer: _byte_table,
    WordTokenizer: _word_table,
    BPETokenizer: _merge_table,
    UnigramTokenizer: _unigram_table,
}

"""The vocabulary of a GGUF file, as a tokenizer, and back."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from seqgen.data.framing import Framing
from seqgen.errors import SeqgenError
from seqgen.files import json_bytes, parse_json
from seqgen.formats.gguf import GGUFFile
from seqgen.formats.hf_tokenizer import framed
from seqgen.formats.hf_tokenizer_writing import files_of
from seqgen.tokenizers import Tokenizer
from seqgen.tokenizers.byte_level import SPLITS, name_of_split
from seqgen.tokenizers.from_elsewhere import (
    HuggingFaceTokenizer,
    TokenizerFromElsewhere,
    WholeSentencepieceTokenizer,
)

PREFIX = "tokenizer.ggml."
# Kinds of tokens; the same numbers in sentencepiece.
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding"}
# What ends texts besides EOS: the end of a turn, of a message.
OTHER_ENDS = ("eot", "eom")


@dataclass(frozen=True)
class Pre:
    """What `tokenizer.ggml.pre` stands for, as in llama.cpp (`llama-vocab.cpp`).

    Attributes:
        split: how a text is split, see `byte_level.SPLITS`.
        whole_words: a word that is a token is not merged from bytes (`ignore_merges`).
        begins: BOS goes before texts, unless the file says otherwise.
    """

    split: str
    whole_words: bool = False
    begins: bool = False


# The first name of each row is the one that is written.
NAMES_OF_PRE = {
    Pre("gpt-2"): (
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert mpt "
        "olmo jais trillion granite-docling exaone4"
    ),
    Pre("smollm"): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    Pre("qwen2"): (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2"
    ),
    Pre("llama-bpe", whole_words=True, begins=True): (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
    ),
    Pre("llama-bpe"): "dbrx smaug-bpe",
    Pre("tekken", whole_words=True, begins=True): "tekken",
}
PRES = {name: pre for pre, names in NAMES_OF_PRE.items() for name in names.split()}


def read(file: GGUFFile, vocab_size: int) -> tuple[TokenizerFromElsewhere, Framing]:
    """Return the tokenizer of a file, and how texts begin and end.

    Raises:
        SeqgenError: it is broken, or of a kind that seqgen does not know.
    """
    facts = {
        name.removeprefix(PREFIX): fact
        for name, fact in file.facts.items()
        if name.startswith(PREFIX)
    }
    tokens, kind = facts.get("tokens"), facts.get("model")
    if not _are(str, tokens) or len(tokens) != vocab_size:
        raise file.error(f"{PREFIX}tokens is no list of {vocab_size:,} texts")
    special = {f"{name}_id": _id_of(theirs, facts, file) for name, theirs in SPECIAL.items()}
    try:
        if kind == "gpt2":
            tokenizer = HuggingFaceTokenizer(_byte_level(facts, file), vocab_size, special)
        elif kind == "llama":
            tokenizer = WholeSentencepieceTokenizer(_sentencepiece(facts, file), vocab_size)
        else:
            raise file.error(f"{PREFIX}model is {str(kind)[:20]!r}; seqgen reads gpt2 and llama")
    except ValueError as error:
        raise file.error(f"its vocabulary is broken: {error}") from None
    start, stop = special["bos_id"], special["eos_id"]
    others = (_id_of(name, facts, file) for name in OTHER_ENDS)
    others = tuple(dict.fromkeys(i for i in others if i not in (None, stop)))
    begins = bool(facts.get("add_bos_token", kind == "llama" or _pre(facts, file).begins))
    if begins and start is None:
        raise file.error(f"its texts begin with BOS, and there is no {PREFIX}bos_token_id")
    how = {"starts_prompts": begins, "also_stop": others}
    return tokenizer, framed(tokenizer, start, stop, file.error, **how)


def _id_of(name: str, facts: dict[str, Any], file: GGUFFile) -> int | None:
    """Return the id of a special token; None if there is none.

    Raises:
        SeqgenError: it is no token.
    """
    token = facts.get(f"{name}_token_id")
    if token is not None and not (type(token) is int and 0 <= token < len(facts["tokens"])):
        raise file.error(f"{PREFIX}{name}_token_id is {str(token)[:20]}, which there is not")
    return token


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _types(facts: dict[str, Any]) -> list[int]:
    """Return the kind of each token; those that are not said are plain."""
    types, count = facts.get("token_type"), len(facts["tokens"])
    return types if _are(int, types) and len(types) == count else [NORMAL] * count


def _pre(facts: dict[str, Any], file: GGUFFile) -> Pre:
    """Return how the texts of a byte-level vocabulary are split.

    Raises:
        SeqgenError: the file does not say it, or seqgen does not know it.
    """
    name = facts.get("pre")
    if name is None or name == "default":
        raise file.error(
            f"it does not say how its texts are split ({PREFIX}pre), and any other way gives other "
            "tokens; convert the model again with a newer llama.cpp"
        )
    if not isinstance(name, str) or name not in PRES:
        raise file.error(f"{PREFIX}pre is {str(name)[:40]!r}; seqgen reads {', '.join(PRES)}")
    return PRES[name]


def _byte_level(facts: dict[str, Any], file: GGUFFile) -> bytes:
    """Return the `tokenizer.json` of a byte-level vocabulary with merges."""
    pre = _pre(facts, file)
    merges = facts.get("merges", [])
    if not _are(str, merges):
        raise file.error(f"{PREFIX}merges is no list of texts")
    tokens = facts["tokens"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": tokens[i], **plain, "special": kind == CONTROL}
        for i, kind in enumerate(_types(facts))
        if kind in (CONTROL, USER)
    ]
    steps = SPLITS[pre.split]
    split = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise file.error(f"{PREFIX}tokens has a token twice")
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    model["ignore_merges"] = pre.whole_words
    table = {"version": "1.0", "added_tokens": added, "pre_tokenizer": split, "decoder": steps[-1]}
    return json_bytes({**table, "model": model})


def _sentencepiece(facts: dict[str, Any], file: GGUFFile) -> bytes:
    """Return the `.model` file of a vocabulary with scores (sentencepiece_model.proto)."""
    tokens, scores = facts["tokens"], facts.get("scores")
    if not _are(float, scores) or len(scores) != len(tokens):
        raise file.error(f"{PREFIX}scores is no list of {len(tokens):,} numbers")
    special = {
        name: facts.get(f"{theirs}_token_id")
        for name, theirs in {"unk": "unknown", "bos": "bos", "eos": "eos"}.items()
    }
    ids = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
    trainer = [_field(3, 2), _field(35, 1), _field(43, (1 << 64) - 1)]
    trainer += [_field(ids[name], token) for name, token in special.items() if token is not None]
    fields = {"unk": 45, "bos": 46, "eos": 47}
    trainer += [
        _field(fields[name], tokens[token]) for name, token in special.items() if token is not None
    ]
    prefix = bool(facts.get("add_space_prefix", True))
    rules = [_field(1, "identity"), _field(3, int(prefix)), _field(4, 0), _field(5, 1)]
    pieces = (
        _field(1, b"".join([_field(1, token), _number(2, score), _field(3, kind)]))
        for token, score, kind in zip(tokens, scores, _types(facts), strict=True)
    )
    return b"".join([*pieces, _field(2, b"".join(trainer)), _field(3, b"".join(rules))])


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _field(number: int, value: int | str | bytes) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _number(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def facts_of(tokenizer: Tokenizer, framing: Framing, name: str) -> dict[str, Any]:
    """Return the facts of a tokenizer.

    Args:
        tokenizer: of bytes, or a byte-level one from elsewhere.
        framing: how texts begin and end.
        name: what messages call the model.

    Raises:
        SeqgenError: a GGUF file cannot hold this kind.
    """
    cannot = SeqgenError(
        f"{name} has a tokenizer of kind {tokenizer.kind} that a GGUF file cannot hold; byte, and "
        "imported byte-level ones that split texts as GPT-2, SmolLM, Qwen2, Llama 3 and Tekken do "
        "can be written"
    )
    table = parse_json(files_of(tokenizer, framing, name)["tokenizer.json"])
    model = table.get("model", {})
    how = name_of_split(table.get("pre_tokenizer")), bool(model.get("ignore_merges"))
    pre = next((name for name, pre in PRES.items() if how == (pre.split, pre.whole_words)), None)
    if model.get("type") != "BPE" or pre is None:
        raise cannot
    names = {token: text for text, token in model["vocab"].items()}
    kinds = dict.fromkeys(names, NORMAL)
    for added in table.get("added_tokens", []):
        names[added["id"]] = added["content"]
        kinds[added["id"]] = CONTROL if added["special"] else USER
    tokens = [names.get(i, f"[PAD{i}]") for i in range(tokenizer.vocab_size)]
    merges = [x if isinstance(x, str) else " ".join(x) for x in model.get("merges", [])]
    facts = {"model": "gpt2", "pre": pre, "tokens": tokens, "bos_token_id": framing.start}
    facts["token_type"] = [kinds.get(i, CONTROL) for i in range(len(tokens))]
    facts["merges"] = merges
    optional = {"eos_token_id": framing.stop, "padding_token_id": tokenizer.pad_id}
    if len(framing.also_stop) > len(OTHER_ENDS):
        raise SeqgenError(f"{name} ends texts with more tokens than a GGUF file can name")
    others = zip(OTHER_ENDS, framing.also_stop, strict=False)
    optional |= {f"{which}_token_id": token for which, token in others}
    facts |= {key: token for key, token in optional.items() if token is not None}
    facts["add_bos_token"] = framing.starts_prompts
    return {PREFIX + key: fact for key, fact in facts.items()}

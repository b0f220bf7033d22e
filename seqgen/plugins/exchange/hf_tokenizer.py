"""Import and export of Hugging Face tokenizers, with their start and end tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError, reporting_unreadable
from seqgen.files import json_bytes, parse_json, require_regular
from seqgen.plugins.exchange.hf_config import read_table
from seqgen.plugins.exchange.hf_own import table_of
from seqgen.plugins.exchange.imported_tokenizers import (
    SPLITS,
    HuggingFaceTokenizer,
    TokenizerFromElsewhere,
    WholeSentencepieceTokenizer,
)
from seqgen.settings import shorten
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import Tokenizer, is_foreign

# No vocabulary comes near this.
LARGEST = 1 << 28
SPECIAL = ("bos", "eos", "pad")
# What transformers writes for no limit.
UNLIMITED = int(1e30)
# The files of byte-level tokenizers before there was `tokenizer.json`.
MERGES, VOCABULARY = "merges.txt", "vocab.json"
SENTENCEPIECE = "tokenizer.model"
# What each of several chat templates has.
TEMPLATE_KEYS = ("name", "template")


@dataclass(frozen=True)
class Ends:
    """Start and end tokens, and banned tokens, from a folder's configuration files.

    Attributes:
        table: `tokenizer_config.json`.
        ids: by name (bos, eos, pad) what the model's own configuration has.
        never: what it says is never to be written (`suppress_tokens`, and `bad_words_ids` of one
            token).
        decoder_start: what an encoder-decoder begins its texts with.
        forced_bos: what it always writes next; None for nothing.
    """

    table: dict[str, Any]
    ids: dict[str, Any]
    never: list[Any]
    decoder_start: Any = None
    forced_bos: Any = None

    @classmethod
    def of(cls, folder: Path) -> Ends:
        """Read the configuration files of a folder; missing files set nothing.

        Raises:
            SeqgenError: one is damaged.
        """
        named = _table(folder / "special_tokens_map.json")
        table = {**named, **_table(folder / "tokenizer_config.json")}
        config = {**_table(folder / "config.json"), **_table(folder / "generation_config.json")}
        never, words = config.get("suppress_tokens"), config.get("bad_words_ids")
        never = list(never) if isinstance(never, list) else []
        for word in words if isinstance(words, list) else []:
            never += word if isinstance(word, list) and len(word) == 1 else []
        ids = {name: config.get(f"{name}_token_id") for name in SPECIAL}
        forced = config.get("forced_bos_token_id")
        if forced is None and config.get("force_bos_token_to_be_generated") is True:
            forced = ids["bos"]
        return cls(table, ids, never, config.get("decoder_start_token_id"), forced)

    def name(self, which: str) -> str | None:
        """Look up the name of a special token (bos, eos, ...) in `tokenizer_config.json`."""
        named = self.table.get(f"{which}_token")
        named = named.get("content") if isinstance(named, dict) else named
        return named if isinstance(named, str) else None

    def id_of(self, which: str, tokenizer_id: int | None, vocab_size: int) -> int | None:
        """Look up a special token's id: the model's, else the tokenizer's.

        A model may end texts with several; the first is that of the tokenizer, if it is among
        them. See `other_stops`.

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
        return None if token == -1 else known_id(token, f"{which}_token_id", vocab_size)

    def other_stops(self, stop: int | None, vocab_size: int) -> tuple[int, ...]:
        """List the tokens other than `stop` that end a text.

        Raises:
            SeqgenError: there is no such token.
        """
        tokens = self.ids["eos"]
        if not isinstance(tokens, list):
            return ()
        known = (known_id(token, "eos_token_id", vocab_size) for token in tokens)
        return tuple(dict.fromkeys(token for token in known if token not in (stop, None)))

    def never_of(self, vocab_size: int) -> tuple[int, ...]:
        """List the existing ids that the model must never generate."""
        return tuple(i for i in self.never if type(i) is int and 0 <= i < vocab_size)


def known_id(token: Any, name: str, size: int, file: str = "") -> int | None:
    """Validate a token id read from a configuration file; None stays None.

    Raises:
        SeqgenError: it is no token.
    """
    if token is not None and not (type(token) is int and 0 <= token < size):
        raise SeqgenError(f"{file}{name} is {shorten(repr(token))}, which does not exist")
    return token


def kept_of(folder: Path) -> dict[str, Any]:
    """Read the chat template (or several, by name) and the length limit; see `KEPT`."""
    table, path = _table(folder / "tokenizer_config.json"), folder / "chat_template.jinja"
    kept = {name: table.get(name) for name in ("chat_template", "model_max_length")}
    if path.is_file():
        kept["chat_template"] = content_of(path).decode("utf-8", "replace")
    longest = kept["model_max_length"]
    if type(longest) is not int or longest >= UNLIMITED:
        del kept["model_max_length"]
    return {name: x for name, x in kept.items() if isinstance(x, int | str) or _are_named(x)}


def _are_named(templates: Any) -> bool:
    """Check whether a value is a list of templates with their names."""
    return isinstance(templates, list) and all(
        isinstance(one, dict) and all(isinstance(one.get(key), str) for key in TEMPLATE_KEYS)
        for one in templates
    )


def special_names_of(folder: Path) -> dict[str, str]:
    """Read the names of special tokens by what chat templates call them, such as `bos_token`."""
    ends = Ends.of(folder)
    keys = (key for key in ends.table if key.endswith("_token"))
    found = {key: ends.name(key.removesuffix("_token")) for key in keys}
    return {key: name for key, name in found.items() if name is not None}


def _table(path: Path) -> dict[str, Any]:
    return read_table(path) if path.is_file() else {}


def read(folder: Path, vocab_size: int | None = None) -> tuple[TokenizerFromElsewhere, Framing]:
    """Read the tokenizer of a Hugging Face folder, and its start and end tokens.

    Args:
        folder: with `tokenizer.json` or `tokenizer.model`.
        vocab_size: the tokens of the model; None where there is no model.

    Returns:
        The tokenizer, and how a model with it begins and ends its texts.

    Raises:
        SeqgenError: there is none, or it is damaged, or it is not understood.
    """
    ends = Ends.of(folder)
    opened = open_tokenizer(folder, vocab_size, ends)
    tokenizer, before, path = opened.tokenizer, opened.before, opened.path
    if opened.after or len(before) > 1:
        raise opened.puts("which seqgen does not do")
    size = tokenizer.vocab_size
    stop = ends.id_of("eos", tokenizer.eos_id, size)
    start = before[0] if before else ends.id_of("bos", tokenizer.bos_id, size)
    return tokenizer, framed(
        tokenizer,
        start,
        stop,
        lambda message: SeqgenError(f"{path}: {message}"),
        never=ends.never_of(size),
        starts_prompts=bool(before),
        also_stop=ends.other_stops(stop, size),
    )


@dataclass(frozen=True)
class Opened:
    """Tokenizer of a folder, its file, and the ids that it adds before and after every text."""

    tokenizer: TokenizerFromElsewhere
    path: Path
    before: list[int]
    after: list[int]

    def puts(self, what: str) -> SeqgenError:
        """Build the error about unsupported tokens that a tokenizer adds around texts."""
        pieces = " ".join(self.tokenizer.pieces([*self.before, *self.after])) or "nothing"
        return SeqgenError(f"{self.path} puts {pieces} around every text, {what}")


def open_tokenizer(folder: Path, vocab_size: int | None, ends: Ends) -> Opened:
    """Open the tokenizer of a folder that has only one; see `read`.

    Args:
        folder: with `tokenizer.json`, `vocab.json` and `merges.txt`, or `tokenizer.model`.
        vocab_size: the tokens of the model; None where there is no model.
        ends: what the folder's tables say.
    """
    path = folder / "tokenizer.json"
    try:
        if path.is_file() or (folder / MERGES).is_file():
            content = content_of(path) if path.is_file() else from_merges(folder, ends)
            path = path if path.is_file() else folder / MERGES
            if ends.table.get("split_special_tokens") is True:
                content = _with_names_as_text(content)
            tokenizer = HuggingFaceTokenizer(content, vocab_size)
            _name_special(tokenizer, ends)
            return Opened(tokenizer, path, *_frame(tokenizer, ends))
        path = folder / SENTENCEPIECE
        if not path.is_file():
            raise SeqgenError(
                f"{folder} has no tokenizer.json and no tokenizer.model; write one: "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) in transformers"
            )
        tokenizer = WholeSentencepieceTokenizer(content_of(path), vocab_size)
        begins = ends.table.get("add_bos_token", True) and tokenizer.bos_id is not None
        return Opened(tokenizer, path, [tokenizer.bos_id] if begins else [], [])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SeqgenError(f"{path} is damaged: {error}") from None


def is_folder(folder: Path) -> bool:
    """Check whether a folder has a tokenizer that `read` supports, and not seqgen's own."""
    if not (folder / "tokenizer.json").exists():
        return any((folder / name).is_file() for name in (MERGES, SENTENCEPIECE))
    return is_foreign(folder)


def read_path(path: Path) -> Tokenizer | None:
    """Read a tokenizer from a folder or a `tokenizer.json`; None if it is seqgen's own.

    Raises:
        SeqgenError: see `read`.
    """
    folder = path.parent if path.name == "tokenizer.json" else path
    return read(folder)[0] if is_folder(folder) else None


def content_of(path: Path) -> bytes:
    """Read a tokenizer file as bytes, after checking its size.

    Raises:
        SeqgenError: it cannot be read, or is larger than any.
    """
    with reporting_unreadable(path):
        if require_regular(path).stat().st_size > LARGEST:
            raise SeqgenError(f"{path} is larger than any tokenizer: {path.stat().st_size:,} bytes")
        return path.read_bytes()


def from_merges(folder: Path, ends: Ends) -> bytes:
    """Build a `tokenizer.json` from a folder's `vocab.json` and `merges.txt`.

    The tokenizer is GPT-2's, or BART's if it has the names of its special tokens.

    Raises:
        SeqgenError: a file is missing or damaged.
    """
    vocabulary = _table(folder / VOCABULARY)
    lines = content_of(folder / MERGES).decode().splitlines()
    merges = [line for line in lines if line and not line.startswith("#version")]
    bart = {"<s>", "</s>"} <= vocabulary.keys()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if bart else ["<|endoftext|>"]
    special += [name for name in map(ends.name, SPECIAL) if name is not None]
    added = [
        {**added_token(vocabulary[name], name), "lstrip": name == "<mask>"}
        for name in dict.fromkeys(special)
        if name in vocabulary
    ]
    (level,) = SPLITS["gpt-2"]
    table: dict[str, Any] = {"version": "1.0", "added_tokens": added}
    table |= {"pre_tokenizer": level, "decoder": level}
    table["model"] = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    if bart:
        sides = {"sep": ["</s>", vocabulary["</s>"]], "cls": ["<s>", vocabulary["<s>"]]}
        spaces = {"trim_offsets": True, "add_prefix_space": False}
        table["post_processor"] = {"type": "RobertaProcessing", **sides, **spaces}
        for which, name in zip(SPECIAL, ("<s>", "</s>", "<pad>"), strict=True):
            ends.table.setdefault(f"{which}_token", name)
    return json_bytes(table)


def added_token(token: int, name: str, special: bool = True) -> dict[str, Any]:
    """Build an entry of `added_tokens`: a token matched in text before it is split."""
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": name, **plain, "special": special}


def _with_names_as_text(content: bytes) -> bytes:
    """Edit a `tokenizer.json` to tokenize the names of special tokens as ordinary text.

    transformers lists special tokens when it saves a tokenizer, and leaves this to a field of its
    own configuration. Those that are in the vocabulary need not be listed.
    """
    table = parse_json(content)
    vocab = table["model"]["vocab"]
    names = set(vocab if isinstance(vocab, dict) else (name for name, _ in vocab))
    listed = (x for x in table["added_tokens"] if not (x["special"] and x["content"] in names))
    return json_bytes({**table, "added_tokens": list(listed)})


def _name_special(tokenizer: HuggingFaceTokenizer, ends: Ends) -> None:
    """Set the tokenizer's special ids to the tokens that the configuration names."""
    for which in SPECIAL:
        name = ends.name(which)
        if name is not None:
            setattr(tokenizer, f"{which}_id", tokenizer.id_of(name))


def _frame(tokenizer: HuggingFaceTokenizer, ends: Ends) -> tuple[list[int], list[int]]:
    """Return the ids that the tokenizer adds before and after every text.

    As in transformers, `add_bos_token` and `add_eos_token` go before what tokenizer.json says.
    """
    flags = [ends.table.get(f"add_{which}_token") for which in ("bos", "eos")]
    if flags == [None, None]:
        return tokenizer.frame()
    ids = tokenizer.bos_id, tokenizer.eos_id
    both = zip(flags, ids, strict=True)
    before, after = ([token] if flag and token is not None else [] for flag, token in both)
    return before, after


def framed(
    tokenizer: TokenizerFromElsewhere,
    start: int | None,
    stop: int | None,
    error: Callable[[str], SeqgenError],
    **attributes: Any,
) -> Framing:
    """Build the framing of texts, and set the tokenizer's start and end ids to match it.

    Args:
        tokenizer: of a decoder from elsewhere.
        start: what its texts begin with; `stop` if None.
        stop: what ends those that it writes.
        error: makes an exception of a message.
        attributes: the other attributes of the framing.

    Raises:
        SeqgenError: nothing begins texts.
    """
    start = stop if start is None else start
    if start is None:
        raise error("no token begins texts (bos_token), and none ends them")
    tokenizer.bos_id, tokenizer.eos_id = start, stop
    return Framing(start, None, stop, **attributes)


def files_of(
    tokenizer: Tokenizer, framing: Framing, name: str, source: bool = False
) -> dict[str, bytes]:
    """Build a tokenizer's Hugging Face files, by file name.

    Args:
        tokenizer: one of `hf_own`, or one that came from a `tokenizer.json`.
        framing: how the model's texts begin and end.
        name: what messages call the model.
        source: what stands around a text is what stands around a source of an encoder-decoder.

    Raises:
        SeqgenError: a `tokenizer.json` cannot hold this kind.
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        table = parse_json(tokenizer.content)
        special = {which: tokenizer.name_of(i) for which, i in _special(tokenizer) if i is not None}
        before, _ = tokenizer.frame()
        if not source and bool(before) != framing.starts_prompts:
            start = (tokenizer.name_of(framing.start), framing.start)
            table["post_processor"] = _template(start if framing.starts_prompts else None)
    else:
        table, names = table_of(tokenizer, name)
        start, end = framing.start, tokenizer.eos_id
        around = (None, (names[end], end)) if source else ((names[start], start), None)
        table["post_processor"] = _template(*around)
        special = {
            which: names[token]
            for which, token in _special(tokenizer)
            if which != "bos" or token == framing.start
        }
    if tokenizer.eos_id in framing.never:  # a stream, which no token ends
        special.pop("eos", None)
    about = {f"{which}_token": text for which, text in special.items()}
    about |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if not isinstance(tokenizer, HuggingFaceTokenizer):  # their names in a text are text
        about["split_special_tokens"] = True
    return {"tokenizer.json": json_bytes(table), "tokenizer_config.json": json_bytes(about)}


def _special(tokenizer: Tokenizer) -> list[tuple[str, int | None]]:
    return [(which, getattr(tokenizer, f"{which}_id")) for which in ("pad", "bos", "eos", "unk")]


def _template(
    start: tuple[str, int] | None, end: tuple[str, int] | None = None
) -> dict[str, Any] | None:
    """Build the post-processor that adds start and end tokens; None without any."""
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

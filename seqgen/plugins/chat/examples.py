"""Examples to learn from, in files: conversations, or prompts with completions."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seqgen import hooks
from seqgen.errors import SeqgenError, UsageError
from seqgen.plugins.chat.chat_template import Message, joined_parts
from seqgen.plugins.chat.conversation import turn
from seqgen.text.file_kinds import JSON_LINES, PARQUET, ending_of_name
from seqgen.text.pairs import split_at_tab
from seqgen.text.reading import BOM, Survey, Text, decode_file, read_head
from seqgen.text.records import BESIDE_SHARDS, SPLITS, has_surrogates, json_records
from seqgen.wording import first_names, plural

# The keys of a record whose value is a conversation, and those of a prompt and its completion. The
# first that a record has are taken.
CONVERSATIONS = ("messages", "conversations")
PAIRS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "output"),
    ("question", "answer"),
)
# With an instruction, what it is about.
INPUT = "input"
KEYS = {*CONVERSATIONS, *itertools.chain.from_iterable(PAIRS), INPUT}
# The keys of a message, and the names of roles, that some data sets have instead.
OTHER_KEYS = {"role": "from", "content": "value"}
OTHER_ROLES = {"human": "user", "gpt": "assistant"}
ANSWERING = "assistant"
# Records that a notice names.
NAMED = 5
ARROW = ".arrow"
# How JSON Lines, or a list of records in JSON, begin.
JSON_BEGINS = (b"{", b"[")


@dataclass(frozen=True)
class ChatExample:
    """A conversation to learn from.

    Attributes:
        messages: its turns.
        learned: the number of the first message that may be an answer to learn.
        plain: it is a prompt and a completion, which need no chat template.
        place: where it is, for errors.
    """

    messages: Sequence[Message]
    learned: int = 0
    plain: bool = False
    place: str = ""

    @property
    def answers(self) -> list[int]:
        """Numbers of the messages that are answers to learn."""
        each = enumerate(self.messages[self.learned :], self.learned)
        return [number for number, message in each if message["role"] == ANSWERING]


def keys_of(record: Any) -> tuple[str, ...]:
    """Choose the keys of a record that make an example; empty for other records."""
    if not isinstance(record, Mapping):
        return ()
    kinds = list | Mapping
    conversation = next((key for key in CONVERSATIONS if isinstance(record.get(key), kinds)), None)
    if conversation is not None:
        return (conversation,)
    pairs = (pair for pair in PAIRS if all(isinstance(record.get(x), str | list) for x in pair))
    return next(pairs, ())


def example_of(record: Any, keys: tuple[str, ...]) -> ChatExample | str:
    """Make an example of the values of a record at some keys; say why not if they are none."""
    if not isinstance(record, Mapping):
        return "with broken JSON" if record is None else "without an object"
    values = [record.get(key) for key in keys]
    try:
        if len(values) == 2 and all(isinstance(value, str) for value in values):
            prompt, completion = values
            about = record.get(INPUT) if keys[0] == "instruction" else None
            if isinstance(about, str) and about:
                prompt = f"{prompt}\n\n{about}"
            messages = [turn("user", _sound(prompt)), turn(ANSWERING, _sound(completion))]
            return ChatExample(messages, learned=1, plain=True)
        if not all(isinstance(value, list | Mapping) for value in values):
            return f"without {'+'.join(keys)} of that kind"
        parts = [_messages(value) for value in values]
    except _NoMessageError as error:
        return str(error)
    learned = len(parts[0]) if len(parts) == 2 else 0
    example = ChatExample(list(itertools.chain.from_iterable(parts)), learned)
    if example.answers:
        return example
    roles = {message["role"] for message in example.messages[learned:]}
    like = next((role for role in sorted(roles) if role.lower() == ANSWERING != role), None)
    return "without an answer" + ("" if like is None else f" (role {like!r}, not {ANSWERING!r})")


class _NoMessageError(Exception):
    """Says why a value is no message."""


def _sound(text: str) -> str:
    if has_surrogates(text):
        raise _NoMessageError("with half of a surrogate pair")
    return text


def _messages(value: Any) -> list[dict[str, Any]]:
    """Read a list of messages, each with a role and a text, or parts that are texts.

    It may be an object of lists instead, as Hugging Face datasets stores a `Sequence`. Other keys,
    such as `reasoning_content`, are kept for the template; those without a value are left out, as
    tables have them in every row.

    Raises:
        _NoMessageError: it is anything else.
    """
    if isinstance(value, Mapping) and all(isinstance(column, list) for column in value.values()):
        value = [dict(zip(value, one, strict=False)) for one in zip(*value.values(), strict=False)]
    messages = []
    for one in value if isinstance(value, list) else [None]:
        about = one if isinstance(one, Mapping) else {}
        role, content = (
            about.get(key) if about.get(key) is not None else about.get(other)
            for key, other in OTHER_KEYS.items()
        )
        if isinstance(content, list):
            content = joined_parts(content)
            if content is None:
                raise _NoMessageError("with a part that is no text")
        if not (isinstance(role, str) and isinstance(content, str)):
            raise _NoMessageError("with a message that has no role and text")
        about = {k: v for k, v in about.items() if v is not None and k not in OTHER_KEYS.values()}
        if has_surrogates(json.dumps(about, default=str, ensure_ascii=False)):
            raise _NoMessageError("with half of a surrogate pair")
        messages.append({**about, **turn(OTHER_ROLES.get(role, role), content)})
    return messages


def records_in(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number, from 1, and the value of each record of a file, known by its first bytes.

    Raises:
        SeqgenError: the file cannot be read, or is damaged.
    """
    head = read_head(path)
    table = PARQUET if head.startswith(b"PAR1") else ending_of_name(path)
    if table in (PARQUET, ARROW):
        hooks.require_plugin(table, str(path))
        plugin, target = hooks.by_name("record_readers")[table]
        yield from plugin.load(target)(path, str(path), KEYS, [])
        return
    if head.removeprefix(BOM.encode()).lstrip().startswith(JSON_BEGINS):
        yield from json_records(decode_file(path), str(path))
    else:
        pairs = split_at_tab(Text((path,)), str(path), "prompt<TAB>completion")
        for number, pair in enumerate(pairs, start=1):
            yield number, dict(zip(PAIRS[0], pair, strict=True))


def keys_in(path: Path) -> tuple[str, ...]:
    """Choose the keys that make examples of a file's records, by the first one that has any."""
    first = itertools.islice(records_in(path), 100)
    return next(filter(None, (keys_of(record) for _, record in first)), ())


def holds_examples(path: Path) -> bool:
    """Check whether a file of records has examples.

    What Hugging Face datasets saves beside the shards of a data set has none.
    """
    if ending_of_name(path) not in {*JSON_LINES, PARQUET, ARROW}:
        return False
    if BESIDE_SHARDS.fullmatch(path.name):
        return False
    try:
        return bool(keys_in(path))
    except SeqgenError:  # an error where it is read
        return False


def require_one_split(paths: Sequence[Path]) -> None:
    """Refuse several splits of a data set that Hugging Face datasets has saved.

    Raises:
        UsageError: names them.
    """
    splits = sorted({path.parent for path in paths if (path.parent.parent / SPLITS).exists()})
    if len(splits) > 1:
        one = next((split for split in splits if split.name == "train"), splits[0])
        names = first_names([split.name for split in splits])
        raise UsageError(
            f"{one.parent} has the splits {names}: give one, as {one}; --val takes another"
        )


@dataclass(frozen=True)
class Examples:
    """The examples in some files, read one by one, as often as needed.

    Attributes:
        paths: of the files.
        keep: which of the examples are taken, a bool for each; None for all.
    """

    paths: tuple[Path, ...]
    keep: np.ndarray | None = None

    def __iter__(self) -> Iterator[ChatExample]:
        each = (example for _, example in self._records())
        found = (example for example in each if isinstance(example, ChatExample))
        return found if self.keep is None else itertools.compress(found, self.keep)

    def _records(self) -> Iterator[tuple[str, ChatExample | str]]:
        """Yield the place of each record, and its example or why it has none."""
        for path in self.paths:
            keys = self.keys[path]
            for number, record in records_in(path):
                place = f"{path}, record {number}"
                example = example_of(record, keys)
                known = isinstance(example, ChatExample)
                yield place, replace(example, place=place) if known else example

    @cached_property
    def keys(self) -> dict[Path, tuple[str, ...]]:
        """The keys that make examples, by file.

        Raises:
            SeqgenError: a file has no examples.
        """
        keys = {path: keys_in(path) for path in self.paths}
        for path, found in keys.items():
            if not found:
                raise SeqgenError(
                    f"{path} has no conversations: each record needs a list `messages` of objects "
                    "with `role` and `content`, or a `prompt` and a `completion`"
                )
        return keys

    def some(self, keep: np.ndarray) -> Examples:
        """Select examples by a mask, a bool for each."""
        return replace(self, keep=keep)

    @cached_property
    def surveyed(self) -> tuple[Survey, str | None]:
        """Size and hash of all messages, as lines of JSON, and a notice of what is left out.

        Raises:
            SeqgenError: there is no example.
        """
        digest, texts, sizes = hashlib.sha256(), 0, 0
        left_out: dict[str, list[str]] = {}
        count = 0
        for place, example in self._records():
            if not isinstance(example, ChatExample):
                left_out.setdefault(example, []).append(place)
                continue
            count += 1
            content = "".join(message["content"] for message in example.messages)
            texts, sizes = texts + len(content), sizes + len(content.encode())
            facts = [example.learned, list(example.messages)]
            digest.update(f"{json.dumps(facts, sort_keys=True, default=str)}\n".encode())
        reasons = "; ".join(
            f"{plural(len(places), 'record')} {why} ({first_names(places, NAMED)})"
            for why, places in left_out.items()
        )
        if not count:
            raise SeqgenError(f"{self.name} has no example with an answer: {reasons}")
        notice = f"left out: {reasons}" if reasons else None
        return Survey(texts, sizes, count, digest.hexdigest()), notice

    @property
    def name(self) -> str:
        """Name of the data set in messages: its files."""
        return ", ".join(map(str, self.paths))

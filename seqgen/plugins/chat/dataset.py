"""Fine-tuning data: conversations as rows of tokens, of which the answers are learned.

A row is one conversation, as the chat template writes it. Rows are sorted by length within pools
and padded, so that no row has two conversations, and none is read after another.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqgen.errors import SeqgenError
from seqgen.plugins.chat.chat_template import (
    ChatTemplate,
    ConversationEncoder,
    Message,
    special_names,
    stored_template,
)
from seqgen.plugins.chat.examples import (
    JSON_BEGINS,
    ChatExample,
    Examples,
    holds_examples,
    require_one_split,
)
from seqgen.settings import DataConfig, require
from seqgen.settings.training import TrainingConfig
from seqgen.store import StoredModel
from seqgen.text.batches import Batches, DocumentBatches
from seqgen.text.corpus import Corpus, GrowingArray
from seqgen.text.framing import Framing
from seqgen.text.pairs import Tokenizers
from seqgen.text.reading import Survey, read_head
from seqgen.text.sources import take_spans
from seqgen.text.split import held_out_files, held_out_fraction, held_out_lines
from seqgen.text.tokenfile import TokenFile, open_token_file
from seqgen.text.tokenizers import Tokenizer
from seqgen.training.datasets.dataset import DataFiles, DataParts, Dataset
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.events import Notice, Report
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.cli.shell.inputs import Pipe
    from seqgen.store.loaded import LoadedModel

# Conversations of a step, unless the user says how many.
ROWS = 8
PAIRS_ENDING = ".tsv"
# Settings of data that have no meaning: a conversation is encoded as the model's template says.
MEANINGLESS = ("documents", "newlines", "subword_sampling", "as_text")
STANDARD_INPUT = "standard input"
Row = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class ChatEncoder:
    """Encodes examples as rows of ids, with a mask of the ids to learn.

    Attributes:
        tokenizer: the model's.
        framing: how its texts begin and end.
        end: the id that ends a completion without a template; None for none.
        template: how the model reads conversations; None if it has no template.
        learns_all: the loss counts all of a conversation, not only its answers.
    """

    tokenizer: Tokenizer
    framing: Framing
    end: int | None
    template: ChatTemplate | None
    learns_all: bool

    @classmethod
    def of(cls, stored: StoredModel, tokenizer: Tokenizer, config: DataConfig) -> ChatEncoder:
        """Make the encoder of a model's conversations.

        Raises:
            SeqgenError: its chat template cannot be used.
        """
        framing = stored.framing(tokenizer)
        end = framing.as_documents(tokenizer, config.documents, "line").end
        return cls(tokenizer, framing, end, stored_template(stored), config.loss_on == "all")

    @classmethod
    def of_loaded(cls, loaded: LoadedModel) -> ChatEncoder:
        """Make the encoder of the conversations that a loaded model scores; see `of`."""
        framing, end = loaded.framing, loaded.framing_of("line").end
        template = stored_template(loaded.stored)
        return cls(loaded.tokenizer, framing, end, template, loaded.data.loss_on == "all")

    def describe(self, facts: Survey, keys: Iterable[str], model: str) -> str:
        """Say what was found in files, and of which tokens the loss is."""
        found = f"{plural(facts.lines, 'conversation')} ({', '.join(keys)})"
        template = "no chat template: prompt and completion are joined"
        if self.template is not None:
            template = f"the chat template of {model}"
        learned = "all tokens" if self.learns_all else "the answers alone"
        return f"{found}, with {template}; the loss counts {learned}"

    def rows(self, example: ChatExample) -> list[Row]:
        """Encode an example as rows: ids (T,), and which of them are learned, (T,) of bool.

        A conversation is one row, unless the template writes earlier turns in another way than the
        last one: then each answer has a row, with the turns before it.

        Raises:
            SeqgenError: the example needs a template, or the template refuses it; says which.
        """
        try:
            return [self._plain(example)] if self.template is None else self._with_template(example)
        except SeqgenError as error:
            raise SeqgenError(f"{example.place}: {error}") from None

    def _with_template(self, example: ChatExample) -> list[Row]:
        messages = example.messages
        whole, ids = self._encode(messages, prompts=False)
        answers = [] if self.learns_all else example.answers
        spans = []
        for number in answers:
            prompt, begin = self._encode(messages[:number], prompts=True) if number else ("", [])
            text, end = self._encode(messages[: number + 1], prompts=False)
            if not (whole.startswith(text) and text.startswith(prompt)):
                break
            spans.append((_common(ids, begin), _common(ids, end)))
        if len(spans) == len(answers):
            return [self._marked(ids, spans)]
        return [self._of_answer(messages, number) for number in answers]

    def _of_answer(self, messages: Sequence[Message], number: int) -> Row:
        """Encode one answer, with the turns before it."""
        earlier = messages[:number]
        _, begin = self._encode(earlier, prompts=True) if earlier else ("", [])
        text, ids = self._encode(messages[: number + 1], prompts=False)
        if earlier and not text.startswith(self.template.render(earlier, prompts=False)):
            raise SeqgenError(
                f"{self.template.name} writes the turns before an answer differently once the "
                "answer is there, so that it cannot be found: give --loss-on all"
            )
        return self._marked(ids, [(_common(ids, begin), len(ids))])

    def prompt(self, example: ChatExample) -> str:
        """Return the text that the first answer follows."""
        before = example.messages[: example.answers[0]]
        if self.template is None:
            return before[0]["content"]
        return self.template.render(before) if before else ""

    def _encode(self, messages: Any, prompts: bool) -> tuple[str, list[int]]:
        text, ids = self._conversations.encode(messages, prompts)
        return text, ids if self._conversations.names else list(self.framing.opened(ids))

    @cached_property
    def _conversations(self) -> ConversationEncoder:
        return ConversationEncoder(self.template, self.tokenizer)

    def _plain(self, example: ChatExample) -> Row:
        """Encode a prompt and a completion as a text with an end."""
        if not example.plain:
            raise SeqgenError(
                "the model has no chat template, which conversations need: begin from one that has "
                "(often called -Instruct or -it), or give prompts with completions"
            )
        prompt, completion = (message["content"] for message in example.messages)
        begin = [*self.framing.opened(self.tokenizer.encode(prompt).tolist())]
        ids = [*self.framing.opened(self.tokenizer.encode(prompt + completion).tolist())]
        ids += [] if self.end is None else [self.end]
        return self._marked(ids, [(_common(ids, begin), len(ids))])

    def _marked(self, ids: list[int], spans: Iterable[tuple[int, int]]) -> Row:
        learned = np.full(len(ids), self.learns_all)
        for begin, end in spans:
            learned[begin:end] = True
        learned[:1] = False  # nothing stands before it
        return np.array(ids, dtype=self.tokenizer.dtype), learned


def _common(ids: list[int], other: list[int]) -> int:
    """Count the first ids that two lists share: a token may reach from a prompt into its answer."""
    pairs = zip(ids, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@dataclass(frozen=True)
class EncodedRows:
    """Rows of ids, ready for training or scoring.

    Attributes:
        corpus: a document for each row.
        facts: characters and bytes of what is learned, and the number of rows.
    """

    corpus: Corpus
    facts: Survey

    @classmethod
    def gather(cls, rows: Iterable[Row], tokenizer: Tokenizer) -> EncodedRows:
        """Join rows of which anything is learned; see `ChatEncoder.rows`."""
        tokens, counted, ends = GrowingArray(tokenizer.dtype), GrowingArray(bool), [0]
        characters = size = oov = 0
        digest = hashlib.sha256()
        for ids, learned in rows:
            if learned.any():
                tokens.add(ids)
                counted.add(learned)
                ends.append(ends[-1] + ids.size)
                text = tokenizer.text_bytes(ids[learned])
                characters, size = characters + len(text.decode(errors="ignore")), size + len(text)
                oov += int(np.count_nonzero(ids[learned] == tokenizer.unk_id))
                digest.update(ids.tobytes() + learned.tobytes())
        corpus = Corpus(
            tokens.array(), np.array(ends[1:], np.int64), None, oov, counted=counted.array()
        )
        return cls(corpus, Survey(characters, size, len(ends) - 1, digest.hexdigest()))

    @classmethod
    def of_file(cls, file: TokenFile) -> EncodedRows:
        """Take the rows that were held out."""
        return cls(file.corpus, file.facts)

    def contents(self) -> set[bytes]:
        """Return the ids of each row as bytes."""
        corpus = self.corpus
        spans = zip(corpus.starts.tolist(), corpus.ends.tolist(), strict=True)
        return {corpus.tokens[begin:end].tobytes() for begin, end in spans}


def cut_rows(corpus: Corpus, most: int) -> tuple[Corpus, int, int]:
    """Cut documents after their first `most` targets.

    Returns:
        Those of which anything is left to learn; how many were cut, and how many are gone.
    """
    ends = np.minimum(corpus.ends, corpus.first_targets + most)
    every = np.arange(ends.size)
    tokens, new_ends = take_spans(corpus.tokens, corpus.starts, ends, every)
    counted, _ = take_spans(corpus.counted, corpus.starts, ends, every)
    cut = replace(corpus, tokens=tokens, ends=new_ends, counted=counted)
    learns = np.add.reduceat(counted, cut.starts, dtype=np.int64) > 0
    shorter = int(np.count_nonzero(ends < corpus.ends))
    return cut.take(np.flatnonzero(learns)), shorter, int(np.count_nonzero(~learns))


@dataclass(frozen=True)
class PreparedConversations(Prepared):
    """Conversations as rows of tokens.

    Attributes:
        first_prompt: of the samples that are shown during training.
    """

    in_windows: ClassVar[bool] = False
    first_prompt: str = ""

    @property
    def sample_prompt(self) -> str:
        return self.first_prompt

    def default_batch_size(self, training: TrainingConfig) -> int:
        return min(ROWS, self.train.ends.size)

    def left_out_notice(self, training: TrainingConfig, carries_state: bool) -> str | None:
        if carries_state and not training.reset_state:
            return None
        _, shorter, gone = cut_rows(self.train, training.seq_len)
        if not shorter:
            return None
        cut = f"{plural(shorter, 'conversation')} of {self.train.ends.size:,}"
        more = f"; {gone:,} have no answer left and are left out" if gone else ""
        return f"{cut} cut to {training.seq_len:,} tokens (--seq-len){more}"

    def batches_of(self, corpus: Corpus, training: TrainingConfig, carries: bool) -> Batches:
        length = self.longest_row if carries else training.seq_len
        cut, _, gone = cut_rows(corpus, length)
        within = f"no conversation has an answer within {training.seq_len:,} tokens"
        require(gone < corpus.ends.size, f"{within}: give a larger --seq-len")
        return DocumentBatches(cut, training.batch_size, length, training.seed, carry=False)


@dataclass
class ConversationDataset(Dataset):
    """Dataset of conversations, and of prompts with completions.

    Attributes:
        model: whose template writes the conversations; the one that training begins from if None.
        held_out_rows: rows that are never trained on.
    """

    model: StoredModel | None = None
    held_out_rows: Collection[bytes] = ()
    noun: ClassVar[str] = "conversations"

    @classmethod
    def reads(cls, path: Path) -> bool:
        """Check whether a file of records has examples."""
        return holds_examples(path)

    @classmethod
    def suits(cls, files: DataFiles, config: DataConfig, known: Tokenizers | None) -> bool:
        """Check whether data are examples: by a setting, by their records, or pairs in lines.

        Raises:
            UsageError: only some of the files are, or they are several splits of a data set.
        """
        if config.loss_on is not None:
            return True
        if config.as_text or files.targets:
            return False
        pairs = [path for path in files.paths if path.suffix == PAIRS_ENDING]
        if known is not None and len(pairs) == len(files.paths):
            return all(b"\t" in read_head(path).partition(b"\n")[0] for path in pairs)
        found = [path for path in files.paths if holds_examples(path)]
        require_one_split(found)
        others = [str(path) for path in files.paths if path not in found]
        require(
            not (found and others),
            f"give conversations alone: {', '.join(others[:3])} has none",
        )
        return bool(found)

    @classmethod
    def to_score(
        cls, loaded: LoadedModel, content: Path | Pipe, tell: Callable[[str], object]
    ) -> TokenFile | None:
        """Read a file of conversations as rows whose answers are scored; None for other files.

        A model that was trained on such files as text, and one of labels or pairs, reads none.
        """
        config = loaded.data
        if config.as_text or loaded.conditioning.in_pairs or loaded.backward:
            return None
        if isinstance(content, Path):
            return _tokens_to_score(loaded, content, str(content), tell)
        if not any(map(content.begins_with, JSON_BEGINS)):
            return None
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as kept:
            kept.writelines(content.blocks())
            kept.flush()
            try:
                return _tokens_to_score(loaded, Path(kept.name), STANDARD_INPUT, tell)
            except SeqgenError as error:
                raise SeqgenError(str(error).replace(kept.name, STANDARD_INPUT)) from None

    @classmethod
    def try_it(cls, stored: StoredModel) -> str:
        chats = stored.config["data"].get("loss_on") is not None and stored_template(stored)
        return "chat" if chats else ""

    def check(self) -> None:
        super().check()
        begins = "begin from a model that has learned to chat, --init-from NAME"
        require(self.known is not None, f"{self.examples.name} has conversations: {begins}")
        for name in MEANINGLESS:
            has_meaning = name not in self.flags
            require(has_meaning, f"{name} has no meaning: {self.examples.name} has conversations")
        require(
            self.config.direction == "forward",
            "conversations are for models that read from left to right",
        )

    @cached_property
    def examples(self) -> Examples:
        """All examples."""
        return Examples(self.files.paths)

    def survey(self) -> Survey:
        return self.examples.surveyed[0]

    def settings_from_data(
        self, facts: Survey, given: Collection[str]
    ) -> tuple[dict[str, Any], str]:
        return {"loss_on": self.config.loss_on or "answers"}, ""

    def split(self, facts: Survey) -> DataParts:
        if self.config.val == "none":
            return DataParts(self.examples, None)
        fraction = held_out_fraction(self.config.val)
        if fraction is None:
            return DataParts(self.examples, Examples(held_out_files(self.config)))
        held = held_out_lines(facts.lines, fraction, self.config.split_seed)
        return DataParts(self.examples.some(~held), self.examples.some(held))

    def learn_tokens(self, parts: DataParts) -> Tokenizers:
        return self.known

    def reload(self, stored: StoredModel, is_changed: Callable[[Survey], bool]) -> Prepared:
        self.model = stored
        return super().reload(stored, is_changed)

    def held_out(self, stored: StoredModel) -> EncodedRows | None:
        path = stored.validation_text
        return path and EncodedRows.of_file(open_token_file(path))

    def without(self, held_out: EncodedRows) -> Examples:
        self.held_out_rows = held_out.contents()
        return self.examples

    def encode(
        self, facts: Survey, parts: DataParts, tokens: Tokenizers, report: Report
    ) -> PreparedConversations:
        model = self.model or StoredModel(Path(self.config.tokenizer))
        encoder = ChatEncoder.of(model, tokens.target, self.config)
        train, val = self._rows(parts.train, encoder), parts.val
        if isinstance(val, Examples):
            val = self._rows(val, encoder)
        facts_of_all, left_out = self.examples.surveyed
        keys = dict.fromkeys("+".join(keys) for keys in self.examples.keys.values())
        option = "" if encoder.learns_all else " (--loss-on)"
        report(Notice(text=encoder.describe(facts_of_all, keys, model.name) + option))
        if left_out:
            report(Notice(text=left_out))
        for part, name in ((train, "to train on"), (val, "to validate with")):
            if part is not None and not part.corpus.ends.size:
                raise SeqgenError(f"no conversation is left {name}; give more, or --val none")
        prompt = encoder.prompt(next(iter(self.examples)))
        val_corpus, val_facts = (None, Survey()) if val is None else (val.corpus, val.facts)
        read = self.text, facts, None, tokens.target, train.corpus, val_corpus, val_facts
        return PreparedConversations(*read, self.config, prompt)

    def _rows(self, examples: Examples, encoder: ChatEncoder) -> EncodedRows:
        """Encode examples.

        Raises:
            SeqgenError: an example cannot be encoded; says which.
        """
        rows = itertools.chain.from_iterable(map(encoder.rows, examples))
        kept = (row for row in rows if row[0].tobytes() not in self.held_out_rows)
        return EncodedRows.gather(kept, encoder.tokenizer)


def _tokens_to_score(
    loaded: LoadedModel, path: Path, title: str, tell: Callable[[str], object]
) -> TokenFile | None:
    """Encode the examples of a file; None, and a notice, if the model cannot read conversations.

    Raises:
        SeqgenError: the file is damaged, or the template refuses an example.
    """
    if not holds_examples(path):
        return None
    examples, encoder = Examples((path,)), ChatEncoder.of_loaded(loaded)
    facts, left_out = examples.surveyed
    keys = "+".join(examples.keys[path])
    if encoder.template is None and not next(iter(examples)).plain:
        tell(
            f"{title} has conversations ({keys}), and {loaded.name} has no chat template: their "
            "JSON is scored as text"
        )
        return None
    if special_names(loaded.stored) and not loaded.tokenizer.named_tokens():  # such as of bytes
        raise SeqgenError(
            f"{loaded.name} does not read special tokens, which the chat template of "
            f"{loaded.stored.name} writes: give the model itself"
        )
    rows = EncodedRows.gather(
        itertools.chain.from_iterable(map(encoder.rows, examples)), loaded.tokenizer
    )
    tell(f"{title}: {encoder.describe(facts, [keys], loaded.name)}")
    if left_out:
        tell(left_out)
    return TokenFile(Path(title), loaded.tokenizer, "line", rows.corpus, rows.facts, {})

"""Answers of a model to conversations: turn by turn, or many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from seqgen.engines.ops import without_gradients
from seqgen.errors import SeqgenError
from seqgen.generation.prompts import Prompt, available_batches
from seqgen.generation.sample import Sample, Writer, finished_texts
from seqgen.generation.text_batch import BatchText, Row, SamplingPolicy, TextBatch, prefill
from seqgen.plugins.chat.chat_template import (
    ChatModel,
    FittedMessages,
    Message,
    fit,
    read_messages,
)
from seqgen.settings.generation import SampleOptions

if TYPE_CHECKING:
    import numpy as np

    from seqgen.models.inference import InferenceModel
    from seqgen.models.state import State

# What is filled of the window again when the oldest turns have to be left out.
SHARE = 0.5


def turn(role: str, content: str) -> dict[str, str]:
    """Return a message."""
    return {"role": role, "content": content}


def row_of(writer: Writer, prompt: Prompt) -> Row:
    """Return the answer to write after a prompt, which fits the model's window with it."""
    row, window = writer.row(prompt, 0, 0), writer.loaded.model.window
    if window is None:
        return row
    return replace(row, max_tokens=min(writer.options.max_tokens, window - len(prompt.tokens)))


@dataclass(frozen=True)
class _Read:
    """Prompt cache: tokens read so far, the logits (1, V) after them, and the state."""

    tokens: tuple[int, ...]
    logits: np.ndarray | None
    state: State


class ReadPrefix:
    """Reader of prompts that begin alike: what they share is read once.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: InferenceModel) -> None:
        self._model = model
        self._known: list[_Read] = []

    @without_gradients
    def read(self, tokens: tuple[int, ...]) -> tuple[np.ndarray | None, State]:
        """Return the logits and the state after some tokens, for `TextBatch.join_after`.

        The state is this reader's: a call of the model would use it up.
        """
        known = [x for x in self._known if tokens[: len(x.tokens)] == x.tokens]
        longest = max(known, key=lambda x: len(x.tokens), default=None)
        if longest is None:
            logits, state = prefill(self._model, [tokens])
        elif longest.tokens == tokens:
            logits, state = longest.logits, longest.state
        else:
            rest = tokens[len(longest.tokens) :]
            logits, state = prefill(self._model, [rest], lambda _: longest.state.copy(), [0])
        logits = None if self._model.drawer else logits
        self._known = [_Read(tokens, logits, state)]
        return logits, state

    def note(self, tokens: tuple[int, ...], read: tuple[np.ndarray | None, State]) -> None:
        """Remember what was read further, such as an answer."""
        self._known.append(_Read(tokens, *read))


@dataclass
class Conversation:
    """Conversation with a model, turn by turn.

    Attributes:
        model: answers.
        options: how answers are written. Answer i is what `seqgen sample` draws for prompt i.
        system: the system prompt; None for none.
        messages: the turns so far, without the system prompt.
        left_out: how many of them the model does not see any more.
    """

    model: ChatModel
    options: SampleOptions
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    left_out: int = 0

    def __post_init__(self) -> None:
        self._prefix = ReadPrefix(self.model.loaded.model)

    @cached_property
    def _writer(self) -> Writer:
        return Writer(self.model.loaded, self.options)

    @property
    def whole(self) -> list[dict[str, str]]:
        """The system prompt and all turns."""
        return [*([] if self.system is None else [turn("system", self.system)]), *self.messages]

    def reset(self) -> None:
        """Forget all turns; the system prompt stays."""
        self.messages, self.left_out = [], 0

    def answer(self, question: str) -> Iterator[str]:
        """Answer a question; yield the answer piece by piece as it is written.

        What is written of an answer that is broken off stays in the conversation. If nothing is,
        the question does not stay either.

        Raises:
            SeqgenError: the question does not fit the window, or see `ChatModel.prompt`.
        """
        fitted = self._fitted(question)
        self.left_out += fitted.left_out
        writer, prompt = self._writer, fitted.prompt
        row = row_of(writer, prompt)
        text = writer.begin(row)
        try:
            yield from self._written(BatchText(row, text, self._policy)) if row.max_tokens else ()
        finally:
            if text.text or text.finish_reason:
                self.messages += [turn("user", question), turn("assistant", text.text)]

    def _fitted(self, question: str) -> FittedMessages:
        seen = self.whole[: len(self.whole) - len(self.messages)] + self.messages[self.left_out :]
        messages = [*seen, turn("user", question)]
        number = len(self.messages) // 2
        return fit(self.model, number, messages, self.options.max_tokens, SHARE)

    @cached_property
    def _policy(self) -> SamplingPolicy:
        writer = self._writer
        return SamplingPolicy(writer.processors, writer.choose, outcomes=writer.outcomes)

    def _written(self, text: BatchText) -> Iterator[str]:
        batch = TextBatch(self.model.loaded.model)
        batch.join_after([text], self._prefix.read(text.row.tokens))
        while batch.texts:
            for step in batch.draw():
                if step.text:
                    yield step.text
            if text.continuation.finish_reason:
                # The last token is drawn, and not read.
                read = (*text.row.tokens, *text.continuation.ids[:-1])
                self._prefix.note(read, batch.last_read())
            batch.read()


@dataclass(frozen=True)
class AnsweredChat:
    """Answer to one of several conversations.

    Attributes:
        sample: its record as of `seqgen sample`; its prompt is the text that the model read.
        messages: the conversation, with the answer.
        left_out: how many of its messages the model has not seen.
    """

    sample: Sample
    messages: Sequence[Message]
    left_out: int

    def record(self) -> dict[str, Any]:
        """Return the fields of the record."""
        return {**self.sample.record(), "messages": list(self.messages)}


class UnansweredError(SeqgenError):
    """A conversation cannot be answered.

    Attributes:
        index: of the conversation, among several.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


def answers(
    model: ChatModel, options: SampleOptions, conversations: Iterable[Sequence[Message]]
) -> Iterator[AnsweredChat]:
    """Answer many conversations, each by itself; yield the answers in order.

    Raises:
        UnansweredError: a conversation cannot be answered; comes after the answers before it.
    """
    writer = Writer(model.loaded, options)
    first = 0
    for batch in available_batches(conversations, writer.batch_size):
        fitted: list[FittedMessages] = []
        problem = None
        try:
            for index, messages in enumerate(batch, first):
                fitted.append(fit(model, index, messages, options.max_tokens))
        except SeqgenError as error:
            problem = UnansweredError(first + len(fitted), str(error))
        rows = [row_of(writer, one.prompt) for one in fitted]
        for row, text in finished_texts(writer, rows):
            number = row.prompt - first
            record = writer.record(fitted[number].prompt, row, text)
            whole = [*batch[number], turn("assistant", text.text)]
            yield AnsweredChat(record, whole, fitted[number].left_out)
        if problem is not None:
            raise problem
        first += len(batch)


class AnsweringModel(ChatModel):
    """Model that answers single conversations; see `hooks.Plugin.chat_models`."""

    def answer(self, messages: str | Sequence[Message], options: SampleOptions) -> Sample:
        """Answer a conversation, or a question.

        Raises:
            SeqgenError: it cannot be answered.
        """
        several = [turn("user", messages)] if isinstance(messages, str) else messages
        several = list(several) if isinstance(several, Sequence) else several
        stopping = replace(options, stop=(*options.stop, *self.stop))
        return next(answers(self, stopping, [read_messages(several)])).sample

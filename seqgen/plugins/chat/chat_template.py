"""Chat templates: conversations as the text, and the tokens, that a chat model was trained on.

A template is a program in Jinja that came with the model. It is run as transformers runs it, in
Jinja's sandbox. The names of special tokens that a template writes become these tokens; the same
names in a message stay text.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError, first_line
from seqgen.generation.prompts import Prompt, first_unknown
from seqgen.plugins.chat.sandbox import (
    EndlessTemplateError,
    bounded,
    compile_template,
    limits,
)
from seqgen.store.formats import KEPT, SPECIAL_TOKENS, facts_of_chat
from seqgen.store.loading import parts_of
from seqgen.text.records import has_surrogates
from seqgen.wording import plural

if TYPE_CHECKING:
    from jinja2 import Template

    from seqgen.store import StoredMixture, StoredModel
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.tokenizers import Tokenizer

Message = Mapping[str, Any]
# Of several templates, the one for plain conversations.
DEFAULT = "default"
# Characters that Unicode keeps free for the use of programs: no text has any.
MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
# The keys of the reasoning before an answer, of which the first that a message has counts.
REASONING = "reasoning_content", "thinking", "reasoning"
# Messages that show where an answer ends.
QUESTION, ANSWER = "first question", "first answer"


@dataclass(frozen=True)
class ChatTemplate:
    """Template of a model's conversations.

    Attributes:
        source: the program.
        variables: the names of special tokens that it may use, such as `bos_token`.
        name: what messages call it.
    """

    source: str
    variables: Mapping[str, str]
    name: str = "the chat template"

    def render(self, messages: Sequence[Message], prompts: bool = True) -> str:
        """Write a conversation as text, as `apply_chat_template` of transformers does.

        Args:
            messages: its turns, each with a `role` and a `content`.
            prompts: end with what an answer begins with (`add_generation_prompt`).

        Raises:
            SeqgenError: the template refuses the messages, or fails.
        """
        from jinja2 import TemplateError, UndefinedError

        try:
            with limits():
                text = self._compiled.render(
                    messages=[*map(_with_reasoning, messages)],
                    tools=None,
                    documents=None,
                    add_generation_prompt=prompts,
                    **self.variables,
                )
            return bounded(text)
        except EndlessTemplateError as error:
            raise EndlessTemplateError(f"{self.name} {error}") from None
        except TemplateError as error:
            fails = isinstance(error, UndefinedError)
            verb = "fails" if fails else "refuses the messages"
            raise SeqgenError(f"{self.name} {verb}: {first_line(error)}") from None
        except RecursionError:
            raise SeqgenError(f"{self.name} fails: it calls itself too often") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise SeqgenError(f"{self.name} fails: {first_line(error)}") from None
        except MemoryError:
            raise EndlessTemplateError(f"{self.name} fails: it needs too much memory") from None

    @property
    def _compiled(self) -> Template:
        from jinja2 import TemplateSyntaxError

        try:
            return compile_template(self.source)
        except TemplateSyntaxError as error:
            where = f"line {error.lineno}"
            raise SeqgenError(f"{self.name} is broken: {first_line(error)} ({where})") from None
        except SyntaxError as error:  # of the Python code that Jinja makes of it
            raise SeqgenError(f"{self.name} is broken: {error.msg}") from None


def stored_template(stored: StoredModel | StoredMixture) -> ChatTemplate | None:
    """Read the template that came with a model, or with the one that it was fine-tuned from.

    Raises:
        SeqgenError: there are several without a default, or an earlier version imported it.
    """
    model = _with_facts(stored)
    kept = model.record.get(KEPT)
    source = kept.get("chat_template") if isinstance(kept, dict) else None
    if source is None:
        return None
    if SPECIAL_TOKENS not in model.record:
        raise SeqgenError(
            f"{model.name} was imported by an earlier version, which did not keep the names of "
            "special tokens that its chat template needs: import it again"
        )
    return ChatTemplate(_default_of(source, model.name), special_names(stored))


def special_names(stored: StoredModel | StoredMixture) -> dict[str, str]:
    """Read the names of special tokens by what templates call them; empty if none are known."""
    names = _with_facts(stored).record.get(SPECIAL_TOKENS)
    return names if isinstance(names, dict) else {}


def _with_facts(stored: StoredModel | StoredMixture) -> StoredModel:
    """Return the model whose record has a model's template: imported adapters have their base's."""
    (model, *_) = parts_of(stored)
    return model.base if model.is_adapter and not facts_of_chat(model.record) else model


def _default_of(source: Any, name: str) -> str:
    """Choose among the named templates of a model.

    Raises:
        SeqgenError: there are several without a default, or it is no template.
    """
    if isinstance(source, str):
        return source
    try:
        named = {one["name"]: one["template"] for one in source}
    except (LookupError, TypeError):
        named = {}
    if not named or not all(isinstance(one, str) for one in named.values()):
        raise SeqgenError(
            f"{name} has a damaged chat template, neither text nor a list of named ones; give "
            "--template FILE"
        )
    if DEFAULT not in named and len(named) > 1:
        listed = ", ".join(named)
        raise SeqgenError(f"{name} has the chat templates {listed}, and none is the default")
    return named.get(DEFAULT) or next(iter(named.values()))


@dataclass(frozen=True)
class ConversationEncoder:
    """Encodes conversations: only the template writes special tokens, messages never do.

    Attributes:
        template: writes the conversation as text.
        tokenizer: makes ids of it.
    """

    template: ChatTemplate
    tokenizer: Tokenizer

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Names of tokens that only the template may write: special ones, and those in it."""
        named, source = self.tokenizer.named_tokens(), self.template.source
        return frozenset(x for x, special in named.items() if special or x in source)

    def encode(self, messages: Sequence[Message], prompts: bool = True) -> tuple[str, list[int]]:
        """Return a conversation as text and as ids; see `ChatTemplate.render`.

        Raises:
            SeqgenError: the template refuses the messages, or they have the name of a special
                token that cannot be kept as text.
        """
        text, tokenizer = self.template.render(messages, prompts), self.tokenizer
        if not self.names:
            return text, tokenizer.encode(text).tolist()
        looks = re.compile("|".join(map(re.escape, sorted(self.names, key=len, reverse=True))))
        if not any(looks.search(content) for content in _texts(messages)):
            return text, tokenizer.encode_with_names(text).tolist()
        held = "".join(_texts(messages))
        free = [mark for mark in MARKS if mark not in held]
        if len(free) < 2:
            raise SeqgenError("a message has all characters that mark the names of special tokens")
        begin, end = free[:2]
        mark = functools.partial(looks.sub, rf"{begin}\g<0>{end}")
        marked = self.template.render(_mapped(messages, mark), prompts)
        if marked.replace(begin, "").replace(end, "") != text:
            raise SeqgenError(
                "a message has the name of a special token, and the chat template treats it in a "
                "special way: leave it out"
            )
        parts = re.split(f"{begin}({looks.pattern}){end}|[{begin}{end}]", marked)
        ids: list[int] = []
        for number, part in enumerate(parts):
            if part:  # None where only half of a name is left
                as_text = number % 2 == 1
                ids += _encode_part(tokenizer, part, as_text, first=number == 0)
        return text, ids


@dataclass(frozen=True)
class ChatModel:
    """Model that answers conversations.

    Attributes:
        loaded: the model. Its answers end with the template's end of a turn, too.
        template: how it reads conversations.
        stop: text that ends an answer, for a template that ends turns without a special token.
    """

    loaded: LoadedModel
    template: ChatTemplate
    stop: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, loaded: LoadedModel, template: ChatTemplate | None = None, instead: str = ""
    ) -> ChatModel:
        """Return a model with its template.

        Args:
            loaded: the model.
            template: given by the user; None for the one that came with the model.
            instead: what to do without one, for the message.

        Raises:
            UsageError: the model writes from sources or labels.
            SeqgenError: there is no template, or it cannot be used.
        """
        name = loaded.stored.name
        loaded.conditioning.require_nothing("a chat")
        if loaded.backward:
            raise SeqgenError(f"{name} writes from right to left, and a chat reads forward")
        template = template or stored_template(loaded.stored)
        if template is None:
            raise SeqgenError(f"{name} has no chat template{instead and ': '}{instead}")
        model = cls(loaded, template)
        end, stop = model._end_of_turn()
        if end is not None and end not in loaded.framing.stops:
            framing = loaded.framing
            framing = replace(framing, also_stop=(*framing.also_stop, end))
            loaded = replace(loaded, own_framing=framing)
        return cls(loaded, template, stop)

    def prompt(self, index: int, messages: Sequence[Message]) -> Prompt:
        """Return the text and the tokens of a conversation, ready to be answered.

        Args:
            index: of the prompt.
            messages: the turns.

        Raises:
            SeqgenError: the template refuses them, or the model does not know a character.
        """
        loaded = self.loaded
        text, ids = self._encoder.encode(messages)
        if not ids:
            raise SeqgenError(f"{self.template.name} writes nothing for these messages")
        if not self._encoder.names:  # a template cannot write the start symbol
            unknown = first_unknown(loaded, text)
            if unknown is not None:
                raise SeqgenError(f"the model does not know {unknown[0]!r}, which a message has")
            ids = loaded.framing.opened(ids)
        return Prompt(index, text, tuple(ids))

    def read_prompt(self, messages: Any) -> Prompt:
        """Check the messages of a request; return their text and tokens.

        Raises:
            SeqgenError: see `read_messages` and `prompt`.
        """
        return self.prompt(0, read_messages(messages))

    @functools.cached_property
    def _encoder(self) -> ConversationEncoder:
        return ConversationEncoder(self.template, self.loaded.tokenizer)

    def _end_of_turn(self) -> tuple[int | None, tuple[str, ...]]:
        """Find the token, or else the text, that the template writes after an answer."""
        turns = [_turn("user", QUESTION), _turn("assistant", ANSWER), _turn("user", QUESTION)]
        try:
            after = self.template.render(turns[:2], prompts=False).partition(ANSWER)[2]
            places = {after.find(name): name for name in self._encoder.names if name in after}
            if places:
                name = places[min(places)]
                return int(self.loaded.tokenizer.encode_with_names(name)[-1]), ()
            between = self.template.render(turns).partition(ANSWER)[2].partition(QUESTION)[0]
        except EndlessTemplateError:
            raise
        except SeqgenError:  # other messages may please it
            return None, ()
        return None, (between.rstrip(),) if between.strip() else ()


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _encode_part(tokenizer: Tokenizer, part: str, as_text: bool, first: bool) -> list[int]:
    """Encode a piece of a conversation.

    Args:
        tokenizer: the model's.
        part: the piece.
        as_text: names of tokens in it are text.
        first: nothing stands before it. Other pieces get no space before them, which tokenizers
            put at the beginning of a text; so they are encoded after a newline.

    Raises:
        SeqgenError: the tokenizer reads a name as its token in any case.
    """
    encode = tokenizer.encode_as_text if as_text else tokenizer.encode_with_names
    ids, newline = encode("\n" + part).tolist(), encode("\n").tolist()
    after = not first and ids[: len(newline)] == newline
    ids = ids[len(newline) :] if after else encode(part).tolist()
    if as_text and tokenizer.encode_with_names(part).tolist()[-1:] == ids[-1:]:
        raise SeqgenError(
            f"a message has {part!r}, which the tokenizer always reads as a special token: leave "
            "it out"
        )
    return ids


def _with_reasoning(message: Message) -> Message:
    """Give the reasoning of a message both names that templates read, as transformers 5 does."""
    reasoning = next((message[x] for x in REASONING if message.get(x) is not None), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of messages, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _texts(part)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Change the texts of messages, at any depth."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(part, change) for key, part in value.items()}
    return [_mapped(part, change) for part in value] if isinstance(value, list) else value


def read_messages(value: Any) -> list[dict[str, Any]]:
    """Check the messages of a conversation.

    Raises:
        SeqgenError: they are no list of objects with a role and a content.
    """
    if not (isinstance(value, list) and value):
        raise SeqgenError('messages must be a list such as [{"role": "user", "content": "Hello"}]')
    messages = []
    for number, message in enumerate(value):
        about = message if isinstance(message, dict) else {}
        role, content = about.get("role"), about.get("content")
        if isinstance(content, list):
            content = joined_parts(content)
            if content is None:
                raise SeqgenError(f"message {number} has a part that is no text")
        if not (isinstance(role, str) and isinstance(content, str)):
            raise SeqgenError(f"message {number} needs a role and a content, both texts")
        if has_surrogates(role + content):
            raise SeqgenError(
                f"message {number} has half of a surrogate pair (such as \\ud800), which is no text"
            )
        messages.append({**about, "content": content})
    return messages


def joined_parts(parts: Sequence[Any]) -> str | None:
    """Join the parts of a content, as OpenAI's protocol has them; None if one is no text."""
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None


@dataclass(frozen=True)
class FittedMessages:
    """Conversation without the oldest turns that do not fit the window.

    Attributes:
        messages: what is left.
        left_out: how many messages are gone.
        prompt: what the model reads.
    """

    messages: Sequence[Message]
    left_out: int
    prompt: Prompt


def fit(
    model: ChatModel,
    index: int,
    messages: Sequence[Message],
    room: int,
    share: float = 1.0,
) -> FittedMessages:
    """Leave out the oldest turns until a conversation fits the model's window.

    The system prompt and the last message always stay.

    Args:
        model: with its template.
        index: of the prompt.
        messages: the conversation.
        room: tokens that the answer may have, which a quarter of the window is kept for at most.
        share: of the window that is filled again once turns have to be left out. Less than 1 leaves
            out several at a time.

    Raises:
        SeqgenError: the last message alone does not fit; or see `ChatModel.prompt`.
    """
    window = model.loaded.model.window
    begins = int(messages[0]["role"] == "system")
    starts = [begins, *(i for i, x in enumerate(messages) if x["role"] == "user" and i > begins)]
    for start in starts:
        kept = [*messages[:begins], *messages[start:]]
        prompt = model.prompt(index, kept)
        most = math.inf if window is None else window - min(room, window // 4)
        least = min(most, share * window) if begins < start < starts[-1] else most
        if len(prompt.tokens) <= least:
            return FittedMessages(kept, start - begins, prompt)
    raise SeqgenError(
        f"the last message has {plural(len(prompt.tokens), 'token')} with the template, and "
        f"{model.loaded.stored.name} reads {window:,} with the answer: shorten it"
    )

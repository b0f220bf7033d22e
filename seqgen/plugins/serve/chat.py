"""OpenAI's chat protocol: conversations are read with the model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from seqgen import hooks
from seqgen.errors import SeqgenError
from seqgen.generation.sample import Writer
from seqgen.plugins.serve.protocol import (
    FILTERS,
    MOST_TOP,
    CompletionForm,
    Query,
    Refused,
    finite,
    read_options,
    read_query,
    require_length,
    typed,
    within,
)

if TYPE_CHECKING:
    from seqgen.plugins.serve.engine import TokenLogprob
    from seqgen.plugins.serve.settings import ServeOptions
    from seqgen.store.loaded import LoadedModel

# What asks for calls of tools, and what only says more about them.
TOOLS = ("tools", "functions")
ABOUT_TOOLS = ("tool_choice", "function_call", "parallel_tool_calls")
# Both limit the length of an answer; the first is OpenAI's newer name.
LENGTHS = ("max_completion_tokens", "max_tokens")
FIELDS = (
    *(name for name in FILTERS if name != "suffix"),
    *("model", "messages", "n", "seed", "logit_bias", "logprobs", "top_logprobs", "stream"),
    *("stream_options", "user", "response_format", LENGTHS[0], *TOOLS, *ABOUT_TOOLS),
)


class ChatForm(CompletionForm):
    """Shape of the responses of `/v1/chat/completions`."""

    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"
    pieces_alike = False  # the first names the role
    prepares_prompts = False

    def content(self, text: str, first: bool, streams: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if first or not streams else {}
        return {"delta" if streams else "message": {**role, "content": text}}

    def logprobs(
        self, asked: Query, tokens: Sequence[TokenLogprob | int], offsets: Sequence[int]
    ) -> dict[str, Any]:
        tokenizer = asked.loaded.tokenizer

        def about(token: int, logprob: float) -> dict[str, Any]:
            (name,), raw = tokenizer.pieces([token]), tokenizer.token_bytes[token]
            return {"token": name, "logprob": finite(logprob), "bytes": list(raw)}

        content = [
            {
                **about(one.token, one.logprob),
                "top_logprobs": [about(*pair) for pair in zip(one.ids, one.logprobs, strict=True)],
            }
            for one in tokens
        ]
        return {"content": content}


def read_chat(fields: dict[str, Any], loaded: LoadedModel, limits: ServeOptions) -> Query:
    """Parse a chat request for a model.

    Raises:
        SeqgenError: a field has no meaning, the model has no chat template, or the template
            refuses the messages.
    """
    for name in TOOLS:
        if fields.get(name):
            raise Refused(f"{name} are not supported: a model answers with text", param=name)
    chat_model, instead = hooks.chat_model(), "send its prompts to /v1/completions"
    if chat_model is None:
        raise SeqgenError(f"chats need the plugin chat, which is not installed: {instead}")
    try:
        chat = chat_model.of(loaded, instead=instead)
    except SeqgenError:
        if loaded.stored.path.exists():
            raise
        gone = f"the model {loaded.name!r} has been removed"
        raise Refused(gone, 404, "model", "model_not_found") from None
    try:
        prompt = chat.read_prompt([_plain(one) for one in _listed(fields.get("messages"))])
    except Refused:
        raise
    except SeqgenError as error:
        raise Refused(str(error), param="messages") from None
    require_length(prompt, "--max-prompt is", limits.max_prompt, "messages")
    most = limits.max_tokens
    if loaded.model.window is not None:
        window = f"{loaded.name} reads, with an answer,"
        require_length(prompt, window, loaded.model.window - 1, "messages")
        most = min(most, loaded.model.window - len(prompt.tokens))
    for name in LENGTHS:
        within(name, fields.get(name, 0), 0, limits.max_tokens)
    asked = next((fields[name] for name in LENGTHS if name in fields), most)
    options = read_options({**fields, "max_tokens": min(int(asked), most)}, limits)
    options = replace(options, stop=(*options.stop, *chat.stop))
    more = {name: fields[name] for name in fields if name not in ("logprobs", "top_logprobs")}
    if typed("logprobs", fields.get("logprobs", False), bool):
        more["logprobs"] = within("top_logprobs", fields.get("top_logprobs", 0), 0, MOST_TOP)
    elif "top_logprobs" in fields:
        raise Refused("top_logprobs needs logprobs: true", param="top_logprobs")
    return read_query(more, Writer(chat.loaded, options), [prompt], [0], ChatForm())


def _listed(messages: Any) -> list[Any]:
    return messages if isinstance(messages, list) else []


def _plain(message: Any) -> Any:
    """Convert a message to one with a plain text, and a role that templates know.

    Raises:
        Refused: a part of it is no text.
    """
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        if not all(isinstance(text, str) for text in texts):
            raise Refused("messages can only have parts of type text", param="messages")
        content = "".join(texts)
    role = "system" if message.get("role") == "developer" else message.get("role")
    return {**message, "role": role, "content": content}

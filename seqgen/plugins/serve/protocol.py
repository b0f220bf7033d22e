"""OpenAI's completions protocol: parsing of requests, and the format of responses."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from seqgen.errors import SeqgenError, did_you_mean
from seqgen.generation.backward import decoder_of
from seqgen.generation.continuation import Continuation
from seqgen.generation.processors import Processor
from seqgen.generation.prompts import Prompt, batches
from seqgen.generation.sample import Writer
from seqgen.generation.text_batch import Row
from seqgen.models.distributions import normalise
from seqgen.plugins.serve.engine import TIME, TokenLogprob
from seqgen.plugins.serve.settings import ServeOptions
from seqgen.settings.generation import SampleOptions
from seqgen.settings.setting import MOST_SEED, shorten, why_not_utf8
from seqgen.store.loaded import LoadedModel

# Fields that are settings of `SampleOptions` under their own names, with their types.
FILTERS = {
    **dict.fromkeys(("temperature", "top_p", "min_p", "typical"), float),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty"), float),
    **dict.fromkeys(("max_tokens", "min_tokens", "top_k", "no_repeat_ngram"), int),
    **dict.fromkeys(("dry_multiplier", "dry_base", "top_n_sigma"), float),
    **dict.fromkeys(("xtc_probability", "xtc_threshold"), float),
    **dict.fromkeys(("stop", "ban", "dry_sequence_breaker"), tuple),
    **dict.fromkeys(("force", "pattern", "suffix"), str),
    **{"greedy": bool, "heal": bool, "dry_allowed_length": int},
}
# Some of these, and what a `response_format` sets, are there if a plugin adds them.
KNOWN = frozenset(name for name, *_ in SampleOptions.flags())
FILTERS = {name: kind for name, kind in FILTERS.items() if name in KNOWN}
# The schema of all objects.
ANY_OBJECT = {
    "$ref": "#/$defs/object",
    "$defs": {
        "object": {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}},
        "array": {"type": "array", "items": {"$ref": "#/$defs/value"}},
        "value": {"anyOf": [{}, {"$ref": "#/$defs/object"}, {"$ref": "#/$defs/array"}]},
    },
}
OTHERS = (
    *("model", "prompt", "n", "best_of", "seed", "logit_bias", "echo", "logprobs", "stream"),
    *("stream_options", "suffix", "user", "response_format", "label"),
)
# Flags that are fields under other names.
FIELDS = {"--json-schema": "response_format"}
SCORE_FIELDS = ("model", "lines", "sources", "label")
# What other clients ask for at most: choices for a prompt, prompts of a request, likely tokens,
# biased tokens, stop strings.
MOST_CHOICES, MOST_PROMPTS, MOST_TOP, MOST_BIASED, MOST_STOPS = 128, 2048, 100, 1024, 64
# Characters of all stop strings together, and of all that is banned.
MOST_CHARACTERS = 4096
# As in the protocol, where nothing is given.
MAX_TOKENS = 16
MOST_BIAS = 100.0
REASONS = {"length": "length", TIME: "length"}  # all others are "stop"


class Refused(SeqgenError):  # noqa: N818
    """Error response with an HTTP status, in the format of OpenAI's `error` object.

    Args:
        message: what is wrong.
        status: of HTTP.
        param: the field that is.
        code: a word for programs.
    """

    def __init__(
        self, message: str, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def body(self) -> dict[str, Any]:
        """Build the JSON body of the response."""
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        about = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": about}


def read_json(body: bytes, known: Collection[str]) -> dict[str, Any]:
    """Parse a request's JSON object; null fields are removed.

    Raises:
        Refused: it is no JSON object, or has a field that is not known.
    """

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    try:
        fields = json.loads(body, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        why = "too deep" if isinstance(error, RecursionError) else error
        raise Refused(f"the body is not JSON: {why}") from None
    if not isinstance(fields, dict):
        raise Refused("the body must be a JSON object")
    for name in fields:
        if name not in known:
            hint = did_you_mean(name[:100], known)
            raise Refused(f"there is no field {shorten(name)!r}{hint}", param=shorten(name))
    return {name: value for name, value in fields.items() if value is not None}


def typed(name: str, value: Any, kind: Any) -> Any:
    """Convert a field's value to a type: bool, int, float, str, or a tuple of str.

    Raises:
        Refused: it has another type.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is tuple:
        value = [value] if isinstance(value, str) else value
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(typed(name, item, str) for item in value)
        raise Refused(f"{name} must be a string or a list of strings", param=name)
    if kind is float and number:
        try:
            return float(value)
        except OverflowError:
            raise Refused(f"{name} is too large", param=name) from None
    if kind is int and number and value == value // 1:
        return int(value)
    if kind in (bool, str) and isinstance(value, kind):
        why = why_not_utf8(value) if kind is str else None
        if why is not None:
            raise Refused(f"{name} {why}", param=name)
        return value
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    raise Refused(f"{name} must be {words[kind]}, not {shorten(repr(value))}", param=name)


def within(name: str, value: Any, low: int, high: int) -> int:
    """Convert a field's value to an integer within bounds.

    Raises:
        Refused: it is none, or out of bounds.
    """
    number = typed(name, value, int)
    if not low <= number <= high:
        why = f"{name} must be from {low:,} to {high:,}, not {shorten(number)}"
        raise Refused(why, param=name)
    return number


class CompletionForm:
    """Shape of the responses of `/v1/completions`.

    Attributes:
        prefix: how their ids begin.
        whole: what a response is called.
        chunk: what a streamed event is called.
        pieces_alike: whether the first event of a text has the fields of all others.
        prepares_prompts: whether options may change how prompts are read.
    """

    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"
    pieces_alike = prepares_prompts = True

    def content(self, text: str, first: bool, streams: bool) -> dict[str, Any]:
        """Build the part of a choice that has its text.

        Args:
            text: all of it, or its next piece.
            first: it is the first piece.
            streams: it is streamed.
        """
        return {"text": text}

    def logprobs(
        self, asked: Query, tokens: Sequence[TokenLogprob | int], offsets: Sequence[int]
    ) -> dict[str, Any]:
        """Build the log-probabilities of tokens; see `logprobs_of`."""
        return logprobs_of(asked, tokens, offsets)


@dataclass(frozen=True)
class Query:
    """Parsed completion request.

    Attributes:
        loaded: the model, with the label that is asked for.
        writer: how texts are written.
        prompts: after what; each is changed in its place before its texts begin, as options say.
        added: how many tokens the server has put before each prompt.
        choices: texts of each prompt that are sent.
        candidates: texts of each prompt that are written.
        processors: the filters, the bias of tokens among them.
        echo: send the prompts, too.
        top: how many likely tokens to send; None for no log-probabilities.
        stream: send pieces as they come.
        usage: and the number of tokens at the end of a stream.
        form: of the response.
    """

    loaded: LoadedModel
    writer: Writer
    prompts: list[Prompt]
    added: Sequence[int]
    choices: int
    candidates: int
    processors: Sequence[Processor]
    echo: bool
    top: int | None
    stream: bool
    usage: bool
    form: CompletionForm

    @property
    def scores_prompts(self) -> bool:
        """True if the response includes log-probabilities of the prompts."""
        return self.echo and self.top is not None

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens in the prompts, or in the sources."""
        source = sum(len(p.source_tokens) for p in self.prompts if p.source is not None)
        return source or sum(len(p.tokens) for p in self.prompts) - sum(self.added)

    def shown(self, prompt: Prompt) -> tuple[int, ...]:
        """Remove the tokens that the server added before a prompt."""
        return prompt.tokens[self.added[prompt.index] :]


def read_options(fields: dict[str, Any], limits: ServeOptions) -> SampleOptions:
    """Parse the sampling options of a request.

    Raises:
        Refused: a field has a wrong type or value; names it.
    """
    given = {name: typed(name, fields[name], FILTERS[name]) for name in FILTERS if name in fields}
    given["max_tokens"] = within(
        "max_tokens", given.get("max_tokens", MAX_TOKENS), 0, limits.max_tokens
    )
    schema = read_format(fields.get("response_format", {"type": "text"}))
    if schema is not None and "json_schema" not in KNOWN:
        why = "response_format can only be text: no plugin of this server writes JSON"
        raise Refused(why, param="response_format")
    given |= {} if schema is None else {"json_schema": schema}
    seed = within("seed", fields.get("seed", secrets.randbelow(1 << 31)), 0, MOST_SEED)
    options = SampleOptions.of(seed=seed, **given)
    if len(options.stop) > MOST_STOPS:
        raise Refused(f"stop may have {MOST_STOPS} strings", param="stop")
    for name in ("stop", "ban", "dry_sequence_breaker"):
        if sum(map(len, given.get(name, ()))) > MOST_CHARACTERS:
            why = f"{name} may have {MOST_CHARACTERS:,} characters in all"
            raise Refused(why, param=name)
    return options


def read_format(form: Any) -> str | None:
    """Extract the JSON Schema from `response_format`; None for plain text.

    Raises:
        Refused: it has another form.
    """
    kind = form.get("type") if isinstance(form, dict) else None
    about = form.get("json_schema") if kind == "json_schema" else {"schema": ANY_OBJECT}
    right = (
        kind in ("text", "json_object", "json_schema")
        and form.keys() <= {"type", *(["json_schema"] if kind == "json_schema" else [])}
        and isinstance(about, dict)
        and about.keys() <= {"schema", "name", "description", "strict"}
        and isinstance(about.get("schema"), dict)
    )
    if not right:
        forms = '{"type": "text" or "json_object"} or {"type": "json_schema", "json_schema": '
        why = f'response_format must be {forms}{{"schema": {{...}}}}}}'
        raise Refused(why, param="response_format")
    return None if kind == "text" else json.dumps(about["schema"])


def refused(error: SeqgenError) -> Refused:
    """Convert a command-line error to a `Refused` that names the request's field."""
    text, named = str(error), []
    for flag in re.findall("--[a-z][a-z-]*", text):
        named.append(FIELDS.get(flag, flag[2:].replace("-", "_")))
        text = text.replace(flag, named[-1], 1)
    named += re.findall(r"^\w+", text)
    return Refused(text, param=next((name for name in named if name in (*FILTERS, *OTHERS)), None))


def read_label(fields: dict[str, Any], loaded: LoadedModel) -> LoadedModel:
    """Apply the label of a request to a model, if there is one."""
    return loaded.with_labels(typed("label", fields.get("label", []), tuple))


def read_completion(fields: dict[str, Any], loaded: LoadedModel, limits: ServeOptions) -> Query:
    """Parse a completion request for a model.

    Raises:
        SeqgenError: a field has no meaning, or the model does not know something of a prompt.
    """
    if "heal" in KNOWN and (_has_ids(fields) or {"echo", "logprobs"} <= fields.keys()):
        fields = {"heal": False, **fields}  # the tokens of the prompt are to stay what they are
    options = read_options(fields, limits)
    loaded = read_label(fields, loaded)
    loaded.conditioning.require_chosen()
    loaded.conditioning.check(None)
    infills = bool(fields.get("suffix"))
    if infills and (fields.get("echo") or "suffix" not in KNOWN):
        why = "give suffix or echo, not both" if "suffix" in KNOWN else "suffix is not supported"
        raise Refused(why, param="suffix")
    writer = Writer(loaded, options)
    prompts, added = read_prompts(fields.get("prompt", ""), writer.loaded, limits)
    added = [0] * len(added) if infills else added  # the suffix counts as part of the prompt
    return read_query(fields, writer, prompts, added, CompletionForm())


def _has_ids(fields: Mapping[str, Any]) -> bool:
    """Check whether the prompts of a request are token ids."""
    prompt = fields.get("prompt")
    return isinstance(prompt, list) and not all(isinstance(one, str) for one in prompt)


def read_query(
    fields: dict[str, Any],
    writer: Writer,
    prompts: list[Prompt],
    added: Sequence[int],
    form: CompletionForm,
) -> Query:
    """Parse what a request wants of its texts: how many, and how they are sent.

    Args:
        fields: of `/v1/completions`.
        writer: writes them.
        prompts: of the request.
        added: how many tokens were put before each.
        form: of the response.

    Raises:
        SeqgenError: a field has no meaning.
    """
    loaded = writer.loaded
    choices = within("n", fields.get("n", 1), 1, MOST_CHOICES)
    candidates = within("best_of", fields.get("best_of", choices), choices, MOST_CHOICES)
    flags = {name: typed(name, fields.get(name, False), bool) for name in ("echo", "stream")}
    if flags["stream"] and candidates > choices:
        raise Refused("best_of can only be streamed if it is n", param="best_of")
    top = None
    if "logprobs" in fields:
        top = within("logprobs", fields["logprobs"], 0, MOST_TOP)
    if loaded.backward and top is not None:
        raise Refused(
            f"{loaded.name} writes from right to left, without logprobs", param="logprobs"
        )
    if flags["echo"] and loaded.conditioning.is_source:
        raise Refused(f"{loaded.name} has no prompt before its text to echo", param="echo")
    extra = fields.get("stream_options", {})
    if not (isinstance(extra, dict) and extra.keys() <= {"include_usage"}):
        raise Refused("stream_options may have include_usage alone", param="stream_options")
    processors = with_bias(writer, fields.get("logit_bias", {}))
    usage = typed("include_usage", extra.get("include_usage") or False, bool)
    return Query(
        loaded=loaded,
        writer=writer,
        prompts=prompts,
        added=added,
        choices=choices,
        candidates=candidates,
        processors=processors,
        echo=flags["echo"],
        top=top,
        stream=flags["stream"],
        usage=usage,
        form=form,
    )


def read_prompts(
    prompt: Any, loaded: LoadedModel, limits: ServeOptions, name: str = "prompt"
) -> tuple[list[Prompt], list[int]]:
    """Parse the prompts, and count the tokens that were added before each.

    Args:
        prompt: one, or several.
        loaded: the model.
        limits: of the server.
        name: the field that has them.

    Raises:
        SeqgenError: they are no prompts, too many or too long, or the model does not know them.
    """
    each = prompt if isinstance(prompt, list) else [prompt]
    if each is prompt and each and all(isinstance(one, int) for one in each):
        each = [each]
    if not 1 <= len(each) <= MOST_PROMPTS:
        raise Refused(f"{name} must be 1 to {MOST_PROMPTS:,} texts", param=name)
    if all(isinstance(one, str) for one in each):
        (prompts,) = batches(loaded, each, len(each))
        added = [len(p.tokens) - len(loaded.ids(p.text)) for p in prompts]
    elif all(isinstance(one, list) for one in each):
        pairs = [_prompt_of_ids(index, one, loaded, name) for index, one in enumerate(each)]
        prompts, added = map(list, zip(*pairs, strict=True))
    else:
        raise Refused(f"{name} must be a string, a list of them, or lists of ids", param=name)
    for one in prompts:
        require_length(one, "--max-prompt is", limits.max_prompt, name)
    return prompts, added


def require_length(prompt: Prompt, what: str, most: int, param: str) -> None:
    """Refuse a prompt that is too long.

    Args:
        prompt: with its tokens.
        what: has the limit, with a verb.
        most: the limit.
        param: the field of the prompt.

    Raises:
        Refused: it has more tokens.
    """
    length = len(prompt.tokens) + len(prompt.source_tokens)
    if length > most:
        why = f"the prompt has {length:,} tokens, and {what} {most:,}"
        raise Refused(why, param=param, code="context_length_exceeded")


def _prompt_of_ids(
    index: int, ids: list[Any], loaded: LoadedModel, name: str
) -> tuple[Prompt, int]:
    """Create a prompt from token ids, with the start symbol added if it is missing."""
    if loaded.conditioning.is_source:
        raise Refused(f"{loaded.name} writes from sources, which are text", param=name)
    size = loaded.tokenizer.vocab_size
    wrong = next((i for i in ids if type(i) is not int or not 0 <= i < size), None)
    if wrong is not None:
        why = f"{name} has the id {shorten(repr(wrong))}; those of {loaded.name} are below {size:,}"
        raise Refused(why, param=name)
    text = loaded.tokenizer.decode(ids)
    ids = tuple(ids[::-1] if loaded.backward else ids)
    started = ids[:1] == (loaded.framing.start,)
    tokens = ids if started else loaded.framing.opened(ids)
    return Prompt(index, text, tokens), len(tokens) - len(ids)


@dataclass(frozen=True)
class LogitBias:
    """Filter that adds constants in nats to the log-probabilities of given tokens."""

    name: ClassVar[str] = "logit-bias"
    ids: tuple[int, ...]
    nats: tuple[float, ...]

    def __call__(self, history: Sequence[Sequence[int]], log_probs: np.ndarray) -> np.ndarray:
        biased = log_probs.copy()
        biased[:, list(self.ids)] += np.array(self.nats, log_probs.dtype)
        return normalise(biased)


def with_bias(writer: Writer, bias: Any) -> Sequence[Processor]:
    """Add the filter for `logit_bias` to a writer's filters, before penalties and temperature.

    Raises:
        Refused: it is no such table.
    """
    processors, size = writer.processors, writer.loaded.tokenizer.vocab_size
    if not isinstance(bias, dict) or len(bias) > MOST_BIASED:
        why = f"logit_bias must map up to {MOST_BIASED:,} ids to numbers"
        raise Refused(why, param="logit_bias")
    nats: dict[int, float] = {}
    for key, value in bias.items():
        known = re.fullmatch("[0-9]{1,9}", key) is not None and int(key) < size
        number = typed("logit_bias", value, float)
        if not (known and abs(number) <= MOST_BIAS):
            why = f"logit_bias has {shorten(repr(key))}: {shorten(value)}; ids are below {size:,}, "
            raise Refused(f"{why}and numbers from -100 to 100", param="logit_bias")
        nats[int(key)] = number
    if not nats:
        return processors
    last = len(processors) - len(writer.samplers)
    added = LogitBias(tuple(nats), tuple(nats.values()))
    return [*processors[:last], added, *processors[last:]]


def best(
    texts: Mapping[Row, tuple[Continuation, Sequence[TokenLogprob]]], asked: Query
) -> Iterator[tuple[int, Row]]:
    """Yield the index and row of each choice in order, the best of the candidates.

    Of more candidates, those with the highest log-probability by token; of equals the first.
    """
    for prompt in asked.prompts:
        rows = sorted((row for row in texts if row.prompt == prompt.index), key=lambda r: r.sample)
        if asked.candidates > asked.choices:
            rows.sort(key=lambda row: -texts[row][0].logprob / max(1, texts[row][0].tokens))
        yield from enumerate(rows[: asked.choices], prompt.index * asked.choices)


def text_of(asked: Query, row: Row, continuation: Continuation) -> str:
    """Build a finished text in the form that `seqgen sample` writes."""
    prompt = asked.prompts[row.prompt]
    return asked.writer.record(prompt, row, continuation).text


def finish(reason: str | None) -> dict[str, str | None]:
    """Describe why a text ended, in the protocol's terms and in seqgen's."""
    by_protocol = None if reason is None else REASONS.get(reason, "stop")
    return {"finish_reason": by_protocol, "reason": reason}


class TextOffsets:
    """Counter of the character offset of each token in a text, which may come in pieces.

    Args:
        asked: the request.
        prompt: what the text continues. If it is echoed, its own tokens are counted first.
    """

    def __init__(self, asked: Query, prompt: Prompt) -> None:
        self._asked, self._at = asked, len(prompt.text) if asked.echo else 0
        # Bytes of a character, and white space that a line begins without, span several pieces.
        self._decoder = decoder_of(asked.loaded, prompt.tokens, prompt.overlap)

    def push(
        self, echoed: Sequence[TokenLogprob | int], noted: Sequence[TokenLogprob]
    ) -> list[int]:
        """Compute the offsets of the prompt's echoed tokens, and of the next tokens."""
        ids = [token if isinstance(token, int) else token.token for token in echoed]
        of_prompt = accumulate(map(len, map(self._asked.loaded.tokenizer.decoder().push, ids)))
        most = self._at  # what the tokenizer does not keep of a prompt is echoed all the same
        offsets = [0, *(min(at, most) for at in of_prompt)][: len(ids)]
        for one in noted:
            offsets.append(self._at)
            self._at += len(self._decoder.push(one.token))
        return offsets


def logprobs_of(
    asked: Query, tokens: Sequence[TokenLogprob | int], offsets: Sequence[int]
) -> dict[str, Any]:
    """Build the protocol's `logprobs` object for tokens.

    Args:
        asked: the request.
        tokens: in the order of the text; a bare id has no probability.
        offsets: where each begins in the text.
    """
    tokenizer = asked.loaded.tokenizer
    ids = [token if isinstance(token, int) else token.token for token in tokens]
    known = [None if isinstance(token, int) else token for token in tokens]
    candidates = [one and _candidates(asked, one) for one in known]
    return {
        "tokens": tokenizer.pieces(ids),
        "token_logprobs": [one and finite(one.logprob) for one in known],
        "top_logprobs": [
            None if likely is None else {name: p for _, name, p in likely} for likely in candidates
        ],
        "text_offset": offsets,
        "token_ids": ids,
        "candidates": candidates,
    }


def _candidates(asked: Query, noted: TokenLogprob) -> list[tuple[int, str, float]]:
    """List the most likely tokens in order: ids, names and log-probabilities.

    A JSON object, which the protocol has for it, keeps neither their order nor equal names.
    """
    names = asked.loaded.tokenizer.pieces(noted.ids)
    return list(zip(noted.ids, names, map(finite, noted.logprobs), strict=True))


def finite(logprob: float) -> float:
    """Replace -inf by the lowest float32, since JSON has no infinities."""
    return max(logprob, float(np.finfo(np.float32).min))

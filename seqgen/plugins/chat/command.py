"""`seqgen chat`: talk to a model."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import piped_input
from seqgen.cli.shell.model_options import Machine, ModelName
from seqgen.cli.shell.output import Output, is_terminal, put, shown
from seqgen.cli.shell.prompts import piped_lines
from seqgen.cli.shell.tables import count
from seqgen.errors import SeqgenError, UsageError, reporting_unreadable
from seqgen.files import require_regular
from seqgen.plugins.chat.options import ChatOptions, ChatSampling
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.plugins.chat.chat_template import ChatModel
    from seqgen.settings.generation import SampleOptions

# No template comes near this.
MOST_BYTES = 1 << 20


@takes_options
def chat(
    about: ChatOptions, model: ModelName, sampling: ChatSampling, machine: Machine, out: Output
) -> None:
    """Talk to a model that has a chat template.

    At the terminal, type a message and read the answer. /help lists the commands. Ctrl-C stops an
    answer, Ctrl-D ends the chat.

    In a pipe, each line is a question by itself and gives one line with the answer. A line may
    also be a conversation: a JSON object with a list `messages` of objects with `role` and
    `content`. With --json, each answer is a record like those of `seqgen sample`, with the
    conversation and the answer in `messages`.
    """
    from seqgen.plugins.chat.chat_template import ChatModel, ChatTemplate, special_names
    from seqgen.store.loading import Work

    talks = piped_input() is None
    source = None if about.template is None else read_template(about.template)
    rows = 1 if talks else sampling.batch_size
    work = Work(rows=rows, written=rows * sampling.max_tokens)
    loaded = machine.load(model.model, work=work)
    name, template = loaded.stored.name, None
    if source is not None:
        template = ChatTemplate(source, special_names(loaded.stored), about.template)
    instead = f"seqgen sample -i -m {name} continues texts, and --template FILE.jinja gives it one"
    answering = ChatModel.of(loaded, template, instead)
    if talks and not is_terminal(sys.stdin):
        instead = "type in a terminal, or pipe in one question per line"
        raise UsageError(f"standard input is empty; {instead}")
    if talks and not is_terminal(sys.stdout):
        raise UsageError("a chat answers in a terminal; for a file, pipe in one question per line")
    if talks and out.json:
        raise UsageError("--json is for questions from a pipe; pipe in one question per line")
    seed = secrets.randbelow(1 << 31) if sampling.seed is None else sampling.seed
    options = sampling.sampling(seed, answering.stop)
    out.uses([loaded], seed)
    if sampling.seed is None and options.draws:
        out.announce_seed(seed)
    if talks:
        from seqgen.plugins.chat.session import ChatSession

        ChatSession.open(answering, options, about.system, out).run()
    else:
        answer_lines(answering, options, about.system, out)


def read_template(name: str) -> str:
    """Read the file of --template.

    Raises:
        SeqgenError: it cannot be read, or is no text.
    """
    with reporting_unreadable(name):
        path = require_regular(Path(name))
        if path.stat().st_size > MOST_BYTES:
            raise SeqgenError(f"{name} is larger than any chat template")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SeqgenError(f"{name} is not UTF-8 at byte {count(error.start)}") from None


def answer_lines(model: ChatModel, options: SampleOptions, system: str | None, out: Output) -> None:
    """Answer each line of standard input."""
    from seqgen.plugins.chat.conversation import UnansweredError, answers

    lines = piped_lines("no question, no answer", out)
    try:
        for answer in answers(model, options, conversations(lines, system)):
            if answer.left_out:
                number, messages = answer.sample.index + 1, plural(answer.left_out, "message")
                out.notice(f"line {number}: the oldest {messages} did not fit and are left out")
            if not out.record(answer.record()):
                put(shown(answer.sample.text, f"answer {answer.sample.index}"))
    except UnansweredError as error:
        raise SeqgenError(f"standard input: line {error.index + 1}: {error}") from None


def conversations(lines: Iterable[str], system: str | None) -> Iterator[list[dict[str, Any]]]:
    """Read each line as a question or, if it is a JSON object with messages, as a conversation.

    Args:
        lines: without newlines.
        system: the system prompt of those that have none.

    Raises:
        SeqgenError: the messages of a line are damaged; says which.
    """
    from seqgen.plugins.chat.chat_template import read_messages
    from seqgen.plugins.chat.conversation import turn

    for number, line in enumerate(lines, 1):
        given = _messages_of(line)
        try:
            messages = [turn("user", line)] if given is None else read_messages(given)
        except SeqgenError as error:
            raise SeqgenError(f"standard input: line {number}: {error}") from None
        if system is not None and messages[0]["role"] != "system":
            messages = [turn("system", system), *messages]
        yield messages


def _messages_of(line: str) -> Any:
    """Return the messages of a line that is a JSON object with some; else None."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found.get("messages") if isinstance(found, dict) else None

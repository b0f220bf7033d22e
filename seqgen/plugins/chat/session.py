"""A chat at the terminal: messages are typed, answers appear as they are written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from seqgen.cli.shell.output import Output, put, say
from seqgen.errors import SeqgenError, UsageError, closest, reporting_os_errors
from seqgen.files import write_bytes
from seqgen.plugins.chat.conversation import Conversation
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.plugins.chat.chat_template import ChatModel
    from seqgen.settings.generation import SampleOptions

PROMPT, MORE = "> ", ". "
QUOTES = '"""'
HELP = r"""/reset         forget the conversation
/system TEXT   set the system prompt; without TEXT, show it
/save FILE     write the conversation into FILE, as a line of JSON with `messages`
/help          show this
/exit          end the chat, as Ctrl-D does
A line that ends with \ continues on the next; lines between two lines of three double quotes
are one message. Ctrl-C stops an answer, and ends the chat at the prompt.
A message that begins with / needs a space before it.
"""


@dataclass
class ChatSession:
    """Chat at the terminal.

    Attributes:
        conversation: what was said so far.
        out: takes notices.
        saved: the files that this session has written.
    """

    conversation: Conversation
    out: Output
    saved: set[Path] = field(default_factory=set)
    COMMANDS: ClassVar = ("reset", "system", "save", "help", "exit")

    @classmethod
    def open(
        cls, model: ChatModel, options: SampleOptions, system: str | None, out: Output
    ) -> ChatSession:
        """Begin a conversation."""
        return cls(Conversation(model, options, system), out)

    def run(self) -> None:
        """Read messages and commands until the user ends the chat.

        Raises:
            KeyboardInterrupt: Ctrl-C at the prompt.
        """
        name = self.conversation.model.loaded.stored.name
        self.out.notice(f"{name}: type a message. /help lists commands; Ctrl-D ends.")
        for message in typed_messages():
            if not self._take(message):
                return

    def _take(self, message: str) -> bool:
        """Answer a message or obey a command; return whether the chat goes on."""
        try:
            if message.startswith("/"):
                return self._command(message)
            if message.strip():
                self._answer(message)
        except SeqgenError as error:
            say(f"seqgen: {error}")
        return True

    def _answer(self, question: str) -> None:
        before = self.conversation.left_out
        try:
            for piece in self.conversation.answer(question):
                put(piece)
        except KeyboardInterrupt:
            pass  # back to the prompt
        put("\n")
        if self.conversation.left_out > before:
            all_of_them = plural(self.conversation.left_out, "message")
            self.out.notice(
                f"the window is full: the model does not see the oldest {all_of_them} of this chat"
            )

    def _command(self, line: str) -> bool:
        """Obey a command; return whether the chat goes on."""
        name, _, rest = line[1:].partition(" ")
        rest, conversation = rest.strip(), self.conversation
        if name == "exit":
            return False
        if name == "reset":
            conversation.reset()
        elif name == "system":
            if rest:
                conversation.system = rest
            put(f"{conversation.system or 'no system prompt'}\n")
        elif name == "save":
            self._save(rest)
        elif name == "help":
            put(HELP)
        else:
            near = closest(name, self.COMMANDS)
            hint = "" if near is None else f"; did you mean /{near}?"
            raise UsageError(f"there is no command /{name}{hint or '; /help lists them'}")
        return True

    def _save(self, name: str) -> None:
        if not name:
            raise UsageError("/save needs the name of a file")
        path = Path(name).expanduser()
        if path.exists() and path.resolve() not in self.saved:
            raise UsageError(f"{name} exists: choose another name")
        record = json.dumps({"messages": self.conversation.whole}, ensure_ascii=False)
        with reporting_os_errors(f"{name} cannot be written"):
            write_bytes(path, record.encode() + b"\n")
        self.saved.add(path.resolve())
        self.out.notice(f"{plural(len(self.conversation.whole), 'message')} written to {name}")


def typed_messages() -> Iterator[str]:
    """Yield the messages that are typed, of one or several lines, until Ctrl-D."""
    with contextlib.suppress(ImportError):  # Windows has history without it
        import readline  # noqa: F401
    with contextlib.suppress(EOFError):
        while True:
            yield _message(input(PROMPT))
    put("\n")


def _message(line: str) -> str:
    """Read the rest of a message whose first line is typed."""
    if line.startswith(QUOTES):
        lines = [line.removeprefix(QUOTES)]
        while not lines[-1].endswith(QUOTES):
            lines.append(input(MORE))
        text = "\n".join(lines).removesuffix(QUOTES)
        return text.removeprefix("\n").removesuffix("\n")
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1].removesuffix("\\")
        lines.append(input(MORE))
    return "\n".join(lines)

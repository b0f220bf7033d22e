"""A process that encodes blocks of text: `python -m seqgen.text.worker`.

It reads frames on standard input (a length in 8 bytes, then so many bytes) and answers each on
standard output: first the tokenizer as JSON, unanswered; then pairs of a seed (JSON, or null) and
a text, answered by the ids. It ends with its input, so it never outlives its parent.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from typing import IO

from seqgen.text.tokenizers import tokenizer_from_facts


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next frame, or None where the stream ends."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    content = stream.read(size)
    return content if len(content) == size else None


def write_frame(stream: IO[bytes], content: bytes | memoryview) -> None:
    """Write a frame, and send it off."""
    stream.write(len(content).to_bytes(8, "little"))
    stream.write(content)
    stream.flush()


def main() -> None:
    """Encode until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    tokenizer = tokenizer_from_facts(json.loads(read_frame(asked) or b"{}"))
    while (sampling := read_frame(asked)) is not None:
        raw = read_frame(asked)
        if raw is None:
            return
        chance = json.loads(sampling)
        text = raw.decode()
        ids = tokenizer.encode_sampled(text, *chance) if chance else tokenizer.encode(text)
        write_frame(answers, memoryview(ids).cast("B") if ids.size else b"")


if __name__ == "__main__":
    # The parent may have been killed, and does not wait for an answer.
    with contextlib.suppress(BrokenPipeError):
        main()

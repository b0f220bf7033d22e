"""Worker process that encodes blocks of text: `python -m seqgen.text.worker`.

It reads frames on standard input (a length in 8 bytes, then so many bytes) and answers each on
standard output: first the tokenizer as JSON, unanswered; then pairs of a seed (JSON, or null) and
a text, answered by the ids. It ends with its input, so it never outlives its parent.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys

from seqgen.files import drop_unwritable_output
from seqgen.text.encoding import encode_block, read_frame, write_frame
from seqgen.text.tokenizers import tokenizer_from_facts


def main() -> None:
    """Encode blocks from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    tokenizer = tokenizer_from_facts(json.loads(read_frame(asked) or b"{}"))
    while (sampling := read_frame(asked)) is not None:
        raw = read_frame(asked)
        if raw is None:
            return
        ids = encode_block(tokenizer, raw, json.loads(sampling))
        write_frame(answers, memoryview(ids).cast("B") if ids.size else b"")


if __name__ == "__main__":
    # The parent may have been killed, and does not wait for an answer.
    with contextlib.suppress(BrokenPipeError):
        main()
    drop_unwritable_output()

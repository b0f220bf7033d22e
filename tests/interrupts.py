"""Commands that are interrupted some milliseconds after they have begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers_cli import installed
from places import STORED

# What a console script does, with a byte to the test once Ctrl-C is caught.
START = (
    "import os, seqgen.__main__ as entry; "
    "entry.use_utf8 = lambda: os.write({ready}, b'.'); entry.main()"
)


def commands(folder: Path) -> dict[str, list[str]]:
    """Return a call of each command, by name; what they write goes into `folder`."""
    model, text = str(STORED / "models" / "lstm-char"), str(STORED / "tiny.txt")
    counted = str(STORED / "models" / "ngram-whitespace")
    calls = {
        "sample": ["sample", "-m", model, "--max-tokens", "20000", "--quiet"],
        "beam-search": ["beam-search", "-m", model, "--max-tokens", "2000", "-q"],
        "perplexity": ["perplexity", text, "-m", model, "-q"],
        "tokenize": ["tokenize", text, "-m", model, "-q"],
        "eval": ["eval", "-m", model, "-q"],
        "compare": ["compare", model, str(STORED / "models" / "gru-char"), "-q"],
        "bleu": ["bleu", text, text, "-q"],
        "models": ["models", "-q"],
        "train": ["train", text, "--minutes", "1", "--quiet"],
        "ngram": ["train", text, "--model", "ngram", "--quiet"],
        "export": ["export", counted, "--out", str(folder / "out.arpa"), "--overwrite", "-q"],
        "import": ["import", str(folder / "in.arpa"), "--name", "imported", "--overwrite", "-q"],
    }
    return {name: call for name, call in calls.items() if installed([call])}


def interrupted(arguments: list[str], after: float, home: Path) -> tuple[int, str]:
    """Send SIGINT so many seconds after the handler is there; return exit code and stderr."""
    read, write = os.pipe()
    environment = {**os.environ, "SEQGEN_HOME": str(home), "OMP_NUM_THREADS": "2"}
    with subprocess.Popen(
        [sys.executable, "-c", START.format(ready=write), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[write],
        start_new_session=True,
        env=environment,
    ) as process:
        os.close(write)
        os.read(read, 1)
        os.close(read)
        time.sleep(after)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    return process.returncode, said.decode()

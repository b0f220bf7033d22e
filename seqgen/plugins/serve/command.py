"""`seqgen serve`: serve trained models over HTTP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from seqgen import hooks
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.model_options import Threads
from seqgen.cli.shell.output import Output, say
from seqgen.plugins.serve.settings import ServeOptions
from seqgen.settings import Options, Panel, setting

if TYPE_CHECKING:
    from seqgen.plugins.serve.shelf import Shelf


class Served(Options, panel=Panel.MODEL):
    """Names of the models to serve."""

    model: tuple[str, ...] = setting(
        "Trained model: a name or a path. A+B mixes several. Repeat the option to serve more.",
        names=("--model", "-m"),
        without="every stored model that writes text",
        completes="models",
    )


class SaidLog(logging.Handler):
    """Logging handler that prints the server's log like all other messages."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record, with the traceback of an error."""
        say(self.format(record))


@takes_options
def serve(served: Served, options: ServeOptions, threads: Threads, out: Output) -> None:
    """Serve trained models over HTTP, in the form of OpenAI's completions, chats and embeddings.

    The texts of all requests are written in one batch, and each is what `seqgen sample` writes
    with its seed. Open the address in a browser for a page to play with the models. SIGTERM,
    SIGHUP or Ctrl-C finishes what runs; a second one ends at once.
    """
    from seqgen.packages import require_packages

    require_packages("seqgen serve", "starlette", "uvicorn")
    from seqgen.plugins.serve.run import serve as run

    logging.getLogger("seqgen").handlers = [SaidLog()]

    def announce(shelf: Shelf, address: str) -> None:
        names = list(shelf.stored)
        for problem in hooks.new_problems():
            out.notice(problem)
        if shelf.left_out:
            out.notice(f"too large for --memory, and left out: {', '.join(shelf.left_out)}")
        if not out.record({"models": names, "address": address}):
            out.notice(f"serving {', '.join(names)} at {address}")

    run(served.model, options, announce)

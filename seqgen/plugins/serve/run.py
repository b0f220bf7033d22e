"""Server process: socket, signals and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import uvicorn

from seqgen.errors import SeqgenError
from seqgen.interrupts import handle_signals, known_signals
from seqgen.plugins.serve.app import GRACE, Server, make_app
from seqgen.plugins.serve.settings import ServeOptions
from seqgen.plugins.serve.shelf import Shelf

# How long a thread computes before another that waits may, in seconds: the engine would hold the
# others up.
SWITCH = 0.0005
# Connections that wait to be taken.
WAITING = 2048


class Listening(uvicorn.Server):
    """Uvicorn server that shuts down gracefully at the first signal, and at once at the second.

    Args:
        names: of the models; none for all that are stored.
        options: where, and how much.

    Raises:
        SeqgenError: there is no such model, or the address is taken.
    """

    def __init__(self, names: Sequence[str], options: ServeOptions) -> None:
        self.shelf = Shelf(names, options.most_bytes)
        self.socket = bind(options)
        self.served = Server(self.shelf, options)
        config = uvicorn.Config(
            make_app(self.served), log_level="error", access_log=False, ws="none"
        )
        super().__init__(config)

    @property
    def address(self) -> str:
        """URL of the server."""
        host, port, *of_ipv6 = self.socket.getsockname()
        return f"http://[{host}]:{port}" if of_ipv6 else f"http://{host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully, or exit at once at the second signal of any kind."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish running requests, and accept no more."""
        self.served.end()
        leaving = asyncio.ensure_future(self._hang_up())
        await super().shutdown(sockets)
        leaving.cancel()

    async def _hang_up(self) -> None:
        """Close connections some time after all responses are sent."""
        while self.server_state.tasks:
            await asyncio.sleep(0.1)
        await asyncio.sleep(GRACE)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def listen(self) -> None:
        """Serve requests until a signal arrives; then finish those that are running."""
        self.run(sockets=[self.socket])
        self.served.engine.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again afterwards, unlike the base class."""
        with handle_signals(self.handle_exit, known_signals()):
            yield


def bind(options: ServeOptions) -> socket.socket:
    """Open a socket at the server's address.

    Raises:
        SeqgenError: it is taken, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    place = socket.socket(family)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((options.host, options.port))
        place.listen(WAITING)
    except OSError as error:
        place.close()
        why = error.strerror or error
        raise SeqgenError(f"cannot listen on {options.host}:{options.port}: {why}") from None
    return place


def serve(names: Sequence[str], options: ServeOptions, say: Callable[[Shelf, str], None]) -> None:
    """Serve models until a signal arrives; `say` gets the shelf of models and the address."""
    allow_connections()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of clients that hang up
    server = Listening(names, options)
    say(server.shelf, server.address)
    sys.setswitchinterval(SWITCH)
    server.listen()


def allow_connections() -> None:
    """Raise the process's limit on open files, as every connection takes one."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # as on Windows
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

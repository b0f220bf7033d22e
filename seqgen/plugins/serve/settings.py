"""Options of the server: address, limits and what clients may request."""

from __future__ import annotations

import re

from seqgen.settings.generation import WritingOptions
from seqgen.settings.options import Options, Panel, parse_size, with_default
from seqgen.settings.setting import MOST_TOKENS, require, setting, shorten

# What a browser sends: in lower case, without a path and without the port that goes without saying.
ORIGIN = re.compile(r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://[^A-Z\s/?#@,*]+")
EXAMPLE_ORIGIN = "http://localhost:3000"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServeOptions(Options, panel=Panel.MACHINE):
    """Address and limits of the server."""

    host: str = setting(
        "Address to listen on. Any other than loopback needs --api-key.",
        "127.0.0.1",
        panel=Panel.OTHER,
    )
    port: int = setting("Port; 0 takes a free one.", 8000, low=0, high=65535, panel=Panel.OTHER)
    api_key: str | None = setting(
        "Answer only requests with this key, as `Authorization: Bearer KEY`.",
        metavar="KEY",
        panel=Panel.OTHER,
    )
    allow_origin: tuple[str, ...] = setting(
        "Let pages of this origin, such as http://localhost:3000, use the server from a browser. "
        "Repeat the option to allow several.",
        metavar="ORIGIN",
        without="only the server's own page",
        panel=Panel.OTHER,
    )
    memory: str | None = setting(
        "Keep models of at most this size in memory together, such as 500M or 4G, and drop the one "
        "that was used least recently. A model counts twice its size on disk.",
        metavar="SIZE",
    )
    batch_size: int = with_default(WritingOptions, "batch_size", 32)
    queue: int = setting(
        "Number of requests that may wait; more are refused with status 429.", 256, low=0
    )
    timeout: float = setting(
        "Seconds that a request may take; then it ends with what is written.", 300.0, above=0
    )
    max_tokens: int = with_default(WritingOptions, "max_tokens", 4096)
    max_prompt: int = setting(
        "Most tokens that a prompt may have.", 32_768, low=1, high=MOST_TOKENS, panel=Panel.LENGTH
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.host in LOOPBACK or self.api_key
        require(bool(known), f"--host {self.host} is open to other machines: give an --api-key")
        require(self.api_key != "", "--api-key must not be empty")
        for origin in self.allow_origin:
            why = f"--allow-origin takes an origin as browsers send it, such as {EXAMPLE_ORIGIN}"
            require(ORIGIN.fullmatch(origin) is not None, f"{why}, not {shorten(origin)!r}")
        if self.memory is not None:
            parse_size("--memory", self.memory)

    @property
    def most_bytes(self) -> int | None:
        """Memory limit for models, in bytes; None for no limit."""
        return None if self.memory is None else parse_size("--memory", self.memory)

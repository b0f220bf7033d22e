"""Signatures: one string that says exactly how a number was made, as sacreBLEU's do."""

from __future__ import annotations

from seqgen import __version__

SHORT = 12  # hexadecimal digits of a hash


def short(digest: str) -> str:
    """Return as much of a hash as tells models, or texts, apart."""
    return digest[:SHORT]


def signature(number: str, *, seed: int | None = None, **protocol: object) -> str:
    """Return `number|key:value|...|seed:...|version:...`.

    Two numbers with one signature were made in the same way, from the same model and text.

    Args:
        number: what was measured.
        seed: of all that was drawn; None where nothing was.
        protocol: the rest, in order: hashes of model and data, and what was chosen.
    """
    parts = {**protocol, "seed": "none" if seed is None else seed, "version": __version__}
    return "|".join([number, *(f"{key}:{value}" for key, value in parts.items())])

"""Hashes of several files together; those of large files are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from seqgen.files import regular

# Files up to this size are hashed whenever a model is loaded; larger ones only when resuming.
CHEAP = 16 << 20


def digest_of_files(first: bytes, paths: Sequence[Path]) -> str:
    """Return a hash, 64 hexadecimal digits, of some bytes and the files that follow them.

    If the last file is large, it is kept in the cache until a file has another size or time.
    """
    if paths[-1].stat().st_size <= CHEAP:
        return _hash_of(first, paths)
    from seqgen.store.measured import keep_measurement, kept_measurement

    facts = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in paths]
    about = {"question": "digest", "settings": first.decode(), "files": facts}
    known = kept_measurement(about)
    if known is None:
        known = {"digest": _hash_of(first, paths)}
        known = keep_measurement(about, known) or known
    return str(known.get("digest"))


def _hash_of(first: bytes, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256(first)
    for path in paths:
        with regular(path).open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()

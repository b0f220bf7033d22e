"""Manifest of a model's folder: hashes of its files, to detect damage.

A file and the manifest cannot be replaced in one step, so the manifest goes first and names two
hashes for a while, the new one and the old one. Whenever a run is killed, the file in the folder
has one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from seqgen.errors import SeqgenError, reporting_os_errors
from seqgen.files import Piece, iterate_parts, parse_json, require_regular, write_json
from seqgen.store.layout import MANIFEST

# Files up to this size are hashed whenever a model is loaded; larger ones only when resuming.
CHEAP = 16 << 20


def digest_of_files(first: bytes, paths: Sequence[Path]) -> str:
    """Compute the hash of some bytes and files, 64 hexadecimal digits.

    If the last file is large, it is kept in the cache until a file has another size or time.
    """
    if paths[-1].stat().st_size <= CHEAP:
        return _hash_of(first, paths)
    from seqgen.store.cache import keep_measurement, kept_measurement

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
        with require_regular(path).open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()


Hashes = dict[str, list[str]]


def read(folder: Path) -> Hashes:
    """Read the allowed hashes of each file of the folder, the newest first.

    Empty for a folder without a manifest: it is not finished, or of an older version.

    Raises:
        SeqgenError: the manifest is damaged.
    """
    path = folder / MANIFEST
    try:
        files = parse_json(require_regular(path).read_text(encoding="utf-8"))["files"]
        return {str(part): [str(digest) for digest in known] for part, known in files.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SeqgenError(f"{path} is damaged ({error})") from None


def digest(*pieces: Piece) -> str:
    """Make an incremental SHA-256 for the contents of a file."""
    digest = hashlib.sha256()
    for part in iterate_parts(pieces):
        digest.update(part)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """Compute the SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    return _hash_of(b"", [path])


def seal(folder: Path, parts: Iterable[str]) -> None:
    """Write the manifest of a folder with the current hashes."""
    _write(folder, {part: [digest_of(folder / part)] for part in parts})


def announce(folder: Path, coming: Mapping[str, str], going: Collection[str] = ()) -> None:
    """Add hashes of files about to be written or deleted to the manifest.

    A folder that is not sealed yet has no manifest, and gets none here.
    """
    known = read(folder)
    if known:
        left = {part: hashes for part, hashes in known.items() if part not in going}
        new = {part: [made, *known.get(part, ())[:1]] for part, made in coming.items()}
        _write(folder, left | new)


def _write(folder: Path, files: Hashes) -> None:
    write_json(folder / MANIFEST, {"files": files})


def keep_current_hashes(folder: Path) -> None:
    """Drop the second hash of files for which an interrupted run left two."""
    known = read(folder)
    there = [part for part, hashes in known.items() if len(hashes) > 1 and (folder / part).exists()]
    current = {part: [digest_of(folder / part)] for part in there}
    right = {part: hashes for part, hashes in current.items() if hashes[0] in known[part]}
    if right:
        _write(folder, known | right)


def check(folder: Path, parts: Iterable[str], largest: int | None = None) -> None:
    """Compare files of a folder with its manifest; files that it does not name are ignored.

    Args:
        folder: the model's.
        parts: paths in it.
        largest: skip larger files, in bytes, so that checking is fast.

    Raises:
        SeqgenError: a part is missing or was changed.
    """
    known = read(folder)
    for part in parts:
        path = folder / part
        with reporting_os_errors(f"{path} is missing or damaged"):
            if part not in known or (largest is not None and path.stat().st_size > largest):
                continue
            while digest_of(path) not in known[part]:
                # The model may be in training: a part may be newer than the manifest that was read.
                before, known = known, read(folder)
                if known.get(part) in (None, before[part]):
                    raise SeqgenError(
                        f"{path} is damaged: it is not what {MANIFEST} says was written"
                    )

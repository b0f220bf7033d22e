"""Paths: where seqgen keeps its files, and the file names in a model's folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePath
from typing import IO

from seqgen.errors import SeqgenError
from seqgen.files import open_file, take_lock

FORMAT = 1
# In the place of an architecture's name in the configuration of a mixture.
MIXTURE = "mixture"
CONFIG, WEIGHTS, RECORD = "config.json", "model.safetensors", "training.json"
# What safetensors call the types of weights as models are trained, and of whole numbers.
UNREDUCED = ("F64", "F32", "I64", "I32", "I16", "I8", "U8", "BOOL")
METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
VALIDATION = "validation/text.txt"
VALIDATION_TOKENS = "validation/tokens.tok"
VALIDATION_PAIRS = "validation/source.txt", "validation/target.txt"
VALIDATION_VECTORS = "validation/source.safetensors"
TOKENIZER, SOURCE_TOKENIZER = "tokenizer", "source_tokenizer"
LABELS = "labels.json"  # in the place of a tokenizer of the sources
VALIDATION_FOLDER = "validation"
PARTS, TENSORBOARD = "parts", "tensorboard"
CHECKPOINTS, LAST, LOCK = "checkpoints", "last.safetensors", "lock"
MANIFEST = "manifest.json"
FOLDERS = (TOKENIZER, SOURCE_TOKENIZER, VALIDATION_FOLDER, CHECKPOINTS, TENSORBOARD)


@cache
def known_files() -> tuple[str, ...]:
    """List path patterns of all files that seqgen writes into a model's folder."""
    from seqgen.text.labels import Classes, Labels
    from seqgen.text.tokenizers import STORED

    tokenizers = {name for kind in STORED.values() for name in kind.files}
    return (
        *(CONFIG, WEIGHTS, RECORD, METRICS, SAMPLES, LOCK, MANIFEST),
        *(f"{TOKENIZER}/{name}" for name in sorted({*tokenizers, Classes.file})),
        *(f"{SOURCE_TOKENIZER}/{name}" for name in sorted({*tokenizers, Labels.file})),
        *(VALIDATION, VALIDATION_TOKENS, *VALIDATION_PAIRS, VALIDATION_VECTORS),
        *(f"{CHECKPOINTS}/{LAST}", f"{CHECKPOINTS}/step-*.safetensors"),
        f"{TENSORBOARD}/events.out.tfevents.*",
    )


def is_known(part: PurePath) -> bool:
    """Check whether a relative path is a file that seqgen writes into a model's folder."""
    name, known = part.as_posix(), known_files()
    patterns = (pattern for pattern in known if "*" in pattern)
    return name in known or any(
        name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) for pattern in patterns
    )


def home() -> Path:
    """Return seqgen's root folder: `$SEQGEN_HOME`, or the user's data folder.

    Raises:
        SeqgenError: `$SEQGEN_HOME` is no folder, or its name is not UTF-8.
    """
    if set_by_user := os.environ.get("SEQGEN_HOME"):
        folder = Path(set_by_user)
        if folder.exists() and not folder.is_dir():
            raise SeqgenError(f"SEQGEN_HOME={folder} is a file; set it to a folder")
        try:
            set_by_user.encode()
        except UnicodeEncodeError:  # safetensors opens files by names in UTF-8 alone
            raise SeqgenError("SEQGEN_HOME is not UTF-8; set it to a folder that is") from None
        return folder
    import platformdirs

    return Path(platformdirs.user_data_dir("seqgen", appauthor=False))


def models_folder() -> Path:
    """Return the folder of all models."""
    return home() / "models"


def studies_folder() -> Path:
    """Return the folder of `tune` results."""
    return home() / "studies"


@contextlib.contextmanager
def models_locked() -> Iterator[IO[bytes]]:
    """Hold the lock for moving model folders; wait for other processes.

    Hold it only briefly, and do not nest it. Yields the locked file, which is empty unless a
    process was killed between two steps that belong together; see `ownership._journal_entry`.

    Raises:
        OSError: the home cannot be written.
    """
    folder = home()
    folder.mkdir(parents=True, exist_ok=True)
    with open_file(folder / "models.lock", "a+b") as file:
        take_lock(file, wait=True)
        yield file

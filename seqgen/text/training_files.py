"""Files of training text: binary files, records and tables are refused or skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqgen import hooks
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import input_title
from seqgen.text.file_kinds import FileKind, extraction_advice
from seqgen.text.reading import (
    file_facts,
    file_kind,
    files_in,
    has_nul,
    is_binary,
    no_text_error,
    read_head,
)
from seqgen.text.records import BESIDE_SHARDS
from seqgen.wording import first_names, plural

# What stands beside data in a folder.
BESIDE = ("readme", "license", "licence", "citation", "changelog")


def training_files(names: Sequence[str | Path], as_text: bool) -> tuple[Path, ...]:
    """List the training files that `names` refer to: `text_files` without records and tables.

    Args:
        names: of files, folders and patterns; of the latter, such files are left out.
        as_text: read records, tables and documents too, as they are.

    Raises:
        UsageError: a name is empty, or is that of records or of a table.
        SeqgenError: a name does not exist or is no text; or a folder or a pattern has no text, or
            only what stands beside data.
    """
    paths: list[Path] = []
    for name in names:
        inside = files_in(name)
        if inside is None:
            _check(Path(name), as_text)
            paths.append(Path(name))
        else:
            paths += _texts(name, inside, as_text)
    return tuple(paths)


def _check(path: Path, as_text: bool) -> None:
    """Raise an error for a named file whose text must be extracted first, such as JSONL."""
    if (kind := _hiding_kind(path, as_text)) is not None:
        error = UsageError if kind.holds == "records" else SeqgenError
        raise error(f"{path} is {extraction_advice(kind, path, read_head(path))}")


def _texts(name: str | Path, inside: Sequence[Path], as_text: bool) -> list[Path]:
    """Select the training texts among the files of a folder."""
    texts = [path for path in inside if not _is_hidden(path, as_text)]
    data = sorted(set(inside) - set(texts))
    beside = all(path.name.lower().startswith(BESIDE) for path in texts)
    if not beside or (texts and not any(map(_may_hold_text, data))):
        return texts
    raise no_text_error(name, inside)


def _is_hidden(path: Path, as_text: bool) -> bool:
    hidden = is_binary(path, as_text) or _hiding_kind(path, as_text) is not None
    return hidden and (as_text or not _is_dataset(path))


def _may_hold_text(path: Path) -> bool:
    """Check whether a file that is left out is damaged, or of a kind that may hold a text."""
    kind = file_kind(path)
    return bool(file_facts(path).fault) or (kind is not None and kind.holds != "nothing")


def _hiding_kind(path: Path, as_text: bool) -> FileKind | None:
    """Return a file's kind if it is neither plain text nor markup, such as JSONL; else None."""
    kind = None if as_text else file_kind(path)
    if kind is None or kind.holds == "markup":
        return None
    return None if _is_dataset(path) else kind


def _is_dataset(path: Path) -> bool:
    """Check whether a file of records is of a kind of data that a plugin brings."""
    return any(dataset.reads(path) for dataset in hooks.load_all("datasets"))


def file_notices(names: Sequence[str | Path], as_text: bool) -> Iterator[str]:
    """Yield notices about skipped files, markup, and files with NUL characters."""
    for name in names:
        inside = files_in(name)
        files = [Path(name)] if inside is None else [p for p in inside if not is_binary(p, as_text)]
        kinds = [(path, kind) for path in files if not as_text and (kind := file_kind(path))]
        kinds = [one for one in kinds if not BESIDE_SHARDS.fullmatch(one[0].name)]
        left_out = {str(path): kind.name for path, kind in kinds if _hiding_kind(path, as_text)}
        if left_out and inside is not None:
            notice = f"{plural(len(left_out), 'file')} of {name} left out"
            what = ", ".join(dict.fromkeys(left_out.values()))
            advice = "--field NAME reads the texts of records, --as-text all of it"
            yield f"{notice}: {first_names([*left_out], 3)} ({what}; {advice})"
        for kind in dict.fromkeys(kind for _, kind in kinds if kind.holds == "markup"):
            path, *pages = [path for path, each in kinds if each is kind]
            more = f" and {len(pages):,} more are" if pages else " is"
            yield f"{path}{more} {extraction_advice(kind, path, b'')}"
        if inside is None and not as_text and not kinds and has_nul(files[0]):
            title = input_title(str(name))
            yield f"{title} contains NUL characters, as binary files do; they are trained on too"

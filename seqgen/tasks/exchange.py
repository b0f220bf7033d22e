"""Models in the formats of other tools: reading them into the store, writing them from it."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from seqgen import __version__, store
from seqgen.configs import DataConfig, Documents, require
from seqgen.errors import SeqgenError
from seqgen.files import replacing
from seqgen.formats import arpa
from seqgen.models.ngram import NGram
from seqgen.store import StoredModel
from seqgen.tasks.interrupts import ending_as_ctrl_c
from seqgen.tasks.loaded import LoadedModel, load
from seqgen.tokenizers import Tokenizer, WhitespaceTokenizer

GZIP = b"\x1f\x8b"
NEWLINE = "\\n"
# How characters that would part two words are written, where a token may hold them.
ESCAPES = {"\\": "\\\\", "\n": NEWLINE, " ": "\\s", "\t": "\\t", "\r": "\\r"}


@ending_as_ctrl_c()
def import_model(
    path: str | Path, *, name: str | None = None, like: str | None = None, overwrite: bool = False
) -> StoredModel:
    """Read a model of another tool and store it.

    Args:
        path: an ARPA file, perhaps compressed by gzip.
        name: what to call the model; made from the file's name if None.
        like: a model whose tokens the file is about, and which reads text in the same way.
            Without it tokens are what white space separates, and documents are lines (or a
            stream, where the file knows a newline but no end).
        overwrite: replace a model of that name, when the new one is whole.

    Raises:
        UsageError: the name is in use.
        SeqgenError: the file cannot be read or is broken.
    """
    path = Path(path)
    store.check_free(name, overwrite)
    with _opened(path) as lines:
        content = arpa.read(lines, str(path))
    if like is None:
        tokenizer: Tokenizer = WhitespaceTokenizer(_plain_words(content))
        data = DataConfig(tokenizer=tokenizer.kind, documents=_documents(content), val="none")
    else:
        known = load(like, "cpu")
        tokenizer, data = known.tokenizer, known.data
    ids = _ids(content, _names(tokenizer, data.documents), path)
    size = tokenizer.vocab_size
    model = arpa.model_of(content, ids, size, tokenizer.unk_id, str(path))
    stem = path.name.removesuffix(".gz").removesuffix(".arpa")
    with store.building(name, stem, overwrite) as stored:
        config = {"model": model.config.to_dict(), "training": {}, "data": data.to_dict()}
        stored.write_config("ngram", **config)
        with stored.writing("tokenizer"):
            tokenizer.save(stored.path / "tokenizer")
        stored.write_weights(model)
        stored.write_record(
            created=store.now(),
            seqgen_version=__version__,
            parameters=model.parameter_count(),
            imported=str(path.resolve()),
            ngrams=[
                {"order": n, "stored": len(section.words), "possible": size**n}
                | {"held_out_unseen": None, "discounts": []}
                for n, section in enumerate(content.sections, start=1)
            ],
        )
        stored.seal()
        stored.publish()
    return StoredModel(stored.path)


def exported(loaded: LoadedModel, file_format: str) -> Iterable[bytes]:
    """Return a stored model in a format of another tool, in pieces.

    Args:
        loaded: the model.
        file_format: a key of `FORMATS`.

    Raises:
        UsageError: there is no such format.
        SeqgenError: the format cannot hold this kind of model.
    """
    require(file_format in FORMATS, f"--format is {' or '.join(FORMATS)}, not {file_format!r}")
    return FORMATS[file_format](loaded)


def export_model(loaded: LoadedModel, file_format: str, out: str | Path) -> None:
    """Write a stored model to a file, compressed by gzip if its name ends so; see `exported`."""
    chunks, out = exported(loaded, file_format), Path(out)
    with replacing(out) as file:
        if out.suffix != ".gz":
            file.writelines(chunks)
            return
        # Without name and time, so that the same model gives the same bytes; at gzip's own level,
        # as Python's makes a file smaller by 1 % in three times the time.
        with gzip.GzipFile(
            filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0
        ) as packed:
            packed.writelines(chunks)


def _arpa(loaded: LoadedModel) -> Iterator[bytes]:
    if not isinstance(loaded.model, NGram):
        raise SeqgenError(f"{loaded.stored.name} is no n-gram model, and ARPA holds no other")
    names = _names(loaded.tokenizer, loaded.data.documents)
    words: list[str | None] = [None] * loaded.model.vocab_size
    for word, token in names.items():
        words[token] = word
    return (chunk.encode() for chunk in arpa.write(loaded.model, words))


FORMATS: dict[str, Callable[[LoadedModel], Iterable[bytes]]] = {"arpa": _arpa}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Iterable[bytes]]:
    """Open a file that may be compressed, to be read line by line.

    Raises:
        SeqgenError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == GZIP  # a pipe cannot be wound back
            if packed:
                with gzip.open(file) as lines:
                    yield lines
            else:
                yield file
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SeqgenError(f"{path} cannot be read: {reason}") from None


def _names(tokenizer: Tokenizer, documents: Documents) -> dict[str, int]:
    """Return what the tokens that can occur are called in an ARPA file, with their ids.

    Raises:
        SeqgenError: two tokens have the same name.
    """
    ids = [i for i in range(tokenizer.vocab_size) if i != tokenizer.pad_id]
    if documents == "line":
        ids.remove(tokenizer.newline_id)
    special = {tokenizer.bos_id: arpa.BOS, tokenizer.eos_id: arpa.EOS, tokenizer.unk_id: arpa.UNK}
    # Tokens that never hold white space stand as they are, for other tools read the same text.
    escapes = str.maketrans(ESCAPES if tokenizer.lossless else {"\n": NEWLINE})
    names: dict[str, int] = {}
    for i, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        text = special.get(i) or "".join(map(_visible, piece.translate(escapes)))
        if names.setdefault(text, i) != i:
            raise SeqgenError(f"two tokens are {text!r} in an ARPA file, which has words only")
    return names


def _visible(character: str) -> str:
    """Write what else parts words, such as a vertical tab, by its number."""
    return f"\\x{ord(character):02x}" if character.isspace() else character


def _plain_words(content: arpa.Arpa) -> list[str]:
    special = {arpa.BOS, arpa.EOS, arpa.UNK}
    stream = _documents(content) == "stream"
    return [w for w in content.words if w not in special and not (stream and w == NEWLINE)]


def _documents(content: arpa.Arpa) -> Documents:
    """Return "stream" for a file that knows a newline and no end."""
    if NEWLINE not in content.words:
        return "line"
    log_probs = dict(zip(content.words, content.sections[0].log_probs, strict=True))
    return "stream" if log_probs.get(arpa.EOS, arpa.ZERO) == arpa.ZERO else "line"


def _ids(content: arpa.Arpa, names: Mapping[str, int], path: Path) -> dict[str, int]:
    """Return the id of every word of a file.

    Raises:
        SeqgenError: the tokenizer has no such token; names the line.
    """
    for i, word in enumerate(content.words):
        if word not in names:
            line = content.sections[0].line + i
            raise SeqgenError(f"{path}, line {line}: the tokenizer has no token {word!r}")
    return {word: names[word] for word in content.words}

"""Models as ARPA files: what their tokens are called there, and how their text is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from seqgen.configs import DataConfig, Documents
from seqgen.data.framing import Framing
from seqgen.errors import SeqgenError
from seqgen.formats import Exported, Imported, arpa
from seqgen.models.ngram.model import NGram
from seqgen.tokenizers import Tokenizer, WhitespaceTokenizer

NEWLINE = "\\n"
# How characters that separate words are written, for tokens that may contain them.
ESCAPES = {"\\": "\\\\", "\n": NEWLINE, " ": "\\s", "\t": "\\t", "\r": "\\r"}


def read_model(
    lines: Iterable[bytes], path: Path, like: tuple[Tokenizer, DataConfig] | None
) -> Imported:
    """Read an n-gram model from an ARPA file; see `formats.Importer`.

    Without `like`, tokens are what white space separates, and documents are lines (or a stream,
    if the file knows a newline but no end).
    """
    content = arpa.read(lines, str(path))
    tokenizer, data = like or _tokens_of(content)
    ids = _ids(content, names_of(tokenizer, data.documents), path)
    size = tokenizer.vocab_size
    model = arpa.model_of(content, ids, size, tokenizer.unk_id, str(path))
    ngrams = [
        {"order": n, "stored": len(section.words), "possible": size**n}
        | {"held_out_unseen": None, "discounts": []}
        for n, section in enumerate(content.sections, start=1)
    ]
    framing = Framing.of(tokenizer, data.documents)
    return Imported("ngram", model, tokenizer, data, framing, {"ngrams": ngrams})


def write_model(exported: Exported) -> Iterator[bytes]:
    """Return an n-gram model as an ARPA file, in pieces; see `formats.Exporter`."""
    if not isinstance(exported.model, NGram):
        raise SeqgenError(f"{exported.name} is no n-gram model, and ARPA holds no other")
    words: list[str | None] = [None] * exported.model.vocab_size
    for word, token in names_of(exported.tokenizer, exported.documents).items():
        words[token] = word
    return (chunk.encode() for chunk in arpa.write(exported.model, words))


def names_of(tokenizer: Tokenizer, documents: Documents) -> dict[str, int]:
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
    """Write any other white space, such as a vertical tab, by its number."""
    return f"\\x{ord(character):02x}" if character.isspace() else character


def _tokens_of(content: arpa.Arpa) -> tuple[Tokenizer, DataConfig]:
    """Return the tokens that a file speaks of, and how their text is read."""
    documents = _documents(content)
    special = {arpa.BOS, arpa.EOS, arpa.UNK} | ({NEWLINE} if documents == "stream" else set())
    tokenizer = WhitespaceTokenizer([word for word in content.words if word not in special])
    return tokenizer, DataConfig(tokenizer=tokenizer.kind, documents=documents, val="none")


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

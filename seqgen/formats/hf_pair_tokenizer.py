"""The tokenizers of encoder-decoders in a Hugging Face folder, read and written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.configs import short
from seqgen.data.framing import Framing
from seqgen.errors import SeqgenError
from seqgen.files import json_bytes
from seqgen.formats import hf_tokenizer_writing
from seqgen.formats.hf_tokenizer import Ends, content_of, open_tokenizer
from seqgen.formats.hf_weights import read_table
from seqgen.tokenizers import Tokenizer
from seqgen.tokenizers.from_elsewhere import TokenizerFromElsewhere
from seqgen.tokenizers.marian import NAMES, MarianTokenizer
from seqgen.tokenizers.sentencepiece import SentencepieceTokenizer

SOURCE, TARGET = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"


@dataclass(frozen=True)
class PairTokenizers:
    """The tokenizers of a folder.

    Attributes:
        target: that of the targets.
        source: that of the sources; the same object if the folder has one.
        framing: how targets begin and end.
        decoder_start: what the decoder reads before that; None for nothing.
    """

    target: TokenizerFromElsewhere
    source: TokenizerFromElsewhere
    framing: Framing
    decoder_start: int | None


def read(folder: Path, source_size: int, target_size: int) -> PairTokenizers:
    """Read the tokenizers of a folder.

    Args:
        folder: with two models of sentencepiece and their table, or with one tokenizer.
        source_size: the tokens that the model has for sources.
        target_size: and for targets.

    Raises:
        SeqgenError: there are none, or they are damaged, or they are not understood.
    """
    ends, joint = Ends.of(folder), None
    if (folder / SOURCE).is_file():
        source, target = _marian(folder, source_size, target_size)
    else:
        if source_size != target_size:
            raise SeqgenError(f"{folder} has two vocabularies and no {SOURCE}")
        joint = open_tokenizer(folder, target_size, ends)
        source = target = joint.tokenizer
    stop = ends.id_of("eos", target.eos_id, target_size)
    if joint is not None:
        if stop is None or joint.after != [stop] or len(joint.before) > 1:
            raise joint.puts("and seqgen ends every source with the token that ends texts")
        source.source_bos_id = joint.before[0] if joint.before else None
    start = _id(ends.decoder_start, "decoder_start_token_id", target_size)
    forced = _id(ends.forced_bos, "forced_bos_token_id", target_size)
    if start is None:
        raise SeqgenError(f"{folder / 'config.json'} has no field decoder_start_token_id")
    first = start if forced is None else forced
    target.bos_id, target.eos_id = first, stop
    others = ends.other_stops(stop, target_size)
    framing = Framing(first, stop, stop, ends.never_of(target_size), True, others)
    return PairTokenizers(target, source, framing, None if forced is None else start)


def _id(token: Any, name: str, size: int) -> int | None:
    if token is not None and not (type(token) is int and 0 <= token < size):
        raise SeqgenError(f"{name} is {short(repr(token))}, which there is not")
    return token


def _marian(
    folder: Path, source_size: int, target_size: int
) -> tuple[MarianTokenizer, MarianTokenizer]:
    """Return the two sides of Marian's tokenizer, whose tables may be one."""
    own = (folder / TARGET_VOCABULARY).is_file()
    files = {
        SOURCE: (VOCABULARY, source_size),
        TARGET: (TARGET_VOCABULARY if own else VOCABULARY, target_size),
    }

    def side(file: str) -> MarianTokenizer:
        table, size = files[file]
        content, vocabulary = content_of(folder / file), read_table(folder / table)
        try:
            return MarianTokenizer(content, vocabulary, size)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise SeqgenError(f"{folder / file} or {table} is damaged: {error}") from None

    return side(SOURCE), side(TARGET)


def files_of(target: Tokenizer, source: Tokenizer, framing: Framing, name: str) -> dict[str, bytes]:
    """Return the files of a model's tokenizers, by name.

    Args:
        target: that of the targets.
        source: that of the sources.
        framing: how targets begin and end.
        name: what messages call the model.

    Raises:
        SeqgenError: no folder can hold them.
    """
    kinds = MarianTokenizer, SentencepieceTokenizer
    if isinstance(target, kinds) and isinstance(source, kinds):
        return _as_marian(target, source)
    if source is not target:
        raise SeqgenError(
            f"{name} has tokenizers of kinds {source.kind} and {target.kind}; a folder of Hugging "
            "Face holds one for both sides, or two of sentencepiece"
        )
    # What stands around a source, and not around a target.
    return hf_tokenizer_writing.files_of(target, framing, name, source=True)


def _as_marian(target: Tokenizer, source: Tokenizer) -> dict[str, bytes]:
    files, tables = {}, []
    for file, side in ((SOURCE, source), (TARGET, target)):
        if isinstance(side, MarianTokenizer):
            files[file] = side.content
            tables.append(dict(side.vocabulary))
        else:
            files[file] = side.model
            special = {getattr(side, which): name for which, name in NAMES.items()}
            names = enumerate(side.pieces(range(side.vocab_size)))
            tables.append({special.get(i, name): i for i, name in names})
    files[VOCABULARY] = json_bytes(tables[0])
    separate = tables[0] != tables[1]
    if separate:
        files[TARGET_VOCABULARY] = json_bytes(tables[1])
    about = {
        f"{which.removesuffix('_id')}_token": name
        for which, name in NAMES.items()
        if getattr(target, which) is not None
    }
    about |= {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    about |= {"source_lang": None, "target_lang": None}
    return {**files, "tokenizer_config.json": json_bytes(about)}

"""Loaded models seen one byte at a time: `-m NAME:bytes`."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from seqgen.errors import SeqgenError, UsageError
from seqgen.models.arrays import ArrayModel
from seqgen.plugins.bytes.covers import Segmentation
from seqgen.plugins.bytes.model import ByBytes, ByteArrays
from seqgen.store.loading import require_language_model
from seqgen.text.framing import Framing
from seqgen.text.tokenizers.byte import ByteTokenizer

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.tokenizers import Tokenizer

# What tokenizers change that normalise texts: white space, capitals, accents. Some put a space
# before a text that begins with none.
PROBE = " The  Day\n\n\tCafe\u0301 \u00e9 12!\n"
PROBES = PROBE, PROBE.lstrip()
# Characters that few vocabularies have, which become tokens of single bytes or unknown.
RARE = "\u4e2d\U0001f600"
# The option of the view that keeps every cover, or the N most probable.
ALL_COVERS = re.compile(r"all(,[0-9]*[1-9][0-9]*)?")
# How many covers of a text are kept.
MOST = 64
# The share of all covers that a canonical one needs for its last token to be read.
LEAST = 1e-3


def by_bytes(loaded: LoadedModel, option: str | None = None) -> LoadedModel:
    """Present a language model of text as a model over the tokens of the byte tokenizer.

    Args:
        loaded: the model.
        option: "all" to keep every cover, or "all,N" for the N most probable; None for the
            canonical ones.

    Raises:
        UsageError: there is no such option, or it is no language model of text.
        SeqgenError: its tokenizer changes texts.
    """
    every = option is not None
    if every and not ALL_COVERS.fullmatch(option):
        raise UsageError(
            f"a model is seen as :bytes, :bytes=all or :bytes=all,N, not :bytes={option}"
        )
    require_language_model(loaded.stored)
    require_view(loaded, ":bytes")
    tokenizer = loaded.tokenizer
    if isinstance(tokenizer, ByteTokenizer):
        return loaded
    most = int(option.partition(",")[2] or MOST) if every else MOST
    segmentation, least = segmentation_of(tokenizer, every), 0 if every else LEAST
    model = seen_by_bytes(loaded.model, segmentation, loaded.framing, most, least)
    kept = f"up to {most} at a time" if every else "the tokenizer's own"
    model.protocol = [f"covers of {tokenizer.kind} tokens, {kept}"]
    if (window := loaded.model.window) is not None:
        model.protocol.append(f"window {window}, stride {max(1, window // 2)} of these tokens")
    return replace(
        loaded, model=model, tokenizer=ByteTokenizer(), own_framing=framing_by_bytes(loaded)
    )


def require_view(loaded: LoadedModel, what: str) -> None:
    """Refuse a model that cannot be seen byte by byte.

    Args:
        loaded: the model.
        what: needs that.

    Raises:
        UsageError: it is no model of text.
        SeqgenError: it reads from right to left, or its tokenizer changes texts.
    """
    loaded.conditioning.require_nothing(what)
    name = loaded.stored.name
    if loaded.backward:
        raise SeqgenError(f"{name} reads from right to left, and bytes are read from left to right")
    if not keeps_texts(loaded.tokenizer):
        raise SeqgenError(
            f"{name} cannot be seen byte by byte: its {loaded.tokenizer.kind} tokenizer changes "
            "texts, or puts a space before them"
        )


def has_view(loaded: LoadedModel) -> bool:
    """Check whether a model can be seen byte by byte."""
    try:
        require_view(loaded, "")
    except SeqgenError:
        return False
    return True


@functools.lru_cache(maxsize=8)
def keeps_texts(tokenizer: Tokenizer) -> bool:
    """Check whether the bytes of the tokens of a text, joined, are the text.

    Tokenizers over bytes of which a few are missing, such as SmolLM2's, are not lossless, but keep
    all texts without these.
    """

    def keeps(text: str) -> bool:
        return b"".join([tokenizer.token_bytes[i] for i in tokenizer.encode(text)]) == text.encode()

    if tokenizer.lossless:
        return True
    keeps_rare = tokenizer.unk_id in tokenizer.encode(RARE) or keeps(RARE)
    return keeps_rare and all(map(keeps, PROBES))


def seen_by_bytes(
    model: object,
    segmentation: Segmentation,
    framing: Framing,
    most: int = MOST,
    least: float = LEAST,
) -> ByBytes:
    """Make a model over bytes of a model over tokens; see `ByBytes.wrap`."""
    if isinstance(model, ArrayModel):
        return ByteArrays(model, segmentation, framing, most, least)
    from seqgen.plugins.bytes.torch_model import ByteModel

    return ByteModel(model, segmentation, framing, most, least).eval()


@functools.lru_cache(maxsize=8)
def segmentation_of(tokenizer: Tokenizer, every: bool) -> Segmentation:
    """Prepare a tokenizer's vocabulary once for all models that share the object."""
    return Segmentation(tokenizer, every)


def framing_by_bytes(loaded: LoadedModel) -> Framing:
    """Return the start and end of texts by the tokens of bytes."""
    framing = Framing.of(ByteTokenizer(), loaded.data.documents)
    if loaded.framing.start != loaded.tokenizer.newline_id:
        framing = replace(framing, start=ByteTokenizer.bos_id)
    if framing.end is not None or not loaded.framing.stops:
        return framing
    end = ByteTokenizer.eos_id
    never = tuple(token for token in framing.never if token != end)
    return replace(framing, stop=end, never=never)

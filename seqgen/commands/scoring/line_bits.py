"""What each line of a text costs under a model, in bits, whatever the model's tokens are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqgen.commands.loaded import LoadedModel
from seqgen.configs.scoring import Scoring
from seqgen.data.corpus import Unknowns, encode_corpus
from seqgen.data.pairs import Pairs
from seqgen.data.text import lines
from seqgen.errors import SeqgenError
from seqgen.metrics.perplexity import ScoreTotals, bits_of_text
from seqgen.scoring import add_up, in_order
from seqgen.tokenizers import Tokenizer


@dataclass(frozen=True)
class LineBits:
    """A text's lines under one model.

    Attributes:
        bits: (L,) float64, the bits of each line, its end and its unknowns' bytes included.
        totals: of the whole text.
    """

    bits: np.ndarray
    totals: ScoreTotals


def score_each_line(loaded: LoadedModel, text: str | Pairs, scoring: Scoring) -> LineBits:
    """Score a text as `scoring` says, and return what each of its lines costs.

    A token that several lines have a part in counts for the line it begins in. Of pairs the
    targets are scored, each given its source.

    Raises:
        SeqgenError: the text holds no token.
    """
    unknowns, documents = Unknowns(loaded.tokenizer, each=True), scoring.documents
    whole = whole_of(text)
    framing = loaded.framing_of(documents)
    corpus = encode_corpus([whole], loaded.tokenizer, documents, framing=framing, unknowns=unknowns)
    if isinstance(text, Pairs):
        loaded.given.check(text.source_features)
        corpus = replace(corpus, sources=text.encoded_sources(loaded.source_tokenizer, None))
    if corpus.tokens.size == 0:
        raise SeqgenError(f"the text holds no token of {loaded.stored.name}: nothing to score")
    scored = in_order(loaded.score(corpus, scoring.batch_size, scoring.stride))
    if documents == "line":
        line = scored.documents
    else:
        line = _lines_of_tokens(loaded.tokenizer, whole, scored.tokens)
    count = len(list(lines([whole])))
    of_unknowns = line[unknowns.places].astype(np.int64)
    oov_bytes = np.bincount(of_unknowns, unknowns.sizes, minlength=count)
    totals = replace(
        add_up([scored], loaded.tokenizer),
        characters=len(whole),
        bytes=len(whole.encode()),
        oov_bytes=unknowns.bytes,
    )
    nats = np.bincount(line, -scored.log_probs, minlength=count)
    return LineBits(bits_of_text(nats, oov_bytes), totals)


def _lines_of_tokens(tokenizer: Tokenizer, text: str, tokens: np.ndarray) -> np.ndarray:
    """Return the number of the line that each token of a text begins in, (N,) int64."""
    if tokenizer.line_safe:
        ends = tokens == tokenizer.newline_id
        return np.cumsum(ends) - ends
    begins = np.concatenate([[0], tokenizer.byte_ends(text)[:-1]])
    newlines = np.flatnonzero(np.frombuffer(text.encode(), dtype=np.uint8) == ord("\n"))
    return np.searchsorted(newlines, begins)


def whole_of(text: str | Pairs) -> str:
    """Return what is scored of a text: all of it; of pairs the targets, as lines."""
    return "".join(text.targets()) if isinstance(text, Pairs) else text


def line_sizes(text: str) -> np.ndarray:
    """Return the bytes of each line, its end included: (L,) int64."""
    return np.array([len(line.encode()) for line in lines([text])])

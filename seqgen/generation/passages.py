"""Continuations of held-out passages, generated and real, for comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqgen.errors import SeqgenError
from seqgen.generation.sample import SampleOptions, Writer, finished_texts
from seqgen.generation.text_batch import Row

if TYPE_CHECKING:
    from seqgen.settings import Documents
    from seqgen.store.loaded import LoadedModel

WORD = re.compile(r"\S+")


@dataclass(frozen=True, kw_only=True)
class ContinuationProtocol:
    """Protocol for continuing held-out passages, at temperature 1 without filters.

    Attributes:
        passages: how many, one at least, spread evenly over the text; fewer if it is short.
        prefix_words: what the model reads of a passage.
        words: what it is to write; as many tokens as the real continuation has.
        seed: sample 0 of passage i draws its token t from hash(seed, i, 0, t).
        batch_size: written side by side; changes no text.
    """

    passages: int = 100
    prefix_words: int = 32
    words: int = 32
    seed: int = 0
    batch_size: int = 32

    def __str__(self) -> str:
        return f"{self.passages}x{self.prefix_words}+{self.words}words"


@dataclass(frozen=True)
class Passage:
    """Piece of held-out text, split into a prompt and its real continuation.

    Attributes:
        prefix: of whole words; empty where a line is too short to be cut.
        rest: what follows, white space before it included.
        ends: the rest is the end of a document.
    """

    prefix: str
    rest: str
    ends: bool = False


def find_passages(text: str, documents: Documents, protocol: ContinuationProtocol) -> list[Passage]:
    """Cut prompts with real continuations out of a text: from a stream, or from lines.

    Raises:
        SeqgenError: the text has no words to go on with.
    """
    find = _of_lines if documents == "line" else _of_stream
    passages = list(find(text, protocol))
    if not passages:
        raise SeqgenError("the text is too short to be continued: it needs two words at least")
    return passages


def _of_stream(text: str, protocol: ContinuationProtocol) -> Iterator[Passage]:
    spans = [match.span() for match in WORD.finditer(text)]
    whole = protocol.prefix_words + protocol.words
    prefix = protocol.prefix_words if len(spans) >= whole else len(spans) // 2
    whole = min(whole, len(spans))
    if prefix == 0:
        return
    count = min(protocol.passages, len(spans) // whole)
    for number in range(count):
        first = number * (len(spans) - whole) // max(1, count - 1)
        passage_spans = spans[first : first + whole]
        cut = passage_spans[prefix - 1][1]
        yield Passage(text[passage_spans[0][0] : cut], text[cut : passage_spans[-1][1]])


def _of_lines(text: str, protocol: ContinuationProtocol) -> Iterator[Passage]:
    lines = [line for line in text.split("\n") if line.strip()]
    count = min(protocol.passages, len(lines))
    for number in range(count):
        line = lines[number * (len(lines) - 1) // max(1, count - 1)]
        ends = [match.end() for match in WORD.finditer(line)]
        prefix = min(len(ends) // 2, protocol.prefix_words)
        last = min(len(ends), prefix + protocol.words)
        cut = ends[prefix - 1] if prefix else 0
        # A line's trailing white space is part of how it ends.
        end = len(line) if last == len(ends) else ends[last - 1]
        yield Passage(line[:cut], line[cut:end], end == len(line))


def continue_passages(
    loaded: LoadedModel, passages: Sequence[Passage], protocol: ContinuationProtocol
) -> list[str]:
    """Generate the model's own continuation of every passage.

    What the model does not know in a prefix is read as `<unk>`.
    """
    options = SampleOptions(seed=protocol.seed, batch_size=protocol.batch_size)
    begun = [loaded.framing.opened(loaded.ids(passage.prefix)) for passage in passages]
    # As many tokens as the real text has, its end included, so that lengths are alike.
    ends = bool(loaded.framing.stops)
    most = [len(loaded.ids(one.rest)) + (one.ends and ends) for one in passages]
    numbered = enumerate(zip(begun, most, strict=True))
    rows = (Row(number, 0, tokens, 0, limit) for number, (tokens, limit) in numbered)
    return [text.text for _, text in finished_texts(Writer(loaded, options), rows)]

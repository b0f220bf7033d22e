"""How much of what a model writes is new, and how much of it stands in its training text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seqgen import store
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.writing.sample import SampleOptions, sample
from seqgen.data.split import path_of, split_text
from seqgen.data.text import Text
from seqgen.data.tokenfile import is_token_file
from seqgen.errors import SeqgenError
from seqgen.metrics.novelty import Novelty, novelty
from seqgen.tasks.datasets.prepared import survey_text

# The texts that are written, from the default prompt.
SAMPLES = SampleOptions(num_samples=16, max_tokens=200, seed=0)


@dataclass(frozen=True)
class Originality:
    """How much is new, measured by n-grams of words that the training text has nowhere.

    Attributes:
        samples: of texts that the model writes.
        text: of as many words of the text that is looked at.
    """

    samples: Novelty
    text: Novelty


def originality(loaded: LoadedModel, text: str) -> Originality:
    """Compare what a model writes, and a text, with the part of its text that it was trained on.

    Args:
        loaded: the model, of text.
        text: what is looked at; as many words of it are taken as the model writes.

    Raises:
        SeqgenError: the training text is not known, is gone, or has changed; says so.
    """
    chunks = training_text(loaded)
    written = [record.text for record in sample(loaded, [""], SAMPLES)]
    lengths = [len(one.split()) for one in written]
    samples, of_text = novelty([written, list(_cut(text.split(), lengths))], chunks)
    return Originality(samples, of_text)


def _cut(words: Sequence[str], lengths: Sequence[int]) -> Iterator[str]:
    """Yield consecutive texts of so many words each, as far as they go."""
    begin = 0
    for length in lengths:
        yield " ".join(words[begin : begin + length])
        begin += length


def training_text(loaded: LoadedModel) -> Iterator[str]:
    """Return the part of a text that a model was trained on, in pieces.

    Raises:
        SeqgenError: it is not known, is gone, or has changed; says so.
    """
    stored, known = loaded.stored, loaded.stored.record.get("data")
    mixed = isinstance(stored, store.StoredMixture) or not isinstance(known, dict)
    if mixed or not {"files", "sha256"} <= known.keys():
        raise SeqgenError(f"no training text of {stored.name} is known")
    try:
        paths = store.text_of(known)
    except SeqgenError:
        raise SeqgenError(f"the training text of {stored.name} is gone") from None
    if is_token_file(paths[0]):
        raise SeqgenError(f"{stored.name} was trained on a token file")
    text, config = Text(paths, loaded.data.newlines), loaded.data
    facts = survey_text(text)
    if facts.sha256 != known["sha256"]:
        raise SeqgenError(f"{', '.join(map(str, paths))} has changed since {stored.name} read it")
    if path_of(config.val) is not None:
        config = replace(config, val="none")  # a file of its own is held out, perhaps gone
    return split_text(text, facts, config, loaded.tokenizer).train()

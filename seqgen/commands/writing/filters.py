"""The filters that sampling and searching have in common: how a text may begin and end."""

from __future__ import annotations

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.writing.prompts import first_unknown
from seqgen.configs import require
from seqgen.decoding.processors import Force, MinTokens, Processor


def begin_and_end(loaded: LoadedModel, min_tokens: int, force: str) -> list[Processor]:
    """Return the filters that keep a text from ending too early and that begin it.

    Args:
        loaded: the model.
        min_tokens: no end before so many tokens.
        force: what every text begins with.

    Raises:
        UsageError: the model does not know what every text is to begin with.
    """
    ends, processors = loaded.framing.stops, []
    if min_tokens and ends:
        processors.append(MinTokens(min_tokens, ends))
    if force:
        unknown = first_unknown(loaded, force)
        require(unknown is None, f"--force: the model does not know {unknown and unknown[0]!r}")
        processors.append(Force(loaded.ids(force)))
    return processors

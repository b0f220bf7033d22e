"""The filters that sampling and searching have in common: how a text may begin and end."""

from __future__ import annotations

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.writing.prompts import first_unknown
from seqgen.configs import no_text, require
from seqgen.decoding.processors import Force, MinTokens, Processor


def check_limits(min_tokens: int, max_tokens: int, force: str) -> None:
    """Refuse limits that contradict each other, and a beginning that is no text.

    Raises:
        UsageError: says which.
    """
    few = min_tokens <= max_tokens
    require(few, f"--min-tokens {min_tokens} is more than --max-tokens {max_tokens}")
    why = no_text(force)
    require(why is None, f"--force {why}")


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

"""The losses of two language models that read from both ends of a text."""

from __future__ import annotations

import math

from seqgen.commands.loaded import LoadedModel
from seqgen.commands.loading import directions_of
from seqgen.commands.scoring.perplexity import for_model, protocol
from seqgen.commands.training.validating import Final, Validation, final_validation
from seqgen.tasks.datasets.prepared import Prepared
from seqgen.tasks.validations.text import TextValidation


class BothWaysValidation(Validation):
    """Of two language models that read from both ends: the mean of their losses, and each."""

    def __init__(self, loaded: LoadedModel, prepared: Prepared) -> None:
        super().__init__(loaded, prepared)
        self._each = [TextValidation(one, prepared) for one in directions_of(loaded)]

    def quick(self) -> float:
        losses = [one.quick() for one in self._each]
        self.figures = dict(zip(("forward_loss", "backward_loss"), losses, strict=True))
        return sum(losses) / 2

    def final(self) -> Final:
        scored = [final_validation(one.loaded) for one in self._each]
        seconds = sum(seconds for _, seconds in scored)
        losses = [totals.nats_per_token for totals, _ in scored if totals is not None]
        if not losses:
            return Final()
        forwards = self._each[0].loaded
        how = f"{protocol(forwards, for_model(forwards))}; the mean of both directions"
        perplexities = dict(zip(("forward", "backward"), map(math.exp, losses), strict=True))
        return Final(sum(losses) / 2, seconds, how, perplexities=perplexities)

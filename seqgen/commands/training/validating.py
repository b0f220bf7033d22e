"""How each kind of model is measured on the held-out part: during training, and at its end."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

from seqgen.commands.both_ways import directions_of
from seqgen.commands.labelling.probabilities import label_totals
from seqgen.commands.loaded import LoadedModel
from seqgen.commands.masked.scores import HELD_OUT_SHARE, masked_loss
from seqgen.commands.scoring.perplexity import Scoring, protocol, score_held_out
from seqgen.commands.training.word_validation import word_loss
from seqgen.commands.writing.sample import fixed_sample
from seqgen.data.corpus import Corpus
from seqgen.metrics.perplexity import ScoreTotals
from seqgen.models.bert import Bert
from seqgen.models.elmo import ELMo
from seqgen.models.labeller import Labeller
from seqgen.models.word_network import WordNetwork
from seqgen.scoring import add_up, parallel_rows, score_corpus
from seqgen.tasks.datasets.prepared import Prepared

# A validation during training scores this much of a stream: rows, and tokens per row.
VALIDATION_ROWS, VALIDATION_LENGTH = 32, 1024
# Examples with labels that it looks at.
VALIDATION_EXAMPLES = 2000
# Tokens of the text that the model writes to show how far it is.
SAMPLE_TOKENS = 160


@dataclass(frozen=True)
class Final:
    """What a model achieves after its training; None where nothing was held out.

    Attributes:
        loss: on all of the held-out part, nats per token, or per label.
        seconds: that this took.
        protocol: how it was measured.
        text: what the model writes; None if it writes none.
        accuracy: of labels; None for a model that tells none.
        perplexities: by direction, of a model that reads both ways.
        layer_weights: of a model that reads another's features (`--features`).
    """

    loss: float | None = None
    seconds: float = 0.0
    protocol: str | None = None
    text: str | None = None
    accuracy: float | None = None
    perplexities: dict[str, float] | None = None
    layer_weights: dict[str, float] | None = None


@dataclass
class Validation(ABC):
    """Measures a model on the held-out part of its data.

    Attributes:
        loaded: the model, as it is at the time of a call.
        prepared: its data.
        figures: what the last call of `quick` has found besides the loss, by name.
    """

    loaded: LoadedModel
    prepared: Prepared
    figures: dict[str, float] = field(default_factory=dict)

    @abstractmethod
    def quick(self) -> float:
        """Return the loss on a small, fixed part of what is held out."""

    @abstractmethod
    def final(self) -> Final:
        """Measure the model on all that is held out, if anything is."""


class TextValidation(Validation):
    """Of a language model: what `perplexity` gives."""

    @cached_property
    def _corpus(self) -> Corpus:
        """Its part of what is held out, as parallel rows."""
        return parallel_rows(self.prepared.val, VALIDATION_ROWS, VALIDATION_LENGTH)

    def quick(self) -> float:
        how = {"want": "log_probs", "direction": self.loaded.data.direction}
        scored = score_corpus(self.loaded.model, self._corpus, VALIDATION_ROWS, **how)
        totals = add_up(scored, self.prepared.tokenizer)
        return totals.nll_nats / totals.tokens

    def final(self) -> Final:
        totals, seconds = final_validation(self.loaded)
        text = fixed_sample(self.loaded, self.prepared.sample_prompt, SAMPLE_TOKENS)
        if totals is None:
            return Final(text=text)
        how = protocol(self.loaded, Scoring().check(self.loaded))
        return Final(totals.nats_per_token, seconds, how, text)


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
        how = f"{protocol(forwards, Scoring().check(forwards))}; the mean of both directions"
        perplexities = dict(zip(("forward", "backward"), map(math.exp, losses), strict=True))
        return Final(sum(losses) / 2, seconds, how, perplexities=perplexities)


class WordValidation(Validation):
    """Of vectors of words."""

    def quick(self) -> float:
        return word_loss(self.loaded.model, self.prepared.val, VALIDATION_ROWS)

    def final(self) -> Final:
        if self.prepared.val is None:
            return Final()
        began = time.monotonic()
        self.prepared.show(self.loaded.model)  # what it counts is not stored
        loss = word_loss(self.loaded.model, self.prepared.val)
        return Final(loss, time.monotonic() - began, "every word with its whole context")


class MaskedValidation(Validation):
    """Of a masked model: what hidden tokens cost, always the same ones."""

    def quick(self) -> float:
        most = VALIDATION_ROWS * VALIDATION_LENGTH
        return masked_loss(self.loaded.model, self.prepared.val, most)

    def final(self) -> Final:
        if self.prepared.val is None:
            return Final()
        began = time.monotonic()
        loss = masked_loss(self.loaded.model, self.prepared.val)
        how = f"{HELD_OUT_SHARE:.0%} of the tokens hidden; no perplexity"
        return Final(loss, time.monotonic() - began, how)


class LabelValidation(Validation):
    """Of a classifier or a tagger: cross-entropy and accuracy of the labels."""

    def quick(self) -> float:
        totals = label_totals(self.loaded.model, self.prepared.val, VALIDATION_EXAMPLES)
        self.figures = {"accuracy": totals.accuracy}
        return totals.nats_per_label

    def final(self) -> Final:
        weights = self.loaded.model.layer_weights
        if self.prepared.val is None:
            return Final(layer_weights=weights)
        began = time.monotonic()
        totals = label_totals(self.loaded.model, self.prepared.val)
        seconds = time.monotonic() - began
        how = "every label of the held-out part"
        about = {"accuracy": totals.accuracy, "layer_weights": weights}
        return Final(totals.nats_per_label, seconds, how, **about)


def validating(loaded: LoadedModel, prepared: Prepared) -> Validation:
    """Return what measures a model of this kind."""
    kinds = {
        WordNetwork: WordValidation,
        Bert: MaskedValidation,
        ELMo: BothWaysValidation,
        Labeller: LabelValidation,
    }
    model = loaded.model
    matching = (validation for kind, validation in kinds.items() if isinstance(model, kind))
    return next(matching, TextValidation)(loaded, prepared)


def final_validation(kept: LoadedModel) -> tuple[ScoreTotals | None, float]:
    """Score the whole held-out part with a stored model: `perplexity`'s figure.

    Returns:
        Its totals, or None if nothing was held out; and the seconds that it took.
    """
    if not kept.stored.holds_out:
        return None, 0.0
    began = time.monotonic()
    totals = score_held_out(kept)
    return totals, time.monotonic() - began

"""The loss of a language model on held-out text, pairs or labelled lines."""

from __future__ import annotations

from functools import cached_property

from seqgen.commands.scoring.perplexity import for_model, protocol
from seqgen.commands.training.validating import (
    SAMPLE_TOKENS,
    VALIDATION_LENGTH,
    VALIDATION_ROWS,
    Final,
    Validation,
    final_validation,
)
from seqgen.commands.writing.sample import fixed_sample
from seqgen.data.corpus import Corpus
from seqgen.scoring import add_up, parallel_rows, score_corpus


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
        how = protocol(self.loaded, for_model(self.loaded))
        return Final(totals.nats_per_token, seconds, how, text)

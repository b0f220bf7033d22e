"""Options of `seqgen perplexity` for dynamic evaluation."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Literal

from seqgen.settings import Documents, OptionRule, Panel, ranges, require, setting
from seqgen.settings.filters import AdaptiveScoring

if TYPE_CHECKING:
    import numpy as np

    from seqgen.plugins.dynamic.dynamic import LearningRule
    from seqgen.scoring.loop import Scored
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.corpus import Corpus

# Tokens of a segment, as in the paper: where tokens are characters or bytes, and elsewhere.
LETTERS, WORDS = 20, 5
# The learning rate for texts of which nothing is known.
USUAL_RATE = 0.1
BELONGS_TO_DYNAMIC = OptionRule(
    ("--dynamic",), "{flag} belongs to --dynamic: give its learning rate as well"
)


class Dynamic(AdaptiveScoring, panel=Panel.MODEL):
    """Options of dynamic evaluation: weights adapt to the scored text (Krause et al. 2018)."""

    dynamic: float | None = setting(
        "Train the model on the text while it is scored, by SGD with this learning rate (dynamic "
        "evaluation); an n-gram model in it counts the text. The stored model stays as it is.",
        bounds=ranges.WEIGHTS,
        metavar="RATE",
        conflicts=OptionRule(("--stride", "--per-line"), "give {other} or {flag}, not both"),
    )
    dynamic_decay: float = setting(
        "Share by which the weights return to the trained ones at each update of --dynamic.",
        0.0,
        ranges.SHARES,
        without="0",
        needs=BELONGS_TO_DYNAMIC,
    )
    dynamic_segment: int | None = setting(
        "Number of tokens between the updates of --dynamic.",
        bounds=ranges.TOKENS,
        without="20 characters or bytes; 5 other tokens",
        needs=BELONGS_TO_DYNAMIC,
    )

    def check_model(self, loaded: LoadedModel, documents: Documents) -> None:
        from seqgen.plugins.dynamic.dynamic import discounts_of

        name, model = loaded.stored.name, loaded.model
        loaded.conditioning.require_nothing("--dynamic")
        require(loaded.cache is None, "give --dynamic or --cache, not both")
        discounts_of(loaded)
        require(not loaded.backward, f"--dynamic reads from left to right; {name} reads backward")
        stream = documents == "stream"
        require(stream, "--dynamic follows one continuous text, not lines on their own")
        exact = loaded.precision in ("float32", "float64")
        require(exact, "--dynamic needs --precision float32 or float64")
        fits = None in (self.dynamic_segment, model.window) or self.dynamic_segment <= model.window
        most = f"at most {model.window}, the window of {name}"
        require(fits, f"--dynamic-segment must be {most}, not {self.dynamic_segment}")

    def score(
        self, loaded: LoadedModel, corpus: Corpus, want: Literal["ranks", "hits"]
    ) -> Iterator[Scored]:
        from seqgen.plugins.dynamic.dynamic import discounts_of, score_dynamically

        rule, discounts = self._rule(loaded), discounts_of(loaded)
        return score_dynamically(loaded.model, corpus, rule, want, discounts)

    @classmethod
    def default(cls) -> Dynamic:
        return cls(dynamic=USUAL_RATE)

    def predict(self, loaded: LoadedModel) -> Generator[np.ndarray, int]:
        from seqgen.plugins.dynamic.dynamic import discounts_of, predict_tokens

        rule, discounts = self._rule(loaded), discounts_of(loaded)
        return predict_tokens(loaded.model, rule, loaded.framing.start, discounts)

    def describe(self, loaded: LoadedModel) -> str:
        counts = "; n-grams are counted on" if self._counts(loaded) else ""
        return (
            f"dynamic evaluation by SGD (Krause et al. 2018), learning rate {self.dynamic:g}, "
            f"decay {self.dynamic_decay:g}, segments of {self.segment(loaded)} tokens{counts}"
        )

    def signature(self, loaded: LoadedModel) -> dict[str, str]:
        rule = f"{self.dynamic:g}/{self.dynamic_decay:g}/{self.segment(loaded)}"
        return {"dynamic": rule + "+counts" * self._counts(loaded)}

    def segment(self, loaded: LoadedModel) -> int:
        usual = LETTERS if loaded.tokenizer.kind in ("char", "byte") else WORDS
        segment, window = self.dynamic_segment or usual, loaded.model.window
        return segment if window is None else min(segment, window)

    def _rule(self, loaded: LoadedModel) -> LearningRule:
        from seqgen.plugins.dynamic.dynamic import LearningRule

        return LearningRule(self.dynamic, self.dynamic_decay, self.segment(loaded))

    @staticmethod
    def _counts(loaded: LoadedModel) -> bool:
        """Check whether an n-gram model in a mixture counts the text."""
        return any(part.counted for part in loaded.model.parts)

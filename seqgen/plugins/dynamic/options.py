"""Options of `seqgen perplexity` for dynamic evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from seqgen.settings import Documents, OptionRule, Panel, ranges, require, setting
from seqgen.settings.filters import AdaptiveScoring

if TYPE_CHECKING:
    from seqgen.scoring.loop import Scored
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.corpus import Corpus

# Tokens of a segment, as in the paper: where tokens are characters or bytes, and elsewhere.
LETTERS, WORDS = 20, 5
BELONGS_TO_DYNAMIC = OptionRule(
    ("--dynamic",), "{flag} belongs to --dynamic: give its learning rate as well"
)


class Dynamic(AdaptiveScoring, panel=Panel.MODEL):
    """Options of dynamic evaluation: weights adapt to the scored text (Krause et al. 2018)."""

    dynamic: float | None = setting(
        "Train the model on the text while it is scored, by SGD with this learning rate (dynamic "
        "evaluation). The stored model stays as it is.",
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
        from seqgen.models.base import NeuralLanguageModel

        name, model = loaded.stored.name, loaded.model
        loaded.conditioning.require_nothing("--dynamic")
        require(loaded.cache is None, "give --dynamic or --cache, not both")
        trained = isinstance(model, NeuralLanguageModel)
        what = "estimated from counts" if model.counted else "a mixture"
        require(trained, f"--dynamic trains one neural model on the text; {name} is {what}")
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
        from seqgen.plugins.dynamic.dynamic import score_dynamically

        segment = self.segment(loaded)
        return score_dynamically(
            loaded.model, corpus, self.dynamic, self.dynamic_decay, segment, want
        )

    def describe(self, loaded: LoadedModel) -> str:
        return (
            f"dynamic evaluation by SGD (Krause et al. 2018), learning rate {self.dynamic:g}, "
            f"decay {self.dynamic_decay:g}, segments of {self.segment(loaded)} tokens"
        )

    def signature(self, loaded: LoadedModel) -> dict[str, str]:
        rule = f"{self.dynamic:g}/{self.dynamic_decay:g}/{self.segment(loaded)}"
        return {"dynamic": rule}

    def segment(self, loaded: LoadedModel) -> int:
        usual = LETTERS if loaded.tokenizer.kind in ("char", "byte") else WORDS
        segment, window = self.dynamic_segment or usual, loaded.model.window
        return segment if window is None else min(segment, window)

"""Options of `sample` and `beam-search` that describe texts: their form, and what they contain."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from seqgen.settings.filters import FilterOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import MOST_CANDIDATES, require, setting, texts

PatternMode = Literal["mask", "exact", "resample"]
FORMS = "--pattern", "--grammar", "--json-schema"


class Form(FilterOptions, panel=Panel.FORM):
    """The form that a whole text must have."""

    constraint_flag: ClassVar[str] = "--pattern"

    pattern: str | None = setting(
        "Write only texts that match this regular expression as a whole: Python's syntax without "
        "back-references and look-around. A prompt is not part of the text.",
        metavar="REGEX",
        common=True,
    )
    grammar: str | None = setting(
        "Write only texts of this context-free grammar, in the syntax of lark, from its rule "
        "`start`.",
        reads="file",
    )
    json_schema: str | None = setting(
        "Write only JSON that is valid under this JSON Schema: a file, or the schema itself, which "
        "begins with {.",
        reads="file",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_two(*FORMS)

    @property
    def form(self) -> str | None:
        return next((flag for flag in self.given if flag in FORMS), None)

    def constraint(self, generator: Any) -> Any:
        if self.form is None:
            return None
        from seqgen.plugins.patterns.forms import constraint_of

        text = getattr(self, self.form[2:].replace("-", "_"))
        return constraint_of(
            generator.loaded, self.form, text, generator.options.max_tokens, generator.dead_id
        )


class SampledForm(Form, panel=Panel.FORM):
    """The form of a text that is drawn, and how the draw keeps it."""

    pattern_mode: PatternMode = setting(
        "How a form is kept: mask what cannot be completed (mask), draw from the true conditional "
        "distribution of an n-gram model or HMM (exact), or weigh --particles masked texts and "
        "draw one (resample).",
        "mask",
    )
    particles: int = setting(
        "With --pattern-mode resample: number of texts to draw from.",
        16,
        low=2,
        high=MOST_CANDIDATES,
    )

    def check_with(self, options: Any) -> None:
        if self.pattern_mode == "mask":
            require(self.particles == 16, "--particles belongs to --pattern-mode resample")
            return
        mode = f"--pattern-mode {self.pattern_mode}"
        require(self.form is not None, f"{mode} needs --pattern, --grammar or --json-schema")
        kept = {"--num-samples", "--max-tokens", "--seed", "--batch-size"}
        kept |= {*self.given, *options.of_source.given}
        other = next((flag for flag in options.given if flag not in kept), None)
        require(other is None, f"{mode} draws from the model itself, without {other}")

    @property
    def resampled(self) -> int:
        return self.particles if self.pattern_mode == "resample" else 1

    def constraint(self, generator: Any) -> Any:
        masked = super().constraint(generator)
        if self.pattern_mode != "exact":
            return masked
        from seqgen.plugins.patterns.forms import exactly

        return exactly(generator.loaded, masked)


class SearchedForm(Form, panel=Panel.FORM):
    """The form of a text that is searched for, and what it must contain."""

    include: tuple[str, ...] = setting(
        r"Write only texts that contain this; \n, \t and \\ are read as escapes. Can be repeated; "
        "in any order (Post and Vilar 2018).",
        reads="escapes",
        common=True,
    )
    terms: str | None = setting(
        "For a model that writes from sources: lines of a term of the source, a tab, and what must "
        "occur in the text wherever the source contains it.",
        reads="file",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        texts("--include", self.include)

    @property
    def required_by(self) -> str | None:
        """The flag that says what texts must contain, the first if there are two."""
        return next((flag for flag in self.given if flag in ("--include", "--terms")), None)

    def check_with(self, options: Any) -> None:
        if self.required_by is not None:
            others = "--groups", "--copy-unknown", "--stochastic", "--exhaustive"
            options.refuse_with(self.required_by, *others)

    def requirement(self, generator: Any) -> Any:
        if self.required_by is None:
            return None
        from seqgen.plugins.patterns.include import RequiredTexts

        return RequiredTexts(
            generator.loaded, generator.options, self.include, self.terms, self.required_by
        )

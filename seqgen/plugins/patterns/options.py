"""Options of `sample` and `beam-search` for constrained and required texts."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from seqgen.settings.filters import WITH_A_FORM, FilterOptions
from seqgen.settings.options import Panel
from seqgen.settings.setting import MOST_CANDIDATES, NOT_TOGETHER, OptionRule, setting, texts

PatternMode = Literal["mask", "exact", "resample"]
FORMS = "--pattern", "--grammar", "--json-schema"
ONE_FORM = (*FORMS, *WITH_A_FORM)
REQUIRED_TEXTS = OptionRule(
    ("--groups", "--copy-unknown", "--stochastic", "--exhaustive"), NOT_TOGETHER
)


class Form(FilterOptions, panel=Panel.FORM):
    """Pattern, grammar or JSON schema that a whole text must match."""

    constraint_flag: ClassVar[str] = "--pattern"

    pattern: str | None = setting(
        "Write only texts that match this regular expression as a whole: Python's syntax without "
        "back-references and look-around. A prompt is not part of the text.",
        metavar="REGEX",
        common=True,
        conflicts=ONE_FORM,
    )
    grammar: str | None = setting(
        "Write only texts of this context-free grammar, in the syntax of lark, from its rule "
        "`start`.",
        reads="file",
        conflicts=ONE_FORM,
    )
    json_schema: str | None = setting(
        "Write only JSON that is valid under this JSON Schema: a file, or the schema itself, which "
        "begins with {.",
        reads="file",
        conflicts=ONE_FORM,
    )

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
    """Constraint on sampled texts, and the method that enforces it."""

    pattern_mode: PatternMode = setting(
        "How a form is kept: mask what cannot be completed (mask), draw from the true conditional "
        "distribution of an n-gram model or HMM (exact), or weigh --particles masked texts and "
        "draw one (resample).",
        "mask",
        needs=OptionRule(FORMS, "{typed} needs --pattern, --grammar or --json-schema"),
        conflicts=OptionRule(
            (Panel.FILTERS, "--min-tokens", "--stop", "--best-of"),
            "{typed} draws from the model itself, without {other}",
        ),
    )
    particles: int = setting(
        "With --pattern-mode resample: number of texts to draw from.",
        16,
        low=2,
        high=MOST_CANDIDATES,
        needs="--pattern-mode resample",
    )

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
    """Constraint on texts of a beam search, and texts that they must contain."""

    include: tuple[str, ...] = setting(
        r"Write only texts that contain this; \n, \t and \\ are read as escapes. Can be repeated; "
        "in any order (Post and Vilar 2018).",
        reads="escapes",
        common=True,
        conflicts=REQUIRED_TEXTS,
    )
    terms: str | None = setting(
        "For translation models: a file of lines with a source term, a tab, and what the text "
        "must contain if the source contains the term.",
        reads="file",
        conflicts=REQUIRED_TEXTS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        texts("--include", self.include)

    @property
    def required_by(self) -> str | None:
        """First given flag that requires texts: `--include` or `--terms`; None without."""
        return next((flag for flag in self.given if flag in ("--include", "--terms")), None)

    def requirement(self, generator: Any) -> Any:
        if self.required_by is None:
            return None
        from seqgen.plugins.patterns.include import RequiredTexts

        return RequiredTexts(
            generator.loaded, generator.options, self.include, self.terms, self.required_by
        )

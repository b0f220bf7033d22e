"""Options of generation: sampling, beam search, and attention to the source.

Each stands once. The flags of `seqgen sample` and `seqgen beam-search`, the keywords of the Python
API, the checks, the help and `docs/settings.md` follow from these classes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from seqgen.settings import ranges
from seqgen.settings.options import Options, Panel, added_options, group, redeclare, with_default
from seqgen.settings.setting import (
    MOST_CANDIDATES,
    MOST_ROWS,
    MOST_TOKENS,
    NOT_TOGETHER,
    ONE_MODEL,
    OptionRule,
    require,
    setting,
    shorten,
    texts,
    why_not_utf8,
)

if TYPE_CHECKING:
    import numpy as np

    from seqgen.settings.filters import FilterOptions

# R times a number of tokens, R being a decimal fraction, may fall just short of a whole number.
ROUNDING = 1e-9
LengthNormKind = Literal["avg", "gnmt", "none"]
# This number and that of the candidates of each sample together fit the 64 bits that are hashed.
MOST_SAMPLES = 10**12
# e^-1000 is 0 in float64; far larger penalties would overflow float32.
MOST_PENALTY = 1000
# The power of a length, or of its inverse, that floats hold for any length there is.
MOST_ALPHA = 10
MOST_BEAMS, MOST_DIVERSITY = 10**5, 1e6


# What shows the attention of a text.
ATTENTION_VIEWS = "--attention", "--align", "--align-words"
OF_ONE_TEXT = ONE_MODEL, "--no-end"


class ChosenHeads(Options, panel=Panel.ATTENTION):
    """Selection of attention heads by layer and head, counted from 0."""

    layer: int | None = setting(
        "Read the attention of this layer, counted from 0.", low=0, without="the mean of all"
    )
    head: int | None = setting(
        "Read the attention of this head, counted from 0.", low=0, without="the mean of all"
    )

    def mean(self, weights: np.ndarray) -> np.ndarray:
        """Average attention weights (layers, heads, T, L) over the selected heads to (T, L)."""
        layers = weights if self.layer is None else weights[[self.layer]]
        heads = layers if self.head is None else layers[:, [self.head]]
        return heads.mean((0, 1), dtype="float64")


class LookOptions(Options, panel=Panel.ATTENTION):
    """Options that show the attention of a text to its source."""

    attention: bool = setting(
        "Show what each token attends to in its source: all layers and heads with --json, else a "
        "heat map on standard error.",
        conflicts=OF_ONE_TEXT,
    )
    align: bool = setting(
        "After each text and a tab, write pairs i-j: target token j reads source token i most. "
        "Both count from 0.",
        conflicts=("--align-words", *OF_ONE_TEXT),
    )
    align_words: bool = setting(
        "The same between words, which white space separates.", conflicts=OF_ONE_TEXT
    )
    heads: ChosenHeads = group(ChosenHeads)

    @property
    def shows_something(self) -> bool:
        """Whether attention or an alignment is shown with the texts."""
        return self.attention or self.align or self.align_words

    @property
    def needs_attention(self) -> bool:
        """Whether the attention of finished texts has to be computed."""
        return self.shows_something


class SourceOptions(LookOptions, panel=Panel.LENGTH):
    """Options of models that generate from sources: output length, copied words, attention."""

    max_ratio: float | None = setting(
        "Write at most this many tokens for each token of the source; both counts include the "
        "end, and every text may have one token.",
        bounds=ranges.UP_TO_1000,
        metavar="R",
    )
    copy_unknown: bool = setting(
        "Allow <unk>, and replace it by the source word that it attends to most.",
        panel=Panel.FILTERS,
    )

    @property
    def needs_attention(self) -> bool:
        """Whether the attention of finished texts has to be computed."""
        return super().needs_attention or self.copy_unknown

    def limit(self, places: int, max_tokens: int) -> int:
        """Compute the maximum length of the text for a source of `places` tokens without EOS."""
        if self.max_ratio is None:
            return max_tokens
        longest = math.floor(self.max_ratio * (places + 1) + ROUNDING)
        return min(max_tokens, max(1, longest))


class WritingOptions(Options, panel=Panel.LENGTH):
    """Options that sampling and beam search share. `batch_size` never changes a result."""

    no_repeat_ngram: int | None = setting(
        "Never write any N tokens twice, prompt included.", low=1, panel=Panel.FILTERS, common=True
    )
    force: str = setting(
        r"Begin every text with this string; \n, \t and \\ are read as escapes.",
        "",
        panel=Panel.FILTERS,
        reads="escapes",
        common=True,
    )
    max_tokens: int = setting(
        "Largest number of tokens to write.", 500, low=0, high=MOST_TOKENS, common=True
    )
    min_tokens: int = setting("Least number of tokens to write before a text may end.", 0, low=0)
    stop: tuple[str, ...] = setting(
        r"End a text before this string; \n, \t and \\ are read as escapes. Can be repeated.",
        reads="escapes",
        common=True,
    )
    added: Options = group(Options)
    of_source: SourceOptions = group(SourceOptions)
    batch_size: int = setting(
        "Texts to process at once; affects speed and memory, not the result.",
        32,
        low=1,
        high=MOST_ROWS,
        panel=Panel.MACHINE,
    )
    seed: int | None = setting(
        "Random seed; the same seed gives the same result.",
        bounds=ranges.SEEDS,
        panel=Panel.MACHINE,
        without="random, and reported",
        common=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        few = self.min_tokens <= self.max_tokens
        require(few, f"--min-tokens {self.min_tokens} is more than --max-tokens {self.max_tokens}")
        why = why_not_utf8(self.force)
        require(why is None, f"--force {why}")
        texts("--stop", self.stop)
        forms = [each.form for each in self.added_filters if each.form is not None]
        require(len(forms) < 2, f"give {' or '.join(forms[:2])}, not both")

    @property
    def added_filters(self) -> list[FilterOptions]:
        """The groups of filter options that plugins add."""
        return self.added.groups

    @property
    def form(self) -> str | None:
        """The given flag that describes complete texts, if any."""
        return next((each.form for each in self.added_filters if each.form is not None), None)


# The filters that plugins add, groups of the class `FilterOptions`.
AddedToSample = added_options("writing", "sample")
AddedToBeamSearch = added_options("writing", "beam-search")


class SampleOptions(WritingOptions, panel=Panel.FILTERS):
    """Options of `sample`. Sample j of prompt i draws its token t from hash(seed, i, j, t)."""

    temperature: float = setting(
        "Divide the logits by this: below 1 the text is more predictable, above 1 more varied; 0 "
        "is greedy.",
        1.0,
        low=0,
        common=True,
    )
    top_k: int | None = setting("Keep only the N most probable tokens.", low=1, common=True)
    top_p: float = setting(
        "Keep the fewest most probable tokens whose total reaches this probability.",
        1.0,
        ranges.SHARES,
        common=True,
    )
    min_p: float = setting(
        "Keep tokens with at least this share of the most probable token's probability.",
        0.0,
        ranges.SHARES,
    )
    typical: float = setting(
        "Keep the tokens whose surprisal is nearest to the entropy, up to this total probability.",
        1.0,
        ranges.POSITIVE_SHARES,
    )
    repetition_penalty: float = setting(
        "Multiply the log-probability of every token seen before by this, 0.001 to 1000; above 1 "
        "discourages repetition. Hugging Face's penalty acts on logits instead.",
        1.0,
        low=1 / MOST_PENALTY,
        high=MOST_PENALTY,
    )
    presence_penalty: float = setting(
        "Subtract this many nats from every token written before, -1000 to 1000.",
        0.0,
        low=-MOST_PENALTY,
        high=MOST_PENALTY,
    )
    frequency_penalty: float = setting(
        "Subtract this many nats from a token for each time it was written, -1000 to 1000.",
        0.0,
        low=-MOST_PENALTY,
        high=MOST_PENALTY,
    )
    ban: tuple[str, ...] = setting(
        r"Never write this string, unless --force does; \n, \t and \\ are read as escapes. Can be "
        "repeated.",
        reads="escapes",
    )
    added: AddedToSample = group(AddedToSample)
    greedy: bool = setting("Always write the most probable token.", common=True)
    num_samples: int = setting(
        "Number of texts to write for each prompt.",
        1,
        low=1,
        high=MOST_SAMPLES,
        panel=Panel.LENGTH,
        common=True,
    )
    best_of: int = setting(
        "Write this many candidates for each text and keep the one with the highest "
        "log-probability per token. Candidate k of sample j draws as sample jN + k.",
        1,
        low=1,
        high=MOST_CANDIDATES,
        panel=Panel.LENGTH,
        common=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        texts("--ban", self.ban)

    @property
    def candidates(self) -> int:
        """Number of texts generated for each text that is kept (best of n)."""
        return self.resampled if self.resampled > 1 else self.best_of

    @property
    def resampled(self) -> int:
        """Number of weighted candidates from which each text is resampled; 1 without."""
        return max([1, *(filters.resampled for filters in self.added_filters)])

    @property
    def draws(self) -> bool:
        """Whether the text depends on the seed: not if tokens are chosen greedily."""
        chosen = self.greedy or self.temperature == 0
        return not chosen or any(filters.draws for filters in self.added_filters)


class BeamOptions(WritingOptions, panel=Panel.SEARCH):
    """Options of `beam_search`."""

    max_tokens: int = with_default(WritingOptions, "max_tokens", 100)
    batch_size: int = with_default(WritingOptions, "batch_size", 16)
    beams: int = setting(
        "Number of hypotheses to keep at each step.", 5, low=1, high=MOST_BEAMS, common=True
    )
    length_norm: LengthNormKind = setting(
        "Divide the log-probability of a text of L tokens by L^alpha (avg), by ((5 + L) / 6)^alpha "
        "(gnmt), or not at all (none).",
        "avg",
        common=True,
    )
    alpha: float = setting(
        "Exponent of --length-norm, from -10 to 10; above 0 favours longer texts.",
        1.0,
        low=-MOST_ALPHA,
        high=MOST_ALPHA,
        common=True,
    )
    groups: int = setting(
        "Diverse beam search (Vijayakumar et al. 2018): divide the beams into this many groups.",
        1,
        low=1,
    )
    diversity: float = setting(
        "With --groups: subtract this many nats from a token that an earlier group takes.",
        0.5,
        low=0,
        high=MOST_DIVERSITY,
    )
    added: AddedToBeamSearch = group(AddedToBeamSearch)
    coverage_penalty: float = setting(
        "Lower the score of a finished text that leaves parts of its source unread: add BETA times "
        "the sum of log(min(coverage, 1)) over the source's tokens (Wu et al. 2016, equation 14).",
        0.0,
        low=0,
        high=MOST_PENALTY,
        metavar="BETA",
    )
    stochastic: bool = setting(
        "Sample as many texts as there are beams, without replacement (Kool et al. 2019).",
        conflicts=(
            OptionRule(
                ("--coverage-penalty",),
                "{flag} samples texts, so that {other} has no say in it",
            ),
            OptionRule(("--groups",), NOT_TOGETHER),
        ),
    )
    exhaustive: bool = setting(
        "Try every possible text; for tiny vocabularies only.",
        conflicts=OptionRule(("--groups", "--stochastic"), NOT_TOGETHER),
    )
    nbest: int = setting(
        "Number of texts to return for each prompt.",
        1,
        low=1,
        high=MOST_BEAMS,
        panel=Panel.LENGTH,
        common=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.exhaustive or self.nbest <= self.beams
        require(
            enough, f"--nbest must be from 1 to --beams {self.beams}, not {shorten(self.nbest)}"
        )
        divides = self.beams % self.groups == 0
        said = f"--groups must divide --beams {self.beams}, and {shorten(self.groups)} does not"
        require(divides, said)


class Translation(Options):
    """Options of the beam search that translates sources for scoring."""

    beams: int = redeclare(BeamOptions, "beams", panel=Panel.TRANSLATED)
    max_tokens: int | None = with_default(
        BeamOptions,
        "max_tokens",
        None,
        panel=Panel.TRANSLATED,
        without="100, or twice the longest target if that is more",
    )

    def search(self, batch_size: int) -> BeamOptions:
        """Build the beam search's options; an unset `max_tokens` keeps its default."""
        given = {name: value for name, value in self.keywords.items() if value is not None}
        return BeamOptions(**given, batch_size=batch_size)


class WeighedTranslation(Translation):
    """Options of the translating beam search, with its length normalization."""

    length_norm: LengthNormKind = redeclare(BeamOptions, "length_norm", panel=Panel.TRANSLATED)
    alpha: float = redeclare(BeamOptions, "alpha", panel=Panel.TRANSLATED)

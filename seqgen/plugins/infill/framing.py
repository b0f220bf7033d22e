"""Prompts in the form in which models were trained to fill in the middle (Bavarian et al. 2022)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from seqgen.errors import SeqgenError
from seqgen.settings import require
from seqgen.settings.setting import why_not_utf8
from seqgen.store.loaded import LoadedModel
from seqgen.text.framing import Framing

# Tokens before the prefix, before the suffix and before the middle: of Qwen and CodeGemma,
# StarCoder and Granite, SantaCoder, Code Llama, DeepSeek.
PREFIX_FIRST = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
)
# Codestral reads the suffix, and then continues the prefix.
SUFFIX_FIRST = (("[SUFFIX]", "[PREFIX]"),)
# What such models write after the middle, besides their end of text.
ENDS = (
    *("<|endoftext|>", "<|fim_pad|>", "<fim_pad>", "<fim-pad>", "▁<EOT>", "<EOT>"),
    *("<|repo_name|>", "<|file_sep|>", "<|file_separator|>", "<file_sep>"),
)


@dataclass(frozen=True)
class InfillFraming(Framing):
    """Framing of prompts that are followed by a suffix.

    Attributes:
        before: the ids before the prompt.
        after: the ids after the prompt.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def opened(self, ids: Iterable[int]) -> tuple[int, ...]:
        start = (self.start,) if self.starts_prompts else ()
        return (*start, *self.before, *ids, *self.after)


def between(loaded: LoadedModel, suffix: str) -> LoadedModel:
    """Return a model that writes what belongs between its prompts and a suffix.

    Raises:
        UsageError: the suffix is no text; the model writes from sources or labels.
        SeqgenError: it was not trained to fill in the middle, or does not know the suffix.
    """
    name, tokenizer = loaded.stored.name, loaded.tokenizer
    why = why_not_utf8(suffix)
    require(why is None, f"--suffix {why}")
    loaded.conditioning.require_nothing("--suffix")
    unknown = tokenizer.first_unknown(suffix)
    if unknown is not None:
        raise SeqgenError(f"--suffix: {name} does not know {unknown[1]!r}")
    named = tokenizer.named_tokens()
    forms = (form for form in (*PREFIX_FIRST, *SUFFIX_FIRST) if all(x in named for x in form))
    form = next(forms, None)
    if form is None or loaded.backward:
        example = ", ".join(PREFIX_FIRST[0])
        raise SeqgenError(
            f"{name} cannot fill in the middle: its tokenizer has no tokens for that, such as "
            f"{example}"
        )
    tokens = [_id_of(loaded, one) for one in form]
    ids = _ids_within(loaded, suffix)
    if form in SUFFIX_FIRST:
        before, after = (tokens[0], *ids, tokens[1]), ()
    else:
        before, after = (tokens[0],), (tokens[1], *ids, tokens[2])
    framing = loaded.framing
    ends = [_id_of(loaded, one) for one in ENDS if one in named]
    also_stop = tuple(dict.fromkeys((*framing.also_stop, *ends, *tokens)))
    never = tuple(token for token in framing.never if token not in also_stop)
    kept = replace(framing, also_stop=also_stop, never=never)
    return replace(loaded, own_framing=InfillFraming(**asdict(kept), before=before, after=after))


def _id_of(loaded: LoadedModel, name: str) -> int:
    return int(loaded.tokenizer.encode_with_names(name)[-1])


def _ids_within(loaded: LoadedModel, text: str) -> tuple[int, ...]:
    """Encode a text without the space that some tokenizers put before the first word."""
    newline, ids = loaded.ids("\n"), loaded.ids("\n" + text)
    return ids[len(newline) :] if ids[: len(newline)] == newline else loaded.ids(text)

"""Sentence pairs for translation: tokenizer settings, tokenization with a cache, batches."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from seqgen import store
from seqgen.errors import SeqgenError, reporting_os_errors
from seqgen.files import make_listed_folder
from seqgen.settings import DataConfig, require
from seqgen.settings.training import TrainingConfig
from seqgen.store import StoredModel
from seqgen.text.batches import Batches, training_batches, with_unknowns
from seqgen.text.corpus import Corpus
from seqgen.text.encoding import Sampling
from seqgen.text.overlap import Overlap, overlap_of_pairs, pairs_not_held_out
from seqgen.text.pairs import (
    Pairs,
    Tokenizers,
    VectorPairs,
    drop_long,
    encode_pairs,
    mask_fitting_pairs,
    open_pairs,
)
from seqgen.text.reading import Survey, survey
from seqgen.text.sources import TokenSources, Vectors, VectorSources, require_equal_widths
from seqgen.text.split import held_out_fraction, held_out_lines
from seqgen.text.token_writing import write_token_file
from seqgen.text.tokenfile import open_token_file
from seqgen.text.tokenizers import KINDS, Tokenizer
from seqgen.text.tokenizers.sentencepiece import SentencepieceTokenizer
from seqgen.training.datasets.dataset import (
    DataFiles,
    DataParts,
    Dataset,
    given_tokenizer,
    require_sampling,
    train_tokenizer,
)
from seqgen.training.datasets.prepared import Prepared, VocabSizes, rows_of_pairs
from seqgen.training.datasets.text import is_large
from seqgen.training.events import Notice, Report
from seqgen.wording import plural

SUBWORDS = {name for name, kind in KINDS.items() if issubclass(kind, SentencepieceTokenizer)}
# Words are counted in at most this many pairs, so that their frequencies mean the same in a large
# text: with a million pairs, rare names occur ten times, too.
SAMPLED_PAIRS = 2_000
# A word that occurs this often in the sample comes back, and can be learned as one token.
OFTEN = 10
# Sentences have 0.37 and more on both sides of a whole sample, in Finnish and Turkish about 0.3 of
# 1,000 pairs; names and other strings have 0.17 and less on one side.
LEAST_RECURRING = 0.3
# Words with a digit are spelled, however few there are: days and years come back, too. Sentences
# have a tenth of them at most, dates half and more.
MOST_NUMBERS = 0.3
# Scripts without spaces between words (Han, kana, Thai, Lao, Burmese, Khmer): each of their
# characters counts as a word.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
EDGES = re.compile(r"^[\W_]+|[\W_]+$")
# A vocabulary grows with the cube root of the text: 6,000 pieces for 4 million characters, and
# 37,000, as Vaswani et al. (2017) have, for a thousand million.
PIECES_BY_ROOT, LEAST_PIECES, MOST_PIECES = 38, 500, 40_000


@dataclass(frozen=True)
class WordUse:
    """Statistics of how often words recur in pairs, from the side where they recur least.

    Attributes:
        recurring: share of the words that occur `OFTEN` times or more and have no digit, 0 to 1.
        numbers: share of the words that have a digit, on the side with more of them.
        sampled: in how many pairs words were counted.
    """

    recurring: float
    numbers: float
    sampled: int

    @property
    def sentences(self) -> bool:
        """Whether both sides look like sentences: few numbers, and recurring words."""
        return self.recurring >= LEAST_RECURRING and self.numbers <= MOST_NUMBERS

    def __str__(self) -> str:
        pairs = f"in {self.sampled:,} pairs"
        if self.numbers > MOST_NUMBERS:
            return f"{self.numbers:.0%} of the words of a side have digits {pairs}"
        return f"{self.recurring:.0%} of the words occur {OFTEN} times or more {pairs}"


def word_use(pairs: Pairs, count: int) -> WordUse:
    """Count words in pairs, or in a fixed sample of `SAMPLED_PAIRS`.

    Args:
        pairs: read once.
        count: how many there are, at least one.
    """
    keep = np.ones(count, dtype=bool)
    if count > SAMPLED_PAIRS:
        keep[:] = False
        keep[np.random.default_rng(0).choice(count, SAMPLED_PAIRS, replace=False)] = True
    sources, targets = zip(*pairs.some(keep), strict=True)
    # Vectors have no words: their targets decide.
    sides = [targets] if pairs.source_features is not None else [sources, targets]
    counts = [Counter(itertools.chain.from_iterable(map(words_in, side))) for side in sides]
    return WordUse(
        recurring=min(map(_recurring_fraction, counts)),
        numbers=max(map(_numeric_fraction, counts)),
        sampled=len(targets),
    )


def words_in(line: str) -> Iterator[str]:
    """Yield the words of a line: split at white space, without surrounding punctuation."""
    for match in WORD.finditer(line):
        if word := EDGES.sub("", match.group()):
            yield word


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def _recurring_fraction(counts: Counter[str]) -> float:
    """Compute the fraction of running words without a digit that are frequent; 0 of no words."""
    often = (n for word, n in counts.items() if n >= OFTEN and not _has_digit(word))
    return sum(often) / max(1, counts.total())


def _numeric_fraction(counts: Counter[str]) -> float:
    """Compute the fraction of running words that contain a digit; 0 of no words."""
    return sum(n for word, n in counts.items() if _has_digit(word)) / max(1, counts.total())


def choose_tokenizer(
    config: DataConfig, given: Collection[str], characters: int, words: Callable[[], WordUse]
) -> tuple[dict[str, Any], str]:
    """Choose the tokenizer settings that are not given, to suit the text; return reasons too.

    Args:
        config: how the pairs are to be read.
        given: the names of the settings that stay as they are.
        characters: of all pairs, tabs and ends of lines included.
        words: counts how words recur in the pairs; called only if that decides.
    """
    chosen: dict[str, Any] = {}
    why = ""
    if not {"tokenizer", "min_count"} & set(given):  # a least count has no meaning for bpe
        use = words()
        chosen["tokenizer"], why = "bpe" if use.sentences else "char", str(use)
    kinds = {chosen.get("tokenizer", config.tokenizer), config.source_tokenizer} - {None}
    if "vocab_size" not in given and kinds <= SUBWORDS:
        chosen["vocab_size"] = vocab_size_for(characters)
        why = why or f"pairs have {characters:,} characters in all"
    return chosen, why


def vocab_size_for(characters: int) -> int:
    """Choose the number of subwords for a text of so many characters, in whole hundreds."""
    pieces = 100 * round(PIECES_BY_ROOT * characters ** (1 / 3) / 100)
    return min(max(pieces, LEAST_PIECES), MOST_PIECES)


CACHE_FORMAT = 1


def encode_once(pairs: Pairs, tokenizers: Tokenizers, report: Report) -> Corpus:
    """Tokenize pairs as `encode_pairs` does, through token files in the cache.

    Their names follow from what the pairs and the tokenizers are, so that a file that has moved,
    or another split that leaves the same pairs, is found again.

    Raises:
        SeqgenError: as reading the pairs does; or the cache cannot be written.
    """
    both = tokenizers.source.fingerprint, tokenizers.target.fingerprint
    key = json.dumps([CACHE_FORMAT, pairs.survey().sha256, *both])
    name, folder = hashlib.sha256(key.encode()).hexdigest()[:32], store.tokens_folder()
    places = [folder / f"{name}.{side}.tok" for side in ("source", "target")]
    try:
        source, target = map(open_token_file, places)
    except (OSError, SeqgenError):  # one is missing, incomplete or damaged
        report(Notice(text="encoding the pairs into the cache, once"))
        with reporting_os_errors(f"{folder} cannot be written"):
            make_listed_folder(folder)
        write_token_file(places[0], pairs.sources(), tokenizers.source, "line")
        write_token_file(places[1], pairs.targets(), tokenizers.target, "line")
        source, target = map(open_token_file, places)
    read = source.corpus
    return replace(target.corpus, sources=TokenSources(read.tokens, read.ends, read.oov))


@dataclass(frozen=True)
class PreparedPairs(Prepared):
    """Tokenized pairs; `tokenizer` is the tokenizer of the targets.

    Attributes:
        parts: the pairs of both parts.
        tokenizers: of both sides.
        files: where they come from.
        dropped: how many were too long.
    """

    parts: DataParts
    tokenizers: Tokenizers
    files: DataFiles
    dropped: int

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        return self.tokenizers.source

    @property
    def vocab_sizes(self) -> VocabSizes:
        return replace(super().vocab_sizes, source_features=self.parts.train.source_features)

    @cached_property
    def sample_prompt(self) -> str | Vectors:
        return next(iter(self.parts.val or self.parts.train))[0]

    def default_batch_size(self, training: TrainingConfig) -> int:
        return rows_of_pairs(self.train, training.batch_size)

    @property
    def about(self) -> dict[str, Any]:
        return {
            **super().about,
            "target_files": len(self.files.targets),
            "train_source_unknown": self.train.sources.oov,
            "val_source_unknown": self.val.sources.oov if self.val else None,
            "dropped": self.dropped,
        }

    def val_text(self) -> Iterator[str] | None:
        return self.parts.val and self.parts.val.targets()

    def keep_validation(self, stored: StoredModel) -> None:
        if self.parts.val is None:
            return
        of_sources, of_targets = store.VALIDATION_PAIRS
        if isinstance(self.val.sources, VectorSources):
            stored.write_held_out_vectors(self.val.sources)
        else:
            stored.write_held_out(of_sources, self.parts.val.sources())
        stored.write_held_out(of_targets, self.parts.val.targets())

    def batches(self, training: TrainingConfig, carries_state: bool) -> Batches:
        batches, source = super().batches(training, carries_state), self.tokenizers.source
        return with_unknowns(batches, source, self.config.source_unknowns)

    def batches_of(self, corpus: Corpus, training: TrainingConfig, carries: bool) -> Batches:
        shape = (training.batch_size, training.seq_len, training.seed, training.batch_tokens)
        return training_batches(corpus, self.config.documents, False, *shape)

    def segmented(self, sampling: Sampling) -> Corpus:
        corpus = encode_pairs(self.parts.train, self.tokenizers, sampling)
        return drop_long(corpus, self.config.max_source_len, self.config.max_target_len)

    def overlap_with(self, other: Prepared) -> Overlap | None:
        if self.parts.val is None or type(other) is not type(self):
            return None
        return overlap_of_pairs(other.parts.train, self.parts.val)


@dataclass
class PairDataset(Dataset):
    """Dataset of source-target pairs: tab-separated files, or one file for each side."""

    noun, item = "pairs", "pair"
    kind: ClassVar[type[PreparedPairs]] = PreparedPairs

    @cached_property
    def pairs(self) -> Pairs:
        """All pairs."""
        files = self.files.sources, self.files.targets
        return open_pairs(*files, self.config.newlines, self.ending)

    def survey(self) -> Survey:
        facts = self.pairs.survey()
        if facts.lines == 0:
            raise SeqgenError(
                f"{self.text.name} contains no pairs; write a source, a tab and its target on each "
                "line, or give lines of both with --source and --target"
            )
        return facts

    def settings_from_data(
        self, facts: Survey, given: Collection[str]
    ) -> tuple[dict[str, Any], str]:
        words = partial(word_use, self.pairs, facts.lines)
        return choose_tokenizer(self.config, given, facts.characters, words)

    def split(self, facts: Survey) -> DataParts:
        val = self.config.val
        fraction = None if val == "none" else held_out_fraction(val)
        if val == "none" or fraction is not None:
            none = self.config.val_target is None
            require(none, "val_target needs val: the file of its sources")
        if val == "none":
            return DataParts(self.pairs, None)
        if fraction is None:
            return DataParts(self.pairs, self.held_out_file())
        held = held_out_lines(facts.lines, fraction, self.config.split_seed)
        return DataParts(self.pairs.some(~held), self.pairs.some(held))

    def held_out_file(self) -> Pairs:
        """Open the pairs of `--val FILE`, or of `--val-source` and `--val-target`."""
        target = self.config.val_target
        targets = [] if target is None else [target]
        files = DataFiles.of([self.config.val], targets, self.config.as_text)
        held_out = type(self).open(files, self.config)
        held_out.check()
        return held_out.pairs

    def learn_tokens(self, parts: DataParts) -> Tokenizers:
        tokens = self._tokens(parts)
        for tokenizer in (tokens.target, tokens.source or tokens.target):
            require_sampling(self.config, type(tokenizer))
        return tokens

    def _tokens(self, parts: DataParts) -> Tokenizers:
        """Open or train the tokenizers of both sides: a shared one, or one for each side.

        Raises:
            UsageError: the sources are vectors, and are to have a tokenizer.
        """
        config, pairs, train = self.config, self.pairs, parts.train
        target = given_tokenizer(config)
        if isinstance(pairs, VectorPairs):
            none = config.source_tokenizer is None
            require(none, "source_tokenizer has no meaning: vectors have no tokens")
            return Tokenizers(target or train_tokenizer(config, pairs.targets, train.targets), None)
        if config.source_tokenizer is None:
            both = target or train_tokenizer(config, lambda: _both(pairs), lambda: _both(train))
            return Tokenizers(both, both)
        source_config = replace(config, tokenizer=config.source_tokenizer)
        source = given_tokenizer(source_config, of_sources=True)
        return Tokenizers(
            target or train_tokenizer(config, pairs.targets, train.targets),
            source or train_tokenizer(source_config, pairs.sources, train.sources),
        )

    def held_out(self, stored: StoredModel) -> Pairs | None:
        paths = stored.validation_pairs
        return paths and open_pairs(paths[:1], paths[1:])

    def without(self, held_out: Pairs) -> Pairs:
        return pairs_not_held_out(self.pairs, held_out)

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """Maximum numbers of tokens of a source and of a target; None for no limit."""
        return self.config.max_source_len, self.config.max_target_len

    def encode(
        self, facts: Survey, parts: DataParts, tokens: Tokenizers, report: Report
    ) -> PreparedPairs:
        val_pairs, val, val_dropped = None, None, 0
        encode = partial(encode_pairs, tokenizers=tokens)
        if is_large(self.files.paths) and isinstance(tokens.source, Tokenizer):
            encode = partial(encode_once, tokenizers=tokens, report=report)
        if parts.val is not None:
            features = parts.train.source_features, parts.val.source_features
            require_equal_widths("the model", *features)
        train_pairs, train, dropped = self._fitting(parts.train, encode, "train on")
        if parts.val is not None:
            val_pairs, val, val_dropped = self._fitting(parts.val, encode, "validate with")
        if dropped + val_dropped:
            longest = "{} and {} tokens".format(*self.limits)
            left_out = f"{plural(dropped + val_dropped, 'pair')} of {facts.lines:,} left out"
            flags = "--max-source-len and --max-target-len"
            report(Notice(text=f"{left_out}: a side is longer than {longest} ({flags})"))
        return self.kind(
            text=self.text,
            facts=facts,
            split=None,
            tokenizer=tokens.target,
            train=train,
            val=val,
            val_facts=survey(val_pairs.targets()) if val_pairs else Survey(),
            config=self.config,
            parts=DataParts(train_pairs, val_pairs),
            tokenizers=tokens,
            files=self.files,
            dropped=dropped + val_dropped,
        )

    def _fitting(
        self, pairs: Pairs, encode: Callable[[Pairs], Corpus], purpose: str
    ) -> tuple[Pairs, Corpus, int]:
        """Drop pairs that are too long; return the texts, the token ids and the number dropped.

        Raises:
            SeqgenError: there are none to serve their purpose.
        """
        corpus = encode(pairs)
        kept = mask_fitting_pairs(corpus, *self.limits)
        if not kept.any():
            way_out = "" if purpose == "train on" else ", or --val none"
            raise SeqgenError(f"{self._nothing_left(purpose, bool(kept.size))}{way_out}")
        if kept.all():
            return pairs, corpus, 0
        short = pairs.some(kept)
        return short, encode(short), int(np.count_nonzero(~kept))

    def _nothing_left(self, purpose: str, too_long: bool) -> str:
        if not too_long:
            return f"there is no {self.item} to {purpose}; give more"
        given = [pair for pair in zip(("source", "target"), self.limits, strict=True) if pair[1]]
        sides = " or ".join(f"its {side} has more than {most:,}" for side, most in given)
        raised = " or ".join(f"--max-{side}-len" for side, _ in given)
        return f"every pair to {purpose} is too long: {sides} (tokens, or vectors); raise {raised}"


def _both(pairs: Pairs) -> Iterator[str]:
    return itertools.chain(pairs.sources(), pairs.targets())

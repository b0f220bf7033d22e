"""From files to tokens: a text read, split, its vocabulary made, both parts encoded."""

from __future__ import annotations

from dataclasses import dataclass

from seqgen.configs import DataConfig
from seqgen.data.corpus import Corpus, encode_corpus
from seqgen.data.split import Split, check_parts, split_text
from seqgen.data.text import Survey, Text, survey
from seqgen.errors import SeqgenError
from seqgen.tokenizers import Tokenizer, tokenizer_kind


@dataclass(frozen=True)
class Prepared:
    """A text ready to be trained on.

    Attributes:
        text: where it comes from.
        facts: its characters, bytes, lines and hash.
        split: the text of its two parts.
        tokenizer: made from it, or given.
        train: the training part's ids.
        val: the held-out part's ids, or None.
        val_facts: the held-out part's characters and bytes.
    """

    text: Text
    facts: Survey
    split: Split
    tokenizer: Tokenizer
    train: Corpus
    val: Corpus | None
    val_facts: Survey

    @property
    def val_tokens_per_char(self) -> float:
        """Tokens a character of the held-out part, 1 where there is none."""
        return self.val.tokens.size / self.val_facts.characters if self.val else 1.0


def read(text: Text) -> Survey:
    """Survey a text.

    Raises:
        SeqgenError: it cannot be read, is no UTF-8, or is empty.
    """
    facts = survey(text.chunks())
    if facts.characters == 0:
        raise SeqgenError(f"{', '.join(map(str, text.paths))} holds no text")
    return facts


def prepare(text: Text, config: DataConfig) -> Prepared:
    """Read, split and encode a text; its vocabulary is made along the way.

    Raises:
        SeqgenError: it is empty, is no UTF-8, or leaves nothing to train on or to validate with.
    """
    facts = read(text)
    kind = tokenizer_kind(config.tokenizer)
    # The split asks only for token boundaries, and those need no vocabulary.
    split = split_text(text, facts, config, kind.train(()))
    source = text.chunks() if kind.learns_from_whole_text else split.train()
    tokenizer = kind.train(source, config.vocab_size)
    return encode_parts(text, facts, split, tokenizer, config)


def encode_parts(
    text: Text, facts: Survey, split: Split, tokenizer: Tokenizer, config: DataConfig
) -> Prepared:
    """Encode both parts of a text.

    Raises:
        SeqgenError: a part has no token.
    """
    train = encode_corpus(split.train(), tokenizer, config.documents)
    val = encode_corpus(split.val(), tokenizer, config.documents) if split.val else None
    check_parts(train.tokens.size, val.tokens.size if val else None, config.documents)
    val_facts = survey(split.val()) if split.val else Survey()
    return Prepared(text, facts, split, tokenizer, train, val, val_facts)

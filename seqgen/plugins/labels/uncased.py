"""Tokenizer of texts to be classified: words in lower case."""

from __future__ import annotations

import re

from seqgen.text.tokenizers.word import SpacedTokenizer


class UncasedTokenizer(SpacedTokenizer):
    """Lower-case words and punctuation marks; white space and case are lost.

    `So, he said:` is `so` `,` `he` `said` `:`. A word is the same token wherever it stands in a
    text, as a bag of words needs it: the first one of a sentence, too.
    """

    kind = "uncased"
    pattern = re.compile(r"\n|\w+(?:['\u2019]\w+)*|[^\w\s]")

    @classmethod
    def split(cls, text: str) -> list[str]:
        return [word.lower() for word in cls.pattern.findall(text)]

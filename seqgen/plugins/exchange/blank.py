"""Tokenizer of imported n-gram models whose words have white space other than ASCII's."""

from __future__ import annotations

import re

from seqgen.text.tokenizers.word import WhitespaceTokenizer


class BlankTokenizer(WhitespaceTokenizer):
    """Text split on runs of ASCII white space, as in KenLM; U+00A0 is part of a word."""

    kind = "blank"
    pattern = re.compile(r"\n|\S+", re.ASCII)
    split = pattern.findall
    inside = re.compile(r"(?<=\S)\S+", re.ASCII)

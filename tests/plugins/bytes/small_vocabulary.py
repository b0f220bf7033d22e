"""A tokenizer of a few pieces over the letters a, b and c, which merges pairs as BPE does."""

from __future__ import annotations

import numpy as np

from seqgen.text.tokenizers.base import SPECIALS, Tokenizer


class SmallBPE(Tokenizer):
    """Pieces of a, b and c; the first pair in the order of `merges` is merged first."""

    kind = "small"
    complete = True
    line_safe = False
    newline_id = None

    def __init__(self, merges, doubled=()):
        self.merges = tuple(merges)
        joined = dict.fromkeys(["a", "b", "c", *(left + right for left, right in merges)])
        self.texts = [*SPECIALS, *joined, *doubled]
        self.vocab_size = len(self.texts)

    @classmethod
    def train(cls, chunks, vocab_size=None, min_count=1):
        raise NotImplementedError

    def encode(self, text):
        pieces = list(text)
        for left, right in self.merges:
            at = 0
            while at < len(pieces) - 1:
                if pieces[at] == left and pieces[at + 1] == right:
                    pieces[at : at + 2] = [left + right]
                at += 1
        return np.array([self.texts.index(piece, len(SPECIALS)) for piece in pieces], np.int64)

    def decode(self, ids):
        return "".join(self.texts[i] for i in ids if i >= len(SPECIALS))

    def pieces(self, ids):
        return [self.texts[i] for i in ids]

    def byte_ends(self, text):
        return np.cumsum([len(self.texts[i]) for i in self.encode(text)])

    def facts(self):
        return {"merges": self.merges}

    @classmethod
    def from_facts(cls, facts):
        return cls(facts["merges"])

"""Marian's tokenizer: a sentencepiece model cuts texts, and a table numbers the pieces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqgen.text.tokenizers.from_elsewhere import WholeSentencepieceTokenizer, size_of

VOCABULARY = "vocab.json"
# What a piece of no language is called in the table. A text may begin with the name of another
# language (>>fr<<), which is one token.
NAMES = {"pad_id": "<pad>", "eos_id": "</s>", "unk_id": "<unk>"}
LANGUAGE = re.compile(r">>.*?<<", re.DOTALL)


class MarianTokenizer(WholeSentencepieceTokenizer):
    """One side of Marian's tokenizer; source and target are cut by different models.

    Args:
        content: the sentencepiece `.model`.
        vocabulary: the id of each piece. Pieces that it lacks are `<unk>`.
        vocab_size: see `TokenizerFromElsewhere`.
        special: see there.

    Raises:
        ValueError: the file or the table is damaged.
    """

    kind = "marian"

    def __init__(
        self,
        content: bytes,
        vocabulary: Mapping[str, int],
        vocab_size: int | None = None,
        special: Mapping[str, Any] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        super().__init__(content, vocab_size, special)

    def _open(self) -> int:
        super()._open()
        known = self.vocabulary
        ids = known.values() if isinstance(known, dict) else [None]
        if not all(type(token) is int and token >= 0 for token in ids):
            raise ValueError(f"{VOCABULARY} is not a table of pieces and their ids")
        self._names = {token: name for name, token in known.items()}
        size = size_of(self._names)
        self.bos_id = None
        for which, name in NAMES.items():
            setattr(self, which, known.get(name))
        if self.unk_id is None or self.eos_id is None:
            raise ValueError(f"{VOCABULARY} has no {NAMES['unk_id']} or no {NAMES['eos_id']}")
        self.newline_id = known.get("<0x0A>")
        self.complete = False
        special = (re.escape(name) for name in NAMES.values() if name in known)
        self._special = re.compile(f"({'|'.join(special)})")
        return size

    def cut(self, text: str) -> list[str]:
        """Return the names of a text's pieces, a language's name and special tokens among them."""
        names = []
        for part in self._special.split(text):
            if part in NAMES.values():
                names.append(part)
                continue
            language = LANGUAGE.match(part)
            if language:
                names.append(language.group())
                part = part[language.end() :]
            names += super().cut(part)
        return names

    def encode(self, text: str) -> np.ndarray:
        ids = [self.vocabulary.get(name, self.unk_id) for name in self.cut(text)]
        return np.array(ids, dtype=self.dtype)

    def name_of(self, token: int) -> str | None:
        return self._names.get(token)

    def _decode(self, ids: Sequence[int]) -> str:
        special = (self.pad_id, self.bos_id, self.eos_id)
        return self._library.decode_pieces([self._names[i] for i in ids if i not in special])

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "vocabulary": self.vocabulary}

    @classmethod
    def of(cls, content: bytes, facts: Mapping[str, Any]) -> MarianTokenizer:
        return cls(content, facts["vocabulary"], facts["vocab_size"], cls.special_of(facts))

"""Tokenizers that the `tokenizers` library runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqgen.errors import SeqgenError, first_line
from seqgen.packages import require_packages
from seqgen.text.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Library


class LibraryTokenizer(Tokenizer):
    """Base class of tokenizers that use the `tokenizers` library."""

    _library: Library

    def _encoding(self, text: str) -> Encoding:
        try:
            return self._library.encode(text, add_special_tokens=False)
        except Exception as error:  # the library raises bare ones
            raise SeqgenError(f"the tokenizer cannot encode a text: {first_line(error)}") from None

    def encode(self, text: str) -> np.ndarray:
        return np.array(self._encoding(text).ids, dtype=self.dtype)

    def byte_ends(self, text: str) -> np.ndarray:
        places = np.cumsum([0, *(len(character.encode()) for character in text)], dtype=np.int64)
        return places[[end for _, end in self._encoding(text).offsets]]

    def first_unknown(self, text: str) -> tuple[int, str] | None:
        encoding = self._encoding(text)
        places = zip(encoding.offsets, encoding.ids, strict=True)
        begin, end = next((at for at, token in places if token == self.unk_id), (None, None))
        return None if begin is None else (begin, text[begin:end])


def open_library(content: bytes) -> Library:
    """Load a `tokenizers` tokenizer from the content of a `tokenizer.json`.

    Raises:
        SeqgenError: the library is not installed.
        ValueError: the file is damaged.
    """
    require_packages("this tokenizer", "tokenizers")
    from tokenizers import Tokenizer as Library

    try:
        return Library.from_str(content.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except BaseException as error:
        # The library raises bare exceptions, and one for its own crashes that is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"it is not a tokenizer.json ({first_line(error)[:100]})") from None

r"""White space: Unicode's in texts, ASCII's in files whose format separates fields by it.

In texts it is what `str.isspace` says, and with it `str.split`, `str.strip` and `\s` in patterns:
the property White_Space of Unicode, such as U+0085, U+00A0 and U+3000, and U+001C to U+001F. The
same methods of bytes know the ASCII characters alone, so that text as bytes goes through here.
"""

from __future__ import annotations


def strip_utf8(raw: bytes) -> bytes:
    """Strip Unicode white space from UTF-8 text, which may be cut within a character."""
    return raw.decode("utf-8", "surrogateescape").strip().encode("utf-8", "surrogateescape")

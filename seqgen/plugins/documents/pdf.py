"""The text of PDF files, by pypdf."""

from __future__ import annotations

import logging
from typing import IO, TYPE_CHECKING

from seqgen.errors import first_line
from seqgen.packages import install_command
from seqgen.plugins.documents.document import Document, Unreadable, clean

if TYPE_CHECKING:
    from pypdf import PdfReader

SCANNED = "has no text on any page: it may be scanned; run OCR first (ocrmypdf FILE NEW)"


def read_pdf(file: IO[bytes]) -> Document:
    """Extract the text of a PDF, page by page.

    Raises:
        Unreadable: it is encrypted, damaged, or has no text.
    """
    import pypdf
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it repairs is no concern here
    try:
        reader = pypdf.PdfReader(file)
        _unlock(reader)
        pages = [clean(page.extract_text()) for page in reader.pages]
    except Unreadable:
        raise
    except DependencyError:
        needed = f"needs the package cryptography: {install_command('cryptography')}"
        raise Unreadable(f"is encrypted and {needed}") from None
    except Exception as error:  # whatever a damaged file makes of pypdf
        raise Unreadable(f"is damaged, or no PDF: {first_line(error)}") from None
    blank = sum(not page for page in pages)
    if blank == len(pages):
        raise Unreadable(SCANNED if pages else "has no pages")
    return Document("".join(pages), len(pages), blank)


def _unlock(reader: PdfReader) -> None:
    """Open a PDF that restricts only printing and copying; its password is empty.

    Raises:
        Unreadable: it needs a password.
    """
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("is encrypted: remove its password first (qpdf --decrypt)")

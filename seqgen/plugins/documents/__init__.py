"""PDF, Word, OpenDocument, EPUB, RTF and HTML as texts; zip and tar archives of texts.

Pages: docs/text.md
"""

from __future__ import annotations

from seqgen.hooks import Plugin

DOCUMENTS = (".pdf", ".docx", ".odt", ".epub", ".rtf", ".html", ".htm", ".xhtml")
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst", ".tzst")

PLUGIN = Plugin(
    document_readers={
        **dict.fromkeys(DOCUMENTS, "reading:read_document"),
        **dict.fromkeys(ARCHIVES, "archives:read_archive"),
    },
)

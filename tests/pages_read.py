"""What a browser would see of a page."""

from __future__ import annotations

import html
import html.parser
import os
import re
import shutil

import pytest

HOSTILE = '<script>alert("x")</script> & <b>\n'


class Read(html.parser.HTMLParser):
    """What a browser sees of a page: its tags, and the text of each token."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.tokens, self._open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "span" and "data-t" in dict(attrs):
            self._open = [dict(attrs), ""]

    def handle_data(self, data):
        if self._open:
            self._open[1] += data

    def handle_endtag(self, tag):
        if tag == "span" and self._open:
            self.tokens.append(tuple(self._open))
            self._open = None


def browser():
    """Return a headless browser of the Chromium family, or skip the test for want of one."""
    names = os.environ.get("SEQGEN_BROWSER"), "chromium", "chromium-browser", "google-chrome"
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on the PATH; name one by SEQGEN_BROWSER")
    return found


def commands_of(page):
    """Return the command lines that a page shows."""
    found = re.findall('aria-label="Commands">(.*?)</pre>', page, re.DOTALL)
    return [line for part in found for line in html.unescape(part).splitlines()]

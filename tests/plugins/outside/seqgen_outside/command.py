"""`seqgen count`: the most frequent words of a text."""

from collections import Counter
from pathlib import Path

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.output import Output, put
from seqgen.settings import Options, Panel, file_argument, setting


class Counted(Options, panel=Panel.TEXT):
    """What is counted."""

    file: str = file_argument("Text file.", "FILE")
    most: int = setting("How many words to list.", 10, low=1)


@takes_options
def count(counted: Counted, out: Output) -> None:
    """List the most frequent words of a text."""
    words = Counter(Path(counted.file).read_text(encoding="utf-8").split())
    for word, times in words.most_common(counted.most):
        if not out.record({"word": word, "count": times}):
            put(f"{times}\t{word}\n")

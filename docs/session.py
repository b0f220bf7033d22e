"""Draw the picture of the README: run seqgen for real and render its output as `session.svg`.

    python docs/session.py

Counts a 6-gram model of `corpora/play.txt` in half a second, samples, and shows the surprisal of a
few lines. The model and the texts are the same on every machine.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
WIDTH = 46  # columns, few enough for letters that can be read on a screen of 400 pixels
GREEN, INK, PAPER = (0, 110, 0), (27, 27, 31), (255, 255, 255)
BLACK = (0, 0, 0)  # the text of coloured tokens, in both modes
LIGHT = TerminalTheme(PAPER, INK, [BLACK, (128, 0, 0), GREEN, *[(90, 90, 102)] * 5])
DARK_PAPER, DARK_INK, DARK_GREEN = (41, 41, 41), (197, 200, 198), (152, 168, 75)
DARK = TerminalTheme(
    DARK_PAPER, DARK_INK, [BLACK, (204, 85, 90), DARK_GREEN, *[(154, 155, 153)] * 5]
)
CLOCK = re.compile(r" in [\d.]+ (?:min \d+ )?s\b|, [\d,]+ per second|; [\d.]+ (?:min \d+ )?s$")


def commands() -> list[str]:
    """Return the command lines of the session."""
    return [
        "seqgen train corpora/play.txt --model ngram --order 6 --name play -q",
        "seqgen sample --top-p 0.9 --max-tokens 150 --seed 7 -q",
        "tail -n 12 corpora/play.txt | seqgen perplexity --show -q",
    ]


def run(command: str, environment: dict[str, str]) -> str:
    """Run a command line in the repository with a terminal as its standard output.

    Standard error goes to a pipe, where training prints plain lines instead of a moving bar.

    Returns:
        What it wrote to standard error, then what it wrote to the terminal, with its colours.
    """
    import pty

    ours, theirs = pty.openpty()
    line = command.replace("seqgen", f"{sys.executable} -m seqgen", 1)
    process = subprocess.Popen(
        ["bash", "-c", line], cwd=ROOT, env=environment, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    errors = process.stderr.read().decode()
    written = _read_all(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command} failed:\n{errors}")
    return errors + written.replace("\r\n", "\n")


def _read_all(terminal: int) -> str:
    blocks = []
    while True:
        try:
            block = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so when the other end is closed
            block = b""
        if not block:
            return b"".join(blocks).decode()
        blocks.append(block)


def shortened(output: str) -> str:
    """Leave out what the clock decides, progress lines and times, and the middle of a long log."""
    lines = [line for line in output.splitlines() if not re.match(r"step \d+ +\d+%", line)]
    lines = [CLOCK.sub("", line) for line in lines]
    return "\n".join(lines if len(lines) <= 22 else [*lines[:4], "...", *lines[-15:]])


def draw(session: list[tuple[str, str]]) -> str:
    """Return the SVG of a session: pairs of a command line and its output."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    for command, output in session:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        if output:
            console.print(Text.from_ansi(shortened(output)))
        console.print()

    def export(theme: TerminalTheme) -> str:
        return console.export_svg(title="seqgen", unique_id="seqgen", theme=theme, clear=False)

    light, dark = export(LIGHT), export(DARK)
    of_text, of_dark = (re.findall(r"\.seqgen-r\d+ \{[^}]*\}", one) for one in (light, dark))
    assert len(of_text) == len(of_dark), "a colour of one theme is two of the other"
    paper, ink = DARK.background_color.hex, DARK.foreground_color.hex
    rules = [*of_dark, f".seqgen-title {{ fill: {ink} }}", f".seqgen-paper {{ fill: {paper} }}"]
    night = "\n".join(["@media (prefers-color-scheme: dark) {", *rules, "}"])
    light = re.sub(
        r'<rect (?=fill="#[^"]*" stroke=)', '<rect class="seqgen-paper" ', light, count=1
    )
    light = light.replace("rgba(255,255,255,0.35)", "rgba(128,128,128,0.6)")
    light = light.replace("</style>", f"{night}\n    </style>", 1)
    # The picture asks for no font from elsewhere: any monospace one does.
    return re.sub(r"@font-face\s*\{.*?\}", "", light, flags=re.DOTALL)


def main() -> None:
    """Run the session and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DOCS / "session.svg")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "SEQGEN_HOME": home,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": str(WIDTH),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        environment.pop("NO_COLOR", None)
        session = [(line, run(line, environment)) for line in commands()]
    arguments.out.write_text(draw(session), encoding="utf-8")


if __name__ == "__main__":
    main()

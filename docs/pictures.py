"""Draw the pictures of the pages about writing, as SVG files in `docs/pictures/`.

    python docs/pictures.py                 # all of them, in seconds
    python docs/pictures.py repetition      # some of them

Every picture is 400 wide, shows the output of a real model with a fixed seed, and has colours for
light and dark mode.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH = 400
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1b1b1f; }
.code { font-family: ui-monospace, monospace; white-space: pre; }
.head { font-weight: 700; } .soft { fill: #5a5a66; }
.card { fill: #fff; stroke: #c9c9d2; } .bar { fill: #3f51b5; } .heat { fill: #d95f02; }
.good { fill: #2e7d32; } .bad { fill: #c62828; } .line { stroke: #c9c9d2; }
@media (prefers-color-scheme: dark) {
  text { fill: #ececf1; } .soft { fill: #a9a9b6; } .card { fill: #1e1e23; stroke: #4a4a55; }
  .bar { fill: #9fa8da; } .heat { fill: #ff8c3c; } .good { fill: #81c784; }
  .bad { fill: #ef8578; } .line { stroke: #4a4a55; }
}
"""


def run(*arguments: str, text: str | None = None) -> str:
    """Run a command of seqgen in the repository, and return what it prints.

    Args:
        arguments: of the command; models are in `SEQGEN_HOME`.
        text: its standard input.
    """
    command = [sys.executable, "-m", "seqgen", *arguments]
    done = subprocess.run(
        command, input=text, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def records_of(*arguments: str, text: str | None = None) -> list[dict[str, Any]]:
    """Run a command with `--json`, and return its records; see `run`."""
    output = run(*arguments, "--json", "-q", text=text)
    return [json.loads(record) for record in output.splitlines()]


def svg(title: str, height: float, parts: Iterable[str]) -> str:
    """Return an SVG file with a card of this height as its background."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" role="img">'
    )
    card = (
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8"/>'
    )
    lines = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", card]
    return "\n".join([*lines, *parts, "</svg>", ""])


def label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text whose baseline is at y."""
    where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {where} xml:space="preserve">{escape(text)}</text>'


def bar(x: float, y: float, width: float, height: float, kind: str, opacity: float = 1) -> str:
    """Return a rectangle."""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:g}"'
    return f'<rect class="{kind}" {size} opacity="{opacity:.2f}"/>'


def shown(token: str) -> str:
    """Return a token with its white space made visible."""
    return token.replace(" ", "␣").replace("\n", "⏎")


def filters(models: Models) -> str:
    """Draw the probabilities of the next character, alone and after two filters."""
    candidates = [(t.text, t.probability) for t in models.play.suggest("The lamp is ", 9)]
    powers = [p**2 for _, p in candidates]
    kept, total = [], 0.0
    for _, probability in candidates:
        kept.append(probability if total < 0.5 else 0.0)
        total += probability
    columns = (
        ("--temperature 1", [p for _, p in candidates]),
        ("--temperature 0.5", [p / sum(powers) for p in powers]),
        ("--top-p 0.5", [p / sum(kept) for p in kept]),
    )
    parts = [label(12, 22, "Next character after “The lamp is ”", "head")]
    for column, (name, values) in enumerate(columns):
        left = 40 + 122 * column
        parts.append(label(left, 46, name, "soft"))
        for row, value in enumerate(values):
            y = 56 + 20 * row
            if value:
                parts += [
                    bar(left, y, 85 * value / 0.6, 14, "bar"),
                    label(left + 85 * value / 0.6 + 4, y + 12, f"{value:.0%}", "soft"),
                ]
    parts += [label(16, 68 + 20 * i, shown(t), "code") for i, (t, _) in enumerate(candidates)]
    return svg("Probabilities of the next character", 250, parts)


def wrapped(text: str, width: int = 44) -> list[str]:
    """Return lines of this many characters, with newlines made visible."""
    text = text.replace("\n", "⏎")
    return [text[i : i + width] for i in range(0, len(text), width)]


def repetition(models: Models) -> str:
    """Draw a text that loops, and two that do not."""
    tried = (
        ("--greedy", {"greedy": True}, "bad"),
        ("--greedy --repetition-penalty 1.1", {"greedy": True, "repetition_penalty": 1.1}, "bad"),
        ("--greedy --no-repeat-ngram 12", {"greedy": True, "no_repeat_ngram": 12}, "good"),
        ("--top-p 0.9", {"top_p": 0.9}, "good"),
    )
    parts, y = [label(12, 22, "“The king”, continued by a 6-gram model", "head")], 46
    for name, options, kind in tried:
        record = next(iter(models.play.sample("The king", max_tokens=150, seed=1, **options)))
        parts.append(label(12, y, name, f"code {kind}"))
        for line in wrapped(record.text)[:3]:
            y += 17
            parts.append(label(12, y, line, "code"))
        y += 27
    return svg("Texts with and without a loop", y - 8, parts)


def constrained(models: Models) -> str:
    """Draw texts of a weak model of dates, without a pattern and with it."""
    pattern = r"(1[89]|20)\d\d-(0[1-9]|1[0-2])-([0-2]\d|3[01])"
    plain = [r.text for r in models.dates.sample(num_samples=7, seed=3)]
    kept = [r.text for r in models.dates.sample(num_samples=7, seed=3, pattern=pattern)]
    parts = [
        label(12, 22, r"--pattern '(1[89]|20)\d\d-(0[1-9]|1[0-2])-…'", "code"),
        label(12, 48, "without", "head"),
        label(210, 48, "with the pattern", "head"),
    ]
    for row, (left, right) in enumerate(zip(plain, kept, strict=True)):
        y = 70 + 20 * row
        parts += [label(12, y, left[:22], "code"), label(210, y, right, "code good")]
    return svg("Output without and with a pattern", 70 + 20 * 7, parts)


def serve(models: Models) -> str:
    """Draw what the page of the server shows: tokens shaded by surprisal, and candidates."""
    prompt, number = "The king ", 34
    text = next(iter(models.play.sample(prompt, max_tokens=150, seed=4, top_p=0.9))).text[:111]
    parts = [
        label(12, 22, "Prompt", "soft"),
        label(12, 42, prompt, "code"),
        label(12, 70, "Text, shaded by surprisal", "soft"),
    ]
    for place, character in enumerate(text):
        context = prompt + text[:place]
        found = {t.text: t.probability for t in models.play.suggest(context, 60)}
        doubt = 1 - found.get(character, 0.0)
        x, y = 12 + 10 * (place % 37), 78 + 22 * (place // 37)
        parts += [
            bar(x, y, 10, 20, "heat", 0.75 * doubt**2),
            label(x + 5, y + 15, character.replace("\n", "⏎"), "code", "middle"),
        ]
    x, y = 12 + 10 * (number % 37), 78 + 22 * (number // 37)
    parts.append(f'<rect x="{x}" y="{y}" width="10" height="20" fill="none" stroke="#0b57d0"/>')
    parts.append(label(12, 168, "Candidates for the marked token", "soft"))
    for row, token in enumerate(models.play.suggest(prompt + text[:number], 4)):
        y = 178 + 20 * row
        parts += [
            label(16, y + 12, shown(token.text), "code"),
            bar(40, y, 250 * token.probability, 14, "bar"),
            label(384, y + 12, f"{token.probability:.1%}", "soft", "end"),
        ]
    return svg("The page of seqgen serve", 268, parts)


RECIPES = (  # the figures of the pages in docs/recipes/
    ("functions that parse", 1.0),
    ("theorems that close", 1.0),
    ("chat lines of the right form", 293 / 294),
    ("verse: metre and rhymes", 0.995),
    ("names of the language", (167 + 180 + 184 + 170 + 172 + 178) / 1200),
)


def recipes(_: Models) -> str:
    """Draw how often each recipe succeeds."""
    parts = [label(12, 22, "How often the recipes succeed", "head")]
    for row, (name, share) in enumerate(RECIPES):
        y = 36 + 26 * row
        parts += [
            label(196, y + 13, name, anchor="end"),
            bar(204, y, 140 * share, 18, "bar"),
            label(210 + 140 * share, y + 13, f"{100 * share:.3g}%", "soft"),
        ]
    return svg("Success of the recipes", 36 + 26 * len(RECIPES) + 8, parts)


def imports(_: Models) -> str:
    """Draw which models come in, and what every imported model can do."""
    sources = ("Hugging Face Hub", "safetensors folder", "GGUF file", "ARPA file", "word vectors")
    uses = ("sample, chat", "perplexity", "compare", "fine-tune", "serve, export")
    parts = [label(12, 22, "Models of other tools", "head")]
    for row, (source, use) in enumerate(zip(sources, uses, strict=True)):
        y = 36 + 30 * row
        parts += [
            bar(12, y, 128, 22, "heat", 0.25),
            label(76, y + 15, source, anchor="middle"),
            f'<path class="line" fill="none" d="M140 {y + 11}H146L152 107"/>',
            bar(260, y, 128, 22, "bar", 0.25),
            label(324, y + 15, use, "code", "middle"),
            f'<path class="line" fill="none" d="M248 107L254 {y + 11}H260"/>',
        ]
    parts += [bar(152, 94, 96, 26, "bar", 0.45), label(200, 112, "seqgen import", "", "middle")]
    return svg("What seqgen import reads, and what the model can be used for", 196, parts)


def pipelines(models: Models) -> str:
    """Draw the bits per character of the most surprising lines of the play."""
    text = (ROOT / "corpora" / "play.txt").read_text(encoding="utf-8").splitlines()[-400:]
    lines = [line for line in text if len(line.split()) > 5]
    scored = run("perplexity", "-", "-m", "play", "--per-line", "-q", text="\n".join(lines) + "\n")
    rows = [row.split("\t", 1) for row in scored.splitlines()]
    most = sorted(((float(bits), line) for bits, line in rows), reverse=True)[:5]
    parts = [
        label(12, 22, "The most surprising lines, bits per character", "head"),
        label(12, 44, "perplexity --per-line | sort -rn | head -n 5", "code soft"),
    ]
    for row, (bits, line) in enumerate(most):
        y = 56 + 40 * row
        parts += [
            label(12, y + 14, line, "code"),
            bar(12, y + 20, 90 * bits, 8, "heat"),
            label(18 + 90 * bits, y + 29, f"{bits:.2f}", "soft"),
        ]
    return svg("The most surprising lines of a text", 262, parts)


def errors(_: Models) -> str:
    """Draw what some commands say that cannot be done."""
    tried = (
        ("sample", "caf\u00e9", "-m", "play"),
        ("sample", "-m", "paly"),
        ("train", "book.txt", "--hiden-size", "64"),
    )
    parts, y = [label(12, 22, "An error is one line that says what to do", "head")], 46
    for words in tried:
        command = [sys.executable, "-m", "seqgen", *words]
        said = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True).stderr
        parts.append(label(12, y, f"$ seqgen {' '.join(words)}", "code"))
        for line in textwrap.wrap(said.strip(), 47):
            y += 17
            parts.append(label(12, y, line, "code bad"))
        y += 27
    return svg("Three errors, each of one line", y - 10, parts)


class Models:
    """The models that are drawn, trained when they are first used."""

    def __init__(self) -> None:
        """Train the n-gram models."""
        import seqgen

        self._load, self._train = seqgen.load, seqgen.train
        self.play = self._counted("play", str(ROOT / "corpora" / "play.txt"), order=6)
        pairs = (ROOT / "corpora" / "dates.tsv").read_text(encoding="utf-8").splitlines()
        dates = Path(os.environ["SEQGEN_HOME"]) / "dates.txt"
        targets = [line.split("\t")[1] for line in pairs]
        dates.write_text("\n".join(t for t in targets if t.count("-") == 2) + "\n")
        self.dates = self._counted("dates", str(dates), order=3, documents="line")

    def _counted(self, name: str, text: str, **options: object) -> object:
        self._train(text, architecture="ngram", name=name, **options)
        return self._load(name)


def devices(_: Models) -> str:
    """Draw where commands run on a machine with a GPU, without `--device`; see `gpu.md`."""
    rows = (
        ("train a network", "GPU"),
        ("sample, up to 64 texts", "CPU"),
        ("sample, more texts", "GPU"),
        ("perplexity, up to 40,000 tokens", "CPU"),
        ("perplexity, more tokens", "GPU"),
        ("n-gram models", "CPU"),
    )
    parts = [label(12, 22, "Where a command runs without --device", "head")]
    for row, (name, device) in enumerate(rows):
        y = 36 + 26 * row
        x, kind = (336, "heat") if device == "GPU" else (276, "bar")
        parts += [
            label(12, y + 14, name),
            bar(x, y, 50, 20, kind, 0.45),
            label(x + 25, y + 14, device, "head", "middle"),
        ]
    return svg("Where a command runs on a machine with a GPU", 36 + 26 * len(rows) + 8, parts)


def cluster(_: Models) -> str:
    """Draw how one command becomes jobs on several machines; see `cluster/index.md`."""
    parts = [
        label(12, 22, "One sweep as jobs on three machines", "head"),
        bar(12, 84, 92, 44, "bar", 0.35),
        label(58, 102, "seqgen sweep", "", "middle"),
        label(58, 119, "--print-jobs", "soft", "middle"),
        bar(296, 84, 92, 44, "bar", 0.35),
        label(342, 102, "seqgen sweep", "", "middle"),
        label(342, 119, "the table", "soft", "middle"),
    ]
    for row in range(3):
        y = 44 + 46 * row
        parts += [
            f'<path class="line" fill="none" d="M104 106L136 {y + 17}"/>',
            bar(136, y, 128, 34, "heat", 0.3),
            label(200, y + 15, f"machine {row + 1}", "", "middle"),
            label(200, y + 29, f"jobs {row + 1}, {row + 4}, ...", "soft", "middle"),
            f'<path class="line" fill="none" d="M264 {y + 17}L296 106"/>',
        ]
    return svg("One command as jobs on several machines", 196, parts)


PICTURES = (filters, repetition, constrained, serve, recipes, imports, pipelines, errors)
PICTURES = (*PICTURES, devices, cluster)


def main(names: Sequence[str]) -> None:
    """Write the pictures of these names."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["SEQGEN_HOME"] = home
        models = Models()
        for picture in PICTURES:
            if picture.__name__ in names:
                path = FOLDER / f"{picture.__name__}.svg"
                path.write_text(picture(models), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or [p.__name__ for p in PICTURES])

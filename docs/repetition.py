"""Measure which options break loops: the table of `repetition.md`.

    python docs/repetition.py TEXT MODEL...

Each model continues 20 prompts from the last tenth of TEXT by 300 characters or more, with each set
of options. A text loops if its last 150 characters repeat with a period of at most 75.
"""

from __future__ import annotations

import sys
from pathlib import Path

import seqgen

TRIED = {
    "--greedy": {"greedy": True},
    "--greedy --repetition-penalty 1.1": {"greedy": True, "repetition_penalty": 1.1},
    "--greedy --repetition-penalty 1.3": {"greedy": True, "repetition_penalty": 1.3},
    "--greedy --frequency-penalty 0.3": {"greedy": True, "frequency_penalty": 0.3},
    "--greedy --no-repeat-ngram 4": {"greedy": True, "no_repeat_ngram": 4},
    "--greedy --no-repeat-ngram 12": {"greedy": True, "no_repeat_ngram": 12},
    "--temperature 0.5": {"temperature": 0.5},
    "--temperature 0.8": {"temperature": 0.8},
    "--top-p 0.9": {"top_p": 0.9},
    "--top-p 0.9 --repetition-penalty 1.1": {"top_p": 0.9, "repetition_penalty": 1.1},
    "no option": {},
}
LAST, LONGEST, WINDOW = 150, 75, 15  # characters


def loops(text: str) -> bool:
    """Return whether the end of a text repeats itself."""
    end = text[-LAST:]
    return any(end[period:] == end[:-period] for period in range(1, LONGEST + 1))


def repeated(text: str) -> float:
    """Return the share of the windows of a text that occurred in it before."""
    windows = [text[i : i + WINDOW] for i in range(len(text) - WINDOW + 1)]
    return 1 - len(set(windows)) / len(windows)


def known(text: str, words: set[str]) -> float:
    """Return the share of the whole words of a text that the training text contains."""
    found = text.split()[1:-1]
    return sum(word in words for word in found) / max(1, len(found))


def main() -> None:
    """Print a line for each model and set of options."""
    path, *models = sys.argv[1:]
    text = Path(path).read_text(encoding="utf-8")
    split = len(text) * 9 // 10
    words = set(text[:split].split())
    step = (len(text) - split - 100) // 20
    prompts = [text[split + i * step :][:40] for i in range(20)]
    for name in models:
        model = seqgen.load(name)
        for flags, options in TRIED.items():
            texts = [r.text for r in model.sample(prompts, max_tokens=400, seed=1, **options)]
            sys.stdout.write(
                f"{name:10} {flags:40} {sum(map(loops, texts)):3} of 20 loop,"
                f" {sum(map(repeated, texts)) / 20:6.1%} repeated,"
                f" {sum(known(t, words) for t in texts) / 20:6.1%} known words\n"
            )


if __name__ == "__main__":
    main()

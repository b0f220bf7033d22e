"""How many generated functions parse: reads the records of `seqgen sample --json`, with prompts.

seqgen sample 'def ' -m code --num-samples 100 --stop '\\n\\n\\n' --json | \\
    python docs/recipes/functions.py
"""

from __future__ import annotations

import ast
import json
import sys
import warnings


def parses(source: str) -> bool:
    """Return whether a text is Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings
            ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def score(records: list[dict]) -> list[str]:
    """Say how many texts parse, and how many of all were cut."""
    texts = [record["prompt"] + record["text"] for record in records]
    whole = sum(map(parses, texts))
    cut = sum(record["finish_reason"] == "length" for record in records)
    lines = [len(text.splitlines()) for text in texts if parses(text)]
    mean = sum(lines) / max(1, len(lines))
    return [
        f"{whole} of {len(texts)} parse ({whole / max(1, len(texts)):.0%}); they have {mean:.1f} "
        "lines on average",
        f"{cut} were cut at --max-tokens",
    ]


if __name__ == "__main__":
    sys.stdout.write("\n".join(score([json.loads(record) for record in sys.stdin])) + "\n")

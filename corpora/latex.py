"""Notes on invented mathematics in LaTeX, whose braces, environments and dollars all balance.

python corpora/latex.py > corpora/notes.tex
seqgen sample -m latex --num-samples 100 --stop '\\n\\n' --json | python corpora/latex.py --score
"""

from __future__ import annotations

import argparse
import json
import re
import sys

from grammar import Rng

SEED, SECTIONS = 1978, 230
ADJECTIVES = "compact graded hollow humble local narrow patient quiet stable tame twisted woven"
NOUNS = "basket comb drift fence ferry harbour kernel lattice orchard ribbon tower weave"
VERBS = "bounds contains covers extends meets preserves splits"
GREEK = ["alpha", "beta", "gamma", "delta", "lambda", "mu", "phi", "psi", "theta"]
LETTERS = "abcfgknmpqstuvxyz"
FUNCTIONS = ["\\sin", "\\log", "\\exp", "\\det", "\\operatorname{rank}", "\\mathbf{F}"]
TITLES = ["Definitions", "First examples", "A bound", "The main lemma", "Counting", "Remarks"]
STATEMENTS = ["theorem", "lemma", "definition", "corollary"]
ADJECTIVES, NOUNS, VERBS = ADJECTIVES.split(), NOUNS.split(), VERBS.split()
# What a check of balance looks at, in this order; an escaped brace or dollar is none of it.
MARKS = re.compile(
    r"\\(begin|end)\{([^{}]*)\}|(\\left\b)|(\\right\b)|(\\[\[\]()])|\\.|(\{)|(\})|(\$)", re.DOTALL
)


def symbol(rng: Rng) -> str:
    """Return a letter, perhaps with an index."""
    letter = f"\\{rng.pick(GREEK)}" if rng.chance(30) else rng.pick(LETTERS)
    return f"{letter}_{{{rng.pick('ijkn')}}}" if rng.chance(25) else letter


def term(rng: Rng, depth: int) -> str:
    """Return a term of a formula; one of depth 0 holds no other."""
    kind = rng.below(9) if depth else 0
    inner = [expression(rng, depth - 1) for _ in range(2)] if depth else []
    if kind == 1:
        return f"\\frac{{{inner[0]}}}{{{inner[1]}}}"
    if kind == 2:
        return f"\\sqrt{{{inner[0]}}}"
    if kind == 3:
        return f"\\sum_{{{rng.pick('ijk')}=1}}^{{{rng.pick('nm')}}} {inner[0]}"
    if kind == 4:
        return f"\\left( {inner[0]} \\right)^{{{2 + rng.below(3)}}}"
    if kind == 5:
        return f"{rng.pick(FUNCTIONS)}\\left( {inner[0]} \\right)"
    if kind == 6:
        return f"\\int_{{0}}^{{{symbol(rng)}}} {inner[0]} \\, d{rng.pick('xyt')}"
    return f"{2 + rng.below(8)}{symbol(rng)}" if rng.chance(25) else symbol(rng)


def expression(rng: Rng, depth: int) -> str:
    """Return terms with signs between."""
    signs = (" + ", " - ", " \\cdot ")
    more = [rng.pick(signs) + term(rng, depth) for _ in range(rng.below(2))]
    return term(rng, depth) + "".join(more)


def formula(rng: Rng, depth: int) -> str:
    """Return two expressions and a relation between them."""
    relation = rng.pick(["=", "\\le", "<", "\\in", "\\cong"])
    return f"{expression(rng, depth)} {relation} {expression(rng, depth)}"


def thing(rng: Rng) -> str:
    """Return what a note is about."""
    adjective = rng.pick(ADJECTIVES)
    return f"{'an' if adjective[0] in 'aeiou' else 'a'} {adjective} {rng.pick(NOUNS)}"


def sentence(rng: Rng) -> str:
    """Return a sentence with mathematics in it."""
    patterns = [
        f"Let ${symbol(rng)}$ be {thing(rng)} with ${formula(rng, 1)}$.",
        f"Every {rng.pick(NOUNS)} of \\emph{{{rng.pick(ADJECTIVES)}}} type {rng.pick(VERBS)} "
        f"{thing(rng)}.",
        f"Then ${formula(rng, 1)}$, and ${symbol(rng)}$ {rng.pick(VERBS)} ${symbol(rng)}$.",
        f"If ${formula(rng, 0)}$, then {thing(rng)} {rng.pick(VERBS)} ${expression(rng, 1)}$.",
    ]
    return rng.pick(patterns)


def block(rng: Rng) -> str:
    """Return a paragraph, a displayed formula, a list, or a statement with its proof."""
    kind = rng.below(6)
    if kind < 2:
        return " ".join(sentence(rng) for _ in range(1 + rng.below(2)))
    if kind == 2:
        return f"\\begin{{equation}}\n  {formula(rng, 2)}\n\\end{{equation}}"
    if kind == 3:
        items = "".join(f"  \\item {sentence(rng)}\n" for _ in range(2 + rng.below(2)))
        name = rng.pick(["itemize", "enumerate"])
        return f"\\begin{{{name}}}\n{items}\\end{{{name}}}"
    name = rng.pick(STATEMENTS)
    said = f"\\begin{{{name}}}\n  {sentence(rng)}\n\\end{{{name}}}"
    if rng.chance(50):
        shown = f"  \\[ {formula(rng, 2)} \\]\n"
        said += f"\n\\begin{{proof}}\n  {sentence(rng)}\n{shown}\\end{{proof}}"
    return said


def text() -> str:
    """Return the notes: sections of blocks, with an empty line between any two."""
    rng = Rng(SEED)
    blocks = []
    for _ in range(SECTIONS):
        blocks.append(f"\\section{{{rng.pick(TITLES)} of {thing(rng)}}}")
        blocks += [block(rng) for _ in range(3 + rng.below(3))]
    return "\n\n".join(blocks)


def balances(source: str) -> bool:
    """Return whether braces, environments, \\left and \\right, and dollars nest in a text."""
    opened: list[str] = []
    closes = {"}": "{", "\\]": "\\[", "\\)": "\\(", "right": "left"}
    for mark in MARKS.finditer(source):
        side, name, left, right, display, brace, end, dollar = mark.groups()
        if side == "begin" or left or brace or display in ("\\[", "\\("):
            opened.append(name or ("left" if left else brace or display))
        elif dollar and opened[-1:] != ["$"]:
            opened.append("$")
        elif side or right or end or display or dollar:
            wanted = name if side else closes.get("right" if right else end or display, "$")
            if not opened or opened.pop() != wanted:
                return False
    return not opened


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write notes in LaTeX, or score them.")
    parser.add_argument("--score", action="store_true", help="read the records of sample")
    if parser.parse_args().score:
        read = [json.loads(record) for record in sys.stdin]
        right = [balances(record["prompt"] + record["text"]) for record in read]
        print(f"{sum(right)} of {len(right)} balance")
    else:
        print(text())

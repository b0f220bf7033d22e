"""The tree of a beam search as inline SVG."""

from __future__ import annotations

from html import escape

from seqgen.commands.writing.beam_search import Node, Tree
from seqgen.wording import visible

# Pixels from a token to the next, from a line to the next, and around all.
ACROSS, DOWN, MARGIN = 96, 22, 16
COLOURS = {"live": "var(--ink)", "finished": "var(--c2)", "pruned": "var(--faint)"}
# A longer token is cut.
LONGEST = 11


def search_tree(tree: Tree) -> str:
    """Return a tree as HTML: a column a step, a line a candidate that has no child."""
    children: dict[int, list[Node]] = {}
    for node in tree.nodes:
        children.setdefault(node.parent, []).append(node)
    lines = _lines(children)
    depth = max((node.step for node in tree.nodes), default=0) + 1
    width, height = MARGIN * 2 + ACROSS * (depth + 1), MARGIN * 2 + DOWN * max(lines.values())
    body = f'<text x="{MARGIN}" y="{_y(lines[0]) + 4:.0f}">{escape(_short(tree.prompt))}</text>'
    body += "".join(_node(node, lines) for node in tree.nodes)
    best = tree.hypotheses[0] if tree.hypotheses else None
    outcome = f"; the best is {best.text!r}, with {best.logprob:.3f} nats" if best else ""
    label = f"Beam search from {tree.prompt!r}{outcome}. Arrow keys move through the candidates."
    return (
        f"<figure><figcaption>{escape(label)} Finished ones are green, pruned ones grey."
        f'</figcaption><div class="walk wide" tabindex="0" role="group" '
        f'aria-label="{escape(label)}"><svg style="max-width:none" width="{width}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(label)}">{body}</svg></div>'
        '<p class="readout" aria-live="polite"></p></figure>'
    )


def _lines(children: dict[int, list[Node]]) -> dict[int, float]:
    """Return the line of each node: of one with children the middle of theirs."""
    lines: dict[int, float] = {}
    taken = 0
    waiting = [(0, False)]
    while waiting:
        number, done = waiting.pop()
        below = children.get(number, [])
        if not below:
            lines[number] = taken = taken + 1
        elif done:
            lines[number] = (lines[below[0].node] + lines[below[-1].node]) / 2
        else:
            waiting.append((number, True))
            waiting += [(node.node, False) for node in reversed(below)]
    return lines


def _x(node: Node) -> float:
    return MARGIN + ACROSS * (node.step + 1)


def _y(line: float) -> float:
    return MARGIN + DOWN * (line - 0.5)


def _node(node: Node, lines: dict[int, float]) -> str:
    x, y, above = _x(node), _y(lines[node.node]), _y(lines[node.parent])
    colour = COLOURS[node.fate]
    rank = "" if node.rank is None else f", rank {node.rank + 1}"
    about = escape(
        f"{node.text!r}: {node.logprob:.3f} nats, {node.total:.3f} in all, {node.fate}{rank}"
    )
    weight = ' font-weight="bold"' if node.fate == "finished" else ""
    text = escape(_short(node.text))
    return (
        f'<path d="M{x - 34:.0f} {above:.1f}L{x - 14:.0f} {y:.1f}" stroke="{colour}" '
        f'fill="none"/><circle class="v" data-t="{about}" cx="{x - 8:.0f}" cy="{y:.1f}" r="4" '
        f'fill="{colour}"><title>{about}</title></circle>'
        f'<text x="{x:.0f}" y="{y + 4:.1f}" fill="{colour}"{weight}>{text}</text>'
    )


def _short(text: str) -> str:
    shown = text.replace("\n", "↵").replace(" ", "␣")
    shown = visible(shown)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"

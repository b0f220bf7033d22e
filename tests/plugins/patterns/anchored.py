"""Random patterns with anchors in any place, for the tests of patterns, grammars and schemas."""

ANCHORS = ["^", "$", r"\A", r"\Z"]
COUNTS = ["*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"]


def anchored_pattern(draw, depth, characters):
    """A pattern over a few characters (each already escaped) with anchors anywhere."""
    kind = draw.randrange(9) if depth else draw.randrange(2)
    if kind == 0:
        return draw.choice(ANCHORS)
    if kind == 1:
        few = "".join(draw.sample(characters, 2))
        return draw.choice([*characters, ".", f"[{few}]", f"[^{characters[0]}]", r"\s", r"\S"])
    inner = anchored_pattern(draw, depth - 1, characters)
    if kind <= 3:
        return f"(?:{inner}|{anchored_pattern(draw, depth - 1, characters)})"
    if kind == 4:
        return f"({inner}){draw.choice(COUNTS)}"
    if kind == 5:
        return f"{inner}|{anchored_pattern(draw, depth - 1, characters)}"
    return inner + anchored_pattern(draw, depth - 1, characters)

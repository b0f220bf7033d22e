"""Outputs that pages show are what the program says, within tolerances.

The mark before a console block says how: `<!-- shown -->`, figures to the last digit but one unit;
`<!-- shown: near -->`, within 5 %, of networks whose training does not depend on the clock;
`<!-- shown: form -->`, run with a tiny budget, so that only words, columns and keys are compared;
`<!-- not compared: why -->`. The blocks of a page run in one folder, in their order.
"""

import re

import pytest
from places import ROOT
from said import differences
from test_docs import NAMES, PAGES, blocks, shell  # noqa: F401

NEAR = {"shown": 0.0, "shown: near": 0.05, "shown: form": None}
COMPANION = ROOT / "docs" / "companion"  # by tests/plugins/course/test_companion.py
SHOWN = [
    pytest.param(page, marks=pytest.mark.slow if name == "docs/scale.md" else pytest.mark.long)
    for page, name in zip(PAGES, NAMES, strict=True)
    if any(mark in NEAR for mark, _ in blocks(page, "console"))
]


def sessions(body):
    """Yield each command of a console session, with the output that is shown after it."""
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n", part)[0]
        yield command, part[len(command) :]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_what_is_shown_is_what_is_said(page, shell):  # noqa: F811
    for mark, body in blocks(page, "console"):
        if mark not in NEAR:
            continue
        for command, output in sessions(body):
            small = mark == "shown: form"
            if small:
                command = re.sub("--minutes \\S+", "--minutes 0.02 --hidden-size 16", command)
            done = shell(f"exec 2>&1\n{command}", small=False)
            assert done.returncode == 0, done.stdout
            if small and re.search(r"seqgen (sample|beam-search)(?!.*--json)", command):
                continue  # what a network of three steps writes
            if output:
                wrong = differences(output, done.stdout, NEAR[mark])
                assert wrong == [], f"{command}{done.stdout}"


def test_every_output_is_compared_or_says_why_not():
    for page in PAGES:
        if page.parent != COMPANION:
            marks = [mark for mark, _ in blocks(page, "console")]
            assert all(m in NEAR or re.match("not compared: .", m or "") for m in marks), page.name


def test_a_session_is_read():
    body = "$ seqgen a \\\n  b\n1\n2\n$ seqgen c\n"
    assert list(sessions(body)) == [("seqgen a \\\n  b\n", "1\n2\n"), ("seqgen c\n", "")]


TABLE = """
model    bits/char  training   tokens/s
a           2.0623    0.05 s  2,568,166
"""


@pytest.mark.parametrize(
    ("shown", "said", "near", "wrong"),
    [
        ("loss 1.2503", "loss 1.2503", 0.0, 0),
        ("loss 1.2503", "loss 1.2504", 0.0, 0),
        ("loss 1.2503", "loss 1.2506", 0.0, 1),
        ("loss 1.2503", "loss 1.2506", 0.05, 0),
        ("loss 1.2503", "cost 1.2503", 0.05, 1),
        ("loss 1.2503", "loss 7.9", None, 0),
        ("loss 1.2503", "cost 1.2503", None, 1),
        ("5 units", "6 units", 0.0, 1),
        ("10 s, 5 units", "1 min 3 s, 5 units", 0.0, 0),
        ("a\n...\nz", "a\nb\nc\nz", 0.0, 0),
        ("a\n...", "a\nb\nc", 0.0, 0),
        ("...\nz", "a\ny", 0.0, 2),
        ("a\nb", "a\nb\nc", 0.0, 1),
        ("x = 3, ...", "x = 3, y = 4", 0.0, 0),
        (TABLE, TABLE.replace("2,568,166", "1,166").replace("0.05 s", "0.50 s"), 0.0, 0),
        (TABLE, TABLE.replace("2.0623", "2.1000"), 0.0, 1),
        (TABLE, TABLE.replace("2.0623", "2.1000"), 0.05, 0),
        ("-1.00e+03", "-1.01e+03", 0.0, 0),
        ("-1.00e+03", "1.00e+03", 0.0, 1),
        ('{"a": 1, "text": "b"}', '{"a": 2, "text": "c d"}', None, 0),
        ('{"a": 1, "text": "b"}', '{"a": 2, "note": "c d"}', None, 1),
    ],
)
def test_what_differs_is_found(shown, said, near, wrong):
    assert len(differences(shown, said, near)) == wrong

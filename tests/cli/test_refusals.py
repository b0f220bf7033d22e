"""A refusal is one line: notices about the work wait until it is certain that there is work."""

from __future__ import annotations

import numpy as np
import pytest
from helpers_cli import installed, needs, refusal

from seqgen import registry
from seqgen.cli import run

SMALL = ("--layers", "1", "--hidden-size", "4", "--steps", "1", "--seed", "1", "--quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of several kinds, and files beside them."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "t.txt").write_text("the cat sat on the mat.\n" * 20)
    (folder / "c.txt").write_text("".join(f"text {n}\t{'ab'[n % 2]}\n" for n in range(20)))
    (folder / "g.txt").write_text("the\tD\ncat\tN\n\n" * 20)
    (folder / "p.tsv").write_text("one\tone\n" * 20)
    np.save(folder / "v.npy", np.eye(20, 3, dtype=np.float32))
    (folder / "v.txt").write_text("".join(f"line {n}\n" for n in range(20)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        tagger = ("tagger", "g.txt", "--task", "tag")
        for name, *how in (
            ("net", "t.txt", "--model", "lstm"),
            *([tagger] if registry.ON_FEATURES else ()),
            ("vec", "--source-vectors", "v.npy", "--target", "v.txt", "--model", "seq2seq"),
        ):
            files = [str(folder / a) if "." in a else a for a in how]
            assert run(["train", *files, "--name", name, *SMALL]) == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("sample one -m vec", "reads vectors"),
        ("sample the -m net --force \u00e9", "does not know"),
        ("beam-search one -m vec --stochastic", "reads vectors"),
        pytest.param(
            "inspect -m net --attention", "is for transformers and masked", marks=needs("inspect")
        ),
        pytest.param(
            "inspect t.txt -m net --attention --max-tokens 5",
            "is for transformers and masked",
            marks=needs("inspect"),
        ),
        pytest.param("eval c.txt -m tagger", "unknown label", marks=needs("labels")),
        ("compare net net --data t.txt", "given twice"),
        ("sample the -m tagger -m net", "--model is given twice"),
        pytest.param(
            "inspect -m net --text the --model=tagger",
            "--model is given twice",
            marks=needs("inspect"),
        ),
        ("train t.txt --model rnn --model lstm", "--model is given twice"),
        ("train p.tsv --init-from vec --steps 1", "reads vectors"),
    ],
)
def test_a_refusal_is_the_only_line(folder, monkeypatch, capsys, arguments, said):
    monkeypatch.setenv("SEQGEN_HOME", str(folder / "home"))
    words = [str(folder / a) if "." in a else a for a in arguments.split()]
    assert said in refusal(capsys, *words)


def test_a_notice_is_said_before_the_first_result(folder, monkeypatch, capfd):
    monkeypatch.setenv("SEQGEN_HOME", str(folder / "home"))
    assert run(["sample", "the", "-m", "net", "--max-tokens", "3", "--verbose"]) == 0
    out, said = capfd.readouterr()
    assert out and said.splitlines()[1].startswith("seed ") and said.count("\n") == 2
    for looked in installed([["inspect", "-m", "net", "--max-tokens", "3"]]):
        assert run(looked) == 0
        assert "looking at the held-out text of net" in capfd.readouterr().err

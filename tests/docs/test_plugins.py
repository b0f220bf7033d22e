"""The plugin on the page about exporting, in the programs that it is for."""

import importlib.util
import re
from pathlib import Path

import pytest

import seqgen
from seqgen.cli import run

PAGE = Path(__file__).parents[2] / "docs" / "export.md"


def test_llm_writes_what_sample_writes(tmp_path):
    llm = pytest.importorskip("llm", reason="llm is not installed")
    from llm.plugins import pm

    (code,) = re.findall(r"```python\n(import llm\n.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "llm_seqgen.py").write_text(code)
    (tmp_path / "t.txt").write_text("ab ba\n" * 30)
    command = ["train", str(tmp_path / "t.txt"), "--model", "ngram", "--name", "n", "--quiet"]
    assert run(command) == 0
    spec = importlib.util.spec_from_file_location("llm_seqgen", tmp_path / "llm_seqgen.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pm.register(module)
    try:
        model = llm.get_model("seqgen/n")
        written = model.prompt("ab", max_tokens=20, seed=3, top_p=0.9).text()
    finally:
        pm.unregister(module)
    (record,) = seqgen.load("n").sample("ab", max_tokens=20, seed=3, top_p=0.9)
    assert written == record.text != ""

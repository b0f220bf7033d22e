"""Training in a notebook: one line of progress; models and results as tables."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
import types
from html.parser import HTMLParser

import pytest
from helpers_cli import needs
from places import ROOT

import seqgen
from seqgen.training.events import Notice
from seqgen.wording import Records, html_table

pytestmark = needs("notebook")

TEXT = "the cat sat on the mat.\nA dog ran; it was fun!\n" * 12
TINY = {"architecture": "lstm", "hidden_size": 8, "num_layers": 1, "seed": 1, "steps": 20}


class Outputs(types.ModuleType):
    """Stands for IPython in a kernel: keeps what is displayed."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__("IPython")
        self.shown: list[list[dict[str, str]]] = []
        self.fails = fails
        self.kernel = object()

    def get_ipython(self) -> Outputs:
        return self

    def display(self, data, raw, display_id):
        assert raw and display_id
        if self.fails:
            raise RuntimeError("the browser is gone")
        self.shown.append([data])
        replace = self.shown[-1].append
        return types.SimpleNamespace(update=lambda data, raw: replace(data))


@pytest.fixture
def kernel(monkeypatch):
    def use(**how) -> Outputs:
        outputs = Outputs(**how)
        monkeypatch.setitem(sys.modules, "IPython", outputs)
        monkeypatch.setitem(sys.modules, "IPython.display", outputs)
        return outputs

    return use


def test_a_run_is_one_output_that_ends_with_its_last_figures(kernel, monkeypatch):
    outputs = kernel()
    monkeypatch.setattr("seqgen.plugins.notebook.progress.SECONDS", 0.0)
    result = seqgen.train(text=TEXT, name="x", **TINY)
    (lines,) = outputs.shown
    assert len(lines) > 1
    last = lines[-1]
    assert last["text/plain"].startswith(f"{result.name}: 100%  step 20  loss ")
    assert "val " in last["text/plain"] and "bits/char" in last["text/plain"]
    assert 'value="1.0000"' in last["text/html"]


def test_a_resumed_run_has_a_line_too(kernel):
    outputs = kernel()
    seqgen.train(text=TEXT, name="x", stop_after=10, **TINY)
    from seqgen.training.resume import resume

    resume("x")
    assert [lines[-1]["text/plain"].split()[:4] for lines in outputs.shown] == [
        ["x:", "50%", "step", "10"],
        ["x:", "100%", "step", "20"],
    ]


def test_nothing_is_shown_outside_a_notebook(kernel, capsys):
    outputs = kernel()
    outputs.kernel = None  # IPython on a terminal
    seqgen.train(text=TEXT, name="x", **TINY)
    assert outputs.shown == []
    assert capsys.readouterr().out == ""


def test_a_browser_that_is_gone_ends_no_run(kernel):
    kernel(fails=True)
    events = []
    assert seqgen.train(text=TEXT, name="x", report=events.append, **TINY).steps == 20
    said = [event.text for event in events if isinstance(event, Notice)]
    why = "RuntimeError: the browser is gone"
    assert f"warning: plugin notebook no longer sees this run: {why}" in said


class Cells(HTMLParser):
    """The rows of a table; every element must be closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows, self.open = [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.rows[-1][-1] += data


def rows_of(shown):
    return Cells(shown._repr_html_()).rows


def test_results_and_models_are_tables():
    result = seqgen.train(text=TEXT, name="net", **TINY)
    shown = dict(rows_of(result))
    assert shown["name"] == "net" and shown["steps"] == "20"
    assert shown["val_loss"] == f"{result.val_loss:.4g}"
    assert "mixture" not in shown  # None
    model = seqgen.load("net")
    assert dict(rows_of(model)) == {
        "model": "net",
        "architecture": "lstm",
        "parameters": f"{result.parameters:,}",
        "tokenizer": f"char, {model.loaded.tokenizer.vocab_size} tokens",
    }
    (sample,) = model.sample("the", max_tokens=9, seed=1)
    assert dict(rows_of(sample))["text"] == sample.text


def test_a_comparison_is_a_table_with_a_row_for_each_model():
    seqgen.train(text=TEXT, name="net", **TINY)
    seqgen.train(text=TEXT, name="counts", architecture="ngram", order=3)
    compared = seqgen.compare(["net", "counts", "net+counts"])
    heads, *rows = rows_of(compared)
    assert [row[heads.index("model")] for row in rows] == [one.model for one in compared]
    bits = [row[heads.index("bits_per_byte")] for row in rows]
    assert bits == [f"{one.bits_per_byte:.4g}" for one in compared]
    assert dict(rows_of(seqgen.load("net+counts")))["architecture"] == "mixture"


@pytest.mark.parametrize("nasty", ["<script>alert(1)</script>", "a & b\n  c", "\0<td>", "x" * 9999])
def test_a_text_is_no_markup(nasty):
    ((first, second),) = Cells(html_table([["text", nasty]])).rows
    assert (first, second.replace("\ufffd", "\0")) == ("text", nasty[:2000])


def test_an_empty_comparison_is_an_empty_table():
    assert Records()._repr_html_() == "<table><tr></tr></table>"


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    spec = importlib.util.spec_from_file_location("notebook_script", ROOT / "docs" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs_of(cell):
    return [one.output_type for one in cell.outputs]


@pytest.mark.slow
def test_a_kernel_shows_the_line_and_the_tables(script):
    import nbformat

    code = nbformat.v4.new_code_cell
    made = nbformat.v4.new_notebook()
    given = ", ".join(f"{name}={value!r}" for name, value in TINY.items())
    made.cells = [
        code("import seqgen"),
        code(f"seqgen.train('play.txt', name='play', {given})"),
        code("seqgen.load('play')"),
        code("%%capture\nseqgen.train('play.txt', name='quiet', architecture='ngram')"),
    ]
    script.execute(made)
    train = made.cells[1]
    assert outputs_of(train) == ["display_data", "execute_result"]
    assert "play: 100%  step 20" in train.outputs[0].data["text/plain"]
    assert "<progress" in train.outputs[0].data["text/html"]
    assert "<td" in train.outputs[1].data["text/html"]
    assert "play</td>" in made.cells[2].outputs[0].data["text/html"]
    assert outputs_of(made.cells[3]) == []


def test_the_notebook_of_the_docs_is_that_of_its_script(script):
    import nbformat

    kept = nbformat.read(script.NOTEBOOK, 4)
    assert [cell.source for cell in kept.cells] == [cell.source for cell in script.notebook().cells]
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    kinds = [outputs_of(cell) for cell in code]
    assert not any("error" in one for one in kinds)
    assert kinds[0] == ["display_data", "execute_result"]
    assert "image/png" in code[-1].outputs[-1].data


@pytest.mark.long
def test_the_notebook_of_the_docs_runs_in_two_minutes(script, tmp_path):
    began = time.monotonic()
    out = tmp_path / "out.ipynb"
    subprocess.run([sys.executable, script.__file__, "--out", str(out)], check=True, timeout=300)
    assert time.monotonic() - began < 120
    import nbformat

    made = nbformat.read(out, 4)
    compared = next(cell for cell in made.cells if "seqgen.compare(" in cell.source)
    (result,) = compared.outputs
    heads, *rows = Cells(result.data["text/html"]).rows
    bits = {row[0]: float(row[heads.index("bits_per_byte")]) for row in rows}
    assert bits["play"] < bits["counts"] < 3

"""The chat page in a browser: answers stream in, both themes, 400 pixels, and axe-core."""

import itertools
import json
import os
import threading
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")
pytest.importorskip("transformers")

from chat_templates import TEMPLATES
from helpers_cli import needs
from hf_models import checkpoint
from pages_read import browser
from test_page import tab  # noqa: F401

import seqgen
from seqgen.cli import run
from seqgen.plugins.serve.run import Listening
from seqgen.plugins.serve.settings import ServeOptions

pytestmark = [needs("exchange", "chat"), pytest.mark.slow]
SETTINGS = {"max_tokens": 30, "seed": 5}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server of a model that answers, and of one that has no template; and its home."""
    browser()
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(home))
        path = checkpoint("qwen2", home / "smol")
        table = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**table, "max_position_embeddings": 600}))
        assert run(["import", str(path), "--name", "bare", "--quiet"]) == 0
        (path / "chat_template.jinja").write_text(TEMPLATES["smollm"], encoding="utf-8")
        assert run(["import", str(path), "--name", "smol", "--quiet"]) == 0
        paths = [str(home / "models" / name) for name in ("smol", "bare")]
        server = Listening(paths, ServeOptions(port=0, timeout=60))
        server.smol, server.bare = paths
        thread = threading.Thread(target=server.listen)
        thread.start()
        yield server
        server.should_exit = True
        thread.join()


@pytest.fixture(params=itertools.product((400, 1400), ("light", "dark")), ids=str)
def page(request, tab, served):  # noqa: F811
    width, theme = request.param
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    tab("Emulation.setDeviceMetricsOverride", **size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    tab("Emulation.setEmulatedMedia", features=features)
    tab.console.clear()
    tab("Page.navigate", url=f"{served.address.rstrip('/')}/chat")
    tab.wait("document.querySelectorAll('#model option').length")
    set_fields(tab, tokens=SETTINGS["max_tokens"], seed=SETTINGS["seed"])
    yield tab
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not tab.run(wide)
    asked = tab.run("performance.getEntriesByType('resource').map(e => e.name)")
    assert asked and all(name.startswith(served.address) for name in asked)
    expected = [entry for entry in tab.console if "400" in json.dumps(entry)]
    assert tab.console == expected


def set_fields(tab, **fields):  # noqa: F811
    for name, value in fields.items():
        tab.run(f"document.getElementById({name!r}).value = {json.dumps(value)}")


def ask(tab, question):  # noqa: F811
    """Send a question; return the texts of the conversation when the answer has ended."""
    set_fields(tab, question=question)
    tab.run("say(''); document.getElementById('send').click()")
    tab.wait(
        "document.getElementById('stop').disabled && document.getElementById('status').textContent"
    )
    return turns(tab)


def turns(tab):  # noqa: F811
    return tab.run(
        "[...document.querySelectorAll('#log article')].map(x => x.lastChild.textContent)"
    )


def test_answers_are_those_of_the_model(page, served):
    model = seqgen.load(served.smol)
    question, other = "the cat", "the <b>dog</b>"
    first = model.chat(question, **SETTINGS).text
    assert ask(page, question) == [question, first]
    messages = [("user", question), ("assistant", first), ("user", other)]
    whole = [{"role": role, "content": text} for role, text in messages]
    second = model.chat(whole, **SETTINGS).text
    assert ask(page, other) == [question, first, other, second]
    page.run("document.getElementById('again').click()")
    page.wait("document.getElementById('stop').disabled")
    assert turns(page) == [question, first, other, second]
    page.run("document.getElementById('reset').click()")
    assert turns(page) == [] and page.run("document.getElementById('again').disabled")
    set_fields(page, system="be brief")
    system = {"role": "system", "content": "be brief"}
    told = model.chat([system, whole[0]], **SETTINGS).text
    assert ask(page, question) == [question, told]


def test_errors_are_shown_and_the_question_can_be_sent_again(page, served):
    set_fields(page, model=served.bare)
    assert ask(page, "the cat") == ["the cat"]
    assert "no chat template" in page.run("document.getElementById('status').textContent")
    set_fields(page, model=served.smol)
    assert ask(page, "the dog")[0] == "the dog" and len(turns(page)) == 2


def test_axe_finds_no_fault(page):
    axe = os.environ.get("SEQGEN_AXE")
    if axe is None:
        pytest.skip("SEQGEN_AXE names no axe.min.js of axe-core")
    ask(page, "the cat")
    page.run("document.querySelector('details').open = true")
    page.run(Path(axe).read_text() + "; 0")
    found = page.run("axe.run(document).then(f => [f.passes.length, f.violations.map(v => v.id)])")
    assert found[0] > 15 and found[1] == []

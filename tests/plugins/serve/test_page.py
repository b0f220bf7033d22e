"""The page in a browser: what arrives, its colours, branches, both themes, and axe-core."""

import contextlib
import fcntl
import functools
import itertools
import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from pages_read import browser
from test_serve import NAMES, alone, live  # noqa: F401

from seqgen.cli import run
from seqgen.generation.sample import sample
from seqgen.plugins.serve.run import Listening
from seqgen.plugins.serve.settings import ServeOptions
from seqgen.settings.generation import SampleOptions
from seqgen.store.loading import Work, load

FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
FLAGS += "--disable-background-networking --disable-component-update --remote-debugging-pipe"
SECONDS = 60


class Tab:
    """A page of a browser, which is driven through its debugging pipe."""

    def __init__(self, profile):
        pipes = [os.pipe(), os.pipe()]
        # Apart from 3 and 4, where the browser expects its ends.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (pipes[0][0], pipes[1][1])]
        self.process = subprocess.Popen(
            [browser(), *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)),
        )
        for fd in (*ends, pipes[0][0], pipes[1][1]):
            os.close(fd)
        self.to, self.of = os.fdopen(pipes[0][1], "wb", 0), os.fdopen(pipes[1][0], "rb")
        self.numbers, self.session, self.console = itertools.count(1), None, []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self("Runtime.enable")
        self("Log.enable")

    def __call__(self, method, **params):
        """Send a command, and return its result."""
        message = {"id": next(self.numbers), "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        self.to.write(json.dumps(message).encode() + b"\0")
        while True:
            read = iter(functools.partial(self.of.read, 1), b"\0")
            answer = json.loads(b"".join(read))
            params = answer.get("params", {})
            hint = params.get("entry", {}).get("level") in ("verbose", "info")
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown") and not hint:
                self.console.append(params)
            if answer.get("id") == message["id"]:
                assert "error" not in answer, answer
                return answer["result"]

    def run(self, script):
        """Return what a script gives, as the browser's own console would."""
        how = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        found = self("Runtime.evaluate", expression=script, **how)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script):
        """Wait until a script gives something true, and return that."""
        until = time.monotonic() + SECONDS
        while not (found := self.run(script)):
            assert time.monotonic() < until, script
            time.sleep(0.02)
        return found

    def close(self):
        self.process.kill()
        self.process.wait()
        self.to.close()
        self.of.close()


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with contextlib.closing(Tab(tmp_path_factory.mktemp("profile"))) as opened:
        yield opened


@pytest.fixture(params=itertools.product((400, 1400), ("light", "dark")), ids=str)
def page(request, tab, live):  # noqa: F811
    width, theme = request.param
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    tab("Emulation.setDeviceMetricsOverride", **size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    tab("Emulation.setEmulatedMedia", features=features)
    tab.console.clear()
    tab("Page.navigate", url=live.address)
    tab.wait("document.querySelectorAll('#model0 option').length")
    assert tab.run("innerWidth") == width
    assert tab.run(f"matchMedia('(prefers-color-scheme: {theme})').matches")
    yield tab
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not tab.run(wide)
    asked = tab.run("performance.getEntriesByType('resource').map(e => e.name)")
    assert asked and all(name.startswith(live.address) for name in asked)
    assert tab.console == []


# What a panel shows: its tokens, how surprising each is, and how strong its colour.
TOKENS = """[...document.querySelectorAll('#panels section:nth-child(%d) .token')].map(e => ({
  text: e.textContent, told: e.getAttribute('aria-label'),
  colour: getComputedStyle(e).backgroundColor}))"""


def fill(tab, **fields):
    for name, value in fields.items():
        element = f"document.getElementById({name.replace('_', '-')!r})"
        tab.run(
            f"{element}.value = {json.dumps(value)}; {element}.dispatchEvent(new Event('input'))"
        )


def write(tab):
    """Have the texts written; return how many tokens were to be seen, again and again."""
    tab.run("""window.seen = []; new MutationObserver(() => seen.push(
      document.querySelectorAll('.token').length)).observe(
      document.getElementById('panels'), {childList: true, subtree: true});
      document.getElementById('status').textContent = '';
      document.getElementById('write').click()""")
    tab.wait("document.getElementById('status').textContent.startsWith('Done')")
    return tab.run("seen")


def shown(tab, panel=1):
    return "".join(token["text"] for token in tab.run(TOKENS % panel))


def strength(colour):
    """Return the opacity of a colour."""
    numbers = [float(x) for x in re.findall(r"[0-9.]+", colour)]
    return numbers[3] if len(numbers) > 3 else 1.0


@pytest.mark.slow
def test_texts_arrive_coloured_and_branch(page):
    how = {"model0": NAMES["lstm"], "prompt": "", "seed": 5, "tokens": 300}
    fill(page, **how)
    seen = write(page)
    assert len({*seen}) > 5 and seen == sorted(seen)  # as they come
    (text,) = alone("lstm", [""], seed=5, max_tokens=300)
    assert shown(page) == text
    tokens = page.run(TOKENS % 1)
    bits = [float(re.search(r"([0-9.]+) bits$", token["told"])[1]) for token in tokens]
    strengths = [strength(token["colour"]) for token in tokens]
    ordered = [of for _, of in sorted(zip(bits, strengths, strict=True))]
    assert ordered == sorted(ordered) and max(strengths) > 0.2 > min(strengths)

    page.run("document.querySelectorAll('.token')[9].click()")
    likely = "[...document.querySelectorAll('#panels section:nth-child(1) li button')]"
    shares = [float(x.rstrip("%")) for x in page.run(f"{likely}.map(b => b.lastChild.textContent)")]
    assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(100, abs=0.5)
    fill(page, top_p=0.3)
    assert page.run(f"{likely}.filter(b => b.className === 'removed').length") > 1
    fill(page, top_p=1)
    names = page.run(f"{likely}.map(b => b.firstChild.textContent)")
    place = next(i for i, name in enumerate(names) if name.isalpha() and name != text[9])
    page.run(f"document.getElementById('status').textContent = ''; {likely}[{place}].click()")
    page.wait("document.getElementById('status').textContent.startsWith('Done')")
    begun = text[:9] + names[place]
    (rest,) = alone("lstm", [begun], seed=5, max_tokens=300)
    assert shown(page) == begun + rest


@pytest.mark.slow
def test_characters_of_two_code_units_stay_with_their_tokens(tab, home, tmp_path):
    data = tmp_path / "text.txt"
    data.write_text("a\U0001f600b\U0001f601\U0001d400c" * 60, "utf-8")
    how = ["--model", "ngram", "--order", "3", "--tokenizer", "char", "--name", "m", "--quiet"]
    assert run(["train", str(data), *how]) == 0
    server = Listening(["m"], ServeOptions(port=0))
    thread = threading.Thread(target=server.listen)
    thread.start()
    try:
        tab("Page.navigate", url=server.address)
        tab.wait("document.querySelectorAll('#model0 option').length")
        fill(tab, prompt="b\U0001f601", seed=3, tokens=40)
        write(tab)
        tokens = [token["text"] for token in tab.run(TOKENS % 1)]
    finally:
        server.should_exit = True
        thread.join()
    (text,) = (one.text for one in sample(load("m", work=Work()), ["b\U0001f601"],
                                          SampleOptions(seed=3, max_tokens=40)))  # fmt: skip
    assert tokens == [*("b\U0001f601" + text)]
    assert sum(character > "\uffff" for character in text) > 5


@pytest.mark.slow
def test_two_models_side_by_side_have_the_same_seed(page):
    names = [NAMES["lstm"], NAMES["n-gram"]]
    fill(page, model0=names[0], model1=names[1], prompt="", seed=7, tokens=40, temperature=0.8)
    write(page)
    for panel, kind in enumerate(("lstm", "n-gram"), 1):
        (text,) = alone(kind, [""], seed=7, max_tokens=40, temperature=0.8)
        assert shown(page, panel) == text
    page.run("document.getElementById('copy').click()")
    told = page.wait("document.getElementById('status').textContent.includes('sample') && "
                     "document.getElementById('status').textContent")  # fmt: skip
    assert told.count("seqgen sample -m ") == 2 and told.count("--seed 7 ") == 2
    assert all(name in told for name in names) and "--temperature 0.8" in told
    page.run(f"say({'/a' + 'b' * 500!r})")  # a long path: the page is as wide as before


@pytest.mark.slow
def test_axe_finds_no_fault(page):
    axe = os.environ.get("SEQGEN_AXE")
    if axe is None:
        pytest.skip("SEQGEN_AXE names no axe.min.js of axe-core")
    fill(page, model0=NAMES["lstm"], model1=NAMES["n-gram"], prompt="", seed=5, tokens=60)
    write(page)
    page.run("document.querySelectorAll('.token')[4].click()")
    page.run(Path(axe).read_text() + "; 0")
    found = page.run("axe.run(document).then(f => [f.passes.length, f.violations.map(v => v.id)])")
    assert found[0] > 20 and found[1] == []

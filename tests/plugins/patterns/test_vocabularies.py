"""Tries of large vocabularies: kept in the cache, equal to new ones, and not on a client's time."""

import time

import numpy as np
import pytest
from helpers_cli import needs

from seqgen import store
from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.limits import seconds_at_most
from seqgen.plugins.patterns import vocabularies as module
from seqgen.plugins.patterns.automaton import Vocabulary
from seqgen.plugins.patterns.time_limit import outside_time_limit, require_time
from seqgen.text.tokenizers import KINDS

ARRAYS = ("parents", "last_bytes", "begins", "node_of")


@pytest.fixture
def tokenizer(tmp_path, monkeypatch):
    """A tokenizer of subwords, whose tokens are other bytes at the start of a line."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "LARGE", 1)
    module.vocabularies.cache_clear()
    return KINDS["char"]("abcdé漢\n")


def files(tmp_path):
    return [*(tmp_path / "home" / "cache" / "index").glob("*.trie.npz")]


def equal(one, other):
    pairs = zip(one, other, strict=True)
    return all(
        (a is b is None) or all(np.array_equal(getattr(a, x), getattr(b, x)) for x in ARRAYS)
        for a, b in pairs
    )


def vocabularies(*about):
    module.vocabularies.cache_clear()
    return module.vocabularies(*about)


@pytest.mark.parametrize("backward", [False, True])
def test_tries_are_built_once(tokenizer, backward, tmp_path, monkeypatch):
    about = tokenizer, frozenset(tokenizer.special_ids), backward
    built = vocabularies(*about)
    assert len(files(tmp_path)) == 1
    with monkeypatch.context() as patch:
        patch.setattr(module, "_built", None)
        kept = vocabularies(*about)
        assert equal(kept, built) and kept[0].levels == built[0].levels
        assert kept[0].backward == backward
    # Other tokens, another direction and another tokenizer have their own.
    vocabularies(tokenizer, frozenset(), backward)
    vocabularies(tokenizer, about[1], not backward)
    vocabularies(KINDS["char"]("ab\n"), about[1], backward)
    assert len(files(tmp_path)) == 4
    assert {*store.cached_files()} == {*files(tmp_path)} and not store.foreign_files()
    assert run(["models", "cache", "--clear"]) == 0
    assert not files(tmp_path)


def test_a_damaged_file_and_a_full_disk_do_no_harm(tokenizer, tmp_path, monkeypatch):
    about = tokenizer, frozenset(), False
    built = vocabularies(*about)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    other = Vocabulary.of([b"a", b"bc"])
    for content in (b"", b"x" * 100, whole[:-30], whole[:200], module._written((other, None))):
        path.write_bytes(content)
        assert equal(vocabularies(*about), built)
    path.write_bytes(whole.replace(b"node_of", b"node_ot"))
    assert equal(vocabularies(*about), built)
    path.unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seqgen.store.cache.write_bytes", full)
    assert equal(vocabularies(*about), built)


def test_small_vocabularies_are_not_kept(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 100)
    assert vocabularies(tokenizer, frozenset(), False)
    assert not files(tmp_path)


def spend(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_untimed_work_is_not_counted():
    with seconds_at_most(0.2):
        with outside_time_limit():
            spend(0.3)
        require_time()
        spend(0.25)
        with pytest.raises(UsageError, match="takes too long"):
            require_time()
    require_time()


@needs("serve")
def test_serve_does_not_refuse_a_schema_because_of_the_vocabulary(tmp_path, monkeypatch):
    TestClient = pytest.importorskip("starlette.testclient").TestClient
    from seqgen.plugins.serve.app import Server, make_app
    from seqgen.plugins.serve.settings import ServeOptions
    from seqgen.plugins.serve.shelf import Shelf

    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "t.txt").write_text('{"a": "b", "c": [1, 2]}\n' * 50)
    train = ["train", str(tmp_path / "t.txt"), "--model", "ngram", "--tokenizer", "byte"]
    assert run([*train, "--name", "m", "--quiet"]) == 0
    own = module._built

    def slow(*about):
        spend(0.6)
        return own(*about)

    monkeypatch.setattr(module, "_built", slow)
    monkeypatch.setattr("seqgen.plugins.serve.app.PATTERN_SECONDS", 0.5)
    client = TestClient(make_app(Server(Shelf(["m"]), ServeOptions())), base_url="http://localhost")
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    body = {"model": "m", "prompt": "", "response_format": form, "max_tokens": 40}
    module.vocabularies.cache_clear()
    assert client.post("/v1/completions", json=body).status_code == 200

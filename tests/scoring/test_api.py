"""The Python API: what it gives is what the tasks give; importing it loads no torch."""

import dataclasses
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers_cli import has_plugin, is_usable, needs, records
from hf_models import checkpoint
from known_models import ALPHABET, fake
from places import STORED

import seqgen
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.generation.beam_search import beam_search
from seqgen.generation.processors import normalise
from seqgen.generation.sample import sample
from seqgen.scoring.api import Model
from seqgen.settings.generation import BeamOptions, SampleOptions
from seqgen.text.tokenizers import KINDS
from seqgen.wording import ShortRepr


def modules_of(package):
    """Return the names of all modules of a package."""
    return [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


def results_in(name):
    """Return the results that a module defines: what has a short repr."""
    kinds = [k for k in vars(importlib.import_module(name)).values() if isinstance(k, type)]
    short = [k for k in kinds if issubclass(k, ShortRepr) and dataclasses.is_dataclass(k)]
    return [k for k in short if k.__module__ == name]


def test_importing_it_loads_no_torch():
    code = "import sys, seqgen; seqgen.load; print('torch' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("method", "options"), [("sample", SampleOptions), ("beam_search", BeamOptions)]
)
def test_every_option_is_a_keyword(method, options):
    """Those of groups too; a keyword that is none is refused with the one that was meant."""
    write = getattr(Model(fake(documents="line")), method)
    given = {
        name: field.default
        for name, field, _ in options.flags()
        if field.default is not dataclasses.MISSING and name != "max_tokens"
    }
    assert {"attention", "max_ratio", "stop", "no_repeat_ngram"} <= given.keys()
    assert len(list(write("a", max_tokens=3, **given))) == 1
    with pytest.raises(UsageError, match=r"there is no option 'max_token'.*max_tokens"):
        write("a", max_token=3)


def test_sample_and_beams_are_those_of_the_tasks(capsys):
    loaded = fake(documents="line")
    model = Model(loaded)
    found = list(model.sample(["a", "b"], seed=4, max_tokens=7, num_samples=2))
    assert found == list(
        sample(loaded, ["a", "b"], SampleOptions(seed=4, max_tokens=7, num_samples=2))
    )
    assert list(model.sample("a", seed=4, max_tokens=7, num_samples=2)) == found[:2]
    pieces = "".join(model.stream("a", seed=4, max_tokens=7))
    assert pieces == found[0].text
    beams = list(model.beam_search(["a", ""], nbest=2, max_tokens=5))
    assert beams == list(beam_search(loaded, ["a", ""], BeamOptions(nbest=2, max_tokens=5)))
    assert [s.rank for s in model.suggest("a", 2)] == [0, 1]
    assert capsys.readouterr() == ("", "")


def test_a_drawn_seed_is_in_the_record_and_gives_the_text_again():
    model = Model(fake())
    first = next(model.sample("a", max_tokens=30))
    again = next(model.sample("a", max_tokens=30, seed=first.seed))
    assert again == first
    if has_plugin("searches"):
        settings = {"stochastic": True, "nbest": 5, "max_tokens": 9}
        beams = list(model.beam_search("a", **settings))
        assert beams == list(model.beam_search("a", **settings, seed=beams[0].seed))
        assert beams != list(model.beam_search("a", **settings, seed=beams[0].seed + 1))
    assert next(model.beam_search("a", seed=3)).seed is None


MODELS = sorted(filter(is_usable, (STORED / "models").iterdir()))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_a_model_is_shown_by_name_architecture_and_parameters(path):
    record = json.loads((path / "training.json").read_text())
    architecture = json.loads((path / "config.json").read_text())["architecture"]
    about = f"{architecture}, {record['parameters']:,} parameters"
    assert repr(seqgen.load(path)) == f"<seqgen model '{path.name}': {about}>"


def test_a_mixture_is_shown_with_the_parameters_of_its_parts():
    shown = repr(seqgen.load("+".join(map(str, MODELS[1:3]))))
    assert "mixture" in shown and f"{620 + 748:,} parameters" in shown


RESULTS = [result for name in modules_of(seqgen) for result in results_in(name)]


@pytest.mark.parametrize("precision", ["bf61", "BF16", "int3"])
def test_a_precision_that_is_none_is_refused(precision):
    with pytest.raises(UsageError, match="precision must be one of auto, float32"):
        seqgen.load(STORED / "models" / "lstm-char", precision=precision)


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("value", ["x, y\n" * 99, [*range(999)], {"a": [0.1] * 99}, 1 / 3])
def test_a_result_is_shown_in_a_line_or_two(kind, value):
    fields = [field.name for field in dataclasses.fields(kind)]
    result = object.__new__(kind)
    for name in fields:
        object.__setattr__(result, name, value)
    shown = repr(result)
    assert shown.startswith(f"{kind.__name__}({fields[0]}=") and shown.endswith(")")
    assert len(shown) < 250 and "\n" not in shown
    for name in fields:
        object.__setattr__(result, name, None)
    assert repr(result) == f"{kind.__name__}()"


@pytest.mark.parametrize(
    "name",
    [
        "lstm-char",
        "transformer-gpt2",
        "ngram-kn",
        pytest.param("window-char", marks=needs("window")),
    ],
)
def test_logits_are_what_the_model_scores(name):
    """The logits of each row give the log-probability of the next token, of the text and in all."""
    model, text = seqgen.load(STORED / "models" / name), "ten ants sat as an ant"
    tokens, logits = model.tokens(text), model.logits(text)
    assert logits.shape == (len(tokens), model.loaded.tokenizer.vocab_size)
    assert logits.dtype == np.float32
    log_probs = normalise(logits)
    nats = -log_probs[range(len(tokens) - 1), tokens[1:]].sum()
    end = model.loaded.framing.end
    nats -= 0 if end is None else log_probs[-1, end]
    assert nats == pytest.approx(model.score(text).nll_nats, rel=1e-4)
    (likeliest,) = model.suggest(text, 1)
    possible = np.delete(np.exp(log_probs[-1]), model.loaded.never)
    assert possible.max() / possible.sum() == pytest.approx(likeliest.probability, rel=1e-3)
    (start,) = model.logits()
    assert np.allclose(start, logits[0], atol=1e-4)


def test_a_long_text_is_read_in_pieces(monkeypatch):
    model = seqgen.load(STORED / "models" / "lstm-char")
    whole = model.logits("ten ants " * 5)
    monkeypatch.setattr("seqgen.generation.text_batch.PIECE", 7)
    assert np.allclose(model.logits("ten ants " * 5), whole, atol=1e-5)


def test_logits_given_a_label():
    model = seqgen.load(STORED / "kinds" / "models" / "lstm-labels")
    names = model.loaded.labels.names[:2]
    one, other = (model.logits("a", labels=[name]) for name in names)
    assert one.shape == other.shape and not np.allclose(one, other)
    with pytest.raises(UsageError, match="--label"):
        model.logits("a")


def test_score_is_that_of_the_function():
    model = seqgen.load(STORED / "models" / "lstm-char")
    assert model.score("ten ants", top5=True) == seqgen.score(model, "ten ants", top5=True)
    with pytest.raises(UsageError, match="there is no option 'no_ends'"):
        model.score("ten ants", no_ends=True)


@needs("vectors")
def test_vectors_of_texts():
    model = seqgen.load(STORED / "models" / "lstm-char")
    texts = ["ten ants", "tea", ""]
    several = model.embed(texts)
    assert several.shape == (3, model.loaded.model.config.hidden_size)
    assert np.allclose(np.linalg.norm(several, axis=-1), 1, atol=1e-5)
    for text, row in zip(texts, several, strict=True):
        assert np.array_equal(model.embed(text), row)
    assert np.array_equal(model.embed(text for text in texts), several)
    state, hidden = model.loaded.model.start(1), []
    for token in model.tokens("tea"):
        found, state = model.loaded.model.hidden(model.loaded.model.ids(np.array([[token]])), state)
        hidden.append(found.detach().numpy()[0, 0])
    mean = np.mean(hidden[1:], 0)
    assert np.allclose(several[1], mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "call", "says"),
    [
        pytest.param(
            *("ngram-kn", lambda model: model.embed("a"), "no hidden states"),
            marks=needs("vectors"),
        ),
        pytest.param(
            *("lstm-char", lambda model: model.embed([]), "give the texts to embed"),
            marks=needs("vectors"),
        ),
        pytest.param(
            *("lstm-char", lambda model: model.embed(["a", "~"]), "does not know '~'"),
            marks=needs("vectors"),
        ),
        ("lstm-char", lambda model: model.logits("a~"), "does not know '~'"),
        ("lstm-char", lambda model: model.logits("\ud800"), "not UTF-8"),
        ("lstm-char", lambda model: model.logits("a", labels=["b"]), "without labels"),
        pytest.param(
            *("lstm-char", lambda model: model.chat("a"), "has no chat template"),
            marks=needs("chat"),
        ),
        pytest.param(
            *("lstm-char", lambda model: model.chat("a", best_of=2), "chat writes one answer"),
            marks=needs("chat"),
        ),
        ("lstm-char", lambda model: model.chat("a", best=2), "there is no option 'best'"),
        ("seq2seq", lambda model: model.logits("a"), "for models of text"),
        pytest.param(
            *("seq2seq", lambda model: model.embed("a"), "is for models of text"),
            marks=needs("vectors"),
        ),
    ],
)
def test_what_a_model_cannot_do_is_said(name, call, says):
    folder = STORED / ("models" if (STORED / "models" / name).exists() else "kinds/models")
    with pytest.raises(SeqgenError, match=re.escape(says)):
        call(seqgen.load(folder / name))


@needs("exchange", "chat")
def test_chat_is_that_of_the_command(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    from chat_templates import TEMPLATES

    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    path = checkpoint("qwen2", tmp_path / "smol")
    (path / "chat_template.jinja").write_text(TEMPLATES["smollm"], encoding="utf-8")
    assert run(["import", str(path), "--name", "smol", "--quiet"]) == 0
    model, settings = seqgen.load("smol"), {"max_tokens": 12, "seed": 1, "temperature": 0.7}
    answer = model.chat("the cat", **settings)
    assert answer == model.chat([{"role": "user", "content": "the cat"}], **settings)
    (tmp_path / "asked").write_text("the cat\n")
    flags = ("--max-tokens", "12", "--seed", "1", "--temperature", "0.7")
    with (tmp_path / "asked").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        (record,) = records(capsys, "chat", "-m", "smol", *flags)
    assert record["text"] == answer.text and record["prompt"] == answer.prompt
    assert "<|im_start|>" in answer.prompt and answer.tokens <= 12
    for wrong in ([], [{"role": "user"}], 5, ["a"]):
        with pytest.raises((SeqgenError, TypeError)):
            model.chat(wrong, **settings)


def test_a_string_that_names_a_file_is_no_text(tmp_path, monkeypatch):
    """A user of the command line expects the file to be read, and would get its name's score."""
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("ab ba")
    model = Model(fake(documents="line"))
    for call in (lambda: seqgen.score(model, "t.txt"), lambda: seqgen.compare([model], "t.txt")):
        with pytest.raises(UsageError, match=r"file: give Path\('t\.txt'\), or \['t\.txt'\] for"):
            call()


def test_errors_are_seqgens_own(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path))
    with pytest.raises(SeqgenError, match="no trained model yet"):
        seqgen.load("latest")
    model = Model(fake())
    with pytest.raises(UsageError, match="--top-k"):
        model.sample("a", top_k=0)
    with pytest.raises(SeqgenError, match="does not know"):
        next(model.sample("a~"))


@pytest.mark.parametrize("tokenizer", [ALPHABET, KINDS["byte"]()], ids=["char", "byte"])
def test_half_a_surrogate_pair_is_no_text(tokenizer):
    model = Model(fake(tokenizer))
    for write in (model.sample, model.stream, model.beam_search, model.suggest):
        with pytest.raises(SeqgenError, match=r"^prompt 0 is not UTF-8 text: U\+D83D at offset 2$"):
            next(write("ab\ud83d"))
    for option in ("ban", "force", "stop"):
        with pytest.raises(UsageError, match=f"^--{option} is not UTF-8 text: byte 0xff at"):
            model.sample("a", **{option: "\u00e9\udcff"})
    with pytest.raises(UsageError, match="--stop is not UTF-8"):
        model.beam_search("a", stop=["b", "\udcff"])


def test_one_text_stands_for_several():
    model = Model(fake())
    settings = {"seed": 3, "max_tokens": 60, "num_samples": 9}
    for option in ("ban", "stop"):
        found = [list(model.sample("", **settings, **{option: t})) for t in ("ab", ["ab"], ("ab",))]
        assert found[0] == found[1] == found[2]
        assert found[0] != list(model.sample("", **settings, **{option: ["a", "b"]}))
    beams = [list(model.beam_search("", stop=t, max_tokens=8)) for t in ("ab", ["ab"])]
    assert beams[0] == beams[1]
    with pytest.raises(UsageError, match="--ban is not text but 3"):
        model.sample("a", ban=[3])
    with pytest.raises(UsageError, match="--force must be a text, not None"):
        model.sample("a", force=None)

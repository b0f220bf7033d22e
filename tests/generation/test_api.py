"""The Python API: what it gives is what the tasks give; importing it loads no torch."""

import dataclasses
import importlib
import json
import pkgutil
import subprocess
import sys

import pytest
from helpers_cli import is_usable
from known_models import ALPHABET, fake
from places import STORED

import seqgen
from seqgen.errors import SeqgenError, UsageError
from seqgen.generation.beam_search import beam_search
from seqgen.generation.model import Model
from seqgen.generation.sample import sample
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

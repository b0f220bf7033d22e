"""`seqgen.train`, `seqgen.score` and `seqgen.compare` give what the command line gives."""

import json

import pytest
from places import ROOT

import seqgen
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError

TEXT = (ROOT / "corpora" / "play.txt").read_text(encoding="utf-8")[:5000]


@pytest.fixture
def said(capsys):
    """Run a command and return its records."""

    def records(*command):
        assert run([*command, "--json", "--quiet"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return records


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Train a bigram and a trigram model on a file, from Python."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT)
    return [
        seqgen.train(data, architecture="ngram", order=order).name
        for data, order in (("a.txt", 2), ([tmp_path / "a.txt"], 3))
    ]


def test_a_model_is_trained_on_a_path_or_on_strings(models, capsys):
    assert models == ["a-ngram", "a-ngram-2"]
    lines = TEXT.splitlines(keepends=True)
    for text in (TEXT, iter(lines)):
        result = seqgen.train(text=text, architecture="ngram", settings={"order": 2})
        assert result.name.startswith("text-ngram")
        assert seqgen.load(result.name).loaded.stored.digest == _digest("a-ngram")
    named = seqgen.train(text=TEXT, architecture="ngram", stem="play")
    assert named.name == "play-ngram"
    assert capsys.readouterr() == ("", "")


def _digest(name):
    return seqgen.load(name).loaded.stored.digest


def test_what_cannot_be_trained_on_is_refused(models):
    with pytest.raises(UsageError, match="data or text"):
        seqgen.train()
    with pytest.raises(UsageError, match="data or text"):
        seqgen.train("a.txt", text="abc")
    with pytest.raises(UsageError, match="hidden_siz"):
        seqgen.train("a.txt", hidden_siz=3)
    with pytest.raises(SeqgenError, match="the text is not UTF-8 text"):
        seqgen.train(text=["ab", "\ud83d"])
    with pytest.raises(SeqgenError, match="the text is not text but 3"):
        seqgen.train(text=[3])


def test_what_is_no_text_is_refused_in_a_line(models):
    model = seqgen.load(models[0])
    for call in (model.score, lambda x: [*model.sample(x)], lambda x: [*model.suggest(x)]):
        with pytest.raises(SeqgenError, match="is not text but 5"):
            call(5)


@pytest.mark.parametrize("options", [{}, {"documents": "line", "no_end": True}])
def test_scores_are_those_of_the_command_line(models, said, tmp_path, options):
    flags = ["--documents", "line", "--no-end"] if options else []
    name, path = models[1], tmp_path / "a.txt"
    (shown,) = said("perplexity", "-m", name, str(path), *flags)
    given = [seqgen.load(name), name], [path, TEXT, TEXT.splitlines(keepends=True)]
    for model in given[0]:
        for text in given[1]:
            record = seqgen.score(model, text, **options)
            assert record.nll_nats == pytest.approx(shown["nll_nats"])
            assert record.signature == shown["signature"] and record.words == shown["words"]
    (held_out,) = said("perplexity", "-m", name)
    assert seqgen.score(name).signature == held_out["signature"]
    with pytest.raises(UsageError, match="there is no option 'strides'"):
        seqgen.score(name, TEXT, strides=3)


def test_a_comparison_is_that_of_the_command_line(models, said, tmp_path):
    path = tmp_path / "a.txt"
    for given, flags in ((path, ["--data", str(path)]), (TEXT, ["--data", str(path)]), (None, [])):
        shown = said("compare", *models, *flags)
        records = seqgen.compare([models[0], seqgen.load(models[1])], given)
        assert [one.signature for one in records] == [one["signature"] for one in shown]
        assert [one.best for one in records] == [one["best"] for one in shown]
    with pytest.raises(UsageError, match="given twice"):
        seqgen.compare([models[0]] * 2, TEXT)
    with pytest.raises(UsageError, match="no option 'dynamic'"):
        seqgen.compare(models, TEXT, dynamic=0.1)
    with pytest.raises(UsageError, match="models to compare"):
        seqgen.compare([], TEXT)

"""Classifiers and taggers on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers_cli import needs, records, refusal
from places import CORPORA
from scipy.stats import binomtest

from seqgen import store
from seqgen.cli import run
from seqgen.engines.choice import ASKED_FOR

SMALL = ("--set", "embedding_size=8", "--batch-size", 8, "--seed", 3, "--quiet")
TEXTS = "".join(f"{'ab' * (i % 3)}{'xyz'[i % 2]}{i % 7}\t{'XY'[i % 2]}\n" for i in range(60))
SENTENCES = "".join(f"the DET\n{'ab'[i % 2]}{i % 5} {'AB'[i % 2]}\n\n" for i in range(40))


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text(TEXTS)
    return path


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "tagged.conll"
    path.write_text(SENTENCES)
    return path


def train(capsys, file, task, *more, name="m", model="bag"):
    """Train a small model; return its record."""
    given = ("--task", task, "--model", model, *SMALL, "--name", name)
    (record,) = records(capsys, "train", file, *given, *more)
    return record


@pytest.mark.parametrize(("task", "model"), [("classify", "birnn"), ("tag", "gru")])
def test_stopping_and_resuming_changes_nothing(task, model, texts, sentences, capsys):
    file = texts if task == "classify" else sentences
    given = ("--set", "hidden_size=8", "--set", "dropout=0.3", "--steps", 8)
    whole = train(capsys, file, task, *given, name="whole", model=model)
    train(capsys, file, task, *given, "--stop-after", 3, name="part", model=model)
    (resumed,) = records(capsys, "train", "--resume", "part", "--quiet")
    assert resumed["steps"] == whole["steps"] == 8
    assert (resumed["val_loss"], resumed["val_accuracy"]) == (
        whole["val_loss"],
        whole["val_accuracy"],
    )
    one, other = ((store.find(n).path / store.WEIGHTS).read_bytes() for n in ("whole", "part"))
    assert one == other


def test_sentences_of_any_lengths_can_be_accumulated(tmp_path, capsys):
    """Pieces of a batch, each with its own longest sentence, give the loss of the whole."""
    lines = ("".join(f"w{i}\t{'AB'[i % 2]}\n" for i in range(length)) for length in range(1, 33))
    path = tmp_path / "tagged.conll"
    path.write_text("\n".join(lines))
    given = ("--set", "hidden_size=8", "--dropout", 0, "--precision", "float64", "--steps", 4)
    one, three = (
        train(capsys, path, "tag", *given, "--set", f"accumulate={n}", name=f"m{n}", model="birnn")
        for n in (1, 3)
    )
    assert three["val_loss"] == pytest.approx(one["val_loss"], rel=1e-9)


def test_a_classifier_learns_and_its_figures_agree(texts, capsys, stdin, monkeypatch):
    record = train(capsys, texts, "classify", "--steps", 60, "--lr", "0.3")
    assert record["architecture"] == "bag-classifier" and record["val_accuracy"] == 1
    logged = [json.loads(line) for line in _metrics("m")]
    assert [r["figures"]["accuracy"] for r in logged if "val_loss" in r][-1] == 1
    (found,) = records(capsys, "eval", "-m", "m", "--quiet")
    with monkeypatch.context() as patch:
        patch.setattr("seqgen.store.loading.engine_of", lambda *_: ASKED_FOR)
        (same,) = records(capsys, "eval", "-m", "m", "--quiet")
    assert same["nats_per_label"] == pytest.approx(record["val_loss"])  # by PyTorch too
    assert found["nats_per_label"] == pytest.approx(record["val_loss"], abs=1e-6)  # over arrays
    assert found["accuracy"]["value"] == 1 and found["accuracy"]["low"] < 1
    assert found["entity_f1"] is None and found["file"] == "validation"
    stdin(b"ababx3\ny1\n")
    told = records(capsys, "predict", "-m", "m")
    assert [list(r) for r in told] == [["index", "text", "label", "probability"]] * 2
    assert [(r["index"], r["label"]) for r in told] == [(0, "X"), (1, "Y")]
    assert all(0.5 < r["probability"] <= 1 for r in told)
    assert run(["predict", str(texts), "-m", "m"]) == 0  # a tab is text here
    assert len(capsys.readouterr().out.splitlines()) == 60


# Two texts of the same words, which only their order distinguishes.
SAME_WORDS = (
    "Scientist exterminated by raging virus!\tvirus\n"
    "Virus exterminated by raging scientist!\tscientist\n"
)


@pytest.mark.fast_for("bag-*", "bag of bigrams-*", "lstm-*", rest="slow")
@pytest.mark.parametrize(
    ("model", "accuracy"), [("bag", 0.5), ("bag of bigrams", 1), ("birnn", 1), ("lstm", 1)]
)
def test_a_bag_of_words_cannot_know_their_order(model, accuracy, tmp_path, capsys):
    file = tmp_path / "order.tsv"
    file.write_text(SAME_WORDS * 20)
    model, *more = model.split(" of ")
    size = ("--set", "ngrams=2" if more else "dropout=0")
    size = size if model == "bag" else ("--set", "hidden_size=16")
    given = ("--task", "classify", "--model", model, "--val", file, *size)
    how = ("--batch-size", 8, "--lr", "0.02", "--steps", 60, "--seed", 3, "--quiet", "--name", "m")
    (record,) = records(capsys, "train", file, *given, *how)
    assert record["val_accuracy"] == accuracy
    assert store.find("m").config["data"]["tokenizer"] == "uncased"


def _metrics(name):
    return (store.find(name).path / store.METRICS).read_text().splitlines()


def test_a_tagger_writes_columns(sentences, capsys, stdin):
    train(capsys, sentences, "tag", "--steps", 60, "--lr", "0.3")
    stdin(b"the\nb2\n\n\na1\n")
    assert run(["predict", "-m", "m"]) == 0
    assert capsys.readouterr().out == "the\tDET\nb2\tB\n\na1\tA\n\n"
    (one,) = records(capsys, "predict", _file(sentences, "b3 x\n"), "-m", "m")
    assert list(one) == ["index", "tokens", "tags", "probabilities"]
    assert (one["tokens"], one["tags"]) == (["b3"], ["B"])
    (found,) = records(capsys, "eval", sentences, "-m", "m", "--quiet")
    assert found["labels"] == 80 and found["examples"] == 40
    counts = np.array(found["confusion"]["counts"])
    assert found["accuracy"]["value"] == counts.trace() / counts.sum() == 1
    assert run(["eval", str(sentences), "-m", "m", "-m", "m"]) == 0
    assert "macro-F1" in capsys.readouterr().out


@needs("tune")
def test_labels_are_counted_as_labels_everywhere(tmp_path, capsys):
    """Two words in three are tags of one long sentence, which `--max-source-len` leaves out."""
    short = "".join(f"the DET\n{'ab'[i % 2]}{i % 5} {'AB'[i % 2]}\n\n" for i in range(40))
    file = tmp_path / "tagged.conll"
    file.write_text(short + "".join(f"the DET\na{i} A\n" for i in range(40)) + "\n" + short)
    held_out = tmp_path / "held-out.conll"
    held_out.write_text(file.read_text())
    given = [file, "--task", "tag", "--model", "bag", "--val", held_out, *SMALL[:-1]]
    given = [*map(str, given), "--max-source-len", "9"]
    assert run(["train", *given, "--steps", "3", "--name", "m"]) == 0
    said = capsys.readouterr().err
    assert "; 160 labels to train on, 160 held out; 3 steps" in said
    assert "\n  labels         48, " in said  # 3 steps of 8 sentences of 2 words
    assert "tokens/s" not in said and "nats/token" not in said
    assert " tokens " not in said.split("held out;")[1]
    (found,) = records(capsys, "eval", "-m", "m", "--quiet")
    assert (found["examples"], found["labels"]) == (80, 160)
    assert run(["models", "show", "m"]) == 0
    shown = capsys.readouterr().out
    assert "3 steps, 48 labels in" in shown
    assert " nats/label" in shown and "nats/token" not in shown
    assert run(["find-lr", *given]) == 0
    assert capsys.readouterr().out.startswith("nats/label by learning rate")


@needs("tune")
def test_a_search_says_nats_per_label(texts, capsys):
    given = ("--task", "classify", "--model", "bag", "--search", "dropout=0.1:0.2")
    assert run(["tune", *map(str, (texts, *given)), "--trials", "1", "--trial-steps", "2"]) == 0
    said = capsys.readouterr().err
    assert said.count("nats/label") == 2 and "nats/token" not in said
    (best,) = store.studies_folder().glob("*/best.toml")
    assert "nats per label" in best.read_text()


def test_of_many_labels_the_most_confused_pairs_are_shown(tmp_path, capsys, monkeypatch):
    """Label i is predicted by the letter i; some texts have another label than their letter's."""
    letters = "abcdefghijklmnopqr"
    wrong = {"b": ("c", 3), "d": ("e", 2), "f": ("a", 1)}
    file, mixed = tmp_path / "t.tsv", tmp_path / "mixed.tsv"
    file.write_text("".join(f"{x}\t{x.upper()}\n" for x in letters) * 20)
    train(capsys, file, "classify", "--steps", 200, "--lr", "0.3", "--val", "none")
    lines = [f"{x}\t{x.upper()}\n" * 5 for x in letters]
    lines += [f"{like}\t{x.upper()}\n" * times for x, (like, times) in wrong.items()]
    mixed.write_text("".join(lines))
    assert run(["eval", str(mixed), "-m", "m"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["majority", "label", "8.33%", "(B)"] in rows  # 8 of 96
    assert rows[-3:] == [
        ["B", "C", "3", "37.50%"],
        ["D", "E", "2", "28.57%"],
        ["F", "A", "1", "16.67%"],
    ]
    (found,) = records(capsys, "eval", mixed, "-m", "m")
    assert found["majority"] == {"label": "B", "accuracy": pytest.approx(8 / 96)}
    # The figures of a few labels are the same if those that are not met are left out.
    mixed.write_text("".join(line for line in lines if line[0] in "bc"))
    whole = records(capsys, "eval", mixed, "-m", "m")[0]
    monkeypatch.setattr("seqgen.plugins.labels.evaluate.MOST_LABELS", 17)
    met = records(capsys, "eval", mixed, "-m", "m")[0]
    assert met.pop("confusion") == {"labels": ["B", "C"], "counts": [[5, 3], [0, 5]]}
    assert met.pop("by_label") == [row for row in whole.pop("by_label") if row["label"] in "BC"]
    assert whole.pop("confusion")["labels"] == list(letters.upper())
    assert met == whole


def _told(capsys, file, name):
    return records(capsys, "predict", file, "-m", name)


@pytest.mark.parametrize("swapped", [True, False])
def test_labels_before_their_texts_are_noticed(swapped, tmp_path, capsys):
    sides = [(f"text {i}", "XY"[i % 2]) for i in range(80)]
    lines = ("\t".join(side[::-1] if swapped else side) for side in sides)
    (tmp_path / "t.tsv").write_text("".join(f"{line}\n" for line in lines))
    more = ("--model", "bag", "--steps", "1", "--val", "none", "--seed", "1")
    assert run(["train", str(tmp_path / "t.tsv"), "--task", "classify", *more]) == 0
    said = "80 different labels of 80 texts: a line is a text, a tab and then the text's label"
    assert (said in capsys.readouterr().err) is swapped


def test_classifiers_are_compared_by_accuracy(texts, capsys):
    """The figures are those of `predict`, counted by hand, and of `eval`."""
    train(capsys, texts, "classify", "--steps", 2, name="short")
    train(capsys, texts, "classify", "--steps", 60, "--lr", "0.3", name="long")
    truth = [line.split("\t")[1] for line in TEXTS.splitlines()]
    file = _file(texts, "".join(line.split("\t")[0] + "\n" for line in TEXTS.splitlines()))
    right = {
        name: [r["label"] == t for r, t in zip(_told(capsys, file, name), truth, strict=True)]
        for name in ("short", "long")
    }
    short, long = records(capsys, "compare", "short", "long", "--data", texts, "--quiet")
    assert (short["best"], long["p_value"], long["mcnemar"]) == ("long", None, None)
    pairs = list(zip(right["short"], right["long"], strict=True))
    only_this, only_best = pairs.count((True, False)), pairs.count((False, True))
    found = short["mcnemar"]
    assert (found["only_this"], found["only_best"]) == (only_this, only_best)
    exact = binomtest(only_this, only_this + only_best).pvalue
    assert found["p_value"] == pytest.approx(exact) and only_best > 10
    assert short["difference"]["value"] == pytest.approx((only_this - only_best) / 60)
    assert short["difference"]["high"] < 0 and short["p_value"] < 0.01
    (measured,) = records(capsys, "eval", texts, "-m", "short", "--quiet")
    assert short["accuracy"] == measured["accuracy"]
    held_out = records(capsys, "compare", "short", "long", "--quiet")
    assert [r["examples"] for r in held_out] == [6, 6]
    assert run(["compare", "short", "long", "--data", str(texts)]) == 0
    assert "McNemar's p" in capsys.readouterr().out


def test_taggers_are_compared_by_sentences(sentences, capsys):
    train(capsys, sentences, "tag", "--steps", 2, name="short")
    train(capsys, sentences, "tag", "--steps", 60, "--lr", "0.3", name="long")
    short, long = records(capsys, "compare", "short", "long", "--data", sentences, "--quiet")
    assert (long["examples"], long["labels"], long["accuracy"]["value"]) == (40, 80, 1)
    assert short["mcnemar"] is None and 0 < short["p_value"] < 1
    assert short["difference"]["value"] == pytest.approx(short["accuracy"]["value"] - 1)
    train(capsys, sentences, "tag", "--steps", 1, "--val", "0.2", name="other")
    said = refusal(capsys, "compare", "long", "other")
    assert "long and other held out different examples; give --data FILE" in said


def _file(beside, text):
    path = beside.with_name("other.txt")
    path.write_text(text)
    return path


def test_entities_are_scored_where_tags_mark_them(sentences, capsys):
    from seqeval.metrics import f1_score

    marked = SENTENCES.replace(" DET", " O").replace(" A\n", " B-A\n").replace(" B\n", " I-B\n")
    file = _file(sentences, marked)
    train(capsys, file, "tag", "--steps", 2)
    (found,) = records(capsys, "eval", file, "-m", "m", "--quiet")
    told = records(capsys, "predict", file, "-m", "m")
    truth = [["O", "I-B" if r["tokens"][1][0] == "b" else "B-A"] for r in told]
    assert found["entity_f1"]["value"] == pytest.approx(f1_score(truth, [r["tags"] for r in told]))
    assert "entities:conlleval" in found["signature"]


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_a_language_model_becomes_a_tagger(model, sentences, tmp_path, capsys):
    """Layer by layer, from its weights; and then a tagger of the same labels goes on from that."""
    text = tmp_path / "text.txt"
    text.write_text("the a1\nthe b2\n" * 30)
    shape = ("--set", "hidden_size=8", "--layers", 1, "--seq-len", 16, "--steps", 2, "--seed", 1)
    given = ("--model", model, *shape, "--tokenizer", "whitespace", "--name", "lm", "--quiet")
    records(capsys, "train", text, *given)
    tuned = ("--init-from", "lm", "--set", "unfreeze=0.9", "--set", "layer_decay=0.4")
    more = ("--schedule", "slanted_triangular", "--steps", 2, "--seed", 1, "--quiet")
    (record,) = records(
        capsys, "train", sentences, "--task", "tag", *tuned, *more, "--name", "tagger"
    )
    assert record["architecture"] == f"{model}-tagger"
    own = store.find("tagger").load()[0]
    origin = store.find("lm").load()[0]
    # Two steps of a budget in which layers thaw: the embedding has not begun to.
    same = (own.trunk.model.embedding.weight == origin.embedding.weight).all()
    assert same and (own.head.bias != 0).any()
    (again,) = records(
        capsys, "train", sentences, "--init-from", "tagger", "--lr", "1e-9", *more, "--name", "n"
    )
    assert again["architecture"] == record["architecture"]
    assert again["val_loss"] == pytest.approx(record["val_loss"], abs=1e-4)


def test_ulmfit_fine_tunes_a_language_model_into_a_classifier(texts, tmp_path, capsys):
    """The preset's settings, on the model of the origin; another architecture is refused."""
    text = _file(texts, "".join(line.split("\t")[0] + "\n" for line in TEXTS.splitlines()))
    shape = ("--set", "hidden_size=8", "--layers", 2, "--steps", 2, "--seed", 1, "--quiet")
    for model in ("lstm", "gru"):
        given = ("--model", model, *shape, "--documents", "line", "--name", model)
        records(capsys, "train", text, *given)
    more = ("--preset", "ulmfit", "--steps", 2, "--seed", 1, "--quiet")
    (record,) = records(capsys, "train", texts, "--init-from", "lstm", *more, "--name", "c")
    assert record["architecture"] == "lstm-classifier"
    config = store.find("c").config
    assert (config["preset"], config["model"]["pooling"]) == ("ulmfit", "all")
    training = config["training"]
    assert (training["schedule"], training["unfreeze"]) == ("slanted_triangular", 0.5)
    assert training["layer_decay"] == pytest.approx(1 / 2.6)
    assert "--preset ulmfit fine-tunes a model: add --init-from" in refusal(
        capsys, "train", texts, *more
    )
    assert "ulmfit is a preset: give --preset ulmfit" in refusal(
        capsys, "train", texts, "--model", "ulmfit"
    )
    said = refusal(capsys, "train", texts, "--init-from", "gru", *more)
    assert "the architecture of gru is gru, not lstm-classifier" in said


REFUSED = [
    (("sample",), "is a classifier, no language model: use seqgen predict"),
    (("beam-search", "a"), "is a classifier, no language model"),
    (("perplexity", "FILE"), "is a classifier, no language model"),
    (("compare", "m", "m"), "a model is given twice"),
    (("compare", "--all", "m"), "--all has no meaning for models that predict labels"),
    (("compare", "m", "--precisions", "float32"), "--precisions has no meaning for models that"),
    pytest.param(
        ("diagnose", "FILE"), "is a classifier, no language model", marks=needs("inspect")
    ),
    pytest.param(
        ("export", "m", "--format", "arpa", "--out", "m.arpa"), "m", marks=needs("exchange")
    ),
    (("eval", "--bleu"), "--bleu has no meaning for models that predict labels"),
]


@pytest.mark.fast_for("command[0-4]*", rest="slow")
@pytest.mark.parametrize(("command", "said"), REFUSED)
def test_commands_that_need_a_language_model_refuse_it(command, said, texts, capsys):
    train(capsys, texts, "classify", "--steps", 1)
    arguments = [str(texts) if word == "FILE" else word for word in command]
    given = [] if "m" in command else ["-m", "m"]
    assert said in refusal(capsys, *arguments, *given)


def test_bad_training_data(texts, capsys):
    given = ("--model", "bag", *SMALL, "--steps", 1)
    same = _file(texts, "a\tX\nb\tX\n")
    said = refusal(capsys, "train", same, "--task", "classify", *given)
    assert "the only label is 'X'" in said
    said = refusal(capsys, "train", _file(texts, "a\tX\n\nb\tY\n"), "--task", "classify", *given)
    assert "other.txt, line 2 has no tab; each line is text<TAB>label" in said
    other = _file(texts, "a\tX\nb\tZ\n")
    said = refusal(
        capsys, "train", texts, "--task", "classify", *given, "--val", other, "--set", "dropout=0"
    )
    assert "other.txt, line 2: unknown label 'Z'" in said


def test_a_model_can_be_replaced_and_removed(texts, capsys):
    train(capsys, texts, "classify", "--steps", 1)
    train(capsys, texts, "classify", "--steps", 2, "--overwrite")
    assert run(["models", "remove", "m", "--yes"]) == 0
    assert "there is no model named 'm'" in refusal(capsys, "predict", texts, "-m", "m")


def test_wrong_usage(texts, capsys):
    given = (*SMALL, "--steps", 1)
    cases = {
        ("--model", "bag"): "bag is an encoder, which learns labels: give --task classify or tag",
        ("--task", "sort"): "no task is called 'sort'",
        ("--task", "tag", "--model", "ngram"): "ngram is neither; try --model birnn",
        ("--task", "tag", "--seq-len", 9): "--seq-len has no meaning",
        ("--task", "classify", "--documents", "stream"): "documents=stream has no meaning",
        ("--task", "classify", "--regime", "scheduled"): "is for language models",
    }
    for arguments, said in cases.items():
        assert said in refusal(capsys, "train", texts, *given, *arguments)
    both = ("--source", texts, "--target", texts, "--task", "classify")
    assert "takes no --target" in refusal(capsys, "train", *given, *both)
    assert "m predicts no labels" in _refused_prediction(texts, capsys)


def _refused_prediction(texts, capsys):
    lm = ("--model", "ngram", "--order", 2, "--name", "m", "--quiet")
    records(capsys, "train", texts, *lm)
    return refusal(capsys, "predict", texts, "-m", "m")


@needs("hopfield")
def test_bad_texts_to_predict(texts, sentences, capsys, stdin):
    train(capsys, texts, "classify", "--steps", 1)
    stdin(b"a\n\nb\n")
    assert run(["predict", "-m", "m"]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1  # what came before the problem
    assert "standard input, line 2 is an empty text" in said.err
    bad = _file(texts, "a\tX\nb\tW\n")
    assert "other.txt, line 2: unknown label 'W'" in refusal(capsys, "eval", bad, "-m", "m", "-q")
    train(capsys, sentences, "tag", "--steps", 1, name="t")
    assert "no language model" in refusal(capsys, "mix", "m", "t", "--name", "x")
    assert "m:0.5+t:0.5 is a mixture" in refusal(capsys, "predict", texts, "-m", "m+t")
    assert "is a mixture" in refusal(capsys, "eval", "-m", "m+t", "--quiet")
    assert "t is not an associative memory" in refusal(capsys, "restore", "a", "-m", "t")
    for command in ("sample", "beam-search"):
        said = refusal(capsys, command, "a", "-m", "t", "--align")
        assert "t is a tagger, no language model" in said
    assert "different kinds" in refusal(capsys, "eval", "-m", "m", "-m", "t")


def test_a_text_longer_than_the_window_is_named(texts, capsys, stdin):
    shape = ("--set", "hidden_size=8", "--layers", 1, "--max-source-len", 8)
    given = ("--task", "classify", "--model", "transformer", *shape, "--steps", 1)
    records(capsys, "train", texts, *given, "--seed", 1, "--name", "m", "--quiet")
    stdin(b"ab\nababababab\n")
    assert run(["predict", "-m", "m"]) == 1
    assert "line 2: the text has 10 tokens, and m reads at most 8" in capsys.readouterr().err


@pytest.mark.slow
def test_what_comes_after_decides_tags(capsys):
    """A bidirectional tagger beats one that reads forward by far, on words that need it."""
    told = {}
    for directions in ("bidirectional", "forward"):
        shape = ("--hidden-size", 64, "--set", f"directions={directions}", "--epochs", 4)
        given = ("--task", "tag", "--model", "birnn", *shape, "--seed", 1, "--quiet")
        records(capsys, "train", CORPORA / "tags.tsv", *given, "--name", directions)
        (told[directions],) = records(capsys, "eval", "-m", directions, "--quiet")
    both, forward = (told[name]["accuracy"] for name in ("bidirectional", "forward"))
    assert both["low"] > 0.97 and forward["high"] < 0.92


@pytest.mark.parametrize("kind", ["bag", "transformer", "lstm"])
def test_vectors_of_texts_are_those_that_the_head_reads(kind, texts, tmp_path, capsys):
    words = pytest.importorskip("seqgen.plugins.vectors.words")
    wide = ("--layers", 1, "--hidden-size", 8)
    shape = {"bag": (), "transformer": (*wide, "--heads", 2), "lstm": wide}
    given = ("--task", "classify", "--model", kind, *shape[kind], "--seed", 1)
    more = ("--tokenizer", "char", "--set", "pooling=mean", "--steps", 1, "--name", "m", "--quiet")
    records(capsys, "train", texts, *given, *more)
    path = _file(texts, "".join(line.split("\t")[0] + "\n" for line in TEXTS.splitlines()[:3]))
    found = np.array([r["vector"] for r in records(capsys, "vectors", "-m", "m", "--file", path)])
    told = [r["probability"] for r in records(capsys, "predict", path, "-m", "m")]
    head = words.load_vectors("m").model.head
    logits = found @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    odds = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose((odds / odds.sum(1, keepdims=True)).max(1), told, rtol=1e-4)
    given = ("vectors", "-m", "m", "--file", path)
    assert "only --pool mean or none" in refusal(capsys, *given, "--pool", "last")
    if kind == "transformer":
        path.write_text("a\n" + "b" * 3000 + "\n")
        assert run(list(map(str, given))) == 1
        assert "line 2 has 3,000 tokens, and m reads at most" in capsys.readouterr().err


def test_all_that_compare_means_are_language_models(texts, tmp_path, capsys):
    train(capsys, texts, "classify", "--steps", 1, name="labelled")
    alone = refusal(capsys, "compare", "--all", "--data", str(texts))
    assert "there is no trained language model" in alone
    for order in ("1", "2"):
        run(["train", str(texts), "--model", "ngram", "--order", order, "--name", f"n{order}"])
    capsys.readouterr()
    found = records(capsys, "compare", "--all", "--data", texts, "--json", "--quiet")
    assert sorted(record["model"] for record in found) == ["n1", "n2"]

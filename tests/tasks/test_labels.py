"""Texts written from labels: read before the text, never written, never scored, kept with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers_cli import needs, records, refusal

from seqgen import registry, store
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import read_config
from seqgen.store.loading import load
from seqgen.store.ownership import foreign_paths
from seqgen.text.batches import IGNORED, DocumentBatches
from seqgen.text.corpus import Corpus
from seqgen.text.labels import Labels, with_labels_read
from seqgen.text.sources import TokenSources
from seqgen.text.tokenizers import KINDS

LINES = "a\taaaa\nb\tbbbb\na|long\taaaaaaaa\nlong | b\tbbbbbbbb\n" * 12
TINY = ("--steps", 40, "--layers", 1, "--hidden-size", 12, "--batch-size", 8, "--lr", 0.03)


def labels(names=("a", "b", "long"), first=10) -> Labels:
    """Return labels over a vocabulary of ten tokens."""
    return Labels(names, first, 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store with the labelled models `gru` and `tf`, and `plain`, which knows no labels."""
    folder = tmp_path_factory.mktemp("labels")
    (folder / "names.tsv").write_text(LINES)
    (folder / "plain.txt").write_text("aaaa\nbbbb\n" * 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        common = (*TINY, "--seed", 1, "--val", "0.1")
        train(folder / "names.tsv", "--labels", "--model", "gru", "--name", "gru", *common)
        heads = ("--heads", 2, "--seq-len", 6)
        train(
            *(folder / "names.tsv", "--labels", "--model", "transformer", "--name", "tf"),
            *(*heads, *common),
        )
        train(
            *(folder / "plain.txt", "--documents", "line", "--model", "gru", "--name", "plain"),
            *(*TINY[2:], "--steps", 2, "--seed", 1),
        )
        yield folder


def train(*arguments) -> None:
    """Train in this process."""
    assert run(["train", *map(str, arguments), "--quiet"]) == 0


# What a model reads.


def test_the_order_of_labels_means_nothing_and_spaces_around_them_neither():
    known = labels()
    assert known.ids("long|a") == known.ids("a | long") == known.ids("a|a|long") == [1, 10, 12]


def test_training_reads_the_labels_first_and_scores_the_text_alone():
    # Texts 5 6 EOS and 7 EOS, with the labels a, long and b.
    corpus = Corpus(
        tokens=np.array([5, 6, 2, 7, 2], dtype=np.uint8),
        ends=np.array([3, 5]),
        start=1,
        sources=TokenSources.of([[1, 10, 12], [1, 11]]),
    )
    read = with_labels_read(corpus, labels())
    assert read.tokens.tolist() == [10, 12, 1, 5, 6, 2, 11, 1, 7, 2]
    assert read.ends.tolist() == [6, 10]
    batch = DocumentBatches(read, 2, 16, seed=0, carry=True).batch(0)
    rows = {tuple(row) for row in batch.tokens.tolist()}
    assert (1, 10, 12, 1, 5, 6) in rows
    of_long = batch.targets[batch.tokens[:, 1] == 10][0].tolist()
    assert of_long == [IGNORED, IGNORED, IGNORED, 5, 6, 2]
    assert batch.count == 5


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("carry", [True, False])
def test_windows_that_cut_a_text_score_every_token_of_it_once(window, carry):
    tokens, ends = np.array([5, 6, 2, 7, 2], dtype=np.uint8), np.array([3, 5])
    sources = TokenSources.of([[1, 10, 12], [1, 11]])
    read = with_labels_read(Corpus(tokens, ends, 1, sources=sources), labels())
    batches = DocumentBatches(read, 2, window, seed=0, carry=carry)
    scored = [batches.batch(step).targets for step in range(batches.steps_per_epoch)]
    found = np.concatenate([targets[targets != IGNORED] for targets in scored])
    assert sorted(found.tolist()) == sorted(tokens.tolist())


def test_a_vocabulary_may_need_a_wider_type_with_its_labels():
    tokens, sources = np.array([5, 2], np.uint8), TokenSources.of([[1, 300]])
    corpus = Corpus(tokens, np.array([2]), 1, sources=sources)
    read = with_labels_read(corpus, Labels(tuple(map(str, range(50))), 255, 1))
    assert read.tokens.tolist() == [300, 1, 5, 2]


# What it scores.


@pytest.mark.parametrize("name", ["gru", "tf"])
def test_perplexity_is_that_of_the_text_after_its_labels(home, tmp_path, capsys, name):
    loaded = load(name)
    file = tmp_path / "some.tsv"
    file.write_text("b|long\tbb\na\ta\n")
    known, first = loaded.tokenizer, loaded.tokenizer.vocab_size
    assert loaded.labels.names == ("a", "b", "long")
    nats = 0.0
    for of, text in (([first + 1, first + 2], "bb"), ([first], "a")):
        ids = [known.bos_id, *of, known.bos_id, *known.encode(text).tolist(), known.eos_id]
        with torch.no_grad():
            log_probs = loaded.model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)[0]
        scored = range(len(of) + 1, len(ids) - 1)
        nats -= sum(log_probs[at, ids[at + 1]].item() for at in scored)
    (whole,) = records(capsys, "perplexity", file, "-m", name)
    assert whole["nll_nats"] == pytest.approx(nats, rel=1e-5)
    assert (whole["tokens"], whole["characters"]) == (5, 5)
    assert "given its labels" in whole["protocol"]
    each = records(capsys, "perplexity", file, "-m", name, "--per-line")
    assert [one["label"] for one in each] == ["b|long", "a"]
    assert sum(one["nll_nats"] for one in each) == pytest.approx(nats, rel=1e-5)


def test_plain_lines_are_scored_given_the_labels_of_the_command_line(home, tmp_path, capsys):
    labelled, plain = tmp_path / "l.tsv", tmp_path / "p.txt"
    labelled.write_text("a|long\taa\na|long\tb\n")
    plain.write_text("aa\nb\n")
    (one,) = records(capsys, "perplexity", labelled, "-m", "gru")
    (other,) = records(capsys, "perplexity", plain, "-m", "gru", "--label", "long", "--label", "a")
    assert one["nll_nats"] == other["nll_nats"]
    assert one["characters"] == other["characters"] == 5


def test_the_validation_loss_is_what_perplexity_gives(home, capsys):
    loaded = load("gru")
    (found,) = records(capsys, "perplexity", "-m", "gru")
    result = loaded.stored.record["result"]
    assert found["nll_nats"] / found["tokens"] == pytest.approx(result["val_loss"], rel=1e-6)
    assert found["bits_per_char"] == pytest.approx(result["val_bits_per_char"], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gru", {"hidden_size": 8}),
        pytest.param("window", {"hidden_size": 8}, marks=needs("window")),
        ("transformer", {"hidden_size": 8, "num_heads": 2, "window": 6}),
    ],
)
def test_any_model_of_text_opens_states_on_labels(name, settings):
    row = registry.architecture(name)
    torch.manual_seed(0)
    model = row.load_model()(row.load_config()(vocab_size=14, **settings)).double().eval()
    sources = TokenSources.of([[1, 10, 12], [1, 11], [1, 10]])
    handles = [1, 0, 2, 0]
    _, state = model.step([1] * 4, model.opens(sources)(handles))
    logits, _ = model.step([5, 6, 7, 8], state)
    for row_of, handle, token in zip(logits, handles, [5, 6, 7, 8], strict=True):
        begin, end = sources.starts[handle], sources.ends[handle]
        read = torch.tensor([[*sources.values[begin:end].tolist(), 1, token]])
        with torch.no_grad():
            wanted = model(read)[0][0, -1].numpy()
        np.testing.assert_allclose(row_of, wanted, rtol=1e-9)


def test_typed_prompts_go_on_given_the_label(home, monkeypatch, capsys):
    said = []
    monkeypatch.setattr("seqgen.cli.sample.is_terminal", lambda stream: True)
    monkeypatch.setattr(
        "seqgen.cli.sample.converse", lambda write, quiet: said.append("".join(write("b", 0)))
    )
    assert run(["sample", "-i", "-m", "gru", "--label", "b", "--greedy", "--echo"]) == 0
    (text,) = said
    assert text.startswith("bb")


# What it writes.


@pytest.mark.parametrize("name", ["gru", "tf"])
def test_a_model_writes_what_its_label_asks_for(home, capsys, name):
    for label in "ab":
        (found,) = records(capsys, "sample", "-m", name, "--label", label, "--greedy")
        assert set(found["text"]) == {label}
        assert found["label"] == label
        (best,) = records(capsys, "beam-search", "-m", name, "--label", label)
        assert best["text"].startswith(label)
        assert best["label"] == label


def test_a_prompt_goes_on_and_labels_are_never_written(home, capsys):
    found = records(
        *(capsys, "sample", "ab", "-m", "gru", "--label", "long", "--label", "a"),
        *("--num-samples", 20, "--temperature", 5, "--seed", 2),
    )
    assert {one["label"] for one in found} == {"long|a"}
    assert {one["prompt"] for one in found} == {"ab"}
    assert set("".join(one["text"] for one in found)) <= {"a", "b"}
    loaded = load("gru")
    assert set(range(loaded.labels.first, loaded.model.vocab_size)) <= set(loaded.never)


def test_texts_with_and_without_company_are_the_same(home, capsys):
    common = ("-m", "gru", "--label", "a", "--seed", 5, "--num-samples", 6)
    one = records(capsys, "sample", *common, "--batch-size", 1)
    many = records(capsys, "sample", *common, "--batch-size", 6)
    assert [found["text"] for found in one] == [found["text"] for found in many]


# Every other command.


def test_a_run_that_is_resumed_is_the_run_that_was_not_stopped(home):
    common = (home / "names.tsv", "--labels", "--model", "gru", "--seed", 3, *TINY[2:])
    train(*common, "--steps", 6, "--name", "whole")
    train(*common, "--steps", 6, "--name", "parts", "--stop-after", 3)
    assert run(["train", "--resume", "parts", "--quiet"]) == 0
    weights = [load(name).model.state_dict() for name in ("whole", "parts")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_fine_tuning_keeps_the_labels(home, tmp_path, capsys):
    file = tmp_path / "more.tsv"
    file.write_text("b\tbab\na\taba\n" * 10)
    train(file, "--init-from", "gru", "--name", "tuned", "--steps", 2)
    assert load("tuned").labels == load("gru").labels
    file.write_text("b\tbab\nc\taba\n" * 10)
    said = refusal(capsys, "train", file, "--init-from", "gru", "--steps", 2)
    assert f"{file}, line 2: unknown label 'c'" in said
    said = refusal(capsys, "train", file, "--init-from", "plain", "--labels", "--steps", 2)
    assert "plain has learned no labels" in said


def test_mixtures_and_comparisons_of_labelled_models(home, capsys):
    (found,) = records(capsys, "perplexity", home / "names.tsv", "-m", "gru+tf")
    each = records(capsys, "compare", "gru", "tf", "--data", home / "names.tsv")
    assert found["nll_nats"] > 0
    alone = records(capsys, "perplexity", home / "names.tsv", "-m", "gru", "-m", "tf")
    assert [one["bits_per_char"] for one in each] == pytest.approx(
        [one["bits_per_char"] for one in alone]
    )
    (text,) = records(capsys, "sample", "-m", "gru+tf", "--label", "b", "--greedy")
    assert set(text["text"]) == {"b"}
    assert "cannot be mixed" in refusal(capsys, "sample", "-m", "gru+plain")
    assert "cannot be scored together" in refusal(capsys, "perplexity", "-m", "gru", "-m", "plain")


def test_evaluation_scores_and_says_what_it_leaves_out(home, capsys):
    (found,) = records(capsys, "eval", "-m", "gru")
    assert found["perplexity"]["characters"] > 0
    assert list(found["missing"]) == ["continuations"]
    assert "nothing is continued" in refusal(capsys, "eval", "-m", "gru", "--bleu", "--quiet")


def test_a_labelled_model_is_replaced_and_removed(home, capsys):
    again = ("train", home / "names.tsv", "--labels", "--model", "rnn", "--name", "old", *TINY[2:])
    for more in ((), ("--overwrite",)):
        assert run([*map(str, (*again, *more)), "--steps", "1", "--quiet"]) == 0
    folder = store.find("old").path
    assert foreign_paths(folder) == []
    assert run(["models", "remove", "old", "--yes"]) == 0
    assert not folder.exists() and not list(folder.parent.glob(".old*"))


def test_nothing_is_said_of_a_tokenizer_of_the_labels(home, capsys):
    assert run(["tokenize", str(home / "names.tsv"), "-m", "gru"]) == 0
    assert "tokenizer" not in capsys.readouterr().err


def test_tokens_and_facts_of_a_labelled_model(home, tmp_path, capsys):
    file = tmp_path / "one.tsv"
    file.write_text("b|a\tab\n")
    (found,) = records(capsys, "tokenize", file, "-m", "gru")
    assert (found["source"], found["source_pieces"]) == ("b|a", ["a", "b"])
    assert run(["models", "show", "gru"]) == 0
    shown = capsys.readouterr().out
    assert "labels" in shown and "a, b, long" in shown


def test_the_python_interface_takes_labels(home):
    import seqgen

    model = seqgen.load("gru")
    (found,) = model.sample("", labels=["b"], greedy=True)
    assert set(found.text) == {"b"}


def test_subwords_that_are_drawn_anew_keep_their_labels(home, tmp_path):
    file = tmp_path / "s.tsv"
    file.write_text("a\tthe cat sat\nb\tthe hat sat on the mat\n" * 30)
    train(
        *(file, "--labels", "--model", "gru", "--name", "sub", "--steps", 3, *TINY[2:]),
        *("--tokenizer", "unigram", "--vocab-size", 280, "--set", "subword_sampling=0.2"),
    )
    assert load("sub").labels.names == ("a", "b")


# What is wrong.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\tx\nno tab\n", "line 2 has no tab; each line is label<TAB>text"),
        ("a\tx\n\ty\n", "line 2: an empty label in ''"),
        ("a\tx\na||b\ty\n", "line 2: an empty label in 'a||b'"),
        ("", "contains no text"),
    ],
)
def test_lines_that_are_not_labelled_are_refused(home, tmp_path, capsys, text, said):
    file = tmp_path / "bad.tsv"
    file.write_text(text)
    assert said in refusal(capsys, "train", file, "--labels", "--steps", 1)


def test_labels_are_said_once_and_without_spaces(home, capsys):
    how = ("sample", "-m", "gru", "--greedy", "--max-tokens", 3)
    (found,) = records(capsys, *how, "--label", " long", "--label", "a | long")
    assert found["label"] == "long|a"
    (plain,) = records(capsys, *how, "--label", "a", "--label", "long")
    assert plain["text"] == found["text"]


def test_an_unknown_label_is_named_with_its_line_and_the_nearest(home, tmp_path, capsys):
    file = tmp_path / "bad.tsv"
    file.write_text("a\taa\nlog\tbb\n")
    hint = "line 2: unknown label 'log'; did you mean 'long'? (there are a, b, long)"
    assert hint in refusal(capsys, "perplexity", file, "-m", "gru", "--quiet")
    assert "unknown label 'log'" in refusal(capsys, "sample", "-m", "gru", "--label", "log")
    said = refusal(
        *(capsys, "train", home / "names.tsv", "--labels", "--val", file, "--steps", 1),
    )
    assert hint in said


SIDES = ("--source", "plain.txt", "--target", "plain.txt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sample", "-m", "gru", "--seed", 1, "--quiet"), "give --label (a, b, long)"),
        (("beam-search", "-m", "gru"), "give --label (a, b, long)"),
        (("sample", "-m", "plain", "--label", "a"), "was trained without labels"),
        (("perplexity", "-m", "gru", "--label", "a"), "--label goes with a FILE"),
        (("perplexity", "names.tsv", "-m", "gru", "--documents", "stream"), "labelled lines"),
        (("train", "names.tsv", "--labels", "--model", "ngram"), "trained by gradients"),
        (("train", "names.tsv", "--labels", "--model", "seq2seq"), "learns from pairs"),
        (("train", "names.tsv", "--labels", "--documents", "stream"), "each line is a text"),
        (("train", "--labels", "--source", "names.tsv", "--target", "plain.txt"), "no --target"),
        (("beam-search", "-m", "gru", "--label", "a", "--max-ratio", 2), "--max-ratio is for"),
        (("sample", "-m", "gru"), "give --label (a, b, long)"),
        (("tokenize", "names.tsv", "-m", "gru", "--decode"), "texts without their labels (cut"),
        (
            ("eval", "-m", "gru", *SIDES),
            "--source is for models that write from sources; gru is a model of text with labels",
        ),
        (
            ("compare", "gru", "tf", *SIDES),
            "--source is for models that write from sources; gru is",
        ),
        (("perplexity", "plain.txt", "-m", "gru", *SIDES[:2]), "from sources; gru is a model of"),
        (
            ("eval", "-m", "plain", *SIDES),
            "--source is for models that write from sources; plain is",
        ),
        (
            ("eval", "-m", "gru", "--metric", "bleu"),
            "--metric is for models that write from sources; gru is",
        ),
        (("beam-search", "-m", "gru", "--label", "a", "--align"), "a model of text with labels"),
        pytest.param(
            ("eval", "-m", "gru", "--pairs", "names.tsv", "--quiet"),
            "--pairs is for models of text",
            marks=needs("minimal_pairs"),
        ),
    ],
)
def test_commands_that_make_no_sense_are_refused(home, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(home)
    assert said in refusal(capsys, *arguments)


def test_damaged_labels_are_said_so(home, tmp_path):
    known = labels()
    known.save(tmp_path)
    assert Labels.load(tmp_path) == known
    (tmp_path / "labels.json").write_text('{"names": []}')
    with pytest.raises(SeqgenError, match=r"labels\.json is missing or damaged"):
        Labels.load(tmp_path)


def test_labels_of_a_tokenizer_come_after_its_tokens():
    tokenizer = KINDS["char"].train(["ab"])
    known = Labels.of(["x|y", "x"], tokenizer)
    assert known.facts() == {"names": ["x", "y"], "first": tokenizer.vocab_size, "begin": 1}
    with pytest.raises(UsageError, match="unknown label 'z'"):
        known.ids("z")


def test_a_configuration_file_keeps_the_labels(home):
    stored = load("gru").stored
    config = read_config(stored.path / "config.json")
    assert config["data"]["labels"] is True
    assert config["data"]["documents"] == "line"

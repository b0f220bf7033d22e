"""Translators from the command line: training on pairs, writing from sources, scoring targets."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers_cli import has_plugin, needs, records, refusal
from small_pairs import HEADS, TINY, pairs_of, trained

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.scoring.perplexity import held_out_pairs, perplexity
from seqgen.store import StoredModel, cached_files
from seqgen.store.loading import load
from seqgen.text.pairs import TabPairs
from seqgen.text.reading import Text
from seqgen.text.tokenizers import load_tokenizer
from seqgen.training.resume import resume
from seqgen.training.train import train

NAMES = ("seq2seq", "seq2seq-transformer")


@pytest.fixture
def tsv(tmp_path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs_of()))
    return path


@pytest.fixture
def sides(tmp_path) -> tuple[Path, Path]:
    paths = tmp_path / "pairs.en", tmp_path / "pairs.de"
    for path, lines in zip(paths, zip(*pairs_of(), strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))
    return paths


# ---- training ----


def test_two_files_train_as_one_with_tabs(tsv, sides):
    joined = trained(tsv, "joined")
    apart = trained(sides[0], "apart", targets=[sides[1]])
    for one, other in zip(joined.model.parameters(), apart.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert list(held_out_pairs(joined)) == list(held_out_pairs(apart))


def test_a_tenth_is_held_out_with_both_sides_together(tsv):
    loaded = trained(tsv)
    held_out = list(held_out_pairs(loaded))
    assert len(held_out) == 4
    assert set(held_out) <= set(pairs_of())
    assert loaded.stored.record["data"]["target_files"] == 0


def test_a_tab_of_two_files_is_text(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_text("a\tb\nc\td\n\n" * 4)
    target.write_text("x\ty\n\nz\n" * 4)
    loaded = trained(source, targets=[target], val="0.5")
    assert set(held_out_pairs(loaded)) <= {("a\tb", "x\ty"), ("c\td", ""), ("", "z")}
    assert perplexity(loaded, held_out_pairs(loaded)).source_unknown == 0


def test_held_out_files_of_both_sides(tsv, sides, tmp_path, capsys):
    (tmp_path / "v.en").write_text("one two\nsix\n")
    (tmp_path / "v.de").write_text("ot\ns\n")
    train_flags = ["--model", "seq2seq", "--steps", "1", "--hidden-size", "8", "--quiet"]
    both = ["--source", sides[0], "--target", sides[1]]
    apart = ["--val-source", tmp_path / "v.en", "--val-target", tmp_path / "v.de"]
    (found,) = records(capsys, "train", *both, *apart, *train_flags, "--name", "apart")
    assert list(held_out_pairs(load("apart"))) == [("one two", "ot"), ("six", "s")]
    (tmp_path / "v.tsv").write_text("one two\tot\nsix\ts\n")
    val = ["--val", tmp_path / "v.tsv", "--seed", found["seed"]]
    records(capsys, "train", tsv, *val, *train_flags, "--name", "joined")
    assert list(held_out_pairs(load("joined"))) == [("one two", "ot"), ("six", "s")]


def test_going_on_needs_no_held_out_files(sides, tmp_path):
    source, target = tmp_path / "v.en", tmp_path / "v.de"
    source.write_text("one two\nsix\n")
    target.write_text("ot\ns\n")
    settings = {**TINY, "val": str(source), "val_target": str(target)}
    how = {"architecture": "seq2seq", "name": "t", "settings": settings, "targets": [sides[1]]}
    train([sides[0]], stop_after=2, **how)
    source.unlink()
    target.unlink()
    assert resume("t").stopped == "steps"
    assert list(held_out_pairs(load("t"))) == [("one two", "ot"), ("six", "s")]


def test_the_stored_validation_gives_the_loss_of_training(tsv, capsys):
    trained(tsv)
    (read,) = records(capsys, "perplexity", "-m", "t")  # over arrays
    (scored,) = records(capsys, "perplexity", "-m", "t", "--precision", "float32")  # by PyTorch
    assert read["nats_per_token"] == pytest.approx(scored["nats_per_token"], rel=1e-6)
    result = load("t").stored.record["result"]
    assert scored["file"] == "validation"
    assert scored["nats_per_token"] == pytest.approx(result["val_loss"], abs=1e-9)
    assert scored["bits_per_char"] == pytest.approx(result["val_bits_per_char"], abs=1e-9)


def test_pairs_that_are_too_long_are_left_out_and_counted(tsv):
    said = []
    limits = {"max_source_len": 9, "max_target_len": 2, "val": "0.3"}
    loaded = trained(tsv, report=lambda event: said.append(getattr(event, "text", "")), **limits)
    long = [p for p in pairs_of() if len(p[0]) > 9 or len(p[1]) > 2]
    assert any(text.startswith(f"{len(long)} pairs of 40 left out") for text in said)
    assert loaded.stored.record["data"]["dropped"] == len(long)
    assert not set(held_out_pairs(loaded)) & set(long)


def test_both_sides_limit_a_transformer(tsv):
    limits = {"max_source_len": 30, "max_target_len": 5, "positions": "learned"}
    config = trained(tsv, architecture="seq2seq-transformer", **limits).model.config
    assert (config.source_window, config.window) == (31, 6)


def test_separate_tokenizers(tsv, capsys):
    loaded = trained(tsv, tokenizer="char", source_tokenizer="word")
    own = load_tokenizer(loaded.stored.path / "source_tokenizer")
    assert (own.kind, loaded.tokenizer.kind) == ("word", "char")
    assert loaded.model.config.source_vocab_size == own.vocab_size
    assert own.first_unknown("one") is None
    joint = trained(tsv, "joint")
    assert not (joint.stored.path / "source_tokenizer").exists()
    assert joint.source_tokenizer is joint.tokenizer
    (found,) = records(capsys, "beam-search", "one two", "-m", "t")
    assert found["source"] == "one two"


def test_what_a_word_tokenizer_has_not_seen_in_training_is_unknown(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"w{n}\tt{n}\n" for n in range(30)))
    loaded = trained(path, tokenizer="word")
    source, target = next(iter(held_out_pairs(loaded)))
    assert loaded.tokenizer.first_unknown(source) is not None
    assert loaded.tokenizer.first_unknown(target) is not None
    assert perplexity(loaded, held_out_pairs(loaded)).source_unknown == 3


@pytest.mark.fast_for("seq2seq", rest="slow")
@pytest.mark.parametrize("architecture", NAMES)
def test_going_on_is_bit_for_bit(architecture, tsv, sides):
    more = {"steps": 9, "dropout": 0.3, "batch_tokens": 60}
    whole = trained(tsv, "whole", architecture, **more)
    settings = {**TINY, **HEADS[architecture], **more}
    settings |= {"source_tokenizer": "char"} if architecture == "seq2seq" else {}
    if architecture == "seq2seq":
        whole = trained(tsv, "whole2", architecture, source_tokenizer="char", **more)
    how = {"architecture": architecture, "name": "cut", "settings": settings}
    train([sides[0]], targets=[sides[1]], stop_after=4, **how)
    result = resume("cut")
    assert (result.steps, result.stopped) == (9, "steps")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, load("cut").model.state_dict()[name]), name
    expected = whole.stored.record["result"]["val_loss"]
    assert load("cut").stored.record["result"]["val_loss"] == expected


def test_sampled_segmentations_of_both_sides(tsv):
    subwords = {"tokenizer": "bpe", "vocab_size": 300, "subword_sampling": 0.5}
    loaded = trained(tsv, **subwords)
    assert math.isfinite(loaded.stored.record["result"]["val_loss"])


def test_the_source_tokenizer_of_a_model_is_that_of_its_sources(tsv):
    first = trained(tsv, "first", source_tokenizer="word")
    folder = str(first.stored.path)
    second = trained(tsv, "second", tokenizer=folder, source_tokenizer=folder)
    for side in ("tokenizer", "source_tokenizer"):
        own, taken = (getattr(loaded, side).fingerprint for loaded in (first, second))
        assert own == taken
    joint = trained(tsv, "joint")
    third = trained(tsv, "third", tokenizer="word", source_tokenizer=str(joint.stored.path))
    assert third.source_tokenizer.fingerprint == joint.tokenizer.fingerprint


def test_headings_name_sources(tsv, capsys, monkeypatch):
    trained(tsv)
    train([tsv], architecture="ngram", name="text", settings={"order": 2})
    monkeypatch.setattr("seqgen.cli.shell.output.is_terminal", lambda stream: True)
    for model, called in (("t", "source"), ("text", "prompt")):
        for more in ((), ("--explain",)) if has_plugin("explain") else ((),):
            for command in ("sample", "beam-search"):
                capsys.readouterr()
                line = [command, "one", "two", "-m", model, "--max-tokens", "1", "--seed", "1"]
                assert run([*line, *more, "--quiet"]) == 0
                assert f"{called} 1" in capsys.readouterr().out, (model, command, more)


def test_attention_of_a_model_of_text_is_refused_before_it_is_loaded(tsv, capsys):
    train([tsv], architecture="ngram", name="text", settings={"order": 2})
    (store.models_folder() / "text" / store.WEIGHTS).write_bytes(b"")
    for command in ("sample", "beam-search"):
        said = refusal(capsys, command, "one", "-m", "text", "--attention")
        assert "--attention is for models that write from sources; text is a model of text" in said


def test_fine_tuning_keeps_both_tokenizers(tsv):
    first = trained(tsv, "first", source_tokenizer="word")
    settings = {"init_from": "first", "steps": 1, "lr": 1e-9, "seed": 0}
    train([tsv], name="second", settings=settings)
    second = load("second")
    assert second.source_tokenizer.fingerprint == first.source_tokenizer.fingerprint
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


def test_the_digest_tells_source_tokenizers_apart(tsv):
    stored = trained(tsv, source_tokenizer="word").stored
    before = StoredModel(stored.path).digest
    file = stored.path / "source_tokenizer" / "tokenizer.json"
    file.write_text(file.read_text().replace("three", "threE"))
    assert StoredModel(stored.path).digest != before


def test_held_out_pairs_that_are_trained_on_are_counted(tmp_path):
    path, said = tmp_path / "pairs.tsv", []
    path.write_text("".join(f"{'one' if n < 10 else n}\tx{n % 5}\n" for n in range(40)))

    def notice(event):
        said.append(getattr(event, "text", ""))

    # Of ten lines five are the same as another five; a source alone does not make a pair.
    loaded = trained(path, val="0.5", report=notice)
    held_out = list(held_out_pairs(loaded))
    lines = [tuple(line.split("\t")) for line in path.read_text().splitlines()]
    for pair in held_out:
        lines.remove(pair)
    shared = sum(pair in lines for pair in held_out)
    assert 0 < shared < 10
    wanted = f"{shared} of 20 held-out pairs ({shared / 20:.1%}) are in the training part too"
    assert any(text.startswith(wanted) for text in said)
    said.clear()
    trained(path, "alone", val="none", report=notice)
    assert not any("held-out" in text for text in said)


def unknown_row(loaded) -> torch.Tensor:
    return loaded.model.encoder.inputs.weight[loaded.source_tokenizer.unk_id]


def test_unknowns_are_trained_on_if_they_are_dropped_in(tsv):
    """Without them, the weights of <unk> stay what they were drawn as."""
    apart = {"source_tokenizer": "word", "weight_decay": 0.0}
    rows = {
        (share, steps): unknown_row(
            trained(tsv, f"t{share}{steps}", source_unknowns=share, steps=steps, **apart)
        )
        for share in (0.0, 0.5)
        for steps in (1, 4)
    }
    assert torch.equal(rows[0.0, 1], rows[0.0, 4])
    assert not torch.equal(rows[0.5, 1], rows[0.5, 4])
    assert trained(tsv, "default").stored.config["data"]["source_unknowns"] == 0.001


def test_tokenizers_without_unknowns_have_none_dropped_in(tsv):
    for more in ({"tokenizer": "byte"}, {"tokenizer": "bpe", "vocab_size": 290}):
        with_, without = (
            trained(tsv, f"{more['tokenizer']}{share}", source_unknowns=share, **more)
            for share in (0.5, 0.0)
        )
        for one, other in zip(with_.model.parameters(), without.model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_large_pairs_are_encoded_once(tsv, monkeypatch):
    """The cache changes no weight, is used again by --resume, and mends itself."""
    more = {"source_tokenizer": "word", "max_target_len": 2, "steps": 6}
    small = trained(tsv, "small", **more)
    monkeypatch.setattr("seqgen.training.datasets.text.LARGE", 1)
    said = []

    def notice(event):
        said.append(getattr(event, "text", ""))

    settings = {**TINY, **more}
    how = {"architecture": "seq2seq", "name": "large", "settings": settings, "report": notice}
    train([tsv], stop_after=3, **how)
    assert "encoding the pairs into the cache, once" in said
    kept = {path: path.read_bytes() for path in cached_files()}
    assert {path.suffixes[-2] for path in kept} == {".source", ".target"}
    next(iter(kept)).write_bytes(b"damaged")
    resume("large")
    assert {path: path.read_bytes() for path in cached_files()} == kept
    for one, other in zip(small.model.parameters(), load("large").model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert list(held_out_pairs(small)) == list(held_out_pairs(load("large")))
    said.clear()
    train([tsv], **{**how, "name": "again"})
    assert "encoding the pairs into the cache, once" not in said


# ---- writing ----


def test_sources_come_as_arguments_or_as_lines(tsv, tmp_path, capsys, monkeypatch):
    trained(tsv)
    sources = ["one two", "", "six", "one two"]
    given = records(capsys, "beam-search", *sources, "-m", "t", "--max-tokens", 5)
    (tmp_path / "lines").write_text("\n".join(sources) + "\n")
    for size in ("1", "16"):
        with (tmp_path / "lines").open() as lines:
            monkeypatch.setattr(sys, "stdin", lines)
            how = ["--max-tokens", 5, "--batch-size", size]
            piped = records(capsys, "beam-search", "-m", "t", *how)
        assert [r["text"] for r in piped] == [r["text"] for r in given]
        assert [r["source"] for r in piped] == sources
    assert {r["prompt"] for r in piped} == {""}
    assert given[0]["score"] == given[3]["score"]


@pytest.mark.fast_for("seq2seq")
@pytest.mark.parametrize("architecture", NAMES)
def test_a_beam_is_scored_as_its_text_is(architecture, tsv, capsys):
    loaded = trained(tsv, architecture=architecture, steps=60, lr=0.01)
    shortest = ["--min-tokens", 2, "--length-norm", "none"]
    (found,) = records(capsys, "beam-search", "two six", "-m", "t", *shortest)
    assert found["finish_reason"] == "eos"
    pairs = tsv.with_name("one.tsv")
    pairs.write_text(f"two six\t{found['text']}\n")
    scored = perplexity(loaded, TabPairs(Text((pairs,)), "one.tsv"))
    assert -scored.nll_nats == pytest.approx(found["logprob"], abs=1e-4)


@pytest.mark.parametrize("command", [["beam-search"], ["sample", "--greedy"]])
def test_the_beginning_of_a_target_can_be_forced(command, tsv, capsys):
    trained(tsv)
    how = ["-m", "t", "--max-tokens", 4, "--force", "ts"]
    (found,) = records(capsys, *command, "three six", *how)
    assert found["text"].startswith("ts")
    assert found["source"] == "three six"
    assert "does not know" in refusal(capsys, *command, "six", "-m", "t", "--force", "€")


def test_samples_depend_on_the_source_and_its_number_alone(tsv, capsys):
    trained(tsv)
    how = ["-m", "t", "--seed", 3, "--max-tokens", 5, "--num-samples", 2]
    together = records(capsys, "sample", "one", "two six", *how)
    alone = records(capsys, "sample", "one", *how, "--batch-size", 1)
    assert [r["text"] for r in together[:2]] == [r["text"] for r in alone]
    assert [(r["index"], r["sample"]) for r in together] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@needs("explain")
def test_explanations_and_suggestions_are_of_a_source(tsv, capsys):
    trained(tsv)
    suggested = records(capsys, "sample", "one", "-m", "t", "--suggest", 2)
    explained = records(capsys, "sample", "one", "-m", "t", "--explain", "--greedy")
    assert explained[0]["token"] == suggested[0]["token"]
    assert explained[0]["logprob"] == pytest.approx(suggested[0]["logprob"])


def test_a_plain_text_is_the_target_alone(tsv, capsys):
    trained(tsv)
    (found,) = records(capsys, "beam-search", "one", "-m", "t", "--max-tokens", 3)
    assert run(["beam-search", "one", "-m", "t", "--max-tokens", "3", "--quiet"]) == 0
    assert capsys.readouterr().out == found["text"] + "\n"


def test_unknown_characters_of_a_source_are_counted(tsv, capsys):
    trained(tsv)
    capsys.readouterr()
    assert run(["beam-search", "o€ne%", "two", "-m", "t", "--max-tokens", "2", "--json"]) == 0
    said = capsys.readouterr()
    counts = [json.loads(line)["source_unknown"] for line in said.out.splitlines()]
    assert counts == [2, 0]
    assert "2 tokens of the sources unknown to the model" in said.err
    assert run(["sample", "o€ne", "-m", "t", "--max-tokens", "2"]) == 0
    assert "1 token of the sources unknown" in capsys.readouterr().err


def test_an_ensemble_of_translators(tsv, capsys):
    a, b = trained(tsv, "a"), trained(tsv, "b", "seq2seq-transformer")
    (found,) = records(capsys, "beam-search", "one two", "-m", "a+b", "--max-tokens", 1)
    both = [torch.from_numpy(first_log_probs(loaded, "one two")) for loaded in (a, b)]
    mixed = torch.stack(both).exp().mean(0).log()
    assert found["logprob"] == pytest.approx(mixed.max().item(), abs=1e-4)


@torch.no_grad()
def first_log_probs(loaded, source: str) -> np.ndarray:
    """Return what a model holds of a target's first token, (V,), by its own calls."""
    tokenizer = loaded.tokenizer
    ids = [*tokenizer.encode(source).tolist(), tokenizer.eos_id]
    memory = loaded.model.encode(torch.tensor([ids]), [len(ids)])
    logits, _ = loaded.model(torch.tensor([[tokenizer.bos_id]]), memory)
    return logits[0, 0].log_softmax(-1).numpy()


# ---- scoring ----


@pytest.mark.fast_for("seq2seq", rest="slow")
@pytest.mark.parametrize("architecture", NAMES)
def test_perplexity_is_that_of_one_pair_at_a_time(architecture, tsv, capsys):
    loaded = trained(tsv, architecture=architecture, source_tokenizer="word")
    tokenizer, own = loaded.tokenizer, loaded.source_tokenizer
    nats, each = 0.0, []
    for source, target in pairs_of():
        ids = [*own.encode(source).tolist(), own.eos_id]
        with torch.no_grad():
            memory = loaded.model.encode(torch.tensor([ids]), [len(ids)])
        state = loaded.model.start(memory)
        targets = [*tokenizer.encode(target).tolist(), tokenizer.eos_id]
        read = torch.tensor([[tokenizer.bos_id, *targets[:-1]]])
        with torch.no_grad():
            scores, _ = loaded.model.score(read, torch.tensor([targets]), state)
        each.append(-scores.log_probs.sum().item())
        nats += each[-1]
    (whole,) = records(capsys, "perplexity", tsv, "-m", "t")
    assert whole["nll_nats"] == pytest.approx(nats, rel=1e-5)
    texts = [target for _, target in pairs_of()]
    assert whole["tokens"] == whole["characters"] == sum(len(text) + 1 for text in texts)
    lines = records(capsys, "perplexity", tsv, "-m", "t", "--per-line")
    assert [line["nll_nats"] for line in lines] == pytest.approx(each, rel=1e-4)
    assert [(line["source"], line["text"]) for line in lines] == pairs_of()
    tokens = records(capsys, "perplexity", tsv, "-m", "t", "--per-token")
    assert -sum(token["logprob"] for token in tokens) == pytest.approx(nats, rel=1e-4)


def test_unknowns_of_both_sides_are_counted(tsv, tmp_path, capsys):
    trained(tsv)
    (tmp_path / "new.tsv").write_text("on€ €\to€\n\t\n")
    (found,) = records(capsys, "perplexity", tmp_path / "new.tsv", "-m", "t")
    assert (found["source_unknown"], found["oov"], found["tokens"]) == (2, 1, 4)


def test_batch_size_changes_no_figure(tsv, capsys):
    trained(tsv)
    few, many = (
        records(capsys, "perplexity", tsv, "-m", "t", "--batch-size", size)[0]["nll_nats"]
        for size in (1, 64)
    )
    assert few == pytest.approx(many, rel=1e-5)


# ---- what makes no sense ----


def test_pairs_that_are_none(tmp_path, capsys):
    path, other = tmp_path / "a.tsv", tmp_path / "b"
    how = ["--model", "seq2seq", "--steps", "1", "--tokenizer", "char"]
    path.write_text("one\to\nno tab\n")
    assert "line 2 has no tab" in refusal(capsys, "train", path, *how)
    path.write_text("")
    line = refusal(capsys, "train", path, *how)
    assert "contains no pairs; write a source, a tab and its target on each line" in line
    other.write_text("x\ny\nz\n")
    path.write_text("x\ny\n")
    line = refusal(capsys, "train", "--source", path, "--target", other, *how)
    assert "2 lines and" in line
    assert "3 lines" in line
    path.write_text("one\to\n")
    assert "no pair to train on" in refusal(capsys, "train", path, *how)
    path.write_text("one\to\n" * 20)
    line = refusal(capsys, "train", path, *how, "--max-source-len", "2")
    assert "every pair to train on is too long: its source has more than 2 or its target" in line
    assert line.endswith("raise --max-source-len or --max-target-len")


def test_settings_of_the_other_kind_of_data(tsv, sides, capsys):
    both = ["--source", sides[0], "--target", sides[1]]
    line = refusal(capsys, "train", *both, "--model", "lstm", "--steps", "1")
    assert line == "seqgen: lstm learns from a text: it takes no --target"
    line = refusal(capsys, "train", tsv, "--model", "lstm", "--source-tokenizer", "word")
    assert line == "seqgen: --source-tokenizer has no meaning: lstm learns from a text"
    line = refusal(capsys, "train", tsv, "--model", "seq2seq", "--seq-len", "5")
    assert line.endswith(
        "--seq-len has no meaning: seq2seq learns from pairs of a source and a target"
    )
    line = refusal(capsys, "train", tsv, "--model", "lstm", "--set", "source_unknowns=0.1")
    assert line == "seqgen: source_unknowns has no meaning: lstm learns from a text"
    assert "documents" in refusal(
        capsys, "train", tsv, "--model", "seq2seq", "--documents", "stream"
    )
    assert "go together" in refusal(capsys, "train", "--source", sides[0], "--model", "seq2seq")
    assert "not both" in refusal(capsys, "train", tsv, *both, "--model", "seq2seq")
    assert "val_target needs val" in refusal(
        capsys, "train", tsv, "--model", "seq2seq", "--set", f"val_target={sides[1]}"
    )


def test_what_is_for_models_of_text(tsv, tmp_path, capsys):
    trained(tsv)
    text = tmp_path / "text.txt"
    text.write_text("one two\n")
    assert "--echo is for models of text" in refusal(
        capsys, "sample", "a", "-m", "t", "--echo"
    )  # in one line: no seed is drawn
    assert "give one, or pipe them in" in refusal(capsys, "beam-search", "-m", "t")
    line = refusal(capsys, "beam-search", "a\nb", "-m", "t")
    assert line == "seqgen: prompt 0 has several lines; a source is one line"
    assert "line 1 has no tab" in refusal(capsys, "perplexity", text, "-m", "t")
    line = refusal(capsys, "perplexity", tsv, "-m", "t", "--documents", "stream")
    assert "--documents stream has no meaning" in line


def test_mixtures_of_translators_share_both_tokenizers(tsv, tmp_path, capsys):
    trained(tsv, "joint", source_tokenizer="char")
    trained(tsv, "apart", source_tokenizer="word")
    train([tsv], architecture="ngram", name="text", settings={"documents": "line"})
    with pytest.raises(SeqgenError, match="read their sources differently") as refused:
        load("apart+joint")
    folder = str(load("apart").stored.path / "source_tokenizer")
    assert str(refused.value).endswith(f"; train one with --source-tokenizer {folder}")
    trained(tsv, "mended", source_tokenizer=folder)
    load("apart+mended")
    with pytest.raises(SeqgenError, match=r"cannot be mixed$"):
        load("joint+text")
    assert "cannot be scored together" in refusal(
        capsys, "perplexity", tsv, "-m", "joint", "-m", "text"
    )


def test_a_translator_in_the_list_of_models(tsv, capsys):
    trained(tsv, source_tokenizer="word")
    (found,) = records(capsys, "models")
    assert (found["architecture"], found["tokenizer"]) == ("seq2seq", "char")
    assert run(["models", "show", "t"]) == 0
    assert run(["tokenize", str(tsv), "-m", "t", "--quiet"]) == 0
    assert run(["models", "remove", "t", "--yes"]) == 0
    assert records(capsys, "models") == []


def test_a_tab_parts_what_is_tokenized(tsv, tmp_path, capsys):
    loaded = trained(tsv, source_tokenizer="word")
    first, *_ = records(capsys, "tokenize", tsv, "-m", "t", "--documents", "line")
    own, tokenizer = loaded.source_tokenizer, loaded.tokenizer
    source, target = pairs_of()[0]
    assert (first["source"], first["text"]) == (source, target)
    assert first["source_ids"] == [*own.encode(source).tolist(), own.eos_id]
    ids = [tokenizer.bos_id, *tokenizer.encode(target).tolist(), tokenizer.eos_id]
    assert first["ids"] == ids
    capsys.readouterr()
    assert run(["tokenize", str(tsv), "-m", "t", "--pieces"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "two\tt \\n"
    assert "unknown" not in said.err
    (tmp_path / "torn.tsv").write_text("one\tuno\ntwo\n")
    assert run(["tokenize", str(tmp_path / "torn.tsv"), "-m", "t", "--quiet"]) == 1
    said = capsys.readouterr()
    assert said.out.count("\n") == 1 and said.err.count("\n") == 1
    assert "line 2 has no tab, and this model reads pairs" in said.err
    (tmp_path / "ids").write_text("1 2\n3\t4\n")
    refused = [("--decode", tmp_path / "ids", 2)]
    if has_plugin("data"):
        refused.append(("--stats", tsv, 1))
    for flag, file, line in refused:
        said = refusal(capsys, "tokenize", file, "-m", "t", flag, "--quiet")
        assert f"line {line} has a tab" in said and f"{flag} takes one side at a time" in said
    said = refusal(capsys, "tokenize", tsv, "-m", "t", "--out", tmp_path / "x.tok", "--quiet")
    assert "--out is for text" in said


def test_the_sample_of_training_is_of_the_first_held_out_source(tsv, capsys):
    loaded = trained(tsv, steps=30, lr=0.01)
    source, _ = next(iter(held_out_pairs(loaded)))
    how = ["--seed", 0, "--temperature", 0.8, "--max-tokens", 160]
    (found,) = records(capsys, "sample", source, "-m", "t", *how)
    assert loaded.stored.record["result"]["sample"] == found["text"]


@pytest.mark.fast_for("16", rest="slow")
@pytest.mark.parametrize("size", [1, 16])
def test_a_source_that_is_too_long_stops_after_those_before_it(
    tsv, tmp_path, capsys, monkeypatch, size
):
    settings = {"positions": "learned", "max_source_len": 20}
    trained(tsv, architecture="seq2seq-transformer", **settings)
    (tmp_path / "sources").write_text(f"one\nsix\n{'x' * 21}\ntwo\n")
    with (tmp_path / "sources").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        capsys.readouterr()
        assert run(["beam-search", "-m", "t", "--json", "--batch-size", str(size)]) == 1
    said = capsys.readouterr()
    assert [json.loads(line)["source"] for line in said.out.splitlines()] == ["one", "six"]
    assert "line 3 has 21 tokens, and t reads sources of at most 20" in said.err
    longer = ["--init-from", "t", tsv, "--max-source-len", "21", "--steps", "1"]
    assert "--max-source-len must be at most that of t, 20" in refusal(capsys, "train", *longer)

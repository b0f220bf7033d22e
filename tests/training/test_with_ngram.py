"""`seqgen train --with-ngram`: an n-gram model beside a network, and the mixture of both."""

from __future__ import annotations

import json
import math
import queue
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from helpers_cli import installed, needs, records, refusal

from seqgen import store
from seqgen.cli import run
from seqgen.cli.shell.flags import fill_in_numbers
from seqgen.models.mixture.fitting import fit_weights
from seqgen.scoring import mixture_fitting as mix
from seqgen.scoring.mixture_fitting import LEAST_QUARTER, fit_columns, token_log_probs
from seqgen.settings.training import TrainingConfig
from seqgen.store import StoredModel
from seqgen.store.loading import load
from seqgen.text.corpus import encode_corpus
from seqgen.training import counting, estimators, events, scored_part, with_ngram
from seqgen.training.events import Notice
from seqgen.training.resume import resume
from seqgen.training.session import keep_settings
from seqgen.training.train import train

TEXT = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 20
SHAPE = {"hidden_size": 8, "num_layers": 1, "seq_len": 16, "batch_size": 4, "seed": 1}
SETTINGS = {**SHAPE, "steps": 6, "precision": "float32"}


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "t.txt").write_text(TEXT)
    return tmp_path / "t.txt"


def trained(text, name="t", report=lambda event: None, **more):
    settings = {**SETTINGS, **more}
    return train([text], name=name, architecture="lstm", settings=settings, report=report)


def names() -> list[str]:
    return sorted(model.name for model in store.list_models())


def _corpus(loaded, text):
    return encode_corpus([text], loaded.tokenizer, loaded.data.documents)


def parts_of(name: str):
    """Load the network and the n-gram model of a stored model."""
    return [load(part) for part in store.find_all(name).parts]


def loss_of(loaded, held_out: str) -> float:
    return -token_log_probs(loaded.model, _corpus(loaded, held_out)).mean()


def second_half(name: str) -> str:
    stored = store.find(name)
    text = stored.validation_text.read_text()
    assert 0 < stored.scored_from < len(text)
    return text[stored.scored_from :]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"documents": "line"},
        {"tokenizer": "word"},
        {"tokenizer": "byte", "direction": "backward"},
        {"members": 2},
    ],
    ids=["char", "line", "word", "backward", "members"],
)
def test_a_network_and_an_n_gram_model_are_stored_as_one(text, capsys, more):
    """Its figures are those of the half of the held-out text that no weights were fitted on."""
    result = trained(text, with_ngram=3, **more)
    found, members = result.mixture, more.get("members", 1)
    assert names() == ["t"]
    assert (found["name"], found["order"], sum(found["weights"])) == ("t", 3, pytest.approx(1))
    assert store.find("t").record["result"]["mixture"] == found
    half = second_half("t")
    *networks, ngram = parts_of("t")
    assert len(networks) == members and ngram.stored.path == store.find("t").path / "parts/ngram"
    whole = load("t")
    if "direction" not in more:
        assert found["ngram_loss"] == pytest.approx(loss_of(ngram, half), abs=1e-5)
        assert found["mixture_loss"] == pytest.approx(loss_of(whole, half), abs=1e-5)
    if members == 1:
        network = load(store.find("t").networks)
        assert network.stored.digest != whole.stored.digest
        if "direction" not in more:
            assert found["network_loss"] == pytest.approx(loss_of(network, half), abs=1e-5)
    assert found["mixture_loss"] == result.val_loss < found["network_loss"]
    (score,) = records(capsys, "perplexity", "-m", "t", "-q")
    assert score["protocol"] == result.protocol and "held-out characters" in result.protocol
    assert score["nats_per_token"] == pytest.approx(result.val_loss, abs=1e-6)
    assert score["bits_per_char"] == pytest.approx(result.val_bits_per_char, abs=1e-6)
    assert (score["tokens"], score["characters"]) == (found["tokens"], len(half))
    probabilities = np.exp(next_log_probs(whole))
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)


def next_log_probs(loaded) -> np.ndarray:
    """Compute the log-probabilities of all tokens after some."""
    logits, _ = loaded.model(loaded.model.ids(np.array([[5, 6, 7]])), loaded.model.start(1))
    return torch.as_tensor(logits)[0, -1].detach().double().log_softmax(-1).numpy()


def test_it_is_listed_shown_compared_and_scored_as_one(text, capsys):
    trained(text, with_ngram=3)
    trained(text, "alone")
    part = store.find("t").record["result"]["protocol"].split("; ")[-1]
    assert part.startswith("the last ") and part.endswith(" held-out characters")
    (measured,) = records(capsys, "eval", "-m", "t", "-q")
    assert measured["perplexity"]["protocol"].endswith(f"; {part}")
    for compared in records(capsys, "compare", "t", "alone", "--resamples", 2, "-q"):
        assert compared["protocol"].endswith(f"; {part}")
    rows = {row["name"]: row for row in records(capsys, "models")}
    assert rows["t"]["architecture"] == "lstm + 3-gram"
    (shown,) = records(capsys, "models", "show", "t")
    assert [part["name"] for part in shown["mixture"]["parts"]] == ["t", "ngram"]
    assert run(["models", "show", "t"]) == 0
    out = capsys.readouterr().out
    assert "n-gram model" in out and "t (the network)" in out
    assert run(["models", "show", "t", "--all"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    facts = {line.split("  ")[0]: line.split()[-1] for line in lines}
    assert facts["result: mixture: order"] == "3" and "result: mixture" not in facts
    # Models are compared on what none was fitted on.
    first, second = records(capsys, "compare", "t", "alone")
    assert first["architecture"] == "lstm + 3-gram" and first["seconds"] is not None
    assert first["characters"] == second["characters"] == len(second_half("t"))
    result = store.find("t").record["result"]
    assert first["bits_per_byte"] == pytest.approx(result["val_bits_per_byte"], abs=1e-6)
    alone = loss_of(load("alone"), second_half("t"))
    assert result["mixture"]["network_loss"] == pytest.approx(alone, abs=1e-5)


SAID = "takes the network in t, without its n-gram model"


def test_commands_for_networks_take_the_network_in_it_and_say_so(text, capsys, tmp_path):
    trained(text, with_ngram=3)
    calls = [
        ("inspect", "--text", "the cat", "-m", "t"),
        ("diagnose", text, "-m", "t"),
        ("vectors", "-m", "t", "--neighbours", "a"),
        ("report", "t", "--out", tmp_path / "page.html"),
    ]
    for call in installed([tuple(map(str, call)) for call in calls]):
        assert run([*call]) == 0, call
        err = capsys.readouterr().err
        assert f"{call[0]} {SAID}" in err
    if installed(["export"]):
        assert run(["export", "t", "--format", "arpa", "--out", str(tmp_path / "t.arpa")]) == 0
        assert "takes the n-gram model in t" in capsys.readouterr().err
        assert "ngram 3=" in (tmp_path / "t.arpa").read_text()
    settings = {"init_from": "t", "steps": 1, "precision": "float32"}
    call = heard(lambda report: train([text], name="u", settings=settings, report=report))
    assert call.count(f"--init-from {SAID}") == 1
    assert store.find("u").ngram is None
    (base,) = store.origins_of(store.find("u")).values()
    assert base.path == store.find("t").path and base.ngram is None


@pytest.mark.slow
@needs("exchange")
def test_the_network_in_it_is_exported(text, capsys, tmp_path):
    trained(text, with_ngram=3)
    assert run(["export", "t", "--format", "onnx", "--out", str(tmp_path / "onnx")]) == 0
    assert f"export {SAID}" in capsys.readouterr().err


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_fewer_bits_are_for_the_network(text, capsys, precision):
    trained(text, with_ngram=3, hidden_size=32)
    loaded = load("t", precision=precision)
    (network, ngram), half = loaded.model.parts, second_half("t")
    assert network.precision.startswith(precision[:2]) and ngram.precision.startswith("float")
    whole, counted = parts_of("t")
    corpus = _corpus(loaded, half)
    assert -token_log_probs(ngram, corpus).mean() == loss_of(counted, half)
    reduced = -token_log_probs(network, corpus).mean()
    exact = loss_of(whole, half)
    assert reduced == pytest.approx(exact, abs=0.02) and reduced != exact


def test_the_order_without_a_number_has_the_lowest_loss(text, monkeypatch):
    """On text that repeats with a period of three characters, two determine the third."""
    text.write_text("abcabdabeabf" * 200)
    losses = {}
    counted = with_ngram._count_sample

    def spy(prepared, order, *limits):
        model = counted(prepared, order, *limits)
        begin = int(prepared.val.tokens.size * with_ngram.TRIED_PART)
        losses[order] = -token_log_probs(
            model, with_ngram.parallel_rows(prepared.val, 1, begin)
        ).mean()
        return model

    monkeypatch.setattr(with_ngram, "_count_sample", spy)
    monkeypatch.setattr(with_ngram, "SPELLED_ORDERS", range(1, 7))
    result = trained(text, with_ngram=0)
    assert result.mixture["order"] == min(losses, key=losses.get) > 1
    # Kept, so that a resumed run counts the same.
    assert store.find("t").config["training"]["with_ngram"] == result.mixture["order"]


def test_a_finished_run_gets_its_n_gram_model_afterwards(text):
    alone = trained(text)
    assert alone.mixture is None and store.find("t").ngram is None
    network = store.find("t").digest
    result = resume("t", settings={"with_ngram": 2})
    assert result.steps == 6 and result.mixture["order"] == 2
    assert names() == ["t"] and store.find("t").networks.digest == network
    said: list[Notice] = []
    assert resume("t", report=said.append) == result
    assert "has finished" in said[-1].text


def test_a_resumed_model_is_the_one_that_ran_through(text):
    whole = trained(text, "whole", steps=12, with_ngram=3)
    trained(text, "stopped", steps=12, with_ngram=3)
    settings = {**SETTINGS, "steps": 12, "with_ngram": 3}
    train([text], architecture="lstm", name="later", settings=settings, stop_after=5)
    assert store.find("later").ngram is None
    assert resume("later").mixture["mixture_loss"] == whole.mixture["mixture_loss"]
    assert len({store.find(name).digest for name in ("whole", "stopped", "later")}) == 1


def test_a_longer_budget_fits_anew_and_until_then_the_old_weights_hold(text):
    first = trained(text, with_ngram=2)
    resume("t", settings={"steps": 12}, stop_after=9)
    load("t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(with_ngram, "_count", None)  # it is not counted again
        result = resume("t")
    assert result.steps == 12 and names() == ["t"]
    assert result.mixture["ngram_loss"] == first.mixture["ngram_loss"]
    assert result.mixture["network_loss"] != first.mixture["network_loss"]


def test_the_folder_can_be_moved_renamed_and_removed(text, capsys, tmp_path):
    loss = trained(text, with_ngram=2).val_loss
    shutil.make_archive(str(tmp_path / "t"), "zip", store.find("t").path)
    shutil.unpack_archive(tmp_path / "t.zip", tmp_path / "moved")
    store.rename(store.find("t"), "u")
    for name in ("u", tmp_path / "moved"):
        (score,) = records(capsys, "perplexity", "-m", name, "-q")
        assert score["nats_per_token"] == pytest.approx(loss, abs=1e-6)
        assert load(name).stored.digest == store.find("u").digest
    path = store.find("u").path
    (path / "parts" / "ngram" / "notes.txt").write_text("mine")
    assert "did not write" in refusal(capsys, "models", "remove", "u", "--yes")
    (path / "parts" / "ngram" / "notes.txt").unlink()
    assert run(["models", "remove", "u", "--yes", "-q"]) == 0
    assert not path.exists() and names() == []


def test_damage_is_said_in_one_line(text, capsys):
    trained(text, with_ngram=2)
    stored = store.find("t")
    config = stored.config
    (stored.path / "manifest.json").unlink()
    group = config["ngram"]
    for ngram, why in (
        ({**group, "weights": [1.0]}, "its weights do not fit the parts"),
        ({**group, "weights": ["a", "b"]}, "its weights do not fit the parts"),
        ({**group, "gate": [1]}, "its ngram has no gate"),
        ({**group, "part": {**group["part"], "path": "/tmp"}}, "is not in the folder"),
        ({**group, "part": {**group["part"], "path": "parts/../../t"}}, "is not in the folder"),
        ({}, "the n-gram part has no name or no hash"),
    ):
        (stored.path / "config.json").write_text(json.dumps({**config, "ngram": ngram}))
        assert why in refusal(capsys, "sample", "-m", "t")
    config["scored_from"] = "x"
    (stored.path / "config.json").write_text(json.dumps(config))
    assert "scored_from" in refusal(capsys, "perplexity", "-m", "t")
    shutil.rmtree(stored.path / "parts")
    assert names() == []


def test_an_n_gram_model_that_does_not_help_is_left_out(text, monkeypatch):
    """What the network then is, is what it is alone: its figures are of all that is held out."""
    trained(text, "u", with_ngram=2)
    monkeypatch.setattr(with_ngram, "WORTH_KEEPING", math.inf)
    settings = {**SETTINGS, "with_ngram": 2}
    said = heard(lambda report: train([text], name="t", settings=settings, report=report))
    result = StoredModel(store.find("t").path).record["result"]
    assert result["mixture"] is None and store.find("t").ngram is None
    assert any("no better" in line for line in said)
    alone = asdict(trained(text, "alone"))
    assert store.find("alone").digest == store.find("t").digest
    assert [result[x] for x in ("val_loss", "protocol")] == [alone["val_loss"], alone["protocol"]]
    assert "has finished" in heard(lambda report: resume("t", report=report))[-1]
    # And one that was there, and no longer helps, is deleted.
    resume("u", settings={"steps": 9})
    assert not (store.find("u").path / "parts").exists() and store.find("u").scored_from == 0


@pytest.mark.parametrize("copy_first", [False, True], ids=["n-grams", "network"])
def test_where_the_text_changes_the_better_part_is_used_alone(tmp_path, monkeypatch, copy_first):
    """Held out are a copy of what is trained on and random letters, one after the other.

    Weights fitted on the first are wrong of the second.
    """
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(3)
    known, letters = ("".join(generator.choice(list("abcdefgh \n"), n)) for n in (27_000, 1_500))
    held_out = known[:1500] + letters if copy_first else letters + known[:1500]
    (tmp_path / "t.txt").write_text(known + held_out)
    settings = {"with_ngram": 6, "steps": 60}
    said = heard(lambda report: trained(tmp_path / "t.txt", report=report, **settings))
    alone = "network is stored alone" if copy_first else "and used alone"
    assert any(alone in line for line in said)
    record, model = store.find("t").record["result"], load(store.find("t"))
    scored = store.find("t").validation_text.read_text()
    if copy_first:
        assert record["mixture"] is None and store.find("t").ngram is None
        assert not (store.find("t").path / "parts").exists()
    else:
        found, (_, ngram), scored = record["mixture"], parts_of("t"), second_half("t")
        assert (found["weights"], found["gate"], found["by_order"]) == ([0, 1], None, None)
        assert found["mixture_loss"] == found["ngram_loss"] < found["network_loss"]
        assert record["val_loss"] == pytest.approx(loss_of(ngram, scored), abs=1e-5)
    assert record["val_loss"] == pytest.approx(loss_of(model, scored), abs=1e-5)
    assert "has finished" in heard(lambda report: resume("t", report=report))[-1]
    assert load("t").stored.digest == model.stored.digest


def heard(call) -> list[str]:
    """Return the notices of a call."""
    said: list[str] = []
    call(lambda event: said.append(event.text) if isinstance(event, Notice) else None)
    return said


@pytest.mark.fast_for("keep_settings")
@pytest.mark.parametrize("broken", ["_count", "fit_by_halves", "keep_settings"])
def test_an_interrupt_leaves_the_network_and_resuming_adds_the_rest(
    text, capsys, monkeypatch, broken
):
    whole = trained(text, "whole", with_ngram=2)

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(with_ngram, broken, interrupted)
        with pytest.raises(with_ngram.Interrupted, match="train --resume t"):
            trained(text, with_ngram=2)
    assert load("t").stored.ngram is None
    if broken != "_count":  # training has ended, and nothing that is stored has been measured
        assert store.find("t").record["result"]["val_loss"] is None
        assert run(["models", "show", "t"]) == 0
        shown = capsys.readouterr().out
        assert "resume with: seqgen train --resume t" in shown
    assert resume("t").val_loss == whole.val_loss
    assert run(["models", "show", "t"]) == 0
    assert "resume with" not in capsys.readouterr().out
    assert store.find("t").digest == store.find("whole").digest
    # With another order, the old part stays until it is to be replaced.
    with monkeypatch.context() as patch:
        patch.setattr(with_ngram, broken, interrupted)
        with pytest.raises(with_ngram.Interrupted, match="train --resume t"):
            resume("t", settings={"with_ngram": 3})
    load("t")
    assert resume("t").mixture["order"] == 3
    said = heard(lambda report: resume("t", report=report))
    assert "has finished" in said[-1] and names() == ["t", "whole"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("fit_on_first_half", "before the mixture was fitted again, so it has its old weights"),
        ("_mixed", "before the final validation"),
    ],
)
def test_no_figure_is_listed_until_the_mixture_is_fitted_again(
    text, capsys, monkeypatch, broken, said
):
    trained(text, with_ngram=2)

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(with_ngram, broken, interrupted)
        with pytest.raises(with_ngram.Interrupted, match=f"{said}; .*train --resume t"):
            resume("t", settings={"steps": 12})
    result = store.find("t").record["result"]
    figures = [value for name, value in result.items() if name.startswith("val_")]
    assert figures and set(figures) == {None} and result["mixture"] is None
    (row,) = records(capsys, "models")
    assert (row["architecture"], row["val_bits_per_char"]) == ("lstm + 2-gram", None)
    result = resume("t")
    assert result.steps == 12 and result.val_loss == result.mixture["mixture_loss"]
    (row,) = records(capsys, "models")
    assert row["val_bits_per_char"] == result.val_bits_per_char is not None


def digests() -> dict[str, str]:
    return {model.name: model.digest for model in store.list_models()}


def test_overwriting_replaces_both_parts(text):
    trained(text, with_ngram=2)
    trained(text, "other", with_ngram=2)
    before = digests()
    settings = {**SETTINGS, "with_ngram": 3, "seed": 2}
    again = {"architecture": "lstm", "overwrite": True, "stop_after": 2}
    train([text], name="t", settings=settings, **again)
    assert store.find("t").ngram is None and names() == ["other", "t"]
    assert resume("t").mixture["order"] == 3
    after = digests()
    assert after["other"] == before["other"] and after["t"] != before["t"]


@pytest.mark.fast_for("False")
@pytest.mark.parametrize("copy", [False, True])
def test_mixing_takes_both_parts(text, capsys, copy):
    """Also when the model is renamed; removing it says what needs it."""
    trained(text, "a", with_ngram=2)
    trained(text, "b", seed=2)
    options = ["--copy"] if copy else []
    (mixed,) = records(capsys, "mix", "b", "a", "--name", "m", *options, "-q")
    assert len(mixed["parts"]) == len(mixed["weights"]) == 3
    log_probs = next_log_probs(load("m"))
    store.rename(store.find("a"), "c")
    assert next_log_probs(load("m")) == pytest.approx(log_probs)
    assert store.dependent_models([store.find("c")]) == ([] if copy else ["m"])
    given = store.find_all("c:0.6+b:0.4")
    share = store.mixture_weights(store.find("c"))[0][0]
    assert given.weights == pytest.approx((0.6 * share, 0.6 * (1 - share), 0.4))
    load("c:0.6+b:0.4")


@pytest.mark.parametrize("val", ["0.15", "0.3"])
def test_what_a_mixture_scores_is_what_no_weights_were_fitted_on(text, capsys, val):
    """Also if the held-out texts of the parts differ in length: the shortest one counts."""
    trained(text, "a", with_ngram=2, val=val)
    trained(text, "b", val="0.1")
    keep_settings(store.find("b"), scored_from=5)  # by the time that was left, and not by a fit
    unused = len(second_half("a"))
    shortest = len(store.find("b").validation_text.read_text())
    (mixed,) = records(capsys, "perplexity", "-m", "a+b", "-q")
    assert mixed["characters"] == min(unused, shortest)
    half = records(capsys, "mix", "a", "b", "--name", "m", "-q")[0]["held_out_loss"]
    (found,) = records(capsys, "perplexity", "-m", "m", "-q")
    assert found["nats_per_token"] == half == store.find("m").record["result"]["val_loss"]
    # The parts of `a` were fitted on nothing: its weights are not those of the mixture.
    assert found["characters"] == shortest - store.find("m").scored_from
    assert found["characters"] == pytest.approx(shortest / 2, abs=60)


def test_mixing_says_that_weights_by_context_are_left_out(text, capsys):
    trained(text, "a", with_ngram=2)
    trained(text, "b", seed=2)
    keep_settings(
        store.find("a"), ngram={**store.find("a").config["ngram"], "by_order": [], "gate": []}
    )
    assert run(["mix", "b", "a", "--name", "m"]) == 0
    assert "left out" not in capsys.readouterr().err
    table = [[0.6, 0.4]] * 2
    keep_settings(store.find("a"), ngram={**store.find("a").config["ngram"], "by_order": table})
    assert run(["mix", "b", "a", "--name", "n"]) == 0
    err = capsys.readouterr().err
    said = "the weights of a that depend on the context are left out"
    assert f"{said}; --by order fits them for all parts" in err
    assert run(["mix", "b", "a", "--name", "o", "--by", "order"]) == 0
    assert said in (err := capsys.readouterr().err) and "fits them" not in err


def test_what_cannot_be_mixed_is_refused_in_one_line(text, capsys):
    pairs = text.with_name("p.tsv")
    pairs.write_text("a b\tb a\n" * 50)
    assert "is for networks" in refusal(capsys, "train", text, "--model", "ngram", "--with-ngram")
    said = refusal(capsys, "train", pairs, "--model", "seq2seq", "--with-ngram")
    assert "is for models of text" in said
    assert "held-out" in refusal(capsys, "train", text, "--val", "none", "--with-ngram")
    assert "--with-ngram must be from 0 to 255" in refusal(
        capsys, "train", text, "--with-ngram", 256
    )
    text.write_text("abcdefgh\n")
    short = ("train", text, "--with-ngram", "--steps", 1, "-q")
    assert "two held-out tokens" in refusal(capsys, *short)
    assert names() == []


def test_adapters_are_refused_before_training_and_mixed_by_hand(text, capsys):
    """A mixture by `seqgen mix` refers to its parts, so that adapters keep their base."""
    from seqgen.scoring.mixing import combine

    trained(text, "net")
    tiny = ("--init-from", "net", "--set", "lora=2", "--seed", 1, "-q")
    said = refusal(capsys, "train", text, *tiny, "--steps", 1, "--with-ngram", 3, "--name", "lo")
    assert "adapters (lora)" in said and "seqgen mix" in said
    assert names() == ["net"]
    # Nor are they mixed because the text is small, or is that recommended.
    tiny = {"init_from": "net", "lora": 2, "seed": 1, "minutes": 0.01, "precision": "float32"}
    heard: list[str] = []
    result = train(
        [text],
        architecture="auto",
        name="lo",
        settings=tiny,
        report=lambda event: heard.append(event.text) if isinstance(event, Notice) else None,
    )
    assert result.mixture is None and names() == ["lo", "net"]
    assert not any("--with-ngram" in line and "seqgen train" in line for line in heard)
    said = refusal(capsys, "train", "--resume", "lo", "--with-ngram", 3)
    assert "adapters (lora)" in said
    same = {"tokenizer": str(store.find("net").path), "order": 2}
    train([text], architecture="ngram", name="grams", settings=same)
    assert combine(["lo", "grams"]).stored.parts[0].is_adapter


def test_names_may_be_as_long_as_others(text, capsys):
    tiny = ("--steps", 1, "--hidden-size", 8, "--layers", 1, "-q")
    said = refusal(capsys, "train", text, "--name", "n" * 244, *tiny)
    assert said.endswith("a model's name has at most 240 characters, not 244")
    trained(text, "n" * 240, with_ngram=2)
    load("n" * 240)
    said = refusal(capsys, "models", "rename", "n" * 240, "m" * 241)
    assert "at most 240" in said
    store.remove(store.find("n" * 240))


def test_a_long_file_name_leaves_room_for_the_names_made_of_it(text):
    text = text.rename(text.with_name("t" * 251 + ".txt"))
    for number in ("", "-2"):
        result = train([text], settings={**SETTINGS, "with_ngram": 2})
        assert result.name == "t" * 100 + "-lstm" + number


def test_auto_says_why_a_network_is_trained_alone(text):
    said: list[str] = []
    train(
        [text],
        architecture="auto",
        name="t",
        settings={**SHAPE, "steps": 2, "precision": "float32", "val": "none"},
        report=lambda event: said.append(event.text) if isinstance(event, Notice) else None,
    )
    assert any("leave out --val none" in line for line in said)
    assert names() == ["t"] and store.find("t").ngram is None


@pytest.mark.parametrize(
    "kind",
    [
        *("seq2seq", "labels", "val"),
        *(pytest.param(kind, marks=needs("labels")) for kind in ("bert", "classify")),
    ],
)
def test_a_stored_model_that_cannot_be_mixed_is_refused_and_stays_as_it_is(text, kind, capsys):
    """Before anything is read: the text is gone."""
    tiny = {"steps": 1, "hidden_size": 8, "num_layers": 1, "seed": 1, "precision": "float32"}
    data, options = text.with_name("d"), {}
    data.write_text("a\tab ba\nb\tba ab\n" * 30)
    if kind in ("seq2seq", "bert"):
        options["architecture"] = kind
    if kind == "bert":
        data, tiny["vocab_size"], tiny["num_heads"] = text, 274, 2
    if kind == "labels":
        tiny["labels"] = True
    if kind == "classify":
        options["task"] = "classify"
    if kind == "val":
        data, tiny["val"] = text, "none"
    train([data], name="t", settings=tiny, **options)
    data.unlink()
    kept = {path: path.read_bytes() for path in store.find("t").path.rglob("*.*")}
    for order in ((), (4,)):
        said = refusal(capsys, "train", "--resume", "t", "--with-ngram", *order)
        assert ("held-out" if kind == "val" else "is for models of text") in said
        assert run(["train", "--resume", "t", "--with-ngram", *map(str, order)]) == 2
    assert names() == ["t"]
    assert {path: path.read_bytes() for path in store.find("t").path.rglob("*.*")} == kept


def test_the_number_may_be_left_out():
    assert fill_in_numbers(["--with-ngram", "book.txt"]) == ["--with-ngram=0", "book.txt"]
    assert fill_in_numbers(["a", "--with-ngram", "8", "b"]) == ["a", "--with-ngram", "8", "b"]
    assert fill_in_numbers(["--with-ngram"]) == ["--with-ngram=0"]
    assert fill_in_numbers(["--with-ngram=4"]) == ["--with-ngram=4"]
    assert fill_in_numbers(["--", "--with-ngram"]) == ["--", "--with-ngram"]


def test_in_a_short_time_n_grams_are_counted_on_the_beginning(text, monkeypatch):
    """The n-gram model is the one that counting so much of the text gives."""
    monkeypatch.setattr(with_ngram, "COUNTED_PER_MINUTE", 500 * 3**2 / 0.01)
    said: list[Notice] = []
    settings = {**SHAPE, "minutes": 0.01, "precision": "float32", "with_ngram": 3}
    train([text], name="t", settings=settings, report=said.append)
    (line,) = (e.text for e in said if isinstance(e, Notice) and "counted on" in e.text)
    counted = int(line.split("first ")[1].split(" of ")[0])
    assert counted == 500 and line.endswith("tokens, to save time and memory")
    begin = text.with_name("begin.txt")
    begin.write_text(TEXT[:counted])
    train([begin], name="begin", architecture="ngram", settings={"order": 3, "val": "none"})
    part, expected = parts_of("t")[1], load(store.find("begin"))
    assert loss_of(part, TEXT) == pytest.approx(loss_of(expected, TEXT), abs=1e-6)
    said.clear()
    resume("t", settings={"minutes": 0.02}, report=said.append)  # counts more in more time
    (line,) = (e.text for e in said if isinstance(e, Notice) and "counted on" in e.text)
    assert "first 1,000 of" in line
    monkeypatch.setattr(with_ngram, "memory", lambda: 2 * 3 * estimators.BYTES_COUNTED * 700)
    said.clear()
    train([text], name="u", settings={**settings, "minutes": 0.02}, report=said.append)
    (line,) = (e.text for e in said if isinstance(e, Notice) and "counted on" in e.text)
    assert "first 700 of" in line


def test_counting_that_would_take_most_of_the_memory_is_limited(text, monkeypatch):
    limits = []
    fit = counting.fit
    monkeypatch.setattr(
        counting, "fit", lambda *of: limits.append(of[3]) or fit(*of[:3], memory=None)
    )
    trained(text, "small", with_ngram=3)
    monkeypatch.setattr(estimators, "memory", lambda: 2 * len(TEXT))
    trained(text, "large", with_ngram=3)
    trained(text, "given", with_ngram=3, memory="8G")
    assert limits == [None, len(TEXT), 8 * 10**9]


def test_of_a_large_held_out_part_pieces_are_used(text, monkeypatch):
    """Weights are fitted on pieces of the first half; the second half is scored as a whole."""
    monkeypatch.setattr(scored_part, "MOST_FITTED", 40)
    monkeypatch.setattr(scored_part, "LEAST_ROW", 10)
    fitted = []
    monkeypatch.setattr(
        scored_part,
        "fit_by_halves",
        lambda parts, corpus, *more, **options: (
            fitted.append(corpus) or mix.fit_by_halves(parts, corpus, *more, **options)
        ),
    )
    found = trained(text, with_ngram=3).mixture
    (pieces,) = fitted
    assert pieces.ends.tolist() == [10, 20, 30, 40] and found["tokens"] == len(second_half("t"))


def test_in_a_short_time_weights_are_fitted_on_rows_from_all_over_the_first_half(text, monkeypatch):
    trained(text, with_ngram=3)
    network, ngram = parts_of("t")
    fitted = []
    monkeypatch.setattr(scored_part, "FITTED_FIRST", 32)
    monkeypatch.setattr(scored_part, "LEAST_ROW", 8)
    monkeypatch.setattr(
        scored_part,
        "fit_by_halves",
        lambda parts, corpus, *more, **options: (
            fitted.append(corpus) or mix.fit_by_halves(parts, corpus, *more, **options)
        ),
    )
    found, half = scored_part.fit_on_first_half(network, [network.model, ngram.model], 1e-9)
    assert half == store.find("t").scored_from and math.isfinite(found.loss)
    (rows,) = fitted
    whole = network.encode([store.find("t").validation_text.read_text()[:half]]).tokens
    assert rows.ends.tolist() == [8, 16, 24, 32]
    for row, begin in enumerate((0, (whole.size - 8) // 3, 2 * (whole.size - 8) // 3)):
        assert rows.tokens[8 * row : 8 * row + 8].tolist() == whole[begin : begin + 8].tolist()
    assert rows.tokens[24:].tolist() == whole[-8:].tolist()


def test_a_gate_that_a_change_of_the_text_misleads_is_not_taken(tmp_path, monkeypatch):
    """What the gate learns of words, that both parts know them, is wrong of random letters."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(5)
    words = ["abbey", "cadence", "decade", "facade", "bead"]
    known = " ".join(generator.choice(words, 3000))
    (tmp_path / "t.txt").write_text(known)
    for name, order in (("two", 2), ("four", 4)):
        train([tmp_path / "t.txt"], name=name, architecture="ngram", settings={"order": order})
    two, four = load(store.find("two")), load(store.find("four"))
    letters = "".join(generator.choice(list("abcdefny "), 3000))
    changed, same = (
        mix.fit_by_halves([two.model, four.model], two.encode([known[:3000] + rest]))
        for rest in (letters, known[3000:6000])
    )
    own, own_same = (
        np.stack([token_log_probs(one.model, two.encode([known[:3000] + rest]))
                  for one in (two, four)], 1)
        for rest in (letters, known[3000:6000])
    )  # fmt: skip
    assert same.gate and same.loss < min(-own_same[1500:].mean(0))
    assert changed.gate == () and changed.loss <= fit_columns(own).loss + 0.01


def test_weights_are_of_the_whole_text_and_their_loss_of_those_of_its_first_half():
    generator = torch.Generator().manual_seed(3)
    own = torch.rand(200, 2, generator=generator, dtype=torch.float64).log()
    matched = torch.zeros(200, dtype=torch.int64)
    found = fit_columns(own.numpy(), matched.numpy(), 3)
    assert found.by_order == ()
    assert found.weights == pytest.approx(fit_weights(own.numpy())[0], abs=1e-4)
    weights, _ = fit_weights(own[:100].numpy())
    assert found.loss == pytest.approx(-np.log(own[100:].exp().numpy() @ weights).mean())


def test_weights_by_order_are_taken_where_they_help():
    """One part is right after order 0, the other after order 1; and a text where that is noise."""
    size = 4 * LEAST_QUARTER
    matched = torch.arange(size) % 2
    right, wrong = math.log(0.9), math.log(0.1)
    own = torch.full((size, 2), wrong, dtype=torch.float64)
    own[torch.arange(size), matched] = right
    found = fit_columns(own.numpy(), matched.numpy(), 2)
    assert found.by_order[0] == pytest.approx((1, 0), abs=1e-3)
    assert found.by_order[1] == pytest.approx((0, 1), abs=1e-3)
    assert found.loss == pytest.approx(-right, abs=1e-3)
    alike = torch.full((size, 2), right, dtype=torch.float64)
    assert fit_columns(alike.numpy(), matched.numpy(), 2).by_order == ()


@pytest.mark.slow
def test_with_auto_a_small_text_gets_a_mixture(text, capsys):
    options = ("--steps", 4, "--hidden-size", 8, "--layers", 1, "--seq-len", 16, "-q")
    (record,) = records(capsys, "train", text, "--model", "auto", "--name", "u", *options)
    assert record["architecture"] == "lstm"
    assert record["mixture"]["name"] == "u"
    said = refusal(capsys, "train", text, "--model", "Auto")
    assert "did you mean 'auto'?" in said


TINY = ("--steps", 4, "--hidden-size", 8, "--layers", 1, "--seq-len", 16, "--precision", "float32")


@pytest.mark.usefixtures("real_default")
@pytest.mark.fast_for("", "--tokenizer-word", rest="slow")
@pytest.mark.parametrize(
    "more",
    [(), ("--documents", "line"), ("--tokenizer", "word"), ("--members", 2)],
    ids=lambda more: "-".join(map(str, more)),
)
def test_an_n_gram_model_is_added_unless_a_network_is_named(text, capsys, more):
    options = (*TINY, "--seed", 1, *more, "-q")
    (record,) = records(capsys, "train", text, "--name", "t", *options)
    assert record["mixture"]["order"] > 1 and store.find("t").ngram is not None
    (alone,) = records(capsys, "train", text, "--name", "u", "--model", "lstm", *options)
    assert alone["mixture"] is None
    # The network is the same, and so is a run from the configuration.
    assert store.find("t").networks.digest == store.find("u").digest
    config = store.find("t").path / "config.json"
    records(capsys, "train", text, "--name", "v", "--config", config, "-q")
    assert store.find("v").digest == store.find("t").digest


@pytest.mark.usefixtures("real_default")
def test_what_names_its_network_or_has_no_n_grams_stays_as_it_was(text, capsys):
    """Without a word."""
    pairs = text.with_name("p.tsv")
    pairs.write_text("a b\tb a\n" * 50)
    records(capsys, "train", text, "--model", "lstm", "--name", "net", *TINY, "-q")
    network = store.find("net").path / "config.json"
    calls = [
        (pairs,),
        (pairs, "--labels"),
        (text, "--val", "none"),
        (text, "--init-from", "net"),
        (text, "--config", network),
        (text, "--model", "gru"),
    ]
    for number, (data, *more) in enumerate(calls):
        own = {"--init-from", "--config"} & {*more}
        tiny = ("--steps", 2, "--precision", "float32") if own else TINY
        said = heard_by_command(capsys, "train", data, *more, "--name", f"t{number}", *tiny)
        assert store.find(f"t{number}").ngram is None
        assert "n-gram" not in said.replace("--with-ngram", "")
        assert "trained alone" not in said


def heard_by_command(capsys, *arguments) -> str:
    """Run a command; return what it says on standard error."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 0
    return capsys.readouterr().err


def test_long_work_says_what_it_is():
    """The line comes while the work goes on; short work says nothing."""
    said: queue.SimpleQueue[Notice] = queue.SimpleQueue()
    with pytest.MonkeyPatch.context() as at_once:
        at_once.setattr(events, "SLOW_SECONDS", 0.0)
        with events.notify_if_slow(said.put, "counting"):
            assert said.get(timeout=60).text == "counting ..."
    with events.notify_if_slow(said.put, "counting"):
        pass
    assert said.empty()


def test_every_part_of_a_run_without_progress_says_what_it_is_if_it_is_long(text, monkeypatch):
    class AtOnce:
        """A timer whose time has come when it starts."""

        def __init__(self, seconds: float, call: Callable[[Notice], None], args: list[Notice]):
            self.start, self.cancel = (lambda: call(*args)), (lambda: None)

    monkeypatch.setattr(events.threading, "Timer", AtOnce)
    said: list[Notice] = []
    train([text], name="t", settings={**SHAPE, "steps": 1, "with_ngram": 3}, report=said.append)
    long = [event.text for event in said if isinstance(event, Notice) and "..." in event.text]
    choosing, counting, fitting, scoring = long
    assert "how fast" in choosing and "counting n-grams" in counting
    assert "mixture" in fitting and "held-out" in scoring


def test_an_empty_line_before_a_long_one_is_fitted_on_in_a_short_time(text, monkeypatch):
    lines = ["so it goes on and on, and it ends so " * 3] * 40
    text.write_text("\n".join(lines) + "\n")
    held_out = text.with_name("held-out.txt")
    held_out.write_text("\n" + text.read_text())
    trained(text, with_ngram=3, documents="line", val=str(held_out))
    network, ngram = parts_of("t")
    monkeypatch.setattr(scored_part, "FITTED_FIRST", 32)
    found, half = scored_part.fit_on_first_half(network, [network.model, ngram.model], 1e-9)
    assert sum(found.weights) == pytest.approx(1) and half == store.find("t").scored_from


def test_settings_that_training_has_revised_stay(text):
    """Storing a mixture or a scored part later does not overwrite them."""
    trained(text, with_ngram=3)
    stored = store.find("t")
    settings = stored.settings("training", TrainingConfig)
    keep_settings(stored, replace(settings, lr=0.125))
    keep_settings(store.find("t"), scored_from=5)
    changed = store.find("t")
    assert changed.settings("training", TrainingConfig).lr == 0.125 != settings.lr
    assert changed.scored_from == 5 and changed.ngram is not None

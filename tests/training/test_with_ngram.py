"""`seqgen train --with-ngram`: an n-gram model beside a network, and the mixture of both."""

from __future__ import annotations

import math
import queue
import shutil
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers_cli import needs, records, refusal

from seqgen import store
from seqgen.cli import run
from seqgen.cli.shell.flags import fill_in_numbers
from seqgen.models.mixture.fitting import fit_weights
from seqgen.scoring import mixture_fitting as mix
from seqgen.scoring.mixture_fitting import LEAST_QUARTER, fit_columns, token_log_probs
from seqgen.store import StoredModel
from seqgen.store.loading import load
from seqgen.training import choosing, events, with_ngram
from seqgen.training.events import Notice
from seqgen.training.resume import resume
from seqgen.training.train import train

TEXT = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 20
SHAPE = {"hidden_size": 8, "num_layers": 1, "seq_len": 16, "batch_size": 4, "seed": 1}
SETTINGS = {**SHAPE, "steps": 6, "precision": "float32"}


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "t.txt").write_text(TEXT)
    return tmp_path / "t.txt"


def trained(text, name="t", **more):
    return train([text], name=name, settings={**SETTINGS, **more})


def names() -> list[str]:
    return sorted(model.name for model in store.list_models())


def test_both_models_and_their_mixture_are_stored(text, capsys):
    """Its figures are those of the second half alone, by scoring each model anew."""
    said = ("--steps", 6, "--layers", 1, "--hidden-size", 8, "--seq-len", 16, "--precision")
    options = (*said, "float32", "--seed", 1, "--name", "t", "-q")
    (record,) = records(capsys, "train", text, "--with-ngram", 3, *options)
    assert names() == ["t", "t-mixture", "t-ngram"]
    found = record["mixture"]
    assert (found["name"], found["ngram"], found["order"]) == ("t-mixture", "t-ngram", 3)
    assert sum(found["weights"]) == pytest.approx(1)
    held_out = store.find("t").validation_text.read_text()
    assert found["tokens"] == len(held_out) - len(held_out) // 2
    for name, key in (("t", "network"), ("t-ngram", "ngram"), ("t-mixture", "mixture")):
        loaded = load(name)
        column = torch.from_numpy(token_log_probs(loaded.model, _corpus(loaded, held_out)))
        mean = -column[len(held_out) // 2 :].mean().item()
        assert found[f"{key}_loss"] == pytest.approx(mean, abs=1e-5)
    assert store.find("t").record["result"]["mixture"] == found
    (score,) = records(capsys, "perplexity", "-q")  # the latest is the mixture
    assert score["model"] == "t-mixture"
    kept = StoredModel(store.find("t-mixture").path).record["result"]
    assert kept["val_loss"] == pytest.approx(score["nll_nats"] / score["tokens"], abs=1e-5)
    capsys.readouterr()
    assert run(["models", "show", "t", "--all"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    shown = {line.split("  ")[0]: line.split()[-1] for line in lines}
    assert shown["result: mixture: order"] == "3" and "result: mixture" not in shown


def _corpus(loaded, text):
    from seqgen.text.corpus import encode_corpus

    return encode_corpus([text], loaded.tokenizer, loaded.data.documents)


def test_the_order_without_a_number_has_the_lowest_loss(text, monkeypatch):
    """On text that repeats with a period of three characters, two determine the third."""
    text.write_text("abcabdabeabf" * 200)
    losses = {}
    counted = with_ngram._count_sample

    def spy(prepared, order):
        model = counted(prepared, order)
        half = with_ngram.parallel_rows(prepared.val, 1, prepared.val.tokens.size // 2)
        losses[order] = -token_log_probs(model, half).mean()
        return model

    monkeypatch.setattr(with_ngram, "_count_sample", spy)
    monkeypatch.setattr(with_ngram, "SPELLED_ORDERS", range(1, 7))
    result = trained(text, with_ngram=0)
    assert result.mixture["order"] == min(losses, key=losses.get) > 1
    # Kept, so that a resumed run counts the same.
    assert store.find("t").config["training"]["with_ngram"] == result.mixture["order"]


def test_a_finished_run_gets_its_mixture_afterwards(text):
    assert trained(text).mixture is None
    result = resume("t", settings={"with_ngram": 2})
    assert result.steps == 6 and result.mixture["order"] == 2
    assert names() == ["t", "t-mixture", "t-ngram"]
    said: list[Notice] = []
    again = resume("t", report=said.append)
    assert again == result
    assert "has finished" in said[-1].text


def test_a_longer_budget_mixes_anew_and_until_then_the_old_mixture_works(text):
    first = trained(text, with_ngram=2)
    resume("t", settings={"steps": 12}, stop_after=9)
    load("t-mixture")
    result = resume("t")
    assert result.steps == 12
    assert result.mixture["name"] == first.mixture["name"] == "t-mixture"
    assert names() == ["t", "t-mixture", "t-ngram"]
    assert result.mixture["ngram_loss"] == first.mixture["ngram_loss"]
    parts = store.find_all("t-mixture").parts
    assert parts[0].digest == store.find("t").digest
    shutil.rmtree(store.find("t").path)
    load("t-mixture")


def test_an_interrupted_mixture_is_made_by_resuming(text, monkeypatch):
    for broken in ("_count", "write_stored"):
        name = broken.strip("_").replace("_", "-")

        def interrupted(*arguments, **options):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(with_ngram, broken, interrupted)
            with pytest.raises(with_ngram.Interrupted, match=f"train --resume {name}"):
                trained(text, name, with_ngram=2)
        assert f"{name}-mixture" not in names()
        load(name)
        assert resume(name).mixture["name"] == f"{name}-mixture"


def test_names_in_use_are_refused_before_training_and_kept_after(text, capsys):
    trained(text, "t-mixture", steps=1)
    kept = store.find("t-mixture").digest
    said = refusal(capsys, "train", text, "--name", "t", "--with-ngram")
    assert "'t-mixture' already exists" in said
    trained(text)
    assert resume("t", settings={"with_ngram": 2}).mixture["name"] == "t-mixture-2"
    assert store.find("t-mixture").digest == kept
    with pytest.raises(with_ngram.SeqgenError, match="already exists"):
        trained(text, "t-mixture", with_ngram=2, steps=1)


@pytest.mark.fast_for("_count-3")
@pytest.mark.parametrize(
    ("broken", "order"), [("_count", 3), ("_counted_before", 2), ("write_stored", 2)]
)
def test_mixing_anew_can_be_interrupted(text, monkeypatch, broken, order):
    """The advice, `train --resume t`, then makes the mixture, whether or not its order is new."""
    trained(text, "t", with_ngram=2)
    before = digests()

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(with_ngram, broken, interrupted)
        with pytest.raises(with_ngram.Interrupted, match="train --resume t"):
            resume("t", settings={"with_ngram": order})
    assert digests()["t-mixture"] == before["t-mixture"]
    result = resume("t")
    assert result.mixture["order"] == order and result.mixture["name"] == "t-mixture"
    assert (digests() == before) == (order == 2)
    said: list[Notice] = []
    assert resume("t", report=said.append) == result
    assert "has finished" in said[-1].text


def test_an_n_gram_model_that_was_counted_is_not_counted_again(text, monkeypatch):
    trained(text, "t", with_ngram=3)
    assert resume("t", settings={"with_ngram": 4}).mixture["ngram"] == "t-ngram"
    assert names() == ["t", "t-mixture", "t-ngram"]
    with monkeypatch.context() as patch:
        patch.setattr(with_ngram, "_count", None)
        assert resume("t", settings={"steps": 9}).mixture["order"] == 4
    # Also where its name was taken, or another mixture needs the one before.
    store.rename(store.find("t-ngram"), "t-ngram-2")
    trained(text, "t-ngram", steps=1)
    with monkeypatch.context() as patch:
        patch.setattr(with_ngram, "_count", None)
        assert resume("t", settings={"steps": 12}).mixture["ngram"] == "t-ngram-2"
    assert names() == ["t", "t-mixture", "t-ngram", "t-ngram-2"]


def refused_to_overwrite(text, capsys, *options) -> str:
    everything = digests()
    tiny = ("--steps", 1, "--hidden-size", 8, "--layers", 1, "-q")
    said = refusal(capsys, "train", text, "--name", "t", *options, *tiny)
    assert digests() == everything
    return said


def digests() -> dict[str, str]:
    return {model.name: model.digest for model in store.list_models()}


def test_overwriting_a_network_replaces_its_own_family_and_no_other_model(text, capsys):
    trained(text, "t-mixture", steps=1)
    trained(text)
    for options in (("--with-ngram", 2), ("--model", "auto")):
        said = refused_to_overwrite(text, capsys, *options, "--overwrite")
        assert "'t-mixture' already exists" in said
    store.rename(store.find("t-mixture"), "t-ngram")
    said = refused_to_overwrite(text, capsys, "--with-ngram", 2, "--overwrite")
    assert "'t-ngram' already exists" in said
    store.rename(store.find("t-ngram"), "other")
    # Its family, with another order and other weights, also after the run was stopped.
    trained(text, "u", with_ngram=2)
    before = digests()
    settings = {**SETTINGS, "with_ngram": 3, "seed": 2}
    train([text], name="u", settings=settings, overwrite=True, stop_after=2)
    assert digests()["u-mixture"] == before["u-mixture"]
    assert resume("u").mixture["name"] == "u-mixture"
    after = digests()
    assert after.keys() == before.keys()
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"u", "u-ngram", "u-mixture"}


def test_a_new_network_under_an_old_name_takes_free_names(text):
    """The mixture holds copies of its parts, and works although these are gone."""
    first = train([text], settings={**SETTINGS, "with_ngram": 2})
    for name in (first.name, first.mixture["ngram"]):
        store.remove(store.find(name))
    kept = digests()
    second = train([text], settings={**SETTINGS, "with_ngram": 2, "seed": 2})
    assert second.name == first.name
    assert second.mixture["name"] == f"{first.mixture['name']}-2"
    assert digests().items() >= kept.items()
    load(first.mixture["name"])
    # Its own are found again under those names.
    assert resume(second.name, settings={"steps": 9}).mixture["name"] == second.mixture["name"]
    assert len(digests()) == 4


def test_mixtures_made_by_hand_are_neither_replaced_nor_broken(text):
    from seqgen.scoring.mixing import combine, store_mixture

    trained(text, "a", with_ngram=2)
    trained(text, "b", seed=2)
    store_mixture(combine(["b", "a"]), weights=[0.5, 0.5], name="b-mixture")
    store_mixture(combine(["b", "a-ngram"]), weights=[0.5, 0.5], name="hand")
    kept = digests()
    assert resume("b", settings={"with_ngram": 2}).mixture["name"] == "b-mixture-2"
    assert digests()["b-mixture"] == kept["b-mixture"]
    assert resume("a", settings={"with_ngram": 3}).mixture["ngram"] == "a-ngram-2"
    load("hand")


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
    assert "two held-out tokens" in refusal(capsys, "train", text, "--with-ngram", "--steps", 1)
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


def test_a_name_too_long_for_the_models_beside_is_refused_before_training(text, capsys):
    """File systems allow 255 bytes: those of `.NAME-mixture.0123abcd.gone`, also with a number."""
    tiny = ("--steps", 1, "--hidden-size", 8, "--layers", 1, "-q")
    said = refusal(capsys, "train", text, "--name", "n" * 244, *tiny)
    assert said.endswith("a model's name has at most 240 characters, not 244")
    most = with_ngram.store.LONGEST_NAME - len("-mixture-999")
    said = refusal(capsys, "train", text, "--name", "n" * (most + 1), "--with-ngram", 2, *tiny)
    assert f"{most} characters" in said
    assert names() == []
    trained(text, "n" * most, with_ngram=2)
    load("n" * most + "-mixture")
    trained(text, "m" * (most + 1))
    kept = names()
    said = refusal(capsys, "train", "--resume", "m" * (most + 1), "--with-ngram", 2)
    assert f"{most} characters" in said and "models rename" in said
    assert names() == kept
    said = refusal(capsys, "models", "rename", "m" * (most + 1), "m" * 241)
    assert "at most 240" in said
    store.rename(store.find("m" * (most + 1)), "m" * 240)
    store.remove(store.find("m" * 240))


def test_a_long_file_name_leaves_room_for_the_names_made_of_it(text):
    text = text.rename(text.with_name("t" * 251 + ".txt"))
    for number in ("", "-2"):
        result = train([text], settings={**SETTINGS, "with_ngram": 2})
        assert result.name == "t" * 100 + "-lstm" + number
        assert result.mixture["name"] == f"{result.name}-mixture"


@pytest.mark.fast_for("auto-0", "None-1000*")
@pytest.mark.parametrize("tokens", [0, 1e12])  # whether the budget is enough for a network
@pytest.mark.parametrize("architecture", ["auto", None])
def test_a_mixture_that_cannot_be_made_is_not_advised(text, monkeypatch, tokens, architecture):
    """Nor is it made by `--model auto`, which says why."""
    monkeypatch.setattr(choosing.SpeedTrial, "known_speeds", {1: tokens / (60 * 0.001)})
    said: list[str] = []
    settings = {**SHAPE, "minutes": 0.001, "precision": "float32"}
    for val in ("none", "0.1"):
        train(
            [text],
            architecture=architecture,
            name=f"t{val[0]}",
            settings={**settings, "val": val, "patience": None},
            report=lambda event: said.append(event.text) if isinstance(event, Notice) else None,
        )
        if val == "none":
            assert not any("or --model auto" in line for line in said)
            assert any("leave out --val none" in line for line in said) == (architecture == "auto")
            assert names() == ["tn"]
            assert any(("--model ngram" if not tokens else "--init-from") in line for line in said)
    mixed = "t0-mixture" in names()
    assert mixed == (architecture == "auto")
    assert any("or --model auto" in line for line in said) != mixed


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


@pytest.mark.slow
def test_a_mixture_that_would_pay_is_recommended_after_minutes(text):
    said: list[Notice] = []
    settings = {**SHAPE, "minutes": 0.01, "precision": "float32"}
    train([text], name="t", settings=settings, report=said.append)
    lines = [event.text for event in said if isinstance(event, Notice)]
    assert "seqgen train --resume t --with-ngram" in lines[-1]
    assert names() == ["t"]
    trained(text, "steps", steps=1)


def test_of_a_large_held_out_part_pieces_are_used(text, capsys, monkeypatch):
    """As the documentation says: spread over it, one half of them for the weights, no val_loss."""
    monkeypatch.setattr(mix, "FITTED_ROWS", 4)
    monkeypatch.setattr(mix, "FITTED_LENGTH", 20)
    found = trained(text, with_ngram=3).mixture
    assert found["tokens"] == 2 * 20
    (row,) = (row for row in records(capsys, "models") if row["name"] == "t-mixture")
    assert row["val_bits_per_char"] is None
    loaded = load("t-mixture")
    held_out = _corpus(loaded, store.find("t").validation_text.read_text())
    assert held_out.tokens.size > 80
    pieces = with_ngram.parallel_rows(held_out, 4, 20)
    assert pieces.tokens[:20].tolist() == held_out.tokens[:20].tolist()
    assert pieces.tokens[-20:].tolist() == held_out.tokens[-20:].tolist()
    column = token_log_probs(loaded.model, pieces)
    assert found["mixture_loss"] == pytest.approx(-column[40:].mean(), abs=1e-5)
    assert store.find("t-mixture").record["held_out_loss"] == found["mixture_loss"]
    (whole,) = records(capsys, "perplexity", "-m", "t-mixture", "-q")
    assert whole["tokens"] == held_out.tokens.size


def test_weights_are_fitted_on_the_first_half_alone():
    generator = torch.Generator().manual_seed(3)
    own = torch.rand(200, 2, generator=generator, dtype=torch.float64).log()
    matched = torch.zeros(200, dtype=torch.int64)
    found = fit_columns(own.numpy(), matched.numpy(), 3)
    assert found.by_order == () and found.tokens == 100
    weights, _ = fit_weights(own[:100].numpy())
    assert found.weights == pytest.approx(weights, abs=1e-4)
    probabilities = own.exp().numpy()
    mixed = np.log(probabilities @ np.array(found.weights))
    wanted = (*-own[100:].mean(0).numpy(), -mixed[100:].mean())
    assert found.losses == pytest.approx(wanted)
    assert found.all_nats == pytest.approx(-mixed.sum())
    other = torch.cat([own[:100], own[:100].flip(1)])  # the second half changes no weight
    assert fit_columns(other.numpy(), matched.numpy(), 3).weights == found.weights


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
    assert found.losses[2] == pytest.approx(-right, abs=1e-3)
    alike = torch.full((size, 2), right, dtype=torch.float64)
    assert fit_columns(alike.numpy(), matched.numpy(), 2).by_order == ()


@pytest.mark.slow
def test_a_small_text_gets_a_line_or_with_auto_a_mixture(text, capsys):
    said: list[Notice] = []
    settings = {**SHAPE, "minutes": 0.01, "precision": "float32"}
    train([text], name="t", settings=settings, report=said.append)
    assert any("--model auto" in event.text for event in said if isinstance(event, Notice))
    options = ("--steps", 4, "--hidden-size", 8, "--layers", 1, "--seq-len", 16, "-q")
    (record,) = records(capsys, "train", text, "--model", "auto", "--name", "u", *options)
    assert record["architecture"] == "lstm"
    assert record["mixture"]["name"] == "u-mixture"
    said = refusal(capsys, "train", text, "--model", "Auto")
    assert "did you mean 'auto'?" in said
    text.write_text(TEXT * 100)
    options = (*options, "--precision", "float32")
    (record,) = records(capsys, "train", text, "--model", "auto", "--name", "w", *options)
    assert record["mixture"] is None


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
    choosing, scoring, mixing = long
    assert "how fast" in choosing and "held-out" in scoring and "mixture" in mixing

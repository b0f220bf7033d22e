"""`seqgen mix`: a mixture stored as a model of its own, in every command."""

from __future__ import annotations

import errno
import json
import math
import shutil

import pytest
import torch
from helpers_cli import has_plugin, installed, records, refusal

from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.files import write_bytes
from seqgen.scoring.mixing import combine, store_mixture
from seqgen.scoring.mixture_fitting import token_log_probs
from seqgen.store.loading import Work, load
from seqgen.training.train import train

TEXT = "the cat sat on the mat\nthe dog sat on the cat\n\na dog and a cat\nthe mat\n" * 8
HELD_OUT = "a cat dog on a mat the\na cat and a dog\n"


def trained(folder, name, architecture="ngram", text=TEXT, held_out=HELD_OUT, **more):
    (folder / f"{name}.txt").write_text(text)
    (folder / f"{name}-val.txt").write_text(held_out)
    more = {"val": str(folder / f"{name}-val.txt"), **more}
    if architecture == "lstm":
        more |= {"steps": 5, "hidden_size": 8, "num_layers": 1, "seed": 1}
    train([folder / f"{name}.txt"], architecture=architecture, name=name, settings=more)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mix")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        trained(folder, "A", order=4)
        trained(folder, "B", "lstm")
        trained(folder, "L", order=2, documents="line")
        trained(folder, "R", order=2, direction="backward")
        trained(folder, "X", order=2, text=TEXT + "x")
        trained(folder, "H", order=2, held_out=HELD_OUT[::-1])
    return folder


@pytest.fixture
def models(trained_once, tmp_path, monkeypatch):
    home = tmp_path / "home"
    shutil.copytree(trained_once / "home", home)
    monkeypatch.setenv("SEQGEN_HOME", str(home))
    return tmp_path


def test_the_stored_mixture_is_what_the_same_weights_give(models, capsys):
    """Fitted by EM, like `perplexity --fit` on the same text; read back by name and path."""
    text = models / "half.txt"
    (mixed,) = records(capsys, "mix", "A", "B", "--name", "M", "-q")
    half = store.find("M").scored_from
    assert HELD_OUT[half:] == "a cat and a dog\n"  # the second half begins a line
    text.write_text(HELD_OUT[:half])
    first = ["name", "path", "parts", "weights", "nll_nats", "by_order"]
    assert list(mixed) == [*first, "gate", "held_out_loss"]
    assert mixed["by_order"] is None and mixed["gate"] is None
    assert (mixed["name"], mixed["parts"]) == ("M", ["A", "B"])
    assert sum(mixed["weights"]) == pytest.approx(1)
    (fitted,) = records(capsys, "perplexity", "-m", "A+B", "--fit", text, "-q")
    assert mixed["weights"] == fitted["weights"]
    for of in ("M", mixed["path"], "latest"):
        (found,) = records(capsys, "perplexity", "-m", of, "-q")
        assert (found["model"], found["nll_nats"]) == ("M", mixed["nll_nats"])
    (rest := models / "rest.txt").write_text(HELD_OUT[half:])
    (given,) = records(capsys, "perplexity", rest, "-m", fitted["model"], "-q")
    assert given["nll_nats"] == pytest.approx(mixed["nll_nats"], rel=1e-6)
    (again,) = records(capsys, "perplexity", "-m", "M", "--fit", text, "-q")
    assert again["model"] == fitted["model"]  # what the weights stand for can be typed


@pytest.mark.fast_for("by0", rest="slow")
@pytest.mark.parametrize("by", [(), ("--by", "order"), ("--by", "context")])
def test_half_of_the_held_out_text_is_kept_from_the_weights(by, models, capsys):
    """The weights are those of the first half, and the figures of the second, by hand."""
    (mixed,) = records(capsys, "mix", "A", "B", "--name", "M", *by, "-q")
    assert run(["mix", "A", "B", "--name", "N", *by]) == 0
    said = f"{mixed['held_out_loss']:.4f} nats/token on the half"
    assert said in capsys.readouterr().err
    corpora = {name: load(name, "cpu") for name in "AB"}
    half = store.find("M").scored_from
    parts = []
    for text in (HELD_OUT[:half], HELD_OUT[half:]):  # each from the start of a text
        ids, columns = corpora["A"].tokenizer.encode(text).tolist(), []
        for loaded in corpora.values():
            past = torch.tensor([[loaded.framing.start, *ids[:-1]]])
            with torch.no_grad():
                log_probs = loaded.model(past)[0].log_softmax(-1)[0]
            columns.append(log_probs[range(len(ids)), ids].double())
        parts.append(torch.stack(columns, 1))

    def loss(weight, columns):
        rows = torch.tensor([weight, 1 - weight], dtype=torch.float64).log()
        return -(columns + rows).logsumexp(1).mean().item()

    grid = [n / 1000 for n in range(1, 1000)]
    best = min(grid, key=lambda weight: loss(weight, parts[0]))
    assert mixed["weights"][0] == pytest.approx(best, abs=2e-3)
    if not by:
        expected = loss(mixed["weights"][0], parts[1])
        assert mixed["held_out_loss"] == pytest.approx(expected, abs=1e-4)
    record = store.find_all("M").record
    assert record["result"]["val_loss"] == mixed["held_out_loss"]
    (found,) = records(capsys, "perplexity", "-m", "M", "-q")
    assert found["characters"] == len(HELD_OUT) - half
    assert record["result"]["val_loss"] == pytest.approx(found["nats_per_token"])
    assert f"the last {found['characters']} held-out characters" in found["protocol"]
    # No weights that were fitted elsewhere, or given, have such a figure.
    (models / "fit.txt").write_text(TEXT)
    given = ("--weights", "0.5,0.5"), ("--fit", models / "fit.txt")
    for how in given:
        (other,) = records(capsys, "mix", "A", "B", *how, "-q")
        assert other["held_out_loss"] is None


def test_models_of_a_token_file_are_mixed_as_those_of_its_text(models, capsys):
    (text := models / "t.txt").write_text(TEXT)
    tokens = models / "t.tok"
    records(capsys, "tokenize", text, "--tokenizer", "byte", "--out", tokens, "-q")
    found = []
    for name, data in (("of-text", text), ("of-tokens", tokens)):
        for order in (2, 4):
            tokenizer = {"tokenizer": "byte"} if data is text else {}
            settings = {"order": order, "val": "0.3", **tokenizer}
            train([data], architecture="ngram", name=f"{name}{order}", settings=settings)
        parts = f"{name}2", f"{name}4"
        (mixed,) = records(capsys, "mix", *parts, "--name", name, "-q")
        result = store.find(name).record["result"]
        (scored,) = records(capsys, "perplexity", "-m", name, "-q")
        assert mixed["held_out_loss"] == result["val_loss"] == scored["nats_per_token"]
        found.append((mixed["weights"], scored["characters"], mixed["nll_nats"]))
    assert found[0] == found[1]


def test_given_weights_and_another_text(models, capsys):
    (mixed,) = records(capsys, "mix", "A", "B", "--name", "M", "--weights", "0.25,0.75", "-q")
    assert mixed["weights"] == [0.25, 0.75]
    assert store.find_all("M").weights == (0.25, 0.75)
    (found,) = records(capsys, "perplexity", "-m", "A:0.25+B:0.75", "-q")
    assert found["nll_nats"] == pytest.approx(mixed["nll_nats"], rel=1e-6)
    (none,) = records(capsys, "mix", "A", "H", "--name", "N", "--weights", "0.5,0.5", "-q")
    assert none["nll_nats"] is None
    text = models / "fit.txt"
    text.write_text("the mat and the dog\n" * 3)
    (other,) = records(capsys, "mix", "A", "B", "H", "--name", "O", "--fit", text, "-q")
    (scored,) = records(capsys, "perplexity", text, "-m", "O", "-q")
    assert scored["nll_nats"] == other["nll_nats"]
    (listed,) = (row for row in records(capsys, "models") if row["name"] == "O")
    assert listed["val_bits_per_char"] is None  # that text was not held out


def test_every_command_takes_it(models, capsys):
    (mixed,) = records(capsys, "mix", "A", "B", "--name", "M", "-q")
    (row,) = (row for row in records(capsys, "models") if row["name"] == "M")
    (whole,) = records(capsys, "perplexity", "-m", "M", "-q")
    assert (row["architecture"], row["tokenizer"]) == ("mixture", "char")
    assert row["val_bits_per_char"] == pytest.approx(whole["bits_per_char"])
    for command in ("sample", "beam-search"):
        (found,) = records(capsys, command, "the", "-m", "M", "--max-tokens", 5, "-q")
        assert found["model"] == "M"
    text = models / "text.txt"
    text.write_text(HELD_OUT * 40)
    assert records(capsys, "tokenize", models / "text.txt", "-m", "M", "-q")
    compared = records(capsys, "compare", "A", "M", "--resamples", 10, "-q")
    assert {found["model"] for found in compared} == {"A", "M"}
    assert records(capsys, "eval", text, "-m", "M", "--passages", 2, "-q")
    assert run(["models", "show", "M"]) == 0
    assert f"A:{mixed['weights'][0]:g} + B:" in capsys.readouterr().out
    assert run(["models", "show", "M", "--all"]) == 0
    (path,) = records(capsys, "models", "path", "M")
    assert path["path"] == mixed["path"]
    assert records(capsys, "models", "rename", "M", "N", "-q")[0]["name"] == "N"
    assert records(capsys, "perplexity", "-m", "N", "-q")[0]["nll_nats"] == mixed["nll_nats"]
    records(capsys, "models", "remove", "N", "--yes", "-q")
    assert {model.name for model in store.list_models()} == set("ABLRXH")


def test_where_one_model_is_needed_the_parts_are_named(models, capsys):
    records(capsys, "mix", "A", "B", "--name", "M", "-q")
    text = models / "text.txt"
    text.write_text(TEXT)
    for command in (
        ["train", text, "--init-from", "M", "-q"],
        ["train", "--resume", "M", "-q"],
        ["perplexity", "-m", "M+B"],
        ["mix", "M", "A", "--name", "N"],
    ):
        said = refusal(capsys, *command)
        assert "M is a mixture" in said
        assert "A or B" in said
    for command in installed(["export"]):
        assert "M" in refusal(capsys, command, "M")


def test_a_part_that_is_gone_or_has_changed_is_named(models, capsys):
    (mixed,) = records(capsys, "mix", "A", "B", "--name", "M", "-q")
    place = models / "home/models"
    (place / "A").rename(place / "A2")  # found by its hash
    assert records(capsys, "perplexity", "-m", "M", "-q")[0]["nll_nats"] == mixed["nll_nats"]
    (place / "A2").rename(models / "elsewhere")
    assert "its part A is gone" in refusal(capsys, "sample", "-m", "M", "-q")
    assert records(capsys, "sample", "-q", "--max-tokens", 1)[0]["model"] != "M"  # the latest
    shutil.copytree(place / "H", place / "A")
    assert "its part A has changed since" in refusal(capsys, "sample", "-m", "M", "-q")


def test_copies_work_elsewhere_and_are_removed_with_it(models, capsys, monkeypatch):
    (mixed,) = records(capsys, "mix", "A", "B", "--name", "M", "--copy", "-q")
    moved = models / "moved"
    shutil.copytree(mixed["path"], moved)
    shutil.move(models / "home", models / "old")
    (found,) = records(capsys, "perplexity", "-m", moved, "-q")  # no model is at home
    assert found["nll_nats"] == mixed["nll_nats"]
    assert store.find_all(moved).digest == store.StoredModel(models / "old/models/M").digest
    (moved / "parts/A/mine.txt").write_text("")
    assert "mine.txt" in refusal(capsys, "models", "remove", moved, "--yes")
    (moved / "parts/A/mine.txt").unlink()
    records(capsys, "models", "remove", moved, "--yes", "-q")
    assert not moved.exists()


def test_show_says_what_a_mixture_is(models, capsys):
    """Where each part is, whether it is as it was, and the weights, also by order."""

    def shown(name):
        assert run(["models", "show", name]) == 0
        lines = capsys.readouterr().out.splitlines()
        return dict(line.split("  ", 1) for line in lines if "  " in line)

    (mixed,) = records(capsys, "mix", "B", "A", "--name", "O", "--by", "order", "-q")
    records(capsys, "mix", "A", "B", "--name", "C", "--copy", "-q")
    facts = {key: value.strip() for key, value in shown("O").items()}
    assert "text" not in facts  # the parts' texts are their own
    assert facts["parts"] == "B (referred to), A (referred to)"
    for m, row in enumerate(mixed["by_order"]):
        assert facts[f"after {m} matched"] == f"B:{row[0]:.4f} + A:{row[1]:.4f}"
    assert shown("C")["parts"].count("a copy in the mixture's folder") == 2
    (record,) = records(capsys, "models", "show", "O")
    place = models / "home/models"
    assert record["mixture"] == {
        "parts": [{"name": name, "path": str(place / name)} for name in "BA"],
        "weights": mixed["weights"],
        "by_order": mixed["by_order"],
        "gate": None,
    }
    assert records(capsys, "models", "show", "A")[0]["mixture"] is None
    (place / "A").rename(place / "A2")
    assert "A (referred to, now called A2)" in shown("O")["parts"]
    shutil.rmtree(place / "A2")
    assert "A (gone or changed since" in shown("O")["parts"]
    shutil.copytree(place / "H", place / "A")
    assert "A (gone or changed since" in shown("O")["parts"]
    assert "gone" not in shown("C")["parts"]
    assert run(["models", "show", "O", "--all"]) == 0
    assert "mixture: by_order" in capsys.readouterr().out


def test_parts_elsewhere_are_known_by_path(models, capsys):
    shutil.move(models / "home/models/A", models / "A")
    (mixed,) = records(capsys, "mix", models / "A", "B", "--name", "M", "-q")
    assert mixed["parts"] == ["A", "B"]
    assert records(capsys, "perplexity", "-m", "M", "-q")[0]["nll_nats"] == mixed["nll_nats"]


def test_what_cannot_be_mixed_is_one_line(models, capsys):
    for arguments, said in {
        ("A",): "two parts or more",
        ("A", "A"): "A is given twice",
        ("A", "nobody"): "there is no model named 'nobody'",
        (
            "A",
            "B:bytes=few",
        ): "a model is seen as :bytes, :bytes=all or :bytes=all,N, not :bytes=few",
        ("A:0.3", "B:0.7"): "write A instead of A:0.3: --weights X,X sets weights",
        ("A", "L"): "different --documents",
        ("A", "R"): "different directions",
        ("A", "H"): "no held-out text in common",
        ("A", "B", "--weights", "0.5"): "2 parts and 1 weights",
        ("A", "B", "--weights", "0.5,0.6"): "sum to 1.1",
        ("A", "B", "--weights", "-0.5,1.5"): "from 0 to 1",
        ("A", "B", "--weights", "nan,1"): "--weights must be a number, not 'nan'",
        ("A", "B", "--weights", "a,b"): "--weights must be a number, not 'a'",
        ("A", "B", "--weights", ""): "--weights takes a list with commas between, not ''",
        ("A", "B", "--weights", "0.5,0.5", "--fit", "x"): "not both",
        ("A", "B", "--fit", "nowhere.txt"): "nowhere.txt",
    }.items():
        assert said in refusal(capsys, "mix", *arguments, "--name", "M", "-q")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqgen.hooks.by_name", lambda field: {})  # none that sees both by bytes
        assert (
            "A and X use different tokenizers and cannot be mixed; train one with --tokenizer "
            in (refusal(capsys, "mix", "A", "X", "--name", "M", "-q"))
        )
    assert "A is given twice" in refusal(capsys, "perplexity", "-m", "A+B+A")
    assert "is a part of the mixture" in refusal(capsys, "mix", "A", "B", "--name", "B")
    assert "already exists" in refusal(capsys, "mix", "A", "B", "--name", "H", "-q")
    before = records(capsys, "mix", "A", "B", "--name", "H", "--overwrite", "-q")
    assert before[0]["name"] == "H"
    assert store.find("H").is_mixture


def test_a_write_that_fails_at_any_moment_leaves_a_whole_model_or_none(models, monkeypatch):
    """Stopped at every file that is written, while an older model of that name is replaced."""
    assert run(["mix", "A", "B", "--name", "M", "--copy", "--weights", "0.5,0.5", "-q"]) == 0
    old, stopped, done = store.find_all("M").digest, 0, False
    while not done:
        left = [stopped]

        def limited(path, content, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            write_bytes(path, content)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("seqgen.store.folder.write_bytes", limited)
            command = ["mix", "A", "B", "--name", "M", "--copy", "--weights", "0.9,0.1", "-q"]
            done = run([*command, "--overwrite"]) == 0
        found = store.find_all("M")
        assert (found.digest != old) == done
        load("M")
        stopped += 1
    assert stopped > 2


@pytest.mark.parametrize("full_at", range(4))
def test_a_full_disk_is_one_line_that_says_so(models, capsys, monkeypatch, full_at):
    """Full at any file that is copied, in the mixture's own folder or in a copy of a part."""
    copy_file, left = shutil.copyfile, [full_at]

    def limited(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return copy_file(source, target)

    monkeypatch.setattr(shutil, "copyfile", limited)
    said = refusal(capsys, "mix", "A", "B", "--name", "M", "--weights", "0.5,0.5", "--copy", "-q")
    assert "cannot be written: No space left on device; nothing was saved" in said
    assert not (models / "home/models/M").exists()


def test_damage_is_one_line(models, capsys):
    records(capsys, "mix", "A", "B", "--name", "M", "-q")
    path = store.find("M").path
    config = json.loads((path / "config.json").read_text())
    (path / "manifest.json").unlink()
    (path / "config.json").write_text(json.dumps({**config, "parts": config["parts"] * 2}))
    assert "weights do not fit" in refusal(capsys, "sample", "-m", "M", "-q")
    for wrong in ([], [{"name": "A"}, {"name": "B"}], "abc", [1, 2]):
        (path / "config.json").write_text(json.dumps({**config, "parts": wrong}))
        assert "is damaged" in refusal(capsys, "sample", "-m", "M", "-q")
        assert "is damaged" in refusal(capsys, "models", "show", "M")
        assert "is damaged" in refusal(capsys, "train", "--resume", "M", "-q")
    assert records(capsys, "models", "remove", "M", "--yes", "-q")
    records(capsys, "mix", "A", "B", "--name", "M", "-q")
    (path / "manifest.json").unlink()
    from safetensors.torch import save

    for kind in (torch.bfloat16, torch.float8_e4m3fn):  # which NumPy does not know
        table = torch.tensor([0.5, 0.5]).to(kind)
        (path / "model.safetensors").write_bytes(save({"weights": table}))
        assert "missing or damaged" in refusal(capsys, "sample", "-m", "M", "-q")
        found = records(capsys, "sample", "--max-tokens", 1, "-q")  # by the latest that is whole
        assert found[0]["model"] != "M"
    for table in ([0.5, 0.6], [1.0], [[0.5, 0.5]], [float("nan"), 1.0]):
        (path / "model.safetensors").write_bytes(save({"weights": torch.tensor(table)}))
        with pytest.raises(SeqgenError, match="weights do not fit"):
            store.find_all("M")
    even = torch.full((2, 2), 0.5)  # the n-gram model is of order 4
    for value, said in ((0.5, "gate of 4 coefficients"), (math.inf, "weights do not fit")):
        tables = {"weights": even[0].clone(), "gate": even * value}
        (path / "model.safetensors").write_bytes(save(tables))
        assert said in refusal(capsys, "sample", "-m", "M", "-q")
    (path / "model.safetensors").write_bytes(save({"weights": even[0].clone(), "by_order": even}))
    assert "weights for 2 orders" in refusal(capsys, "sample", "-m", "M", "-q")
    records(capsys, "mix", "A", "B", "--name", "N", "-q")
    reference = {"name": "N", "digest": store.StoredModel(store.find("N").path).digest}
    damaged = {**config, "parts": [reference, config["parts"][0]]}
    (path / "config.json").write_text(json.dumps(damaged))
    assert "its part N is a mixture itself" in refusal(capsys, "sample", "-m", "M", "-q")


def test_the_parts_score_a_text_once(models, monkeypatch):
    """One reading finds the weights of every order; the mixture's own total takes another."""
    scored, read = [], []

    def watched(part, *how):
        scored.append(type(part).__name__)
        return token_log_probs(part, *how)

    def text(loaded):
        read.append(loaded.stored.name)
        return ["the dog sat\n" * 9]

    monkeypatch.setattr("seqgen.scoring.mixture_fitting.token_log_probs", watched)
    for by_order, own in ((True, ["OrderMatcher"]), (False, [])):
        scored.clear()
        read.clear()
        how = {"name": "O", "overwrite": True, "by": "order" if by_order else None}
        store_mixture(combine(["A", "B"]), text=text, **how)
        assert sorted(scored) == sorted(["NGram", "RecurrentLM", *own]) and len(read) == 2


def test_weights_by_order(models, capsys):
    """Never less probable than with one weight for all; the same in every command."""
    text = models / "fit.txt"
    text.write_text("on the mat the dog sat a cat\nno cat and no mad dog sat\n" * 9)
    fit = ("--fit", text, "-q")
    (plain,) = records(capsys, "mix", "B", "A", "--name", "M", *fit)
    (mixed,) = records(capsys, "mix", "B", "A", "--name", "O", "--by", "order", *fit)
    assert mixed["nll_nats"] < plain["nll_nats"]
    assert mixed["weights"] == plain["weights"]
    assert len(mixed["by_order"]) == 4
    assert [sum(row) for row in mixed["by_order"]] == pytest.approx([1] * 4)
    assert mixed["by_order"][0] == plain["weights"]  # no text begins without a token
    assert len({tuple(row) for row in mixed["by_order"]}) > 1
    (scored,) = records(capsys, "perplexity", text, "-m", "O", "-q")
    assert scored["nll_nats"] == mixed["nll_nats"]
    (lines,) = {found["text"] for found in records(capsys, "sample", "-m", "O", "--greedy", "-q")}
    assert lines
    if has_plugin("cache"):
        (cached,) = records(capsys, "perplexity", text, "-m", "O", "--cache", 50, "-q")
        assert cached["nll_nats"] != scored["nll_nats"]
    for name, noted in (("O", True), ("M", False)):
        assert run(["perplexity", "-m", name, "--fit", str(text)]) == 0
        said = capsys.readouterr()
        assert ("has weights by order" in said.err) == noted
        assert said.out.startswith("B:")  # weights for all contexts
    for wrong, said in {
        ("--by", "letter"): "--by must be one of order",
        ("--by", "order", "--weights", "0.5,0.5"): "leave out --weights",
    }.items():
        assert said in refusal(capsys, "mix", "A", "B", "--name", "N", *wrong)
    records(capsys, "mix", "A", "B", "--name", "C", "--copy", "-q")
    (models / "home/models/C/parts/B").rename(models / "home/models/B2")
    said = refusal(capsys, "mix", "B", "B2", "--name", "N", "--by", "order", "-q")
    assert "needs an n-gram model among the parts, not B, B2" in said


def test_a_gate(models, capsys, monkeypatch):
    """Never less probable than the weights on what it was fitted on; the same in every command."""
    text = models / "fit.txt"
    text.write_text("on the mat the dog sat a cat\nno cat and no mad dog sat\n" * 9)
    fit = ("--fit", text, "-q")
    (plain,) = records(capsys, "mix", "B", "A", "--name", "M", *fit)
    (mixed,) = records(capsys, "mix", "B", "A", "--name", "O", "--by", "context", *fit)
    assert mixed["nll_nats"] < plain["nll_nats"] - 1
    assert (mixed["weights"], mixed["by_order"]) == (plain["weights"], None)
    assert [len(row) for row in mixed["gate"]] == [2] * (4 + 4)
    (scored,) = records(capsys, "perplexity", text, "-m", "O", "-q")
    assert scored["nll_nats"] == mixed["nll_nats"]
    first, second = (load("O", work=work) for work in (None, Work()))
    log_probs = [
        token_log_probs(one.model, one.encode(text.read_text(), "stream"))
        for one in (first, second)
    ]
    assert type(first.model) is not type(second.model)
    assert log_probs[0] == pytest.approx(log_probs[1], abs=1e-5)
    sample = ("sample", "-m", "O", "--num-samples", 3, "--max-tokens", 30, "--seed", 4, "-q")
    whole, alone = (records(capsys, *sample, "--batch-size", size) for size in (3, 1))
    assert [one["text"] for one in whole] == [one["text"] for one in alone]
    if has_plugin("cache"):
        (cached,) = records(capsys, "perplexity", text, "-m", "O", "--cache", 50, "-q")
        assert cached["nll_nats"] != scored["nll_nats"]
    assert run(["perplexity", "-m", "O", "--fit", str(text)]) == 0
    assert "has weights by context" in capsys.readouterr().err
    assert run(["models", "show", "O"]) == 0
    assert "16 coefficients" in capsys.readouterr().out
    monkeypatch.setattr(
        "seqgen.scoring.mixture_fitting.MOST_KEPT", 1000
    )  # numbers: most tokens are left out
    (fewer,) = records(capsys, "mix", "B", "A", "--name", "Q", "--by", "context", *fit)
    assert fewer["nll_nats"] < plain["nll_nats"]
    monkeypatch.setattr("seqgen.scoring.mixture_fitting.MOST_TOKENS", 5)
    said = refusal(capsys, "mix", "B", "A", "--name", "N", "--by", "context", *fit)
    assert "--by context reads whole distributions, of at most 5 tokens" in said

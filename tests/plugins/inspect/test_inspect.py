"""`seqgen inspect` against NumPy transcriptions, scoring, and the definitions of its figures."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import CASES, GROUPED, ONE_OF_EACH, RECURRENT, Case, ids, over
from helpers_cli import known_architectures, records, refusal, train_one_of_each
from known_models import ALPHABET, loaded_as, real
from pages_read import HOSTILE, Read, commands_of

from seqgen.cli import run
from seqgen.cli.shell.colours import Scale, share_scale
from seqgen.cli.shell.page import page
from seqgen.models.transformer.positions import rotate
from seqgen.plugins.inspect.attention_figures import attention_weights
from seqgen.plugins.inspect.heads import attended
from seqgen.plugins.inspect.pages import SURPRISAL, signed_scale, unit_section
from seqgen.plugins.inspect.predictions import token_predictions
from seqgen.plugins.inspect.steps import (
    Unit,
    correlations,
    features,
    lags,
    rank_correlations,
    steps,
    trace,
    unit_values,
    units,
)
from seqgen.plugins.inspect.watched import StepRecorder, watch_layers
from seqgen.scoring.passages import tokenize_passages
from seqgen.scoring.surprisal import score_tokens
from seqgen.settings.scoring import Scoring
from seqgen.text.tokenizers.char import CharTokenizer


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store with a tiny model of each kind, trained on `text.txt`."""
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "text.txt").write_text('the "cat" sat on its mat\n' * 30 + HOSTILE * 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        train_one_of_each(folder / "text.txt", steps=2)
    return folder


@pytest.fixture
def models(home, monkeypatch):
    """The folder of `home`, whose models the commands see."""
    monkeypatch.setenv("SEQGEN_HOME", str(home / "home"))
    return home


def test_the_steps_of_hello_are_those_of_numpy():
    """The lectures' network: one-hot letters, h = tanh(W_xh x + W_hh h + b), y = W_hy h + b."""
    tokenizer = CharTokenizer("helo")
    settings = {"input": "onehot", "hidden_size": 3, "num_layers": 1}
    model = Case("rnn", "hello", settings).loud(vocab_size=tokenizer.vocab_size)
    found = list(steps(tokenize_passages(loaded_as(model, tokenizer), ["hello"], 10)))
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    h, ids = np.zeros(3), tokenizer.encode("\nhello").tolist()
    pairs = list(itertools.pairwise(ids))
    assert [(s.token, s.target) for s in found] == pairs
    assert "".join(s.piece for s in found) == "\nhell"
    for step, (token, target) in zip(found, pairs, strict=True):
        x = np.eye(tokenizer.vocab_size)[token]
        inside = w["layers.0.weight_ih"] @ x + w["layers.0.weight_hh"] @ h + w["layers.0.bias"]
        h = np.tanh(inside)
        logits = w["head.weight"] @ h + w["head.bias"]
        p = np.exp(logits) / np.exp(logits).sum()
        (layer,) = step.layers
        assert layer.x == x.tolist() and layer.gates == {}
        np.testing.assert_allclose(layer.state["h"], h, rtol=1e-12)
        np.testing.assert_allclose(step.logits, logits, rtol=1e-12)
        np.testing.assert_allclose(step.probabilities, p, rtol=1e-12)
        assert step.loss == pytest.approx(-math.log(p[target]), rel=1e-12)


def lstm_by_hand(w, x, h, c):
    """Return the gates and the state of an LSTM's step, from its equations."""
    i, f, g, o = np.split(w["weight_ih"] @ x + w["weight_hh"] @ h + w["bias"], 4)
    i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
    c = f * c + i * g
    return {"i": i, "f": f, "g": g, "o": o}, {"h": o * np.tanh(c), "c": c}


def gru_by_hand(w, x, h):
    """Return the same of a GRU whose reset gate comes before the product."""
    (x_r, x_z, x_n), (w_r, w_z, w_n) = (
        np.split(w["weight_ih"] @ x + w["bias"], 3),
        np.split(w["weight_hh"], 3),
    )
    r, z = sigmoid(x_r + w_r @ h), sigmoid(x_z + w_z @ h)
    n = np.tanh(x_n + w_n @ (r * h))
    return {"r": r, "z": z, "n": n}, {"h": (1 - z) * n + z * h}


@pytest.mark.parametrize(
    ("name", "settings", "by_hand", "parts"),
    [("lstm", {}, lstm_by_hand, 2), ("gru", {"reset": "before"}, gru_by_hand, 1)],
)
def test_gates_are_those_of_the_equations(name, settings, by_hand, parts):
    model = Case(name, "by-hand", {"num_layers": 2, **settings}).loud(vocab_size=8)
    tokens = np.array([1, 5, 2, 7, 3])
    found = trace(loaded_as(model, ALPHABET), tokens)
    for layer, seen in zip(model.layers, found.layers, strict=True):
        w = {n: p.detach().numpy() for n, p in layer.named_parameters()}
        state = [np.zeros(layer.hidden_size)] * parts
        for step, x in enumerate(seen.inputs):
            gates, after = by_hand(w, x, *state)
            assert [*seen.values] == [*gates, *after]
            for part, values in (gates | after).items():
                np.testing.assert_allclose(seen.values[part][step], values, rtol=1e-9)
            state = list(after.values())
    np.testing.assert_allclose(found.layers[1].inputs, found.layers[0].values["h"])


@pytest.mark.parametrize("architecture", RECURRENT)
def test_every_cell_names_the_gates_that_it_says_keep_replace_and_reset(architecture):
    model = Case(architecture, "plain", {"num_layers": 1}).loud()
    (cell,) = model.layers
    seen = StepRecorder()
    with watch_layers({cell: seen}), torch.no_grad():
        model(torch.tensor([[1, 2, 3]]), None)
    equation = cell.equation
    assert len(seen.shown) == 3 and not set(seen.shown[0]) & set(cell.equation.parts)
    for gate in filter(None, (equation.keeps, equation.replaces, equation.resets)):
        values = torch.cat([step[gate] for step in seen.shown])
        assert ((values >= 0) & (values <= 1)).all()
    assert not (equation.keeps and equation.replaces)


@pytest.mark.parametrize(
    "architecture", known_architectures(["lstm", "gru", "mgu", "ugrnn", "mut1", "mingru"])
)
def test_the_share_kept_is_how_the_memory_follows_its_past(architecture):
    """With its gates held still, d c_t / d c_{t-1} at each unit is the share that is kept."""
    model = Case(architecture, "plain", {"num_layers": 1}).loud()
    (cell,) = model.layers
    seen = StepRecorder()
    with watch_layers({cell: seen}), torch.no_grad():
        model(torch.tensor([[1, 2, 3]]), None)
    last, shown = [step[-1] for step in seen.states], seen.shown[-1]
    new = {"lstm": lambda: shown["i"] * shown["g"]}.get(
        architecture, lambda: (1 - kept) * shown.get("n", shown.get("c"))
    )
    keeps, replaces = cell.equation.keeps, cell.equation.replaces
    kept = shown[keeps] if keeps else 1 - shown[replaces]
    torch.testing.assert_close(last[-1], kept * last[-2] + new())


@pytest.mark.fast_for(*ONE_OF_EACH, rest="slow")
@over(CASES)
def test_predictions_are_what_scoring_gives(case):
    tokenizer = CharTokenizer("ab")
    model = case.build(torch.float64)
    loaded = loaded_as(model, tokenizer)
    text = "abba\nab\nbaab"
    found = list(token_predictions(tokenize_passages(loaded, [text], 100), 3))
    scored = list(score_tokens(loaded, [text], Scoring()))
    assert "".join(place.text for place in found) == text
    assert [p.logprob for p in found] == pytest.approx([s.logprob for s in scored], rel=1e-9)
    if scored[0].rank is not None:
        assert [p.rank for p in found] == [s.rank for s in scored]
    ids = torch.tensor([[loaded.framing.start, *loaded.ids(text)[:-1]]])
    with torch.no_grad():
        p = model(ids, model.start(1))[0][0].softmax(-1).numpy()
    for place, row in zip(found, p, strict=True):
        best = sorted(range(7), key=lambda v, row=row: (-row[v], v))[:3]
        entropy = -sum(x * math.log2(x) for x in row if x > 0)
        assert [c.probability for c in place.candidates] == pytest.approx(row[best].tolist())
        assert place.entropy_bits == pytest.approx(entropy, rel=1e-6, abs=1e-9)


def test_lines_are_documents_of_their_own():
    loaded = real("gru", documents="line")
    found = list(token_predictions(tokenize_passages(loaded, ["ab\ncab\n"], 100), 1))
    assert [(p.document, p.index, p.text) for p in found] == [
        (0, 0, "a"), (0, 1, "b"), (0, 2, "\n"), (1, 0, "c"), (1, 1, "a"), (1, 2, "b"), (1, 3, "\n")
    ]  # fmt: skip
    scored = list(score_tokens(loaded, ["ab\ncab\n"], Scoring()))
    assert [p.logprob for p in found] == pytest.approx([s.logprob for s in scored], rel=1e-9)


def test_a_long_text_is_cut_and_says_so():
    loaded = real("gru")
    assert tokenize_passages(loaded, ["abc"], 3).cut is False
    cut = tokenize_passages(loaded, iter(["abc", "ab" * 500]), 3)
    assert cut.cut and cut.documents[0].texts == ["a", "b", "c"]
    lines = tokenize_passages(real("gru", documents="line"), ["ab\ncab\n"], 4)
    assert lines.documents[1].texts == ["c"]


def test_a_units_value_is_that_after_each_token():
    loaded = real("lstm")
    text = "abcab"
    found = unit_values(tokenize_passages(loaded, [text], 10), 1, 3)
    assert (found.name, found.gate) == ("c", False)
    for end, place in enumerate(found.places, 1):
        ids = torch.tensor([[loaded.framing.start, *loaded.ids(text[:end])]])
        with torch.no_grad():
            _, state = loaded.model(ids, loaded.model.start(1))
        assert place.value == pytest.approx(float(state.layers[1][1][0, 3]), rel=1e-9)
    assert unit_values(tokenize_passages(loaded, [text], 10), 0, 3, "f").gate


def test_features_say_where_in_a_text_a_token_stands():
    text = ['He said "', "ab", 'c". (d', ")", "\n", "X"]
    found = {name: column.tolist() for name, column in features(text).items()}
    assert found["position in line"] == [9, 11, 17, 18, 0, 1]
    assert found["position in word"] == [0, 2, 1, 0, 0, 1]
    assert found["inside quotes"] == [1, 1, 0, 0, 0, 0]
    assert found["inside brackets"] == [0, 0, 1, 0, 0, 0]
    assert found["capital"] == [0, 0, 0, 0, 0, 1]
    assert found["white space"] == [0, 0, 0, 0, 1, 0]
    assert found["punctuation"] == [1, 0, 0, 1, 0, 0]
    assert features(['"a', "\n", "\n", "b"])["inside quotes"].tolist() == [1, 1, 0, 0]


def test_correlations_and_lags_are_those_of_numpy():
    random = np.random.default_rng(0)
    values, others = random.normal(size=(50, 3)), random.normal(size=(50, 2))
    values[:, 2] = 1.0
    found = correlations(values, others)
    for a in range(2):
        for b in range(2):
            expected = np.corrcoef(values[:, a], others[:, b])[0, 1]
            assert found[a, b] == pytest.approx(expected, rel=1e-9)
    assert np.isnan(found[2]).all()
    wave = np.cos(2 * np.pi * np.arange(4000) / 40)
    # cos(2 pi lag / 40) is below 1 / e from lag 8 on, for it is 0.383 at 7.5 of 40.
    expected = next(k for k in range(40) if math.cos(2 * math.pi * k / 40) < 1 / math.e)
    assert lags(np.stack([wave, np.zeros(4000)], 1)) == [expected, None]


def test_units_are_listed_by_the_mean_of_their_gate():
    loaded = real("gru")
    found = tokenize_passages(loaded, ["abcabcab"], 10)
    of_trace = trace(loaded, found.documents[0].read).layers[0].values
    listed = units(found)
    assert [u.kept for u in listed] == sorted((u.kept for u in listed), reverse=True)
    for unit in listed:
        assert unit.kept == pytest.approx(of_trace["z"][:, unit.unit].mean())
        assert unit.reset == pytest.approx(of_trace["r"][:, unit.unit].mean())
        assert unit.memory == pytest.approx(1 / (1 - unit.kept))
        assert abs(unit.correlation) == max(abs(r) for r in unit.correlations.values() if r)


def test_gates_are_compared_with_how_long_units_last(models, capsys):
    """Spearman's rho by its definition: Pearson's of ranks; equal values share the mean."""
    lags, kept = [1, 2, 2, 7, None, 3], [0.1, 0.5, 0.4, 0.9, 0.0, 0.45]
    unit = Unit("m", 0, 0, 0.0, None, None, None, None, None, {})
    listed = [replace(unit, lag=lag, kept=mean) for lag, mean in zip(lags, kept, strict=True)]
    ranked = np.corrcoef([1, 2.5, 2.5, 5, 4], [1, 4, 2, 5, 3])[0, 1]
    assert rank_correlations(listed) == pytest.approx({"kept": ranked})
    both = [replace(unit, reset=-mean) for unit, mean in zip(listed, kept, strict=True)]
    assert rank_correlations(both)["reset"] == pytest.approx(-ranked)
    assert rank_correlations([replace(unit, lag=3) for unit in listed]) == {}
    assert rank_correlations([replace(unit, kept=None) for unit in listed]) == {}
    assert run(["inspect", str(models / "text.txt"), "-m", "net", "--units"]) == 0
    assert re.search(r"with lag over all units: kept -?[01]\.\d\d$", capsys.readouterr().err, re.M)


def test_a_head_reads_what_a_transcription_of_attention_says():
    loaded = real("transformer")
    config, model = loaded.model.config, loaded.model
    found = attended(tokenize_passages(loaded, ["abcab"], 10), 0, [1], "ca")
    (read,) = found.words
    assert read.pieces == ["\n", *"abcab"] and read.word_places == [3, 4]
    ids = torch.tensor([[loaded.framing.start, *loaded.ids("abcab")]])
    block = model.blocks[0]
    captured = {}
    block.attention.query_key_value.register_forward_hook(
        lambda module, args, out: captured.update(qkv=out)
    )
    with torch.no_grad():
        model(ids, None)
    q, k, _ = captured["qkv"][0].view(6, 3, config.num_heads, -1)[:, :, 1].unbind(1)
    q, k = block.attention.query_norm(q), block.attention.key_norm(k)
    if config.positions == "rope":
        q, k = (rotate(x[None], model.waves[torch.arange(6)])[0] for x in (q, k))
    scores = (q @ k.T / math.sqrt(q.shape[-1])).detach().numpy()
    rows = []
    for place in (3, 4):
        e = np.exp(scores[place, : place + 1])
        rows.append(np.append(e / e.sum(), np.zeros(5 - place)))
    np.testing.assert_allclose(read.weights, np.mean(rows, 0), rtol=1e-9)
    assert sum(read.weights) == pytest.approx(1)


def test_heads_that_share_keys_are_looked_at():
    """Llama 3's grouped queries: the weights lead to the features that the model has itself."""
    model = Case("transformer", "grouped", GROUPED).loud()
    tokens = ids(1, 6)
    found = attention_weights(model, tokens)

    def attend(layer, q, k, v):
        return torch.from_numpy(found[layer])[None] @ v.expand_as(q)  # one head of values for all

    with torch.no_grad():
        torch.testing.assert_close(model.features_by(tokens, attend), model.hidden(tokens, None)[0])


def test_the_last_whole_word_is_looked_at(models, capsys):
    word = ("inspect", "-m", "tf", "--attention", "--token", "it")
    found = records(capsys, *word, "--text", "it sits")
    assert found[0]["word_places"] == [1, 2]
    assert "no 'it'" in refusal(capsys, *word, "--text", "cat")


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_word_far_into_a_text_is_read_with_what_the_window_holds(direction):
    loaded = real("transformer")  # whose window is 6
    loaded = replace(loaded, data=replace(loaded.data, direction=direction))
    (read,) = attended(tokenize_passages(loaded, ["aabaacabaab"], 20), 1, [0], "c").words
    if direction == "forward":
        assert read.pieces == [*"aabaac"] and read.word_places == [5]
    else:
        assert read.texts == ["", *"cabaa"] and read.pieces[0] == "b"
    assert sum(read.weights) == pytest.approx(1)


def test_colours_are_linear_between_the_ends_of_a_scale():
    scale = Scale(0, 10, ((0, 0, 0), (100, 200, 50), (200, 0, 50)))
    assert scale.rgb(5) == (100, 200, 50) and scale.rgb(2.5) == (50, 100, 25)
    assert scale.rgb(-1) == (0, 0, 0) and scale.rgb(99) == (200, 0, 50)
    assert signed_scale([0.5, -2]).rgb(0) == (255, 255, 255)
    assert Scale(1, 1, ((1, 2, 3), (4, 5, 6))).css(7) == "#010203"


@pytest.mark.parametrize("scale", [SURPRISAL, share_scale(), signed_scale([1])])
def test_black_letters_can_be_read_on_every_colour(scale):
    """WCAG 2: a contrast of at least 4.5, from relative luminances."""
    for step in range(21):
        rgb = scale.rgb(scale.low + (scale.high - scale.low) * step / 20)
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
                  for c in (channel / 255 for channel in rgb)]  # fmt: skip
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert (luminance + 0.05) / 0.05 >= 4.5


def test_colours_of_a_page_equal_the_values_of_the_records(models, capsys, tmp_path):
    arguments = ("inspect", "-m", "net", "--unit", 2, "--text", "the cat")
    values = [record["value"] for record in records(capsys, *arguments)]
    assert run([*map(str, arguments), "--html", str(tmp_path / "u.html"), "--quiet"]) == 0
    tokens = Read((tmp_path / "u.html").read_text()).tokens
    most = max(map(abs, values))
    assert [text for _, text in tokens] == list("the cat")
    for (attributes, _), value in zip(tokens, values, strict=True):
        colour = re.search("#(..)(..)(..)", attributes["style"]).groups()
        share = abs(value) / most
        end = (110, 170, 255) if value < 0 else (255, 125, 105)
        for part, channel in zip(colour, end, strict=True):
            assert int(part, 16) == pytest.approx(255 + share * (channel - 255), abs=0.51)
        assert f"{value:.4f}" in attributes["data-t"]


@pytest.mark.parametrize(
    "view",
    [(), ("--trace",), ("--units",), ("--unit", "0"), ("--attention", "--token", "script")],
    ids=str,
)
def test_a_page_shows_text_as_text(view, models, tmp_path):
    path = tmp_path / "page.html"
    model = "tf" if "--attention" in view else "net"
    arguments = ["inspect", "-m", model, "--text", HOSTILE, *view, "--html", str(path)]
    assert run([*arguments, "--quiet"]) == 0
    seen = Read(path.read_text())
    assert [tag for tag, _ in seen.tags].count("script") == 1
    assert "b" not in [tag for tag, _ in seen.tags]
    assert not any("src" in of or ("href" in of and of["href"][:1] != "#") for _, of in seen.tags)
    if view in ((), ("--unit", "0")):
        shown = "".join(text for _, text in seen.tokens)
        assert shown == HOSTILE.replace("\n", "↵\n")
    assert "http" not in path.read_text().replace("http-equiv", "")


def test_records_of_every_view(models, capsys):
    file = models / "text.txt"
    assert [*records(capsys, "inspect", file, "-m", "grams", "--top", 2, "--max-tokens", 3)[2]] == [
        "model", "document", "index", "token", "piece", "text", "logprob", "surprisal_bits",
        "rank", "entropy_bits", "candidates",
    ]  # fmt: skip
    first, step, *_ = records(capsys, "inspect", "--text", "cat", "-m", "net", "--trace")
    assert first["weights"] is None or "head.weight" in first["weights"]
    assert [*step["layers"][0]["gates"]] == ["i", "f", "g", "o"]
    assert [*step["layers"][0]["state"]] == ["h", "c"]
    heads = records(capsys, "inspect", file, "-m", "tf", "--attention", "--head", "1,0")
    assert {(h["layer"], h["head"]) for h in heads} == {(0, 0), (0, 1)}
    assert len(records(capsys, "inspect", "-m", "net", "--units")) == 4


def test_views_for_people(models, capsys):
    file = str(models / "text.txt")
    for view, expected in (
        (("-m", "grams", "--top", "2"), r"'t' .*%"),
        (("-m", "net", "--trace", "--max-tokens", "2"), r"loss +\d\.\d+ nats"),
        (("-m", "net", "--units", "--top", "2"), "position in line|inside quotes|-"),
        (("-m", "net", "--unit", "1", "--gate", "f"), r"^0\.\d+\tt$"),
        (("-m", "tf", "--attention", "--token", "its"), r"^0\.0\tr?0\.1|entropy"),
    ):
        capsys.readouterr()
        assert run(["inspect", file, *view]) == 0
        assert re.search(expected, capsys.readouterr().out, re.MULTILINE), view


def test_a_text_may_come_by_a_pipe_or_not_at_all(models, stdin, capsys):
    stdin(b"cat")
    assert len(records(capsys, "inspect", "-m", "grams")) == 3
    stdin(b"")
    assert "empty" in refusal(capsys, "inspect", "-m", "grams")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--trace", "--units"), "not both"),
        (("--trace", "-m", "grams"), "recurrent"),
        (("--units", "-m", "tf"), "recurrent"),
        (("--unit", "0", "-m", "tf"), "recurrent"),
        (("--attention", "-m", "net"), "transformers"),
        (("--attention", "-m", "tf", "--head", "2"), "--head is from 0 to 1"),
        (("--attention", "-m", "tf", "--head", "x"), "--head must be a whole number"),
        (("--attention", "-m", "tf", "--layer", "1"), "--layer is from 0 to 0"),
        (("--attention", "-m", "tf", "--token", ""), "not empty"),
        (("--unit", "4", "-m", "net"), "--unit is from 0 to 3"),
        (("--unit", "0", "--layer", "1", "-m", "net"), "--layer is from 0 to 0"),
        (("--unit", "0", "--gate", "q", "-m", "net"), "'q'"),
        (("--gate", "f", "-m", "net"), "goes with --unit"),
        (("--top", "3", "--trace", "-m", "net"), "--top has no meaning with --trace"),
        (("--top", "3", "--unit", "0", "-m", "net"), "--top has no meaning with --unit"),
        (("--top", "3", "--attention", "-m", "tf"), "--top has no meaning with --attention"),
        (("--top", "3", "--units", "--json", "-m", "net"), "which gives every unit"),
        (("--token", "a", "-m", "tf"), "goes with --attention"),
        (("--layer", "0", "-m", "tf"), "goes with"),
        (("--html", "a.txt", "-m", "net"), ".html"),
        (("--html", "a.html", "--json", "-m", "net"), "not both"),
    ],
    ids=str,
)
def test_bad_inputs(arguments, says, models, capsys):
    assert says in refusal(capsys, "inspect", "--text", "cat sat", "--quiet", *arguments)


def test_bad_files(models, capsys, tmp_path):
    assert "--text 'hello'" in refusal(capsys, "inspect", "hello", "-m", "net")
    assert "not both" in refusal(capsys, "inspect", "a.txt", "--text", "a", "-m", "net")
    other = tmp_path / "other.html"
    other.write_text("<p>mine</p>")
    said = refusal(capsys, "inspect", "--text", "a", "-m", "net", "--html", other)
    assert "not a page of seqgen" in said and other.read_text() == "<p>mine</p>"


def test_a_page_is_replaced_by_a_page(models, tmp_path):
    path = tmp_path / "p.html"
    for text in ("cat", "sat"):
        assert run(["inspect", "--text", text, "-m", "net", "--html", str(path), "--quiet"]) == 0
    assert "".join(text for _, text in Read(path.read_text()).tokens) == "sat"


def test_the_scripts_hash_is_that_of_the_script():
    """The page's policy lets no other script run, and lets nothing be loaded."""
    text = page("t", [unit_section(unit_values(tokenize_passages(real("gru"), ["ab"], 5), 0, 0))])
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and "default-src 'none'" in text


def test_weights_of_a_small_model_come_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    (tmp_path / "h.txt").write_text("hello\n" * 9)
    made = "--model rnn --hidden-size 3 --layers 1 --set input=onehot --steps 1 --val none"
    assert run(["train", str(tmp_path / "h.txt"), *made.split(), "--quiet"]) == 0
    first, *rest = records(capsys, "inspect", "--text", "hello", "--trace")
    assert "".join(first["vocabulary"][4:]) == "\nehlo"
    weights = {name: np.array(w) for name, w in first["weights"].items()}
    x = np.eye(weights["layers.0.weight_ih"].shape[1])[rest[0]["token"]]
    h = np.tanh(weights["layers.0.weight_ih"] @ x + weights["layers.0.bias"])
    np.testing.assert_allclose(rest[0]["layers"][0]["state"]["h"], h, atol=1e-6)


def test_the_commands_of_a_report_show_its_values(models, capsys, tmp_path, monkeypatch):
    """Records of the commands about units and attention have the page's values."""
    pytest.importorskip("seqgen.plugins.report")
    monkeypatch.chdir(tmp_path)
    for name in ("net", "tf"):
        assert run(["report", "-m", name, "--out", "page.html", "--quiet"]) == 0
        page = Path("page.html").read_text()
        section = page.split("<h2>Attention and gates</h2>")[1].split("</section>")[0]
        inspected = [line for line in commands_of(page) if "--unit " in line or "--token" in line]
        (found,) = (records(capsys, *shlex.split(line)[1:]) for line in inspected)
        values = [figure for r in found for figure in r.get("weights", [r.get("value")])]
        shown = re.findall(r'data-t="[^"]*?(?:: | = )(-?\d\.\d{4})"', section)
        values = [value for value in values if value is not None]
        assert shown == [f"{value:.4f}" for value in values] and len(shown) > 20
    assert run(["report", "-m", "grams", "--out", "page.html", "--quiet"]) == 0
    assert "neither attention nor gates" in Path("page.html").read_text()

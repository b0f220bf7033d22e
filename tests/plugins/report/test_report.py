"""`seqgen report`: its figures against their definitions, and its page as a browser sees it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import re
import shlex
import subprocess
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from helpers_cli import has_plugin, needs, records, refusal, train_one_of_each
from known_models import real
from pages_read import HOSTILE, Read, browser, commands_of

from seqgen import hooks, store
from seqgen.cli import run
from seqgen.cli.shell.page import ReportSection
from seqgen.errors import SeqgenError
from seqgen.generation.beam_search import explain
from seqgen.plugins.report import command
from seqgen.plugins.report.charts import Axis, Series, _lines, chart, search_tree, thinned, ticks
from seqgen.plugins.report.model_page import MOST_SAMPLES, Profile, model_page
from seqgen.plugins.report.portrait import BIN_ENDS, Course, course, figures
from seqgen.plugins.report.translated import translated
from seqgen.scoring.passages import tokenize_passages
from seqgen.scoring.perplexity import for_model, held_out_pairs, totals_of
from seqgen.settings.generation import BeamOptions
from seqgen.store.loading import load
from seqgen.wording import replace_unprintable

# Characters that end elements, look like entities, break lines or turn the direction of writing.
ODD = "</textarea> &amp; a\u2028b \u202eleft\u200f \U0001f600 lone\rend\n"
# Sections in order, and the plugin of those that other plugins offer.
OFFERED = {
    "What it is": None,
    "Training": None,
    "Samples by step": None,
    "Held-out text": "inspect",
    "Calibration": None,
    "Loss by position": None,
    "Loss by class of token": None,
    "Novelty": "novelty",
    "Beam search": None,
    "Attention and gates": "inspect",
    "Signatures": None,
}
PLUGINS = [one.name for one in hooks.plugins()]
SECTIONS = [title for title, plugin in OFFERED.items() if plugin in (None, *PLUGINS)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store with an LSTM, a transformer and an n-gram model of a text with markup in it."""
    folder = tmp_path_factory.mktemp("report")
    text = folder / "text.txt"
    text.write_text(('the "cat" sat on 3 mats\n' + HOSTILE + ODD) * 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        train_one_of_each(text, steps=4)
        out = str(folder / "page.html")
        assert run(["report", "-m", "net", "-m", "tf", "--out", out, "--quiet"]) == 0
    return folder


@pytest.fixture
def models(home, monkeypatch):
    """The folder of `home`, whose models the commands see."""
    monkeypatch.setenv("SEQGEN_HOME", str(home / "home"))
    return home


def test_calibration_counts_every_token_of_every_distribution():
    loaded = real("gru")
    text = "abcab\ncab" * 9
    found = figures(tokenize_passages(loaded, [text], 1000))
    ids = [loaded.framing.start, *loaded.ids(text)]
    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids[:-1]]), loaded.model.start(1))[0][0]
    p = logits.softmax(-1).numpy()
    expected, error = [], 0.0
    for low, high in zip((-1, *BIN_ENDS), BIN_ENDS, strict=False):
        inside = [(q, v == ids[t + 1]) for t, row in enumerate(p) for v, q in enumerate(row)
                  if low < q <= high]  # fmt: skip
        if inside:
            said, came = np.mean(inside, 0)
            expected.append((said, came, len(inside)))
        best = [(row.max(), row.argmax() == ids[t + 1]) for t, row in enumerate(p)
                if low < row.max() <= high]  # fmt: skip
        error += abs(sum(q for q, _ in best) - sum(hit for _, hit in best)) / len(p)
    assert [b.count for b in found.calibration] == [count for *_, count in expected]
    for bin_, (said, came, _) in zip(found.calibration, expected, strict=True):
        assert (bin_.said, bin_.frequency) == pytest.approx((said, came), abs=1e-9)
    assert found.calibration_error == pytest.approx(error, abs=1e-9)


def test_groups_add_up_to_the_whole():
    loaded = real("lstm")
    text = "abcab\ncab\n\nab"
    found = figures(tokenize_passages(loaded, [text], 1000))
    totals = totals_of(loaded, [text], for_model(loaded))[0]
    assert found.tokens == totals.tokens == len(text)
    assert found.bits_per_token == pytest.approx(totals.nll_nats / len(text) / math.log(2))
    for groups in (found.by_position, found.by_class):
        assert sum(g.tokens for g in groups) == found.tokens
        assert sum(g.share for g in groups) == pytest.approx(1)
        bits = sum(g.tokens * g.bits for g in groups) / found.tokens
        assert bits == pytest.approx(found.bits_per_token)
    assert [(g.name, g.tokens) for g in found.by_position] == [
        ("0", 4), ("1", 3), ("2 to 3", 4), ("4 to 7", 2)
    ]  # fmt: skip
    assert [(g.name, g.tokens) for g in found.by_class] == [
        ("beginning of a word", 3), ("inside a word", 7), ("end of a line", 3)
    ]  # fmt: skip


def test_ticks_are_round_and_hold_the_range():
    for low, high in ((0, 1), (1.31, 4.22), (-3e-5, 7e-6), (0, 640_262), (99, 100)):
        found = ticks(low, high)
        step = found[1] - found[0]
        assert found[0] <= low + 1e-12 and found[-1] >= high - 1e-12 and 3 <= len(found) <= 13
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(mantissa - nice) for nice in (1, 2, 5, 10)) < 1e-6
    axis = Axis([0, 10], 100, 0)
    assert (axis(0), axis(10), axis(5)) == (100, 0, 50)


def test_a_chart_draws_what_is_finite():
    points = [(0, 1.0), (1, math.nan), (2, 3.0)]
    drawn = chart([Series("loss <b>", points), Series("none", [])], "step", "nats", "A & B")
    assert drawn.count("<circle") == 2 and "nan" not in drawn
    assert "loss &lt;b&gt;" in drawn and "A &amp; B" in drawn and "<b>" not in drawn
    assert "nothing was logged" in chart([Series("none", [])], "x", "y", "Empty")
    many = thinned([(i, i) for i in range(1001)], 11)
    assert many == [(i, i) for i in range(0, 1001, 100)]


def test_every_leaf_of_a_tree_has_a_line_of_its_own():
    (tree,) = explain(real("gru"), ["a"], BeamOptions(beams=3, max_tokens=4))
    children = {}
    for node in tree.nodes:
        children.setdefault(node.parent, []).append(node)
    lines = _lines(children)
    leaves = [lines[n.node] for n in tree.nodes if n.node not in children]
    assert sorted(leaves) == list(range(1, len(leaves) + 1))
    for parent, below in children.items():
        assert lines[parent] == (lines[below[0].node] + lines[below[-1].node]) / 2
    assert search_tree(tree).count("<circle") == len(tree.nodes)


def test_the_course_of_training_is_what_was_logged(models):
    model = store.find("net")
    found = course(model)
    logged = [json.loads(line) for line in (model.path / "metrics.jsonl").open()]
    assert found.train_loss == [(r["step"], r["train_loss"]) for r in logged if "train_loss" in r]
    assert found.val_loss == [(r["step"], r["val_loss"]) for r in logged if "val_loss" in r]
    assert found.val_loss and found.samples and not found.running
    with model.locked():
        assert course(model).running
    assert not model.is_locked


def test_losses_of_labels_are_per_label():
    training = Course("label", [(1, 2.0), (2, 1.0)], [], [], [], [], running=False)
    shown = model_page([Profile("m", {}, training, None, {})])
    assert "nats/label" in shown and "nats/token" not in shown


def test_the_learning_rate_is_shown_as_it_was(models):
    model = store.find("net")
    logged = [json.loads(line) for line in (model.path / "metrics.jsonl").open()]
    shares = [(r["step"], r["lr"]) for r in logged if "lr" in r]
    peak = model.config["training"]["lr"]
    assert course(model).lr == [(step, share * peak) for step, share in shares] and shares
    assert peak < 0.1


def test_losses_of_several_models_are_on_one_axis(home):
    text = (home / "page.html").read_text()
    figures = re.findall("<figure>.*?</figure>", text, re.DOTALL)
    (joint,) = [figure for figure in figures if "Validation loss of all models" in figure]
    assert all(re.search(f'data-t="{name}: ', joint) for name in ("net", "tf"))
    tagger = Course("label", [(1, 2.0)], [(1, 2.0)], [], [], [], running=False)
    model = Course("token", [(1, 2.0)], [(1, 2.0)], [], [], [], running=False)
    both = [Profile(name, {}, of, None, {}) for name, of in (("a", tagger), ("b", model))]
    assert "of all models" not in model_page(both)


def test_spaces_of_every_width_are_shown():
    spaces = "a\u00a0b\u202fc\u3000d\u2003e"
    assert replace_unprintable(spaces) == spaces
    assert replace_unprintable("a\u2028b\u202ec\x00\t") == "a\ufffdb\ufffdc\ufffd\ufffd"
    assert replace_unprintable("a\tb\n", kept="\n\t") == "a\tb\n"


def test_few_of_many_samples_are_shown():
    samples = [(n, str(n)) for n in range(101)]
    training = Course("token", [], [], [], [], samples, running=False)
    shown = model_page([Profile("m", {}, training, None, {})])
    steps = [int(step) for step in re.findall("<figcaption>step (\\d+)", shown)]
    assert steps == [0, 20, 40, 60, 80, 100] and len(steps) == MOST_SAMPLES


def test_the_page_has_every_section_of_every_model(home):
    text = (home / "page.html").read_text()
    assert re.findall("<h2>(.*?)</h2>", text) == SECTIONS
    assert re.findall("<h3>(.*?)</h3>", text) == ["net", "tf"] * len(SECTIONS)
    levels = [int(tag[1]) for tag, _ in Read(text).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert "NaN" not in text and "nan" not in re.findall("[a-z]+", text)
    assert len(text) < 3_000_000


def test_text_of_the_corpus_stays_text(home):
    text = (home / "page.html").read_text()
    seen = Read(text)
    tags = [tag for tag, _ in seen.tags]
    assert tags.count("script") == 1 and "b" not in tags and "img" not in tags
    assert not any("onerror" in of or "src" in of for _, of in seen.tags)
    shown = "".join(token for _, token in seen.tokens)
    if "Held-out text" in SECTIONS:
        assert '<script>alert("x")</script> & <b>↵' in shown
    assert "http://" not in text and "https://" not in text


def test_no_character_of_the_corpus_acts_on_the_page(home):
    """What breaks lines or turns the direction is replaced; the rest stands as it is."""
    text = (home / "page.html").read_bytes().decode()
    seen = Read(text)
    assert "textarea" not in [tag for tag, _ in seen.tags]
    shown = "".join(token for _, token in seen.tokens)
    if "Held-out text" in SECTIONS:
        assert "</textarea> &amp; a\ufffdb \ufffdleft\ufffd \U0001f600 lone\ufffdend↵" in shown
    acting = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")} - {"\n", "\t"}
    assert acting == set()


SMALL = ("--hidden-size", "4", "--steps", "1", "--seed", "1", "--quiet")
KINDS = {
    "net": None,
    "tf": None,
    "grams": None,
    "hawk": ("train", "text.txt", "--model", "hawk", "--name", "hawk", *SMALL),
    "window": ("train", "text.txt", "--model", "window", "--name", "window", *SMALL),
    "jordan": ("train", "text.txt", "--model", "jordan", "--name", "jordan", *SMALL),
    "lines": ("train", "text.txt", "--documents", "line", "--name", "lines", *SMALL),
    "pairs": ("train", "pairs.tsv", "--model", "seq2seq", "--name", "pairs", *SMALL),
    "sides": ("train", "--source", "text.txt", "--target", "text.txt", "--name", "sides",
              "--model", "seq2seq-transformer", "--heads", "2", *SMALL),
    "tuned": ("train", "pairs.tsv", "--as-text", "--init-from", "net", "--val", "text.txt",
              "--name", "tuned", "--steps", "1", "--seed", "1", "--quiet"),
    "mixed": ("mix", "net", "grams", "--name", "mixed", "--weights", "0.5,0.5", "--quiet"),
}  # fmt: skip
for name, plugin in (("hawk", "more_cells"), ("jordan", "more_cells"), ("window", "window")):
    if not has_plugin(plugin):
        del KINDS[name]


SLOW = "hawk", "jordan", "window", "lines", "sides"


@pytest.mark.fast_for("tf", "grams", rest="slow")
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] if k in SLOW else []) for k in KINDS]
)
def test_every_command_of_a_page_runs(kind, models, capsys, monkeypatch, tmp_path):
    (models / "pairs.tsv").write_text("one two\tuno due\nthree\ttre\n" * 20)
    monkeypatch.chdir(models)
    if made := KINDS[kind]:
        assert run([*made, "--overwrite"]) == 0
    monkeypatch.chdir(tmp_path)
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert run(["report", "-m", kind, "--out", "page.html", "--quiet"]) == 0
        lines = commands_of(Path("page.html").read_text())
        assert len(lines) >= 3 - (kind == "mixed")
        for line in dict.fromkeys(lines):
            capsys.readouterr()
            for inner in re.findall(r"\$\((.*?)\)", line):
                assert run(shlex.split(inner)[1:]) == 0
                line = line.replace(f"$({inner})", capsys.readouterr().out.strip())
            assert (line, run(shlex.split(line)[1:])) == (line, 0)


def sections_of(page):
    """Return the HTML of every section, by title; ages are left out."""
    page = re.sub(r"written</td><td>[^,]*", "", page)
    return dict(re.findall("<h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL))


@pytest.mark.fast_for("novelty", rest="slow")
@pytest.mark.parametrize("absent", ["inspect", "novelty"])
def test_without_a_plugin_the_page_lacks_just_its_sections(
    absent, models, capsys, monkeypatch, tmp_path
):
    out = tmp_path / "page.html"
    (with_all,) = records(capsys, "report", "-m", "net", "--out", out)
    whole = sections_of(out.read_text())
    rest = tuple(one for one in hooks.plugins() if one.name != absent)
    monkeypatch.setattr(hooks, "plugins", lambda: rest)
    monkeypatch.setattr(hooks, "by_name", functools.cache(hooks.by_name.__wrapped__))
    (found,) = records(capsys, "report", "-m", "net", "--out", out)
    left = [title for title in SECTIONS if OFFERED[title] != absent]
    assert sections_of(out.read_text()) == {title: whole[title] for title in left}
    assert list(sections_of(out.read_text())) == left
    assert found == {key: value for key, value in with_all.items() if key != absent}
    assert not any(line.startswith(f"seqgen {absent}") for line in commands_of(out.read_text()))


def test_figures_of_a_network_with_an_n_gram_model_are_called_its_own(
    home, capsys, tmp_path, monkeypatch
):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    flags = ("--model", "lstm", "--with-ngram", "2", "--hidden-size", "4", "--steps", "2")
    assert run(["train", str(home / "text.txt"), *flags, "--name", "both", "--quiet"]) == 0
    out = tmp_path / "page.html"
    (found,) = records(capsys, "report", "-m", "both", "--out", out)
    assert store.find("both").ngram is not None
    assert found["network_alone"] and "without the n-gram model" in out.read_text()


class Vowels(ReportSection[int]):
    """A section that counts."""

    absence = "No <vowels>."

    def __init__(self, title, after, key=""):
        self.title, self.after, self.key = title, after, key

    def look(self, loaded, passages):
        if loaded.stored.name == "tf":
            raise SeqgenError("it reads <b>")
        return None if loaded.stored.name == "grams" else passages.text.count("a")

    def body(self, found):
        return f"<p>{found} of them</p>"

    def commands(self, found, model, file):
        return [f"seqgen count {file} -m {model}"]

    def record(self, found):
        return {"count": found}


def test_sections_of_a_stranger_have_their_places_and_figures(
    models, capsys, monkeypatch, tmp_path
):
    added = [
        Vowels("Last", "No such section"),
        Vowels("Next", "Vowels"),
        Vowels("Vowels", "Training", "vowels"),
    ]
    load_all = hooks.load_all
    found = lambda field: added if field == "sections" else load_all(field)  # noqa: E731
    monkeypatch.setattr(hooks, "load_all", found)
    out, text = tmp_path / "page.html", models / "text.txt"
    several = ("-m", "net", "-m", "tf", "-m", "grams")
    found = records(capsys, "report", *several, "--file", text, "--out", out)
    sections = sections_of(out.read_text())
    own = [title for title, plugin in OFFERED.items() if plugin is None]
    assert list(sections) == [*own[:2], "Vowels", "Next", *own[2:], "Last"]
    count = found[0]["vowels"]["count"]
    assert count > 10 and f"<p>{count} of them</p>" in sections["Vowels"]
    assert [each["vowels"] for each in found[1:]] == [None, None]
    assert "<p>Not known: it reads &lt;b&gt;.</p>" in sections["Vowels"]
    assert "<p>No &lt;vowels&gt;.</p>" in sections["Vowels"]
    assert "seqgen report --file" in sections["Vowels"]
    assert "seqgen report --file" not in sections["Next"]
    assert sections["Next"].count(f"seqgen count {text} -m net") == 1


def test_records_hold_the_figures_of_the_page(models, capsys, tmp_path):
    out = tmp_path / "page.html"
    first, second = records(capsys, "report", "-m", "grams", "-m", "tf", "--out", out)
    assert (first["model"], second["model"], first["path"]) == ("grams", "tf", str(out))
    assert sum(each["count"] for each in first["calibration"]) % first["tokens"] == 0
    assert first["signature"] in out.read_text()


def test_watching_ends_with_training(models, monkeypatch, tmp_path, capsys):
    out = tmp_path / "page.html"
    pages = []
    held = contextlib.ExitStack()
    held.enter_context(store.find("net").locked())

    def sleep(seconds):
        pages.append(out.read_text())
        if len(pages) == 2:
            held.close()

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert run(["report", "-m", "net", "--watch", "--out", str(out)]) == 0
    assert len(pages) == 2 and all('data-reload="5"' in page for page in pages)
    assert "Training goes on" in pages[0] and "Training goes on" not in out.read_text()
    assert 'data-reload="0"' in out.read_text()
    assert run(["report", "-m", "net", "--watch", "--out", str(out)]) == 0
    assert "nothing is being trained" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_of_pairs_shows_its_translations(models, tmp_path, capsys):
    """BLEU is sacreBLEU's of what `beam-search` writes for the held-out sources."""
    sides = {"one": "uno", "two": "due", "three": "tre", "<b>": "&amp;"}
    lines = [" ".join(words) for words in itertools.product(sides, repeat=3)]
    pairs = [(line, " ".join(sides[word] for word in line.split())) for line in lines]
    file, held_out = tmp_path / "pairs.tsv", tmp_path / "held-out.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in pairs) * 2)
    held_out.write_text("".join(f"{a}\t{b}\n" for a, b in pairs[:40]))
    small = ["--hidden-size", "16", "--layers", "1", "--steps", "60", "--seed", "1", "--quiet"]
    made = ["train", str(file), "--val", str(held_out), "--model", "seq2seq", "--name", "two"]
    assert run([*made, "--overwrite", "--tokenizer", "whitespace", *small]) == 0
    out = tmp_path / "page.html"
    (found,) = records(capsys, "report", "-m", "two", "--out", out)
    sources = tmp_path / "sources.txt"
    sources.write_text("".join(f"{source}\n" for source, _ in pairs[:40]))
    with sources.open() as piped, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", piped)
        written = records(capsys, "beam-search", "-m", "two", "--beams", 4)
    texts, targets = [r["text"] for r in written], [target for _, target in pairs[:40]]
    expected = sacrebleu.corpus_bleu(texts, [targets]).score
    assert found["metrics"][0]["score"] == pytest.approx(expected) and found["pairs"] == 40
    page = out.read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == [
        *SECTIONS[:3],
        "Translations",
        "BLEU by length",
        "Worst translations",
    ]
    chrf = [sacrebleu.sentence_chrf(a, [b]).score for a, b in zip(texts, targets, strict=True)]
    shown = re.findall("<tr><td>(\\d+\\.\\d)</td>", page.split("Worst translations</h2>")[1])
    assert shown == [f"{score:.1f}" for score in sorted(chrf)[:10]]
    assert "<b>" not in page and "&lt;b&gt;" in page
    line = refusal(capsys, "report", "two", "--file", file, "--out", out)
    assert "--file and --prompt are for models of texts" in line
    loaded = load("two", "cpu")
    for line in translated(loaded, held_out_pairs(loaded)).examples:
        assert line.attention.sum(1) == pytest.approx(1, abs=1e-5)
        assert line.attention.shape == tuple(map(len, line.pieces))


@needs("labels")
def test_a_classifier_has_a_page_of_its_training(models, tmp_path):
    texts = tmp_path / "texts.tsv"
    texts.write_text("a b\tX\nb c\tY\n" * 30)
    small = ["--steps", "3", "--overwrite", "--quiet"]
    made = ["train", str(texts), "--task", "classify", "--model", "bag", "--name", "kinds"]
    assert run([*made, *small]) == 0
    out = tmp_path / "page.html"
    assert run(["report", "-m", "kinds", "--out", str(out), "--quiet"]) == 0
    page = out.read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == SECTIONS[:3]
    assert "nats/label" in page and "nats/token" not in page


@pytest.mark.slow
def test_models_are_given_by_option_or_argument(models, tmp_path):
    pages = [tmp_path / f"{number}.html" for number in range(2)]
    for page, given in zip(pages, (["net", "tf"], ["-m", "net", "-m", "tf"]), strict=True):
        assert run(["report", *given, "--out", str(page), "--quiet"]) == 0
    first, second = (re.sub(r"written</td><td>[^,]*", "", page.read_text()) for page in pages)
    assert first == second and "<h3>tf</h3>" in first


def test_the_losses_are_drawn(models, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    place = tmp_path / "losses.svg"
    assert run(["models", "show", "net", "--plot", str(place)]) == 0
    drawn = place.read_text()
    assert all(f">{word}<" in drawn for word in ("training", "validation", "nats/token", "step"))
    grams = ("models", "show", "grams", "--plot", tmp_path / "none.svg")
    assert "grams has no losses by step" in refusal(capsys, *grams)
    assert ".svg" in refusal(capsys, "models", "show", "net", "--plot", tmp_path / "a.txt")


def test_bad_inputs(models, capsys, tmp_path):
    assert ".html" in refusal(capsys, "report", "--out", tmp_path / "page.txt")
    other = tmp_path / "other.html"
    other.write_text("<p>mine</p>")
    assert "not a page of seqgen" in refusal(capsys, "report", "--out", other)
    assert "given twice" in refusal(
        capsys, "report", "-m", "net", "-m", "net", "--out", tmp_path / "p.html"
    )
    mixed = ("report", "-m", "net+grams", "--out", tmp_path / "p.html")
    assert "store it with seqgen mix" in refusal(capsys, *mixed)
    assert "'nobody'" in refusal(capsys, "report", "-m", "nobody", "--out", tmp_path / "p.html")
    unknown = ("report", "-m", "net", "--prompt", "é", "--out", tmp_path / "p.html")
    assert "'é'" in refusal(capsys, *unknown)
    text = str(models / "text.txt")
    assert run(["train", text, "--model", "ngram", "--val", "none", "--name", "bare", "-q"]) == 0
    bare = ("report", "-m", "bare", "--out", tmp_path / "p.html")
    assert "give --file FILE" in refusal(capsys, *bare)
    assert not (tmp_path / "p.html").exists()
    assert run([*map(str, bare), "--file", text, "--quiet"]) == 0
    assert run(["models", "remove", "bare", "--yes", "--quiet"]) == 0


# Moves through the page as a person does, and writes down what is read out.
DRIVER = """
<script>
const said=[],texts=[...document.querySelectorAll('.walk')];
for(const box of texts){const out=box.parentElement.querySelector('.readout');box.focus();
const key=k=>{box.dispatchEvent(new KeyboardEvent('keydown',{key:k,bubbles:true,cancelable:true}));
return out.textContent};
const first=key('Home'),next=key('ArrowRight'),last=key('End');
box.querySelectorAll('.v')[0].dispatchEvent(new MouseEvent('mouseover',{bubbles:true}));
said.push({focus:document.activeElement===box,first,next,last,hover:out.textContent,
all:[...box.querySelectorAll('.v')].map(v=>v.dataset.t)})}
const done=document.createElement('pre');done.id='done';done.textContent=JSON.stringify({said,
wide:document.documentElement.scrollWidth>document.documentElement.clientWidth,
loaded:performance.getEntriesByType('resource').map(e=>e.name)});document.body.append(done);
</script>
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1400])
def test_the_page_in_a_browser(home, tmp_path, width):
    """No message on the console, no request; keys and pointer read out every value."""
    page = (home / "page.html").read_text()
    driven = tmp_path / "page.html"
    # The page's policy lets no other script run: here it also names the driver's.
    policy = re.search(r"script-src 'sha256-[^']*'", page)[0]
    driven.write_text(page.replace(policy, "script-src 'unsafe-inline'").replace(
        "</body>", DRIVER + "</body>"))  # fmt: skip
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--enable-logging=stderr"]
    more = [f"--window-size={width},900", f"--user-data-dir={tmp_path / 'profile'}"]
    for path in (home / "page.html", driven):
        done = subprocess.run(
            [browser(), *flags, *more, path.as_uri()], capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0 and ":CONSOLE" not in done.stderr
    (found,) = re.findall('<pre id="done">(.*?)</pre>', done.stdout, re.DOTALL)
    unescaped = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    seen = json.loads(unescaped)
    assert seen["loaded"] == [] and not seen["wide"]
    assert len(seen["said"]) > 10
    for box in seen["said"]:
        assert box["focus"] and box["hover"] == box["first"] == box["all"][0]
        assert box["last"] == box["all"][-1]
        assert box["next"] == box["all"][min(1, len(box["all"]) - 1)]
    assert Path(driven).exists()


FRAME = (
    '<!DOCTYPE html><title>narrow</title><iframe width="400" height="900" src="page.html"></iframe>'
)
SIZES = """
<script>const done=document.createElement('pre');done.id='done';done.textContent=JSON.stringify(
{width:innerWidth,heights:[...document.querySelectorAll('.chart text')].map(
t=>t.getBoundingClientRect().height)});top.document.body.append(done)</script>
"""


@pytest.mark.slow
def test_charts_are_legible_on_a_phone(home, tmp_path):
    """In a frame of 400 pixels, no text of a chart is smaller than 12 pixels."""
    page = (home / "page.html").read_text()
    policy = re.search(r"script-src 'sha256-[^']*'", page)[0]
    page = page.replace(policy, "script-src 'unsafe-inline'").replace("</body>", SIZES + "</body>")
    (tmp_path / "page.html").write_text(page)
    (tmp_path / "frame.html").write_text(FRAME)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--window-size=1400,900"]
    flags += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    command_line = [browser(), *flags, (tmp_path / "frame.html").as_uri()]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=180)
    (found,) = re.findall('<pre id="done">(.*?)</pre>', done.stdout, re.DOTALL)
    seen = json.loads(found)
    assert seen["width"] == 400 and len(seen["heights"]) > 20
    assert min(seen["heights"]) > 12


AUDIT = """
<script>axe.run(document).then(found=>{const done=document.createElement('pre');done.id='done';
done.textContent=JSON.stringify({width:innerWidth,passes:found.passes.length,
dark:matchMedia('(prefers-color-scheme: dark)').matches,faults:found.violations.map(v=>v.id),
unsupported:found.incomplete.map(v=>v.id).filter(id=>id.startsWith('aria'))});
top.document.body.append(done)})</script>
"""


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1400])
def test_axe_finds_no_fault(home, tmp_path, width, dark):
    """In a frame, since windows of a browser are wider than 400 pixels; contrast in both themes."""
    axe = os.environ.get("SEQGEN_AXE")
    if axe is None:
        pytest.skip("SEQGEN_AXE names no axe.min.js of axe-core")
    page = (home / "page.html").read_text()
    library = Path(axe).read_text().replace("</script", "<\\/script")
    policy = re.search(r"script-src 'sha256-[^']*'", page)[0]
    page = page.replace(policy, "script-src 'unsafe-inline'")
    scripts = f"<script>{library}</script>{AUDIT}</body>"
    (tmp_path / "page.html").write_text(page.replace("</body>", scripts))
    (tmp_path / "frame.html").write_text(FRAME)
    opened = tmp_path / ("frame.html" if width == 400 else "page.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--window-size=1400,900"]
    flags += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    flags += [
        "--virtual-time-budget=60000",
        f"--blink-settings=preferredColorScheme={int(not dark)}",
    ]
    command_line = [browser(), *flags, opened.as_uri()]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=180)
    (found,) = re.findall('<pre id="done">(.*?)</pre>', done.stdout, re.DOTALL)
    seen = json.loads(found)
    assert (seen["width"], seen["dark"], seen["passes"] > 20) == (width, dark, True)
    assert seen["faults"] == seen["unsupported"] == []

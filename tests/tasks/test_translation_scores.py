"""Translators measured: eval, compare and weights of mixtures, against sacreBLEU and by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import sacrebleu
from helpers_cli import has_plugin

from seqgen.cli import run
from seqgen.errors import UsageError
from seqgen.scoring.evaluate import Measurements, evaluate
from seqgen.scoring.translations import Translating, Translations, by_source_length, paired_records
from seqgen.settings.scoring import BleuOptions
from seqgen.store.loading import load

WORDS = ("one", "two", "three", "four", "five", "six")
SMALL = ["--hidden-size", "16", "--layers", "1", "--seed", "1", "--precision", "float32", "--quiet"]


def pairs_of(count: int) -> list[tuple[str, str]]:
    """Return sources of four to six words, and the same words in capitals as targets."""
    chosen = [[WORDS[(n * k + k) % 6] for k in range(1, 5 + n % 3)] for n in range(count)]
    return [(" ".join(words), " ".join(words).upper()) for words in chosen]


PAIRS = pairs_of(30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A home with two translators, a and b, one of text, and the pairs they have learned."""
    folder = tmp_path_factory.mktemp("translators")
    (folder / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    for name, side in zip(("pairs.en", "pairs.de"), zip(*PAIRS, strict=True), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in side))
    pairs, words = str(folder / "pairs.tsv"), ["--tokenizer", "word"]
    kinds = {"a": ["seq2seq"], "b": ["seq2seq-transformer", "--heads", "2"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder / "home"))
        for name, steps in (("a", "100"), ("b", "40")):
            how = ["--steps", steps, "--lr", "0.01", "--name", name, *words, *SMALL]
            assert run(["train", pairs, "--model", *kinds[name], *how]) == 0
        count = ["--model", "ngram", "--order", "2", "--documents", "line", "--quiet"]
        assert run(["train", pairs, "--name", "text", *count]) == 0
    return folder


@pytest.fixture
def cli(folder, capfd, monkeypatch):
    """Run a command in that home; return its exit code, its output and its messages."""
    monkeypatch.setenv("SEQGEN_HOME", str(folder / "home"))

    def command(*arguments):
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return command


@pytest.fixture
def records(cli):
    """Run a command; return its records."""

    def command(*arguments):
        code, out, err = cli(*arguments, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return command


@pytest.fixture
def refusal(cli):
    """Run a command that is refused; return the line that it says."""

    def command(*arguments):
        code, out, err = cli(*arguments)
        assert (code in (1, 2), out, err.count("\n")) == (True, "", 1), err
        return err

    return command


def outputs(records, folder, model) -> list[str]:
    """Return a model's translations of all pairs, as `beam-search` writes them."""
    sources = [source for source, _ in PAIRS]
    return [found["text"] for found in records("beam-search", *sources, "-m", model)]


@pytest.mark.slow
def test_eval_is_what_the_pipe_of_commands_gives(records, folder):
    # Every third target is another than the models have learned, so that no score is full.
    pairs = [(s, t if n % 3 else f"NOT {t}") for n, (s, t) in enumerate(PAIRS)]
    file, targets = folder / "test.tsv", [target for _, target in pairs]
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    found = records("eval", file, "-m", "a", "-m", "b")
    for one, model in zip(found, "ab", strict=True):
        (scored,) = records("perplexity", file, "-m", model)
        assert one["perplexity"] == scored
        texts = outputs(records, folder, model)
        bleu, chrf, ter = one["translations"]["metrics"]
        assert bleu["score"] == pytest.approx(sacrebleu.corpus_bleu(texts, [targets]).score)
        assert chrf["score"] == pytest.approx(sacrebleu.corpus_chrf(texts, [targets]).score)
        assert ter["score"] == pytest.approx(sacrebleu.corpus_ter(texts, [targets]).score)
        assert one["bleu"]["score"] == bleu["score"]
        assert one["bleu"]["interval"] == bleu["confidence_interval"]
        matches = [text == target for text, target in zip(texts, targets, strict=True)]
        assert one["translations"]["exact_match"] == sum(matches) / len(PAIRS)
        assert one["diversity"]["model"]["words"] == sum(len(text.split()) for text in texts)
        assert "|search:5beams+avg1+100tokens|" in one["translations"]["signature"]
    # Otherwise nothing has been tested.
    assert any(0 < one["translations"]["exact_match"] < 1 for one in found)
    assert any(one["bleu"]["interval"] > 0 for one in found)


def test_classes_of_source_length(records, folder):
    (found,) = records("eval", folder / "pairs.tsv", "-m", "a", "--by-length", "4,5")
    texts = outputs(records, folder, "a")
    classes = found["translations"]["by_length"]
    assert [(c["unit"], c["least"], c["most"]) for c in classes] == [
        ("words", n, n) for n in (4, 5, 6)
    ]
    for own in classes:
        mine = [i for i, (source, _) in enumerate(PAIRS) if len(source.split()) == own["least"]]
        ours, theirs = [texts[i] for i in mine], [PAIRS[i][1] for i in mine]
        assert own["pairs"] == len(mine)
        assert own["score"] == pytest.approx(sacrebleu.corpus_bleu(ours, [theirs]).score)
    matches = sum(own["pairs"] * own["exact_match"] for own in classes)
    assert matches / len(PAIRS) == pytest.approx(found["translations"]["exact_match"])
    assert found["perplexity"] is None  # --by-length asks for translations


def test_classes_by_hand():
    sources = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff"]
    found = Translations(
        sources, sources, ["a", "bb", "x", "y", "z", "ffffff"], cut=0, max_tokens=100
    )
    classes = list(by_source_length(found, BleuOptions(metric="chrf"), [2, 2 + 2, 9]))
    assert [(c["unit"], c["least"], c["most"], c["pairs"]) for c in classes] == [
        ("characters", 1, 2, 2),
        ("characters", 3, 4, 2),
        ("characters", 5, 6, 2),
    ]
    assert [c["exact_match"] for c in classes] == [1, 0, 0.5]
    assert [c["metric"] for c in classes] == ["chrF2"] * 3
    equal = [c["pairs"] for c in by_source_length(found, BleuOptions())]
    assert (len(equal), sum(equal), max(equal)) == (5, 6, 2)
    same = Translations(["", ""], ["x", "y"], ["x", "z"], cut=0, max_tokens=100)
    (only,) = by_source_length(same, BleuOptions())
    assert (only["least"], only["most"], only["pairs"], only["exact_match"]) == (0, 0, 2, 0.5)


def test_two_files_are_one_with_tabs(records, folder):
    sides = ["--source", folder / "pairs.en", "--target", folder / "pairs.de"]
    (apart,), (joined,) = (
        records("eval", *sides, "-m", "a"),
        records("eval", folder / "pairs.tsv", "-m", "a"),
    )
    assert apart["perplexity"]["signature"] == joined["perplexity"]["signature"]
    assert apart["translations"] == joined["translations"]
    (compared,) = records("compare", "a", *sides, "--no-bleu")
    assert compared["bits_per_byte"] == pytest.approx(apart["perplexity"]["bits_per_byte"])
    assert compared["bleu"] is None


def test_eval_of_held_out_pairs_is_a_table(cli):
    code, out, err = cli("eval", "-m", "a", "-m", "b", "--metric", "chrf++", "-v")
    assert code == 0, err
    rows = [row.split("  ")[0] for row in out.splitlines()]
    assert rows[1:3] == ["chrF2++", "exact match"]
    assert rows[3].startswith("chrF2++, ") and "words (" in rows[3]
    assert "b: translations|model:" in err and "b: chrF2++|nrefs:1|" in err


def test_translations_that_are_cut_are_said(cli, records, folder):
    code, _, err = cli("eval", folder / "pairs.tsv", "-m", "a", "--bleu", "--max-tokens", 1)
    assert code == 0 and "30 of 30 translations cut at 1 tokens (--max-tokens)" in err
    (found,) = records("eval", folder / "pairs.tsv", "-m", "a", "--bleu", "--max-tokens", 1)
    assert found["translations"]["cut"] == 30


def test_targets_longer_than_the_usual_limit_are_not_cut(records, cli, folder):
    """The limit follows from the targets, and is one for all sources."""
    long = " ".join(WORDS * 20).upper()  # 120 words and the end
    file = folder / "long.tsv"
    file.write_text(f"{PAIRS[0][0]}\t{PAIRS[0][1]}\none\t{long}\n")
    (found,) = records("eval", file, "-m", "a", "--bleu")
    assert found["translations"]["max_tokens"] == 242
    assert "+242tokens|" in found["translations"]["signature"]
    (compared, _) = records("compare", "a", "b", "--data", file)
    assert compared["max_tokens"] == 242
    given = ["--max-tokens", 3]
    (found,) = records("eval", file, "-m", "a", "--bleu", *given)
    assert (found["translations"]["max_tokens"], found["translations"]["cut"]) == (3, 2)
    code, _, err = cli("compare", "a", "--data", file, *given)
    assert code == 0 and "2 of 2 translations cut at 3 tokens" in err


def test_compare_adds_perplexity_and_bleu(records, cli, folder):
    found = records("compare", "a", "b", "--data", folder / "pairs.tsv")
    assert [own["model"] for own in found] == ["a", "b"]
    for own in found:
        (whole,) = records("perplexity", folder / "pairs.tsv", "-m", own["model"])
        assert own["perplexity"] == pytest.approx(whole["perplexity"])
        assert own["bits_per_byte"] == pytest.approx(whole["bits_per_byte"])
        assert own["bytes"] == whole["bytes"]
        (scored,) = records("eval", folder / "pairs.tsv", "-m", own["model"], "--bleu")
        assert own["bleu"]["score"] == pytest.approx(scored["bleu"]["score"])
    bits = {own["model"]: own["total_bits_per_byte"] for own in found}
    assert found[0]["best"] == min(bits, key=bits.get)
    assert [own["p_value"] is None for own in found] == [
        own["best"] == n for own, n in zip(found, "ab", strict=True)
    ]
    best, other = sorted(found, key=lambda own: -own["bleu"]["score"])
    assert (best["bleu"]["best"], other["bleu"]["best"]) == (True, False)
    for name in "ab":
        (folder / name).write_text("".join(f"{x}\n" for x in outputs(records, folder, name)))
    how = ["--against", folder / other["model"], "--samples", 2000, "--seed", 0]
    _, against = records("bleu", folder / best["model"], folder / "pairs.de", *how)
    assert other["bleu"]["p_value"] == pytest.approx(against["p_value"])
    assert best["bleu"]["p_value"] is None
    code, out, err = cli("compare", "a", "b")
    assert code == 0, err
    assert out.splitlines()[0].split()[2] == "perplexity"
    assert "learnt from" not in err
    given = ["--data", folder / "pairs.tsv", "--no-bleu"]
    assert "a and b learnt from this very text" in cli("compare", "a", "b", *given)[2]


def test_the_best_of_ter_is_the_least():
    texts = {"good": ["a b c d", "e f g h"], "bad": ["a x c y", "z f g w"]}
    sources = ["1", "2"]
    systems = [
        Translations(sources, texts["good"], texts[name], 0, 100) for name in ("bad", "good")
    ]
    bad, good = paired_records(systems, BleuOptions(metric="ter"), samples=10)
    assert (bad["best"], good["best"]) == (False, True)
    (alone,) = paired_records(systems[:1], BleuOptions(), samples=10)
    assert alone["best"] and alone["p_value"] is None


def test_weights_of_a_mixture_are_those_of_the_best_likelihood(records, cli, folder):
    """Expectation maximisation against trying weights in steps of a hundredth."""
    each = [
        np.array([t["logprob"] for t in records("perplexity", folder / "pairs.tsv", "-m", name,
                                                "--per-token")])
        for name in "ab"
    ]  # fmt: skip
    tried = np.arange(1, 1000) / 1000
    mixed = [np.logaddexp(np.log(w) + each[0], np.log1p(-w) + each[1]).sum() for w in tried]
    (found,) = records("perplexity", "-m", "a+b", "--fit", folder / "pairs.tsv")
    assert found["weights"][0] == pytest.approx(tried[np.argmax(mixed)], abs=0.01)
    assert found["tokens"] == each[0].size
    (whole,) = records("perplexity", folder / "pairs.tsv", "-m", found["model"])
    assert whole["perplexity"] == pytest.approx(found["perplexity"], rel=1e-4)
    assert -whole["nll_nats"] > max(mixed) - 0.01


def test_what_is_refused(refusal, folder):
    pairs = folder / "pairs.tsv"
    for command in (["eval", "-m", "a", "-m", "text"], ["compare", "a", "text"]):
        assert (
            "a is a model of pairs and text one of text: they cannot be scored together"
            in refusal(*command)
        )
    (folder / "plain.txt").write_text("no tab\n")
    for command in (["eval", folder / "plain.txt"], ["perplexity", "--fit", folder / "plain.txt"]):
        assert "line 1 has no tab" in refusal(*command, "-m", "a+b")
    assert "line 1 has no tab" in refusal("compare", "a", "--data", folder / "plain.txt")
    if has_plugin("minimal_pairs"):
        assert "--pairs is for models of text" in refusal("eval", "-m", "a", "--pairs", pairs)
    sides = ["--source", folder / "pairs.en", "--target", folder / "pairs.de"]
    assert "give FILE, or --source and --target" in refusal("eval", pairs, *sides, "-m", "a")
    assert "--source and --target go together" in refusal("eval", *sides[:2], "-m", "a")
    assert "--source is for models that write from sources; text is a model of text" in refusal(
        "eval", *sides, "-m", "text"
    )
    assert "--source is for models that write from sources" in refusal("compare", *sides, "text")
    assert "--metric is for models that write from sources" in refusal(
        "eval", "-m", "text", "--metric", "ter"
    )
    wrong = refusal("eval", "-m", "a", "--metric", "rouge")
    assert "--metric must be one of bleu, chrf, chrf++, ter, not 'rouge'" in wrong
    wrong = refusal("eval", "-m", "a", "--by-length", "short")
    assert "--by-length must be a whole number, not 'short'" in wrong
    assert "in ascending order" in refusal("eval", "-m", "a", "--by-length", "5,3")
    assert "--documents stream has no meaning" in refusal(
        "eval", "-m", "a", "--documents", "stream"
    )


def test_texts_for_translators_from_python(folder, cli):
    with pytest.raises(UsageError, match="a is measured on pairs"):
        evaluate(load("a"), "a text\n", None, Measurements())
    with pytest.raises(UsageError, match="at least one --metric"):
        Translating(metrics=())

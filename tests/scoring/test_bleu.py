"""BLEU, chrF and TER are sacreBLEU's to the last digit, from files as from texts."""

import hashlib
import json
from pathlib import Path

import pytest
import sacrebleu
from helpers_io import quick
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER

from seqgen.cli import run
from seqgen.metrics.bleu import (
    corpus_score,
    looks_tokenized,
    paired_scores,
    sentence_scores,
)
from seqgen.scoring.bleu import paired_bleu, read_texts
from seqgen.settings.scoring import BleuOptions

KEYS = {"BLEU": "bleu", "chrF": "chrf", "chrF++": "chrf++", "TER": "ter"}
# sacreBLEU's names of settings, and ours.
SETTINGS = {
    "smooth_method": "smooth",
    "max_ngram_order": "max_order",
    **{name: name for name in ("tokenize", "smooth_value", "case_sensitive", "normalized")},
}


@pytest.fixture
def cli(capfdbinary):
    """Run a command in this process; give back its code, output and errors."""

    def command(*arguments):
        capfdbinary.readouterr()
        code = run([str(a) for a in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return command


@pytest.fixture
def write(tmp_path):
    """Write a file of the given lines; give back its path."""

    def make(name, *lines):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        return tmp_path / name

    return make


def options_of(metric, config):
    lower = metric != "TER" and config["lowercase"]
    known = {SETTINGS[k]: v for k, v in config.items() if k in SETTINGS}
    if metric != "BLEU":
        known.pop("tokenize", None)
    return BleuOptions(metric=KEYS[metric], lowercase=lower, **known)


def reference_set(shared_data, number):
    """Return one of the reference's sets, its hypotheses, and its references' lines."""
    data = shared_data("multi30k/flickr2016.en").parent
    notes = data.parents[1] / "reference" / "sacrebleu.json"
    if not notes.exists():
        pytest.skip(f"{notes} is missing")
    known = json.loads(notes.read_text())
    assert known["versions"]["sacrebleu"].split(".")[0] == sacrebleu.__version__.split(".")[0]
    own = known["sets"][number]
    raw = (notes.parent / own["set"]).read_bytes()
    assert hashlib.sha256(raw).hexdigest() == own["hypothesis_sha256"]
    hypotheses = raw.decode().split("\n")[:-1]
    references = [
        (data / Path(name).name).read_text(encoding="utf-8").split("\n")[:-1]
        for name in own["references"]
    ]
    return own, hypotheses, references


@pytest.mark.slow
@pytest.mark.fast_for("BLEU-24-*", "chrF-4-*", "TER-6-0")  # TER takes ten seconds a set
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(("family", "count"), [("BLEU", 24), ("chrF", 4), ("TER", 6)])
def test_scores_are_the_reference_figures(shared_data, number, family, count):
    own, hypotheses, references = reference_set(shared_data, number)
    scores = [wanted for wanted in own["scores"] if wanted["metric"].startswith(family)]
    assert len(scores) == count
    for wanted in scores:
        several = 1 if wanted["references"] == "first_reference_only" else 2
        options = options_of(wanted["metric"], wanted["config"])
        found = corpus_score(hypotheses, references[:several], options)
        assert found.score == wanted["score"], wanted
        assert (
            found.signature.rsplit("version", 1)[0] == wanted["signature"].rsplit("version", 1)[0]
        )
        for part in found.parts.keys() & wanted.keys():
            assert found.parts[part] == pytest.approx(wanted[part], rel=1e-12)


@pytest.mark.parametrize("number", range(3))
def test_sentences_get_the_reference_figures(shared_data, number):
    own, hypotheses, references = reference_set(shared_data, number)
    sentences = own["sentence_level_first_lines_first_reference"]["rows"]
    for metric, key in (("bleu", "bleu_effective_order_13a_exp"), ("chrf", "chrF")):
        count = len(sentences)
        options = BleuOptions(metric=metric)
        scores = sentence_scores(hypotheses[:count], [references[0][:count]], options)
        assert [found.score for found in scores] == [wanted[key] for wanted in sentences]


words = st.sampled_from(
    ["the", "The", "cat", "sat", ".", "on", "a", "mat", "mat.", "\u00e9", "\u65e5"]
)
segments = st.lists(words, max_size=8).map(" ".join)
segments |= st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n"), max_size=8)


@st.composite
def parallel(draw):
    rows = draw(st.lists(st.tuples(segments, segments, segments), min_size=1, max_size=6))
    return [list(column) for column in zip(*rows, strict=True)]


@quick
@given(parallel(), st.sampled_from(["13a", "intl", "char", "none"]), st.booleans())
def test_any_text_gets_what_sacrebleu_gives(columns, tokenize, lowercase):
    hypotheses, *references = columns
    ours = {
        "bleu": BLEU(tokenize=tokenize, lowercase=lowercase, force=True),
        "chrf": CHRF(lowercase=lowercase),
        "chrf++": CHRF(word_order=2, lowercase=lowercase),
        "ter": TER(),
    }
    for metric, theirs in ours.items():
        options = BleuOptions(
            metric=metric,
            tokenize=tokenize if metric == "bleu" else None,
            lowercase=lowercase and metric != "ter",
        )
        wanted = theirs.corpus_score(hypotheses, references)
        found = corpus_score(hypotheses, references, options)
        assert found.score == wanted.score
        assert found.signature == str(theirs.get_signature())
        assert found.text == wanted.format(signature=str(theirs.get_signature()))


@quick
@given(parallel(), st.booleans())
def test_files_are_split_at_newlines_alone(columns, last_newline):
    def chunks(lines):
        # Without an end a last empty line would be no line.
        end = "\n" if last_newline or not lines[-1] else ""
        return iter(["\n".join(lines) + end])

    hypotheses, *references = columns
    texts = read_texts(
        {"h": chunks(hypotheses)}, {str(n): chunks(own) for n, own in enumerate(references)}
    )
    assert texts.systems == {"h": hypotheses}
    assert texts.references == references


def test_intervals_and_paired_tests_are_sacrebleus(monkeypatch):
    from sacrebleu.significance import PairedTest

    reference = [f"the cat {n} sat on the mat near the door" for n in range(30)]
    good = [line.replace("door", "gate") if n % 3 else line for n, line in enumerate(reference)]
    poor = [line.replace("cat", "dog").replace("mat near", "rug by") for line in reference]
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    metric = BLEU()
    wanted = metric.corpus_score(good, [reference], n_bootstrap=200)
    signatures, results = PairedTest(
        [("a", good), ("b", poor)], {"BLEU": BLEU()}, [reference], "bs", 200
    )()
    monkeypatch.delenv("SACREBLEU_SEED")
    found = corpus_score(good, [reference], BleuOptions(), bootstrap=200, seed=7)
    assert (found.mean, found.interval) == (wanted._mean, wanted._ci)
    assert found.signature == str(metric.get_signature())
    assert "bs:200|seed:7" in found.signature
    texts = read_texts(
        {"a": ["\n".join(good)], "b": ["\n".join(poor)]}, {"r": ["\n".join(reference)]}
    )
    (_, first), (name, second) = paired_bleu(texts, BleuOptions(), "bootstrap", 200, 7)
    assert name == "b" and first.p_value is None
    assert second.p_value == results["BLEU"][1].p_value < 0.05
    assert second.mean == results["BLEU"][1].mean
    assert second.signature == str(signatures["BLEU"])
    (_, same), (_, again) = paired_bleu(
        read_texts({"a": ["\n".join(good)], "b": ["\n".join(good)]}, {"r": ["\n".join(reference)]}),
        BleuOptions(),
        "randomization",
        50,
    )
    assert same.score == again.score and again.p_value == 1


def test_the_command_gives_a_line_or_a_record(cli, write):
    hyp, ref = write("h", "the cat sat on the mat.", "a dog"), write("r", "the cat sat.", "a dog")
    metric = BLEU()
    wanted = metric.corpus_score(["the cat sat on the mat.", "a dog"], [["the cat sat.", "a dog"]])
    code, out, err = cli("bleu", hyp, ref)
    assert (code, err) == (0, "")
    assert out == wanted.format() + "\n"
    signature = str(metric.get_signature())
    assert cli("bleu", hyp, ref, "--verbose")[1] == wanted.format(signature=signature) + "\n"
    code, out, _ = cli("bleu", hyp, ref, "--json")
    record = json.loads(out)
    assert list(record)[:3] == ["metric", "score", "signature"]
    assert record["score"] == wanted.score and record["counts"] == wanted.counts
    assert record["signature"] == signature
    assert cli("bleu", hyp, ref, "--sentence-level")[2] == ""
    code, out, err = cli("bleu", hyp, ref, "--sentence-level", "--verbose")
    assert [float(x) for x in out.split()] == pytest.approx(
        [
            BLEU(effective_order=True).sentence_score(h, [r]).score
            for h, r in (("the cat sat on the mat.", "the cat sat."), ("a dog", "a dog"))
        ],
        abs=1e-4,
    )
    assert err.startswith("BLEU|nrefs:1|case:mixed|eff:yes")
    lines = [
        json.loads(x) for x in cli("bleu", hyp, ref, "--sentence-level", "--json")[1].splitlines()
    ]
    assert [line["line"] for line in lines] == [0, 1]
    code, out, _ = cli(
        "bleu", hyp, ref, "--against", write("h2", "the dog", "a cat"), "--samples", 50
    )
    assert code == 0 and [row.split()[0] for row in out.splitlines()[1:]] == [
        str(hyp),
        str(hyp) + "2",
    ]


def test_several_metrics_are_a_record_each(cli, write):
    hyp, ref = write("h", "the cat sat on the mat.", "a dog"), write("r", "the cat sat.", "a dog")
    both = ["--metric", "chrf", "--metric", "bleu", "--tokenize", "char"]
    code, out, err = cli("bleu", hyp, ref, "--json", *both)
    assert (code, err) == (0, "")
    alone = [
        cli("bleu", hyp, ref, "--json", "--metric", "chrf")[1],
        cli("bleu", hyp, ref, "--json", "--tokenize", "char")[1],
    ]
    assert out == "".join(alone)
    columns = [
        line.split("\t")
        for line in cli("bleu", hyp, ref, "--sentence-level", *both)[1].splitlines()
    ]
    single = cli("bleu", hyp, ref, "--sentence-level", "--metric", "chrf")[1].split()
    assert [row[0] for row in columns] == single and [len(row) for row in columns] == [2, 2]
    assert cli("bleu", hyp, ref, "--metric", "bleu", "--metric", "bleu")[0] == 2
    assert cli("bleu", hyp, ref, "--metric", "chrf", "--metric", "bleu", "--normalized")[0] == 2


def test_standard_input_is_the_hypothesis(cli, write, monkeypatch):
    import io
    import os

    hyp, ref = write("h", "a cat"), write("r", "a cat")
    direct = cli("bleu", hyp, ref)
    for arguments in ((ref,), ("-", ref)):
        with hyp.open("rb") as file:
            saved = os.dup(0)
            os.dup2(file.fileno(), 0)
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.FileIO(0, closefd=False)))
            try:
                assert cli("bleu", *arguments) == direct
            finally:
                os.dup2(saved, 0)
                os.close(saved)


@pytest.mark.parametrize(
    ("lines", "more", "code", "pattern"),
    [
        (["a"], [], 1, r"has 2 lines and reference 1 \(.*\) has 1: line n"),
        (["a", "b", "c"], [], 1, r"has 2 lines and reference 1 \(.*\) has 3"),
        ([], [], 1, "has no line"),
        (
            ["a", "b"],
            ["--metric", "rouge"],
            2,
            "--metric must be one of bleu, chrf, .* not 'rouge'",
        ),
        (
            ["a", "b"],
            ["--metric", "ter", "--tokenize", "13a"],
            2,
            "--tokenize is for --metric bleu",
        ),
        (["a", "b"], ["--tokenize", "words"], 2, "--tokenize is one of"),
        (["a", "b"], ["--normalized"], 2, "--normalized is for --metric ter"),
        (["a", "b"], ["--sentence-level", "--confidence"], 2, "--confidence is about a whole"),
        (["a", "b"], ["--paired-test", "t"], 2, "--paired-test"),
        (["a", "b"], ["--samples", "1"], 2, "samples"),
    ],
)
def test_what_makes_no_sense_gets_one_line(cli, write, lines, more, code, pattern):
    import re

    found, out, err = cli("bleu", write("h", "x", "y"), write("r", *lines), *more)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert re.search(pattern, err), err


def test_degenerate_lines_get_what_sacrebleu_gives(cli, write):
    for lines in ([""], ["word"], ["", "word", ""]):
        record = json.loads(cli("bleu", write("h", *lines), write("r", *lines), "--json")[1])
        assert record["score"] == BLEU().corpus_score(lines, [lines]).score


def test_tokenized_text_is_warned_of(cli, write):
    tokenized = write("h", "the cat sat .", "a dog ran !", "yes")
    assert "looks tokenized" in cli("bleu", tokenized, tokenized)[2]
    assert cli("bleu", tokenized, tokenized, "--tokenize", "none")[2] == ""
    assert cli("bleu", tokenized, tokenized, "--quiet")[2] == ""
    assert not looks_tokenized(["the cat sat.", "a dog ran .", "no!"])
    assert not looks_tokenized(["no mark", ""])


def test_a_folder_of_several_files_is_no_hypothesis(cli, tmp_path, write):
    (tmp_path / "d").mkdir()
    for name in ("d/a", "d/b", "ref"):
        write(name, "a")
    code, out, err = cli("bleu", tmp_path / "d", tmp_path / "ref")
    assert (code, out) == (2, "") and "is 2 files" in err


def test_every_seed_of_a_paired_test_gives_the_same_again():
    reference = [f"a b c d e {n}" for n in range(30)]
    one, other = (
        [x.replace("c", "x") if n % k else x for n, x in enumerate(reference)] for k in (2, 3)
    )
    for seed in (0, 1):
        tests = [
            paired_scores([one, other], [reference], BleuOptions(), samples=200, seed=seed)
            for _ in range(3)
        ]
        assert len({scores[1].p_value for scores in tests}) == 1


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_intervals_of_every_metric_are_json(cli, write, metric):
    one, other = write("h", "a b c d", "e f x h"), write("r", "a b c d", "e f g h")
    code, out, err = cli("bleu", one, other, "--metric", metric, "--confidence", "--json")
    assert code == 0, err
    assert json.loads(out)["confidence_interval"] > 0


def test_lines_that_sacrebleu_cannot_resample_are_one_line(cli, write):
    one, other = write("h", "a b", "", "x"), write("r", "a b", "", "y")
    code, out, err = cli("bleu", one, other, "--metric", "chrf", "--confidence")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "leave out --confidence" in err

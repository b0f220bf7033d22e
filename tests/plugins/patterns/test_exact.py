"""Exact and resampled texts of a pattern against enumeration; the probability of a language."""

import itertools
import math
import re
from collections import Counter

import numpy as np
import pytest
from helpers_cli import has_plugin, records, refusal

import seqgen
from seqgen.cli import run
from seqgen.generation.text_batch import prefill
from seqgen.models.distributions import normalise
from seqgen.store.loading import load


@pytest.fixture
def trained(home, tmp_path, request):
    """Train an n-gram model; return its name, its symbols by id, and those that end a text."""
    documents, smoothing = request.param
    data = tmp_path / "text.txt"
    data.write_text("abbabaab\n" * 5 + "bbab\naab\nac\n")
    kind = ["--model", "ngram", "--order", "3", "--smoothing", smoothing]
    if smoothing == "hmm":
        kind = ["--model", "hmm", "--set", "num_states=5", "--seed", "1", "--steps", "4"]
    how = [*kind, "--documents", documents]
    assert run(["train", str(data), "--name", "m", "--quiet", *how]) == 0
    return load("m")


def enumerated(loaded, pattern, most):
    """The probability of every text, by following every token of the model's own distribution."""
    tokenizer, found = loaded.tokenizer, Counter()
    matched = re.compile(pattern).fullmatch
    letters = {i: tokenizer.decode([i]) for i in range(4, tokenizer.vocab_size)}
    letters = {i: letter for i, letter in letters.items() if i not in loaded.never}
    whole = ["".join(t) for n in range(most + 1) for t in itertools.product("abc\n", repeat=n)]
    whole = {text for text in whole if matched(text)}
    prefixes = {text[:n] for text in whole for n in range(len(text) + 1)}
    ids = {letter: i for i, letter in letters.items()}

    def follow(text, probability):
        if len(text) == most:
            found[text] += probability
            return
        prompt = (loaded.framing.start, *(ids[c] for c in text))
        probs = np.exp(normalise(prefill(loaded.model, [prompt])[0].astype(float))[0])
        for token, p in enumerate(probs.tolist()):
            going = token in letters and text + letters[token] in prefixes
            if going and p:
                follow(text + letters[token], probability * p)
            elif (
                text in whole and not going and (token in letters or token in loaded.framing.stops)
            ):
                found[text] += probability * p

    follow("", 1.0)
    return {text: p for text, p in found.items() if p}


CASES = [("stream", "modified-kneser-ney"), ("line", "maximum-likelihood"), ("line", "add-delta")]
CASES += [(documents, "hmm") for documents in ("stream", "line") if has_plugin("hmm")]


@pytest.mark.fast_for(
    "*-5-trained0", "*-4-trained2", "*-3-trained1", "a.|b-2-trained3", "a.|b-2-trained4"
)
@pytest.mark.parametrize("trained", CASES, indirect=True)
@pytest.mark.parametrize(
    ("pattern", "most"), [("(ab|b){1,2}a?", 5), ("a*bb?a*", 4), ("(a|b)(a|b)*c?", 3), ("a.|b", 2)]
)
def test_exact_texts_have_the_conditional_distribution(trained, pattern, most, capsys):
    expected = enumerated(trained, pattern, most)
    total = sum(expected.values())
    (told,) = records(capsys, "perplexity", "--pattern", pattern, "--max-tokens", most)
    assert told["logprob"] == pytest.approx(math.log(total), abs=1e-5)
    model = seqgen.load("m")
    how = {"pattern": pattern, "max_tokens": most, "seed": 5}
    drawn = list(model.sample("", **how, num_samples=1000, pattern_mode="exact"))
    assert {r.finish_reason for r in drawn} == {"pattern"}
    for record in drawn[:50]:  # one way to write each text of characters: its logprob is the text's
        assert math.exp(record.logprob) == pytest.approx(expected[record.text], rel=1e-3)
    counts = Counter(r.text for r in drawn)
    assert set(counts) <= set(expected)
    assert chi_square(counts, expected, len(drawn))
    masked = list(
        model.sample("", **how, num_samples=200)
    )  # it may begin what the model cannot complete
    assert {r.text for r in masked if r.finish_reason == "pattern"} <= set(expected)
    assert {r.finish_reason for r in masked} <= {"pattern", "dead-end"}


def chi_square(counts, expected, number):
    """Whether counts are those of a distribution, at five standard deviations."""
    total = sum(expected.values())
    cells = [(counts[t], number * p / total) for t, p in expected.items()]
    rare = [cell for cell in cells if cell[1] < 5]
    cells = [cell for cell in cells if cell[1] >= 5]
    if rare:
        cells.append(tuple(map(sum, zip(*rare, strict=True))))
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells if mean)
    return statistic < len(cells) + 5 * math.sqrt(2 * len(cells))


@pytest.mark.slow
@pytest.mark.parametrize("trained", [("stream", "modified-kneser-ney")], indirect=True)
def test_resampling_comes_near_it_where_masks_do_not(trained):
    pattern, most = "a(a{3}|b.{2})", 4
    expected = enumerated(trained, pattern, most)
    total, model, off = sum(expected.values()), seqgen.load("m"), {}
    for mode in ("mask", "resample", "exact"):
        how = {"pattern": pattern, "max_tokens": most, "num_samples": 2000, "seed": 5}
        more = {} if mode == "mask" else {"pattern_mode": mode}
        if mode == "resample":
            more["particles"] = 40
        counts = Counter(r.text for r in model.sample("", **how, **more))
        off[mode] = sum(abs(counts[t] / 2000 - p / total) for t, p in expected.items()) / 2
    assert off["exact"] < 0.06 and off["resample"] < 0.1 and off["mask"] > 0.1


@pytest.mark.parametrize("trained", [("stream", "modified-kneser-ney")], indirect=True)
def test_what_exact_refuses(trained, tmp_path, capsys):
    mode = ["--pattern-mode", "exact"]
    for arguments, told in (
        (["--pattern", "a+", "--top-k", "3"], "without --top-k"),
        (["--pattern", "a+", "--temperature", "0.5"], "without --temperature"),
        (["--pattern", "a+", "--force", "a"], "without --force"),
        ([], "needs --pattern"),
    ):
        assert told in refusal(capsys, "sample", *arguments, *mode)
    assert "--particles" in refusal(capsys, "sample", "--pattern", "a", "--particles", "3")
    small = ["--layers", "1", "--hidden-size", "4", "--steps", "1", "--name", "net", "--quiet"]
    assert (
        run(["train", str(tmp_path / "text.txt"), "--model", "lstm", *small, "--val", "0.3"]) == 0
    )
    assert "resample" in refusal(capsys, "sample", "-m", "net", "--pattern", "a+", *mode)
    resampled = ["--pattern", "a{2}b?", "--pattern-mode", "resample", "--num-samples", "3"]
    texts = [r["text"] for r in records(capsys, "sample", "-m", "net", *resampled, "--seed", "1")]
    assert len(texts) == 3 and all(re.fullmatch("a{2}b?", text) for text in texts)
    assert "n-gram" in refusal(capsys, "perplexity", "-m", "net", "--pattern", "a+")
    file = tmp_path / "text.txt"
    assert "not both" in refusal(capsys, "perplexity", file, "-m", "m", "--pattern", "a+")
    assert "belongs to --pattern" in refusal(capsys, "perplexity", "-m", "m", "--max-tokens", "9")

"""The part of a held-out text that a time is enough to score."""

import math

import pytest
from helpers_cli import records

from seqgen import store
from seqgen.scoring.mixture_fitting import LEAST_GATED
from seqgen.training import scored_part, session
from seqgen.training.train import train


class Clock:
    """Clock that only scoring moves: by so many seconds a call, and so many a character."""

    def __init__(self, a_call, a_character):
        self.now, self.a_call, self.a_character = 0.0, a_call, a_character

    def score(self, loaded, texts, how):
        self.now += self.a_call + self.a_character * len(texts[0])

    def monotonic(self):
        return self.now


@pytest.mark.parametrize(
    ("a_call", "a_character", "seconds", "share"),
    [
        (0, 1e-4, 10, 1),  # the whole text takes 5 s
        (0, 1e-4, 4, 1 / 2),
        (0.02, 1e-5, 1, 1),  # 0.52 s, of which a hundred characters would say 10.5
        (0.02, 1e-5, 0.3, 1 / 16),  # too short to try more than a hundred
        (3.0, 1e-5, 1, 1 / 16),  # never less than the shortest part
    ],
)
def test_a_call_takes_its_time_once(a_call, a_character, seconds, share, monkeypatch):
    clock = Clock(a_call, a_character)
    monkeypatch.setattr(scored_part.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(scored_part, "totals_of", clock.score)
    monkeypatch.setattr(scored_part, "for_model", lambda loaded: None)
    assert scored_part.affordable_share(None, "x" * 50_000, seconds) == share


def test_a_text_that_is_shorter_than_what_is_tried(monkeypatch):
    clock = Clock(0.1, 0.001)
    monkeypatch.setattr(scored_part.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(scored_part, "totals_of", clock.score)
    monkeypatch.setattr(scored_part, "for_model", lambda loaded: None)
    for text in ("", "x" * 7, "x" * 300):
        assert scored_part.affordable_share(None, text, 100) == 1


LINES = "one line\n" * 4000  # 36,000 characters


@pytest.mark.parametrize(
    ("text", "share", "of_stream", "of_lines"),
    [
        (LINES, 0.5, 18_000, 18_000),
        (LINES, 0.4999, 18_009, 18_009),  # after the next line
        (LINES, 1, 0, 0),
        ("x" * 40_000, 0.25, 30_000, 30_000),  # one line: what is left is no line either way
        ("x" * 9_999 + "\n" + "y" * 30_000, 0.5, 20_000, 10_000),  # no line ends near the middle
        ("x" * 18_999 + "\n" + "y" * 21_000, 0.5, 19_000, 19_000),
        ("x" * 29_999 + "\n" + "y" * 10_000, 0.5, 20_000, 30_000),
        ("x" * 1_199 + "\n" + "y" * 200, 0.5, 1_200, 1_200),  # small texts are cut at a line
    ],
)
def test_a_part_begins_after_a_line_and_of_a_stream_only_after_a_near_one(
    text, share, of_stream, of_lines
):
    assert scored_part.begin_of_part(text, share, "stream") == of_stream
    assert scored_part.begin_of_part(text, share, "line") == of_lines


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    path = tmp_path / "t.txt"
    path.write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 60)
    return path


SMALL = {"hidden_size": 8, "num_layers": 1, "seq_len": 16, "batch_size": 4, "seed": 1}
TIMED = {**SMALL, "precision": "float32", "minutes": 0.01}


def test_of_a_token_file_no_more_is_scored_than_of_its_text(text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(session, "affordable_share", lambda *arguments: 0.25)
    tokens = tmp_path / "t.tok"
    tokenizer = ("--tokenizer", "byte", "--out", tokens)
    records(capsys, "tokenize", text, *tokenizer, "-q")
    settings = {**TIMED, "tokenizer": "byte"}
    train([text], name="text", architecture="lstm", settings=settings)
    found = train([tokens], name="tokens", architecture="lstm", settings=TIMED)
    begin = store.find("tokens").scored_from
    assert begin == store.find("text").scored_from > 0
    (score,) = records(capsys, "perplexity", "-m", "tokens", "-q")
    assert score["protocol"] == found.protocol
    assert f"the last {score['characters']:,} held-out characters" in found.protocol
    assert score["nats_per_token"] == pytest.approx(found.val_loss, abs=1e-5)


def test_what_is_to_be_compared_scores_all_that_is_held_out(text, monkeypatch):
    monkeypatch.setattr(session, "affordable_share", lambda *arguments: 0.25)
    found = train([text], name="t", architecture="lstm", settings=TIMED, scores_all=True)
    assert store.find("t").scored_from == 0 and "held-out" not in found.protocol


@pytest.mark.parametrize("cost", [1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("gated", [1, 4])
def test_weights_are_fitted_on_what_a_time_allows(cost, gated, monkeypatch):
    """A fit on enough tokens for a gate takes longer per token; the time is kept all the same."""
    clock, sizes = [0.0], []
    monkeypatch.setattr(scored_part.time, "monotonic", lambda: clock[0])

    def fit(tokens):
        sizes.append(tokens)
        clock[0] += tokens * cost * (gated if tokens >= LEAST_GATED else 1)
        return tokens

    size, seconds = 50_000, 1.0
    assert scored_part.fit_within(fit, size, seconds) == sizes[-1]
    assert sizes == sorted(sizes) and sizes[0] == scored_part.FITTED_FIRST
    assert clock[0] <= max(seconds, 1.001 * sizes[0] * cost)
    if clock[0] < seconds / 2:  # what is left would have been enough for twice as many
        left, per_token = seconds - clock[0], cost * (4 if len(sizes) == 1 else gated)
        assert sizes[-1] == size or 2 * sizes[-1] > min(size, left / per_token)
    for size in (1, 2500, 2501, 4999, 9000, 44_000, 130_000):
        assert scored_part.fit_within(fit, size, math.inf) == size
        assert scored_part.fit_within(fit, size, 1e9) == size

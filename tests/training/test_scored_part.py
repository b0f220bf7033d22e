"""The part of a held-out text that a time is enough to score."""

import pytest

from seqgen.training import scored_part


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

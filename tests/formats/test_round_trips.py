"""The script that measures round trips: a model that has come back is what it was."""

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mistral byte", "pegasus unigram"])
def test_what_comes_back_is_as_it_was(case, tmp_path):
    from round_trips import PROMPTS, measure

    words = [
        "the",
        "cat",
        "sat",
        "on",
        "the",
        "mat",
        "and",
        "the",
        "dog's",
        "log",
        "was",
        "12",
        "years",
        "old",
    ]
    lines = [" ".join(words[at % 13 :] + words[: at % 13] * (at % 3)) for at in range(60)]
    (tmp_path / "t.txt").write_text("\n".join(lines))
    (tmp_path / "p.tsv").write_text("".join(f"{line}\t{line.title()}\n" for line in lines))
    (trip,) = measure(tmp_path / "t.txt", tmp_path / "p.tsv", 200, steps=20, only=case)
    assert f"{trip.written_as} {trip.tokenizer}" == case
    assert trip.logits < 2e-5 and trip.back == 0
    assert trip.greedy == trip.beams == trip.prompts == PROMPTS
    assert trip.strings == trip.strings_back == trip.of_strings == 200

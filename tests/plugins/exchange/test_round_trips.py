"""The script that measures round trips: a model that has come back is what it was."""

import pytest
from helpers_cli import needs

pytest.importorskip("transformers", reason="transformers is not installed")


WORDS = "the cat sat on the mat and the dog's log was 12 years old".split()  # noqa: SIM905
LINES = [" ".join(WORDS[at % 13 :] + WORDS[: at % 13] * (at % 3)) for at in range(60)]


@pytest.fixture
def measured(tmp_path):
    """Return what measures one case."""
    from round_trips import measure

    (tmp_path / "t.txt").write_text("\n".join(LINES))
    (tmp_path / "p.tsv").write_text("".join(f"{line}\t{line.title()}\n" for line in LINES))

    def measured(case, through):
        files = tmp_path / "t.txt", tmp_path / "p.tsv"
        (trip,) = measure(*files, 200, steps=20, only=case, through=through)
        assert f"{trip.written_as} {trip.tokenizer}" == case
        assert trip.logits < 2e-5 and not trip.back
        return trip

    return measured


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mistral byte", "pegasus unigram"])
def test_what_comes_back_is_as_it_was(case, measured):
    trip = measured(case, "transformers")
    assert trip.back == 0
    assert trip.greedy == trip.beams == trip.prompts == 8
    assert trip.strings == trip.strings_back == trip.of_strings == 200


@pytest.mark.slow
def test_llama_cpp_computes_reads_and_writes_the_same(measured):
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    trip = measured("llama, biases char", "llama.cpp")
    assert trip.back == 0 and trip.greedy == trip.prompts
    assert trip.strings == trip.strings_back == trip.of_strings > 0
    assert trip.perplexity[0] == pytest.approx(trip.perplexity[1], rel=1e-5)


@needs("more_cells")
@pytest.mark.slow
def test_onnx_runtime_writes_the_same(measured):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    assert measured("mgu char", "onnx").greedy == 8


@pytest.mark.slow
@needs("smoothings")
def test_kenlm_scores_the_same(measured):
    pytest.importorskip("kenlm", reason="kenlm is not installed")
    here, there = measured("witten-bell char", "kenlm").perplexity
    assert here == pytest.approx(there, rel=1e-6)

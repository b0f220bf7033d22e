"""`seqgen sample --explain`: how each token was chosen."""

import pytest
from known_models import fake

from seqgen.cli.shell.output import Output
from seqgen.generation import beam_search as beams
from seqgen.generation.sample import sample
from seqgen.plugins.explain.search_tree import put_tree
from seqgen.plugins.explain.tokens import explain, put_explanations
from seqgen.settings.generation import BeamOptions, SampleOptions
from seqgen.text.tokenizers import KINDS


def test_explanations_tell_what_sample_does():
    loaded = fake()
    options = SampleOptions(seed=3, max_tokens=6, top_k=2, num_samples=2)
    found = list(explain(loaded, ["a", "b"], options, candidates=99))
    for record in sample(loaded, ["a", "b"], options):
        steps = [f for f in found if (f.index, f.sample) == (record.index, record.sample)]
        assert [f.step for f in steps] == list(range(record.tokens))
        assert "".join(loaded.tokenizer.decode([f.token]) for f in steps) == record.text
        assert sum(f.logprob for f in steps) == pytest.approx(record.logprob)
    for step in found:
        left = [c for c in step.candidates if c.removed_by is None]
        possible = [c for c in step.candidates if c.token not in loaded.never]
        assert len(left) == min(2, len(possible))
        assert sum(c.after for c in left) == pytest.approx(1, rel=1e-5)
        assert step.token in {c.token for c in left}
        assert {c.removed_by for c in step.candidates} <= {None, "forbidden", "top-k"}
        for removed in step.removed:
            by = [c for c in step.candidates if c.removed_by == removed.filter]
            assert removed.count == len(by)
            assert removed.tokens == [c.text for c in by]
        never = {c.token for c in step.candidates if c.removed_by == "forbidden"}
        assert never == {c.token for c in step.candidates} & set(loaded.never)
        gone = [c.probability for c in step.candidates if c.removed_by == "top-k"]
        assert min(c.probability for c in left) >= max(gone, default=0)


def test_brackets_are_shown_as_they_are(capfd):
    loaded = fake(KINDS["whitespace"].train(["[ [bold] [/bold] :smile: a"]))
    options = SampleOptions(seed=3, max_tokens=4, force="[bold]", top_k=1)
    put_explanations(explain(loaded, [""], options, candidates=99), "prompt", Output())
    (tree,) = beams.explain(loaded, ["[bold]"], BeamOptions(nbest=3, max_tokens=2))
    put_tree(tree, "prompt", Output())
    explained, searched = capfd.readouterr().out.split("prompt 0: '[bold]'\n")
    for token in ("[", "[bold]", "[/bold]", ":smile:"):
        assert f" '{token}' " in explained
        assert f" '{token}' " in searched
    assert "token 0: '[bold]'\n" in explained
    assert [f"{beam.finish_reason}: {beam.text!r}" in searched for beam in tree.hypotheses] == [
        True
    ] * 3
    assert r"\[" not in explained + searched


def test_what_is_forced_is_not_removed_though_banned():
    loaded = fake()
    options = SampleOptions(seed=3, max_tokens=1, ban=["b"], force="b")
    (step,) = explain(loaded, ["a"], options, candidates=99)
    assert step.text == "b"
    (chosen,) = (c for c in step.candidates if c.token == step.token)
    assert (chosen.after, chosen.removed_by) == (1.0, None)
    assert {c.removed_by for c in step.candidates if c is not chosen} == {"forbidden", "force"}

"""Explanations, suggestions and the best of several, with a model whose table is known."""

import json
import math
from dataclasses import replace

import forked
import pytest
import torch
from helpers_cli import has_plugin, needs
from known_models import fake, loaded_as
from prefix_tables import Table

from seqgen.generation import beam_search as beams
from seqgen.generation.processors import Forbid
from seqgen.generation.sample import sample
from seqgen.generation.suggest import suggest
from seqgen.settings.generation import BeamOptions, SampleOptions
from seqgen.text.tokenizers.byte import ByteTokenizer
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.word import WhitespaceTokenizer


def chances(loaded, prompt):
    """The model's own chances of the token after a prompt."""
    ids = torch.tensor([[loaded.framing.start, *loaded.ids(prompt)]])
    logits, _ = loaded.model(ids, loaded.model.start(1), last=1)
    return logits[0, 0].softmax(-1)


def test_suggestions_are_the_likeliest_in_order():
    loaded = fake()
    found = list(suggest(loaded, ["ab", ""], 3))
    assert [(f.index, f.rank) for f in found] == [(i, r) for i in (0, 1) for r in range(3)]
    for index, prompt in enumerate(["ab", ""]):
        own = chances(loaded, prompt)
        possible = {v: p for v, p in enumerate(own.tolist()) if v not in loaded.never}
        best = sorted(possible, key=lambda v: (-possible[v], v))[:3]
        of_prompt = found[3 * index : 3 * index + 3]
        assert [f.token for f in of_prompt] == best
        assert [f.text for f in of_prompt] == loaded.tokenizer.pieces(best)
        mass = sum(possible.values())
        for f in of_prompt:
            assert f.probability == pytest.approx(possible[f.token] / mass, rel=1e-5)
            assert f.logprob == pytest.approx(math.log(possible[f.token]), rel=1e-5)


def test_suggestions_read_a_batch_of_prompts_at_once():
    loaded = fake()
    prompts = ["ab", "", "cab", "ba", "ab"]
    found = list(suggest(loaded, prompts, 9, batch_size=4))
    assert loaded.model.calls == [(1, 1), (2, 3), (1, 4), (1, 3)]
    alone = [replace(f, index=i) for i, p in enumerate(prompts) for f in suggest(loaded, [p], 9)]
    assert found == alone


def test_best_of_keeps_the_likeliest_by_token():
    """Candidate k of sample j draws as sample j N + k."""
    loaded = fake(documents="line")
    every = list(sample(loaded, ["a", ""], SampleOptions(seed=5, max_tokens=9, num_samples=6)))
    kept = list(
        sample(loaded, ["a", ""], SampleOptions(seed=5, max_tokens=9, num_samples=2, best_of=3))
    )
    assert [(r.index, r.sample) for r in kept] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for place, record in enumerate(kept):
        group = every[3 * place : 3 * place + 3]
        best = max(group, key=lambda r: r.logprob / r.tokens)
        assert (record.text, record.logprob) == (best.text, pytest.approx(best.logprob))
    small = SampleOptions(seed=5, max_tokens=9, num_samples=2, best_of=3, batch_size=4)
    assert [r.text for r in sample(loaded, ["a", ""], small)] == [r.text for r in kept]


def test_forced_banned_and_minimum_in_text():
    loaded = fake(documents="line")
    options = SampleOptions(
        seed=1, max_tokens=12, min_tokens=8, force="cab", ban=["aa", "b "], num_samples=40
    )
    for record in sample(loaded, ["a"], options):
        assert record.text.startswith("cab")
        assert "aa" not in record.text
        assert "b " not in record.text
        assert record.tokens >= 8


def test_what_is_forced_is_written_though_it_is_banned():
    options = SampleOptions(seed=1, max_tokens=30, force="cab", ban=["a", "ca"], num_samples=9)
    for record in sample(fake(), [""], options):
        assert record.text.startswith("cab")
        assert "a" not in record.text[3:]


def test_the_newline_before_a_stream_counts_as_seen():
    options = SampleOptions(seed=1, max_tokens=4, no_repeat_ngram=1, num_samples=30)
    assert not any("\n" in record.text for record in sample(fake(), [""], options))


def test_groups_that_find_the_same_texts_give_fewer():
    """Without diversity every group is the same search, of two beams."""
    options = BeamOptions(beams=6, groups=3, nbest=6, diversity=0.0, max_tokens=3)
    two = BeamOptions(beams=2, nbest=2, max_tokens=3)
    found, expected = (list(beams.beam_search(fake(), [""], o)) for o in (options, two))
    assert found == expected


def test_a_stop_before_the_minimum_ends_nothing():
    loaded = fake()
    options = SampleOptions(seed=1, max_tokens=40, min_tokens=5, stop=["a"], num_samples=30)
    reasons = set()
    for record in sample(loaded, [""], options):
        reasons.add(record.finish_reason)
        assert record.tokens > 5
        assert "a" not in record.text[5:]
    assert "stop" in reasons


def test_the_tree_of_a_search():
    loaded = fake()
    options = BeamOptions(beams=2, nbest=2, max_tokens=3)
    (tree,) = beams.explain(loaded, ["a"], options)
    records = list(beams.beam_search(loaded, ["a"], options))
    assert tree.hypotheses == records
    nodes = {node.node: node for node in tree.nodes}
    assert list(nodes) == list(range(1, len(nodes) + 1))
    for node in tree.nodes:
        parent = nodes.get(node.parent)
        assert node.step == (0 if parent is None else parent.step + 1)
        assert parent is None or parent.fate == "live"
        before = 0.0 if parent is None else parent.total
        assert node.total == pytest.approx(before + node.logprob)
    for step in range(3):
        fates = [node.fate for node in tree.nodes if node.step == step]
        assert fates.count("live" if step < 2 else "finished") == 2
        assert "pruned" in fates
    ranked = {node.rank: node for node in tree.nodes if node.rank is not None}
    assert [ranked[r.rank].total for r in records] == pytest.approx([r.logprob for r in records])


def test_no_live_hypothesis_is_left_out_of_the_tree():
    """Stops take the best places, so that those that live on are far down the list."""
    alphabet = CharTokenizer("abcdefghij")
    likelier = torch.tensor([-9.0] * 4 + [-float(i) for i in range(alphabet.vocab_size - 4)])
    loaded = loaded_as(beam_table(likelier), alphabet, "stream")
    options = BeamOptions(beams=2, nbest=2, max_tokens=40, stop=list("abcdef"))
    (tree,) = beams.explain(loaded, [""], options)
    nodes = {node.node: node for node in tree.nodes}
    for node in tree.nodes:
        assert node.parent == 0 if node.step == 0 else nodes[node.parent].fate == "live"
    assert {node.step for node in tree.nodes} >= {0, 1}


def beam_table(logits):
    return Table(len(logits), logits=lambda prefix: logits)


WORDS = WhitespaceTokenizer(["the", "cat", "sat", "on", "mat"])
BYTES = ByteTokenizer()


@pytest.mark.parametrize(
    ("tokenizer", "prompt", "text", "stop", "min_tokens"),
    [
        (WORDS, "the", " cat sat on the mat", " cat", 0),
        (WORDS, "the", " cat sat on the mat", " sat", 1),
        (WORDS, "the", " cat sat on the mat", "the", 0),
        (WORDS, "", "the cat sat on", " cat", 0),
        (BYTES, "a", "\u00e9xyz", "\u00e9", 1),
        (BYTES, "a", "\u00e9xyz", "\u00e9", 2),
        (BYTES, "a", "\u00e9xyz", "xy", 3),
    ],
)
@pytest.mark.parametrize("exhaustive", [pytest.param(True, marks=needs("searches")), False])
def test_a_search_stops_where_sampling_does(
    tokenizer, prompt, text, stop, min_tokens, exhaustive, monkeypatch
):
    if exhaustive:
        monkeypatch.setattr("seqgen.plugins.searches.exhaustive.MOST", math.inf)
    before = len(tokenizer.encode(prompt)) + 1  # the start symbol
    written = tokenizer.encode(text).tolist()

    def logits(prefix):
        certain = torch.full((tokenizer.vocab_size,), -math.inf)
        certain[written[min(len(prefix) - before, len(written) - 1)]] = 0.0
        return certain

    loaded = loaded_as(Table(tokenizer.vocab_size, logits=logits), tokenizer, "stream")
    settings = {"max_tokens": len(written), "min_tokens": min_tokens, "stop": [stop]}
    options = BeamOptions(beams=1, exhaustive=exhaustive, **settings)
    (found,) = beams.beam_search(loaded, [prompt], options)
    (wanted,) = sample(loaded, [prompt], SampleOptions(seed=0, temperature=0, **settings))
    assert (found.text, found.tokens) == (wanted.text, wanted.tokens)
    assert found.finish_reason == wanted.finish_reason


def test_beams_of_texts():
    loaded = fake(documents="line")
    options = BeamOptions(beams=6, nbest=3, max_tokens=8, stop=["bc"], batch_size=2)
    prompts = ["a", "", "cab", "b"]
    found = list(beams.beam_search(loaded, prompts, options))
    assert [(r.index, r.rank) for r in found] == [(i, r) for i in range(4) for r in range(3)]
    for record in found:
        assert record.score == pytest.approx(record.logprob / record.tokens)
        assert "bc" not in record.text
        ids = [loaded.framing.start, *loaded.ids(record.prompt)]
        text = record.text + ("bc" if record.finish_reason == "stop" else "")
        written = [*loaded.ids(text), *([2] if record.finish_reason == "eos" else [])]
        assert len(written) == record.tokens
        logits, _ = loaded.model(torch.tensor([ids + written]), loaded.model.start(1))
        own = logits[0, len(ids) - 1 : -1].log_softmax(-1)
        total = sum(own[t, token].item() for t, token in enumerate(written))
        assert record.logprob == pytest.approx(total, rel=1e-5)
    alone = [next(beams.beam_search(loaded, [p], options)) for p in prompts]
    assert [r.text for r in alone] == [r.text for r in found if r.rank == 0]


@needs("searches")
def test_exhaustive_option_agrees_with_enough_beams():
    loaded = fake(documents="line")
    wide = BeamOptions(beams=9**3, nbest=4, max_tokens=3)
    tried = BeamOptions(exhaustive=True, nbest=4, max_tokens=3)
    found, expected = (list(beams.beam_search(loaded, ["a"], o)) for o in (wide, tried))
    assert [r.text for r in found] == [r.text for r in expected]
    assert [r.score for r in found] == pytest.approx([r.score for r in expected])


@pytest.mark.slow
@needs("explain")
def test_the_command_line(tmp_path):
    """Records for piped prompts, in order; trees and tables are no JSON and no error."""

    def seqgen(*arguments, text):
        code, out, err = forked.program(arguments, text.encode(), SEQGEN_HOME=str(tmp_path))
        return code, out.decode(), err.decode()

    data = tmp_path / "data.txt"
    data.write_text("ab ba\nabba\n" * 200)
    seqgen("train", str(data), "--steps", "3", "--hidden-size", "8", "--quiet", text="")
    found = seqgen("beam-search", "--json", "--nbest", "2", "--max-tokens", "4", text="a\n\nb\n")
    records = [json.loads(line) for line in found[1].splitlines()]
    assert [(r["index"], r["rank"]) for r in records] == [(i, r) for i in range(3) for r in (0, 1)]
    keys = "index rank prompt text tokens logprob score finish_reason model seed"
    assert list(records[0]) == keys.split()
    plain = seqgen("beam-search", "--max-tokens", "4", text="a\n\nb\n")
    best = [r["text"].replace("\n", "\\n") for r in records if r["rank"] == 0]
    assert plain[1].splitlines() == best
    tree = seqgen("beam-search", "a", "--explain", "--max-tokens", "2", "--beams", "2", text="")
    assert "rank 0" in tree[1]
    nodes = seqgen("beam-search", "a", "--explain", "--json", "--max-tokens", "2", text="")
    assert {json.loads(line)["fate"] for line in nodes[1].splitlines()} >= {"live", "finished"}
    if has_plugin("explain"):
        table = seqgen("sample", "a", "--explain", "--max-tokens", "2", "--top-k", "2", text="")
        assert "top-k removed" in table[1]
    wrong = seqgen("beam-search", "a", "--beams", "4", "--groups", "3", text="")
    assert wrong[:2] == (2, "")
    assert wrong[2].count("\n") == 1


def test_what_can_never_be_written_is_never_beamed():
    loaded = fake()
    options = BeamOptions(beams=9, nbest=9, max_tokens=2)
    never = set(loaded.never)
    assert Forbid(loaded.never).ids == loaded.never
    for record in beams.beam_search(loaded, [""], options):
        assert not never & set(loaded.ids(record.text))
        assert len(record.text) == record.tokens == 2

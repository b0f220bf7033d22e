"""`--heal`: prompts that end inside a token."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from examples import examples
from helpers_cli import has_plugin, needs, records, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from prefix_model import PrefixModel
from small_vocabulary import SmallBPE

import seqgen
from seqgen.cli import run
from seqgen.generation.processors import History
from seqgen.generation.prompts import Prompt
from seqgen.plugins.bytes.heal import ContinuesPrompt, HealedEnd, ends_at_boundary, heal
from seqgen.store.loaded import Unconditional
from seqgen.text.framing import Framing

FRAMING = Framing(1, 2, 2, (0, 1, 3))
MERGES = [("a", "b"), ("ab", "c"), ("c", "a"), ("abc", "ab"), ("b", "c"), ("ca", "b")]


def loaded_of(model, tokenizer):
    return SimpleNamespace(
        model=model,
        tokenizer=tokenizer,
        framing=FRAMING,
        backward=False,
        stored=SimpleNamespace(name="small", config={"architecture": "ngram"}),
        conditioning=Unconditional("small"),
        ids=lambda text: tuple(tokenizer.encode(text).tolist()),
    )


def canonical(tokenizer, tokens):
    return tokenizer.encode(tokenizer.decode(tokens)).tolist() == list(tokens)


def covers_of(tokenizer, text):
    """Yield the canonical token sequences with which a text may begin, and the rest of it."""

    def grow(tokens, rest):
        yield tokens, rest
        for token in range(4, tokenizer.vocab_size):
            piece = tokenizer.texts[token]
            if rest.startswith(piece) and canonical(tokenizer, (*tokens, token)):
                yield from grow((*tokens, token), rest[len(piece) :])

    return grow((), text)


@given(text=st.text(st.sampled_from("abc"), min_size=1, max_size=8), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=examples(40), derandomize=True)
def test_the_most_probable_cover_is_read(text, seed):
    tokenizer = SmallBPE(MERGES)
    model = PrefixModel(tokenizer.vocab_size, seed)
    masses = {}
    for tokens, rest in covers_of(tokenizer, text):
        mass, past = 1.0, [FRAMING.start]
        for token in tokens:
            mass *= model.chances(past)[token]
            past.append(token)
        longer = [
            token
            for token in range(4, tokenizer.vocab_size)
            if tokenizer.texts[token].startswith(rest)
            and len(tokenizer.texts[token]) > len(rest)
            and canonical(tokenizer, (*tokens, token))
        ]
        mass *= model.chances(past)[longer].sum() if rest else 1.0
        masses[tokens, rest] = mass
    prompt = Prompt(0, text, (1, *tokenizer.encode(text).tolist()))
    healed = heal(loaded_of(model, tokenizer), prompt)
    rest = healed.overlap.text if healed.overlap else ""
    assert tokenizer.decode(healed.tokens) + rest == text
    best = max(masses.values())
    assert masses[healed.tokens[1:], rest] == pytest.approx(best, rel=1e-9)
    if healed.overlap:
        texts = [tokenizer.texts[token] for token in healed.overlap.tokens]
        assert all(one.startswith(rest) and one != rest for one in texts)
        assert all(canonical(tokenizer, (*healed.tokens[1:], x)) for x in healed.overlap.tokens)


def test_the_first_token_alone_is_restricted():
    log_probs = np.log(np.full((3, 4), 0.25))
    overlap = HealedEnd("a", ContinuesPrompt(), np.array([1, 3]), (), b"", None)
    history = [
        History((5,), 1, overlap=overlap),
        History((5, 1), 1, overlap=overlap),
        History((5,), 1),
    ]
    found = np.exp(ContinuesPrompt()(history, log_probs))
    assert found[0] == pytest.approx([0, 0.5, 0, 0.5])
    assert (found[1:] == np.exp(log_probs[1:])).all()
    assert ContinuesPrompt()([[5], [5], [5]], log_probs) == pytest.approx(log_probs)
    excluded = np.array([[np.log(0.5), -np.inf, np.log(0.5), -np.inf]])
    assert np.exp(ContinuesPrompt()(history[:1], excluded))[0] == pytest.approx([0, 0.5, 0, 0.5])


TEXT = (ROOT / "corpora" / "play.txt").read_text()[:40000]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("heal") / "home"
    (home.parent / "text.txt").write_text(TEXT)
    ngram = ("--model", "ngram", "--order", "4", "-q")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(home))
        train = ("train", str(home.parent / "text.txt"), *ngram)
        for name, how in {
            "subwords": ("--tokenizer", "bpe", "--vocab-size", "500"),
            "words": ("--tokenizer", "word"),
            "characters": (),
            "byte": ("--tokenizer", "byte"),
            "backward": ("--direction", "backward"),
            "lossy": ("--tokenizer", "whitespace"),
        }.items():
            assert run([*train, "--name", name, *how]) == 0
    return home


@pytest.fixture(autouse=True)
def at_home(home, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(home))


def sampled(capsys, prompts, *how):
    found = records(capsys, "sample", *prompts, "--seed", 1, "--max-tokens", 6, "-q", *how)
    return [record["text"] for record in found]


def test_words_that_are_cut_are_completed(capsys):
    """The next character of passages cut inside words is right more often."""
    cuts = [at for at in range(3000, 9000, 97) if TEXT[at - 2 : at + 1].isalpha()]
    prompts = [TEXT[at - 60 : at].replace("\n", " ") for at in cuts]
    right = []
    for how in (("--heal",), (), ("--no-heal",)):
        texts = sampled(capsys, prompts, "-m", "subwords", "--greedy", *how)
        right.append(sum(text[:1] == TEXT[at] for text, at in zip(texts, cuts, strict=True)))
    assert right[0] == right[1] > right[2]


def test_a_space_at_the_end_of_a_prompt_is_part_of_the_next_token(capsys):
    (with_space,) = sampled(capsys, ["The mayor "], "-m", "subwords", "--greedy", "--heal")
    likely = seqgen.load("subwords").suggest("The mayor", 500)
    first = next(one.text for one in likely if one.text.startswith("\u2581") and len(one.text) > 1)
    assert with_space.startswith(first[1:])


def test_models_whose_tokens_are_bytes_or_characters_write_the_same(capsys):
    for name in ("characters", "byte"):
        prompts = ["The may", "The mayor ", ""]
        healed = sampled(capsys, prompts, "-m", name, "--heal")
        assert healed == sampled(capsys, prompts, "-m", name, "--no-heal")


def test_beams_and_python(capsys):
    how = ("-m", "subwords", "--max-tokens", 5, "--nbest", 3, "-q", "--heal")
    found = records(capsys, "beam-search", "The mayo", *how)
    assert len(found) == 3
    assert {record["text"][0] for record in found} == {"r"}
    settings = {"heal": True, "greedy": True, "max_tokens": 5}
    (one,) = seqgen.load("subwords").sample("The mayo", **settings)
    assert one.text.startswith("r")
    assert "".join(seqgen.load("subwords").stream("The mayo", **settings)) == one.text
    texts = [f"The mayo{record['text']}" for record in found]
    (stopped,) = records(capsys, "beam-search", "The mayo", *how, "--stop", texts[0][8:11])[:1]
    assert stopped["text"] != found[0]["text"]


def test_a_text_does_not_depend_on_its_batch(capsys):
    prompts = ["The may", "The mayor ", "Where is the ri", "A"]
    together = sampled(capsys, prompts, "-m", "subwords", "--heal")
    alone = sampled(capsys, prompts, "-m", "subwords", "--heal", "--batch-size", 1)
    assert together == alone


@needs("explain")
def test_explain_names_the_filter(capsys):
    steps = records(
        capsys, "sample", "The mayo", "-m", "subwords", "--heal", "--explain", "--seed", "1"
    )
    assert "heal" in [one["filter"] for one in steps[0]["removed"]]
    assert all(one["filter"] != "heal" for step in steps[1:] for one in step["removed"])


@needs("serve")
def test_the_server_heals_too(home):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from seqgen.plugins.serve.app import Server, make_app
    from seqgen.plugins.serve.settings import ServeOptions
    from seqgen.plugins.serve.shelf import Shelf

    server = Server(Shelf(["subwords"]), ServeOptions())
    client = TestClient(make_app(server), base_url="http://localhost")

    def answered(prompt="The mayo", **fields):
        body = {"prompt": prompt, "greedy": True, "max_tokens": 4, **fields}
        return client.post("/v1/completions", json=body).json()

    def text(*prompts, **fields):
        return [choice["text"] for choice in answered(*prompts, **fields)["choices"]]

    model = seqgen.load("subwords")
    wanted = [
        next(model.sample(["The mayo"], greedy=True, max_tokens=4, heal=x)).text
        for x in (True, False)
    ]
    assert wanted[0].startswith("r") and wanted[0] != wanted[1]
    assert text() == text(heal=True) == wanted[:1]
    assert text(heal=False) == wanted[1:]
    prompts = ["The mayo", "The mayor of", "The mayo"]
    several = [one.text for one in model.sample(prompts, greedy=True, max_tokens=4)]
    assert text(prompts) == several
    # Ids and scored prompts stay as they are.
    ids = model.loaded.ids("The mayo")
    assert text([*ids]) == wanted[1:]
    scored = answered(echo=True, logprobs=1)["choices"][0]
    assert scored["text"] == f"The mayo{wanted[1]}"
    assert scored["logprobs"]["token_ids"][: len(ids)] == list(ids)
    echoed = answered(echo=True)["choices"][0]["text"]
    assert echoed == f"The mayo{wanted[0]}"
    server.engine.close()


@given(text=st.text(st.sampled_from("abc"), min_size=1, max_size=8))
@settings(deadline=None, max_examples=examples(60), derandomize=True)
def test_boundaries_are_where_no_token_can_go_on(text):
    for merges in (MERGES, MERGES[:1], []):
        tokenizer = SmallBPE(merges)
        prompt = Prompt(0, text, (1, *tokenizer.encode(text).tolist()))
        goes_on = any(
            piece.startswith(text[at:]) and piece != text[at:]
            for piece in tokenizer.texts[4:]
            for at in range(len(text))
        )
        assert ends_at_boundary(tokenizer, prompt) != goes_on


def test_records_say_what_was_healed(capsys):
    for command in ("sample", "beam-search"):
        call = (command, "The mayo", "--max-tokens", 4, "-q", "--seed", 1)
        (healed,) = records(capsys, *call, "-m", "subwords")
        assert "The mayo".endswith(healed["healed"]) and healed["healed"]
        assert records(capsys, *call, "-m", "subwords", "--heal")[0]["text"] == healed["text"]
        for name, *more in (("subwords", "--no-heal"), ("subwords", "--force", "r"), ("byte",)):
            (one,) = records(capsys, *call, "-m", name, *more)
            assert "healed" not in one
    (whole,) = records(capsys, "sample", "The mayor of", "-m", "characters", "-q", "--seed", 1)
    assert "healed" not in whole


@needs("replay")
def test_records_from_before_are_made_again_without_healing(tmp_path, capsys):
    """They have no `healed`, and the option was recorded as off or not at all."""
    call = ("sample", "The mayo", "--max-tokens", 4, "--record", "-q", "--seed", 1, "-m")
    (healed,) = records(capsys, *call, "subwords")
    (before,) = records(capsys, *call, "subwords", "--no-heal")
    before["run"]["arguments"].remove("--no-heal")
    (whole,) = records(capsys, *call, "characters")
    older = json.loads(json.dumps(before))
    del older["run"]["options"]["heal"]
    file = tmp_path / "log.jsonl"
    lines = [json.dumps(record) for record in (healed, before, older, whole)]
    file.write_text("".join(f"{line}\n" for line in lines))
    equal = [{"index": index, "equal": True, "differs": []} for index in range(4)]
    assert records(capsys, "replay", file) == equal


def test_an_exhaustive_search_heals(capsys):
    call = ("beam-search", "The mayo", "-m", "subwords", "--exhaustive", "--max-tokens", 1, "-q")
    (one,) = records(capsys, *call)
    assert one["text"].startswith("r") and one["healed"]


@pytest.mark.parametrize("name", ["backward", "lossy"])
def test_by_default_models_without_such_a_view_write_as_ever(name, capsys):
    assert sampled(capsys, ["The"], "-m", name) == sampled(capsys, ["The"], "-m", name, "--no-heal")


def test_options_that_say_how_texts_begin_turn_the_default_off(capsys):
    whole = sampled(capsys, ["The mayo"], "-m", "subwords", "--force", "x")
    assert whole[0].startswith("x")
    if has_plugin("patterns"):
        form = ("-m", "subwords", "--pattern", "[a-z]{3}")
        found = [sampled(capsys, ["The mayo"], *form, *more) for more in ((), ("--no-heal",))]
        assert found[0] == found[1] and len(found[0][0]) == 3


def test_refusals_are_one_line(capsys):
    for command, arguments, said in (
        ("sample", ("-m", "backward"), "reads from right to left"),
        ("sample", ("-m", "lossy"), "its whitespace tokenizer changes texts"),
        ("beam-search", ("-m", "lossy"), "its whitespace tokenizer changes texts"),
        ("sample", ("-m", "subwords", "--force", "a"), "give --heal or --force, not both"),
        ("sample", ("-m", "subwords", "--suggest", "3"), "give --heal or --suggest, not both"),
    ):
        assert said in refusal(capsys, command, "The", "--heal", *arguments)
    if has_plugin("patterns"):
        wrong = ("The", "--heal", "-m", "subwords", "--pattern", "a")
        assert "give --heal or --pattern, not both" in refusal(capsys, "sample", *wrong)

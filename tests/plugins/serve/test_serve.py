"""The server against `seqgen sample`, against hostile clients, and against clients that leave."""

import asyncio
import contextlib
import functools
import hashlib
import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from helpers_cli import has_plugin, known_kinds, needs
from places import STORED
from safetensors.numpy import load_file, save
from starlette.testclient import TestClient
from strangers import add

from seqgen import hooks
from seqgen.cli import run
from seqgen.engines.native.library import library
from seqgen.errors import SeqgenError, UsageError
from seqgen.generation import text_batch
from seqgen.generation.backward import decoder_of
from seqgen.generation.continuation import Continuation
from seqgen.generation.processors import NoRepeatNgram
from seqgen.generation.sample import sample
from seqgen.generation.text_batch import Row
from seqgen.models.transformer.arrays import TransformerArrays
from seqgen.plugins.serve.app import Inbox, Server, make_app
from seqgen.plugins.serve.engine import Engine, Job, TextBatch, TextPiece, Writing, _Rows
from seqgen.plugins.serve.protocol import LogitBias
from seqgen.plugins.serve.run import Listening
from seqgen.plugins.serve.settings import ServeOptions
from seqgen.plugins.serve.shelf import Shelf
from seqgen.scoring.surprisal import line_record, score_lines
from seqgen.settings.generation import SampleOptions
from seqgen.settings.scoring import Scoring
from seqgen.store import WEIGHTS, StoredModel
from seqgen.store.loading import Work, load

KINDS = STORED / "kinds" / "models"
NAMES = {
    "n-gram": STORED / "models" / "ngram-char",
    "lstm": STORED / "models" / "lstm-char",
    "transformer": STORED / "models" / "transformer-char",
    "mixture": f"{KINDS / 'ngram'}+{KINDS / 'lstm'}",
    "pairs": KINDS / "seq2seq",
    "labels": KINDS / "lstm-labels",
    "lines": KINDS / "lstm-forms",
}
NAMES = {kind: str(path) for kind, path in NAMES.items()}
PROMPTS = {
    "pairs": ["ab", "dd", "bba", "a", "abab"],
    "labels": ["a", "ab", "b", "ba", "aab"],
}


@pytest.fixture(scope="module")
def live():
    """A server at a real address, over every kind of model."""
    server = Listening(list(NAMES.values()), ServeOptions(port=0, batch_size=8, timeout=60))
    thread = threading.Thread(target=server.listen)
    thread.start()
    yield server
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(live):
    return TestClient(make_app(live.served), base_url="http://localhost")


def complete(client, kind="n-gram", status=200, **fields):
    body = {"model": NAMES[kind], **fields}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def texts(answer):
    return [choice["text"] for choice in answer["choices"]]


def alone(kind, prompts, label=(), **options):
    """Return what `sample` writes, which is loaded as the command line loads it."""
    loaded = load(NAMES[kind], work=Work()).with_labels(label)
    return [record.text for record in sample(loaded, prompts, SampleOptions.of(**options))]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def events(response):
    lines = [line.decode() for line in response if line.strip()]
    assert lines[-1].strip() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def prompts_of(kind):
    """Return prompts that a model knows, of several lengths."""
    if kind in PROMPTS:
        return PROMPTS[kind]
    loaded = load(NAMES[kind], work=Work())
    held = next(iter(sample(loaded, [""], SampleOptions(seed=1, max_tokens=40)))).text
    return ["", *(held[:n].replace("\n", " ") for n in (1, 2, 9, 21))]


def known(kind, prompts):
    tokenizer = load(NAMES[kind], work=Work()).tokenizer
    return [p for p in prompts if tokenizer.first_unknown(p) is None]


def asked_of(kind, count, draw):
    """Return the fields of requests of a model, and the digest of each text written alone."""
    given = prompts_of(kind)
    given = given if kind == "pairs" else known(kind, given)
    loaded, asked = load(NAMES[kind], work=Work()), []
    for seed in range(count):
        options = {
            "seed": seed,
            "max_tokens": draw.choice([3, 17, 40]),
            "temperature": draw.choice([1.0, 1.3]),
            "top_p": draw.choice([1.0, 0.9]),
        }
        prompt = draw.choice(given)
        (record,) = sample(loaded, [prompt], SampleOptions(**options))
        fields = {"model": NAMES[kind], "prompt": prompt, **options}
        asked.append((fields, digest(record.text)))
    return asked


def ask(place, fields, leaves=False):
    """Return the digest of a text that a server writes; None if the client leaves."""
    with contextlib.closing(http.client.HTTPConnection(*place)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(fields))
        response = connection.getresponse()
        assert response.status == 200
        if leaves:
            response.read(1)
            return None
        if fields.get("stream"):
            return digest("".join(e["choices"][0]["text"] for e in events(response)))
        return digest(texts(json.loads(response.read()))[0])


@pytest.mark.slow
def test_texts_do_not_depend_on_the_load(live):
    draw = random.Random(5)
    kinds = ("n-gram", "lstm", "transformer", "mixture", "pairs")
    asked = [one for kind in kinds for one in asked_of(kind, 20, draw)]
    draw.shuffle(asked)

    def one(number):
        fields, expected = asked[number]
        leaves = number % 5 == 4
        time.sleep(draw.random() / 20)
        fields = {**fields, "stream": number % 2 == 0 or leaves}
        assert ask(live.socket.getsockname(), fields, leaves) == (None if leaves else expected)

    with ThreadPoolExecutor(64) as pool:
        assert len(list(pool.map(one, range(len(asked))))) == 100


def test_prompts_and_choices_draw_as_those_of_sample(client):
    prompts = prompts_of("lstm")[1:4]
    answer = complete(client, "lstm", prompt=prompts, n=3, seed=7, max_tokens=12)
    assert texts(answer) == alone("lstm", prompts, num_samples=3, seed=7, max_tokens=12)
    assert [choice["index"] for choice in answer["choices"]] == list(range(9))
    assert answer["usage"]["completion_tokens"] == 9 * 12
    assert answer["seed"] == 7
    best = complete(client, "lstm", prompt=prompts[0], best_of=5, seed=7, max_tokens=12)
    assert texts(best) == alone("lstm", prompts[:1], best_of=5, seed=7, max_tokens=12)


def test_ids_are_as_good_as_their_text(client):
    (text,) = alone("lstm", [""], seed=3, max_tokens=8)
    ids = client.post("/tokenize", json={"model": NAMES["lstm"], "prompt": text}).json()["tokens"]
    back = client.post("/detokenize", json={"model": NAMES["lstm"], "tokens": ids}).json()
    assert back == {"prompt": text}
    both = [complete(client, "lstm", prompt=p, seed=1, echo=True) for p in (text, ids)]
    assert texts(both[0]) == texts(both[1])
    assert texts(both[0])[0].startswith(text)


def test_settings_are_those_of_sample(client):
    some = {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": 0.5}
    some |= {"frequency_penalty": 0.3, "no_repeat_ngram": 4, "stop": ["a", "e"], "max_tokens": 30}
    answer = complete(client, "n-gram", prompt="", seed=2, **some)
    assert texts(answer) == alone("n-gram", [""], seed=2, **(some | {"stop": ("a", "e")}))
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    if has_plugin("patterns"):
        (text,) = texts(complete(client, "n-gram", pattern="(a|b)+c?", max_tokens=6, seed=1))
        assert text and set(text) <= set("abc")
    if has_plugin("samplers"):
        some = {"dry_multiplier": 1.5, "dry_allowed_length": 1, "dry_sequence_breaker": ["a"]}
        some |= {"xtc_probability": 0.6, "xtc_threshold": 0.05, "top_n_sigma": 2, "max_tokens": 30}
        answer = complete(client, "n-gram", prompt=["", "t"], seed=2, **some)
        some |= {"dry_sequence_breaker": ("a",)}
        assert texts(answer) == alone("n-gram", ["", "t"], seed=2, **some)
    greedy = complete(client, "n-gram", temperature=0, max_tokens=9)
    assert texts(greedy) == alone("n-gram", [""], greedy=True, max_tokens=9, seed=0)


@needs("patterns")
def test_json_is_valid(home, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    data = tmp_path / "text.txt"
    data.write_text('{"name": "Ann", "tags": ["x", "y"], "more": {"a": null, "b": [1, {}]}}\n' * 30)
    how = ["--model", "ngram", "--order", "3", "--tokenizer", "byte", "--name", "m", "--quiet"]
    assert run(["train", str(data), *how]) == 0
    server = Server(Shelf(["m"]), ServeOptions())
    client = TestClient(make_app(server), base_url="http://localhost")

    def written(**fields):
        body = {"prompt": "", "n": 12, "max_tokens": 60, "seed": 4, **fields}
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert {choice["reason"] for choice in answer.json()["choices"]} == {"pattern"}
        assert {choice["finish_reason"] for choice in answer.json()["choices"]} == {"stop"}
        return texts(answer.json())

    objects = [json.loads(text) for text in written(response_format={"type": "json_object"})]
    assert all(isinstance(one, dict) for one in objects)
    values = [value for one in objects for value in one.values()]
    assert {type(value) for value in values} >= {str, list, dict}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"maximum": 99}},
        "required": ["name"],
        "additionalProperties": False,
    }
    found = written(**in_form(schema, name="person", strict=True))
    for text in found:
        jsonschema.validate(json.loads(text), schema)
    assert len(set(found)) > 3
    options = {"num_samples": 12, "max_tokens": 60, "seed": 4}
    loaded = load("m", work=Work())
    alike = sample(loaded, [""], SampleOptions.of(json_schema=json.dumps(schema), **options))
    assert found == [record.text for record in alike]
    assert len(written(response_format={"type": "text"}, pattern="[ab]{3}")[0]) == 3
    server.engine.close()


def test_bias_decides():
    log_probs = np.log(np.array([[0.5, 0.25, 0.25]]))
    found = LogitBias((1, 2), (np.log(2), -100.0))([[]], log_probs)
    np.testing.assert_allclose(np.exp(found), [[0.5, 0.5, 0.0]], atol=1e-12)


def test_a_biased_token_is_written(client):
    tokenizer = load(NAMES["n-gram"], work=Work()).tokenizer
    token = int(tokenizer.encode("a")[0])
    answer = complete(client, "n-gram", logit_bias={str(token): 100}, max_tokens=5, prompt="")
    assert texts(answer) == ["aaaaa"]


@pytest.mark.parametrize("kind", ["n-gram", "lstm", "lines"])
def test_logprobs_of_a_prompt_are_its_score(client, kind):
    loaded = load(NAMES[kind], work=Work())
    (line,) = alone(kind, [""], seed=4, max_tokens=20, stop=("\n",))
    (scored,) = score_lines(loaded, [line + "\n"], Scoring())
    answer = complete(client, kind, prompt=line, echo=True, logprobs=2, max_tokens=1, temperature=0)
    logprobs = answer["choices"][0]["logprobs"]
    expected = scored.scored.log_probs[: len(loaded.ids(line))]
    np.testing.assert_allclose(logprobs["token_logprobs"][:-1], expected, atol=1e-4)
    assert len(logprobs["tokens"]) == len(expected) + 1
    for logprob, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert len(top) == 2 and max(top.values()) >= logprob
    # What begins with the start symbol gets no other, and that has no probability.
    ids = [loaded.framing.start, *loaded.ids(line)]
    same = complete(client, kind, prompt=ids, echo=True, logprobs=0, max_tokens=0)
    first, *others = same["choices"][0]["logprobs"]["token_logprobs"]
    assert first is None
    assert same["choices"][0]["logprobs"]["top_logprobs"] == [None, *({} for _ in others)]
    np.testing.assert_allclose(others, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["n-gram", "pairs", "labels"])
def test_scores_are_those_of_perplexity(client, kind):
    lines, more = ["ab", "a"], {}
    if kind == "pairs":
        more = {"sources": ["ba", "bb"]}
    loaded = load(NAMES[kind], work=Work())
    if kind == "labels":
        more = {"label": loaded.labels.names[0]}
        loaded = loaded.with_labels([more["label"]])
    lines = [line.upper() if kind == "pairs" else line for line in lines]
    answer = client.post("/v1/score", json={"model": NAMES[kind], "lines": lines, **more})
    assert answer.status_code == 200, answer.text
    read = [line + "\n" for line in lines]
    if kind == "pairs":
        read = [f"{a}\t{b}\n" for a, b in zip(more["sources"], lines, strict=True)]
    if loaded.conditioning.in_pairs:
        read = loaded.conditioning.read(SimpleNamespace(chunks=functools.partial(iter, read)), "x")
    scored = score_lines(loaded, read, Scoring())
    expected = [line_record(None, loaded, line, Scoring()) for line in scored]
    for found, wanted in zip(answer.json()["data"], expected, strict=True):
        assert found["nll_nats"] == pytest.approx(wanted["nll_nats"], abs=1e-4)
        assert (found["line"], found["text"]) == (wanted["line"], wanted["text"])


def test_each_line_may_be_scored_with_a_label_of_its_own(client):
    name, other, *_ = load(NAMES["labels"], work=Work()).labels.names

    def score(**fields):
        answer = client.post("/v1/score", json={"model": NAMES["labels"], **fields})
        return answer.status_code, answer.json()

    status, found = score(lines=["ab", "ab"], sources=[name, other])
    assert status == 200
    for record, label in zip(found["data"], (name, other), strict=True):
        _, alone = score(lines=["ab"], label=label)
        assert record["nll_nats"] == alone["data"][0]["nll_nats"]
    for sources in ({}, {"sources": [name]}):
        status, refused = score(lines=["ab", "ab"], **sources)
        error = refused["error"]
        assert status == 400 and error["param"] == "sources"
        assert error["message"].endswith("or give one label for all lines")
    status, refused = score(lines=["ab"], sources=["no such label"])
    assert status == 400 and "no such label" in refused["error"]["message"]


def test_labels(client):
    names = load(NAMES["labels"], work=Work()).labels.names
    for name in names[:2]:
        found = texts(complete(client, "labels", label=name, seed=3, max_tokens=9))
        assert found == alone("labels", [""], label=[name], seed=3, max_tokens=9)
    assert "label" in complete(client, "labels", status=400)["error"]["message"]


def in_form(schema, **more):
    """Return the field that asks for texts of a JSON Schema."""
    about = {"type": "json_schema", "json_schema": {"schema": schema, **more}}
    return {"response_format": about}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"temprature": 1}, "temprature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"n": 1, "best_of": 2, "stream": True}, "best_of"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[0, 10**9]]}, "prompt"),
        ({"prompt": [[True]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["a"] * 3000}, "prompt"),
        ({"prompt": "a" * 40_000}, "prompt"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": "\u4e00"}, "prompt"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 70}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 1000}, "stop"),
        ({"stop": ["a" * 60_000] * 64}, "stop"),
        ({"ban": ["a"] * 5000}, "ban"),
        ({"stop": {"a": 1}}, "stop"),
        ({"stop": True}, "stop"),
        ({"ban": {"a": 1}}, "ban"),
        ({"force": 5}, "force"),
        ({"top_k": "5"}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"temperature": "0.5"}, "temperature"),
        ({"greedy": "true"}, "greedy"),
        ({"\ud800": 1}, "\ud800"),
        ({"logit_bias": {"\ud800": 1}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 1e9}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logprobs": 10**4}, "logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"x": 1}}, "stream_options"),
        ({"pattern": "("}, "pattern"),
        pytest.param({"pattern": "a" * 10_000}, "pattern", marks=pytest.mark.slow),
        ({"pattern": r"\ud800"}, "pattern"),
        ({"pattern": "a", "response_format": {"type": "json_object"}}, "pattern"),
        ({"grammar": "/etc/passwd"}, "grammar"),
        ({"json_schema": "/etc/passwd"}, "json_schema"),
        ({"response_format": {"type": "json_object"}}, "response_format"),  # it has no {
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": []}}, "response_format"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {"type": "text", "schema": {}}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        (in_form("/etc/passwd"), "response_format"),
        (in_form({"type": "word"}), "response_format"),
        (in_form({"$ref": "file:///etc/passwd"}), "response_format"),
        (in_form({"enum": ["a" * 10_000]}), "response_format"),
        (in_form({"enum": ["\ud800"]}), "response_format"),
        (in_form({"enum": 5}), "response_format"),
        (in_form({"\ud800": 1}), "response_format"),
        (in_form({"type": "string", "pattern": r"^\ud800$"}), "response_format"),
        (in_form({"properties": {"\ud800": {"type": "null"}}}), "response_format"),
        ({"suffix": "x"}, "suffix"),
        ({"model": 5}, "model"),
        ({"label": "x"}, "label"),
    ],
)
def test_wrong_fields_are_refused_by_name(client, fields, named):
    body = json.dumps({"model": NAMES["n-gram"], "max_tokens": 2, **fields})
    answer = client.post("/v1/completions", content=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and len(error["message"].splitlines()) == 1
    assert error["param"] == named
    assert "--" not in error["message"] or "--max-prompt" in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"n": NaN}',
        b'{"temperature": 1e999}',
        b'{"max_tokens": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"prompt": ' + b"[" * 400 + b"]" * 400 + b"}",
        b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"logit_bias": ' + b'{"a":' * 300 + b"1" + b"}" * 301,
        b'{"\\ud800": 1}',
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/score", "/tokenize", "/detokenize"])
def test_bodies_that_are_no_request(client, body, path):
    answer = client.post(path, content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_paths_and_names_lead_nowhere(client, tmp_path):
    for name in ("../../etc/passwd", str(KINDS / "gru"), "", "\0", "a" * 10_000):
        answer = client.post("/v1/completions", json={"model": name})
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"
    for path in ("/etc/passwd", "/../run.py", "/v1/models/x", "/v1/chat"):
        answer = client.get(path)
        assert answer.status_code == 404 and "error" in answer.json()
    assert client.get("/v1/completions").status_code == 405
    assert client.post("/v1/completions", content=b"x" * (5 << 20)).status_code == 413
    for host in ("evil.example", "evil.example:8000", "[::2]"):
        assert client.get("/v1/models", headers={"Host": host}).status_code == 403


def test_what_else_is_served(client):
    listed = client.get("/v1/models").json()["data"]
    assert [model["id"] for model in listed] == list(NAMES.values())
    assert client.get(f"/v1/models/{NAMES['lstm']}").json()["id"] == NAMES["lstm"]
    assert client.get("/health").json() == {"status": "ok"}
    before = metric(client, "seqgen_tokens_total")
    complete(client, max_tokens=5)
    assert metric(client, "seqgen_tokens_total") == before + 5
    assert "<html" in client.get("/").text


def metric(client, name):
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_pieces_of_a_stream_wait_for_one_another_but_not_the_first_and_the_last(monkeypatch):
    monkeypatch.setattr("seqgen.plugins.serve.app.PACE", 1000)
    row, finished = Row(0, 0, (1,)), SimpleNamespace(finish_reason="length")

    async def got():
        first, second = Inbox(), Inbox()
        batches = {inbox: inbox.batches() for inbox in (first, second)}
        begins = [TextPiece(row, "a"), TextPiece(row, "b"), TextPiece(row, "c")]
        for event in begins[:2]:
            first.put(event)
        yield await anext(batches[first])
        for event in begins[2:]:
            first.put(event)
        waiting = asyncio.ensure_future(anext(batches[first]))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        second.put(begins[0])  # takes along what waits
        yield await waiting
        yield await anext(batches[second])
        end = [TextPiece(row, "d"), TextPiece(row, "e", finished=finished), SeqgenError("too late")]
        for event in end:
            second.put(event)
        yield await anext(batches[second])
        with pytest.raises(SeqgenError, match="too late"):
            await anext(batches[second])

    async def all_of_them():
        return ["".join(piece.text for piece in pieces) async for pieces in got()]

    assert asyncio.run(all_of_them()) == ["ab", "c", "a", "de"]


def test_events_wait_for_a_reader_but_not_endlessly(monkeypatch):
    monkeypatch.setattr("seqgen.plugins.serve.app.MOST_EVENTS", 2)
    cancelled, piece = [], TextPiece(Row(0, 0, (1,)), "a")

    async def check():
        inbox = Inbox(lambda: cancelled.append(True))
        batches = inbox.batches()
        for _ in range(9):  # nobody has begun to read
            inbox.put(piece)
        assert len(await anext(batches)) == 9
        for _ in range(9):
            inbox.put(piece)
            await asyncio.sleep(0.03)  # it is delivered
        assert len(await anext(batches)) == 3 and cancelled == [True]
        with pytest.raises(SeqgenError, match="did not read"):
            await anext(batches)

    asyncio.run(check())


def test_streams_end_with_usage(client):
    body = {"model": NAMES["lstm"], "stream": True, "n": 2, "seed": 5, "logprobs": 1, "echo": True}
    body |= {"stream_options": {"include_usage": True}, "prompt": "", "max_tokens": 6}
    with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        found = events(line.encode() for line in response.iter_lines())
    assert found[-1]["choices"] == [] and found[-1]["usage"]["completion_tokens"] == 12
    written = ["", ""]
    tokens = [[], []]
    for event in found[:-1]:
        (choice,) = event["choices"]
        written[choice["index"]] += choice["text"]
        tokens[choice["index"]] += choice["logprobs"]["token_logprobs"]
    assert written == alone("lstm", [""], num_samples=2, seed=5, max_tokens=6)
    whole = complete(client, "lstm", prompt="", n=2, seed=5, max_tokens=6, logprobs=1)
    assert tokens == [choice["logprobs"]["token_logprobs"] for choice in whole["choices"]]


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError(), "run out of memory"), (RuntimeError("broken"), "its log says how")],
)
def test_any_error_of_a_stream_is_sent_to_the_client(client, monkeypatch, error, said):
    def fail(batch):
        raise error

    monkeypatch.setattr(text_batch.TextBatch, "draw", fail)
    body = {"model": NAMES["lstm"], "stream": True, "max_tokens": 6}
    with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        lines = [line for line in response.iter_lines() if line]
    assert said in json.loads(lines[-2].removeprefix("data: "))["error"]["message"]
    assert lines[-1] == "data: [DONE]"
    monkeypatch.undo()
    assert complete(client, "lstm", max_tokens=6)["choices"]


TOKENIZED = ("rnn-relu-byte", "lstm-lines-bpe", "lstm-unigram", "ngram-whitespace")
KEYS = ("token_ids", "text_offset")
OF_OTHERS = ("imported-gpt2", "imported-llama", "ngram-words")


@pytest.mark.fast_for(
    "True-imported-llama", "True-lstm-*", "True-rnn-relu-byte", "True-ngram-words", rest="slow"
)
@pytest.mark.parametrize("model", (*TOKENIZED, *known_kinds(OF_OTHERS)))
@pytest.mark.parametrize("echo", [False, True])
def test_tokens_begin_in_the_same_places_of_a_stream(model, echo):
    model = str((STORED / "models" if model in TOKENIZED else KINDS) / model)
    loaded, draw = load(model, work=Work()), random.Random(model)
    start, size = loaded.framing.start, loaded.tokenizer.vocab_size
    names = loaded.tokenizer.pieces(range(size))
    special = set(loaded.tokenizer.special_ids)
    blank = [i for i in range(size) if names[i].strip(" \u2581\u0120") == "" and i not in special]
    prompts = ["", [start], [start, *draw.choices(range(size), k=9)]]
    prompts += [draw.choices(blank or range(size), k=3) for _ in range(2)]
    how = [{"seed": 1, "temperature": 5.0}, {"logit_bias": {str(i): 8 for i in blank}, "seed": 2}]
    server = Server(Shelf([model]), ServeOptions())
    client = TestClient(make_app(server), base_url="http://localhost")
    for prompt, fields in itertools.product(prompts, how):
        body = {"prompt": prompt, "echo": echo, "logprobs": 0, "max_tokens": 20, **fields}
        (whole,) = client.post("/v1/completions", json=body).json()["choices"]
        with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
            found = events(line.encode() for line in response.iter_lines())
        pieces = [event["choices"][0] for event in found]
        assert "".join(piece["text"] for piece in pieces) == whole["text"]
        for key in KEYS:
            streamed = [value for piece in pieces for value in piece["logprobs"][key]]
            assert streamed == whole["logprobs"][key]
        # A token begins where what is certain of the text before it ends.
        given = list(prompt)  # nothing, or ids
        begin = len(loaded.tokenizer.decode(given)) if echo else 0
        skipped = len(given) if echo else 0
        ids, offsets = (values[skipped:] for values in map(whole["logprobs"].get, KEYS))
        for number, offset in enumerate(offsets):
            decoder = decoder_of(loaded, given if given[:1] == [start] else [start, *given])
            assert offset == begin + len("".join(map(decoder.push, ids[:number])))
    server.engine.close()


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def send(live, body, buffer=None):
    """Send a request, and return its socket, which receives up to `buffer` bytes unread."""
    own = socket.socket()
    if buffer is not None:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    own.connect(live.socket.getsockname())
    raw = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
    own.sendall(head.encode() + raw)
    return own


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_is_forgotten(live, stream):
    body = {"model": NAMES["lstm"], "max_tokens": 4000, "n": 8, "stream": stream}
    own = send(live, body)
    wait_for(lambda: live.served.engine.running == 8)
    own.close()
    wait_for(lambda: live.served.engine.running == 0)


def test_half_open_and_idle_connections_hold_nobody_up(live, client):
    idle = [socket.create_connection(live.socket.getsockname()) for _ in range(200)]
    for number, own in enumerate(idle):
        if number % 2:
            own.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        if number % 5 == 0:
            own.shutdown(socket.SHUT_WR)
    connection = http.client.HTTPConnection(*live.socket.getsockname())
    connection.request("POST", "/v1/completions", json.dumps({"max_tokens": 3}))
    assert connection.getresponse().status == 200
    connection.close()
    for own in idle:
        own.close()


@contextlib.contextmanager
def listening(**options):
    """A server at a real address, which must end by itself within seconds."""
    server = Listening([NAMES["lstm"]], ServeOptions(port=0, **options))
    server.shelf.get(None)
    thread = threading.Thread(target=server.listen)
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(5)
        ended = not thread.is_alive()
        server.force_exit = True
        thread.join()
    assert ended


UNREAD = {"max_tokens": 4000, "n": 8, "stream": True, "logprobs": 20}


def test_a_client_that_does_not_read_is_forgotten(monkeypatch):
    monkeypatch.setattr("seqgen.plugins.serve.app.MOST_EVENTS", 500)
    with listening(timeout=60) as server, contextlib.closing(send(server, UNREAD, 4096)):
        wait_for(lambda: server.served.engine.running == 8)
        wait_for(lambda: server.served.engine.running == 0)
        assert server.served.engine.tokens < 20_000


@pytest.mark.parametrize("limit", ["GRACE", "UNREAD_SECONDS"])
def test_a_connection_that_nobody_reads_is_closed(monkeypatch, limit):
    monkeypatch.setattr(f"seqgen.plugins.serve.app.{limit}", 0.2)
    timeout = 1.0 if limit == "GRACE" else 60
    with listening(timeout=timeout) as server, contextlib.closing(send(server, UNREAD, 4096)):
        wait_for(lambda: server.served.engine.running == 8)
        wait_for(lambda: not server.server_state.connections)
        wait_for(lambda: server.served.engine.running == 0)


@pytest.mark.slow
def test_a_connection_that_is_read_too_slowly_is_closed_after_the_deadline(monkeypatch):
    monkeypatch.setattr("seqgen.plugins.serve.app.GRACE", 0.5)
    with listening(timeout=1.0) as server, contextlib.closing(send(server, UNREAD, 4096)) as own:
        begun = time.monotonic()
        wait_for(lambda: server.served.engine.running == 8)
        while server.server_state.connections:
            assert time.monotonic() < begun + 5
            own.recv(2000)  # so that every event is delivered in the end
            time.sleep(0.01)
        wait_for(lambda: server.served.engine.running == 0)


def test_a_body_that_is_arriving_does_not_keep_the_server():
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(listening())
        own = stack.enter_context(socket.create_connection(server.socket.getsockname()))
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        own.sendall(head)
        wait_for(lambda: server.served.arriving)
        server.should_exit = True
        assert own.recv(100).startswith(b"HTTP/1.1 503")


@contextlib.contextmanager
def small(names=("n-gram",), **options):
    """A client of a server with other limits."""
    shelf = Shelf([NAMES[name] for name in names], ServeOptions(**options).most_bytes)
    server = Server(shelf, ServeOptions(**options))
    yield server, TestClient(make_app(server), base_url="http://localhost")
    server.engine.close()


def test_a_full_queue_says_when_to_come_back():
    with small(("lstm",), batch_size=1, queue=0, max_tokens=10**6) as (server, client):
        gate = threading.Event()
        step = TextBatch.read
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
            patch.setattr(TextBatch, "read", lambda batch: (gate.wait(), step(batch))[1])
            running = pool.submit(complete, client, "lstm", max_tokens=3)
            wait_for(lambda: server.engine.running == 1)
            waiting = pool.submit(complete, client, "lstm", max_tokens=3)
            wait_for(lambda: server.engine.waiting == 1)
            answer = client.post("/v1/completions", json={"max_tokens": 3})
            gate.set()
            assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1
            assert answer.json()["error"]["type"] == "rate_limit_error"
            assert len(texts(running.result())[0]) == len(texts(waiting.result())[0]) == 3


def test_a_late_request_gets_its_first_token_while_others_run(live):
    body = {"model": NAMES["lstm"], "max_tokens": 4000, "stream": True}
    with contextlib.closing(send(live, body)) as early:
        early.recv(100)
        late = http.client.HTTPConnection(*live.socket.getsockname())
        late.request("POST", "/v1/completions", json.dumps(body | {"max_tokens": 2}))
        assert len(events(late.getresponse())) == 2
        late.close()
        # The engine lets a text go just after its last event.
        wait_for(lambda: live.served.engine.running == 1)
    wait_for(lambda: live.served.engine.running == 0)


@pytest.mark.slow
def test_rows_are_shared_equally_by_those_who_wait():
    shares, step = [], TextBatch.read
    turns = {"big": threading.Semaphore(0), "all": threading.Event()}

    def read(batch):
        shares.append(Counter(text.policy.choose.seed for text in batch.texts))
        if not turns["all"].is_set():
            turns["big"].acquire()
        return step(batch)

    with small(("lstm",), batch_size=9, max_tokens=10**6, queue=99) as (server, client):
        server.shelf.get(None)
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(9) as pool:
            patch.setattr(TextBatch, "read", read)
            how = {"max_tokens": 400, "prompt": ["a", "ten"], "n": 50}
            big = pool.submit(complete, client, "lstm", seed=1, **how)
            wait_for(lambda: server.engine.running == 9)
            asked = {2: {"n": 20}, 3: {"n": 1}, 4: {"n": 5, "prompt": ["", "a"]}}
            for number, (seed, fields) in enumerate(asked.items()):
                fields |= {"seed": seed, "max_tokens": 12}
                asked[seed] = fields, pool.submit(complete, client, "lstm", **fields)
                wait_for(lambda number=number: server.engine._submitted == number + 1)
            turns["big"].release(1)
            wait_for(lambda: len(shares) > 1)
            turns["all"].set()
            turns["big"].release(1)
            for seed, (fields, answer) in asked.items():
                found = texts(answer.result())
                prompts = [fields.get("prompt", "")]
                prompts = prompts[0] if isinstance(prompts[0], list) else prompts
                options = {"num_samples": fields["n"], "seed": seed, "max_tokens": 12}
                assert found == alone("lstm", prompts, **options)
            assert not big.done()
            found = texts(big.result())
    assert found == alone("lstm", ["a", "ten"], num_samples=50, seed=1, max_tokens=400)
    # From the step after they came on, nobody has two rows more than another who waits for one.
    assert shares[0] == {1: 9}
    assert shares[1] in (
        {1: 3, 2: 3, 3: 1, 4: 2},
        {1: 3, 2: 2, 3: 1, 4: 3},
        {1: 2, 2: 3, 3: 1, 4: 3},
    )
    while_all = [share for share in shares[1:] if share[2] and share[4]]
    assert while_all and all(share[1] in (2, 3, 4) and share.total() == 9 for share in while_all)
    assert shares[-1] == {1: 1} or shares[-1][1] > 4


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_many_requests_of_one_client_are_no_more_than_one_of_another(rows):
    """Nobody who waits has two rows fewer than another client, or request of the same one."""
    draw = random.Random(rows)
    for _ in range(20):
        clients = [draw.choice("ABC") for _ in range(draw.randrange(2, 9))]
        wanted = [draw.randrange(1, 9) for _ in clients]
        shared = _Rows(rows)
        jobs = [Job(None, None, 0.0, client=client) for client in clients]
        tasks = [SimpleNamespace(task=job, turn=0) for job in jobs]
        has = dict.fromkeys(range(len(tasks)), 0)
        for come in range(1, len(tasks) + 1):  # one after the other
            while True:
                waiting = [tasks[i] for i in range(come) if has[i] < wanted[i]]
                request, gives_up = shared.next(waiting)
                if request is None:
                    break
                for job, _ in gives_up:
                    has[jobs.index(job)] -= 1
                shared.add(request.task, object())
                has[tasks.index(request)] += 1
            of = {c: sum(has[i] for i in range(come) if clients[i] == c) for c in clients[:come]}
            assert sum(of.values()) == min(rows, sum(wanted[:come]))
            for i in range(come):
                if has[i] < wanted[i]:
                    assert max(of.values()) <= of[clients[i]] + 1
                    same = [has[k] for k in range(come) if clients[k] == clients[i]]
                    assert max(same) <= has[i] + 1


@pytest.mark.fast_for("lstm", "mixture", "pairs", rest="slow")
@pytest.mark.parametrize("kind", ["n-gram", "lstm", "transformer", "mixture", "pairs", "labels"])
def test_texts_that_wait_for_others_are_those_written_alone(kind):
    """Rows come and go; a text that leaves its batch and comes back is the same."""
    draw = random.Random(kind)
    prompts = (prompts_of(kind) if kind == "pairs" else known(kind, prompts_of(kind)))[:4]
    label = (load(NAMES[kind], work=Work()).labels.names[0],) if kind == "labels" else ()
    with small((kind,), batch_size=4, queue=99) as (server, client), ThreadPoolExecutor(9) as pool:
        splits, split = [], TextBatch.split
        server.shelf.get(None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TextBatch, "split", lambda *how: (splits.append(how), split(*how))[1])

            def one(number):
                time.sleep(number / 100)
                more = {"label": label[0]} if label else {}
                more |= {"top_k": 5} if number % 3 == 1 else {}
                tokens = 60 if number < 2 else 9
                how = {"max_tokens": tokens, "seed": number, "temperature": 1.2, **more}
                asked = draw.sample(prompts, 2 if number < 2 else 1)
                samples = 6 if number < 2 else draw.choice([1, 3])
                found = texts(complete(client, kind, prompt=asked, n=samples, **how))
                how.pop("label", None)
                assert found == alone(kind, asked, label, num_samples=samples, **how)

            assert len(list(pool.map(one, range(9)))) == 9
        assert splits


@pytest.mark.parametrize("kind", ["n-gram", "lstm", "transformer", "mixture"])
def test_a_long_prompt_is_read_once_for_all_its_texts(kind, monkeypatch):
    prefill, found = text_batch.prefill, []
    counted = lambda *how: (found.append(how), prefill(*how))[1]  # noqa: E731
    held = next(
        iter(sample(load(NAMES[kind], work=Work()), [""], SampleOptions(seed=1, max_tokens=300)))
    )
    prompts = known(kind, [held.text[:280], held.text[:290]])
    monkeypatch.setattr(text_batch, "prefill", counted)
    with small((kind,), batch_size=3) as (_, client):
        how = {"seed": 2, "max_tokens": 9, "temperature": 1.2}
        answer = complete(client, kind, prompt=prompts, n=7, stop=["e"], **how)
    monkeypatch.undo()
    assert texts(answer) == alone(kind, prompts, num_samples=7, stop=("e",), **how)
    assert len(found) == len(prompts) == 2


def test_texts_that_wait_are_ended_in_time_with_what_they_have():
    with small(("lstm",), batch_size=2, timeout=1.0, max_tokens=10**6) as (server, client):
        server.shelf.get(None)
        with ThreadPoolExecutor(3) as pool:
            one = pool.submit(complete, client, "lstm", n=2, max_tokens=10**6)
            wait_for(lambda: server.engine.running == 2)
            two = pool.submit(complete, client, "lstm", n=1, max_tokens=10**6)
            choices = one.result()["choices"] + two.result()["choices"]
        assert [choice["reason"] for choice in choices] == ["time"] * 3
        assert all(choice["text"] for choice in choices)
        assert len(texts(complete(client, "lstm", max_tokens=3))[0]) == 3
        assert server.engine.running == server.engine.waiting == 0


@pytest.mark.fast_for("True-text", "False-filter", rest="slow")
@pytest.mark.parametrize("fails", ["filter", "text"])
@pytest.mark.parametrize("alike", [True, False])
def test_a_filter_that_fails_fails_its_request_alone(fails, alike):
    """Also if another request's texts are filtered by equal filters in the same call."""
    filtered, push = NoRepeatNgram.__call__, Continuation.push

    def broken(processor, history, log_probs):
        if any(row[:2] == bad for row in history):
            raise SeqgenError("it is broken")
        return filtered(processor, history, log_probs)

    def broken_push(text, token, logprob):
        if text.tokens > 5 and text._max_tokens == 41:
            raise SeqgenError("it is broken")
        return push(text, token, logprob)

    with small(("lstm",), queue=99) as (server, client), ThreadPoolExecutor(9) as pool:
        loaded = server.shelf.get(None)
        bad = [loaded.framing.start, *loaded.ids("n")]
        gate, step = threading.Event(), TextBatch.read
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TextBatch, "read", lambda batch: (gate.wait(), step(batch))[1])
            if fails == "filter":
                patch.setattr(NoRepeatNgram, "__call__", broken)
            else:
                patch.setattr(Continuation, "push", broken_push)
            others = {"no_repeat_ngram": 4 if alike else 5, "max_tokens": 40, "n": 2, "prompt": "a"}
            right = [pool.submit(complete, client, "lstm", seed=s, **others) for s in range(3)]
            wait_for(lambda: server.engine.running > 0)
            wrong = {"no_repeat_ngram": 4, "max_tokens": 41, "prompt": ["n"] * 3}
            wrong = pool.submit(complete, client, "lstm", 400, **wrong)
            try:
                wait_for(lambda: server.engine.waiting + server.engine.running // 2 == 4)
            finally:
                gate.set()
            assert wrong.result()["error"]["message"] == "it is broken"
            prompt = [others.pop("prompt")]
            others = {"num_samples": others.pop("n"), **others}
            for seed, answer in enumerate(right):
                assert texts(answer.result()) == alone("lstm", prompt, seed=seed, **others)


def test_prompts_that_wait_together_are_read_together():
    prompts = prompts_of("transformer")
    gate, known, found = threading.Event(), TransformerArrays.read_together, []

    def read_together(model, rows):
        found.append(len(rows))
        return known(model, rows)

    with small(("transformer",)) as (server, client):
        step = TextBatch.read
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(8) as pool:
            patch.setattr(TextBatch, "read", lambda batch: (gate.wait(), step(batch))[1])
            patch.setattr(TransformerArrays, "read_together", read_together)
            running = pool.submit(complete, client, "transformer", max_tokens=9, seed=1)
            wait_for(lambda: server.engine.running == 1)
            asked = [{"prompt": prompt, "seed": 3, "max_tokens": 20} for prompt in prompts]
            answers = [pool.submit(complete, client, "transformer", **fields) for fields in asked]
            wait_for(lambda: server.engine.waiting == len(prompts))
            gate.set()
            assert texts(running.result()) == alone("transformer", [""], max_tokens=9, seed=1)
            for fields, answer in zip(asked, answers, strict=True):
                how = {name: fields[name] for name in ("seed", "max_tokens")}
                assert texts(answer.result()) == alone("transformer", [fields["prompt"]], **how)
    most = load(NAMES["transformer"], work=Work()).model.most_together
    together = [prompt for prompt in prompts if len(prompt) < most]  # and a start symbol
    assert found == ([len(together)] if together else [])
    assert len(together) > 2 or library() is None


def test_time_is_limited():
    with small(("lstm",), timeout=0.4, max_tokens=10**6) as (server, client):
        server.shelf.get(None)  # the time for it is no part of the test
        answer = complete(client, "lstm", max_tokens=10**6)
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "length" and choice["reason"] == "time"
        assert choice["text"]


def noted(items, into):
    for item in items:
        into.append(item)
        yield item


def test_texts_that_are_late_are_not_begun():
    begun = []
    with small(("lstm",), batch_size=1, timeout=0.4, max_tokens=10**6) as (server, client):
        server.shelf.get(None)  # the time for it is no part of the test
        texts_of = Writing.texts
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writing, "texts", lambda task: noted(texts_of(task), begun))
            how = {"prompt": ["a"] * 8, "n": 128, "max_tokens": 10**6, "echo": True}
            answer = complete(client, "lstm", **how)
        assert [choice["index"] for choice in answer["choices"]] == list(range(1024))
        assert {choice["reason"] for choice in answer["choices"]} == {"time"}
        assert answer["choices"][0]["text"] != "a" == answer["choices"][-1]["text"]
        assert len(begun) == 1
        complete(client, "lstm", status=400, prompt=["a"] * 9, n=128)
        # An error while a request is ended is that request's alone.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Engine, "_end_waiting", lambda *_: Shelf([]))
            complete(client, "lstm", status=400, prompt="a", n=2, max_tokens=10**6)
        complete(client, "lstm", max_tokens=1)


@pytest.mark.slow
@needs("patterns")
def test_patterns_hold_up_each_other_alone_and_not_for_long(monkeypatch):
    monkeypatch.setattr("seqgen.plugins.serve.app.PATTERN_SECONDS", 0.5)
    with small(("lstm",), timeout=60, queue=8) as (server, client), ThreadPoolExecutor(8) as pool:
        server.shelf.get(None)
        hard = ["(.*a.{20})", "((a?){50}a{50}){20}", "[^a]{99999}"]
        asked = [pool.submit(complete, client, "lstm", 400, pattern=one) for one in hard]
        wait_for(lambda: server.preparing == 3)
        assert texts(complete(client, "lstm", max_tokens=3))[0]
        assert server.preparing == 3
        for one in asked:
            error = one.result()["error"]
            assert error["param"] == "pattern" and "too long" in error["message"]
    monkeypatch.setattr("seqgen.plugins.serve.app.PATTERN_SECONDS", 1.5)
    with small(("lstm",), timeout=0.8, queue=0) as (server, client), ThreadPoolExecutor(2) as pool:
        server.shelf.get(None)
        late = pool.submit(complete, client, "lstm", 408, pattern=hard[0])
        wait_for(lambda: server.preparing == 1)
        complete(client, "lstm", 429, pattern="a")
        assert "--timeout" in late.result()["error"]["message"]


def test_scores_are_limited():
    with small(("lstm", "pairs"), max_prompt=4, timeout=60) as (_, client):

        def refused(kind, **fields):
            answer = client.post("/v1/score", json={"model": NAMES[kind], **fields})
            assert answer.status_code == 400
            return answer.json()["error"]["param"]

        assert refused("lstm", lines=["a", "aaaaa"]) == "lines"
        assert refused("pairs", lines=["a"], sources=["aaaaa"]) == "sources"
        assert refused("lstm", lines=["a"] * 10_001) == "lines"
        own = {"model": NAMES["lstm"], "lines": ["aaaa"]}
        assert client.post("/v1/score", json=own).status_code == 200
    with small(("lstm",), timeout=0.1) as (_, client):
        answer = client.post("/v1/score", json={"lines": ["a" * 300] * 10_000})
        assert answer.status_code == 408 and "--timeout" in answer.json()["error"]["message"]


def test_the_key_is_asked_for():
    with small(api_key="secret") as (_, client):
        for given in (None, "secret", "Bearer wrong", "Bearer secret2", "bearer\xff"):
            headers = {} if given is None else {"Authorization": given.encode("latin-1")}
            answer = client.get("/v1/models", headers=headers)
            assert answer.status_code == 401 and answer.json()["error"]["message"]
        for right in ("Bearer secret", "bearer secret", "BEARER  secret"):
            headers = {"Authorization": right}
            assert client.get("/v1/models", headers=headers).status_code == 200
        assert client.get("/health").status_code == 200


OWN, OTHER = "http://localhost:8000", "https://friend.example"


@pytest.mark.parametrize(
    ("host", "right"),
    [
        *((host, True) for host in ("localhost", "LOCALHOST", "LocalHost:1", "127.0.0.1:8000")),
        *((host, True) for host in ("[::1]", "[::1]:65535")),
        *((host, False) for host in ("", ":8000", "localhost:x", "localhost:1:2", "localhost:-1")),
        *(
            (host, False)
            for host in ("[localhost]", "::1", "[::1", "::1]", "[[::1]]", "]localhost[")
        ),
        *(
            (host, False)
            for host in ("localhost.evil.example", "evil.example", "a@localhost", "localhost:")
        ),
        *((host, False) for host in ("localhost/", "localhost, evil.example", "localhost:123456")),
        *((host, False) for host in ("local\xadhost", "\u0130localhost", "127.0.0.1.")),
    ],
)
def test_a_host_is_a_name_of_the_loopback_to_the_letter(client, host, right):
    headers = [(b"Host", host.encode("utf-8"))]
    answer = client.get("/health", headers=headers)
    assert answer.status_code == (200 if right else 403)
    assert client.get("/health", headers=[*headers, (b"Host", b"localhost")]).status_code == 403


@pytest.mark.parametrize(
    ("headers", "right"),
    [
        ({}, True),
        ({"Origin": OWN}, True),
        ({"Origin": OTHER}, True),
        ({"Origin": "http://127.0.0.1", "Host": "127.0.0.1:80"}, True),
        ({"Origin": "https://[::1]", "Host": "[::1]:443"}, True),
        ({"Origin": "http://LOCALHOST:8000"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "http://localhost"}, False),
        ({"Origin": "http://localhost:3000"}, False),
        ({"Origin": "http://127.0.0.1:8000"}, False),
        ({"Origin": "http://localhost:8000.evil.example"}, False),
        ({"Origin": "http://localhost:8000@evil.example"}, False),
        ({"Origin": f"{OTHER}.evil.example"}, False),
        ({"Origin": "http://friend.example"}, False),
        ({"Origin": "ftp://localhost:8000"}, False),
        ({"Origin": "localhost:8000"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Origin": OTHER}, True),
    ],
)
def test_pages_of_other_origins_start_no_work(headers, right):
    with small(allow_origin=(OTHER,)) as (server, client):
        headers = {"Host": "localhost:8000", "Content-Type": "text/plain", **headers}
        body = json.dumps({"max_tokens": 1})
        for method, path in (("POST", "/v1/completions"), ("GET", "/tokenizer_info")):
            answer = client.request(method, path, headers=headers, content=body)
            assert answer.status_code == (200 if right else 403)
            if not right:
                error = answer.json()["error"]["message"]
                assert "--allow-origin" in error and len(error.splitlines()) == 1
        assert (server.engine.texts > 0) == right == bool(server.shelf.loaded)
        shared = answer.headers.get("Access-Control-Allow-Origin")
        assert shared == (OTHER if headers.get("Origin") == OTHER else None)


def test_allowed_origins_get_the_headers_that_browsers_ask_for():
    with small(allow_origin=(OWN, OTHER), api_key="secret") as (_, client):
        asked = {"Access-Control-Request-Method": "POST"}
        asked |= {"Access-Control-Request-Headers": "authorization, content-type"}
        for origin, status in ((OTHER, 200), (OWN, 200), ("https://evil.example", 403)):
            found = client.options("/v1/completions", headers={"Origin": origin, **asked})
            assert found.status_code == status
            assert found.headers.get("Access-Control-Allow-Origin") == (
                origin if status == 200 else None
            )
        for key, status in (("Bearer secret", 200), ("Bearer wrong", 401)):
            headers = {"Origin": OTHER, "Authorization": key}
            found = client.post("/v1/completions", json={"max_tokens": 1}, headers=headers)
            assert found.status_code == status
            assert found.headers["Access-Control-Allow-Origin"] == OTHER
            assert found.headers["Vary"] == "Origin"
    with small() as (_, client):
        assert (
            client.options("/v1/completions", headers={"Origin": OTHER, **asked}).status_code == 403
        )
        assert "Access-Control-Allow-Origin" not in client.get("/v1/models").headers


@pytest.mark.parametrize(
    "origin",
    [
        *("localhost:3000", "http://a/", "http://a/b", "http://A", "http://a:80", "https://a:443"),
        *("*", "null", "", "http://", "http://a b", "http://*.example"),
    ],
)
def test_origins_that_no_browser_sends_cannot_be_allowed(origin):
    with pytest.raises(UsageError, match=r"--allow-origin.*http://localhost:3000") as caught:
        ServeOptions(allow_origin=(origin,))
    assert len(str(caught.value).splitlines()) == 1
    for right in ("http://a:443", "https://a:80", "chrome-extension://abc", "http://[::1]:3000"):
        ServeOptions(allow_origin=(right,))


def test_models_are_dropped_when_memory_is_short():
    sizes = {name: Shelf.bytes_of(Shelf([NAMES[name]]).stored[NAMES[name]]) for name in NAMES}
    names = ("n-gram", "lstm", "transformer")
    two = sizes["lstm"] + sizes["n-gram"]
    two = max(two, sizes["lstm"] + sizes["transformer"], sizes["n-gram"] + sizes["transformer"])
    with small(names, memory=f"{two}") as (server, client):
        for name in ("n-gram", "lstm", "n-gram", "transformer"):
            complete(client, name, max_tokens=1)
        assert NAMES["lstm"] not in server.shelf.loaded
        assert server.shelf.loaded[-1] == NAMES["transformer"]
        first = complete(client, "lstm", max_tokens=5, seed=1)
        assert texts(first) == alone("lstm", [""], max_tokens=5, seed=1)
    with pytest.raises(UsageError, match=f"{sizes['lstm']:,} bytes.*--memory"):
        Shelf([NAMES["lstm"]], sizes["lstm"] - 1)


@pytest.fixture
def two_stored(home):
    """The names of two stored models, the larger first."""
    for name in ("lstm", "n-gram"):
        shutil.copytree(NAMES[name], home / "models" / name)
    return sorted(("lstm", "n-gram"), key=lambda name: -folder_size(home, name))


def folder_size(home, name):
    return (home / "models" / name / "model.safetensors").stat().st_size


def test_of_all_models_those_that_are_too_large_are_left_out(two_stored):
    large, small_one = two_stored
    sizes = {name: Shelf.bytes_of(stored) for name, stored in Shelf([]).stored.items()}
    shelf = Shelf([], sizes[small_one])
    assert list(shelf.stored) == [small_one] and shelf.left_out == [large]
    with pytest.raises(UsageError, match="no model fits in --memory"):
        Shelf([], 10)


def test_a_model_in_memory_can_be_had_while_another_is_loaded(home, two_stored, monkeypatch):
    first, second = two_stored
    shelf = Shelf([])
    there = shelf.get(first)
    begun, goes_on, load = threading.Event(), threading.Event(), shelf._load_now

    def load_slowly(name):
        begun.set()
        assert goes_on.wait(30)
        return load(name)

    monkeypatch.setattr(shelf, "_load_now", load_slowly)
    waiting = [threading.Thread(target=shelf.get, args=(second,)) for _ in range(2)]
    for thread in waiting:
        thread.start()
    assert begun.wait(30)
    assert shelf.get(first) is there
    goes_on.set()
    for thread in waiting:
        thread.join(30)
    assert shelf.loaded == [first, second]
    assert shelf.get(second) is shelf.get(second)


@pytest.mark.parametrize("part", ["", "model.safetensors", "config.json"])
def test_a_model_that_is_removed_while_it_is_served(home, two_stored, part):
    server = Server(Shelf([], 1 << 30), ServeOptions())
    client = TestClient(make_app(server), base_url="http://localhost")
    gone, kept = two_stored
    path = home / "models" / gone / part
    path.unlink() if part else shutil.rmtree(path)
    answer = client.post("/v1/completions", json={"model": gone})
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"
    assert str(home) not in answer.text and gone in answer.text
    listed = {model["id"] for model in client.get("/v1/models").json()["data"]}
    assert listed == ({kept} if part != "config.json" else {gone, kept})
    assert client.get(f"/v1/models/{kept}").status_code == 200
    assert client.post("/v1/completions", json={"model": kept}).status_code == 200
    shutil.rmtree(home / "models" / kept)  # which is in memory: it makes room
    assert client.post("/v1/completions", json={"model": kept}).status_code == 200
    server.engine.close()


@pytest.mark.parametrize("gone", ["lstm", "n-gram"])
def test_a_mixture_whose_part_is_removed_names_the_part(home, two_stored, gone):
    mixture = "lstm+n-gram"
    server = Server(Shelf([mixture]), ServeOptions())
    client = TestClient(make_app(server), base_url="http://localhost")
    shutil.rmtree(home / "models" / gone)
    answer = client.post("/v1/completions", json={"model": mixture})
    assert answer.status_code == 503 and str(home) not in answer.text
    assert f"needs {gone}, which has been removed" in answer.json()["error"]["message"]
    server.engine.close()


def sharpened(home, name):
    """Copy a model of the home with larger weights, and return the copy."""
    other = StoredModel(home / "models" / f"{name}-sharp")
    shutil.copytree(home / "models" / name, other.path)
    tensors = {key: tensor * 1.5 for key, tensor in load_file(other.path / WEIGHTS).items()}
    other.replace_part(WEIGHTS, save(tensors))
    return other


def replace_folder(model, other):
    model.path.rename(model.path.with_name("old"))
    other.path.rename(model.path)


def replace_files(model, other):
    for path in other.path.rglob("*.*"):
        path.replace(model.path / path.relative_to(other.path))


def overwrite_files(model, other):
    for path in other.path.rglob("*.*"):
        shutil.copyfile(path, model.path / path.relative_to(other.path))


@pytest.mark.fast_for(
    "1-lstm-*", "1-lstm+transformer-replace_files", "50-lstm-overwrite_files", rest="slow"
)
@pytest.mark.parametrize("replaced", [replace_folder, replace_files, overwrite_files])
@pytest.mark.parametrize("name", ["lstm", "lstm+transformer"])
@pytest.mark.parametrize("times", [1, 50])  # room for some models, or for all
def test_a_request_gets_the_model_that_is_stored_when_it_arrives(home, replaced, name, times):
    for kind in ("lstm", "transformer", "n-gram"):
        shutil.copytree(NAMES[kind], home / "models" / kind)
    size = max(Shelf.bytes_of(Shelf([one]).stored[one]) for one in (name, "n-gram"))
    shelf = Shelf([name, "n-gram"], times * size)
    engine = Server(shelf, ServeOptions(max_tokens=10**6))
    client = TestClient(make_app(engine), base_url="http://localhost")
    gate, step = threading.Event(), TextBatch.read

    def written(tokens=40):
        body = {"model": name, "max_tokens": tokens, "seed": 1}
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return texts(answer.json())[0]

    def expected():
        (record,) = sample(load(name, work=Work()), [""], SampleOptions(seed=1, max_tokens=40))
        return record.text

    old = expected()
    assert written() == old
    wait_for(lambda: engine.engine.running == 0)  # its answer comes before its row is free
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(TextBatch, "read", lambda batch: (gate.wait(), step(batch))[1])
        running = pool.submit(written)
        wait_for(lambda: engine.engine.running == 1)
        if replaced is not overwrite_files:  # the file that is in use stays as it is
            replaced(StoredModel(home / "models" / "lstm"), sharpened(home, "lstm"))
        gate.set()
        assert running.result() == old
    if replaced is overwrite_files:
        replaced(StoredModel(home / "models" / "lstm"), sharpened(home, "lstm"))
    new = expected()
    assert new != old
    assert written() == new
    client.post("/v1/completions", json={"model": "n-gram", "max_tokens": 1})
    assert (name in shelf.loaded) == (times > 1)
    assert written() == new
    engine.engine.close()


def test_a_model_whose_files_change_while_it_is_loaded_is_loaded_again(home, monkeypatch):
    shutil.copytree(NAMES["lstm"], home / "models" / "lstm")
    shelf, calls = Shelf(["lstm"]), []
    other = sharpened(home, "lstm")

    def load_late(*args, **more):
        loaded = load(*args, **more)
        if not calls:
            replace_folder(loaded.stored, other)
        calls.append(loaded)
        return loaded

    monkeypatch.setattr("seqgen.plugins.serve.shelf.load", load_late)
    assert shelf.get("lstm").model is calls[1].model
    assert shelf.get("lstm") is shelf.get("lstm") and len(calls) == 2


@pytest.mark.parametrize("part", ["model.safetensors", "config.json"])
def test_a_damaged_model_is_told_without_its_path(home, two_stored, part, caplog):
    server = Server(Shelf([]), ServeOptions())
    client = TestClient(make_app(server), base_url="http://localhost")
    for name in two_stored:
        (home / "models" / name / part).write_bytes(b"{")
        answer = client.post("/v1/completions", json={"model": name})
        assert answer.status_code == 503 and answer.json()["error"]["type"] == "api_error"
        assert str(home) not in answer.text and name in answer.text
        assert str(home / "models" / name) in caplog.text
        assert client.get("/v1/models").status_code == 200


def test_files_that_are_cut_short_in_place_do_not_end_the_server(home, monkeypatch):
    monkeypatch.setattr("seqgen.mapped_tensors.READ_UP_TO", 0)  # as for large models
    other = "imported-gpt2" if has_plugin("exchange") else "gru"
    names = ("ngram", other, "lstm")
    for name in names:
        shutil.copytree(KINDS / name, home / "models" / name)
    shelf = Shelf(names)
    server = Server(shelf, ServeOptions())
    client = TestClient(make_app(server), base_url="http://localhost")
    loaded = {name: shelf.get(name) for name in names}
    options = SampleOptions(seed=1, max_tokens=20)
    before = {name: [s.text for s in sample(loaded[name], [""], options)] for name in names}
    for name in names[:2]:
        os.truncate(home / "models" / name / "model.safetensors", 0)
        assert [s.text for s in sample(loaded[name], [""], options)] == before[name]
        statuses = [client.post("/v1/completions", json={"model": x}).status_code for x in names]
        assert set(statuses) <= {200, 503} and statuses[-1] == 200
    server.engine.close()


def test_what_cannot_be_served():
    with pytest.raises(SeqgenError, match="no trained model"):
        Shelf([])
    why = "is a classifier" if has_plugin("labels") else "needs the plugin labels"
    with pytest.raises(SeqgenError, match=why):
        Shelf([str(KINDS / "bag-classifier")])
    with pytest.raises(UsageError, match="--api-key"):
        ServeOptions(host="0.0.0.0")
    assert ServeOptions(memory="1.5G").most_bytes == 1_500_000_000
    with pytest.raises(UsageError, match="--memory"):
        ServeOptions(memory="much")


def test_the_page_is_one_file_that_asks_nobody_else(client):
    answer = client.get("/")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "http://" not in answer.text and "https://" not in answer.text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_process_finishes_what_runs_when_it_is_told_to_end(number):
    command = [sys.executable, "-m", "seqgen", "serve", "-m", NAMES["lstm"], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        place = urlsplit(process.stderr.readline().split()[-1]).netloc
        connection = http.client.HTTPConnection(place)
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        connection.request("GET", "/health", headers=upgrade)
        with connection.getresponse() as response:
            assert response.status == 200 and response.read()  # and nothing is logged
        body = {"max_tokens": 4000, "stream": True, "seed": 1}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()
        process.send_signal(number)
        rest = response.read()
        assert rest.rstrip().endswith(b"data: [DONE]")
        assert rest.count(b"data: {") == 3999
        assert process.wait(20) == 0 and process.stderr.read() == ""


@pytest.mark.slow
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_process_at_once(first):
    command = [sys.executable, "-m", "seqgen", "serve", "-m", NAMES["lstm"], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        connection = http.client.HTTPConnection(
            urlsplit(process.stderr.readline().split()[-1]).netloc
        )
        body = {"max_tokens": 4096, "stream": True, "n": 32}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()
        process.send_signal(first)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(2) == 128 + signal.SIGTERM and process.stderr.read() == ""


@pytest.mark.slow
def test_an_address_that_is_taken_is_said_in_a_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "seqgen", "serve", "-m", NAMES["lstm"], "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and port in done.stderr


ROUTES = """
from seqgen.errors import SeqgenError

def lengths(loaded, texts, most):
    for text in texts or ():
        if not isinstance(text, str):
            raise SeqgenError("texts must be texts")
        yield {"tokens": min(len(loaded.tokenizer.encode(text)), most or 100)}
"""


def test_plugins_add_routes(live, tmp_path, monkeypatch):
    routes = {
        "/v1/lengths": 'Route("routes:lengths", ("texts", "most"))',
        "/v1/score": 'Route("routes:lengths")',
        "/v1/gone": 'Route("routes:gone")',
    }
    adds = ", ".join(f"{path!r}: {route}" for path, route in routes.items())
    adds = f"routes={{{adds}}}"
    add(monkeypatch, tmp_path / "site", "lengths", {"routes.py": ROUTES}, adds)
    client = TestClient(make_app(live.served), base_url="http://localhost")
    said = "plugin lengths (stranger-lengths 1.5): its route {} is left out: {}"
    assert hooks.new_problems() == [
        said.format("/v1/score", "UsageError: seqgen serve has one of this path"),
        said.format(
            "/v1/gone", "AttributeError: module 'stranger_lengths.routes' has no attribute 'gone'"
        ),
    ]
    model = NAMES["lstm"]

    def ask(**fields):
        answer = client.post("/v1/lengths", json={"model": model, **fields})
        return answer.status_code, answer.json()

    code, found = ask(texts=["tea", "", "ten"], most=2)
    assert code == 200 and found["data"] == [{"tokens": n} for n in (2, 0, 2)]
    assert found["model"] == model and ask()[1]["data"] == []
    for fields, why in (
        ({"texts": [1]}, "texts must be texts"),
        ({"text": []}, "there is no field 'text'; did you mean 'texts'?"),
        ({"model": "x"}, "there is no model 'x' here; GET /v1/models lists the served models"),
    ):
        code, answer = ask(**fields)
        assert code in (400, 404) and answer["error"]["message"] == why
    assert client.get("/v1/gone").status_code == client.get("/v1/lengths").status_code - 1 == 404

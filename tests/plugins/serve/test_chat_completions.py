"""`/v1/chat/completions` and `/v1/embeddings`, with a model from elsewhere."""

import base64
import json
import threading

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("jinja2", reason="jinja2 is not installed")

import torch
from chat_templates import TEMPLATES, turns
from helpers_cli import needs
from hf_models import checkpoint
from places import STORED
from starlette.testclient import TestClient

from seqgen import hooks
from seqgen.cli import run
from seqgen.generation.sample import sample
from seqgen.plugins.serve.app import make_app
from seqgen.plugins.serve.run import Listening
from seqgen.plugins.serve.settings import ServeOptions
from seqgen.settings.generation import SampleOptions
from seqgen.store import find
from seqgen.store.loading import Work, load

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = needs("exchange", "chat")

NGRAM = str(STORED / "models" / "ngram-char")
LSTM = str(STORED / "models" / "lstm-char")
WINDOW = 300
ChatModel = hooks.chat_model()
ASKED = turns("the cat", "sat", "and?", system="S")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The checkpoint of `smol`, in transformers' form."""
    home = tmp_path_factory.mktemp("home")
    path = checkpoint("qwen2", home / "hf")
    table = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**table, "max_position_embeddings": WINDOW}))
    (path / "chat_template.jinja").write_text(TEMPLATES["smollm"], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(home))
        assert run(["import", str(path), "--name", "smol", "--quiet"]) == 0
        yield path


@pytest.fixture(scope="module")
def live(folder):
    server = Listening(["smol", NGRAM, LSTM], ServeOptions(port=0, batch_size=8, max_prompt=400))
    thread = threading.Thread(target=server.listen)
    thread.start()
    yield server
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(live, folder, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(folder.parent))
    return TestClient(make_app(live.served), base_url="http://localhost")


def ask(client, status=200, **fields):
    body = {"model": "smol", "messages": ASKED, "max_tokens": 12, "seed": 3, **fields}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]


def said(answer):
    return [choice["message"]["content"] for choice in answer["choices"]]


def streamed(client, **fields):
    body = {"model": "smol", "messages": ASKED, "max_tokens": 12, "seed": 3, "stream": True}
    with client.stream("POST", "/v1/chat/completions", json={**body, **fields}) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def alone(messages=ASKED, **options):
    """Return what `sample` writes after the text of a conversation."""
    model = ChatModel.of(load("smol", "cpu", work=Work()))
    prompt = model.template.render(messages)
    options = SampleOptions(**{"max_tokens": 12, "seed": 3, **options})
    return [record.text for record in sample(model.loaded, [prompt], options)]


def test_an_answer_is_what_sample_writes(client):
    answer = ask(client, n=3, temperature=0.8, top_p=0.9)
    assert said(answer) == alone(num_samples=3, temperature=0.8, top_p=0.9)
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-")
    assert [choice["message"]["role"] for choice in answer["choices"]] == ["assistant"] * 3
    assert {choice["finish_reason"] for choice in answer["choices"]} <= {"stop", "length"}
    usage = answer["usage"]
    model = ChatModel.of(load("smol", "cpu", work=Work()))
    assert usage["prompt_tokens"] == len(model.prompt(0, ASKED).tokens)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_model_that_is_removed_is_not_found(live, client, folder):
    """Chats read its template anew, also while the model is in memory."""
    assert said(ask(client))
    model = folder.parent / "models" / "smol"
    model.rename(folder.parent / "gone")
    try:
        error = ask(client, status=404)
    finally:
        (folder.parent / "gone").rename(model)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "the model 'smol' has been removed" in error["message"]
    assert said(ask(client))


def test_a_stream_says_the_role_once_and_counts_at_the_end(client):
    events = streamed(client, n=2, stream_options={"include_usage": True})
    *pieces, last = events
    assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0
    texts, roles = ["", ""], [0, 0]
    for event in pieces:
        assert event["object"] == "chat.completion.chunk"
        for choice in event["choices"]:
            texts[choice["index"]] += choice["delta"]["content"]
            roles[choice["index"]] += choice["delta"].get("role") == "assistant"
    assert texts == alone(num_samples=2)
    assert roles == [1, 1]


def test_log_probabilities_have_the_form_of_chats(client):
    answer = ask(client, logprobs=True, top_logprobs=3)
    content = answer["choices"][0]["logprobs"]["content"]
    text = b"".join(bytes(one["bytes"]) for one in content)
    assert text.decode(errors="replace").startswith(said(answer)[0][:1])
    assert len(content) == answer["usage"]["completion_tokens"]
    for one in content:
        likely = [other["logprob"] for other in one["top_logprobs"]]
        assert len(likely) == 3 and likely == sorted(likely, reverse=True)
        assert one["logprob"] <= likely[0]
    assert ask(client, logprobs=True)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert ask(client)["choices"][0]["logprobs"] is None


def test_fields_that_mean_the_same(client):
    plain = said(ask(client))
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
    messages = [{**ASKED[0], "role": "developer"}, {**ASKED[1], "content": parts}, *ASKED[2:]]
    assert said(ask(client, messages=messages)) == plain
    assert said(ask(client, max_tokens=None, max_completion_tokens=12)) == plain
    assert said(ask(client, tools=[], tool_choice="none", user="me")) == plain
    short = ask(client, max_completion_tokens=3, max_tokens=12)
    assert short["usage"]["completion_tokens"] <= 3


def test_the_longest_answer_ends_with_the_window(client):
    fields = {"max_tokens": None, "ban": [], "min_tokens": 0, "logit_bias": {"1": -100}}
    answer = ask(client, **fields)
    assert answer["usage"]["total_tokens"] <= WINDOW
    assert answer["choices"][0]["finish_reason"] == "length"


@needs("patterns")
def test_an_answer_in_json(client):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    (text,) = said(ask(client, response_format=form, max_tokens=40))
    assert json.loads(text)["a"] in (1, 2)


LONG = "word " * 50
REFUSED = {
    "tools": ({"tools": [{"type": "function"}]}, "tools", "tools are not supported"),
    "functions": ({"functions": [{}]}, "functions", "are not supported"),
    "no messages": ({"messages": None}, "messages", "messages must be a list"),
    "a text": ({"messages": "hello"}, "messages", "messages must be a list"),
    "no content": ({"messages": [{"role": "user"}]}, "messages", "needs a role and a content"),
    "a number": ({"messages": [1]}, "messages", "needs a role and a content"),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages",
        "parts of type text",
    ),
    "window": ({"messages": turns(LONG)}, "messages", "reads, with an answer, 299"),
    "prompt": ({"messages": turns(LONG * 2)}, "messages", "--max-prompt is 400"),
    "no template": ({"model": LSTM}, None, "has no chat template: send its prompts to"),
    "top": ({"top_logprobs": 2}, "top_logprobs", "needs logprobs: true"),
    "logprobs": ({"logprobs": 2}, "logprobs", "must be true or false"),
    "length": ({"max_completion_tokens": -1}, "max_completion_tokens", "must be from 0"),
    "prompt field": ({"prompt": "a"}, "prompt", "there is no field 'prompt'"),
    "temperature": ({"temperature": -1}, "temperature", "temperature must be"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_field(name, client):
    fields, param, message = REFUSED[name]
    error = ask(client, status=400, **fields)
    assert message in error["message"] and "\n" not in error["message"]
    assert error["param"] == param


# ---- embeddings ----


def embed(client, status=200, **fields):
    answer = client.post("/v1/embeddings", json={"model": "smol", **fields})
    assert answer.status_code == status, answer.text
    return answer.json() if status == 200 else answer.json()["error"]


@needs("vectors")
def test_embeddings_are_the_mean_of_transformers_last_hidden_states(client, folder):
    texts = ["the cat", "a dog's log", "12 years old: the mat " * 12]
    answer = embed(client, input=texts)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    total = 0
    for text, one in zip(texts, answer["data"], strict=True):
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.no_grad():
            mean = theirs(ids).last_hidden_state[0].mean(0).numpy()
        assert np.allclose(one["embedding"], mean / np.linalg.norm(mean), atol=1e-5)
        total += ids.numel()
    assert [one["index"] for one in answer["data"]] == [0, 1, 2]
    assert answer["usage"] == {"prompt_tokens": total, "total_tokens": total}


@needs("vectors")
def test_embeddings_as_base64_and_of_ids(client):
    (plain,) = embed(client, input="the cat")["data"]
    ids = client.post("/tokenize", json={"model": "smol", "prompt": "the cat"}).json()["tokens"]
    for form in ({"input": ["the cat"]}, {"input": ids}, {"input": [ids]}):
        (one,) = embed(client, encoding_format="base64", **form)["data"]
        values = np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        assert np.array_equal(values, np.float32(plain["embedding"]))
    assert np.linalg.norm(plain["embedding"]) == pytest.approx(1, abs=1e-6)


@needs("vectors")
def test_embeddings_of_a_network_trained_here_and_of_nothing(client):
    loaded = load(LSTM, work=Work())
    letters = [c for c in "the cat" if loaded.tokenizer.first_unknown(c) is None]
    text = "".join(letters)
    one, empty = (x["embedding"] for x in embed(client, model=LSTM, input=[text, ""])["data"])
    ids = np.array([[loaded.framing.start, *loaded.ids(text)]])
    hidden, _ = loaded.model.hidden(loaded.model.ids(ids), loaded.model.start(1))
    mean = np.asarray(hidden)[0, 1:].mean(0)
    assert np.allclose(one, mean / np.linalg.norm(mean), atol=1e-5)
    assert np.linalg.norm(empty) == pytest.approx(1, abs=1e-5)


@pytest.fixture
def beside_ngrams(tmp_path, monkeypatch):
    """A client of a server of a network with an n-gram model, and of a mixture of two models."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path))
    (tmp_path / "t.txt").write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 30)
    shape = "--layers 1 --hidden-size 8 --seq-len 16 --batch-size 4 --steps 5 --seed 1 --quiet"
    train = ["train", str(tmp_path / "t.txt"), *shape.split()]
    assert run([*train, "--model", "lstm", "--with-ngram", "2", "--name", "t"]) == 0
    server = Listening(["t", f"{LSTM}+{NGRAM}"], ServeOptions(port=0))
    thread = threading.Thread(target=server.listen)
    thread.start()
    yield TestClient(make_app(server.served), base_url="http://localhost")
    server.should_exit = True
    thread.join()


@needs("vectors")
def test_embeddings_of_a_network_with_an_n_gram_model_are_those_of_the_network(beside_ngrams):
    stored = find("t")
    assert stored.ngram is not None
    loaded = load(stored.networks, work=Work())
    (one,) = embed(beside_ngrams, model="t", input="the cat")["data"]
    ids = np.array([[loaded.framing.start, *loaded.ids("the cat")]])
    hidden, _ = loaded.model.hidden(loaded.model.ids(ids), loaded.model.start(1))
    mean = np.asarray(hidden)[0, 1:].mean(0)
    assert np.allclose(one["embedding"], mean / np.linalg.norm(mean), atol=1e-5)


@needs("vectors")
def test_embeddings_of_a_mixture_name_its_parts(beside_ngrams):
    error = embed(beside_ngrams, status=400, model=f"{LSTM}+{NGRAM}", input="the cat")
    assert "/v1/embeddings takes one of its parts, lstm-char or ngram-char" in error["message"]


BAD_INPUTS = {
    "nothing": ({}, "input", "input must be"),
    "none": ({"input": []}, "input", "input must be 1 to"),
    "numbers": ({"input": [1.5]}, "input", "input must be a string"),
    "form": ({"input": "a", "encoding_format": "int8"}, "encoding_format", "float or base64"),
    "counts": ({"input": "a", "model": NGRAM}, None, "is not a single network"),
    "long": ({"input": "word " * 70}, "input", "smol reads 300"),
    "dimensions": ({"input": "a", "dimensions": 2}, "dimensions", "there is no field"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_inputs_of_embeddings(name, client):
    fields, param, message = BAD_INPUTS[name]
    error = embed(client, status=400, **fields)
    assert message in error["message"] and error["param"] == param


@pytest.mark.slow
def test_openai(live, folder, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(folder.parent))
    openai = pytest.importorskip("openai", reason="openai is not installed")
    client = openai.OpenAI(base_url=f"{live.address}/v1", api_key="none", max_retries=0)
    how = {"model": "smol", "messages": ASKED, "seed": 3, "max_completion_tokens": 12, "n": 2}
    expected = alone(num_samples=2)
    whole = client.chat.completions.create(**how, logprobs=True, top_logprobs=2)
    assert [choice.message.content for choice in whole.choices] == expected
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    written = ["", ""]
    for event in client.chat.completions.create(**how, stream=True):
        for choice in event.choices:
            written[choice.index] += choice.delta.content
    assert written == expected
    found = client.embeddings.create(model="smol", input=["the cat", "a"])
    raw = client.embeddings.create(model="smol", input="the cat", encoding_format="float")
    assert np.allclose(found.data[0].embedding, raw.data[0].embedding, atol=1e-7)
    with pytest.raises(openai.BadRequestError, match="not supported"):
        client.chat.completions.create(**how, tools=[{"type": "function"}])


def test_without_the_plugin_one_line_names_it(client, monkeypatch):
    monkeypatch.setattr(hooks, "chat_model", lambda: None)
    said = ask(client, 400)["message"]
    assert said.startswith("chats need the plugin chat, which is not installed: send its prompts")

"""`seqgen train` on conversations: what is read, what is learned of it, what is left out."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from chat_templates import TEMPLATES
from helpers_cli import has_plugin, needs, refusal
from hf_models import checkpoint
from safetensors.torch import load_file

import seqgen
from seqgen import store
from seqgen.cli import run
from seqgen.errors import SeqgenError, UsageError
from seqgen.plugins.chat.chat_template import stored_template
from seqgen.plugins.chat.dataset import ConversationDataset
from seqgen.plugins.chat.examples import Examples, example_of, holds_examples, keys_of
from seqgen.settings import DataConfig
from seqgen.settings.training import TrainingConfig
from seqgen.store.loading import load
from seqgen.text.training_files import training_files
from seqgen.training.datasets.dataset import DataFiles
from seqgen.training.events import Notice
from seqgen.training.reload import reload_stored_data, tokens_of
from seqgen.training.resume import resume
from seqgen.training.train import train

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytestmark = needs("exchange")

FEW = {"seed": 1, "precision": "float32", "steps": 2, "lr": 1e-3}
QUESTIONS = [
    ("the cat", "sat on the mat"),
    ("the dog's log", "was 12 years old\n\nand the mat"),
    ("who sat on the mat?", "the cat, on the mat, and the dog, on the log"),
    ("hé", "漢字"),
]
# A template that drops the thoughts of all answers but the last one.
THINKING = """
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{{- message.content if loop.last else message.content.split('</think>')[-1].lstrip() }}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
# Where no answer follows, the template for tests of Qwen keeps thoughts that it drops before one.
WITH_TEMPLATE = {
    "smol": TEMPLATES["smollm"],
    "thinking": THINKING,
    "unsteady": TEMPLATES["qwen"],
}


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def conversations():
    """Return conversations of one and of two turns, with and without a system prompt."""
    found = [[user(one), assistant(other)] for one, other in QUESTIONS]
    found.append([*found[0], *found[2]])
    return [*found, [{"role": "system", "content": "be brief"}, *found[1], user("and then?")]]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with models that have a template, and `bare`, which has none.

    In it are the folders that they were imported from.
    """
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder))
        for name, template in (("bare", None), *WITH_TEMPLATE.items()):
            path = checkpoint("qwen2", folder / "from" / name)
            config = json.loads((path / "config.json").read_text())
            config["max_position_embeddings"] = 600
            (path / "config.json").write_text(json.dumps(config))
            if template is not None:
                (path / "chat_template.jinja").write_text(template, encoding="utf-8")
            assert run(["import", str(path), "--name", name, "--quiet"]) == 0
    return folder


@pytest.fixture
def there(home, monkeypatch, tmp_path):
    """The models, in a home of the test; return the folder of their checkpoints."""
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    for name in ("bare", *WITH_TEMPLATE):
        stored = store.models_folder() / name
        stored.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(home / "models" / name, stored)
    return home / "from"


@pytest.fixture
def messages(tmp_path):
    return written(tmp_path / "messages.jsonl", [{"messages": one} for one in conversations()])


def written(path: Path, records) -> Path:
    lines = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
    path.write_text(lines, encoding="utf-8")
    return path


def tuned(data, base="smol", name="tuned", **settings):
    """Fine-tune a model; return the result and the notices."""
    notices = []

    def report(event):
        if isinstance(event, Notice):
            notices.append(event.text)

    settings = {**FEW, "init_from": base, **settings}
    return train([data], name=name, settings=settings, report=report), notices


def reference_loss(folder, rows):
    """Compute the loss of rows of ids and labels by transformers, nats per label."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    nats = count = 0
    for ids, labels in rows:
        logits = model(torch.tensor([ids])).logits[0, :-1]
        targets = torch.tensor(labels[1:])
        nats += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        count += int((targets != -100).sum())
    return nats / count


def templated(folder, whole, learns_all=False):
    """Return the ids and labels of a conversation, whose answers are found in the text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(whole, tokenize=False)
    read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    answers = re.finditer(r"(?s)(?<=<\|im_start\|>assistant\n).*?<\|im_end\|>\n", text)
    spans = [answer.span() for answer in answers]
    inside = [any(a <= begin < b for a, b in spans) for begin, _ in read["offset_mapping"]]
    ids = read["input_ids"]
    return ids, [
        one if learns_all or learned else -100 for one, learned in zip(ids, inside, strict=True)
    ]


@pytest.mark.parametrize("loss_on", ["answers", "all"])
def test_the_first_loss_is_that_of_transformers_on_the_same_rows(loss_on, there, messages):
    result, notices = tuned(messages, val="none", steps=1, batch_size=8, loss_on=loss_on)
    rows = [templated(there / "smol", one, loss_on == "all") for one in conversations()]
    assert result.tokens == sum(label != -100 for _, labels in rows for label in labels[1:])
    assert result.train_loss == pytest.approx(reference_loss(there / "smol", rows), abs=1e-4)
    learned = "all tokens" if loss_on == "all" else "the answers alone (--loss-on)"
    assert notices[0] == (
        "6 conversations (messages), with the chat template of smol; the loss counts " + learned
    )
    assert store.find("tuned").config["data"]["loss_on"] == loss_on


def test_adapters_begin_with_the_same_loss(there, messages):
    whole, _ = tuned(messages, val="none", steps=1, batch_size=8)
    adapted, _ = tuned(messages, name="adapters", val="none", steps=1, batch_size=8, lora=2)
    assert adapted.train_loss == pytest.approx(whole.train_loss, abs=1e-5)
    assert stored_template(store.find("adapters")) == stored_template(store.find("smol"))


def test_a_template_that_rewrites_earlier_turns_gives_each_answer_a_row(there, tmp_path):
    """Thoughts of earlier answers are dropped, so that their tokens differ by what follows."""
    thought = "<think>\nhm\n</think>\n\n"
    turns = [user("the cat"), assistant(f"{thought}sat"), user("who?"), assistant(f"{thought}the")]
    data = written(tmp_path / "thoughts.jsonl", [{"messages": turns}])
    result, _ = tuned(data, "thinking", val="none", steps=1, batch_size=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(there / "thinking")
    rows = []
    for end in (2, 4):
        texts = [
            tokenizer.apply_chat_template(turns[:n], tokenize=False, add_generation_prompt=prompts)
            for n, prompts in ((end - 1, True), (end, False))
        ]
        before, ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        shared = common(ids, before)
        assert shared >= len(before) - 1  # a newline may be joined to what follows it
        rows.append((ids, [-100] * shared + ids[shared:]))
    assert result.tokens == sum(len(ids) - labels.count(-100) for ids, labels in rows)
    assert result.train_loss == pytest.approx(reference_loss(there / "thinking", rows), abs=1e-4)
    with pytest.raises(SeqgenError, match=r"thoughts\.jsonl, record 1: the chat template writes"):
        tuned(data, "unsteady", "other", val="none")
    tuned(data, "unsteady", "other", val="none", loss_on="all")


def test_prompts_and_completions_need_no_template(there, tmp_path):
    records = [{"prompt": f"{one}:", "completion": f" {other}"} for one, other in QUESTIONS]
    data = written(tmp_path / "pairs.jsonl", records)
    result, notices = tuned(data, "bare", val="none", steps=1, batch_size=4)
    assert "(prompt+completion), with no chat template" in notices[0]
    loaded = load("bare", "cpu")
    tokenizer, framing = loaded.tokenizer, loaded.framing
    rows = []
    for record in records:
        before = framing.opened(tokenizer.encode(record["prompt"]).tolist())
        ids = framing.opened(tokenizer.encode("".join(record.values())).tolist())
        ids = [*ids, tokenizer.eos_id]
        shared = next(
            (i for i, (a, b) in enumerate(zip(ids, before, strict=False)) if a != b), len(before)
        )
        rows.append((ids, [-100] * shared + ids[shared:]))
    assert result.train_loss == pytest.approx(reference_loss(there / "bare", rows), abs=1e-4)


def common(ids, others):
    """Count the ids that two lists begin with."""
    return next(
        (n for n, pair in enumerate(zip(ids, others, strict=False)) if pair[0] != pair[1]),
        len(others),
    )


def prepared_of(name):
    stored = store.find(name)
    _, tokenizer = stored.load()
    return reload_stored_data(stored, tokens_of(stored, tokenizer))


def test_a_row_has_one_conversation_and_reads_nothing_before_it(there, messages):
    tuned(messages, val="none", steps=1)
    prepared, settings = prepared_of("tuned"), store.find("tuned").config["training"]
    rows = {tuple(templated(there / "smol", one)[0]) for one in conversations()}
    training = store.find("tuned").settings("training", TrainingConfig)
    batches = prepared.batches(training, carries_state=False)
    found = set()
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        for read, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            own = next(row for row in rows if row[: len(read)] == tuple(read[: len(row)]))
            found.add(own)
            for at, target in enumerate(targets):
                assert target == -100 or target == own[at + 1]
    assert found == rows
    assert settings["seq_len"] == max(map(len, rows)) - 1


def test_the_held_out_loss_is_that_of_transformers_and_of_perplexity(there, messages, capsys):
    result, _ = tuned(messages, val="0.4", steps=2)
    assert run(["export", "tuned", "--format", "hf", "--out", str(messages.parent / "out")]) == 0
    prepared = prepared_of("tuned")
    held = [one for one in conversations() if is_held_out(there, prepared, one)]
    assert len(held) == 2
    rows = [templated(there / "smol", one) for one in held]
    reference = reference_loss(messages.parent / "out", rows)
    assert result.val_loss == pytest.approx(reference, abs=1e-4)
    assert result.protocol.startswith("each example alone, answers scored")
    capsys.readouterr()
    assert run(["perplexity", "-m", "tuned", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["nll_nats"] / record["tokens"] == pytest.approx(result.val_loss, abs=1e-6)
    assert record["protocol"] == result.protocol
    text = "".join(m["content"] for one in held for m in one if m["role"] == "assistant")
    assert record["characters"] - len(text) == sum(  # newlines that the template writes
        len(re.findall("assistant", json.dumps(one))) for one in held
    )
    if has_plugin("dynamic"):
        refused = refusal(capsys, "perplexity", "-m", "tuned", "--dynamic", "0.1")
        assert "follows one continuous text" in refused


@pytest.mark.parametrize("learns_all", [False, True])
def test_a_file_of_conversations_is_scored_as_it_is_learned(learns_all, there, messages, cli):
    name = "smol"
    if learns_all:
        tuned(messages, "smol", name := "whole", val="none", steps=1, loss_on="all")
        assert run(["export", name, "--format", "hf", "--out", str(there / name)]) == 0
    rows = [templated(there / name, one, learns_all) for one in conversations()]
    record = json.loads(cli("perplexity", messages, "-m", name, "--json")[1])
    reference = reference_loss(there / name, rows)
    assert record["nats_per_token"] == pytest.approx(reference, abs=1e-4)
    assert f"{'all' if learns_all else 'answers'} scored" in record["protocol"]
    (measured,) = map(json.loads, cli("eval", messages, "-m", name, "--json")[1].splitlines())
    assert measured["perplexity"]["nll_nats"] == record["nll_nats"]
    scored = seqgen.load(name).score(messages).nll_nats
    assert scored == pytest.approx(record["nll_nats"], rel=1e-6)


def test_files_of_examples_that_are_not_scored_as_such(there, messages, cli, tmp_path):
    said = cli("perplexity", messages, "-m", "bare", "--json")[2]
    assert "bare has no chat template: their JSON is scored as text" in said
    pairs = written(tmp_path / "p.jsonl", [{"prompt": "the", "completion": " cat"}])
    record = json.loads(cli("perplexity", pairs, "-m", "bare", "--json")[1])
    assert record["tokens"] == 1 + len(load("bare", "cpu").tokenizer.encode(" cat"))
    for words in (["perplexity", messages, "--per-line"], ["compare", "--data", messages]):
        code, _, said = cli(*words, "-m", "smol")
        assert code == 2 and "has examples: only seqgen perplexity and eval score them" in said


def is_held_out(there, prepared, whole):
    ids = templated(there / "smol", whole)[0]
    part = prepared.val
    spans = zip(part.starts.tolist(), part.ends.tolist(), strict=True)
    return any(part.tokens[a:b].tolist() == ids for a, b in spans)


@pytest.mark.fast_for("None", rest="slow")
@pytest.mark.parametrize("lora", [None, 2])
def test_a_resumed_run_has_the_same_weights(lora, there, messages):
    settings = {"lora": lora, "steps": 6, "batch_size": 2, "val": "0.2"}
    tuned(messages, **settings)
    train([messages], name="half", settings={**FEW, "init_from": "smol", **settings}, stop_after=2)
    resume("half")
    whole, half = (load_file(store.find(name).path / store.WEIGHTS) for name in ("tuned", "half"))
    assert all(torch.equal(whole[name], half[name]) for name in whole)


def test_what_was_held_out_is_never_trained_on(there, messages):
    tuned(messages, val="0.4", steps=2)
    held = prepared_of("tuned").val
    records = [{"messages": one} for one in reversed(conversations())]
    written(messages, [*records, {"messages": [user("new"), assistant("the cat")]}])
    with pytest.raises(SeqgenError, match="is not the text tuned was trained on"):
        resume("tuned", settings={"steps": 3})
    events = []
    resume("tuned", settings={"steps": 3}, changed_data=True, report=events.append)
    started = next(event for event in events if hasattr(event, "train_tokens"))
    lengths = [
        sum(label != -100 for label in templated(there / "smol", r["messages"])[1])
        for r in map(json.loads, messages.read_text().splitlines())
    ]
    assert started.train_tokens == sum(lengths) - held.scored
    assert started.val_tokens == held.scored


def test_long_conversations_are_cut_and_counted(there, messages):
    whole = sorted(len(templated(there / "smol", one)[0]) - 1 for one in conversations())
    longest = whole[-1]
    _, notices = tuned(messages, val="none", seq_len=longest)
    assert len(notices) == 1
    _, notices = tuned(messages, name="cut", val="none", seq_len=whole[-2])
    assert notices[1] == f"1 conversation of 6 cut to {whole[-2]} tokens (--seq-len)"
    with pytest.raises(UsageError, match="no conversation has an answer within 20 tokens"):
        tuned(messages, name="short", val="none", seq_len=20)
    most = whole[0] - 2
    _, notices = tuned(messages, name="some", val="none", seq_len=most, loss_on="answers")
    assert re.fullmatch(
        rf"6 conversations of 6 cut to {most} tokens \(--seq-len\); \d have no answer left and are "
        "left out",
        notices[1],
    )


def test_a_fine_tuned_model_is_not_cut_to_the_length_of_its_first_conversations(there, tmp_path):
    short = written(tmp_path / "short.jsonl", [{"messages": conversations()[0]}])
    long = written(tmp_path / "long.jsonl", [{"messages": conversations()[4]}])
    tuned(short, val="none")
    _, notices = tuned(long, "tuned", "again", val="none")
    assert len(notices) == 1


def test_a_recurrent_model_learns_whole_completions(there, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{one}\t{other}\n".replace("\n", " ") for one, other in QUESTIONS))
    shape = {"hidden_size": 8, "num_layers": 1, "seq_len": 4, "val": "none"}
    train([text], architecture="lstm", name="base", settings={**FEW, **shape})
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the cat\tsat on the mat\nwho sat?\tthe dog\n", encoding="utf-8")
    result, notices = tuned(pairs, "base", val="none", epochs=1, steps=None)
    assert notices[0].startswith("2 conversations (prompt+completion), with no chat template")
    assert not any("cut" in notice for notice in notices)
    assert result.tokens == len("sat on the mat") + len("the dog") + 2  # and the end of each


# ---- what is read ----


@pytest.mark.parametrize(
    ("record", "keys", "contents"),
    [
        ({"messages": [user("a"), assistant("b")]}, "messages", "ab"),
        (
            {
                "id": 1,
                "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}],
            },
            "conversations",
            "ab",
        ),
        ({"prompt": "a", "completion": "b"}, "prompt completion", "ab"),
        ({"prompt": [user("a")], "completion": [assistant("b")]}, "prompt completion", "ab"),
        ({"prompt": "a", "response": "b", "text": "c"}, "prompt response", "ab"),
        ({"instruction": "a", "input": "", "output": "b"}, "instruction output", "ab"),
        ({"instruction": "a", "input": "x", "output": "b"}, "instruction output", "a\n\nxb"),
        ({"question": "a", "answer": "b"}, "question answer", "ab"),
    ],
)
def test_fields_are_guessed(record, keys, contents):
    assert keys_of(record) == tuple(keys.split())
    example = example_of(record, keys_of(record))
    assert "".join(message["content"] for message in example.messages) == contents
    assert [example.messages[n]["content"] for n in example.answers] == ["b"]
    assert [message["role"] for message in example.messages] == ["user", "assistant"]


def test_answers_in_a_prompt_are_not_learned():
    record = {"prompt": [user("a"), assistant("b"), user("c")], "completion": [assistant("d")]}
    assert example_of(record, keys_of(record)).answers == [3]


BROKEN, NO_TEXT = "with broken JSON", "with a message that has no role and text"
LONE = "with half of a surrogate pair"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, BROKEN),
        (7, "without an object"),
        ([], "without an object"),
        ({}, "without KEYS"),
        ({"text": "a"}, "without KEYS"),
        ({"messages": []}, "without an answer"),
        ({"messages": "a"}, "without KEYS"),
        ({"messages": [7]}, NO_TEXT),
        ({"messages": [{"role": "user"}]}, NO_TEXT),
        ({"messages": [user("a")]}, "without an answer"),
        ({"messages": [user("a"), assistant(None)]}, NO_TEXT),
        ({"messages": [user("a"), assistant("\ud800")]}, LONE),
        ({"messages": [user("a"), assistant([{"type": "text"}])]}, "with a part that is no text"),
        (
            {"messages": [user("a"), {"role": "ASSISTANT", "content": "b"}]},
            "without an answer (role 'ASSISTANT', not 'assistant')",
        ),
        ({"prompt": "a"}, "without KEYS"),
        ({"prompt": "a", "completion": 7}, "without KEYS"),
        ({"prompt": "a", "completion": [assistant("b")]}, "without KEYS"),
        ({"prompt": [user("a")], "completion": [user("b")]}, "without an answer"),
        ({"prompt": "a", "completion": "\ud800"}, LONE),
    ],
)
def test_other_records_are_left_out(record, reason, tmp_path):
    good = [{"messages": [user("a"), assistant("b")]}, {"prompt": "a", "completion": "b"}]
    for number, (one, keys) in enumerate(zip(good, ("messages", "prompt+completion"), strict=True)):
        own = isinstance(record, dict) and record.keys() == one.keys()
        path = tmp_path / f"{number}.jsonl"
        path.write_text(f"{json.dumps(one)}\n{json.dumps(record)}\n")
        found = Examples((path,))
        assert len(list(found)) == found.surveyed[0].lines == 1
        named = isinstance(record, dict) and not own
        why = "without KEYS" if named else reason
        why = why.replace("KEYS", f"{keys} of that kind")
        assert found.surveyed[1] == f"left out: 1 record {why} ({path}, record 2)"


def test_reasons_are_counted_apart(tmp_path):
    records = [{"messages": [user("a")]}, {"text": "a"}, {"messages": [user("a"), assistant("b")]}]
    path = written(tmp_path / "some.jsonl", [*records, *records[:1]])
    assert Examples((path,)).surveyed[1] == (
        f"left out: 2 records without an answer ({path}, record 1, {path}, record 4); "
        f"1 record without messages of that kind ({path}, record 2)"
    )


def test_contents_in_parts_are_joined():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]
    record = {"messages": [user(parts), assistant("b")]}
    example = example_of(record, keys_of(record))
    assert example.messages[0] == user("one two")


def test_other_keys_of_a_message_are_for_the_template(there, tmp_path, cli):
    """Such as thoughts; without a value, as tables have them, they are left out."""
    answer = {**assistant("b"), "reasoning_content": "think twice", "name": None}
    record = {"messages": [user("a"), answer]}
    del answer["name"]
    assert example_of(record, keys_of(record)).messages == [user("a"), answer]
    template = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}|{% endfor %}"
    (tmp_path / "t.jinja").write_text(template)
    base = shutil.copytree(there / "smol", tmp_path / "from")
    (base / "chat_template.jinja").write_text(template)
    assert cli("import", base, "--name", "thoughtful", "--quiet")[0] == 0
    code, out, _ = cli(
        "perplexity", written(tmp_path / "m.jsonl", [record]), "-m", "thoughtful", "--json"
    )
    theirs = transformers.AutoTokenizer.from_pretrained(base)
    assert theirs.apply_chat_template([answer], tokenize=False) == "think twiceb|"
    begin = theirs.apply_chat_template([user("a")], tokenize=False)
    whole = theirs.apply_chat_template([user("a"), answer], tokenize=False)
    learned = len(theirs(whole)["input_ids"]) - len(theirs(begin)["input_ids"])
    assert code == 0 and json.loads(out)["tokens"] == learned


def test_all_forms_of_a_file_are_the_same_examples(tmp_path):
    records = [{"prompt": one, "completion": other} for one, other in QUESTIONS[::2]]
    lines = written(tmp_path / "pairs.jsonl", records).read_text(encoding="utf-8")
    (tmp_path / "list.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    tabs = "".join(f"{one}\t{other}\n" for one, other in QUESTIONS[::2])
    (tmp_path / "tabs.tsv").write_text(tabs, encoding="utf-8")
    names = ["pairs.jsonl", "list.json", "bom.jsonl", "packed.jsonl.gz", "tabs.tsv"]
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "pairs.parquet")
        names.append("pairs.parquet")
    surveys = [Examples((tmp_path / name,)).surveyed for name in names]
    assert surveys == surveys[:1] * len(names)
    assert all(holds_examples(tmp_path / name) for name in names if name != "tabs.tsv")


def test_messages_in_parquet(tmp_path, there, capsys):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    records = [{"messages": one, "id": 1} for one in conversations()]
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "messages.parquet")
    lines = written(tmp_path / "messages.jsonl", records)
    losses = [
        tuned(path, name=path.suffix[1:], val="none")[0].train_loss
        for path in (tmp_path / "messages.parquet", lines)
    ]
    assert losses[0] == losses[1]
    # A folder of nothing else is read, too.
    (tmp_path / "shards").mkdir()
    shutil.copy(tmp_path / "messages.parquet", tmp_path / "shards")
    few = ("--init-from", "smol", "--steps", "1", "--val", "none", "--name", "folder")
    assert run(["train", str(tmp_path / "shards"), *few]) == 0
    assert "left out" not in capsys.readouterr().err


ARROW = "Arrow data, as Hugging Face datasets saves it"
CACHE = "cache-0123456789abcdef.arrow"


def test_messages_in_arrow_files(tmp_path, there, capsys):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    records = [{"messages": one, "id": 1} for one in conversations()]
    # As datasets saves a data set: a stream, what it is beside it, and the cache of `map`.
    (tmp_path / "saved").mkdir()
    table = pyarrow.Table.from_pylist(records)
    for name in ("data-00000-of-00001.arrow", CACHE):
        with pyarrow.ipc.new_stream(str(tmp_path / "saved" / name), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    for name in ("state.json", "dataset_info.json"):
        (tmp_path / "saved" / name).write_text('{"features": {"messages": []}}')
    lines = written(tmp_path / "messages.jsonl", records)
    folder, file = tmp_path / "saved", tmp_path / "saved" / "data-00000-of-00001.arrow"
    options = ("--init-from", "smol", "--steps", "1", "--seed", "1", "--val", "none", "--json")
    losses = set()
    for n, path in enumerate((folder, file, lines)):
        assert run(["train", str(path), *options, "--name", f"n{n}"]) == 0
        out, err = capsys.readouterr()
        losses.add(json.loads(out.splitlines()[-1])["train_loss"])
        # `cache-....arrow` is what `map` left there.
        said = [line for line in err.splitlines() if "left out" in line]
        assert [line.partition(": give")[0] for line in said] == (
            [] if path != folder else [f"left out: {folder / CACHE} is {ARROW}"]
        )
    assert len(losses) == 1
    for split in ("train", "test"):
        shutil.copytree(folder, tmp_path / "splits" / split)
    (tmp_path / "splits" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    said = refusal(capsys, "train", tmp_path / "splits", *options)
    assert "has the splits test, train: give one, as" in said


@pytest.mark.long
def test_what_datasets_saves(tmp_path, there):
    """Conversations as lists of messages and as a `Sequence`, saved to disk and as parquet."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    records = [{"messages": one, "id": n} for n, one in enumerate(conversations())]
    surveys = [Examples((written(tmp_path / "m.jsonl", records),)).surveyed]
    texts = {"role": datasets.Value("string"), "content": datasets.Value("string")}
    kinds = {"list": [texts], "sequence": datasets.Sequence(texts)}
    for name, kind in kinds.items():
        features = datasets.Features({"messages": kind, "id": datasets.Value("int64")})
        rows = records
        if name == "sequence":  # which datasets takes and stores as an object of lists
            rows = [
                {**row, "messages": {key: [m[key] for m in row["messages"]] for key in texts}}
                for row in records
            ]
        data = datasets.Dataset.from_list(rows, features=features)
        data.save_to_disk(str(tmp_path / name), num_shards=2)
        data.map(lambda row: {"n": 1})
        data.to_parquet(str(tmp_path / f"{name}.parquet"))
        surveys.append(Examples(training_files([tmp_path / name], as_text=False)).surveyed)
        surveys.append(Examples((tmp_path / f"{name}.parquet",)).surveyed)
    assert surveys == surveys[:1] * 5


def test_a_pipe_is_read_and_resumed(there, messages, monkeypatch, cli):
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        file.write(messages.read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(read, "rb")))
    code, _, err = cli(
        "train", "--init-from", "smol", "--steps", "2", "--name", "piped", "--seed", "1"
    )
    assert code == 0 and "6 conversations (messages)" in err
    code, _, err = cli("train", "--resume", "piped", "--steps", "3")
    assert code == 0 and err.splitlines()[-1] == "try: seqgen chat -m piped"


def test_a_model_without_a_template_is_not_for_chats(there, tmp_path, cli):
    pairs = written(tmp_path / "p.jsonl", [{"prompt": a, "completion": b} for a, b in QUESTIONS])
    few = ("--steps", "1", "--val", "none", "--name", "plain")
    code, _, err = cli("train", str(pairs), "--init-from", "bare", *few)
    assert code == 0 and err.splitlines()[-1] == "try: seqgen sample -m plain"


# ---- what is refused ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "x"], "messages.jsonl has conversations: begin from a model that has learned"),
        (["--init-from", "bare"], "messages.jsonl, record 1: the model has no chat template"),
        (["--init-from", "smol", "--documents", "line"], "documents has no meaning"),
        (["--init-from", "smol", "--loss-on", "prompts"], "loss-on"),
        (["--init-from", "smol", "--seq-len", "601"], "--seq-len must be at most the window"),
        (["--init-from", "smol", "--val", "none.jsonl"], "there is no file none.jsonl"),
        (["--init-from", "smol", "--val", "2"], "--val 2 is not a share"),
        (["--init-from", "smol", "--labels"], "has learned no labels"),
        (["--init-from", "smol", "text.txt"], "give conversations alone"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message, there, messages, capsys, monkeypatch):
    monkeypatch.chdir(messages.parent)
    Path("text.txt").write_text("the cat\n" * 20)
    assert message in refusal(capsys, "train", "messages.jsonl", *arguments, "--steps", "1")


def test_loss_on_is_for_conversations(there, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the cat\n" * 20)
    given = ("--init-from", "smol", "--steps", "1", "--loss-on", "all")
    assert "has no tab; each line is prompt<TAB>completion" in refusal(
        capsys, "train", text, *given
    )
    path = written(tmp_path / "texts.jsonl", [{"text": "the cat"}])
    assert "give --field NAME" in refusal(capsys, "train", path, *given)
    path = written(tmp_path / "none.jsonl", [{"messages": [user("the cat")]}])
    assert "none.jsonl has no example with an answer: 1 record without an answer" in refusal(
        capsys, "train", path, *given
    )


def test_n_grams_are_of_texts(there, messages):
    with pytest.raises(UsageError, match="--with-ngram counts the n-grams of a text"):
        tuned(messages, with_ngram=2)


def test_files_of_other_records_are_as_before(tmp_path, capsys):
    path = written(tmp_path / "texts.jsonl", [{"text": "the cat"}] * 30)
    assert "give --field NAME" in refusal(capsys, "train", path, "--steps", "1")
    (tmp_path / "broken.json").write_text("[{")
    assert not holds_examples(tmp_path / "broken.json")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    assert not holds_examples(tmp_path / "broken.parquet")


def test_tabs_are_pairs_only_for_a_model_that_is_fine_tuned(there, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the cat\tsat\n" * 3)
    files, known = DataFiles((pairs,)), load("smol", "cpu").stored
    config = known.settings("data", DataConfig)
    assert not ConversationDataset.suits(files, config, None)
    pairs.write_text("the cat sat\n" * 3)
    tokens = tokens_of(known, load("smol", "cpu").tokenizer)
    assert not ConversationDataset.suits(files, config, tokens)
    pairs.write_text("the cat\tsat\n" * 3)
    assert ConversationDataset.suits(files, config, tokens)


# ---- beside trl ----


@pytest.mark.long
def test_the_first_loss_is_that_of_trl(there, tmp_path):
    trl = pytest.importorskip("trl", reason="trl is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    records = [
        {"prompt": [user(one)], "completion": [assistant(other)]} for one, other in QUESTIONS
    ]
    config = trl.SFTConfig(
        output_dir=str(tmp_path / "trl"),
        max_steps=1,
        per_device_train_batch_size=len(records),
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(there / "smol", dtype=torch.float32)
    trainer = trl.SFTTrainer(
        model,
        config,
        train_dataset=datasets.Dataset.from_list(records),
        processing_class=transformers.AutoTokenizer.from_pretrained(there / "smol"),
    )
    trainer.train()
    (reference,) = (log["loss"] for log in trainer.state.log_history if "loss" in log)
    data = written(tmp_path / "pairs.jsonl", records)
    result, _ = tuned(data, val="none", steps=1, batch_size=len(records))
    assert result.train_loss == pytest.approx(reference, abs=1e-3)

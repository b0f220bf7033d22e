"""Seeded damage: values that options do not expect, and files that are not what they were."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from helpers_cli import installed, is_usable
from places import STORED

KINDS = STORED / "kinds"
MODELS = sorted(path.name for path in (STORED / "models").iterdir() if is_usable(path))
TEXT, TOKENS = STORED / "tiny.txt", STORED / "tiny.tok"
NINES = "9" * 400
NUMBERS = (
    *("-1", "0", "1e30", "1e308", "-1e308", "1e-320", "nan", "inf", "-inf", "", "x", "0x10"),
    *(NINES, "-" + NINES, "1" * 5000, "9223372036854775807", "9223372036854775808"),
    *("18446744073709551616", "2147483648", "1e400", "½", "٣", " 7", "1_000", "true", "none"),
)
TEXTS = ("", "x" * 10_000, "nan", ":", "+", "A+", "{}", "-", "é" * 300, "latest", "a\nb", "[b]")
TEXTS = (*TEXTS, "\udcff", "0", NINES, "\\", "%s", "\u202e", "1:2:3", "x:1e999", ".")
TEXTS = (*TEXTS, ":bytes", "latest:bytes", "latest:bytes=some", "x:bytes=all:0.5+latest:bytes")
VALUES: tuple[Any, ...] = (
    *(None, True, [], {}, "", "x", "nan", 0, -1, 1, 2, 0.5, 1e-300, 1e9, 1e30, 1e308, -1e308),
    *(10**9, 2**31, 2**63, 10**30, "9" * 400, [1, 2], {"a": 1}, [[]], "\0", "é" * 300),
)


def commands(folder: Path) -> dict[str, list[str]]:
    """Return a short call of every command; arguments come before the first option."""
    lstm, gru, counted = (
        str(STORED / "models" / name) for name in ("lstm-char", "gru-char", "ngram-whitespace")
    )
    words, masked, memory, labels = (
        str(KINDS / "models" / name) for name in ("word2vec", "bert", "hopfield", "bag-classifier")
    )
    text = str(TEXT)
    small = ["--hidden-size", "8", "--layers", "1", "--seq-len", "8", "--batch-size", "2"]
    once = ["--steps", "2", "--stop-after", "1"]
    calls = {
        "sample": ["ten", "-m", lstm, "--max-tokens", "4"],
        "beam-search": ["ten", "-m", lstm, "--max-tokens", "4"],
        "fill": ["a [MASK]", "-m", masked],
        "restore": ["tea", "-m", memory],
        "chat": ["-m", lstm, "--max-tokens", "4"],
        "serve": ["-m", "nobody", "--port", "0"],  # or it would not end
        "perplexity": [text, "-m", lstm],
        "tokenize": [text, "-m", lstm],
        "compress": [text, "-m", lstm],
        "replay": [text],
        "course": ["1.1", "--no-run"],
        "data": [text],
        "decompress": [text, "-m", lstm],
        "bleu": [text, text],
        "eval": ["-m", lstm, "--passages", "2"],
        "compare": [lstm, gru, "--data", text],
        "predict": [str(KINDS / "patterns.txt"), "-m", labels],
        "vectors": ["-m", words, "--neighbours", "tea"],
        "diagnose": [text, "-m", lstm, "--distance", "3"],
        "inspect": [text, "-m", lstm, "--max-tokens", "4"],
        "report": [lstm, "--out", str(folder / "page.html")],
        "novelty": [text, "--against", text],
        "mix": [lstm, gru, "--weights", "0.5,0.5"],
        "train": [text, "--model", "lstm", *small, *once],
        "tune": [text, "--trials", "1", "--steps", "1", "--search", "lr=0.1,0.2"],
        "find-lr": [text, "--model", "lstm", *small],
        "sweep": [text, "--models", "rnn", "--parameters", "3k", "--steps", "1"],
        "import": [str(folder / "small.arpa")],
        "export": [counted],
        "push": [counted, "hf:someone/model"],
        "models list": [],
        "models show": [lstm],
        "models path": [lstm],
        "models compare-runs": [lstm, gru],
        "models rename": ["renamed", "again"],
        "models remove": ["nobody", "--yes"],
        "models cache": [],
        "bench plan": [],
        "help": ["files"],
        "plugins": [],
    }
    return {n: [*n.split(), *call, "--quiet"] for n, call in installed(calls).items()}


def leaves(command: Any, *before: str) -> Iterator[tuple[str, Any]]:
    """Yield every command of the tree with its name, without the groups."""
    inside = getattr(command, "commands", None)
    if inside is None:
        yield " ".join(before), command
    for name, each in (inside or {}).items():
        yield from leaves(each, *before, name)


def odd_files(draw: random.Random, folder: Path) -> tuple[str, ...]:
    """Write files that no command expects, into a folder; return them and paths of none."""
    folder.mkdir()
    contents = {
        "empty": b"",
        "newlines": b"\n" * 50,
        "binary": draw.randbytes(3000),
        "zeros": bytes(3000),
        "latin.txt": "caf\u00e9\n".encode("latin-1"),
        "tabs.tsv": b"\t\t\n\t\n" * 9,
        "long line": b"ten at sea " * 4_000,
        "\u202e \U0001f600.txt": b"ten\n",
        "a\nb": b"ten\n",
        "-x": b"ten\n",
        "broken.gz": gzip.compress(b"ten\n" * 999)[:20],
        "broken.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'shape': (9",
        "broken.safetensors": struct.pack("<Q", 1 << 60) + b"{}",
        "list.json": b"[1, 2",
        "a.toml": b"steps = 'ten'\n[[",
        "a.html": b"<p>mine</p>",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "nowhere").symlink_to(folder / "nothing")
    made = (*contents, "folder", "loop", "nowhere", "no/such/file", "x" * 300)
    # None of the system's: some commands write, move and remove.
    return (*(str(folder / name) for name in made), "*")


def option_cases(draw: random.Random, folder: Path, count: int) -> list[list[str]]:
    """Return commands with an option of an unexpected value each, or with such an argument.

    Args:
        draw: what is drawn from.
        folder: where commands run, for files.
        count: of the cases; those of `train --set` come on top.
    """
    from seqgen.cli import make_app

    calls, files = commands(folder), odd_files(draw, folder / "odd")
    every: list[list[str]] = []
    for name, parser in leaves(typer.main.get_command(make_app())):
        call, words = calls[name], len(name.split())
        for place in range(words, len(call)):
            if call[place].startswith("-"):
                break
            values = draw.sample(NUMBERS, 2) + draw.sample(TEXTS, 6) + draw.sample(files, 12)
            every += [[*call[:place], value, *call[place + 1 :]] for value in values]
        for parameter in parser.params:
            given = [flag for flag in parameter.opts if flag.startswith("--")]
            flag = any(getattr(parameter, f"is_{kind}", False) for kind in ("flag", "bool_flag"))
            if not given or flag or given[0] == "--help":
                continue
            values = draw.sample(NUMBERS, 4) + draw.sample(TEXTS, 2) + draw.sample(files, 2)
            less = call
            if parameter.name in ("steps", "epochs", "minutes"):
                less = [a for a in call if a not in ("--steps", "2")]
            every += [[*less, given[0], value] for value in values]
    chosen = draw.sample(every, min(count, len(every)))
    return chosen + [[*calls["train"], *flags] for flags in _settings(draw)]


def _settings(draw: random.Random) -> Iterator[list[str]]:
    """Yield `--set` of every setting of every architecture, twice."""
    from seqgen import registry
    from seqgen.settings import DataConfig
    from seqgen.settings.training import TrainingConfig

    kinds = {name: row.load_config() for name, row in registry.ARCHITECTURES.items()}
    for name, kind in kinds.items():
        for setting in kind.fields():
            for value in draw.sample(NUMBERS, 2):
                yield ["--model", name, "--set", f"{setting}={value}"]
    for kind in (TrainingConfig, DataConfig):
        for field in fields(kind):
            if field.name not in ("init_from", "compile"):
                yield ["--set", f"{field.name}={draw.choice(NUMBERS)}"]


def damaged_models(draw: random.Random, folder: Path, count: int) -> Iterator[tuple[str, Path]]:
    """Yield copies of stored models, each damaged in one way, and what was done to it."""
    kinds = (_flip, _cut, _remove, _mutate_json, _mutate_json, _mutate_json, _mutate_header)
    for number in range(count):
        name = draw.choice(MODELS)
        path = Path(shutil.copytree(STORED / "models" / name, folder / f"{number}-{name}"))
        files = sorted(p for p in path.rglob("*") if p.is_file())
        if draw.random() < 0.6:  # a folder of an older version: nothing is held against hashes
            (path / "manifest.json").unlink()
            files.remove(path / "manifest.json")
        done = draw.choice(kinds)(draw, files)
        yield f"{path.name}: {done}", path


def _flip(draw: random.Random, files: list[Path]) -> str:
    path = draw.choice([path for path in files if path.stat().st_size])
    path.write_bytes(flipped(draw, path.read_bytes()))
    return f"bytes of {path.name} flipped"


def flipped(draw: random.Random, content: bytes) -> bytes:
    """Return the same bytes with a few of them changed."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 30))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(draw: random.Random, files: list[Path]) -> str:
    path = draw.choice(files)
    content = path.read_bytes()
    left = draw.choice((0, len(content) // 2, max(0, len(content) - 1)))
    path.write_bytes(content[:left] if draw.random() < 0.7 else content * 2)
    return f"{path.name} cut to {left} bytes, or doubled"


def _remove(draw: random.Random, files: list[Path]) -> str:
    path = draw.choice(files)
    path.unlink()
    if draw.random() < 0.5:
        path.mkdir()
    return f"{path.name} removed, or a folder"


def _mutate_json(draw: random.Random, files: list[Path]) -> str:
    known = ("config.json", "config.json", "training.json", "tokenizer.json", "manifest.json")
    name = draw.choice(known)
    path = next((path for path in files if path.name == name), None)
    path = path or next(path for path in files if path.name == "config.json")
    value, done = mutated(draw, json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(value), encoding="utf-8")
    return f"{path.name}: {done}"


def mutated(draw: random.Random, value: Any) -> tuple[Any, str]:
    """Return a JSON value with one place in it changed, and what was changed."""
    places = list(_places(value))
    if not places or draw.random() < 0.03:
        replaced = copy.deepcopy(draw.choice(VALUES))
        return replaced, f"all is {str(replaced)[:40]}"
    value = copy.deepcopy(value)
    at = draw.choice(places)
    holder = value
    for key in at[:-1]:
        holder = holder[key]
    action = draw.choice(("replace", "replace", "replace", "delete", "add"))
    if action == "delete":
        del holder[at[-1]]
    elif action == "add" and isinstance(holder, dict):
        holder["strange"] = draw.choice(VALUES)
    else:
        holder[at[-1]] = copy.deepcopy(draw.choice(VALUES))
        action = f"replace by {str(holder[at[-1]])[:40]}"
    return value, f"{action} {'.'.join(map(str, at))[:80]}"


def _places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    keys = value.keys() if isinstance(value, dict) else range(len(value[:20]))
    for key in keys:
        yield (*at, key)
        if isinstance(value[key], dict | list):
            yield from _places(value[key], (*at, key))


def _mutate_header(draw: random.Random, files: list[Path]) -> str:
    path = draw.choice([path for path in files if path.suffix == ".safetensors"])
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, done = mutated(draw, json.loads(content[8 : 8 + length]))
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + content[8 + length :])
    return f"header of {path.name}: {done}"


def model_commands(draw: random.Random, path: Path) -> list[list[str]]:
    """Return two commands to try a damaged model with."""
    model, text = str(path), str(TEXT)
    every = [
        ["perplexity", text, "-m", model],
        ["train", "--resume", model, "--data", text, "--stop-after", "6"],
        ["train", "--resume", model, "--data", text, "--steps", "9", "--stop-after", "6"],
        ["train", text, "--init-from", model, "--steps", "2", "--stop-after", "1"],
        ["train", text, "--config", str(path / "config.json"), "--stop-after", "1"],
        ["models", "show", model],
        ["eval", "-m", model, "--passages", "2"],
        ["compare", model, str(STORED / "models" / "lstm-char"), "--data", text],
        ["tokenize", text, "-m", model],
        ["beam-search", "-m", model, "--max-tokens", "5"],
        ["export", model],
        ["sample", "-m", f"{model}+{STORED / 'models' / 'lstm-char'}", "--max-tokens", "3"],
        ["sample", "ten", "-m", f"{model}:bytes", "--max-tokens", "3"],
        ["sample", "ten", "-m", model, "--heal", "--max-tokens", "3"],
        ["perplexity", text, "-m", f"{model}:bytes=all", "--covers", "3"],
    ]
    return [["sample", "-m", model, "--max-tokens", "5", "--json"], draw.choice(installed(every))]


# As in seqgen.text.tokenfile: a magic word, the table's offset, length and SHA-256.
HEAD = struct.Struct("<16sQQ32s")


def token_files(draw: random.Random, folder: Path, count: int) -> Iterator[tuple[str, Path]]:
    """Yield damaged token files, many of them with sums that are right."""
    content = TOKENS.read_bytes()
    for number in range(count):
        path = folder / f"{number}.tok"
        done = "bytes flipped"
        if number % 4 == 0:
            path.write_bytes(flipped(draw, content))
        else:
            change = _change_table if number % 4 < 3 else _change_section
            raw, done = change(draw, content)
            path.write_bytes(raw)
        yield f"{path.name}: {done}", path


def _table(content: bytes) -> tuple[int, dict]:
    _, offset, length, _ = HEAD.unpack(content[: HEAD.size])
    return offset, json.loads(content[offset : offset + length])


def _packed(content: bytes, offset: int, table: Any) -> bytes:
    """Return a token file with another table, and a sum that is right."""
    raw = json.dumps(table).encode()
    magic = HEAD.unpack(content[: HEAD.size])[0]
    head = HEAD.pack(magic, offset, len(raw), hashlib.sha256(raw).digest())
    return head + content[HEAD.size : offset] + raw


def _change_table(draw: random.Random, content: bytes) -> tuple[bytes, str]:
    offset, table = _table(content)
    table, done = mutated(draw, table)
    return _packed(content, offset, table), f"table: {done}"


def _change_section(draw: random.Random, content: bytes) -> tuple[bytes, str]:
    """Write other numbers into a section, and its sum."""
    offset, table = _table(content)
    changed = bytearray(content)
    name = draw.choice([name for name, place in table["sections"].items() if place["count"]])
    place = table["sections"][name]
    size = place["count"] * int(place["dtype"][2:])
    begin = place["offset"]
    for _ in range(draw.choice((1, 10))):
        changed[begin + draw.randrange(size)] = draw.choice((0, 1, 127, 200, 255))
    place["crc32"] = zlib.crc32(changed[begin : begin + size])
    return _packed(bytes(changed), offset, table), f"{name}: other numbers"


def token_commands(draw: random.Random, path: Path) -> list[list[str]]:
    """Return two commands to try a damaged token file with."""
    model, tokens = str(STORED / "models" / "lstm-char"), str(path)
    short = ["--steps", "2", "--stop-after", "1", "--hidden-size", "8", "--layers", "1"]
    every = [
        ["perplexity", tokens, "-m", model],
        ["train", tokens, "--model", "ngram", "--order", "3"],
        ["train", str(TEXT), "--val", tokens, *short],
        ["eval", tokens, "-m", model],
        ["compare", model, "--data", tokens],
        ["tokenize", tokens, "-m", model],
        ["tokenize", "--decode", tokens, "-m", model],
    ]
    return [["train", tokens, *short, "--seq-len", "8"], draw.choice(every)]


ARPA = """\\data\\
ngram 1=5
ngram 2=4
ngram 3=2

\\1-grams:
-0.7\ta\t-0.3
-0.7\tb\t-0.3
-1.0\t</s>
-99\t<s>\t-0.2
-1.2\t<unk>

\\2-grams:
-0.3\t<s> a\t-0.1
-0.4\ta b\t-0.1
-0.5\tb a
-0.6\tb </s>

\\3-grams:
-0.2\t<s> a b
-0.3\ta b </s>

\\end\\
"""
WORDS = (
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1e308",
    "-1e400",
    "0",
    "5",
    "x",
    "",
    "<s>",
    "<unk>",
    NINES,
)


def arpa_files(draw: random.Random, folder: Path, count: int) -> Iterator[tuple[str, Path]]:
    """Yield damaged ARPA files, some of them compressed."""
    changes: tuple[Callable, ...] = (_other_word, _other_word, _other_size, _lines, _bytes)
    for number in range(count):
        path = folder / f"{number}.arpa"
        raw, done = draw.choice(changes)(draw, ARPA)
        if number % 5 == 0:
            raw = gzip.compress(raw)
            raw = raw[: len(raw) - draw.choice((0, 1, 9, 40))]
        path.write_bytes(raw)
        yield f"{path.name}: {done}", path


def _other_word(draw: random.Random, text: str) -> tuple[bytes, str]:
    lines = text.split("\n")
    at = draw.choice([i for i, line in enumerate(lines) if "\t" in line])
    parts = lines[at].replace("\t", " ").split(" ")
    parts[draw.randrange(len(parts))] = draw.choice(WORDS)
    lines[at] = " ".join(parts)
    return "\n".join(lines).encode(), f"line {at + 1}: {lines[at][:60]}"


def _other_size(draw: random.Random, text: str) -> tuple[bytes, str]:
    order = draw.choice((1, 2, 3))
    size = draw.choice(("0", "-1", "3", "99", "1e9", "", "10000000000", NINES))
    lines = text.split("\n")
    lines[order] = f"ngram {draw.choice((order, order, 7))}={size}"
    return "\n".join(lines).encode(), lines[order][:60]


def _lines(draw: random.Random, text: str) -> tuple[bytes, str]:
    lines = text.split("\n")
    a, b = draw.randrange(len(lines)), draw.randrange(len(lines))
    action = draw.choice(("swap", "delete", "double", "cut"))
    if action == "swap":
        lines[a], lines[b] = lines[b], lines[a]
    elif action == "delete":
        del lines[a]
    elif action == "double":
        lines.insert(a, lines[a])
    else:
        del lines[a:]
    return "\n".join(lines).encode(), f"lines: {action} {a} {b}"


def _bytes(draw: random.Random, text: str) -> tuple[bytes, str]:
    return flipped(draw, text.encode()), "bytes flipped"

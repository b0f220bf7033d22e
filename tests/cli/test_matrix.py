"""Every command with every kind of model: an answer, or one line that says why there is none.

The tables say which. They were made of what every command said, each cell judged by the
documentation.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import fuzz_cases
import pytest
import typer
from forked import Server
from helpers_cli import has_plugin, installed, needs, refusal
from hf_models import TEXT as ENGLISH
from hf_models import byte_level, metaspace, sentencepiece_model
from make_kinds import RECIPES
from places import STORED

from seqgen.cli import run
from seqgen.engines.native.library import library
from seqgen.text.tokenizers import KINDS as OWN_TOKENIZERS

GIGABYTE = 1 << 30

# ---- the stored models, by what they are ----

RECURRENT = {"lstm", "lstm-backward"}
ATTENTIVE = {"transformer", "adapter", "imported-gpt2"}
NETWORKS = RECURRENT | ATTENTIVE | {"hawk", "window"}
NGRAMS = {"ngram", "ngram-words", "imported-arpa"}
COUNTED = NGRAMS | {"hmm"}
MIXTURES = {"mixture", "mixture-by-order"}
OF_TEXT = NETWORKS | COUNTED | MIXTURES
PAIRED = {"seq2seq", "seq2seq-two-tokenizers", "seq2seq-transformer", "seq2seq-vectors"}
OF_SOURCES = PAIRED | {"lstm-labels", "mixture-of-pairs", "imported-marian"}
LANGUAGE = OF_TEXT | OF_SOURCES
LABELLERS = {"bag-classifier", "transformer-classifier", "birnn-tagger", "elmo-tagger"}
BOTH_SIDES = {"bert", "elmo"}
WORDS = {"word2vec", "glove", "imported-vectors"}
MODELS = LANGUAGE | LABELLERS | BOTH_SIDES | WORDS | {"hopfield"}

IMPORTED = {name for name in MODELS if name.startswith("imported")}
MIXED = {name for name in MODELS if name.startswith("mixture")}
WITH_VECTORS = MODELS - COUNTED - MIXED - {"hopfield"}
TRAINED = WITH_VECTORS - IMPORTED
WORD_BY_WORD = {"elmo-tagger", *BOTH_SIDES, *WORDS}
# Models whose tokens, joined, are the text that they read from left to right.
BY_BYTES = OF_TEXT - {"lstm-backward", "ngram-words", "imported-arpa"}
SAME_TOKENS = {"hawk", "window", "transformer", "adapter", "ngram", "hmm"}
# Those that read drafted tokens.
READING_AHEAD = ATTENTIVE if library() is not None else set()
# Tracing them for ONNX takes many seconds each, and has tests of its own in test_onnx.py.
TRACED = {"lstm", "hawk", "transformer", "seq2seq-transformer"}
TRACED |= {"imported-gpt2", "imported-marian"}

# Of kinds that differ little, one is a slow test and the others are long ones.
TYPICAL = {"lstm", "transformer", "ngram", "hmm", "mixture", "seq2seq", "lstm-labels"}
TYPICAL |= {"bag-classifier", "birnn-tagger", "bert", "elmo", "word2vec", "hopfield"}

# ---- the commands ----

KINDS = str(STORED / "kinds")
TEXT, PAIRS = str(STORED / "tiny.txt"), f"{KINDS}/pairs.tsv"
VECTORS, TARGETS = f"--source-vectors {KINDS}/vectors.npy", f"{KINDS}/targets.txt"
LABELLED, EXAMPLES = f"{KINDS}/labelled.tsv", f"{KINDS}/examples.tsv"
TAGGED, LINES = f"{KINDS}/tagged.conll", f"{KINDS}/patterns.txt"
QUICK = "--steps 2 --seed 1 --batch-size 4 --json"
FILES = {
    "pairs": PAIRS,
    "labels": LABELLED,
    "classify": EXAMPLES,
    "tag": TAGGED,
    "vectors": TARGETS,
}
FILES |= {"patterns": LINES}
# What stands in the place of each name in braces: for one kind of data, else for all others.
PLACES: dict[str, dict[str, str]] = {
    "file": FILES,
    "source": {"vectors": VECTORS, "labels": "--label vowels", "pairs": "abc"},
    "scored": {**FILES, "vectors": f"{VECTORS} {TARGETS}"},
    "measured": {**FILES, "vectors": f"{VECTORS} --target {TARGETS}"},
    "compared": {
        **{kind: f"--data {file}" for kind, file in FILES.items()},
        "vectors": f"{VECTORS} --target {TARGETS}",
    },
    "data": {
        **FILES,
        "vectors": f"{VECTORS} --target {TARGETS}",
        "labels": f"{LABELLED} --labels",
        "classify": f"{EXAMPLES} --task classify",
        "tag": f"{TAGGED} --task tag",
    },
    "briefly": dict.fromkeys(("pairs", "vectors", "labels", "classify", "tag"), ""),
}
OTHERWISE = {"source": "", "compared": f"--data {TEXT}", "briefly": "--passages 2"}

# Flags of plugins that may not be there.
FROM_PLUGINS = ("--dynamic", "dynamic"), ("--lookup", "speculative"), ("--draft", "speculative")
ROWS: dict[str, set[str]] = {
    "tokenize {file} -m {model}": MODELS,
    "sample {source} -m {model} --max-tokens 5 --seed 3": LANGUAGE,
    "sample {source} -m {model} --max-tokens 9 --seed 3 --lookup 4": READING_AHEAD,
    "sample {source} -m {model} --max-tokens 9 --seed 3 --draft lstm": READING_AHEAD & SAME_TOKENS,
    "sample {source} -m {model}:bytes --max-tokens 5 --seed 3": BY_BYTES,
    "sample tea -m {model} --heal --max-tokens 5 --seed 3": BY_BYTES,
    "beam-search {source} -m {model} --max-tokens 5": LANGUAGE,
    "beam-search tea -m {model} --heal --max-tokens 5": BY_BYTES,
    "fill [MASK] -m {model}": {"bert"},
    "restore tex -m {model}": {"hopfield"},
    "perplexity -m {model}": LANGUAGE - IMPORTED | BOTH_SIDES,
    "perplexity {scored} -m {model}": LANGUAGE | BOTH_SIDES,
    "perplexity {scored} -m {model}:bytes": BY_BYTES,
    "perplexity {scored} -m {model}:bytes=all --covers 4": BY_BYTES,
    "perplexity {scored} -m {model} --per-line": LANGUAGE | BOTH_SIDES,
    "perplexity {scored} -m {model} --per-token": LANGUAGE,
    "perplexity {scored} -m {model} --cache 20": NETWORKS | MIXTURES,
    "perplexity {scored} -m {model} --dynamic 0.1": NETWORKS - {"lstm-backward"} | MIXTURES,
    "eval -m {model} {briefly}": LANGUAGE - IMPORTED | LABELLERS,
    "eval {measured} -m {model} {briefly}": LANGUAGE | LABELLERS,
    "compress {file} -m {model} --json": OF_TEXT - {"lstm-backward"} - NGRAMS | {"ngram"},
    "decompress {file} -m {model}": set(),
    "eval -m {model}:bytes {briefly}": BY_BYTES - IMPORTED,
    "compare {model} --resamples 20": LANGUAGE - IMPORTED | LABELLERS,
    "compare {model} {compared} --resamples 20": LANGUAGE | LABELLERS,
    "compare {model}:bytes {compared} --resamples 20": BY_BYTES,
    "predict {file} -m {model}": LABELLERS,
    "predict {file} -m {model}:bytes": set(),
    "vectors -m {model}": WITH_VECTORS,
    "vectors -m {model} --neighbours tea --top 2": WORD_BY_WORD,
    f"vectors -m {{model}} --file {LINES}": WITH_VECTORS - OF_SOURCES,
    "diagnose {file} -m {model} --distance 5": NETWORKS,
    "inspect {file} -m {model} --max-tokens 5": OF_TEXT,
    "inspect {file} -m {model} --steps --max-tokens 3": RECURRENT,
    "inspect {file} -m {model} --units": RECURRENT,
    "inspect {file} -m {model} --attention --max-tokens 9": ATTENTIVE | {"bert"},
    "report {model} --out page.html": MODELS - {"imported-arpa", "imported-gpt2"},
    "export {model} --out exported": NGRAMS | TRACED,
    "export {model} --format hf --out hf": TRACED - {"lstm", "hawk", "seq2seq-transformer"},
    "export {model} --format onnx --out onnx": TRACED,
    "export {model} --format gguf --out model.gguf": {"imported-gpt2", "transformer"},
    "export {model} --format peft --out peft": {"adapter"},
    "export {model} --format arpa --out model.arpa": NGRAMS,
    f"import {KINDS}/tiny.arpa --like {{model}} --json": {"ngram-words", "imported-arpa"},
    "mix lstm {model} --json": SAME_TOKENS,
    f"train {{data}} --init-from {{model}} {QUICK}": WITH_VECTORS,
    f"train {EXAMPLES} --task classify --init-from {{model}} {QUICK}": (
        NETWORKS - {"lstm-backward"} | LABELLERS | {"bert"}
    ),
    f"train {TAGGED} --task tag --features {{model}} --hidden-size 8 {QUICK}": (
        NETWORKS - {"lstm-backward"} | WORDS | {"elmo"}
    ),
    "train --resume {model} {compared} --json": TRAINED,
    "models show {model}": MODELS,
    "models show {model} --all": MODELS,
    "models path {model}": MODELS,
    "models compare-runs lstm {model}": MODELS - {"lstm"},
    "models list": MODELS,
    "models rename {model} other --json": MODELS,
    "models remove other --yes --json": MODELS,
}
# Commands that no stored model is given to, and one that does not end.
WITHOUT_MODEL = {
    "bench plan",
    "bleu",
    "chat",
    "course",
    "data",
    "find-lr",
    "help",
    "plugins",
    "novelty",
    "push",
    "replay",
    "serve",
    "sweep",
    "tune",
    "models cache",
}


def arguments(row: str, name: str) -> list[str]:
    """Return the command of a row for a stored model."""
    kind = RECIPES[name].kind
    places = {p: by.get(kind, OTHERWISE.get(p, TEXT)) for p, by in PLACES.items()}
    return row.format(model=name, **places).split()


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def test_every_command_has_a_row():
    from seqgen.cli import make_app

    leaves = {name for name, _ in fuzz_cases.leaves(typer.main.get_command(make_app()))}
    given = {name for name in leaves for row in ROWS if f"{row} ".startswith(f"{name} ")}
    assert leaves - given == {*installed([*WITHOUT_MODEL])}
    assert {RECIPES[name].kind for name in MODELS} >= PLACES["data"].keys()


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        ("lstm", "train {file} --config no.toml", "there is no file no.toml"),
        ("imported-arpa", "train --resume {model}", "was imported, so there is no run to resume"),
        pytest.param(
            "lstm-labels",
            f"train {EXAMPLES} --task classify --init-from {{model}} {QUICK}",
            "lstm-labels writes texts given their labels",
            marks=needs("labels"),
        ),
    ],
)
def test_a_refusal_names_what_was_asked(name, row, why, home, capsys):
    shutil.copytree(STORED / "kinds" / "models" / name, home / "models" / name)
    assert why in refusal(capsys, *arguments(row, name))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in TYPICAL else pytest.mark.long)
        for name in sorted(MODELS)
    ],
)
def test_every_command_answers_or_says_why_not(name, server, tmp_path):
    home, folder = tmp_path / "home", tmp_path / "work"
    folder.mkdir()
    for each in {name, *RECIPES[name].needs, "lstm"}:
        shutil.copytree(STORED / "kinds" / "models" / each, home / "models" / each)
    found = []
    for row, answering in installed(ROWS).items():
        if any(flag in row and not has_plugin(plugin) for flag, plugin in FROM_PLUGINS):
            continue
        if (":bytes" in row or "--heal" in row) and not has_plugin("bytes"):
            continue
        if name in TRACED and ("onnx" in row or row == "export {model} --out exported"):
            continue
        command = arguments(row, name)
        outcome = server.run(command, home, folder)
        said = outcome.err.splitlines()
        if name in answering:
            files = [folder / b for a, b in itertools.pairwise(command) if a == "--out"]
            answered = outcome.out or any(file.exists() for file in files)
            fault = outcome.code != 0 or not answered or "Traceback" in outcome.err
        else:
            fault = outcome.code not in (1, 2) or outcome.out or len(said) != 1
            fault = fault or not said[0].startswith("seqgen") or "internal error" in said[0]
        if fault or outcome.rss > GIGABYTE:
            shown = f"{outcome.code}, {outcome.rss >> 20} MB, {outcome.out[:80]!r}"
            found.append(f"{' '.join(command)}: {shown}: {outcome.err[-300:]}")
    assert not found, "\n".join(found)


# ---- every task with every kind of tokenizer ----

SMALL = "--layers 1 --hidden-size 8"
# What each task is learned with, and asked afterwards.
TASKS = {
    "stream": (f"{TEXT} --model transformer --heads 2 {SMALL} --seq-len 8", f"perplexity {TEXT}"),
    "lines": (f"{TEXT} --documents line --model gru {SMALL}", f"perplexity {TEXT} --per-line"),
    "counted": (f"{TEXT} --model ngram", "sample --max-tokens 3"),
    "pairs": (f"{PAIRS} --model seq2seq {SMALL}", "beam-search abc --max-tokens 3"),
    "labels": (f"{LABELLED} --labels --model gru {SMALL}", "sample --label vowels --max-tokens 3"),
    "vectors": (
        f"{VECTORS} --target {TARGETS} --model seq2seq {SMALL}",
        f"perplexity {VECTORS} {TARGETS}",
    ),
    "classes": (
        f"{EXAMPLES} --task classify --model transformer --heads 2 {SMALL}",
        f"predict {LINES}",
    ),
    "tags": (f"{TAGGED} --task tag --model birnn --hidden-size 8", f"eval {TAGGED}"),
    "words": (f"{TEXT} --model word2vec --set embedding_size=8", f"vectors --file {LINES}"),
    "counted words": (f"{TEXT} --model glove --set embedding_size=8", f"vectors --file {LINES}"),
    "masked": (f"{TEXT} --model bert --heads 2 {SMALL} --seq-len 16", "fill [MASK]"),
    "both sides": (f"{TEXT} --model elmo {SMALL} --seq-len 8", f"perplexity {TEXT}"),
    "memory": (f"{LINES} --model hopfield", "restore tea"),
}
LINE_BY_LINE = TASKS.keys() - {"stream", "counted", "words", "counted words", "masked"}


def all_texts() -> str:
    """Return all that the tasks are learned from, so that every character is known."""
    files = [TEXT, PAIRS, LABELLED, EXAMPLES, TAGGED, LINES, TARGETS]
    return ENGLISH + "".join(Path(file).read_text() for file in files)


def learned(model, trainer, split, **special):
    """Return a `tokenizer.json` that a library has learned, with its special tokens."""
    from tokenizers import Tokenizer

    library = Tokenizer(model)
    library.pre_tokenizer = split
    library.train_from_iterator([all_texts()], trainer(special_tokens=["<s>"], **special))
    return library


def some_bytes():
    """Byte pairs without a token for every byte, and none for unknown ones."""
    from tokenizers import decoders, models, pre_tokenizers, trainers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library = learned(models.BPE(), trainers.BpeTrainer, split, vocab_size=120)
    library.decoder = decoders.ByteLevel()
    return library


def known_words():
    """Whole words, none of which is for unknown ones."""
    from tokenizers import models, pre_tokenizers, trainers

    split = pre_tokenizers.Whitespace()
    return learned(models.WordLevel(), trainers.WordLevelTrainer, split)


def json_folder(make, **names):
    """Return what writes a folder of Hugging Face."""

    def write(folder):
        pytest.importorskip("tokenizers", reason="tokenizers is not installed")
        folder.mkdir()
        make().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
        return folder

    return write


def model_file(folder):
    """Write a `.model` of sentencepiece."""
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(sentencepiece_model(all_texts().split("\n"), 420))
    return folder / "tokenizer.model"


ENDS = {"bos_token": "<s>", "eos_token": "<s>"}
TEXT_END = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
TOKENIZERS = {
    **{kind: lambda folder, kind=kind: kind for kind in OWN_TOKENIZERS},
    "all bytes": json_folder(byte_level, **TEXT_END),
    "some bytes": json_folder(some_bytes, **ENDS),
    "no end": json_folder(some_bytes, bos_token="<s>"),
    "known words": json_folder(known_words, **ENDS),
    "pieces": json_folder(metaspace, bos_token="<s>", eos_token="</s>"),
    "file": model_file,
    "folder": lambda folder: model_file(folder).parent,
    **{
        name: lambda folder, name=name: STORED / "kinds" / "models" / name
        for name in ("imported-gpt2", "imported-llama", "imported-marian", "imported-bart")
    },
}
REFUSED = {(kind, "both sides"): "input=char-cnn is for words" for kind in ("char", "byte")}
REFUSED |= {("no end", task): "no token of the tokenizer ends a line" for task in LINE_BY_LINE}
REFUSED |= {("known words", "asked pairs"): "the tokenizer cannot encode a text"}


@pytest.mark.fast_for("some bytes", "no end", "known words", "imported-gpt2")
@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_task_is_learned_with_every_tokenizer(tokenizer, server, tmp_path):
    home, tokens = tmp_path / "home", str(TOKENIZERS[tokenizer](tmp_path / "tokenizer"))
    size = ["--vocab-size", "300"] * (tokenizer in ("bpe", "unigram", "wordpiece"))
    found = []
    for task, (flags, question) in TASKS.items():
        quick = "--seed 1 --name m --overwrite --quiet"
        quick += "" if "ngram" in flags or "hopfield" in flags else " --steps 2 --batch-size 4"
        learning = ["train", *flags.split(), *quick.split(), "--tokenizer", tokens, *size]
        for asked, command in ((task, learning), (f"asked {task}", f"{question} -m m".split())):
            outcome, refused = server.run(command, home, tmp_path), (tokenizer, asked) in REFUSED
            if refused:
                said = outcome.err.splitlines()
                fault = len(said) != 1 or REFUSED[tokenizer, asked] not in said[0]
            if (refused and fault) or (not refused and outcome.code != 0):
                found.append(f"{' '.join(command)}: {outcome.code}: {outcome.err[-300:]}")
            if refused:
                break
    assert not found, "\n".join(found)


@pytest.mark.parametrize("task", ["pairs", "classes", "tags", "words"])
def test_a_tokenizer_may_have_no_unknown_token(task, tmp_path):
    pytest.importorskip("seqgen.plugins.exchange")
    folder, flags = TOKENIZERS["some bytes"](tmp_path / "tokenizer"), TASKS[task][0].split()
    quick = ["--steps", "2", "--batch-size", "4", "--name", "m", "--quiet"]
    assert run(["train", *flags, *quick, "--tokenizer", str(folder)]) == 0
    assert run(["models", "show", "m"]) == 0

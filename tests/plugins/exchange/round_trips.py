"""Models that leave for another program and come back: do both compute, write and read the same?

A small model of every shape that can leave is trained with every tokenizer that can.
transformers reads what seqgen has exported and writes it again itself, and seqgen imports that.
llama.cpp and KenLM only read, so that seqgen imports its own file; ONNX graphs do not come back.

`python tests/plugins/exchange/round_trips.py TEXT PAIRS --through PROGRAM` writes a table of
docs/evidence/round-trips.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from llama_cpp import ask_llama_cpp
from nasty import nasty_texts
from torch import Tensor

from seqgen import load, registry
from seqgen.models.ngram.settings import Smoothing
from seqgen.plugins.exchange.arpa import names_of
from seqgen.plugins.exchange.exchange import export_model, import_model
from seqgen.plugins.exchange.formats import NumberType
from seqgen.scoring.api import Model
from seqgen.training.train import train

LENGTH, BEAMS, PROMPTS, TOKENS = 50, 4, 8, 100
PLAIN = {"qk_norm": False}
LEARNED = {**PLAIN, "positions": "learned", "norm": "layernorm", "bias": True}
# Shapes of decoders, by what transformers calls them, and what is special about each.
DECODERS: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "llama": PLAIN,
    "llama, biases": {**PLAIN, "qkv_bias": True},
    "mistral": {**PLAIN, "sliding_window": 20},
    "gpt2": {**LEARNED, "activation": "gelu"},
    "gpt2, relu": {**LEARNED, "activation": "relu"},
}
FORM = {"norm": "layernorm", "activation": "relu", "qk_norm": False, "bias": True}
SINUSOIDS = {**FORM, "positions": "sinusoidal", "scale_embedding": True}
TABLES = {**FORM, "positions": "learned", "embedding_norm": True}
# The same of encoder-decoders.
PAIRS: dict[str, dict[str, Any]] = {
    "marian": {**SINUSOIDS, "norm_position": "post"},
    "bart": {**TABLES, "norm_position": "post"},
    "pegasus": {**SINUSOIDS, "norm_position": "pre"},
    "mbart": {**TABLES, "norm_position": "pre"},
}
TOKENIZERS: dict[str, int | None] = {
    "char": None,
    "byte": None,
    "word": 2000,
    "bpe": 1000,
    "unigram": 1000,
}
SIZES = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "batch_size": 8, "seed": 1}
SIZES |= {"precision": "float32", "val": "none"}


# What llama.cpp reads in other ways; see docs/export.md.
UNLIKE = {"bpe": "\u2581\x10"}
TYPES = [number_type for number_type in get_args(NumberType) if number_type != "f32"]
LLAMA_CPP = ("qwen3", "llama", "llama, biases", "gpt2", *(f"qwen3 as {x}" for x in TYPES))
# "delta" has no backoff weights; KenLM takes no model whose unknown word has no probability.
SMOOTHINGS = [name for name in get_args(Smoothing) if name != "add-delta"]


@dataclass(frozen=True, kw_only=True)
class RoundTrip:
    """One model's way; what the other program does not do is None.

    Attributes:
        written_as: the shape that it has there.
        tokenizer: the kind of its tokenizer.
        logits: the largest difference of a logit there, or of a log-probability.
        back: the largest difference of a logit after it has come back.
        greedy: prompts of `prompts` whose 50 likeliest tokens are the same there.
        beams: the same of the best of 4 beams.
        prompts: how many.
        strings: odd texts of `of_strings` that have the same ids there.
        strings_back: the same after it has come back.
        of_strings: how many.
        perplexity: of some tokens of the text, here and there.
    """

    written_as: str
    tokenizer: str
    logits: float
    back: float | None = None
    greedy: int | None = None
    beams: int | None = None
    prompts: int = PROMPTS
    strings: int | None = None
    strings_back: int | None = None
    of_strings: int = 0
    perplexity: tuple[float, float] | None = None


@dataclass(frozen=True)
class Way:
    """What is measured through a program.

    Attributes:
        shapes: names of `DECODERS`, of `PAIRS`, or what else `measured` knows.
        tokenizers: each model has each of these.
        measured: takes a shape, a tokenizer, the data, odd texts, steps of training and a folder.
    """

    shapes: Sequence[str]
    tokenizers: Sequence[str]
    measured: Callable[[str, str, Path, list[str], int, Path], RoundTrip]


def measure(
    text: Path,
    pairs: Path,
    strings: int,
    steps: int = 60,
    only: str = "",
    through: str = "transformers",
) -> Iterator[RoundTrip]:
    """Yield the round trip of every shape with every tokenizer.

    Args:
        text: what the decoders are trained on.
        pairs: what the encoder-decoders are trained on: source, tab, target.
        strings: how many odd texts are read.
        steps: of training.
        only: measure only cases that contain this.
        through: a key of `WAYS`.
    """
    odd, way = nasty_texts(text.read_text(encoding="utf-8")[:1_000_000], strings), WAYS[through]
    for shape, kind in itertools.product(way.shapes, way.tokenizers):
        if only in f"{shape} {kind}":
            with _home() as folder:
                data = pairs if shape in PAIRS else text
                yield way.measured(shape, kind, data, odd, steps, folder)


@contextmanager
def _home() -> Iterator[Path]:
    """Store models in a folder of their own for a while."""
    before = os.environ.get("SEQGEN_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQGEN_HOME"] = f"{folder}/home"
        try:
            yield Path(folder)
        finally:
            os.environ.pop("SEQGEN_HOME")
            os.environ.update({} if before is None else {"SEQGEN_HOME": before})


def _trained(shape: str, kind: str, data: Path, steps: int) -> Model:
    """Train a model of a shape that is named in a table, or else is an architecture."""
    own = {"tokenizer": kind, "vocab_size": TOKENIZERS[kind], "steps": steps}
    longest = {"max_source_len": 120, "max_target_len": 120} if shape in PAIRS else {"seq_len": 128}
    settings = {**SIZES, **own, **longest, **{**DECODERS, **PAIRS}.get(shape, {})}
    architecture = "seq2seq-transformer" if shape in PAIRS else "transformer"
    if shape in _cells():
        architecture = shape
        del settings["num_heads"]
    settings = {name: x for name, x in settings.items() if x is not None}
    train([data], architecture=architecture, name="own", settings=settings)
    return load("own", "cpu")


def _through_transformers(
    shape: str, kind: str, data: Path, odd: list[str], steps: int, folder: Path
) -> RoundTrip:
    import transformers

    paired, ours = shape in PAIRS, _trained(shape, kind, data, steps)
    export_model(ours.loaded, "hf", folder / "out")
    auto = transformers.AutoModelForSeq2SeqLM if paired else transformers.AutoModelForCausalLM
    theirs = auto.from_pretrained(folder / "out").eval()
    library = transformers.AutoTokenizer.from_pretrained(folder / "out")
    theirs.save_pretrained(folder / "theirs")
    library.save_pretrained(folder / "theirs")
    import_model(folder / "theirs", name="again")
    again = load("again", "cpu")
    prompts = _prompts(ours, data)
    found = [_generated(theirs, library, ours, prompts, beams) for beams in (1, BEAMS)]
    # The same tokenizer reads the same ids in a model of another shape.
    files = tuple((folder / of / "tokenizer.json").read_bytes() for of in ("out", "theirs"))
    if files not in READ:
        ids = _ids_of(ours, odd)
        READ[files] = _same(ids, _their_ids(library, odd, paired)), _same(ids, _ids_of(again, odd))
    wanted = _logits(ours, prompts[0])
    return RoundTrip(
        written_as=shape,
        tokenizer=kind,
        logits=_distance(wanted, _their_logits(theirs, ours, prompts[0])),
        back=_distance(wanted, _logits(again, prompts[0])),
        greedy=_same(_texts(ours.sample(prompts, greedy=True, max_tokens=LENGTH)), found[0]),
        beams=_same(_texts(ours.beam_search(prompts, **SEARCH)), found[1]),
        prompts=PROMPTS,
        strings=READ[files][0],
        strings_back=READ[files][1],
        of_strings=len(odd),
    )


def _through_llama_cpp(
    shape: str, kind: str, data: Path, odd: list[str], steps: int, folder: Path
) -> RoundTrip:
    shape, _, number_type = shape.partition(" as ")
    ours, path = _trained(shape, kind, data, steps), folder / "own.gguf"
    export_model(ours.loaded, "gguf", path, number_type=number_type or "f32")
    import_model(path, name="again")
    again = load("again", "cpu")
    alphabet = getattr(ours.loaded.tokenizer, "alphabet", None)
    unlike = UNLIKE.get(kind, "") if alphabet is None else {*"".join(odd)} - {*alphabet}
    texts = [text for text in odd if not {*text} & {*unlike}]
    prompts, ids = _prompts(ours, data), _beginning(ours, data)
    size = ours.loaded.model.vocab_size
    questions = [["tokenize", text] for text in texts]
    questions += [["greedy", prompt, LENGTH] for prompt in prompts]
    questions += [["next", ids[: at + 1], size] for at in range(len(ids) - 1)]
    answers = iter(ask_llama_cpp(path, questions))
    read, written = (list(itertools.islice(answers, len(of))) for of in (texts, prompts))
    theirs = torch.tensor([[x for _, x in sorted(answer)] for answer in answers])
    # Of fewer bits, the model that they make is what both compute.
    model = again if number_type else ours
    with torch.no_grad():
        wanted = model.loaded.model(torch.tensor([ids]))[0][0].log_softmax(-1)
    back = None if number_type else _distance(_logits(ours, ""), _logits(again, ""))
    return RoundTrip(
        written_as=f"{shape} as {number_type}" if number_type else shape,
        tokenizer=kind,
        logits=_distance(wanted[:-1], theirs),
        back=back,
        greedy=_same(_texts(model.sample(prompts, greedy=True, max_tokens=LENGTH)), written),
        strings=_same(_ids_of(ours, texts), read),
        strings_back=_same(_ids_of(ours, texts), _ids_of(again, texts)),
        of_strings=len(texts),
        perplexity=tuple(_perplexity(x, ids) for x in (wanted[:-1], theirs)),
    )


def _beginning(ours: Model, data: Path) -> list[int]:
    """Return the ids of the beginning of a text, after what comes before it."""
    text = data.read_text(encoding="utf-8")[:2000]
    return [ours.loaded.framing.start, *ours.loaded.tokenizer.encode(text)[:TOKENS].tolist()]


def _perplexity(log_probs: Tensor, ids: Sequence[int]) -> float:
    of_tokens = log_probs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    return math.exp(-of_tokens.double().mean().item())


def _cells() -> list[str]:
    """Return the architectures that are written as a recurrent step."""
    rows = registry.ARCHITECTURES.items()
    return [name for name, row in rows if getattr(row.load_model(), "recurrent", False)]


def _through_onnx(
    shape: str, kind: str, data: Path, odd: list[str], steps: int, folder: Path
) -> RoundTrip:
    import onnxruntime

    ours, out = _trained(shape, kind, data, steps), folder / "out"
    export_model(ours.loaded, "onnx", out)
    about = json.loads((out / "onnx.json").read_text(encoding="utf-8"))
    graphs = {path.stem: onnxruntime.InferenceSession(str(path)) for path in out.glob("*.onnx")}

    def memory_of(prompt: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what a source is to the graph of whole texts, and to the step."""
        if "encoder" not in graphs:
            return {}, {}
        (read,) = _ids_of(ours, [prompt])
        source = {"source": np.array([read]), "source_lengths": np.array([len(read)])}
        names = [output.name for output in graphs["encoder"].get_outputs()]
        made = dict(zip(names, graphs["encoder"].run(None, source), strict=True))
        return source, {**made, "source_lengths": source["source_lengths"]}

    def stepped(tokens: Sequence[int], known: dict[str, Any], most: int) -> tuple[Any, list[int]]:
        """Return the logits after each of some tokens, and the likeliest tokens after them all."""
        state = {name: np.zeros(shape, np.float32) for name, shape in about["state"].items()}
        unread, all_logits, written = [*tokens], [], []
        while unread or (len(written) < most and not {*written[-1:]} & {*about["stop"]}):
            inputs = {"tokens": np.array([[unread.pop(0)]]), **known, **state}
            logits, *after = graphs["step"].run(None, inputs)
            state = dict(zip(state, after, strict=True))
            all_logits.append(logits[0, -1].copy())
            if not unread and len(written) < most:
                logits[..., about["never"]] = -np.inf
                written.append(int(logits[0, -1].argmax()))
                unread = [] if len(written) == most else written[-1:]
        return np.stack(all_logits), written

    prompts, some, tokenizer = _prompts(ours, data), _some(ours), ours.loaded.tokenizer
    source, known = memory_of(prompts[0])
    (whole,) = graphs["whole"].run(None, {**source, "tokens": some.numpy()})
    step, _ = stepped(some[0].tolist(), known, 0)
    texts = []
    for prompt in prompts:
        _, known = memory_of(prompt)
        tokens = [*about["start"], *([] if known else tokenizer.encode(prompt).tolist())]
        _, ids = stepped(tokens, known, LENGTH)
        texts.append(tokenizer.decode([i for i in ids if i not in about["stop"]]))
    wanted = _logits(ours, prompts[0])
    return RoundTrip(
        written_as=shape,
        tokenizer=kind,
        logits=max(_distance(wanted, torch.from_numpy(x)) for x in (whole[0], step)),
        greedy=_same(_texts(ours.sample(prompts, greedy=True, max_tokens=LENGTH)), texts),
    )


def _through_kenlm(
    shape: str, kind: str, data: Path, odd: list[str], steps: int, folder: Path
) -> RoundTrip:
    import kenlm

    settings = {"tokenizer": kind, "vocab_size": TOKENIZERS[kind], "documents": "line"}
    settings = {name: x for name, x in settings.items() if x is not None}
    settings |= {"order": 4, "smoothing": shape, "val": "none"}
    train([data], architecture="ngram", name="own", settings=settings)
    ours, path = load("own", "cpu"), folder / "own.arpa"
    export_model(ours.loaded, "arpa", path)
    import_model(path, name="again", like="own")
    again = load("again", "cpu")
    theirs, tokenizer = kenlm.Model(str(path)), ours.loaded.tokenizer
    names = {token: name for name, token in names_of(tokenizer, "line").items()}
    lines = data.read_text(encoding="utf-8").split("\n")[:3000][-2000:]
    found: list[tuple[float, float, float]] = []
    for line in (line for line in lines if line):
        ids = [tokenizer.bos_id, *tokenizer.encode(line).tolist(), tokenizer.eos_id]
        scored = theirs.full_scores(" ".join(names[i] for i in ids[1:-1]))
        here, back = (
            x.loaded.model(torch.tensor([ids]))[0][0].log_softmax(-1)[range(len(ids) - 1), ids[1:]]
            for x in (ours, again)
        )
        there = [log10 * math.log(10) for log10, *_ in scored]
        found += zip(here.tolist(), there, back.tolist(), strict=True)
    here, there, back = (torch.tensor(column).double() for column in zip(*found, strict=True))
    return RoundTrip(
        written_as=shape,
        tokenizer=kind,
        logits=_distance(here, there),
        back=_distance(here, back),
        perplexity=(math.exp(-here.mean()), math.exp(-there.mean())),
    )


WAYS = {
    "transformers": Way([*DECODERS, *PAIRS], [*TOKENIZERS], _through_transformers),
    "llama.cpp": Way(LLAMA_CPP, ("char", "byte", "bpe"), _through_llama_cpp),
    "onnx": Way(["qwen3", "mistral", "gpt2", *PAIRS, *_cells()], ["char"], _through_onnx),
    "kenlm": Way(SMOOTHINGS, ("word", "char", "bpe"), _through_kenlm),
}

# Of each tokenizer, as it left and as it came back: how many texts have the same ids.
READ: dict[tuple[bytes, ...], tuple[int, int]] = {}
SEARCH = {"beams": BEAMS, "length_norm": "avg", "max_tokens": LENGTH}


def _prompts(ours: Model, data: Path) -> list[str]:
    """Return what texts are written from: sources, or the beginnings of long lines; all known."""
    source = ours.loaded.source_tokenizer
    tokenizer = source or ours.loaded.tokenizer
    lines = data.read_text(encoding="utf-8").split("\n")
    sides = [line.split("\t")[0] if source else line[:30] for line in lines]
    known = (
        side for side in dict.fromkeys(sides) if tokenizer.unk_id not in tokenizer.encode(side)
    )
    long = [side for side in known if len(side) >= 30]
    return long[:: len(long) // PROMPTS][:PROMPTS]


def _texts(records: Iterable[Any]) -> list[str]:
    return [record.text for record in records]


def _generated(theirs: Any, library: Any, ours: Model, prompts: list[str], beams: int) -> list[str]:
    """Return what the other program writes, decoded here without what begins and ends it."""
    texts, how = [], {"num_beams": beams, "do_sample": False, "max_new_tokens": LENGTH}
    if beams > 1:
        how |= {"early_stopping": "never", "length_penalty": 1.0}
    tokenizer, stop = ours.loaded.tokenizer, ours.loaded.framing.stop
    for prompt in prompts:
        asked = library(prompt, return_tensors="pt")
        ids = theirs.generate(**asked, **how)[0].tolist()
        begin = 1 if theirs.config.is_encoder_decoder else asked.input_ids.shape[1]
        ends = (tokenizer.pad_id, stop)
        texts.append(tokenizer.decode([i for i in ids[begin:] if i not in ends]))
    return texts


@torch.no_grad()
def _logits(ours: Model, prompt: str) -> Tensor:
    """Return logits of tokens that follow one another, after a source if the model reads one."""
    model, source = ours.loaded.model, ours.loaded.source_tokenizer
    memory = []
    if source is not None:
        memory = [model.remember(ours.loaded.conditioning.encode([prompt]).rows([0]))]
    return model(_some(ours), *memory)[0]


@torch.no_grad()
def _their_logits(theirs: Any, ours: Model, prompt: str) -> Tensor:
    """Return the same of the other program."""
    ids, source = _some(ours), ours.loaded.source_tokenizer
    if source is None:
        return theirs(ids).logits
    (read,) = _ids_of(ours, [prompt])
    return theirs(torch.tensor([read]), decoder_input_ids=ids).logits


def _some(ours: Model) -> Tensor:
    return torch.arange(100)[None] * 7 % ours.loaded.model.vocab_size


def _distance(one: Tensor, other: Tensor) -> float:
    return (one - other).abs().max().item()


def _ids_of(ours: Model, texts: list[str]) -> list[list[int]]:
    """Return the ids of texts, of sources if the model reads some."""
    source = ours.loaded.source_tokenizer
    if source is None:
        return [ours.loaded.tokenizer.encode(text).tolist() for text in texts]
    return [list(source.as_source(source.encode(text).tolist())) for text in texts]


def _their_ids(library: Any, texts: list[str], paired: bool) -> list[list[int]]:
    return library(texts, add_special_tokens=paired).input_ids


def _same(one: Sequence[Any], other: Sequence[Any]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def main() -> None:
    """Write the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("pairs", type=Path, help="source, tab, target")
    parser.add_argument("--strings", type=int, default=10_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--through", choices=WAYS, default="transformers")
    asked = parser.parse_args()
    kinds = WAYS[asked.through].tokenizers
    for cells in (["written as", *kinds], ["---"] * (1 + len(kinds))):
        _put(cells)
    trips = measure(asked.text, asked.pairs, asked.strings, only=asked.only, through=asked.through)
    for shape, row in itertools.groupby(trips, lambda trip: trip.written_as):
        cells = {trip.tokenizer: _cell(trip) for trip in row}
        _put([shape, *(cells.get(kind, "") for kind in kinds)])


def _cell(trip: RoundTrip) -> str:
    """Return the largest difference of a logit, and whatever is not the same to the last one."""
    counts = {
        "greedy": (trip.greedy, trip.prompts),
        "beams": (trip.beams, trip.prompts),
        "texts": (trip.strings, trip.of_strings),
        "texts back": (trip.strings_back, trip.of_strings),
    }
    known = {name: (n, of) for name, (n, of) in counts.items() if n is not None}
    lacking = [f"{name} {n:,} of {of:,}" for name, (n, of) in known.items() if n < of]
    lacking += [f"back {trip.back:.1e}"] if trip.back else []
    if trip.perplexity is not None:
        lacking.append("perplexity {:.6g} and {:.6g}".format(*trip.perplexity))
    return "; ".join([f"{trip.logits:.1e}" if trip.logits else "0", *lacking])


def _put(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

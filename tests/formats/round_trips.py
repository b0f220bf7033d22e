"""Models that leave for another program and come back: do both compute, write and read the same?

A small transformer of every shape that can leave is trained with every tokenizer that can. The
other program reads what seqgen has exported and writes it again itself, and seqgen imports that.

`python tests/formats/round_trips.py TEXT PAIRS` writes the table in docs/elsewhere.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nasty import nasty_texts
from torch import Tensor

from seqgen.commands.exchange import export_model, import_model
from seqgen.commands.training.train import train
from seqgen.commands.writing.model import Model, load

LENGTH, BEAMS, PROMPTS = 50, 4, 8
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


@dataclass(frozen=True, kw_only=True)
class RoundTrip:
    """One model's way; the keys of `python -m tests.benchmarks round-trips --json`, in order.

    Attributes:
        written_as: the shape that it has in transformers.
        tokenizer: the kind of its tokenizer.
        logits: the largest difference of a logit there.
        back: the largest difference of a logit after it has come back.
        greedy: prompts of `prompts` whose 50 likeliest tokens are the same there.
        beams: the same of the best of 4 beams.
        prompts: how many.
        strings: odd texts of `of_strings` that have the same ids there.
        strings_back: the same after it has come back.
        of_strings: how many.
    """

    written_as: str
    tokenizer: str
    logits: float
    back: float
    greedy: int
    beams: int
    prompts: int
    strings: int
    strings_back: int
    of_strings: int


def measure(
    text: Path, pairs: Path, strings: int, steps: int = 60, only: str = ""
) -> Iterator[RoundTrip]:
    """Yield the round trip of every shape with every tokenizer.

    Args:
        text: what the decoders are trained on.
        pairs: what the encoder-decoders are trained on: source, tab, target.
        strings: how many odd texts are read.
        steps: of training.
        only: measure only cases that contain this.
    """
    odd = nasty_texts(text.read_text(encoding="utf-8")[:1_000_000], strings)
    cases = [(shape, kind, text) for shape in DECODERS for kind in TOKENIZERS]
    cases += [(shape, kind, pairs) for shape in PAIRS for kind in TOKENIZERS]
    for shape, kind, data in cases:
        if only in f"{shape} {kind}":
            with _home() as folder:
                yield _measured(shape, kind, data, odd, steps, folder)


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


def _measured(
    shape: str, kind: str, data: Path, odd: list[str], steps: int, folder: Path
) -> RoundTrip:
    """Train a model, and send it there and back; see `measure`."""
    import transformers

    paired = shape in PAIRS
    own = {"tokenizer": kind, "vocab_size": TOKENIZERS[kind], "steps": steps}
    longest = {"max_source_len": 120, "max_target_len": 120} if paired else {"seq_len": 128}
    settings = {**SIZES, **own, **longest, **(PAIRS if paired else DECODERS)[shape]}
    settings = {name: x for name, x in settings.items() if x is not None}
    architecture = "seq2seq-transformer" if paired else "transformer"
    train([data], architecture=architecture, name="own", settings=settings)
    ours = load("own", "cpu")
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
        memory = [model.remember(ours.loaded.given.encode([prompt]).rows([0]))]
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
    asked = parser.parse_args()
    for cells in (["written as", *TOKENIZERS], ["---"] * (1 + len(TOKENIZERS))):
        _put(cells)
    trips = measure(asked.text, asked.pairs, asked.strings, only=asked.only)
    for shape, row in itertools.groupby(trips, lambda trip: trip.written_as):
        cells = {trip.tokenizer: _cell(trip) for trip in row}
        _put([shape, *(cells.get(kind, "") for kind in TOKENIZERS)])


def _cell(trip: RoundTrip) -> str:
    """Return the largest difference of a logit, and whatever is not the same to the last one."""
    counts = {
        "greedy": (trip.greedy, trip.prompts),
        "beams": (trip.beams, trip.prompts),
        "texts": (trip.strings, trip.of_strings),
        "texts back": (trip.strings_back, trip.of_strings),
    }
    lacking = [f"{name} {n:,} of {of:,}" for name, (n, of) in counts.items() if n < of]
    lacking += [f"back {trip.back:.1e}"] if trip.back else []
    return "; ".join([f"{trip.logits:.1e}" if trip.logits else "0", *lacking])


def _put(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

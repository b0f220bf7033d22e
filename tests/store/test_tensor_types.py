"""Stored tensors of other types, shapes or orders: refused by every engine, or converted alike."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers_cli import known_kinds, records
from make_kinds import RECIPES
from places import STORED
from safetensors import safe_open

from seqgen import registry, store
from seqgen.cli import run
from seqgen.engines.weights import FLOATS, type_of
from seqgen.errors import SeqgenError
from seqgen.files import tensor_header
from seqgen.store.loading import Work, load_any

FLOAT_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": None}
WHOLE_TYPES = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U8": "|u1", "BOOL": "|b1"}
ALL_TYPES = FLOAT_TYPES | WHOLE_TYPES
Stored = dict[str, tuple[str, tuple[int, ...], bytes]]  # by name: type, shape, content


def read(path: Path) -> Stored:
    first, header = tensor_header(path)
    content = path.read_bytes()[first:]
    return {
        name: (about["dtype"], tuple(about["shape"]), content[slice(*about["data_offsets"])])
        for name, about in header.items()
    }


def write(path: Path, tensors: Stored, facts: dict[str, str] | None = None) -> None:
    header, content = {"__metadata__": facts} if facts else {}, b""
    # As safetensors has it, the widest first, so that each is aligned.
    widths = {name: len(raw) // max(1, np.prod(shape)) for name, (_, shape, raw) in tensors.items()}
    for name in sorted(tensors, key=lambda name: -widths[name]):
        kind, shape, raw = tensors[name]
        place = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": kind, "shape": [*shape], "data_offsets": place}
        content += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


def numbers(kind: str, raw: bytes) -> np.ndarray:
    """Return what bytes of a type are, in a type that has all of them."""
    if kind == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(raw, ALL_TYPES[kind])


def as_type(kind: str, values: np.ndarray) -> bytes:
    if kind == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    with np.errstate(invalid="ignore", over="ignore"):
        return values.astype(ALL_TYPES[kind]).tobytes()


def changes(kind: str, shape: tuple[int, ...], raw: bytes) -> Iterator[tuple[str, tuple]]:
    """Yield what a tensor is changed to, and how."""
    values = numbers(kind, raw)
    for other in ALL_TYPES:
        if other != kind:
            yield f"as {other}", (other, shape, as_type(other, values))
    if values.size > 1:
        yield "flat and one shorter", (kind, (values.size - 1,), raw[: -len(raw) // values.size])
    yield "one dimension more", (kind, (1, *shape), raw)
    if shape != shape[::-1]:
        yield "transposed", (kind, shape[::-1], raw)
    if kind == "I64" and values.size > 1:
        yield "reversed", (kind, shape, values[::-1].tobytes())
        yield "from below 0", (kind, shape, (values - values[0] - 1).tobytes())
        yield "past the end", (kind, shape, (values + (1 << 40)).tobytes())
        yield "twice the same", (kind, shape, np.repeat(values[::2], 2)[: values.size].tobytes())


@pytest.fixture
def stored(home):
    """Return what copies a stored model, without hashes, into the home."""

    def copy(name: str) -> Path:
        if name not in RECIPES:
            shutil.copytree(STORED / "models" / name, home / "models" / name)
        else:
            for each in (name, *RECIPES[name].needs):
                shutil.copytree(STORED / "kinds" / "models" / each, home / "models" / each)
        (home / "models" / name / "manifest.json").unlink()
        return home / "models" / name

    return copy


def loaded_or_refused(folder: Path, work: Work | None) -> tuple[object | None, str]:
    """Return a model, or what is said instead."""
    try:
        return load_any(store.find_all(folder), work=work).model, ""
    except SeqgenError as error:
        return None, str(error)


def tensors_of(model: object) -> dict[str, np.ndarray]:
    if isinstance(model, torch.nn.Module):
        return {name: x.double().numpy() for name, x in model.state_dict().items()}
    return {}


of_some = pytest.mark.fast_for(
    *("gru", "ngram", "hmm", "hopfield", "word2vec", "bag-classifier", "mixture-by-order"),
    rest="slow",
)


@pytest.mark.fast_for("gru", "ngram", "hmm", "mixture-by-order", rest="slow")
@of_some
@pytest.mark.parametrize("name", [*known_kinds(RECIPES), "ngram-backoff", "ngram-kn"])
def test_a_tensor_of_another_type_shape_or_order_is_refused_or_converted(name, stored):
    """By every engine."""
    path = stored(name) / "model.safetensors"
    whole = read(path)
    engines, refused = (Work(), None), 0  # arrays where there are any, and PyTorch
    for tensor in whole:
        for how, changed in changes(*whole[tensor]):
            write(path, {**whole, tensor: changed})
            wanted = how.removeprefix("as ") in FLOAT_TYPES and whole[tensor][0] in FLOAT_TYPES
            for work in engines:
                model, said = loaded_or_refused(path.parent, work)
                refused += model is None
                if model is None:
                    assert "\n" not in said and "damaged" in said, (tensor, how)
                    assert not wanted or one_type(tensor), (tensor, how, said)
                    continue
                assert wanted, (tensor, how, work)
                own = tensors_of(model).get(tensor)
                if own is not None:
                    found = numbers(changed[0], changed[2]).reshape(own.shape)
                    np.testing.assert_array_equal(own, found.astype(np.float32))
    assert refused


def one_type(tensor: str) -> bool:
    """Whether a tensor need not be converted.

    The weights of a mixture must sum to 1 but for rounding, and both matrices of an adapter have
    one type.
    """
    return tensor in ("weights", "by_order", "gate") or ".lora_" in tensor


@pytest.mark.fast_for("1", rest="slow")
@pytest.mark.parametrize("native", ["1", "0"])
def test_tables_of_other_types_are_one_line_of_the_command(native, stored, monkeypatch, capsys):
    if native == "0":
        monkeypatch.setattr("seqgen.models.ngram.arrays.library", lambda: None)
    path = stored("ngram") / "model.safetensors"
    whole = read(path)
    ask = ("perplexity", STORED / "tiny.txt", "-m", path.parent)
    (before,) = records(capsys, *ask)
    for tensor, about in whole.items():
        for how, changed in changes(*about):
            write(path, {**whole, tensor: changed})
            if (about[0], how) == ("F32", "as F64"):
                (after,) = records(capsys, *ask)
                assert after["nll_nats"] == before["nll_nats"]
            elif not how.startswith("as F") and how != "as BF16":
                assert run(list(map(str, ask))) == 1, (tensor, how)
                said = capsys.readouterr()
                assert said.err.count("\n") == 1 and "damaged" in said.err and not said.out


CHECKPOINT = ("model.embedding.weight", "optimizer.1.0.exp_avg", "state.layers.0.0")


@pytest.mark.fast_for("optimizer*", "state*", rest="slow")
@pytest.mark.parametrize("tensor", [*CHECKPOINT, "average.0"])
def test_checkpoints_are_checked_before_training_goes_on(tensor, stored, capsys):
    name = "lstm-two-layers" if tensor.startswith("average") else "gru"
    folder = stored(name)
    path = folder / "checkpoints" / "last.safetensors"
    with safe_open(path, "np") as file:
        facts = file.metadata()
    whole = read(path)
    resume = ["train", "--resume", str(folder), "--data", str(STORED / "tiny.txt"), "--quiet"]
    for how, changed in changes(*whole[tensor]):
        if how in ("as I8", "as I64", "flat and one shorter", "transposed"):
            write(path, {**whole, tensor: changed}, facts)
            assert run([*resume, "--stop-after", "6"]) == 1, (tensor, how)
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and "does not fit its model" in said, (how, said)


def test_the_types_that_array_models_expect_are_those_of_the_modules():
    special = {"window": 8, "char_filters": 1, "within_words": True, "ngrams": 2}
    for name, row in registry.ARCHITECTURES.items():
        kind = row.load_config()
        known = {field.name for field in dataclasses.fields(kind)}
        settings = {key: value for key, value in special.items() if key in known}
        settings |= {"batch_norm": True, "dropout": 0.0} if name == "lstm" else {}
        model = row.load_model()(kind(vocab_size=9, **settings))
        for tensor, own in model.state_dict().items():
            found = FLOATS if own.is_floating_point() else str(own.dtype).removeprefix("torch.")
            assert type_of(tensor) == found, (name, tensor)

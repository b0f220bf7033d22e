"""Matrices in the types of their files, against the gguf package and float64."""

import numpy as np
import pytest
import torch

from seqgen.engines import blocks
from seqgen.engines.arrays import Affine
from seqgen.engines.blocks import NUMBERS, TYPES, BlockMatrix, StoredRows, dequantize
from seqgen.engines.fast_layers import frozen_linear
from seqgen.engines.native.library import library
from seqgen.engines.native.maps import NativeBlockMap
from seqgen.engines.native.recording import Recording, record_program

gguf = pytest.importorskip("gguf", reason="gguf is not installed")

compiled = pytest.mark.skipif(library() is None, reason="the kernels are not compiled")


def drawn_rows(kind, rows, inputs, seed=0):
    """Draw rows of a type: any bits, but finite numbers."""
    draw = np.random.default_rng(seed)
    size, width = TYPES[kind].size, TYPES[kind].width
    if kind in NUMBERS:
        whole = draw.normal(size=(rows, inputs)).astype("f4")
        as_type = gguf.GGMLQuantizationType[kind]
        return gguf.quants.quantize(whole, as_type).view(np.uint8).reshape(rows, -1)
    raw = draw.integers(256, size=(rows, inputs // size, width)).astype(np.uint8)
    of_halves = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}
    pairs = kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
    for at in of_halves.get(kind, (0, 2) if pairs else (0,)):
        scales = draw.normal(size=(rows, inputs // size, 1)) / 64
        raw[..., at : at + 2] = scales.astype("<f2").view(np.uint8)
    return raw.reshape(rows, -1)


def theirs(raw, kind):
    return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])


@pytest.mark.parametrize("compiled_too", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_numbers_are_those_of_the_gguf_package(kind, compiled_too, monkeypatch):
    if not compiled_too:
        monkeypatch.setattr(blocks, "library", lambda: None)
    raw = drawn_rows(kind, 5, 512)
    assert np.array_equal(dequantize(raw, kind), theirs(raw, kind))


@compiled
@pytest.mark.parametrize("kind", TYPES)
def test_products_are_those_of_the_numbers_and_the_same_for_a_row_alone(kind):
    matrix = BlockMatrix([StoredRows(kind, drawn_rows(kind, 37, 512))])
    draw = np.random.default_rng(1)
    bias, whole = draw.normal(size=37).astype("f4"), theirs(matrix.parts[0].raw, kind)
    x = draw.normal(size=(11, 512)).astype("f4")
    product = NativeBlockMap(matrix, bias)
    found, expected = product(x), x.astype("f8") @ whole.T + bias
    assert np.abs(found - expected).max() < 1e-6 * np.abs(whole).max() * 512
    for count in range(1, 11):
        assert np.array_equal(product(x[:count]), found[:count])


@compiled
@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("inputs", [1, 7, 31, 32, 77])
def test_rows_of_any_length(kind, inputs):
    raw = drawn_rows(kind, 3, inputs)
    x = np.random.default_rng(2).normal(size=(5, inputs)).astype("f4")
    found = NativeBlockMap(BlockMatrix([StoredRows(kind, raw)]), None)(x)
    assert np.allclose(found, x @ theirs(raw, kind).T, atol=1e-5)


def test_a_frozen_map_of_blocks_is_that_of_its_numbers():
    matrix = BlockMatrix([StoredRows("Q4_1", drawn_rows("Q4_1", 12, 64))])
    whole = torch.from_numpy(theirs(matrix.parts[0].raw, "Q4_1"))
    gradients = []
    for weight in (matrix, whole):
        x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = frozen_linear(x, weight, torch.arange(12.0))
        assert torch.equal(y, torch.nn.functional.linear(x, whole, torch.arange(12.0)))
        gradients += torch.autograd.grad(y.square().sum(), x)
    assert torch.equal(*gradients)


STACKED = [("Q4_K", 64), ("Q6_K", 32), ("BF16", 5), ("Q8_0", 3)]


def stacked():
    """Make a matrix of rows of several types."""
    return BlockMatrix(StoredRows(kind, drawn_rows(kind, count, 256)) for kind, count in STACKED)


def test_a_matrix_of_several_types_is_read_back_from_its_bytes():
    matrix = stacked()
    whole = np.concatenate([theirs(part.raw, part.kind) for part in matrix.parts])
    assert matrix.kinds == "Q4_K 64, Q6_K 32, BF16 5, Q8_0 3"
    again = BlockMatrix.read(np.frombuffer(b"".join(matrix.pieces()), np.uint8), matrix.kinds)
    for one in (matrix, again):
        assert one.shape == (104, 256) and len(one) == 104
        assert np.array_equal(np.asarray(one), whole)
        ids = np.array([[0, 103], [70, 99], [101, 64]])
        assert np.array_equal(one[ids], whole[ids])
        assert np.array_equal(one[70], whole[70])
        assert np.array_equal(np.asarray(one[60:102]), whole[60:102])
    two = BlockMatrix([*matrix.parts[:1], *matrix.parts[:1]])
    assert two.kinds == "Q4_K 128"


@pytest.mark.parametrize("compiled_too", [True, False])
def test_maps_of_several_types_alone_and_in_a_recorded_step(compiled_too, monkeypatch):
    if not compiled_too:
        monkeypatch.setattr("seqgen.engines.arrays.library", lambda: None)
    matrix = stacked()
    draw = np.random.default_rng(3)
    bias, x = draw.normal(size=104).astype("f4"), draw.normal(size=(6, 256)).astype("f4")
    whole = np.asarray(matrix).T.astype("f8")
    affine = Affine(matrix, bias)
    error = np.abs(affine(x) - (x @ whole + bias))
    assert (error <= 1e-6 * (np.abs(x) @ np.abs(whole))).all()
    if compiled_too and library() is not None:
        program = record_program(lambda x: [affine(x)], [(256,)], Recording())
        assert np.array_equal(program(6, [x])[0], affine(x))


@pytest.mark.parametrize(
    ("size", "kinds"),
    [
        (144, "Q4_K 2"),
        (100, "Q4_K 1"),
        (34, "Q9_9 1"),
        (34, "Q8_0"),
        (34, "Q8_0 -1"),
        (0, "Q8_0 0"),
        (34 + 144, "Q8_0 1, Q4_K 1"),
        (34, ""),
        (30, "BF16 4"),
        (34, None),
        (34, 7),
    ],
)
def test_bytes_that_are_no_such_rows_are_refused(size, kinds):
    with pytest.raises(ValueError, match="rows of type"):
        BlockMatrix.read(np.zeros(size, np.uint8), kinds)

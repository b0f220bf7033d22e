"""Weights mapped from their file: those that safetensors reads, and files that are damaged."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from seqgen.mapped_tensors import mapped_arrays

ARRAYS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.array([2.5, -1.0]),
    "keys": np.array([1, 1 << 40]),
    "number": np.array(7, dtype=np.int64),
    "nothing": np.zeros((0, 3), dtype=np.float32),
}


def write(path, header, content=b"\0" * 64):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    return path


def test_arrays_are_those_that_were_stored(tmp_path):
    save_file(ARRAYS, tmp_path / "w", metadata={"format": "pt"})
    found = mapped_arrays(tmp_path / "w")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        kind = np.float32 if array.dtype == np.float64 else array.dtype
        assert found[name].dtype == kind and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)


def test_types_of_other_engines_are_left_to_them(tmp_path):
    header = {"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    assert mapped_arrays(write(tmp_path / "w", header)) is None


@pytest.mark.parametrize(
    "about",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1 << 62], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [32], "data_offsets": [0, 128]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]},
        {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": "2", "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0.0, 8.0]},
        {"dtype": "F32", "shape": [2]},
        {"dtype": "F32", "shape": None, "data_offsets": None},
        [],
    ],
)
def test_a_weight_that_is_not_where_the_header_says(about, tmp_path):
    with pytest.raises(ValueError, match="header"):
        mapped_arrays(write(tmp_path / "w", {"a": about}))


@pytest.mark.parametrize("header", [b"", b"[]", b"[" * 200_000, b"{", b"\xff{}", b"7"])
def test_a_header_that_is_none(header, tmp_path):
    with pytest.raises(ValueError):
        mapped_arrays(write(tmp_path / "w", header))


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "w"
    path.write_bytes(content)
    with contextlib.suppress(ValueError, OSError):  # any other error is a fault
        assert isinstance(mapped_arrays(path), dict | None)

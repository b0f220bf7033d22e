"""Weights mapped from their file: those that safetensors reads, and files that are damaged."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from seqgen import mapped_tensors as mapped
from seqgen.engines.native.library import library
from seqgen.engines.weights import STORED, mapped_arrays
from seqgen.mapped_tensors import forget_pages

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


def resident(path):
    """Return how many bytes of a mapped file are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    found = (line for line in lines if line.endswith(f" {path}"))
    return sum(
        1024 * int(next(one for one in lines if one.startswith("Rss:")).split()[1]) for _ in found
    )


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells it there")
def test_memory_of_a_mapped_array_is_given_back_and_its_numbers_stay(tmp_path):
    few = {name: np.arange(1 << 10, dtype=np.float32) for name in "ab"}
    save_file(few, tmp_path / "few")
    read = mapped_arrays(tmp_path / "few")
    forget_pages(read["a"])  # it was read, and is in no file any more
    np.testing.assert_array_equal(read["a"], few["a"])
    arrays = {name: np.arange(1 << 22, dtype=np.float32) for name in "ab"}
    save_file(arrays, tmp_path / "w")
    mapped = mapped_arrays(tmp_path / "w")
    assert all(mapped[name].sum() > 0 for name in "ab")
    whole = resident(tmp_path / "w")
    assert whole >= 2 * arrays["a"].nbytes
    forget_pages(mapped["a"])
    assert resident(tmp_path / "w") <= whole - arrays["a"].nbytes + (1 << 16)
    for name in "ab":
        np.testing.assert_array_equal(mapped[name], arrays[name])
    own = arrays["b"].copy()
    own.flags.writeable = False
    forget_pages(own)  # no file to read it from again
    np.testing.assert_array_equal(own, arrays["b"])


def test_types_of_other_engines_are_left_to_them(tmp_path):
    header = {"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}
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


@pytest.mark.parametrize(("largest", "whole"), [(mapped.READ_UP_TO, False), (0, True)])
def test_what_was_read_stays_when_its_file_is_cut_short_or_written_over(
    largest, whole, tmp_path, monkeypatch
):
    monkeypatch.setattr(mapped, "READ_UP_TO", largest)
    before = {name: array.astype(np.float32) for name, array in ARRAYS.items()}
    for damage in (lambda file: file.truncate(0), lambda file: file.write(b"x" * 4096)):
        save_file(ARRAYS, tmp_path / "w")
        found = mapped_arrays(tmp_path / "w", whole)
        with (tmp_path / "w").open("r+b") as file:
            damage(file)
        for name, array in before.items():
            np.testing.assert_array_equal(found[name].astype(np.float32), array)


def test_a_large_file_takes_no_memory_until_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "READ_UP_TO", 100)
    save_file(ARRAYS, tmp_path / "w")
    found = mapped.mapped_tensors(tmp_path / "w", STORED)
    assert all(isinstance(found[name], np.memmap) for name in ("a.weight", "b", "keys"))


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path, monkeypatch):
    save_file({"a": np.zeros(1 << 15)}, tmp_path / "w")

    def memory(*size, **flags):
        os.truncate(tmp_path / "w", 1 << 16)
        return bytearray(size[1])

    monkeypatch.setattr(mapped.mmap, "mmap", memory)
    with pytest.raises(ValueError, match="shorter"):
        mapped_arrays(tmp_path / "w")


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "w"
    path.write_bytes(content)
    with contextlib.suppress(ValueError, OSError):  # any other error is a fault
        assert isinstance(mapped_arrays(path), dict | None)


READ_WHAT_IS_GONE = """
import os, pathlib, sys
from seqgen.cli.shell.process import prepare
import seqgen.mapped_tensors as mapped
mapped.READ_UP_TO = 0
prepare("perplexity")
path = pathlib.Path(sys.argv[1])
tensors = mapped.mapped_tensors(path, {"F32": "<f4", "F64": "<f8", "I64": "<i8"})
os.truncate(path, 0)
print(tensors["a.weight"].sum())
"""


@pytest.mark.skipif(library() is None, reason="only compiled code can take the signal")
def test_a_command_ends_in_a_line_if_a_mapped_file_is_cut_short(tmp_path):
    save_file(ARRAYS, tmp_path / "w")
    command = [sys.executable, "-c", READ_WHAT_IS_GONE, str(tmp_path / "w")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("seqgen: a file was cut short")

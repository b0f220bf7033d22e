"""Vector files, `.npy` and `.safetensors`, memory-mapped: sources of translation."""

from __future__ import annotations

import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqgen.errors import SeqgenError, first_line, reporting_unreadable
from seqgen.files import require_regular, tensor_header
from seqgen.mapped_tensors import mapped_tensors
from seqgen.settings.data import VECTOR_FILES
from seqgen.text.sources import Vectors, VectorSources

# The types of safetensors that NumPy has too.
TYPES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "BOOL": "?",
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
}
# The two tensors of a file whose sources differ in length.
VALUES, LENGTHS = "values", "lengths"
SHAPES = "(N, F) for a vector each, or (N, ..., F) for a sequence or a grid of vectors each"
# What NumPy and `json` raise on a header that is wrong.
DAMAGED = (
    *(ValueError, TypeError, KeyError, EOFError, SyntaxError, OverflowError, RecursionError),
    *(MemoryError, tokenize.TokenError),
)
# So many numbers are checked at a time.
BLOCK = 1 << 22


@dataclass(frozen=True)
class VectorFile:
    """A memory-mapped file of vector sources.

    Attributes:
        path: where it is.
        sources: its vectors, mapped from the file.
    """

    path: Path
    sources: VectorSources

    def __len__(self) -> int:
        return len(self.sources)

    def vectors(self, number: int) -> Vectors:
        """Return source `number`, named `name[number]`."""
        begin, end = self.sources.starts[number], self.sources.ends[number]
        return Vectors(self.sources.values[begin:end], f"{self.path.name}[{number}]")


def is_vector_file(path: str | Path) -> bool:
    """Check whether a file name is that of a vector file."""
    return Path(path).suffix in VECTOR_FILES


def open_vectors(path: str | Path) -> VectorFile:
    """Memory-map and check a file of vectors. Nothing in it is unpickled.

    A `.npy` file holds one array; see `SHAPES`. A `.safetensors` file holds one such tensor, or
    two where sources differ in length: `values` (all vectors of all sources, F) and `lengths`.

    Raises:
        SeqgenError: it is missing, damaged, of another shape or type, or has a value that is no
            finite number.
    """
    path = Path(path)
    if not is_vector_file(path):
        raise SeqgenError(
            f"{path} is not a file of vectors: the name of one ends in .npy or .safetensors"
        )
    arrays = _arrays(path)
    if set(arrays) == {VALUES, LENGTHS}:
        file = VectorFile(path, _ragged(path, arrays[VALUES], arrays[LENGTHS]))
    elif len(arrays) == 1:
        (values,) = arrays.values()
        _require(path, values.ndim >= 2, f"has shape {values.shape}; it must be {SHAPES}")
        _require(path, values.size > 0, f"has shape {values.shape}: it contains no vectors")
        file = VectorFile(path, VectorSources.of(values))
    else:
        names = ", ".join(sorted(arrays)) or "none"
        only = f"it should have only one, or {VALUES} and {LENGTHS}"
        raise SeqgenError(f"{path} has these tensors: {names}; {only}")
    _check_numbers(file)
    return file


def _require(path: Path, good: bool, problem: str) -> None:
    if not good:
        raise SeqgenError(f"{path} {problem}")


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    """Memory-map the arrays of a file by name; the array of a `.npy` file is named ""."""
    with reporting_unreadable(path):
        try:
            if require_regular(path).suffix != ".npy":
                return _tensors(path)
            # Unlike `numpy.load`, this reads no other format, and refuses objects by their header.
            with np.errstate(over="ignore"):  # what its header says may be absurd
                return {"": np.lib.format.open_memmap(path, mode="r")}
        except DAMAGED as error:
            kind = path.suffix.removeprefix(".")
            raise SeqgenError(f"{path} is damaged or no {kind} file: {first_line(error)}") from None


def _tensors(path: Path) -> Mapping[str, np.ndarray]:
    """Memory-map the tensors of a safetensors file, which the library itself would copy.

    Raises:
        OSError, ValueError: it cannot be read, or is damaged.
        SeqgenError: a tensor has a type that NumPy does not have.
    """
    for about in tensor_header(path)[1].values():
        kind = about["dtype"]
        _require(path, kind in TYPES, f"has the type {kind}; save its vectors as F16 or F32")
    return mapped_tensors(path, TYPES)


def _ragged(path: Path, values: np.ndarray, lengths: np.ndarray) -> VectorSources:
    """Build sources of different lengths from concatenated vectors and lengths."""
    shapes = f"has {VALUES} {values.shape} and {LENGTHS} {lengths.shape}"
    fits = values.ndim == 2 and lengths.ndim == 1 and lengths.dtype.kind in "iu"
    _require(path, fits, f"{shapes}; they must be (vectors, F), and a whole number a source")
    _require(path, values.size > 0, "contains no vectors")
    _require(path, bool((lengths >= 1).all()), "has a source without a vector")
    longer = f"has a source of more than its {len(values):,} vectors"
    _require(path, bool((lengths <= len(values)).all()), longer)
    ends = np.cumsum(lengths, dtype=np.int64)
    total = ends[-1] if len(ends) else 0
    together = f"has {LENGTHS} that sum to {total:,}, and {len(values):,} vectors"
    _require(path, total == len(values), together)
    return VectorSources(values, ends)


def _check_numbers(file: VectorFile) -> None:
    """Refuse vectors with infinite or undefined numbers.

    Raises:
        SeqgenError: names the first source that has it.
    """
    values = file.sources.values  # (N, F)
    if values.dtype.kind not in "fiub":
        raise SeqgenError(f"{file.path} has the type {values.dtype}; vectors are numbers")
    rows = max(1, BLOCK // file.sources.features)
    for at in range(0, len(values), rows):
        with np.errstate(over="ignore"):
            finite = np.isfinite(values[at : at + rows].astype(np.float32)).all(1)
        if not finite.all():
            row = at + int(finite.argmin())
            number = int(np.searchsorted(file.sources.ends, row, side="right"))
            raise SeqgenError(
                f"{file.path}: source {number} (from 0 on) has a value that is not a finite number"
            )

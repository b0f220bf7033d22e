"""What a safetensors file says of itself, without the tensors."""

from __future__ import annotations

from pathlib import Path


def shapes_of(weights: Path) -> dict[str, list[int]]:
    """Return the shapes of a file's tensors by name.

    Raises:
        OSError: the file cannot be read.
        SafetensorError: its header is damaged, or does not fit the file.
    """
    from safetensors import safe_open

    with safe_open(weights, "pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118

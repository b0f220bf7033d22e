"""Pictures drawn by matplotlib, which is an extra: what all of them have in common."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from seqgen.errors import UsageError
from seqgen.files import replacing
from seqgen.packages import require_packages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = (".svg", ".png")


def check_plot(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before the work begins.

    Raises:
        UsageError: the name has another ending.
        SeqgenError: matplotlib is not installed; says how to install it.
    """
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"--plot writes {' or '.join(KINDS)} files: give {path} such a name")
    require_packages("--plot", "matplotlib")


def is_picture(path: Path) -> bool:
    """Return whether a file begins as one of these pictures does."""
    with path.open("rb") as file:
        head = file.read(512)
    return head.startswith(b"\x89PNG") or b"<svg" in head or b"DOCTYPE svg" in head


def save_picture(path: Path, figure: Figure) -> None:
    """Write a figure of matplotlib into an .svg or .png file."""
    from matplotlib import rc_context

    # Texts stay texts in an SVG, and the same figure gives the same file.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "seqgen"}
    how = {"metadata": {"Date": None}} if path.suffix.lower() == ".svg" else {"dpi": 120}
    with rc_context(settings), warnings.catch_warnings(), replacing(path) as file:
        warnings.simplefilter("ignore")  # about characters that no font has
        figure.savefig(file, format=path.suffix[1:].lower(), **how)

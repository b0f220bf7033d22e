"""Settings shared by several architectures, with documentation, bounds and search range."""

from __future__ import annotations

from typing import Any

from seqgen.registry import SHARED_DOCS
from seqgen.settings import ranges
from seqgen.settings.setting import Choices, Span, setting

DOCS = SHARED_DOCS | {
    "residual": "Add the input of each layer but the first to its output (residual connections).",
    "qk_norm": "Normalise queries and keys (Henry et al. 2020), by RMS norms whose gains take the"
    " place of the paper's one factor.",
    "tie_weights": "Share the embedding matrix with the softmax layer (Press and Wolf 2017).",
}
BOUNDS = {
    "hidden_size": ranges.WIDTHS,
    "num_layers": ranges.LAYERS,
    "num_heads": ranges.WIDTHS,
    "dropout": ranges.SHARES_BELOW_1,
}
SEARCH = {"hidden_size": Choices((0.5, 1, 2), relative=True), "dropout": Span(0.0, 0.5)}


def shared(name: str, default: Any, remark: str = "", **about: Any) -> Any:
    """Create a setting that several architectures share, with its default here.

    Args:
        name: of the setting.
        default: its default in this architecture.
        remark: is added to its documentation.
        about: what differs of its bounds and its search, see `setting`.
    """
    usual = {"bounds": BOUNDS.get(name), "search": SEARCH.get(name)}
    return setting(DOCS[name] + remark, default, **{**usual, **about})

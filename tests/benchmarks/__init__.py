"""Measuring speed against plain baselines, in one run, as medians of alternated runs."""

from __future__ import annotations

from collections.abc import Sequence

from seqgen.settings import require


def cases_with(only: str | None, names: Sequence[str]) -> list[str]:
    """Return the case that is called `only`, or those whose names contain it; all if None.

    Raises:
        UsageError: none does; names them all.
    """
    cases = [only] if only in names else [name for name in names if only is None or only in name]
    require(bool(cases), f"--only: no case has {only!r} in its name; there are {'; '.join(names)}")
    return cases

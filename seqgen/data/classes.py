"""The labels that a classifier or a tagger tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seqgen.errors import SeqgenError, did_you_mean, first_line
from seqgen.files import parse_json, regular, write_json
from seqgen.wording import first_names

FILE = "classes.json"


@dataclass(frozen=True)
class Classes:
    """The labels that a model knows, in the order of its logits.

    Attributes:
        names: sorted.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, labels: Iterable[str]) -> Classes:
        """Return the distinct ones of some labels.

        Raises:
            SeqgenError: there are fewer than two, which leaves nothing to learn.
        """
        names = tuple(sorted(set(labels)))
        if len(names) < 2:
            only = f"the only label is {names[0]!r}" if names else "there is no label"
            raise SeqgenError(f"{only}; there must be two different ones to tell apart")
        return cls(names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def number(self, name: str, where: str) -> int:
        """Return the number of a label.

        Args:
            name: the label.
            where: it stands, for the error.

        Raises:
            SeqgenError: it is not known.
        """
        if name not in self._numbers:
            hint, known = did_you_mean(name, self.names), first_names(self.names)
            raise SeqgenError(f"{where}: unknown label {name!r}{hint} (there are {known})")
        return self._numbers[name]

    def save(self, folder: Path) -> None:
        """Write the labels into a folder, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, {"names": list(self.names)})

    @classmethod
    def load(cls, folder: Path) -> Classes:
        """Return the labels that `save` wrote.

        Raises:
            SeqgenError: they are missing or damaged.
        """
        try:
            names = parse_json(regular(folder / FILE).read_text(encoding="utf-8"))["names"]
            if len(names) < 2 or not all(isinstance(name, str) for name in names):
                raise ValueError("it holds no labels")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SeqgenError(
                f"{folder / FILE} is missing or damaged: {first_line(error)}"
            ) from None
        return cls(tuple(names))

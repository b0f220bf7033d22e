"""The checkpoints in a model's folder, from which training goes on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.files import parse_json, regular, write_bytes
from seqgen.store import manifest
from seqgen.store.folder import ModelFolder
from seqgen.store.layout import CHECKPOINTS, LAST
from seqgen.store.writing import link_file, tensor_pieces

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TrainingFolder(ModelFolder):
    """The folder of a model that is trained, or may be trained further."""

    def write_checkpoint(
        self, tensors: dict[str, Tensor], facts: dict[str, Any], keep: int = 1
    ) -> None:
        """Replace the checkpoint; the facts are stored in the tensors' file, so that both agree.

        Args:
            tensors: by name.
            facts: what JSON can hold; `facts["run"]["step"]` is the step.
            keep: how many of the latest checkpoints to have afterwards, this one included.

        Raises:
            SeqgenError: it cannot be written; what was there stays.
        """
        folder = self.path / CHECKPOINTS
        content = tensor_pieces(tensors, {"facts": json.dumps(facts)})
        digest = manifest.digest(*content)
        numbered = folder / f"step-{facts['run']['step']:09}.safetensors"
        # Later checkpoints are of a run that was resumed from an earlier step.
        earlier = [path for path in self.earlier_checkpoints() if path < numbered][: keep - 1]
        going = [path for path in self.earlier_checkpoints() if path not in earlier]
        coming = [folder / LAST, numbered] if keep > 1 else [folder / LAST]
        with self.writing(f"{CHECKPOINTS}/{LAST}"):
            self.place_of(f"{CHECKPOINTS}/{LAST}")
            manifest.announce(
                self.path,
                {f"{CHECKPOINTS}/{path.name}": digest for path in coming},
                going=[f"{CHECKPOINTS}/{path.name}" for path in going],
            )
            write_bytes(folder / LAST, *content)
            for path in going:
                path.unlink(missing_ok=True)
            if keep > 1:
                link_file(folder / LAST, numbered)

    def earlier_checkpoints(self) -> list[Path]:
        """Return the checkpoints that are kept besides the last one, the latest first."""
        return sorted((self.path / CHECKPOINTS).glob("step-*.safetensors"), reverse=True)

    def read_checkpoint(
        self, notice: Callable[[str], None] = lambda text: None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the last checkpoint; if it is damaged, the one before.

        Args:
            notice: takes a message if it is an earlier one.

        Raises:
            SeqgenError: there is none, or none that is whole; or the manifest is damaged.
        """
        manifest.read(self.path)  # refuses a damaged manifest, with which the model is not usable
        last, *earlier = (self.path / CHECKPOINTS / LAST, *self.earlier_checkpoints())
        try:
            return self._read_checkpoint(last)
        except SeqgenError:
            for path in earlier:
                with contextlib.suppress(SeqgenError):
                    checkpoint = self._read_checkpoint(path)
                    notice(f"{last} is missing or damaged: going on from {path.name}")
                    return checkpoint
            raise

    def _read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        from safetensors import SafetensorError, safe_open

        try:
            manifest.check(self.path, [f"{CHECKPOINTS}/{path.name}"])
            with safe_open(regular(path), "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, parse_json(file.metadata()["facts"])
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, SeqgenError) as error:
            raise SeqgenError(
                f"{path} is missing or damaged, so {self.name} cannot be resumed; the model "
                f"itself is usable ({error})"
            ) from None

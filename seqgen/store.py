"""Trained models on disk: a folder each, found by name, by path, or as the latest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seqgen import __version__
from seqgen.errors import SeqgenError, UsageError, did_you_mean
from seqgen.files import replacing, write_bytes, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from seqgen.models.base import LanguageModel
    from seqgen.tokenizers import Tokenizer

FORMAT = 1
LATEST = "latest"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
CONFIG, WEIGHTS, RECORD = "config.json", "model.safetensors", "training.json"
METRICS, VALIDATION = "metrics.jsonl", "validation/text.txt"
VALIDATION_TOKENS = "validation/tokens.tok"
CHECKPOINTS, LAST, LOCK = "checkpoints", "last.safetensors", "lock"


def home() -> Path:
    """Return the folder of everything seqgen keeps: `$SEQGEN_HOME`, or the user's data folder."""
    if set_by_user := os.environ.get("SEQGEN_HOME"):
        return Path(set_by_user)
    import platformdirs

    return Path(platformdirs.user_data_dir("seqgen", appauthor=False))


def models_folder() -> Path:
    """Return the folder that holds the models."""
    return home() / "models"


@dataclass(frozen=True)
class StoredModel:
    """A model's folder. It can be copied or mailed, and works where it lands."""

    path: Path

    @property
    def name(self) -> str:
        """The model's name: that of its folder."""
        return self.path.resolve().name

    @property
    def config(self) -> dict[str, Any]:
        """`config.json`: architecture, resolved configuration, versions.

        Raises:
            SeqgenError: it is missing, damaged, or of a later format.
        """
        config = self._json(CONFIG)
        if config.get("format") != FORMAT:
            raise SeqgenError(
                f"{self.path} has format {config.get('format')!r}, and this seqgen reads {FORMAT}"
            )
        wrong = [part for part in ("model", "data") if not isinstance(config.get(part), dict)]
        if wrong:
            raise SeqgenError(f"{self.path / CONFIG} is damaged: it has no table {wrong[0]!r}")
        return config

    @property
    def record(self) -> dict[str, Any]:
        """`training.json`: the data and its hashes, seeds, best figures, time, machine."""
        return self._json(RECORD)

    @property
    def validation_text(self) -> Path | None:
        """The held-out text, if any was held out: as text, or as the token file it came in."""
        paths = (self.path / part for part in (VALIDATION, VALIDATION_TOKENS))
        return next((path for path in paths if path.exists()), None)

    @property
    def loadable(self) -> bool:
        """Whether the folder has what a model needs, as far as a look without torch tells."""
        from seqgen.tokenizers import load_tokenizer

        try:
            _ = self.config
            load_tokenizer(self.path / "tokenizer")
            return _is_whole(self.path / WEIGHTS)
        except (SeqgenError, OSError):
            return False

    @property
    def written(self) -> float:
        """When the weights were last written, in seconds since the epoch."""
        return (self.path / WEIGHTS).stat().st_mtime

    def _json(self, part: str) -> dict[str, Any]:
        try:
            value = json.loads((self.path / part).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SeqgenError(f"{self.path / part} is missing or damaged: {error}") from None
        if not isinstance(value, dict):
            raise SeqgenError(f"{self.path / part} is damaged: it holds no table")
        return value

    def load(self) -> tuple[LanguageModel, Tokenizer]:
        """Build the model, in evaluation mode on the CPU, and its tokenizer.

        Raises:
            SeqgenError: a part is missing or damaged, or does not fit the others.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        from seqgen.models.base import load_weights
        from seqgen.registry import architecture
        from seqgen.tokenizers import load_tokenizer

        config = self.config
        try:
            kind = architecture(config["architecture"])
            model = kind.load_model()(kind.load_config()(**config["model"]))
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise SeqgenError(f"{self.path / CONFIG} is damaged: {error}") from None
        try:
            tensors = load_file(self.path / WEIGHTS)
            load_weights(model, tensors)
        except (OSError, SafetensorError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise SeqgenError(f"{self.path / WEIGHTS} is missing or damaged: {reason}") from None
        return model.eval(), load_tokenizer(self.path / "tokenizer")

    def write_config(self, architecture: str, **groups: dict[str, Any]) -> None:
        """Write `config.json`: the architecture's name and the resolved settings by group."""
        about = {"format": FORMAT, "seqgen_version": __version__, "architecture": architecture}
        write_json(self.path / CONFIG, {**about, **groups})

    def write_weights(self, model: LanguageModel) -> None:
        """Replace `model.safetensors` by the model's weights, in one step."""
        from seqgen.models.base import weights_of

        write_tensors(self.path / WEIGHTS, weights_of(model))

    def write_checkpoint(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Replace the checkpoint: the facts travel in the tensors' file, so that they agree."""
        folder = self.path / CHECKPOINTS
        folder.mkdir(exist_ok=True)
        write_tensors(folder / LAST, tensors, {"facts": json.dumps(facts)})

    def read_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what `write_checkpoint` wrote last.

        Raises:
            SeqgenError: there is none, or it is damaged.
        """
        from safetensors import SafetensorError, safe_open

        path = self.path / CHECKPOINTS / LAST
        try:
            with safe_open(path, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, json.loads(file.metadata()["facts"])
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise SeqgenError(
                f"{path} is missing or damaged, so {self.name} cannot be resumed; the model "
                f"itself is usable ({error})"
            ) from None

    def write_record(self, **facts: Any) -> None:
        """Write `training.json`."""
        write_json(self.path / RECORD, facts)

    def write_validation(self, chunks: Iterator[str]) -> None:
        """Keep the held-out text."""
        path = self.path / VALIDATION
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as file:
            for chunk in chunks:
                file.write(chunk.encode())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other run off this model; the lock ends with the process, however it ends.

        Raises:
            SeqgenError: another run is at it.
        """
        with (self.path / LOCK).open("w") as file:
            if not take_lock(file):
                raise SeqgenError(f"{self.name} is being trained by another run; wait for it")
            yield

    @contextlib.contextmanager
    def metrics(self) -> Iterator[Metrics]:
        """Open `metrics.jsonl` for appending."""
        with (self.path / METRICS).open("a", encoding="utf-8") as file:
            yield Metrics(file)


@dataclass(frozen=True)
class StoredMixture(StoredModel):
    """Several models read as one; `path` is the first one's folder.

    Attributes:
        parts: the models.
        weights: their shares, which sum to 1.
    """

    parts: tuple[StoredModel, ...]
    weights: tuple[float, ...]

    @property
    def name(self) -> str:
        """What `-m` takes for it."""
        pairs = zip(self.parts, self.weights, strict=True)
        return "+".join(f"{_as_given(part)}:{round(weight, 6):g}" for part, weight in pairs)

    @property
    def validation_text(self) -> Path | None:
        """The held-out text, if it is the same for all: no model may have been trained on it."""
        paths = [part.validation_text for part in self.parts]
        if None in paths or len({path.read_bytes() for path in paths}) > 1:
            return None
        return paths[0]


def _as_given(model: StoredModel) -> str:
    inside = model.path.parent == models_folder()
    return model.path.name if inside else str(model.path)


def _is_whole(weights: Path) -> bool:
    """Return whether a safetensors file is as long as its header says."""
    with weights.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = weights.stat().st_size
        if not 0 < length <= size - 8:
            return False
        try:
            header = json.loads(file.read(length))
            ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
            return size == 8 + length + max(ends, default=0)
        except (ValueError, AttributeError, KeyError, TypeError, IndexError):
            return False


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Replace `path` by a safetensors file, in one step."""
    from safetensors.torch import save

    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(content, metadata))


class Metrics:
    """A record a logged step, each line one flushed write."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, record: dict[str, Any]) -> None:
        """Append one record."""
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()


def check_name(name: str) -> None:
    """Refuse what cannot be a model's name.

    Raises:
        UsageError: says what a name is.
    """
    if name == LATEST:
        raise UsageError("the name 'latest' is reserved: it means the model written last")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no model name: letters, digits and . _ -, first a letter or digit"
        )


def check_free(name: str | None, overwrite: bool) -> None:
    """Refuse a name that is no name, or is in use and not to be overwritten.

    Raises:
        UsageError: says what to do.
    """
    if name is None:
        return
    check_name(name)
    if (models_folder() / name).exists() and not overwrite:
        raise UsageError(f"a model is called {name!r} already; give --overwrite or another --name")


def list_models() -> list[StoredModel]:
    """Return all models that can be loaded, the latest written first."""
    folder = models_folder()
    found = [StoredModel(p) for p in folder.iterdir()] if folder.is_dir() else []
    found = [m for m in found if not m.path.name.startswith(".") and m.loadable]
    return sorted(found, key=lambda m: (-m.written, m.name))


def find(name: str | Path | None) -> StoredModel:
    """Return the model that `-m` means: a name, a path (it has a separator), or the latest.

    Raises:
        SeqgenError: there is none; names the nearest.
    """
    if name is None or name == LATEST:
        models = list_models()
        if not models:
            raise SeqgenError("there is no trained model yet; run seqgen train FILE first")
        return models[0]
    if isinstance(name, Path) or os.sep in name or (os.altsep and os.altsep in name):
        model = StoredModel(Path(name))
        if not model.path.is_dir():
            raise SeqgenError(f"there is no model folder {name}")
        return model
    check_name(name)
    model = StoredModel(models_folder() / name)
    if not model.path.is_dir():
        known = [m.name for m in list_models()]
        hint = did_you_mean(name, known) or "; seqgen models lists those there are"
        raise SeqgenError(f"no model is called {name!r}{hint}")
    return model


def find_all(name: str | Path | None) -> StoredModel | StoredMixture:
    """Return the model or the mixture that `-m` means: `A+B` or `A:0.7+B:0.3` is a mixture.

    Parts without a weight share equally what the others leave.

    Raises:
        UsageError: a weight is not from 0 to 1, or they do not sum to 1.
        SeqgenError: there is no such model; names the nearest.
    """
    if not isinstance(name, str) or "+" not in name or Path(name).is_dir():
        return find(name)
    given = [_weighted(part) for part in name.split("+")]
    left = 1 - sum(weight for _, weight in given if weight is not None)
    missing = sum(weight is None for _, weight in given)
    if left < -1e-4 or (not missing and left > 1e-4):
        raise UsageError(f"the weights of {name} sum to {1 - left:g}, not to 1")
    parts = tuple(find(part) for part, _ in given)
    shares = [max(0.0, left) / missing if w is None else w for _, w in given]
    return StoredMixture(parts[0].path, parts, tuple(share / sum(shares) for share in shares))


def _weighted(part: str) -> tuple[str, float | None]:
    """Split `name:weight`; a part may be a path with a colon in it."""
    name, colon, number = part.rpartition(":")
    if not part or (colon and not name):
        raise UsageError("a mixture is written A+B or A:0.7+B:0.3")
    try:
        weight = float(number) if colon else None
    except ValueError:
        return part, None
    if weight is None:
        return part, None
    if not 0 <= weight <= 1:
        raise UsageError(f"the weight of {name} is from 0 to 1, not {number}")
    return name, weight


def create(name: str | None, stem: str, overwrite: bool) -> StoredModel:
    """Make the folder of a new model.

    Args:
        name: what the user calls it; without one, `stem`, or `stem-2`, `stem-3` ...
        stem: a name made from the corpus and the architecture.
        overwrite: remove a model of that name first.

    Raises:
        UsageError: not a name, or one in use.
        SeqgenError: the folder cannot be written.
    """
    check_free(name, overwrite)
    folder = models_folder()
    if name is not None and (folder / name).exists():
        remove(StoredModel(folder / name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name if name else _unused(folder, stem)
        path.mkdir()
    except OSError as error:
        raise SeqgenError(
            f"{folder} cannot be written: {error.strerror}; set SEQGEN_HOME to another folder"
        ) from None
    return StoredModel(path)


def _unused(folder: Path, stem: str) -> Path:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._") or "model"
    number, path = 2, folder / stem
    while path.exists() or path.name == LATEST:
        path = folder / f"{stem}-{number}"
        number += 1
    return path


def remove(model: StoredModel) -> None:
    """Delete a model's folder.

    Raises:
        SeqgenError: it cannot be deleted, is being trained, or does not look like a model.
    """
    # A run killed at its very start leaves a lock and temporary files.
    others = (p.name for p in model.path.iterdir() if p.name != LOCK and p.name[0] != ".")
    if not (model.path / CONFIG).exists() and any(others):
        raise SeqgenError(f"{model.path} does not look like a model; nothing was removed")
    try:
        with model.locked():
            pass
        shutil.rmtree(model.path)
    except OSError as error:
        raise SeqgenError(f"{model.path} cannot be removed: {error.strerror or error}") from None


@contextlib.contextmanager
def removed_if_stillborn(model: StoredModel) -> Iterator[None]:
    """Remove a new model's folder if its first run fails before there is anything to go on with.

    What would be left is an untrained model, and the latest one.
    """
    try:
        yield
    except Exception:
        if not (model.path / CHECKPOINTS / LAST).exists():
            shutil.rmtree(model.path, ignore_errors=True)
        raise


def keep_text(blocks: Iterator[bytes]) -> Path:
    """Keep a text that came by standard input in the cache, under its hash.

    Raises:
        SeqgenError: the cache cannot be written.
    """
    folder = home() / "cache" / "text"
    digest = hashlib.sha256()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        arriving = folder / f"arriving-{os.getpid()}.txt"
        with replacing(arriving) as file:
            for block in blocks:
                digest.update(block)
                file.write(block)
        return arriving.replace(folder / f"{digest.hexdigest()[:32]}.txt")
    except OSError as error:
        raise SeqgenError(f"{folder} cannot be written: {error.strerror}") from None


def tokens_folder() -> Path:
    """Return the folder that keeps large texts as tokens, so that they are encoded once."""
    return home() / "cache" / "tokens"


def cached_files() -> list[Path]:
    """Return every file of the cache: tokens, then texts that came by standard input."""
    folders = (tokens_folder(), home() / "cache" / "text")
    found = [sorted(folder.iterdir()) if folder.is_dir() else [] for folder in folders]
    return [path for paths in found for path in paths if path.is_file()]


def clear_tokens() -> list[Path]:
    """Delete the cached tokens, which can be made again; return what was deleted.

    Texts that came by standard input stay: a run that was trained on one needs it to go on.
    """
    gone = [path for path in cached_files() if path.parent == tokens_folder()]
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def text_of(data: dict[str, Any]) -> tuple[Path, ...]:
    """Return where a model's training text is: where it was, or in the cache by its hash.

    Args:
        data: the model's record of it.

    Raises:
        SeqgenError: it is nowhere.
    """
    paths = tuple(map(Path, data["files"]))
    if all(path.exists() for path in paths):
        return paths
    kept = home() / "cache" / "text" / f"{data['sha256'][:32]}.txt"
    if kept.exists():
        return (kept,)
    gone = next(path for path in paths if not path.exists())
    raise SeqgenError(f"the training text {gone} is gone; give --data FILE")


def take_lock(file: IO[Any]) -> bool:
    """Take an exclusive lock on an open file; return False if another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows, where an open file is lock enough for its writer
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def now() -> str:
    """Return the time as ISO 8601, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

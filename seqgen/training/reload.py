"""Read a stored model's data again, to resume its run or compare other data with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from seqgen import registry, store
from seqgen.errors import SeqgenError
from seqgen.settings import DataConfig, require
from seqgen.store import StoredModel
from seqgen.text.pairs import Tokenizers
from seqgen.text.reading import Survey, text_files
from seqgen.text.tokenizers import Tokenizer, load_tokenizer
from seqgen.training.datasets.dataset import DataFiles
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.datasets.text import LARGE
from seqgen.training.events import Notice, Report
from seqgen.wording import first_names, plural


@dataclass(frozen=True)
class DataLocation:
    """Current location of a stored model's data.

    Attributes:
        files: its text, or its sources; none if they are where they were.
        targets: its targets.
        may_differ: it may be other data than the model was trained on: all of it that is not held
            out is trained on.
    """

    files: Sequence[str | Path] = ()
    targets: Sequence[str | Path] = ()
    may_differ: bool = False


def reload_stored_data(
    stored: StoredModel,
    tokens: Tokenizers,
    moved: DataLocation = DataLocation(),
    report: Report = lambda event: None,
) -> Prepared:
    """Read a stored model's data again. Its held-out part stays as it was and is never trained on.

    Args:
        stored: the model.
        tokens: the model's; see `tokens_of`.
        moved: where the data is now.
        report: takes notices.

    Raises:
        UsageError: targets are given without their sources, or for a text.
        SeqgenError: the data is gone or has changed, or its held-out part is not known.
    """
    files = _find_files(stored, moved)
    is_changed = _make_change_check(stored, files, moved.may_differ, report)
    config, kind = stored.settings("data", DataConfig), registry.load_object(stored.task.dataset)
    return kind.open(files, config, tokens).reload(stored, is_changed)


def tokens_of(stored: StoredModel, target: Tokenizer) -> Tokenizers:
    """Load the tokenizers and labels of a stored model, in the form that its dataset uses.

    Args:
        stored: the model.
        target: its tokenizer.

    Raises:
        SeqgenError: they are damaged.
    """
    return registry.load_object(stored.task.dataset).tokens_of(stored, target)


def _make_change_check(
    stored: StoredModel, files: DataFiles, may_differ: bool, report: Report
) -> Callable[[Survey], bool]:
    """Make a function that checks whether data differs from a model's training data.

    It raises a SeqgenError if it is and `may_differ` does not allow that.
    """

    def is_changed(facts: Survey) -> bool:
        if facts.sha256 == stored.record["data"]["sha256"]:
            return False
        if not may_differ:
            paths = first_names([*map(str, files.paths)], 3)
            newer = _files_changed_since_start(stored, files.paths)
            changed = f" ({first_names(newer, 3)} changed since)" if newer else ""
            raise SeqgenError(
                f"{paths} is not the text {stored.name} was trained on{changed}; "
                "give --data FILE, or --changed-data to resume with this one"
            )
        if stored.holds_out:
            report(Notice(text="the data has changed: what was held out stays held out"))
        return True

    return is_changed


def _files_changed_since_start(stored: StoredModel, paths: Sequence[Path]) -> list[str]:
    """List the files that were written after the model was created, to the second."""
    try:
        created = datetime.fromisoformat(str(stored.record.get("created"))).timestamp()
    except ValueError:  # the record is damaged
        return []
    return [str(path) for path in paths if path.stat().st_mtime >= created + 1]


def _find_files(stored: StoredModel, moved: DataLocation) -> DataFiles:
    """Locate a stored model's data: where the user says, or where it was.

    Raises:
        UsageError: targets are given without their sources, or for a text.
        SeqgenError: it is gone, or the model's record is damaged.
    """
    known = stored.record.get("data")
    if not isinstance(known, dict) or not {"files", "sha256"} <= known.keys():
        raise SeqgenError(f"{stored.path / store.RECORD} is damaged: it does not name the text")
    data, targets = moved.files, moved.targets
    require(not targets or "target_files" in known, f"{stored.name} learned from a text")
    require(bool(data) or not targets, "give the files of the sources as well")
    if data:
        as_text = stored.settings("data", DataConfig).as_text
        return DataFiles(text_files(data, as_text), text_files(targets, as_text))
    paths = store.text_of(known)
    apart = len(paths) - known.get("target_files", 0)
    return DataFiles(paths[:apart], paths[apart:])


# Characters of texts that are too short to learn from.
SHORT = 100
# What determines the split of given data.
SPLIT = ("documents", "labels", "newlines", "split_seed", "val")


def data_warnings(prepared: Prepared, origin: StoredModel | None = None) -> Iterator[str]:
    """Warn of a text too short to learn from, and of held-out text that models have learned from.

    Each model whose training data contains part of the held-out part has a line. Large texts are
    not read again for this. Nothing is said of a model whose data is gone or of another kind.

    Args:
        prepared: what a model learns from.
        origin: the model that training starts from, if any; those that it started from follow.
    """
    if prepared.facts.bytes >= LARGE:
        return
    if origin is None and prepared.facts.characters < SHORT:
        size = plural(prepared.facts.characters, "character")
        yield f"the text has {size}, too few to learn from; give a longer one"
    overlaps = [("the training part", prepared.overlap())]
    for older in () if origin is None else _model_and_ancestors(origin):
        trained_on = _load_other_training_data(older, prepared)
        overlap = trained_on and prepared.overlap_with(trained_on)
        overlaps.append((f"the training part of {older.name}", overlap))
    for trained, overlap in overlaps:
        if overlap and (warning := overlap.warning(trained)):
            yield warning


def _model_and_ancestors(model: StoredModel) -> list[StoredModel]:
    """List a model and all models it was trained from, each once, even if references cycle."""
    models = {model.path: model}
    waiting = [model]
    while waiting:
        origins = filter(None, store.origins_of(waiting.pop()).values())
        new = {older.path: older for older in origins if older.path not in models}
        models |= new
        waiting += new.values()
    return list(models.values())


def _load_other_training_data(stored: StoredModel, prepared: Prepared) -> Prepared | None:
    """Load a model's training data; None if it is gone, large, or split the same way."""
    try:
        known, config = store.data_of(stored.record), stored.settings("data", DataConfig)
        if known.get("bytes", LARGE) >= LARGE:
            return None
        same_split = all(getattr(config, name) == getattr(prepared.config, name) for name in SPLIT)
        if same_split and known["sha256"] == prepared.facts.sha256:
            return None  # both models have the same training part
        tokenizer = load_tokenizer(stored.path / store.TOKENIZER)
        return reload_stored_data(stored, tokens_of(stored, tokenizer))
    except (SeqgenError, OSError, LookupError, TypeError):  # gone or damaged
        return None

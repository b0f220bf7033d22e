"""Base of datasets: the steps from files to token ids, for new and for resumed runs."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from seqgen import hooks, store
from seqgen.errors import SeqgenError
from seqgen.settings import DataConfig, require
from seqgen.store import StoredModel
from seqgen.text.pairs import Tokenizers
from seqgen.text.reading import LINE_END, Survey, Text
from seqgen.text.split import held_out_path
from seqgen.text.tokenfile import is_token_file, read_tokenizer
from seqgen.text.tokenizers import KINDS, Tokenizer, is_foreign, load_tokenizer, tokenizer_kind
from seqgen.text.tokenizers.sentencepiece import load_model_file
from seqgen.text.training_files import training_files
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.events import Notice, Report
from seqgen.wording import format_settings


@dataclass(frozen=True)
class DataFiles:
    """The files of a dataset: one list, or separate lists of sources and targets.

    Attributes:
        sources: all files; or those of the sources, where there are `targets`: texts, or one file
            of vectors.
        targets: files of the targets, or none.
    """

    sources: tuple[Path, ...]
    targets: tuple[Path, ...] = ()

    @classmethod
    def of(
        cls,
        sources: Sequence[str | Path],
        targets: Sequence[str | Path] = (),
        as_text: bool = False,
    ) -> DataFiles:
        """Find the files that names, folders and patterns refer to; see `training_files`.

        Raises:
            UsageError: one has records or a table, and is not to be read as text.
            SeqgenError: one is not there, or is no text.
        """
        return cls(training_files(sources, as_text), training_files(targets, as_text))

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, sources first."""
        return (*self.sources, *self.targets)


@dataclass(frozen=True)
class DataParts:
    """The training part and the held-out part of some data, before it is tokenized."""

    train: Any
    val: Any | None


@dataclass
class Dataset(ABC):
    """One kind of data, with the steps from files to token ids; `Task.dataset` names the class.

    Attributes:
        files: where it is.
        config: how it is read; the settings that follow from the data are added.
        known: the tokens of the model that training begins from, or that is trained further.
        flags: the names of the settings that the user gave.
        joined: a record may begin in one file and end in the next, as earlier versions read them.
    """

    files: DataFiles
    config: DataConfig
    known: Tokenizers | None = None
    flags: Collection[str] = ()
    joined: bool = False
    # What the lines are, in a message.
    noun: ClassVar[str]
    # What ends a record.
    record_end: ClassVar[str] = LINE_END

    @classmethod
    def open(
        cls,
        files: DataFiles,
        config: DataConfig,
        known: Tokenizers | None = None,
        flags: Collection[str] = (),
    ) -> Dataset:
        """Make a dataset for some files, without reading them."""
        return cls.kind_of(files)(files, config, known, flags)

    @classmethod
    def kind_of(cls, files: DataFiles) -> type[Dataset]:
        """Choose the subclass that reads these files, by their content."""
        return cls

    @classmethod
    def to_score(cls, loaded: Any, content: Any, tell: Callable[[str], object]) -> Any:
        """Read a file of such data for scoring; see `hooks.read_examples`. By default, none."""
        return None

    @classmethod
    def try_it(cls, stored: StoredModel) -> str:
        """Name the command that a model of such data is for; empty for its task's."""
        return ""

    @classmethod
    def tokens_of(cls, stored: StoredModel, target: Tokenizer) -> Tokenizers:
        """Load the tokenizers of a stored model; `target` is its target tokenizer.

        Raises:
            SeqgenError: they are damaged.
        """
        return Tokenizers(target, stored.load_source_tokenizer(target))

    @property
    def text(self) -> Text:
        """All files joined into one text."""
        config = self.config
        return Text(self.files.paths, config.newlines, self.ending, config.as_text)

    @property
    def ending(self) -> str:
        """Separator between files; see `Text`."""
        return "" if self.joined else self.record_end

    def prepare(self, given: Collection[str], report: Report) -> Prepared:
        """Read, split and tokenize the data of a new model.

        Args:
            given: the names of the settings that stay as they are.
            report: takes notices, and how far a large text is.

        Returns:
            The data; its `config` has the settings that follow from it.

        Raises:
            UsageError: a setting makes no sense for such data.
            SeqgenError: it cannot be read, or leaves nothing to train on or to validate with.
        """
        self.check()
        facts = self.survey()
        chosen, why = self.settings_from_data(facts, given)
        self.config = replace(self.config, **chosen)
        parts = self.split(facts)
        tokens = self.learn_tokens(parts)
        prepared = self.encode(facts, parts, tokens, report)
        if why:
            report(Notice(text=f"{format_settings(chosen)}: {why}", detail=True))
        return prepared

    def reload(self, stored: StoredModel, is_changed: Callable[[Survey], bool]) -> Prepared:
        """Read the data of a stored model again, with its tokenizers.

        What was held out in training is held out again, and not trained on if the data has changed.

        Args:
            stored: the model.
            is_changed: whether the data has changed; may raise.

        Raises:
            SeqgenError: it cannot be read, or it is not known which part was held out.
        """
        config = self.config
        if held_out_path(config.val) is not None:  # kept with the model; the file may be gone
            self.config = replace(config, val="none", val_target=None)
        facts = self._survey_as(store.data_of(stored.record)["sha256"])
        if facts is None:
            return replace(self, config=config, joined=True).reload(stored, is_changed)
        changed = is_changed(facts)
        parts = self.split(facts)
        held_out = self.held_out(stored)
        if held_out is not None:
            apart = changed and parts.val is not None
            train = self.without(held_out) if apart else parts.train
            parts = replace(parts, train=train, val=held_out)
        prepared = self.encode(facts, parts, self.known, lambda event: None)
        return replace(prepared, config=config)

    def _survey_as(self, sha256: str) -> Survey | None:
        """Survey the data; None if only the joined files match the recorded SHA-256.

        Raises:
            SeqgenError: the data cannot be read, joined or not.
        """
        try:
            facts, problem = self.survey(), None
        except SeqgenError as error:  # such as a label that the run does not know
            facts, problem = None, error
        if self.ending and len(self.files.paths) > 1 and (facts is None or facts.sha256 != sha256):
            with contextlib.suppress(SeqgenError):  # joined, two lines may be none
                if replace(self, joined=True).survey().sha256 == sha256:
                    return None
        if problem is not None:
            raise problem
        return facts

    def check(self) -> None:
        """Refuse files and settings that do not fit this kind of data, before reading it.

        Raises:
            UsageError: says which.
        """
        for path in self.files.paths:
            as_text = f"{path} is a token file; {self.noun} are read as text"
            require(not is_token_file(path), as_text)

    @abstractmethod
    def survey(self) -> Survey:
        """Count the size and compute the SHA-256 of all data.

        Raises:
            SeqgenError: it cannot be read, or is empty.
        """

    def settings_from_data(
        self, facts: Survey, given: Collection[str]
    ) -> tuple[dict[str, Any], str]:
        """Choose settings that follow from the data and are not given; return reasons too.

        Settings without a reason are not reported.
        """
        return {}, ""

    @abstractmethod
    def split(self, facts: Survey) -> DataParts:
        """Split the data into a training and a held-out part, as `config.val` asks.

        Raises:
            SeqgenError: the file that it names cannot be read.
        """

    @abstractmethod
    def learn_tokens(self, parts: DataParts) -> Tokenizers:
        """Return the given tokenizers, or train them.

        Raises:
            SeqgenError: they cannot be read, or there are too few texts.
        """

    @abstractmethod
    def held_out(self, stored: StoredModel) -> Any | None:
        """Load a stored model's held-out part as `DataParts.val`; None if it has none."""

    @abstractmethod
    def without(self, held_out: Any) -> Any:
        """Remove a stored held-out part from the data; the rest is the training part.

        Raises:
            SeqgenError: it is not known which part that is.
        """

    @abstractmethod
    def encode(
        self, facts: Survey, parts: DataParts, tokens: Tokenizers, report: Report
    ) -> Prepared:
        """Tokenize the training part and the held-out part.

        Raises:
            SeqgenError: a part has nothing.
        """


def require_sampling(config: DataConfig, kind: type[Tokenizer]) -> None:
    """Refuse subword sampling for a tokenizer kind that has only one segmentation.

    Raises:
        UsageError: says which kinds have several.
    """
    has_several = kind.encode_sampled is not Tokenizer.encode_sampled
    require(
        config.subword_sampling is None or has_several,
        f"subword_sampling is for bpe and unigram, not for {kind.kind}",
    )


def given_tokenizer(config: DataConfig, of_sources: bool = False) -> Tokenizer | None:
    """Open the tokenizer that a configuration names by path; None if it names a kind.

    Args:
        config: whose `tokenizer` is a kind or a path.
        of_sources: of a model of pairs, take the tokenizer of its sources.

    Raises:
        UsageError: it is neither, or a vocabulary size is asked of a finished tokenizer.
        SeqgenError: it cannot be read.
    """
    if config.tokenizer in KINDS:
        return None
    if not Path(config.tokenizer).exists():
        tokenizer_kind(config.tokenizer)
    tokenizer = open_tokenizer(Path(config.tokenizer), of_sources)
    resized = config.vocab_size is not None or config.min_count > 1
    require(not resized, f"the tokenizer {config.tokenizer} already has its vocabulary")
    return tokenizer


def open_tokenizer(path: Path, of_sources: bool = False) -> Tokenizer:
    """Open the tokenizer at a path: a tokenizer or model folder, `.model` file or token file.

    Files and folders of other tools are read by plugins, see `hooks.Plugin.tokenizer_readers`.

    Args:
        path: the file or folder.
        of_sources: of a model whose sources have a tokenizer of their own, that one.

    Raises:
        SeqgenError: there is none.
    """
    for read in hooks.load_all("tokenizer_readers"):
        if (tokenizer := read(path)) is not None:
            return tokenizer
    if is_foreign(path.parent if path.name == "tokenizer.json" else path):
        raise SeqgenError(
            f"{path} has a tokenizer of another tool, which needs a plugin that reads it: exchange "
            "for those of Hugging Face"
        )
    if path.is_dir():
        source_folder = path / store.SOURCE_TOKENIZER
        if of_sources and source_folder.is_dir() and not (source_folder / store.LABELS).exists():
            return load_tokenizer(source_folder)
        inside = path / store.TOKENIZER
        return load_tokenizer(inside if inside.is_dir() else path)
    return read_tokenizer(path) if is_token_file(path) else load_model_file(path)


def train_tokenizer(
    config: DataConfig, all_of_it: Callable[[], Iterable[str]], train: Callable[[], Iterable[str]]
) -> Tokenizer:
    """Train a tokenizer on the whole text or its training part, depending on the kind.

    Args:
        config: names the kind, and how many tokens there are to be.
        all_of_it: reads the texts from the start.
        train: reads the training part.
    """
    kind = tokenizer_kind(config.tokenizer)
    texts = all_of_it() if kind.learns_from_whole_text else train()
    return kind.train(texts, config.vocab_size, config.min_count)

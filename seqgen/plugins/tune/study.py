"""Study: its search space, and its trials in a storage that processes share.

Optuna keeps the trials and suggests the next. A trial is known by its index. A trial that was
killed has none: the next process to look frees the index, and tries the same settings again.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import registry, store
from seqgen.errors import SeqgenError, reporting_os_errors
from seqgen.hashing import hash64
from seqgen.packages import require_packages
from seqgen.plugins.tune.locks import LOCK, TRIALS
from seqgen.plugins.tune.search_space import convert_dimension, scale_dimension
from seqgen.plugins.tune.storage import (
    DATABASE,
    FACTS,
    LocalStorage,
    StudyStorage,
    open_storage,
    study_names,
    without_warnings,
)
from seqgen.settings import Bounds, Choices, Config, DataConfig, Dimension, require, unknown_setting
from seqgen.settings.training import BUDGETS, TrainingConfig
from seqgen.store.ownership import foreign_paths
from seqgen.wording import column

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Trial:
    """Trial that is running in this process.

    Attributes:
        index: its number; 0 is the recipe.
        values: of the settings that are searched.
        folder: for its files, which is deleted when it ends.
        optuna: what Optuna knows it by.
    """

    index: int
    values: dict[str, Any]
    folder: Path
    optuna: optuna.trial.Trial

    def should_stop(self, loss: float, tenth: int) -> bool:
        """Report a validation loss, and check whether the trial should be pruned at this tenth."""
        with without_warnings():
            self.optuna.report(loss, tenth)
            return self.optuna.should_prune()


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """Record of a trial in `seqgen tune --json`; its keys in order.

    `stopped` is why its training ended; or pruned, diverged or failed, and then `error` says why.
    """

    trial: int = column("trial")
    settings: dict[str, Any]
    val_loss: float | None = column("val loss", "figure")
    stopped: str = column("stopped", shown="outcome")
    seconds: float = column("time", "duration")
    steps: int | None = None
    parameters: int | None = None
    error: str | None = None

    @property
    def is_complete(self) -> bool:
        """True if the trial was trained to its end."""
        return self.stopped not in ("pruned", "diverged", "failed")

    @property
    def outcome(self) -> str:
        """Why it ended, for a table; of the recipe, that it is the recipe."""
        return "recipe" if self.trial == 0 else self.stopped


# In the place of a setting: which architecture is trained.
MODEL = "model"
# Settings that say how long a trial is, what it begins from and what it keeps.
FIXED = (*BUDGETS, "seed", "init_from", "with_ngram", "keep", "checkpoint_every", "validate_every")

Space = dict[str, Dimension]


def check_space(searched: Mapping[str, Dimension], architectures: Iterable[str]) -> Space:
    """Check the searched settings, and convert their values to the settings' types.

    Args:
        searched: by setting; `model` is the architecture.
        architectures: that are trained; each must have every setting.

    Raises:
        UsageError: a setting is unknown, cannot be searched, or has wrong values.
    """
    space: Space = {}
    for name, dimension in searched.items():
        if name == MODEL:
            require(isinstance(dimension, Choices), "list the architectures, as model=gru,lstm")
            space[name] = convert_dimension(name, dimension, str, Bounds())
            continue
        for architecture in architectures:
            space[name] = _typed(name, dimension, architecture)
    return space


def architectures_of(searched: Mapping[str, Dimension], given: str | None) -> list[str | None]:
    """List the architectures to train; None is that of the preset or the default.

    Raises:
        UsageError: they are both given and searched, one is unknown, or they read different data.
    """
    dimension = searched.get(MODEL)
    if not isinstance(dimension, Choices):
        return [given]
    require(given is None, "the architecture is both searched and given: leave out one")
    rows = [registry.architecture(name) for name in dimension.values]
    for row in rows[1:]:
        same = row.task is rows[0].task
        require(same, f"{rows[0].name} and {row.name} learn from different data: tune one of them")
    return [row.name for row in rows]


def _groups(architecture: str) -> tuple[type[Config], ...]:
    return registry.architecture(architecture).load_config(), TrainingConfig


def _typed(name: str, dimension: Dimension, architecture: str) -> Dimension:
    """Check that a setting can be searched, and convert its values to its type."""
    require(name not in FIXED, f"{name} cannot be searched: it is the same for all trials")
    other = name in DataConfig.fields()
    require(not other, f"{name} cannot be searched: losses on other data are not comparable")
    groups = _groups(architecture)
    group = next((group for group in groups if name in group.fields()), None)
    if group is None:
        known = [known for group in groups for known in group.fields()]
        raise unknown_setting(name, architecture, known, registry.architectures_with(name))
    bounds = group.fields()[name].metadata["bounds"]
    return convert_dimension(name, dimension, group.types()[name], bounds)


def suggested_space(architecture: str, given: Collection[str], values: Mapping[str, Any]) -> Space:
    """Build the default search space of an architecture.

    Args:
        architecture: its name.
        given: settings that the user has fixed.
        values: of all settings, as `train` would have them.

    Raises:
        UsageError: the user has fixed everything that could be searched.
    """
    counted = registry.architecture(architecture).estimator is not None
    space: Space = {}
    for group in _groups(architecture)[: 1 if counted else 2]:
        for name, field in group.fields().items():
            suggested, value = field.metadata.get("search"), values.get(name, field.default)
            if suggested is None or name in given or value is None:
                continue
            kind, bounds = group.types()[name], field.metadata["bounds"]
            space[name] = convert_dimension(name, scale_dimension(suggested, value), kind, bounds)
    require(bool(space), f"{architecture} suggests nothing to search: give --search KEY=LOW:HIGH")
    return space


BEST = "best.toml"
# Trials that are drawn at random before a sampler learns from them.
FIRST_TRIALS = 6
# The budget of a trial: this share of the time for all of them, or so many minutes.
LEAST_TRIALS, TRIAL_MINUTES = 30, 0.5


def require_optuna() -> None:
    """Check that the packages of the extra `tune` are installed.

    Raises:
        SeqgenError: says how to install them.
    """
    # Importance is measured with scikit-learn's random forests.
    require_packages("seqgen tune", "optuna", "scikit-learn")


def first_or_kept(
    storage: StudyStorage,
    budget: Mapping[str, Any],
    seed: int | None,
    trials: int | None,
    minutes: float | None,
) -> tuple[dict[str, Any], int]:
    """Choose the trial budget and seed: those given, those of the study, or new ones.

    Args:
        storage: of the study.
        budget: given for a trial; may be empty.
        seed: given, or None.
        trials: how many there are to be, if given.
        minutes: for all trials, if given.

    Raises:
        UsageError: the study has another seed.
        SeqgenError: the study is damaged.
    """
    kept = storage.read_facts()
    if kept is None:
        share = TRIAL_MINUTES if minutes is None else minutes / (trials or LEAST_TRIALS)
        seed = secrets.randbelow(1 << 31) if seed is None else seed
        return dict(budget) or {"minutes": share}, seed
    same = seed in (None, kept["seed"])
    require(
        same,
        f"the study {storage.name!r} has --seed {kept['seed']}: leave out --seed, or give another "
        "--name",
    )
    return dict(budget) or kept["budget"], kept["seed"]


@dataclass(frozen=True)
class Study:
    """Hyperparameter search and its trials.

    Attributes:
        storage: where it is kept.
        facts: what was asked for when it began.
    """

    storage: StudyStorage
    facts: Mapping[str, Any]

    @classmethod
    def open(
        cls, storage: StudyStorage, about: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Study:
        """Create a study, or continue the one in this storage.

        Args:
            storage: of the study.
            about: what must be the same whenever it is continued, by what a message calls it.
            facts: what else is kept, and taken from the study when it is continued.

        Raises:
            UsageError: the study has other settings.
            SeqgenError: the folder cannot be written, or the study is damaged.
        """
        about = json.loads(json.dumps(about, default=str))  # as it is when it is read
        with reporting_os_errors(f"{storage.folder} cannot be written"):
            (storage.folder / TRIALS).mkdir(parents=True, exist_ok=True)
            with storage.locks.locked():
                known = storage.keep_facts({"about": about, **facts})
        before = known["about"]
        other = next((what for what in about if before.get(what) != about[what]), None)
        require(
            other is None,
            f"the study {storage.name!r} was begun with other {other}: give the same command as "
            "before to go on, or another --name",
        )
        return cls(storage, known)

    @property
    def folder(self) -> Path:
        """Folder on this machine with the models of running trials and the best settings."""
        return self.storage.folder

    @property
    def seed(self) -> int:
        """Seed of the sampler and of every training."""
        return self.facts["seed"]

    @property
    def _optuna(self) -> optuna.Study:
        """Optuna's study object; first use requires the lock."""
        return self.storage.optuna

    def base(self, architecture: str) -> dict[str, Any] | None:
        """Read the stored base settings of an architecture, which searched settings override."""
        with self.locked():
            return self._optuna.user_attrs.get(f"base {architecture}")

    def keep_base(self, architecture: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Store base settings unless another process did so first; return the stored ones."""
        key = f"base {architecture}"
        with self.locked():
            if key not in self._optuna.user_attrs:
                self._optuna.set_user_attr(key, dict(settings))
            return self._optuna.user_attrs[key]

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Lock the study against other processes; not reentrant."""
        return self.storage.locks.locked()

    @contextlib.contextmanager
    def begin(self, space: Space, recipe: Mapping[str, Any], most: int) -> Iterator[Trial | None]:
        """Begin the next trial; yield None if there are `most` already.

        A trial whose end is not recorded, because of an exception or a kill, is tried again.

        Args:
            space: what is searched.
            recipe: the values that trial 0 has, as far as they are in the space.
            most: how many trials there are to be.
        """
        with contextlib.ExitStack() as held:
            with self.locked():
                trial = self._next(space, recipe, most, held)
            try:
                yield trial
            finally:
                if trial is not None:
                    self._forget(trial.optuna.number)

    def _next(
        self, space: Space, recipe: Mapping[str, Any], most: int, held: contextlib.ExitStack
    ) -> Trial | None:
        """Ask Optuna for a trial, and lock the trial's folder until `held` is closed."""
        index = self._free_index()
        if index >= most:
            return None
        if index == 0:
            space = {name: values for name, values in space.items() if recipe.get(name) in values}
        with without_warnings():
            self._optuna.sampler = self._sampler(index, space, recipe)
            asked = self._optuna.ask(
                {name: _distribution(values) for name, values in space.items()}
            )
            asked.set_user_attr("index", index)
        folder = self.folder / TRIALS / str(asked.number)
        folder.mkdir(parents=True, exist_ok=True)
        held.enter_context(self.storage.locks.working(asked.number))
        values = {**(recipe if index == 0 else {}), **asked.params}
        return Trial(index, values, folder, asked)

    def _free_index(self) -> int:
        """Find the first unused trial index, after marking killed trials as failed."""
        taken = set()
        for trial in self._optuna.get_trials(deepcopy=False):
            running = not trial.state.is_finished()
            if killed := running and not self._is_at_work(trial.number):
                self._forget(trial.number)
            if RECORD in trial.user_attrs or (running and not killed):
                taken.add(trial.user_attrs.get("index"))
        return next(index for index in range(len(taken) + 1) if index not in taken)

    def _is_at_work(self, number: int | str) -> bool:
        """Check whether a process holds the lock of a trial."""
        return self.storage.locks.is_at_work(number)

    def _forget(self, number: int) -> None:
        """Delete a trial's files; mark it as failed unless its record was stored."""
        trial = self._optuna.get_trials(deepcopy=False)[number]
        if not trial.state.is_finished():
            kept = trial.user_attrs.get(RECORD)
            self._tell(number, None if kept is None else TrialRecord(**kept))
        folder = self.folder / TRIALS / str(number)
        if folder.is_dir() and not any(_strangers(folder)):
            shutil.rmtree(folder, ignore_errors=True)

    def _sampler(
        self, index: int, space: Space, recipe: Mapping[str, Any]
    ) -> optuna.samplers.BaseSampler:
        """Create the sampler of trial `index`, determined by the seed and earlier trials."""
        import optuna

        samplers = optuna.samplers
        seed = int(hash64(self.seed, index)) & 0x7FFFFFFF
        if index == 0:
            values = {name: recipe[name] for name in space}
            return samplers.PartialFixedSampler(values, samplers.RandomSampler(seed))
        if self.facts["about"]["samplers"] == "random":
            return samplers.RandomSampler(seed)
        return samplers.TPESampler(
            seed=seed, n_startup_trials=FIRST_TRIALS, multivariate=True, constant_liar=True
        )

    def end(self, trial: Trial, record: TrialRecord, settings: Mapping[str, Any]) -> None:
        """Store the result of a trial.

        Args:
            trial: which.
            record: what came of it.
            settings: all of its settings.
        """
        with self.locked():
            trial.optuna.set_user_attr("all settings", dict(settings))
            trial.optuna.set_user_attr(RECORD, record.__dict__)
            self._tell(trial.optuna.number, record)

    def _tell(self, number: int, record: TrialRecord | None) -> None:
        """Report a trial's result to Optuna; None for an unknown result."""
        import optuna

        states = optuna.trial.TrialState
        if record is not None and record.is_complete:
            self._optuna.tell(number, record.val_loss)
            return
        # A sampler takes a pruned trial for a bad one, and learns nothing of a failed one.
        failed = record is None or record.stopped == "failed"
        self._optuna.tell(number, state=states.FAIL if failed else states.PRUNED)

    def _ended(self) -> list[optuna.trial.FrozenTrial]:
        """List the trials with a stored record, by index."""
        trials = [
            t
            for t in self._optuna.get_trials(deepcopy=False)
            if t.state.is_finished() and RECORD in t.user_attrs
        ]
        return sorted(trials, key=lambda trial: trial.user_attrs["index"])

    def records(self) -> list[TrialRecord]:
        """List the records of all finished trials in order."""
        with self.locked():
            return [TrialRecord(**trial.user_attrs[RECORD]) for trial in self._ended()]

    def settings_of(self, index: int) -> dict[str, Any]:
        """Read all settings of a finished trial."""
        with self.locked():
            trials = self._ended()
        return next(t.user_attrs["all settings"] for t in trials if t.user_attrs["index"] == index)

    def importance(self, names: list[str]) -> dict[str, float]:
        """Compute each setting's share of the variance of the losses, in descending order.

        By fANOVA (Hutter, Hoos and Leyton-Brown 2014), over trials that were trained to their end;
        empty if there are not enough of them.
        """
        import optuna

        evaluate = optuna.importance.get_param_importances
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        with self.locked(), without_warnings():
            trials = self._optuna.get_trials(deepcopy=False)
            whole = [t for t in trials if t.value is not None and set(names) <= t.params.keys()]
            varied = [name for name in names if len({t.params[name] for t in whole}) > 1]
            if not varied or len({t.value for t in whole}) < 2:
                return {}
            found = evaluate(self._optuna, evaluator=evaluator, params=varied)
        return {name: float(share) for name, share in found.items()}


# The attribute of a trial that says what came of it.
RECORD = "record"


def _distribution(values: Any) -> optuna.distributions.BaseDistribution:
    """Convert a range or list of values to an Optuna distribution."""
    from optuna import distributions

    if isinstance(values, Choices):
        return distributions.CategoricalDistribution(values.values)
    whole = isinstance(values.low, int)
    kind = distributions.IntDistribution if whole else distributions.FloatDistribution
    return kind(values.low, values.high, log=values.log)


WRITTEN = {FACTS, BEST, LOCK, TRIALS, *(DATABASE + end for end in ("", "-wal", "-shm", "-journal"))}


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """Record of `seqgen tune --list --json`; its keys in order, None if the study is damaged.

    `complete` trials were trained to their end; `val_loss` is the lowest of theirs.
    """

    name: str = column("name")
    trials: int | None = column("trials", shown="trials_or_damage")
    complete: int | None = column("complete", "count")
    val_loss: float | None = column("val loss", "figure")
    path: str

    @property
    def trials_or_damage(self) -> str:
        """Number of trials, for a table; or that the study is damaged."""
        return "damaged" if self.trials is None else str(self.trials)


def kept_studies(url: str | None = None) -> Iterator[StudyRecord]:
    """Yield the record of every stored study, by name.

    Args:
        url: of the storage, as `open_storage` takes it.

    Raises:
        SeqgenError: Optuna is not installed, or the storage cannot be used.
    """
    require_optuna()
    for name in study_names(url):
        try:
            storage = open_storage(name, url)
            facts = storage.read_facts()
            there = facts is not None and storage.has_trials()
            records = Study(storage, facts).records() if there else []
        except Exception:  # of the facts, of SQLite, of SQLAlchemy or of Optuna
            nothing = {"trials": None, "complete": None, "val_loss": None}
            yield StudyRecord(name=name, path=str(store.studies_folder() / name), **nothing)
            continue
        if facts is not None:
            losses = [record.val_loss for record in records if record.is_complete]
            counts = {"trials": len(records), "complete": len(losses)}
            best = min(losses, default=None)
            yield StudyRecord(name=name, path=storage.place, **counts, val_loss=best)


def check_deletable(name: str) -> Path:
    """Check that a study can be deleted, and return its folder.

    Raises:
        UsageError: the name is none.
        SeqgenError: there is no such study, it holds files that seqgen did not write, or a process
            works on it.
    """
    store.check_name(name)
    path = store.studies_folder() / name
    if not path.is_dir():
        raise SeqgenError(f"there is no study {name!r}; see seqgen tune --list")
    others = sorted(file.name for file in path.iterdir() if file.name not in WRITTEN)
    if others := others or [*chain.from_iterable(map(_strangers, path.glob(f"{TRIALS}/*")))]:
        raise SeqgenError(
            f"{path} holds what seqgen did not write ({others[0]}): move it elsewhere; nothing was "
            "removed"
        )
    if _is_at_work(path):
        raise SeqgenError(f"a process works on the study {name!r}: stop it; nothing was removed")
    return path


def _is_at_work(folder: Path) -> bool:
    """Check whether any process trains a trial of the study in a folder."""
    locks = LocalStorage(folder.name).locks
    return any(locks.is_at_work(trial.name) for trial in (folder / TRIALS).glob("*"))


def _strangers(folder: Path) -> Iterator[str]:
    """Yield the paths in a trial folder that are not from seqgen: neither models nor the lock."""
    for path in [folder] if folder.is_symlink() or not folder.is_dir() else folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield from (f"{path.name}/{name}" for name in foreign_paths(path))
        elif path.name != LOCK:
            yield path.name


def delete_shared_study(name: str, url: str) -> str:
    """Delete a study from a shared storage; return the storage as messages name it.

    Raises:
        SeqgenError: there is no such study, or a process works on it.
    """
    require_optuna()
    storage = open_storage(name, url)
    if storage.read_facts() is None:
        raise SeqgenError(f"there is no study {name!r} in {storage.place}")
    with storage.reporting_errors(), storage.locks.locked():
        trials = storage.optuna.get_trials(deepcopy=False)
        running = (trial.number for trial in trials if not trial.state.is_finished())
        if any(map(storage.locks.is_at_work, running)):
            raise SeqgenError(f"a process works on the study {name!r}: stop it")
        storage.delete()
    return storage.place


def delete_study(path: Path) -> None:
    """Delete the folder of a study, as returned by `check_deletable`.

    Raises:
        SeqgenError: the system refuses, or a process has begun to work on it.
    """
    if _is_at_work(path):
        raise SeqgenError(f"a process works on the study {path.name!r}: stop it")
    with reporting_os_errors(f"{path} cannot be removed"):
        shutil.rmtree(path)

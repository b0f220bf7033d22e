"""A study on disk: what is searched, and its trials, in an SQLite file that processes share.

Optuna keeps the trials and suggests the next. A trial is known by its index. A trial that was
killed has none: the next process to look frees the index, and tries the same settings again.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import store
from seqgen.commands.tuning.space import Space
from seqgen.commands.tuning.trial import Trial, TrialRecord, without_warnings
from seqgen.configs import Choices, require
from seqgen.errors import SeqgenError
from seqgen.files import open_file, parse_json, take_lock, write_json
from seqgen.hashing import hash64
from seqgen.packages import require_packages

if TYPE_CHECKING:
    import optuna

FACTS, TRIALS, DATABASE, BEST = "study.json", "trials", "study.db", "best.toml"
LOCK = "lock"
# Trials that are drawn at random before a sampler learns from them; trials that are complete
# before one is pruned, and tenths of a trial in which none is.
FIRST_TRIALS, BEFORE_PRUNING, UNPRUNED_TENTHS = 6, 4, 3
# The budget of a trial: this share of the time for all of them, or so many minutes.
LEAST_TRIALS, TRIAL_MINUTES = 30, 0.5
# Seconds that a process waits while another writes.
PATIENCE = 60


def require_optuna() -> None:
    """Check that the packages of the extra `tune` are installed.

    Raises:
        SeqgenError: says how to install them.
    """
    # Importance is measured with scikit-learn's random forests.
    require_packages("seqgen tune", "optuna", "scikit-learn")


def kept_facts(name: str) -> dict[str, Any] | None:
    """Return what was asked for when a study began; None if there is none of this name.

    Raises:
        UsageError: the name is none.
        SeqgenError: the study is damaged.
    """
    store.check_name(name)
    path = store.studies_folder() / name / FACTS
    try:
        facts = parse_json(path.read_bytes())
        known = {name: facts[name] for name in ("about", "seed", "budget")}
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError):
        raise SeqgenError(f"{path} is damaged: delete its folder, or give another --name") from None
    return known


def first_or_kept(
    name: str,
    budget: Mapping[str, Any],
    seed: int | None,
    trials: int | None,
    minutes: float | None,
) -> tuple[dict[str, Any], int]:
    """Return the budget of a trial and the seed: those given, those of the study, or new ones.

    Args:
        name: of the study.
        budget: given for a trial; may be empty.
        seed: given, or None.
        trials: how many there are to be, if given.
        minutes: for all trials, if given.

    Raises:
        UsageError: the study has another seed.
        SeqgenError: the study is damaged.
    """
    require_optuna()
    kept = kept_facts(name)
    if kept is None:
        share = TRIAL_MINUTES if minutes is None else minutes / (trials or LEAST_TRIALS)
        seed = secrets.randbelow(1 << 31) if seed is None else seed
        return dict(budget) or {"minutes": share}, seed
    same = seed in (None, kept["seed"])
    require(
        same,
        f"the study {name!r} has --seed {kept['seed']}: leave out --seed, or give another --name",
    )
    return dict(budget) or kept["budget"], kept["seed"]


class Connection(sqlite3.Connection):
    """A connection whose transactions survive a kill, and do not wait for the disk.

    They are written to a log beside the file. Cut power may lose the last ones.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


@dataclass(frozen=True)
class Study:
    """A search and its trials, in a folder.

    Attributes:
        folder: where it is kept.
        facts: what was asked for when it began, as `study.json` has it.
    """

    folder: Path
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, name: str, about: Mapping[str, Any], facts: Mapping[str, Any]) -> Study:
        """Begin the study of this name, or go on with it.

        Args:
            name: its name.
            about: what must be the same whenever it goes on, by what a message calls it.
            facts: what else is kept, and taken from the study when it goes on.

        Raises:
            UsageError: the name is none, or is of a study that something else was asked of.
            SeqgenError: the folder cannot be written, or the study is damaged.
        """
        folder = store.studies_folder() / name
        about = json.loads(json.dumps(about, default=str))  # as it is when it is read
        try:
            (folder / TRIALS).mkdir(parents=True, exist_ok=True)
            with _locked(folder):
                if not (folder / FACTS).exists():
                    write_json(folder / FACTS, {"about": about, **facts})
                known = kept_facts(name)
        except OSError as error:
            raise SeqgenError(f"{folder} cannot be written: {error.strerror}") from None
        before = known["about"]
        other = next((what for what in about if before.get(what) != about[what]), None)
        require(
            other is None,
            f"the study {name!r} was begun with other {other}: give the same command as "
            "before to go on, or another --name",
        )
        return cls(folder, known)

    @property
    def name(self) -> str:
        """Its name."""
        return self.folder.name

    @property
    def seed(self) -> int:
        """Of all trainings, and of what is tried."""
        return self.facts["seed"]

    @cached_property
    def _optuna(self) -> optuna.Study:
        """Optuna's study; open it under the lock."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with without_warnings():
            storage = optuna.storages.RDBStorage(
                f"sqlite:///{self.folder.resolve() / DATABASE}",
                engine_kwargs={"connect_args": {"timeout": PATIENCE, "factory": Connection}},
            )
            pruner = optuna.pruners.MedianPruner(BEFORE_PRUNING, UNPRUNED_TENTHS)
            return optuna.create_study(
                storage=storage, pruner=pruner, study_name="seqgen", load_if_exists=True
            )

    def base(self, architecture: str) -> dict[str, Any] | None:
        """Return the settings that trials of an architecture have beneath those searched."""
        with self.locked():
            return self._optuna.user_attrs.get(f"base {architecture}")

    def keep_base(self, architecture: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Keep such settings, unless another process was faster; return those that are kept."""
        key = f"base {architecture}"
        with self.locked():
            if key not in self._optuna.user_attrs:
                self._optuna.set_user_attr(key, dict(settings))
            return self._optuna.user_attrs[key]

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Wait for other processes, and keep them waiting; do not nest it."""
        return _locked(self.folder)

    @contextlib.contextmanager
    def begin(self, space: Space, recipe: Mapping[str, Any], most: int) -> Iterator[Trial | None]:
        """Begin the next trial; yield None if there are `most` already.

        A trial that is not told the end of, because of an exception or a kill, is tried again.

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
        """Ask for a trial, and lock its folder until `held` is closed."""
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
        folder.mkdir()
        take_lock(held.enter_context(open_file(folder / LOCK, "a+b")))
        values = {**(recipe if index == 0 else {}), **asked.params}
        return Trial(index, values, folder, asked)

    def _free_index(self) -> int:
        """Return the first index without a trial, once those that were killed are set aside."""
        taken = set()
        for trial in self._optuna.get_trials(deepcopy=False):
            running = not trial.state.is_finished()
            if killed := running and not self._is_at_work(trial.number):
                self._forget(trial.number)
            if RECORD in trial.user_attrs or (running and not killed):
                taken.add(trial.user_attrs.get("index"))
        return next(index for index in range(len(taken) + 1) if index not in taken)

    def is_at_work(self) -> bool:
        """Return whether a process trains a trial."""
        return any(self._is_at_work(folder.name) for folder in (self.folder / TRIALS).glob("*"))

    def _is_at_work(self, number: int | str) -> bool:
        """Return whether a process holds the lock of a trial."""
        try:
            with open_file(self.folder / TRIALS / str(number) / LOCK, "rb") as file:
                return not take_lock(file)
        except OSError:
            return False

    def _forget(self, number: int) -> None:
        """Delete the files of a trial; it has failed, unless its record was kept."""
        trial = self._optuna.get_trials(deepcopy=False)[number]
        if not trial.state.is_finished():
            kept = trial.user_attrs.get(RECORD)
            self._tell(number, None if kept is None else TrialRecord(**kept))
        shutil.rmtree(self.folder / TRIALS / str(number), ignore_errors=True)

    def _sampler(
        self, index: int, space: Space, recipe: Mapping[str, Any]
    ) -> optuna.samplers.BaseSampler:
        """Return what suggests trial `index`: a function of the seed, it, and earlier trials."""
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
        """Keep what came of a trial.

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
        """Tell Optuna what came of a trial; None if that is not known."""
        import optuna

        states = optuna.trial.TrialState
        if record is not None and record.is_complete:
            self._optuna.tell(number, record.val_loss)
            return
        # A sampler takes a pruned trial for a bad one, and learns nothing of a failed one.
        failed = record is None or record.stopped == "failed"
        self._optuna.tell(number, state=states.FAIL if failed else states.PRUNED)

    def _ended(self) -> list[optuna.trial.FrozenTrial]:
        """Return the trials whose end was told, by their index."""
        trials = [
            t
            for t in self._optuna.get_trials(deepcopy=False)
            if t.state.is_finished() and RECORD in t.user_attrs
        ]
        return sorted(trials, key=lambda trial: trial.user_attrs["index"])

    def records(self) -> list[TrialRecord]:
        """Return what came of every trial that has ended, in order."""
        with self.locked():
            return [TrialRecord(**trial.user_attrs[RECORD]) for trial in self._ended()]

    def settings_of(self, index: int) -> dict[str, Any]:
        """Return all settings of a trial that has ended."""
        with self.locked():
            trials = self._ended()
        return next(t.user_attrs["all settings"] for t in trials if t.user_attrs["index"] == index)

    def importance(self, names: list[str]) -> dict[str, float]:
        """Return how much of the variance of losses each setting explains, the most first.

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


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open_file(folder / LOCK, "a+b") as file:
        take_lock(file, wait=True)
        yield


def _distribution(values: Any) -> optuna.distributions.BaseDistribution:
    """Return what Optuna calls a range, or a list of values."""
    from optuna import distributions

    if isinstance(values, Choices):
        return distributions.CategoricalDistribution(values.values)
    whole = isinstance(values.low, int)
    kind = distributions.IntDistribution if whole else distributions.FloatDistribution
    return kind(values.low, values.high, log=values.log)

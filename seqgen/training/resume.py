"""Resume an interrupted run as if it had never stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqgen import ranks, store
from seqgen.engines.precision import parameter_type, restored_randomness
from seqgen.errors import UsageError, telling_if_interrupted
from seqgen.interrupts import ending_as_ctrl_c
from seqgen.models.base import LanguageModel
from seqgen.models.deferred_init import DeferredModel
from seqgen.ranks.group import process_group
from seqgen.settings import DataConfig, require
from seqgen.settings.training import BUDGETS, FINISHED, RESUMABLE, TrainingConfig
from seqgen.store import StoredModel
from seqgen.store.formats import facts_of_chat
from seqgen.store.loaded import LoadedModel
from seqgen.text.tokenizers import load_tokenizer
from seqgen.training.datasets.prepared import Prepared
from seqgen.training.estimators import Estimator
from seqgen.training.events import Notice, Report
from seqgen.training.fine_tune import keeps_types, place_base
from seqgen.training.plan import check_members, override, why_not_mixable
from seqgen.training.reload import DataLocation, data_warnings, reload_stored_data, tokens_of
from seqgen.training.run import Run
from seqgen.training.session import (
    AddedOptions,
    RunOptions,
    Session,
    TrainingResult,
    build_unfilled,
    keep_settings,
    telling_how_to_resume,
)
from seqgen.training.with_ngram import count_ngrams, finish, order_of
from seqgen.wording import plural


@ending_as_ctrl_c()
def resume(
    name: str | Path | None = None,
    *,
    data: Sequence[str | Path] = (),
    targets: Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    stop_after: int | None = None,
    changed_data: bool = False,
    shard: bool = False,
    timeout: float | None = None,
    began: float | None = None,
    scores_all: bool = False,
    report: Report = lambda event: None,
    **added: Any,
) -> TrainingResult:
    """Resume an interrupted run as if it had never stopped.

    Args:
        name: the model: a name, a path, or None for the latest.
        data: where its text is now; if empty, where it was.
        targets: where the targets of its pairs are now, if they came in files of their own.
        settings: a longer budget, `checkpoint_every`, `keep`, `with_ngram`; no others can change.
        device: auto, cpu, cuda or mps.
        stop_after: stop after so many steps in all.
        changed_data: continue even if the text has changed.
        shard: on several processes, divide parameters and the states of optimisers among them.
        timeout: seconds that a process waits for another one before it gives up.
        began: when the command began, in seconds of `time.monotonic`, from which a budget in
            minutes counts; now if None.
        scores_all: see `RunOptions`.
        report: takes events while training goes on.
        added: options that plugins add to `seqgen train`, such as `diagnose` and `tensorboard`.

    Raises:
        UsageError: a setting that cannot change, or an unknown option.
        SeqgenError: there is no such model, its text is gone or another, its checkpoint is
            damaged, or another run is training it.
    """
    given = {k: v for k, v in (settings or {}).items() if v is not None}
    during = {"stop_after": stop_after, "began": began, "scores_all": scores_all, "shard": shard}
    with process_group(timeout):
        options = RunOptions.of(device, report, added=AddedOptions.of(**added), **during)
        options.check()
        stored = _find_stored(name)
        _check_resumable(stored, given)
        options.require_model(stored.task)
        with (
            telling_how_to_resume(stored),
            restored_randomness(options.place),
            stored.locked(),
        ):
            result = _resume_locked(
                stored, DataLocation(data, targets, changed_data), given, options
            )
    with telling_if_interrupted(f"{result.name} is saved"):
        options.conclude(result.name)
    return result


def continue_run(name: str, settings: Mapping[str, Any], **options: Any) -> TrainingResult:
    """Resume a run if it has not finished or `settings` has another budget; return its result.

    Args:
        name: of the model.
        settings: of the same command as a new run; all but a changed budget are ignored.
        options: of `resume`.
    """
    stored = store.find(name)
    if Estimator.of(stored.config["architecture"]) and (result := store.result_of(stored)):
        return _result_of_finished(stored, result)
    training = stored.settings("training", TrainingConfig)
    budget = {k: v for k, v in settings.items() if k in BUDGETS and v != getattr(training, k)}
    return resume(name, settings=budget, **options)


def _find_stored(name: str | Path | None) -> StoredModel:
    """Find a stored model; ranks other than 0 get a read-only view."""
    if ranks.is_leader():
        store.clean()
    path = ranks.run_on_leader(lambda: store.find(name).path)
    return StoredModel(path) if ranks.is_leader() else store.ReadOnlyModel(path)


def _resume_locked(
    stored: StoredModel, data: DataLocation, given: Mapping[str, Any], options: RunOptions
) -> TrainingResult:
    """Resume the run of a stored model that is locked.

    Args:
        stored: the model.
        data: where its data is now.
        given: the settings that are to change.
        options: how the run is carried out.
    """
    report = options.report
    checkpoint = stored.read_checkpoint(lambda text: report(Notice(text=text)))
    done, result = checkpoint[1]["run"], store.result_of(stored)
    before = stored.settings("training", TrainingConfig)
    ended = done["stopped"] in FINISHED and result
    finished = ended and not given.keys() - {"with_ngram"}
    if finished and not given and not store.awaits_mixture(stored, result):
        report(Notice(text=f"{stored.name} has finished; give a longer budget to train it further"))
        return _result_of_finished(stored, result)
    if not finished:
        spent = done["seconds"] + done.get("setup_seconds", 0.0)
        options = replace(options, began=options.began - spent)
    training = _resumed_settings(stored, given, done, checkpoint[0])
    options.check_divisible(training)
    loaded, prepared, unfilled = _reload_model_and_data(stored, data, training, options)
    order = order_of(stored.config["architecture"], training, prepared, report)
    training = replace(training, with_ngram=order)
    record = stored.record
    began = {"created": record.get("created", store.now()), "origins": record.get("origins") or {}}
    began["inherited"] = facts_of_chat(record)
    session = Session(loaded, prepared, training, options, unfilled, **began)
    if given.keys() - {"with_ngram"}:
        spent = ended and done["stopped"] == "minutes" == training.budget
        _check_longer(session, done, spent and training.minutes <= before.minutes)
    if finished:  # the record says that it is not validated until the n-gram part is stored
        result = {**result, "mixture": None, "protocol": None}
        session.write_record(_result_of_finished(stored, result))
    elif given:  # what ended before is no result of the new budget
        session.write_record(None)
    if given:
        keep_settings(stored, session.training)
    ranks.run_on_leader(lambda: count_ngrams(session))
    ended = _result_of_finished(stored, result) if finished else session.run(checkpoint)
    return ranks.run_on_leader(lambda: finish(session, ended))


def _reload_model_and_data(
    stored: StoredModel, data: DataLocation, training: TrainingConfig, options: RunOptions
) -> tuple[LoadedModel, Prepared, DeferredModel | None]:
    """Load a stored model and its data; a sharded model is built without weights."""
    place, report = options.place, options.report
    if options.shard:
        model, tokenizer = None, load_tokenizer(stored.path / store.TOKENIZER)
    else:
        model, tokenizer = stored.load_to_train(keeps_types(vars(training)))
    tokens = tokens_of(stored, tokenizer)
    stored.check()
    ranks.gathered(None)  # no rank reads any more what the first one changes from here on
    stored.keep_current_hashes()
    prepared = reload_stored_data(stored, tokens, data, report)
    for warning in data_warnings(prepared):
        report(Notice(text=warning))

    def shown(model: LanguageModel) -> LanguageModel:
        prepared.show(model)
        return model

    unfilled = None
    if model is None:
        kind, config = stored.shape()
        unfilled = build_unfilled(training, lambda processes: shown(kind(config)))
        model = unfilled.shell(place)
    else:
        if training.lora is None:
            shown(model).to(device=place, dtype=parameter_type(training.precision))
        else:
            place_base(shown(model), training, stored.base, place)
    read_by = tokenizer, prepared.config, tokens.source
    loaded = LoadedModel(stored, model, *read_by, own_framing=stored.framing(tokenizer))
    return loaded, prepared, unfilled


def _result_of_finished(stored: StoredModel, result: Mapping[str, Any]) -> TrainingResult:
    """Return the result of a run that has ended; the model may have been renamed since."""
    return TrainingResult(**{**result, "name": stored.name, "path": str(stored.path)})


def _check_resumable(stored: StoredModel, given: Mapping[str, Any]) -> None:
    """Refuse settings that cannot change, and models that cannot be resumed."""
    for key in given:
        require(
            key in RESUMABLE,
            f"a resumed run cannot change {key}, only its budget, checkpoint_every, keep and "
            "with_ngram",
        )
    if not stored.members:
        stored.network_for("--resume")
    estimator = Estimator.of(stored.config["architecture"])
    if "imported" in stored.record:
        copy = f"; train a copy of it with seqgen train DATA --init-from {stored.name}"
        remedy = "" if estimator else copy
        raise UsageError(f"{stored.name} was imported, so there is no run to resume{remedy}")
    if estimator:
        done = " ".join(estimator.done)
        raise UsageError(f"{stored.name} was {done}: it has no training to resume; train it again")
    training = stored.settings("training", TrainingConfig)
    check_members(stored.architecture, training, stored.task)
    if given.get("with_ngram", training.with_ngram) is not None:
        data = stored.settings("data", DataConfig)
        why_not = why_not_mixable(stored.config["architecture"], training, data)
        require(why_not is None, f"--with-ngram {why_not}")


def _resumed_settings(
    stored: StoredModel, given: Mapping[str, Any], done: Mapping[str, Any], kept: Iterable[str]
) -> TrainingConfig:
    """Merge the stored training settings with the given ones.

    Args:
        stored: the model.
        given: the settings that are to change.
        done: how far the run has come, as its checkpoint has it.
        kept: the names of the checkpoint's tensors.

    Raises:
        UsageError: there is no budget. Nothing has been changed yet.
    """
    trained = stored.settings("training", TrainingConfig)
    training = TrainingConfig(**override(trained.to_dict(), given))
    if done["step"] and not any(name.startswith("state.") for name in kept):
        # So far this run has carried no state: the window model of version 0.1.0 did not.
        training = replace(training, reset_state=True)
    _ = training.budget
    return training


def _check_longer(session: Session, done: dict[str, Any], is_spent: bool) -> None:
    """Refuse a budget that is already spent; name the end of the new schedule.

    Args:
        session: with the new settings.
        done: how far the run has come, as its checkpoint has it; patience starts anew if it
            had ended.
        is_spent: whether the run has ended after as many minutes, or more.

    Raises:
        UsageError: the budget is spent already.
    """
    stored, training = session.stored, session.training
    budget = plural(getattr(training, training.budget), training.budget.removesuffix("s"))
    require(
        not is_spent and session.budget.share(Run.of(done)) < 1,
        f"{stored.name} has spent {budget} already; give a longer budget",
    )
    if done["stopped"] in FINISHED:
        done["worse"] = 0
    session.report(Notice(text=f"the learning-rate schedule now ends after {budget}"))

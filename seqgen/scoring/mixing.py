"""`seqgen mix`: combine stored models into a mixture with its own name and folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from seqgen import __version__, store
from seqgen.interrupts import ending_as_ctrl_c
from seqgen.scoring.evaluate import begin_of_part
from seqgen.scoring.evaluate import held_out as read_held_out
from seqgen.scoring.mixture_fitting import By, fit_mixture, require_fit_by, with_weights
from seqgen.scoring.perplexity import Perplexity, perplexity
from seqgen.settings import require
from seqgen.settings.scoring import Scoring
from seqgen.store import StoredMixture, StoredModel
from seqgen.store.loaded import LoadedModel
from seqgen.store.loading import Work, load_any, require_language_model
from seqgen.text.pairs import Pairs
from seqgen.text.tokenfile import TokenFile

if TYPE_CHECKING:
    from seqgen.engines.precision import Precision

# How far the sum of given weights may be from 1.
ROUNDING = 1e-4
# Returns a text to be scored from its start, as often as it is called.
Text = Callable[[LoadedModel], Iterable[str] | TokenFile | Pairs]


@dataclass(frozen=True)
class MixtureRecord:
    """The keys of `seqgen mix --json`, in order.

    Attributes:
        name: the mixture's.
        path: its folder.
        parts: the names of its parts.
        weights: theirs, in that order.
        nll_nats: the total of the text that the weights were fitted on, or of the held-out text
            that its figures are about; None where there is none.
        by_order: the weights for each order matched, from 0 on; None where they are the same.
        gate: the coefficients of a gate, which is used instead of weights; None without one.
        held_out_loss: in nats per token, of the second half of what all parts hold out, if the
            weights were fitted on the first; None otherwise. Of a text it is also `val_loss`.
    """

    name: str
    path: str
    parts: list[str]
    weights: list[float]
    nll_nats: float | None
    by_order: list[list[float]] | None
    gate: list[list[float]] | None
    held_out_loss: float | None


def combine(
    names: Sequence[str],
    device: str = "auto",
    precision: Precision = "auto",
    work: Work | None = None,
) -> LoadedModel:
    """Load models as a mixture with equal weights, by bytes if their tokenizers differ.

    Args:
        names: two or more, by name or path.
        device: auto, cpu, cuda or mps.
        precision: see `load`.
        work: see `load`.

    Raises:
        UsageError: there are too few, the same one twice, or a mixture; or no language model.
        SeqgenError: there is no such model, or they cannot be mixed.
    """
    require(len(names) > 1, "a mixture has two parts or more: seqgen mix A B --name N")
    parts = store.find_parts(names)
    mixture = StoredMixture(parts[0].path, parts, (1 / len(parts),) * len(parts))
    require_language_model(mixture)
    return load_any(mixture, device, precision, work)


def check_weights(weights: Sequence[float], parts: int) -> None:
    """Refuse weights that do not fit the number of models in a mixture.

    Raises:
        UsageError: there are too few or too many, one is not from 0 to 1, or they do not sum to 1.
    """
    said = f"there are {parts} parts and {len(weights)} weights: give one for each"
    require(len(weights) == parts, said)
    wrong = next((weight for weight in weights if not 0 <= weight <= 1), None)
    require(wrong is None, f"a weight must be from 0 to 1, not {wrong}")
    total = sum(weights)
    require(abs(total - 1) <= ROUNDING, f"the weights sum to {total:g}, not to 1")


@ending_as_ctrl_c()
def store_mixture(
    loaded: LoadedModel,
    *,
    name: str | None = None,
    weights: Sequence[float] | None = None,
    text: Text | None = None,
    held_out: bool = False,
    by: By | None = None,
    copy: bool = False,
    overwrite: bool = False,
    batch_size: int = 32,
) -> MixtureRecord:
    """Fit the weights of a mixture if asked to, and store it.

    Args:
        loaded: of `combine`.
        name: what to call it; made from the names of its parts if None.
        weights: one for each part; fitted to the text if None.
        text: what no part was trained on.
        held_out: the text is what all parts hold out: weights are fitted on its first half, and
            the figures of the second are the mixture's; of pairs, those of both.
        by: see `fit_mixture`.
        copy: keep copies of the parts in the mixture's folder, so that it works elsewhere.
        overwrite: replace a model of that name.
        batch_size: documents side by side; changes no figure.

    Raises:
        UsageError: the weights do not fit, or the name is in use.
        SeqgenError: the text cannot be scored, or the mixture cannot be written.
    """
    parts = loaded.stored.parts
    place = store.models_folder() / (name or "")
    among = any(part.path.resolve() == place.resolve() for part in parts)
    require(not among, f"{name} is a part of the mixture: give another --name")
    store.check_free(name, overwrite)
    require(weights is None or by is None, f"--by {by} fits the weights: leave out --weights")
    require_fit_by(by, loaded)
    scoring, loss, rest = Scoring(batch_size=batch_size), None, None
    if weights is not None:
        check_weights(weights, len(parts))
        mixed = with_weights(loaded, [weight / sum(weights) for weight in weights])
    else:
        require(text is not None, "there is no text to fit the weights on")
        fitted_on = text(loaded)
        if held_out and isinstance(whole := read_held_out(loaded), str):
            half = begin_of_part(whole, 0.5, loaded.data.documents)
            fitted_on, rest = [whole[:half]], [whole[half:]]
        by_tokens = held_out and rest is None
        mixed, loss = fit_mixture(loaded, fitted_on, scoring, by=by, half=by_tokens)
        if rest is not None:
            fitted_to = loaded.stored.scored_from + half
            mixed = replace(mixed, stored=replace(mixed.stored, fitted_to=fitted_to))
    scored = None
    if text is not None:  # by the mixture itself: exactly what `perplexity` will find for it
        scored = perplexity(mixed, rest or text(mixed), scoring=scoring)
        loss = scored.nats_per_token if rest else loss
    folder = write_stored(
        mixed,
        name=name,
        stem="-".join(part.name for part in parts),
        copy=copy,
        overwrite=overwrite,
        result=_validation(scored) if held_out else None,
        about={"held_out_loss": None if rest else loss},
    )
    recipe = mixed.stored
    return MixtureRecord(
        name=folder.name,
        path=str(folder.path),
        parts=[part.name for part in parts],
        weights=list(recipe.weights),
        nll_nats=scored and scored.nll_nats,
        by_order=list(map(list, recipe.by_order)) or None,
        gate=list(map(list, recipe.gate)) or None,
        held_out_loss=loss,
    )


def _validation(scored: Perplexity | None) -> dict[str, float] | None:
    """Convert a score of the held-out text to the keys of a training record.

    None if there is none, or if weights that were given leave a token without any probability.
    """
    if scored is None or not math.isfinite(scored.nll_nats):
        return None
    return {"val_loss": scored.nll_nats / scored.tokens, **store.bits_record(scored)}


def write_stored(
    mixed: LoadedModel,
    *,
    name: str | None,
    stem: str,
    copy: bool,
    overwrite: bool,
    result: dict[str, Any] | None,
    about: Mapping[str, Any],
) -> StoredModel:
    """Write a mixture into its own folder.

    Args:
        mixed: whose `stored` has the parts and the weights.
        name: what to call it; if None, `stem`, or `stem-2`, `stem-3` ...
        stem: a name made from the parts'.
        copy: keep copies of the parts in the folder.
        overwrite: replace a model of that name.
        result: its validation loss, as a training record has it.
        about: what else belongs in its record.

    Raises:
        SeqgenError: it cannot be written.
    """
    with store.building(name, stem, overwrite) as folder:
        store.write_mixture(folder, mixed.stored, mixed.tokenizer, copy)
        folder.write_record(
            created=store.now(),
            seqgen_version=__version__,
            parameters=mixed.model.parameter_count(),
            weights=list(mixed.stored.weights),
            result=result,
            **about,
        )
        folder.seal()
        folder.publish()
    return folder

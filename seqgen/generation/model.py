"""The Python API: a trained model with methods to sample, search and suggest. Prints nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seqgen.generation import beam_search, explain, sample
from seqgen.settings.generation import BeamOptions, SampleOptions
from seqgen.store import loading
from seqgen.text.sources import Vectors

if TYPE_CHECKING:
    from seqgen.engines.precision import Precision
    from seqgen.settings.scoring import CacheConfig
    from seqgen.store.loaded import LoadedModel

Kind = TypeVar("Kind", SampleOptions, BeamOptions)
# One prompt, or several: lines of text, or sources of a model that writes from vectors.
Prompts = str | Vectors | Iterable[str | Vectors]


@dataclass(frozen=True)
class Model:
    """Trained model, as loaded by `seqgen.load`.

    Every method takes one prompt or several; several may come slowly, and results come as soon
    as they are ready, in order. All of them raise SeqgenError for a prompt that is no text, or has
    something that the model does not know, and UsageError for a setting that makes no sense.
    """

    loaded: LoadedModel

    def __repr__(self) -> str:
        return repr(self.loaded)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.loaded.stored.name

    def sample(
        self, prompts: Prompts = "", *, labels: Sequence[str] = (), **settings: Any
    ) -> Iterator[sample.Sample]:
        """Generate text by sampling.

        Args:
            prompts: what to go on from; an empty one is the start of a text. For a model that
                writes from vectors: sources, such as `seqgen.text.vector_files.open_vectors` gives.
            labels: of a model that was trained with labels: those of the texts.
            settings: the options of `seqgen.settings.generation.SampleOptions`, by name. The same
                `seed` gives the same texts; it is drawn if None, and in every record.

        Yields:
            `num_samples` records for each prompt.
        """
        options = _options(SampleOptions, **settings)
        return sample.sample(self.loaded.with_labels(labels), _several(prompts), options)

    def stream(
        self, prompt: str | Vectors = "", *, labels: Sequence[str] = (), **settings: Any
    ) -> Iterator[str]:
        """Sample one text; yield each piece as soon as it is certain; see `sample`."""
        options = _options(SampleOptions, **settings)
        return sample.stream(self.loaded.with_labels(labels), prompt, options)

    def suggest(self, prompts: Prompts, count: int = 10) -> Iterator[explain.Suggestion]:
        """Yield the `count` most probable next tokens of each prompt, most probable first."""
        return explain.suggest(self.loaded, _several(prompts), count)

    def beam_search(
        self, prompts: Prompts = "", *, labels: Sequence[str] = (), **settings: Any
    ) -> Iterator[beam_search.Beam]:
        """Find the most probable texts by beam search.

        Args:
            prompts: what to go on from; see `sample`.
            labels: see `sample`.
            settings: the options of `seqgen.settings.generation.BeamOptions`, by name. The `seed`
                of stochastic beams is drawn if None, and in their records.

        Yields:
            `nbest` records for each prompt, the best first.
        """
        options = _options(BeamOptions, **settings)
        return beam_search.beam_search(self.loaded.with_labels(labels), _several(prompts), options)


def load(
    name: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    cache: CacheConfig | None = None,
) -> Model:
    """Load a trained model; see `seqgen.load`."""
    return Model(loading.load(name, device, precision, cache))


def _several(prompts: Prompts) -> Iterable[str | Vectors]:
    return [prompts] if isinstance(prompts, (str, Vectors)) else prompts


def _options(kind: type[Kind], seed: int | None = None, **settings: Any) -> Kind:
    return kind.of(seed=secrets.randbelow(1 << 31) if seed is None else seed, **settings)

"""The Python API: a loaded model with its methods, `seqgen.score` and `seqgen.compare`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from seqgen import hooks
from seqgen.engines.ops import ops_of, without_gradients
from seqgen.errors import UsageError
from seqgen.generation import beam_search, prompts, sample, suggest, text_batch
from seqgen.scoring import compare as comparing
from seqgen.scoring.evaluate import held_out
from seqgen.scoring.perplexity import Perplexity, perplexity
from seqgen.settings import require
from seqgen.settings.generation import BeamOptions, SampleOptions
from seqgen.settings.scoring import Scoring, TextScoring
from seqgen.settings.setting import checked_strings
from seqgen.store import loading
from seqgen.text.pairs import Pairs
from seqgen.text.reading import Text, unix_newlines
from seqgen.text.sources import Vectors
from seqgen.text.tokenfile import TokenFile, is_token_file, open_token_file
from seqgen.wording import Records, html_table, plural

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel

# A text, or the path of the file with it.
GivenText = str | Path | Iterable[str]
Kind = TypeVar("Kind", SampleOptions, BeamOptions)
# One prompt, or several: lines of text, which may be bytes of UTF-8; or sources of a model that
# writes from vectors.
Prompt = str | bytes | Vectors
Prompts = Prompt | Iterable[Prompt]


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

    def _repr_html_(self) -> str:
        loaded = self.loaded
        facts = {
            "model": self.name,
            "architecture": loaded.architecture or "mixture",
            "parameters": loaded.model.parameter_count(),
            "tokenizer": f"{loaded.tokenizer.kind}, {plural(loaded.tokenizer.vocab_size, 'token')}",
        }
        return html_table(facts.items())

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.loaded.stored.name

    def sample(
        self, prompts: Prompts = "", *, labels: Sequence[str] = (), **settings: Any
    ) -> Iterator[sample.Sample]:
        """Generate text by sampling.

        Args:
            prompts: what to go on from; an empty one is the start of a text. Bytes of UTF-8 may
                end inside a character, which is then the first of the text. For a model that
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
        self, prompt: Prompt = "", *, labels: Sequence[str] = (), **settings: Any
    ) -> Iterator[str]:
        """Sample one text; yield each piece as soon as it is certain; see `sample`."""
        options = _options(SampleOptions, **settings)
        return sample.stream(self.loaded.with_labels(labels), prompt, options)

    def suggest(self, prompts: Prompts, count: int = 10) -> Iterator[suggest.Suggestion]:
        """Yield the `count` most probable next tokens of each prompt, most probable first."""
        return suggest.suggest(self.loaded, _several(prompts), count)

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

    def chat(self, messages: str | Sequence[Mapping[str, Any]], **settings: Any) -> sample.Sample:
        """Answer a conversation, with the chat template that came with the model.

        Args:
            messages: the turns, such as `{"role": "user", "content": "Hello"}`; a string is one
                question. If they do not fit the model's window, the oldest are left out.
            settings: see `sample`.

        Returns:
            The record of the answer. Its prompt is the text that the model has read.

        Raises:
            SeqgenError: the model has no chat template, or that refuses the messages.
        """
        kind, options = hooks.chat_model(), _options(SampleOptions, **settings)
        require(kind is not None, "no plugin that answers conversations is installed")
        one = options.num_samples == options.candidates == 1
        require(one, "chat writes one answer, without num_samples and best_of")
        return kind.of(self.loaded).answer(messages, options)

    def score(
        self,
        text: str | Path | Iterable[str] | None = None,
        *,
        labels: Sequence[str] = (),
        **options: Any,
    ) -> Perplexity:
        """Score a text; see `seqgen.score`."""
        return score(self, text, labels, **options)

    def embed(self, texts: str | Iterable[str]) -> np.ndarray:
        """Return the vector (H,) of a text, or the vectors (N, H) of several, of length 1.

        A vector is the mean of the network's last hidden states after each token of the text.

        Raises:
            SeqgenError: the model has no hidden states, as n-gram models have none; or a text is
                longer than its window.
        """
        loaded = self.loaded.network_for("embed")
        embedder = hooks.load_method("embedding", "text-vectors", "embed")(loaded)
        several = list(_several(texts))
        require(bool(several), "give the texts to embed")
        (read,) = prompts.batches(loaded, several, len(several))
        added = [len(one.tokens) - len(loaded.ids(one.text)) for one in read]
        pairs = zip(read, added, strict=True)
        vectors = [[*embedder.embed(*pair)][-1] for pair in pairs]
        return vectors[0] if isinstance(texts, str) else np.stack(vectors)

    def tokens(self, text: str) -> tuple[int, ...]:
        """Return the ids that the model reads of a text, with the symbol that starts texts."""
        return self._prompt(text).tokens

    @without_gradients
    def logits(self, text: str = "", *, labels: Sequence[str] = ()) -> np.ndarray:
        """Return the logits (T, V), in float32, of what follows each of a text's T tokens.

        The tokens are those of `tokens`, so the first row is about the first token of the text if a
        symbol starts texts. Count-based models give log-probabilities.

        Args:
            text: what the model reads.
            labels: of a model that was trained with labels: those of the text.

        Raises:
            UsageError: the model writes from sources.
        """
        model = self.loaded.with_labels(labels)
        prompt = self._prompt(text)
        opens, handles = prompts.open_sources(model, [prompt])
        state = (opens or text_batch.without_sources(model.model))(handles)
        rows, ids = [], model.model.ids(np.array([prompt.tokens]))
        for begin in range(0, len(prompt.tokens), text_batch.PIECE):
            logits, state = model.model(ids[:, begin : begin + text_batch.PIECE], state)
            rows.append(ops_of(logits).array(logits)[0])
        return np.concatenate(rows).astype(np.float32)

    def _prompt(self, text: str) -> prompts.Prompt:
        conditioning = self.loaded.conditioning
        is_text = f"this is for models of text; {self.name} is {conditioning.model_is}"
        require(not conditioning.is_source, is_text)
        ((prompt,),) = prompts.batches(self.loaded, [text], 1)
        return prompt


def _several(prompts: Prompts) -> Iterable[Prompt]:
    return [prompts] if isinstance(prompts, Prompt) or not np.iterable(prompts) else prompts


def _options(kind: type[Kind], seed: int | None = None, **settings: Any) -> Kind:
    return kind.of(seed=secrets.randbelow(1 << 31) if seed is None else seed, **settings)


@dataclass(frozen=True)
class TextInMemory:
    """A string with the interface of a `Text` read from files."""

    text: str
    name: str = "the text"

    def chunks(self) -> Iterator[str]:
        """Yield the text in one piece."""
        yield self.text


def score(
    model: Model | str | Path | None,
    text: GivenText | None,
    labels: Sequence[str],
    **options: Any,
) -> Perplexity:
    """Score a text under a model; see `seqgen.score`."""
    scoring = Scoring.of(**options)
    loaded = _loaded(model).with_labels(labels)
    if text is None:
        kept = held_out(loaded)
        scored, file = [kept] if isinstance(kept, str) else kept, "validation"
    else:
        scored = _open_for_model(loaded, text, loaded.data.newlines)
        file = str(text) if isinstance(text, Path) else None
    return perplexity(loaded, scored, file=file, scoring=scoring)


def compare(
    models: Iterable[Model | str | Path],
    text: GivenText | None,
    seed: int,
    resamples: int,
    **options: Any,
) -> list[comparing.Comparison]:
    """Compare models on one text; see `seqgen.compare`."""
    scoring = Scoring(**TextScoring.of(**options).keywords)
    loaded = [_loaded(model) for model in models]
    require(bool(loaded), "give the models to compare")
    if text is None:
        in_pairs = loaded[0].conditioning.in_pairs
        require(not in_pairs, f"{loaded[0].name} is compared on pairs: give their text, or a Path")
        compared = comparing.common_text(loaded)
    else:
        compared = _open_for_model(loaded[0], text, "keep")
        if isinstance(compared, TokenFile):
            raise UsageError(f"{text} is a token file: give the text, or the Path of its file")
        compared = compared if isinstance(compared, Pairs) else "".join(compared)
    records = comparing.compare(loaded, compared, scoring=scoring, seed=seed, resamples=resamples)
    return Records(records)


def _loaded(model: Model | str | Path | None) -> LoadedModel:
    return model.loaded if isinstance(model, Model) else loading.load(model)


def _open_for_model(
    loaded: LoadedModel, text: GivenText, newlines: Literal["keep", "lf"]
) -> Iterable[str] | TokenFile | Pairs:
    """Open a text in the form that a model scores: in pieces, or as pairs."""
    in_pairs = loaded.conditioning.in_pairs
    if isinstance(text, Path):
        if not in_pairs and is_token_file(text):
            return open_token_file(text)
        if not in_pairs and (examples := hooks.read_examples(loaded, text)) is not None:
            return examples
        source = Text((text,), newlines)
    else:
        if isinstance(text, str) and os.path.isfile(text):  # noqa: PTH113  (a text may be long)
            said = f"is the name of a file: give Path({text!r}), or [{text!r}] for these characters"
            raise UsageError(f"the text {text!r} {said}")
        pieces = checked_strings(text)
        source = TextInMemory("".join(unix_newlines(pieces) if newlines == "lf" else pieces))
    return loaded.conditioning.read(source, source.name) if in_pairs else source.chunks()

"""OpenAI's embeddings protocol."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqgen import hooks
from seqgen.plugins.serve.protocol import Refused, read_prompts, require_length, typed

if TYPE_CHECKING:
    from seqgen.generation.prompts import Prompt
    from seqgen.plugins.serve.settings import ServeOptions
    from seqgen.store.loaded import LoadedModel

FIELDS = ("model", "input", "encoding_format", "user")
FORMATS = ("float", "base64")
# Tokens that are read between two steps of the texts that are being written.
READ_BETWEEN = 256


@dataclass(frozen=True)
class EmbeddedTexts:
    """Parsed request for embeddings.

    Attributes:
        embedder: computes the vectors; see the plugin `vectors`.
        texts: with their tokens.
        added: how many start tokens stand before each.
        encoded: send the numbers as base64.
    """

    embedder: Any
    texts: Sequence[Prompt]
    added: Sequence[int]
    encoded: bool

    @property
    def usage(self) -> dict[str, int]:
        """Number of tokens of the texts."""
        tokens = sum(len(text.tokens) for text in self.texts) - sum(self.added)
        return {"prompt_tokens": tokens, "total_tokens": tokens}

    def records(self) -> Iterator[dict[str, Any] | None]:
        """Yield the record of each text; None after a part of one."""
        for text, added in zip(self.texts, self.added, strict=True):
            for vector in self.embedder.embed(text, added, READ_BETWEEN):
                if vector is None:
                    yield None
                    continue
                raw = vector.astype("<f4").tobytes()
                values = base64.b64encode(raw).decode() if self.encoded else vector.tolist()
                yield {"object": "embedding", "index": text.index, "embedding": values}


def read_inputs(fields: dict[str, Any], loaded: LoadedModel, limits: ServeOptions) -> EmbeddedTexts:
    """Parse a request for embeddings, of a network with an n-gram model by the network alone.

    Raises:
        SeqgenError: a field has no meaning, a text is too long, or the model has no hidden states.
    """
    form = typed("encoding_format", fields.get("encoding_format", FORMATS[0]), str)
    if form not in FORMATS:
        why = f"encoding_format must be {' or '.join(FORMATS)}"
        raise Refused(why, param="encoding_format")
    if "input" not in fields:
        raise Refused("input must be a text, or a list of texts", param="input")
    loaded = loaded.network_for("/v1/embeddings")
    embedder = hooks.load_method("embedding", "text-vectors", "/v1/embeddings")(loaded)
    texts, added = read_prompts(fields["input"], loaded, limits, "input")
    if (window := embedder.model.window) is not None:
        for text in texts:
            require_length(text, f"{loaded.name} reads", window, "input")
    return EmbeddedTexts(embedder, texts, added, form == FORMATS[1])

"""Sections for `seqgen report`: the coloured text, and attention or recurrent units."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from seqgen.cli.shell.page import ReportSection
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.transformer.model import Transformer
from seqgen.plugins.inspect.heads import Attended, attended
from seqgen.plugins.inspect.pages import (
    attention_section,
    predictions_section,
    unit_section,
    units_section,
)
from seqgen.plugins.inspect.predictions import TokenPrediction, token_predictions
from seqgen.plugins.inspect.steps import Unit, UnitValues, unit_values, units
from seqgen.scoring.passages import Passages
from seqgen.store.loaded import LoadedModel

# Tokens that are shown with what was predicted, or with the value of a unit; candidates at each.
SHOWN, CANDIDATES = 400, 5
# Tokens of the text whose attention is looked at, and heads that are shown.
ATTENDED, HEADS = 60, 4
# Tokens over which units are observed, and units that are shown.
OBSERVED, UNITS = 2000, 10


class HeldOutText(ReportSection[list[TokenPrediction]]):
    """Section with the beginning of the text, coloured by surprisal."""

    title = "Held-out text"
    after = "Samples by step"

    def look(self, loaded: LoadedModel, passages: Passages) -> list[TokenPrediction]:
        return list(token_predictions(passages.head(SHOWN), CANDIDATES))

    def body(self, found: list[TokenPrediction]) -> str:
        return predictions_section(found).body

    def commands(self, found: list[TokenPrediction], model: str, file: str) -> list[str]:
        return [f"{_inspect(model, file)} {len(found)}"]


def _inspect(model: str, file: str) -> str:
    """Build the start of a command line, up to the number of tokens."""
    return f"seqgen inspect{file and f' {file}'} -m {model} --max-tokens"


@dataclass(frozen=True)
class TransformerFindings:
    """Attention of a transformer over the first tokens of a text.

    Attributes:
        tokens: the largest number of them.
        attention: the entropy of every head, and what some heads read for the last word.
    """

    tokens: int
    attention: Attended

    def body(self) -> str:
        """Render the attention as HTML."""
        return attention_section(self.attention).body

    def options(self) -> list[str]:
        """List the `seqgen inspect` options after --max-tokens that reproduce this."""
        shown = [f"{self.tokens} --attention"]
        if words := self.attention.words:
            heads = ",".join(str(read.head) for read in words)
            token = shlex.quote(words[0].word)
            shown.append(f"{shown[0]} --token={token} --layer {words[0].layer} --head {heads}")
        return shown


@dataclass(frozen=True)
class RecurrentFindings:
    """Units of a recurrent network.

    Attributes:
        units: those that remember longest.
        unit: the first of them, token by token.
    """

    units: list[Unit]
    unit: UnitValues

    def body(self) -> str:
        """Render the units as HTML."""
        return unit_section(self.unit).body + units_section(self.units).body

    def options(self) -> list[str]:
        """List the `seqgen inspect` options after --max-tokens that reproduce this."""
        unit = self.unit
        return [
            f"{len(unit.places)} --layer {unit.layer} --unit {unit.unit}",
            f"{OBSERVED} --units --top {len(self.units)}",
        ]


Findings = TransformerFindings | RecurrentFindings


class AttentionAndGates(ReportSection[Findings]):
    """Section on a transformer's attention, or on the memory of recurrent units."""

    title = "Attention and gates"
    after = "Beam search"
    absence = "This model has neither attention nor gates."

    def look(self, loaded: LoadedModel, passages: Passages) -> Findings | None:
        if isinstance(loaded.model, Transformer):
            return _of_transformer(loaded, passages)
        if isinstance(loaded.model, RecurrentLM):
            return _of_recurrent(passages)
        return None

    def body(self, found: Findings) -> str:
        return found.body()

    def commands(self, found: Findings, model: str, file: str) -> list[str]:
        return [f"{_inspect(model, file)} {options}" for options in found.options()]


def _of_transformer(loaded: LoadedModel, passages: Passages) -> TransformerFindings | None:
    """Compute the attention of the last layer's first heads from a passage's last word."""
    tokens = min(ATTENDED, loaded.model.window - 1)
    if tokens == 0:
        return None
    first = passages.head(tokens)
    every = attended(first, None, None, None)
    words = "".join(first.documents[-1].texts).split()
    if not words:
        return TransformerFindings(tokens, every)
    heads = range(min(HEADS, loaded.model.config.num_heads))
    read = attended(first, None, heads, words[-1])
    return TransformerFindings(tokens, Attended(every.heads, read.words, 0))


def _of_recurrent(passages: Passages) -> RecurrentFindings | None:
    """Compute the units of a recurrent network, and show one token by token."""
    listed = units(passages.head(OBSERVED))
    if not listed:
        return None
    first = listed[0]
    return RecurrentFindings(
        listed[:UNITS], unit_values(passages.head(SHOWN), first.layer, first.unit)
    )


HELD_OUT_TEXT, ATTENTION_AND_GATES = HeldOutText(), AttentionAndGates()

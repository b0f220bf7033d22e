"""The commands that make the figures of a page about a model again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from seqgen import registry, store
from seqgen.store.model import StoredModel

if TYPE_CHECKING:
    from seqgen.commands.portrait.portrait import Course, Portrait
    from seqgen.commands.portrait.translated import Translated

# Sections whose figures are in the records.
FIGURES = "Calibration", "Loss by position", "Loss by class of token", "Novelty"


def page_commands(
    model: StoredModel, course: Course, portrait: Portrait | Translated | None, text: str | None
) -> dict[str, list[str]]:
    """Return by section of the page the commands that make it again; each of them runs.

    Args:
        model: whose page it is.
        course: its training.
        portrait: how it deals with the text, or with sources; None where it does neither.
        text: the name of the file that was looked at; None for the held-out text.
    """
    from seqgen.commands.portrait.translated import Translated

    name = shlex.quote(store.as_given(model))
    shown = f"seqgen models show {name}"
    training = [*training_commands(model, name), shown]
    commands = {"What it is": [f"{shown} --all"], "Training": training}
    if course.samples:
        commands["Samples by step"] = [f"{shown} --samples"]
    if portrait is None:
        return commands
    if isinstance(portrait, Translated):
        again = [f"seqgen report -m {name} --json"]
        measured = dict.fromkeys(("BLEU by length", "Worst translations"), again)
        return {**commands, "Translations": [f"seqgen eval -m {name}"], **measured}
    file = "" if text is None else f" {shlex.quote(text)}"
    record = f"seqgen report{file and ' --file' + file} -m {name} --json"
    inspect = f"seqgen inspect{file} -m {name} --max-tokens"
    return {
        **commands,
        "Held-out text": [f"{inspect} {len(portrait.passage)}"],
        **{title: [record] for title in FIGURES},
        "Beam search": [_search(portrait, name)],
        "Attention and gates": [f"{inspect} {what}" for what in _inside(portrait)],
        "Signatures": [record, f"seqgen perplexity{file} -m {name} --verbose"],
    }


def training_commands(model: StoredModel, name: str) -> list[str]:
    """Return the training of a model; nothing for one that was mixed or imported.

    Nothing either where a model that it was trained from is gone, or has been trained again.
    """
    files = store.data_of(model.record).get("files")
    if not files or registry.known_architecture(model.config["architecture"]) is None:
        return []
    apart = len(files) - (store.data_of(model.record).get("target_files") or 0)
    sides = [" ".join(map(shlex.quote, side)) for side in (files[:apart], files[apart:])]
    vectors = model.config["model"].get("source_features") is not None
    source = "--source-vectors" if vectors else "--source"
    data = f"{source} {sides[0]} --target {sides[1]}" if sides[1] else sides[0]
    origins = store.origins_of(model)
    if None in origins.values():
        return []
    more = "".join(
        f" --{kind.replace('_', '-')} {shlex.quote(store.as_given(origin))}"
        for kind, origin in origins.items()
    )
    seed = model.record.get("seed")
    more += "" if seed is None else f" --seed {seed}"
    return [f'seqgen train {data} --config "$(seqgen models path {name})/config.json"{more}']


def _search(portrait: Portrait, name: str) -> str:
    from seqgen.commands.portrait.portrait import SEARCH

    prompt = portrait.tree.prompt
    options = f"--beams {SEARCH.beams} --nbest {SEARCH.nbest} --max-tokens {SEARCH.max_tokens}"
    # What begins with a dash is no option.
    ends = "-- " if prompt.startswith("-") else ""
    return f"seqgen beam-search -m {name} {options} --explain {ends}{shlex.quote(prompt)}"


def _inside(portrait: Portrait) -> list[str]:
    """Return what shows the same attention or units, of as many tokens; nothing without them."""
    from seqgen.commands.portrait.portrait import OBSERVED

    if portrait.attention is not None:
        shown = [f"{portrait.attended} --attention"]
        if words := portrait.attention.words:
            heads = ",".join(str(read.head) for read in words)
            token = shlex.quote(words[0].word)
            shown.append(f"{shown[0]} --token={token} --layer {words[0].layer} --head {heads}")
        return shown
    if portrait.unit is None:
        return []
    unit = portrait.unit
    return [
        f"{len(portrait.passage)} --layer {unit.layer} --unit {unit.unit}",
        f"{OBSERVED} --units --top {len(portrait.units)}",
    ]

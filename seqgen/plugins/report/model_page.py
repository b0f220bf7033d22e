"""HTML page about one model, or several side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TypeVar

from seqgen.cli.shell.page import PageSection, page, side_by_side, table, visible
from seqgen.plugins.report import translations
from seqgen.plugins.report.charts import Series, chart, search_tree, thinned
from seqgen.plugins.report.findings import with_added
from seqgen.plugins.report.portrait import Course, Portrait, PredictionFigures
from seqgen.plugins.report.translated import Translated

P = TypeVar("P", Portrait, Translated)
# Samples that are shown of a training.
MOST_SAMPLES = 6
# Sections of every kind of model.
OF_ALL = "What it is", "Training", "Samples by step"


@dataclass(frozen=True)
class Profile:
    """Contents of the page for one model.

    Attributes:
        name: the model's.
        facts: what it is, each as plain text by its name.
        course: how its training went.
        portrait: how it deals with the text, or what it makes of sources; None where it does
            neither, as a classifier.
        commands: by section, those that make it again.
    """

    name: str
    facts: Mapping[str, str]
    course: Course
    portrait: Portrait | Translated | None
    commands: Mapping[str, Sequence[str]]


def model_page(profiles: Sequence[Profile], reload: int = 0) -> str:
    """Render the page as HTML.

    Args:
        profiles: one for each model.
        reload: after how many seconds a browser reads the page again; 0 for never.
    """
    parts: dict[str, Callable[[Profile], str]] = {
        "What it is": lambda p: table(["fact", "value"], p.facts.items(), p.name, left=2),
        "Training": _training,
        "Samples by step": _samples,
        "Calibration": _with(lambda p: _calibration(p.figures)),
        "Loss by position": _with(lambda p: _groups(p.figures, "position")),
        "Loss by class of token": _with(lambda p: _groups(p.figures, "class")),
        "Beam search": _with(lambda p: search_tree(p.tree)),
        "Signatures": _with(_signature),
    }
    parts = {title: parts.get(title) or _added(title) for title in with_added(list(parts))}
    kinds = {type(profile.portrait) for profile in profiles}
    if Portrait not in kinds:
        parts = {title: body for title, body in parts.items() if title in OF_ALL}
    if Translated in kinds:
        parts |= {
            "Translations": _of_sources(translations.examples),
            "BLEU by length": _of_sources(translations.by_length),
            "Worst translations": _of_sources(translations.worst),
        }
    sections = []
    for title, body in parts.items():
        each = [_part(profile, title, body(profile), len(profiles) > 1) for profile in profiles]
        joint = _together(profiles) if title == "Training" and len(profiles) > 1 else ""
        both = side_by_side(each) if len(profiles) > 1 else "".join(each)
        sections.append(PageSection(title, joint + both))
    names = ", ".join(profile.name for profile in profiles)
    return page(f"seqgen report: {names}", sections, reload)


def _part(profile: Profile, title: str, body: str, several: bool) -> str:
    """Render a model's part of a section, with the commands that reproduce it."""
    heading = f"<h3>{escape(profile.name)}</h3>" if several else ""
    lines = profile.commands.get(title, ())
    return heading + body + (_commands(lines) if lines else "")


def _commands(lines: Sequence[str]) -> str:
    text = escape("\n".join(lines))
    return f'<pre tabindex="0" role="group" aria-label="Commands">{text}</pre>'


def _of(kind: type[P], models: str, body: Callable[[P], str]) -> Callable[[Profile], str]:
    """Create a section for one kind of portrait; other models get a note that names `models`."""

    def section(profile: Profile) -> str:
        if not isinstance(profile.portrait, kind):
            return f"<p>Only {models} have this.</p>"
        return body(profile.portrait)

    return section


_with = partial(_of, Portrait, "models of text")
_of_sources = partial(_of, Translated, "models that write from sources")


def _added(title: str) -> Callable[[Profile], str]:
    """Create the section of a plugin."""
    return _with(lambda portrait: portrait.found[title].body())


def _training(profile: Profile) -> str:
    course = profile.course
    losses = [
        Series("training", course.train_loss),
        Series("validation", course.val_loss, marks=True),
    ]
    state = "<p><strong>Training goes on.</strong></p>" if course.running else ""
    return (
        state
        + chart(losses, "step", f"nats/{course.unit}", "Loss")
        + chart([Series("rate", course.lr)], "step", "learning rate", "Learning rate")
        + chart([Series("norm", course.grad_norm)], "step", "norm", "Gradient before clipping")
    )


def _together(profiles: Sequence[Profile]) -> str:
    """Plot the losses of several models together; empty if their units differ."""
    units = {profile.course.unit for profile in profiles}
    if len(units) > 1:
        return ""
    unit = units.pop()
    drawn = []
    for name, key in (("Validation", "val_loss"), ("Training", "train_loss")):
        curves = [
            Series(profile.name, getattr(profile.course, key), marks=key == "val_loss")
            for profile in profiles
        ]
        drawn.append(chart(curves, "step", f"nats/{unit}", f"{name} loss of all models"))
    tokenizers = {profile.facts.get("tokenizer") for profile in profiles}
    note = "<p>Their tokenizers differ, so that losses per token cannot be compared.</p>"
    return "".join(drawn) + (note if len(tokenizers) > 1 and unit == "token" else "")


def _samples(profile: Profile) -> str:
    if not profile.course.samples:
        return "<p>No samples were written during training.</p>"
    # Spread over the training, the first and the last included.
    shown = thinned(profile.course.samples, MOST_SAMPLES)
    return "".join(
        f'<figure><figcaption>step {step:,}</figcaption><pre tabindex="0" role="group" '
        f'aria-label="Sample at step {step}">{escape(visible(text))}</pre></figure>'
        for step, text in shown
    )


def _calibration(figures: PredictionFigures) -> str:
    points = [(each.said, each.frequency) for each in figures.calibration]
    drawn = chart(
        [Series("frequency", points, marks=True)],
        "probability said",
        "frequency",
        "How often what was predicted came; on the dashed line they agree",
        diagonal=True,
    )
    rows = [
        [f"{each.said:.4f}", f"{each.frequency:.4f}", f"{each.count:,}"]
        for each in figures.calibration
    ]
    caption = (
        f"All tokens of the vocabulary at {figures.tokens:,} places. Expected calibration error of "
        f"the likeliest token: {figures.calibration_error:.4f}"
    )
    return drawn + table(["said", "frequency", "predictions"], rows, caption, left=0)


def _groups(figures: PredictionFigures, by: str) -> str:
    groups = figures.by_position if by == "position" else figures.by_class
    rows = [
        [group.name, f"{group.tokens:,}", f"{group.bits:.3f}", f"{group.share:.1%}"]
        for group in groups
    ]
    what = "tokens before it on its line" if by == "position" else "class of token"
    caption = f"Mean surprisal by {what}; all: {figures.bits_per_token:.3f} bits/token"
    drawn = ""
    if by == "position":
        points = [(int(group.name.split(" ")[0]), group.bits) for group in groups]
        drawn = chart(
            [Series("surprisal", points, marks=True)], "position", "bits/token", "By position"
        )
    return drawn + table([what, "tokens", "bits", "share of loss"], rows, caption)


def _signature(portrait: Portrait) -> str:
    return (
        f"<p>{escape(portrait.protocol)}; the first {portrait.figures.tokens:,} tokens</p>"
        f"<p><code>{escape(portrait.signature)}</code></p>"
    )

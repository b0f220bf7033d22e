"""`seqgen report`: a page about models, with the commands that reproduce its figures."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import registry, store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Input, Inputs
from seqgen.cli.shell.model_options import Device, ModelNames
from seqgen.cli.shell.output import Output, put_record
from seqgen.cli.shell.output_files import PAGES, check_html
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import Panel, argument, setting
from seqgen.store.model import StoredModel

if TYPE_CHECKING:
    from seqgen.plugins.report.model_page import Profile
    from seqgen.plugins.report.portrait import Course, Portrait
    from seqgen.plugins.report.translated import Translated

OUT = Path("report.html")
# While a model is trained, the page is written, and read again by a browser, so often.
SECONDS = 5


class ReportOptions(ModelNames, panel=Panel.OUTPUT):
    """Models of the page, the text they read, and the page's file."""

    models: tuple[str, ...] = argument(
        "Trained models: names or paths; as -m.", "[MODEL]...", completes="models"
    )
    out: Path = setting(
        "The .html file to write. A page of seqgen there is replaced.",
        OUT,
        reads="path",
        writes=True,
        endings=PAGES,
    )
    watch: bool = setting("Write the page again while the models are trained; it reloads itself.")
    file: str | None = setting(
        "Use the beginning of this text file; - is standard input.",
        names=("--file", "--text"),
        panel=Panel.TEXT,
        reads="file",
        without="the model's held-out text",
    )
    prompt: str | None = setting(
        "Prompt of the beam search.", panel=Panel.TEXT, without="the first words of the text"
    )

    def find(self) -> list[StoredModel]:
        """Find the models to report on.

        Raises:
            UsageError: one is given twice, or a text for models that read none.
            SeqgenError: there is no such model.
        """
        stored = [store.find(name) for name in [*self.models, *self.model] or [None]]
        names = [each.name for each in stored]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"{twice} is given twice")
        if (self.file is not None or self.prompt is not None) and all(
            each.task.takes_targets for each in stored
        ):
            raise UsageError(
                "--file and --prompt are for models of texts; these write from sources"
            )
        return stored


@takes_options
def report(shown: ReportOptions, machine: Device, out: Output) -> None:
    """Write a page about a model, or about several side by side.

    The page is one HTML file that works offline. It shows what the models are and how their
    training went, samples by step, a coloured passage of held-out text, calibration, loss by
    position and by class of token, how much of what they write is new, a beam search, attention
    or gates, and the commands that make each figure again. For a translator, it shows
    translations with their references, BLEU by length and the worst lines.
    """
    from seqgen.cli.shell.page import write_page

    source = None if shown.file is None else Inputs(out.quiet).open_one(shown.file)
    path = check_html(shown.out, [] if source is None else [source], "--out")
    models = shown.find()
    for model in models:
        model.networks_for("report", out.notice)
    pages = _Pages(models, source, shown.prompt, machine.device)
    while True:
        html, running = pages.html(shown.watch)
        write_page(path, html)
        if not (shown.watch and running):
            break
        if pages.written == 1:
            out.notice(f"wrote {path}; it is updated while training continues (Ctrl-C ends this)")
        time.sleep(SECONDS)
    for record in pages.records() if out.json else ():
        put_record({**record, "path": str(path)})
    idle = "; nothing is being trained" if shown.watch and pages.written == 1 else ""
    out.notice(f"wrote {path}{idle}")


class _Pages:
    """Page builder that recomputes the parts of models that have changed.

    Attributes:
        written: how many pages were made.
    """

    def __init__(
        self, models: Sequence[StoredModel], source: Input | None, prompt: str | None, device: str
    ) -> None:
        self.models, self.source, self.prompt = models, source, prompt
        self.device, self.written = device, 0
        self._portraits: dict[str, tuple[float, Portrait | Translated | None]] = {}

    def html(self, watch: bool) -> tuple[str, bool]:
        """Build the page, and check whether any of the models is still training."""
        from seqgen.plugins.report.model_page import model_page

        profiles = [self._profile(model) for model in self.models]
        running = any(profile.course.running for profile in profiles)
        self.written += 1
        return model_page(profiles, SECONDS if watch and running else 0), running

    def _profile(self, model: StoredModel) -> Profile:
        from seqgen.cli.shell.model_facts import settings_apart, six_facts
        from seqgen.plugins.report.model_page import Profile
        from seqgen.plugins.report.portrait import course
        from seqgen.text.tokenizers import load_tokenizer

        current = StoredModel(model.path)  # what is read once is kept
        portrait = self._portrait(current)
        tokenizer = load_tokenizer(current.path / "tokenizer").describe()
        apart = settings_apart(current.config)
        facts = six_facts(current, tokenizer)
        facts |= {f"settings of {group}": line for group, line in apart.items()}
        if current.ngram is not None:
            facts["figures below"] = "of the network alone, without the n-gram model"
        training = course(current)
        text = None if self.source is None else self.source.name
        commands = page_commands(current, training, portrait, text)
        return Profile(current.name, facts, training, portrait, commands)

    def _portrait(self, model: StoredModel) -> Portrait | Translated | None:
        """Compute a model's figures on the text; cached until its weights change.

        None for one that is no language model, or that writes from labels.
        """
        from seqgen.cli.shell.pairs import as_pairs, held_out_input
        from seqgen.plugins.report.portrait import portrait
        from seqgen.plugins.report.translated import translated
        from seqgen.store.loading import load

        if model.task.model_is is not None:
            return None
        when, known = self._portraits.get(model.name, (None, None))
        if when == model.written:
            return known
        when = model.written
        loaded = load(model.networks, self.device)
        latest = None
        if loaded.conditioning.is_source and loaded.stored.holds_out:
            held_out = held_out_input([loaded], quiet=True)
            pairs = as_pairs(loaded, held_out, loaded.data.newlines)
            latest = translated(loaded, pairs)
        if not loaded.conditioning.in_pairs:
            if self.source is None and loaded.stored.validation_text is None:
                raise SeqgenError(f"{model.name} has no held-out text: give --file FILE")
            source = self.source or held_out_input([loaded], quiet=True)
            latest = portrait(loaded, source.chunks(loaded.data.newlines), self.prompt)
        self._portraits[model.name] = when, latest
        return latest

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record of each model that has figures."""
        mixed = {model.name for model in self.models if model.ngram is not None}
        for name, (_, portrait) in self._portraits.items():
            if portrait is not None:
                yield {"model": name, "network_alone": name in mixed, **portrait.record()}


# Sections whose figures are in the records.
FIGURES = "Calibration", "Loss by position", "Loss by class of token"


def page_commands(
    model: StoredModel, course: Course, portrait: Portrait | Translated | None, text: str | None
) -> dict[str, list[str]]:
    """List the commands that reproduce each section of the page.

    Args:
        model: whose page it is.
        course: its training.
        portrait: how it deals with the text, or with sources; None where it does neither.
        text: the name of the file that was looked at; None for the held-out text.
    """
    from seqgen.plugins.report.translated import Translated

    name = shlex.quote(store.model_argument(model))
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
    file = "" if text is None else shlex.quote(text)
    record = f"seqgen report{file and f' --file {file}'} -m {name} --json"
    return {
        **commands,
        **{title: [record] for title in FIGURES},
        "Beam search": [_search(portrait, name)],
        "Signatures": [record, f"seqgen perplexity{file and f' {file}'} -m {name} --verbose"],
        **{
            title: [*([record] if finding.section.key else ()), *finding.commands(name, file)]
            for title, finding in portrait.found.items()
        },
    }


def training_commands(model: StoredModel, name: str) -> list[str]:
    """List the commands that reproduce a model's training; empty if it was mixed or imported.

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
    flags = "".join(
        f" --{kind.replace('_', '-')} {shlex.quote(store.model_argument(origin))}"
        for kind, origin in origins.items()
    )
    seed = model.record.get("seed")
    flags += "" if seed is None else f" --seed {seed}"
    return [f'seqgen train {data} --config "$(seqgen models path {name})/config.json"{flags}']


def _search(portrait: Portrait, name: str) -> str:
    from seqgen.plugins.report.portrait import SEARCH

    prompt = portrait.tree.prompt
    options = f"--beams {SEARCH.beams} --nbest {SEARCH.nbest} --max-tokens {SEARCH.max_tokens}"
    # What begins with a dash is no option.
    ends = "-- " if prompt.startswith("-") else ""
    return f"seqgen beam-search -m {name} {options} --explain {ends}{shlex.quote(prompt)}"

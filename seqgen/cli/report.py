"""`seqgen report`: a page about models."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seqgen import store
from seqgen.cli import options
from seqgen.cli.help import OUTPUT, TEXT, flag, value
from seqgen.cli.inputs import Input, Inputs, file_name, file_path
from seqgen.cli.output import put_record, say
from seqgen.cli.outputs import check_out
from seqgen.errors import SeqgenError, UsageError
from seqgen.store.model import StoredModel

if TYPE_CHECKING:
    from seqgen.report.model_page import Profile
    from seqgen.tasks.portrait.portrait import Portrait

OUT = Path("report.html")
# While a model is trained, the page is written, and read again by a browser, so often.
SECONDS = 5.0
# Sections whose figures are in the records.
FIGURES = "Calibration", "Loss by position", "Loss by class of token"


def report(
    model: options.Models = None,
    out: Annotated[
        Path,
        value(
            "FILE",
            OUTPUT,
            "The .html file to write. A page of seqgen there is replaced.",
            parser=file_path,
        ),
    ] = OUT,
    watch: Annotated[
        bool,
        flag(
            "--watch",
            OUTPUT,
            "Write the page again while the models are trained; it reloads itself.",
        ),
    ] = False,
    text: Annotated[
        str | None,
        value(
            "FILE",
            TEXT,
            "Use the beginning of this text; - is standard input.",
            default="the model's held-out text",
            parser=file_name,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        value("TEXT", TEXT, "Prompt of the beam search.", default="the first words of the text"),
    ] = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a page about a model, or about several beside each other.

    The page is one HTML file that loads nothing. It shows what the models are and how their
    training went, samples by step, a coloured passage of held-out text, calibration, loss by
    position and by class of token, a beam search, attention or gates, and the commands that make
    each figure again.
    """
    from seqgen.report.page import check_page, is_page, write_page

    inputs = Inputs(quiet)
    source = None if text is None else inputs.open_one(text)
    check_page(out, "--out")
    out = check_out(out, [] if source is None else [source], True, "a page of seqgen", is_page)
    models = [store.find(name) for name in model or [None]]
    names = [each.name for each in models]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{twice} is given twice")
    pages = _Pages(models, source, prompt, device, out)
    while True:
        html, running = pages.html(watch)
        write_page(out, html)
        if not (watch and running):
            break
        if not quiet and pages.written == 1:
            say(f"wrote {out}; it is written again while training goes on (Ctrl-C ends this)")
        time.sleep(SECONDS)
    for record in pages.records() if json else ():
        put_record({**record, "path": str(out)})
    if not quiet:
        idle = "; nothing is being trained" if watch and pages.written == 1 else ""
        say(f"wrote {out}{idle}")


class _Pages:
    """Makes the page of some models, anew where a model has changed.

    Attributes:
        written: how many pages were made.
    """

    def __init__(
        self,
        models: Sequence[StoredModel],
        source: Input | None,
        prompt: str | None,
        device: str,
        out: Path,
    ) -> None:
        self.models, self.source, self.prompt = models, source, prompt
        self.device, self.out, self.written = device, out, 0
        self._portraits: dict[str, tuple[float, Portrait | None]] = {}

    def html(self, watch: bool) -> tuple[str, bool]:
        """Return the page, and whether any of the models is being trained."""
        from seqgen.report.model_page import model_page

        profiles = [self._profile(model) for model in self.models]
        running = any(profile.course.running for profile in profiles)
        self.written += 1
        return model_page(profiles, SECONDS if watch and running else 0), running

    def _profile(self, model: StoredModel) -> Profile:
        from seqgen.cli.model_facts import settings_apart, six_facts
        from seqgen.report.model_page import Profile
        from seqgen.tasks.portrait.training import course
        from seqgen.tokenizers import load_tokenizer

        current = StoredModel(model.path)  # what is read once is kept
        portrait = self._portrait(current)
        tokenizer = load_tokenizer(current.path / "tokenizer").describe()
        apart = settings_apart(current.config)
        facts = six_facts(current, tokenizer)
        facts |= {f"settings of {group}": line for group, line in apart.items()}
        commands = self._commands(current, portrait)
        return Profile(current.name, facts, course(current), portrait, commands)

    def _portrait(self, model: StoredModel) -> Portrait | None:
        """Return how a model deals with the text; made again where its weights have changed."""
        from seqgen.cli.pairs import held_out_by
        from seqgen.tasks.loading import load
        from seqgen.tasks.portrait.portrait import portrait

        when, known = self._portraits.get(model.name, (None, None))
        if when == model.written:
            return known
        when = model.written
        loaded = load(str(model.path), self.device)
        latest = None
        if not loaded.reads_pairs:
            if self.source is None and model.validation_text is None:
                raise SeqgenError(f"{model.name} has no held-out text: give --text FILE")
            source = self.source or held_out_by([loaded], quiet=True)
            latest = portrait(loaded, source.chunks(loaded.data.newlines), self.prompt)
        self._portraits[model.name] = when, latest
        return latest

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the figures of each model that has some."""
        for name, (_, portrait) in self._portraits.items():
            if portrait is not None:
                figures = dataclasses.asdict(portrait.figures)
                yield {"model": name, **figures, "signature": portrait.signature}

    def _commands(self, model: StoredModel, portrait: Portrait | None) -> dict[str, list[str]]:
        """Return by section what makes it again on the command line."""
        name = shlex.quote(model.name)
        file = "" if self.source is None else f" {shlex.quote(self.source.name)}"
        text = file and f" --text{file}"
        known = (model.record.get("data") or {}).get("files") or ["FILE"]
        files = " ".join(map(shlex.quote, known))
        seed = model.record.get("seed")
        train = f"seqgen train {files} --config $(seqgen models path {name})/config.json"
        train += "" if seed is None else f" --seed {seed}"
        inside = "attention" if model.config["architecture"] == "transformer" else "units"
        prompt = shlex.quote(portrait.tree.prompt) if portrait else ""
        search = f"seqgen beam-search {prompt} -m {name} --beams 4 --max-tokens 12 --explain"
        return {
            "What it is": [f"seqgen models show {name} --all"],
            "Training": [train, f"seqgen models show {name}"],
            "Samples by step": [f"seqgen models show {name} --samples"],
            "Held-out text": [f"seqgen inspect{file} -m {name} --max-tokens 400"],
            **{title: [f"seqgen report{text} -m {name} --json"] for title in FIGURES},
            "Beam search": [search] if portrait else [],
            "Attention and gates": [f"seqgen inspect{file} -m {name} --{inside}"],
            "Signatures": [f"seqgen perplexity{file} -m {name} --verbose"],
        }

"""Shared by `seqgen sample` and `seqgen beam-search`: loading a model and printing its texts."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from seqgen.cli.shell.model_options import ReadModel
from seqgen.cli.shell.output import Output, is_terminal, put, put_record, shown
from seqgen.cli.shell.prompts import GivenPrompts, say_unknown
from seqgen.cli.shell.source_attention import AttentionView, Picture
from seqgen.settings import Options, Panel, is_group, setting
from seqgen.settings.generation import WritingOptions

if TYPE_CHECKING:
    from seqgen.generation.prompts import Written
    from seqgen.store.loaded import LoadedModel
    from seqgen.text.sources import Vectors

W = TypeVar("W", bound=WritingOptions)
C = TypeVar("C", bound=Callable[..., Any])


class Echo(Options, panel=Panel.OUTPUT):
    """Option to print the prompt before its text."""

    echo: bool | None = setting(
        "Print the prompt before the text.",
        names=("--echo/--no-echo",),
        without="on a terminal",
        common=True,
    )

    @property
    def on_this_terminal(self) -> bool:
        """Value of --echo; by default, True if standard output is a terminal."""
        return is_terminal(sys.stdout) if self.echo is None else self.echo


def lists_filters(options: type[WritingOptions]) -> Callable[[C], C]:
    """Decorate a command: fill the flags of plugins' filters into its docstring.

    They take the place of `{constraints}`, `{filters}`, `{before_temperature}`, `{last}` and
    `{endings}` (those that may end texts).
    """
    added = [kind for kind in options.types()["added"].types().values() if is_group(kind)]
    places = {
        "constraints": [kind.constraint_flag for kind in added if kind.constraint_flag],
        "filters": [kind.filter_flag for kind in added if kind.filter_flag],
        "before_temperature": [flag for kind in added for flag in kind.flags_before_temperature],
        "last": [flag for kind in added for flag in kind.last_flags],
    }
    names = {place: "".join(f", {flag}" for flag in flags) for place, flags in places.items()}
    endings = [*places["constraints"], *places["filters"]]
    end = "end" if len(endings) > 1 else "ends"
    only = f"; only {' and '.join(endings)} {end} the text instead"
    names["endings"] = only if endings else ""

    def listed(command: C) -> C:
        command.__doc__ = (command.__doc__ or "").format(**names)
        return command

    return listed


def with_drawn_seed(options: W, picture: Picture) -> W:
    """Draw a seed if none is given, and turn attention on if a picture is requested."""
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    return replace(options, of_source=picture.of(options.of_source), seed=seed)


@dataclass(frozen=True)
class TextWriter:
    """Loaded model with its prompts and output options, which prints generated texts.

    Attributes:
        loaded: the model.
        prompts: what the command line has of them; None if they are typed later.
        attention_view: shows the attention of texts.
        echoed: whether a text is shown with its prompt.
        out: takes texts.
    """

    loaded: LoadedModel
    prompts: GivenPrompts | None
    attention_view: AttentionView
    echoed: bool
    out: Output

    @classmethod
    def open(
        cls,
        options: WritingOptions,
        rows: int,
        model: ReadModel,
        prompts: GivenPrompts | None,
        picture: Picture,
        echo: Echo,
        out: Output,
    ) -> TextWriter:
        """Load the model and check that it supports the prompts and options.

        Raises:
            UsageError: a source is to be written before its text, or the model does not continue
                such prompts; or see `ReadModel.load`.
            SeqgenError: there is no such model.
        """
        inputs = prompts.files if prompts else ()
        attention_view = AttentionView(
            options.of_source, picture.plot, maps=out.draws, inputs=inputs
        )
        loaded = model.load(options.of_source, rows, options.max_tokens)
        out.uses([loaded], options.seed)
        if echo.echo and loaded.conditioning.is_source:
            loaded.conditioning.require_nothing("--echo")
        if prompts:
            prompts.check_for(loaded)
        echoed = echo.on_this_terminal and not loaded.conditioning.is_source
        return cls(loaded, prompts, attention_view, echoed, out)

    @cached_property
    def texts(self) -> Iterable[str] | Sequence[Vectors]:
        """Prompts, read lazily; see `GivenPrompts.texts`."""
        return self.prompts.texts(self.loaded, self.out)

    def is_raw(self, each: int) -> bool:
        """Check whether to print a single text as it is, without escapes or headings."""
        of_source = self.attention_view.options
        listed = self.prompts.are_listed
        marked = self.out.json or listed or of_source.align or of_source.align_words
        return not marked and len(self.texts) == each == 1

    def put(
        self, records: Iterable[Written], raw: bool, number: str, heading: Callable[[Any], str]
    ) -> None:
        """Print texts: one line or JSON record each, or a single text as it is.

        Args:
            records: of texts.
            raw: see `is_raw`.
            number: the key of a record that tells apart the texts of a prompt.
            heading: what is said of a text beside its prompt's number.
        """
        unknown, given = 0, self.loaded.conditioning
        for record in records:
            text = self.loaded.echoed(record.prompt, record.text) if self.echoed else record.text
            which = getattr(record, number)
            if self.out.json:
                put_record(record.record())
            elif raw:
                put(text + "\n")
            else:
                title = f"{given.prompt} {record.index}{heading(record)}"
                put(shown(text, title, record.alignment))
            self.attention_view.put(record.look, f"source {record.index}, {number} {which}")
            if given.is_source and which == 0:
                unknown += record.of_source.source_unknown
        say_unknown(unknown, self.out)

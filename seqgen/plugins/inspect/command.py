"""`seqgen inspect`: show predictions, units or attention on a text, token by token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqgen import store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Input, Inputs, piped_input
from seqgen.cli.shell.model_options import Device, ModelName
from seqgen.cli.shell.output import Output, RecordedOutput
from seqgen.cli.shell.output_files import PAGES, check_html
from seqgen.errors import UsageError
from seqgen.settings import OptionRule, Options, Panel, file_argument, require, setting
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.plugins.inspect.output import View
    from seqgen.scoring.passages import Passages
    from seqgen.store.loaded import LoadedModel


# What can be asked of a text, and the options that say more about it.
PREDICTIONS = "predictions"
VIEWS = ("--trace", "--units", "--unit", "--attention")
GOES_WITH = "{flag} goes with {others}"
OF_A_UNIT, OF_ATTENTION = (OptionRule((view,), GOES_WITH) for view in ("--unit", "--attention"))


class Inspected(Options, panel=Panel.TEXT):
    """Text to inspect."""

    file: str | None = file_argument(
        "A text file, or - for standard input. Without one, the model's held-out text.", "[TEXT]"
    )
    text: str | None = setting(
        "Look at this text itself, not at a file.",
        metavar="STRING",
        conflicts=OptionRule(("TEXT",), "give a file or {flag}, not both"),
    )
    max_tokens: int = setting("Look at the first N tokens of the text.", 1000, low=1)

    def source(self, loaded: LoadedModel, out: Output) -> Input | None:
        """Choose the input to inspect: a file, standard input, or held-out text; None for --text.

        Raises:
            UsageError: the file is not there.
            SeqgenError: none is given, and the model holds out nothing.
        """
        from seqgen.cli.shell.pairs import held_out_input

        if self.text is not None:
            return None
        file = self.file
        if file is None and piped_input() is not None:
            file = "-"
        if file is None:
            out.announce(f"looking at the held-out text of {loaded.stored.name}")
            return held_out_input([loaded], quiet=True)
        if file != "-" and not Path(file).exists():
            raise UsageError(f"there is no file {file!r}; for a text itself, use --text {file!r}")
        return Inputs(out.quiet).open_one(file)


class Aspects(Options, panel=Panel.MEASURED):
    """Views to show, and where to write them."""

    top: int | None = setting(
        "How many of the likeliest tokens, or of the units, to show.",
        low=1,
        metavar="K",
        panel=Panel.OUTPUT,
        without="5 tokens, 20 units",
        conflicts=OptionRule(
            ("--trace", "--unit", "--attention"), "{flag} has no meaning with {other}"
        ),
    )
    trace: bool = setting(
        "For a recurrent network: show every step, with its input, gates, state, logits, softmax "
        "and loss.",
        names=("--trace", "--steps"),
        conflicts=VIEWS,
    )
    units: bool = setting(
        "For a recurrent network: list its units by how long they remember, with what in the "
        "text they follow.",
        conflicts=VIEWS,
    )
    unit: int | None = setting(
        "For a recurrent network: colour the text by the value of this unit, counted from 0.",
        low=0,
        metavar="U",
        conflicts=VIEWS,
    )
    gate: str | None = setting(
        "With --unit: a gate, as i, f, g or o of an lstm, or a part of the state.",
        metavar="NAME",
        without="the memory",
        needs=OF_A_UNIT,
    )
    attention: bool = setting(
        "For a transformer or a masked model: show the entropy of each head, and with --token "
        "what heads attend to from a word.",
        conflicts=VIEWS,
    )
    token: str | None = setting(
        "With --attention: a word of the text.", metavar="WORD", needs=OF_ATTENTION
    )
    layer: int | None = setting(
        "With --unit or --attention: the layer, counted from 0.",
        low=0,
        metavar="L",
        without="0 with --unit, all with --attention, the last with --token",
        needs=OptionRule(("--unit", "--attention"), GOES_WITH),
    )
    head: tuple[int, ...] = setting(
        "With --attention: these heads, counted from 0.",
        low=0,
        listed=True,
        metavar="H[,H]",
        without="all",
        needs=OF_ATTENTION,
    )
    html: Path | None = setting(
        "Write a page into this .html file instead, where hovering shows each value.",
        panel=Panel.OUTPUT,
        reads="path",
        writes=True,
        endings=PAGES,
        conflicts=OptionRule(("--json",), "give {other} or {flag}, not both"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.token != "", "--token needs a word that is not empty")

    @property
    def chosen(self) -> str:
        """Flag of the view to show; by default the predictions."""
        return next((flag for flag in self.given if flag in VIEWS), PREDICTIONS)


@takes_options
def inspect(
    looked: Inspected, model: ModelName, asked: Aspects, machine: Device, out: RecordedOutput
) -> None:
    """Show what a model does with a text, token by token.

    By default that is the likeliest tokens at each place, of any model. Recurrent networks have
    --trace, --unit and --units, transformers and masked models --attention.
    """
    if out.json and asked.top is not None and asked.units:
        raise UsageError("--top has no meaning with --units --json, which gives every unit")
    heads, layer = list(dict.fromkeys(asked.head)) or None, asked.layer
    from seqgen.plugins.inspect import output as inspected
    from seqgen.scoring.passages import tokenize_passages
    from seqgen.store.loading import Work, load, load_any

    stored = store.find_all(model.model).networks_for("inspect", out.announce)
    work = Work(read=looked.max_tokens)
    if asked.attention and stored.task.shows_attention:
        loaded = load_any(stored, machine.device, work=work)
    else:
        loaded = load(stored, machine.device, work=work)
    loaded.conditioning.require_nothing("inspect")
    out.uses([loaded])
    source = looked.source(loaded, out)
    html = asked.html
    if html is not None:
        html = check_html(html, [] if source is None else [source], "--html")
    chunks = [looked.text] if source is None else source.chunks(loaded.data.newlines)
    passages = tokenize_passages(loaded, chunks, looked.max_tokens)
    if passages.cut:
        size = plural(looked.max_tokens, "token")
        out.announce(f"looking at the first {size}; --max-tokens takes more")
    views = {
        PREDICTIONS: lambda: inspected.predictions(passages, asked.top or inspected.CANDIDATES),
        "--trace": lambda: inspected.steps(passages),
        "--units": lambda: inspected.units(passages, asked.top or inspected.UNITS),
        "--unit": lambda: inspected.unit(passages, layer or 0, asked.unit, asked.gate),
        "--attention": lambda: inspected.attention(passages, layer, heads, asked.token),
    }
    _put(views[asked.chosen](), passages, html, out)


def _put(view: View, passages: Passages, html: Path | None, out: Output) -> None:
    """Print a view as records or text, or write it as a page."""
    if out.records(view.records):
        return
    if html is not None:
        from seqgen.cli.shell.page import page, write_page

        name = passages.documents[0].loaded.stored.name
        write_page(html, page(f"{name}: a text token by token", [view.section()]))
        out.notice(f"wrote {html}")
    else:
        view.show(out)

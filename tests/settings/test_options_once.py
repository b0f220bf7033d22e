"""A setting is written once: flag, keyword, check, help and documentation follow from it."""

import re
import runpy
from pathlib import Path

import pytest
import typer
from places import ROOT

from seqgen.cli import make_app, sample
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.help import CommandWithHelp
from seqgen.errors import UsageError
from seqgen.settings.generation import SampleOptions
from seqgen.settings.options import Options, Panel
from seqgen.settings.setting import REQUIRED, setting


@pytest.fixture(scope="module")
def options_table():
    """Return what writes the options of a command on the page of settings."""
    for plugin in ("labels", "tune"):  # which the page is about, too
        pytest.importorskip(f"seqgen.plugins.{plugin}")
    return runpy.run_path(str(ROOT / "docs" / "settings.py"))["options_table"]


class Heated(SampleOptions, panel=Panel.FILTERS):
    """The options of sampling with one more."""

    heat: float = setting("Warm the text by so much.", 0.5, low=0, high=2)


class Unsaid(Options, panel=Panel.TEXT):
    """Settings whose default is not said, or must be given."""

    number: int | None = setting("A number.", low=1)
    turned_on: bool = setting("Turn it on.")
    names: tuple[str, ...] = setting("Names.", panel=Panel.OUTPUT)
    name: str = setting("A name.")
    several: tuple[str, ...] = setting("More names.", REQUIRED)


def test_the_type_says_the_default_and_the_class_the_heading():
    options = Unsaid(name="a", several=["b"])
    assert (options.number, options.turned_on, options.names) == (None, False, ())
    assert options.given == ["--name", "--several"]
    for missing in ({"name": "a"}, {"several": ["b"]}):
        with pytest.raises(TypeError, match="missing"):
            Unsaid(**missing)
    panels = {name: field.metadata["flag"].panel for name, field, _ in Unsaid.flags()}
    assert panels == dict.fromkeys(panels, "Text") | {"names": "Output"}


class Drawn(Options, panel=Panel.OUTPUT):
    """A file that is written."""

    plot: Path | None = setting("Draw it.", reads="path", writes=True, endings=(".svg", ".png"))


def test_a_path_may_be_given_as_a_text_and_its_ending_is_checked_after_its_type():
    for given in ("a.SVG", Path("a.SVG")):
        assert Drawn(plot=given).plot == Path("a.SVG")
    assert Drawn(plot="none").plot is None
    with pytest.raises(UsageError, match=r"^--plot writes .svg or .png files: give a.pdf such a"):
        Drawn(plot="a.pdf")
    with pytest.raises(UsageError, match=r"^--plot must be a path or none, not 3$"):
        Drawn(plot=3)


def called(function, arguments):
    """Call a function as a command."""
    app = typer.Typer()
    app.command(cls=CommandWithHelp)(function)
    command = typer.main.get_command(app)
    command(list(arguments), prog_name=function.__name__, standalone_mode=False)


@pytest.fixture
def run():
    """Call a command that samples with `Heated`, and return the options that it gets."""
    got = []

    @takes_options
    def heated(sampling: Heated) -> None:
        """Write text."""
        got.append(sampling)

    return lambda *arguments: called(heated, arguments) or got[-1]


def test_a_new_setting_has_a_flag_and_a_keyword(run):
    assert run().heat == Heated.of().heat == 0.5
    assert run("--heat", "1.5", "--top-p", "0.9") == Heated.of(heat=1.5, top_p=0.9)


def test_a_new_setting_is_checked_alike_by_flag_and_by_keyword(run):
    for call in (lambda: run("--heat", "3"), lambda: Heated.of(heat=3)):
        with pytest.raises(UsageError, match="--heat must be from 0 to 2, not 3"):
            call()
    with pytest.raises(UsageError, match="did you mean 'heat'"):
        Heated.of(haet=1)


def test_a_new_setting_is_in_the_help_and_in_the_documentation(run, capfd, options_table):
    with pytest.raises((IndexError, SystemExit)):  # help comes in place of a call
        run("--help")
    filters = capfd.readouterr().out.partition("\nFilters:")[2].split("\n\n")[0]
    said = " ".join(filters.split())
    assert "--heat X Warm the text by so much. [default: 0.5]" in said
    rows = options_table([Heated])
    assert "| `--heat` | number | from 0 to 2 | `0.5` | Warm the text by so much. |" in rows


class Renamed(Options):
    """An option with a new name, an old one and a short one."""

    file: str | None = setting("A file.", None, names=("--file", "--text", "-f"))


class Sizes(Options):
    """Several numbers in one text."""

    sizes: tuple[int, ...] = setting("Sizes.", (4, 8), low=1, high=9999, listed=True, metavar="N,N")


@pytest.fixture
def sizes():
    """Call a command that takes `Sizes`, and return those that it gets."""
    got = []

    @takes_options
    def sized(sizes: Sizes) -> None:
        """Take sizes."""
        got.append(sizes.sizes)

    return lambda *arguments: called(sized, arguments) or got[-1]


@pytest.mark.parametrize(
    ("text", "numbers"), [("8", (8,)), ("8, 64", (8, 64)), ("0008", (8,)), ("9999", (9999,))]
)
def test_a_text_has_several_numbers(sizes, text, numbers):
    assert sizes("--sizes", text) == Sizes.of(sizes=numbers).sizes == numbers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a list with commas between"),
        ("8,", "a list with commas between"),
        ("0", "at least 1"),
        ("-1", "at least 1"),
        ("1.5", "a whole number"),
        ("x", "a whole number"),
        ("10000", "from 1 to 9,999"),
        ("9" * 5000, "a whole number"),
    ],
)
def test_other_lists_are_refused(sizes, text, said):
    with pytest.raises(UsageError, match=f"--sizes (takes|must be) {said}"):
        sizes("--sizes", text)


def test_the_help_and_the_documentation_show_the_usual_list(sizes, capfd, options_table):
    assert sizes() == (4, 8)
    sizes("--help")
    assert "--sizes N,N Sizes. [default: 4,8]" in " ".join(capfd.readouterr().out.split())
    assert "| `--sizes` | integer | at least 1 | `4,8` | Sizes. |" in options_table([Sizes])
    with pytest.raises(UsageError, match="--sizes must be at least 1, not 0"):
        Sizes.of(sizes=(8, 0))


def test_an_old_spelling_works_and_is_not_shown(capfd):
    got = []

    @takes_options
    def read(renamed: Renamed) -> None:
        """Read a file."""
        got.append((renamed.file, renamed.given))

    app = typer.Typer()
    app.command(cls=CommandWithHelp)(read)
    command = typer.main.get_command(app)
    for flag in ("--file", "--text", "-f"):
        command([flag, "a.txt"], prog_name="read", standalone_mode=False)
    assert got == [("a.txt", ["--file"])] * 3
    command(["--help"], prog_name="read", standalone_mode=False)
    said = capfd.readouterr().out
    assert "-f, --file TEXT" in said and "--text" not in said


def test_the_page_lists_every_option_of_sample(options_table):
    command = typer.main.get_command(make_app()).commands["sample"]
    options = [one for one in command.params if one.param_type_name == "option"]
    taken = {flag for one in options for flag in (*one.opts, *one.secondary_opts)}
    rows = options_table(sample.sample.groups)
    listed = {flag for row in rows[2:] for flag in re.findall("--?[a-z][a-z-]*", row.split("|")[1])}
    assert listed == taken - {"-h", "--help"}

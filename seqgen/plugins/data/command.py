"""`seqgen data`: report what a text contains before a model is trained on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen import hooks
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.output import RecordedOutput, one_line, say
from seqgen.cli.shell.tables import MISSING, count, curve, figure, percentage, put_facts
from seqgen.files import input_title
from seqgen.packages import install_command
from seqgen.settings import DataConfig, Documents, Options, file_argument, redeclare, setting
from seqgen.settings.options import Panel
from seqgen.wording import first_names

if TYPE_CHECKING:
    from seqgen.plugins.data.report import DataReport


# Begins another line of a fact in the table.
_NEXT_LINE = f"\n{'':25}"
# Documents whose beginning is shown.
SAMPLES_SHOWN = 5


class Reported(Options):
    """Options of `seqgen data`: the text, and the part that `train` would hold out."""

    files: tuple[str, ...] = file_argument(
        "Texts, joined in order: files, folders, patterns; - is standard input.", "[FILE]..."
    )
    field: str | None = setting(
        "Report on the texts at this key of .jsonl and .json files, or in this column of tables; "
        "as in seqgen train.",
        metavar="NAME",
        panel=Panel.TEXT,
    )
    documents: Documents = redeclare(DataConfig, "documents")
    val: str = redeclare(DataConfig, "val")
    split_seed: int = redeclare(DataConfig, "split_seed")


@takes_options
def data(reported: Reported, out: RecordedOutput) -> None:
    """Report what a text contains, and what in it would hurt training.

    Sizes, alphabet, longest lines, scripts; copies and near-copies of lines; how words follow the
    laws of Zipf and Heaps. Then warnings: held-out lines that are trained on too, an end unlike the
    rest, damaged encodings, boilerplate. Lines of 30 characters or more are compared.
    """
    from seqgen.plugins.data.report import data_report
    from seqgen.text.reading import Text, document_ending, text_files

    inputs = Inputs(out.quiet, reported.field, one_line=reported.documents == "line")
    names = inputs.keep(given_or_piped(reported.files, "seqgen data FILE"))
    config = DataConfig(
        as_text=True, documents=reported.documents, val=reported.val, split_seed=reported.split_seed
    )
    by_field = reported.field is not None
    paths = text_files(names) if by_field else tuple(_trained_on(names))
    text = Text(paths, ending=document_ending(config.documents))
    for path in () if by_field else paths:
        if any(kind.reads(path) for kind in hooks.load_all("datasets")):
            out.announce(
                f"{input_title(str(path))} has examples; this is about its JSON (see --field)"
            )
    others = inputs.left_out.items() if by_field else _left_out(reported.files, paths)
    report = data_report(text, config, {name: str(why) for name, why in others})
    if out.record(report):
        return
    put_facts(_facts(report))
    for law in ("zipf", "heaps") if out.draws else ():
        _draw(law, getattr(report, law))
    for warning in report.warnings:
        out.notice(f"warning: {one_line(warning)}")


def _trained_on(names: Iterable[str]) -> Iterator[Path]:
    """Yield the files to report on: those of folders and patterns that `train` reads, and others.

    A named file of records is reported on as it is.
    """
    from seqgen.text.reading import text_files
    from seqgen.text.training_files import training_files

    for name in names:
        yield from text_files([name]) if Path(name).is_file() else training_files([name], False)


def _left_out(names: Iterable[str], read: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the files of folders and patterns that are not among those that are read, and why."""
    from seqgen.text.file_kinds import extraction_advice
    from seqgen.text.reading import file_kind, left_out_files, read_head, text_files

    for name in names:
        if name == "-" or Path(name).is_file():
            continue
        for path, why in left_out_files(name).items():
            yield str(path), why or f"{path} is not text"
        for path in sorted({*text_files([name])} - {*read}):
            advice = extraction_advice(file_kind(path), path, read_head(path))
            yield str(path), f"{path} is {advice}"


def _facts(report: DataReport) -> dict[str, str]:
    scripts = [f"{name} {percentage(share)}" for name, share in report.scripts.items()]
    near, held, most = report.near_copies, report.held_out, report.boilerplate["most_frequent"]
    missing = f"{MISSING} ({install_command('datasketch')})"
    facts = {
        "files": first_names([Path(name).name for name in report.files], 5),
        "bytes": count(report.bytes),
        "characters": f"{count(report.characters)}, {count(report.alphabet)} distinct, "
        f"{count(report.rare_characters)} once",
        "lines": f"{count(report.lines)}, {count(report.empty_lines)} empty, median "
        f"{count(report.median_line)} characters",
        "words": f"{count(report.words)}, {count(report.vocabulary)} distinct",
        "scripts": ", ".join(scripts[:5]),
        "longest lines": ", ".join(
            f"{count(line['characters'])} (line {count(line['line'] + 1)})"
            for line in report.longest_lines
        ),
        "copies": f"{percentage(report.repeated_lines)} of lines",
        "near-copies": missing if near is None else f"{percentage(near['share'])} of lines",
        "boilerplate": f"{percentage(report.boilerplate['share'])} of lines",
        "held out": MISSING
        if held is None
        else f"{count(held['trained_on'])} of {count(held['lines'])} lines are trained on too",
        "own words of each tenth": " ".join(map(percentage, report.unseen_words)),
        "Zipf, Heaps": " and ".join(figure(one["exponent"]) for one in (report.zipf, report.heaps)),
    }
    for line in most[:3]:
        facts["boilerplate"] += f"{_NEXT_LINE}{count(line['count'])} x {one_line(line['text'])}"
    documents = [f"{one_line(name)}: {taken}" for name, taken in report.documents.items()]
    for number, sample in enumerate([*report.samples.values()][:SAMPLES_SHOWN]):
        documents[number] += f"{_NEXT_LINE}  {one_line(sample)}"
    rows = {"documents": documents, "left out": map(one_line, report.left_out.values())}
    listed = {name: _NEXT_LINE.join(row) for name, row in rows.items()}
    return facts | {name: row for name, row in listed.items() if row}


def _draw(law: str, found: Mapping[str, Any]) -> None:
    """Draw a curve with logarithmic axes on standard error."""
    import math

    points = [(math.log10(x), math.log10(y)) for x, y in found["points"]]
    names = {"zipf": "frequency by rank", "heaps": "vocabulary by words read"}
    ticks = {float(n): f"1e{n}" for n in range(int(max((x for x, _ in points), default=0)) + 1)}
    say(f"{names[law]}, powers of ten")
    for line in curve([("•", points)], height=10, ticks=ticks):
        say(line)

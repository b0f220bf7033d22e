"""`seqgen replay`: run recorded commands again, and report differences."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from seqgen import store
from seqgen.cli import command_tree_for, outputs_of, translate_former_spelling
from seqgen.cli.shell.flags import fill_in_numbers, takes_options
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.model_options import Threads
from seqgen.cli.shell.other_tools import UsageProblem, with_own_options
from seqgen.cli.shell.output import Output, put
from seqgen.cli.shell.tables import count
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import write_bytes
from seqgen.settings import Options, Panel, file_argument, setting
from seqgen.text.file_kinds import UNPACKED
from seqgen.text.reading import lines
from seqgen.wording import plural

# Commands whose results follow from what is recorded; those that store models do it elsewhere.
STORING = ("train", "sweep", "mix")
REPLAYED = (
    *("sample", "beam-search", "fill", "restore", "perplexity", "eval", "compare", "bleu"),
    *("predict", "vectors", "diagnose", "inspect", "novelty", "data", "tokenize", *STORING),
)
# What takes another value each time, or is a place. The training loss is a mean since it was last
# reported, which is decided by the clock.
TIMES = frozenset(
    {"seconds", "tokens_per_second", "validation_seconds", "train_loss", "path", "run"}
)
# What tells the records of one command apart.
NUMBERS = ("index", "sample", "rank", "line", "file", "model", "name")
# Options that were off by default before, and the key of the records that they have changed.
ON_BY_DEFAULT_NOW = {"heal": "healed"}
# Parts of `run` that a difference can come from.
CAUSES = ("models", "files", "options", "versions", "machine")
# What is in `run`, and its type.
PARTS = {"command": str, "arguments": list, "seed": int | None, "stdin": bool}
PARTS |= dict.fromkeys(CAUSES, dict)
# Characters of a value that a difference shows.
SHOWN = 40
Record = dict[str, Any]


class ReplayedRecords(Options, panel=Panel.SAVING):
    """Records to replay."""

    file: str | None = file_argument(
        "Records made with --record, as JSON Lines, perhaps compressed; - is standard input."
    )
    update: bool = setting("Replace the records in FILE by the new results.")


@takes_options
def replay(recorded: ReplayedRecords, threads: Threads, out: Output) -> None:
    """Run recorded commands again, and report for each result whether it is equal or what differs.

    Commands that write, measure or train record their results with --record. Each command is run
    once more, with its seed, in the working directory. Whatever is no longer as it was recorded is
    named, even if the results are equal: a changed model or file, options, versions, the machine.
    The exit code is 1 if a result differs. train, sweep and mix make their models again in a folder
    of their own; the stored ones stay as they are.
    """
    (name,) = given_or_piped([recorded.file], "seqgen replay FILE")
    source = Inputs(out.quiet).open_one(name)
    plain = isinstance(source.content, Path) and source.content.suffix.lower() not in UNPACKED
    if recorded.update and not plain:
        raise UsageError("--update needs a file, and none that is compressed")
    if recorded.update and source.content.resolve().is_relative_to(store.models_folder().resolve()):
        raise UsageError(f"{name} is in the models' folder, where --update writes nothing")
    old = [_read(line, number) for number, line in enumerate(lines(source.chunks()), start=1)]
    now, different = [], 0
    for index, (before, after, causes, values) in enumerate(_replayed(old)):
        now.append(before if after is None else after)
        different += bool(values)
        # A damaged record may have half of a surrogate pair.
        differs = [one.encode("utf-8", "backslashreplace").decode() for one in causes + values]
        if not out.record({"index": index, "equal": not values, "differs": differs}):
            put(f"{index}\t{'; '.join(['differs' if values else 'equal', *differs])}\n")
    if recorded.update:
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in now)
        write_bytes(source.content.resolve(), text.encode("utf-8", "backslashreplace"))
        out.notice(f"{plural(different, 'record')} of {count(len(old))} updated")
    elif different:
        raise SeqgenError(f"{plural(different, 'record')} of {count(len(old))} cannot be repeated")


def _read(line: str, number: int) -> Record:
    """Parse a line as a record.

    Raises:
        SeqgenError: the line is none.
    """
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict):
            return record
    raise SeqgenError(f"line {number} is not a JSON record")


def _replayed(
    old: Iterable[Record],
) -> Iterator[tuple[Record, Record | None, list[str], list[str]]]:
    """Yield each old record with its new one or None, the causes, and the changed results.

    Consecutive records of one command are made by running it once.
    """
    for _, group in groupby(old, lambda record: json.dumps(record.get("run"), sort_keys=True)):
        records = list(group)
        try:
            made = _made_again(records)
        except SeqgenError as error:
            yield from ((record, None, [], [str(error)]) for record in records)
            continue
        by_number: dict[str, list[Record]] = {}
        for record in made:
            by_number.setdefault(_numbers(record), []).append(record)
        for record in records:
            alike = by_number.get(_numbers(record))
            after = alike.pop(0) if alike else None
            differs = ["there is no such record now"] if after is None else _values(record, after)
            causes = _causes(record["run"], made[0]["run"]) if made else []
            yield record, after, causes, differs


def _numbers(record: Record) -> str:
    return json.dumps([record.get(key) for key in NUMBERS])


def _made_again(records: Sequence[Record]) -> list[Record]:
    """Run the command of some records again, and return its records.

    Raises:
        SeqgenError: it is not recorded, cannot be repeated, or fails.
    """
    run = records[0].get("run")
    if run is None:
        raise SeqgenError("it was not made with --record")
    if not isinstance(run, dict):
        raise SeqgenError(f"its run is damaged: {_short(run)}")
    for name, kind in PARTS.items():
        if not isinstance(run.get(name), kind):
            raise SeqgenError(f"its run is damaged: {name} is {_short(run.get(name))}")
    command, *arguments = translate_former_spelling(
        [run["command"], "--quiet", *map(str, run["arguments"])]
    )
    seed, models = run["seed"], list(run["models"])
    if command == "train":  # which draws its seed late
        seed = records[0].get("seed")
    stdin = _prompts(records, command) if run["stdin"] else None
    if command not in REPLAYED:
        raise SeqgenError(f"only {', '.join(REPLAYED)} can be repeated, not {command}")
    given = _given([command, *arguments])
    added = ["--record"]
    if seed is not None and "seed" not in given:
        added += ["--seed", str(seed)]
    if len(models) == 1 and not given.keys() & {"models", "model", "parts", "all_"}:
        added += ["-m", models[0]]  # which was the latest then
    known = {option.name for option in command_tree_for([command]).commands[command].params}
    for option, key in ON_BY_DEFAULT_NOW.items():
        if option in known - given.keys() and not any(key in record for record in records):
            added.append(f"--no-{option}")
    with tempfile.TemporaryDirectory() as home:
        if command in STORING:
            _link_models(Path(home), [name for record in records for name in _made_by(record)])
        try:
            done = subprocess.run(
                [sys.executable, "-m", "seqgen", command, *added, *arguments],
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                env={**os.environ, **({"SEQGEN_HOME": home} if command in STORING else {})},
                check=False,
            )
        except (ValueError, OSError) as error:  # a NUL among the arguments, for example
            raise SeqgenError(f"its command cannot be run: {error}") from None
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2].removeprefix("seqgen: ")
        raise SeqgenError(said or f"it ends with exit code {done.returncode}")
    return [_read(line, n) for n, line in enumerate(done.stdout.split("\n"), start=1) if line]


def _typed_values(arguments: list[str]) -> dict[str, Any]:
    """Parse a command's arguments into raw option values by name, without checking them.

    Values are texts, not checked yet; options that are not given are left out.

    Args:
        arguments: a command without commands of its own, and what it is given.

    Raises:
        SeqgenError: there is no such option, or one has no value.
    """
    command = command_tree_for(arguments).commands[arguments[0]]
    context = command.context_class(command, info_name=arguments[0])
    try:
        words = with_own_options(command, context, fill_in_numbers(arguments[1:]))
        given, _, _ = command.make_parser(context).parse_args(words)
    except UsageProblem as error:
        raise SeqgenError(error.format_message()) from None
    return {name: value for name, value in given.items() if value}


def _given(arguments: list[str]) -> dict[str, Any]:
    """Parse and check the options of a recorded command; see `_typed_values`.

    Raises:
        SeqgenError: it has no such option; or it would write a file, or change a stored model.
    """
    given = _typed_values(arguments)
    if "resume" in given:
        raise SeqgenError("a resumed training cannot be repeated: its model has gone further since")
    writing = next((flag for name, flag in outputs_of(arguments[0]).items() if name in given), None)
    if writing is not None:
        raise SeqgenError(f"it writes a file ({writing}), which a replay does not do")
    return given


def _made_by(record: Record) -> Iterator[Any]:
    """Yield the names of the models that a command stored, from its record."""
    yield record.get("name")
    mixture = record.get("mixture")
    if isinstance(mixture, dict):  # of --with-ngram in versions that stored several models
        yield from (mixture.get("name"), mixture.get("ngram"))


def _link_models(home: Path, made: Sequence[Any]) -> None:
    """Create a home with links to the models and cache, except models to be made again."""
    for path in (store.home() / "cache", *store.models_folder().glob("[!.]*")):
        if path.is_dir() and path.name not in made:
            link = home / path.relative_to(store.home())
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path.resolve())


def _prompts(records: Sequence[Record], command: str) -> str:
    """Reconstruct the standard input from the prompts of the records.

    Raises:
        SeqgenError: it was something else, or some of the records are missing.
    """
    prompts = {str(record.get("index")): record.get("prompt") for record in records}
    if command not in ("sample", "beam-search") or any(r.get("source") for r in records):
        raise SeqgenError("it read standard input, which is not recorded")
    if list(prompts) != [*map(str, range(len(prompts)))]:
        raise SeqgenError("records of earlier prompts of the same command are missing")
    return "".join(f"{prompt}\n" for prompt in prompts.values())


def _values(before: Record, after: Record) -> list[str]:
    """Describe the results that differ."""
    before, after = _lasting(before), _lasting(after)
    return [
        f"{name} was {_short(before.get(name))}, is {_short(after.get(name))}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _lasting(value: Any) -> Any:
    """Remove the fields that differ in every run, such as times."""
    if isinstance(value, dict):
        return {name: _lasting(part) for name, part in value.items() if name not in TIMES}
    return [_lasting(part) for part in value] if isinstance(value, list) else value


def _causes(before: Record, after: Record) -> list[str]:
    """List the differences in command, models, files, versions and machine."""
    causes = []
    for part in CAUSES:
        old, new = before[part], after[part]
        if part == "options":  # -m is added where the latest model was meant
            added = ("model", "models", *ON_BY_DEFAULT_NOW)
            old = {**{name: new.get(name) for name in added}, **old}
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                was, now = _short(old.get(name)), _short(new.get(name))
                causes.append(f"{part.removesuffix('s')} {name} was {was}, is {now}")
    return causes


def _short(value: Any) -> str:
    text = "missing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."

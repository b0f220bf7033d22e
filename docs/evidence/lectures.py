"""Make the figures of `lectures.md` again: run the commands of its tables, in their order.

    python docs/evidence/lectures.py                     # all rows, which takes hours
    python docs/evidence/lectures.py --only 1:2 0:10     # some rows, and what their models need
    python docs/evidence/lectures.py --minutes 0.5       # a default budget below five minutes
    python docs/evidence/lectures.py --list              # show what would run

Every command that ends is written down in FOLDER/done.jsonl, so that a run that is stopped goes on
where it was; a command that failed is run again. FOLDER also holds the models and the results,
`results.md`: each row with what its commands said, beside what the page says that they gave.

With `--minutes`, a network trains so long if its command has neither steps, epochs nor minutes, or
has a preset. What it then says is no figure of the page, but the command is shown to work.

Texts that are not part of this repository, such as shakespeare.txt, go into FOLDER; a command that
names a missing one is left out, and those that use its model are too; that is said.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_suffix(".md")
ROW = re.compile(r"^\| (\d:\d+[^|]*)\|([^|]*)\|[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.M)
COMMAND = re.compile(r"`((?:seqgen|python -m tests\.benchmarks) [^`\n]+)`")
TEXT_FILE = re.compile(r"[\w/.-]+\.(?:txt|tsv|npy)")
# What a command said last is its result, without the text that `train` shows.
LINES, SHOWN = 24, "  | "
# Commands that use the latest model, unless they name one.
USE_LATEST = {"sample", "beam-search", "perplexity", "eval", "inspect", "diagnose", "report"}


@dataclass(frozen=True)
class Row:
    """A row of the page.

    Attributes:
        place: in the lectures.
        subject: what they show.
        commands: those of the row, in order; of seqgen without `seqgen`.
        gave: what the page says that they gave.
        lecture: the lectures' own figure.
    """

    place: str
    subject: str
    commands: tuple[str, ...]
    gave: str
    lecture: str


def rows(page: str) -> list[Row]:
    """Return the rows of the page's tables, those without a command included."""
    found = []
    for cells in ROW.findall(page):
        place, subject, commands, gave, lecture = map(str.strip, cells)
        lines = tuple(line.removeprefix("seqgen ") for line in COMMAND.findall(commands))
        found.append(Row(place, subject, lines, gave, lecture))
    return found


def chosen(every: Sequence[Row], only: Sequence[str]) -> list[Row]:
    """Return the rows of these places, and before them those whose models they use.

    Raises:
        SystemExit: there is no such row.
    """
    if not only:
        return list(every)
    unknown = set(only) - {row.place for row in every}
    if unknown:
        raise SystemExit(f"lectures.md has no row {', '.join(sorted(unknown))}")
    kept = {number for number, row in enumerate(every) if row.place in only}
    for number in sorted(kept, reverse=True):
        kept |= set(_needed(every, number))
    return [every[number] for number in sorted(kept)]


def _needed(every: Sequence[Row], number: int) -> Iterator[int]:
    """Yield the rows that train what a row's commands use, and what those use in turn."""
    used = {name for line in every[number].commands for name in _models(line)}
    latest = any(_uses_latest(line) for line in every[number].commands)
    for earlier in range(number - 1, -1, -1):
        made = {name for line in every[earlier].commands for name in _made(line)}
        trains = any(line.startswith("train ") for line in every[earlier].commands)
        if used & made or (latest and trains):
            used, latest = used - made, latest and not trains
            yield earlier
            yield from _needed(every, earlier)


def _typed(line: str) -> str:
    """Return a command as the page has it."""
    return line if line.startswith("python ") else f"seqgen {line}"


def _after(line: str, flags: Sequence[str]) -> list[str]:
    words = shlex.split(line)
    return [value for flag, value in itertools.pairwise(words) if flag in flags]


def _made(line: str) -> list[str]:
    return _after(line, ["--name"])


def _models(line: str) -> list[str]:
    """Return the names that a command may use: values of -m and --init-from, and arguments."""
    parts = _after(line, ["-m", "--init-from", "--features", "--resume"])
    return [name for part in parts for name in re.split(r"[+:]", part)] + shlex.split(line)[1:]


def _uses_latest(line: str) -> bool:
    """Return whether a command uses the model that was trained last."""
    words = shlex.split(line)
    return words[0] in USE_LATEST and not {"-m", "--model"} & set(words)


def _has_budget(words: Sequence[str]) -> bool:
    budgets = {"--steps", "--epochs", "--minutes"}
    return words[0] != "train" or bool(budgets & set(words))


class Runs:
    """The commands that were run in a folder.

    Args:
        folder: where.
        minutes: for training where the command names no budget; None for the default.
    """

    def __init__(self, folder: Path, minutes: float | None = None) -> None:
        self.folder, self.log = folder, folder / "done.jsonl"
        self.minutes = minutes
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / "corpora"
        if not link.exists():
            link.symlink_to(ROOT / "corpora")
        lines = self.log.read_text("utf-8").splitlines() if self.log.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("}")]
        self.done = {record["command"]: record for record in records}

    def missing(self, line: str) -> list[str]:
        """Return the files that a command reads and that are not there."""
        written = _after(line, ["--plot", "--html", "--out", "--name"])
        named = [word for word in shlex.split(line) if TEXT_FILE.fullmatch(word)]
        return [n for n in named if n not in written and not (self.folder / n).exists()]

    def run(self, line: str) -> None:
        """Run a command unless it has been; write down what came of it."""
        if self.done.get(line, {}).get("code") == 0:
            return
        words = shlex.split(_typed(line))
        module = words[2] if words[0] == "python" else "seqgen"
        words = words[words.index(module) + 1 :]
        if words[0] == "train" and "--name" in words and "--overwrite" not in words:
            words.append("--overwrite")  # what a stopped run has left
        if self.minutes is not None and not _has_budget(words):
            words += ["--minutes", str(self.minutes)]
        home = {"SEQGEN_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=self.folder,
            env={**os.environ, **home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        said = (done.stderr + done.stdout).splitlines()
        said = [line for line in said if not line.startswith(SHOWN)][-LINES:]
        seconds = round(time.monotonic() - began, 1)
        record = {"command": line, "code": done.returncode, "seconds": seconds, "said": said}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.done[line] = record


def results(found: Sequence[Row], runs: Runs) -> str:
    """Return the rows with what their commands said, as Markdown."""
    parts = ["# The figures of lectures.md, made again\n"]
    for row in found:
        if not row.commands:
            continue
        parts.append(f"\n## {row.place} {row.subject}\n\n- the page: {row.gave or 'nothing'}")
        parts.append(f"- the lecture: {row.lecture}\n")
        for line in row.commands:
            record = runs.done.get(line)
            said = ["not run"] if record is None else record["said"]
            code = "" if record is None or record["code"] == 0 else f"exit code {record['code']}\n"
            body = "\n".join(f"    {text}" for text in said)
            parts.append(f"`{_typed(line)}`\n\n{code}{body}\n")
    return "\n".join(parts)


def say(text: str) -> None:
    """Write a line, now."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run what was asked for; return 1 if a command failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="PLACE")
    parser.add_argument("--folder", type=Path, default=Path("course"))
    parser.add_argument("--minutes", type=float, help="of training, where no budget is given")
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    found = chosen(rows(given.page.read_text("utf-8")), given.only)
    if given.list:
        say("\n".join(f"{row.place}\t{_typed(line)}" for row in found for line in row.commands))
        return 0
    runs, failed = Runs(given.folder.resolve(), given.minutes), 0
    lost: set[str] = set()  # models that were left out
    for row in found:
        for line in row.commands:
            missing = runs.missing(line) or sorted(lost & set(_models(line)))
            if missing:
                say(f"{row.place}: left out, {', '.join(missing)} is not in {given.folder}")
                lost |= set(_made(line))
                continue
            lost -= set(_made(line))
            runs.run(line)
            failed += runs.done[line]["code"] != 0
            say(f"{row.place}: {_typed(line)}: exit code {runs.done[line]['code']}")
            (runs.folder / "results.md").write_text(results(found, runs), "utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Jobs of a cluster: the commands that do the parts of a search or of a training, one a line.

Every command may be killed and given again, and does no harm if it is given twice.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from seqgen import registry, store
from seqgen.cli.shell import recording
from seqgen.cli.shell.output import Output, put
from seqgen.settings import OptionRule, Panel, require, setting
from seqgen.settings.listening import ListenerOptions
from seqgen.wording import first_names, plural

PRINT = "--print-jobs"
OVERWRITE = "--overwrite"
# Control characters, and bytes of a file's name that are not UTF-8.
_UNPRINTABLE = re.compile(r"[\0-\x1f\x7f-\x9f\udc80-\udcff]")


def join_words(words: Iterable[str]) -> str:
    """Join the words of a command to one line for a shell, whatever characters they contain.

    Control characters are written as bash and POSIX (2024) read them: `$'a\\012b'`.
    """
    return " ".join(_bash_quote(w) if _UNPRINTABLE.search(w) else shlex.quote(w) for w in words)


def _bash_quote(word: str) -> str:
    escaped = re.sub(r"[\\']", r"\\\g<0>", word)
    return f"$'{_UNPRINTABLE.sub(_octal_bytes, escaped)}'"


def _octal_bytes(found: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(found[0]))


def put_jobs(jobs: Iterable[str], then: str, out: Output) -> None:
    """Print the commands of jobs, a line each; say what to do when all have ended."""
    lines = list(jobs)
    records = ({"index": index, "command": line} for index, line in enumerate(lines))
    if not out.records(records):
        put("".join(f"{line}\n" for line in lines))
    out.notice(f"{plural(len(lines), 'job')}; when all have ended: {then}")


def rewrite_command(
    given: Mapping[str, str | None], without: Sequence[str] = (), switches: Sequence[str] = (PRINT,)
) -> str:
    """Write the command that is running with other options.

    Args:
        given: options that it has instead, with their values; None for a switch.
        without: options with values that it does not have.
        switches: options without values that it does not have.
    """
    switches = [*switches, *(option for option, value in given.items() if value is None)]
    valued = {*given, *without} - {*switches}
    command, *words = recording.run.arguments
    kept, coming = [], iter(words)
    for word in coming:
        option = word.partition("=")[0]
        if option in valued:
            if option == word:  # its value is the next word
                next(coming, None)
        elif word not in switches:
            kept.append(word)
    added = [part for option in given.items() for part in option if part is not None]
    return join_words(["seqgen", command, *added, *kept])


def check_files(names: Sequence[str]) -> None:
    """Refuse standard input, which jobs cannot share.

    Raises:
        UsageError: it is to be read.
    """
    require("-" not in names, f"{PRINT} is for files: jobs cannot read this standard input")


class MemberJobs(ListenerOptions, panel=Panel.PROCESSES):
    """Option of `seqgen train` to train the members of an ensemble as jobs."""

    print_jobs: bool = setting(
        "With --members: print a command for each network instead, to run as jobs of a cluster.",
        needs=OptionRule(("--members",), "{flag} prints a job for each of --members K"),
        conflicts=("--resume", "--with-ngram"),
    )

    def require_possible(self, divided: bool) -> None:
        require(not self.print_jobs, "print_jobs is for the command line")

    def print_instead(self, given: Mapping[str, Any], out: Output) -> bool:
        if not self.print_jobs:
            return False
        name, model = given["name"], given["architecture"]
        check_files(given["data"] or ["-"])
        require(
            name is not None, f"give --name NAME: the networks of {PRINT} are NAME-1, NAME-2 ..."
        )
        alone = model not in (None, registry.AUTO)
        require(alone, f"give --model ARCHITECTURE: {PRINT} trains networks alone, to mix them")
        seed = given.get("seed")
        first = secrets.randbelow(1 << 30) if seed is None else seed
        names = [f"{name}-{number}" for number in range(1, given["members"] + 1)]
        for each in (name, *names):
            store.check_name(each)
        _check_run(given)
        replaces = OVERWRITE in recording.run.arguments
        if replaces:
            _check_new(names)
        jobs = self._jobs(names, first)
        mix = ["seqgen", "mix", *names, "--name", name, *[OVERWRITE] * replaces]
        put_jobs(jobs, join_words(mix), out)
        return True

    def _jobs(self, names: Sequence[str], seed: int) -> Iterator[str]:
        for number, name in enumerate(names):
            own = {"--continue": None, "--name": name, "--seed": str(seed + number)}
            yield rewrite_command(own, without=["--members"], switches=(PRINT, OVERWRITE))


def _check_run(given: Mapping[str, Any]) -> None:
    """Refuse what every job would refuse: files that do not exist, settings that are wrong.

    Args:
        given: as in `ListenerOptions.print_instead`.

    Raises:
        UsageError: these models cannot be members, or a setting is wrong.
        SeqgenError: a file does not exist.
    """
    from seqgen.text.reading import files_in
    from seqgen.training.train import RunRequest, checked_plan

    asked = {key: value for key, value in given.items() if key not in ("name", "data")}
    checked_plan(RunRequest.of(given["data"], **asked), lambda plan: None)
    for name in given["data"]:
        files_in(name)


def _check_new(names: Sequence[str]) -> None:
    """Refuse to replace members that exist: jobs continue them, so that they can be given twice.

    Raises:
        UsageError: names the command that removes them.
    """
    old = [name for name in names if not store.is_free(name)]
    require(
        not old,
        f"{first_names(old)} exist already, and the jobs of {PRINT} continue models: to train new "
        f"ones, first run: seqgen models remove {' '.join(old)}",
    )

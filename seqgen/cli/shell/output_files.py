"""Checks of output paths: never overwrite an input, or a file that seqgen did not write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path, PurePath

import typer

from seqgen import store
from seqgen.cli.shell.inputs import Identity, Input
from seqgen.cli.shell.output import as_shown, is_terminal
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import begins_with
from seqgen.packages import require_packages
from seqgen.settings import Options, Panel, require, setting

# How the names of pictures and of pages end.
PICTURES, PAGES = (".svg", ".png"), (".html", ".htm")


class Curves(Options, panel=Panel.OUTPUT):
    """Option for a plot of curves."""

    plot: Path | None = setting(
        "Draw the curves into an .svg or .png file as well. Needs matplotlib.",
        reads="path",
        writes=True,
        endings=PICTURES,
    )


class Overwrite(Options, panel=Panel.SAVING):
    """Option to replace an existing output file."""

    overwrite: bool = setting("Replace the output of an earlier run.")


def check_out(
    out: Path,
    sources: Iterable[Input],
    overwrite: bool,
    kind: str,
    is_kind: Callable[[Path], bool],
    flag: str = "--out",
) -> Path:
    """Check and resolve an output file: not an input, and replaced only with --overwrite.

    Args:
        out: where the user wants it; an empty file may stand there already.
        sources: what the command reads.
        overwrite: replace what an earlier run has written.
        kind: what is written, as "a token file".
        is_kind: whether a file is one.
        flag: what the user gave it by.

    Raises:
        UsageError: it is an input, or something else, or an earlier output and not to be
            replaced.
    """
    out = out.resolve()
    if not out.parent.is_dir():
        raise UsageError(f"there is no folder {out.parent}: make it, or give another {flag}")
    if not out.exists():
        return out
    require(out.is_file(), f"{out} is not a regular file: give another {flag}")
    _refuse_inputs(out, sources, flag)
    if out.stat().st_size == 0:
        return out
    require(is_kind(out), f"{out} exists and is not {kind}: give another {flag}")
    require(overwrite, f"{out} exists: add --overwrite to replace it, or give another {flag}")
    return out


def check_out_folder(out: Path, is_own: Callable[[PurePath], bool], overwrite: bool) -> Path:
    """Check and resolve an output folder: replaced only if it is seqgen's own.

    Args:
        out: where the user wants it.
        is_own: whether the folder may have such a file, or a folder in it, by its path inside.
        overwrite: replace what an earlier run has written.

    Raises:
        UsageError: it is no folder, or has other files, or some that are not to be replaced.
    """
    out = out.resolve()
    if not out.exists():
        return out
    require(out.is_dir(), f"{out} is not a folder: give another --out")
    there = sorted(out.iterdir())
    folders = [path for path in there if path.is_dir() and not path.is_symlink()]
    parts = (path.relative_to(out) for path in chain(there, *(f.iterdir() for f in folders)))
    if strange := next((part for part in parts if not is_own(part)), None):
        raise UsageError(f"{out} has other files ({strange}): give another --out")
    if there and not overwrite:
        raise UsageError(f"{out} exists: add --overwrite to replace it, or give another --out")
    return out


def check_picture(plot: Path, inputs: Iterable[Input]) -> Path:
    """Check that a picture can be drawn and replaces no other file; return its path.

    Raises:
        UsageError: see `check_out`.
        SeqgenError: matplotlib is not installed; says how to install it.
    """
    from seqgen.cli.shell.pictures import is_picture

    require_packages("--plot", "matplotlib")
    return check_out(plot, inputs, True, "a picture of seqgen", is_picture, "--plot")


def check_html(html: Path, inputs: Iterable[Input], flag: str) -> Path:
    """Check that an HTML page replaces no other kind of file; return its path.

    Raises:
        UsageError: see `check_out`.
    """
    from seqgen.cli.shell.page import is_page

    return check_out(html, inputs, True, "a page of seqgen", is_page, flag)


def check_tokenizer_folder(out: Path, sources: Iterable[Input], overwrite: bool) -> None:
    """Check that a tokenizer folder may be written or replaced.

    Raises:
        UsageError: says what is there.
    """
    from seqgen.text.tokenizers import STORED, kind_in
    from seqgen.text.tokenizers.sentencepiece import MODEL_FILE

    model_files = [out / name for name in ("tokenizer.json", MODEL_FILE) if (out / name).exists()]
    for path in model_files:
        _refuse_inputs(path.resolve(), sources)
    if not model_files:
        return
    if kind_in(out) not in STORED:
        raise UsageError(f"{model_files[0]} is not a tokenizer of seqgen: give another --out")
    if (out.resolve().parent / store.CONFIG).exists():
        raise UsageError(f"{out} is the tokenizer of a model: give another --out")
    require(overwrite, f"{out} has a tokenizer: add --overwrite, or give another --out")


def _refuse_inputs(out: Path, sources: Iterable[Input], flag: str = "--out") -> None:
    status = out.stat()
    identity: Identity = (status.st_dev, status.st_ino)
    if any(source.identity == identity for source in sources):
        raise UsageError(f"{out} is an input and cannot be the output: give another {flag}")


def check_replaced_model(name: str | None, sources: Iterable[str | Path]) -> None:
    """Refuse an input file that lies in the folder of the model to be replaced.

    Raises:
        UsageError: an input would be gone.
    """
    if name is None:
        return
    folder = (store.models_folder() / name).resolve()
    for source in sources:
        if Path(source).resolve().is_relative_to(folder):
            raise UsageError(f"{source} is in the model {name}, which --overwrite would replace")


def is_token_file(path: Path) -> bool:
    """Check by its first bytes whether a file is a token file."""
    from seqgen.text.tokenfile import MAGIC

    return begins_with(path, MAGIC)


def confirm_deleting(paths: Iterable[Path], yes: bool) -> None:
    """Ask for confirmation before deleting folders, unless --yes is given.

    Raises:
        UsageError: nobody can be asked.
        SeqgenError: they are to stay.
    """
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise UsageError(
            "removing asks for confirmation, which needs a terminal; add --yes to go ahead"
        )
    question = f"Delete {', '.join(map(str, paths))}?"
    if not typer.confirm(as_shown(question, sys.stderr), err=True):
        raise SeqgenError("nothing was removed")

"""`seqgen tokenize`: text to ids and back; vocabularies; token files."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqgen.cli import completion, options
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import Input, Inputs, file_name, file_path, given_or_piped, join
from seqgen.cli.output import one_line, put, put_record, say
from seqgen.cli.outputs import check_tokenizer_folder
from seqgen.cli.tables import count, figure, percentage, put_facts
from seqgen.cli.token_files import write
from seqgen.configs.panels import MODEL, OUTPUT, SAVING, TEXT, WHAT
from seqgen.errors import SeqgenError, UsageError
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.commands.tokenize import Statistics, TokenizedLine
    from seqgen.data.tokenfile import TokenFile
    from seqgen.tokenizers import Tokenizer

# The names of shards have five digits.
MOST_SHARDS = 100_000
# Tokens of a stream that are decoded at once.
PIECE = 1 << 16


def tokenize(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders or patterns, or - for standard input.",
            parser=file_name,
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    model: options.Model = None,
    tokenizer: Annotated[
        str | None,
        value(
            "PATH",
            MODEL,
            "Use this tokenizer instead of a model's: its folder, a sentencepiece .model file, a "
            "token file, or byte.",
            default=False,
            parser=file_name,
        ),
    ] = None,
    train: Annotated[
        str | None,
        value(
            "KIND",
            WHAT,
            "Train a tokenizer: char, byte, word, whitespace, bpe, unigram or wordpiece. Needs "
            "--out.",
            default=False,
            complete=completion.tokenizers,
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        value(
            "N",
            WHAT,
            "With --train: number of tokens to keep in the vocabulary.",
            default=False,
            min=1,
        ),
    ] = None,
    min_count: Annotated[
        int,
        value("N", WHAT, "With --train: keep tokens that occur at least this often.", min=1),
    ] = 1,
    out: Annotated[
        Path | None,
        value(
            "PATH",
            SAVING,
            "Token file to write; with --train, the tokenizer's folder.",
            default=False,
            parser=file_path,
        ),
    ] = None,
    shards: Annotated[
        int | None,
        value(
            "N",
            SAVING,
            "With --out: write a folder of this many token files of about the same length.",
            default=False,
            min=1,
            max=MOST_SHARDS,
        ),
    ] = None,
    decode: Annotated[bool, flag("--decode", OUTPUT, "Turn ids back into text.")] = False,
    pieces: Annotated[
        bool, flag("--pieces", OUTPUT, "Print pieces of text instead of ids.")
    ] = False,
    stats: Annotated[
        bool, flag("--stats", OUTPUT, "Report how well the vocabulary fits the text.")
    ] = False,
    documents: Annotated[
        str,
        value(
            "stream|line",
            TEXT,
            "Read the text as one continuous stream, or each line as a separate document, with "
            "BOS and EOS.",
            complete=completion.one_of("stream", "line"),
        ),
    ] = "stream",
    newlines: Annotated[
        str | None,
        value(
            "keep|lf",
            TEXT,
            "Keep CRLF line ends as they are, or turn them into LF.",
            default="as the model was trained",
            complete=completion.one_of("keep", "lf"),
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Turn text into token ids, one line of ids per line of text; or ids back into text.

    The ids of a line include its newline, so that decoded lines concatenate to the text. --pieces
    shows a space as U+2581 and a newline as \n.
    """
    from seqgen.commands.tokenize import (
        find_tokenizer,
        newlines_of,
        pair_tokenizer,
        source_tokenizer_of,
        statistics,
        train_tokenizer,
        without_pairs,
    )
    from seqgen.commands.tokenize import tokenize as encode
    from seqgen.configs import DOCUMENTS, choice

    choice("--documents", documents, DOCUMENTS)
    if newlines is not None:
        choice("--newlines", newlines, ("keep", "lf"))
    if shards is not None and (out is None or train is not None):
        raise UsageError("--shards goes with --out FOLDER, without --train")
    _check_modes(model, tokenizer, train, vocab_size, min_count, out, decode, pieces, stats)
    sources = Inputs(quiet).open(given_or_piped(files, "seqgen tokenize FILE"))
    if train is not None:
        check_tokenizer_folder(out, sources, overwrite)
        made = train_tokenizer(train, join(sources, newlines or "keep"), vocab_size, min_count, out)
        _put_trained(out, made, json, quiet)
        return
    loaded_tokenizer = find_tokenizer(model, tokenizer)
    if tokenizer is None and not quiet and (apart := source_tokenizer_of(model)):
        say(f"with the tokenizer of the targets; that of the sources is --tokenizer {apart}")
    of_sources = pair_tokenizer(model) if tokenizer is None else None
    if newlines is None:
        newlines = newlines_of(model) if tokenizer is None else "keep"
    if out is not None:
        if of_sources is not None:
            raise UsageError("--out is for text: pairs are trained on as text, not as tokens")
        how = newlines, loaded_tokenizer, documents, overwrite, json, quiet
        write(out, shards, sources, *how)
    elif stats:
        text = _token_file(sources, loaded_tokenizer) or join(sources, newlines)
        if of_sources is not None:
            text = without_pairs(text, "--stats", of_sources)
        _show_statistics(statistics(text, loaded_tokenizer), json)
    elif decode:
        _decode(sources, newlines, loaded_tokenizer, documents, json, of_sources)
    else:
        lines = encode(join(sources, newlines), loaded_tokenizer, documents, of_sources)
        _put_lines(lines, loaded_tokenizer, of_sources or loaded_tokenizer, pieces, json, quiet)


def _check_modes(
    model: str | None,
    tokenizer: str | None,
    train: str | None,
    vocab_size: int | None,
    min_count: int,
    out: Path | None,
    *modes: bool,
) -> None:
    if model is not None and tokenizer is not None:
        raise UsageError("give -m MODEL or --tokenizer, not both")
    decode, pieces, stats = modes
    if sum((decode, stats, pieces, out is not None)) > 1:
        raise UsageError("give one of --decode, --pieces, --stats and --out")
    if train is None and (vocab_size is not None or min_count > 1):
        raise UsageError("--vocab-size and --min-count go with --train KIND")
    if train is not None:
        if out is None:
            raise UsageError("--train needs a folder to write: --out FOLDER")
        if model is not None or tokenizer is not None:
            raise UsageError("--train makes a tokenizer: give no -m and no --tokenizer with it")


def _put_trained(out: Path, made: Tokenizer, json: bool, quiet: bool) -> None:
    if json:
        put_record({"path": str(out), "kind": made.kind, "vocab_size": made.vocab_size})
    if not quiet:
        say(f"{out}: {made.kind}, {plural(made.vocab_size, 'token')}")


def _token_file(sources: list[Input], tokenizer: Tokenizer) -> TokenFile | None:
    """Return the one token file that is given, whose tokens must be the tokenizer's."""
    from seqgen.data.tokenfile import check_tokenizer

    file = sources[0].token_file if len(sources) == 1 else None
    if file is not None:
        check_tokenizer(file, tokenizer, "the one given")
    return file


def _put_lines(
    encoded: Iterable[list[TokenizedLine]],
    tokenizer: Tokenizer,
    of_sources: Tokenizer,
    pieces: bool,
    json: bool,
    quiet: bool,
) -> None:
    unknown = 0
    for lines in encoded:
        if json:
            for line in lines:
                put_record(line)
        else:
            put("".join([_shown(line, pieces) for line in lines]))
        for line in lines:
            unknown += line.ids.count(tokenizer.unk_id)
            unknown += getattr(line, "source_ids", []).count(of_sources.unk_id)
    if unknown and not quiet:
        say(f"{count(unknown)} unknown, written as <unk> (id {tokenizer.unk_id})")


def _shown(line: TokenizedLine, pieces: bool) -> str:
    """Write a line's ids or pieces; of a pair the source's and the target's, with a tab between."""
    sides = [line.pieces if pieces else line.ids]
    if hasattr(line, "source"):
        sides.insert(0, line.source_pieces if pieces else line.source_ids)
    return "\t".join(" ".join(map(_piece if pieces else str, side)) for side in sides) + "\n"


def _piece(piece: str) -> str:
    """Write a piece so that none holds a space, and a line of them is one line."""
    return one_line(piece).replace(" ", "\u2581").replace("\r", "\\r")


def _decode(
    sources: list[Input],
    newlines: str,
    tokenizer: Tokenizer,
    documents: str,
    json: bool,
    of_sources: Tokenizer | None,
) -> None:
    from seqgen.commands.tokenize import detokenize
    from seqgen.data.text import unix_newlines

    file = _token_file(sources, tokenizer)
    documents = documents if file is None else file.documents
    rows = _rows(sources, of_sources) if file is None else _documents(file)
    lines = detokenize(rows, tokenizer, documents)
    if json:
        for line in lines:
            put_record(
                replace(line, text="".join(unix_newlines([line.text])))
                if newlines == "lf"
                else line
            )
        return
    texts = (line.text for line in lines if line.text)
    for text in unix_newlines(texts) if newlines == "lf" else texts:
        put(text)


def _rows(sources: list[Input], of_sources: Tokenizer | None) -> Iterator[list[int]]:
    """Read lines of ids, or of `--json`'s records; refuse the ids of pairs."""
    from seqgen.commands.tokenize import without_pairs
    from seqgen.data.text import lines

    chunks = join(sources, "lf")
    text = chunks if of_sources is None else without_pairs(chunks, "--decode", of_sources)
    for number, line in enumerate(lines(text), start=1):
        yield _row(line, number)


def _row(line: str, number: int) -> list[int]:
    try:
        ids = json_module.loads(line)["ids"] if line.startswith("{") else line.split()
        return [int(i) for i in ids]
    except (ValueError, KeyError, TypeError):
        short = one_line(line.rstrip("\n"))[:40]
        raise SeqgenError(f"line {number} is no list of ids: {short!r}") from None


def _documents(file: TokenFile) -> Iterator[list[int]]:
    """Yield a token file's ids: a document a row, or a stream in pieces."""
    if file.documents == "line":
        ends = map(int, file.corpus.ends)
    else:
        size = file.corpus.tokens.size
        ends = (min(begin + PIECE, size) for begin in range(0, size, PIECE))
    begin = 0
    for end in ends:
        yield file.corpus.tokens[begin:end].tolist()
        begin = end


def _show_statistics(figures: Statistics, json: bool) -> None:
    if json:
        put_record(figures)
        return
    rows: dict[str, str] = {
        "tokens": count(figures.tokens),
        "characters": count(figures.characters),
        "bytes": count(figures.bytes),
    }
    if figures.tokens:
        rows["characters/token"] = figure(figures.characters_per_token)
        rows["bytes/token"] = figure(figures.bytes_per_token)
    used = percentage(figures.used / figures.vocab_size, 1)
    rows["vocabulary used"] = f"{count(figures.used)} of {count(figures.vocab_size)} ({used})"
    rows["unknown"] = count(figures.unknown)
    rows["longest pieces"] = _listed(figures.longest)
    rows["most frequent"] = _listed(figures.frequent)
    put_facts(rows)


def _listed(pieces: Iterable[tuple[str, int]]) -> str:
    return "  ".join(f"{_piece(piece)} ({count(times)})" for piece, times in pieces)

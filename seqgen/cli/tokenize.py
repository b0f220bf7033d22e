"""`seqgen tokenize`: encode and decode text, train tokenizers, write token files."""

from __future__ import annotations

import contextlib
import json as json_module
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seqgen import hooks
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Input, Inputs, given_or_piped, join
from seqgen.cli.shell.model_options import ModelName
from seqgen.cli.shell.output import Output, RecordedOutput, one_line, put
from seqgen.cli.shell.output_files import (
    Overwrite,
    check_out,
    check_out_folder,
    check_tokenizer_folder,
    is_token_file,
)
from seqgen.cli.shell.tables import count
from seqgen.errors import SeqgenError, UsageError
from seqgen.settings import (
    DataConfig,
    Documents,
    OptionRule,
    Options,
    Panel,
    file_argument,
    group,
    redeclare,
    setting,
)
from seqgen.wording import plural

if TYPE_CHECKING:
    from seqgen.text.token_writing import WrittenTokens
    from seqgen.text.tokenfile import TokenFile
    from seqgen.text.tokenizers import Tokenizer
    from seqgen.training.datasets.tokenizing import TokenizedLine

# Tokens of a stream that are decoded at once.
PIECE = 1 << 16


class TokenizedFiles(Options, panel=Panel.TEXT):
    """Options for the texts to encode, and how to read them."""

    files: tuple[str, ...] = file_argument(
        "Text files, folders or patterns, or - for standard input.", ""
    )
    documents: Documents = setting(
        "Read the text as one continuous stream, or each line as a separate document, with BOS and "
        "EOS.",
        "stream",
    )
    newlines: Literal["keep", "lf"] | None = setting(
        "Keep CRLF line ends as they are, or turn them into LF.", without="as the model was trained"
    )


OF_TRAINING = OptionRule(("--train",), "{flag} belongs to --train KIND")


class Encoder(Options, panel=Panel.WHAT):
    """Options that choose the tokenizer: a model's, a stored one, or a new one trained here."""

    model: str | None = redeclare(ModelName, "model", conflicts="--tokenizer")
    tokenizer: str | None = setting(
        "Use this tokenizer instead of a model's: its folder, a sentencepiece .model file, a token "
        "file, or byte.",
        metavar="PATH",
        panel=Panel.MODEL,
        reads="file",
    )
    train: str | None = setting(
        "Train a tokenizer: char, byte, word, whitespace, uncased, bpe, unigram or wordpiece. "
        "Needs --out.",
        metavar="KIND",
        completes="tokenizers",
        conflicts=OptionRule(
            ("--model", "--tokenizer"),
            "{flag}, which makes a tokenizer, cannot be combined with {other}",
        ),
        needs=OptionRule(("--out",), "{flag} needs a folder to write: --out FOLDER"),
    )
    vocab_size: int | None = setting(
        "With --train: number of tokens to keep in the vocabulary.", low=1, needs=OF_TRAINING
    )
    min_count: int = setting(
        "With --train: keep tokens that occur at least this often.", 1, low=1, needs=OF_TRAINING
    )
    as_text: bool = redeclare(DataConfig, "as_text", needs=OF_TRAINING)


# The names of shards have five digits.
MOST_SHARDS = 100_000
MOST_WORKERS = 1024
WORKERS_WRITE = "{flag} goes with --out FILE, without --train"
SHARDS_ARE_FILES = "{flag} goes with --out FOLDER, without --train"
# What is made of the texts, of which there is one.
RESULTS = "--decode", "--pieces", "--stats", "--out"


class TokenFiles(Overwrite, panel=Panel.SAVING):
    """Options for the output token files."""

    out: Path | None = setting(
        "Token file to write; with --train, the tokenizer's folder.",
        metavar="PATH",
        reads="path",
        writes=True,
        conflicts=RESULTS,
    )
    shards: int | None = setting(
        "With --out: write a folder of this many token files of about the same length.",
        low=1,
        high=MOST_SHARDS,
        needs=OptionRule(("--out",), SHARDS_ARE_FILES),
        conflicts=OptionRule(("--train",), SHARDS_ARE_FILES),
    )
    workers: int | None = setting(
        "With --out: encode in this many processes. The tokens do not depend on it.",
        low=1,
        high=MOST_WORKERS,
        needs=OptionRule(("--out",), WORKERS_WRITE),
        conflicts=OptionRule(("--train",), WORKERS_WRITE),
        without="one per core",
    )


class Encoded(Options, panel=Panel.OUTPUT):
    """Options for the form of the output: ids, pieces, statistics, decoded text or token files."""

    decode: bool = setting("Turn ids back into text.", conflicts=RESULTS)
    pieces: bool = setting("Print pieces of text instead of ids.", conflicts=RESULTS)
    stats: bool = setting("Report how well the vocabulary fits the text.", conflicts=RESULTS)
    saved: TokenFiles = group(TokenFiles)


@takes_options
def tokenize(
    texts: TokenizedFiles, encoder: Encoder, encoded: Encoded, out: RecordedOutput
) -> None:
    r"""Turn text into token ids, one line of ids per line of text; or ids back into text.

    The ids of a line include its newline, so that decoded lines concatenate to the text. --pieces
    shows a space as U+2581 and a newline as \n.
    """
    from seqgen.training.datasets.tokenizing import (
        find_source_tokenizer,
        find_tokenizer,
        newline_policy,
        pair_tokenizer,
    )

    saved, model = encoded.saved, encoder.model
    names = given_or_piped(texts.files, "seqgen tokenize FILE")
    if encoder.train is not None:
        names = _trained_on(names, encoder.as_text, out)
    sources = Inputs(out.quiet, as_text=encoder.as_text).open(names)
    if encoder.train is not None:
        _train(encoder, sources, texts, saved, out)
        return
    tokenizer = find_tokenizer(model, encoder.tokenizer)
    newlines, of_sources = texts.newlines or "keep", None
    if encoder.tokenizer is None:
        if apart := find_source_tokenizer(model):
            out.notice(
                f"with the tokenizer of the targets; for the sources, give --tokenizer {apart}"
            )
        of_sources = pair_tokenizer(model)
        newlines = texts.newlines or newline_policy(model)
    read = InputCodec(sources, newlines, tokenizer, texts.documents, of_sources, out)
    if saved.out is not None:
        if of_sources is not None:
            raise UsageError("--out is for text: pairs are trained on as text, not as tokens")
        read.write(saved)
    elif encoded.stats:
        hooks.load_method("output", "token-statistics", "--stats")(read)
    elif encoded.decode:
        read.put_decoded()
    else:
        read.put_lines(encoded.pieces)


def _trained_on(names: Sequence[str], as_text: bool, out: Output) -> list[str]:
    """Resolve the files to train a tokenizer on; see `training_files`."""
    from seqgen.text.training_files import file_notices, training_files

    files = [name for name in names if name != "-"]
    texts = {name: list(map(str, training_files([name], as_text))) for name in files}
    for notice in file_notices(files, as_text):
        out.notice(notice)
    return list(chain.from_iterable(texts.get(name, [name]) for name in names))


def _train(
    encoder: Encoder, sources: list[Input], texts: TokenizedFiles, saved: TokenFiles, out: Output
) -> None:
    """Train a tokenizer on texts, store it, and describe it."""
    from seqgen.text.reading import document_ending
    from seqgen.training.datasets.tokenizing import train_to_folder

    folder = saved.out
    check_tokenizer_folder(folder, sources, saved.overwrite)
    text = join(sources, texts.newlines or "keep", document_ending(texts.documents))
    made = train_to_folder(encoder.train, text, encoder.vocab_size, encoder.min_count, folder)
    out.record({"path": str(folder), "kind": made.kind, "vocab_size": made.vocab_size})
    out.notice(f"{folder}: {made.kind}, {plural(made.vocab_size, 'token')}")


@dataclass(frozen=True)
class InputCodec:
    """Encoder or decoder of the input texts, with the methods that print or store the result.

    Attributes:
        sources: the texts.
        newlines: "keep" or "lf".
        tokenizer: its ids are meant.
        documents: "stream" or "line".
        of_sources: the tokenizer of the sources, if lines may be pairs.
        out: takes what is made of them.
    """

    sources: list[Input]
    newlines: str
    tokenizer: Tokenizer
    documents: Documents
    of_sources: Tokenizer | None
    out: Output

    @property
    def text(self) -> Iterator[str]:
        """Whole input text, in pieces."""
        return join(self.sources, self.newlines, self._ending)

    @property
    def _ending(self) -> str:
        from seqgen.text.reading import LINE_END, document_ending

        return document_ending(self.documents) if self.of_sources is None else LINE_END

    def token_file(self) -> TokenFile | None:
        """Open a single token file given as input, and check its tokenizer."""
        from seqgen.text.tokenfile import check_tokenizer

        file = self.sources[0].token_file if len(self.sources) == 1 else None
        if file is not None:
            check_tokenizer(file, self.tokenizer, "the one given")
        return file

    def put_lines(self, pieces: bool) -> None:
        """Print the ids, or the pieces, of each line."""
        from seqgen.training.datasets.tokenizing import tokenize as encode

        unknown = 0
        of_sources = self.of_sources or self.tokenizer
        for lines in encode(self.text, self.tokenizer, self.documents, self.of_sources):
            if not self.out.records(lines):
                put("".join([_shown(line, pieces) for line in lines]))
            for line in lines:
                unknown += line.ids.count(self.tokenizer.unk_id)
                unknown += getattr(line, "source_ids", []).count(of_sources.unk_id)
        if unknown:
            as_unknown = f"written as <unk> (id {self.tokenizer.unk_id})"
            self.out.notice(f"{count(unknown)} unknown, {as_unknown}")

    def put_decoded(self) -> None:
        """Decode ids and print their text."""
        from seqgen.text.reading import unix_newlines
        from seqgen.training.datasets.tokenizing import detokenize

        file = self.token_file()
        documents = self.documents if file is None else file.documents
        lines = detokenize(
            self._rows() if file is None else _documents(file), self.tokenizer, documents
        )
        if self.newlines == "lf" and self.out.json:
            lines = (replace(line, text="".join(unix_newlines([line.text]))) for line in lines)
        if self.out.records(lines):
            return
        texts = (line.text for line in lines if line.text)
        for text in unix_newlines(texts) if self.newlines == "lf" else texts:
            put(text)

    def _rows(self) -> Iterator[list[int]]:
        """Read lines of ids, or of `--json` records; records of pairs are an error."""
        from seqgen.text.reading import LINE_END, lines
        from seqgen.training.datasets.tokenizing import refuse_tabs

        text = join(self.sources, "lf", LINE_END)
        if self.of_sources is not None:
            text = refuse_tabs(text, "--decode", self.of_sources)
        for number, line in enumerate(lines(text), start=1):
            yield _row(line, number)

    def write(self, saved: TokenFiles) -> None:
        """Encode the text into one token file, or a folder of shards, and report the result.

        Raises:
            UsageError: the place is an input, or holds something else, or is not to be replaced.
            SeqgenError: it cannot be written, or the text not be read.
        """
        from seqgen.text.reading import join_files
        from seqgen.text.shards import SHARDS, shard_path, write_shards
        from seqgen.text.token_writing import write_token_file

        shards, sources = saved.shards, self.sources
        tokenizer, documents, workers = self.tokenizer, self.documents, saved.workers
        with _progress(sources, self.out) as progress:
            if shards is None:
                path = check_out(saved.out, sources, saved.overwrite, "a token file", is_token_file)
                done = write_token_file(path, self.text, tokenizer, documents, progress, workers)
                _put_written(path, done, self.out)
                return
            folder = check_out_folder(saved.out, lambda part: part.match(SHARDS), overwrite=True)
            for path in sorted(folder.glob(SHARDS)):
                check_out(path, sources, saved.overwrite, "a token file", is_token_file)
            # Read twice: to know where to cut, and to encode it.
            texts = (source.chunks(self.newlines) for source in sources)
            characters = sum(map(len, join_files(texts, self._ending)))
            shards_done = write_shards(
                folder, self.text, characters, shards, tokenizer, documents, progress, workers
            )
        for number, done in enumerate(shards_done):
            _put_written(shard_path(folder, number), done, self.out)
        if len(shards_done) < shards:
            files = plural(len(shards_done), "file")
            self.out.notice(f"the text has only enough lines for {files}")


def _shown(line: TokenizedLine, pieces: bool) -> str:
    """Format a line's ids or pieces; a pair's source and target are separated by a tab."""
    sides = [line.pieces if pieces else line.ids]
    if hasattr(line, "source"):
        sides.insert(0, line.source_pieces if pieces else line.source_ids)
    return "\t".join(" ".join(map(escape_piece if pieces else str, side)) for side in sides) + "\n"


def escape_piece(piece: str) -> str:
    """Escape spaces and newlines in a token, so that tokens can be printed on one line."""
    return one_line(piece).replace(" ", "\u2581").replace("\r", "\\r")


def _row(line: str, number: int) -> list[int]:
    try:
        ids = json_module.loads(line)["ids"] if line.startswith("{") else line.split()
        return [int(i) for i in ids]
    except (ValueError, KeyError, TypeError):
        short = one_line(line.rstrip("\n"))[:40]
        raise SeqgenError(f"line {number} is not a list of ids: {short!r}") from None


def _documents(file: TokenFile) -> Iterator[list[int]]:
    """Yield the ids in a token file: one row per document, or blocks of a stream."""
    if file.documents == "line":
        ends = map(int, file.corpus.ends)
    else:
        size = file.corpus.tokens.size
        ends = (min(begin + PIECE, size) for begin in range(0, size, PIECE))
    begin = 0
    for end in ends:
        yield file.corpus.tokens[begin:end].tolist()
        begin = end


def _put_written(path: Path, done: WrittenTokens, out: Output) -> None:
    facts = done.facts
    sizes = {"characters": facts.characters, "bytes": facts.bytes}
    out.record({"path": str(path), "tokens": done.tokens, **sizes, "oov": done.oov})
    unknown = f", {count(done.oov)} unknown" if done.oov else ""
    out.notice(
        f"{path}: {plural(done.tokens, 'token')} of {plural(facts.characters, 'character')} "
        f"({plural(facts.bytes, 'byte')}){unknown}"
    )


@contextlib.contextmanager
def _progress(sources: list[Input], out: Output) -> Iterator[Callable[[int], None]]:
    """Open a progress bar on a terminal; yields a callback for the bytes of text read."""
    from seqgen.cli.shell.progress import display
    from seqgen.training.events import EncodingProgress

    size = _size(sources)
    with display(out) as report:
        yield lambda done: report(EncodingProgress(fraction=done / size)) if size else None


def _size(sources: list[Input]) -> int | None:
    """Sum the sizes of files in bytes; None if one is a pipe or compressed."""
    paths = [source.content for source in sources if isinstance(source.content, Path)]
    packed = any(path.suffix in (".gz", ".xz", ".zst") for path in paths)
    return None if packed or len(paths) < len(sources) else sum(p.stat().st_size for p in paths)

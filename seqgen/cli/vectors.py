"""`seqgen vectors`: what a trained model knows of words, as vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seqgen.cli import options
from seqgen.cli.completion import one_of
from seqgen.cli.help import value
from seqgen.cli.inputs import Input, Inputs, file_name, file_path
from seqgen.cli.output import one_line, put, put_bytes, put_record, say
from seqgen.cli.outputs import check_out, check_picture, is_vectors
from seqgen.cli.tables import count, figure, put_table
from seqgen.configs.panels import LENGTH, MEASURED, OUTPUT
from seqgen.errors import UsageError
from seqgen.wording import first_names, plural

if TYPE_CHECKING:
    from seqgen.commands.vectors.texts import TextVector, TokenVector
    from seqgen.commands.vectors.words import Neighbour, WordVectors

FORMATS = ("text", "npy", "word2vec")
# Words of a picture that asks for none, and of an answer.
DRAWN, ANSWERS = 100, 10


@dataclass(frozen=True)
class Asked:
    """What the command line asks for.

    Raises:
        UsageError: two things at once, or what has no meaning with the rest.
    """

    neighbours: list[str]
    analogies: list[str]
    similarity: str | None
    text: str | None
    pool: str | None
    layer: int | None
    top: int | None
    file_format: str | None
    out: Path | None
    plot: Path | None
    overwrite: bool
    json: bool

    def __post_init__(self) -> None:
        questions = "--neighbours or --analogy" if self.neighbours or self.analogies else None
        kinds = {str(questions): questions, "--similarity": self.similarity, "--text": self.text}
        given = [name for name, there in kinds.items() if there]
        if len(given) > 1:
            raise UsageError(f"give {given[0]}, or {given[1]}, not both")
        if self.file_format not in (None, *FORMATS):
            raise UsageError(f"--format is {', '.join(FORMATS)}, not {self.file_format!r}")
        self._check_belonging()
        asked = given[0] if given else None
        written = {"--format": self.file_format is not None, "--out": self.out is not None}
        for name in (name for name, there in written.items() if there):
            if asked not in (None, "--text"):
                raise UsageError(f"{name} is for vectors: it does not go with {asked}")
            if self.json:
                raise UsageError(f"{name} does not go with --json, which writes records")
        if self.text is not None and self.file_format == "word2vec":
            raise UsageError("--format word2vec has a word for each vector; for --text, use npy")
        if self.plot is not None and asked in ("--similarity", "--text"):
            raise UsageError(f"--plot draws words: it does not go with {asked}")

    def _check_belonging(self) -> None:
        """Refuse a flag without the one that it says more about."""
        if self.text is None:
            options.refuse_without(
                "--text: give that as well", {"--pool": self.pool, "--layer": self.layer}
            )
        if not (self.neighbours or self.analogies):
            options.refuse_without("--neighbours or --analogy: give one", {"--top": self.top})
        if self.out is None:
            options.refuse_without("--out: give that as well", {"--overwrite": self.overwrite})

    @property
    def picture_alone(self) -> bool:
        """Whether a picture is all that is asked for: no answers, no file and no records."""
        return self.plot is not None and not (self.out or self.file_format or self.json)


def vectors(
    model: options.Model = None,
    neighbours: Annotated[
        list[str] | None,
        value(
            "WORD",
            MEASURED,
            "Show the words nearest to a word, by the cosine of their vectors. Can be repeated.",
            default=False,
        ),
    ] = None,
    analogy: Annotated[
        list[str] | None,
        value(
            "A:B::C:?",
            MEASURED,
            "Complete an analogy, such as paris:france::tokyo:?. Can be repeated.",
            default=False,
        ),
    ] = None,
    similarity: Annotated[
        str | None,
        value(
            "FILE",
            MEASURED,
            "Compare cosines with people's scores, by Spearman's correlation. Each line is two "
            "words and a score.",
            parser=file_name,
            default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        value(
            "FILE",
            MEASURED,
            "Write a vector for each line of a text; - is standard input.",
            parser=file_name,
            default=False,
        ),
    ] = None,
    pool: Annotated[
        str | None,
        value(
            "mean|last|none",
            MEASURED,
            "With --text: the mean over the line's tokens, the state after the last one, or a "
            "vector for each token in its context.",
            default="mean",
            complete=one_of("mean", "last", "none"),
        ),
    ] = None,
    layer: Annotated[
        int | None,
        value(
            "L",
            MEASURED,
            "With --text: the layer whose features are written, counted from 0.",
            default="the last",
            min=0,
        ),
    ] = None,
    top: Annotated[
        int | None,
        value("N", LENGTH, "Number of words in each answer.", default=str(ANSWERS), min=1),
    ] = None,
    file_format: Annotated[
        str | None,
        value(
            "|".join(FORMATS),
            OUTPUT,
            "Format of vectors: text has a word and its numbers on each line, npy is an array of "
            "NumPy, and word2vec is read by most other tools.",
            "--format",
            default="text",
            complete=one_of(*FORMATS),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        value("FILE", OUTPUT, "File to write vectors to.", parser=file_path, default=False),
    ] = None,
    plot: Annotated[
        Path | None,
        value(
            "FILE",
            OUTPUT,
            "Draw the words of the answers in a plane, or else the most frequent words, by their "
            "two principal components, into an .svg or .png file. Needs matplotlib.",
            parser=file_path,
            default=False,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what a model knows of words: neighbours, analogies, vectors.

    Any trained network with an embedding has vectors; `seqgen train TEXT --model word2vec
    --tokenizer word` learns nothing else. Without a question, the vectors of all words are
    written.
    """
    from seqgen.commands.vectors.words import WordVectors, load_vectors

    asked = Asked(
        *(neighbours or [], analogy or [], similarity, text, pool, layer, top),
        *(file_format, out, plot, overwrite, json),
    )
    inputs = [Inputs().open_one(name) for name in (similarity, text) if name]
    asked = _checked(asked, inputs)
    loaded = load_vectors(model, device)
    if text is not None:
        from seqgen.commands.vectors.texts import check_pooling, text_vectors

        how = pool or "mean"
        check_pooling(loaded, how, layer)
        records = text_vectors(loaded, _lines(inputs[0], quiet), how, layer)
        _put_texts(asked, records if quiet else _with_note(records, inputs[0].title))
        return
    words = WordVectors.of(loaded)
    if similarity is not None:
        _put_agreement(words, inputs[0], json)
    elif asked.neighbours or asked.analogies:
        _answer(asked, words, top or ANSWERS)
    else:
        if asked.plot is not None:
            _draw(asked, words, words.most_frequent(DRAWN))
        if not asked.picture_alone:
            _put_words(asked, words)
    if asked.plot is not None and not quiet:
        say(f"picture: {asked.plot}")


def _checked(asked: Asked, inputs: Iterable[Input]) -> Asked:
    """Return the same with checked names of files to write."""
    out, plot = asked.out, asked.plot
    if plot is not None:
        plot = check_picture(plot, inputs)
    if out is not None:
        out = check_out(out, inputs, asked.overwrite, "a file of vectors", is_vectors)
    return replace(asked, out=out, plot=plot)


def _lines(source: Input, quiet: bool) -> Iterator[str]:
    """Yield the lines of a text without what ends them, LF or CRLF."""
    from seqgen.data.text import lines, unix_newlines

    line = None
    for line in lines(unix_newlines(source.pass_on()), source.title):
        yield line.removesuffix("\n")
    if line is None and not quiet:
        say(f"{source.title} is empty: there is no text")


def _with_note(
    records: Iterable[TextVector | TokenVector], name: str
) -> Iterator[TextVector | TokenVector]:
    """Yield the records of a text; at their end say which lines have zeros, having no word."""
    numbers = []
    for record in records:
        if not any(record.vector):
            numbers.append(str(record.index + 1))
        yield record
    if numbers:
        lines = "line" if len(numbers) == 1 else "lines"
        say(f"{name}: no word with a vector in {lines} {first_names(numbers)}, which got zeros")


def _answer(asked: Asked, words: WordVectors, top: int) -> None:
    """Show neighbours and what completes analogies; and draw all of these words."""
    lists = [words.neighbours(word, top) for word in asked.neighbours]
    lists += [words.analogy(analogy, top) for analogy in asked.analogies]
    answers = [neighbour for answer in lists for neighbour in answer]
    if asked.json:
        for neighbour in answers:
            put_record(neighbour)
    else:
        rows = [(n.word, n.neighbour, figure(n.similarity)) for n in answers]
        put_table(("word", "neighbour", "similarity"), rows, left=2)
    if asked.plot is not None:
        _draw(asked, words, _drawn(asked, answers))


def _drawn(asked: Asked, answers: Iterable[Neighbour]) -> list[str]:
    """Return the words of questions and answers, each once."""
    from seqgen.commands.vectors.words import terms

    given = [word for analogy in asked.analogies for word in terms(analogy)]
    return list(dict.fromkeys([*asked.neighbours, *given, *(n.neighbour for n in answers)]))


def _draw(asked: Asked, words: WordVectors, chosen: list[str]) -> None:
    from seqgen.report.word_map import draw_words

    places = [words.place(word) for word in chosen]
    title = f"{words.model}: {plural(len(chosen), 'word')}"
    draw_words(asked.plot, chosen, words.directions[places], title)


def _put_agreement(words: WordVectors, source: Input, json: bool) -> None:
    from seqgen.commands.vectors.similarity import agreement

    result = agreement(words, source.chunks(), source.title)
    if json:
        put_record(result)
        return
    row = [result.file, count(result.pairs), count(result.oov), figure(result.spearman)]
    put_table(("file", "pairs", "out of vocabulary", "spearman"), [row])


def _put_words(asked: Asked, words: WordVectors) -> None:
    """Write the vectors of all words."""
    from seqgen.formats import word_vectors

    if asked.json:
        for word, vector in zip(words.words, words.vectors, strict=True):
            put_record({"word": word, "vector": vector.tolist(), "model": words.model})
    elif asked.file_format == "npy":
        _write(asked, [word_vectors.npy(words.vectors)])
    else:
        head = asked.file_format == "word2vec"
        _write(asked, word_vectors.write(words.words, words.vectors, head))


def _put_texts(asked: Asked, records: Iterable[TextVector | TokenVector]) -> None:
    """Write a vector for each text or token; to standard output each as soon as it is made."""
    from seqgen.formats import word_vectors

    if asked.json:
        for record in records:
            put_record(record)
    elif asked.file_format == "npy":
        import numpy as np

        rows = [record.vector for record in records]
        _write(asked, [word_vectors.npy(np.array(rows, dtype=np.float32))])
    elif asked.out is None:
        for record in records:
            put(_vector_line(record))
    else:
        _write(asked, (_vector_line(record).encode() for record in records))


def _vector_line(record: TextVector | TokenVector) -> str:
    """Return the numbers of a vector as a line; those of a token after it and a tab."""
    from seqgen.formats import word_vectors

    token = getattr(record, "token", None)
    before = "" if token is None else one_line(token).replace("\t", "\\t") + "\t"
    return f"{before}{word_vectors.numbers(record.vector)}\n"


def _write(asked: Asked, chunks: Iterable[Any]) -> None:
    from seqgen.formats import packing

    if asked.out is None:
        put_bytes(chunks)
    else:
        packing.write(asked.out, chunks)

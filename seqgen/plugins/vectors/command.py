"""`seqgen vectors`: neighbours, analogies and vectors of a model's words or of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Input, Inputs
from seqgen.cli.shell.model_options import Device, ModelName
from seqgen.cli.shell.output import Output, RecordedOutput, one_line, put, put_bytes
from seqgen.cli.shell.output_files import PICTURES, check_out, check_picture
from seqgen.cli.shell.prompts import content_of, without_newlines
from seqgen.cli.shell.tables import count, figure, put_table
from seqgen.settings import OptionRule, Options, Panel, setting
from seqgen.wording import first_names, plural

if TYPE_CHECKING:
    from seqgen.plugins.vectors.texts import TextVector, TokenVector
    from seqgen.plugins.vectors.words import Neighbour, WordVectors

# Words of a picture that asks for none, and of an answer.
DRAWN, ANSWERS = 100, 10


OF_A_FILE = OptionRule(("--file",), "{flag} belongs to --file: give that as well")
OF_VECTORS = (
    OptionRule(
        ("--neighbours", "--analogy", "--similarity"),
        "{flag} is for vectors: it does not go with {other}",
    ),
    OptionRule(("--json",), "{flag} does not go with {other}, which writes records"),
)


class Questions(Options, panel=Panel.MEASURED):
    """Options of `seqgen vectors`: words, analogies or texts to look up, and the output files."""

    neighbours: tuple[str, ...] = setting(
        "Show the words nearest to a word, by the cosine of their vectors. Can be repeated.",
        metavar="WORD",
    )
    analogy: tuple[str, ...] = setting(
        "Complete an analogy, such as paris:france::tokyo:?. Can be repeated.", metavar="A:B::C:?"
    )
    similarity: str | None = setting(
        "Compare cosines with people's scores, by Spearman's correlation. Each line is two words "
        "and a score.",
        reads="file",
        conflicts=OptionRule(("--neighbours", "--analogy"), "give {other} or {flag}, not both"),
    )
    file: str | None = setting(
        "Write a vector for each line of this file; - is standard input.",
        names=("--file", "--text"),
        reads="file",
        conflicts=(
            OptionRule(
                ("--neighbours", "--analogy", "--similarity"), "give {other} or {flag}, not both"
            ),
            OptionRule(
                ("--format word2vec",), "{other} has a word for each vector; for {flag}, use npy"
            ),
        ),
    )
    pool: Literal["mean", "last", "none"] | None = setting(
        "With --file: the mean over the line's tokens, the state after the last one, or a vector "
        "for each token in its context.",
        without="mean",
        needs=OF_A_FILE,
    )
    layer: int | None = setting(
        "With --file: the layer whose features are written, counted from 0.",
        low=0,
        metavar="L",
        without="the last",
        needs=OF_A_FILE,
    )
    top: int | None = setting(
        "Number of words in each answer.",
        low=1,
        panel=Panel.LENGTH,
        without=str(ANSWERS),
        needs=OptionRule(
            ("--neighbours", "--analogy"), "{flag} belongs to --neighbours or --analogy: give one"
        ),
    )
    format: Literal["text", "npy", "word2vec"] | None = setting(
        "Format of vectors: text has a word and its numbers on each line, npy is an array of "
        "NumPy, and word2vec is read by most other tools.",
        panel=Panel.OUTPUT,
        without="text",
        conflicts=OF_VECTORS,
    )
    out: Path | None = setting(
        "File to write vectors to.",
        reads="path",
        writes=True,
        panel=Panel.OUTPUT,
        conflicts=OF_VECTORS,
    )
    plot: Path | None = setting(
        "Draw the words of the answers in a plane, or else the most frequent words, by their two "
        "principal components, into an .svg or .png file. Needs matplotlib.",
        reads="path",
        writes=True,
        endings=PICTURES,
        panel=Panel.OUTPUT,
        conflicts=OptionRule(
            ("--similarity", "--file"), "{flag} draws words: it does not go with {other}"
        ),
    )
    overwrite: bool = setting(
        "Replace the output of an earlier run.",
        panel=Panel.SAVING,
        needs=OptionRule(("--out",), "{flag} belongs to --out: give that as well"),
    )

    @property
    def picture_alone(self) -> bool:
        """True if the user asks only for a picture: no answers and no file of vectors."""
        return self.plot is not None and not (self.out or self.format)


@takes_options
def vectors(asked: Questions, model: ModelName, machine: Device, out: RecordedOutput) -> None:
    """Show what a model knows about words: neighbours, analogies, vectors.

    Any trained network with an embedding has vectors; `seqgen train TEXT --model word2vec
    --tokenizer word` learns nothing else. Without a question, the vectors of all words are
    written.
    """
    from seqgen.plugins.vectors.words import WordVectors, load_vectors
    from seqgen.store.loading import Work

    inputs = [Inputs().open_one(name) for name in (asked.similarity, asked.file) if name]
    asked = _checked(asked, inputs)
    work = Work.of_files([] if asked.file is None else [asked.file])
    loaded = load_vectors(model.model, machine.device, work, out.announce)
    out.uses([loaded])
    if asked.file is not None:
        from seqgen.plugins.vectors.texts import check_pooling, text_vectors
        from seqgen.text.reading import unix_newlines

        pooling, title = asked.pool or "mean", inputs[0].title
        check_pooling(loaded, pooling, asked.layer)
        lines = without_newlines(title, unix_newlines(inputs[0].pass_on()))
        texts = content_of(title, lines, "there is no text", out)
        records = text_vectors(loaded, texts, pooling, asked.layer)
        _put_texts(asked, _with_note(records, title, out), out)
        return
    words = WordVectors.of(loaded)
    if asked.similarity is not None:
        _put_agreement(words, inputs[0], out)
    elif asked.neighbours or asked.analogy:
        _answer(asked, words, out)
    else:
        if asked.plot is not None:
            _draw(asked, words, words.most_frequent(DRAWN))
        if out.json or not asked.picture_alone:
            _put_words(asked, words, out)
    if asked.plot is not None:
        out.notice(f"picture: {asked.plot}")


def _checked(asked: Questions, inputs: Iterable[Input]) -> Questions:
    """Check the paths of the output files; return the options with the resolved paths."""
    out, plot = asked.out, asked.plot
    if plot is not None:
        plot = check_picture(plot, inputs)
    if out is not None:
        from seqgen.plugins.vectors.files import is_vectors

        out = check_out(out, inputs, asked.overwrite, "a file of vectors", is_vectors)
    return replace(asked, out=out, plot=plot)


def _with_note(
    records: Iterable[TextVector | TokenVector], name: str, out: Output
) -> Iterator[TextVector | TokenVector]:
    """Pass records on; finally report the lines that got zero vectors, having no known word."""
    numbers = []
    for record in records:
        if not any(record.vector):
            numbers.append(str(record.index + 1))
        yield record
    if numbers:
        lines = "line" if len(numbers) == 1 else "lines"
        out.notice(
            f"{name}: no word with a vector in {lines} {first_names(numbers)}, which got zeros"
        )


def _answer(asked: Questions, words: WordVectors, out: Output) -> None:
    """Print neighbours and analogy completions, and plot all these words if asked."""
    top = asked.top or ANSWERS
    lists = [words.neighbours(word, top) for word in asked.neighbours]
    lists += [words.analogy(analogy, top) for analogy in asked.analogy]
    answers = [neighbour for answer in lists for neighbour in answer]
    if not out.records(answers):
        rows = [(n.word, n.neighbour, figure(n.similarity)) for n in answers]
        put_table(("word", "neighbour", "similarity"), rows, left=2)
    if asked.plot is not None:
        _draw(asked, words, _drawn(asked, answers))


def _drawn(asked: Questions, answers: Iterable[Neighbour]) -> list[str]:
    """List the words to plot: those in the questions and in the answers, each once."""
    from seqgen.plugins.vectors.words import terms

    given = [word for analogy in asked.analogy for word in terms(analogy)]
    return list(dict.fromkeys([*asked.neighbours, *given, *(n.neighbour for n in answers)]))


def _draw(asked: Questions, words: WordVectors, chosen: list[str]) -> None:
    from seqgen.plugins.vectors.picture import draw_words

    places = [words.place(word) for word in chosen]
    title = f"{words.model}: {plural(len(chosen), 'word')}"
    draw_words(asked.plot, chosen, words.directions[places], title)


def _put_agreement(words: WordVectors, source: Input, out: Output) -> None:
    from seqgen.plugins.vectors.words import agreement

    result = agreement(words, source.chunks(), source.title)
    if out.record(result):
        return
    row = [result.file, count(result.pairs), count(result.oov), figure(result.spearman)]
    put_table(("file", "pairs", "out of vocabulary", "spearman"), [row])


def _put_words(asked: Questions, words: WordVectors, out: Output) -> None:
    """Write the vectors of all words."""
    from seqgen.plugins.vectors import files as word_vectors

    pairs = zip(words.words, words.vectors, strict=True)
    if out.records({"word": w, "vector": v.tolist(), "model": words.model} for w, v in pairs):
        return
    if asked.format == "npy":
        _write(asked, [word_vectors.npy(words.vectors)])
    else:
        head = asked.format == "word2vec"
        _write(asked, word_vectors.write(words.words, words.vectors, head))


def _put_texts(asked: Questions, records: Iterable[TextVector | TokenVector], out: Output) -> None:
    """Write the vector of each text or token; to standard output, as soon as it is computed."""
    from seqgen.plugins.vectors import files as word_vectors

    if out.records(records):
        return
    if asked.format == "npy":
        import numpy as np

        rows = [record.vector for record in records]
        _write(asked, [word_vectors.npy(np.array(rows, dtype=np.float32))])
    elif asked.out is None:
        for record in records:
            put(_vector_line(record))
    else:
        _write(asked, (_vector_line(record).encode() for record in records))


def _vector_line(record: TextVector | TokenVector) -> str:
    """Format a vector as a line of numbers, with token and tab first for a token's vector."""
    from seqgen.plugins.vectors import files as word_vectors

    token = getattr(record, "token", None)
    before = "" if token is None else one_line(token).replace("\t", "\\t") + "\t"
    return f"{before}{word_vectors.numbers(record.vector)}\n"


def _write(asked: Questions, chunks: Iterable[Any]) -> None:
    from seqgen.text import packing

    if asked.out is None:
        put_bytes(chunks)
    else:
        packing.write_packed(asked.out, chunks)

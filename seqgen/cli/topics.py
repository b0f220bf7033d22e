"""`seqgen help`: what all commands share, by topic; and the help of a command."""

from __future__ import annotations

from seqgen.cli.flags import takes_options
from seqgen.cli.output import Output, put
from seqgen.cli.reading import Threads
from seqgen.configs import Options, setting
from seqgen.errors import UsageError, did_you_mean

# By name: a line that says what it is about, and the text.
TOPICS: dict[str, tuple[str, str]] = {
    "pipes": (
        "standard input, standard output, and how they combine",
        r"""
Standard output carries the data and nothing else. Progress, warnings and
tables about the run go to standard error; --quiet (-q) leaves only errors.

  seqgen sample -q > text.txt
  seqgen perplexity book.txt --per-line | sort -rn | head

Prompts. Each PROMPT argument is a prompt, and then standard input is not
read. Without one, piped text is read, a prompt on each line; on a terminal
the model writes from the start of a text.

Records. N lines in give N lines out, in order, each as soon as it is ready;
an empty line is a prompt too. In these lines a newline is written \n and a
backslash \\. --json writes a JSON record on each line instead, with unrounded
numbers and the seed; index, sample, rank and line count from 0.

Files. Where a FILE is needed, - or piped text takes its place. Where a FILE
is optional (eval, compare), only - reads standard input. A FILE may be a
pipe: seqgen perplexity <(zcat book.gz).

A reader that leaves early (| head) ends a command quietly, with code 0.
""",
    ),
    "exit-codes": (
        "what a command's exit code says",
        """
    0  done
    1  a problem: one line on standard error says what it is and what to do
    2  wrong usage: an unknown option, a value out of bounds
  130  interrupted, by Ctrl-C, SIGTERM or SIGHUP; a training run has saved a
       checkpoint and says how to resume

An "internal error" is a fault of seqgen. With SEQGEN_TRACEBACK=1 in the
environment, the command shows where it happened.
""",
    ),
    "environment": (
        "environment variables",
        """
  SEQGEN_HOME         folder of models and cache. Default: the user data folder
                      of the platform, on Linux ~/.local/share/seqgen
  SEQGEN_MAX_LINE_MB  longest line, word or whole text read at once, in MB.
                      Default: 64
  SEQGEN_TRACEBACK    1 shows the traceback of an internal error
  NO_COLOR            set to anything: no colour on a terminal
  COLUMNS             width of help and tables, if it is not the terminal's
  OMP_NUM_THREADS     number of CPU threads, as --threads
  CUDA_VISIBLE_DEVICES
                      which GPUs PyTorch may use
""",
    ),
    "files": (
        "what commands read as text, and where models are stored",
        """
Text is UTF-8. A byte-order mark is dropped, CRLF is kept (--newlines lf turns
it into LF), and invalid bytes are refused with their offset. Files ending in
.gz and .xz are read directly, .zst with the package zstandard.

DATA is one or more files, folders (their text files, sorted by path),
patterns in quotes ('corpus/**/*.txt') or - for standard input, joined as cat
would join them. An output never replaces an input, and replaces an existing
file only with --overwrite.

A model is a folder in $SEQGEN_HOME/models, which can be copied or zipped:
  config.json         architecture and every setting
  model.safetensors   the weights with the lowest validation loss
  tokenizer/          the tokenizer
  validation/         the held-out text
  training.json       data files and their hashes, seed, machine, results
  metrics.jsonl       a record for each logged step
  checkpoints/        what --resume needs
`seqgen models path NAME` prints the folder of a model, `seqgen models cache`
lists what is cached.

-m takes a name or a path; without it, the latest model is used. Where a
name is needed, `latest` means that model.
""",
    ),
    "mixtures": (
        "several models as one",
        """
Wherever a command takes -m, several models can be interpolated: their
probabilities of each token are averaged.

  seqgen sample -m book-lstm+book-ngram             equal weights
  seqgen perplexity -m book-lstm:0.7+book-ngram:0.3

Models without a weight share what is left equally. All must use the same
tokenizer, the same --documents and the same --direction.

  seqgen perplexity -m A+B --fit valid.txt          find the best weights
  seqgen mix A B --name both                        store the mixture
  seqgen train book.txt --with-ngram                train a network, count an
                                                    n-gram model, mix them
  seqgen train book.txt --members 2                 train two networks side by
                                                    side, mixed as one model
""",
    ),
}


class Topic(Options):
    """What help is wanted about."""

    topic: tuple[str, ...] = setting(
        f"Topic, one of {', '.join(TOPICS)}; or a command.", metavar="TOPIC", positional=True
    )


@takes_options
def help_(topic: Topic, threads: Threads, out: Output) -> None:
    """Explain what all commands share, by topic; or show the help of a command."""
    # Of a command, `seqgen.cli` makes COMMAND --help.
    name = " ".join(topic.topic)
    if name in TOPICS:
        if not out.record({"topic": name, "text": TOPICS[name][1].strip("\n")}):
            put(TOPICS[name][1].lstrip("\n"))
    elif name:
        hint = did_you_mean(name, TOPICS) or f"; it is one of {', '.join(TOPICS)}, or a command"
        raise UsageError(f"there is no topic {name!r}{hint}")
    elif not out.records({"topic": name, "about": about} for name, (about, _) in TOPICS.items()):
        width = max(map(len, TOPICS))
        put("Topics:\n" + "".join(f"  {n:<{width}}  {a}\n" for n, (a, _) in TOPICS.items()))
        put("\nShow one by `seqgen help TOPIC`, the help of a command by `seqgen help COMMAND`.\n")

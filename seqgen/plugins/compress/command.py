"""`seqgen compress` and `seqgen decompress`: lossless compression with a model."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.inputs import Inputs, given_or_piped
from seqgen.cli.shell.model_options import ModelName, Threads
from seqgen.cli.shell.output import Output, is_terminal, put_bytes, put_record
from seqgen.cli.shell.tables import count, figure
from seqgen.errors import UsageError
from seqgen.settings import Options, Panel, file_argument, setting

if TYPE_CHECKING:
    from seqgen.store.loaded import LoadedModel


class AnyFile(Options):
    """Options that name the input file, which is read as bytes."""

    file: str | None = file_argument("The file to read; - is standard input.")

    def read(self, command: str, out: Output) -> bytes:
        """Read the input as bytes.

        Raises:
            UsageError: none is given or piped in, or standard output is a terminal.
        """
        if is_terminal(sys.stdout) and not out.json:
            raise UsageError(f"will not write a file to a terminal: seqgen {command} FILE > RESULT")
        (name,) = given_or_piped([self.file], f"seqgen {command} FILE")
        content = Inputs(out.quiet, as_text=True).open_one(name).content
        return content.read_bytes() if isinstance(content, Path) else b"".join(content.blocks())


class Coding(Options, panel=Panel.MODEL):
    """Options of `seqgen compress`: whether to adapt to the file."""

    adapt: bool = setting(
        "Learn from the file while it is read: mix in counts of what followed the same last tokens "
        "before. Networks that read a stream also train on it (dynamic evaluation), which is slow.",
    )


@takes_options
def compress(
    file: AnyFile, model: ModelName, coding: Coding, threads: Threads, out: Output
) -> None:
    """Compress a file with a model, without loss: the better the prediction, the smaller the file.

    Writes to standard output. Without --adapt, the size is the text's total bits in `seqgen
    perplexity`. Any file can be compressed: bytes that the model does not know cost 8 bits each,
    plus their length. Files of n-gram models decompress on every machine; for other models it must
    be the same build of NumPy or PyTorch and the same kind of processor, otherwise decompress ends
    with an error. --json writes sizes instead of the compressed file.
    """
    from seqgen.plugins.compress.archive import compress as compressed

    raw = file.read("compress", out)
    loaded, began = _load(model, coding.adapt), time.perf_counter()
    result = compressed(loaded, raw, coding.adapt)
    sizes = {"bytes": len(raw), "compressed": len(result.content)}
    bits = 8 * len(result.content) / len(raw) if raw else None
    facts = {"tokens": result.tokens, "escaped_bytes": result.escaped, "bits_per_byte": bits}
    if out.json:
        _record(file, loaded, sizes | facts, began)
    else:
        put_bytes([result.content])
        out.notice(
            f"{count(len(raw))} bytes compressed to {count(len(result.content))}, "
            f"{figure(bits)} bits/byte"
        )


@takes_options
def decompress(file: AnyFile, model: ModelName, threads: Threads, out: Output) -> None:
    """Decompress a file that `seqgen compress` has made, with the same model.

    Writes each block to standard output after checking its checksum. --json writes sizes instead
    of the text.
    """
    from seqgen.plugins.compress.archive import decompress as decompressed
    from seqgen.plugins.compress.archive import was_learning

    content = file.read("decompress", out)
    loaded, began = _load(model, was_learning(content)), time.perf_counter()
    size = 0
    for block in decompressed(loaded, content):
        size += len(block)
        if not out.json:
            put_bytes([block])
    if out.json:
        _record(file, loaded, {"bytes": size, "compressed": len(content)}, began)


def _load(model: ModelName, adapt: bool) -> LoadedModel:
    """Load the model on the CPU: for training if it is to learn from the file and can.

    Otherwise it predicts one token at a time.
    """
    from seqgen.plugins.compress.archive import learning_by
    from seqgen.store.loading import Work, load

    loaded = load(model.model, "cpu", work=Work())
    if not adapt or loaded.model.orders is not None:  # an n-gram model alone
        return loaded
    trained = load(model.model, "cpu")
    return trained if learning_by(trained) is not None else loaded


def _record(file: AnyFile, loaded: LoadedModel, facts: dict[str, Any], began: float) -> None:
    seconds = time.perf_counter() - began
    put_record({"file": file.file, "model": loaded.name, **facts, "seconds": seconds})

"""`seqgen import` and `seqgen export`: convert models from and to the formats of other tools."""

from __future__ import annotations

import functools
import sys
from pathlib import Path, PurePath
from typing import Literal

from seqgen import store
from seqgen.cli.shell.flags import takes_options
from seqgen.cli.shell.model_options import StoredName, Threads
from seqgen.cli.shell.output import Output, can_redraw, one_line, put_bytes
from seqgen.cli.shell.output_files import (
    Overwrite,
    check_out,
    check_out_folder,
    check_replaced_model,
)
from seqgen.cli.shell.tables import count, significant
from seqgen.errors import UsageError
from seqgen.plugins.exchange.formats import (
    NumberType,
    exported_formats,
    format_of_name,
    is_in_format,
)
from seqgen.settings import Options, Panel, argument, redeclare, require, setting
from seqgen.store.layout import is_known
from seqgen.wording import plural

ExportFormat = Literal[tuple(exported_formats())]
# What importers open as a file, which reads what is piped in.
STANDARD_INPUT = Path("/dev/stdin")


class Imported(Options, panel=Panel.SAVING):
    """Options of `seqgen import`: the file or folder, the new name, tokenizer and base model."""

    file: Path = argument(
        "A model on the Hugging Face Hub, as hf:OWNER/NAME, hf:OWNER/NAME@REVISION or, for a GGUF "
        "file, hf:OWNER/NAME:Q4_K_M; a folder of a Hugging Face model (config.json, *.safetensors, "
        "tokenizer.json), or of peft's adapters; a GGUF file; an ARPA file, or vectors of words as "
        "word2vec or GloVe write them as text, also compressed (.gz), or - for standard input.",
        "PATH",
        reads="path",
    )
    name: str | None = setting("Name of the new model.", metavar="NAME", without="made from PATH")
    like: str | None = setting(
        "Use the tokenizer of this model.",
        panel=Panel.TEXT,
        without="split at spaces",
        completes="models",
    )
    base: str | None = setting(
        "For adapters: the base model.",
        metavar="NAME",
        without="the stored model that the folder names",
        completes="models",
    )
    overwrite: bool = setting("Replace the model of that name.")


@takes_options
def import_(imported: Imported, out: Output) -> None:
    """Import a model of another tool: GPT-2, Llama, Marian or BART, n-grams, or word vectors.

    hf:OWNER/NAME is downloaded first, by huggingface_hub: into its cache, with its token. With
    HF_HUB_OFFLINE=1, or without a network, it comes from the cache.

    A folder is a Hugging Face model: GPT-2, Llama, Mistral, Qwen2, Qwen3, Marian, BART, Pegasus and
    others with the same model_type; or low-rank adapters of such a model, as peft writes them. How
    a file begins says whether it is a GGUF file, an n-gram model (ARPA, by KenLM, SRILM or another
    tool) or vectors.
    """
    from seqgen.cli.models import describe
    from seqgen.plugins.exchange.exchange import import_model

    file, name = imported.file, imported.name
    if str(file) == "-":
        file = STANDARD_INPUT
    if imported.overwrite:
        check_replaced_model(name, [file])
    stored = import_model(
        file,
        name=name,
        like=imported.like,
        base=imported.base,
        overwrite=imported.overwrite,
        tell=out.notice,
        shows_progress=not out.quiet and can_redraw(sys.stderr),
    )
    out.record(describe(stored))
    said = f"{stored.name}: imported from {one_line(str(file))}"
    if sums := stored.record.get("probability_sums"):
        least, most = significant(sums["least"], 4), significant(sums["most"], 4)
        said += (
            f"; after {count(sums['off'])} of {plural(sums['contexts'], 'context')} its "
            f"probabilities sum to {least} to {most} instead of 1, so commands such as perplexity "
            "and sample divide them by their sum"
        )
    out.notice(said)


class Exported(Overwrite, panel=Panel.OUTPUT):
    """Options of `seqgen export`: the format, the number type and the output path."""

    file_format: ExportFormat | None = setting(
        "Format to write. For an n-gram model, an ARPA file; for a transformer, a GGUF file for "
        "llama.cpp or a folder for Hugging Face's transformers (hf), also for an encoder-decoder; "
        "for these and recurrent networks, a folder with ONNX graphs; for low-rank adapters, a "
        "folder for peft.",
        names=("--format",),
        without="that of PATH's ending, such as .gguf; else arpa for n-grams, gguf with --type, "
        "for other networks hf or onnx",
    )
    out: str = setting(
        "File to write, compressed if it ends in .gz; - is standard output. For hf, onnx and peft: "
        "a folder.",
        "-",
        metavar="PATH",
        reads="file",
        writes=True,
    )
    number_type: NumberType = setting(
        "Type of the weights in a GGUF file; q4_k_m and q5_k_m have more bits for some matrices. "
        "All but f32 need the gguf package.",
        "f32",
        names=("--type",),
    )
    merge: bool = setting("For low-rank adapters: write base and adapters as one model.")


@takes_options
def export(model: StoredName, written: Exported, threads: Threads, out: Output) -> None:
    """Export a model in a format that other tools read: n-grams, transformers, recurrent ones."""
    from seqgen.plugins.exchange.exchange import default_format, export_model, exported
    from seqgen.store.loading import load

    named = format_of_name(written.out)
    loaded, file_format, merge = None, written.file_format or named, written.merge
    contradicts = named is not None and file_format != named
    require(not contradicts, f"{written.out} is named as --format {named}, not {file_format}")
    number_type, stored = written.number_type, store.find_all(model.name)
    name = stored.name
    if file_format == "arpa" and stored.ngram is not None:
        out.notice(f"export --format arpa takes the n-gram model in {stored.name}")
        stored = stored.ngram
    stored = stored.networks_for("export", out.notice)
    if file_format is None:
        loaded = load(stored, "cpu")
        file_format = default_format(loaded, merge, number_type)
    chosen = exported_formats()[file_format]
    if chosen.form == "folder":
        if written.out == "-":
            raise UsageError(f"--format {file_format} writes a folder: give --out FOLDER")

        def is_own(part: PurePath) -> bool:
            own = chosen.files
            return str(part) in own or (part.parts[0] in own and is_known(part))

        path = check_out_folder(Path(written.out), is_own, written.overwrite)
    elif written.out != "-":
        is_kind = functools.partial(is_in_format, file_format=file_format)
        path = check_out(Path(written.out), [], written.overwrite, chosen.noun, is_kind)
    elif out.json:
        raise UsageError("--json needs --out FILE: standard output has the model")
    loaded = loaded or load(stored, "cpu")
    if (said := loaded.stored.describe_conversion()) is not None:
        out.announce(said)
    if written.out == "-":
        put_bytes(exported(loaded, file_format, merge, number_type))
        return
    export_model(loaded, file_format, path, merge, number_type)
    out.record({"name": name, "format": file_format, "path": str(path)})
    out.notice(f"{name}: written to {one_line(str(path))}")


class Pushed(Options, panel=Panel.OUTPUT):
    """Options of `seqgen push`: the model, the repository and what is written into it."""

    name: str = argument("Trained model: a name or a path.", "NAME", completes="models")
    address: str = argument("Repository on the Hugging Face Hub.", "hf:OWNER/NAME")
    private: bool = setting("Make a new repository private.")
    message: str | None = setting(
        "Message of the commit.", metavar="TEXT", without="names the model and seqgen"
    )
    file_format: ExportFormat | None = redeclare(
        Exported,
        "file_format",
        without="arpa for n-grams; gguf with --type; for other networks hf, else onnx",
    )
    number_type: NumberType = redeclare(Exported, "number_type")
    merge: bool = redeclare(Exported, "merge")


@takes_options
def push(pushed: Pushed, threads: Threads, out: Output) -> None:
    """Upload a model to the Hugging Face Hub, in a format that other tools read.

    The model is exported to a temporary folder and uploaded by huggingface_hub, with the token of
    HF_TOKEN or of hf auth login. A repository without a README.md gets one, with the model's
    figures; it does not name any of your files.
    """
    from seqgen.cli.shell.tables import byte_size
    from seqgen.plugins.exchange.hub_push import Upload, push_model

    upload = Upload(
        pushed.address, pushed.file_format, pushed.number_type, pushed.merge, pushed.private
    )
    shows_progress = not out.quiet and can_redraw(sys.stderr)
    done = push_model(pushed.name, upload, pushed.message, shows_progress)
    out.record(done)
    size, files = byte_size(done["bytes"]), plural(len(done["files"]), "file")
    out.notice(f"{done['name']}: uploaded to {done['url']} ({files}, {size})")

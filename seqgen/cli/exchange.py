"""`seqgen import` and `seqgen export`: models in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqgen.cli import completion, options
from seqgen.cli.help import flag, value
from seqgen.cli.inputs import file_name, file_path
from seqgen.cli.output import put_bytes, put_record, say
from seqgen.cli.outputs import check_out, check_out_folder, check_replaced_model, is_arpa, is_gguf
from seqgen.configs.panels import OUTPUT, SAVING, TEXT
from seqgen.errors import UsageError

# What importers open as a file, which reads what is piped in.
STANDARD_INPUT = Path("/dev/stdin")


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="Folder of a Hugging Face model (config.json, *.safetensors, tokenizer.json); "
            "a GGUF file; an ARPA file, or vectors of words as word2vec or GloVe write them as "
            "text, also compressed (.gz), or - for standard input.",
            parser=file_path,
            metavar="PATH",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, value("NAME", SAVING, "Name of the new model.", default="made from PATH")
    ] = None,
    like: Annotated[
        str | None,
        value(
            "NAME",
            TEXT,
            "Use the tokenizer of this model.",
            default="split at spaces",
            complete=completion.models,
        ),
    ] = None,
    overwrite: Annotated[
        bool, flag("--overwrite", SAVING, "Replace the model of that name.")
    ] = False,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Import a model of another tool: GPT-2, Llama, Marian or BART, n-grams, or word vectors.

    A folder is a Hugging Face model: GPT-2, Llama, Mistral, Qwen2, Qwen3, Marian, BART and others
    with the same model_type. How a file begins says whether it is a GGUF file, an n-gram model
    (ARPA, by KenLM, SRILM or another tool) or vectors.
    """
    from seqgen.cli.models import describe
    from seqgen.commands.exchange import import_model

    if str(file) == "-":
        file = STANDARD_INPUT
    if overwrite:
        check_replaced_model(name, [file])
    stored = import_model(file, name=name, like=like, overwrite=overwrite)
    if json:
        put_record(describe(stored))
    if not quiet:
        say(f"{stored.name}: imported from {file}")


def export(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Trained model: a name or a path; the latest if none is given.",
            metavar="[NAME]",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        value(
            "arpa|gguf|hf|onnx",
            OUTPUT,
            "Format to write: an ARPA file of an n-gram model; of a transformer a GGUF file, as "
            "llama.cpp reads it, or a folder for Hugging Face's transformers (hf), also of an "
            "encoder-decoder; of these and of recurrent networks a folder with ONNX graphs.",
            "--format",
            default="arpa for n-grams; for networks hf where they fit, else onnx",
            complete=completion.one_of("arpa", "gguf", "hf", "onnx"),
        ),
    ] = None,
    out: Annotated[
        str,
        value(
            "PATH",
            OUTPUT,
            "File to write, compressed if it ends in .gz; - is standard output. For hf and onnx: "
            "a folder.",
            parser=file_name,
        ),
    ] = "-",
    merge: Annotated[
        bool,
        flag("--merge", OUTPUT, "Of low-rank adapters: write base and adapters as one model."),
    ] = False,
    overwrite: options.Overwrite = False,
    threads: options.Threads = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Export a model in a format that other tools read: n-grams, transformers, recurrent ones."""
    from seqgen.commands.exchange import default_format, export_model, exported
    from seqgen.commands.loading import load
    from seqgen.formats import FOLDER_EXPORTERS

    loaded = None
    if file_format is None:
        loaded = load(name, "cpu")
        file_format = default_format(loaded, merge)
    if file_format in FOLDER_EXPORTERS:
        path = check_out_folder(Path(out), overwrite, file_format)
    elif out != "-":
        kinds = {"gguf": ("a GGUF file", is_gguf), "arpa": ("an ARPA file", is_arpa)}
        path = check_out(Path(out), [], overwrite, *kinds.get(file_format, kinds["arpa"]))
    elif json:
        raise UsageError("--json needs --out FILE: standard output has the model")
    loaded = loaded or load(name, "cpu")
    if out == "-":
        put_bytes(exported(loaded, file_format, merge))
        return
    export_model(loaded, file_format, path, merge)
    _report(loaded.stored.name, file_format, path, json, quiet)


def _report(name: str, file_format: str, path: Path, json: bool, quiet: bool) -> None:
    """Say what has been written."""
    if json:
        put_record({"name": name, "format": file_format, "path": str(path)})
    if not quiet:
        say(f"{name}: written to {path}")

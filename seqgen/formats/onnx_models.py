"""Models as ONNX graphs, with what is needed to read and write text with them."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqgen.errors import SeqgenError
from seqgen.files import json_bytes
from seqgen.formats import Exported, hf_tokenizer_writing, onnx_graphs
from seqgen.formats.onnx_graphs import Graph
from seqgen.models.recurrent.model import RecurrentLM
from seqgen.models.seq2seq.transformer import Seq2SeqTransformer
from seqgen.models.transformer.model import Transformer
from seqgen.packages import require_packages
from seqgen.tokenizers import Tokenizer

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

OPSET = 18
# A protocol buffer holds no more bytes.
LARGEST = (1 << 31) - 1
ABOUT = "onnx.json"


def files_of(exported: Exported) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a model's folder, the table about them last; see `FolderExporter`."""
    require_packages("--format onnx", "onnx", "onnxscript")
    graphs = _graphs_of(exported)
    models = {name: _traced(graph, exported.name) for name, graph in graphs.items()}
    if "whole" not in models:
        models["whole"] = _scanned(models["step"], graphs["step"])
    for name, model in sorted(models.items()):
        yield f"{name}.onnx", _checked(model, exported.name)
    yield from _tokenizer_files(exported)
    yield ABOUT, json_bytes(_about(exported, graphs))


def _graphs_of(exported: Exported) -> dict[str, Graph]:
    """Return the graphs of a model by name; "whole" is left out where it is made of the step.

    Raises:
        SeqgenError: a graph cannot hold this kind of model.
    """
    model, name = exported.model, exported.name
    exported.require_no_labels()
    if type(model) is Seq2SeqTransformer:
        if model.config.source_features is not None:
            raise SeqgenError(f"{name} reads vectors, which --format onnx does not hold")
        return onnx_graphs.pair_graphs(model)
    if type(model) is Transformer:
        return onnx_graphs.transformer_graphs(model)
    if isinstance(model, RecurrentLM):
        if model.pointer is not None:
            raise SeqgenError(f"{name} has a pointer, which --format onnx does not hold")
        return {"step": onnx_graphs.recurrent_step(model)}
    raise SeqgenError(
        f"{name} is none of the models that --format onnx holds: transformers, "
        "seq2seq-transformers and recurrent networks"
    )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what the exporter says from standard output and standard error."""
    said, level = io.StringIO(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _traced(graph: Graph, name: str) -> ModelProto:
    """Return a graph as ONNX.

    Raises:
        SeqgenError: an operation of the model has no counterpart.
    """
    examples = tuple(example for example, _ in graph.inputs.values())
    any_size = torch.export.Dim.DYNAMIC
    sizes = [dict.fromkeys(axes, any_size) for _, axes in graph.inputs.values()]
    parameters = inspect.signature(graph.module.forward).parameters.values()
    fixed = sum(p.kind is not p.VAR_POSITIONAL for p in parameters)
    shapes = (*sizes[:fixed], *([tuple(sizes[fixed:])] if fixed < len(sizes) else []))
    try:
        with _silent(), torch.no_grad():
            program = torch.onnx.export(
                graph.module.eval(),
                examples,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(graph.inputs),
                output_names=graph.outputs,
                dynamic_shapes=shapes,
            )
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SeqgenError(f"{name} cannot be written as ONNX: {reason[0][:200]}") from error
    model = program.model_proto
    _name_axes(model.graph, graph)
    return model


def _name_axes(written: GraphProto, graph: Graph) -> None:
    """Call the sizes that may change by their names."""
    axes = {name: axes for name, (_, axes) in graph.inputs.items()}
    after = "past + length" if "tokens" in axes else "source"
    for output in graph.outputs:
        kept = {0: "batch", 1: "length"} if output == "logits" else {0: "batch", 2: after}
        axes[output] = kept
    for value in (*written.input, *written.output):
        for at, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_param"):
                dim.dim_param = axes[value.name][at]


def _scanned(step: ModelProto, graph: Graph) -> ModelProto:
    """Return a graph of whole texts that takes the step of a recurrent model token by token.

    The step becomes the body of a Scan over the tokens' second axis. Its constants stay outside.
    """
    from onnx import TensorProto, helper, numpy_helper

    states = [name for name in graph.inputs if name != "tokens"]
    axis = numpy_helper.from_array(torch.tensor([1]).numpy(), "whole.axis")
    constants, nodes = _first_states({name: graph.inputs[name][0] for name in states})
    scan = helper.make_node(
        "Scan",
        [*(f"whole.{name}.first" for name in states), "tokens"],
        [*(f"whole.{name}.last" for name in states), "logits"],
        body=_body(step.graph),
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
    )
    logits = ["batch", "length", None]
    whole = helper.make_graph(
        [helper.make_node("Shape", ["tokens"], ["whole.batch"], end=1), *nodes, scan],
        "whole",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, logits[:2])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits)],
        [axis, *step.graph.initializer, *constants],
    )
    model = helper.make_model(whole, opset_imports=step.opset_import, functions=step.functions)
    model.ir_version = step.ir_version
    return model


def _body(step: GraphProto) -> GraphProto:
    """Return a step as the body of a Scan: a token of each row (B,) in, logits (B, V) out."""
    from onnx import TensorProto, helper

    inner = {name: f"step.{name}" for name in ("tokens", "logits")}
    token = helper.make_tensor_value_info("token", TensorProto.INT64, ["batch"])
    row = helper.make_tensor_value_info("row", TensorProto.FLOAT, ["batch", None])
    return helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["token", "whole.axis"], [inner["tokens"]]),
            *(_renamed(node, inner) for node in step.node),
            helper.make_node("Squeeze", [inner["logits"], "whole.axis"], ["row"]),
        ],
        "step",
        [*(x for x in step.input if x.name != "tokens"), token],
        [*(x for x in step.output if x.name != "logits"), row],
    )


def _first_states(examples: dict[str, Tensor]) -> tuple[list[Any], list[Any]]:
    """Return constants and nodes that give every row the state of one that has read nothing.

    Args:
        examples: by name what rows begin with, (B, ...).
    """
    from onnx import helper, numpy_helper

    constants, nodes = [], []
    for name, example in examples.items():
        own = f"whole.{name}"
        sizes = torch.tensor(example.shape[1:]).numpy()
        constants.append(numpy_helper.from_array(example[:1].numpy(), own))
        constants.append(numpy_helper.from_array(sizes, f"{own}.sizes"))
        joined = ["whole.batch", f"{own}.sizes"]
        nodes.append(helper.make_node("Concat", joined, [f"{own}.shape"], axis=0))
        nodes.append(helper.make_node("Expand", [own, f"{own}.shape"], [f"{own}.first"]))
    return constants, nodes


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """Return a node of a graph with other names for some of its inputs and outputs."""
    renamed = type(node)()
    renamed.CopyFrom(node)
    for listed in (renamed.input, renamed.output):
        listed[:] = [names.get(name, name) for name in listed]
    return renamed


def _checked(model: ModelProto, name: str) -> bytes:
    """Return a graph as a file.

    Raises:
        SeqgenError: it is too large.
    """
    if model.ByteSize() > LARGEST:
        raise SeqgenError(f"{name} is larger than the 2 GB that one ONNX file holds")
    return model.SerializeToString()


def _tokenizer_files(exported: Exported) -> Iterator[tuple[str, bytes]]:
    """Yield the tokenizers as seqgen reads them, and as Hugging Face's library does, if it can."""
    source = exported.source_tokenizer
    sides = {"tokenizer": exported.tokenizer}
    if isinstance(source, Tokenizer) and source is not exported.tokenizer:
        sides["source_tokenizer"] = source
    for folder, tokenizer in sides.items():
        with tempfile.TemporaryDirectory() as temporary:
            tokenizer.save(Path(temporary))
            for path in sorted(Path(temporary).iterdir()):
                yield f"{folder}/{path.name}", path.read_bytes()
    with contextlib.suppress(SeqgenError):
        how = exported.tokenizer, exported.framing, exported.name
        files = hf_tokenizer_writing.files_of(*how, source=isinstance(source, Tokenizer))
        yield "tokenizer.json", files["tokenizer.json"]


def _about(exported: Exported, graphs: dict[str, Graph]) -> dict[str, Any]:
    """Return what stands in the table beside the graphs."""
    framing, config = exported.framing, exported.model.config
    first = getattr(config, "decoder_start", None)
    start = [framing.start] if first is None else [first, framing.start]
    begun = {
        name: [0 if axes.get(at) == "past" else 1 if at in axes else size for at, size in sizes]
        for name, (example, axes) in graphs["step"].inputs.items()
        if name not in ("tokens", "source_lengths") and not name.startswith("memory.")
        for sizes in [list(enumerate(example.shape))]
    }
    about = {
        "name": exported.name,
        "vocab_size": exported.model.vocab_size,
        "start": start,
        "starts_prompts": framing.starts_prompts,
        "stop": list(framing.stops),
        "never": list(framing.never),
        "window": exported.model.window,
        "state": begun,
    }
    source = exported.source_tokenizer
    if isinstance(source, Tokenizer):
        about["source"] = {"start": source.source_bos_id, "end": source.eos_id}
    return about

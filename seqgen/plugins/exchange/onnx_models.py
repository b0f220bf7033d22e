"""Export of models as ONNX graphs, with their tokenizers and a description."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from seqgen.errors import SeqgenError
from seqgen.files import json_bytes
from seqgen.models.base import LanguageModel
from seqgen.models.seq2seq.model import Seq2SeqTransformer
from seqgen.models.state import State
from seqgen.models.transformer.attention import (
    full_attention,
    repeat_heads,
    squashed_attention,
)
from seqgen.models.transformer.equations import Attend, causal_mask
from seqgen.models.transformer.model import Transformer
from seqgen.packages import require_packages
from seqgen.plugins.exchange import hf_tokenizer
from seqgen.plugins.exchange.formats import require_no_labels
from seqgen.store.formats import ModelToExport
from seqgen.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

    from seqgen.models.transformer.settings import TransformerConfig


# What a graph is traced with: any sizes, all different, and none of them 1, which broadcasts.
BATCH, LENGTH, PAST, SOURCE = 2, 5, 3, 4


@dataclass(frozen=True)
class Graph:
    """A module to trace to ONNX, with its inputs and outputs in order.

    Attributes:
        module: takes and returns tensors.
        inputs: by name an example, and the names of the sizes that may change, by axis.
        outputs: names.
    """

    module: nn.Module
    inputs: dict[str, tuple[Tensor, dict[int, str]]]
    outputs: list[str]


def tokens_of(length: int) -> tuple[Tensor, dict[int, str]]:
    """Build an example input of token ids (B, T), with the names of its variable axes."""
    axes = {0: "batch"} if length == 1 else {0: "batch", 1: "length"}
    return torch.ones(BATCH, length, dtype=torch.int64), axes


class RecurrentStep(nn.Module):
    """One step of a recurrent model: tokens (B, 1) and the state to logits (B, 1, V)."""

    def __init__(self, model: LanguageModel, like: State) -> None:
        super().__init__()
        self.model, self.like = model, like

    def forward(self, tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        before = self.like.with_tensors(dict(zip(self.like.named(), state, strict=True)))
        logits, after = self.model(tokens, before)
        return logits, *after.tensors()


def recurrent_step(model: LanguageModel) -> Graph:
    """Build the one-token graph of a recurrent model whose state has a fixed size."""
    like = model.start(BATCH)
    inputs = {name: (x.clone(), {0: "batch"}) for name, x in like.named().items()}
    names = ["logits", *(f"next.{name}" for name in inputs)]
    return Graph(RecurrentStep(model, like), {"tokens": tokens_of(1), **inputs}, names)


class Caching:
    """Causal attention over cached keys and values (B, heads, P, D) and those of this call.

    Attributes:
        past: for each layer its keys and values.
        present: the same with those of the call behind them.

    Args:
        past: see above.
        positions: of the call's tokens, (T).
        config: of the model.
    """

    def __init__(
        self, past: Sequence[Tensor], positions: Tensor, config: TransformerConfig
    ) -> None:
        self.past = list(zip(past[::2], past[1::2], strict=True))
        self.config, self.positions = config, positions
        self.present: list[Tensor] = []

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pairs = zip(self.past[layer], (k, v), strict=True)
        present = [torch.cat([before, now], 2) for before, now in pairs]
        self.present += present
        places = torch.arange(present[0].shape[2])
        there = causal_mask(self.positions, places, self.config.span(layer))
        if (softcap := self.config.attention_softcap) is not None:
            return squashed_attention(q, *present, there, softcap)
        keys, values = (repeat_heads(q, x) for x in present)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=there)


class SourceReading:
    """Attention of a decoder: cached self-attention, and cross-attention to each row's source.

    Args:
        attend: for the past.
        source: for each layer keys and values (B, heads, L, D).
        there: which places a row's source has, (B, L).
    """

    def __init__(self, attend: Attend, source: Sequence[Tensor], there: Tensor) -> None:
        self.attend, self.there = attend, there
        self.pairs = list(zip(source[::2], source[1::2], strict=True))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attend(layer, q, k, v)

    def source(self, layer: int, q: Tensor) -> Tensor:
        """Attend from queries (B, heads, T, D) to the keys and values of the sources."""
        return full_attention(q, *self.pairs[layer], self.there)


def there_of(lengths: Tensor, width: Any) -> Tensor:
    """Build the padding mask (B, width) of sources with the given lengths (B,)."""
    return torch.arange(width) < lengths[:, None]


class CachedStep(nn.Module):
    """One step of a transformer: tokens (B, T) and a KV cache to logits and the new cache.

    With `reads_source`, keys and values of the source and its lengths come after the tokens.
    """

    def __init__(self, model: Transformer, reads_source: bool) -> None:
        super().__init__()
        self.model, self.reads_source = model, reads_source

    def forward(self, tokens: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        lengths, count = rest[0], 2 * len(self.model.blocks)
        source, past = rest[1 : 1 + count], rest[-count:]
        positions = torch.arange(tokens.shape[1]) + past[0].shape[2]
        attend = caching = Caching(past, positions, self.model.config)
        if self.reads_source:
            attend = SourceReading(caching, source, there_of(lengths, source[0].shape[2]))
        features = self.model.features_at(tokens, positions, attend)
        return self.model.logits(features, tokens, None), *caching.present


class Whole(nn.Module):
    """Full forward pass of a model: tokens (B, T), without a past, to logits (B, T, V)."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.step = CachedStep(model, False)

    def forward(self, tokens: Tensor) -> Tensor:
        config = self.step.model.config
        # The model's own call leaves a sliding window out where the example is not longer.
        empty = torch.zeros(len(tokens), config.kv_heads, 0, config.head_width)
        return self.step(tokens, *[empty] * (2 * config.num_layers))[0]


class SourceEncoder(nn.Module):
    """Encoder: sources (B, L) and lengths (B,) to each layer's keys and values (B, heads, L, D)."""

    def __init__(self, model: Seq2SeqTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        there = there_of(lengths, source.shape[1])
        encoded = self.model.encoder.read(source, there)
        pairs = (block.cross.remember(encoded) for block in self.model.blocks)
        return tuple(x for pair in pairs for x in pair)


class WholePair(nn.Module):
    """Full pass of an encoder-decoder: sources (B, L), lengths and targets (B, T) to logits."""

    def __init__(self, model: Seq2SeqTransformer) -> None:
        super().__init__()
        self.model, self.encoding = model, SourceEncoder(model)

    def forward(self, source: Tensor, lengths: Tensor, tokens: Tensor) -> Tensor:
        memory, there = self.encoding(source, lengths), there_of(lengths, source.shape[1])
        positions = torch.arange(tokens.shape[1])
        empty = [x[:, :, :0] for x in memory]
        reading = SourceReading(Caching(empty, positions, self.model.config), memory, there)
        return self.model.head(self.model.features_at(tokens, positions, reading))


def transformer_graphs(model: Transformer) -> dict[str, Graph]:
    """Build the two graphs of a transformer: the full pass, and a step with a KV cache."""
    past = _keys_and_values(model, "past", PAST, "past")
    inputs = {"tokens": tokens_of(LENGTH), **past}
    whole = Graph(Whole(model), {"tokens": tokens_of(LENGTH)}, ["logits"])
    return {"whole": whole, "step": Graph(CachedStep(model, False), inputs, _outputs(past))}


def pair_graphs(model: Seq2SeqTransformer) -> dict[str, Graph]:
    """Build the graphs of an encoder-decoder: full pass, encoder, and decoder step."""
    source = {
        "source": (torch.ones(BATCH, SOURCE, dtype=torch.int64), {0: "batch", 1: "source"}),
        "source_lengths": (torch.tensor([SOURCE, SOURCE - 1]), {0: "batch"}),
    }
    memory = _keys_and_values(model, "memory", SOURCE, "source")
    past = _keys_and_values(model, "past", PAST, "past")
    tokens, lengths = tokens_of(LENGTH), source["source_lengths"]
    step = {"tokens": tokens, "source_lengths": lengths, **memory, **past}
    return {
        "whole": Graph(WholePair(model), {**source, "tokens": tokens}, ["logits"]),
        "encoder": Graph(SourceEncoder(model), source, list(memory)),
        "step": Graph(CachedStep(model, True), step, _outputs(past)),
    }


def _keys_and_values(
    model: Transformer, name: str, length: int, axis: str
) -> dict[str, tuple[Tensor, dict[int, str]]]:
    config = model.config
    heads = config.num_heads if name == "memory" else config.kv_heads
    example = torch.zeros(BATCH, heads, length, config.head_width)
    return {
        f"{name}.{layer}.{part}": (example.clone(), {0: "batch", 2: axis})
        for layer in range(config.num_layers)
        for part in ("key", "value")
    }


def _outputs(past: dict[str, Any]) -> list[str]:
    return ["logits", *(name.replace("past.", "present.") for name in past)]


OPSET = 18
# A protocol buffer holds no more bytes.
LARGEST = (1 << 31) - 1
ABOUT = "onnx.json"


def files_of(exported: ModelToExport) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an ONNX folder, `onnx.json` last; see `FolderExporter`."""
    require_packages("--format onnx", "onnx", "onnxscript")
    graphs = _graphs_of(exported)
    models = {name: _traced(graph, exported.name) for name, graph in graphs.items()}
    if "whole" not in models:
        models["whole"] = _scanned(models["step"], graphs["step"])
    for name, model in sorted(models.items()):
        yield f"{name}.onnx", _checked(model, exported.name)
    yield from _tokenizer_files(exported)
    yield ABOUT, json_bytes(_about(exported, graphs))


def _graphs_of(exported: ModelToExport) -> dict[str, Graph]:
    """Build a model's graphs by name; "whole" is left out if it is made from the step.

    Raises:
        SeqgenError: a graph cannot hold this kind of model.
    """
    model, name = exported.model, exported.name
    require_no_labels(exported)
    if type(model) is Seq2SeqTransformer:
        if model.config.source_features is not None:
            raise SeqgenError(f"{name} reads vectors, which --format onnx does not hold")
        return pair_graphs(model)
    if type(model) is Transformer:
        return transformer_graphs(model)
    if model.recurrent:
        if getattr(model, "pointer", None) is not None:
            raise SeqgenError(f"{name} has a pointer, which --format onnx does not hold")
        return {"step": recurrent_step(model)}
    if model.orders is not None:
        raise SeqgenError(f"{name} is an n-gram model: use --format arpa")
    raise SeqgenError(
        f"{name} is none of the models that --format onnx holds: transformers, "
        "seq2seq-transformers and recurrent networks"
    )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress what the ONNX exporter prints to standard output and standard error."""
    said, level = io.StringIO(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _traced(graph: Graph, name: str) -> ModelProto:
    """Trace a graph's module to ONNX.

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
    """Name the variable axes of an ONNX graph's inputs and outputs."""
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
    """Build the full-text graph of a recurrent model by scanning its step over the tokens.

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
    """Turn a step graph into the body of a Scan: tokens (B,) in, logits (B, V) out."""
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
    """Build the constants and nodes that give every row the initial state.

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
    """Copy a graph node with some of its inputs and outputs renamed."""
    renamed = type(node)()
    renamed.CopyFrom(node)
    for listed in (renamed.input, renamed.output):
        listed[:] = [names.get(name, name) for name in listed]
    return renamed


def _checked(model: ModelProto, name: str) -> bytes:
    """Serialize an ONNX graph, after checking its size.

    Raises:
        SeqgenError: it is too large.
    """
    if model.ByteSize() > LARGEST:
        raise SeqgenError(f"{name} is larger than the 2 GB that one ONNX file holds")
    return model.SerializeToString()


def _tokenizer_files(exported: ModelToExport) -> Iterator[tuple[str, bytes]]:
    """Yield seqgen's tokenizer files, and Hugging Face's where the tokenizer allows."""
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
        files = hf_tokenizer.files_of(
            exported.tokenizer,
            exported.framing,
            exported.name,
            source=isinstance(source, Tokenizer),
        )
        yield "tokenizer.json", files["tokenizer.json"]


def _about(exported: ModelToExport, graphs: dict[str, Graph]) -> dict[str, Any]:
    """Describe the model for `onnx.json`: start and end tokens, window and initial state."""
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

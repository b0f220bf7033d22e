"""Import and export of Hugging Face folders with decoders or encoder-decoders."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save
from torch import Tensor

from seqgen.engines.blocks import BlockMatrix
from seqgen.engines.memory_limit import build_on_meta
from seqgen.engines.tensor_ops import TensorOps
from seqgen.errors import SeqgenError
from seqgen.files import json_bytes, parse_json
from seqgen.models.base import take_weights, weights_of
from seqgen.models.seq2seq.model import Seq2SeqTransformer
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.positions import position_waves
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.plugins.exchange import hf_config, hf_pairs, hf_tokenizer
from seqgen.plugins.exchange.formats import require_no_labels
from seqgen.plugins.exchange.hf_weights import (
    BIAS,
    WEIGHTS,
    Tensors,
    names_of,
    parts_of,
    shards_of,
    theirs_of,
)
from seqgen.plugins.exchange.imported_tokenizers import HuggingFaceTokenizer
from seqgen.settings import DataConfig, require
from seqgen.store.formats import KEPT, SPECIAL_TOKENS, ImportedModel, ModelToExport
from seqgen.text.tokenizers import Tokenizer


def read_model(path: Path, like: tuple[Tokenizer, DataConfig] | None) -> ImportedModel:
    """Import a model from a Hugging Face folder; see `store.formats.FolderImporter`.

    Everything is checked before the first tensor is read. The tensors are mapped, and become
    float32 one by one.
    """
    require(
        like is None, "--like is for n-gram models: a Hugging Face folder has its own tokenizer"
    )
    table, name = hf_config.read_table(path / "config.json"), str(path / "config.json")
    family = hf_config.family_of(table, name, [*hf_config.READERS, *hf_pairs.FAMILIES])
    if family in hf_pairs.FAMILIES:
        return _read_pairs(path, table, name)
    config, biased = hf_config.read(table, name)
    with contextlib.ExitStack() as held:
        tensors = Tensors(shards_of(path), held)
        tensors.rename("transformer." if family == "gpt2" else "model.")
        plus = float(family in hf_config.GEMMAS)
        parts = list(parts_of(names_of(family), config, biased, plus))
        tensors.check(parts, {"lm_head.weight"} if config.tie_weights else ())
        tokenizer, framing = hf_tokenizer.read(path, config.vocab_size)
        read = {part.ours: tensors.read(part) for part in parts}
        _scale_queries(config, read, hf_config.query_factor(table, config))
        model, stored = as_stored(config, read)
    data = DataConfig(tokenizer=tokenizer.kind, val="none")
    facts = {"family": family, **_chat_facts(path)}
    return ImportedModel("transformer", model, tokenizer, data, framing, facts, tensors=stored)


def _scale_queries(config: TransformerConfig, tensors: dict[str, Tensor], factor: float) -> None:
    """Multiply all queries by a factor, in their normalisations or their maps."""
    for layer in range(config.num_layers) if factor != 1 else ():
        name = f"blocks.{layer}.attention.query_key_value.weight"
        rows = config.qkv_widths[0]
        if config.qk_norm:
            name, rows = f"blocks.{layer}.attention.query_norm.weight", None
        tensors[name] = tensors[name].float()
        tensors[name][:rows] *= factor


def _chat_facts(path: Path) -> dict[str, Any]:
    """Read what a chat with the model of a folder needs, for its record."""
    names = hf_tokenizer.special_names_of(path)
    return {KEPT: hf_tokenizer.kept_of(path), SPECIAL_TOKENS: names}


def _read_pairs(path: Path, table: Mapping[str, Any], name: str) -> ImportedModel:
    """Import an encoder-decoder; see `read_model`."""
    config = hf_pairs.read(table, name)
    with contextlib.ExitStack() as held:
        tensors = Tensors(shards_of(path), held)
        tensors.rename("model.")
        # Old files leave out a bias of zeros. Of names of one tensor a file may have any.
        config = replace(config, output_bias=BIAS in tensors.files)
        shared = hf_pairs.SHARED
        known = next((tensor for tensor in shared if tensor in tensors.files), shared[0])
        parts = list(hf_pairs.parts_of(config, known))
        tensors.check(parts, hf_pairs.silent_of(config))
        sizes = config.source_vocab_size or config.vocab_size, config.vocab_size
        tokens = hf_pairs.read_tokenizers(path, *sizes)
        config = replace(config, decoder_start=tokens.decoder_start)
        if tokens.source is tokens.target:  # whose embeddings may be two all the same
            config = replace(config, source_vocab_size=None)
        tensors_of = {part.ours: tensors.read(part).float() for part in parts}
        model = filled(Seq2SeqTransformer, config, tensors_of)
    # What the window holds of a text besides its end, and of a source besides what frames it.
    longest = {"max_target_len": max(1, config.window - 1 - (tokens.decoder_start is not None))}
    begin = tokens.source.source_bos_id is not None
    longest["max_source_len"] = max(1, config.source_window - 1 - begin)
    kind = tokens.target.kind
    data = DataConfig(tokenizer=kind, val="none", documents="line", **longest)
    source = None if tokens.source is tokens.target else tokens.source
    facts = {"family": table["model_type"], **_chat_facts(path)}
    about = (data, tokens.framing, facts, source)
    return ImportedModel("seq2seq-transformer", model, tokens.target, *about)


def files_of(exported: ModelToExport) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a transformer's Hugging Face folder, `config.json` last.

    A folder is not loaded without it, so that one half-way written is none. See
    `store.formats.FolderExporter`.
    """
    framing, pair = exported.framing, type(exported.model) is Seq2SeqTransformer
    table, tokenizers, tensors = (_parts_of_pair if pair else _parts_of_decoder)(exported)
    if "tokenizer_config.json" in tokenizers and exported.kept:
        about = parse_json(tokenizers["tokenizer_config.json"])
        tokenizers["tokenizer_config.json"] = json_bytes({**about, **exported.kept})
    yield from tokenizers.items()
    stops = list(framing.stops) if framing.also_stop else framing.stop
    ids = {"bos_token_id": framing.start, "eos_token_id": stops}
    ids["pad_token_id"] = exported.tokenizer.pad_id
    generation: dict[str, Any] = {}
    if pair:
        start = exported.model.config.decoder_start
        ids |= {"forced_eos_token_id": None, "decoder_start_token_id": start}
        generation["forced_bos_token_id"] = framing.start
        if start is None:
            ids["decoder_start_token_id"], generation["forced_bos_token_id"] = framing.start, None
    generation |= {"suppress_tokens": list(framing.never)} if framing.never else {}
    yield "generation_config.json", json_bytes({**ids, **generation})
    yield WEIGHTS, save(tensors, {"format": "pt"})
    yield "config.json", json_bytes({**table, **ids, "torch_dtype": "float32"})


# A `config.json`, the files of tokenizers by name, and tensors.
Parts = tuple[dict[str, Any], dict[str, bytes], dict[str, Tensor]]


def _parts_of_decoder(exported: ModelToExport) -> Parts:
    model, name = require_transformer(exported, "hf"), exported.name
    config, own, biased = model.config, weights_of(model), hf_config.BIASED
    imported = isinstance(exported.tokenizer, HuggingFaceTokenizer)
    if config.qkv_bias and not (config.bias or imported):
        # Models of type qwen2 get Qwen's own tokenizer in transformers, whatever the folder has.
        config, biased = replace(config, bias=True, qkv_bias=False), {"attention"}
        for layer in range(config.num_layers):
            own[f"blocks.{layer}.attention.output.bias"] = torch.zeros(config.hidden_size)
    family, table = hf_config.write(config, name)
    table |= {"mlp_bias": False} if "mlp" not in biased else {}
    tokenizers = hf_tokenizer.files_of(exported.tokenizer, exported.framing, name)
    plus = float(family in hf_config.GEMMAS)
    parts = parts_of(names_of(family), config, biased, plus)
    return table, tokenizers, theirs_of(list(parts), own)


def _parts_of_pair(exported: ModelToExport) -> Parts:
    config, name, own = exported.model.config, exported.name, weights_of(exported.model)
    table = hf_pairs.write(config, name)
    sides = exported.tokenizer, exported.source_tokenizer
    tokenizers = hf_pairs.tokenizer_files(*sides, exported.framing, name)
    if config.shares_embeddings and not config.tie_weights:
        # There one field is about both, so the embedding is written twice.
        own["encoder.inputs.weight"] = own["embedding.weight"].clone()
        config = replace(config, share_embeddings=False)
    tensors = theirs_of(list(hf_pairs.parts_of(config)), own)
    tensors.setdefault(BIAS, torch.zeros(1, config.vocab_size))
    return table, tokenizers, tensors


def require_transformer(exported: ModelToExport, file_format: str) -> Transformer:
    """Return the model to export if it is a transformer of text without labels.

    Args:
        exported: what is to be written.
        file_format: what `--format` calls it.

    Raises:
        SeqgenError: it is another model, or one with labels.
    """
    model, name = exported.model, exported.name
    if type(model) is not Transformer:  # an encoder-decoder is derived from it
        if model.orders is not None:
            raise SeqgenError(f"{name} is an n-gram model: use --format arpa")
        kind = "transformer" if file_format == "hf" else "decoder-only transformer"
        other = ", or use --format onnx" if getattr(model, "recurrent", False) else ""
        raise SeqgenError(
            f"{name} is not a {kind}, and --format {file_format} supports {kind}s only; train one "
            f"with --model transformer{other}"
        )
    require_no_labels(exported)
    return model


def as_stored(
    config: TransformerConfig, tensors: Mapping[str, Tensor | BlockMatrix]
) -> tuple[Transformer, dict[str, Tensor | BlockMatrix]]:
    """Return a transformer without weights, and what is stored of it.

    Biases that are not among the tensors are zeros.
    """
    model = build_on_meta(Transformer, config)
    return model, {**zero_biases(model), **tensors}


def zero_biases(model: Transformer) -> dict[str, Tensor]:
    """Make biases of zeros for a model, by name."""
    names = {name: x.shape for name, x in model.named_parameters() if name.endswith(".bias")}
    return {name: torch.zeros(shape) for name, shape in names.items()}


AnyTransformer = TypeVar("AnyTransformer", bound=Transformer)


def filled(
    kind: type[AnyTransformer], config: TransformerConfig, tensors: dict[str, Tensor]
) -> AnyTransformer:
    """Build a transformer from given tensors without initializing other weights first.

    Biases that are not among them are zeros.
    """
    model = build_on_meta(kind, config)
    take_weights(model, {**zero_biases(model), **tensors})
    model.waves = position_waves(TensorOps, config, config.window)
    return model.eval()

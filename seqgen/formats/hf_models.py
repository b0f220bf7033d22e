"""Folders of Hugging Face models: GPT-2's and Llama's families, read and written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from seqgen.configs import DataConfig, require
from seqgen.errors import SeqgenError
from seqgen.files import json_bytes
from seqgen.formats import Exported, Imported, hf_config, hf_tokenizer, hf_tokenizer_writing
from seqgen.formats.hf_weights import (
    WEIGHTS,
    Tensors,
    parts_of,
    read_table,
    shards_of,
    theirs_of,
)
from seqgen.models.base import weights_of
from seqgen.models.room import without_content
from seqgen.models.transformer import Transformer, waves_of
from seqgen.models.transformer_config import TransformerConfig
from seqgen.tokenizers import Tokenizer


def read_model(path: Path, like: tuple[Tokenizer, DataConfig] | None) -> Imported:
    """Read the model of a folder; see `formats.FolderImporter`.

    Everything is checked before the first tensor is read. The tensors are mapped, and become
    float32 one by one.
    """
    require(like is None, "--like is for n-gram models: a folder has its own tokenizer")
    described = hf_config.read(read_table(path / "config.json"), str(path / "config.json"))
    config, family = described.config, described.family
    with contextlib.ExitStack() as held:
        tensors = Tensors(shards_of(path), held)
        tensors.rename("transformer." if family == "gpt2" else "model.")
        parts = list(parts_of(family, config, described.biased))
        tensors.check(parts, config.tie_weights)
        tokenizer, framing = hf_tokenizer.read(path, config.vocab_size)
        model = filled(config, {part.ours: tensors.read(part) for part in parts})
    data = DataConfig(tokenizer=tokenizer.kind, val="none")
    return Imported("transformer", model, tokenizer, data, framing, {"family": family})


def files_of(exported: Exported) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a transformer's folder, `config.json` last; see `formats.FolderExporter`.

    A folder is not loaded without it, so that one half-way written is none.
    """
    model, name, framing = require_transformer(exported, "hf"), exported.name, exported.framing
    family, table = hf_config.write(model.config, name)
    yield from hf_tokenizer_writing.files_of(exported.tokenizer, framing, name).items()
    stops = list(framing.stops) if framing.also_stop else framing.stop
    ids = {"bos_token_id": framing.start, "eos_token_id": stops}
    ids["pad_token_id"] = exported.tokenizer.pad_id
    never = {"suppress_tokens": list(framing.never)} if framing.never else {}
    yield "generation_config.json", json_bytes({**ids, **never})
    tensors = theirs_of(list(parts_of(family, model.config)), weights_of(model))
    yield WEIGHTS, save(tensors, {"format": "pt"})
    yield "config.json", json_bytes({**table, **ids, "torch_dtype": "float32"})


def require_transformer(exported: Exported, file_format: str) -> Transformer:
    """Return the model to be written, which must be a transformer of text without labels.

    Args:
        exported: what is to be written.
        file_format: what `--format` calls it.

    Raises:
        SeqgenError: it is another model, or one with labels.
    """
    model, name = exported.model, exported.name
    if type(model) is not Transformer:  # an encoder-decoder is derived from it
        raise SeqgenError(f"{name} is no transformer, and --format {file_format} holds no other")
    # Labels are tokens of the model that its tokenizer does not have.
    if model.vocab_size != exported.tokenizer.vocab_size:
        raise SeqgenError(f"{name} writes texts with labels, which this format cannot hold")
    return model


def filled(config: TransformerConfig, tensors: dict[str, Tensor]) -> Transformer:
    """Return a transformer that has these tensors, without making any others first.

    Biases that are not among them are zeros.
    """
    model = without_content(Transformer, config)
    zeros = {n: torch.zeros(x.shape) for n, x in model.named_parameters() if n.endswith(".bias")}
    model.load_state_dict({**zeros, **tensors}, strict=False, assign=True)
    if config.tie_weights:
        model.head.weight = model.embedding.weight
    model.waves = waves_of(config, config.window)
    return model.eval()

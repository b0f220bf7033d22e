"""Models as GGUF files: the families of GPT-2 and Llama, with their vocabularies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqgen.configs import DataConfig, require
from seqgen.errors import SeqgenError, UsageError
from seqgen.formats import Exported, Imported, gguf, gguf_vocabulary, hf_config, hf_config_writing
from seqgen.formats.hf_models import filled, require_transformer
from seqgen.formats.hf_weights import Part, check_tensors, parts_of, theirs_of
from seqgen.models.base import weights_of
from seqgen.models.transformer.config import MOST_WINDOW, TransformerConfig
from seqgen.models.transformer.model import Transformer
from seqgen.models.transformer.positions import RopeScaling, rates
from seqgen.tokenizers import Tokenizer

ARCHITECTURES = ("gpt2", "llama", "qwen2", "qwen3")
# What Hugging Face's names become.
NAMES = (
    (r"(model|transformer)\.(layers|h)\.(\d+)\.", r"blk.\3."),
    (r"\.self_attn\.(q|k)_norm\.", r".attn_\1_norm."),
    (r"\.self_attn\.([qkv])_proj\.", r".attn_\1."),
    (r"\.self_attn\.o_proj\.|\.attn\.c_proj\.", ".attn_output."),
    (r"\.attn\.c_attn\.", ".attn_qkv."),
    (r"\.mlp\.(gate|up|down)_proj\.", r".ffn_\1."),
    (r"\.mlp\.c_fc\.", ".ffn_up."),
    (r"\.mlp\.c_proj\.", ".ffn_down."),
    (r"\.(input_layernorm|ln_1)\.", ".attn_norm."),
    (r"\.(post_attention_layernorm|ln_2)\.", ".ffn_norm."),
    (r"model\.embed_tokens|transformer\.wte", "token_embd"),
    (r"transformer\.wpe", "position_embd"),
    (r"model\.norm|transformer\.ln_f", "output_norm"),
    (r"lm_head", "output"),
)
# What turns slower by what factor; written and read for Llama 3.1's scaling.
ROPE_FACTORS = "rope_freqs.weight"
# As the setting rope_theta allows.
MOST_THETA = 1e12
LLAMA_3 = {"low": 1.0, "high": 4.0, "original": 8192}


def _renamed(name: str) -> str:
    for pattern, new in NAMES:
        name = re.sub(pattern, new, name)
    return name


def _as_written(part: Part) -> Part:
    """Return a part with the names that it has in a GGUF file, where nothing is transposed."""
    turned = ((name, shape[::-1] if part.transposed else shape) for name, shape in part.theirs)
    return Part(part.ours, tuple((_renamed(name), shape) for name, shape in turned))


def read_model(path: Path, like: tuple[Tokenizer, DataConfig] | None) -> Imported:
    """Read the model of a file; see `formats.FolderImporter`."""
    require(like is None, "--like is for n-gram models: a GGUF file has its own tokenizer")
    file = gguf.GGUFFile(path)
    family = file.facts.get("general.architecture")
    if family not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise file.error(f"general.architecture is {str(family)[:40]!r}; seqgen reads {known}")
    config = _config(file, family)
    biased = [
        part
        for part, name in (("attention", "attn_output"), ("mlp", "ffn_down"))
        if f"blk.0.{name}.bias" in file.tensors
    ]
    parts = [_as_written(part) for part in parts_of(family, config, biased)]
    _check(file, parts, config)
    tokenizer, framing = gguf_vocabulary.read(file, config.vocab_size)
    tensors = {part.ours: _read(file, part, family, config) for part in parts}
    data = DataConfig(tokenizer=tokenizer.kind, val="none")
    model = filled(Transformer, config, tensors)
    return Imported("transformer", model, tokenizer, data, framing, {"family": family})


def _config(file: gguf.GGUFFile, family: str) -> TransformerConfig:
    """Return the settings that a file's facts describe.

    Raises:
        SeqgenError: one is missing, or is not understood.
    """

    def fact(name: str, default: Any = None) -> Any:
        return _number(file, f"{family}.{name}", default)

    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise file.error("there is no tensor token_embd.weight")
    heads, width = fact("attention.head_count"), fact("embedding_length")
    if not (type(heads) is type(width) is int and heads > 0):
        raise file.error(f"{family} has {heads} heads and {width} units")
    settings = {
        "vocab_size": embedding.shape[0],
        "hidden_size": width,
        "num_layers": fact("block_count"),
        "num_heads": heads,
        "ffn_size": fact("feed_forward_length"),
        "window": min(fact("context_length"), MOST_WINDOW),
        "tie_weights": "output.weight" not in file.tensors,
        "dropout": 0.0,
        "qk_norm": family == "qwen3",
    }
    if family == "gpt2":
        settings |= {"positions": "learned", "norm": "layernorm", "activation": "gelu"}
        settings |= {"bias": True, "norm_eps": fact("attention.layer_norm_epsilon", 1e-5)}
    else:
        settings |= _llama(file, family, heads, width)
        most = hf_config.MOST_ANGLES // (settings["head_size"] or max(1, width // heads))
        settings["window"] = min(settings["window"], max(1, most))
    try:
        return TransformerConfig(**settings)
    except UsageError as error:
        raise file.error(str(error)) from None


def _llama(file: gguf.GGUFFile, family: str, heads: int, width: int) -> dict[str, Any]:
    """Return the settings that only models of Llama's family have.

    Args:
        file: the model's.
        family: its architecture.
        heads: of queries.
        width: of the hidden layers.
    """

    def fact(name: str, default: Any = None) -> Any:
        return _number(file, f"{family}.{name}", default)

    size = fact("attention.key_length", max(1, width // max(1, heads)))
    if type(size) is not int or size < 1:
        raise file.error(f"{family}.attention.key_length is {str(size)[:20]}")
    if fact("rope.dimension_count", size) != size:
        raise file.error(f"{family}.rope.dimension_count is not the width of a head")
    theta = float(fact("rope.freq_base", 10000.0))
    if not 1 <= theta <= MOST_THETA:
        raise file.error(f"{family}.rope.freq_base is {theta:g}")
    biased = "blk.0.attn_output.bias" in file.tensors or "blk.0.ffn_down.bias" in file.tensors
    return {
        "num_kv_heads": fact("attention.head_count_kv", heads),
        "head_size": None if size * heads == width else size,
        "norm_eps": fact("attention.layer_norm_rms_epsilon"),
        "bias": biased,
        "qkv_bias": "blk.0.attn_q.bias" in file.tensors and not biased,
        "rope_theta": theta,
        **_scaling(file, family, rates(theta, size)),
    }


def _number(file: gguf.GGUFFile, name: str, default: Any) -> Any:
    """Return a fact that is a number.

    Raises:
        SeqgenError: it is missing, or something else.
    """
    value = file.facts.get(name, default)
    if type(value) not in (int, float):
        raise file.error(f"{name} is no number")
    return value


def _scaling(file: gguf.GGUFFile, family: str, rate: Tensor) -> dict[str, Any]:
    """Return how positions are stretched.

    Args:
        file: the model's.
        family: its architecture.
        rate: (D / 2), see `positions.rates`.
    """
    kind = file.facts.get(f"{family}.rope.scaling.type", "none")
    if ROPE_FACTORS in file.tensors:
        return {
            "rope_scaling": "llama3",
            "rope_factor": _full_factor(file.read(ROPE_FACTORS), rate),
            "rope_low_factor": LLAMA_3["low"],
            "rope_high_factor": LLAMA_3["high"],
            "rope_original_window": LLAMA_3["original"],
        }
    if kind == "linear":
        factor = file.facts.get(f"{family}.rope.scaling.factor")
        return {"rope_scaling": "linear", "rope_factor": factor}
    if kind != "none":
        raise file.error(f"{family}.rope.scaling.type is {str(kind)[:40]!r}; seqgen reads linear")
    return {}


def _full_factor(factors: np.ndarray, rate: Tensor) -> float:
    """Return the factor of waves that are stretched in full, of which there may be none.

    A wave of which a share k is kept turns slower by f = 1 / (k + (1 - k) / F). The slowest wave
    has the smallest k; if even that is kept in full, every F is the same model.

    Args:
        factors: (D / 2), what the file has.
        rate: (D / 2), before scaling.
    """
    kept = float(RopeScaling("llama3", 1.0, *LLAMA_3.values()).kept(rate)[-1])
    slowest = float(factors.flat[-1]) if factors.size else 1.0
    shrunk = 1 / slowest - kept if slowest > 0 else 0.0
    if kept == 1 or not shrunk > 0:
        return 1.0
    factor = max(1.0, (1 - kept) / shrunk)
    rounded = float(f"{factor:.5g}")  # what the model was made with, most likely
    return rounded if np.array_equal(_factors(rate, rounded), factors) else factor


def _factors(rate: Tensor, factor: float) -> np.ndarray:
    """Return by how much each pair of a head turns slower, (D / 2), for Llama 3.1's scaling."""
    scaling = RopeScaling("llama3", factor, *LLAMA_3.values())
    return (rate / scaling.rates(rate)).numpy()


def _check(file: gguf.GGUFFile, parts: Iterable[Part], config: TransformerConfig) -> None:
    """Compare names and shapes with those that a model needs.

    Raises:
        SeqgenError: a tensor is missing, or of another shape, or not understood.
    """
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    check_tensors(parts, shapes, {ROPE_FACTORS}, lambda _, message: file.error(message))
    if ROPE_FACTORS in file.tensors:
        rate = rates(config.rope_theta, config.head_width)
        expected, stored = _factors(rate, config.rope_factor), file.read(ROPE_FACTORS)
        if stored.shape != expected.shape or not np.allclose(stored, expected, rtol=1e-3):
            raise file.error(f"{ROPE_FACTORS} is another scaling of positions than Llama 3.1's")


def _read(file: gguf.GGUFFile, part: Part, family: str, config: TransformerConfig) -> Tensor:
    """Return a tensor of ours."""
    tensors = [_turned(name, file.read(name), family, config, back=True) for name, _ in part.theirs]
    return torch.from_numpy(np.concatenate(tensors) if len(tensors) > 1 else tensors[0].copy())


def _turned(
    name: str, x: np.ndarray, family: str, config: TransformerConfig, back: bool
) -> np.ndarray:
    """Return queries' and keys' maps with the pairs of RoPE lying as files of Llama have them.

    There a pair lies side by side, here its second half is half a head behind.

    Args:
        name: of the tensor, in the file.
        x: (heads D, ...).
        family: only "llama" has them so.
        config: of the model.
        back: from the file's order to ours.
    """
    if family != "llama" or not re.search(r"attn_[qk]\.(weight|bias)$", name):
        return x
    heads = config.num_heads if "attn_q" in name else config.kv_heads
    pairs = (-1, 2) if back else (2, -1)
    return x.reshape(heads, *pairs, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write_model(exported: Exported) -> Iterator[bytes]:
    """Yield a transformer as a GGUF file in float32, in pieces; see `formats.Exporter`."""
    model, name = require_transformer(exported, "gguf"), exported.name
    config = model.config
    family, _ = hf_config_writing.write(config, name)
    if family == "gpt2" and config.activation != "gelu":
        raise SeqgenError(f"{name} has activation={config.activation}; a gpt2 GGUF file has gelu")
    facts = _facts(config, family, name) | gguf_vocabulary.facts_of(
        exported.tokenizer, exported.framing, name
    )
    parts = [_as_written(part) for part in parts_of(family, config)]
    tensors = {
        tensor: _turned(tensor, x.numpy(), family, config, back=False)
        for tensor, x in theirs_of(parts, weights_of(model)).items()
    }
    if config.rope_scaling == "llama3":
        limits = {"low": config.rope_low_factor, "high": config.rope_high_factor}
        if limits | {"original": config.rope_original_window} != LLAMA_3:
            raise SeqgenError(f"{name} has a rope_scaling=llama3 that a GGUF file cannot say")
        rate = rates(config.rope_theta, config.head_width)
        tensors[ROPE_FACTORS] = _factors(rate, config.rope_factor)
    return gguf.write(facts, tensors)


def _facts(config: TransformerConfig, family: str, name: str) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "context_length": config.window,
        "embedding_length": config.hidden_size,
        "block_count": config.num_layers,
        "feed_forward_length": config.feed_forward_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.kv_heads,
    }
    if family == "gpt2":
        numbers["attention.layer_norm_epsilon"] = config.norm_eps
    else:
        numbers |= {
            "attention.layer_norm_rms_epsilon": config.norm_eps,
            "attention.key_length": config.head_width,
            "attention.value_length": config.head_width,
            "rope.dimension_count": config.head_width,
            "rope.freq_base": config.rope_theta,
        }
    if config.rope_scaling == "linear":
        numbers |= {"rope.scaling.type": "linear", "rope.scaling.factor": config.rope_factor}
    about = {"general.architecture": family, "general.name": name, "general.file_type": 0}
    return about | {f"{family}.{key}": value for key, value in numbers.items()}

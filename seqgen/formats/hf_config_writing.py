"""The settings of our transformer as `config.json` of a Hugging Face model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqgen.errors import SeqgenError
from seqgen.formats.hf_config import GELUS
from seqgen.models.transformer.config import TransformerConfig


def write(config: TransformerConfig, name: str) -> tuple[str, dict[str, Any]]:
    """Return the family that a transformer of ours belongs to, and its `config.json`.

    Args:
        config: the transformer's.
        name: what messages call the model.

    Raises:
        SeqgenError: no family has such a transformer; names the setting.
    """
    if config.positions != "learned":
        require_settings(config, {"positions": "rope"}, name)
    foreign = {"norm_position": "pre", "scale_embedding": False}
    foreign |= {"scale_attention": True, "qkv_activation": None, "position_size": None}
    require_settings(config, {**foreign, "embedding_norm": False, "output_bias": False}, name)
    shared = {"vocab_size": config.vocab_size, "tie_word_embeddings": config.tie_weights}
    if config.positions == "learned":
        return "gpt2", {"model_type": "gpt2", **shared, **_as_gpt2(config, name)}
    family, fields = _as_llama(config, name)
    return family, {"model_type": family, **shared, **fields}


def require_settings(
    config: TransformerConfig, required: Mapping[str, Any], name: str, beside: str = ""
) -> None:
    """Refuse a model with other settings than these.

    Args:
        config: the model's.
        required: a value for each of some settings.
        name: what messages call the model.
        beside: settings that go before the one that is named.

    Raises:
        SeqgenError: names the first that is different.
    """
    for setting, value in required.items():
        if getattr(config, setting) != value:
            shown = str(getattr(config, setting))
            shown = shown.lower() if isinstance(value, bool) else shown
            raise _no_family(name, f"{beside}{setting}={shown}")


def _no_family(name: str, what: str) -> SeqgenError:
    return SeqgenError(f"{name} has {what}, which no model of Hugging Face has that seqgen writes")


def _as_gpt2(config: TransformerConfig, name: str) -> dict[str, Any]:
    required = {"norm": "layernorm", "bias": True, "qk_norm": False}
    require_settings(config, required, name, beside="positions=learned and ")
    if config.kv_heads != config.num_heads or config.head_size is not None:
        raise _no_family(name, "positions=learned with num_kv_heads or head_size")
    names = {ours: theirs for theirs, ours in reversed(GELUS.items())}
    if config.activation not in names:
        raise _no_family(name, f"positions=learned and activation={config.activation}")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_positions": config.window,
        "n_embd": config.hidden_size,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.feed_forward_size,
        "activation_function": names[config.activation],
        "layer_norm_epsilon": config.norm_eps,
    }


def _as_llama(config: TransformerConfig, name: str) -> tuple[str, dict[str, Any]]:
    required = {"norm": "rmsnorm", "activation": "swiglu"}
    require_settings(config, required, name)
    family, title = "llama", "Llama"
    if config.qk_norm:
        family, title = "qwen3", "Qwen3"
    elif config.qkv_bias and not config.bias:
        family, title = "qwen2", "Qwen2"
    if config.qk_norm and (config.bias or config.qkv_bias):
        raise _no_family(name, "both qk_norm=true and biases")
    rope: dict[str, Any] = {"rope_type": config.rope_scaling or "default"}
    if config.rope_scaling is not None:
        rope["factor"] = config.rope_factor
    if config.rope_scaling == "llama3":
        rope |= {
            "low_freq_factor": config.rope_low_factor,
            "high_freq_factor": config.rope_high_factor,
            "original_max_position_embeddings": config.rope_original_window,
        }
    fields = {
        "architectures": [f"{title}ForCausalLM"],
        "max_position_embeddings": config.window,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_width,
        "intermediate_size": config.feed_forward_size,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope if config.rope_scaling else None,
        "rope_parameters": {**rope, "rope_theta": config.rope_theta},
    }
    if family == "llama":
        fields |= {"attention_bias": config.bias, "mlp_bias": config.bias}
    return family, fields

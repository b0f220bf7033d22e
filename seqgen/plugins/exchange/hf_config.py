"""Conversion between a Hugging Face `config.json` and the configuration of a transformer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError, UsageError, first_line, reporting_unreadable
from seqgen.files import parse_json, require_regular
from seqgen.models.transformer.settings import MOST_WINDOW, TransformerConfig
from seqgen.settings import shorten

# No table of a model, its tokenizer apart, comes near this.
LARGEST_TABLE = 1 << 26
# What says nothing about a model's logits: dropout, how it was trained and saved, its tokens.
SILENT = frozenset(
    {
        *("attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop", "initializer_range"),
        *("pretraining_tp", "reorder_and_upcast_attn", "use_cache", "bos_token_id", "eos_token_id"),
        *("pad_token_id", "tokenizer_class", "_name_or_path", "architectures", "dtype"),
        *("torch_dtype", "model_type", "transformers_version", "n_ctx", "rope_interleaved"),
        *("use_mrope", "is_llama_config", "transformers.js_config", "id2label", "label2id"),
        *("keys_to_ignore_at_inference", "output_attentions", "output_hidden_states"),
        *("return_dict", "use_return_dict", "task_specific_params", "summary_activation"),
        *("summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"),
    }
)
GEMMAS = "gemma2", "gemma3_text"
SWIGLU = {"silu": "swiglu", "swish": "swiglu"}
GELUS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu-exact",
    "relu": "relu",
}
LAYER_KINDS = "sliding_attention", "full_attention"
GEGLU = {"gelu_pytorch_tanh": "geglu"}
# What Gemma has besides two normalisations around each sublayer.
GEMMA = {"norm": "rmsnorm", "activation": "geglu", "scale_embedding": True, "bias": False}
GEMMA |= {"qkv_bias": False, "nope_every": None, "qk_norm_whole": False, "full_layers": 0}
GEMMA |= {"embedding_norm": False, "output_bias": False}
# What OLMo 2 has besides what Llama has.
OLMO2 = {"norm_position": "output", "qk_norm": True, "qk_norm_whole": True}
WINDOW = "max_position_embeddings"
BIASED = frozenset({"attention", "mlp"})
# Angles are kept for so many positions times the width of a head, 64 MB.
MOST_ANGLES = 1 << 24


def read_table(path: Path) -> dict[str, Any]:
    """Load a JSON file that must contain an object.

    Raises:
        SeqgenError: it is missing, too large, or holds none.
    """
    with reporting_unreadable(path):
        if path.stat().st_size > LARGEST_TABLE:
            raise SeqgenError(f"{path} is larger than any such file: {path.stat().st_size:,} bytes")
        content = require_regular(path).read_bytes()
    try:
        table = parse_json(content.decode())
    except ValueError as error:
        raise SeqgenError(f"{path} is not JSON: {first_line(error)}") from None
    if not isinstance(table, dict):
        raise SeqgenError(f"{path} contains no table")
    return table


class Fields:
    """Fields of a `config.json`, each read once; fields left unread are reported as unsupported.

    Args:
        table: the file's content.
        name: what messages call it.
        silent: fields that say nothing, besides `SILENT`.
        called: what messages call fields, if not by their names.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        name: str,
        silent: frozenset[str] = frozenset(),
        called: Mapping[str, str] | None = None,
    ) -> None:
        self.table, self.name, self.taken = table, name, set(SILENT | silent)
        self.called = called or {}

    def wrong(self, field: str) -> SeqgenError:
        """Build the error for a field with an unsupported value."""
        value = shorten(repr(self.table.get(field)))
        field = self.called.get(field, field)
        return SeqgenError(f"{self.name}: {field} is {value}, which seqgen does not understand")

    def take(self, field: str, default: Any = None) -> Any:
        """Read a field's value and mark the field as read."""
        self.taken.add(field)
        value = self.table.get(field)
        return default if value is None else value

    def number(self, field: str, default: int | None = None) -> int:
        """Read a field that must be a positive integer.

        Raises:
            SeqgenError: it is missing, or something else.
        """
        value = self.take(field, default)
        if value is None:
            raise SeqgenError(f"{self.name} has no field {self.called.get(field, field)}")
        if type(value) is not int or value < 1:
            raise self.wrong(field)
        return value

    def real(self, field: str, default: float) -> float:
        """Read a field that must be a number.

        Raises:
            SeqgenError: it is something else.
        """
        value = self.take(field, default)
        if type(value) not in (int, float):
            raise self.wrong(field)
        return value

    def flag(self, field: str, default: bool) -> bool:
        """Read a field that must be true or false.

        Raises:
            SeqgenError: it is something else.
        """
        value = self.take(field, default)
        if type(value) is not bool:
            raise self.wrong(field)
        return value

    def one_of(self, field: str, values: Mapping[str, str], default: str) -> str:
        """Translate a field's value to seqgen's name for it.

        Raises:
            SeqgenError: it has another value.
        """
        value = self.take(field, default)
        if not isinstance(value, str) or value not in values:
            raise self.wrong(field)
        return values[value]

    def only(self, field: str, value: Any) -> None:
        """Read a field for which only one value is supported.

        Raises:
            SeqgenError: it has another.
        """
        if self.take(field, value) != value:
            raise self.wrong(field)

    def finish(self) -> None:
        """Raise an error for unread fields, except those that turn their feature off.

        Raises:
            SeqgenError: names one.
        """
        for field in sorted(map(str, self.table.keys() - self.taken)):
            if self.table.get(field) not in (None, False, [], {}):
                raise self.wrong(field)


def family_of(table: Mapping[str, Any], name: str, known: Iterable[str]) -> str:
    """Read the model family from the `model_type` of a `config.json`.

    Args:
        table: the file's content.
        name: what messages call it.
        known: the families that are read.

    Raises:
        SeqgenError: it is none of these.
    """
    family, known = table.get("model_type"), list(known)
    if not isinstance(family, str) or family not in known:
        listed = ", ".join(known)
        raise SeqgenError(f"{name}: model_type is {shorten(repr(family))}; seqgen reads {listed}")
    return family


def read(
    table: Mapping[str, Any], name: str, called: Mapping[str, str] | None = None
) -> tuple[TransformerConfig, frozenset[str]]:
    """Read a decoder's configuration, and which parts of `BIASED` have biases.

    Args:
        table: the file's content, of a family of `READERS`.
        name: what messages call it.
        called: what they call its fields, if not by their names.

    Raises:
        SeqgenError: it has a field that is not understood.
    """
    family = table["model_type"]
    fields = Fields(table, name, called=called)
    settings = READERS[family](fields)
    settings["vocab_size"] = fields.number("vocab_size")
    fields.finish()
    biased = frozenset(x for x in BIASED if family == "gpt2" or table.get(f"{x}_bias"))
    try:
        return TransformerConfig(**settings, dropout=0.0), biased
    except UsageError as error:
        raise SeqgenError(f"{name}: {error}") from None


# Fields that are a setting as it stands, a whole number each: what it is called here.
GPT2 = {
    "n_positions": "window",
    "n_embd": "hidden_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_inner": "ffn_size",
}
LLAMA = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_size",
    "intermediate_size": "ffn_size",
}
# Settings that have a value of their own where they are None.
RESOLVED = {"ffn_size": "feed_forward_size", "num_kv_heads": "kv_heads", "head_size": "head_width"}
# What else a kind of scaling has: fields, our settings, and what they are by default.
ORIGINAL = "original_max_position_embeddings"
SCALINGS: dict[str, dict[str, tuple[str, float | None]]] = {
    "linear": {},
    "llama3": {
        "low_freq_factor": ("rope_low_factor", 1.0),
        "high_freq_factor": ("rope_high_factor", 4.0),
        ORIGINAL: ("rope_original_window", None),
    },
    "yarn": {
        "beta_slow": ("rope_low_factor", 1.0),
        "beta_fast": ("rope_high_factor", 32.0),
        ORIGINAL: ("rope_original_window", None),
        "attention_factor": ("rope_gain", None),
    },
}


def _written(config: TransformerConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """List the `config.json` fields that equal a setting, with their values."""
    return {field: getattr(config, RESOLVED.get(ours, ours)) for field, ours in names.items()}


def _gpt2(fields: Fields) -> dict[str, Any]:
    fields.only("scale_attn_weights", True)
    fields.only("scale_attn_by_inverse_layer_idx", False)
    fields.only("add_cross_attention", False)
    usual = {"n_inner": 4 * fields.number("n_embd")}
    return {
        **{ours: fields.number(field, usual.get(field)) for field, ours in GPT2.items()},
        "activation": fields.one_of("activation_function", GELUS, "gelu_new"),
        "norm_eps": fields.real("layer_norm_epsilon", 1e-5),
        "tie_weights": fields.flag("tie_word_embeddings", True),
        "positions": "learned",
        "norm": "layernorm",
        "qk_norm": False,
        "bias": True,
    }


def _llama(fields: Fields) -> dict[str, Any]:
    heads, width = fields.number("num_attention_heads"), fields.number("hidden_size")
    usual = {"num_key_value_heads": heads, "head_dim": max(1, width // heads)}
    settings = {ours: fields.number(field, usual.get(field)) for field, ours in LLAMA.items()}
    size = settings["head_size"]
    biases = [fields.flag(f"{part}_bias", False) for part in sorted(BIASED)]
    return {
        **settings,
        "window": _window(fields, size),
        **_sliding(fields, settings["num_layers"]),
        "head_size": None if size == width / heads else size,
        "activation": fields.one_of("hidden_act", SWIGLU, "silu"),
        "norm_eps": fields.real("rms_norm_eps", 1e-6),
        "tie_weights": fields.flag("tie_word_embeddings", False),
        "bias": any(biases),
        "qk_norm": False,
        **_rope(fields),
    }


def _smollm3(fields: Fields) -> dict[str, Any]:
    settings, every = _llama(fields), fields.number("no_rope_layer_interval", 4)
    layers = range(settings["num_layers"])
    flags = fields.take("no_rope_layers", [int((layer + 1) % every != 0) for layer in layers])
    return {**settings, "nope_every": _every(fields, "no_rope_layers", flags, (0, 1))}


def _phi3(fields: Fields) -> dict[str, Any]:
    fields.take(ORIGINAL)  # of "longrope", which is refused
    return _llama(fields)


def _every(fields: Fields, name: str, kinds: Any, of: tuple[Any, Any]) -> int | None:
    """Read N from a list in which every N-th layer is of one kind; None if none is.

    Args:
        fields: of the model.
        name: the field.
        kinds: its value, a kind for each layer.
        of: the kind of every N-th layer, and that of all others.

    Raises:
        SeqgenError: it is no such list.
    """
    special, other = of
    if not isinstance(kinds, list):
        raise fields.wrong(name)
    every = kinds.index(special) + 1 if special in kinds else len(kinds) + 1
    if kinds != [special if (i + 1) % every == 0 else other for i in range(len(kinds))]:
        raise fields.wrong(name)
    return every if every <= len(kinds) else None


def _gemma(fields: Fields) -> dict[str, Any]:
    third = fields.table["model_type"] == "gemma3_text"
    usual = {"num_key_value_heads": 4, "head_dim": 256}
    settings = {ours: fields.number(field, usual.get(field)) for field, ours in LLAMA.items()}
    fields.take("hidden_act")  # which hidden_activation replaces
    fields.only("attention_bias", False)
    fields.only("use_bidirectional_attention", False)
    if not fields.real("query_pre_attn_scalar", 256) > 0:
        raise fields.wrong("query_pre_attn_scalar")
    fields.take("cache_implementation")
    every = fields.number("sliding_window_pattern", 6 if third else 2)
    fields.take("_sliding_window_pattern")
    layers = range(settings["num_layers"])
    kinds = [LAYER_KINDS[(layer + 1) % every == 0] for layer in layers]
    kinds = fields.take("layer_types", kinds)
    softcaps = {"attn_logit_softcapping": "attention", "final_logit_softcapping": "logit"}
    caps = {ours: fields.take(field) for field, ours in softcaps.items()}
    if third:  # which transformers reads and does not use
        caps["attention"] = None
    return {
        **settings,
        **{f"{ours}_softcap": cap for ours, cap in caps.items()},
        "window": _window(fields, settings["head_size"]),
        "sliding_window": fields.number("sliding_window", 4096),
        "full_every": _every(fields, "layer_types", kinds, LAYER_KINDS[::-1]),
        "activation": fields.one_of("hidden_activation", GEGLU, "gelu_pytorch_tanh"),
        "norm_eps": fields.real("rms_norm_eps", 1e-6),
        "norm_position": "both",
        "scale_embedding": True,
        "tie_weights": fields.flag("tie_word_embeddings", True),
        "qk_norm": third,
        **(_gemma3_rope(fields) if third else _rope(fields)),
    }


def _gemma3_rope(fields: Fields) -> dict[str, Any]:
    """Read the rotations of layers with full attention, and of those with a sliding window."""
    table, own = dict(fields.table), fields.take("rope_parameters", {})
    local = fields.real("rope_local_base_freq", 10000.0)
    if own:
        if not (isinstance(own, dict) and all(isinstance(x, dict) for x in own.values())):
            raise fields.wrong("rope_parameters")
        sliding = Fields(own.get("sliding_attention", {}), f"{fields.name}: rope_parameters")
        sliding.only("rope_type", "default")
        local = sliding.real("rope_theta", local)
        sliding.finish()
        table["rope_parameters"] = own.get("full_attention")
    table.setdefault("rope_theta", 1e6)
    whole = Fields(table, fields.name, called=fields.called)
    settings = _rope(whole)
    fields.taken |= {"rope_theta", "rope_scaling"}
    return {**settings, "sliding_rope_theta": local}


def query_factor(table: Mapping[str, Any], config: TransformerConfig) -> float:
    """Compute the factor of Gemma's queries, by which its scores are divided differently."""
    gemma = table["model_type"] in GEMMAS
    return math.sqrt(config.head_width / table.get("query_pre_attn_scalar", 256)) if gemma else 1.0


# What reads each kind of model.
READERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": lambda fields: {**_llama(fields), "qkv_bias": True},
    "qwen3": lambda fields: {**_llama(fields), "qk_norm": True},
    "smollm3": _smollm3,
    "phi3": _phi3,
    "olmo2": lambda fields: {**_llama(fields), **OLMO2},
    **dict.fromkeys(GEMMAS, _gemma),
}


def _window(fields: Fields, head_size: int) -> int:
    """Read the maximum number of positions, limited to what seqgen supports."""
    window = fields.number(WINDOW, 2048)
    return min(window, MOST_WINDOW, max(1, MOST_ANGLES // head_size))


def _sliding(fields: Fields, layers: int) -> dict[str, Any]:
    """Read the sliding window, and how many layers below it use full attention."""
    sliding, kinds = fields.take("sliding_window"), fields.take("layer_types")
    mistral = fields.table.get("model_type") in ("mistral", "phi3")
    first = fields.take("max_window_layers", 0 if mistral else 28)
    used = fields.flag("use_sliding_window", mistral)
    if kinds is not None:
        whole = isinstance(kinds, list) and len(kinds) == layers
        if not whole or any(kind not in LAYER_KINDS for kind in kinds):
            raise fields.wrong("layer_types")
        first = kinds.index("sliding_attention") if "sliding_attention" in kinds else layers
        if "full_attention" in kinds[first:]:
            raise fields.wrong("layer_types")
    if sliding is None or not used:
        return {}
    if type(first) is not int or first < 0:
        raise fields.wrong("max_window_layers")
    if first >= layers:
        return {}
    return {"sliding_window": fields.number("sliding_window"), "full_layers": first}


def _rope(fields: Fields) -> dict[str, Any]:
    """Read the RoPE settings from `rope_parameters`, or from `rope_theta` and `rope_scaling`."""
    theta = fields.take("rope_theta", 10000.0)
    name = "rope_parameters" if fields.table.get("rope_parameters") else "rope_scaling"
    fields.take("rope_parameters")
    table = fields.take("rope_scaling", {}) if name == "rope_scaling" else fields.table[name]
    fields.take("rope_scaling")
    if not isinstance(table, dict):
        raise fields.wrong(name)
    shown = fields.name if fields.called else f"{fields.name}: {name}"
    rope = Fields(table, shown, called=fields.called)
    theta = rope.take("rope_theta", theta)
    if type(theta) not in (int, float):
        raise fields.wrong("rope_theta")
    rope.only("partial_rotary_factor", 1.0)
    older = rope.take("type", "default")
    # As in transformers, "dynamic" stretches nothing up to max_position_embeddings.
    kinds = {"default": "", "dynamic": "", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}
    kind = rope.one_of("rope_type", kinds, older if isinstance(older, str) else "")
    settings: dict[str, Any] = {"rope_theta": float(theta)}
    factor = rope.real("factor", 1.0)
    if kind:
        settings |= {"rope_scaling": kind, "rope_factor": factor}
    usual: dict[str, Any] = {}
    if kind == "yarn":
        rope.only("truncate", True)
        gains = [rope.real(name, 0.0) for name in ("mscale", "mscale_all_dim")]
        gain = yarn_gain(factor, gains[0]) / yarn_gain(factor, gains[1]) if all(gains) else None
        usual = {ORIGINAL: fields.number(WINDOW, 2048)}
        usual["attention_factor"] = gain or yarn_gain(factor)
    for field, (ours, default) in SCALINGS.get(kind, {}).items():
        read = rope.number if field == ORIGINAL else rope.real
        settings[ours] = read(field, usual.get(field, default))
    rope.take(ORIGINAL)  # of other kinds, it says no more than the window does
    rope.finish()
    return settings


def yarn_gain(factor: float, scale: float = 1.0) -> float:
    """Compute YaRN's default gain of queries and keys."""
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def write(config: TransformerConfig, name: str) -> tuple[str, dict[str, Any]]:
    """Choose the Hugging Face family of a transformer and build its `config.json`.

    Args:
        config: the transformer's.
        name: what messages call the model.

    Raises:
        SeqgenError: no family has such a transformer; names the setting.
    """
    if config.positions != "learned":
        require_settings(config, {"positions": "rope"}, name)
    foreign: dict[str, Any] = {"scale_attention": True, "qkv_activation": None}
    foreign |= {"position_size": None, "dense": False}
    if config.norm_position == "both":
        require_settings(config, {**foreign, **GEMMA}, name, "norm_position=both and ")
        return _as_gemma(config, name)
    foreign |= {"scale_embedding": False, "attention_softcap": None, "logit_softcap": None}
    foreign |= {"full_every": None, "sliding_rope_theta": None}
    if config.norm_position == "output":
        required = {**foreign, **OLMO2, "nope_every": None, "sliding_window": None}
        require_settings(config, required, name, "norm_position=output and ")
    else:
        foreign |= {"norm_position": "pre", "qk_norm_whole": False}
    require_settings(config, {**foreign, "embedding_norm": False, "output_bias": False}, name)
    shared = {"vocab_size": config.vocab_size, "tie_word_embeddings": config.tie_weights}
    if config.positions == "learned":
        return "gpt2", {"model_type": "gpt2", **shared, **_as_gpt2(config, name)}
    family, fields = _as_llama(config, name)
    return family, {"model_type": family, **shared, **fields}


def require_settings(
    config: TransformerConfig, required: Mapping[str, Any], name: str, beside: str = ""
) -> None:
    """Raise an error if a model's settings differ from the required ones.

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
    return SeqgenError(
        f"{name} has {what}, which no format of Hugging Face that seqgen exports to can hold"
    )


def _as_gpt2(config: TransformerConfig, name: str) -> dict[str, Any]:
    required = {"norm": "layernorm", "bias": True, "qk_norm": False}
    require_settings(config, required, name, beside="positions=learned and ")
    if config.kv_heads != config.num_heads or config.head_size is not None:
        raise _no_family(name, "positions=learned with num_kv_heads or head_size")
    if config.span(config.num_layers - 1) is not None:
        raise _no_family(name, "positions=learned with sliding_window")
    names = {ours: theirs for theirs, ours in reversed(GELUS.items())}
    if config.activation not in names:
        raise _no_family(name, f"positions=learned and activation={config.activation}")
    return {
        "architectures": ["GPT2LMHeadModel"],
        **_written(config, GPT2),
        "activation_function": names[config.activation],
        "layer_norm_epsilon": config.norm_eps,
    }


def _as_llama(config: TransformerConfig, name: str) -> tuple[str, dict[str, Any]]:
    required = {"norm": "rmsnorm", "activation": "swiglu"}
    require_settings(config, required, name)
    family, title = "llama", "Llama"
    if config.norm_position == "output":
        family, title = "olmo2", "Olmo2"
    elif config.nope_every is not None:
        family, title = "smollm3", "SmolLM3"
        required = {"qk_norm": False, "qkv_bias": False, "sliding_window": None}
        require_settings(config, required, name, "nope_every and ")
    elif config.qk_norm:
        family, title = "qwen3", "Qwen3"
    elif config.qkv_bias and not config.bias:
        family, title = "qwen2", "Qwen2"
    if config.qk_norm and (config.bias or config.qkv_bias) and family != "olmo2":
        raise _no_family(name, "both qk_norm=true and biases")
    sliding: dict[str, Any] = {}
    if config.span(config.num_layers - 1) is not None:
        sliding = {"sliding_window": config.sliding_window}
        if family == "llama":
            require_settings(config, {"bias": False, "full_layers": 0}, name, "sliding_window and ")
            family, title = "mistral", "Mistral"
        else:
            sliding |= {"use_sliding_window": True, "max_window_layers": config.full_layers}
    rope = _rope_fields(config)
    fields = {
        **sliding,
        "architectures": [f"{title}ForCausalLM"],
        "max_position_embeddings": config.window,
        **_written(config, LLAMA),
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope if config.rope_scaling else None,
        "rope_parameters": {**rope, "rope_theta": config.rope_theta},
    }
    if family in ("llama", "smollm3"):
        fields |= {"attention_bias": config.bias, "mlp_bias": config.bias}
    if family == "smollm3":
        layers = range(config.num_layers)
        fields["no_rope_layers"] = [int(config.has_positions(layer)) for layer in layers]
        fields["use_sliding_window"] = False
    if family == "olmo2":
        require_settings(
            config, {"bias": False, "qkv_bias": False}, name, "norm_position=output and "
        )
    return family, fields


def _as_gemma(config: TransformerConfig, name: str) -> tuple[str, dict[str, Any]]:
    family = "gemma3_text" if config.qk_norm else "gemma2"
    beside = "norm_position=both and "
    third = {"attention_softcap": None} if config.qk_norm else {"sliding_rope_theta": None}
    require_settings(config, third, name, f"{beside}qk_norm={str(config.qk_norm).lower()} and ")
    if config.sliding_window is None:
        raise _no_family(name, f"{beside}no sliding_window")
    layers = [LAYER_KINDS[config.span(layer) is None] for layer in range(config.num_layers)]
    rope, theta = _rope_fields(config), config.sliding_rope_theta
    fields: dict[str, Any] = {
        "model_type": family,
        "architectures": ["Gemma3ForCausalLM" if config.qk_norm else "Gemma2ForCausalLM"],
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_weights,
        **_written(config, LLAMA),
        "max_position_embeddings": config.window,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": config.norm_eps,
        "query_pre_attn_scalar": config.head_width,
        "attn_logit_softcapping": config.attention_softcap,
        "final_logit_softcapping": config.logit_softcap,
        "sliding_window": config.sliding_window,
        "layer_types": layers,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope if config.rope_scaling else None,
        "rope_parameters": {**rope, "rope_theta": config.rope_theta},
    }
    if config.qk_norm:
        local = config.rope_theta if theta is None else theta
        require_settings(config, {"rope_scaling": None} if theta is None else {}, name, beside)
        sliding = {"rope_type": "default", "rope_theta": local}
        whole = fields["rope_parameters"]
        fields["rope_parameters"] = {"full_attention": whole, "sliding_attention": sliding}
    return family, fields


def _rope_fields(config: TransformerConfig) -> dict[str, Any]:
    """List the fields of RoPE's scaling."""
    rope: dict[str, Any] = {"rope_type": config.rope_scaling or "default"}
    if config.rope_scaling is not None:
        rope["factor"] = config.rope_factor
        extra = SCALINGS[config.rope_scaling].items()
        rope |= {field: getattr(config, ours) for field, (ours, _) in extra}
    return rope

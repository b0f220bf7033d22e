"""Import and export of GPT-2 and Llama models as GGUF files, with their tokenizers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqgen.engines.blocks import BlockMatrix
from seqgen.engines.tensor_ops import TensorOps
from seqgen.errors import SeqgenError, UsageError
from seqgen.files import json_bytes, parse_json
from seqgen.models.base import weights_of
from seqgen.models.transformer.positions import RopeScaling, read_rope_scaling, rope_rates
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.plugins.exchange import gguf, hf_config
from seqgen.plugins.exchange.formats import NumberType
from seqgen.plugins.exchange.gguf import GGUFFile
from seqgen.plugins.exchange.hf_config import Fields
from seqgen.plugins.exchange.hf_models import as_stored, require_transformer
from seqgen.plugins.exchange.hf_own import (
    learnt_pieces,
    marks_spaces,
    merges_of,
    scores_of,
    table_of,
)
from seqgen.plugins.exchange.hf_tokenizer import added_token, files_of, framed, known_id
from seqgen.plugins.exchange.hf_weights import (
    TensorPart,
    check_tensors,
    columns_of,
    parts_of,
    theirs_of,
)
from seqgen.plugins.exchange.imported_tokenizers import (
    SPLITS,
    HuggingFaceTokenizer,
    TokenizerFromElsewhere,
    WholeSentencepieceTokenizer,
    name_of_split,
)
from seqgen.settings import DataConfig, require
from seqgen.store.formats import KEPT, SPECIAL_TOKENS, ImportedModel, ModelToExport
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.base import SPECIALS
from seqgen.text.tokenizers.byte import ByteTokenizer
from seqgen.text.tokenizers.char import CharTokenizer
from seqgen.text.tokenizers.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN_PIECE,
    USER,
    BPETokenizer,
    Subword,
    encode_field,
    encode_piece,
    pieces_of,
)
from seqgen.text.tokenizers.word import VocabularyTokenizer

# The names of architectures, and the `model_type` of the families that they are.
ARCHITECTURES = {name: name for name in ("gpt2", "llama", "qwen2", "qwen3", "smollm3", "phi3")}
ARCHITECTURES |= {"olmo2": "olmo2", "gemma2": "gemma2", "gemma3": "gemma3_text"}
# What ours are called, as in `hf_weights.NAMES`.
NAMES = """
ours                      gpt2           llama            gemma
embedding                 token_embd     token_embd       token_embd
position_embedding        position_embd  -                -
blocks                    blk            blk              blk
attention_norm            attn_norm      attn_norm        attn_norm
attention.query_key_value attn_qkv       attn_[qkv]       attn_[qkv]
attention.output          attn_output    attn_output      attn_output
attention.query_norm      -              attn_q_norm      attn_q_norm
attention.key_norm        -              attn_k_norm      attn_k_norm
attention_output_norm     -              -                post_attention_norm
feed_forward_norm         ffn_norm       ffn_norm         ffn_norm
feed_forward.inner        ffn_up         ffn_gate,ffn_up  ffn_gate,ffn_up
feed_forward.output       ffn_down       ffn_down         ffn_down
feed_forward_output_norm  -              -                post_ffw_norm
final_norm                output_norm    output_norm      output_norm
head                      output         output           output
"""
COLUMNS = columns_of(NAMES)
FUSED = {"attention.query_key_value": ["attn_qkv"], "feed_forward.inner": ["ffn_up"]}
COLUMNS["phi3"] = COLUMNS["llama"] | FUSED
COLUMNS |= dict.fromkeys(("olmo2", "gemma2", "gemma3"), COLUMNS["gemma"])
# Facts about a family, and the fields of `config.json` that they are.
FACTS = """
fact                                 gpt2               llama
context_length                       n_positions        max_position_embeddings
embedding_length                     n_embd             hidden_size
block_count                          n_layer            num_hidden_layers
feed_forward_length                  n_inner            intermediate_size
attention.head_count                 n_head             num_attention_heads
attention.head_count_kv              n_head             num_key_value_heads
attention.layer_norm_epsilon         layer_norm_epsilon -
attention.layer_norm_rms_epsilon     -                  rms_norm_eps
attention.key_length                 -                  head_dim
attention.value_length               -                  head_dim
rope.dimension_count                 -                  head_dim
rope.freq_base                       -                  rope_theta
rope.scaling.type                    -                  rope_type
rope.scaling.factor                  -                  factor
rope.scaling.original_context_length -                  original_max_position_embeddings
"""
FIELDS = columns_of(FACTS)
SLIDING = {"attention.sliding_window": ["sliding_window"]}
CAPS = {f"{x}_logit_softcapping": [f"{x}_logit_softcapping"] for x in ("attn", "final")}
FIELDS["phi3"] = FIELDS["llama"] | SLIDING
FIELDS |= dict.fromkeys(("gemma2", "gemma3"), FIELDS["llama"] | SLIDING | CAPS)
SCALING = "rope.scaling."
# What multiplies yarn's own gain.
GAIN = f"{SCALING}attn_factor"
# What older files call the factor of linear scaling.
OLD_FACTOR = "rope.scale_linear"
# Facts about a family that change no logits of llama.cpp: about how the file was made, for
# embeddings only, or, like yarn's numbers, not read (`YARN`). Any other that is not in `FACTS` is
# refused.
HARMLESS = frozenset(
    {
        *("vocab_size", "tensor_data_layout", "pooling_type", f"{SCALING}finetuned"),
        *(f"{SCALING}yarn_{name}" for name in ("beta_fast", "beta_slow", "ext_factor")),
        *(f"{SCALING}yarn_{name}" for name in ("attn_factor", "log_multiplier")),
    }
)
NEEDED = {"max_position_embeddings", "intermediate_size", "n_inner", "rms_norm_eps"}
# What turns slower by what factor; written and read for Llama 3.1's scaling.
ROPE_FACTORS = "rope_freqs.weight"
# The only numbers behind yarn that llama.cpp computes these families with, whatever a file says.
YARN = {"rope_low_factor": 1.0, "rope_high_factor": 32.0}
LLAMA_3 = {"rope_low_factor": 1.0, "rope_high_factor": 4.0, "rope_original_window": 8192}
# What llama.cpp always computes models of a family with.
ALWAYS: dict[str, dict[str, Any]] = {
    "gpt2": {"activation": "gelu"},
    "smollm3": {"nope_every": 4},
    "gemma2": {"full_every": 2},
    "gemma3": {"full_every": 6, "sliding_rope_theta": 10000.0, "logit_softcap": None},
}
# Families with a sliding window, and those whose pairs of rotated numbers lie side by side.
SLIDES, INTERLEAVED = ("gemma2", "gemma3"), ("llama", "smollm3")
# Layers of the two largest models of Gemma, whose scores llama.cpp scales as if a head were wider.
LARGEST_GEMMAS = {"gemma2": 46, "gemma3": 62}
# What stands before facts of our own: the numbers behind another scaling.
OWN = "seqgen"


def _parts_of(
    family: str, config: TransformerConfig, biased: Collection[str] = hf_config.BIASED
) -> list[TensorPart]:
    """List the tensors of a model with their GGUF names; see `hf_weights.parts_of`."""
    return list(parts_of(COLUMNS.get(family, COLUMNS["llama"]), config, biased))


def read_model(path: Path, like: tuple[Tokenizer, DataConfig] | None) -> ImportedModel:
    """Import a transformer from a GGUF file; see `store.formats.FolderImporter`."""
    require(like is None, "--like is for n-gram models: a GGUF file has its own tokenizer")
    file = gguf.GGUFFile(path)
    family = file.facts.get("general.architecture")
    if family not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise file.error(f"general.architecture is {str(family)[:40]!r}; seqgen reads {known}")
    try:
        config = config_of(file, family)
    except UsageError as error:
        raise file.error(str(error)) from None
    biased = [
        part
        for part, name in (("attention", "attn_output"), ("mlp", "ffn_down"))
        if family == "gpt2" or f"blk.0.{name}.bias" in file.tensors
    ]
    parts = _parts_of(family, config, biased)
    _check(file, parts, config)
    tokenizer, framing = read_vocabulary(file, config.vocab_size)
    tensors = {part.ours: _read(file, part, family, config) for part in parts}
    data = DataConfig(tokenizer=tokenizer.kind, val="none")
    model, stored = as_stored(config, tensors)
    template = file.facts.get(TEMPLATE)
    kept = {"chat_template": template} if isinstance(template, str) else {}
    facts = {"family": family, KEPT: kept, SPECIAL_TOKENS: special_names_of(file)}
    return ImportedModel("transformer", model, tokenizer, data, framing, facts, tensors=stored)


def config_of(file: gguf.GGUFFile, family: str) -> TransformerConfig:
    """Read the transformer's configuration from the metadata of a GGUF file.

    Raises:
        SeqgenError: one is missing, or is not understood.
    """
    tensors, ours = file.tensors, (f"{family}.", f"{OWN}.")
    about = {fact: value for fact, value in file.facts.items() if fact.startswith(ours)}
    silent = frozenset(f"{family}.{fact}" for fact in HARMLESS)
    facts = Fields(about, str(file.path), silent)
    if "token_embd.weight" not in tensors:
        raise file.error("there is no tensor token_embd.weight")
    facts.only(f"{family}.attention.causal", True)
    rope: dict[str, Any] = {}
    table: dict[str, Any] = {"model_type": ARCHITECTURES[family]}
    called: dict[str, str] = {}
    for fact, (name,) in FIELDS.get(family, FIELDS["llama"]).items():
        key, into = f"{family}.{fact}", rope if fact.startswith(SCALING) else table
        value = facts.take(key)
        called.setdefault(name, key)
        if value is None and name in NEEDED:
            raise file.error(f"there is no {key}")
        if value is not None and into.setdefault(name, value) != value:
            raise facts.wrong(key)
    biased = any(f"blk.0.{name}.bias" in tensors for name in ("attn_output", "ffn_down"))
    table["vocab_size"] = tensors["token_embd.weight"].shape[0]
    table["tie_word_embeddings"] = "output.weight" not in tensors
    if family == "gpt2":
        facts.finish()
        return hf_config.read(table, str(file.path), called)[0]
    table["rope_scaling"] = _scaling(facts, family, rope)
    if table.get("sliding_window") == 0:
        del table["sliding_window"]
    config, _ = hf_config.read(table, str(file.path), called)
    if config.num_layers == LARGEST_GEMMAS.get(family):
        raise file.error("the largest Gemma is read from a Hugging Face folder, not from GGUF")
    config = replace(config, bias=biased, qkv_bias="blk.0.attn_q.bias" in tensors and not biased)
    if config.rope_scaling == "yarn":
        gain = config.rope_gain * facts.real(f"{family}.{GAIN}", 1.0)
        config = replace(config, rope_gain=gain)
    else:
        facts.only(f"{family}.{GAIN}", 1.0)
    if ROPE_FACTORS in tensors:
        config = _with_factors(file, facts, config)
    facts.finish()
    return config


def _scaling(facts: Fields, family: str, rope: Mapping[str, Any]) -> dict[str, Any]:
    """Read the RoPE scaling as the `rope_scaling` of a `config.json`.

    In llama.cpp this is linear unless a file says otherwise, and a factor of 0 is none.

    Args:
        facts: the file's.
        family: of the model.
        rope: what the facts say of scaling, by the names of `config.json`.
    """
    kinds = {"none": "default", "linear": "linear", "yarn": "yarn"}
    kind = facts.one_of(f"{family}.{SCALING}type", kinds, "linear")
    factor = rope.get("factor", facts.take(f"{family}.{OLD_FACTOR}"))
    if kind == "default" or (kind == "linear" and not factor):
        return {}
    return {**rope, "rope_type": kind, "factor": factor or 1.0}


def _with_factors(
    file: gguf.GGUFFile, facts: Fields, config: TransformerConfig
) -> TransformerConfig:
    """Add Llama 3.1's RoPE scaling, which GGUF stores as a tensor, to a configuration.

    Raises:
        SeqgenError: positions are scaled in another way, too.
    """
    if config.rope_scaling is not None:
        raise file.error(f"it has both {ROPE_FACTORS} and {config.rope_scaling} scaling")
    settings = {name: facts.real(f"{OWN}.{name}", value) for name, value in LLAMA_3.items()}
    like, rate = RopeScaling("llama3", 1.0, *settings.values()), _rates_of(config)
    settings["rope_factor"] = _full_factor(file.read(ROPE_FACTORS), rate, like)
    return replace(config, rope_scaling="llama3", **settings)


def _rates_of(config: TransformerConfig) -> Tensor:
    return rope_rates(TensorOps, config.rope_theta, config.head_width)


def _full_factor(factors: np.ndarray, rate: Tensor, like: RopeScaling) -> float:
    """Estimate the factor F of Llama 3.1's RoPE scaling from its tensor; 1 if no wave has it.

    A wave of which a share k is kept turns slower by f = 1 / (k + (1 - k) / F). The slowest wave
    has the smallest k; if even that is kept in full, every F is the same model.

    Args:
        factors: (D / 2), what the file has.
        rate: (D / 2), before scaling.
        like: the scaling, of any factor.
    """
    kept = float(like.kept(rate)[-1])
    slowest = float(factors.flat[-1]) if factors.size else 1.0
    shrunk = 1 / slowest - kept if slowest > 0 else 0.0
    if kept == 1 or not shrunk > 0:
        return 1.0
    factor = max(1.0, (1 - kept) / shrunk)
    rounded = float(f"{factor:.5g}")  # what the model was made with, most likely
    same = np.array_equal(_factors(rate, replace(like, factor=rounded)), factors)
    return rounded if same else factor


def _factors(rate: Tensor, scaling: RopeScaling) -> np.ndarray:
    """Compute the factor (D / 2,) by which scaling slows each rotary pair of a head."""
    return (rate / scaling.rates(rate)).numpy()


def _factors_of(config: TransformerConfig) -> np.ndarray:
    """Compute the rotary factors (D / 2,) of a model with rope_scaling=llama3."""
    return _factors(_rates_of(config), read_rope_scaling(config))


def _check(file: gguf.GGUFFile, parts: Iterable[TensorPart], config: TransformerConfig) -> None:
    """Check that a file has exactly the tensors that a model needs, with the right shapes.

    Raises:
        SeqgenError: a tensor is missing, or of another shape, or not understood.
    """
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    check_tensors(parts, shapes, {ROPE_FACTORS}, lambda _, message: file.error(message))
    if ROPE_FACTORS in file.tensors:
        expected, stored = _factors_of(config), file.read(ROPE_FACTORS)
        if stored.shape != expected.shape or not np.allclose(stored, expected, rtol=1e-3):
            raise file.error(f"{ROPE_FACTORS} is another scaling of positions than Llama 3.1's")


def _read(
    file: gguf.GGUFFile, part: TensorPart, family: str, config: TransformerConfig
) -> Tensor | BlockMatrix:
    """Read one of the model's tensors from a GGUF file: a matrix as it is, others as float32."""
    rows = [(name, file.rows(name)) for name, shape in part.theirs if len(shape) == 2]
    if any(one.kind != "F32" for _, one in rows):
        return BlockMatrix(
            replace(one, raw=_turned(name, one.raw, family, config, back=True))
            for name, one in rows
        )
    tensors = [_turned(name, file.read(name), family, config, back=True) for name, _ in part.theirs]
    return torch.from_numpy(np.concatenate(tensors) if len(tensors) > 1 else tensors[0].copy())


def _turned(
    name: str, x: np.ndarray, family: str, config: TransformerConfig, back: bool
) -> np.ndarray:
    """Reorder the rotary pairs of query and key weights between seqgen's layout and Llama's.

    There a pair lies side by side, here its second half is half a head behind.

    Args:
        name: of the tensor, in the file.
        x: (heads D, ...).
        family: only those of `INTERLEAVED` have them so.
        config: of the model.
        back: from the file's order to ours.
    """
    if family not in INTERLEAVED or not re.search(r"attn_[qk]\.(weight|bias)$", name):
        return x
    heads = config.num_heads if "attn_q" in name else config.kv_heads
    pairs = (-1, 2) if back else (2, -1)
    return x.reshape(heads, *pairs, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write_model(exported: ModelToExport) -> Iterator[bytes]:
    """Export a transformer as pieces of a GGUF file; see `store.formats.Exporter`."""
    model, name = require_transformer(exported, "gguf"), exported.name
    config, window = model.config, model.config.span(model.config.num_layers - 1)
    if window is not None and window >= config.window and config.full_every is None:
        config = replace(config, sliding_window=None)  # it leaves out nothing
    model_type, table = hf_config.write(config, name)
    family = {theirs: ours for ours, theirs in ARCHITECTURES.items()}.get(model_type, model_type)
    _require_computed(config, family, name)
    facts = _facts(table, family, name) | facts_of(exported.tokenizer, exported.framing, name)
    template = exported.kept.get("chat_template")
    if isinstance(template, list):  # the file has one without a name
        template = next((x["template"] for x in template if x["name"] == "default"), None)
    if template is not None:
        facts[TEMPLATE] = template
    parts = _parts_of(family, config)
    tensors = {
        tensor: _turned(tensor, x.numpy(), family, config, back=False)
        for tensor, x in theirs_of(parts, weights_of(model)).items()
    }
    if config.rope_scaling == "llama3":
        tensors[ROPE_FACTORS] = _factors_of(config)
        own = {setting: getattr(config, setting) for setting in LLAMA_3}
        facts |= {f"{OWN}.{setting}": x for setting, x in own.items() if x != LLAMA_3[setting]}
    number_type = exported.number_type
    facts["general.file_type"] = FILE_TYPES[number_type]
    if number_type.startswith("q"):
        facts["general.quantization_version"] = 2
    precise = _precise(tensors, config.num_layers)
    kinds = {
        tensor: _kind_of(tensor, x.shape, number_type, tensor in precise)
        for tensor, x in tensors.items()
    }
    return gguf.write(facts, tensors, kinds)


def _require_computed(config: TransformerConfig, family: str, name: str) -> None:
    """Raise an error for a model that llama.cpp would compute differently.

    Raises:
        SeqgenError: names the setting.
    """
    fixed = ALWAYS.get(family, {}) | (YARN if config.rope_scaling == "yarn" else {})
    if config.span(config.num_layers - 1) is not None and family not in SLIDES:
        fixed["sliding_window"] = None
    if config.rope_scaling == "llama3" and family != "llama":  # the tensor of another is not read
        fixed["rope_scaling"] = None
    for setting, value in fixed.items():
        if (own := getattr(config, setting)) != value:
            does = f"without {setting}" if value is None else f"with {value}"
            raise SeqgenError(
                f"{name} has {setting}={own}, and llama.cpp always computes such a model {does}: "
                "use --format hf"
            )


# What `general.file_type` says, as llama.cpp numbers them (`llama_ftype`).
FILE_TYPES: dict[NumberType, int] = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q6_k": 18}
FILE_TYPES |= {"q5_k_m": 17, "q4_k_m": 15, "q5_1": 9, "q5_0": 8, "q4_1": 3, "q4_0": 2}
# Mixtures of types: that of most matrices, and that of those where errors matter most.
MIXTURES: dict[NumberType, tuple[str, str]] = {"q4_k_m": ("q4_k", "q6_k")}
MIXTURES["q5_k_m"] = "q5_k", "q6_k"
# What stands in for a type if the rows of a matrix are no multiple of its block.
NARROWER = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}


def _precise(tensors: Collection[str], layers: int) -> set[str]:
    """List the matrices to which a mixture such as Q4_K_M gives more bits, as llama.cpp does.

    These are the matrix of the logits, and in the first and last eighth of the layers, and in every
    third between them, the matrices to values and out of the feed-forward network.
    """
    eighth = layers // 8
    more = [i for i in range(layers) if not eighth <= i < 7 * layers // 8 or (i - eighth) % 3 == 2]
    parts = ("attn_v", "attn_qkv", "ffn_down")
    head = "output" if "output.weight" in tensors else "token_embd"
    return {f"{head}.weight", *(f"blk.{i}.{part}.weight" for i in more for part in parts)}


def _kind_of(name: str, shape: tuple[int, ...], number_type: NumberType, is_precise: bool) -> int:
    """Choose the GGUF number type of a tensor as llama.cpp's converter does.

    Norms, biases and positions stay in float32. Rows that are no multiple of a block are in a type
    with smaller blocks, or in F16.
    """
    kinds = {title.lower(): (kind, block) for kind, (title, block, _) in gguf.BLOCKS.items()}
    if len(shape) < 2 or name.startswith("position_embd"):
        return kinds["f32"][0]
    title = MIXTURES.get(number_type, (number_type, number_type))[is_precise]
    while shape[-1] % kinds[title][1]:
        title = NARROWER.get(title, "f16")
    return kinds[title][0]


def _facts(table: Mapping[str, Any], family: str, title: str) -> dict[str, Any]:
    """Convert the fields of a `config.json` to GGUF metadata."""
    rope = dict(table.get("rope_scaling") or {})
    if rope.get("rope_type") == "llama3":  # which is a tensor
        rope = {}
    if gain := rope.pop("attention_factor", None):
        rope[GAIN] = gain / hf_config.yarn_gain(rope["factor"])
    fields, named = {**table, **rope}, FIELDS.get(family, FIELDS["llama"])
    given = {fact: fields.get(name) for fact, (name,) in named.items()}
    known = {fact: value for fact, value in given.items() if value is not None}
    known |= {GAIN: rope[GAIN]} if GAIN in rope else {}
    about = {"general.architecture": family, "general.name": title, "general.file_type": 0}
    return about | {f"{family}.{fact}": value for fact, value in known.items()}


PREFIX = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding"}
# What ends texts besides EOS: the end of a turn, of a message.
OTHER_ENDS = ("eot", "eom")


@dataclass(frozen=True)
class Pre:
    """Splitting rules that `tokenizer.ggml.pre` names, as in llama.cpp (`llama-vocab.cpp`).

    Attributes:
        split: how a text is split, see `imported_tokenizers.SPLITS`.
        whole_words: a word that is a token is not merged from bytes (`ignore_merges`).
        begins: BOS goes before texts, unless the file says otherwise.
    """

    split: str
    whole_words: bool = False
    begins: bool = False


# The first name of each row is the one that is written.
NAMES_OF_PRE = {
    Pre("gpt-2"): (
        "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert mpt "
        "olmo jais trillion granite-docling exaone4"
    ),
    Pre("smollm"): "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    Pre("qwen2"): (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2"
    ),
    Pre("llama-bpe", whole_words=True, begins=True): (
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
    ),
    Pre("llama-bpe"): "dbrx smaug-bpe",
    Pre("tekken", whole_words=True, begins=True): "tekken",
}
PRES = {name: pre for pre, names in NAMES_OF_PRE.items() for name in names.split()}


# Vocabularies of sentencepiece: which of its algorithms each has, and whether there are bytes.
SENTENCEPIECE = {"llama": (2, 1), "t5": (1, 0)}


def read_vocabulary(file: GGUFFile, vocab_size: int) -> tuple[TokenizerFromElsewhere, Framing]:
    """Read the tokenizer of a GGUF file, and its start and end tokens.

    Raises:
        SeqgenError: it is broken, or of a kind that seqgen does not know.
    """
    facts = {
        name.removeprefix(PREFIX): fact
        for name, fact in file.facts.items()
        if name.startswith(PREFIX)
    }
    tokens, kind = facts.get("tokens"), facts.get("model")
    if not _are(str, tokens) or len(tokens) != vocab_size:
        raise file.error(f"{PREFIX}tokens is not a list of {vocab_size:,} texts")

    def id_of(name: str) -> int | None:
        key = f"{name}_token_id"
        return known_id(facts.get(key), PREFIX + key, vocab_size, f"{file.path}: ")

    special = {f"{name}_id": id_of(theirs) for name, theirs in SPECIAL.items()}
    try:
        if kind == "gpt2":
            tokenizer = HuggingFaceTokenizer(_byte_level(facts, file), vocab_size, special)
        elif kind in SENTENCEPIECE:
            tokenizer = WholeSentencepieceTokenizer(_sentencepiece(facts, file), vocab_size)
        else:
            known = ", ".join(["gpt2", *SENTENCEPIECE])
            raise file.error(f"{PREFIX}model is {str(kind)[:20]!r}; seqgen reads {known}")
    except ValueError as error:
        raise file.error(f"its vocabulary is broken: {error}") from None
    start, stop = special["bos_id"], special["eos_id"]
    others = map(id_of, OTHER_ENDS)
    others = tuple(dict.fromkeys(i for i in others if i not in (None, stop)))
    usual = kind == "llama" or (kind == "gpt2" and _pre(facts, file).begins)
    begins = bool(facts.get("add_bos_token", usual))
    if begins and start is None:
        raise file.error(f"its texts begin with BOS, and there is no {PREFIX}bos_token_id")
    return tokenizer, framed(
        tokenizer, start, stop, file.error, starts_prompts=begins, also_stop=others
    )


def special_names_of(file: GGUFFile) -> dict[str, str]:
    """Read the names of special tokens by what chat templates call them, such as `bos_token`."""
    tokens, named = file.facts[f"{PREFIX}tokens"], {**SPECIAL, "unk": "unknown"}
    ids = {name: file.facts.get(f"{PREFIX}{theirs}_token_id") for name, theirs in named.items()}
    return {f"{name}_token": tokens[token] for name, token in ids.items() if token is not None}


def _are(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _types(facts: dict[str, Any]) -> list[int]:
    """Read the type of each token; all are normal tokens if the file gives no types."""
    types, count = facts.get("token_type"), len(facts["tokens"])
    return types if _are(int, types) and len(types) == count else [NORMAL] * count


def _pre(facts: dict[str, Any], file: GGUFFile) -> Pre:
    """Look up the splitting rules that the file names for its byte-level vocabulary.

    Raises:
        SeqgenError: the file does not say it, or seqgen does not know it.
    """
    name = facts.get("pre")
    if name is None or name == "default":
        raise file.error(
            f"it does not say how its texts are split ({PREFIX}pre), and any other way gives other "
            "tokens; convert the model again with a newer llama.cpp"
        )
    if not isinstance(name, str) or name not in PRES:
        raise file.error(f"{PREFIX}pre is {str(name)[:40]!r}; seqgen reads {', '.join(PRES)}")
    return PRES[name]


def _byte_level(facts: dict[str, Any], file: GGUFFile) -> bytes:
    """Build the `tokenizer.json` of a byte-level BPE vocabulary."""
    pre = _pre(facts, file)
    merges = facts.get("merges", [])
    if not _are(str, merges):
        raise file.error(f"{PREFIX}merges is not a list of texts")
    tokens, (own, names) = facts["tokens"], table_of(ByteTokenizer(), "")
    if tokens == names and not merges and pre.split == "gpt-2":
        return json_bytes(own)  # our bytes, where names of special tokens are text
    added = [
        added_token(i, tokens[i], kind == CONTROL)
        for i, kind in enumerate(_types(facts))
        if kind in (CONTROL, USER)
    ]
    steps = SPLITS[pre.split]
    split = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise file.error(f"{PREFIX}tokens has a token twice")
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    model["ignore_merges"] = pre.whole_words
    table = {"version": "1.0", "added_tokens": added, "pre_tokenizer": split, "decoder": steps[-1]}
    return json_bytes({**table, "model": model})


def _sentencepiece(facts: dict[str, Any], file: GGUFFile) -> bytes:
    """Build a sentencepiece `.model` file from pieces with scores (sentencepiece_model.proto)."""
    tokens, scores = facts["tokens"], facts.get("scores")
    if not _are(float, scores) or len(scores) != len(tokens):
        raise file.error(f"{PREFIX}scores is not a list of {len(tokens):,} numbers")
    algorithm, falls_back = SENTENCEPIECE[facts["model"]]
    no_pad = (1 << 64) - 1  # -1
    trainer = [encode_field(3, algorithm), encode_field(35, falls_back), encode_field(43, no_pad)]
    for i, name in enumerate(("unknown", "bos", "eos")):
        token = facts.get(f"{name}_token_id")
        trainer += (
            []
            if token is None
            else [encode_field(40 + i, token), encode_field(45 + i, tokens[token])]
        )
    prefix = bool(facts.get("add_space_prefix", True))
    rules = [
        encode_field(1, "identity"),
        encode_field(3, int(prefix)),
        encode_field(4, 0),
        encode_field(5, 1),
    ]
    pieces = map(encode_piece, map(Subword, tokens, scores, _types(facts)))
    return b"".join([*pieces, encode_field(2, b"".join(trainer)), encode_field(3, b"".join(rules))])


def facts_of(tokenizer: Tokenizer, framing: Framing, name: str) -> dict[str, Any]:
    """Convert a tokenizer to GGUF metadata.

    Args:
        tokenizer: of bytes or characters, byte pairs learnt by seqgen, or one from elsewhere that
            merges bytes, or pieces as sentencepiece does.
        framing: how texts begin and end.
        name: what messages call the model.

    Raises:
        SeqgenError: a GGUF file cannot hold this kind, or llama.cpp would read texts otherwise.
    """
    try:
        facts = _vocabulary(tokenizer, framing, name)
    except ValueError as error:
        raise SeqgenError(
            f"{name} has a {tokenizer.kind} tokenizer that llama.cpp reads otherwise: {error}"
        ) from None
    if len(framing.also_stop) > len(OTHER_ENDS):
        raise SeqgenError(f"{name} ends texts with more tokens than a GGUF file can name")
    others = zip(OTHER_ENDS, framing.also_stop, strict=False)
    ids = {"bos": framing.start, "eos": framing.stop, "padding": tokenizer.pad_id, **dict(others)}
    facts |= {f"{which}_token_id": token for which, token in ids.items() if token is not None}
    facts["add_bos_token"] = framing.starts_prompts
    return {PREFIX + key: fact for key, fact in facts.items()}


def _vocabulary(tokenizer: Tokenizer, framing: Framing, name: str) -> dict[str, Any]:
    """Convert a vocabulary to GGUF metadata, without start and end tokens; see `facts_of`.

    Raises:
        ValueError: llama.cpp would read texts otherwise.
    """
    if tokenizer.kind == "wordpiece":
        raise ValueError("its WordPiece drops all white space, and here a newline is a token")
    if isinstance(tokenizer, VocabularyTokenizer):
        raise ValueError("it cannot split texts into whole words")
    if isinstance(tokenizer, BPETokenizer):
        return _scored("llama", _learnt(tokenizer), tokenizer.unk_id)
    if isinstance(tokenizer, CharTokenizer):
        return _scored("t5", _letters(tokenizer), tokenizer.unk_id)
    if isinstance(tokenizer, WholeSentencepieceTokenizer):
        normaliser = tokenizer.normaliser
        changes_text = normaliser.rules or normaliser.squeeze
        if normaliser.kind != "bpe" or not normaliser.byte_fallback or changes_text:
            raise ValueError("it changes texts, has no bytes, or does not merge by score")
        pieces = _mergeable(pieces_of(tokenizer.content))
        unused = range(len(pieces), tokenizer.vocab_size)
        pieces += [Subword(f"[PAD {i}]", 0.0, CONTROL) for i in unused]
        return _scored("llama", pieces, tokenizer.unk_id, normaliser.dummy_prefix)
    table = parse_json(files_of(tokenizer, framing, name)["tokenizer.json"])
    if table["model"].get("type") == "Unigram":
        raise ValueError("it has no bytes there for what no piece spells")
    if table["model"].get("byte_fallback"):
        prefix = marks_spaces(table)
        pieces = _mergeable(_metaspaced(table, tokenizer))
        return _scored("llama", pieces, tokenizer.unk_id, prefix)
    return _byte_level_facts(table, tokenizer, name)


def _byte_level_facts(table: dict[str, Any], tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    """Convert a byte-level BPE tokenizer to GGUF metadata.

    Args:
        table: its `tokenizer.json`.
        tokenizer: the same.
        name: what messages call the model.

    Raises:
        SeqgenError: it is of another kind.
    """
    model = table.get("model", {})
    split = name_of_split(table.get("pre_tokenizer")), bool(model.get("ignore_merges"))
    pre = next((name for name, pre in PRES.items() if split == (pre.split, pre.whole_words)), None)
    if model.get("type") != "BPE" or pre is None:
        raise SeqgenError(
            f"{name} has a tokenizer of kind {tokenizer.kind} that a GGUF file cannot hold; byte, "
            "char, bpe, and imported ones that merge pieces as sentencepiece does, or bytes of "
            "texts split as GPT-2, SmolLM, Qwen2, Llama 3 and Tekken do, can be written"
        )
    names = {token: text for text, token in model["vocab"].items()}
    kinds = dict.fromkeys(names, NORMAL)
    if isinstance(tokenizer, ByteTokenizer):
        kinds |= dict.fromkeys(range(len(SPECIALS)), CONTROL)
    for added in table.get("added_tokens", []):
        names[added["id"]] = added["content"]
        kinds[added["id"]] = CONTROL if added["special"] else USER
    tokens = [names.get(i, f"[PAD{i}]") for i in range(tokenizer.vocab_size)]
    merges = [x if isinstance(x, str) else " ".join(x) for x in model.get("merges", [])]
    types = [kinds.get(i, CONTROL) for i in range(len(tokens))]
    return {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types, "merges": merges}


def _metaspaced(table: dict[str, Any], tokenizer: Tokenizer) -> list[Subword]:
    """List the scored pieces of a BPE `tokenizer.json` that marks spaces as Llama 2's does.

    Raises:
        ValueError: sentencepiece would merge them otherwise.
    """
    model, vocab = table["model"], table["model"]["vocab"]
    plain = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
    if model.get("type") != "BPE" or any(model.get(setting) for setting in plain):
        raise ValueError("it does not merge characters alone")
    pairs = (x.split(" ") if isinstance(x, str) else x for x in model["merges"])
    kinds = {f"<0x{byte:02X}>": BYTE for byte in range(256)}
    if not kinds.keys() <= vocab.keys():
        raise ValueError("it has no piece for some bytes")
    added = {token["content"]: token for token in table["added_tokens"]}
    kinds |= {name: CONTROL if token["special"] else USER for name, token in added.items()}
    kinds |= {model["unk_token"]: UNKNOWN_PIECE} if model.get("unk_token") else {}
    scores = scores_of(vocab.keys() - kinds.keys(), map(tuple, pairs))
    names = {token: name for name, token in vocab.items()}
    names |= {token["id"]: name for name, token in added.items()}
    listed = [names.get(i, f"[PAD {i}]") for i in range(tokenizer.vocab_size)]
    known = [NORMAL if name in scores else kinds.get(name, CONTROL) for name in listed]
    return [Subword(n, scores.get(n, 0.0), kind) for n, kind in zip(listed, known, strict=True)]


def _mergeable(pieces: list[Subword]) -> list[Subword]:
    """Check that merging pieces never produces the name of another token; return them.

    Raises:
        ValueError: it might make another.
    """
    known = {piece.text for piece in pieces if piece.kind == NORMAL}
    for text, _, kind in pieces:
        if kind == USER:
            raise ValueError(f"{text!r} is cut out of texts first")
        if kind != NORMAL and any(
            text[:i] in known and text[i:] in known for i in range(len(text))
        ):
            raise ValueError(f"two of its pieces make {text}, the name of another token")
    return pieces


def _learnt(tokenizer: BPETokenizer) -> list[Subword]:
    """List the pieces of a BPE tokenizer trained by seqgen, for llama.cpp to merge by score.

    Raises:
        ValueError: it would merge them otherwise.
    """
    pieces = learnt_pieces(tokenizer)
    merges_of(pieces)
    # Merges may make any name but one with a space, so those of special tokens have one.
    special = {UNKNOWN_PIECE, CONTROL}
    shown = [p._replace(text=p.text.replace("<", "< ")) if p.kind in special else p for p in pieces]
    return _mergeable([p._replace(kind=NORMAL) if p.kind == USER else p for p in shown])


def _letters(tokenizer: CharTokenizer) -> list[Subword]:
    """List the pieces of a character tokenizer: one per character, all equally likely.

    Raises:
        ValueError: llama.cpp would read texts otherwise.
    """
    if SPACE in tokenizer.alphabet:
        raise ValueError("it knows U+2581, which a GGUF file takes for a space")
    special = [Subword(text, 0.0, CONTROL) for text in SPECIALS[:-1]]
    special.append(Subword(SPECIALS[-1], 0.0, UNKNOWN_PIECE))
    letters = (Subword(letter.replace(" ", SPACE), -1.0, NORMAL) for letter in tokenizer.alphabet)
    return [*special, *letters]


def _scored(
    model: str, pieces: Sequence[Subword], unknown: int | None, prefix: bool = False
) -> dict[str, Any]:
    """Build the GGUF metadata of a sentencepiece vocabulary.

    Args:
        model: a key of `SENTENCEPIECE`.
        pieces: of all tokens.
        unknown: the id of what stands for a character that it does not have.
        prefix: a space is put before texts.
    """
    return {
        "model": model,
        "tokens": [piece.text for piece in pieces],
        "scores": [piece.score for piece in pieces],
        "token_type": [piece.kind for piece in pieces],
        **({} if unknown is None else {"unknown_token_id": unknown}),
        "add_eos_token": False,
        "add_space_prefix": prefix,
    }

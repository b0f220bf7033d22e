"""Hugging Face encoder-decoders such as Marian and BART: settings, tensors and tokenizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqgen.errors import SeqgenError, UsageError
from seqgen.files import json_bytes
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.plugins.exchange import hf_weights
from seqgen.plugins.exchange.hf_config import GELUS, Fields, read_table, require_settings
from seqgen.plugins.exchange.hf_tokenizer import (
    Ends,
    content_of,
    files_of,
    known_id,
    open_tokenizer,
)
from seqgen.plugins.exchange.hf_weights import TensorPart
from seqgen.plugins.exchange.imported_tokenizers import (
    MARIAN_NAMES,
    MarianTokenizer,
    TokenizerFromElsewhere,
)
from seqgen.text.framing import Framing
from seqgen.text.tokenizers import Tokenizer
from seqgen.text.tokenizers.sentencepiece import SentencepieceTokenizer

# Whether positions are learned, and embeddings normalized; and where sublayers are.
FAMILIES = {
    "marian": (False, "post"),
    "bart": (True, "post"),
    "pegasus": (False, "pre"),
    "mbart": (True, "pre"),
}
CLASSES = {"marian": "MarianMTModel", "mbart": "MBartForConditionalGeneration"}
CLASSES |= {name: f"{name.title()}ForConditionalGeneration" for name in ("bart", "pegasus")}
# What says nothing about a model's logits, besides `hf_config.SILENT`: how it was trained, and how
# texts are searched for. What begins and ends them is read with the tokenizer.
SILENT = frozenset(
    {
        *("activation_dropout", "bad_words_ids", "classif_dropout", "classifier_dropout"),
        *("decoder_layerdrop", "decoder_start_token_id", "dropout", "early_stopping"),
        *("encoder_layerdrop", "extra_pos_embeddings", "force_bos_token_to_be_generated"),
        *("forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing", "init_std"),
        *("length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_beams"),
        *("num_hidden_layers", "num_labels", "_num_labels", "output_past", "prefix"),
    }
)
ACTIVATIONS = {**GELUS, "swish": "silu", "silu": "silu"}
# The tensors that share a model's one embedding, the one that files have first.
SHARED = tuple(f"model.{x}.weight" for x in ("shared", "encoder.embed_tokens"))
SHARED = (*SHARED, "model.decoder.embed_tokens.weight", "lm_head.weight")
POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))


def read(table: Mapping[str, Any], name: str) -> Seq2SeqTransformerConfig:
    """Read the configuration of an encoder-decoder from its `config.json`.

    Args:
        table: the file's content, of a family of `FAMILIES`.
        name: what messages call it.

    Raises:
        SeqgenError: it has a field that is not understood.
    """
    fields, family = Fields(table, name, SILENT), table["model_type"]
    learned, place = FAMILIES[family]
    fixed = {"normalize_before": place == "pre", "add_final_layer_norm": place == "pre"}
    fixed |= {"normalize_embedding": learned, "static_position_embeddings": not learned}
    fixed |= {"add_bias_logits": False, "is_encoder_decoder": True, "is_decoder": False}
    for field, value in fixed.items():
        fields.only(field, value)
    joint = family != "marian" or fields.flag("share_encoder_decoder_embeddings", True)
    tied = fields.flag("tie_word_embeddings", True)
    size = fields.number("vocab_size")
    target = fields.number("decoder_vocab_size", size)
    if joint and target != size:
        raise fields.wrong("decoder_vocab_size")
    settings = {
        "vocab_size": target,
        "source_vocab_size": None if joint else size,
        "share_embeddings": joint and tied,  # there one field is about both
        "tie_weights": tied,
        **_shape(fields),
        **_form(family),
    }
    fields.finish()
    try:
        return Seq2SeqTransformerConfig(**settings, dropout=0.0)
    except UsageError as error:
        raise SeqgenError(f"{name}: {error}") from None


def _shape(fields: Fields) -> dict[str, Any]:
    """Read the settings of a model's size: widths, layers and heads."""
    heads, inner = (_of_both(fields, f"{{}}_{x}") for x in ("attention_heads", "ffn_dim"))
    window = fields.number("max_position_embeddings", 1024)
    return {
        "window": window,
        "source_window": window,
        "hidden_size": fields.number("d_model"),
        "encoder_layers": fields.number("encoder_layers"),
        "num_layers": fields.number("decoder_layers"),
        "num_heads": heads,
        "ffn_size": inner,
        "activation": fields.one_of("activation_function", ACTIVATIONS, "gelu"),
        "scale_embedding": fields.flag("scale_embedding", False),
    }


def _of_both(fields: Fields, name: str) -> int:
    """Read a number that must be equal for encoder and decoder."""
    sizes = [fields.number(name.format(side)) for side in ("encoder", "decoder")]
    if sizes[0] != sizes[1]:
        raise fields.wrong(name.format("decoder"))
    return sizes[0]


def _form(family: str) -> dict[str, Any]:
    """List the settings that all models of a family share."""
    learned, place = FAMILIES[family]
    return {
        "positions": "learned" if learned else "sinusoidal",
        "embedding_norm": learned,
        "norm": "layernorm",
        "norm_position": place,
        "norm_eps": 1e-5,
        "qk_norm": False,
        "bias": True,
    }


def write(config: Seq2SeqTransformerConfig, name: str) -> dict[str, Any]:
    """Build the `config.json` of an encoder-decoder, its family included.

    Args:
        config: the model's.
        name: what messages call it.

    Raises:
        SeqgenError: no family has such a model; names the setting.
    """
    if config.positions == "rope" or config.norm == "rmsnorm":
        what = "positions=rope" if config.positions == "rope" else "norm=rmsnorm"
        raise SeqgenError(
            f"{name} has {what}, which no encoder-decoder of Hugging Face has that seqgen writes; "
            "--preset pegasus-small trains one that can be exported"
        )
    form = config.positions == "learned", config.norm_position
    family = next(family for family, known in FAMILIES.items() if known == form)
    _require_form(config, family, name)
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    sides = ("encoder", "decoder")
    table: dict[str, Any] = {
        "model_type": family,
        "architectures": [CLASSES[family]],
        "is_encoder_decoder": True,
        "d_model": config.hidden_size,
        "encoder_layers": config.encoder_layers or config.num_layers,
        "decoder_layers": config.num_layers,
        **{f"{side}_attention_heads": config.num_heads for side in sides},
        **{f"{side}_ffn_dim": config.feed_forward_size for side in sides},
        "activation_function": names[config.activation],
        "max_position_embeddings": config.window,
        "scale_embedding": config.scale_embedding,
        "tie_word_embeddings": config.tie_weights,
        "vocab_size": config.source_vocab_size or config.vocab_size,
    }
    if family == "marian":
        table["share_encoder_decoder_embeddings"] = config.shares_embeddings
        table["decoder_vocab_size"] = config.vocab_size
    return table


def _require_form(config: Seq2SeqTransformerConfig, family: str, name: str) -> None:
    """Raise an error for a model whose settings do not fit a family; see `write`."""
    one_size = {"head_size": None, "num_kv_heads": None, "source_features": None}
    plain = {"scale_attention": True, "qkv_activation": None, "position_size": None}
    plain["dense"] = False
    require_settings(config, {**_form(family), **one_size, **plain}, name)
    if config.activation not in ACTIVATIONS.values():
        require_settings(config, {"activation": "gelu"}, name)
    if family != "marian":
        required = {"source_window": config.window, "source_vocab_size": None}
        if config.tie_weights and not config.shares_embeddings:
            required["share_embeddings"] = True
        require_settings(config, required, name, beside=f"the form of {family} and ")


def silent_of(config: Seq2SeqTransformerConfig) -> set[str]:
    """List the tensors that a file may contain as copies of others, or that are recomputed."""
    silent = set(SHARED) if config.shares_embeddings else {SHARED[0]}
    silent |= {"lm_head.weight"} if config.tie_weights else set()
    return silent if config.positions == "learned" else silent | set(POSITIONS)


def parts_of(config: Seq2SeqTransformerConfig, embedding: str = SHARED[0]) -> Iterator[TensorPart]:
    """Yield the tensors of an encoder-decoder with their Hugging Face names, in order.

    Args:
        config: of our model.
        embedding: what theirs is called, if both sides share it.
    """
    shared = {"embedding": [embedding.removesuffix(".weight")]} if config.shares_embeddings else {}
    return hf_weights.parts_of({**hf_weights.COLUMNS["pairs"], **shared}, config)


SOURCE, TARGET = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"


@dataclass(frozen=True)
class PairTokenizers:
    """Source and target tokenizers of a Hugging Face folder.

    Attributes:
        target: that of the targets.
        source: that of the sources; the same object if the folder has one.
        framing: how targets begin and end.
        decoder_start: what the decoder reads before that; None for nothing.
    """

    target: TokenizerFromElsewhere
    source: TokenizerFromElsewhere
    framing: Framing
    decoder_start: int | None


def read_tokenizers(folder: Path, source_size: int, target_size: int) -> PairTokenizers:
    """Read the source and target tokenizers of a Hugging Face folder.

    Args:
        folder: with two models of sentencepiece and their table, or with one tokenizer.
        source_size: the tokens that the model has for sources.
        target_size: and for targets.

    Raises:
        SeqgenError: there are none, or they are damaged, or they are not understood.
    """
    ends, joint = Ends.of(folder), None
    if (folder / SOURCE).is_file():
        source, target = _marian(folder, source_size, target_size)
    else:
        if source_size != target_size:
            raise SeqgenError(f"{folder} has two vocabularies and no {SOURCE}")
        joint = open_tokenizer(folder, target_size, ends)
        source = target = joint.tokenizer
    stop = ends.id_of("eos", target.eos_id, target_size)
    if joint is not None:
        if stop is None or joint.after != [stop] or len(joint.before) > 1:
            raise joint.puts("and seqgen ends every source with the token that ends texts")
        source.source_bos_id = joint.before[0] if joint.before else None
    start = known_id(ends.decoder_start, "decoder_start_token_id", target_size)
    forced = known_id(ends.forced_bos, "forced_bos_token_id", target_size)
    if start is None:
        raise SeqgenError(f"{folder / 'config.json'} has no field decoder_start_token_id")
    first = start if forced is None else forced
    target.bos_id, target.eos_id = first, stop
    others = ends.other_stops(stop, target_size)
    framing = Framing(first, stop, stop, ends.never_of(target_size), True, others)
    return PairTokenizers(target, source, framing, None if forced is None else start)


def _marian(
    folder: Path, source_size: int, target_size: int
) -> tuple[MarianTokenizer, MarianTokenizer]:
    """Read Marian's source and target tokenizers, which may share one vocabulary."""
    own = (folder / TARGET_VOCABULARY).is_file()
    files = {
        SOURCE: (VOCABULARY, source_size),
        TARGET: (TARGET_VOCABULARY if own else VOCABULARY, target_size),
    }

    def side(file: str) -> MarianTokenizer:
        table, size = files[file]
        content, vocabulary = content_of(folder / file), read_table(folder / table)
        try:
            return MarianTokenizer(content, vocabulary, size)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise SeqgenError(f"{folder / file} or {table} is damaged: {error}") from None

    return side(SOURCE), side(TARGET)


def tokenizer_files(
    target: Tokenizer, source: Tokenizer, framing: Framing, name: str
) -> dict[str, bytes]:
    """Build the tokenizer files of an encoder-decoder, by file name.

    Args:
        target: that of the targets.
        source: that of the sources.
        framing: how targets begin and end.
        name: what messages call the model.

    Raises:
        SeqgenError: no folder can hold them.
    """
    kinds = MarianTokenizer, SentencepieceTokenizer
    sentencepiece = isinstance(target, kinds) and isinstance(source, kinds)
    if source is target:
        try:  # what stands around a source, and not around a target
            return files_of(target, framing, name, source=True)
        except SeqgenError:
            if not sentencepiece:
                raise
    if not sentencepiece:
        raise SeqgenError(
            f"{name} has the tokenizer {source.kind} for sources and {target.kind} for targets; a "
            "Hugging Face folder needs one for both sides, or sentencepiece on both"
        )
    return _as_marian(target, source)


def _as_marian(target: Tokenizer, source: Tokenizer) -> dict[str, bytes]:
    files, tables = {}, []
    for file, side in ((SOURCE, source), (TARGET, target)):
        if isinstance(side, MarianTokenizer):
            files[file] = side.content
            tables.append(dict(side.vocabulary))
        else:
            files[file] = side.model
            special = {getattr(side, which): name for which, name in MARIAN_NAMES.items()}
            names = enumerate(side.pieces(range(side.vocab_size)))
            tables.append({special.get(i, name): i for i, name in names})
    files[VOCABULARY] = json_bytes(tables[0])
    separate = tables[0] != tables[1]
    if separate:
        files[TARGET_VOCABULARY] = json_bytes(tables[1])
    about = {
        f"{which.removesuffix('_id')}_token": name
        for which, name in MARIAN_NAMES.items()
        if getattr(target, which) is not None
    }
    about |= {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    about |= {"source_lang": None, "target_lang": None}
    return {**files, "tokenizer_config.json": json_bytes(about)}

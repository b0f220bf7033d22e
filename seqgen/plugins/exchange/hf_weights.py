"""Tensors of Hugging Face models: mapping of names, reading and writing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError, first_line
from seqgen.files import require_regular
from seqgen.models.seq2seq.arrays import Seq2SeqTransformerArrays
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.models.transformer.arrays import TransformerArrays
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.plugins.exchange.hf_config import BIASED, GEMMAS, read_table

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
KINDS = {"F64", "F32", "F16", "BF16"}
BIAS = "final_logits_bias"
# Tensors that files store without the prefix of their family, such as "model.".
UNPREFIXED = ("lm_head.", BIAS)
# Rows of BART's table of positions that no position uses.
OFFSET = 2
# Tensors that some versions stored, and that follow from the configuration.
COMPUTED = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")


@dataclass(frozen=True)
class TensorPart:
    """A seqgen tensor, and the Hugging Face tensors whose rows it concatenates.

    Attributes:
        ours: its name.
        theirs: their names, each with its shape.
        transposed: whether theirs lie the other way round, as GPT-2's do.
        skipped: rows at the top of theirs that ours does not have; they are written as zeros.
        stream: the axes of ours along the residual stream, if the numbers of that lie there in
            the order of `halves`.
        row: theirs has a first axis of length one.
        plus: what ours is larger by, as the gains of Gemma's normalisations are.
    """

    ours: str
    theirs: tuple[tuple[str, tuple[int, ...]], ...]
    transposed: bool = False
    skipped: int = 0
    stream: tuple[int, ...] = ()
    row: bool = False
    plus: float = 0.0


def halves(size: int) -> list[int]:
    """Compute the index in Marian's order (sines, then cosines) of each sinusoid dimension.

    Sinusoids alternate here between sine and cosine, as in Vaswani et al. (2017). Marian has all
    sines before all cosines. The stream has no order of its own, so that this is the same model.
    """
    return [place // 2 + (size + 1) // 2 * (place % 2) for place in range(size)]


# What ours are called in each kind of file. The names inside a block come after the block's own;
# "," and "[qkv]" stand for several that lie in one of ours, and {} for encoder or decoder.
NAMES = """
ours                      gpt2             llama                      gemma                      pairs
embedding                 transformer.wte  model.embed_tokens         model.embed_tokens         model.{}.embed_tokens
inputs                    -                -                          -                          model.{}.embed_tokens
position_embedding        transformer.wpe  -                          -                          model.{}.embed_positions
embedding_norm            -                -                          -                          model.{}.layernorm_embedding
blocks                    transformer.h    model.layers               model.layers               model.{}.layers
attention_norm            ln_1             input_layernorm            input_layernorm            self_attn_layer_norm
attention.query_key_value attn.c_attn      self_attn.[qkv]_proj       self_attn.[qkv]_proj       self_attn.[qkv]_proj
attention.output          attn.c_proj      self_attn.o_proj           self_attn.o_proj           self_attn.out_proj
attention.query_norm      -                self_attn.q_norm           self_attn.q_norm           -
attention.key_norm        -                self_attn.k_norm           self_attn.k_norm           -
attention_output_norm     -                -                          post_attention_layernorm   -
cross_norm                -                -                          -                          encoder_attn_layer_norm
cross.query               -                -                          -                          encoder_attn.q_proj
cross.key_value           -                -                          -                          encoder_attn.[kv]_proj
cross.output              -                -                          -                          encoder_attn.out_proj
feed_forward_norm         ln_2             post_attention_layernorm   pre_feedforward_layernorm  final_layer_norm
feed_forward.inner        mlp.c_fc         mlp.gate_proj,mlp.up_proj  mlp.gate_proj,mlp.up_proj  fc1
feed_forward.output       mlp.c_proj       mlp.down_proj              mlp.down_proj              fc2
feed_forward_output_norm  -                -                          post_feedforward_layernorm -
final_norm                transformer.ln_f model.norm                 model.norm                 model.{}.layer_norm
head                      lm_head          lm_head                    lm_head                    lm_head
"""  # noqa: E501
# A tensor of ours: its side, the number of its block, its name, and what it is there.
OURS = re.compile(r"(?:(encoder)\.)?(?:blocks\.(\d+)\.)?(.+)\.(weight|bias)")
Names = Mapping[str, Sequence[str]]


def columns_of(table: str) -> dict[str, Names]:
    """Parse a table like `NAMES`: by column title, the tensor names by seqgen's names."""
    titles, *rows = (line.split() for line in table.strip().splitlines())
    return {
        title: {row[0]: _listed(row[i]) for row in rows}
        for i, title in enumerate(titles[1:], start=1)
    }


def _listed(cell: str) -> list[str]:
    letters = re.search(r"\[(\w+)\]", cell)
    return [cell.replace(letters[0], x) for x in letters[1]] if letters else cell.split(",")


COLUMNS = columns_of(NAMES)
# Phi-3 has one matrix for queries, keys and values, and one for gate and up, as ours are.
COLUMNS["phi3"] = COLUMNS["llama"] | {
    "attention.query_key_value": ["self_attn.qkv_proj"],
    "feed_forward.inner": ["mlp.gate_up_proj"],
}
COLUMNS |= dict.fromkeys(("olmo2", *GEMMAS), COLUMNS["gemma"])


def names_of(family: str) -> Names:
    """Choose the tensor names of a decoder by its `model_type`."""
    return COLUMNS.get(family, COLUMNS["llama"])


def parts_of(
    names: Names,
    config: TransformerConfig,
    biased: Collection[str] = BIASED,
    norms_plus: float = 0.0,
) -> Iterator[TensorPart]:
    """Yield the tensors of a decoder with their Hugging Face names, in order.

    Args:
        names: what ours are called.
        config: of our model.
        biased: which parts of a model with biases have them there; ours are zeros elsewhere.
        norms_plus: what our gains of normalisations are larger by.
    """
    pair = isinstance(config, Seq2SeqTransformerConfig)
    shapes = (Seq2SeqTransformerArrays if pair else TransformerArrays).shapes(config)
    shared = {"head.weight": config.tie_weights}
    shared["encoder.inputs.weight"] = pair and config.shares_embeddings
    for ours, shape in shapes.items():
        side, layer, inner, kind = OURS.fullmatch(ours).groups()
        part = "mlp" if inner.startswith("feed_forward") else "attention"
        there = kind == "weight" or part in biased
        there |= config.qkv_bias and inner == "attention.query_key_value"
        if ours == "head.bias":
            yield TensorPart(ours, ((BIAS, (1, *shape)),), row=True)
        elif there and not shared.get(ours):
            before = "" if layer is None else f"{names['blocks'][0]}.{layer}."
            theirs = [(before + name).format(side or "decoder") for name in names[inner]]
            part = _part(ours, [f"{name}.{kind}" for name in theirs], shape, names, config)
            is_gain = inner.endswith("norm") and kind == "weight"
            yield replace(part, plus=norms_plus) if is_gain else part


def _part(
    ours: str, theirs: list[str], shape: tuple[int, ...], names: Names, config: TransformerConfig
) -> TensorPart:
    """Build a `TensorPart` from a tensor's name, its Hugging Face names and its shape."""
    matrix, learned = len(shape) == 2, "position_embedding" in ours
    count, pair = len(theirs), isinstance(config, Seq2SeqTransformerConfig)
    rows = config.qkv_widths if count == 3 else [shape[0] // count] * count
    skipped = OFFSET if pair and learned else 0
    shapes = [(size + skipped, *shape[1:]) for size in rows]
    transposed = matrix and "blocks" in ours and names is COLUMNS["gpt2"]
    shapes = [x[::-1] if transposed else x for x in shapes]
    axes = (0,) if re.search(r"(norm|output)\.\w+$", ours) else (1,) if matrix else ()
    stream = axes if pair and config.positions == "sinusoidal" else ()
    named = tuple(zip(theirs, shapes, strict=True))
    return TensorPart(ours, named, transposed, skipped, stream)


def shards_of(folder: Path) -> list[Path]:
    """List the weight files of a folder.

    Raises:
        SeqgenError: there are none, or only pickled ones; or the index names a file elsewhere.
    """
    if (folder / INDEX).is_file():
        named = read_table(folder / INDEX).get("weight_map")
        if not isinstance(named, dict) or not named:
            raise SeqgenError(f"{folder / INDEX} has no weight_map of tensors and files")
        for name in named.values():
            plain = isinstance(name, str) and name.endswith(".safetensors")
            if not plain or any(c in name for c in "/\\:\0"):
                shown = str(name)[:60]
                raise SeqgenError(f"{folder / INDEX}: weight_map has {shown!r}, no file beside it")
        return [folder / name for name in sorted(set(named.values()))]
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if pickled := next(iter(sorted(folder.glob("*.bin"))), None):
        raise SeqgenError(
            f"{folder} has its weights as a pickle ({pickled.name}), which seqgen never loads; "
            "convert it: AutoModelForCausalLM (or AutoModelForSeq2SeqLM) "
            ".from_pretrained(folder).save_pretrained(folder) in transformers"
        )
    raise SeqgenError(f"{folder} has no {WEIGHTS}")


class Tensors:
    """Memory-mapped weight files, whose tensors are read one at a time.

    Raises:
        SeqgenError: a file is missing or damaged, or a name stands in two of them.
    """

    def __init__(self, paths: list[Path], held: contextlib.ExitStack) -> None:
        from safetensors import SafetensorError, safe_open

        # By name the file, opened too, and what the file itself calls the tensor.
        self.files: dict[str, tuple[Path, Any, str]] = {}
        for path in paths:
            try:
                file = held.enter_context(safe_open(require_regular(path), "pt"))
                names = list(file.keys())
            except (OSError, SafetensorError) as error:
                reason = first_line(error)
                raise SeqgenError(f"{path} is missing or damaged: {reason}") from None
            for name in names:
                if name in self.files:
                    raise SeqgenError(f"{path}: the tensor {name[:80]!r} is in two files")
                self.files[name] = path, file, name

    def rename(self, prefix: str) -> None:
        """Add a prefix to every tensor name if all of them lack it."""
        if self.files and not any(name.startswith(prefix) for name in self.files):
            self.files = {
                name if name.startswith(UNPREFIXED) else prefix + name: place
                for name, place in self.files.items()
            }

    def rows_of(self, name: str) -> int:
        """Return the length of a tensor's first axis; 0 if there is no such tensor."""
        if name not in self.files:
            return 0
        _, file, stored = self.files[name]
        return next(iter(file.get_slice(stored).get_shape()), 0)

    def check(self, parts: list[TensorPart], silent: Collection[str]) -> None:
        """Check the names, shapes and types of all tensors without reading them.

        Args:
            parts: of the model.
            silent: the names of tensors that are allowed and not read.

        Raises:
            SeqgenError: one is missing, or has another shape or type, or is not understood.
        """
        slices = {name: file.get_slice(as_) for name, (_, file, as_) in self.files.items()}
        shapes = {name: tuple(tensor.get_shape()) for name, tensor in slices.items()}
        computed = (name for name in self.files if name.endswith(COMPUTED))
        check_tensors(parts, shapes, {*silent, *computed}, self._error)
        for part in parts:
            for name, _ in part.theirs:
                if slices[name].get_dtype() not in KINDS:
                    kind = slices[name].get_dtype()
                    raise self._error(name, f"the tensor {name} is of type {kind}")

    def _error(self, name: str, message: str) -> SeqgenError:
        places = self.files.get(name) or next(iter(self.files.values()), ("the folder",))
        return SeqgenError(f"{places[0]}: {message}")

    def read(self, part: TensorPart) -> Tensor:
        """Read one of seqgen's tensors, in the type of the file but for float64."""
        import torch

        places = [self.files[name] for name, _ in part.theirs]
        tensors = [file.get_tensor(stored) for _, file, stored in places]
        tensors = [x.T if part.transposed else x[part.skipped :] for x in tensors]
        whole = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        whole = whole[0] if part.row else whole
        for axis in part.stream:
            whole = whole.index_select(axis, torch.tensor(halves(whole.shape[axis])))
        whole = whole.float() + part.plus if part.plus else whole
        return (whole.float() if whole.dtype == torch.float64 else whole).contiguous()


def check_tensors(
    parts: Iterable[TensorPart],
    stored: Mapping[str, tuple[int, ...]],
    silent: Collection[str],
    error: Callable[[str, str], SeqgenError],
) -> None:
    """Check that a file has exactly the tensors that a model needs, with the right shapes.

    Args:
        parts: of the model.
        stored: the shape of each tensor of the file.
        silent: the names of tensors that are allowed and not read.
        error: makes an exception of a tensor's name and a message.

    Raises:
        SeqgenError: one is missing, or has another shape, or is not understood.
    """
    shapes = {name: shape for part in parts for name, shape in part.theirs}
    for name, shape in shapes.items():
        if name not in stored:
            raise error(name, f"there is no tensor {name}")
        if stored[name] != shape:
            of = f"of shape {list(stored[name])}, and the model's settings say {list(shape)}"
            raise error(name, f"the tensor {name} is {of}")
    strange = stored.keys() - shapes.keys() - set(silent)
    if strange:
        name = min(strange)
        raise error(name, f"seqgen does not understand the tensor {name[:80]!r}")


def theirs_of(parts: list[TensorPart], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert a model's tensors to Hugging Face's names and layout."""
    import torch

    named: dict[str, Tensor] = {}
    for part in parts:
        whole = tensors[part.ours] - part.plus if part.plus else tensors[part.ours]
        for axis in part.stream:
            order = whole.new_tensor(halves(whole.shape[axis]), dtype=int)
            whole = whole.index_select(axis, order.argsort())
        if part.skipped:
            whole = torch.cat([whole.new_zeros(part.skipped, *whole.shape[1:]), whole])
        whole = whole[None] if part.row else whole
        rows = [shape[-1] if part.transposed else shape[0] for _, shape in part.theirs]
        pieces = whole.split(rows)
        for (name, _), piece in zip(part.theirs, pieces, strict=True):
            named[name] = (piece.T if part.transposed else piece).contiguous()
    return named

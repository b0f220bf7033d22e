"""The tensors of Hugging Face models: what ours are called there, read from files and written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError, first_line
from seqgen.files import parse_json, regular
from seqgen.formats.hf_config import BIASED
from seqgen.models.transformer.config import TransformerConfig

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
# No table of a model, its tokenizer apart, comes near this.
LARGEST_TABLE = 1 << 26
KINDS = {"F64", "F32", "F16", "BF16"}
# What no file has a prefix before.
OF_THE_HEAD = ("lm_head.", "final_logits_bias")
# Tensors that some versions stored, and that follow from the configuration.
COMPUTED = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")


@dataclass(frozen=True)
class TensorMap:
    """One tensor of ours, and the tensors of theirs that it is made of, one under the other.

    Attributes:
        ours: its name.
        theirs: their names, each with its shape.
        transposed: whether theirs lie the other way round, as GPT-2's do.
        skipped: rows at the top of theirs that ours does not have; they are written as zeros.
        stream: the axes of ours along the residual stream, if the numbers of that lie there in
            the order of `halves`.
        row: theirs has a first axis of length one.
    """

    ours: str
    theirs: tuple[tuple[str, tuple[int, ...]], ...]
    transposed: bool = False
    skipped: int = 0
    stream: tuple[int, ...] = ()
    row: bool = False


def halves(size: int) -> list[int]:
    """Return where each of ours lies in a vector whose even places come first, then the odd ones.

    Sinusoids alternate here between sine and cosine, as in Vaswani et al. (2017). Marian has all
    sines before all cosines. The stream has no order of its own, so that this is the same model.
    """
    return [place // 2 + (size + 1) // 2 * (place % 2) for place in range(size)]


def parts_of(
    family: str, config: TransformerConfig, biased: Collection[str] = BIASED
) -> Iterator[TensorMap]:
    """Yield the tensors of a model, in order.

    Args:
        family: "gpt2", or any other of `hf_config.READERS`.
        config: of our transformer.
        biased: which parts of a model with biases have them there; ours are zeros elsewhere.
    """
    yield from _gpt2(config) if family == "gpt2" else _llama(config, biased)


def _gpt2(config: TransformerConfig) -> Iterator[TensorMap]:
    size, inner = config.hidden_size, config.feed_forward_size

    def norm(ours: str, theirs: str) -> Iterator[TensorMap]:
        for kind in ("weight", "bias"):
            yield TensorMap(f"{ours}.{kind}", ((f"{theirs}.{kind}", (size,)),))

    def linear(ours: str, theirs: str, inputs: int, outputs: int) -> Iterator[TensorMap]:
        yield TensorMap(
            f"{ours}.weight", ((f"{theirs}.weight", (inputs, outputs)),), transposed=True
        )
        yield TensorMap(f"{ours}.bias", ((f"{theirs}.bias", (outputs,)),))

    yield TensorMap("embedding.weight", (("transformer.wte.weight", (config.vocab_size, size)),))
    learned = ("transformer.wpe.weight", (config.window, size))
    yield TensorMap("position_embedding.weight", (learned,))
    for layer in range(config.num_layers):
        mine, block = f"blocks.{layer}", f"transformer.h.{layer}"
        yield from norm(f"{mine}.attention_norm", f"{block}.ln_1")
        attention = f"{mine}.attention"
        yield from linear(f"{attention}.query_key_value", f"{block}.attn.c_attn", size, 3 * size)
        yield from linear(f"{attention}.output", f"{block}.attn.c_proj", size, size)
        yield from norm(f"{mine}.feed_forward_norm", f"{block}.ln_2")
        yield from linear(f"{mine}.feed_forward.inner", f"{block}.mlp.c_fc", size, inner)
        yield from linear(f"{mine}.feed_forward.output", f"{block}.mlp.c_proj", inner, size)
    yield from norm("final_norm", "transformer.ln_f")
    if not config.tie_weights:
        yield TensorMap("head.weight", (("lm_head.weight", (config.vocab_size, size)),))


def _llama(config: TransformerConfig, biased: Collection[str]) -> Iterator[TensorMap]:
    size, inner, width = config.hidden_size, config.feed_forward_size, config.head_width
    queries, keys = config.num_heads * width, config.kv_heads * width
    attention, mlp = (config.bias and part in biased for part in ("attention", "mlp"))

    def linear(ours: str, inputs: int, bias: bool, **outputs: int) -> Iterator[TensorMap]:
        theirs = outputs.items()
        yield TensorMap(
            f"{ours}.weight", tuple((f"{n}.weight", (out, inputs)) for n, out in theirs)
        )
        if bias:
            yield TensorMap(f"{ours}.bias", tuple((f"{n}.bias", (out,)) for n, out in theirs))

    yield TensorMap("embedding.weight", (("model.embed_tokens.weight", (config.vocab_size, size)),))
    for layer in range(config.num_layers):
        mine, block = f"blocks.{layer}", f"model.layers.{layer}"
        attn, feed_forward = f"{block}.self_attn", f"{block}.mlp"
        for ours, theirs in (("attention", "input"), ("feed_forward", "post_attention")):
            name = f"{block}.{theirs}_layernorm.weight"
            yield TensorMap(f"{mine}.{ours}_norm.weight", ((name, (size,)),))
        ours = f"{mine}.attention"
        maps = {f"{attn}.q_proj": queries, f"{attn}.k_proj": keys, f"{attn}.v_proj": keys}
        yield from linear(f"{ours}.query_key_value", size, attention or config.qkv_bias, **maps)
        yield from linear(f"{ours}.output", queries, attention, **{f"{attn}.o_proj": size})
        if config.qk_norm:
            yield TensorMap(f"{ours}.query_norm.weight", ((f"{attn}.q_norm.weight", (width,)),))
            yield TensorMap(f"{ours}.key_norm.weight", ((f"{attn}.k_norm.weight", (width,)),))
        ours = f"{mine}.feed_forward"
        maps = dict.fromkeys((f"{feed_forward}.gate_proj", f"{feed_forward}.up_proj"), inner)
        yield from linear(f"{ours}.inner", size, mlp, **maps)
        yield from linear(f"{ours}.output", inner, mlp, **{f"{feed_forward}.down_proj": size})
    yield TensorMap("final_norm.weight", (("model.norm.weight", (size,)),))
    if not config.tie_weights:
        yield TensorMap("head.weight", (("lm_head.weight", (config.vocab_size, size)),))


def read_table(path: Path) -> Any:
    """Return what a JSON file says.

    Raises:
        SeqgenError: it is missing, too large, or no JSON.
    """
    try:
        if path.stat().st_size > LARGEST_TABLE:
            raise SeqgenError(f"{path} is larger than any such file: {path.stat().st_size:,} bytes")
        return parse_json(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SeqgenError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise SeqgenError(f"{path} is not JSON: {first_line(error)}") from None


def shards_of(folder: Path) -> list[Path]:
    """Return the files of tensors of a folder.

    Raises:
        SeqgenError: there are none, or only pickled ones; or the index names a file elsewhere.
    """
    if (folder / INDEX).is_file():
        table = read_table(folder / INDEX)
        named = table.get("weight_map") if isinstance(table, dict) else None
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
    """The tensors of files that are mapped, and read one at a time.

    Raises:
        SeqgenError: a file is missing or damaged, or a name stands in two of them.
    """

    def __init__(self, paths: list[Path], held: contextlib.ExitStack) -> None:
        from safetensors import SafetensorError, safe_open

        # By name the file, opened too, and what the file itself calls the tensor.
        self.files: dict[str, tuple[Path, Any, str]] = {}
        for path in paths:
            try:
                file = held.enter_context(safe_open(regular(path), "pt"))
                names = list(file.keys())
            except (OSError, SafetensorError) as error:
                reason = first_line(error)
                raise SeqgenError(f"{path} is missing or damaged: {reason}") from None
            for name in names:
                if name in self.files:
                    raise SeqgenError(f"{path}: the tensor {name[:80]!r} is in two files")
                self.files[name] = path, file, name

    def rename(self, prefix: str) -> None:
        """Put a prefix before every name, where files leave it out for all."""
        if self.files and not any(name.startswith(prefix) for name in self.files):
            self.files = {
                name if name.startswith(OF_THE_HEAD) else prefix + name: place
                for name, place in self.files.items()
            }

    def rows_of(self, name: str) -> int:
        """Return the length of a tensor's first axis; 0 if there is no such tensor."""
        if name not in self.files:
            return 0
        _, file, stored = self.files[name]
        return next(iter(file.get_slice(stored).get_shape()), 0)

    def check(self, parts: list[TensorMap], silent: Collection[str]) -> None:
        """Compare names, shapes and types with those that a model needs; no tensor is read.

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

    def read(self, part: TensorMap) -> Tensor:
        """Return a tensor of ours, in float32."""
        import torch

        places = [self.files[name] for name, _ in part.theirs]
        tensors = [file.get_tensor(stored) for _, file, stored in places]
        tensors = [x.T if part.transposed else x[part.skipped :] for x in tensors]
        whole = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        whole = whole[0] if part.row else whole
        for axis in part.stream:
            whole = whole.index_select(axis, torch.tensor(halves(whole.shape[axis])))
        return whole.to(torch.float32).contiguous()


def check_tensors(
    parts: Iterable[TensorMap],
    stored: Mapping[str, tuple[int, ...]],
    silent: Collection[str],
    error: Callable[[str, str], SeqgenError],
) -> None:
    """Compare the names and shapes of a file's tensors with those that a model needs.

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


def theirs_of(parts: list[TensorMap], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a model of ours under the names they have there."""
    import torch

    named: dict[str, Tensor] = {}
    for part in parts:
        whole = tensors[part.ours]
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

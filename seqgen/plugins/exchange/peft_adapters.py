"""Import and export of low-rank adapters (LoRA) as folders of the library peft.

A folder has the settings in `adapter_config.json`, and the factors of each update in
`adapter_model.safetensors`, by the name that the module has in transformers:
`base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`, (r, inputs), and `lora_B`,
(outputs, r). Modules may have ranks and scales of their own, and any may have no adapter.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqgen.errors import SeqgenError
from seqgen.files import json_bytes
from seqgen.models.low_rank import A, B
from seqgen.models.seq2seq.settings import Seq2SeqTransformerConfig
from seqgen.models.transformer.settings import TransformerConfig
from seqgen.plugins.exchange import hf_config, hf_pairs
from seqgen.plugins.exchange.formats import ADAPTERS
from seqgen.plugins.exchange.hf_config import Fields, read_table
from seqgen.plugins.exchange.hf_weights import TensorPart, Tensors, names_of, parts_of, theirs_of
from seqgen.store.formats import Adapters, ModelToExport

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS, PICKLED = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
# What says nothing about logits: how adapters were trained, and what the names of tensors say too.
SILENT = frozenset(
    {
        *("auto_mapping", "base_model_name_or_path", "fan_in_fan_out", "inference_mode"),
        *("lora_dropout", "megatron_config", "megatron_core", "peft_version", "revision"),
        *("corda_config", "eva_config", "loftq_config", "qalora_group_size", "runtime_config"),
        *("exclude_modules", "layers_pattern", "layers_to_transform", "rank_pattern"),
        *("target_modules", "task_type", "ensure_weight_tying"),
    }
)
# Ways to begin training that leave the base as it is. Others, such as pissa, change it.
BEGINNINGS = (True, False, "gaussian", "eva", "orthogonal")
MOST_RANK, MOST_ALPHA = 1 << 20, 1e6


def base_of(folder: Path) -> str:
    """Read the path or name of the base model from a folder of adapters; "" if unknown.

    Raises:
        SeqgenError: its table is damaged.
    """
    named = read_table(folder / ADAPTERS).get("base_model_name_or_path")
    return named if isinstance(named, str) else ""


def read_adapters(folder: Path, config: TransformerConfig, name: str) -> Adapters:
    """Read the low-rank adapters of a peft folder.

    Args:
        folder: see above.
        config: of the model that they are of.
        name: what messages call it.

    Raises:
        SeqgenError: they are damaged, not understood, or do not fit the model.
    """
    import torch

    fields = Fields(read_table(folder / ADAPTERS), str(folder / ADAPTERS), SILENT)
    fields.only("peft_type", "LORA")
    fields.only("bias", "none")
    if fields.take("init_lora_weights", True) not in BEGINNINGS:
        raise fields.wrong("init_lora_weights")
    rank, alpha = fields.number("r", 8), fields.real("lora_alpha", 8.0)
    root, alphas = fields.flag("use_rslora", False), fields.take("alpha_pattern", {})
    fields.finish()
    if rank > MOST_RANK:
        raise fields.wrong("r")
    if not _is_alpha(alpha):
        raise fields.wrong("lora_alpha")
    # Patterns are regular expressions; those that peft writes are names.
    names = isinstance(alphas, dict) and all(re.fullmatch(r"[\w.]+", key) for key in alphas)
    if not names or not all(map(_is_alpha, alphas.values())):
        raise fields.wrong("alpha_pattern")
    if not (folder / WEIGHTS).is_file() and (folder / PICKLED).is_file():
        raise SeqgenError(f"{folder / PICKLED} is a pickle, which seqgen never loads: save it anew")
    with contextlib.ExitStack() as held:
        files = Tensors([folder / WEIGHTS], held)
        parts: list[TensorPart] = []
        tensors: dict[str, Tensor] = {}
        scales: dict[str, float] = {}
        for matrix in _matrices_of(config, name)[1]:
            modules = [weight.removesuffix(".weight") for weight, _ in matrix.theirs]
            ranks = [files.rows_of(f"{PREFIX}{module}.lora_A.weight") for module in modules]
            for number, (module, r) in enumerate(zip(modules, ranks, strict=True)):
                pair = _pair(matrix, number, r)
                if r:
                    parts += pair
                    own = next((x for key, x in alphas.items() if _means(key, module)), alpha)
                    scales[pair[1].ours] = own / (r**0.5 if root else r) * rank / alpha
                elif any(ranks):  # this map of the matrix has no update
                    tensors |= {part.ours: torch.zeros(part.theirs[0][1]) for part in pair}
        files.check(parts, ())
        if not parts:
            raise SeqgenError(f"{folder / WEIGHTS} has no adapters")
        tensors |= {
            part.ours: files.read(part).float() * scales.get(part.ours, 1.0) for part in parts
        }
    return Adapters(tensors, rank, float(alpha))


def _is_alpha(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= MOST_ALPHA


def _means(key: str, module: str) -> bool:
    """Check whether a pattern's key is a module's name or its last parts."""
    return f".{module}".endswith(f".{key}")


def _matrices_of(config: TransformerConfig, name: str) -> tuple[str, list[TensorPart]]:
    """Return a model's Hugging Face family, and the matrices that can have adapters.

    Raises:
        SeqgenError: no family has such a model; see `hf_config.write`.
    """
    if isinstance(config, Seq2SeqTransformerConfig):
        family, parts = hf_pairs.write(config, name)["model_type"], hf_pairs.parts_of(config)
    else:
        family, _ = hf_config.write(config, name)
        parts = parts_of(names_of(family), config)
    tables = ("embedding.weight", "encoder.inputs.weight")
    return family, [
        part for part in parts if len(part.theirs[0][1]) == 2 and not part.ours.endswith(tables)
    ]


def _pair(matrix: TensorPart, number: int, rank: int) -> tuple[TensorPart, TensorPart]:
    """Build the `TensorPart`s of A and B for one of the modules that form a matrix.

    Args:
        matrix: ours.
        number: of the module.
        rank: r.
    """
    weight, shape = matrix.theirs[number]
    rows, columns = shape[::-1] if matrix.transposed else shape
    module = PREFIX + weight.removesuffix(".weight")

    def half(part: str, theirs: str, size: tuple[int, int], axis: int) -> TensorPart:
        stream = (axis,) if axis in matrix.stream else ()
        named = ((f"{module}.{theirs}.weight", size),)
        return TensorPart(f"{matrix.ours}.{part}.{number}", named, stream=stream)

    return half(A, "lora_A", (rank, columns), 1), half(B, "lora_B", (rows, rank), 0)


def files_of(exported: ModelToExport) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a peft adapter folder; see `store.formats.FolderExporter`."""
    from safetensors.torch import save

    adapters, name = exported.adapters, exported.name
    if adapters is None:
        raise SeqgenError(f"{name} holds a whole model: --format peft is for low-rank adapters")
    family, matrices = _matrices_of(exported.model.config, name)
    parts: list[TensorPart] = []
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    for matrix in matrices:
        pairs, begin = list(_pairs_of(adapters.tensors, matrix.ours)), 0
        for number, (weight, shape) in enumerate(matrix.theirs):
            rows = shape[1] if matrix.transposed else shape[0]
            low, high = _of_rows(pairs, begin, begin + rows)
            begin, r = begin + rows, len(low)
            ranks[weight.removesuffix(".weight")] = r
            if r:
                pair = _pair(matrix, number, r)
                parts += pair
                tensors |= {pair[0].ours: low, pair[1].ours: high}
    yield WEIGHTS, save(theirs_of(parts, tensors), {"format": "pt"})
    others = {module: r for module, r in ranks.items() if r not in (0, adapters.rank)}
    task = "SEQ_2_SEQ_LM" if family in hf_pairs.FAMILIES else "CAUSAL_LM"
    table = {
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": exported.base,
        "r": adapters.rank,
        "lora_alpha": _plain(adapters.alpha),
        "rank_pattern": others,
        "alpha_pattern": {m: _plain(adapters.alpha * r / adapters.rank) for m, r in others.items()},
        "target_modules": _targets(ranks),
        "fan_in_fan_out": family == "gpt2",
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": True,
    }
    yield ADAPTERS, json_bytes(table)


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number


def _pairs_of(tensors: Mapping[str, Tensor], matrix: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the adapter pairs A, B of a matrix, one per module that it consists of."""
    for number in itertools.count():
        if f"{matrix}.{A}.{number}" not in tensors:
            return
        yield tensors[f"{matrix}.{A}.{number}"], tensors[f"{matrix}.{B}.{number}"]


def _of_rows(pairs: Sequence[tuple[Tensor, Tensor]], begin: int, end: int) -> tuple[Tensor, Tensor]:
    """Extract A and B for a range of a matrix's rows, which may span several modules."""
    import torch

    ends = list(itertools.accumulate(len(b) for _, b in pairs))
    within = [i for i, (_, b) in enumerate(pairs) if ends[i] > begin and ends[i] - len(b) < end]
    if not within:
        return torch.zeros(0, 0), torch.zeros(0, 0)
    first = ends[within[0]] - len(pairs[within[0]][1])
    high = torch.block_diag(*(pairs[i][1] for i in within))[begin - first : end - first]
    return torch.cat([pairs[i][0] for i in within]), high.contiguous()


def _targets(ranks: Mapping[str, int]) -> list[str]:
    """List the modules with adapters, by their last name if all modules of that name have one."""
    lacking = {module.rpartition(".")[2] for module, r in ranks.items() if not r}
    short = {module: module.rpartition(".")[2] for module, r in ranks.items() if r}
    return sorted({module if last in lacking else last for module, last in short.items()})

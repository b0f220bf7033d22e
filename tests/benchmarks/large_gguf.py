"""A GGUF file of the shape of a model of 7 billion parameters, with random weights in Q4_0.

    python -m tests.benchmarks.large_gguf SMALL.gguf LARGE.gguf

It has the tokenizer of a small file of the family `llama`, and the shape of Llama 2 7B (32 blocks
of 4,096 units, 32 heads, 11,008 units in between). What it writes means nothing: it is for the
time and the memory that such a file takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

BLOCKS, WIDTH, HEADS, BETWEEN = 32, 4096, 32, 11008
# A block of Q4_0: a scale in float16 and 32 numbers of 4 bits.
VALUES, BYTES = 32, 18
COPIED = ("tokenizer.", "general.architecture", "general.quantization_version")


def random_blocks(draw: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Draw a matrix in Q4_0, uint8 (rows, columns / 32 x 18), of standard deviation about 0.02."""
    raw = draw.integers(0, 256, (rows, columns // VALUES, BYTES), dtype=np.uint8)
    raw[..., :2] = np.frombuffer(np.float16(0.004).tobytes(), np.uint8)
    return raw.reshape(rows, -1)


def write(small: Path, large: Path) -> None:
    """Write the file with the tokenizer of a small one."""
    import gguf

    reader = gguf.GGUFReader(small)
    writer = gguf.GGUFWriter(large, "llama")
    for name, field in reader.fields.items():
        if name.startswith(COPIED[:1]) or name in COPIED[2:]:
            kind, content = field.types[0], field.contents()
            inner = field.types[1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, content, kind, inner)
    vocab_size = len(reader.fields["tokenizer.ggml.tokens"].data)
    writer.add_block_count(BLOCKS)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(BETWEEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab_size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    shapes = {"token_embd": (vocab_size, WIDTH), "output": (vocab_size, WIDTH)}
    norms = ["output_norm"]
    for block in range(BLOCKS):
        norms += [f"blk.{block}.attn_norm", f"blk.{block}.ffn_norm"]
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{block}.{part}"] = (WIDTH, WIDTH)
        for part in ("ffn_gate", "ffn_up"):
            shapes[f"blk.{block}.{part}"] = (BETWEEN, WIDTH)
        shapes[f"blk.{block}.ffn_down"] = (WIDTH, BETWEEN)
    quantized = gguf.GGMLQuantizationType.Q4_0
    for name, (rows, columns) in shapes.items():
        size = rows * columns // VALUES * BYTES
        shape = (rows, columns // VALUES * BYTES)
        writer.add_tensor_info(f"{name}.weight", shape, np.dtype(np.uint8), size, quantized)
    for name in norms:
        size = 4 * WIDTH
        writer.add_tensor_info(f"{name}.weight", (WIDTH,), np.dtype(np.float32), size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    draw = np.random.default_rng(1)
    for rows, columns in shapes.values():
        writer.write_tensor_data(random_blocks(draw, rows, columns))
    for _ in norms:
        writer.write_tensor_data(np.ones(WIDTH, np.float32))
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))

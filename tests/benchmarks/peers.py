"""The libraries that the benchmark of decoding measures beside ours: transformers and others."""

from __future__ import annotations

import json
import socket
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seqgen.models.transformer.model import Transformer
from seqgen.store.formats import ModelToExport
from seqgen.text.framing import Framing
from seqgen.text.sources import TokenSources
from seqgen.text.tokenizers.char import CharTokenizer

from .shapes import BEAMS, BOS, EOS, PAD, PAIR_VOCAB, UNK, WINDOW, Run, Shape, Texts, gpt2


def transformers_gpt2(
    shape: Shape,
    vocab_size: int,
    texts: Texts,
    precision: str,
    device: str = "cpu",
    **options: Any,
) -> Run:
    """Return what writes texts with the transformers package, in float32 or bf16.

    Args:
        shape: of the model.
        vocab_size: of the model.
        texts: what it writes.
        precision: "float32" or "bf16".
        device: where it computes.
        options: further options of its `generate`, such as `cache_implementation`.

    Raises:
        ImportError: transformers is not installed.
    """
    model = _transformers_model(shape, vocab_size)
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    model = model.to(device)
    start = torch.tensor(texts.firsts, device=device)[:, None]
    searches = {"do_sample": False, "num_beams": texts.beams}
    draws = {"do_sample": True, "top_k": 0}
    options |= {"max_new_tokens": texts.tokens, **(draws if texts.beams == 1 else searches)}

    def run() -> int:
        return model.generate(start, **options)[:, 1:].numel()

    return run


def ctranslate2_gpt2(shape: Shape, vocab_size: int, texts: Texts, precision: str) -> Run:
    """Return what writes texts with CTranslate2 (Klein et al. 2020), in float32 or int8.

    Raises:
        ImportError: ctranslate2 or transformers, by which it reads a model, is not installed.
    """
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from transformers.utils import logging

    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        read, written = Path(folder, "read"), Path(folder, "written")
        _transformers_model(shape, vocab_size).save_pretrained(read)
        _save_tokenizer(read, vocab_size)
        TransformersConverter(str(read)).convert(str(written), quantization=precision)
        model = ctranslate2.Generator(
            str(written), compute_type=precision, intra_threads=torch.get_num_threads()
        )
    start = [[f"t{first}"] for first in texts.firsts]
    how = {"beam_size": texts.beams, "sampling_topk": 0 if texts.beams == 1 else 1}
    how |= {"max_length": texts.tokens, "min_length": texts.tokens}

    def run() -> int:
        results = model.generate_batch(start, include_prompt_in_result=False, **how)
        return sum(len(result.sequences_ids[0]) for result in results)

    return run


def llama_cpp_gpt2(shape: Shape, vocab_size: int, texts: Texts, precision: str) -> Run:
    """Return what writes one text with llama.cpp's server, in float32, Q8_0 or Q4_0.

    Raises:
        ImportError: xllamacpp, gguf or the plugin exchange is not installed.
    """
    import gguf  # noqa: F401
    import xllamacpp

    from seqgen.plugins.exchange.gguf_models import write_model

    tokenizer = CharTokenizer(shape.alphabet)
    framing = Framing.of(tokenizer, "stream")
    number_type = {"int8": "q8_0", "int4": "q4_0"}.get(precision, "f32")
    model = Transformer(gpt2(shape, vocab_size))
    exported = ModelToExport(model, tokenizer, "stream", framing, "m", number_type=number_type)
    (first,) = texts.firsts
    asked = {
        "prompt": [first],
        "cache_prompt": False,
        "samplers": ["temperature"],
        "temperature": 1.0,
    }
    asked |= {"n_predict": texts.tokens, "ignore_eos": True}
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        path = Path(folder, "m.gguf")
        path.write_bytes(b"".join(write_model(exported)))
        free.bind(("127.0.0.1", 0))
        settings = xllamacpp.CommonParams()
        settings.model.path, settings.port = str(path), free.getsockname()[1]
        settings.n_ctx, settings.cpuparams.n_threads = WINDOW, torch.get_num_threads()
        free.close()
        server = xllamacpp.Server(settings)

    def run() -> int:
        kind = {"Content-Type": "application/json"}
        place = f"{server.listening_address}/completion"  # which lives as long as this
        request = urllib.request.Request(place, json.dumps(asked).encode(), kind)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens_predicted"]

    return run


def _save_tokenizer(folder: Path, vocab_size: int) -> None:
    """Save a tokenizer of the words t0, t1 ..., which CTranslate2 names tokens by."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = WordLevel({f"t{token}": token for token in range(vocab_size)}, unk_token="t0")
    special = {"unk_token": "t0", "bos_token": "t1", "eos_token": "t2"}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), **special).save_pretrained(folder)


def marian(sources: TokenSources, layers: int, size: int, tokens: int) -> Run:
    """Return a beam search by Marian (Junczys-Dowmunt et al. 2018) with random weights.

    Raises:
        ImportError: transformers is not installed.
    """
    model = _marian_model(layers, size)
    read = sources.rows(range(len(sources)))
    values, lengths = torch.from_numpy(read.values), torch.from_numpy(read.lengths)
    there = (torch.arange(values.shape[1]) < lengths[:, None]).long()

    def run() -> int:
        options = {"do_sample": False, "num_beams": BEAMS, "max_new_tokens": tokens}
        return model.generate(values, attention_mask=there, **options)[:, 1:].numel()

    return run


def ctranslate2_marian(
    sources: TokenSources, layers: int, size: int, tokens: int, precision: str
) -> Run:
    """Return a beam search by CTranslate2 (Klein et al. 2020) over Marian with random weights.

    Raises:
        ImportError: ctranslate2 or transformers is not installed.
    """
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(_marian_model(layers, size))
    words = [f"t{token}" for token in range(PAIR_VOCAB - 1)]  # the last one was padding
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = words[BOS]
    spec.config.eos_token, spec.config.unk_token = words[EOS], words[UNK]
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(folder)
        model = ctranslate2.Translator(
            folder, compute_type=precision, intra_threads=torch.get_num_threads()
        )
    read = sources.rows(range(len(sources)))
    texts = [
        [f"t{token}" for token in row[:length]]
        for row, length in zip(read.values.tolist(), read.lengths.tolist(), strict=True)
    ]
    lengths = {"max_decoding_length": tokens, "min_decoding_length": tokens}

    def run() -> int:
        results = model.translate_batch(texts, beam_size=BEAMS, **lengths)
        return sum(len(result.hypotheses[0]) for result in results)

    return run


def _marian_model(layers: int, size: int) -> nn.Module:
    """Return Marian of a shape, in float32, that never ends a text by itself."""
    from transformers import MarianConfig, MarianMTModel

    shape = {"layers": layers, "attention_heads": size // 64, "ffn_dim": 4 * size}
    config = MarianConfig(
        vocab_size=PAIR_VOCAB,
        max_position_embeddings=WINDOW,
        d_model=size,
        activation_function="relu",
        scale_embedding=True,
        bos_token_id=None,
        eos_token_id=None,
        forced_eos_token_id=None,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
        **{f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in shape.items()},
    )
    return MarianMTModel(config).float().eval()


def _transformers_model(shape: Shape, vocab_size: int) -> nn.Module:
    """Return GPT-2 of a shape, in float32, that never ends a text by itself.

    Raises:
        ImportError: transformers is not installed.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=WINDOW,
        n_embd=shape.size,
        n_layer=shape.layers,
        n_head=shape.size // 64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config).float().eval()

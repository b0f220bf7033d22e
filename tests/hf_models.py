"""Tiny random checkpoints of transformers, and tokenizers for them, that tests import."""

from __future__ import annotations

import io
import json
from pathlib import Path

import sentencepiece
import torch

TEXT = "the cat sat on the mat\n\nand the dog's log  was 12 years old: h\u00e9, \u6f22\u5b57\n" * 8
PROMPTS = ("the cat", " the dog's\n\nlog", "h\u00e9 \u6f22", "12 years")


# How Qwen 2 and 3 cut a text before they merge bytes: digits one by one, newlines together.
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
QWEN += r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(vocab_size=300, special=("<|endoftext|>",), prefix=(), pattern=None):
    """Return a tokenizer as GPT-2's, with other special tokens, some of which begin texts."""
    from tokenizers import (
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern is not None:
        library.normalizer = normalizers.NFC()
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    library.train_from_iterator([TEXT], trainer)
    if prefix:
        ids = [(name, library.token_to_id(name)) for name in prefix]
        template = " ".join([*prefix, "$A"])
        library.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return library


def metaspace(vocab_size=320):
    """Return a tokenizer as Llama 2's: spaces as U+2581, bytes for what is unknown, BOS."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers

    library = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    normal = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    library.normalizer = normalizers.Sequence(normal)
    strip = decoders.Strip(content=" ", left=1)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), strip]
    library.decoder = decoders.Sequence(steps)
    special = ["<unk>", "<s>", "</s>"]
    names = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=names, show_progress=False)
    library.train_from_iterator(TEXT.replace("\n", " ").split(":"), trainer)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    # Bytes are tokens of the text, not special ones.
    table = json.loads(library.to_str())
    table["added_tokens"] = table["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(table))


def saved(folder: Path, model, library, bos: str, eos: str, **shards) -> Path:
    """Write a model and a tokenizer into a folder, as transformers does."""
    from transformers import PreTrainedTokenizerFast

    model.save_pretrained(folder, **shards)
    fast = PreTrainedTokenizerFast(tokenizer_object=library, bos_token=bos, eos_token=eos)
    fast.save_pretrained(folder)
    return folder


def checkpoint(kind: str, folder: Path, **shards) -> Path:
    """Write a tiny random checkpoint of a kind, and return its folder."""
    import transformers

    torch.manual_seed(3)
    llama_like = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }
    if kind == "gpt2":
        library = byte_level()
        ids = {"bos_token_id": 0, "eos_token_id": 0}
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, **ids)
        names = ("<|endoftext|>", "<|endoftext|>")
    elif kind in ("llama", "mistral", "linear", "sliding", "yarn"):
        library, names = metaspace(), ("<s>", "</s>")
        own = {"bos_token_id": 1, "eos_token_id": 2, **llama_like}
        if kind == "llama":
            scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
            scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
            own |= {"rope_scaling": scaling, "rope_theta": 5000.0, "attention_bias": True}
        if kind == "linear":
            own |= {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
        if kind == "yarn":
            scaling = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 3.0}
            own |= {"rope_scaling": scaling | {"original_max_position_embeddings": 32}}
        mistral = kind in ("mistral", "sliding")
        own |= {"sliding_window": 128 if kind == "mistral" else 9} if mistral else {}
        config = (transformers.MistralConfig if mistral else transformers.LlamaConfig)(**own)
    else:
        special = ("<|endoftext|>", "<|im_end|>")
        library, names = byte_level(special=special, pattern=QWEN), special
        ids = {"bos_token_id": 0, "eos_token_id": 1}
        own = {**llama_like, **ids, "tie_word_embeddings": kind == "qwen3"}
        own |= {"head_dim": 12} if kind == "qwen3" else {}
        if kind == "qwen2-sliding":
            own |= {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
        config_class = transformers.Qwen3Config if kind == "qwen3" else transformers.Qwen2Config
        config = config_class(**own)
    config.vocab_size = library.get_vocab_size()
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    if library.token_to_id("<0x00>") is not None:
        # Texts of random bytes are no UTF-8, and what stands for them depends on how it is read.
        with torch.no_grad():
            model.lm_head.weight[3:259] = 0
    return saved(folder, model, library, *names, **shards)


GERMAN = (
    "die katze sa\u00df auf der matte\nund der hund war 12 jahre alt: h\u00e9, \u6f22\u5b57\n" * 8
)
SOURCES = ("the cat sat on", "a dog's  log", "h\u00e9 \u6f22", "12 years old: the mat", "")


def pair_checkpoint(kind: str, folder: Path, **shards) -> Path:
    """Write a tiny random encoder-decoder of a kind, and return its folder.

    Args:
        kind: "marian", "marian-separate" (two vocabularies), "bart", "bart-forced", "pegasus" or
            "mbart".
        folder: to write.
        shards: how `save_pretrained` cuts it.
    """
    import transformers

    torch.manual_seed(4)
    shape = {"d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "dropout": 0.0}
    for side in ("encoder", "decoder"):
        shape |= {f"{side}_attention_heads": 4, f"{side}_ffn_dim": 48}
    if kind.startswith("marian"):
        tokenizer = marian_tokenizer(folder, separate=kind == "marian-separate")
        pad = tokenizer.pad_token_id
        ids = {"pad_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": None}
        ids |= {"decoder_start_token_id": pad, "vocab_size": len(tokenizer.encoder)}
        own = {"max_position_embeddings": 64, "scale_embedding": True}
        own |= {"activation_function": "swish", "bos_token_id": 0}
        if kind == "marian-separate":
            own |= {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": True}
            own |= {"decoder_vocab_size": len(tokenizer.target_encoder)}
        model = transformers.MarianMTModel(transformers.MarianConfig(**shape, **own, **ids))
        model.generation_config.bad_words_ids = [[pad]]
    else:
        library = byte_level(special=("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
        frame = [(name, library.token_to_id(name)) for name in ("<s>", "</s>")]
        from tokenizers import processors

        library.post_processor = processors.RobertaProcessing(frame[1], frame[0], True, False)
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=library, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
        )
        ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
        ids |= {"decoder_start_token_id": 2, "forced_eos_token_id": None}
        own = {"max_position_embeddings": 64, "vocab_size": library.get_vocab_size()}
        name = {"pegasus": "Pegasus", "mbart": "MBart"}.get(kind, "Bart")
        config = getattr(transformers, f"{name}Config")(**shape, **own, **ids)
        model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
        model.generation_config.forced_bos_token_id = 0 if kind == "bart-forced" else None
    model = model.float().eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name or "bart" in kind:
            torch.nn.init.normal_(parameter, std=0.3)
    torch.nn.init.normal_(model.final_logits_bias, std=0.1)
    # What stands for <unk> in a text is not the same there.
    model.final_logits_bias[:, tokenizer.unk_token_id or 3] = -99
    model.final_logits_bias[:, model.config.eos_token_id] = -8  # or all texts would be empty
    model.save_pretrained(folder, **shards)
    tokenizer.save_pretrained(folder)
    return folder


def marian_tokenizer(folder: Path, separate: bool):
    """Write the files of a tokenizer as Marian's models have, and return transformers' own."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    sides = {"source": TEXT, "target": GERMAN}
    names: dict[str, list[str]] = {}
    for side, text in sides.items():
        made = sentencepiece_model(text.split("\n"), 300 if side == "source" else 310)
        (folder / f"{side}.spm").write_bytes(made)
        library = sentencepiece.SentencePieceProcessor(model_proto=made)
        pieces = [library.id_to_piece(i) for i in range(library.vocab_size())]
        # In another order than the files', and without a piece that they have.
        names[side] = sorted(set(pieces) - {"<s>", "</s>", "<unk>", "\u2581the"}, reverse=True)
    files = {"vocab.json": [*names["source"], *names["target"]]}
    if separate:
        files = {"vocab.json": names["source"], "target_vocab.json": names["target"]}
    for file, content in files.items():
        distinct = dict.fromkeys(["</s>", "<unk>", *content, "<pad>"])
        table = {name: i for i, name in enumerate(distinct)}
        if file == "target_vocab.json":  # one id of the pad for both sides
            shared = json.loads((folder / "vocab.json").read_text())["<pad>"]
            table = {name: i + (i >= shared) for name, i in table.items() if name != "<pad>"}
            table["<pad>"] = shared
        (folder / file).write_text(json.dumps(table))
    target = {"target_vocab_file": str(folder / "target_vocab.json")} if separate else {}
    paths = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    return transformers.MarianTokenizer(*paths, separate_vocabs=separate, **target)


def sentencepiece_model(sentences: list[str], vocab_size: int) -> bytes:
    """Return a BPE model of sentencepiece that keeps all spaces and falls back on bytes."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=written,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return written.getvalue()

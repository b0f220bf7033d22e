"""Import and export of models in other tools' formats: ARPA, GGUF, Hugging Face, ONNX, peft.

Pages: docs/import.md, docs/export.md
"""

from __future__ import annotations

from seqgen.hooks import Command, ModelFormat, Plugin

PLUGIN = Plugin(
    commands={
        "import": Command("command:import_", "Models", work="reads"),
        "export": Command("command:export", "Models"),
        "push": Command("command:push", "Models"),
    },
    formats={
        "arpa": ModelFormat(
            form="lines",
            importer="arpa:read_model",
            recogniser="signatures:begins_arpa",
            exporter="arpa:write_model",
            noun="an ARPA file",
        ),
        "gguf": ModelFormat(
            form="file",
            importer="gguf_models:read_model",
            recogniser="signatures:is_gguf",
            exporter="gguf_models:write_model",
            noun="a GGUF file",
        ),
        "hf": ModelFormat(
            form="folder",
            importer="hf_models:read_model",
            exporter="hf_models:files_of",
            files=frozenset(
                {
                    *("config.json", "generation_config.json", "model.safetensors"),
                    *("tokenizer.json", "tokenizer_config.json", "source.spm", "target.spm"),
                    *("target_vocab.json", "vocab.json"),
                }
            ),
        ),
        "onnx": ModelFormat(
            form="folder",
            exporter="onnx_models:files_of",
            files=frozenset(
                {
                    *("encoder.onnx", "step.onnx", "whole.onnx", "onnx.json", "tokenizer.json"),
                    *("tokenizer", "source_tokenizer"),
                }
            ),
        ),
        # `import` reads them with the model that they are of.
        "peft": ModelFormat(
            form="folder",
            exporter="peft_adapters:files_of",
            files=frozenset({"adapter_config.json", "adapter_model.safetensors"}),
        ),
    },
    model_sources={"hf": "exchange:find_or_import"},
    stored_tokenizers={
        "blank": "blank:BlankTokenizer",
        "huggingface": "imported_tokenizers:HuggingFaceTokenizer",
        "marian": "imported_tokenizers:MarianTokenizer",
        "sentencepiece": "imported_tokenizers:WholeSentencepieceTokenizer",
    },
    tokenizer_readers=("hf_tokenizer:read_path",),
)

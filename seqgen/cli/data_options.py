"""Options of the data that `train` and `tune` share; each is the annotation of a parameter."""

from __future__ import annotations

from typing import Annotated

from seqgen.cli import completion
from seqgen.cli.inputs import file_name
from seqgen.cli.settings import option as setting
from seqgen.configs.options import TEXT

TokenizerKind = Annotated[
    str | None,
    setting("tokenizer", "KIND", TEXT, complete=completion.tokenizers, parser=file_name),
]
VocabSize = Annotated[int | None, setting("vocab_size", "N", TEXT)]
HasLabels = Annotated[bool | None, setting("labels", "", TEXT, "--labels")]
DocumentsKind = Annotated[
    str | None,
    setting("documents", "stream|line", TEXT, complete=completion.one_of("stream", "line")),
]
ValTarget = Annotated[str | None, setting("val_target", "FILE", TEXT, parser=file_name)]

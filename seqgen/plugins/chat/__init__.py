"""Conversations with models that have a chat template, and fine-tuning on conversations.

Pages: docs/serve.md, docs/fine-tuning.md
"""

from __future__ import annotations

from seqgen.hooks import Command, Plugin

PLUGIN = Plugin(
    commands={
        "chat": Command("command:chat", "Write", work="tokens"),
    },
    chat_models=("conversation:AnsweringModel",),
    datasets=("dataset:ConversationDataset",),
)

"""Language models as a tutorial writes them in plain PyTorch: what training is measured against."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainRecurrent(nn.Module):
    """Embedding, nn.RNN, nn.GRU or nn.LSTM with dropout between its layers, linear head."""

    def __init__(
        self, kind: type[nn.RNNBase], vocab_size: int, hidden_size: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.layers = kind(hidden_size, hidden_size, layers, batch_first=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T)."""
        y, _ = self.layers(self.dropout(self.embedding(tokens)))
        return self.head(self.dropout(y))


class PlainWindow(nn.Module):
    """Bengio et al. (2003) as unfolded embeddings, a tanh layer and a linear head."""

    def __init__(
        self, vocab_size: int, context: int, embedding_size: int, hidden_size: int, dropout: float
    ) -> None:
        super().__init__()
        self.before = context - 1
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        self.layer = nn.Linear(context * embedding_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T); token 0 stands before the first."""
        seen = F.pad(tokens, (self.before, 0)).unfold(1, self.before + 1, 1)  # (B, T, n)
        x = self.dropout(self.embedding(seen).flatten(2))  # (B, T, n E)
        return self.head(self.dropout(self.layer(x).tanh()))


class PlainBlock(nn.Module):
    """A block of GPT-2 (Radford et al. 2019)."""

    def __init__(self, size: int, heads: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.heads, self.p = heads, dropout
        self.norm1, self.norm2 = (nn.LayerNorm(size, bias=bias) for _ in range(2))
        self.query_key_value = nn.Linear(size, 3 * size, bias=bias)
        self.output = nn.Linear(size, size, bias=bias)
        self.feed_forward = nn.Sequential(
            nn.Linear(size, 4 * size, bias=bias),
            nn.GELU(),
            nn.Linear(4 * size, size, bias=bias),
            nn.Dropout(dropout),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream after the block, (B, T, H)."""
        batch, length, size = x.shape
        parts = self.query_key_value(self.norm1(x)).split(size, dim=2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.output(read.transpose(1, 2).reshape(batch, length, size)))
        return x + self.feed_forward(self.norm2(x))


class PlainGPT(nn.Module):
    """GPT-2's form and initialisation: learned positions, the head tied to the embedding."""

    def __init__(
        self,
        vocab_size: int,
        window: int,
        size: int,
        layers: int,
        heads: int,
        dropout: float,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocab_size, size), nn.Embedding(window, size)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(PlainBlock(size, heads, dropout, bias) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(size, bias=bias)
        self.head = nn.Linear(size, vocab_size, bias=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        for block in self.blocks:
            for part in (block.output, block.feed_forward[2]):
                nn.init.normal_(part.weight, std=0.02 / math.sqrt(2 * layers))
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.embedding(tokens) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))


def plain_step(
    model: nn.Module, rule: torch.optim.Optimizer, targets: Tensor, *inputs: Tensor
) -> Tensor:
    """Take one step of training (forward, backward, clip at 1, update); return the loss."""
    loss = F.cross_entropy(model(*inputs).flatten(0, 1), targets.flatten())
    rule.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    rule.step()
    return loss.detach()

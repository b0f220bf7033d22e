"""Encoder-decoders of PyTorch's own modules: what training on pairs is measured against."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class PlainSeq2Seq(nn.Module):
    """A bidirectional nn.GRU, an nn.GRU that starts from it, and additive attention.

    The decoder attends after its recurrent layer, so it reads the whole target in one call. Both
    sides share an embedding.
    """

    def __init__(self, vocab_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size)
        self.encoder = nn.GRU(size, size // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(size, size, batch_first=True)
        self.of_query = nn.Linear(size, size, bias=False)
        self.of_key = nn.Linear(size, size)
        self.v = nn.Linear(size, 1, bias=False)
        self.combine = nn.Linear(2 * size, size, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(size, vocab_size)

    def forward(self, tokens: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T) and sources (B, L) of these lengths."""
        x = self.dropout(self.embedding(values))
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed, last = self.encoder(packed)
        encoded, _ = pad_packed_sequence(packed, batch_first=True)  # (B, L, H)
        begin = last.transpose(0, 1).flatten(1)[None].contiguous()  # (1, B, H)
        s, _ = self.decoder(self.dropout(self.embedding(tokens)), begin)  # (B, T, H)
        total = self.of_query(s).unsqueeze(2) + self.of_key(encoded).unsqueeze(1)
        scores = self.v(total.tanh()).squeeze(-1)  # (B, T, L)
        scores = scores.masked_fill(_padding(values, lengths)[:, None], -math.inf)
        context = scores.softmax(-1) @ encoded  # (B, T, H)
        features = self.combine(torch.cat([s, context], -1)).tanh()
        return self.head(self.dropout(features))


class PlainTranslator(nn.Module):
    """nn.Transformer in the form of Vaswani et al. (2017), one embedding for all, sinusoids."""

    def __init__(
        self, vocab_size: int, window: int, size: int, layers: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        options = {"dropout": dropout, "batch_first": True}
        encoder = nn.TransformerEncoderLayer(size, heads, 4 * size, **options)
        decoder = nn.TransformerDecoderLayer(size, heads, 4 * size, **options)
        # Without the norms that nn.Transformer would add behind the last blocks.
        self.transformer = nn.Transformer(
            size,
            heads,
            custom_encoder=nn.TransformerEncoder(encoder, layers, enable_nested_tensor=False),
            custom_decoder=nn.TransformerDecoder(decoder, layers),
            **options,
        )
        self.dropout = nn.Dropout(dropout)
        places = torch.arange(window)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
        waves = torch.stack([places.sin(), places.cos()], -1).flatten(1)  # (W, H)
        self.register_buffer("waves", waves)

    def forward(self, tokens: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T) and sources (B, L) of these lengths."""
        padding, size = _padding(values, lengths), tokens.shape[1]
        later = torch.ones(size, size, dtype=torch.bool, device=tokens.device).triu(1)
        features = self.transformer(
            self._embedded(values),
            self._embedded(tokens),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return features @ self.embedding.weight.T

    def _embedded(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.waves[: ids.shape[1]])


def _padding(values: Tensor, lengths: Tensor) -> Tensor:
    """Return which places (B, L) stand past a source's end."""
    return torch.arange(values.shape[1], device=values.device) >= lengths[:, None]

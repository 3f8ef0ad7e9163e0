"""Models as their authors would write them, tiny: Llama style, a residual network, recurrent networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


class LlamaBlock(nn.Module):
    """RMS norm, grouped-query attention with rotary positions, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, width = x.shape
        seen = self.norm_1(x)
        query = self.query(seen).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(seen).view(batch, length, self.groups, self.size).transpose(1, 2)
        value = self.value(seen).view(batch, length, self.groups, self.size).transpose(1, 2)
        query, key = _rotated(query, cosine, sine), _rotated(key, cosine, sine)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        seen = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(seen)) * self.up(seen))


class Llama(nn.Module):
    """Tied embeddings; rotary tables from a range (`table` False) or as buffers of the state."""

    def __init__(self, context: int = 8, width: int = 16, *, table: bool = False, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, 4, 2) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.pairs = width // 4 // 2
        self.table = table
        if table:
            cosine, sine = self._angles(context)
            self.register_buffer("cosine", cosine)
            self.register_buffer("sine", sine)

    def _angles(self, length: int) -> tuple[Tensor, Tensor]:
        rates = 10000.0 ** (-torch.arange(self.pairs).float() / self.pairs)
        angles = torch.arange(length).float()[:, None] * rates
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    def forward(self, tokens: Tensor) -> Tensor:
        cosine, sine = (self.cosine, self.sine) if self.table else self._angles(tokens.shape[1])
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cosine, sine)
        return functional.linear(self.norm(x), self.embedding.weight)


class Residual(nn.Module):
    """Two convolutions and a shortcut, which is a strided 1×1 convolution where the size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()

        def normed() -> nn.Module:
            return nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(2, outputs)

        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = normed(), normed()
        changes = stride > 1 or inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm_1(self.first(x)), inplace=True)
        return functional.relu(self.norm_2(self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """For 8×8 pixels: a stem, a pool, two residual blocks, a mean over the plane."""

    def __init__(self, width: int = 4, norm: str = "batch") -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(
            Residual(width, width, 1, norm), nn.MaxPool2d(3, 2, 1), Residual(width, 2 * width, 2, norm)
        )
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.stem(x.view(-1, 1, 8, 8))))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class CharLstm(nn.Module):
    """Bytes through an LSTM cell written as a loop."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        hidden = cell = torch.zeros(x.shape[0], x.shape[2])
        states = []
        for t in range(x.shape[1]):
            hidden, cell = self.cell(x[:, t], (hidden, cell))
            states.append(hidden)
        return self.head(torch.stack(states, 1))


class CharGru(nn.Module):
    """Bytes through the library's GRU, with dropout between the layers and after them."""

    def __init__(self, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.layers = nn.GRU(width, width, num_layers=2, batch_first=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.dropout(self.layers(self.embedding(tokens))[0]))

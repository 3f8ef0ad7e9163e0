"""Building blocks of GRPO as programs: a decoder with its KV cache in the state, rewards, a clipped
objective.

Contract: everything is PyTorch that can be lowered. Problems and samples come from counter-based random
numbers, so a rollout is a function of (parameters, step counter) and can be replayed element by element. The
program computes the reward from the problem it made. Tokens are integer-valued f32. Not guaranteed: that
`torch.rand` differs between shards (its counter is the step's): several actors need steps or counters of
their own (``training.ordered_records``).

Sources: GRPO, Shao and others 2024; the wider upper clip, and no KL penalty, DAPO, Yu and others 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.training.verifiable import Verifiable


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder; `length`: maximum number of tokens."""

    layers: int
    heads: int
    width: int
    length: int


class Decoder(nn.Module):
    """A GPT over `vocabulary` tokens that runs over whole rows, or over one position with a cache."""

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.shape = shape
        width = shape.width
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(shape.length, width)
        self.norm_1 = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(shape.layers))
        self.norm_2 = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(shape.layers))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(shape.layers))
        self.out = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(shape.layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(shape.layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width, bias=False) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(
                    p, 0.0, 0.02 / (math.sqrt(2 * shape.layers) if name[:3] in ("out", "dow") else 1)
                )

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, heads, T, width/heads] of [B, T, width]."""
        batch, length, width = x.shape
        heads = self.shape.heads
        parts = x.view(batch, length, 3, heads, width // 3 // heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return query / math.sqrt(width // 3 // heads), key, value

    def _after(self, layer: int, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + self.out[layer](mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down[layer](
            functional.gelu(self.up[layer](self.norm_2[layer](x)), approximate="tanh")
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """f32 [B, T, vocabulary] logits of f32 [B, T] tokens."""
        length = tokens.shape[1]
        place = torch.arange(length)
        x = self.token(tokens.long()) + self.position(place)
        for layer in range(self.shape.layers):
            query, key, value = self._heads(self.qkv[layer](self.norm_1[layer](x)))
            scores = torch.where(place <= place.unsqueeze(1), query @ key.transpose(-2, -1), -torch.inf)
            x = self._after(layer, x, torch.softmax(scores, -1) @ value)
        return self.head(self.norm(x))

    def cache(self, batch: int) -> list[Tensor]:
        """An empty cache: keys and values of every layer."""
        s = self.shape
        return [torch.zeros(batch, s.heads, s.length, s.width // s.heads) for _ in range(2 * s.layers)]

    def decode(self, token: Tensor, at: Tensor, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """f32 [B, vocabulary] logits after f32 [B] tokens at `at` (f32 scalar), and the cache with them."""
        place = torch.arange(self.shape.length).float()
        here = place == at
        x = (self.token(token.long()) + self.position(at.long().reshape(1))).unsqueeze(1)
        kept = []
        for layer in range(self.shape.layers):
            query, key, value = self._heads(self.qkv[layer](self.norm_1[layer](x)))
            keys = torch.where(here.unsqueeze(1), key, cache[2 * layer])
            values = torch.where(here.unsqueeze(1), value, cache[2 * layer + 1])
            kept += [keys, values]
            scores = torch.where(place <= at, query @ keys.transpose(-2, -1), -torch.inf)
            x = self._after(layer, x, torch.softmax(scores, -1) @ values)
        return self.head(self.norm(x))[:, 0], kept


def sampled(logits: Tensor) -> tuple[Tensor, Tensor]:
    """f32 [B] tokens drawn from f32 [B, V] logits by Gumbel's trick, and their log-probabilities."""
    noise = -torch.log(-torch.log(torch.rand(logits.shape).clamp(min=1e-7)))
    token = (logits + noise).argmax(-1)
    known = torch.log_softmax(logits, -1).gather(-1, token.unsqueeze(-1))[:, 0]
    return token.float(), known


def decoded(
    net: Decoder, task: Verifiable, group: int, tokens: Tensor, known: Tensor, at: Tensor, cache: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Decodes one position: (tokens, log-probabilities of answers, position, cache).

    At position 0 every group of `group` rows gets a new problem. Both f32 [B, length].
    """
    place = torch.arange(task.length).float()
    fresh = task.drawn(tokens.shape[0] // group).repeat_interleave(group, 0)
    fresh = torch.where(place < task.prompt, fresh, 0.0)
    tokens = torch.where(at == 0, fresh, tokens)
    now = torch.where(place == at, tokens, 0.0).sum(1)
    logits, cache = net.decode(now, at, cache)
    token, logp = sampled(logits)
    writes = (place == at + 1) & (place >= task.prompt)
    tokens = torch.where(writes, token.unsqueeze(1), tokens)
    known = torch.where(writes, logp.unsqueeze(1), torch.where(at == 0, 0.0, known))
    return tokens, known, at + 1, cache


def advantages(rewards: Tensor, group: int) -> Tensor:
    """f32 [B]: (r − µ)/(σ + 10⁻⁴) within groups of `group` rows."""
    rows = rewards.reshape(-1, group)
    apart = rows - rows.mean(1, keepdim=True)
    spread = torch.sqrt((apart * apart).mean(1, keepdim=True))
    return (apart / (spread + 1e-4)).reshape(-1)


def answers_known(net: Decoder, task: Verifiable, tokens: Tensor) -> Tensor:
    """f32 [B, answer]: log-probabilities of the answers' tokens in [B, length]."""
    logits = net(tokens[:, :-1])[:, task.prompt - 1 :]
    chosen = tokens[:, task.prompt :].long().unsqueeze(-1)
    return torch.log_softmax(logits, -1).gather(-1, chosen)[..., 0]


def clipped_loss(
    now: Tensor, before: Tensor, advantage: Tensor, low: float = 0.2, high: float = 0.28
) -> Tensor:
    """−mean of min(ρA, clip(ρ, 1 − low, 1 + high)A), ρ = exp(now − before), over f32 [B, answer]."""
    ratio, advantage = torch.exp(now - before), advantage.unsqueeze(1)
    bounded = torch.clamp(ratio, 1 - low, 1 + high)
    return -torch.minimum(ratio * advantage, bounded * advantage).mean()

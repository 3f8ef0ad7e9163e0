"""Small models of the field's textbooks: recommenders, generators, attention, state spaces, graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GENERATOR = torch.Generator().manual_seed(20)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def words(*shape: int, below: int = 11) -> Tensor:
    return torch.randint(0, below, shape, generator=GENERATOR)


ROWS, OTHER = normal(4, 8), normal(4, 8)
IMAGES = normal(2, 3, 8, 8)
LINES = normal(2, 6, 8)
WORDS = words(2, 6)
POINTS = normal(2, 5, 3)
FIELDS = words(4, 3, below=9)
EDGES = words(2, 8, below=5)


class Net(nn.Module):
    """A model from a function of itself and its input: modules, parameters and a forward that is given."""

    def __init__(self, forward: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if type(part) is Tensor else part)
        self._forward = forward

    def __getattr__(self, name: str) -> Any:
        """A part under its name: a module, a parameter or a plain value."""
        return super().__getattr__(name)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._forward(self, *inputs)


def labelled(logits: Tensor) -> Tensor:
    """Cross entropy of [.., classes] with labels 0, 1, 2, ... in turn."""
    flat = logits.reshape(-1, logits.shape[-1])
    return F.cross_entropy(flat, torch.arange(flat.shape[0]) % flat.shape[1])


def to_wave(x: Tensor) -> Tensor:
    """Mean squared distance from a wave."""
    return F.mse_loss(x, torch.cos(torch.arange(x.numel()).float()).view(x.shape))


def conv(a: int, b: int, k: int = 3, **given: Any) -> nn.Conv2d:
    return nn.Conv2d(a, b, k, padding=given.pop("padding", k // 2), **given)


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(-1) @ v


def causal(length: int) -> Tensor:
    place = torch.arange(length)
    return place.unsqueeze(1) >= place


@dataclass(frozen=True)
class Entry:
    """A model whose call gives its loss, and the inputs of one batch."""

    model: Net
    inputs: tuple[Tensor, ...]


ZOO: dict[str, Callable[[], Entry]] = {}


def model(*inputs: Tensor) -> Callable[[Callable[[], Net]], Callable[[], Net]]:
    """Register a function that builds a model under its name."""

    def register(build: Callable[[], Net]) -> Callable[[], Net]:
        def make() -> Entry:
            torch.manual_seed(7)
            return Entry(build(), inputs)

        ZOO[build.__name__] = make
        return build

    return register


@model(ROWS, FIELDS)
def deep_learning_recommender() -> Net:
    def forward(m: Net, x: Tensor, f: Tensor) -> Tensor:
        bag = F.embedding_bag(f, m.table, mode="sum")
        both = torch.stack([m.bottom(x), bag], 1)
        return to_wave(m.top(torch.cat([(both @ both.transpose(1, 2)).flatten(1), bag], 1))[:, 0])

    return Net(forward, table=normal(9, 4), bottom=mlp(8, 8, 4), top=mlp(8, 8, 1))


@model(ROWS)
def vector_quantised() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        z = m.enc(x)
        code = m.book[torch.cdist(z.detach(), m.book.detach()).argmin(-1)]
        passed = z + (code - z).detach()
        return (
            F.mse_loss(m.dec(passed), x) + F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        )

    return Net(forward, enc=mlp(8, 8, 3), dec=mlp(3, 8, 8), book=normal(6, 3))


@model(ROWS, OTHER)
def deep_q() -> Net:
    def forward(m: Net, x: Tensor, y: Tensor) -> Tensor:
        q = m.q(x).gather(1, (torch.arange(4) % 3).unsqueeze(1))[:, 0]
        return F.smooth_l1_loss(q, 0.5 + 0.9 * m.q(y).detach().amax(-1))

    return Net(forward, q=mlp(8, 16, 3))


@model(ROWS, OTHER)
def decorrelated_twins() -> Net:
    def forward(m: Net, x: Tensor, y: Tensor) -> Tensor:
        a, b = (((z - z.mean(0)) / (z.std(0) + 0.1)) for z in (m.f(x), m.f(x + 0.2 * y)))
        c = a.T @ b / 4
        return ((1 - c.diagonal()) ** 2).sum() + 0.01 * (c**2 * (1 - torch.eye(4))).sum()

    return Net(forward, f=mlp(8, 16, 4))


@model(ROWS, OTHER)
def matching() -> Net:
    def forward(m: Net, x: Tensor, y: Tensor) -> Tensor:
        share = (F.normalize(m.f(y), dim=-1) @ F.normalize(m.f(x), dim=-1).T * 5).softmax(-1)
        odds = share @ F.one_hot(torch.arange(4) % 2, 2).float()
        return F.nll_loss(torch.log(odds + 1e-6), torch.arange(4) % 2)

    return Net(forward, f=mlp(8, 16, 4))


@model(ROWS)
def generator_of_pictures() -> Net:
    gen = nn.Sequential(
        nn.ConvTranspose2d(8, 6, 4),
        nn.GroupNorm(2, 6),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 3, 4, 2, 1),
        nn.Tanh(),
    )
    return Net(lambda m, z: to_wave(m.gen(z[:, :, None, None])), gen=gen)


@model(IMAGES)
def fourier_operator() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = m.up(x)
        seen = torch.fft.rfft2(h)[:, :, :3, :3]
        kept = torch.einsum("bixy,ioxy->boxy", seen, torch.complex(m.real, m.imag))
        wide = torch.cat([torch.cat([kept.real, kept.imag], 1)], 1)
        low = torch.complex(F.pad(wide[:, :4], (0, 2, 0, 5)), F.pad(wide[:, 4:], (0, 2, 0, 5)))
        return to_wave(m.out(F.gelu(torch.fft.irfft2(low, s=(8, 8)) + m.side(h))))

    return Net(
        forward,
        up=conv(3, 4, 1),
        side=conv(4, 4, 1),
        out=conv(4, 1, 1),
        real=normal(4, 4, 3, 3) * 0.3,
        imag=normal(4, 4, 3, 3) * 0.3,
    )


@model(WORDS)
def gpt() -> Net:
    def forward(m: Net, i: Tensor) -> Tensor:
        h = m.e(i) + m.place
        n = m.n(h)
        q, k, v = m.qkv(n).chunk(3, -1)
        h = h + m.o(attention(q, k, v, causal(6)))
        return labelled((h + m.f(m.n2(h))) @ m.e.weight.T)

    return Net(
        forward,
        e=nn.Embedding(11, 8),
        place=normal(6, 8),
        n=nn.LayerNorm(8),
        n2=nn.LayerNorm(8),
        qkv=nn.Linear(8, 24),
        o=nn.Linear(8, 8),
        f=mlp(8, 16, 8, act=nn.GELU),
    )


@model(LINES)
def local_attention() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        near = (torch.arange(6).unsqueeze(0) - torch.arange(6).unsqueeze(1)).abs() <= 1
        q, k, v = m.qkv(x).chunk(3, -1)
        return labelled(m.out(attention(q, k, v, near)))

    return Net(forward, qkv=nn.Linear(8, 24), out=nn.Linear(8, 5))


@model(LINES)
def selective_scan() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        step, b, c = m.p(x).split([1, 4, 4], -1)
        step = F.softplus(step)
        h, made = torch.zeros(2, 8, 4), []
        for t in range(6):
            h = torch.exp(-step[:, t].unsqueeze(-1) * torch.exp(m.a)) * h + (step[:, t] * x[:, t]).unsqueeze(
                -1
            ) * b[:, t].unsqueeze(1)
            made.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return labelled(m.out(torch.stack(made, 1)))

    return Net(forward, p=nn.Linear(8, 9), a=normal(8, 4), out=nn.Linear(8, 5))


@model(LINES)
def fourier_mixing() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = m.n(x + torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
        return labelled(m.out(h + m.f(h)))

    return Net(forward, n=nn.LayerNorm(8), f=mlp(8, 16, 8), out=nn.Linear(8, 5))


@model(POINTS, EDGES)
def graph_isomorphism() -> Net:
    def forward(m: Net, x: Tensor, edge: Tensor) -> Tensor:
        got = torch.zeros(2, 5, 3).index_add(1, edge[1], x[:, edge[0]])
        return labelled(m.f((1 + m.own) * x + got).sum(1))

    return Net(forward, own=normal(1), f=mlp(3, 8, 4))


@model(POINTS)
def learned_ranking() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        score = m.f(x)[..., 0]
        ordered = score.sort(-1, descending=True)[0]
        return F.relu(1 - (ordered[:, :-1] - ordered[:, 1:])).mean() + to_wave(score)

    return Net(forward, f=mlp(3, 8, 1))

"""Networks of sequences, sets and graphs: recurrence, attention, state spaces, messages."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.zoo.parts import (
    LINES,
    POINTS,
    WORDS,
    Net,
    attention,
    causal,
    labelled,
    mlp,
    model,
    normal,
    to_wave,
    words,
)


@model(WORDS)
def lstm_language_model() -> Net:
    return Net(
        lambda m, i: labelled(m.out(m.r(m.e(i))[0])),
        e=nn.Embedding(11, 6),
        r=nn.LSTM(6, 8, 2, batch_first=True),
        out=nn.Linear(8, 11),
    )


@model(WORDS, WORDS)
def attentive_translator() -> Net:
    def forward(m: Net, i: Tensor, j: Tensor) -> Tensor:
        seen, h = m.enc(m.e(i))
        made = []
        for t in range(3):
            scores = m.v(torch.tanh(m.a(seen) + m.b(h[0]).unsqueeze(1))).softmax(1)
            _, h = m.dec(torch.cat([m.e(j[:, t : t + 1]), (scores * seen).sum(1, keepdim=True)], -1), h)
            made.append(m.out(h[0]))
        return labelled(torch.stack(made, 1))

    return Net(
        forward,
        e=nn.Embedding(11, 6),
        enc=nn.GRU(6, 6, batch_first=True),
        dec=nn.GRU(12, 6, batch_first=True),
        a=nn.Linear(6, 6),
        b=nn.Linear(6, 6),
        v=nn.Linear(6, 1),
        out=nn.Linear(6, 11),
    )


@model(WORDS)
def continuous_bag() -> Net:
    return Net(
        lambda m, i: labelled(m.out((m.e(i.roll(1, 1)) + m.e(i.roll(-1, 1))) / 2)),
        e=nn.Embedding(11, 6),
        out=nn.Linear(6, 11),
    )


@model(LINES, LINES.flip(0))
def transformer_pair() -> Net:
    return Net(
        lambda m, x, y: labelled(m.out(m.t(x, y))),
        t=nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True),
        out=nn.Linear(8, 5),
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


@model(WORDS)
def llama() -> Net:
    def turned(x: Tensor) -> Tensor:
        angle = torch.outer(torch.arange(6).float(), 1.0 / 10 ** torch.arange(2).float())
        seen = torch.view_as_complex(x.reshape(2, 6, 2, 2, 2)) * torch.polar(
            torch.ones(6, 1, 2), angle.unsqueeze(1)
        )
        return torch.view_as_real(seen).flatten(3).transpose(1, 2)

    def forward(m: Net, i: Tensor) -> Tensor:
        h = m.e(i)
        q, k, v = (p(m.n(h)).view(2, 6, 2, 4) for p in (m.q, m.k, m.v))
        mixed = F.scaled_dot_product_attention(turned(q), turned(k), v.transpose(1, 2), is_causal=True)
        h = h + m.o(mixed.transpose(1, 2).flatten(2))
        return labelled(m.out(h + m.down(F.silu(m.gate(h)) * m.up(h))))

    line = lambda a, b: nn.Linear(a, b, bias=False)  # noqa: E731
    return Net(
        forward,
        e=nn.Embedding(11, 8),
        n=nn.RMSNorm(8),
        q=line(8, 8),
        k=line(8, 8),
        v=line(8, 8),
        o=line(8, 8),
        gate=line(8, 16),
        up=line(8, 16),
        down=line(16, 8),
        out=line(8, 11),
    )


@model(WORDS)
def bert() -> Net:
    def forward(m: Net, i: Tensor) -> Tensor:
        hidden = torch.where((torch.arange(6) % 3 == 0).unsqueeze(0), torch.zeros_like(i), i)
        return F.cross_entropy(m.out(m.block(m.n(m.e(hidden) + m.place))).flatten(0, 1), i.flatten())

    return Net(
        forward,
        e=nn.Embedding(11, 8),
        place=normal(6, 8),
        n=nn.LayerNorm(8),
        block=nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True),
        out=nn.Linear(8, 11),
    )


@model(LINES)
def local_attention() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        near = (torch.arange(6).unsqueeze(0) - torch.arange(6).unsqueeze(1)).abs() <= 1
        q, k, v = m.qkv(x).chunk(3, -1)
        return labelled(m.out(attention(q, k, v, near)))

    return Net(forward, qkv=nn.Linear(8, 24), out=nn.Linear(8, 5))


@model(LINES)
def linear_attention() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        held = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), 1)
        return labelled(m.out((q.unsqueeze(-2) @ held).squeeze(-2) / (q * k.cumsum(1)).sum(-1, keepdim=True)))

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


# Sets and graphs

EDGES = words(2, 8, below=5)


@model(POINTS, EDGES)
def graph_isomorphism() -> Net:
    def forward(m: Net, x: Tensor, edge: Tensor) -> Tensor:
        got = torch.zeros(2, 5, 3).index_add(1, edge[1], x[:, edge[0]])
        return labelled(m.f((1 + m.own) * x + got).sum(1))

    return Net(forward, own=normal(1), f=mlp(3, 8, 4))


@model(POINTS, EDGES)
def message_passing() -> Net:
    def forward(m: Net, x: Tensor, edge: Tensor) -> Tensor:
        h = m.up(x)
        for _ in range(2):
            sent = m.f(torch.cat([h[:, edge[0]], h[:, edge[1]]], -1))
            got = torch.zeros(2, 5, 4).scatter_add(1, edge[1].view(1, 8, 1).expand(2, 8, 4), sent)
            h = m.cell(got.flatten(0, 1), h.flatten(0, 1)).view(2, 5, 4)
        return labelled(m.out(h.mean(1)))

    return Net(forward, up=nn.Linear(3, 4), f=mlp(8, 8, 4), cell=nn.GRUCell(4, 4), out=nn.Linear(4, 5))


@model(POINTS)
def edge_convolution() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        near = torch.cdist(x, x).topk(3, -1, largest=False)[1]
        others = torch.stack([x[b][near[b]] for b in range(2)])
        own = x.unsqueeze(2).expand(2, 5, 3, 3)
        return labelled(m.f(torch.cat([own, others - own], -1)).amax(2))

    return Net(forward, f=mlp(6, 8, 4))


@model(POINTS)
def learned_ranking() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        score = m.f(x)[..., 0]
        ordered = score.sort(-1, descending=True)[0]
        return F.relu(1 - (ordered[:, :-1] - ordered[:, 1:])).mean() + to_wave(score)

    return Net(forward, f=mlp(3, 8, 1))

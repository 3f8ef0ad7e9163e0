"""Networks of sequences, sets and graphs: recurrence, attention, state spaces, messages."""

from __future__ import annotations

import math

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
def elman() -> Net:
    return Net(
        lambda m, i: labelled(m.out(m.r(m.e(i))[0])),
        e=nn.Embedding(11, 6),
        r=nn.RNN(6, 8, batch_first=True),
        out=nn.Linear(8, 11),
    )


@model(WORDS)
def lstm_language_model() -> Net:
    return Net(
        lambda m, i: labelled(m.out(m.r(m.e(i))[0])),
        e=nn.Embedding(11, 6),
        r=nn.LSTM(6, 8, 2, batch_first=True),
        out=nn.Linear(8, 11),
    )


@model(WORDS)
def gru_language_model() -> Net:
    return Net(
        lambda m, i: labelled(m.out(m.r(m.e(i))[0])),
        e=nn.Embedding(11, 6),
        r=nn.GRU(6, 8, batch_first=True),
        out=nn.Linear(8, 11),
    )


@model(WORDS)
def bidirectional_tagger() -> Net:
    return Net(
        lambda m, i: labelled(m.out(m.r(m.e(i))[0])),
        e=nn.Embedding(11, 6),
        r=nn.LSTM(6, 4, batch_first=True, bidirectional=True),
        out=nn.Linear(8, 4),
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
def pointer_network() -> Net:
    def forward(m: Net, i: Tensor) -> Tensor:
        seen, h = m.enc(m.e(i))
        return F.cross_entropy(
            m.v(torch.tanh(m.a(seen) + m.b(h[0]).unsqueeze(1)))[..., 0], torch.arange(2) + 1
        )

    return Net(
        forward,
        e=nn.Embedding(11, 6),
        enc=nn.GRU(6, 6, batch_first=True),
        a=nn.Linear(6, 6),
        b=nn.Linear(6, 6),
        v=nn.Linear(6, 1),
    )


@model(WORDS)
def text_convolutions() -> Net:
    def forward(m: Net, i: Tensor) -> Tensor:
        x = m.e(i).transpose(1, 2)
        return labelled(m.out(torch.cat([F.relu(c(x)).amax(-1) for c in (m.two, m.three)], -1)))

    return Net(
        forward, e=nn.Embedding(11, 6), two=nn.Conv1d(6, 4, 2), three=nn.Conv1d(6, 4, 3), out=nn.Linear(8, 5)
    )


@model(WORDS)
def fast_text() -> Net:
    return Net(
        lambda m, i: labelled(m.out(m.bag(i))), bag=nn.EmbeddingBag(11, 6, mode="mean"), out=nn.Linear(6, 5)
    )


@model(WORDS, words(2, 6))
def skip_gram() -> Net:
    def forward(m: Net, i: Tensor, j: Tensor) -> Tensor:
        scores = (m.a(i).unsqueeze(2) @ m.b(torch.stack([i.roll(1, 1), j], 2)).transpose(2, 3)).squeeze(2)
        return -(F.logsigmoid(scores[..., 0]) + F.logsigmoid(-scores[..., 1])).mean()

    return Net(forward, a=nn.Embedding(11, 6), b=nn.Embedding(11, 6))


@model(WORDS)
def continuous_bag() -> Net:
    return Net(
        lambda m, i: labelled(m.out((m.e(i.roll(1, 1)) + m.e(i.roll(-1, 1))) / 2)),
        e=nn.Embedding(11, 6),
        out=nn.Linear(6, 11),
    )


@model(WORDS, words(2, 6))
def global_vectors() -> Net:
    def forward(m: Net, i: Tensor, j: Tensor) -> Tensor:
        count = 1.0 + (i + j).float()
        off = (m.a(i) * m.b(j)).sum(-1) + m.c(i)[..., 0] - torch.log(count)
        return ((count / 30).clamp(max=1) ** 0.75 * off**2).mean()

    return Net(forward, a=nn.Embedding(11, 6), b=nn.Embedding(11, 6), c=nn.Embedding(11, 1))


@model(LINES)
def hierarchical_attention() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        inner = (m.a(torch.tanh(m.u(x.view(2, 2, 3, 8)))).softmax(2) * x.view(2, 2, 3, 8)).sum(2)
        return labelled(m.out((m.b(torch.tanh(m.v(inner))).softmax(1) * inner).sum(1)))

    return Net(
        forward,
        u=nn.Linear(8, 4),
        a=nn.Linear(4, 1),
        v=nn.Linear(8, 4),
        b=nn.Linear(4, 1),
        out=nn.Linear(8, 5),
    )


@model(WORDS, words(2, 3))
def memory_network() -> Net:
    def forward(m: Net, i: Tensor, q: Tensor) -> Tensor:
        u = m.b(q).sum(1)
        for _ in range(2):
            u = u + ((m.a(i) @ u.unsqueeze(-1)).softmax(1) * m.c(i)).sum(1)
        return labelled(m.out(u))

    return Net(
        forward, a=nn.Embedding(11, 6), b=nn.Embedding(11, 6), c=nn.Embedding(11, 6), out=nn.Linear(6, 5)
    )


@model(LINES)
def neural_turing_machine() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        memory, made = m.memory.expand(2, 4, 5), []
        for t in range(3):
            key, erase, add = m.control(x[:, t]).chunk(3, -1)
            where = (4 * F.cosine_similarity(key.unsqueeze(1), memory, dim=-1)).softmax(-1).unsqueeze(-1)
            memory = memory * (1 - where * torch.sigmoid(erase).unsqueeze(1)) + where * add.unsqueeze(1)
            made.append((where * memory).sum(1))
        return to_wave(torch.stack(made, 1))

    return Net(forward, memory=normal(4, 5), control=nn.Linear(8, 15))


@model(LINES)
def quasi_recurrent() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        z, f = m.c(F.pad(x.transpose(1, 2), (1, 0))).transpose(1, 2).chunk(2, -1)
        h, made = torch.zeros(2, 4), []
        for t in range(6):
            gate = torch.sigmoid(f[:, t])
            h = gate * h + (1 - gate) * torch.tanh(z[:, t])
            made.append(h)
        return to_wave(torch.stack(made, 1))

    return Net(forward, c=nn.Conv1d(8, 8, 2))


@model(LINES)
def temporal_convolutions() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = x.transpose(1, 2)
        h = h + F.relu(m.a(F.pad(h, (2, 0))))
        return to_wave(h + F.relu(m.b(F.pad(h, (4, 0)))))

    return Net(forward, a=nn.Conv1d(8, 8, 3), b=nn.Conv1d(8, 8, 3, dilation=2))


@model(LINES)
def wave_net() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h, total = m.start(x.transpose(1, 2)), torch.zeros(())
        for at, layer in enumerate(m.layers):
            a, b = layer(F.pad(h, (2**at, 0))).chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            h, total = h + z, total + z
        return labelled(m.out(F.relu(total)).transpose(1, 2))

    return Net(
        forward,
        start=nn.Conv1d(8, 4, 1),
        layers=nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**i) for i in range(2)),
        out=nn.Conv1d(4, 5, 1),
    )


@model(LINES)
def transformer_encoder() -> Net:
    return Net(
        lambda m, x: labelled(m.out(m.block(x))),
        block=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        out=nn.Linear(8, 5),
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
def shared_layers() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        for _ in range(2):
            x = m.block(x)
        return labelled(m.out(x))

    return Net(
        forward, block=nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), out=nn.Linear(8, 5)
    )


@model(LINES)
def relative_positions() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).chunk(3, -1)
        away = torch.arange(6).unsqueeze(0) - torch.arange(6).unsqueeze(1) + 5
        return labelled(m.out((q @ k.transpose(1, 2) + m.bias(away)[..., 0]).softmax(-1) @ v))

    return Net(forward, qkv=nn.Linear(8, 24), bias=nn.Embedding(11, 1), out=nn.Linear(8, 5))


@model(LINES)
def linear_biases() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).chunk(3, -1)
        away = (torch.arange(6).unsqueeze(0) - torch.arange(6).unsqueeze(1)).float()
        scores = (q @ k.transpose(1, 2) / math.sqrt(8) + 0.25 * away).masked_fill(~causal(6), -1e9)
        return labelled(m.out(scores.softmax(-1) @ v))

    return Net(forward, qkv=nn.Linear(8, 24), out=nn.Linear(8, 5))


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
def top_key_attention() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2)
        least = scores.topk(2, -1)[0][..., -1:]
        return labelled(m.out(scores.masked_fill(scores < least, -1e9).softmax(-1) @ v))

    return Net(forward, qkv=nn.Linear(8, 24), out=nn.Linear(8, 5))


@model(LINES)
def retention() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).chunk(3, -1)
        away = (torch.arange(6).unsqueeze(1) - torch.arange(6).unsqueeze(0)).float()
        decay = torch.where(away >= 0, 0.9 ** away.clamp(min=0), 0.0)
        return labelled(m.out(m.n(((q @ k.transpose(1, 2)) * decay @ v).transpose(1, 2)).transpose(1, 2)))

    return Net(forward, qkv=nn.Linear(8, 24), n=nn.GroupNorm(2, 8), out=nn.Linear(8, 5))


@model(LINES)
def receptance_weighted() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, 0))[:, :6]
        mixed = x * m.mix + before * (1 - m.mix)
        r, k, v = torch.sigmoid(m.r(mixed)), m.k(mixed), m.v(mixed)
        top, down, made = torch.zeros(2, 8), torch.zeros(2, 8), []
        for t in range(6):
            w = torch.exp(k[:, t])
            made.append(r[:, t] * (top + w * v[:, t]) / (down + w + 1e-6))
            fade = torch.exp(-torch.exp(m.fade))
            top, down = fade * top + w * v[:, t], fade * down + w
        return labelled(m.out(torch.stack(made, 1)))

    return Net(
        forward,
        mix=torch.sigmoid(normal(8)),
        fade=normal(8),
        r=nn.Linear(8, 8),
        k=nn.Linear(8, 8),
        v=nn.Linear(8, 8),
        out=nn.Linear(8, 5),
    )


@model(LINES)
def structured_state_space() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        t = torch.arange(6).float()
        kernel = (
            m.c.unsqueeze(-1)
            * torch.exp(-torch.exp(m.a).unsqueeze(-1) * t)
            * torch.cos(m.w.unsqueeze(-1) * t)
        ).sum(1)
        y = torch.fft.irfft(torch.fft.rfft(x.transpose(1, 2), n=12) * torch.fft.rfft(kernel, n=12), n=12)[
            ..., :6
        ]
        return labelled(m.out(F.gelu(y.transpose(1, 2))))

    return Net(forward, a=normal(8, 3), w=normal(8, 3), c=normal(8, 3), out=nn.Linear(8, 5))


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


@model(LINES)
def gated_perceptron() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        u, v = F.gelu(m.up(x)).chunk(2, -1)
        return labelled(m.out(u * m.mix(m.n(v).transpose(1, 2)).transpose(1, 2)))

    return Net(forward, up=nn.Linear(8, 16), n=nn.LayerNorm(8), mix=nn.Linear(6, 6), out=nn.Linear(8, 5))


@model(LINES)
def perceiver() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        latent = m.latent.expand(2, 3, 8)
        latent = latent + attention(m.q(latent), m.k(x), m.v(x))
        return labelled(m.out(latent + m.f(latent)).mean(1))

    return Net(
        forward,
        latent=normal(3, 8),
        q=nn.Linear(8, 8),
        k=nn.Linear(8, 8),
        v=nn.Linear(8, 8),
        f=mlp(8, 16, 8),
        out=nn.Linear(8, 5),
    )


@model(LINES, WORDS)
def contrastive_language_image() -> Net:
    def forward(m: Net, x: Tensor, i: Tensor) -> Tensor:
        a, b = F.normalize(m.a(x.mean(1)), dim=-1), F.normalize(m.b(m.e(i).mean(1)), dim=-1)
        scores = a @ b.T * m.scale.exp()
        return (F.cross_entropy(scores, torch.arange(2)) + F.cross_entropy(scores.T, torch.arange(2))) / 2

    return Net(forward, a=nn.Linear(8, 4), b=nn.Linear(6, 4), e=nn.Embedding(11, 6), scale=normal(1)[0] + 1)


# Sets and graphs

EDGES = words(2, 8, below=5)


def neighbours() -> Tensor:
    """A ring of five with itself, each row summing to one."""
    away = (torch.arange(5).unsqueeze(0) - torch.arange(5).unsqueeze(1)) % 5
    return ((away == 0) | (away == 1) | (away == 4)).float() / 3


@model(POINTS)
def graph_convolution() -> Net:
    return Net(
        lambda m, x: labelled(neighbours() @ m.b(F.relu(neighbours() @ m.a(x)))),
        a=nn.Linear(3, 8),
        b=nn.Linear(8, 4),
    )


@model(POINTS)
def graph_attention() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = m.a(x)
        scores = F.leaky_relu(m.l(h) + m.r(h).transpose(1, 2), 0.2)
        return labelled(scores.masked_fill(neighbours() == 0, -1e9).softmax(-1) @ h)

    return Net(forward, a=nn.Linear(3, 4), l=nn.Linear(4, 1), r=nn.Linear(4, 1))


@model(POINTS, EDGES)
def graph_sampling() -> Net:
    def forward(m: Net, x: Tensor, edge: Tensor) -> Tensor:
        near = x[:, edge[0]].view(2, 4, 2, 3).amax(2)
        return labelled(m.b(torch.cat([F.relu(m.a(near)), x[:, :4]], -1)))

    return Net(forward, a=nn.Linear(3, 6), b=nn.Linear(9, 4))


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
def point_net() -> Net:
    return Net(lambda m, x: labelled(m.b(m.a(x).amax(1))), a=mlp(3, 8, 8), b=mlp(8, 8, 5))


@model(POINTS)
def deep_sets() -> Net:
    return Net(lambda m, x: labelled(m.b(m.a(x).sum(1))), a=mlp(3, 8, 8, act=nn.Tanh), b=mlp(8, 8, 5))


@model(POINTS)
def set_transformer() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = m.up(x)
        h = h + m.a(h, h, h)[0]
        seed = m.seed.expand(2, 1, 8)
        return labelled(m.out(m.b(seed, h, h)[0][:, 0]))

    return Net(
        forward,
        up=nn.Linear(3, 8),
        a=nn.MultiheadAttention(8, 2, batch_first=True),
        b=nn.MultiheadAttention(8, 2, batch_first=True),
        seed=normal(1, 8),
        out=nn.Linear(8, 5),
    )


@model(POINTS)
def edge_convolution() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        near = torch.cdist(x, x).topk(3, -1, largest=False)[1]
        others = torch.stack([x[b][near[b]] for b in range(2)])
        own = x.unsqueeze(2).expand(2, 5, 3, 3)
        return labelled(m.f(torch.cat([own, others - own], -1)).amax(2))

    return Net(forward, f=mlp(6, 8, 4))


@model(POINTS)
def equivariant() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        apart = x.unsqueeze(2) - x.unsqueeze(1)
        share = m.f((apart**2).sum(-1, keepdim=True))
        return to_wave(x + (apart * share).sum(2) / 5)

    return Net(forward, f=mlp(1, 8, 1, act=nn.SiLU))


@model(POINTS)
def learned_ranking() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        score = m.f(x)[..., 0]
        ordered = score.sort(-1, descending=True)[0]
        return F.relu(1 - (ordered[:, :-1] - ordered[:, 1:])).mean() + to_wave(score)

    return Net(forward, f=mlp(3, 8, 1))

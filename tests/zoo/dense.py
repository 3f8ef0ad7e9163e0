"""Networks of rows: perceptrons, recommenders, autoencoders, flows, mixtures, learning by reward."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.parts import OTHER, ROWS, Net, labelled, mlp, model, normal, to_wave, words


@model(ROWS)
def sparse_mixture_of_experts() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        odds, chosen = m.gate(x).softmax(-1).topk(2, -1)
        share = torch.zeros(4, 4).scatter(1, chosen, odds / odds.sum(-1, keepdim=True))
        each = torch.stack([expert(x) for expert in m.experts], 1)
        return labelled((share.unsqueeze(-1) * each).sum(1))

    return Net(forward, gate=nn.Linear(8, 4), experts=nn.ModuleList(mlp(8, 8, 5) for _ in range(4)))


@model(ROWS)
def bilinear_layer() -> Net:
    return Net(lambda m, x: labelled(m.pair(x, x.flip(0))), pair=nn.Bilinear(8, 8, 5))


@model(ROWS)
def weight_normalised() -> Net:
    return Net(lambda m, x: labelled(m.line(x)), line=nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)))


# Recommenders

USERS, ITEMS, FIELDS = words(6, below=9), words(6, below=9), words(4, 3, below=9)


@model(USERS, ITEMS)
def matrix_factorisation() -> Net:
    def forward(m: Net, u: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return to_wave((m.users(u) * m.items(i)).sum(-1) + m.bias(u)[:, 0])

    return Net(forward, users=nn.Embedding(9, 4), items=nn.Embedding(9, 4), bias=nn.Embedding(9, 1))


@model(ROWS, FIELDS)
def deep_learning_recommender() -> Net:
    def forward(m: Net, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        bag = F.embedding_bag(f, m.table, mode="sum")
        both = torch.stack([m.bottom(x), bag], 1)
        return to_wave(m.top(torch.cat([(both @ both.transpose(1, 2)).flatten(1), bag], 1))[:, 0])

    return Net(forward, table=normal(9, 4), bottom=mlp(8, 8, 4), top=mlp(8, 8, 1))


# Autoencoders and generators


@model(ROWS, OTHER)
def variational_autoencoder() -> Net:
    def forward(m: Net, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        mean, log_var = m.enc(x).chunk(2, -1)
        z = mean + torch.exp(0.5 * log_var) * noise[:, :3]
        divergence = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(-1).mean()
        return F.mse_loss(m.dec(z), x) + 0.1 * divergence

    return Net(forward, enc=mlp(8, 8, 6), dec=mlp(3, 8, 8))


@model(ROWS)
def vector_quantised() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        z = m.enc(x)
        code = m.book[torch.cdist(z.detach(), m.book.detach()).argmin(-1)]
        passed = z + (code - z).detach()
        return (
            F.mse_loss(m.dec(passed), x) + F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        )

    return Net(forward, enc=mlp(8, 8, 3), dec=mlp(3, 8, 8), book=normal(6, 3))


@model(ROWS, OTHER)
def adversarial_pair() -> Net:
    def forward(m: Net, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        made = m.gen(noise[:, :4])
        return F.softplus(-m.dis(x)).mean() + F.softplus(m.dis(made)).mean() + F.softplus(-m.dis(made)).mean()

    return Net(forward, gen=mlp(4, 8, 8), dis=mlp(8, 8, 1, act=nn.LeakyReLU))


@model(ROWS)
def nice() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        a, b = x[:, ::2], x[:, 1::2]
        b = b + m.f(a)
        a = a + m.g(b)
        return (
            (torch.log(torch.cosh(torch.cat([a, b], -1)))).sum(-1).mean()
            - m.s.sum()
            + (m.s.exp() ** 2).mean()
        )

    return Net(forward, f=mlp(4, 8, 4), g=mlp(4, 8, 4), s=normal(8) * 0.1)


@model(ROWS)
def masked_autoregressive() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(F.linear(x, m.a.tril(-1)))
        mean, scale = F.linear(hidden, m.b.tril()), F.linear(hidden, m.c.tril())
        return (0.5 * ((x - mean) * (-scale).exp()) ** 2 + scale).sum(-1).mean()

    return Net(forward, a=normal(8, 8) * 0.3, b=normal(8, 8) * 0.3, c=normal(8, 8) * 0.1)


@model(ROWS, OTHER)
def denoising_diffusion() -> Net:
    def forward(m: Net, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        t = (torch.arange(4).float().unsqueeze(1) + 1) / 5
        waves = torch.cat([torch.sin(t * 2.0 ** torch.arange(4)), torch.cos(t * 2.0 ** torch.arange(4))], -1)
        noisy = torch.sqrt(1 - t) * x + torch.sqrt(t) * noise
        return F.mse_loss(m.body(torch.cat([noisy, waves], -1)), noise)

    return Net(forward, body=mlp(16, 32, 8, act=nn.SiLU))


@model(ROWS)
def radiance_field() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(5).float().view(1, 5, 1) / 5
        points = x[:, None, :3] + steps * x[:, None, 3:6]
        waves = torch.cat([f(points * 2**i) for i in range(2) for f in (torch.sin, torch.cos)], -1)
        colour, density = m.body(waves).split([3, 1], -1)
        alpha = 1 - torch.exp(-F.softplus(density[..., 0]) * 0.2)
        left = torch.cumprod(torch.cat([torch.ones(4, 1), 1 - alpha[:, :-1]], 1), 1)
        return to_wave(((alpha * left).unsqueeze(-1) * torch.sigmoid(colour)).sum(1))

    return Net(forward, body=mlp(12, 16, 4))


# Learning by reward, from few examples, by comparing


@model(ROWS, OTHER)
def deep_q() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        q = m.q(x).gather(1, (torch.arange(4) % 3).unsqueeze(1))[:, 0]
        return F.smooth_l1_loss(q, 0.5 + 0.9 * m.q(y).detach().amax(-1))

    return Net(forward, q=mlp(8, 16, 3))


@model(ROWS)
def actor_critic() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(m.h(x))
        odds, value = m.p(h).log_softmax(-1), m.v(h)[:, 0]
        gain = (torch.cos(torch.arange(4).float()) - value).detach()
        chosen = odds.gather(1, (torch.arange(4) % 3).unsqueeze(1))[:, 0]
        entropy = -(odds.exp() * odds).sum(-1).mean()
        return -(chosen * gain).mean() + 0.5 * to_wave(value) - 0.01 * entropy

    return Net(forward, h=nn.Linear(8, 16), p=nn.Linear(16, 3), v=nn.Linear(16, 1))


@model(ROWS)
def proximal_policy() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        odds = m.p(x).log_softmax(-1).gather(1, (torch.arange(4) % 3).unsqueeze(1))[:, 0]
        ratio = torch.exp(odds + 1.1)
        gain = torch.cos(torch.arange(4).float())
        return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()

    return Net(forward, p=mlp(8, 16, 3))


@model(ROWS, OTHER)
def bootstrap_your_own_latent() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (2 - 2 * F.cosine_similarity(m.p(m.f(x)), m.f(y).detach(), dim=-1)).mean()

    return Net(forward, f=mlp(8, 16, 4), p=mlp(4, 8, 4))


@model(ROWS, OTHER)
def decorrelated_twins() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = (((z - z.mean(0)) / (z.std(0) + 0.1)) for z in (m.f(x), m.f(x + 0.2 * y)))
        c = a.T @ b / 4
        return ((1 - c.diagonal()) ** 2).sum() + 0.01 * (c**2 * (1 - torch.eye(4))).sum()

    return Net(forward, f=mlp(8, 16, 4))


@model(ROWS, OTHER)
def matching() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        share = (F.normalize(m.f(y), dim=-1) @ F.normalize(m.f(x), dim=-1).T * 5).softmax(-1)
        odds = share @ F.one_hot(torch.arange(4) % 2, 2).float()
        return F.nll_loss(torch.log(odds + 1e-6), torch.arange(4) % 2)

    return Net(forward, f=mlp(8, 16, 4))


@model(ROWS, OTHER)
def distillation() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        teacher = (y[:, :5] / 2).softmax(-1)
        return F.kl_div((m.f(x) / 2).log_softmax(-1), teacher, reduction="batchmean") * 4

    return Net(forward, f=mlp(8, 16, 5))

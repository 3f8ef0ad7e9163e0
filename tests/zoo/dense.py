"""Networks of rows: perceptrons, recommenders, autoencoders, flows, mixtures, learning by reward."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.parts import OTHER, ROWS, WORDS, Net, Part, labelled, mlp, model, normal, to_wave, words


@model(ROWS)
def linear_regression() -> Net:
    return Net(lambda m, x: to_wave(m.line(x)), line=nn.Linear(8, 1))


@model(ROWS)
def logistic_regression() -> Net:
    return Net(
        lambda m, x: F.binary_cross_entropy_with_logits(m.line(x)[:, 0], (torch.arange(4) % 2).float()),
        line=nn.Linear(8, 1),
    )


@model(ROWS)
def softmax_regression() -> Net:
    return Net(lambda m, x: labelled(m.line(x)), line=nn.Linear(8, 5))


@model(ROWS)
def perceptron() -> Net:
    return Net(lambda m, x: labelled(m.body(x)), body=mlp(8, 16, 5))


@model(ROWS)
def perceptron_tanh() -> Net:
    return Net(lambda m, x: labelled(m.body(x)), body=mlp(8, 16, 16, 5, act=nn.Tanh))


@model(ROWS)
def self_normalising() -> Net:
    return Net(lambda m, x: labelled(m.body(x)), body=mlp(8, 16, 16, 5, act=nn.SELU))


@model(ROWS)
def batch_normalised() -> Net:
    return Net(
        lambda m, x: labelled(m.b(F.relu(m.norm(m.a(x))))),
        a=nn.Linear(8, 16), norm=nn.BatchNorm1d(16, track_running_stats=False), b=nn.Linear(16, 5),
    )  # fmt: skip


@model(ROWS)
def layer_normalised() -> Net:
    return Net(
        lambda m, x: labelled(m.b(F.gelu(m.n(m.a(x))))),
        a=nn.Linear(8, 16),
        n=nn.LayerNorm(16),
        b=nn.Linear(16, 5),
    )


@model(ROWS)
def maxout() -> Net:
    return Net(
        lambda m, x: labelled(m.b(m.a(x).view(4, 8, 3).amax(-1))), a=nn.Linear(8, 24), b=nn.Linear(8, 5)
    )


@model(ROWS)
def highway() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(m.t(x))
        return labelled(m.out(gate * F.relu(m.h(x)) + (1 - gate) * x))

    return Net(forward, t=nn.Linear(8, 8), h=nn.Linear(8, 8), out=nn.Linear(8, 5))


@model(ROWS)
def residual_perceptron() -> Net:
    return Net(lambda m, x: labelled(m.out(x + m.body(x))), body=mlp(8, 32, 8), out=nn.Linear(8, 5))


@model(ROWS)
def gated_linear_units() -> Net:
    return Net(lambda m, x: labelled(m.b(F.glu(m.a(x)))), a=nn.Linear(8, 32), b=nn.Linear(16, 5))


@model(ROWS)
def parametric_relu() -> Net:
    return Net(
        lambda m, x: labelled(m.b(m.act(m.a(x)))), a=nn.Linear(8, 16), act=nn.PReLU(16), b=nn.Linear(16, 5)
    )


@model(ROWS)
def radial_basis() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        return to_wave(m.out(torch.exp(-(torch.cdist(x, m.centres) ** 2) / 8)))

    return Net(forward, centres=normal(6, 8), out=nn.Linear(6, 2))


@model(ROWS)
def mixture_of_experts() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        each = torch.stack([expert(x) for expert in m.experts], 1)
        return labelled((m.gate(x).softmax(-1).unsqueeze(-1) * each).sum(1))

    return Net(forward, gate=nn.Linear(8, 3), experts=nn.ModuleList(mlp(8, 8, 5) for _ in range(3)))


@model(ROWS)
def sparse_mixture_of_experts() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        odds, chosen = m.gate(x).softmax(-1).topk(2, -1)
        share = torch.zeros(4, 4).scatter(1, chosen, odds / odds.sum(-1, keepdim=True))
        each = torch.stack([expert(x) for expert in m.experts], 1)
        return labelled((share.unsqueeze(-1) * each).sum(1))

    return Net(forward, gate=nn.Linear(8, 4), experts=nn.ModuleList(mlp(8, 8, 5) for _ in range(4)))


@model(ROWS)
def hypernetwork() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        weights = m.maker(m.code).view(5, 8)
        return labelled(F.linear(x, weights))

    return Net(forward, maker=nn.Linear(4, 40), code=normal(4))


@model(ROWS)
def kolmogorov_arnold() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        knots = torch.arange(-3, 4).float()
        bumps = (1 - (x.unsqueeze(-1) - knots).abs()).clamp(min=0)
        return labelled(torch.einsum("bik,iko->bo", bumps, m.spline) + F.silu(x) @ m.base)

    return Net(forward, spline=normal(8, 7, 5) * 0.3, base=normal(8, 5) * 0.3)


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


@model(USERS, ITEMS)
def neural_collaborative_filtering() -> Net:
    def forward(m: Net, u: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        deep = m.body(torch.cat([m.users(u), m.items(i)], -1))
        return F.binary_cross_entropy_with_logits(m.out(deep)[:, 0], (torch.arange(6) % 2).float())

    return Net(
        forward, users=nn.Embedding(9, 4), items=nn.Embedding(9, 4), body=mlp(8, 8, 8), out=nn.Linear(8, 1)
    )


@model(USERS, ITEMS)
def two_towers() -> Net:
    def forward(m: Net, u: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        a, b = (
            F.normalize(tower(t(v)), dim=-1) for tower, t, v in ((m.up, m.users, u), (m.down, m.items, i))
        )
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(6))

    return Net(
        forward, users=nn.Embedding(9, 4), items=nn.Embedding(9, 4), up=mlp(4, 8, 4), down=mlp(4, 8, 4)
    )


@model(FIELDS)
def factorisation_machine() -> Net:
    def forward(m: Net, f: torch.Tensor) -> torch.Tensor:
        v = m.vectors(f)
        pairs = (v.sum(1) ** 2 - (v**2).sum(1)).sum(-1) / 2
        return to_wave(pairs + m.line(f).sum((1, 2)))

    return Net(forward, vectors=nn.Embedding(9, 4), line=nn.Embedding(9, 1))


@model(FIELDS)
def deep_factorisation_machine() -> Net:
    def forward(m: Net, f: torch.Tensor) -> torch.Tensor:
        v = m.vectors(f)
        pairs = (v.sum(1) ** 2 - (v**2).sum(1)).sum(-1) / 2
        return to_wave(pairs + m.deep(v.flatten(1))[:, 0])

    return Net(forward, vectors=nn.Embedding(9, 4), deep=mlp(12, 8, 1))


@model(ROWS, FIELDS)
def wide_and_deep() -> Net:
    def forward(m: Net, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return to_wave(m.wide(x)[:, 0] + m.deep(m.vectors(f).flatten(1))[:, 0])

    return Net(forward, wide=nn.Linear(8, 1), vectors=nn.Embedding(9, 4), deep=mlp(12, 8, 1))


@model(ROWS, FIELDS)
def deep_learning_recommender() -> Net:
    def forward(m: Net, x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        bag = F.embedding_bag(f, m.table, mode="sum")
        both = torch.stack([m.bottom(x), bag], 1)
        return to_wave(m.top(torch.cat([(both @ both.transpose(1, 2)).flatten(1), bag], 1))[:, 0])

    return Net(forward, table=normal(9, 4), bottom=mlp(8, 8, 4), top=mlp(8, 8, 1))


# Autoencoders and generators


@model(ROWS)
def autoencoder() -> Net:
    return Net(lambda m, x: F.mse_loss(m.dec(m.enc(x)), x), enc=mlp(8, 8, 3), dec=mlp(3, 8, 8))


@model(ROWS, OTHER)
def denoising_autoencoder() -> Net:
    return Net(lambda m, x, n: F.mse_loss(m.dec(m.enc(x + 0.3 * n)), x), enc=mlp(8, 8, 3), dec=mlp(3, 8, 8))


@model(ROWS)
def sparse_autoencoder() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        values, places = F.relu(m.enc(x)).topk(3, -1)
        return F.mse_loss(m.dec(torch.zeros(4, 16).scatter(1, places, values)), x)

    return Net(forward, enc=nn.Linear(8, 16), dec=nn.Linear(16, 8))


@model(ROWS)
def tied_autoencoder() -> Net:
    return Net(lambda m, x: F.mse_loss(torch.sigmoid(x @ m.w) @ m.w.T, x), w=normal(8, 4) * 0.3)


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


@model(ROWS, OTHER)
def wasserstein_critic() -> Net:
    return Net(
        lambda m, x, y: m.dis(y).mean() - m.dis(x).mean() + 0.01 * (m.dis(x) ** 2).mean(), dis=mlp(8, 16, 1)
    )


@model(ROWS)
def real_nvp() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        scale, shift = m.f(a).chunk(2, -1)
        scale = torch.tanh(scale)
        z = torch.cat([a, b * scale.exp() + shift], -1)
        return (0.5 * (z**2).sum(-1) - scale.sum(-1)).mean()

    return Net(forward, f=mlp(4, 16, 8))


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
def energy_based() -> Net:
    return Net(
        lambda m, x, y: m.e(x).mean() + torch.logsumexp(-m.e(y)[:, 0], 0), e=mlp(8, 16, 1, act=nn.SiLU)
    )


@model(ROWS, OTHER)
def denoising_diffusion() -> Net:
    def forward(m: Net, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        t = (torch.arange(4).float().unsqueeze(1) + 1) / 5
        waves = torch.cat([torch.sin(t * 2.0 ** torch.arange(4)), torch.cos(t * 2.0 ** torch.arange(4))], -1)
        noisy = torch.sqrt(1 - t) * x + torch.sqrt(t) * noise
        return F.mse_loss(m.body(torch.cat([noisy, waves], -1)), noise)

    return Net(forward, body=mlp(16, 32, 8, act=nn.SiLU))


@model(ROWS, OTHER)
def score_matching() -> Net:
    return Net(
        lambda m, x, n: ((m.s(x + 0.5 * n) + n / 0.5) ** 2).sum(-1).mean() * 0.125,
        s=mlp(8, 16, 8, act=nn.Softplus),
    )


@model(ROWS, OTHER)
def flow_matching() -> Net:
    def forward(m: Net, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        t = (torch.arange(4).float().unsqueeze(1) + 0.5) / 4
        return F.mse_loss(m.v(torch.cat([t * x + (1 - t) * noise, t], -1)), x - noise)

    return Net(forward, v=mlp(9, 16, 8, act=nn.ELU))


@model(ROWS)
def modern_hopfield() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = (x @ m.memory.T).softmax(-1) @ m.memory
        return labelled(m.out(x))

    return Net(forward, memory=normal(6, 8), out=nn.Linear(8, 5))


@model(ROWS)
def neural_ode() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            k = m.f(x)
            x = x + 0.2 * m.f(x + 0.1 * k)
        return labelled(m.out(x))

    return Net(forward, f=mlp(8, 8, 8, act=nn.Tanh), out=nn.Linear(8, 5))


@model(ROWS)
def sinusoidal_representation() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        return to_wave(m.c(torch.sin(m.b(torch.sin(3 * m.a(x[:, :2]))))))

    return Net(forward, a=nn.Linear(2, 16), b=nn.Linear(16, 16), c=nn.Linear(16, 1))


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
def dueling_q() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(m.h(x))
        gain = m.a(h)
        return to_wave(m.v(h) + gain - gain.mean(-1, keepdim=True))

    return Net(forward, h=nn.Linear(8, 16), v=nn.Linear(16, 1), a=nn.Linear(16, 3))


@model(ROWS)
def policy_gradient() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        chosen = m.p(x).log_softmax(-1).gather(1, (torch.arange(4) % 3).unsqueeze(1))[:, 0]
        return -(chosen * torch.cos(torch.arange(4).float())).mean()

    return Net(forward, p=mlp(8, 16, 3))


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
def deterministic_policy() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        act = torch.tanh(m.actor(x))
        return to_wave(m.critic(torch.cat([x, act], -1))) - 0.1 * m.critic(torch.cat([y, act], -1)).mean()

    return Net(forward, actor=mlp(8, 8, 2), critic=mlp(10, 16, 1))


@model(ROWS, OTHER)
def siamese() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        apart = F.pairwise_distance(m.f(x), m.f(y))
        same = (torch.arange(4) % 2).float()
        return (same * apart**2 + (1 - same) * F.relu(1.5 - apart) ** 2).mean()

    return Net(forward, f=mlp(8, 16, 4))


@model(ROWS, OTHER)
def triplet() -> Net:
    return Net(lambda m, x, y: F.triplet_margin_loss(m.f(x), m.f(x + 0.1 * y), m.f(y)), f=mlp(8, 16, 4))


@model(ROWS, OTHER)
def contrastive() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = F.normalize(torch.cat([m.f(x), m.f(x + 0.1 * y)]), dim=-1)
        alike = (z @ z.T / 0.5).masked_fill(torch.eye(8) > 0, -1e9)
        return F.cross_entropy(alike, (torch.arange(8) + 4) % 8)

    return Net(forward, f=mlp(8, 16, 4))


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
def prototypical() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        means = m.f(x).view(2, 2, 4).mean(1)
        return F.cross_entropy(-(torch.cdist(m.f(y), means) ** 2), torch.arange(4) % 2)

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


@model(ROWS, OTHER)
def meta_learner() -> Net:
    def forward(m: Net, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        slope = (x.T @ (x @ m.w - torch.cos(torch.arange(4).float()).unsqueeze(1))) / 4
        return to_wave(y @ (m.w - 0.1 * slope))

    return Net(forward, w=normal(8, 1) * 0.3)


@model(WORDS)
def low_rank_adapter() -> Net:
    return Net(
        lambda m, i: labelled(m.e(i) @ m.base.detach() + m.e(i) @ m.a @ m.b),
        e=nn.Embedding(11, 8), base=normal(8, 5) * 0.3, a=normal(8, 2) * 0.3, b=normal(2, 5) * 0.3,
    )  # fmt: skip


@model(ROWS)
def concrete_gates() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        return labelled(m.out(x * torch.sigmoid(m.gate / 0.5))) + 0.01 * torch.sigmoid(m.gate).sum()

    return Net(forward, gate=normal(8), out=nn.Linear(8, 5))


@model(ROWS)
def quantile_regression() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        off = torch.cos(torch.arange(4).float()).unsqueeze(1) - m.q(x)
        share = (torch.arange(3).float() + 1) / 4
        return torch.maximum(share * off, (share - 1) * off).mean()

    return Net(forward, q=mlp(8, 16, 3))


@model(ROWS)
def mixture_density() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        odds, mean, scale = m.f(x).chunk(3, -1)
        off = (torch.cos(torch.arange(4).float()).unsqueeze(1) - mean) * (-scale).exp()
        return -torch.logsumexp(odds.log_softmax(-1) - 0.5 * off**2 - scale, -1).mean()

    return Net(forward, f=mlp(8, 16, 9))


@model(ROWS)
def soft_decision_tree() -> Net:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        right = torch.sigmoid(m.split(x))
        a, b, c = right[:, :1], right[:, 1:2], right[:, 2:]
        leaf = torch.cat([(1 - a) * (1 - b), (1 - a) * b, a * (1 - c), a * c], -1)
        return -torch.log((leaf @ m.leaves.softmax(-1))[:, 0]).mean()

    return Net(forward, split=nn.Linear(8, 3), leaves=normal(4, 5))


@model(ROWS)
def squeeze_gate() -> Net:
    gate = Part(
        lambda p, x: x * torch.sigmoid(p.up(F.relu(p.down(x)))), down=nn.Linear(8, 2), up=nn.Linear(2, 8)
    )
    return Net(lambda m, x: labelled(m.out(m.gate(x))), gate=gate, out=nn.Linear(8, 5))

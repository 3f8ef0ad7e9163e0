"""Networks of planes: convolutions from LeNet to ConvNeXt, segmentation, detection, generation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.zoo.parts import (
    IMAGES,
    ROWS,
    Net,
    Part,
    attention,
    conv,
    labelled,
    mlp,
    model,
    normal,
    pooled,
    to_wave,
)


def classified(body: nn.Module, width: int) -> Net:
    return Net(lambda m, x: labelled(m.head(pooled(m.body(x)))), body=body, head=nn.Linear(width, 5))


def group_normed(a: int, b: int, k: int = 3, **given: int) -> nn.Sequential:
    return nn.Sequential(conv(a, b, k, bias=False, **given), nn.GroupNorm(2, b), nn.ReLU())


@model(IMAGES)
def lenet() -> Net:
    body = nn.Sequential(
        conv(3, 6, 5), nn.Sigmoid(), nn.AvgPool2d(2), conv(6, 8), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten()
    )
    return Net(lambda m, x: labelled(m.head(m.body(x))), body=body, head=mlp(32, 16, 5))


@model(IMAGES)
def alexnet() -> Net:
    body = nn.Sequential(
        conv(3, 8, 5, stride=2), nn.ReLU(), nn.LocalResponseNorm(3), nn.MaxPool2d(3, 2), conv(8, 8), nn.ReLU()
    )
    return classified(body, 8)


@model(IMAGES)
def vgg() -> Net:
    return classified(
        nn.Sequential(
            conv(3, 6),
            nn.ReLU(),
            conv(6, 6),
            nn.ReLU(),
            nn.MaxPool2d(2),
            conv(6, 8),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ),
        8,
    )


@model(IMAGES)
def network_in_network() -> Net:
    return Net(
        lambda m, x: labelled(pooled(m.body(x))),
        body=nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 8, 1), nn.ReLU(), conv(8, 5, 1)),
    )


@model(IMAGES)
def inception() -> Net:
    def forward(p: Part, x: Tensor) -> Tensor:
        return torch.cat([p.a(x), p.b(x), p.c(x), p.d(F.max_pool2d(x, 3, 1, 1))], 1)

    block = Part(
        forward,
        a=conv(3, 2, 1),
        b=nn.Sequential(conv(3, 2, 1), nn.ReLU(), conv(2, 2)),
        c=conv(3, 2, 5),
        d=conv(3, 2, 1),
    )
    return classified(nn.Sequential(block, nn.ReLU()), 8)


def residual(width: int, inner: nn.Module) -> Part:
    return Part(lambda p, x: F.relu(x + p.inner(x)), inner=inner)


@model(IMAGES)
def resnet() -> Net:
    return classified(
        nn.Sequential(group_normed(3, 6), residual(6, nn.Sequential(group_normed(6, 6), conv(6, 6)))), 6
    )


@model(IMAGES)
def resnet_bottleneck() -> Net:
    inner = nn.Sequential(group_normed(8, 4, 1), group_normed(4, 4), conv(4, 8, 1))
    return classified(nn.Sequential(group_normed(3, 8, 3, stride=2), residual(8, inner)), 8)


@model(IMAGES)
def resnet_preactivated() -> Net:
    inner = nn.Sequential(nn.InstanceNorm2d(6, affine=True), nn.ReLU(), conv(6, 6), nn.ReLU(), conv(6, 6))
    return classified(nn.Sequential(conv(3, 6), Part(lambda p, x: x + p.inner(x), inner=inner)), 6)


@model(IMAGES)
def resnext() -> Net:
    inner = nn.Sequential(conv(8, 8, 1), nn.ReLU(), conv(8, 8, groups=4), nn.ReLU(), conv(8, 8, 1))
    return classified(nn.Sequential(conv(3, 8), residual(8, inner)), 8)


@model(IMAGES)
def densenet() -> Net:
    def forward(p: Part, x: Tensor) -> Tensor:
        for layer in p.layers:
            x = torch.cat([x, F.relu(layer(x))], 1)
        return x

    return classified(Part(forward, layers=nn.ModuleList([conv(3, 3), conv(6, 3), conv(9, 3)])), 12)


@model(IMAGES)
def squeezenet() -> Net:
    fire = Part(
        lambda p, x: torch.cat([F.relu(p.one(s := F.relu(p.down(x)))), F.relu(p.three(s))], 1),
        down=conv(3, 3, 1), one=conv(3, 4, 1), three=conv(3, 4),
    )  # fmt: skip
    return classified(fire, 8)


@model(IMAGES)
def mobilenet() -> Net:
    return classified(
        nn.Sequential(conv(3, 6, stride=2), nn.ReLU6(), conv(6, 6, groups=6), nn.ReLU6(), conv(6, 8, 1)), 8
    )


@model(IMAGES)
def mobilenet_inverted() -> Net:
    inner = nn.Sequential(
        conv(4, 12, 1), nn.Hardswish(), conv(12, 12, groups=12), nn.Hardswish(), conv(12, 4, 1)
    )
    return classified(nn.Sequential(conv(3, 4), Part(lambda p, x: x + p.inner(x), inner=inner)), 4)


@model(IMAGES)
def shufflenet() -> Net:
    def shuffled(p: Part, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        return x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)

    return classified(
        nn.Sequential(conv(3, 8), conv(8, 8, 1, groups=2), Part(shuffled), nn.ReLU(), conv(8, 8, groups=8)), 8
    )


def squeezed(width: int) -> Part:
    def forward(p: Part, x: Tensor) -> Tensor:
        return x * torch.sigmoid(p.up(F.relu(p.down(pooled(x)))))[:, :, None, None]

    return Part(forward, down=nn.Linear(width, 2), up=nn.Linear(2, width))


@model(IMAGES)
def squeeze_and_excitation() -> Net:
    return classified(nn.Sequential(conv(3, 8), nn.ReLU(), squeezed(8)), 8)


@model(IMAGES)
def block_attention() -> Net:
    def forward(p: Part, x: Tensor) -> Tensor:
        seen = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * torch.sigmoid(p.where(seen))

    return classified(nn.Sequential(conv(3, 8), squeezed(8), Part(forward, where=conv(2, 1, 5))), 8)


@model(IMAGES)
def efficientnet() -> Net:
    return classified(
        nn.Sequential(conv(3, 8), nn.SiLU(), conv(8, 8, groups=8), nn.SiLU(), squeezed(8), conv(8, 6, 1)), 6
    )


@model(IMAGES)
def convnext() -> Net:
    def forward(p: Part, x: Tensor) -> Tensor:
        y = p.norm(p.deep(x).permute(0, 2, 3, 1))
        return x + (p.scale * p.down(F.gelu(p.up(y)))).permute(0, 3, 1, 2)

    block = Part(
        forward,
        deep=conv(6, 6, 5, groups=6),
        norm=nn.LayerNorm(6),
        up=nn.Linear(6, 12),
        down=nn.Linear(12, 6),
        scale=normal(6) * 0.1,
    )
    return classified(nn.Sequential(nn.Conv2d(3, 6, 2, 2), block), 6)


@model(IMAGES)
def dilated_context() -> Net:
    return classified(nn.Sequential(conv(3, 6), nn.ELU(), conv(6, 6, padding=2, dilation=2), nn.ELU()), 6)


@model(IMAGES)
def circular_convolution() -> Net:
    return classified(
        nn.Sequential(conv(3, 6, padding_mode="circular"), nn.Tanh(), conv(6, 6, padding_mode="reflect")), 6
    )


@model(IMAGES)
def u_net() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        a = F.relu(m.a(x))
        b = F.relu(m.b(F.max_pool2d(a, 2)))
        return labelled(m.out(torch.cat([a, m.up(b)], 1)).permute(0, 2, 3, 1))

    return Net(forward, a=conv(3, 4), b=conv(4, 8), up=nn.ConvTranspose2d(8, 4, 2, 2), out=conv(8, 5, 1))


@model(IMAGES)
def fully_convolutional() -> Net:
    body = nn.Sequential(
        conv(3, 6, stride=2), nn.ReLU(), conv(6, 6, stride=2), nn.ReLU(), nn.ConvTranspose2d(6, 5, 8, 4, 2)
    )
    return Net(lambda m, x: labelled(m.body(x).permute(0, 2, 3, 1)), body=body)


@model(IMAGES)
def atrous_pyramid() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        parts = [m.one(x), m.two(x), m.four(x)]
        parts.append(
            F.interpolate(
                m.all(x.mean((2, 3), keepdim=True)), size=x.shape[2:], mode="bilinear", align_corners=True
            )
        )
        return labelled(m.out(torch.cat(parts, 1)).permute(0, 2, 3, 1))

    return Net(
        forward,
        one=conv(3, 3, 1),
        two=conv(3, 3, padding=2, dilation=2),
        four=conv(3, 3, padding=4, dilation=4),
        all=conv(3, 3, 1),
        out=conv(12, 5, 1),
    )


@model(IMAGES)
def feature_pyramid() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        a = F.relu(m.a(x))
        b = F.relu(m.b(a))
        top = m.top(b)
        return to_wave(m.side(a) + F.interpolate(top, scale_factor=2, mode="nearest")) + to_wave(top)

    return Net(forward, a=conv(3, 4), b=conv(4, 6, stride=2), top=conv(6, 4, 1), side=conv(4, 4, 1))


@model(IMAGES)
def single_shot_detector() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = F.relu(m.body(x))
        return labelled(m.kind(h).permute(0, 2, 3, 1).reshape(2, -1, 3)) + F.smooth_l1_loss(
            m.box(h), torch.zeros(())
        )

    return Net(forward, body=conv(3, 8, stride=2), kind=conv(8, 6), box=conv(8, 8))


@model(IMAGES)
def you_only_look_once() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        p = m.out(F.leaky_relu(m.body(x), 0.1)).permute(0, 2, 3, 1)
        place, size, seen = torch.sigmoid(p[..., :2]), torch.exp(p[..., 2:4].clamp(max=4)), p[..., 4]
        return to_wave(place) + to_wave(size) + F.softplus(seen).mean() + labelled(p[..., 5:])

    return Net(forward, body=conv(3, 8, stride=2), out=conv(8, 8, 1))


@model(IMAGES)
def spatial_transformer() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        theta = 0.1 * m.where(x.flatten(1)).view(2, 2, 3)
        y, z = torch.meshgrid(
            torch.arange(8).float() / 4 - 0.9, torch.arange(8).float() / 4 - 0.9, indexing="ij"
        )
        places = torch.stack([z.flatten(), y.flatten(), torch.ones(64)], -1)
        grid = (places @ theta.transpose(1, 2)).view(2, 8, 8, 2) + torch.stack([z, y], -1)
        return labelled(pooled(m.body(F.grid_sample(x, grid, align_corners=False))))

    return Net(forward, where=nn.Linear(192, 6), body=conv(3, 5))


@model(IMAGES)
def super_resolution() -> Net:
    return Net(
        lambda m, x: to_wave(F.pixel_shuffle(m.body(x), 2)),
        body=nn.Sequential(conv(3, 8), nn.Tanh(), conv(8, 12)),
    )


@model(IMAGES)
def bicubic_super_resolution() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        wide = F.interpolate(x, scale_factor=2, mode="bicubic")
        return to_wave(wide + m.body(wide))

    return Net(forward, body=nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 3)))


@model(IMAGES)
def style_transfer() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        f = F.relu(m.body(x)).flatten(2)
        return to_wave(f @ f.transpose(1, 2) / 64)

    return Net(
        forward, body=nn.Sequential(conv(3, 6, padding_mode="reflect"), nn.InstanceNorm2d(6, affine=True))
    )


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
def discriminator_of_pictures() -> Net:
    body = nn.Sequential(conv(3, 6, 4, stride=2, padding=1), nn.LeakyReLU(0.2), conv(6, 1, 4))
    return Net(lambda m, x: F.softplus(-m.body(x)).mean(), body=body)


@model(IMAGES)
def convolutional_autoencoder() -> Net:
    body = nn.Sequential(conv(3, 6, stride=2), nn.SiLU(), nn.ConvTranspose2d(6, 3, 4, 2, 1))
    return Net(lambda m, x: F.mse_loss(m.body(x), x), body=body)


@model(IMAGES)
def pixel_cnn() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        place = torch.arange(9).view(3, 3)
        first = F.conv2d(x[:, :1], m.a * (place < 4).float(), padding=1)
        return labelled(F.conv2d(F.relu(first), m.b * (place <= 4).float(), padding=1).permute(0, 2, 3, 1))

    return Net(forward, a=normal(6, 1, 3, 3) * 0.3, b=normal(4, 6, 3, 3) * 0.2)


@model(IMAGES)
def capsules() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        u = m.body(x).flatten(2).transpose(1, 2).reshape(2, -1, 4)[:, :8]
        votes = torch.einsum("bij,jko->bkio", u, m.w)
        routes = torch.zeros(2, 3, 8)
        for _ in range(2):
            s = (routes.softmax(1).unsqueeze(-1) * votes).sum(2)
            norm = (s**2).sum(-1, keepdim=True)
            v = s * (norm / (1 + norm) / torch.sqrt(norm + 1e-6))
            routes = routes + (votes * v.unsqueeze(2)).sum(-1)
        return labelled(torch.sqrt((v**2).sum(-1) + 1e-6))

    return Net(forward, body=conv(3, 4, stride=2), w=normal(4, 3, 4) * 0.5)


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


def patches(x: Tensor) -> Tensor:
    return x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(x.shape[0], 4, -1)


@model(IMAGES)
def vision_transformer() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = m.embed(F.unfold(x, 4, stride=4).transpose(1, 2)) + m.place
        h = torch.cat([m.kind.expand(2, 1, 8), h], 1)
        return labelled(m.head(m.block(h)[:, 0]))

    block = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
    )
    return Net(
        forward,
        embed=nn.Linear(48, 8),
        place=normal(4, 8),
        kind=normal(1, 1, 8),
        block=block,
        head=nn.Linear(8, 5),
    )


@model(IMAGES)
def shifted_windows() -> Net:
    def windows(x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        return x.view(b, h // 2, 2, w // 2, 2, c).transpose(2, 3).reshape(-1, 4, c)

    def forward(m: Net, x: Tensor) -> Tensor:
        h = m.embed(x).permute(0, 2, 3, 1)
        shifted = torch.roll(h, (-1, -1), (1, 2))
        q, k, v = m.qkv(windows(shifted)).chunk(3, -1)
        mixed = attention(q, k, v).view(2, 2, 2, 2, 2, 6).transpose(2, 3).reshape(2, 4, 4, 6)
        return labelled(m.out(torch.roll(mixed, (1, 1), (1, 2)).mean((1, 2))))

    return Net(forward, embed=nn.Conv2d(3, 6, 2, 2), qkv=nn.Linear(6, 18), out=nn.Linear(6, 5))


@model(IMAGES)
def mlp_mixer() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        h = m.embed(F.unfold(x, 4, stride=4).transpose(1, 2))
        h = h + m.tokens(m.a(h).transpose(1, 2)).transpose(1, 2)
        h = h + m.channels(m.b(h))
        return labelled(m.head(h.mean(1)))

    return Net(
        forward,
        embed=nn.Linear(48, 8),
        a=nn.LayerNorm(8),
        b=nn.LayerNorm(8),
        tokens=mlp(4, 8, 4, act=nn.GELU),
        channels=mlp(8, 16, 8, act=nn.GELU),
        head=nn.Linear(8, 5),
    )


@model(IMAGES)
def masked_autoencoder() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        tokens = F.unfold(x, 4, stride=4).transpose(1, 2)
        h = torch.where((torch.arange(4) % 2 == 0).view(1, 4, 1), m.embed(tokens), m.blank)
        return F.mse_loss(m.out(m.block(h + m.place)), tokens)

    return Net(
        forward,
        embed=nn.Linear(48, 8),
        blank=normal(8),
        place=normal(4, 8),
        block=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        out=nn.Linear(8, 48),
    )

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


def residual(width: int, inner: nn.Module) -> Part:
    return Part(lambda p, x: F.relu(x + p.inner(x)), inner=inner)


@model(IMAGES)
def resnet() -> Net:
    return classified(
        nn.Sequential(group_normed(3, 6), residual(6, nn.Sequential(group_normed(6, 6), conv(6, 6)))), 6
    )


@model(IMAGES)
def mobilenet() -> Net:
    return classified(
        nn.Sequential(conv(3, 6, stride=2), nn.ReLU6(), conv(6, 6, groups=6), nn.ReLU6(), conv(6, 8, 1)), 8
    )


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
def pixel_cnn() -> Net:
    def forward(m: Net, x: Tensor) -> Tensor:
        place = torch.arange(9).view(3, 3)
        first = F.conv2d(x[:, :1], m.a * (place < 4).float(), padding=1)
        return labelled(F.conv2d(F.relu(first), m.b * (place <= 4).float(), padding=1).permute(0, 2, 3, 1))

    return Net(forward, a=normal(6, 1, 3, 3) * 0.3, b=normal(4, 6, 3, 3) * 0.2)


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

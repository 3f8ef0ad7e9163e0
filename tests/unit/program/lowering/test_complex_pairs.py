"""Complex numbers as pairs: transforms, rotations and their gradients against PyTorch's complex tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.unit.program.lowered import agree, lowered
from tests.unit.program.lowering.test_rewrites import with_gradient

G = torch.Generator().manual_seed(8)
X = torch.randn(3, 8, generator=G)
IMAGES = torch.randn(2, 6, 5, generator=G)


@pytest.mark.long
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_of_lines(norm: str) -> None:
    """A product's error: numbers of 14 bits."""
    for function in (
        lambda x: torch.view_as_real(torch.fft.rfft(x, norm=norm)),
        lambda x: torch.view_as_real(torch.fft.fft(x, n=11, norm=norm)),
        lambda x: torch.fft.irfft(torch.fft.rfft(x, n=12, norm=norm), n=12, norm=norm),
        lambda x: torch.fft.irfft(torch.fft.rfft(x, n=7), n=7, norm=norm),
        lambda x: torch.fft.ifft(torch.fft.fft(x, dim=0), dim=0, norm=norm).real,
        lambda x: torch.fft.rfft(x).abs(),
    ):
        agree(with_gradient(function), X, relative=1e-3)


@pytest.mark.long
def test_transforms_of_planes() -> None:
    for function in (
        lambda x: torch.fft.fft2(x).real,
        lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
        lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real,
    ):
        agree(with_gradient(function), IMAGES, relative=2e-3)


def test_a_convolution_by_transforms() -> None:
    def convolved(x: Tensor, kernel: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x, n=16) * torch.fft.rfft(kernel, n=16).conj(), n=16)

    agree(with_gradient(convolved), X, X.flip(0), relative=2e-3)


def test_rotations_as_llamas_authors_write_them() -> None:
    def rotated(x: Tensor) -> Tensor:
        turns = torch.outer(torch.arange(3).float(), 1.0 / 10 ** torch.arange(4).float())
        waves = torch.polar(torch.ones_like(turns), turns)
        seen = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(seen * waves).flatten(1)

    agree(with_gradient(rotated), X, relative=1e-5)


def test_arithmetic() -> None:
    def mixed(x: Tensor) -> Tensor:
        z = torch.complex(x[:, :4], x[:, 4:])
        w = (z * 2 - z.conj() / (z + 3.0)) * (1 + 2j)
        joined = torch.cat([w, -w], 1).reshape(3, 2, 4).sum(1) + torch.stack([z, z]).mean(0)
        return torch.view_as_real(joined * z).flatten(1) + joined.abs().repeat(1, 2)

    agree(with_gradient(mixed), X, relative=1e-5)


def test_what_complex_tensors_have_not_is_named() -> None:
    with pytest.raises(Exception, match="tanh"):
        lowered(lambda x, b: [torch.tanh(torch.fft.fft(x)).real], [X])

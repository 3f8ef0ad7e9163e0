"""Handwritten digits, shifted and noisy: a task that a small network neither memorises nor solves.

Contract: scikit-learn's 1,797 images in their order, the first 60 % for training and the others held out;
each is used `variants` times, every time moved by up to one pixel and with noise of its own, so no record
occurs twice and no held-out image was ever trained on. Equal arguments give equal bytes (integers of NumPy's
PCG64 only). Training records are mixed variant by variant. Not guaranteed: that anybody could read them all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from assay.training.datasets import Dataset, digits

SIDE, BRIGHTEST, TRAINED = 8, 16, 0.6
Bytes = npt.NDArray[np.uint8]


def noisy_digits(variants: int = 40, noise: int = 8, seed: int = 0) -> Dataset:
    """Records of 64 pixels and a label; noise is the sum of two integers of [-noise, noise] a pixel."""
    plain = digits()
    images = np.frombuffer(plain.records + plain.held_out, np.uint8).reshape(-1, SIDE * SIDE + 1)
    cut = round(len(images) * TRAINED)
    generator = np.random.Generator(np.random.PCG64(seed))
    train, held_out = (_varied(part, variants, noise, generator) for part in (images[:cut], images[cut:]))
    return Dataset(plain.layout, train.tobytes(), held_out.tobytes())


def _varied(images: Bytes, variants: int, noise: int, generator: np.random.Generator) -> Bytes:
    """[variants · n, 65]: all images in order, again and again, each time changed otherwise."""
    many = np.tile(images, (variants, 1))
    padded = np.pad(many[:, :-1].reshape(-1, SIDE, SIDE), ((0, 0), (1, 1), (1, 1)))
    rows, columns = (generator.integers(0, 3, (len(many), 1, 1)) for _ in range(2))
    places = np.arange(SIDE)
    record = np.arange(len(many))[:, None, None]
    moved = padded[record, rows + places[None, :, None], columns + places[None, None, :]].astype(np.int64)
    shift = generator.integers(-noise, noise + 1, (2, *moved.shape)).sum(0)
    pixels = np.clip(moved + shift, 0, BRIGHTEST).astype(np.uint8).reshape(len(many), -1)
    return np.concatenate([pixels, many[:, -1:]], 1)

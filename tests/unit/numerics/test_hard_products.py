"""What kernels for products are compared by: equality to the last bit."""

from __future__ import annotations

import torch

from assay.numerics.hard_products import hard_pairs, same, wanted

NAN, INF = float("nan"), float("inf")


def test_nans_are_alike_and_nothing_else_is() -> None:
    x = torch.tensor([NAN, INF, -INF, 0.0, 1.0, 2.0**-149])
    other_nan = torch.tensor([-1], dtype=torch.int32).view(torch.float32)
    assert same(x, torch.cat([other_nan, x[1:]]))
    for at, value in enumerate([0.0, 3.4028234663852886e38, -3.4028234663852886e38, -0.0, NAN, 0.0]):
        changed = x.clone()
        changed[at] = value
        assert not same(x, changed), f"{x[at]} is not {value}"


def test_hard_pairs_meet_every_kind_of_result() -> None:
    found = torch.cat([wanted(*pair).reshape(-1) for pair in hard_pairs(17, 33, 64)])
    finite = found[found.isfinite()]
    assert found.isnan().any() and (finite == 0).any() and (finite > 0).any() and (finite < 0).any()
    assert not finite[finite == 0].signbit().any()

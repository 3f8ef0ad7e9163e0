"""The product (docs/arithmetic.md, A32) on Hopper, where the tensor cores never wait for memory or rounding.

Contract: that of ``triton_kernel.py``, whose end it shares. A program takes tile after tile in three
partitions: one warp that loads into a ring of stages, and two warpgroups that each multiply half of the rows
and round them while the other one multiplies. Only ``numerics.product_triton`` loads this file, since it
needs a Triton with Gluon, whose names change between versions. Not guaranteed: that it ends with another
Triton or on another GPU; hence its first products are made in a process of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from assay.numerics.triton_kernel import bounded, ordinary, rounded

fetched = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
"""Triton 3.9 took the second name away, under which 3.6 has it."""


@gluon.jit
def _place(tile, tiles_m, tiles_n, GROUP: gl.constexpr):
    """(batch, row, column) of a tile: GROUP rows of tiles, column by column."""
    batch = tile // (tiles_m * tiles_n)
    tile = tile % (tiles_m * tiles_n)
    first = tile // (GROUP * tiles_n) * GROUP
    height = gl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return batch, first + within % height, within // height


@gluon.jit
def _exponents(of, at, most):
    return bounded(gl.load(of + at, at < most, other=0))


@gluon.jit
def _load(
    parts,
    shared,
    sizes,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Fills each stage when both consumers have emptied it."""
    a_high, a_low, b_high, b_low = parts
    ring_ah, ring_al, ring_bh, ring_bl, full, empty = shared
    M, N, K, batches = sizes
    tiles_m = (M + BLOCK_M - 1) // BLOCK_M
    tiles_n = (N + BLOCK_N - 1) // BLOCK_N
    stage = 0
    phase = 1
    for tile in range(gl.program_id(0), tiles_m * tiles_n * batches, gl.num_programs(0)):
        batch, tile_m, tile_n = _place(tile, tiles_m, tiles_n, GROUP)
        m = batch * M + tile_m * BLOCK_M
        n = batch * N + tile_n * BLOCK_N
        for k in range(0, K, BLOCK_K):
            ready = full.index(stage)
            mbarrier.wait(empty.index(stage), phase)
            mbarrier.expect(ready, 2 * (BLOCK_M + BLOCK_N) * BLOCK_K)
            fetched(a_high, [m, k], ready, ring_ah.index(stage))
            fetched(b_high, [n, k], ready, ring_bh.index(stage))
            fetched(b_low, [n, k], ready, ring_bl.index(stage))
            fetched(a_low, [m, k], ready, ring_al.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


@gluon.jit
def _consume(
    a_exponents,
    b_exponents,
    out,
    shared,
    sizes,
    FIRST: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    SHORT: gl.constexpr,
):
    """Multiplies 64 rows of each tile from FIRST on, with the products of one step always under way."""
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 32])
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    ring_ah, ring_al, ring_bh, ring_bl, full, empty = shared
    M, N, K, batches = sizes
    tiles_m = (M + BLOCK_M - 1) // BLOCK_M
    tiles_n = (N + BLOCK_N - 1) // BLOCK_N
    stage = 0
    phase = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n * batches, gl.num_programs(0)):
        high = gl.zeros([64, BLOCK_N], gl.int32, sums)
        cross = gl.zeros([64, BLOCK_N], gl.int32, sums)
        low = gl.zeros([64, BLOCK_N], gl.int32, sums)
        for k in range(0, K, BLOCK_K):
            mbarrier.wait(full.index(stage), phase)
            ah = ring_ah.index(stage).slice(FIRST, 64, 0)
            al = ring_al.index(stage).slice(FIRST, 64, 0)
            bh = ring_bh.index(stage).permute((1, 0))
            bl = ring_bl.index(stage).permute((1, 0))
            high = warpgroup_mma(ah, bh, high, is_async=True)
            cross = warpgroup_mma(ah, bl, cross, is_async=True)
            cross = warpgroup_mma(al, bh, cross, is_async=True)
            low = warpgroup_mma(al, bl, low, is_async=True)
            # All but these four have ended, so the stage before is empty. Its number is computed: Triton
            # does not carry a name through a loop if it starts as the value of another name.
            high, cross, low = warpgroup_mma_wait(4, deps=[high, cross, low])
            mbarrier.arrive(empty.index((stage + STAGES - 1) % STAGES), count=1, pred=k > 0)
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1

        # While the last products are under way:
        batch, tile_m, tile_n = _place(tile, tiles_m, tiles_n, GROUP)
        m = tile_m * BLOCK_M + FIRST
        n = tile_n * BLOCK_N
        of_a, of_b = a_exponents + batch * M + m, b_exponents + batch * N + n
        tame = ordinary(
            _exponents(of_a, gl.arange(0, 64, line), M - m),
            _exponents(of_b, gl.arange(0, BLOCK_N, line), N - n),
        )
        high, cross, low = warpgroup_mma_wait(0, deps=[high, cross, low])
        mbarrier.arrive(empty.index((stage + STAGES - 1) % STAGES), count=1)

        rows = gl.arange(0, 64, gl.SliceLayout(1, sums))
        columns = gl.arange(0, BLOCK_N, gl.SliceLayout(0, sums))
        ea, eb = _exponents(of_a, rows, M - m), _exponents(of_b, columns, N - n)
        value = rounded(high, cross, low, ea, eb, tame, SHORT)
        place = (out + (batch.to(gl.int64) * M * N + n) + (m + rows) * N)[:, None] + columns[None, :]
        gl.store(place, value, (rows < M - m)[:, None] & (columns < N - n)[None, :])


@gluon.jit(do_not_specialize=["M", "batches"])
def product(
    a_high,
    a_low,
    b_high,
    b_low,
    a_exponents,
    b_exponents,
    out,
    M,
    N,
    K,
    batches,
    STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    SHORT: gl.constexpr,
):
    """All tiles: descriptors of parts int8 [B * M, K] and [B * N, K], the rest as in ``triton_kernel.py``."""
    BLOCK_M: gl.constexpr = a_high.block_type.shape[0]
    BLOCK_N: gl.constexpr = b_high.block_type.shape[0]
    BLOCK_K: gl.constexpr = a_high.block_type.shape[1]
    ring_ah = gl.allocate_shared_memory(gl.int8, [STAGES, BLOCK_M, BLOCK_K], a_high.layout)
    ring_al = gl.allocate_shared_memory(gl.int8, [STAGES, BLOCK_M, BLOCK_K], a_low.layout)
    ring_bh = gl.allocate_shared_memory(gl.int8, [STAGES, BLOCK_N, BLOCK_K], b_high.layout)
    ring_bl = gl.allocate_shared_memory(gl.int8, [STAGES, BLOCK_N, BLOCK_K], b_low.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    fence_async_shared()
    parts = (a_high, a_low, b_high, b_low)
    shared = (ring_ah, ring_al, ring_bh, ring_bl, full, empty)
    sizes = (M, N, K, batches)
    # Three warpgroups share 64,512 registers: 240 a thread for the two that multiply, whose sums take 192.
    gl.warp_specialize(
        [
            (
                _consume,
                (
                    a_exponents,
                    b_exponents,
                    out,
                    shared,
                    sizes,
                    0,
                    BLOCK_M,
                    BLOCK_N,
                    BLOCK_K,
                    STAGES,
                    GROUP,
                    SHORT,
                ),
            ),
            (
                _consume,
                (
                    a_exponents,
                    b_exponents,
                    out,
                    shared,
                    sizes,
                    64,
                    BLOCK_M,
                    BLOCK_N,
                    BLOCK_K,
                    STAGES,
                    GROUP,
                    SHORT,
                ),
            ),
            (_load, (parts, shared, sizes, BLOCK_M, BLOCK_N, BLOCK_K, STAGES, GROUP)),
        ],
        [4, 1],
        [240, 24],
    )


def described(parts: Sequence[Tensor], rows: int, length: int) -> list[TensorDescriptor]:
    """Parts as the kernel takes them, loaded in blocks of this size."""
    layout = gl.NVMMASharedLayout.get_default_for([rows, length], gl.int8)
    flat = [part.view(-1, part.shape[-1]) for part in parts]
    return [TensorDescriptor.from_tensor(part, [rows, length], layout) for part in flat]

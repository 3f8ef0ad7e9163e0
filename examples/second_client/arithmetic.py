"""The arithmetic of docs/arithmetic.md on numpy arrays; every function names its rule.

Binary64 operations of numpy are one rounding each and never fused; a conversion to float32 is RN32.
"""

import numpy as np

F32, F64, I16, I32, I64, U8, U32 = map(np.dtype, ("<f4", "<f8", "<i2", "<i4", "<i8", "u1", "<u4"))


def constants(text):
    return list(np.array([int(word, 16) for word in text.split()], "<u8").view(F64))


INV_LN2, LN2_HI, LN2_LO = constants("3ff71547652b82fe 3fe62e42fefa4000 bd48432a1b0e2634")  # A20
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
TWO_OVER_PI, P1, P2, P3 = constants("3fe45f306dc9c883 3ff921fb60000000 be6777a5c0000000 bcdee59d9cceba40")
E = constants(
    "3ff0000000000000 3fe0000000000000 3fc55555555520ac 3fa55555555539f4 3f8111111218178f"
    " 3f56c16c17a557d2 3f2a0199affe849b 3efa019b293c4657 3ec72db479f9755c 3e9289865e53815d"
)
L = constants(
    "3fd55555555538a1 3fc999999a2b7a3c 3fc24924164def9c 3fbc722810c9fab3 3fb732b265732fc8 3fb5882456cef278"
)
S = constants(
    "bfc5555555555548 3f8111111110f77e bf2a01a019bf8227 3ec71de35650a138 be5ae5e597d8f662 3de5d8fb81909765"
)
C = constants(
    "bfe0000000000000 3fa5555555552f5e bf56c16c167475f1 3efa019fa88659ce be927e01d0e3dba1 3e21bc3e85ffdcce"
)
ERF = np.array(  # A27: degree down, segment across
    constants(
        """
    0000000000000000 3fe0a7ef5c18edd2 3feaf767a741088b 3feeea5557137ae0 3fefd9ae142795e3 3feffcaa8f4c9bea
    3fefffd1ac4135f9 3feffffe710d565e 3feffffff7b91176 3ff20dd750429b6d 3fec1efca49a509e 3fda911f096fbbea
    3fbe723726b823b2 3f9529b9e8cf9d88 3f61d83170fbef3a 3f22408e9ba32e2a 3ed6a597219b9c03 3e810b14804da67b
    3cfae6e61fbeb3ce bfdc1efca49a4ec6 bfda911f096fbdc3 bfc6d5a95d0a1ca5 bfa529b9e8cf95a4 bf764e3dcd3a968f
    bf3b60d5e96df7a9 bef3d0e43d034b33 bea10b15454f10d4 bfd812746b03aab2 bfc2bf53186aba87 3fc1b614b0f5f9b9
    3fc1c2a02bec4279 3fa8b0ae3a448c15 3f8119da0c4a322c 3f49db74b1d3bedd 3f062ccea602e91b 3eb603947b8819df
    3dc4a3a0f3a517e6 3fc76f27de7e52e2 3fb1b614b0fab811 bfa6d5a95d0a91f7 bfa1a2c5975924d3 bf81a89b97e60a23
    bf511c85b2c66d11 bf11c0772e21f87c bec498ecf17ea835 3fbce2f2151a3ace 3f7dfeeb97fed648 bfb1b614b1c76064
    bf8e72372d750c56 3f8ace740abdc494 3f790e8124d91edb 3f50a7b553f3de12 3f1586bb0b0d0377 3ecd971e2089d58a
    3e574118efe3724d bfa99f13af368b75 3f72e45a3743d9d4 3f93ca3d74be9785 3f3e1935f364f1b8 bf66ecdbe2aebe23
    bf482f22fa3eff38 bf14615153219fd0 bed1596e31a56deb bf9b82e040211e78 3f7623b8d5a34241 3f8f097140d1c18b
    bf736d70c34fee2e bf6bae0fdb4827fa 3f41c61693c3b726 3f3998b4e16fa068 3f0e82797f61b644 3ecab4fa1baeb001
    3ec2f1b2181a681b 3f8493d24b16f70a bf73910f1786371c bf635ae90320ef7f 3f5a114467208f18 3f311541acb087e0
    bf21aa87c3453d43 bf01f6bd06c19778 beda00ad45b85f39 3f7558340838d367 bf61be9f0a97bb57 bf5ee43d0bf78c88
    3f5c024d2a540d36 bf0a2485ba54cbd1 bf30684fef554954 3eed28ea787dc69e 3ef0149c513deee2 bee4df6686d2c2fa
    3f0a054c8924068c bf59b55c9b83597e 3f541584ca8df2ab bf184cd392ecc265 bf3139df14e3a6f1 3f14ab6343be140f
    3ef071a458ba91ca bed33fcd2463b7f8 befde31b6eeb64b9 bf5006b72ff5954c 3f3f7ab2d98c882b 3f1761432ae046c5
    bf306f800e2e455d 3f1a57d86df9f4af 3ed979524011d423 bee693106b4eb968 3e99b8e1c365bb68 bf03642826fdf69c
    3f27a4b08121f5e8 3f292b06ffc35e2b bf298a3cc94a4c27 3f13a0081466b500 3ed8f2e0d55afc15 beedf487d01fed7b
    3ec638c68a9a2415 3e8afc8d5fee5fe4 bef7b3a00862089e
        """
    )
).reshape(13, 9)


def bits(x):
    return np.asarray(x, order="C").view(U32)


def magnitude(x):
    return (bits(x) & 0x7FFFFFFF).view(F32)


def signed(x, like):
    """x with the sign bit of `like`."""
    return (bits(magnitude(x)) | (bits(like) & 0x80000000)).view(F32)


def horner(t, coefficients):  # A7
    h = coefficients[-1]
    for c in coefficients[-2::-1]:
        h = h * t + c
    return h


def scaled(v, n):  # A6
    return np.ldexp(v, n.astype(np.int32))


def expm(t):  # A21
    n = np.rint(t * INV_LN2) + 0.0
    r = (t - n * LN2_HI) - n * LN2_LO
    return horner(r, E) * r, n


def exp_of(t):
    """RN32 of e^t, for t in f64 that is no NaN."""
    q, n = expm(np.minimum(np.maximum(t, -104.0), 89.0))
    return scaled(1.0 + q, n).astype(F32)


def quiet(x, result):
    """NaN where x is one."""
    return np.where(np.isnan(x), np.float32(np.nan), result)


def exp(x):  # A22
    return quiet(x, exp_of(np.nan_to_num(x.astype(F64), nan=0.0, posinf=np.inf, neginf=-np.inf)))


def tanh(x):  # A23
    a = np.minimum(np.where(np.isnan(x), 0, magnitude(x)).astype(F64), 10.0)
    q, n = expm(a + a)
    power = scaled(np.ones_like(a), n)
    u = q * power + (power - 1.0)
    return quiet(x, signed((u / (u + 2.0)).astype(F32), x))


def log_of(v):  # A24, for v in f64, positive and finite
    b = v.view(I64)
    k = (b - SQRT_HALF_BITS) >> 52
    m = (b - (k << 52)).view(F64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    h, d = horner(z, L) * z, s + s
    y, k = d + d * h, k.astype(F64)
    return k * LN2_HI + (k * LN2_LO + y)


def ordinary(x):
    """x in f64, and 1 where it is not positive and finite."""
    return np.where((x > 0) & np.isfinite(x), x, np.float32(1)).astype(F64)


def log(x):  # A25
    out = log_of(ordinary(x)).astype(F32)
    out = np.where(x == np.inf, np.float32(np.inf), out)
    out = np.where(x == 0, np.float32(-np.inf), out)
    return np.where(np.isnan(x) | (x < 0), np.float32(np.nan), out)


def circular(x, cosine):  # A26
    a = magnitude(x).astype(F64)
    a = np.where(a < 2.0**29, a, 0.0)
    k = np.rint(a * TWO_OVER_PI)
    r = ((a - k * P1) - k * P2) - k * P3
    z = r * r
    sine, cos = r + r * (horner(z, S) * z), 1.0 + horner(z, C) * z
    quadrant = k.astype(I64) & 3
    if cosine:
        out = np.choose(quadrant, [cos, -sine, -cos, sine])
    else:
        out = np.choose(quadrant, [sine, cos, -sine, -cos])
        out = np.where(bits(x) >> 31, -out, out)
    return np.where(np.isfinite(x), out.astype(F32), np.float32(np.nan))


def erf(x):  # A27
    a = np.minimum(np.where(np.isnan(x), 0, magnitude(x)).astype(F64), 4.0)
    j = np.rint(a + a)
    t, table = a - j / 2.0, ERF[:, j.astype(I64)]
    return quiet(x, signed(horner(t, list(table)).astype(F32), x))


def power(x, y):  # A28
    x, y = np.broadcast_arrays(x, y)
    x, y = np.asarray(x, order="C"), np.asarray(y, order="C")
    ax, ay = magnitude(x), magnitude(y)
    integral = np.isfinite(y) & (np.floor(y) == y)
    odd = integral & (ay < 2**24) & (np.where(integral & (ay < 2**24), ay, 0).astype(I64) & 1 == 1)
    w = np.where(ax == 0, -np.inf, np.where(np.isinf(ax), np.inf, log_of(ordinary(ax))))
    special = np.isnan(x) | np.isnan(y) | (ax == 1) | (y == 0)
    t = np.where(special, 0.0, y.astype(F64) * np.where(special, 1.0, w))
    out = np.where(ax == 1, np.float32(1), exp_of(t))
    out = np.where((bits(x) >> 31 == 1) & odd, -out, out)
    out = np.where((x < 0) & np.isfinite(x) & np.isfinite(y) & ~integral, np.float32(np.nan), out)
    out = np.where(np.isnan(x) | np.isnan(y), np.float32(np.nan), out)
    return np.where((y == 0) | (x == 1), np.float32(1), out)


def convert(x, to):  # A19
    if x.dtype == F32 and to == I32:
        whole = np.trunc(np.nan_to_num(x.astype(F64), nan=0.0, posinf=2.0**40, neginf=-(2.0**40)))
        return np.clip(whole, -(2.0**31), 2.0**31 - 1).astype(I32)
    if x.dtype == I32 and to == U8:
        return (x & 0xFF).astype(U8)
    return (x != 0) if to == np.bool_ else x.astype(to)


def exponent(x):  # A30
    top = (bits(x) & 0x7FFFFFFF).max(axis=-1).astype(I64) >> 23
    return np.where(top == 255, 129, np.maximum(top, 1) - 126).astype(I16)


def clamped(e):
    return np.clip(e.astype(I64), -125, 129)


def quantise(x, e):  # A31
    e = clamped(e)[..., None]
    v = np.nan_to_num(x.astype(F64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    q = np.clip(np.rint(scaled(v, 13 - e)), -8192, 8192)
    return np.where(e == 129, 0, q).astype(I16)


def product(qa, ea, qb, eb):  # A32, by A51 (b)
    ea, eb = clamped(ea)[..., :, None], clamped(eb)[..., None, :]
    total = np.matmul(qa.astype(F64), np.swapaxes(qb.astype(F64), -1, -2)) + 0.0
    out = scaled(total, ea + eb - 26).astype(F32)
    return np.where((ea == 129) | (eb == 129), np.float32(np.nan), out)


def whole_numbers(x, e, k):
    """The integers of A33 and A34, as f64; rows that are not finite give nothing."""
    v = np.where(np.isfinite(x), x, np.float32(0)).astype(F64)
    return np.rint(scaled(v, k - e.astype(I64)[..., None]))


def total(x):  # A33
    e, k = exponent(x), 50 - (x.shape[-1] - 1).bit_length()
    out = scaled(whole_numbers(x, e, k).sum(axis=-1) + 0.0, e.astype(I64) - k).astype(F32)
    up, down = (x == np.inf).any(axis=-1), (x == -np.inf).any(axis=-1)
    out = np.where(up, np.float32(np.inf), np.where(down, np.float32(-np.inf), out))
    return np.where(np.isnan(x).any(axis=-1) | (up & down), np.float32(np.nan), out)


def scatter_sum(x, index, width):  # A34
    e, k = exponent(x), 50 - (x.shape[-1] - 1).bit_length()
    q, index = whole_numbers(x, e, k), np.broadcast_to(index, x.shape)
    at, sums = np.nonzero((index >= 0) & (index < width)), np.zeros((x.shape[0], width), F64)
    np.add.at(sums, (at[0], index[at]), q[at])
    out = scaled(sums + 0.0, e.astype(I64)[:, None] - k).astype(F32)
    return np.where(np.isfinite(x).all(axis=-1)[:, None], out, np.float32(np.nan))


def amax(x):  # A35
    return np.where(np.isnan(x).any(axis=-1), np.float32(np.nan), x.max(axis=-1) + np.float32(0))

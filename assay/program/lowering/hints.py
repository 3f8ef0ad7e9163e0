"""Suggests replacements for unsupported operations.

Contract: `rewrite_of` returns a sentence for any operation name: a replacement for known ones, otherwise
where the list of operations is.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_WHERE = "the result's size would depend on the data; keep every row and mask with torch.where"
_SOLVE = "solve by a fixed number of iterations of products (Newton–Schulz, conjugate gradients)"
REWRITES = {
    "_local_scalar_dense": "keep the number a tensor: index with index_select or gather by it, choose with"
    " torch.where, in the place of item(), int() and if",
    "nonzero*": _WHERE,
    "_unique*": _WHERE,
    "unique*": _WHERE,
    "masked_select": _WHERE,
    "masked_scatter": "write with torch.where, or scatter to places from a running count of the mask",
    "index": _WHERE,
    "bincount": "sum torch.nn.functional.one_hot of the numbers, or scatter_add ones",
    "histc": "give min= and max=: what they are by default depends on the data",
    "_fft_*": "call torch.fft or torch.stft themselves, which are made of products here",
    "_upsample_*_aa": "leave antialias=True out, or average with avg_pool2d first",
    "_grouped_mm": "multiply each group with a matrix product of its own, or all of them with torch.bmm",
    "repeat_interleave": "repeat by a number, not by a tensor of counts",
    "_ctc_loss*": "write the forward recursion with torch.logaddexp over the targets",
    "linalg_inv*": _SOLVE,
    "_linalg_solve*": _SOLVE,
    "linalg_*": _SOLVE,
    "_linalg_*": _SOLVE,
    "cholesky*": _SOLVE,
    "rrelu_with_noise": "use leaky_relu, or multiply by torch.rand",
    "erfinv": "use Newton's iteration on torch.erf",
    "lgamma": "use Stirling's series",
    "digamma": "use its asymptotic series",
    "scatter_reduce": "reduce by amax, amin, sum or mean, and give an index of the full size in every other"
    " dimension; a product is exp of a sum of logarithms",
    "index_reduce": "use index_add for sums; for maxima compare one_hot places and take amax",
    "max_unpool*": "upsample with interpolate or a transposed convolution",
    "fractional_max_pool*": "use max_pool with fixed windows",
    "*_quantize*": "train in float32; the program quantises products by itself",
    "poisson": "draw with a sum of comparisons of torch.rand",
    "multi_margin_loss*": "write it with gather and clamp(min=0)",
    "multilabel_margin_loss*": "write it with gather and clamp(min=0)",
}


def rewrite_of(operation: str) -> str:
    """Suggests a replacement for ``aten.name.overload``."""
    name = operation.removeprefix("aten.").partition(".")[0].rstrip("_")
    for pattern, instead in REWRITES.items():
        if fnmatchcase(name, pattern) or (name.endswith("_backward") and fnmatchcase(name[:-9], pattern)):
            return f"On this line, {instead}."
    return "Rewrite this line with operations listed in docs/operations.md."

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SoftFloat} from "./SoftFloat.sol";
import {Spans} from "./Spans.sol";

/// @title Exact integer sums over rows in calldata
/// @notice Positions are calldata offsets of little-endian elements. Definitions: docs/arithmetic.md, A30 to A36.
library Contraction {
    uint256 private constant INF = 0x7f800000;
    uint256 private constant NAN = 0x7fc00000;
    int256 private constant POISON = 129;

    uint256 private constant BYTES = 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff;
    uint256 private constant LANES = 0x000000000000ffff000000000000ffff000000000000ffff000000000000ffff;
    uint256 private constant OFFSETS = 0x8000800080008000800080008000800080008000800080008000800080008000;
    uint256 private constant ODD = 0xffffffffffffffff0000000000000000ffffffffffffffff0000000000000000;
    uint256 private constant EVEN = 0x0000000000000000ffffffffffffffff0000000000000000ffffffffffffffff;
    uint256 private constant HALVES = 0x0000000000008000000000000000800000000000000080000000000000008000;
    uint256 private constant DIGITS = 0x0000000000000000800000000000000080000000000000008000000000000000;
    uint256 private constant TOPS = 0x8000000080000000800000008000000080000000800000008000000080000000;
    /// @dev Exponents below the largest within which x·2^(k−e) is an integer: k − 24 − 12 at the bound.
    uint256 private constant EXACT = 14;
    uint256 private constant COUNTED = 1 << 40;

    function clampExponent(int256 e) internal pure returns (int256) {
        return e < -125 ? int256(-125) : e > POISON ? POISON : e;
    }

    /// @notice A30, from the row's largest magnitude bits.
    function exponentOf(uint256 largest) internal pure returns (int256) {
        uint256 field = largest >> 23;
        if (field == 255) return POISON;
        return int256(field == 0 ? 1 : field) - 126;
    }

    /// @notice A31 for one element.
    function quantise(uint256 x, int256 e) internal pure returns (int256 q) {
        e = clampExponent(e);
        uint256 mag = x & 0x7fffffff;
        if (e == POISON || mag > INF || mag == 0) return 0;
        (uint256 m, int256 ulp) = SoftFloat.unpack(mag, 24);
        int256 shift = ulp + 13 - e;
        uint256 size = 8192;
        if (mag != INF && shift < 14) {
            size = shift < 0 ? SoftFloat.shiftRight(m, uint256(-shift)) : m << uint256(shift);
        }
        if (size > 8192) size = 8192;
        return x >> 31 == 0 ? int256(size) : -int256(size);
    }

    /// @notice Largest of (bits & 0x7fffffff) over a row of f32 in `Spans.lanes`.
    function largestMagnitude(uint256 words, uint256 count) internal pure returns (uint256 largest) {
        // Eight maxima at once: with the top bits set in `best`, the difference keeps it in the lanes where best ≥ w.
        uint256 best;
        assembly ("memory-safe") {
            let tops := TOPS
            let rest := not(tops)
            for { let end := add(words, shl(2, count)) } lt(words, end) { words := add(words, 32) } {
                let w := and(mload(words), rest)
                let keep := mul(shr(31, and(sub(or(best, tops), w), tops)), 0xffffffff)
                best := xor(w, and(xor(w, best), keep))
            }
        }
        for (; best != 0; best >>= 32) {
            if (best & 0x7fffffff > largest) largest = best & 0x7fffffff;
        }
    }

    /// @notice A33 over `count` f32.
    function sum(uint256 position, uint256 count) internal pure returns (uint256) {
        uint256 words = Spans.lanes(position, count);
        uint256 largest = largestMagnitude(words, count);
        if (largest >= INF) return _special(words, count, largest);
        (int256 total, bool more) = _exactSum(words, count, largest);
        if (more) total += _roundedSum(words, count, largest);
        return _rounded(total, count, largest);
    }

    /// @notice A34 for one output: the x whose index is `wanted`.
    function scatterSum(uint256 position, uint256 indexPosition, uint256 count, uint256 wanted)
        internal
        pure
        returns (uint256)
    {
        uint256 words = Spans.lanes(position, count);
        uint256 largest = largestMagnitude(words, count);
        if (largest >= INF) return NAN;
        int256 total = _chosenSum(words, Spans.lanes(indexPosition, count), count, largest, wanted);
        return _rounded(total, count, largest);
    }

    /// @notice A32: Σ a·b over `count` pairs of i16, exact.
    function dot(uint256 a, uint256 b, uint256 count) internal pure returns (int256 total) {
        // A word holds sixteen factors, every fourth in a 64-bit lane: four numbers in base 2^64, whose digits may be
        // negative. With b's digits reversed, digit 3 of one 256-bit product is the sum of four products. The digits of all
        // products together stay below 4096 · 2^30 = 2^42 in size.
        assembly ("memory-safe") {
            // On the stack: the optimiser would compute such constants anew each time.
            let lanes := LANES
            let pairs := BYTES
            let halves := HALVES
            b := sub(b, a)
            for { let end := add(a, shl(1, count)) } lt(a, end) { a := add(a, 32) } {
                let x := calldataload(a)
                let y := calldataload(add(a, b))
                if lt(sub(end, a), 32) {
                    // The last, partial word: what lies beyond the row becomes zero.
                    let row := not(shr(shl(3, sub(end, a)), not(0)))
                    x := and(x, row)
                    y := and(y, row)
                }
                x := xor(or(shl(8, and(x, pairs)), and(shr(8, x), pairs)), OFFSETS)
                y := xor(or(shl(8, and(y, pairs)), and(shr(8, y), pairs)), OFFSETS)
                y := or(shl(128, y), shr(128, y))
                y := or(and(shl(64, y), ODD), and(shr(64, y), EVEN))
                total := add(
                    total,
                    add(
                        add(
                            mul(sub(and(x, lanes), halves), sub(and(y, lanes), halves)),
                            mul(sub(and(shr(16, x), lanes), halves), sub(and(shr(16, y), lanes), halves))
                        ),
                        add(
                            mul(sub(and(shr(32, x), lanes), halves), sub(and(shr(32, y), lanes), halves)),
                            mul(sub(and(shr(48, x), lanes), halves), sub(and(shr(48, y), lanes), halves))
                        )
                    )
                )
            }
            // Made positive, the digits below borrow nothing from the top one.
            total := sar(192, add(total, DIGITS))
        }
    }

    /// @notice A35.
    function amax(uint256 position, uint256 count) internal pure returns (uint256) {
        (uint256 best,, bool poisoned) = _largest(Spans.lanes(position, count), count);
        if (poisoned) return NAN;
        return best & 0x80000000 != 0 ? best ^ 0x80000000 : best ^ 0xffffffff;
    }

    /// @notice A36.
    function argmax(uint256 position, uint256 count) internal pure returns (uint256 index) {
        (, index,) = _largest(Spans.lanes(position, count), count);
    }

    /// @dev Index of the first largest element, or of the first NaN. `best` orders as unsigned: the bits with the sign
    /// flipped, or all inverted when negative; −0 counts as +0.
    function _largest(uint256 words, uint256 count)
        private
        pure
        returns (uint256 best, uint256 index, bool poisoned)
    {
        assembly ("memory-safe") {
            for { let i := 0 } lt(i, count) { i := add(i, 1) } {
                let x :=
                    and(shr(sub(224, shl(5, and(i, 7))), mload(add(words, shl(5, shr(3, i))))), 0xffffffff)
                if gt(and(x, 0x7fffffff), 0x7f800000) {
                    index := i
                    poisoned := 1
                    break
                }
                if eq(x, 0x80000000) { x := 0 }
                switch shr(31, x)
                case 0 { x := or(x, 0x80000000) }
                default { x := xor(x, 0xffffffff) }
                if gt(x, best) {
                    best := x
                    index := i
                }
            }
        }
    }

    /// @dev A33 step 1 for a row that holds an infinity or a NaN.
    function _special(uint256 words, uint256 count, uint256 largest) private pure returns (uint256) {
        if (largest > INF) return NAN;
        bool plus;
        bool minus;
        for (uint256 i; i < count; ++i) {
            uint256 x;
            assembly ("memory-safe") {
                x := and(shr(sub(224, shl(5, and(i, 7))), mload(add(words, shl(5, shr(3, i))))), 0xffffffff)
            }
            if (x == INF) plus = true;
            else if (x == INF | 0x80000000) minus = true;
        }
        if (plus && minus) return NAN;
        return plus ? INF : INF | 0x80000000;
    }

    /// @dev ceil(log2 count)
    function _log2Up(uint256 count) private pure returns (uint256 bits) {
        while (uint256(1) << bits < count) ++bits;
    }

    /// @dev RN32(total · 2^(e − k)).
    function _rounded(int256 total, uint256 count, uint256 largest) private pure returns (uint256) {
        int256 k = 50 - int256(_log2Up(count));
        uint256 size = total < 0 ? uint256(-total) : uint256(total);
        return SoftFloat.pack(total < 0, size, exponentOf(largest) - k, 24);
    }

    /// @dev Σ x · 2^(k − e) over the elements whose exponent is at most EXACT below the largest: there it is an integer. `more`:
    /// there are others that are not zero. Elements are gathered by sign and exponent, each bucket counting them
    /// (from bit 40 on) and adding up their fractions.
    function _exactSum(uint256 words, uint256 count, uint256 largest)
        private
        pure
        returns (int256 total, bool more)
    {
        uint256 buckets = _buckets(words, count);
        uint256 top = largest >> 23;
        if (top == 0) top = 1;
        uint256 left = (count + 7) / 8 * 8; // lanes, those past the row being +0
        uint256 scale = 26 - _log2Up(count) - EXACT;
        for (uint256 field = top > EXACT ? top - EXACT : 0; field <= top; ++field) {
            (uint256 plus, uint256 plusCount) = _bucket(buckets, field);
            (uint256 minus, uint256 minusCount) = _bucket(buckets, 256 + field);
            left -= plusCount + minusCount;
            int256 part = int256(plus) - int256(minus);
            uint256 shift = (field == 0 ? 1 : field) + EXACT - top;
            total += part << (scale + shift);
        }
        if (top > EXACT) {
            (uint256 plus, uint256 plusCount) = _bucket(buckets, 0);
            (uint256 minus, uint256 minusCount) = _bucket(buckets, 256);
            if (plus | minus == 0) left -= plusCount + minusCount;
        }
        more = left != 0;
    }

    /// @dev Sum of the bucket's significands, and how many they are.
    function _bucket(uint256 buckets, uint256 key) private pure returns (uint256 sum_, uint256 count) {
        uint256 content;
        assembly ("memory-safe") {
            content := mload(add(buckets, shl(5, key)))
        }
        count = content / COUNTED;
        sum_ = content % COUNTED;
        if (key & 255 != 0) sum_ += count << 23;
    }

    function _buckets(uint256 words, uint256 count) private pure returns (uint256 buckets) {
        assembly ("memory-safe") {
            buckets := mload(0x40)
            mstore(0x40, add(buckets, 0x4000))
            calldatacopy(buckets, calldatasize(), 0x4000)
            for { let end := add(words, shl(2, count)) } lt(words, end) { words := add(words, 32) } {
                let w := mload(words)
                let p := add(buckets, and(shr(242, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(shr(224, w), 0x7fffff), 0x10000000000)))
                p := add(buckets, and(shr(210, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(shr(192, w), 0x7fffff), 0x10000000000)))
                p := add(buckets, and(shr(178, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(shr(160, w), 0x7fffff), 0x10000000000)))
                p := add(buckets, and(shr(146, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(shr(128, w), 0x7fffff), 0x10000000000)))
                p := add(buckets, and(shr(114, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(shr(96, w), 0x7fffff), 0x10000000000)))
                p := add(buckets, and(shr(82, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(shr(64, w), 0x7fffff), 0x10000000000)))
                p := add(buckets, and(shr(50, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(shr(32, w), 0x7fffff), 0x10000000000)))
                p := add(buckets, and(shr(18, w), 0x3fe0))
                mstore(p, add(mload(p), add(and(w, 0x7fffff), 0x10000000000)))
            }
        }
    }

    /// @dev Σ RNE(x · 2^(k − e)) over the elements that _exactSum leaves out.
    function _roundedSum(uint256 words, uint256 count, uint256 largest) private pure returns (int256 total) {
        uint256 base = _shiftBase(count, largest);
        // An element whose shift is 52 or more rounds to zero.
        uint256 low = base > 52 ? base - 52 : 0;
        uint256 below = largest >> 23 > EXACT ? (largest >> 23) - EXACT : 0;
        if (below <= low) return 0;
        uint256 span = below - low;
        assembly ("memory-safe") {
            function term(x, top) -> v {
                let field := and(shr(23, x), 0xff)
                let m := and(x, 0x7fffff)
                switch field
                case 0 { field := 1 }
                default { m := or(m, 0x800000) }
                m := shl(27, m)
                field := sub(top, field)
                v := shr(field, add(add(m, sub(shl(sub(field, 1), 1), 1)), and(shr(field, m), 1)))
                if and(x, 0x80000000) { v := sub(0, v) }
            }
            for { let end := add(words, shl(2, count)) } lt(words, end) { words := add(words, 32) } {
                let w := mload(words)
                for { let s := 256 } s {} {
                    s := sub(s, 32)
                    let x := shr(s, w)
                    if lt(sub(and(shr(23, x), 0xff), low), span) { total := add(total, term(x, base)) }
                }
            }
        }
    }

    /// @dev Σ RNE(x · 2^(k − e)) over the elements whose index is `wanted`. Lanes past the row hold +0.
    function _chosenSum(uint256 words, uint256 indices, uint256 count, uint256 largest, uint256 wanted)
        private
        pure
        returns (int256 total)
    {
        uint256 base = _shiftBase(count, largest);
        assembly ("memory-safe") {
            function term(x, top) -> v {
                let field := and(shr(23, x), 0xff)
                let m := and(x, 0x7fffff)
                switch field
                case 0 { field := 1 }
                default { m := or(m, 0x800000) }
                m := shl(27, m)
                field := sub(top, field)
                v := shr(field, add(add(m, sub(shl(sub(field, 1), 1), 1)), and(shr(field, m), 1)))
                if and(x, 0x80000000) { v := sub(0, v) }
            }
            for { let end := add(words, shl(2, count)) } lt(words, end) { words := add(words, 32) } {
                let index := mload(indices)
                indices := add(indices, 32)
                for { let s := 256 } s {} {
                    s := sub(s, 32)
                    if eq(and(shr(s, index), 0xffffffff), wanted) {
                        total := add(total, term(shr(s, mload(words)), base))
                    }
                }
            }
        }
    }

    /// @dev x = m·2^(E − 150), so x·2^(k−e) = m·2^(E + k − top − 24) with top the largest E: at most 26 to the left. With m·2^27
    /// in hand it is always a shift right, by this number less E.
    function _shiftBase(uint256 count, uint256 largest) private pure returns (uint256) {
        uint256 top = largest >> 23;
        return (top == 0 ? 1 : top) + _log2Up(count) + 1;
    }
}

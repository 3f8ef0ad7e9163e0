// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

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
    uint256 private constant LANE = 0xffffffffffffffff;

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
        if (mag != INF && shift < 14) size = shift < 0 ? SoftFloat.shiftRight(m, uint256(-shift)) : m << uint256(shift);
        if (size > 8192) size = 8192;
        return x >> 31 == 0 ? int256(size) : -int256(size);
    }

    /// @notice Largest of (bits & 0x7fffffff) over a row of f32.
    function largestMagnitude(uint256 words, uint256 count) internal pure returns (uint256 largest) {
        assembly ("memory-safe") {
            let p := words
            for { let left := count } left {} {
                let w := mload(p)
                let take := left
                if gt(take, 8) { take := 8 }
                for { let end := sub(256, shl(5, take)) let s := 256 } gt(s, end) {} {
                    s := sub(s, 32)
                    let m := and(shr(s, w), 0x7fffffff)
                    if gt(m, largest) { largest := m }
                }
                left := sub(left, take)
                p := add(p, 32)
            }
        }
    }

    /// @notice A33 over `count` f32.
    function sum(uint256 position, uint256 count) internal pure returns (uint256) {
        uint256 words = Spans.lanes(position, count);
        uint256 largest = largestMagnitude(words, count);
        if (largest >= INF) return _special(words, count, largest);
        int256 total = _quantisedSum(words, count, largest, type(uint256).max, 0);
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
        int256 total = _quantisedSum(words, count, largest, wanted, Spans.lanes(indexPosition, count));
        return _rounded(total, count, largest);
    }

    /// @notice A32: Σ a·b over `count` pairs of i16, exact.
    function dot(uint256 a, uint256 b, uint256 count) internal pure returns (int256 total) {
        // Offset by 2^15 the factors are unsigned: Σ ab = Σ a'b' − 2^15 (Σ a' + Σ b') + count·2^30. A word holds sixteen of
        // them, every fourth in a 64-bit lane; with b's lanes reversed, the top lane of one 256-bit product is the sum of
        // four products. Lanes never overflow: sums stay below 4096 · 2^32 = 2^44.
        uint256 products;
        uint256 sums;
        assembly ("memory-safe") {
            for { let left := shl(1, count) } left {} {
                let x := calldataload(a)
                let y := calldataload(b)
                a := add(a, 32)
                b := add(b, 32)
                x := xor(or(shl(8, and(x, BYTES)), and(shr(8, x), BYTES)), OFFSETS)
                y := xor(or(shl(8, and(y, BYTES)), and(shr(8, y), BYTES)), OFFSETS)
                switch lt(left, 32)
                case 0 { left := sub(left, 32) }
                default {
                    // The last, partial word: what lies beyond the row becomes zero, which adds nothing.
                    left := not(shr(shl(3, left), not(0)))
                    x := and(x, left)
                    y := and(y, left)
                    left := 0
                }
                sums := add(
                    sums,
                    add(
                        add(add(and(x, LANES), and(shr(16, x), LANES)), add(and(shr(32, x), LANES), and(shr(48, x), LANES))),
                        add(add(and(y, LANES), and(shr(16, y), LANES)), add(and(shr(32, y), LANES), and(shr(48, y), LANES)))
                    )
                )
                y := or(shl(128, y), shr(128, y))
                y := or(and(shl(64, y), ODD), and(shr(64, y), EVEN))
                products := add(
                    products,
                    add(
                        add(
                            mul(and(x, LANES), and(y, LANES)), mul(and(shr(16, x), LANES), and(shr(16, y), LANES))
                        ),
                        add(
                            mul(and(shr(32, x), LANES), and(shr(32, y), LANES)),
                            mul(and(shr(48, x), LANES), and(shr(48, y), LANES))
                        )
                    )
                )
            }
            products := shr(192, products)
            sums := add(add(shr(192, sums), and(shr(128, sums), LANE)), add(and(shr(64, sums), LANE), and(sums, LANE)))
        }
        return int256(products) - int256(sums << 15) + int256(count << 30);
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
    function _largest(uint256 words, uint256 count) private pure returns (uint256 best, uint256 index, bool poisoned) {
        assembly ("memory-safe") {
            for { let i := 0 } lt(i, count) { i := add(i, 1) } {
                let x := and(shr(sub(224, shl(5, and(i, 7))), mload(add(words, shl(5, shr(3, i))))), 0xffffffff)
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
        while (1 << bits < count) ++bits;
    }

    /// @dev RN32(total · 2^(e − k)).
    function _rounded(int256 total, uint256 count, uint256 largest) private pure returns (uint256) {
        int256 k = 50 - int256(_log2Up(count));
        uint256 size = total < 0 ? uint256(-total) : uint256(total);
        return SoftFloat.pack(total < 0, size, exponentOf(largest) - k, 24);
    }

    /// @dev Σ RNE(x · 2^(k − e)) over all elements, or over those whose index is `wanted` if that is one.
    function _quantisedSum(uint256 words, uint256 count, uint256 largest, uint256 wanted, uint256 indices)
        private
        pure
        returns (int256 total)
    {
        // x = m·2^(E − 150), so x·2^(k−e) = m·2^(E + k − top − 24) with top the largest E. The shift left is at most 26: with
        // m·2^27 in hand it is always a shift right by at least 1, rounded by adding half less one and the lowest kept bit.
        uint256 top = largest >> 23;
        if (top == 0) top = 1;
        uint256 base = top + _log2Up(count) + 1; // shift right = base − E
        assembly ("memory-safe") {
            let last := sub(count, 1)
            let all := eq(wanted, not(0))
            for { let i := 0 } 1 {} {
                let w := mload(add(words, shl(2, i)))
                let v := 0
                if iszero(all) { v := mload(add(indices, shl(2, i))) }
                for { let s := 256 } s {} {
                    s := sub(s, 32)
                    if or(all, eq(and(shr(s, v), 0xffffffff), wanted)) {
                        let x := shr(s, w)
                        let m := and(x, 0x7fffff)
                        let field := and(shr(23, x), 0xff)
                        switch field
                        case 0 { field := 1 }
                        default { m := or(m, 0x800000) }
                        m := shl(27, m)
                        let t := sub(base, field)
                        m := shr(t, add(add(m, sub(shl(sub(t, 1), 1), 1)), and(shr(t, m), 1)))
                        switch and(x, 0x80000000)
                        case 0 { total := add(total, m) }
                        default { total := sub(total, m) }
                    }
                    if eq(i, last) {
                        i := count
                        break
                    }
                    i := add(i, 1)
                }
                if eq(i, count) { break }
            }
        }
    }
}

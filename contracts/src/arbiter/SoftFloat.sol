// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FixedPointMathLib} from "solady/utils/FixedPointMathLib.sol";

/// @title IEEE-754 binary32 and binary64 in integers, round to nearest even, subnormals included
/// @notice A number is held as its bits in a uint256. `p` is the precision: 24 for binary32, 53 for binary64. Every
/// function takes exact operands to an exact wide integer m·2^e and rounds once (`pack`). Every NaN result is the one
/// canonical NaN. Rules: docs/arithmetic.md, A4 to A8.
library SoftFloat {
    uint256 internal constant F32 = 24;
    uint256 internal constant F64 = 53;
    uint256 internal constant NAN32 = 0x7fc00000;
    uint256 internal constant INF32 = 0x7f800000;
    uint256 internal constant SIGN32 = 0x80000000;
    uint256 internal constant INF64 = 0x7ff0000000000000;
    uint256 internal constant NAN64 = 0x7ff8000000000000;
    uint256 internal constant SIGN64 = 0x8000000000000000;

    /// @dev Far enough apart that the smaller addend can only act as a sticky bit.
    int256 private constant FAR = 190;

    // ---- formats

    function infinity(uint256 p) internal pure returns (uint256) {
        return p == F32 ? INF32 : INF64;
    }

    function signBit(uint256 p) internal pure returns (uint256) {
        return p == F32 ? SIGN32 : SIGN64;
    }

    function nan(uint256 p) internal pure returns (uint256) {
        return p == F32 ? NAN32 : NAN64;
    }

    /// @dev Exponent of the unit in the last place of subnormals.
    function ulpMin(uint256 p) internal pure returns (int256) {
        return p == F32 ? -149 : -1074;
    }

    function magnitude(uint256 a, uint256 p) internal pure returns (uint256) {
        return a & (signBit(p) - 1);
    }

    function isNan(uint256 a, uint256 p) internal pure returns (bool) {
        return magnitude(a, p) > infinity(p);
    }

    /// @dev Of a finite number: |a| = m·2^e.
    function unpack(uint256 a, uint256 p) internal pure returns (uint256 m, int256 e) {
        unchecked {
            a = magnitude(a, p);
            uint256 field = a >> (p - 1);
            m = a & ((1 << (p - 1)) - 1);
            e = ulpMin(p);
            if (field != 0) {
                m |= 1 << (p - 1);
                e += int256(field) - 1;
            }
        }
    }

    /// @notice RN(±m·2^e): the nearest number, ties to even, overflow to infinity; zero keeps the given sign.
    function pack(bool negative, uint256 m, int256 e, uint256 p) internal pure returns (uint256 bits) {
        unchecked {
            if (m != 0) {
                int256 least = ulpMin(p);
                int256 ulp = e + int256(FixedPointMathLib.log2(m)) + 1 - int256(p);
                if (ulp < least) ulp = least;
                int256 shift = ulp - e;
                uint256 q = shift > 0 ? shiftRight(m, uint256(shift)) : m << uint256(-shift);
                // A carry out of q, and a subnormal that becomes normal, move into the exponent field by themselves.
                int256 field = ulp - least;
                if (field > 4096) field = 4096;
                bits = (uint256(field) << (p - 1)) + q;
                if (bits > infinity(p)) bits = infinity(p);
            }
            if (negative) bits |= signBit(p);
        }
    }

    /// @notice RNE(m / 2^shift) for m < 2^255.
    function shiftRight(uint256 m, uint256 shift) internal pure returns (uint256) {
        unchecked {
            if (shift == 0) return m;
            if (shift > 255) return 0;
            return (m + ((uint256(1) << (shift - 1)) - 1) + ((m >> shift) & 1)) >> shift;
        }
    }

    // ---- arithmetic

    function add(uint256 a, uint256 b, uint256 p) internal pure returns (uint256) {
        unchecked {
            uint256 sign = signBit(p);
            uint256 inf = infinity(p);
            uint256 magA = a & (sign - 1);
            uint256 magB = b & (sign - 1);
            if (magA >= inf || magB >= inf) {
                if (magA > inf || magB > inf || (magA == magB && a != b)) return nan(p);
                return magA == inf ? a : b;
            }
            if (magA | magB == 0) return a & b;
            if (magA < magB) (a, b) = (b, a);
            return _sum(a, b, p);
        }
    }

    /// @dev |a| >= |b|, both finite, not both zero.
    function _sum(uint256 a, uint256 b, uint256 p) private pure returns (uint256) {
        unchecked {
            (uint256 mA, int256 eA) = unpack(a, p);
            (uint256 mB, int256 eB) = unpack(b, p);
            int256 gap = eA - eB;
            if (gap > FAR) {
                if (mB != 0) mB = 1;
                gap = FAR;
            }
            mA <<= uint256(gap);
            bool negative = a & signBit(p) != 0;
            mA = (a ^ b) & signBit(p) != 0 ? mA - mB : mA + mB;
            if (mA == 0) return 0;
            return pack(negative, mA, eA - gap, p);
        }
    }

    function sub(uint256 a, uint256 b, uint256 p) internal pure returns (uint256) {
        return add(a, b ^ signBit(p), p);
    }

    function mul(uint256 a, uint256 b, uint256 p) internal pure returns (uint256) {
        unchecked {
            uint256 inf = infinity(p);
            uint256 magA = magnitude(a, p);
            uint256 magB = magnitude(b, p);
            uint256 sign = (a ^ b) & signBit(p);
            if (magA >= inf || magB >= inf) {
                if (magA > inf || magB > inf || magA == 0 || magB == 0) return nan(p);
                return sign | inf;
            }
            (uint256 mA, int256 eA) = unpack(a, p);
            (uint256 mB, int256 eB) = unpack(b, p);
            return pack(sign != 0, mA * mB, eA + eB, p);
        }
    }

    function div(uint256 a, uint256 b, uint256 p) internal pure returns (uint256) {
        unchecked {
            uint256 inf = infinity(p);
            uint256 magA = magnitude(a, p);
            uint256 magB = magnitude(b, p);
            uint256 sign = (a ^ b) & signBit(p);
            if (magA > inf || magB > inf || (magA == inf && magB == inf) || magA | magB == 0) return nan(p);
            if (magA == inf || magB == 0) return sign | inf;
            if (magB == inf) return sign;
            (uint256 mA, int256 eA) = unpack(a, p);
            (uint256 mB, int256 eB) = unpack(b, p);
            mA <<= 160;
            uint256 q = mA / mB;
            q = (q << 1) | (q * mB == mA ? 0 : 1);
            return pack(sign != 0, q, eA - eB - 161, p);
        }
    }

    function sqrt(uint256 a, uint256 p) internal pure returns (uint256) {
        unchecked {
            uint256 mag = magnitude(a, p);
            if (mag == 0) return a;
            if (mag > infinity(p) || a != mag) return nan(p);
            if (mag == infinity(p)) return a;
            (uint256 m, int256 e) = unpack(a, p);
            if (e & 1 != 0) {
                m <<= 1;
                e -= 1;
            }
            m <<= 200;
            uint256 root = FixedPointMathLib.sqrt(m);
            root = (root << 1) | (root * root == m ? 0 : 1);
            return pack(false, root, e / 2 - 101, p);
        }
    }

    // ---- order

    /// @dev For numbers that are not NaN: a signed integer that orders them; both zeros give 0.
    function order(uint256 a, uint256 p) internal pure returns (int256) {
        int256 mag = int256(magnitude(a, p));
        return a & signBit(p) == 0 ? mag : -mag;
    }

    function lt(uint256 a, uint256 b, uint256 p) internal pure returns (bool) {
        return !isNan(a, p) && !isNan(b, p) && order(a, p) < order(b, p);
    }

    function le(uint256 a, uint256 b, uint256 p) internal pure returns (bool) {
        return !isNan(a, p) && !isNan(b, p) && order(a, p) <= order(b, p);
    }

    function eq(uint256 a, uint256 b, uint256 p) internal pure returns (bool) {
        return !isNan(a, p) && !isNan(b, p) && order(a, p) == order(b, p);
    }

    // ---- conversions

    function widen(uint256 a) internal pure returns (uint256) {
        uint256 mag = a & (SIGN32 - 1);
        if (mag > INF32) return NAN64;
        uint256 sign = (a & SIGN32) << 32;
        if (mag == INF32) return sign | INF64;
        (uint256 m, int256 e) = unpack(a, F32);
        return pack(sign != 0, m, e, F64);
    }

    function narrow(uint256 a) internal pure returns (uint256) {
        uint256 mag = a & (SIGN64 - 1);
        if (mag > INF64) return NAN32;
        uint256 sign = (a & SIGN64) >> 32;
        if (mag == INF64) return sign | INF32;
        (uint256 m, int256 e) = unpack(a, F64);
        return pack(sign != 0, m, e, F32);
    }

    function fromInt(int256 v, uint256 p) internal pure returns (uint256) {
        return pack(v < 0, v < 0 ? uint256(-v) : uint256(v), 0, p);
    }

    /// @notice RNE(a) of a finite a with |a| < 2^100.
    function toIntNearest(uint256 a, uint256 p) internal pure returns (int256 v) {
        (uint256 m, int256 e) = unpack(a, p);
        v = int256(e < 0 ? shiftRight(m, uint256(-e)) : m << uint256(e));
        if (a & signBit(p) != 0) v = -v;
    }

    /// @notice a·2^n of a finite a whose result is zero or normal.
    function scale(uint256 a, int256 n, uint256 p) internal pure returns (uint256) {
        (uint256 m, int256 e) = unpack(a, p);
        return pack(a & signBit(p) != 0, m, e + n, p);
    }
}

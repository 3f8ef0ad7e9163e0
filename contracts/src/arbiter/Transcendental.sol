// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SoftFloat} from "./SoftFloat.sol";

/// @title exp, log, tanh, erf, sin, cos, pow as fixed sequences of binary64 operations
/// @notice Arguments and results are binary32 bits. Definitions and constants: docs/arithmetic.md, A20 to A28.
library Transcendental {
    using SoftFloat for uint256;

    uint256 private constant P = 53;
    uint256 private constant S32 = 0x80000000;
    uint256 private constant INF = 0x7f800000;
    uint256 private constant NAN = 0x7fc00000;

    uint256 private constant ONE = 0x3ff0000000000000;
    uint256 private constant TWO = 0x4000000000000000;
    uint256 private constant EXP_LOW = 0xc05a000000000000; // -104
    uint256 private constant EXP_HIGH = 0x4056400000000000; // 89
    uint256 private constant INV_LN2 = 0x3ff71547652b82fe;
    uint256 private constant LN2_HI = 0x3fe62e42fefa4000;
    uint256 private constant LN2_LO = 0xbd48432a1b0e2634;
    uint256 private constant SQRT_HALF_BITS = 0x3fe6a09e667f3bcd;
    uint256 private constant TWO_OVER_PI = 0x3fe45f306dc9c883;
    uint256 private constant PIO2_1 = 0x3ff921fb60000000;
    uint256 private constant PIO2_2 = 0xbe6777a5c0000000;
    uint256 private constant PIO2_3 = 0xbcdee59d9cceba40;

    bytes private constant EXPM1 = hex"3ff00000000000003fe00000000000003fc55555555520ac3fa55555555539f4"
        hex"3f8111111218178f3f56c16c17a557d23f2a0199affe849b3efa019b293c4657"
        hex"3ec72db479f9755c3e9289865e53815d";
    bytes private constant ATANH = hex"3fd55555555538a13fc999999a2b7a3c3fc24924164def9c3fbc722810c9fab3"
        hex"3fb732b265732fc83fb5882456cef278";
    bytes private constant SINE = hex"bfc55555555555483f8111111110f77ebf2a01a019bf82273ec71de35650a138"
        hex"be5ae5e597d8f6623de5d8fb81909765";
    bytes private constant COSINE = hex"bfe00000000000003fa5555555552f5ebf56c16c167475f13efa019fa88659ce"
        hex"be927e01d0e3dba13e21bc3e85ffdcce";
    /// @dev F (A27): thirteen constants for each of the nine segments.
    bytes private constant ERF = hex"00000000000000003ff20dd750429b6d3cfae6e61fbeb3cebfd812746b03aab23dc4a3a0f3a517e6"
        hex"3fbce2f2151a3ace3e574118efe3724dbf9b82e040211e783ec2f1b2181a681b3f7558340838d367"
        hex"3f0a054c8924068cbf5006b72ff5954c3f27a4b08121f5e8"
        hex"3fe0a7ef5c18edd23fec1efca49a509ebfdc1efca49a4ec6bfc2bf53186aba873fc76f27de7e52e2"
        hex"3f7dfeeb97fed648bfa99f13af368b753f7623b8d5a342413f8493d24b16f70abf61be9f0a97bb57"
        hex"bf59b55c9b83597e3f3f7ab2d98c882b3f292b06ffc35e2b"
        hex"3feaf767a741088b3fda911f096fbbeabfda911f096fbdc33fc1b614b0f5f9b93fb1b614b0fab811"
        hex"bfb1b614b1c760643f72e45a3743d9d43f8f097140d1c18bbf73910f1786371cbf5ee43d0bf78c88"
        hex"3f541584ca8df2ab3f1761432ae046c5bf298a3cc94a4c27"
        hex"3feeea5557137ae03fbe723726b823b2bfc6d5a95d0a1ca53fc1c2a02bec4279bfa6d5a95d0a91f7"
        hex"bf8e72372d750c563f93ca3d74be9785bf736d70c34fee2ebf635ae90320ef7f3f5c024d2a540d36"
        hex"bf184cd392ecc265bf306f800e2e455d3f13a0081466b500"
        hex"3fefd9ae142795e33f9529b9e8cf9d88bfa529b9e8cf95a43fa8b0ae3a448c15bfa1a2c5975924d3"
        hex"3f8ace740abdc4943f3e1935f364f1b8bf6bae0fdb4827fa3f5a114467208f18bf0a2485ba54cbd1"
        hex"bf3139df14e3a6f13f1a57d86df9f4af3ed8f2e0d55afc15"
        hex"3feffcaa8f4c9bea3f61d83170fbef3abf764e3dcd3a968f3f8119da0c4a322cbf81a89b97e60a23"
        hex"3f790e8124d91edbbf66ecdbe2aebe233f41c61693c3b7263f311541acb087e0bf30684fef554954"
        hex"3f14ab6343be140f3ed979524011d423beedf487d01fed7b"
        hex"3fefffd1ac4135f93f22408e9ba32e2abf3b60d5e96df7a93f49db74b1d3beddbf511c85b2c66d11"
        hex"3f50a7b553f3de12bf482f22fa3eff383f3998b4e16fa068bf21aa87c3453d433eed28ea787dc69e"
        hex"3ef071a458ba91cabee693106b4eb9683ec638c68a9a2415"
        hex"3feffffe710d565e3ed6a597219b9c03bef3d0e43d034b333f062ccea602e91bbf11c0772e21f87c"
        hex"3f1586bb0b0d0377bf14615153219fd03f0e82797f61b644bf01f6bd06c197783ef0149c513deee2"
        hex"bed33fcd2463b7f83e99b8e1c365bb683e8afc8d5fee5fe4"
        hex"3feffffff7b911763e810b14804da67bbea10b15454f10d43eb603947b8819dfbec498ecf17ea835"
        hex"3ecd971e2089d58abed1596e31a56deb3ecab4fa1baeb001beda00ad45b85f39bee4df6686d2c2fa"
        hex"befde31b6eeb64b9bf03642826fdf69cbef7b3a00862089e";

    function exp(uint256 x) internal pure returns (uint256) {
        if (x.isNan(24)) return NAN;
        return _expOf(x.widen());
    }

    function log(uint256 x) internal pure returns (uint256) {
        uint256 mag = x & ~S32;
        if (mag > INF) return NAN;
        if (mag == 0) return INF | S32;
        if (x & S32 != 0) return NAN;
        if (x == INF) return INF;
        return _log(x.widen()).narrow();
    }

    function tanh(uint256 x) internal pure returns (uint256) {
        if (x.isNan(24)) return NAN;
        uint256 a = x & ~S32;
        if (a > 0x41200000) a = 0x41200000; // 10
        a = a.widen();
        (uint256 q, int256 n) = _expm(a.add(a, P));
        uint256 u = q.scale(n, P).add(ONE.scale(n, P).sub(ONE, P), P);
        return (u.div(u.add(TWO, P), P).narrow() & ~S32) | (x & S32);
    }

    function erf(uint256 x) internal pure returns (uint256) {
        if (x.isNan(24)) return NAN;
        uint256 a = x & ~S32;
        if (a > 0x40800000) a = 0x40800000; // 4
        a = a.widen();
        int256 j = a.add(a, P).toIntNearest(P);
        uint256 t = a.sub(SoftFloat.fromInt(j, P).scale(-1, P), P);
        return (_horner(t, ERF, uint256(j) * 13, 13).narrow() & ~S32) | (x & S32);
    }

    function sin(uint256 x) internal pure returns (uint256) {
        if (x & ~S32 >= INF) return NAN;
        (uint256 r, uint256 quadrant) = _reduce(x & ~S32);
        uint256 y = quadrant & 1 == 0 ? _sine(r) : _cosine(r);
        if (quadrant & 2 != 0) y ^= SoftFloat.SIGN64;
        if (x & S32 != 0) y ^= SoftFloat.SIGN64;
        return y.narrow();
    }

    function cos(uint256 x) internal pure returns (uint256) {
        if (x & ~S32 >= INF) return NAN;
        (uint256 r, uint256 quadrant) = _reduce(x & ~S32);
        uint256 y = quadrant & 1 == 0 ? _cosine(r) : _sine(r);
        if ((quadrant + 1) & 2 != 0) y ^= SoftFloat.SIGN64;
        return y.narrow();
    }

    function pow(uint256 x, uint256 y) internal pure returns (uint256) {
        uint256 magX = x & ~S32;
        uint256 magY = y & ~S32;
        if (magY == 0 || x == 0x3f800000) return 0x3f800000;
        if (magX > INF || magY > INF) return NAN;
        (bool integral, bool odd) = _parity(magY);
        if (x & S32 != 0 && magX != 0 && magX < INF && magY < INF && !integral) return NAN;
        uint256 sign = odd ? x & S32 : 0;
        if (magX == 0x3f800000) return sign | magX;
        uint256 w;
        if (magX == 0) w = SoftFloat.INF64 | SoftFloat.SIGN64;
        else if (magX == INF) w = SoftFloat.INF64;
        else w = _log(magX.widen());
        return sign | _expOf(y.widen().mul(w, P));
    }

    /// @dev Of |y|, not NaN: is it an integer, and is it odd. Infinity counts as an integer here.
    function _parity(uint256 mag) private pure returns (bool integral, bool odd) {
        if (mag == INF) return (true, false);
        (uint256 m, int256 e) = mag.unpack(24);
        if (e >= 0) return (true, e == 0 && m & 1 == 1);
        if (e < -24) return (m == 0, false);
        uint256 fraction = m & ((uint256(1) << uint256(-e)) - 1);
        return (fraction == 0, fraction == 0 && (m >> uint256(-e)) & 1 == 1);
    }

    /// @dev RN32(e^t), t clamped to [-104, 89].
    function _expOf(uint256 t) private pure returns (uint256) {
        if (t.lt(EXP_LOW, P)) t = EXP_LOW;
        else if (EXP_HIGH.lt(t, P)) t = EXP_HIGH;
        (uint256 q, int256 n) = _expm(t);
        return ONE.add(q, P).scale(n, P).narrow();
    }

    /// @dev EXPM (A21): e^t = (1 + q)·2^n.
    function _expm(uint256 t) private pure returns (uint256 q, int256 n) {
        n = t.mul(INV_LN2, P).toIntNearest(P);
        uint256 k = SoftFloat.fromInt(n, P);
        uint256 r = t.sub(k.mul(LN2_HI, P), P).sub(k.mul(LN2_LO, P), P);
        q = _horner(r, EXPM1, 0, 10).mul(r, P);
    }

    /// @dev LOG (A24) of a positive normal binary64.
    function _log(uint256 v) private pure returns (uint256) {
        int256 k = (int256(v) - int256(SQRT_HALF_BITS)) >> 52;
        uint256 m = uint256(int256(v) - k * int256(1 << 52));
        uint256 s = m.sub(ONE, P).div(m.add(ONE, P), P);
        uint256 z = s.mul(s, P);
        uint256 h = _horner(z, ATANH, 0, 6).mul(z, P);
        uint256 d = s.add(s, P);
        uint256 y = d.add(d.mul(h, P), P);
        uint256 f = SoftFloat.fromInt(k, P);
        return f.mul(LN2_HI, P).add(f.mul(LN2_LO, P).add(y, P), P);
    }

    /// @dev Steps 1 and 2 of A26 for |x|.
    function _reduce(uint256 mag) private pure returns (uint256 r, uint256 quadrant) {
        uint256 a = mag >= 0x4e000000 ? 0 : mag.widen(); // 2^29
        int256 n = a.mul(TWO_OVER_PI, P).toIntNearest(P);
        uint256 k = SoftFloat.fromInt(n, P);
        r = a.sub(k.mul(PIO2_1, P), P).sub(k.mul(PIO2_2, P), P).sub(k.mul(PIO2_3, P), P);
        quadrant = uint256(n) & 3;
    }

    function _sine(uint256 r) private pure returns (uint256) {
        uint256 z = r.mul(r, P);
        return r.add(r.mul(_horner(z, SINE, 0, 6).mul(z, P), P), P);
    }

    function _cosine(uint256 r) private pure returns (uint256) {
        uint256 z = r.mul(r, P);
        return ONE.add(_horner(z, COSINE, 0, 6).mul(z, P), P);
    }

    /// @dev H(t; c[first] .. c[first + count - 1]) (A7); the table holds eight bytes a constant.
    function _horner(uint256 t, bytes memory table, uint256 first, uint256 count)
        private
        pure
        returns (uint256 h)
    {
        h = _at(table, first + count - 1);
        for (uint256 i = count - 1; i > 0; --i) {
            h = h.mul(t, P).add(_at(table, first + i - 1), P);
        }
    }

    function _at(bytes memory table, uint256 i) private pure returns (uint256 value) {
        assembly ("memory-safe") {
            value := shr(192, mload(add(add(table, 32), mul(i, 8))))
        }
    }
}

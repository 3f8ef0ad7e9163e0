// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IArbiter, ICourt} from "../interfaces/ICourt.sol";
import {NodeRules} from "./NodeRules.sol";
import {Node, Nodes} from "./Nodes.sol";
import {SoftFloat} from "./SoftFloat.sol";
import {Spans} from "./Spans.sol";
import {TensorIndex} from "./TensorIndex.sol";

/// @title Arbiter for const, iota, and the element-wise operations other than transcendentals
/// @notice Definitions: docs/arithmetic.md, A10 to A19, A29.
contract ArbiterElementwise is IArbiter {
    using SoftFloat for uint256;

    uint256 private constant P = 24;
    uint256 private constant SIGN = 0x80000000;
    uint256 private constant WORD = 0xffffffff;

    function evaluate(bytes calldata encoded, uint64 element, Span[] calldata spans)
        external
        pure
        returns (uint32 bits)
    {
        Node memory node = Nodes.decode(encoded);
        if (element >= Nodes.elements(node.dims)) {
            revert ICourt.IndexOutOfRange(element, Nodes.elements(node.dims));
        }
        if (node.op == Nodes.CONST || node.op == Nodes.IOTA) return uint32(_source(node, element));
        if (!_mine(node.op)) revert ICourt.UnknownOperation(uint8(node.op));
        NodeRules.checkElementwise(node);
        uint256[3] memory x;
        for (uint256 i; i < node.inputs.length; ++i) {
            uint256 flat = TensorIndex.broadcast(element, node.inputs[i].dims, node.dims);
            x[i] = Spans.element(spans, node, i, flat);
        }
        return uint32(_apply(node, x));
    }

    function _mine(uint256 op) private pure returns (bool) {
        if (op >= Nodes.EXP && op <= Nodes.COS) return false;
        return op >= Nodes.NEG && op <= Nodes.BITS && op != Nodes.POW;
    }

    function _source(Node memory node, uint256 element) private pure returns (uint256) {
        NodeRules.checkSource(node);
        uint256 attr = uint256(node.attrs[0]);
        return node.op == Nodes.CONST ? attr : TensorIndex.coordinate(element, node.dims, attr);
    }

    function _apply(Node memory node, uint256[3] memory x) private pure returns (uint256) {
        uint256 op = node.op;
        if (op <= Nodes.LAST_UNARY) return _unary(op, x[0]);
        if (op <= Nodes.MIN) return _binary(op, x[0], x[1]);
        if (op <= Nodes.LAST_COMPARISON) return _compare(op, node.inputs[0].dtype, x[0], x[1]) ? 1 : 0;
        if (op <= Nodes.SELECT) return _logic(op, x);
        if (op <= Nodes.LAST_INTEGER) return _integer(op, x[0], x[1]);
        if (op == Nodes.BITS) return x[0].isNan(P) ? SoftFloat.NAN32 : x[0];
        return _convert(x[0], node.inputs[0].dtype, node.dtype);
    }

    function _unary(uint256 op, uint256 x) private pure returns (uint256) {
        if (x.isNan(P)) return SoftFloat.NAN32;
        if (op == Nodes.NEG) return x ^ SIGN;
        if (op == Nodes.ABS) return x & ~SIGN;
        if (op == Nodes.SQRT) return x.sqrt(P);
        return _floor(x);
    }

    /// @dev x is not NaN.
    function _floor(uint256 x) private pure returns (uint256) {
        if (x & ~SIGN == 0 || x & ~SIGN >= SoftFloat.INF32) return x;
        (uint256 m, int256 e) = x.unpack(P);
        if (e >= 0) return x;
        uint256 shift = uint256(-e);
        bool negative = x & SIGN != 0;
        uint256 whole = m >> shift;
        if (negative && whole << shift != m) ++whole;
        return SoftFloat.pack(negative, whole, 0, P);
    }

    function _binary(uint256 op, uint256 a, uint256 b) private pure returns (uint256) {
        if (op == Nodes.ADD) return a.add(b, P);
        if (op == Nodes.SUB) return a.sub(b, P);
        if (op == Nodes.MUL) return a.mul(b, P);
        if (op == Nodes.DIV) return a.div(b, P);
        bool first = a.isNan(P) || (op == Nodes.MAX ? b.lt(a, P) : a.lt(b, P));
        uint256 chosen = first ? a : b;
        return chosen.isNan(P) ? SoftFloat.NAN32 : chosen;
    }

    function _compare(uint256 op, uint256 dtype, uint256 a, uint256 b) private pure returns (bool) {
        if (dtype == Nodes.F32) {
            if (op == Nodes.EQ) return a.eq(b, P);
            return op == Nodes.LT ? a.lt(b, P) : a.le(b, P);
        }
        if (op == Nodes.EQ) return a == b;
        // The sign bit flipped, two's complement is in unsigned order.
        return op == Nodes.LT ? a ^ SIGN < b ^ SIGN : a ^ SIGN <= b ^ SIGN;
    }

    function _logic(uint256 op, uint256[3] memory x) private pure returns (uint256) {
        if (op == Nodes.SELECT) return x[0] != 0 ? x[1] : x[2];
        bool a = x[0] != 0;
        bool b = x[1] != 0;
        return (op == Nodes.AND ? a && b : op == Nodes.OR ? a || b : !a) ? 1 : 0;
    }

    function _integer(uint256 op, uint256 a, uint256 b) private pure returns (uint256) {
        unchecked {
            return (op == Nodes.IADD ? a + b : op == Nodes.ISUB ? a - b : a * b) & WORD;
        }
    }

    function _convert(uint256 x, uint256 from, uint256 to) private pure returns (uint256) {
        if (from == Nodes.F32) {
            if (to == Nodes.BOOL) return x & ~SIGN != 0 ? 1 : 0;
            return _truncate(x);
        }
        if (to == Nodes.F32) {
            int256 v = from == Nodes.I32 ? int256(int32(uint32(x))) : int256(x);
            return SoftFloat.fromInt(v, P);
        }
        if (to == Nodes.U8) return x & 0xff;
        if (to == Nodes.BOOL) return x != 0 ? 1 : 0;
        return x;
    }

    function _truncate(uint256 x) private pure returns (uint256) {
        if (x.isNan(P)) return 0;
        bool negative = x & SIGN != 0;
        // From 2^31 on, infinities included.
        if (x & ~SIGN >= 0x4f000000) return negative ? SIGN : SIGN - 1;
        (uint256 m, int256 e) = x.unpack(P);
        uint256 whole = e < 0 ? m >> uint256(-e) : m << uint256(e);
        unchecked {
            return (negative ? 0 - whole : whole) & WORD;
        }
    }
}

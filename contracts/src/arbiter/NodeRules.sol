// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../interfaces/ICourt.sol";
import {Node, Nodes, Operand} from "./Nodes.sol";

/// @title What one node's fields must be to each other (docs/protocol.md, 2.4 and 2.5)
/// @notice A node that breaks a rule reverts with MalformedNode: it can convict nobody.
library NodeRules {
    uint256 private constant MAX_FAN_IN = 4096;
    /// @dev Pairs (from, to) of convert: bit 5·from + to.
    uint256 private constant CONVERSIONS =
        (1 << 1) | (1 << 4) | (1 << 5) | (1 << 8) | (1 << 9) | (1 << 15) | (1 << 16) | (1 << 20) | (1 << 21);

    function checkElementwise(Node memory node) internal pure {
        uint256 op = node.op;
        uint256 from = _input(node, 0).dtype;
        uint256 arity = 2;
        if (op <= Nodes.LAST_UNARY) {
            arity = 1;
            _require(from == Nodes.F32 && node.dtype == Nodes.F32);
        } else if (op <= Nodes.LAST_BINARY) {
            _require(from == Nodes.F32 && node.dtype == Nodes.F32);
        } else if (op <= Nodes.LAST_COMPARISON) {
            _require((from == Nodes.F32 || from == Nodes.I32) && node.dtype == Nodes.BOOL);
        } else if (op <= Nodes.LAST_LOGIC) {
            if (op == Nodes.NOT) arity = 1;
            _require(from == Nodes.BOOL && node.dtype == Nodes.BOOL);
        } else if (op == Nodes.SELECT) {
            arity = 3;
            _require(from == Nodes.BOOL && _input(node, 1).dtype == node.dtype);
        } else if (op <= Nodes.LAST_INTEGER) {
            _require(from == Nodes.I32 && node.dtype == Nodes.I32);
        } else if (op == Nodes.BITS) {
            arity = 1;
            _require(from + node.dtype == Nodes.F32 + Nodes.I32 && from != node.dtype);
        } else {
            arity = 1;
            _require((CONVERSIONS >> (5 * from + node.dtype)) & 1 == 1);
        }
        _require(node.inputs.length == arity && node.attrs.length == 0);
        for (uint256 i; i < arity; ++i) {
            if (i > 0 && op != Nodes.SELECT) _require(node.inputs[i].dtype == from);
            _require(_broadcasts(node.inputs[i].dims, node.dims));
        }
        if (op == Nodes.SELECT) _require(node.inputs[2].dtype == node.dtype);
    }

    function checkSource(Node memory node) internal pure {
        if (node.op == Nodes.RECORD) return _checkRecord(node);
        _require(node.inputs.length == 0);
        if (node.op == Nodes.DATA) {
            _require(node.dtype == Nodes.U8 && node.dims.length == 2 && node.attrs.length == 2);
            _require(node.attrs[0] >= 0 && node.attrs[1] >= 0);
            _require(node.attrs[1] + int256(node.dims[0]) <= 1 << 32);
        } else if (node.op == Nodes.STEP || node.op == Nodes.SHARD) {
            _require(node.dtype == Nodes.I32 && node.dims.length == 0 && node.attrs.length == 0);
        } else {
            _require(node.attrs.length == 1 && node.attrs[0] >= 0);
            uint256 attr = uint256(node.attrs[0]);
            if (node.op == Nodes.IOTA) _require(node.dtype == Nodes.I32 && attr < node.dims.length);
            else if (node.op == Nodes.CONST) _require(canonical(attr, node.dtype));
        }
    }

    function _checkRecord(Node memory node) private pure {
        _require(node.inputs.length == 1 && node.attrs.length == 1 && node.attrs[0] >= 0);
        Operand memory index = node.inputs[0];
        _require(index.dtype == Nodes.I32 && index.dims.length == 1);
        _require(node.dtype == Nodes.U8 && node.dims.length == 2 && node.dims[0] == index.dims[0]);
    }

    function checkContraction(Node memory node) internal pure {
        uint256 op = node.op;
        Operand memory x = _input(node, 0);
        if (op == Nodes.PRODUCT) return _checkProduct(node);
        _require(x.dtype == Nodes.F32 && x.dims.length > 0 && node.attrs.length == 0);
        _require(x.dims[x.dims.length - 1] <= MAX_FAN_IN);
        if (op == Nodes.QUANTISE) {
            Operand memory e = _input(node, 1);
            _require(node.inputs.length == 2 && node.dtype == Nodes.I16 && e.dtype == Nodes.I16);
            _require(_same(x.dims, node.dims) && _isHead(e.dims, x.dims, 1));
        } else if (op == Nodes.SCATTER_SUM) {
            Operand memory index = _input(node, 1);
            _require(node.inputs.length == 2 && node.dtype == Nodes.F32 && index.dtype == Nodes.I32);
            _require(x.dims.length == 2 && node.dims.length == 2 && x.dims[0] == node.dims[0]);
            _require(_same(index.dims, x.dims) || _same(index.dims, _tail(x.dims)));
        } else {
            uint256 to = op == Nodes.EXPONENT ? Nodes.I16 : op == Nodes.ARGMAX ? Nodes.I32 : Nodes.F32;
            _require(node.inputs.length == 1 && node.dtype == to && _isHead(node.dims, x.dims, 1));
        }
    }

    function checkIndex(Node memory node) internal pure {
        uint256 op = node.op;
        Operand memory x = _input(node, 0);
        _require(x.dtype == node.dtype);
        if (op == Nodes.STRIDED) {
            _checkStrided(node, Nodes.elements(x.dims));
        } else if (op == Nodes.RESHAPE) {
            _require(node.inputs.length == 1 && node.attrs.length == 0);
            _require(Nodes.elements(x.dims) == Nodes.elements(node.dims));
        } else if (op == Nodes.CONCAT) {
            _checkConcat(node);
        } else {
            Operand memory index = _input(node, 1);
            _require(node.inputs.length == 2 && node.attrs.length == 0);
            _require(index.dtype == Nodes.I32 && x.dims.length > 0);
            if (op == Nodes.TAKE) _require(_same(_join(index.dims, _tail(x.dims)), node.dims));
            else _require(_isHead(index.dims, x.dims, 1) && _same(index.dims, node.dims));
        }
    }

    function _checkProduct(Node memory node) private pure {
        _require(node.inputs.length == 4 && node.attrs.length == 0 && node.dtype == Nodes.F32);
        for (uint256 i; i < 4; ++i) {
            _require(node.inputs[i].dtype == Nodes.I16);
        }
        uint256[] memory a = node.inputs[0].dims;
        uint256[] memory b = node.inputs[2].dims;
        uint256 rank = a.length;
        _require(rank >= 2 && b.length == rank && node.dims.length == rank);
        _require(a[rank - 1] == b[rank - 1] && a[rank - 1] <= MAX_FAN_IN);
        _require(_isHead(node.inputs[1].dims, a, 1) && _isHead(node.inputs[3].dims, b, 1));
        _require(_agree(a, b, rank - 2) && _agree(a, node.dims, rank - 1));
        _require(node.dims[rank - 1] == b[rank - 2]);
    }

    function _checkStrided(Node memory node, uint256 size) private pure {
        _require(node.inputs.length == 1 && node.attrs.length == 1 + node.dims.length);
        int256 low = node.attrs[0];
        int256 high = low;
        for (uint256 i; i < node.dims.length; ++i) {
            int256 reach = node.attrs[i + 1] * int256(node.dims[i] - 1);
            if (reach < 0) low += reach;
            else high += reach;
        }
        _require(low >= 0 && high < int256(size));
    }

    function _checkConcat(Node memory node) private pure {
        _require(node.attrs.length == 1 && node.attrs[0] >= 0 && node.attrs[0] < int256(node.dims.length));
        uint256 along = uint256(node.attrs[0]);
        uint256 total;
        for (uint256 i; i < node.inputs.length; ++i) {
            Operand memory part = node.inputs[i];
            _require(part.dtype == node.dtype && part.dims.length == node.dims.length);
            for (uint256 d; d < node.dims.length; ++d) {
                if (d == along) total += part.dims[d];
                else _require(part.dims[d] == node.dims[d]);
            }
        }
        _require(total == node.dims[along]);
    }

    /// @dev The bits of an element that a tensor may hold.
    function canonical(uint256 bits, uint256 dtype) internal pure returns (bool) {
        if (dtype == Nodes.BOOL) return bits <= 1;
        if (dtype == Nodes.F32 && bits & 0x7fffffff > 0x7f800000) return bits == 0x7fc00000;
        return bits >> (8 * Nodes.width(dtype)) == 0;
    }

    function _input(Node memory node, uint256 i) private pure returns (Operand memory) {
        _require(i < node.inputs.length);
        return node.inputs[i];
    }

    function _broadcasts(uint256[] memory from, uint256[] memory to) private pure returns (bool) {
        if (from.length > to.length) return false;
        uint256 skip = to.length - from.length;
        for (uint256 i; i < from.length; ++i) {
            if (from[i] != 1 && from[i] != to[skip + i]) return false;
        }
        return true;
    }

    function _same(uint256[] memory a, uint256[] memory b) private pure returns (bool) {
        return a.length == b.length && _agree(a, b, a.length);
    }

    /// @dev Whether `head` is `dims` without its last `drop` dimensions.
    function _isHead(uint256[] memory head, uint256[] memory dims, uint256 drop) private pure returns (bool) {
        return head.length + drop == dims.length && _agree(head, dims, head.length);
    }

    /// @dev Whether the first `count` dimensions are equal; there are as many of both.
    function _agree(uint256[] memory a, uint256[] memory b, uint256 count) private pure returns (bool) {
        for (uint256 i; i < count; ++i) {
            if (a[i] != b[i]) return false;
        }
        return true;
    }

    /// @dev Without the first dimension.
    function _tail(uint256[] memory dims) private pure returns (uint256[] memory tail) {
        tail = new uint256[](dims.length - 1);
        for (uint256 i; i < tail.length; ++i) {
            tail[i] = dims[i + 1];
        }
    }

    function _join(uint256[] memory a, uint256[] memory b) private pure returns (uint256[] memory joined) {
        joined = new uint256[](a.length + b.length);
        for (uint256 i; i < joined.length; ++i) {
            joined[i] = i < a.length ? a[i] : b[i - a.length];
        }
    }

    function _require(bool kept) private pure {
        if (!kept) revert ICourt.MalformedNode();
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../interfaces/ICourt.sol";

/// @dev A tensor that a node reads: the node that makes it, and its dtype and shape.
struct Operand {
    uint256 ref;
    uint256 dtype;
    uint256[] dims;
}

/// @dev One instruction. Dimensions are counts, attributes are signed.
struct Node {
    uint256 op;
    uint256 dtype;
    uint256[] dims;
    Operand[] inputs;
    int256[] attrs;
}

/// @title Strict decoding of node encodings (docs/protocol.md, 2.2 and 2.3)
/// @notice Anything but the one encoding of a node within the limits reverts with MalformedNode or UnknownOperation.
/// Rules between a node's fields are in NodeRules; rules between nodes are nobody's on chain.
library Nodes {
    uint256 internal constant F32 = 0;
    uint256 internal constant I32 = 1;
    uint256 internal constant I16 = 2;
    uint256 internal constant U8 = 3;
    uint256 internal constant BOOL = 4;

    uint256 internal constant STATE = 0x01;
    uint256 internal constant DATA = 0x02;
    uint256 internal constant CONST = 0x03;
    uint256 internal constant IOTA = 0x04;
    uint256 internal constant STEP = 0x05;
    uint256 internal constant SHARD = 0x06;
    uint256 internal constant RECORD = 0x07;
    uint256 internal constant NEG = 0x10;
    uint256 internal constant ABS = 0x11;
    uint256 internal constant SQRT = 0x12;
    uint256 internal constant EXP = 0x13;
    uint256 internal constant LOG = 0x14;
    uint256 internal constant TANH = 0x15;
    uint256 internal constant ERF = 0x16;
    uint256 internal constant SIN = 0x17;
    uint256 internal constant COS = 0x18;
    uint256 internal constant FLOOR = 0x19;
    uint256 internal constant ADD = 0x20;
    uint256 internal constant SUB = 0x21;
    uint256 internal constant MUL = 0x22;
    uint256 internal constant DIV = 0x23;
    uint256 internal constant MAX = 0x24;
    uint256 internal constant MIN = 0x25;
    uint256 internal constant POW = 0x26;
    uint256 internal constant EQ = 0x30;
    uint256 internal constant LT = 0x31;
    uint256 internal constant LE = 0x32;
    uint256 internal constant AND = 0x33;
    uint256 internal constant OR = 0x34;
    uint256 internal constant NOT = 0x35;
    uint256 internal constant SELECT = 0x38;
    uint256 internal constant IADD = 0x40;
    uint256 internal constant ISUB = 0x41;
    uint256 internal constant IMUL = 0x42;
    uint256 internal constant CONVERT = 0x48;
    uint256 internal constant BITS = 0x49;
    uint256 internal constant SUM = 0x50;
    uint256 internal constant AMAX = 0x51;
    uint256 internal constant EXPONENT = 0x52;
    uint256 internal constant QUANTISE = 0x53;
    uint256 internal constant PRODUCT = 0x54;
    uint256 internal constant SCATTER_SUM = 0x55;
    uint256 internal constant ARGMAX = 0x56;
    uint256 internal constant STRIDED = 0x60;
    uint256 internal constant RESHAPE = 0x61;
    uint256 internal constant CONCAT = 0x62;
    uint256 internal constant TAKE = 0x63;
    uint256 internal constant PICK = 0x64;

    uint256 private constant KNOWN = (0x7f << 1) | (0x3ff << 0x10) | (0x7f << 0x20) | (0x3f << 0x30)
        | (1 << 0x38) | (7 << 0x40) | (3 << 0x48) | (0x7f << 0x50) | (0x1f << 0x60);
    uint256 private constant MAX_BYTES = 1024;
    uint256 private constant MAX_INPUTS = 16;
    uint256 private constant MAX_DIMS = 8;
    uint256 private constant MAX_ELEMENTS = 1 << 28;

    function decode(bytes calldata data) internal pure returns (Node memory node) {
        uint256 length = data.length;
        if (length < 5 || length > MAX_BYTES) revert ICourt.MalformedNode();
        unchecked {
            // No cursor gets past 1024 + 4 · 255, and no byte beyond the data is used.
            uint256 head = _word(data, 0);
            node.op = head >> 248;
            if ((KNOWN >> node.op) & 1 == 0) revert ICourt.UnknownOperation(uint8(node.op));
            node.dtype = head >> 240 & 0xff;
            uint256 inputs = head >> 224 & 0xff;
            if (node.dtype > BOOL || inputs > MAX_INPUTS) revert ICourt.MalformedNode();
            uint256 cursor;
            (node.dims, cursor) = _dims(data, 5, head >> 232 & 0xff);
            node.inputs = new Operand[](inputs);
            for (uint256 i; i < inputs; ++i) {
                if (cursor + 6 > length) revert ICourt.MalformedNode();
                Operand memory input = node.inputs[i];
                uint256 word = _word(data, cursor);
                input.ref = word >> 224;
                input.dtype = word >> 216 & 0xff;
                if (input.dtype > BOOL) revert ICourt.MalformedNode();
                (input.dims, cursor) = _dims(data, cursor + 6, word >> 208 & 0xff);
            }
            uint256 attrs = head >> 216 & 0xff;
            if (cursor + 8 * attrs != length) revert ICourt.MalformedNode();
            node.attrs = new int256[](attrs);
            for (uint256 i; i < attrs; ++i) {
                node.attrs[i] = int256(_word(data, cursor)) >> 192;
                cursor += 8;
            }
        }
    }

    function elements(uint256[] memory dims) internal pure returns (uint256 count) {
        count = 1;
        for (uint256 i; i < dims.length; ++i) {
            count *= dims[i];
        }
    }

    /// @notice Bytes an element.
    function width(uint256 dtype) internal pure returns (uint256) {
        return dtype <= I32 ? 4 : dtype == I16 ? 2 : 1;
    }

    function sizeOf(Node memory node) internal pure returns (uint256) {
        return elements(node.dims) * width(node.dtype);
    }

    function sizeOf(Operand memory input) internal pure returns (uint256) {
        return elements(input.dims) * width(input.dtype);
    }

    /// @dev Dimensions of 1 to 2^28, whose product is at most 2^28.
    function _dims(bytes calldata data, uint256 cursor, uint256 count)
        private
        pure
        returns (uint256[] memory dims, uint256 end)
    {
        unchecked {
            // No product of eight numbers below 2^32 is too large for a word.
            end = cursor + 4 * count;
            if (count > MAX_DIMS || end > data.length) revert ICourt.MalformedNode();
            dims = new uint256[](count);
            uint256 product = 1;
            for (uint256 i; i < count; ++i) {
                dims[i] = _word(data, cursor + 4 * i) >> 224;
                product *= dims[i];
            }
            if (product == 0 || product > MAX_ELEMENTS) revert ICourt.MalformedNode();
        }
    }

    /// @dev 32 bytes from `cursor`; what lies beyond `data` is cut off by the callers' shifts.
    function _word(bytes calldata data, uint256 cursor) private pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := calldataload(add(data.offset, cursor))
        }
    }
}

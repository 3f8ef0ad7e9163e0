// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IArbiter, ICourt} from "../interfaces/ICourt.sol";
import {Node, Nodes} from "./Nodes.sol";

/// @title Reading proven input bytes
/// @notice Elements are little-endian. What the spans do not hold reverts with MissingInput: it is the challenger's to bring.
library Spans {
    /// @notice The bits of one element, zero-extended.
    function element(IArbiter.Span[] calldata spans, Node memory node, uint256 input, uint256 index)
        internal
        pure
        returns (uint256 bits)
    {
        uint256 width = Nodes.width(node.inputs[input].dtype);
        bits = _load(locate(spans, input, index, 1, width), width);
    }

    /// @notice The value of an i32 or i16 element.
    function integer(IArbiter.Span[] calldata spans, Node memory node, uint256 input, uint256 index)
        internal
        pure
        returns (int256)
    {
        uint256 bits = element(spans, node, input, index);
        return Nodes.width(node.inputs[input].dtype) == 4
            ? int256(int32(uint32(bits)))
            : int256(int16(uint16(bits)));
    }

    /// @notice Calldata position of `count` elements of `width` bytes from element `first` on, all within one span.
    function locate(
        IArbiter.Span[] calldata spans,
        uint256 input,
        uint256 first,
        uint256 count,
        uint256 width
    ) internal pure returns (uint256 position) {
        uint256 start = first * width;
        uint256 end = start + count * width;
        for (uint256 i; i < spans.length; ++i) {
            IArbiter.Span calldata span = spans[i];
            if (span.input != input) continue;
            uint256 offset = span.offset;
            bytes calldata data = span.data;
            if (start < offset || end > offset + data.length) continue;
            assembly ("memory-safe") {
                position := add(data.offset, sub(start, offset))
            }
            return position;
        }
        revert ICourt.MissingInput(uint32(input), first);
    }

    /// @notice `count` 4-byte elements from calldata `position` on, as words of eight big-endian lanes. Lanes past `count`
    /// in the last word are zero.
    function lanes(uint256 position, uint256 count) internal pure returns (uint256 words) {
        assembly ("memory-safe") {
            words := mload(0x40)
            let size := and(add(mul(count, 4), 31), not(31))
            mstore(0x40, add(words, size))
            let bytesMask := 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff
            let pairsMask := 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff
            for { let i := 0 } lt(i, size) { i := add(i, 32) } {
                let w := calldataload(add(position, i))
                w := or(shl(8, and(w, bytesMask)), and(shr(8, w), bytesMask))
                mstore(add(words, i), or(shl(16, and(w, pairsMask)), and(shr(16, w), pairsMask)))
            }
            let over := and(mul(count, 4), 31)
            if over {
                let last := add(words, sub(size, 32))
                mstore(last, and(mload(last), not(shr(shl(3, over), not(0)))))
            }
        }
    }

    function _load(uint256 position, uint256 width) private pure returns (uint256 bits) {
        assembly ("memory-safe") {
            for { let i := width } gt(i, 0) {} {
                i := sub(i, 1)
                bits := or(shl(8, bits), byte(0, calldataload(add(position, i))))
            }
        }
    }
}

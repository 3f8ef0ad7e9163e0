// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IArbiter, ICourt} from "../interfaces/ICourt.sol";
import {NodeRules} from "./NodeRules.sol";
import {Node, Nodes} from "./Nodes.sol";
import {Spans} from "./Spans.sol";
import {TensorIndex} from "./TensorIndex.sol";

/// @title Arbiter for strided, reshape, concat, take, pick
/// @notice They copy bits. Definitions: docs/protocol.md, 2.4; docs/arithmetic.md, A40 to A42.
contract ArbiterIndex is IArbiter {
    function evaluate(bytes calldata encoded, uint64 element, Span[] calldata spans)
        external
        pure
        returns (uint32 bits)
    {
        Node memory node = Nodes.decode(encoded);
        if (node.op < Nodes.STRIDED) revert ICourt.UnknownOperation(uint8(node.op));
        NodeRules.checkIndex(node);
        if (element >= Nodes.elements(node.dims)) {
            revert ICourt.IndexOutOfRange(element, Nodes.elements(node.dims));
        }
        (uint256 input, uint256 flat) = _source(node, element, spans);
        return uint32(Spans.element(spans, node, input, flat));
    }

    /// @dev Which element of which input this one is.
    function _source(Node memory node, uint256 element, Span[] calldata spans)
        private
        pure
        returns (uint256 input, uint256 flat)
    {
        uint256 op = node.op;
        if (op == Nodes.STRIDED) return (0, TensorIndex.strided(element, node.dims, node.attrs));
        if (op == Nodes.RESHAPE) return (0, element);
        if (op == Nodes.CONCAT) return _part(node, element);
        uint256[] memory dims = node.inputs[0].dims;
        if (op == Nodes.TAKE) {
            uint256 row = TensorIndex.span(dims, 1);
            int256 taken = Spans.integer(spans, node, 1, element / row);
            return (0, TensorIndex.clamp(taken, dims[0]) * row + element % row);
        }
        uint256 last = dims[dims.length - 1];
        int256 picked = Spans.integer(spans, node, 1, element);
        return (0, element * last + TensorIndex.clamp(picked, last));
    }

    function _part(Node memory node, uint256 element) private pure returns (uint256 input, uint256 flat) {
        uint256 along = uint256(node.attrs[0]);
        uint256 inner = TensorIndex.span(node.dims, along + 1);
        uint256 position = (element / inner) % node.dims[along];
        uint256 outer = element / inner / node.dims[along];
        while (position >= node.inputs[input].dims[along]) {
            position -= node.inputs[input].dims[along];
            ++input;
        }
        flat = (outer * node.inputs[input].dims[along] + position) * inner + element % inner;
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IArbiter, ICourt} from "../interfaces/ICourt.sol";
import {Contraction} from "./Contraction.sol";
import {NodeRules} from "./NodeRules.sol";
import {Node, Nodes} from "./Nodes.sol";
import {SoftFloat} from "./SoftFloat.sol";
import {Spans} from "./Spans.sol";

/// @title Arbiter for sum, amax, exponent, quantise, product, scatter_sum, argmax
/// @notice Definitions: docs/arithmetic.md, A30 to A36.
contract ArbiterContraction is IArbiter {
    function evaluate(bytes calldata encoded, uint64 element, Span[] calldata spans)
        external
        pure
        returns (uint32 bits)
    {
        Node memory node = Nodes.decode(encoded);
        uint256 op = node.op;
        if (op < Nodes.SUM || op > Nodes.ARGMAX) revert ICourt.UnknownOperation(uint8(op));
        NodeRules.checkContraction(node);
        if (element >= Nodes.elements(node.dims)) {
            revert ICourt.IndexOutOfRange(element, Nodes.elements(node.dims));
        }
        uint256[] memory dims = node.inputs[0].dims;
        uint256 n = dims[dims.length - 1];
        if (op == Nodes.PRODUCT) return uint32(_product(node, element, n, spans));
        if (op == Nodes.QUANTISE) return _quantise(node, element, n, spans);
        if (op == Nodes.SCATTER_SUM) return uint32(_scatterSum(node, element, n, spans));
        uint256 row = Spans.locate(spans, 0, element * n, n, 4);
        if (op == Nodes.SUM) return uint32(Contraction.sum(row, n));
        if (op == Nodes.AMAX) return uint32(Contraction.amax(row, n));
        if (op == Nodes.ARGMAX) return uint32(Contraction.argmax(row, n));
        int256 e = Contraction.exponentOf(Contraction.largestMagnitude(Spans.lanes(row, n), n));
        return uint16(int16(e));
    }

    function _quantise(Node memory node, uint256 element, uint256 n, Span[] calldata spans)
        private
        pure
        returns (uint32)
    {
        int256 e = Spans.integer(spans, node, 1, element / n);
        int256 q = Contraction.quantise(Spans.element(spans, node, 0, element), e);
        return uint16(int16(q));
    }

    function _product(Node memory node, uint256 element, uint256 n, Span[] calldata spans)
        private
        pure
        returns (uint256)
    {
        // Rows of a and of b, batches included.
        (uint256 i, uint256 j) = _rows(node.dims, element);
        int256 e = Contraction.clampExponent(Spans.integer(spans, node, 1, i));
        int256 f = Contraction.clampExponent(Spans.integer(spans, node, 3, j));
        if (e == 129 || f == 129) return SoftFloat.NAN32;
        // From here on, where they begin in the calldata.
        i = Spans.locate(spans, 0, i * n, n, 2);
        j = Spans.locate(spans, 2, j * n, n, 2);
        int256 total = Contraction.dot(i, j, n);
        return SoftFloat.pack(total < 0, total < 0 ? uint256(-total) : uint256(total), e + f - 26, 24);
    }

    function _rows(uint256[] memory dims, uint256 element) private pure returns (uint256 i, uint256 j) {
        uint256 columns = dims[dims.length - 1];
        i = element / columns;
        j = i / dims[dims.length - 2] * columns + element % columns;
    }

    function _scatterSum(Node memory node, uint256 element, uint256 n, Span[] calldata spans)
        private
        pure
        returns (uint256)
    {
        uint256 columns = node.dims[1];
        uint256 first = element / columns * n;
        uint256 row = Spans.locate(spans, 0, first, n, 4);
        uint256 indices = Spans.locate(spans, 1, node.inputs[1].dims.length == 2 ? first : 0, n, 4);
        return Contraction.scatterSum(row, indices, n, element % columns);
    }
}

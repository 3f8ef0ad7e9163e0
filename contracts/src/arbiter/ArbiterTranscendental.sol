// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IArbiter, ICourt} from "../interfaces/ICourt.sol";
import {NodeRules} from "./NodeRules.sol";
import {Node, Nodes} from "./Nodes.sol";
import {Spans} from "./Spans.sol";
import {TensorIndex} from "./TensorIndex.sol";
import {Transcendental} from "./Transcendental.sol";

/// @title Arbiter for exp, log, tanh, erf, sin, cos, pow
/// @notice Definitions: docs/arithmetic.md, A20 to A28.
contract ArbiterTranscendental is IArbiter {
    function evaluate(bytes calldata encoded, uint64 element, Span[] calldata spans)
        external
        pure
        returns (uint32 bits)
    {
        Node memory node = Nodes.decode(encoded);
        uint256 op = node.op;
        if ((op < Nodes.EXP || op > Nodes.COS) && op != Nodes.POW) revert ICourt.UnknownOperation(uint8(op));
        NodeRules.checkElementwise(node);
        if (element >= Nodes.elements(node.dims)) {
            revert ICourt.IndexOutOfRange(element, Nodes.elements(node.dims));
        }
        uint256 x = _read(node, element, spans, 0);
        if (op == Nodes.EXP) return uint32(Transcendental.exp(x));
        if (op == Nodes.LOG) return uint32(Transcendental.log(x));
        if (op == Nodes.TANH) return uint32(Transcendental.tanh(x));
        if (op == Nodes.ERF) return uint32(Transcendental.erf(x));
        if (op == Nodes.SIN) return uint32(Transcendental.sin(x));
        if (op == Nodes.COS) return uint32(Transcendental.cos(x));
        return uint32(Transcendental.pow(x, _read(node, element, spans, 1)));
    }

    function _read(Node memory node, uint256 element, Span[] calldata spans, uint256 i)
        private
        pure
        returns (uint256)
    {
        return Spans.element(spans, node, i, TensorIndex.broadcast(element, node.inputs[i].dims, node.dims));
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Nodes, Operand} from "../arbiter/Nodes.sol";
import {Game, IArbiter, ICourt, Opening} from "../interfaces/ICourt.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {MultiProof, ProvenPath} from "./MultiProof.sol";

/// @title Tensor leaves and proofs of them
/// @notice Sizes come from the node, never from the proof (docs/protocol.md, 1.2 to 1.4).
library Openings {
    using MultiProof for ProvenPath;

    uint256 internal constant LEAF_BYTES = 2048;

    /// @notice Leaves of a tensor of `size` bytes.
    function leaves(uint256 size) internal pure returns (uint256) {
        return (size + LEAF_BYTES - 1) / LEAF_BYTES;
    }

    /// @notice Bytes of leaf `index` of a tensor of `size` bytes.
    function leafSize(uint256 size, uint256 index) internal pure returns (uint256) {
        uint256 left = size - index * LEAF_BYTES;
        return left < LEAF_BYTES ? left : LEAF_BYTES;
    }

    /// @notice leaf(data), or keyed(key, data) under a key other than zero.
    function hash(bytes32 key, bytes calldata data) internal pure returns (bytes32) {
        return key == 0
            ? sha256(abi.encodePacked(bytes1(0x00), data))
            : sha256(abi.encodePacked(bytes1(0x02), key, data));
    }

    /// @notice Root of the input's tensor tree that the opened run of whole leaves gives.
    function tensorRoot(Opening calldata opening, uint256 size, bytes32 key) internal view returns (bytes32) {
        uint256 count = leaves(size);
        uint256 first = opening.firstLeaf;
        bytes calldata data = opening.data;
        uint256 end = first * LEAF_BYTES + data.length;
        if (data.length == 0 || end > size || (end != size && data.length % LEAF_BYTES != 0)) {
            revert ICourt.BadProof();
        }
        if (data.length <= LEAF_BYTES) {
            return Merkle.leafRoot(hash(key, data), first, count, opening.siblings);
        }
        bytes32[] memory digests = new bytes32[](leaves(data.length));
        for (uint256 i; i < digests.length; ++i) {
            uint256 from = i * LEAF_BYTES;
            digests[i] = hash(key, data[from:from + leafSize(data.length, i)]);
        }
        return Merkle.rangeRoot(digests, first, count, opening.siblings);
    }

    /// @notice Inputs of an ordinary node as the arbiter takes them, each proven up to the trace root: the first by its own
    /// way, each other by the part of its way that is not the way of the one before.
    function spans(Game calldata game, Operand[] memory inputs, Opening[] calldata openings)
        internal
        view
        returns (IArbiter.Span[] memory proven)
    {
        proven = new IArbiter.Span[](openings.length);
        ProvenPath memory path;
        for (uint256 i; i < openings.length; ++i) {
            Opening calldata opening = openings[i];
            if (opening.input >= inputs.length) revert ICourt.IndexOutOfRange(opening.input, inputs.length);
            Operand memory input = inputs[opening.input];
            if (input.ref >= game.context.node) revert ICourt.MalformedNode();
            bytes32 root = tensorRoot(opening, Nodes.sizeOf(input), game.context.key);
            bool held = i == 0
                ? path.begin(game.context.traceRoot, root, input.ref, game.params.program.nodes, opening.path)
                : path.join(root, input.ref, opening.path);
            if (!held) revert ICourt.BadProof();
            // casting to 'uint64' is safe because it is a constant of a few thousand
            // forge-lint: disable-next-line(unsafe-typecast)
            proven[i] = IArbiter.Span(opening.input, opening.firstLeaf * uint64(LEAF_BYTES), opening.data);
        }
    }
}

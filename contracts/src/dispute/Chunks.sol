// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Nodes} from "../arbiter/Nodes.sol";
import {IAvailability} from "../interfaces/IAvailability.sol";
import {ProgramRef} from "../interfaces/Types.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Openings} from "./Openings.sol";

/// @title Leaves of a state, proven up to its root
/// @notice How many leaves a slot has, and how many bytes each, says the program's `state(slot)` node, never the proof.
library Chunks {
    /// @notice Which leaf of its slot the chunk is (the place's, modulo the slot's leaves), and how many leaves the slot has;
    /// no leaves if it is not below the state's root.
    function locate(
        bytes32 stateRoot,
        ProgramRef memory program,
        IAvailability.StateLeaf calldata place,
        IAvailability.Chunk calldata chunk
    ) internal view returns (uint256 leaf, uint256 leaves) {
        uint256 encodings = 1 + uint256(program.nodes) + program.slots;
        bytes32 node = Openings.hash(0, chunk.node);
        if (!Merkle.verify(program.root, node, 1 + uint256(place.slot), encodings, chunk.nodeProof)) {
            return (0, 0);
        }
        uint256 size = Nodes.sizeOf(Nodes.decode(chunk.node));
        leaves = Openings.leaves(size);
        leaf = place.leaf % leaves;
        if (chunk.data.length != Openings.leafSize(size, leaf)) return (0, 0);
        bytes32 root = tensorRoot(0, chunk.data, leaf, leaves, chunk.leafProof);
        if (root == 0 || !Merkle.verify(stateRoot, root, place.slot, program.slots, chunk.slotProof)) {
            return (0, 0);
        }
    }

    /// @notice Root of the tensor, keyed if key is not zero, that the leaf's bytes and siblings give; 0 if there are too many
    /// siblings or too few.
    function tensorRoot(
        bytes32 key,
        bytes calldata data,
        uint256 leaf,
        uint256 leaves,
        bytes32[] calldata proof
    ) internal view returns (bytes32) {
        if (proof.length != Merkle.depth(leaves)) return 0;
        return Merkle.fold(Openings.hash(key, data), leaf, proof);
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {Claim, Kind} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "../market/Market.sol";

/// @notice Programs whose every slot holds one f32, and claims whose output state is known, so that its pieces can be shown.
abstract contract KnownStates is Market {
    uint256 private constant NODES = 20;

    function slotsOf(Kind kind) internal pure returns (uint32) {
        return kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
    }

    function programRoot(Kind kind) internal view returns (bytes32) {
        return Merkle.root(_program(slotsOf(kind)));
    }

    /// @dev A claim as `draft` makes it, but for its output state.
    function draftKnown(Kind kind, uint32 round, uint32 shard) internal returns (Claim memory claim) {
        claim = draft(kind, round, shard);
        claim.outputRoot = Merkle.root(_slotRoots(claim));
        claim.segmentsRoot = Merkle.root(segmentEnds(claim));
    }

    /// @dev What answers a demand for these places of the claim's output state.
    function chunksOf(Claim memory claim, IAvailability.StateLeaf[] memory places)
        internal
        view
        returns (IAvailability.Chunk[] memory chunks)
    {
        bytes32[] memory program = _program(slotsOf(claim.kind));
        chunks = new IAvailability.Chunk[](places.length);
        for (uint256 i; i < chunks.length; ++i) {
            uint256 slot = places[i].slot;
            chunks[i].node = _node(slot);
            chunks[i].nodeProof = memberProof(program, 1 + slot);
            chunks[i].data = _data(claim, slot);
            chunks[i].slotProof = memberProof(_slotRoots(claim), slot);
        }
    }

    function _data(Claim memory claim, uint256 slot) private pure returns (bytes memory) {
        return abi.encodePacked(bytes4(keccak256(abi.encode(claim.manifest, slot))));
    }

    function _slotRoots(Claim memory claim) private view returns (bytes32[] memory roots) {
        roots = new bytes32[](slotsOf(claim.kind));
        for (uint256 slot; slot < roots.length; ++slot) {
            roots[slot] = Merkle.leaf(_data(claim, slot));
        }
    }

    /// @dev The encoding of `state(slot)`: f32, one dimension of one.
    function _node(uint256 slot) private pure returns (bytes memory) {
        return abi.encodePacked(uint8(1), uint8(0), uint8(1), uint8(0), uint8(1), uint32(1), u64(slot));
    }

    /// @dev Leaves of the program's tree.
    function _program(uint256 slots) private view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](1 + NODES + slots);
        for (uint256 i; i < leaves.length; ++i) {
            leaves[i] = i > 0 && i <= slots ? Merkle.leaf(_node(i - 1)) : keccak256(abi.encode("encoding", i));
        }
    }
}

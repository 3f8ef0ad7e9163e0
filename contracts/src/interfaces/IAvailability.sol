// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Claim} from "./Types.sol";

/// @title Availability: whoever commits to a state shows drawn pieces of it when asked (docs/protocol.md, section 7.3)
/// @notice A demand names a state at a segment's end and brings a bond. A later block's hash draws CHUNKS leaves of the state's
/// tensors; whoever supplies them all in time, with their proofs, saves the claim, and the claimant gets half of the bond.
/// Otherwise the claim is convicted, and no vote with it. While a demand is open it counts as a game on its claim.
interface IAvailability {
    /// @notice One drawn leaf: its bytes, and the way up to the state's root. `node`: the encoding of the program's `state(slot)`,
    /// which fixes how many leaves the slot has and how many bytes this one.
    struct Chunk {
        bytes node;
        bytes32[] nodeProof;
        bytes data;
        bytes32[] leafProof;
        bytes32[] slotProof;
    }

    error NoSuchDemand(uint256 demandId);
    error NoSuchSegment(uint32 segmentEnd);
    error WrongState();
    error NotDrawnYet(uint64 seedBlock);
    error SeedGone(uint64 seedBlock);
    error WrongCount(uint256 expected, uint256 given);
    error BadProof(uint256 chunk);
    error TooLate(uint64 deadline);
    error NotDue(uint64 due);

    event Demanded(
        uint256 indexed demandId,
        bytes32 indexed claimId,
        address indexed demander,
        uint32 segmentEnd,
        bytes32 stateRoot,
        uint64 seedBlock,
        uint64 deadline
    );
    event Supplied(uint256 indexed demandId, bytes32 indexed claimId, uint256 burned, uint256 paid);
    event Withheld(uint256 indexed demandId, bytes32 indexed claimId, bool convicted);

    /// @notice Ask for pieces of the state at the end of segment `segmentEnd` - 1 (0: the input state; `stateRoot`: that leaf of
    /// segmentsRoot) of a claim that stands and may still be challenged. The bond is the job's challengeBond.
    function demand(Claim calldata claim, uint32 segmentEnd, bytes32 stateRoot, bytes32[] calldata proof)
        external
        returns (uint256 demandId);
    /// @notice Anyone, in time: all chunks, in the order in which they are drawn.
    function supply(uint256 demandId, Claim calldata claim, Chunk[] calldata chunks) external;
    /// @notice Anyone, once the time is up: convict the claim if it still stands; the bond goes back either way.
    function expire(uint256 demandId, Claim calldata claim) external;
    /// @notice Leaf `chunk` of a demand whose seed block has this hash: a slot, and the 64 bits that give its leaf modulo its leaves.
    function drawn(bytes32 blockHash, uint256 demandId, uint256 chunk, uint256 slots)
        external
        pure
        returns (uint256 slot, uint64 leaf);
}

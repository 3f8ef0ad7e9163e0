// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim} from "./Types.sol";

/// @title Availability: whoever commits to a state shows named pieces of it when asked (docs/protocol.md, section 7.3)
/// @notice A demand names leaves of a state at a segment's end and brings a bond. Whoever shows them all in time, with their
/// proofs, saves the claim, and the claimant gets half of the bond. Otherwise the claim is convicted, and no vote with it.
/// While a demand is open it counts as a game on its claim.
interface IAvailability {
    /// @notice A leaf of a state: of which slot, and which one, modulo the slot's leaves.
    struct StateLeaf {
        uint32 slot;
        uint32 leaf;
    }

    /// @notice What a demand asks for. Its hash is what is kept; `Demanded` tells all of it.
    struct Asked {
        bytes32 claimId;
        bytes32 stateRoot;
        address demander;
        uint48 deadline; // seconds
        StateLeaf[] places;
    }

    /// @notice One leaf: its bytes, and the way up to the state's root. `node`: the encoding of the program's `state(slot)`,
    /// which fixes how many leaves the slot has and how many bytes this one.
    struct Chunk {
        bytes node;
        bytes32[] nodeProof;
        bytes data;
        bytes32[] leafProof;
        bytes32[] slotProof;
    }

    error NoSuchDemand(uint256 demandId);
    error WrongDemand(bytes32 expected);
    error NoSuchSegment(uint32 segmentEnd);
    error NoSuchSlot(uint32 slot);
    error WrongState();
    error WrongPlaces(uint256 most, uint256 given);
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
        uint48 deadline,
        StateLeaf[] places
    );
    event Supplied(uint256 indexed demandId, bytes32 indexed claimId, uint256 burnt, uint256 paid);
    event Withheld(uint256 indexed demandId, bytes32 indexed claimId, bool convicted);

    /// @notice Ask for 1 to CHUNKS leaves of the state at the end of segment `segmentEnd` - 1 (0: the input state; `stateRoot`:
    /// that leaf of segmentsRoot) of a claim that stands and may still be challenged. A place may be named twice. The bond is
    /// the job's challengeBond.
    function demand(
        Claim calldata claim,
        uint32 segmentEnd,
        bytes32 stateRoot,
        bytes32[] calldata proof,
        StateLeaf[] calldata places
    ) external returns (uint256 demandId);
    /// @notice Anyone, in time: one chunk for each place, in their order.
    function supply(uint256 demandId, Asked calldata asked, Claim calldata claim, Chunk[] calldata chunks)
        external;
    /// @notice Anyone, once the time is up: convict the claim if it still stands; the bond goes back either proven.
    function expire(uint256 demandId, Asked calldata asked, Claim calldata claim) external;
}

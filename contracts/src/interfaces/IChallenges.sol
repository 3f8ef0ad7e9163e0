// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBatch} from "./IBatch.sol";
import {Game} from "./ICourt.sol";
import {Claim} from "./Types.sol";

/// @title Challenges: bonds, linked to one claim or one vote
interface IChallenges is IBatch {
    error NotCourt(address caller);
    error NotAnnounced(bytes32 commitment);
    error TooSoon(uint64 block_);
    error BadProof();
    error NoDifference();
    error WrongSource(bytes32 claimId);
    error WrongSample(uint32 sample, uint32 samples);

    event Announced(address indexed challenger, bytes32 indexed commitment);
    event Challenged(
        uint256 indexed gameId,
        bytes32 indexed claimId,
        address indexed challenger,
        uint32 segment,
        address verifier
    );
    event Resolved(
        uint256 indexed gameId,
        bytes32 indexed claimId,
        bool challengerWon,
        uint256 bondBurnt,
        uint256 bondPaid
    );
    event BindingConvicted(bytes32 indexed claimId, uint32 slot, address indexed challenger);

    /// @notice keccak256(abi.encode(challenger, claimId, segment, verifier, salt)), at least one block before `open`,
    /// so that a finding cannot be copied from the mempool. `segment` is the sample for `openVote` and the slot for
    /// `proveBinding`, and 2^32 - 1 for `openInput`; `verifier` is zero except for `openVote`. Announcing again changes nothing; use spends it.
    function announce(bytes32 commitment) external;
    /// @notice Dispute segment `segment` of a claim: `from` (leaf `segment`) is accepted, `to` (the next leaf) is not.
    function open(
        Claim calldata claim,
        uint32 segment,
        bytes32 from,
        bytes32[] calldata fromProof,
        bytes32 to,
        bytes32[] calldata toProof,
        bytes32 salt
    ) external returns (uint256 gameId);
    /// @notice Dispute a revealed vote: sample `sample` of the verifier's keyed traces. `traceRoot` is its leaf in tracesRoot.
    function openVote(
        Claim calldata claim,
        address verifier,
        uint32 sample,
        bytes32 from,
        bytes32[] calldata fromProof,
        bytes32 traceRoot,
        bytes32[] calldata traceProof,
        bytes32 salt
    ) external returns (uint256 gameId);
    /// @notice Make the claimant open the tree of its claim's input state, whose leaves nobody else need know, until there is
    /// a slot for `proveBinding`.
    function openInput(Claim calldata claim, bytes32 salt) external returns (uint256 gameId);
    /// @notice One-move conviction: slot `slot` of the claim's input root is not the same slot of the claim (or genesis)
    /// it must come from (docs/protocol.md 4.4). `source` is all zero where the source is a genesis root.
    function proveBinding(
        Claim calldata claim,
        uint32 slot,
        bytes32 leaf,
        bytes32[] calldata proof,
        Claim calldata source,
        bytes32 sourceLeaf,
        bytes32[] calldata sourceProof,
        bytes32 salt
    ) external;
    /// @notice Called by the court when a game ends; `game` as it stood before the move that ended it.
    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external;
    /// @notice Block in which the commitment was announced; 0 if it was not, or is spent.
    function announcedAt(bytes32 commitment) external view returns (uint64);
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "./IAvailability.sol";
import {IBatch} from "./IBatch.sol";
import {Game} from "./ICourt.sol";
import {Claim, Found} from "./Types.sol";

/// @title Challenges: bonds, linked to one claim or one vote
interface IChallenges is IBatch {
    /// @notice What a vote's own trace says of a leaf of the state at the end of a sampled segment, and where the claim's state
    /// is. `ref`: the node whose output is the slot's next value. `stateRoot`: the claim's; `traceRoot`: the vote's, of the sample.
    struct VoteProof {
        bytes32 stateRoot;
        bytes32[] stateProof;
        uint32 ref;
        bytes32[] refProof;
        bytes32 traceRoot;
        bytes32[] traceProof;
        bytes data;
        bytes32[] leafProof;
        bytes32[] nodeProof;
    }

    error NotCourt(address caller);
    error NotAnnounced(bytes32 commitment);
    error TooSoon(uint64 block_);
    error BadProof();
    error NoDifference();
    error WrongSource(bytes32 claimId);
    error WrongSample(uint32 sample, uint32 samples);
    error WrongFindings(bytes32 expected);
    /// @dev The findings do not agree, and no settled claim of the place says which is right.
    error NoTruth();

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
    /// @dev `found` is in dispute on the claim; its hash is `FindingKept`'s.
    event FindingShown(bytes32 indexed claimId, Found found);
    /// @dev A finding whose game is over, on a claim whose reward waits; in this order `share` takes them.
    event FindingKept(bytes32 indexed claimId, bytes32 found, bool won);
    event BindingConvicted(bytes32 indexed claimId, uint32 slot, address indexed challenger);

    /// @notice keccak256(abi.encode(challenger, claimId, segment, verifier, root, salt)), at least one block before `open`,
    /// so that a finding cannot be copied from the mempool. `segment` is the sample for `openVote` and `proveVote`,
    /// the slot for `proveBinding`, and 2^32 - 1 for `openInput`; `verifier` is zero except for a vote. `root` is what the challenger
    /// has found there itself: the state root at the segment's end, or of the input (`openInput`), for `proveBinding`
    /// keccak256(abi.encode(leaf, root of the input)), for `openVote` zero, for
    /// `proveVote` keccak256(abi.encode(place, keccak256(said.data))). Announcing again changes nothing; use spends it.
    function announce(bytes32 commitment) external;
    /// @notice Dispute segment `segment` of a claim: `from` (leaf `segment`) is accepted, `to` (the next leaf) is not, but
    /// `root` is.
    function open(
        Claim calldata claim,
        uint32 segment,
        bytes32 from,
        bytes32[] calldata fromProof,
        bytes32 to,
        bytes32[] calldata toProof,
        bytes32 root,
        bytes32 salt
    ) external returns (uint256 gameId);
    /// @notice Dispute a valid vote, on a claim that stands or that fell at most challengeWindow ago: sample `sample` of the verifier's keyed traces. `traceRoot` is its leaf in tracesRoot.
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
    /// @notice One-move conviction of a valid vote, on a claim as in `openVote`: by its own trace of sample `sample` the state at
    /// the segment's end has other bytes, at this place, than the claim that it vouched for. `committed`: the claim's.
    function proveVote(
        Claim calldata claim,
        address verifier,
        uint32 sample,
        IAvailability.StateLeaf calldata place,
        IAvailability.Chunk calldata committed,
        VoteProof calldata said,
        bytes32 salt
    ) external;
    /// @notice Make the claimant open the tree of its claim's input state, whose leaves nobody else need know, until there is
    /// a slot for `proveBinding`.
    /// `root` is what its input must be.
    function openInput(Claim calldata claim, bytes32 root, bytes32 salt) external returns (uint256 gameId);
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
        bytes32 root,
        bytes32 salt
    ) external;
    /// @notice Anyone, of a claim whose reward waits, once no game on it is open: pay those whose findings are right and
    /// were announced before the first such was shown. `settled`: the claim that was paid at the place of the fallen one.
    /// `fallenRoots`, `settledRoots`: as they were committed. `found`: all that were kept, in that order. If none is right,
    /// it is paid as by `shareWon`.
    function share(
        Claim calldata fallen,
        bytes32[] calldata fallenRoots,
        Claim calldata settled,
        bytes32[] calldata settledRoots,
        Found[] calldata found
    ) external;
    /// @notice The same without a settled claim, where all findings say the same, and one of them is the winner's.
    function shareAlike(bytes32 claimId, Found[] calldata found) external;
    /// @notice The same where no settled claim will say who was right: pay who convicted the claim and whose own games were won,
    /// in equal parts. The job went on without the claim when it fell, or its round is settled, or its job closed, without a
    /// settled claim at its place.
    function shareWon(Claim calldata claim, Found[] calldata found) external;
    /// @notice Called by the court when a game ends; `game` as it stood before the move that ended it.
    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external;
    /// @notice Block in which the commitment was announced; 0 if it was not, or is spent.
    function announcedAt(bytes32 commitment) external view returns (uint64);
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../interfaces/IChallenges.sol";
import {Context, Cursor, Game, ICourt, Params} from "../interfaces/ICourt.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {
    Accused,
    Claim,
    Finding,
    Found,
    INPUT,
    Kind,
    Link,
    Loop,
    NO_SLOT,
    Origin,
    Terms
} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {Loops} from "../libraries/Loops.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Sampling} from "../libraries/Sampling.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Batch} from "./Batch.sol";
import {Findings} from "./Findings.sol";

/// @notice See IChallenges; docs/protocol.md, sections 4.4, 5 and 6.2.
contract Challenges is Findings, Batch {
    /// @dev A game being opened on a vote, in memory only. `segment` is the one that the sample replays.
    struct VoteGame {
        Game game;
        uint32 segment;
        uint32 samples;
        bytes32 segmentsRoot;
        uint256 leaves;
    }

    /// @dev Rounds that a shard's own state outlives without a task; so that no proof needs more look-ups than these, of 10,000
    /// gas each at most.
    uint32 private constant MAX_ABSENCE = 128;

    IVault public immutable VAULT;
    address public immutable JOBS;
    ICourt public immutable COURT;

    constructor(IVault vault, address jobs, ITasks tasks, ICourt court) Findings(tasks) {
        VAULT = vault;
        JOBS = jobs;
        COURT = court;
    }

    function open(
        Claim calldata claim,
        uint32 segment,
        bytes32 from,
        bytes32[] calldata fromProof,
        bytes32 to,
        bytes32[] calldata toProof,
        bytes32 root,
        bytes32 salt
    ) external returns (uint256 gameId) {
        if (root == to) revert NoDifference();
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        Game memory game;
        _enter(game, claim, segment, root, salt, t);
        uint256 leaves = _leaves(claim, t);
        if (!Merkle.verify(claim.segmentsRoot, from, segment, leaves, fromProof)) revert BadProof();
        if (!Merkle.verify(claim.segmentsRoot, to, uint256(segment) + 1, leaves, toProof)) revert BadProof();
        game.context.inRoot = from;
        game.context.outRoot = to;
        return _start(game, address(0), t.challengeBond);
    }

    function openVote(
        Claim calldata claim,
        address verifier,
        uint32 sample,
        bytes32 from,
        bytes32[] calldata fromProof,
        bytes32 traceRoot,
        bytes32[] calldata traceProof,
        bytes32 salt
    ) external returns (uint256 gameId) {
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        VoteGame memory v = _gameOnVote(claim, verifier, sample, t);
        _spend(v.game.params.claimId, sample, verifier, 0, salt);
        if (!Merkle.verify(v.game.context.outRoot, traceRoot, sample, v.samples, traceProof)) {
            revert BadProof();
        }
        if (!Merkle.verify(v.segmentsRoot, from, v.segment, v.leaves, fromProof)) revert BadProof();
        v.game.context.inRoot = from;
        v.game.context.outRoot = traceRoot;
        return _start(v.game, verifier, t.challengeBond);
    }

    function openInput(Claim calldata claim, bytes32 root, bytes32 salt) external returns (uint256 gameId) {
        if (root == claim.inputRoot) revert NoDifference();
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        Game memory game;
        _enter(game, claim, INPUT, root, salt, t);
        game.context.steps = 0;
        game.context.outRoot = claim.inputRoot;
        return _start(game, address(0), t.challengeBond);
    }

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
    ) external {
        bytes32 claimId = keccak256(abi.encode(claim));
        Found memory found = _shown(claimId, slot, keccak256(abi.encode(leaf, root)), salt);
        _requireInput(claim, slot, leaf, proof);
        _requireSource(claim, slot, source, sourceLeaf, sourceProof);
        if (leaf == sourceLeaf) revert NoDifference();
        emit BindingConvicted(claimId, slot, msg.sender);
        if (!TASKS.convict(claim, Finding(msg.sender, INPUT, false))) return;
        (found.segment, found.root) = (INPUT, root);
        emit FindingShown(claimId, found);
        _keep(claimId, _hash(found));
    }

    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external {
        if (msg.sender != address(COURT)) revert NotCourt(msg.sender);
        bool stood;
        if (game.params.ballot == 0) {
            bool kept;
            (stood, kept) = TASKS.gameClosed(
                game.params.claimId,
                game.params.accused,
                Finding(game.cursor.challenger, game.params.segment, true),
                challengerWon
            );
            if (kept) _keep(game.params.claimId, game.params.found);
        } else {
            stood = TASKS.voteGameClosed(
                game.params.claimId,
                game.params.accused,
                game.params.ballot,
                game.cursor.challenger,
                challengerWon
            );
        }
        bytes32 key = bytes32(gameId);
        uint256 paid = VAULT.balance(IVault.Bucket.BOND, key);
        uint256 burnt;
        address receiver = game.cursor.challenger;
        if (stood && !challengerWon) {
            burnt = paid - paid / 2;
            paid -= burnt;
            receiver = game.cursor.defender;
        }
        emit Resolved(gameId, game.params.claimId, challengerWon, burnt, paid);
        if (burnt > 0) VAULT.burn(IVault.Bucket.BOND, key, burnt);
        VAULT.move(IVault.Bucket.BOND, key, IVault.Bucket.FREE, accountKey(receiver), paid);
    }

    function _requireInput(Claim calldata claim, uint32 slot, bytes32 leaf, bytes32[] calldata proof)
        private
        view
    {
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        if (!Merkle.verify(claim.inputRoot, leaf, slot, _slots(claim.kind, t), proof)) revert BadProof();
    }

    function _requireSource(
        Claim calldata claim,
        uint32 slot,
        Claim calldata source,
        bytes32 leaf,
        bytes32[] calldata proof
    ) private view {
        (bytes32 root, uint256 place, uint256 count) =
            _sourceOf(claim, slot, source, TermsStore.load(JOBS, claim.jobId));
        if (!Merkle.verify(root, leaf, place, count, proof)) revert BadProof();
    }

    /// @dev Where slot `slot` of the claim's input must come from (4.4): a root, the slot in it, and its number of slots.
    function _sourceOf(Claim calldata claim, uint32 slot, Claim calldata source, Terms memory t)
        private
        view
        returns (bytes32, uint256, uint256)
    {
        (Link memory link, uint256 i) = Loops.linkOf(TermsStore.links(JOBS, claim.jobId, claim.kind), slot);
        if (link.origin == Origin.OWN) return _own(claim, slot, source, t);
        if (link.origin == Origin.GENESIS || claim.round < link.lag) return _genesis(claim, slot, t);
        bytes32 standing =
            _linked(claim, link, i / link.count, link.source == Kind.TASK ? t.shards : t.slices);
        if (link.origin == Origin.PRESENT) {
            return (Merkle.leaf(abi.encodePacked(standing != 0)), 0, 1);
        }
        i %= link.count;
        // An outer claim of an earlier round is there as long as the claim stands.
        if (standing == 0 && link.source == Kind.TASK) {
            if (link.otherwise == NO_SLOT) return _genesis(claim, slot, t);
            return _own(claim, link.otherwise + i, source, t);
        }
        _requireIs(source, standing);
        return (source.outputRoot, Loops.firstOf(link, claim.shard) + i, _slots(link.source, t));
    }

    /// @dev The claim that the `k`-th run of a link's slots comes from; 0: a task that its round was closed without.
    function _linked(Claim calldata claim, Link memory link, uint256 k, uint256 units)
        private
        view
        returns (bytes32)
    {
        uint256 own = claim.kind == link.source ? claim.shard : 0;
        uint256 unit = (own + link.shift + k) % units;
        // A shard's or a slice's number.
        // forge-lint: disable-next-line(unsafe-typecast)
        return TASKS.current(claim.jobId, link.source, claim.round - link.lag, uint32(unit));
    }

    /// @dev Slot `slot` of the latest output at the claim's own place; of its genesis state where there is none.
    function _own(Claim calldata claim, uint256 slot, Claim calldata source, Terms memory t)
        private
        view
        returns (bytes32, uint256, uint256)
    {
        bytes32 latest = claim.kind == Kind.TASK
            ? _latestTask(claim)
            : claim.round == 0
                ? bytes32(0)
                : TASKS.current(claim.jobId, Kind.OUTER, claim.round - 1, claim.shard);
        if (latest == 0 && (claim.kind == Kind.TASK || claim.round == 0)) {
            return _genesis(claim, slot, t);
        }
        _requireIs(source, latest);
        return (source.outputRoot, slot, _slots(claim.kind, t));
    }

    /// @dev The slices' outer genesis states are one tree: slice s has the leaves from s * 2^depth on.
    function _genesis(Claim calldata claim, uint256 slot, Terms memory t)
        private
        pure
        returns (bytes32, uint256, uint256)
    {
        if (claim.kind == Kind.TASK) return (t.genesisRoot, slot, t.slots);
        uint256 depth = Merkle.depth(t.outerSlots);
        return (t.outerGenesisRoot, (uint256(claim.shard) << depth) + slot, uint256(t.slices) << depth);
    }

    function _slots(Kind kind, Terms memory t) private pure returns (uint32) {
        return kind == Kind.TASK ? t.slots : t.outerSlots;
    }

    /// @dev The shard's task of the latest earlier round that was not closed without it; 0 if it is MAX_ABSENCE rounds away
    /// or there is none.
    function _latestTask(Claim calldata claim) private view returns (bytes32 claimId) {
        uint32 round = claim.round;
        uint32 first = round > MAX_ABSENCE ? round - MAX_ABSENCE : 0;
        while (round > first && claimId == 0) {
            claimId = TASKS.current(claim.jobId, Kind.TASK, --round, claim.shard);
        }
    }

    function _requireIs(Claim calldata source, bytes32 claimId) private pure {
        bytes32 given = keccak256(abi.encode(source));
        if (claimId == 0 || given != claimId) revert WrongSource(given);
    }

    /// @dev Makes `game` one on steps of the claim's own program, from the first step of the segment (INPUT: of none).
    function _fill(Game memory game, Claim calldata claim, bytes32 claimId, uint32 segment, Terms memory t)
        private
        view
    {
        (Params memory params, Context memory context, Cursor memory cursor) =
            (game.params, game.context, game.cursor);
        params.accused = Accused(
            claim.jobId, claim.claimant, claim.kind, claim.round, claim.shard, claim.price, claim.rewinds
        );
        params.claimId = claimId;
        params.segment = segment;
        params.datasetRoot = t.datasetRoot;
        params.seed = t.seed;
        params.records = t.records;
        params.recordSize = t.recordSize;
        params.shard = claim.shard;
        cursor.challenger = msg.sender;
        cursor.defender = claim.claimant;
        cursor.moveTime = t.moveTime;
        if (segment == INPUT) segment = 0;
        else if (uint256(segment) + 1 >= _leaves(claim, t)) revert BadProof();
        (Loop memory loop,, uint256 within) = TermsStore.located(JOBS, claim.jobId, claim.kind, segment);
        params.program = Loops.programOf(loop, claim.kind, t);
        (uint256 steps, uint256 segmentSteps) = Loops.stepsOf(loop, claim.shard);
        // Of 32 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        context.steps = uint32(segmentSteps);
        // A counter of 32 bits times 32 bits.
        // forge-lint: disable-next-line(unsafe-typecast)
        context.step = uint64(claim.round * steps + within * segmentSteps);
    }

    /// @dev A game on the sampled segment's keyed last step; outRoot is still the root over all samples.
    function _gameOnVote(Claim calldata claim, address verifier, uint32 sample, Terms memory t)
        private
        returns (VoteGame memory v)
    {
        v.samples = t.samples;
        if (sample >= v.samples) revert WrongSample(sample, v.samples);
        (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed) =
            TASKS.voteGameOpened(claim, verifier);
        v.segmentsRoot = claim.segmentsRoot;
        v.leaves = _leaves(claim, t);
        Loop[] memory loops = TermsStore.loops(JOBS, claim.jobId, Kind.TASK);
        v.segment = uint32(Sampling.segment(seed, verifier, sample, loops));
        _fill(v.game, claim, claimId, v.segment, t);
        v.game.params.ballot = ballot;
        v.game.cursor.defender = verifier;
        v.game.context.key = Sampling.key(verifier, seed);
        v.game.context.outRoot = tracesRoot;
    }

    function _start(Game memory game, address verifier, uint256 bond) private returns (uint256 gameId) {
        gameId = COURT.open(game);
        emit Challenged(gameId, game.params.claimId, msg.sender, game.params.segment, verifier);
        VAULT.move(IVault.Bucket.FREE, accountKey(msg.sender), IVault.Bucket.BOND, bytes32(gameId), bond);
    }

    /// @dev Makes `game` one on the claim, counted there; its finding must have been announced.
    function _enter(
        Game memory game,
        Claim calldata claim,
        uint32 segment,
        bytes32 root,
        bytes32 salt,
        Terms memory t
    ) private {
        bytes32 claimId = keccak256(abi.encode(claim));
        Found memory found = _shown(claimId, segment, root, salt);
        TASKS.gameOpened(claim, true);
        emit FindingShown(claimId, found);
        _fill(game, claim, claimId, segment, t);
        game.params.found = _hash(found);
    }

    /// @dev Of the tree over the states at segment ends: one more than there are segments.
    function _leaves(Claim calldata claim, Terms memory t) private pure returns (uint256) {
        return uint256(claim.kind == Kind.TASK ? t.segments : t.outerSegments) + 1;
    }
}

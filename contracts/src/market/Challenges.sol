// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Chunks} from "../dispute/Chunks.sol";
import {IAvailability} from "../interfaces/IAvailability.sol";
import {IChallenges} from "../interfaces/IChallenges.sol";
import {Context, Cursor, Game, ICourt, Params} from "../interfaces/ICourt.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {
    Accused,
    Claim,
    Found,
    INPUT,
    Kind,
    Link,
    Loop,
    NO_SLOT,
    Origin,
    ProgramRef,
    Terms
} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {Loops} from "../libraries/Loops.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Sampling} from "../libraries/Sampling.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Batch} from "./Batch.sol";
import {Findings} from "./Findings.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IChallenges; docs/protocol.md, sections 4.4, 5 and 6.2.
contract Challenges is Findings, Batch {
    using SafeCast for uint256;

    /// @dev A game being opened on a vote, in memory only. `segment` is the one that the sample replays.
    struct VoteGame {
        Game game;
        uint32 segment;
        uint32 samples;
        bytes32 segmentsRoot;
        uint256 leaves;
    }

    /// @dev Where an input slot must come from: slot `slot` of `slots` below `root`. `certain`: see `_requireSource`.
    struct Source {
        bytes32 root;
        uint256 slot;
        uint256 slots;
        bool certain;
    }

    /// @dev Rounds that a shard's own state outlives without a task; so that no proof needs more look-ups than these, of 10,000
    /// gas each at most.
    uint32 private constant MAX_ABSENCE = 128;

    IVault private immutable VAULT;
    ICourt private immutable COURT;

    constructor(IVault vault, address jobs, ITasks tasks, ICourt court) Findings(jobs, tasks) {
        VAULT = vault;
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

    function proveVote(
        Claim calldata claim,
        address verifier,
        uint32 sample,
        IAvailability.StateLeaf calldata place,
        IAvailability.Chunk calldata committed,
        VoteProof calldata said,
        bytes32 salt
    ) external {
        _spend(_idOf(claim), sample, verifier, keccak256(abi.encode(place, keccak256(said.data))), salt);
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        if (sample >= t.samples) revert WrongSample(sample, t.samples);
        (bytes32 tracesRoot, bytes32 seed, uint32 segment) =
            TASKS.convictVote(claim, verifier, sample, msg.sender);
        if (!Merkle.verify(tracesRoot, said.traceRoot, sample, t.samples, said.traceProof)) {
            revert BadProof();
        }
        ProgramRef memory program = _requireState(claim, segment, said, t);
        (uint256 leaf, uint256 leaves) = Chunks.locate(said.stateRoot, program, place, committed);
        if (leaves == 0) revert BadProof();
        bytes32 root =
            Chunks.tensorRoot(Sampling.key(verifier, seed), said.data, leaf, leaves, said.leafProof);
        _requireOutput(program, place.slot, root, said);
        if (keccak256(said.data) == keccak256(committed.data)) revert NoDifference();
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
        bytes32 claimId = _idOf(claim);
        Found memory found = _shown(claimId, slot, keccak256(abi.encode(leaf, root)), salt);
        _requireInput(claim, slot, leaf, proof);
        bool certain = _requireSource(claim, slot, source, sourceLeaf, sourceProof);
        if (leaf == sourceLeaf) revert NoDifference();
        emit BindingConvicted(claimId, slot, msg.sender);
        if (!TASKS.convict(claim, msg.sender, certain)) return;
        (found.segment, found.root) = (INPUT, root);
        emit FindingShown(claimId, found);
        _keep(claimId, _hash(found), true);
    }

    function resolve(uint256 gameId, Game calldata game, bool challengerWon) external {
        if (msg.sender != address(COURT)) revert NotCourt(msg.sender);
        bool stood;
        if (game.params.ballot == 0) {
            bool kept;
            (stood, kept) = TASKS.gameClosed(
                game.params.claimId, game.params.accused, game.cursor.challenger, true, challengerWon
            );
            if (kept) _keep(game.params.claimId, game.params.found, challengerWon);
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
        if (stood && !challengerWon && !_sourceGone(game)) {
            burnt = paid - paid / 2;
            paid -= burnt;
            receiver = game.cursor.defender;
        }
        emit Resolved(gameId, game.params.claimId, challengerWon, burnt, paid);
        if (burnt > 0) VAULT.burn(IVault.Bucket.BOND, key, burnt);
        VAULT.move(IVault.Bucket.BOND, key, IVault.Bucket.FREE, accountKey(receiver), paid);
    }

    /// @dev The game is about an input whose source a rewind may have taken with it, so that nothing can be proven any more.
    function _sourceGone(Game calldata game) private view returns (bool) {
        Accused calldata accused = game.params.accused;
        return game.params.ballot == 0 && game.params.segment == INPUT
            && IJobs(JOBS).overtaken(accused.jobId, accused.kind, accused.round, accused.rewinds, false);
    }

    function _requireInput(Claim calldata claim, uint32 slot, bytes32 leaf, bytes32[] calldata proof)
        private
        view
    {
        Terms memory t = TermsStore.load(JOBS, claim.jobId);
        if (!Merkle.verify(claim.inputRoot, leaf, slot, _slots(claim.kind, t), proof)) revert BadProof();
    }

    /// @dev `certain`: whether nothing that the claim is compared with can have changed since its commit.
    function _requireSource(
        Claim calldata claim,
        uint32 slot,
        Claim calldata source,
        bytes32 leaf,
        bytes32[] calldata proof
    ) private view returns (bool certain) {
        Source memory s = _sourceOf(claim, slot, source, TermsStore.load(JOBS, claim.jobId));
        if (!Merkle.verify(s.root, leaf, s.slot, s.slots, proof)) revert BadProof();
        return s.certain;
    }

    /// @dev Where slot `slot` of the claim's input must come from (4.4).
    function _sourceOf(Claim calldata claim, uint32 slot, Claim calldata source, Terms memory t)
        private
        view
        returns (Source memory)
    {
        (Link memory link, uint256 i) = Loops.linkOf(TermsStore.links(JOBS, claim.jobId, claim.kind), slot);
        if (link.origin == Origin.OWN) return _own(claim, slot, source, t);
        if (link.origin == Origin.GENESIS || claim.round < link.lag) return _genesis(claim, slot, t, true);
        bytes32 standing =
            _linked(claim, link, i / link.count, link.source == Kind.TASK ? t.shards : t.slices);
        if (link.origin == Origin.PRESENT) {
            return Source(Merkle.leaf(abi.encodePacked(standing != 0)), 0, 1, false);
        }
        i %= link.count;
        // An outer claim of an earlier round is there as long as the claim stands.
        if (standing == 0 && link.source == Kind.TASK) {
            if (link.otherwise == NO_SLOT) return _genesis(claim, slot, t, false);
            Source memory own = _own(claim, link.otherwise + i, source, t);
            own.certain = false;
            return own;
        }
        uint256 place = Loops.firstOf(link, claim.shard) + i;
        return _outputOf(source, standing, place, _slots(link.source, t), claim);
    }

    /// @dev The claim that the `k`-th run of a link's slots comes from; 0: a task that its round was closed without.
    function _linked(Claim calldata claim, Link memory link, uint256 k, uint256 units)
        private
        view
        returns (bytes32)
    {
        uint256 own = claim.kind == link.source ? claim.shard : 0;
        uint32 unit = ((own + link.shift + k) % units).toUint32();
        return TASKS.current(claim.jobId, link.source, claim.round - link.lag, unit);
    }

    /// @dev Slot `slot` of the latest output at the claim's own place; of its genesis state where there is none.
    function _own(Claim calldata claim, uint256 slot, Claim calldata source, Terms memory t)
        private
        view
        returns (Source memory)
    {
        if (claim.round == 0) return _genesis(claim, slot, t, true);
        uint32 round = claim.round - 1;
        bytes32 latest = TASKS.current(claim.jobId, claim.kind, round, claim.shard);
        if (latest != 0 || claim.kind == Kind.OUTER) {
            return _outputOf(source, latest, slot, _slots(claim.kind, t), claim);
        }
        uint32 first = claim.round > MAX_ABSENCE ? claim.round - MAX_ABSENCE : 0;
        while (round > first && latest == 0) {
            latest = TASKS.current(claim.jobId, Kind.TASK, --round, claim.shard);
        }
        if (latest == 0) return _genesis(claim, slot, t, false);
        Source memory s = _outputOf(source, latest, slot, t.slots, claim);
        s.certain = false;
        return s;
    }

    /// @dev A source that was there when the claim was committed is there since: places change hands by rewinds alone.
    function _outputOf(
        Claim calldata source,
        bytes32 claimId,
        uint256 slot,
        uint256 slots,
        Claim calldata claim
    ) private pure returns (Source memory) {
        bytes32 given = _idOf(source);
        if (claimId == 0 || given != claimId) revert WrongSource(given);
        return Source(source.outputRoot, slot, slots, source.rewinds <= claim.rewinds);
    }

    /// @dev The slices' outer genesis states are one tree: slice s has the leaves from s * 2^depth on.
    function _genesis(Claim calldata claim, uint256 slot, Terms memory t, bool certain)
        private
        pure
        returns (Source memory)
    {
        if (claim.kind == Kind.TASK) return Source(t.genesisRoot, slot, t.slots, certain);
        uint256 depth = Merkle.depth(t.outerSlots);
        uint256 leaf = (uint256(claim.shard) << depth) + slot;
        return Source(t.outerGenesisRoot, leaf, uint256(t.slices) << depth, certain);
    }

    function _slots(Kind kind, Terms memory t) private pure returns (uint32) {
        return kind == Kind.TASK ? t.slots : t.outerSlots;
    }

    /// @dev The claim has that state at the segment's end. Returns the program of its steps.
    function _requireState(Claim calldata claim, uint32 segment, VoteProof calldata said, Terms memory t)
        private
        view
        returns (ProgramRef memory)
    {
        uint256 end = uint256(segment) + 1;
        if (!Merkle.verify(claim.segmentsRoot, said.stateRoot, end, _leaves(claim, t), said.stateProof)) {
            revert BadProof();
        }
        (Loop memory loop,,) = TermsStore.located(JOBS, claim.jobId, Kind.TASK, segment);
        return Loops.programOf(loop, Kind.TASK, t);
    }

    /// @dev By the trace, the slot's next value is the tensor of that root.
    function _requireOutput(ProgramRef memory program, uint256 slot, bytes32 root, VoteProof calldata said)
        private
        view
    {
        uint256 first = 1 + uint256(program.nodes);
        bytes32 output = Merkle.leaf(abi.encodePacked(said.ref));
        if (
            !Merkle.verify(program.root, output, first + slot, first + program.slots, said.refProof)
                || !Merkle.verify(said.traceRoot, root, said.ref, program.nodes, said.nodeProof)
        ) revert BadProof();
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
        (bytes32 claimId, uint64 ballot, bytes32 tracesRoot, bytes32 seed, uint32 segment) =
            TASKS.voteGameOpened(claim, verifier, sample);
        v.segmentsRoot = claim.segmentsRoot;
        v.leaves = _leaves(claim, t);
        v.segment = segment;
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
        bytes32 claimId = _idOf(claim);
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

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../interfaces/IClasses.sol";
import {Bounds, Conditions, Kind, Link, Loop, NO_SLOT, Origin, Terms} from "../interfaces/Types.sol";

/// @notice See IClasses; docs/protocol.md, section 3. Knows no token and no stake: who registers a class gains nothing by it.
contract Classes is IClasses {
    uint256 private constant MAX_VERIFIERS = 4;
    uint256 private constant MAX_SAMPLES = 8;
    uint256 private constant MAX_SEGMENTS = 256;
    uint256 private constant MAX_SEGMENT_STEPS = 64;
    uint256 private constant MAX_NODES = 65_536;
    uint256 private constant MAX_SLOTS = 4096; // and with it fewer shards than that
    uint256 private constant MAX_SHARDS = 1024;
    uint256 private constant MAX_SLICES = 1024;
    uint256 private constant MAX_UNSETTLED = 32;
    uint256 private constant MAX_LOOPS = 8; // of a kind of claim
    uint256 private constant MAX_LINKS = 16;
    uint256 private constant MAX_CALLS = 3; // to empty seats (Attestations)
    /// @dev Of solverStake, half of which a conviction leaves: 8/3 of what is wasted at most, and 16 times the fees of the votes
    /// that it pays, leave a sixteenth to the finder.
    uint256 private constant STAKE_PER_FEES = 16;

    uint64 private immutable LEAST_VOTE;
    uint64 private immutable MOST_VOTE;
    uint64 private immutable LEAST_MOVE;
    uint64 private immutable MOST_MOVE;
    uint64 private immutable LEAST_WINDOW;
    uint64 private immutable MOST_WINDOW;
    uint32 private immutable LEAST_DELAY;
    uint32 private immutable MOST_DELAY;
    uint64 private immutable LEAST_TIME;
    uint64 private immutable MOST_TIME;
    uint128 private immutable LEAST_STAKE;
    uint128 private immutable MOST_STAKE;
    uint128 private immutable LEAST_BOND;
    uint32 private immutable CLOCK_LAG;
    uint32 private immutable BLOCK_TIME;

    mapping(bytes32 class => Conditions) private registered;

    constructor(Bounds memory b) {
        (LEAST_VOTE, MOST_VOTE, LEAST_MOVE, MOST_MOVE) = (b.leastVote, b.mostVote, b.leastMove, b.mostMove);
        (LEAST_WINDOW, MOST_WINDOW) = (b.leastWindow, b.mostWindow);
        (LEAST_DELAY, MOST_DELAY) = (b.leastDelay, b.mostDelay);
        (LEAST_TIME, MOST_TIME) = (b.leastTime, b.mostTime);
        (LEAST_STAKE, MOST_STAKE, LEAST_BOND) = (b.leastStake, b.mostStake, b.leastBond);
        (CLOCK_LAG, BLOCK_TIME) = (b.clockLag, b.blockTime);
    }

    function register(Conditions calldata c) external returns (bytes32 class) {
        _checkWork(c);
        _checkTimes(c);
        if (c.verifierStake < LEAST_STAKE || c.verifierStake > MOST_STAKE) {
            revert BadConditions("verifierStake");
        }
        if (c.missPenalty > c.verifierStake / 2) revert BadConditions("missPenalty");
        if (c.challengeBond < LEAST_BOND || c.challengeBond > c.verifierStake) {
            revert BadConditions("challengeBond");
        }
        if (c.solverStake < uint256(c.verifiers) * c.verifierStake) revert BadConditions("solverStake");
        class = keccak256(abi.encode(c));
        if (registered[class].verifiers != 0) return class;
        registered[class] = c;
        emit ClassRegistered(class, msg.sender, c);
    }

    function conditions(bytes32 class) public view returns (Conditions memory c) {
        c = registered[class];
        if (c.verifiers == 0) revert NoSuchClass(class);
    }

    function bounds() external view returns (Bounds memory) {
        return Bounds(
            LEAST_VOTE,
            MOST_VOTE,
            LEAST_MOVE,
            MOST_MOVE,
            LEAST_WINDOW,
            MOST_WINDOW,
            LEAST_DELAY,
            MOST_DELAY,
            LEAST_TIME,
            MOST_TIME,
            LEAST_STAKE,
            MOST_STAKE,
            LEAST_BOND,
            CLOCK_LAG,
            BLOCK_TIME
        );
    }

    function check(Terms calldata t) external view {
        if (t.slots > MAX_SLOTS) revert BadTerms("slots");
        if (t.outerSlots > MAX_SLOTS) revert BadTerms("outerSlots");
        if (t.slices == 0 || t.slices > MAX_SLICES) revert BadTerms("slices");
        if (t.params == 0 || t.params > t.slots || t.params % t.slices != 0) revert BadTerms("params");
        if (t.params / t.slices > t.outerSlots) revert BadTerms("params");
        if (t.manifest == 0) revert BadTerms("manifest");
        if (t.shards == 0 || t.shards > MAX_SHARDS) revert BadTerms("shards");
        if (t.minShards == 0 || t.minShards > t.shards) revert BadTerms("minShards");
        if (t.rounds == 0) revert BadTerms("rounds");
        _checkLoops(t.loops, t.segments, t.samples, "loops", "segments");
        _checkLoops(t.outerLoops, t.outerSegments, 0, "outerLoops", "outerSegments");
        if (_covered(t.links, Kind.TASK, t) != t.slots) revert BadTerms("links");
        if (_covered(t.outerLinks, Kind.OUTER, t) != t.outerSlots) revert BadTerms("outerLinks");
        if (t.maxUnsettled == 0 || t.maxUnsettled > MAX_UNSETTLED) revert BadTerms("maxUnsettled");
        if (t.priceFloor > t.priceCap) revert BadTerms("priceFloor");
        _checkTime(t.taskTime, LEAST_TIME, "taskTime");
        _checkTime(t.stragglerTime, LEAST_TIME, "stragglerTime");
        _checkTime(t.outerTime, LEAST_TIME, "outerTime");
        _checkTime(t.pricePeriod, 1, "pricePeriod");
        if (t.minShards < t.shards && t.stragglerTime < _mostVoting(t)) revert BadTerms("stragglerTime");
        _checkClass(t, conditions(t.classId));
        if (3 * uint256(t.solverStake) < 8 * _mostWasted(t)) revert BadTerms("solverStake");
        if (t.solverStake < STAKE_PER_FEES * t.verifiers * t.verifierFee) revert BadTerms("solverStake");
    }

    function _checkWork(Conditions calldata c) private pure {
        if (c.verifiers == 0 || c.verifiers > MAX_VERIFIERS) revert BadConditions("verifiers");
        if (c.segments == 0 || c.segments > MAX_SEGMENTS) revert BadConditions("segments");
        if (c.samples == 0 || c.samples > MAX_SAMPLES || c.samples > c.segments) {
            revert BadConditions("samples");
        }
        if (c.segmentSteps == 0 || c.segmentSteps > MAX_SEGMENT_STEPS) revert BadConditions("segmentSteps");
        if (c.nodes == 0 || c.nodes > MAX_NODES) revert BadConditions("nodes");
    }

    function _checkTimes(Conditions calldata c) private view {
        if (c.seedDelay < LEAST_DELAY || c.seedDelay > MOST_DELAY) revert BadConditions("seedDelay");
        if (c.voteTime < LEAST_VOTE || c.voteTime > MOST_VOTE) revert BadConditions("voteTime");
        if (c.challengeWindow < LEAST_WINDOW || c.challengeWindow > MOST_WINDOW) {
            revert BadConditions("challengeWindow");
        }
        if (c.moveTime < LEAST_MOVE || c.moveTime > MOST_MOVE) revert BadConditions("moveTime");
    }

    /// @dev Each loop is cut into whole segments, and every loop of a task is sampled; the claim's own counts are their sums.
    function _checkLoops(
        Loop[] calldata loops,
        uint256 segments,
        uint256 samples,
        string memory field,
        string memory counted
    ) private pure {
        if (loops.length == 0 || loops.length > MAX_LOOPS) revert BadTerms(field);
        bool sampled = samples > 0;
        for (uint256 i; i < loops.length; ++i) {
            Loop calldata l = loops[i];
            if (l.nodes == 0 || l.nodes > MAX_NODES || l.steps == 0) revert BadTerms(field);
            if (l.segmentSteps == 0 || l.steps % l.segmentSteps != 0) revert BadTerms(field);
            bool slow = sampled && l.slowBy > 0 && l.segmentSteps % l.slowBy == 0;
            if (l.slowBy != 1 && !slow) revert BadTerms(field);
            uint256 n = l.steps / l.segmentSteps;
            if (n > segments) revert BadTerms(counted);
            if (l.samples > samples || l.samples > n || (l.samples > 0) != sampled) {
                revert BadTerms("samples");
            }
            segments -= n;
            samples -= l.samples;
        }
        if (segments > 0) revert BadTerms(counted);
        if (samples > 0) revert BadTerms("samples");
    }

    /// @dev How many slots the links of a kind of claim cover. A link names slots that its source has, and claims that are
    /// there before the reader's.
    function _covered(Link[] calldata links, Kind reader, Terms calldata t) private pure returns (uint256 n) {
        string memory field = reader == Kind.TASK ? "links" : "outerLinks";
        if (links.length > MAX_LINKS) revert BadTerms(field);
        for (uint256 i; i < links.length; ++i) {
            Link calldata l = links[i];
            if (l.count == 0 || l.times == 0) revert BadTerms(field);
            n += uint256(l.count) * l.times;
            if (l.origin == Origin.OWN || l.origin == Origin.GENESIS) continue;
            bool fromTasks = l.source == Kind.TASK;
            if (l.lag == 0 && !(fromTasks && reader == Kind.OUTER)) revert BadTerms(field);
            if (l.times > (fromTasks ? t.shards : t.slices)) revert BadTerms(field);
            if (l.origin == Origin.PRESENT) {
                if (l.count > 1 || !fromTasks) revert BadTerms(field);
                continue;
            }
            if (l.div == 0 || l.mod == 0 || (l.mod > 1 && l.stride < l.count)) revert BadTerms(field);
            uint256 last = l.first + uint256(l.mod - 1) * l.stride;
            if (last + l.count > (fromTasks ? t.slots : t.outerSlots)) revert BadTerms(field);
            if (l.otherwise == NO_SLOT) continue;
            if (uint256(l.otherwise) + l.count > (reader == Kind.TASK ? t.slots : t.outerSlots)) {
                revert BadTerms(field);
            }
        }
    }

    /// @dev What a conviction makes worthless at most: the tasks of all later rounds that may be unsettled with the convict's,
    /// their votes' fees, and all outer claims.
    function _mostWasted(Terms calldata t) private pure returns (uint256) {
        uint256 task = uint256(t.priceCap) + uint256(t.verifiers) * t.verifierFee;
        uint256 rounds = t.maxUnsettled;
        return (rounds - 1) * t.shards * task + rounds * t.slices * t.outerFee;
    }

    /// @dev From a task's commit to its acceptance, if somebody does what is due, so that its round is not closed without it: its
    /// seed, and for the draw and each call voteTime and the most blocks in which that passes (7.4); LEAST_TIME for
    /// transactions to be mined.
    function _mostVoting(Terms calldata t) private view returns (uint256) {
        uint256 calls = 1 + MAX_CALLS;
        uint256 blocks = uint256(t.seedDelay) + 1 + calls * 2 * CLOCK_LAG;
        return calls * t.voteTime + blocks * BLOCK_TIME + LEAST_TIME;
    }

    function _checkTime(uint64 time, uint64 least, string memory field) private view {
        if (time < least || time > MOST_TIME) revert BadTerms(field);
    }

    /// @dev Counts, times and amounts as the class has them; the fee at least, sizes at most.
    function _checkClass(Terms calldata t, Conditions memory c) private pure {
        if (t.verifiers != c.verifiers) revert BadTerms("verifiers");
        if (t.samples != c.samples) revert BadTerms("samples");
        if (t.seedDelay != c.seedDelay) revert BadTerms("seedDelay");
        if (t.voteTime != c.voteTime) revert BadTerms("voteTime");
        if (t.challengeWindow != c.challengeWindow) revert BadTerms("challengeWindow");
        if (t.moveTime != c.moveTime) revert BadTerms("moveTime");
        if (t.verifierStake != c.verifierStake) revert BadTerms("verifierStake");
        if (t.missPenalty != c.missPenalty) revert BadTerms("missPenalty");
        if (t.challengeBond != c.challengeBond) revert BadTerms("challengeBond");
        if (t.verifierFee < c.verifierFee) revert BadTerms("verifierFee");
        if (t.solverStake < c.solverStake) revert BadTerms("solverStake");
        _checkSizes(t.loops, c);
        _checkSizes(t.outerLoops, c);
        if (t.segments > c.segments) revert BadTerms("segments");
        if (t.outerSegments > c.segments) revert BadTerms("outerSegments");
        if (uint256(t.records) * t.recordSize > c.dataBytes) revert BadTerms("records");
        if (t.stateBytes > c.stateBytes) revert BadTerms("stateBytes");
        if (t.stepBytes > c.stepBytes) revert BadTerms("stepBytes");
        if (t.stepOperations > c.stepOperations) revert BadTerms("stepOperations");
    }

    function _checkSizes(Loop[] calldata loops, Conditions memory c) private pure {
        for (uint256 i; i < loops.length; ++i) {
            if (loops[i].nodes > c.nodes) revert BadTerms("nodes");
            if (loops[i].segmentSteps > c.segmentSteps) revert BadTerms("segmentSteps");
        }
    }
}

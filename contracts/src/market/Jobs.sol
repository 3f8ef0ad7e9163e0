// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../interfaces/IClasses.sol";
import {IGuardian} from "../interfaces/IGuardian.sol";
import {ITasks} from "../interfaces/ITasks.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Kind, Loop, Terms} from "../interfaces/Types.sol";
import {accountKey} from "../libraries/AccountKey.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {Rewinds} from "./Rewinds.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IJobs; docs/protocol.md, sections 3 to 5. Keeps each job's progress (which round, how much of it is in,
/// what a rewind has overtaken) in two slots that the Tasks contract turns; how it goes back is in Rewinds.
contract Jobs is Rewinds {
    using SafeCast for uint256;

    /// @dev The most moves of a game (docs/protocol.md 6.6): for as long as they take, a round waits with its fines for what
    /// is in dispute.
    uint256 private constant GRACE = 18;

    IGuardian private immutable GUARDIAN;
    IClasses private immutable CLASSES;

    constructor(IVault vault, address tasks, IGuardian guardian, IClasses classes) Rewinds(vault, tasks) {
        GUARDIAN = guardian;
        CLASSES = classes;
    }

    function post(Terms calldata given, uint256 budget) external returns (bytes32 jobId) {
        GUARDIAN.requireOpen(IGuardian.Business.JOBS);
        if (msg.sender != given.client) revert NotClient(given.client);
        CLASSES.check(given);
        uint256 needed = worstCase(given);
        if (needed > type(uint96).max) revert IClasses.BadTerms("priceCap"); // so that no rewind can waste more
        if (budget < needed) revert BudgetTooSmall(needed, budget);
        jobId = jobIdOf(given);
        if (times[jobId].posted != 0) revert JobExists(jobId);
        times[jobId].posted = _now();
        (counts[jobId].lastRound, counts[jobId].roundStart) = (given.rounds - 1, _now40());
        TermsStore.write(jobId, given);
        emit JobPosted(jobId, msg.sender, budget, given);
        emit RoundStarted(jobId, 0);
        VAULT.move(IVault.Bucket.FREE, accountKey(msg.sender), IVault.Bucket.ESCROW, jobId, budget);
    }

    function topUp(bytes32 jobId, uint256 amount) external {
        _requireJob(jobId);
        if (counts[jobId].flags & CLOSED != 0) revert JobEnded(jobId);
        emit JobFunded(jobId, amount);
        VAULT.move(IVault.Bucket.FREE, accountKey(msg.sender), IVault.Bucket.ESCROW, jobId, amount);
    }

    function halt(bytes32 jobId) external {
        address client = _existing(jobId).client;
        if (msg.sender != client) revert NotClient(client);
        Counts storage c = counts[jobId];
        if (c.flags & (HALTED | CLOSED) != 0 || c.round > c.lastRound) revert JobEnded(jobId);
        c.flags |= HALTED;
        c.lastRound = c.round;
        emit JobHalted(jobId, c.round);
    }

    function close(bytes32 jobId) external {
        Terms memory t = _existing(jobId);
        Counts storage c = counts[jobId];
        if (c.flags & CLOSED != 0) revert JobEnded(jobId);
        if (c.settledRounds != c.round || c.settledTasks != c.standing + worths[jobId].slices) {
            revert NotFinished(jobId);
        }
        if (c.round <= c.lastRound) {
            // The present round is unfinished: only a halted job ends here, once nobody can still commit to it.
            if (c.flags & HALTED == 0 || block.timestamp <= _lastDeadline(jobId, t)) {
                revert NotFinished(jobId);
            }
        }
        c.flags |= CLOSED;
        uint256 rest = VAULT.balance(IVault.Bucket.ESCROW, jobId);
        emit JobClosed(jobId, rest);
        VAULT.move(IVault.Bucket.ESCROW, jobId, IVault.Bucket.FREE, accountKey(t.client), rest);
    }

    function shardTaken(bytes32 jobId) external onlyTasks {
        GUARDIAN.requireOpen(IGuardian.Business.SHARDS);
        Counts storage c = counts[jobId];
        if (c.flags & (HALTED | CLOSED) != 0 || c.round > c.lastRound) revert JobEnded(jobId);
        times[jobId].lastShardClaim = _now();
    }

    function taskCommitted(bytes32 jobId, uint32 round, uint256 worth, uint32 maxUnsettled)
        external
        onlyTasks
        returns (uint32 rewinds, uint64 roundStart)
    {
        Counts storage c = counts[jobId];
        (uint32 present, uint32 settled) = (c.round, c.settledRounds);
        _requireRound(present, c.lastRound, c.flags, jobId, round);
        if (present - settled >= maxUnsettled) revert ITasks.PipelineFull(present, settled);
        if (c.flags & FIXED != 0) revert ITasks.TooLate(c.roundStart + c.acceptedAfter);
        ++c.standing;
        worths[jobId].pending += _small(worth);
        return (c.rewinds, c.roundStart);
    }

    function outerCommitted(bytes32 jobId, uint32 round, bool inTurn)
        external
        onlyTasks
        returns (uint32 rewinds)
    {
        Counts memory c = _countsOf(jobId);
        _requireRound(c.round, c.lastRound, c.flags, jobId, round);
        Terms memory t = TermsStore.load(address(this), jobId);
        _requireClosable(c, t, inTurn);
        rewinds = c.rewinds;
        if (!_sliceCommitted(jobId, c, t)) return rewinds;
        if (c.accepted < t.shards) {
            emit ShardsMissing(jobId, round, t.shards - c.accepted);
        }
        (c.round, c.standing, c.accepted, c.flags) = (round + 1, 0, 0, c.flags & ~FIXED);
        (c.roundStart, c.acceptedAfter) = (_now40(), 0);
        _setCounts(jobId, c);
        if (round < c.lastRound) emit RoundStarted(jobId, round + 1);
    }

    function taskAccepted(bytes32 jobId, uint32 round, uint32 rewinds, uint256 worth) external onlyTasks {
        Counts memory c = _countsOf(jobId);
        if (_overtaken(c, jobId, Kind.TASK, round, rewinds, true)) revert ITasks.NotStanding();
        (counts[jobId].accepted, counts[jobId].acceptedAfter) = (c.accepted + 1, _afterStart(c));
        Worth storage w = worths[jobId];
        w.accepted += _small(worth);
        w.pending -= _small(worth);
    }

    function claimSettled(bytes32 jobId, Kind kind, uint32 round, uint32 rewinds, uint32 maxUnsettled)
        external
        onlyTasks
    {
        Counts memory c = _countsOf(jobId);
        if (_overtaken(c, jobId, kind, round, rewinds, false)) revert ITasks.NotStanding();
        if (round != c.settledRounds) revert ITasks.EarlierUnsettled();
        if (kind == Kind.TASK) {
            counts[jobId].settledTasks = c.settledTasks + 1;
            return;
        }
        Mark storage mark = marks[jobId][round + 1];
        (uint16 present, uint16 slices) = (mark.present, mark.slices);
        if (c.settledTasks < present) revert ITasks.EarlierUnsettled();
        if (c.settledTasks + 1 < present + slices) {
            counts[jobId].settledTasks = c.settledTasks + 1;
            return;
        }
        // A pipeline that was full starts again now, and with it the clock of the tasks that it held up.
        if (c.round - c.settledRounds >= maxUnsettled) c.roundStart = _now40();
        (c.settledRounds, c.settledTasks) = (round + 1, 0);
        _setCounts(jobId, c);
    }

    function running(bytes32 jobId)
        external
        view
        returns (bool, uint32 round, uint64 dueSince, bool disputed)
    {
        (Counts memory c, Worth memory w, Terms memory t) =
            (_countsOf(jobId), _worthsOf(jobId), TermsStore.load(address(this), jobId));
        bool begun = c.flags & CLOSED == 0 && c.round <= c.lastRound;
        bool room = c.round - c.settledRounds < t.maxUnsettled;
        disputed = c.disputes > 0 && block.timestamp <= _graceEnd(c, t.moveTime);
        return (begun && room && !_closable(c, t), c.round, _dueSince(c, w, t.moveTime), disputed);
    }

    function postedAt(bytes32 jobId) external view returns (uint64) {
        return times[jobId].posted;
    }

    function progress(bytes32 jobId) external view returns (Progress memory) {
        _requireJob(jobId);
        Counts memory c = _countsOf(jobId);
        uint64 due = _dueSince(c, _worthsOf(jobId), TermsStore.load(address(this), jobId).moveTime);
        (bool halted, bool closed) = (c.flags & HALTED != 0, c.flags & CLOSED != 0);
        return
            Progress(c.round, c.settledRounds, c.rewinds, halted, closed, c.roundStart, due, c.lastRound + 1);
    }

    function terms(bytes32 jobId) external view returns (Terms memory t) {
        t = _existing(jobId);
        (t.loops, t.outerLoops) = (_loops(jobId, Kind.TASK), _loops(jobId, Kind.OUTER));
        t.links = TermsStore.links(address(this), jobId, Kind.TASK);
        t.outerLinks = TermsStore.links(address(this), jobId, Kind.OUTER);
    }

    function worstCase(Terms calldata t) public pure returns (uint256) {
        uint256 task = uint256(t.priceCap) + uint256(t.verifiers) * t.verifierFee;
        return uint256(t.rounds) * (uint256(t.shards) * task + uint256(t.slices) * t.outerFee);
    }

    function jobIdOf(Terms calldata t) public view returns (bytes32) {
        return keccak256(abi.encode(block.chainid, address(this), t));
    }

    function _loops(bytes32 jobId, Kind kind) private view returns (Loop[] memory) {
        return TermsStore.loops(address(this), jobId, kind);
    }

    /// @dev A job's terms without their arrays.
    function _existing(bytes32 jobId) private view returns (Terms memory) {
        _requireJob(jobId);
        return TermsStore.load(address(this), jobId);
    }

    function _requireJob(bytes32 jobId) private view {
        if (times[jobId].posted == 0) revert NoSuchJob(jobId);
    }

    function _requireRound(uint32 present, uint32 last, uint8 flags, bytes32 jobId, uint32 round)
        private
        pure
    {
        if (flags & CLOSED != 0 || present > last) revert JobEnded(jobId);
        if (round != present) revert ITasks.WrongRound(present, round);
    }

    /// @dev One more slice of the present round. The first fixes of which tasks they all are, and whoever is late is left out
    /// from then on; the last closes the round, for which this is true.
    function _sliceCommitted(bytes32 jobId, Counts memory c, Terms memory t) private returns (bool) {
        Worth memory w = _worthsOf(jobId);
        Mark memory mark;
        bool first = w.slices == 0;
        if (first) {
            (mark.present, mark.fixedAt, mark.slices) = (c.accepted, c.rewinds, _few(t.slices));
            w.pending = 0;
        } else {
            mark = marks[jobId][c.round + 1];
        }
        uint96 fee = _small(t.outerFee);
        bool last = ++w.slices == t.slices;
        if (last) {
            (mark.worth, mark.rewinds) = (w.accepted - (w.slices - 1) * fee, c.rewinds);
            w.slices = 0;
        } else if (first) {
            (c.standing, c.flags, c.acceptedAfter) = (c.accepted, c.flags | FIXED, _afterStart(c));
            _setCounts(jobId, c);
        }
        if (first || last) marks[jobId][c.round + 1] = mark;
        w.accepted += fee;
        _setWorths(jobId, w);
        return last;
    }

    /// @dev Reserved for outerTime from when the round became closable, or from its first slice on: copying the claim from the mempool pays only after
    /// its owner has failed.
    function _requireClosable(Counts memory c, Terms memory t, bool inTurn) private view {
        bool whole = c.accepted == t.shards || c.flags & FIXED != 0;
        uint64 end = _waitsUntil(c, t);
        if (!_closable(c, t)) {
            if (c.accepted < t.minShards) revert ITasks.RoundIncomplete(c.accepted, t.minShards);
            revert ITasks.NotDue(end + 1);
        }
        uint64 until = (whole ? uint64(c.roundStart) + c.acceptedAfter : end) + t.outerTime;
        if (!inTurn && block.timestamp <= until) revert ITasks.OuterReserved(until);
    }

    function _lastDeadline(bytes32 jobId, Terms memory t) private view returns (uint256) {
        uint64 start = _dueSince(_countsOf(jobId), _worthsOf(jobId), t.moveTime);
        uint64 taken = times[jobId].lastShardClaim;
        return uint256(start > taken ? start : taken) + t.taskTime;
    }

    /// @dev Since when the present round's tasks have been due: from its start; later while something that they build on is
    /// in dispute, and from when that was over, but not beyond the grace.
    function _dueSince(Counts memory c, Worth memory w, uint64 moveTime) private view returns (uint64) {
        uint256 since = c.disputes > 0 ? block.timestamp : w.quiet;
        if (since <= c.roundStart || c.flags & CLOSED != 0) return c.roundStart;
        uint256 end = _graceEnd(c, moveTime);
        // A time that fits 40 bits, or is before one that does.
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint64(since < end ? since : end);
    }

    function _graceEnd(Counts memory c, uint64 moveTime) private pure returns (uint256) {
        return c.roundStart + GRACE * moveTime;
    }

    function _few(uint256 slices) private pure returns (uint16) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint16(slices); // Classes.check bounds them
    }

    /// @dev From the round's start to now, in seconds, or half a year.
    function _afterStart(Counts memory c) private view returns (uint24) {
        uint256 after_ = block.timestamp - c.roundStart;
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint24(after_ < type(uint24).max ? after_ : type(uint24).max);
    }

    function _now() private view returns (uint64) {
        return block.timestamp.toUint64();
    }
}

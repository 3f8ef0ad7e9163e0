// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IGuardian} from "../interfaces/IGuardian.sol";
import {IJobs, ITasks, IVault} from "../interfaces/IMarket.sol";
import {Accused, Kind, Terms} from "../interfaces/Types.sol";
import {TermsRules} from "../libraries/TermsRules.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IJobs; docs/protocol.md, sections 3 to 5. Keeps each job's clockwork (which round, how much of it is in,
/// what a rewind has overtaken) in two slots that the Tasks contract turns.
contract Jobs is IJobs {
    using SafeCast for uint256;

    /// @dev One slot. `standing`, `accepted`: task claims of the present round; `settledTasks`: of round `settledRounds`,
    /// the only one whose tasks can settle. Rounds after `lastRound` do not begin. `acceptedAfter`: seconds from roundStart
    /// to the last acceptance.
    struct Counts {
        uint32 round;
        uint32 settledRounds;
        uint32 epoch;
        uint32 lastRound;
        uint16 standing;
        uint16 accepted;
        uint16 settledTasks;
        uint8 ended; // HALTED, CLOSED
        uint40 roundStart;
        uint32 acceptedAfter;
    }

    /// @dev One slot. Sums of the prices of the task claims that stand: accepted ones of all rounds, and those of the
    /// present round that are not accepted.
    struct Worth {
        uint128 accepted;
        uint128 pending;
    }

    struct Times {
        uint64 posted;
        uint64 lastShardClaim;
    }

    /// @dev How things stood when a round last began: what of it is left over after a rewind below it. `present`: shards
    /// that the round before was closed with; never 0 once the round has begun.
    struct Mark {
        uint128 worth;
        uint32 epoch;
        uint16 present;
    }

    /// @dev One slot. `convict`: the last 96 bits of the convicted account, which nobody finds another account to have.
    /// `left`: sum of the wasted prices not yet compensated, at most the job's worst case.
    struct Rewind {
        uint96 convict;
        uint32 round;
        uint32 from; // the round that it went back from
        uint96 left;
    }

    /// @dev Steps of one `compensate` through the rewinds after the claim's commit.
    uint256 private constant MAX_SCAN = 64;
    uint8 private constant HALTED = 1;
    uint8 private constant CLOSED = 2;

    IVault public immutable VAULT;
    address public immutable TASKS;
    IGuardian private immutable GUARDIAN;

    mapping(bytes32 jobId => Counts) private counts;
    mapping(bytes32 jobId => Worth) private worths;
    mapping(bytes32 jobId => Times) private times;
    mapping(bytes32 jobId => mapping(uint32 round => Mark)) private marks;
    mapping(bytes32 jobId => mapping(uint32 epoch => Rewind)) private rewinds;
    /// @dev Where a search that ran out of steps goes on.
    mapping(bytes32 claimId => uint32 epoch) private scanned;

    constructor(IVault vault, address tasks, IGuardian guardian) {
        VAULT = vault;
        TASKS = tasks;
        GUARDIAN = guardian;
    }

    modifier onlyTasks() {
        if (msg.sender != TASKS) revert NotModule(msg.sender);
        _;
    }

    function post(Terms calldata given, uint256 budget) external returns (bytes32 jobId) {
        GUARDIAN.requireOpen(IGuardian.Business.JOBS);
        if (msg.sender != given.client) revert NotClient(given.client);
        TermsRules.check(given);
        uint256 needed = worstCase(given);
        if (needed > type(uint96).max) revert BadTerms("priceCap"); // so that no rewind can waste more
        if (budget < needed) revert BudgetTooSmall(needed, budget);
        jobId = jobIdOf(given);
        if (times[jobId].posted != 0) revert JobExists(jobId);
        times[jobId].posted = _now();
        (counts[jobId].lastRound, counts[jobId].roundStart) = (given.rounds - 1, _now40());
        TermsStore.write(jobId, given);
        emit JobPosted(jobId, msg.sender, budget, given);
        emit RoundStarted(jobId, 0);
        VAULT.move(IVault.Bucket.FREE, _key(msg.sender), IVault.Bucket.ESCROW, jobId, budget);
    }

    function topUp(bytes32 jobId, uint256 amount) external {
        _requireJob(jobId);
        if (counts[jobId].ended & CLOSED != 0) revert JobEnded(jobId);
        emit JobFunded(jobId, amount);
        VAULT.move(IVault.Bucket.FREE, _key(msg.sender), IVault.Bucket.ESCROW, jobId, amount);
    }

    function halt(bytes32 jobId) external {
        address client = terms(jobId).client;
        if (msg.sender != client) revert NotClient(client);
        Counts storage c = counts[jobId];
        if (c.ended != 0 || c.round > c.lastRound) revert JobEnded(jobId);
        c.ended = HALTED;
        c.lastRound = c.round;
        emit JobHalted(jobId, c.round);
    }

    function close(bytes32 jobId) external {
        Terms memory t = terms(jobId);
        Counts storage c = counts[jobId];
        if (c.ended & CLOSED != 0) revert JobEnded(jobId);
        if (c.settledRounds != c.round || c.settledTasks != c.standing) revert NotFinished(jobId);
        if (c.round <= c.lastRound) {
            // The present round is unfinished: only a halted job ends here, once nobody can still commit to it.
            if (c.ended != HALTED || block.timestamp <= _lastDeadline(c, times[jobId], t.taskTime)) {
                revert NotFinished(jobId);
            }
        }
        c.ended |= CLOSED;
        uint256 rest = VAULT.balance(IVault.Bucket.ESCROW, jobId);
        emit JobClosed(jobId, rest);
        VAULT.move(IVault.Bucket.ESCROW, jobId, IVault.Bucket.FREE, _key(t.client), rest);
    }

    function shardClaimed(bytes32 jobId) external onlyTasks {
        GUARDIAN.requireOpen(IGuardian.Business.SHARDS);
        Counts storage c = counts[jobId];
        if (c.ended != 0 || c.round > c.lastRound) revert JobEnded(jobId);
        times[jobId].lastShardClaim = _now();
    }

    function taskCommitted(bytes32 jobId, uint32 round, uint128 price, uint32 maxUnsettled)
        external
        onlyTasks
        returns (uint32 epoch, uint64 roundStart)
    {
        Counts memory c = counts[jobId];
        _requireRound(c, jobId, round);
        unchecked {
            // No round is settled before it is over, and every shard has one standing task at most.
            if (c.round - c.settledRounds >= maxUnsettled) {
                revert ITasks.PipelineFull(c.round, c.settledRounds);
            }
            counts[jobId].standing = c.standing + 1;
        }
        worths[jobId].pending += price;
        return (c.epoch, c.roundStart);
    }

    function outerCommitted(bytes32 jobId, uint32 round, bool inTurn)
        external
        onlyTasks
        returns (uint32 epoch)
    {
        Counts memory c = counts[jobId];
        _requireRound(c, jobId, round);
        Terms memory t = _read(jobId);
        _requireClosable(c, t, inTurn);
        epoch = c.epoch;
        marks[jobId][round + 1] = Mark(worths[jobId].accepted, epoch, c.accepted);
        if (c.accepted < t.shards) {
            worths[jobId].pending = 0;
            emit ShardsMissing(jobId, round, t.shards - c.accepted);
        }
        (c.round, c.standing, c.accepted) = (round + 1, 0, 0);
        (c.roundStart, c.acceptedAfter) = (_now40(), 0);
        counts[jobId] = c;
        if (round < c.lastRound) emit RoundStarted(jobId, round + 1);
    }

    function taskAccepted(bytes32 jobId, uint32 round, uint32 epoch, uint128 price) external onlyTasks {
        Counts memory c = counts[jobId];
        if (_overtaken(c, jobId, Kind.TASK, round, epoch, true)) revert ITasks.NotStanding();
        Terms memory t = _read(jobId);
        if (_closable(c, t)) revert ITasks.TooLate(_stragglersEnd(c, t));
        ++c.accepted;
        c.acceptedAfter = (block.timestamp - c.roundStart).toUint32();
        counts[jobId] = c;
        Worth memory w = worths[jobId];
        worths[jobId] = Worth(w.accepted + price, w.pending - price);
    }

    function claimSettled(bytes32 jobId, Kind kind, uint32 round, uint32 epoch, uint32 maxUnsettled)
        external
        onlyTasks
    {
        Counts memory c = counts[jobId];
        if (_overtaken(c, jobId, kind, round, epoch, false)) revert ITasks.NotStanding();
        if (round != c.settledRounds) revert ITasks.EarlierUnsettled();
        if (kind == Kind.TASK) {
            counts[jobId].settledTasks = c.settledTasks + 1;
            return;
        }
        if (c.settledTasks != marks[jobId][round + 1].present) revert ITasks.EarlierUnsettled();
        // A pipeline that was full starts again now, and with it the clock of the tasks that it held up.
        if (c.round - c.settledRounds >= maxUnsettled) c.roundStart = _now40();
        (c.settledRounds, c.settledTasks) = (round + 1, 0);
        counts[jobId] = c;
    }

    function rewind(Accused calldata accused, bool wasAccepted, uint256 pool)
        external
        onlyTasks
        returns (uint256 compensation)
    {
        Counts memory c = counts[accused.jobId];
        uint32 round = accused.round;
        bool isTask = accused.kind == Kind.TASK;
        if (isTask && !wasAccepted && _leftOut(c, accused.jobId, round, accused.epoch)) return 0;
        Worth memory w = worths[accused.jobId];
        uint32 from = c.round;
        uint256 wasted;
        if (from > round) {
            Mark memory mark = marks[accused.jobId][round + 1];
            wasted = uint256(w.accepted - mark.worth) + w.pending;
            w = Worth(mark.worth, 0);
            (c.standing, c.accepted) = (mark.present, mark.present);
            if (c.ended & HALTED != 0 && c.lastRound > round) c.lastRound = round;
        }
        if (isTask) {
            --c.standing;
            if (wasAccepted) (w.accepted, c.accepted) = (w.accepted - accused.price, c.accepted - 1);
            else w.pending -= accused.price;
        }
        c.round = round;
        (c.roundStart, c.acceptedAfter) = (_now40(), 0);
        compensation = pool / 2 < wasted ? pool / 2 : wasted;
        emit Rewound(accused.jobId, ++c.epoch, round, compensation);
        (counts[accused.jobId], worths[accused.jobId]) = (c, w);
        _recordRewind(accused, c.epoch, from, wasted, compensation);
    }

    function compensate(bytes32 claimId, Accused calldata claim, bool pending)
        external
        onlyTasks
        returns (bool found, uint256 paid)
    {
        uint32 epoch;
        (found, epoch) = _overtaker(claimId, claim, pending);
        if (epoch != 0 && claim.kind == Kind.TASK) paid = _compensate(claim, epoch);
    }

    function overtaken(bytes32 jobId, Kind kind, uint32 round, uint32 epoch, bool pending)
        external
        view
        returns (bool)
    {
        return _overtaken(counts[jobId], jobId, kind, round, epoch, pending);
    }

    function running(bytes32 jobId) external view returns (bool, uint32 round, uint64 roundStart) {
        Counts memory c = counts[jobId];
        Terms memory t = _read(jobId);
        bool begun = c.ended & CLOSED == 0 && c.round <= c.lastRound;
        bool room = c.round - c.settledRounds < t.maxUnsettled;
        return (begun && room && !_closable(c, t), c.round, c.roundStart);
    }

    function postedAt(bytes32 jobId) external view returns (uint64) {
        return times[jobId].posted;
    }

    function progress(bytes32 jobId) external view returns (Progress memory) {
        _requireJob(jobId);
        Counts memory c = counts[jobId];
        (bool halted, bool closed) = (c.ended & HALTED != 0, c.ended & CLOSED != 0);
        return Progress(c.round, c.settledRounds, c.epoch, halted, closed, c.roundStart, c.lastRound + 1);
    }

    function terms(bytes32 jobId) public view returns (Terms memory t) {
        _requireJob(jobId);
        return _read(jobId);
    }

    function worstCase(Terms calldata t) public pure returns (uint256) {
        uint256 task = uint256(t.priceCap) + uint256(t.verifiers) * t.verifierFee;
        return uint256(t.rounds) * (uint256(t.shards) * task + t.outerFee);
    }

    function jobIdOf(Terms calldata t) public view returns (bytes32) {
        return keccak256(abi.encode(block.chainid, address(this), t));
    }

    /// @dev Of a job that exists.
    function _read(bytes32 jobId) private view returns (Terms memory t) {
        uint256 found = TermsStore.read(address(this), jobId);
        assembly ("memory-safe") {
            t := found
        }
    }

    function _requireJob(bytes32 jobId) private view {
        if (times[jobId].posted == 0) revert NoSuchJob(jobId);
    }

    function _requireRound(Counts memory c, bytes32 jobId, uint32 round) private pure {
        if (c.ended & CLOSED != 0 || c.round > c.lastRound) revert JobEnded(jobId);
        if (round != c.round) revert ITasks.WrongRound(c.round, round);
    }

    /// @dev Whether the round wants nothing but its outer claim: every task is accepted, or the stragglers' time is over and
    /// enough of them are. From then on no task is accepted, so that whoever computes the outer step knows of which tasks.
    function _closable(Counts memory c, Terms memory t) private view returns (bool) {
        if (c.accepted == t.shards) return true;
        return c.accepted >= t.minShards && block.timestamp > _stragglersEnd(c, t);
    }

    function _stragglersEnd(Counts memory c, Terms memory t) private pure returns (uint64) {
        return c.roundStart + t.taskTime + t.stragglerTime;
    }

    /// @dev Reserved for outerTime from when the round became closable: copying the claim from the mempool pays only after
    /// its owner has failed.
    function _requireClosable(Counts memory c, Terms memory t, bool inTurn) private view {
        bool whole = c.accepted == t.shards;
        uint64 end = _stragglersEnd(c, t);
        if (!_closable(c, t)) {
            if (c.accepted < t.minShards) revert ITasks.RoundIncomplete(c.accepted, t.minShards);
            revert ITasks.NotDue(end + 1);
        }
        uint64 since = uint64(c.roundStart) + c.acceptedAfter;
        uint64 until = (whole || since > end ? since : end) + t.outerTime;
        if (!inTurn && block.timestamp <= until) revert ITasks.OuterReserved(until);
    }

    /// @dev Whether the round was closed after the epoch's claims were committed to it: without those not accepted by then.
    function _leftOut(Counts memory c, bytes32 jobId, uint32 round, uint32 epoch)
        private
        view
        returns (bool)
    {
        if (c.round > round) return true;
        if (c.epoch == epoch) return false;
        Mark memory mark = marks[jobId][round + 1];
        return mark.present != 0 && mark.epoch >= epoch;
    }

    /// @dev A claim's place exists from when round `from` begins: a task's own round, the round after an outer claim. It
    /// is overtaken if the job went back below that round after the claim's epoch, whether or not it began again since.
    function _overtaken(Counts memory c, bytes32 jobId, Kind kind, uint32 round, uint32 epoch, bool pending)
        private
        view
        returns (bool)
    {
        if (pending && _leftOut(c, jobId, round, epoch)) return true;
        if (epoch == c.epoch) return false;
        uint32 from = kind == Kind.TASK ? round : round + 1;
        return c.round < from || marks[jobId][from].epoch > epoch;
    }

    function _recordRewind(
        Accused calldata accused,
        uint32 epoch,
        uint32 from,
        uint256 wasted,
        uint256 compensation
    ) private {
        rewinds[accused.jobId][epoch] =
            Rewind(_short(accused.claimant), accused.round, from, wasted.toUint96());
        if (wasted == 0) return;
        VAULT.move(
            IVault.Bucket.FREE,
            _key(msg.sender),
            IVault.Bucket.COMPENSATION,
            _rewindKey(accused.jobId, epoch),
            compensation
        );
    }

    /// @dev The rewind that overtook the claim: the first after its commit to a round before its place existed. 0 if its
    /// round was closed without it before any did. Not found if neither was reached in MAX_SCAN steps; then the next call
    /// goes on. The caller knows that there is one.
    function _overtaker(bytes32 claimId, Accused calldata claim, bool pending)
        private
        returns (bool found, uint32 epoch)
    {
        uint32 place = claim.kind == Kind.TASK ? claim.round : claim.round + 1;
        uint32 last = counts[claim.jobId].epoch;
        uint32 done = scanned[claimId];
        epoch = (done > claim.epoch ? done : claim.epoch) + 1;
        for (uint256 i; i < MAX_SCAN; ++i) {
            Rewind storage entry = rewinds[claim.jobId][epoch];
            if (pending && (epoch > last || entry.from > claim.round)) return (true, 0);
            if (entry.round < place) return (true, epoch);
            ++epoch;
        }
        scanned[claimId] = epoch - 1;
        return (false, 0);
    }

    /// @dev Of what is still there, by price. The convict's own share is burnt.
    function _compensate(Accused calldata claim, uint32 epoch) private returns (uint256 share) {
        Rewind storage entry = rewinds[claim.jobId][epoch];
        bytes32 key = _rewindKey(claim.jobId, epoch);
        uint96 left = entry.left;
        if (left == 0) return 0;
        entry.left = (uint256(left) - claim.price).toUint96();
        share = VAULT.balance(IVault.Bucket.COMPENSATION, key) * claim.price / left;
        if (_short(claim.claimant) == entry.convict) {
            VAULT.burn(IVault.Bucket.COMPENSATION, key, share);
            return 0;
        }
        VAULT.move(IVault.Bucket.COMPENSATION, key, IVault.Bucket.FREE, _key(claim.claimant), share);
    }

    function _short(address account) private pure returns (uint96) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint96(uint160(account)); // the last 96 bits are meant
    }

    function _rewindKey(bytes32 jobId, uint32 epoch) private pure returns (bytes32) {
        return keccak256(abi.encode(jobId, epoch));
    }

    function _lastDeadline(Counts storage c, Times storage seen, uint64 taskTime)
        private
        view
        returns (uint256)
    {
        uint64 start = c.roundStart > seen.lastShardClaim ? c.roundStart : seen.lastShardClaim;
        return uint256(start) + taskTime;
    }

    function _now40() private view returns (uint40) {
        return block.timestamp.toUint40();
    }

    function _now() private view returns (uint64) {
        return block.timestamp.toUint64();
    }

    function _key(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}

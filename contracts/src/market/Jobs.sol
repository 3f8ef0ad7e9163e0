// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IGuardian} from "../interfaces/IGuardian.sol";
import {IJobs, ITasks, IVault} from "../interfaces/IMarket.sol";
import {Accused, Kind, ProgramRef, Terms} from "../interfaces/Types.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @notice See IJobs; docs/protocol.md, sections 3 to 5. Keeps each job's clockwork (which round, how much of it is in,
/// what a rewind has overtaken) in two slots that the Tasks contract turns.
contract Jobs is IJobs {
    using SafeCast for uint256;

    /// @dev First slot: counts. `standing`, `accepted`: task claims of the present round; `settledTasks`: of round
    /// `settledRounds`, the only one whose tasks can settle. Rounds after `lastRound` do not begin.
    struct Counts {
        uint32 round;
        uint32 settledRounds;
        uint32 epoch;
        uint32 lastRound;
        uint32 standing;
        uint32 accepted;
        uint32 settledTasks;
        bool halted;
        bool closed;
    }

    /// @dev Second slot. `worth`: sum of the prices of all task claims of this job that stand.
    struct Clock {
        uint128 worth;
        uint64 roundStart;
        uint64 lastShardClaim;
    }

    /// @dev How things stood when a round last began: what of it is left over after a rewind below it.
    struct Mark {
        uint128 worth;
        uint32 epoch;
    }

    /// @dev Three slots. `total`: sum of the wasted prices; `left`: of those not yet compensated.
    struct Rewind {
        address convict;
        uint32 round;
        uint128 compensation;
        uint128 total;
        uint128 left;
    }

    /// @dev Steps of one `compensate` through the rewinds after the claim's commit.
    uint256 private constant MAX_SCAN = 64;
    uint256 private constant MAX_SEGMENT_STEPS = 64;
    uint256 private constant MAX_VERIFIERS = 16;
    uint256 private constant MAX_NODES = 65_536;
    uint256 private constant MAX_SLOTS = 4096;
    /// @dev So that no sum of times leaves 64 bits and no deadline is out of reach.
    uint256 private constant MAX_TIME = type(uint32).max;

    IVault public immutable VAULT;
    address public immutable TASKS;
    IGuardian private immutable GUARDIAN;

    mapping(bytes32 jobId => Counts) private counts;
    mapping(bytes32 jobId => Clock) private clocks;
    mapping(bytes32 jobId => uint64) public postedAt;
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
        _validate(given);
        _validateTimes(given);
        uint256 needed = worstCase(given);
        if (budget < needed) revert BudgetTooSmall(needed, budget);
        jobId = jobIdOf(given);
        if (postedAt[jobId] != 0) revert JobExists(jobId);
        postedAt[jobId] = _now();
        counts[jobId].lastRound = given.rounds - 1;
        clocks[jobId].roundStart = _now();
        TermsStore.write(jobId, given);
        emit JobPosted(jobId, msg.sender, budget, given);
        emit RoundStarted(jobId, 0);
        VAULT.move(IVault.Bucket.FREE, _key(msg.sender), IVault.Bucket.ESCROW, jobId, budget);
    }

    function topUp(bytes32 jobId, uint256 amount) external {
        _requireJob(jobId);
        if (counts[jobId].closed) revert JobEnded(jobId);
        emit JobFunded(jobId, amount);
        VAULT.move(IVault.Bucket.FREE, _key(msg.sender), IVault.Bucket.ESCROW, jobId, amount);
    }

    function halt(bytes32 jobId) external {
        address client = terms(jobId).client;
        if (msg.sender != client) revert NotClient(client);
        Counts storage c = counts[jobId];
        if (c.halted || c.round > c.lastRound) revert JobEnded(jobId);
        c.halted = true;
        c.lastRound = c.round;
        emit JobHalted(jobId, c.round);
    }

    function close(bytes32 jobId) external {
        Terms memory t = terms(jobId);
        Counts storage c = counts[jobId];
        if (c.closed) revert JobEnded(jobId);
        if (c.settledRounds != c.round || c.settledTasks != c.standing) revert NotFinished(jobId);
        if (c.round <= c.lastRound) {
            // The present round is unfinished: only a halted job ends here, once nobody can still commit to it.
            if (!c.halted || block.timestamp <= _lastDeadline(clocks[jobId], t.taskTime)) {
                revert NotFinished(jobId);
            }
        }
        c.closed = true;
        uint256 rest = VAULT.balance(IVault.Bucket.ESCROW, jobId);
        emit JobClosed(jobId, rest);
        VAULT.move(IVault.Bucket.ESCROW, jobId, IVault.Bucket.FREE, _key(t.client), rest);
    }

    function shardClaimed(bytes32 jobId) external onlyTasks {
        GUARDIAN.requireOpen(IGuardian.Business.SHARDS);
        Counts storage c = counts[jobId];
        if (c.halted || c.closed || c.round > c.lastRound) revert JobEnded(jobId);
        clocks[jobId].lastShardClaim = _now();
    }

    function taskCommitted(bytes32 jobId, uint32 round, uint128 price, uint32 maxUnsettled)
        external
        onlyTasks
        returns (uint32 epoch, uint64 roundStart)
    {
        Counts memory c = counts[jobId];
        if (c.closed || c.round > c.lastRound) revert JobEnded(jobId);
        if (round != c.round) revert ITasks.WrongRound(c.round, round);
        if (c.round - c.settledRounds >= maxUnsettled) revert ITasks.PipelineFull(c.round, c.settledRounds);
        counts[jobId].standing = c.standing + 1;
        Clock memory clock = clocks[jobId];
        clocks[jobId].worth = clock.worth + price;
        return (c.epoch, clock.roundStart);
    }

    function outerCommitted(bytes32 jobId, uint32 round, uint32 shards)
        external
        onlyTasks
        returns (uint32 epoch)
    {
        Counts storage c = counts[jobId];
        if (c.closed || c.round > c.lastRound) revert JobEnded(jobId);
        if (round != c.round) revert ITasks.WrongRound(c.round, round);
        if (c.accepted != shards) revert ITasks.RoundIncomplete(c.accepted, shards);
        epoch = c.epoch;
        c.round = round + 1;
        c.standing = 0;
        c.accepted = 0;
        Clock storage clock = clocks[jobId];
        clock.roundStart = _now();
        marks[jobId][round + 1] = Mark(clock.worth, epoch);
        if (round < c.lastRound) emit RoundStarted(jobId, round + 1);
    }

    function taskAccepted(bytes32 jobId, uint32 round, uint32 epoch) external onlyTasks {
        Counts storage c = counts[jobId];
        _requireStanding(c, jobId, Kind.TASK, round, epoch);
        ++c.accepted;
    }

    function claimSettled(
        bytes32 jobId,
        Kind kind,
        uint32 round,
        uint32 epoch,
        uint32 shards,
        uint32 maxUnsettled
    ) external onlyTasks {
        Counts storage c = counts[jobId];
        _requireStanding(c, jobId, kind, round, epoch);
        if (round != c.settledRounds) revert ITasks.EarlierUnsettled();
        if (kind == Kind.TASK) {
            ++c.settledTasks;
            return;
        }
        if (c.settledTasks != shards) revert ITasks.EarlierUnsettled();
        // A pipeline that was full starts again now, and with it the clock of the tasks that it held up.
        if (c.round - c.settledRounds >= maxUnsettled) clocks[jobId].roundStart = _now();
        c.settledRounds = round + 1;
        c.settledTasks = 0;
    }

    function rewind(Accused calldata accused, bool wasAccepted, uint32 shards, uint256 pool)
        external
        onlyTasks
        returns (uint256 compensation)
    {
        uint256 wasted;
        Counts storage c = counts[accused.jobId];
        Clock storage clock = clocks[accused.jobId];
        uint32 round = accused.round;
        if (c.round > round) {
            uint128 kept = marks[accused.jobId][round + 1].worth;
            wasted = clock.worth - kept;
            clock.worth = kept;
            c.standing = shards;
            c.accepted = shards;
            c.round = round;
            if (c.halted && c.lastRound > round) c.lastRound = round;
        }
        if (accused.kind == Kind.TASK) {
            clock.worth -= accused.price;
            --c.standing;
            if (wasAccepted) --c.accepted;
        }
        clock.roundStart = _now();
        compensation = pool / 2 < wasted ? pool / 2 : wasted;
        emit Rewound(accused.jobId, ++c.epoch, round, compensation);
        _recordRewind(accused, c.epoch, wasted, compensation);
    }

    function compensate(bytes32 claimId, Accused calldata claim)
        external
        onlyTasks
        returns (bool found, uint256 paid)
    {
        uint32 epoch = _overtaker(claimId, claim);
        if (epoch == 0) return (false, 0);
        return (true, claim.kind == Kind.TASK ? _compensate(claim, epoch) : 0);
    }

    function overtaken(bytes32 jobId, Kind kind, uint32 round, uint32 epoch) external view returns (bool) {
        return _overtaken(counts[jobId], jobId, kind, round, epoch);
    }

    function running(bytes32 jobId, uint32 maxUnsettled)
        external
        view
        returns (bool, uint32 round, uint64 roundStart)
    {
        Counts storage c = counts[jobId];
        bool begun = !c.closed && c.round <= c.lastRound;
        return (begun && c.round - c.settledRounds < maxUnsettled, c.round, clocks[jobId].roundStart);
    }

    function progress(bytes32 jobId) external view returns (Progress memory) {
        _requireJob(jobId);
        Counts storage c = counts[jobId];
        return Progress(
            c.round, c.settledRounds, c.epoch, c.halted, c.closed, clocks[jobId].roundStart, c.lastRound + 1
        );
    }

    function terms(bytes32 jobId) public view returns (Terms memory t) {
        _requireJob(jobId);
        uint256 found = TermsStore.read(address(this), jobId);
        assembly ("memory-safe") {
            t := found
        }
    }

    function worstCase(Terms calldata t) public pure returns (uint256) {
        uint256 task = uint256(t.priceCap) + uint256(t.verifiers) * t.verifierFee;
        return uint256(t.rounds) * (uint256(t.shards) * task + t.outerFee);
    }

    function jobIdOf(Terms calldata t) public view returns (bytes32) {
        return keccak256(abi.encode(block.chainid, address(this), t));
    }

    function _validate(Terms calldata t) private pure {
        _validateProgram(t.inner, "inner");
        _validateProgram(t.outer, "outer");
        if (t.manifest == 0) revert BadTerms("manifest");
        if (t.shards == 0) revert BadTerms("shards");
        if (t.outer.slots != (2 + uint256(t.shards)) * t.inner.params) revert BadTerms("outer.slots");
        if (t.rounds == 0) revert BadTerms("rounds");
        if (t.stepsPerRound == 0) revert BadTerms("stepsPerRound");
        if (
            t.segmentSteps == 0 || t.segmentSteps > MAX_SEGMENT_STEPS || t.stepsPerRound % t.segmentSteps != 0
        ) {
            revert BadTerms("segmentSteps");
        }
        if (t.samples == 0 || t.samples > t.stepsPerRound / t.segmentSteps) revert BadTerms("samples");
        if (t.verifiers == 0 || t.verifiers > MAX_VERIFIERS) revert BadTerms("verifiers");
        if (t.quorum == 0 || t.quorum > t.verifiers) revert BadTerms("quorum");
        if (t.maxUnsettled == 0) revert BadTerms("maxUnsettled");
        if (t.priceFloor > t.priceCap) revert BadTerms("priceFloor");
    }

    function _validateProgram(ProgramRef calldata program, string memory field) private pure {
        if (program.nodes == 0 || program.nodes > MAX_NODES) revert BadTerms(field);
        if (program.slots > MAX_SLOTS || program.slots < program.params || program.params == 0) {
            revert BadTerms(field);
        }
    }

    function _validateTimes(Terms calldata t) private pure {
        if (t.seedDelay == 0) revert BadTerms("seedDelay");
        if (t.taskTime == 0 || t.taskTime > MAX_TIME) revert BadTerms("taskTime");
        if (t.voteTime == 0 || t.voteTime > MAX_TIME) revert BadTerms("voteTime");
        if (t.revealTime == 0 || t.revealTime > MAX_TIME) revert BadTerms("revealTime");
        if (t.challengeWindow == 0 || t.challengeWindow > MAX_TIME) revert BadTerms("challengeWindow");
        if (t.moveTime == 0 || t.moveTime > MAX_TIME) revert BadTerms("moveTime");
        if (t.pricePeriod == 0 || t.pricePeriod > MAX_TIME) revert BadTerms("pricePeriod");
    }

    function _requireJob(bytes32 jobId) private view {
        if (postedAt[jobId] == 0) revert NoSuchJob(jobId);
    }

    function _requireStanding(Counts storage c, bytes32 jobId, Kind kind, uint32 round, uint32 epoch)
        private
        view
    {
        if (_overtaken(c, jobId, kind, round, epoch)) revert ITasks.NotStanding();
    }

    /// @dev A claim's place exists from when round `from` begins: a task's own round, the round after an outer claim. It
    /// is overtaken if the job went back below that round after the claim's epoch, whether or not it began again since.
    function _overtaken(Counts storage c, bytes32 jobId, Kind kind, uint32 round, uint32 epoch)
        private
        view
        returns (bool)
    {
        if (epoch == c.epoch) return false;
        uint32 from = kind == Kind.TASK ? round : round + 1;
        return c.round < from || marks[jobId][from].epoch > epoch;
    }

    function _recordRewind(Accused calldata accused, uint32 epoch, uint256 wasted, uint256 compensation)
        private
    {
        Rewind storage entry = rewinds[accused.jobId][epoch];
        entry.convict = accused.claimant;
        entry.round = accused.round;
        if (wasted == 0) return;
        entry.compensation = compensation.toUint128();
        entry.total = wasted.toUint128();
        entry.left = wasted.toUint128();
        VAULT.move(
            IVault.Bucket.FREE,
            _key(msg.sender),
            IVault.Bucket.COMPENSATION,
            _rewindKey(accused.jobId, epoch),
            compensation
        );
    }

    /// @dev The rewind that overtook the claim: the first after its commit to a round before its place existed. 0 if it
    /// was not reached in MAX_SCAN steps; then the next call goes on. The caller knows that there is one.
    function _overtaker(bytes32 claimId, Accused calldata claim) private returns (uint32 epoch) {
        uint32 from = claim.kind == Kind.TASK ? claim.round : claim.round + 1;
        uint32 done = scanned[claimId];
        epoch = (done > claim.epoch ? done : claim.epoch) + 1;
        for (uint256 i; i < MAX_SCAN; ++i) {
            if (rewinds[claim.jobId][epoch].round < from) return epoch;
            ++epoch;
        }
        scanned[claimId] = epoch - 1;
        return 0;
    }

    /// @dev The convict's own share is burnt. The last to be voided takes what rounding has left.
    function _compensate(Accused calldata claim, uint32 epoch) private returns (uint256 share) {
        Rewind storage entry = rewinds[claim.jobId][epoch];
        bytes32 key = _rewindKey(claim.jobId, epoch);
        if (entry.total == 0) return 0;
        uint128 left = entry.left - claim.price;
        entry.left = left;
        share = left == 0
            ? VAULT.balance(IVault.Bucket.COMPENSATION, key)
            : uint256(entry.compensation) * claim.price / entry.total;
        if (claim.claimant == entry.convict) {
            VAULT.burn(IVault.Bucket.COMPENSATION, key, share);
            return 0;
        }
        VAULT.move(IVault.Bucket.COMPENSATION, key, IVault.Bucket.FREE, _key(claim.claimant), share);
    }

    function _rewindKey(bytes32 jobId, uint32 epoch) private pure returns (bytes32) {
        return keccak256(abi.encode(jobId, epoch));
    }

    function _lastDeadline(Clock storage clock, uint64 taskTime) private view returns (uint256) {
        uint64 start = clock.roundStart > clock.lastShardClaim ? clock.roundStart : clock.lastShardClaim;
        return uint256(start) + taskTime;
    }

    function _now() private view returns (uint64) {
        return block.timestamp.toUint64();
    }

    function _key(address account) private pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }
}

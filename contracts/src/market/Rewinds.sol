// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJobs} from "../interfaces/IJobs.sol";
import {IVault} from "../interfaces/IVault.sol";
import {Accused, Kind, Terms} from "../interfaces/Types.sol";
import {TermsStore} from "../libraries/TermsStore.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";

/// @title A job's progress, and how it goes back (docs/protocol.md, section 5)
/// @dev What a rewind has overtaken follows from how many there were: no claim is touched when its job goes back.
abstract contract Rewinds is IJobs {
    using SafeCast for uint256;

    /// @dev One slot. `standing`, `accepted`: task claims of the present round; `settledTasks`: of round `settledRounds`,
    /// the only one whose tasks can settle, and once they all have, its slices with them. Rounds after `lastRound` do not
    /// begin. `acceptedAfter`: seconds from roundStart to the last acceptance, or the first slice. `disputes`: games and
    /// demands that are open on claims of the job.
    struct Counts {
        uint32 round;
        uint32 settledRounds;
        uint24 rewinds;
        uint32 lastRound;
        uint16 standing;
        uint16 accepted;
        uint16 settledTasks;
        uint8 flags; // HALTED, CLOSED, FIXED
        uint40 roundStart;
        uint24 acceptedAfter;
        uint16 disputes;
    }

    /// @dev One slot. What the claims that stand are worth, their votes' fees included: accepted ones of all rounds, and tasks
    /// of the present round that are not accepted; each less than the job's worst case. `quiet`: when the last dispute ended
    /// that did not send the job back. `slices`: outer claims of the present round, of which the last one closes it.
    struct Worth {
        uint96 accepted;
        uint96 pending;
        uint40 quiet;
        uint16 slices;
    }

    struct Times {
        uint64 posted;
        uint64 lastShardClaim;
    }

    /// @dev One slot. How things stood when a round last began: what of it is left over after a rewind below it. Of the round
    /// before: `present`: its shards; never 0 once it has an outer claim. `fixedAt`: rewinds when its first slice
    /// fixed them; `slices`: how many close it.
    struct Mark {
        uint96 worth;
        uint32 rewinds;
        uint16 present;
        uint32 fixedAt;
        uint16 slices;
    }

    /// @dev One slot. `convict`: the last 96 bits of the convicted account, which nobody finds another account to have.
    struct Rewind {
        uint96 convict;
        uint32 round;
        uint32 open; // the first round whose tasks were not fixed
        bool ofTask; // whether the convict's claim was a task, on which its round's outer claims build
        uint16 present; // of an outer claim: the tasks that its round had
    }

    /// @dev Steps of one `compensate` through the rewinds after the claim's commit.
    uint256 private constant MAX_SCAN = 64;
    uint8 internal constant HALTED = 1;
    uint8 internal constant CLOSED = 2;
    /// @dev The present round has a slice, and so no task more.
    uint8 internal constant FIXED = 4;

    IVault public immutable VAULT;
    address public immutable TASKS;

    mapping(bytes32 jobId => Counts) internal counts;
    mapping(bytes32 jobId => Worth) internal worths;
    mapping(bytes32 jobId => Times) internal times;
    mapping(bytes32 jobId => mapping(uint32 round => Mark)) internal marks;
    mapping(bytes32 jobId => mapping(uint32 number => Rewind)) private rewinds;
    /// @dev Where a search that ran out of steps goes on.
    mapping(bytes32 claimId => uint32 number) private scanned;

    constructor(IVault vault, address tasks) {
        VAULT = vault;
        TASKS = tasks;
    }

    modifier onlyTasks() {
        if (msg.sender != TASKS) revert NotModule(msg.sender);
        _;
    }

    function rewind(Accused calldata accused, uint256 worth, bool wasAccepted, bool inGame)
        external
        onlyTasks
        returns (uint256 wasted)
    {
        Counts memory c = _countsOf(accused.jobId);
        if (inGame) --c.disputes;
        uint32 round = accused.round;
        bool isTask = accused.kind == Kind.TASK;
        if (isTask && !wasAccepted && _leave(c, accused.jobId, round, accused.rewinds, worth)) {
            if (inGame) _closeDispute(accused.jobId);
            return 0;
        }
        Worth memory w = _worthsOf(accused.jobId);
        uint32 open = c.flags & FIXED == 0 ? c.round : c.round + 1;
        if (c.round > round) {
            Mark memory mark = marks[accused.jobId][round + 1];
            wasted = w.accepted - mark.worth + w.pending;
            (w.accepted, w.pending, w.slices) = (mark.worth, 0, 0);
            (c.standing, c.accepted) = (mark.present, mark.present);
            if (!isTask) {
                // Its round's other slices stand.
                w.slices = mark.slices - 1;
                uint256 others = w.slices * worth;
                wasted -= others + worth;
                w.accepted += _small(others);
            }
            if (c.flags & HALTED != 0 && c.lastRound > round) c.lastRound = round;
        } else if (!isTask) {
            --w.slices;
            w.accepted -= _small(worth);
        } else if (w.slices > 0) {
            wasted = w.slices * _outerFee(accused.jobId);
            (w.accepted, w.slices) = (w.accepted - _small(wasted), 0);
        }
        c.flags = w.slices > 0 ? c.flags | FIXED : c.flags & ~FIXED;
        if (isTask) {
            --c.standing;
            if (wasAccepted) (w.accepted, c.accepted) = (w.accepted - _small(worth), c.accepted - 1);
            else w.pending -= _small(worth);
        }
        c.round = round;
        (c.roundStart, c.acceptedAfter) = (_now40(), 0);
        emit Rewound(accused.jobId, ++c.rewinds, round, wasted);
        _setCounts(accused.jobId, c);
        _setWorths(accused.jobId, w);
        _recordRewind(accused, c.rewinds, open, wasted);
    }

    function compensate(
        bytes32 claimId,
        Accused calldata claim,
        bool pending,
        address[] calldata payees,
        uint256 fee,
        uint256 worth
    ) external onlyTasks returns (bool found, uint256 paid) {
        uint32 number;
        (found, number) = _overtaker(claimId, claim, pending);
        if (number != 0) paid = _compensate(claim, number, payees, fee, worth);
    }

    function disputeOpened(Kind kind, bytes32 jobId, uint32 round, uint32 rewindsThen)
        external
        onlyTasks
        returns (bool)
    {
        Counts memory c = _countsOf(jobId);
        ++c.disputes;
        _setCounts(jobId, c);
        return _overtaken(c, jobId, kind, round, rewindsThen, false);
    }

    function disputeClosed(bytes32 jobId) external onlyTasks {
        _closeDispute(jobId);
    }

    function _countsOf(bytes32 jobId) internal view returns (Counts memory) {
        return counts[jobId];
    }

    function _setCounts(bytes32 jobId, Counts memory c) internal {
        counts[jobId] = c;
    }

    function _worthsOf(bytes32 jobId) internal view returns (Worth memory) {
        return worths[jobId];
    }

    function _setWorths(bytes32 jobId, Worth memory w) internal {
        worths[jobId] = w;
    }

    function _closeDispute(bytes32 jobId) private {
        --counts[jobId].disputes;
        worths[jobId].quiet = _now40();
    }

    function overtaken(bytes32 jobId, Kind kind, uint32 round, uint32 rewindsThen, bool pending)
        external
        view
        returns (bool)
    {
        return _overtaken(_countsOf(jobId), jobId, kind, round, rewindsThen, pending);
    }

    /// @dev A task's: the round before has not been closed again. An outer claim's may be its round's tasks, too: its own rewind
    /// took none of them, but lets one that was missing come.
    function beginAlike(bytes32 jobId, Kind kind, uint32 round, uint32 fallen, uint32 settled)
        external
        view
        returns (bool)
    {
        if (kind == Kind.TASK) return marks[jobId][round].rewinds <= fallen;
        return settled == fallen + 1 && rewinds[jobId][settled].present == marks[jobId][round + 1].present;
    }

    function leaveOut(bytes32 jobId, uint32 round, uint32 rewindsThen, uint256 worth)
        external
        onlyTasks
        returns (bool)
    {
        return _leave(_countsOf(jobId), jobId, round, rewindsThen, worth);
    }

    /// @dev Whether the round goes on without a task of that time that is not accepted. It is no longer counted then.
    function _leave(Counts memory c, bytes32 jobId, uint32 round, uint32 rewindsThen, uint256 worth)
        private
        returns (bool)
    {
        if (_fixedWithout(c, jobId, round, rewindsThen)) return true;
        if (c.round != round || !_closable(c, TermsStore.load(address(this), jobId))) return false;
        --counts[jobId].standing;
        worths[jobId].pending -= _small(worth);
        return true;
    }

    /// @dev Whether the round accepts no task that was committed at that time: it can be closed, or was fixed since.
    function _leftOut(Counts memory c, bytes32 jobId, uint32 round, uint32 rewindsThen)
        internal
        view
        returns (bool)
    {
        return _fixedWithout(c, jobId, round, rewindsThen)
            || (c.round == round && _closable(c, TermsStore.load(address(this), jobId)));
    }

    /// @dev Whether the round wants nothing but outer claims: every task is accepted, or it waits for no more and enough of
    /// them are, or a slice is there. From then on no task is accepted, so that whoever computes the outer step knows of which
    /// tasks.
    function _closable(Counts memory c, Terms memory t) internal view returns (bool) {
        if (c.accepted == t.shards || c.flags & FIXED != 0) return true;
        return c.accepted >= t.minShards && block.timestamp > _waitsUntil(c, t);
    }

    /// @dev Until when the round waits for all of its tasks: to the end of the stragglers' time. One that was accepted later
    /// found too few, while others may be voted on: then for voteTime after the last.
    function _waitsUntil(Counts memory c, Terms memory t) internal pure returns (uint64) {
        uint64 end = c.roundStart + t.taskTime + t.stragglerTime;
        uint64 last = uint64(c.roundStart) + c.acceptedAfter;
        return last > end ? last + t.voteTime : end;
    }

    /// @dev Whether the round's tasks were fixed after the claims of that time were committed to it: without those not accepted
    /// by then.
    function _fixedWithout(Counts memory c, bytes32 jobId, uint32 round, uint32 rewindsThen)
        internal
        view
        returns (bool)
    {
        if (c.round > round) return true;
        if (c.round == round && c.flags & FIXED != 0) return true;
        if (c.rewinds == rewindsThen) return false;
        Mark storage mark = marks[jobId][round + 1];
        return mark.present != 0 && mark.fixedAt >= rewindsThen;
    }

    /// @dev A claim is overtaken if the job went back after its commit to what it builds on, whether or not that has been done
    /// again since: a claim of an earlier round, or for an outer claim a task of its own.
    function _overtaken(
        Counts memory c,
        bytes32 jobId,
        Kind kind,
        uint32 round,
        uint32 rewindsThen,
        bool pending
    ) internal view returns (bool) {
        if (pending && _leftOut(c, jobId, round, rewindsThen)) return true;
        if (rewindsThen == c.rewinds) return false;
        if (c.round < round) return true;
        if (kind == Kind.TASK) return marks[jobId][round].rewinds > rewindsThen;
        if (c.round == round && c.flags & FIXED == 0) return true;
        return marks[jobId][round + 1].fixedAt > rewindsThen;
    }

    /// @dev What is wasted comes out of the half of the convict's stake that is not burnt: Classes.check sees to it that
    /// this is more (docs/protocol.md 3.1).
    function _recordRewind(Accused calldata accused, uint32 number, uint32 open, uint256 wasted) private {
        bool ofTask = accused.kind == Kind.TASK;
        uint16 present = ofTask ? 0 : marks[accused.jobId][accused.round + 1].present;
        rewinds[accused.jobId][number] =
            Rewind(_short(accused.claimant), accused.round, open, ofTask, present);
        VAULT.move(
            IVault.Bucket.STAKE, 0, IVault.Bucket.COMPENSATION, _rewindKey(accused.jobId, number), wasted
        );
    }

    /// @dev The rewind that overtook the claim: the first after its commit to what it builds on. 0 if its round was fixed
    /// without it before any did. Not found if neither was reached in MAX_SCAN steps; then the next call goes on. The caller
    /// knows that there is one.
    function _overtaker(bytes32 claimId, Accused calldata claim, bool pending)
        private
        returns (bool found, uint32 number)
    {
        bool isOuter = claim.kind == Kind.OUTER;
        uint32 last = counts[claim.jobId].rewinds;
        uint32 done = scanned[claimId];
        number = (done > claim.rewinds ? done : claim.rewinds) + 1;
        for (uint256 i; i < MAX_SCAN; ++i) {
            Rewind storage entry = rewinds[claim.jobId][number];
            if (pending && (number > last || entry.open > claim.round)) return (true, 0);
            uint32 to = entry.round;
            if (to < claim.round || (isOuter && to == claim.round && entry.ofTask)) return (true, number);
            ++number;
        }
        scanned[claimId] = number - 1;
        return (false, 0);
    }

    /// @dev The claim's price and its valid votes' fees (`payees`: claimant, then voters), in full. The convict's own price,
    /// and fees of votes that there were not, are burnt; without payees all of it is.
    function _compensate(
        Accused calldata claim,
        uint32 number,
        address[] calldata payees,
        uint256 fee,
        uint256 worth
    ) private returns (uint256 price) {
        bytes32 key = _rewindKey(claim.jobId, number);
        if (payees.length == 0) {
            VAULT.burn(IVault.Bucket.COMPENSATION, key, worth);
            return 0;
        }
        if (_short(claim.claimant) != rewinds[claim.jobId][number].convict) price = claim.price;
        VAULT.payEach(IVault.Bucket.COMPENSATION, key, payees, price, fee);
        VAULT.burn(IVault.Bucket.COMPENSATION, key, worth - price - (payees.length - 1) * fee);
    }

    function _outerFee(bytes32 jobId) private view returns (uint256) {
        return TermsStore.load(address(this), jobId).outerFee;
    }

    function _short(address account) private pure returns (uint96) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint96(uint160(account)); // the last 96 bits are meant
    }

    /// @dev Part of a worst case, which is less than 2^96.
    function _small(uint256 amount) internal pure returns (uint96) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint96(amount);
    }

    function _rewindKey(bytes32 jobId, uint32 number) private pure returns (bytes32) {
        return keccak256(abi.encode(jobId, number));
    }

    function _now40() internal view returns (uint40) {
        return block.timestamp.toUint40();
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IClock} from "../../src/interfaces/IClock.sol";
import {Context, Cursor, Game, ICourt} from "../../src/interfaces/ICourt.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Bounds, Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Vm} from "../Vm.sol";
import {Trees} from "../dispute/Trees.sol";
import {RealCourt} from "./RealCourt.sol";

/// @notice The chain makes no block for ten minutes, and every clock is over in the first one after them (W4): who had to do
/// something still can, and who has no answer for LAG blocks loses as ever. Demands: Availability.t.sol.
contract HaltTest is RealCourt {
    uint64 private constant LAG = 5;

    function newClock() internal override returns (IClock) {
        return IClock(deployed("Clock", abi.encode(LAG)));
    }

    function someBounds() internal view override returns (Bounds memory b) {
        b = super.someBounds();
        (b.clockLag, b.blockTime) = (u32(LAG), 12);
    }

    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
    }

    /// @dev The first block after so many seconds without one.
    function halt(uint256 seconds_) private {
        skip(seconds_);
        vm.roll(vm.getBlockNumber() + 1);
    }

    /// @dev From the block of a tick to the last one before it counts.
    function tickAndWait() private {
        clock.tick();
        rest(LAG - 1);
    }

    function rest(uint256 blocks) private {
        skip(12 * blocks);
        vm.roll(vm.getBlockNumber() + blocks);
    }

    // Games

    function parts(uint256 gameId) private view returns (bytes32, Context memory, Cursor memory) {
        return Trees.parts(games[gameId]);
    }

    function revealSteps(uint256 gameId) private {
        (bytes32 paramsHash, Context memory context, Cursor memory cursor) = parts(gameId);
        bytes32[] memory roots = stateSlots("step", 1);
        vm.recordLogs();
        vm.prank(cursor.defender);
        ICourt(address(court)).revealSteps(gameId, paramsHash, context, cursor, roots);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        (cursor,) = abi.decode(logs[0].data, (Cursor, bytes32[]));
        games[gameId] = Trees.withParts(games[gameId], context, cursor);
    }

    function pickStep(uint256 gameId) private {
        (bytes32 paramsHash, Context memory context, Cursor memory cursor) = parts(gameId);
        vm.prank(cursor.challenger);
        ICourt(address(court)).pickStep(gameId, paramsHash, context, cursor, stateSlots("step", 1), 0);
    }

    function refuseTimeout(uint256 gameId) private {
        uint64 deadline = games[gameId].cursor.deadline;
        vm.expectRevert(abi.encodeWithSelector(ICourt.DeadlineNotPassed.selector, deadline));
        ICourt(address(court)).timeout(gameId, games[gameId]);
    }

    function test_W4_aHaltCostsNobodyAGame() external {
        uint256 id = openAs(whistle, commitTask(0, 0), 0);
        halt(600);
        refuseTimeout(id);
        tickAndWait();
        refuseTimeout(id);
        revealSteps(id); // in the last block in which the defender can
        halt(600);
        refuseTimeout(id);
        tickAndWait();
        refuseTimeout(id);
        pickStep(id); // and so the challenger
        assertFalse(decided(id));
    }

    /// @notice From then on it is the other way round: the mover is too late, and anyone ends the game.
    function test_W4_whoStaysSilentAfterAHaltLosesItsGame() external {
        uint256 id = openAs(whistle, commitTask(0, 0), 0);
        halt(600);
        tickAndWait();
        rest(1);
        (bytes32 paramsHash, Context memory context, Cursor memory cursor) = parts(id);
        vm.expectRevert(abi.encodeWithSelector(ICourt.DeadlinePassed.selector, cursor.deadline));
        vm.prank(cursor.defender);
        ICourt(address(court)).revealSteps(id, paramsHash, context, cursor, stateSlots("step", 1));
        ICourt(address(court)).timeout(id, games[id]);
        assertTrue(decided(id));
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether, "the claim fell");
    }

    /// @notice The attack: a player who is late anyway hopes that nobody ticks, and keeps others from it by ticks of its own. Its
    /// move came later by no more than twice LAG blocks.
    function test_aPlayerPutsItsOwnClockOffForTwiceLagBlocksAtMost() external {
        uint256 id = openAs(whistle, commitTask(0, 0), 0);
        Game memory game = games[id];
        vm.warp(game.cursor.deadline);
        clock.tick();
        halt(1);
        uint256 over = vm.getBlockNumber();
        while (true) {
            try clock.tick() {} catch {}
            try ICourt(address(court)).timeout(id, game) {
                break;
            } catch {}
            halt(1);
        }
        assertEq(vm.getBlockNumber(), over + 2 * LAG - 1);
    }

    // Votes

    function test_W4_aHaltFinesNoVerifier() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        uint64 end = statusOf(claim).since + 74;
        halt(600);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, end + 1));
        tasks.tally(claim);
        tickAndWait();
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, end + 1));
        tasks.tally(claim);
        voteAs(drawn[0], claim, true);
        voteAs(drawn[1], claim, true);
        abstainAs(drawn[2], claim);
        assertEq(lockedOf(drawn[2], Role.VERIFIER), 0, "whoever cannot vote any more may still abstain");
        tasks.tally(claim);
        assertEq(vault.burnt(), 0, "nobody was fined");
        assertEq(statusOf(claim).valid, 2);
    }

    function test_W4_whoStaysSilentAfterAHaltIsFined() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        uint64 end = statusOf(claim).since + 74;
        bytes32 seed = statusOf(claim).seed;
        halt(600);
        tickAndWait();
        rest(1);
        vm.expectRevert(abi.encodeWithSelector(ITasks.TooLate.selector, end));
        vm.prank(drawn[0]);
        tasks.vote(idOf(claim), seed, true, tracesOf(drawn[0]));
        vm.expectRevert(abi.encodeWithSelector(ITasks.TooLate.selector, end));
        abstainAs(drawn[0], claim);
        tasks.tally(claim);
        assertEq(vault.burnt(), 3 * 7 ether, "each a penalty");
    }

    /// @notice A call for others is a clock of its own: the ticks that ended the one before it are nothing to it.
    function test_eachCallForVotesHasItsOwnBlocks() external {
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        halt(600);
        tickAndWait();
        rest(1);
        tasks.tally(claim); // fines three and calls the other two
        uint64 end = statusOf(claim).since + 74;
        halt(600);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, end + 1));
        tasks.tally(claim);
        voteAs(drawnOf(claim)[3], claim, true);
    }

    /// @notice T67: whoever sits in a task's seats stays silent in the draw and in every call, and puts each end off by ticks of
    /// its own. The least of stragglers' times still has the task accepted that was committed in the last second.
    function test_T67_silentSeatsThatTickHaveNoTaskLeftOut() external {
        Terms memory t = aTerms();
        (t.minShards, t.verifiers, t.nonce) = (1, 1, 1);
        t.classId = classes.register(conditionsOf(t));
        t.stragglerTime = 4 * 74 + (2 + 1 + 4 * 2 * LAG) * 12;
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, "stragglerTime"));
        classes.check(t); // transactions have no time to be mined
        t.stragglerTime += someBounds().leastTime;
        agree(t);
        postJob(t);
        holdShards();
        acceptedTask(0, 0);
        vm.warp(jobs.progress(jobId).roundStart + t.taskTime);
        Claim memory late = commitTask(0, 1);
        for (uint256 i; i < 3; ++i) {
            halt(12);
        }
        seedFor(late);
        for (uint256 calls; calls < 4; ++calls) {
            assertPhase(late, Phase.SEEDED);
            halt(t.voteTime);
            clock.tick(); // the last that is none after the end
            halt(12);
            uint256 over = vm.getBlockNumber();
            while (!tallied(late)) {
                try clock.tick() {} catch {}
                halt(12);
            }
            assertEq(vm.getBlockNumber(), over + 2 * LAG - 1);
        }
        assertPhase(late, Phase.ACCEPTED);
        uint256 end = jobs.progress(jobId).roundStart + t.taskTime + t.stragglerTime;
        assertEq(vm.getBlockTimestamp() + someBounds().leastTime, end, "it was as late as it can be");
    }

    function tallied(Claim memory claim) private returns (bool done) {
        try tasks.tally(claim) {
            done = true;
        } catch {}
    }

    // Tasks

    function test_W4_aHaltExpiresNoShard() external {
        uint64 deadline = u64(vm.getBlockTimestamp()) + 1000;
        skip(900);
        halt(600);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, deadline + 1));
        tasks.expire(jobId, 0);
        tickAndWait();
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, deadline + 1));
        tasks.expire(jobId, 0);
        assertPhase(commitTask(0, 0), Phase.COMMITTED);
        rest(1);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, deadline + 1));
        tasks.expire(jobId, 0);
        tasks.expire(jobId, 1); // which has come to nothing
        assertEq(activeOf(solvers[1], Role.SOLVER), 993 ether);
        assertEq(activeOf(solvers[0], Role.SOLVER), 1000 ether);
    }

    function test_W4_aTaskIsTooLateOnceItsShardCanBeExpired() external {
        uint64 deadline = u64(vm.getBlockTimestamp()) + 1000;
        skip(900);
        halt(600);
        tickAndWait();
        rest(1);
        refuseCommit(
            solvers[0], draft(Kind.TASK, 0, 0), abi.encodeWithSelector(ITasks.TooLate.selector, deadline)
        );
        tasks.expire(jobId, 0);
    }

    /// @notice The attack: a holder that is late has the whole market's clock stand still to keep its shard. Anyone ticks.
    function test_aHolderKeepsALateShardForTwiceLagBlocksAtMost() external {
        skip(1000);
        clock.tick();
        halt(1);
        uint256 over = vm.getBlockNumber();
        while (true) {
            try clock.tick() {} catch {}
            try tasks.expire(jobId, 0) {
                break;
            } catch {}
            halt(1);
        }
        assertEq(vm.getBlockNumber(), over + 2 * LAG - 1);
    }
}

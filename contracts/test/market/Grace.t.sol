// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Role, Terms} from "../../src/interfaces/Types.sol";
import {RealCourt} from "./RealCourt.sol";

/// @notice R11: nobody is fined for a task that builds on what is in dispute (docs/protocol.md 4.3.3). The real Court plays.
contract GraceTest is RealCourt {
    uint32 private constant HOLDERS = 16;
    uint256 private constant STAKE = 1000 ether;

    address[HOLDERS] private holders;

    function setUp() external {
        setUpMarket();
        Terms memory t = aTerms();
        (t.shards, t.minShards) = (HOLDERS, HOLDERS);
        shape(t, SLOTS, PARAMS, HOLDERS);
        t.solverStake = 600 ether;
        // Shorter than a game: who answers each move in its last second outlasts the task.
        (t.taskTime, t.stragglerTime, t.moveTime) = (90, 1000, 100);
        postJob(t);
        for (uint32 i; i < HOLDERS; ++i) {
            holders[i] = newSolver(string.concat("holder", vm.toString(i)), STAKE * 2);
            takeAs(holders[i], i);
        }
        for (uint32 i; i < HOLDERS; ++i) {
            acceptedAs(i);
        }
    }

    function posted_() private view returns (Terms memory) {
        return jobs.terms(jobId);
    }

    function acceptedAs(uint32 shard) private {
        Claim memory claim = submit(holders[shard], draft(Kind.TASK, 0, shard));
        accept(claim);
    }

    function expired(uint32 shard) private returns (bool done) {
        (done,) = address(tasks).call(abi.encodeCall(ITasks.expire, (jobId, shard)));
    }

    /// @dev The first holder's outer claim is false, and is disputed in the next block.
    function falseOuterDisputed() private returns (uint256 gameId) {
        gameId = openAs(whistle, submit(holders[0], draft(Kind.OUTER, 0, 0)), 0);
        assertFalse(decided(gameId));
    }

    function stakesOfHonest() private view returns (uint256 sum) {
        for (uint32 i = 1; i < HOLDERS; ++i) {
            sum += activeOf(holders[i], Role.SOLVER);
        }
    }

    /// @notice The attack: while the game runs, everybody's deadline passes. It had cost 15 honest holders a fine each,
    /// and their shards.
    function test_R11_aFalseOuterClaimInDisputeCostsHonestHoldersNothing() external {
        uint256 before = stakesOfHonest();
        uint256 gameId = falseOuterDisputed();
        skip(posted_().moveTime);
        for (uint32 i = 1; i < HOLDERS; ++i) {
            skip(1); // past the deadline, for most of them
            assertFalse(expired(i), "nobody is fined while the game runs");
        }
        releaseAs(holders[1], 1);
        letPass(gameId);
        assertTrue(decided(gameId));
        assertEq(jobs.progress(jobId).round, 0, "the job went back");
        assertEq(activeOf(holders[0], Role.SOLVER), STAKE * 2 - posted_().solverStake, "the cheat paid");
        assertEq(stakesOfHonest(), before, "nobody else did");
        for (uint32 i = 2; i < HOLDERS; ++i) {
            (address holder,,) = tasks.holder(jobId, i);
            assertEq(holder, holders[i], "and the shards are still theirs");
        }
    }

    /// @notice A dispute that its challenger loses: from then on there is taskTime, for the commit as for the fine.
    function test_R11_afterADisputeThereIsTimeForTheTask() external {
        uint256 gameId = falseOuterDisputed();
        skip(posted_().taskTime + 1);
        assertFalse(expired(1));
        // The defender moves, and the challenger lets its time pass.
        showTrace(gameId);
        letPass(gameId);
        assertEq(jobs.progress(jobId).dueSince, vm.getBlockTimestamp());
        skip(posted_().taskTime);
        assertFalse(expired(1));
        submit(holders[2], draft(Kind.TASK, 1, 2));
        skip(1);
        assertTrue(expired(1), "who still has no task is fined");
        assertFalse(expired(2));
        refuseCommit(
            holders[3],
            draft(Kind.TASK, 1, 3),
            abi.encodeWithSelector(
                ITasks.TooLate.selector, jobs.progress(jobId).dueSince + posted_().taskTime
            )
        );
    }

    /// @notice Junk games one after the other hold a round's fines up for 18 moves, and no longer.
    function test_R11_theGraceOfARoundIsBounded() external {
        Claim memory outer = submit(holders[0], draft(Kind.OUTER, 0, 0));
        uint256 start = vm.getBlockTimestamp();
        uint256 gameId = openAs(whistle, outer, 0);
        vm.warp(start + 499);
        uint256 second = openAs(stranger_(), outer, 0);
        vm.warp(start + 18 * posted_().moveTime);
        assertFalse(decided(gameId) || decided(second));
        assertFalse(expired(1), "the last second of the grace");
        assertEq(_lostByRelease(), 0, "and a release is free");
        skip(1);
        assertEq(_lostByRelease(), posted_().missPenalty, "no longer");
        vm.warp(start + 18 * posted_().moveTime + posted_().taskTime);
        assertFalse(expired(1), "and the time for the task");
        skip(1);
        assertTrue(expired(1), "games that nobody ends are not waited for any longer");
    }

    function _lostByRelease() private returns (uint256 lost) {
        uint256 snapshot = vm.snapshotState();
        uint256 before = activeOf(holders[1], Role.SOLVER);
        releaseAs(holders[1], 1);
        lost = before - activeOf(holders[1], Role.SOLVER);
        vm.revertToState(snapshot);
    }

    function stranger_() private returns (address) {
        fund(stranger, 100 ether);
        return stranger;
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Accused, Claim, Kind, Role, Terms} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @notice Posting, funding, halting and closing.
contract JobsTest is Market {
    function setUp() external {
        setUpMarket();
    }

    function refused(Terms memory t, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, field));
        vm.prank(client);
        jobs.post(t, 1e5 ether);
    }

    /// @notice Which terms: Classes.t.sol.
    function test_badTermsAndAWorstCaseBeyond96BitsAreNotPosted() external {
        Terms memory t = aTerms();
        t.manifest = 0;
        refused(t, "manifest");
        t = aTerms();
        (t.priceCap, t.solverStake) = (type(uint96).max / 6 + 1, type(uint128).max); // three rounds of two shards
        refused(t, "priceCap");
    }

    function test_aHaltedJobWaitsForTasksOfARoundThatBeganAfterItsShardsWereTaken() external {
        postJob(aTerms());
        holdShards();
        skip(400);
        Claim[] memory first = playRound(0);
        clientHalts();
        settleAll(first);
        skip(499); // a task's time since the shards were taken, and more
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotFinished.selector, jobId));
        jobs.close(jobId);
        skip(1);
        jobs.close(jobId);
    }

    function test_theBudgetCoversTheWorstCase() external {
        Terms memory t = aTerms();
        uint256 needed = 3 * (2 * (10 ether + 3 * 1 ether) + 5 ether);
        assertEq(jobs.worstCase(t), needed);
        vm.startPrank(client);
        vm.expectRevert(abi.encodeWithSelector(IJobs.BudgetTooSmall.selector, needed, needed - 1));
        jobs.post(t, needed - 1);
        bytes32 id = jobs.post(t, needed);
        vm.stopPrank();
        assertEq(id, keccak256(abi.encode(block.chainid, address(jobs), t)));
        assertEq(vault.balance(IVault.Bucket.ESCROW, id), needed);
    }

    function test_aJobIsPostedOnceAndByItsClient() external {
        Terms memory t = aTerms();
        postJob(t);
        vm.startPrank(client);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobExists.selector, jobId));
        jobs.post(t, 1e4 ether);
        vm.stopPrank();
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotClient.selector, client));
        vm.prank(stranger);
        jobs.post(t, 0);
    }

    function test_whatDoesNotExistIsNamed() external {
        bytes32 absent = "no job";
        bytes memory refusal = abi.encodeWithSelector(IJobs.NoSuchJob.selector, absent);
        vm.expectRevert(refusal);
        jobs.terms("no job");
        vm.expectRevert(refusal);
        jobs.progress("no job");
        vm.expectRevert(refusal);
        jobs.topUp("no job", 1);
        vm.expectRevert(refusal);
        jobs.halt("no job");
        vm.expectRevert(refusal);
        jobs.close("no job");
    }

    function test_onlyTasksTurnsAJobsProgress() external {
        bytes memory refusal = abi.encodeWithSelector(IJobs.NotModule.selector, address(this));
        Accused memory nobody;
        vm.expectRevert(refusal);
        jobs.shardTaken("job");
        vm.expectRevert(refusal);
        jobs.taskCommitted("job", 0, 0, 1);
        vm.expectRevert(refusal);
        jobs.outerCommitted("job", 0, true);
        vm.expectRevert(refusal);
        jobs.taskAccepted("job", 0, 0, 0);
        vm.expectRevert(refusal);
        jobs.claimSettled("job", Kind.TASK, 0, 0, 1);
        vm.expectRevert(refusal);
        jobs.rewind(nobody, 1, false, false);
        vm.expectRevert(refusal);
        jobs.compensate("claim", nobody, false, new address[](1), 0, 0);
        vm.expectRevert(refusal);
        jobs.disputeOpened(Kind.TASK, "job", 0, 0);
        vm.expectRevert(refusal);
        jobs.disputeClosed("job");
    }

    function test_topUpsAreRefundedToo() external {
        uint256 before = free(client);
        postJob(aTerms());
        fund(stranger, 9 ether);
        vm.prank(stranger);
        jobs.topUp(jobId, 9 ether);
        clientHalts();
        skip(1001);
        jobs.close(jobId);
        assertEq(free(client), before + 9 ether);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        jobs.topUp(jobId, 1);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        jobs.close(jobId);
    }

    function test_Attack21_onlyTheClientHaltsAndOnlyTheClientIsRefunded() external {
        postJob(aTerms());
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotClient.selector, client));
        vm.prank(stranger);
        jobs.halt(jobId);
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotFinished.selector, jobId));
        vm.prank(stranger);
        jobs.close(jobId);
        clientHalts();
        skip(1001);
        uint256 before = free(client);
        vm.prank(stranger);
        jobs.close(jobId);
        assertEq(free(client) - before, jobs.worstCase(aTerms()));
        assertEq(free(stranger), 0);
    }

    function test_aHaltedJobFinishesAndPaysTheBegunRound() external {
        postJob(aTerms());
        holdShards();
        Claim memory first = acceptedTask(0, 0);
        vm.startPrank(client);
        jobs.halt(jobId);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        jobs.halt(jobId);
        vm.stopPrank();
        Claim memory second = acceptedTask(0, 1);
        Claim memory outer = commitOuter(0);
        bytes memory refusal = abi.encodeWithSelector(IJobs.JobEnded.selector, jobId);
        refuseCommit(solvers[0], draft(Kind.TASK, 1, 0), refusal);
        skip(501);
        tasks.settle(first);
        tasks.settle(second);
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotFinished.selector, jobId));
        jobs.close(jobId);
        tasks.settle(outer);
        jobs.close(jobId);
        assertEq(vault.balance(IVault.Bucket.ESCROW, jobId), 0);
    }

    function test_progressSaysWhetherAJobIsHaltedOrClosed() external {
        postJob(aTerms());
        assertFalse(jobs.progress(jobId).halted || jobs.progress(jobId).closed);
        clientHalts();
        assertTrue(jobs.progress(jobId).halted);
        assertFalse(jobs.progress(jobId).closed);
        skip(1001);
        jobs.close(jobId);
        assertTrue(jobs.progress(jobId).halted && jobs.progress(jobId).closed);
    }

    function test_aHaltedJobWaitsForWhoeverMayStillCommitAndForNobodyElse() external {
        Terms memory t = aTerms();
        (t.priceCap, t.solverStake) = (20 ether, 150 ether);
        postJob(t);
        skip(300);
        takeAs(solvers[0], 0);
        clientHalts();
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        takeAs(solvers[1], 1);
        skip(1000);
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotFinished.selector, jobId));
        jobs.close(jobId);
        Claim memory claim = commitTask(0, 0);
        skip(1);
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotFinished.selector, jobId));
        jobs.close(jobId);
        accept(claim);
        skip(501);
        uint256 before = free(solvers[0]);
        tasks.settle(claim);
        assertEq(free(solvers[0]) - before, 15 ether, "half of the way from floor to cap");
        jobs.close(jobId);
    }

    function test_aJobThatIsAllInCannotBeHalted() external {
        Terms memory t = aTerms();
        t.rounds = 1;
        postJob(t);
        holdShards();
        playRound(0);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        clientHalts();
        assertEq(lockedOf(solvers[0], Role.SOLVER), 207 ether);
    }
}

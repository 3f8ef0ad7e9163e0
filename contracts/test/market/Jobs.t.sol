// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
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

    function test_everyRuleOfTheTermsIsChecked() external {
        Terms memory t = aTerms();
        t.manifest = 0;
        refused(t, "manifest");
        t = aTerms();
        t.inner.nodes = 0;
        refused(t, "inner");
        t.inner.nodes = 65_537;
        refused(t, "inner");
        t = aTerms();
        t.inner.slots = 1;
        refused(t, "inner");
        t = aTerms();
        t.outer.params = 0;
        refused(t, "outer");
        t = aTerms();
        t.outer.slots = 4097;
        refused(t, "outer");
        t = aTerms();
        t.outer.slots = 9;
        refused(t, "outer.slots");
        t = aTerms();
        t.shards = 0;
        refused(t, "shards");
        t = aTerms();
        t.minShards = 0;
        refused(t, "minShards");
        t.minShards = SHARDS + 1;
        refused(t, "minShards");
        t = aTerms();
        t.rounds = 0;
        refused(t, "rounds");
        t = aTerms();
        t.stepsPerRound = 0;
        refused(t, "stepsPerRound");
        t = aTerms();
        t.segmentSteps = 0;
        refused(t, "segmentSteps");
        t.segmentSteps = 3;
        refused(t, "segmentSteps");
        (t.segmentSteps, t.stepsPerRound) = (65, 65);
        refused(t, "segmentSteps");
        t = aTerms();
        t.samples = 0;
        refused(t, "samples");
        t.samples = SEGMENTS + 1;
        refused(t, "samples");
        t = aTerms();
        t.verifiers = 0;
        refused(t, "verifiers");
        t.verifiers = 17;
        refused(t, "verifiers");
        t = aTerms();
        t.maxUnsettled = 0;
        refused(t, "maxUnsettled");
        t = aTerms();
        (t.priceCap, t.solverStake) = (type(uint96).max / 6 + 1, type(uint128).max); // three rounds of two shards
        refused(t, "priceCap");
        t = aTerms();
        t.priceFloor = t.priceCap + 1;
        refused(t, "priceFloor");
        t = aTerms();
        t.solverStake = 96 ether - 1;
        refused(t, "solverStake");
    }

    function test_everyTimeIsPositiveAndOfHumanSize() external {
        uint64[2] memory bad = [uint64(0), uint64(1) << 32];
        for (uint256 i; i < 2; ++i) {
            Terms memory t = aTerms();
            t.taskTime = bad[i];
            refused(t, "taskTime");
            t = aTerms();
            t.stragglerTime = bad[i];
            refused(t, "stragglerTime");
            t = aTerms();
            t.outerTime = bad[i];
            refused(t, "outerTime");
            t = aTerms();
            t.voteTime = bad[i];
            refused(t, "voteTime");
            t = aTerms();
            t.revealTime = bad[i];
            refused(t, "revealTime");
            t = aTerms();
            t.challengeWindow = bad[i];
            refused(t, "challengeWindow");
            t = aTerms();
            t.moveTime = bad[i];
            refused(t, "moveTime");
            t = aTerms();
            t.pricePeriod = bad[i];
            refused(t, "pricePeriod");
        }
        Terms memory none = aTerms();
        none.seedDelay = 0;
        refused(none, "seedDelay");
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
        jobs.disputeOpened("job", Kind.TASK, 0, 0, false);
        vm.expectRevert(refusal);
        jobs.disputeClosed("job");
    }

    function test_topUpsAreRefundedToo() external {
        uint256 before = free(client);
        postJob(aTerms());
        fund(stranger, 9 ether);
        vm.prank(stranger);
        jobs.topUp(jobId, 9 ether);
        vm.prank(client);
        jobs.halt(jobId);
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
        vm.prank(client);
        jobs.halt(jobId);
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

    function test_aHaltedJobWaitsForWhoeverMayStillCommitAndForNobodyElse() external {
        Terms memory t = aTerms();
        (t.priceCap, t.solverStake) = (20 ether, 150 ether);
        postJob(t);
        skip(300);
        vm.prank(solvers[0]);
        tasks.takeShard(jobId, 0);
        vm.prank(client);
        jobs.halt(jobId);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 1);
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
        vm.prank(client);
        jobs.halt(jobId);
        assertEq(lockedOf(solvers[0], Role.SOLVER), 207 ether);
    }
}

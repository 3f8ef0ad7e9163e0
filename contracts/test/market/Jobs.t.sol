// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Accused, Claim, Kind, Link, Loop, Origin, Role, Terms} from "../../src/interfaces/Types.sol";
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
        t.slots = 4097;
        refused(t, "slots");
        t = aTerms();
        t.outerSlots = 4097;
        refused(t, "outerSlots");
        t = aTerms();
        t.params = 0;
        refused(t, "params");
        t.params = SLOTS + 1;
        refused(t, "params");
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

    function test_everyRuleOfLoopsIsChecked() external {
        Terms memory t = aTerms();
        t.loops = new Loop[](0);
        refused(t, "loops");
        t.loops = new Loop[](9);
        refused(t, "loops");
        for (uint256 i; i < 4; ++i) {
            t = aTerms();
            Loop memory loop = t.loops[0];
            if (i == 0) loop.nodes = 0;
            if (i == 1) loop.nodes = 65_537;
            if (i == 2) loop.steps = 0;
            if (i == 3) loop.segmentSteps = 3;
            refused(t, "loops");
        }
        t = aTerms();
        t.loops[0].slowBy = 0;
        refused(t, "loops");
        t.loops[0].slowBy = t.loops[0].segmentSteps + 1; // does not divide a segment
        refused(t, "loops");
        t = aTerms();
        (t.outerLoops[0].steps, t.outerLoops[0].segmentSteps, t.outerLoops[0].slowBy) = (2, 2, 2);
        refused(t, "outerLoops"); // all outer claims are alike
        t = aTerms();
        t.segments = 5;
        refused(t, "segments");
        t.segments = 3;
        refused(t, "segments");
        t = aTerms();
        (t.loops, t.segments) = (oneLoop("root", 1, 65, 65, 1), 1);
        (t.samples, t.classId) = (1, 0);
        t.classId = classes.register(conditionsOf(t));
        refused(t, "segmentSteps");
        t = aTerms();
        t.outerSegments = 2;
        refused(t, "outerSegments");
        t = aTerms();
        t.outerLoops[0].samples = 1; // nobody is drawn for an outer claim
        refused(t, "samples");
        t = aTerms();
        t.loops = twoLoops(2, 0); // a loop in which nobody looks
        t.segments = 5;
        refused(t, "samples");
        t.loops = twoLoops(1, 1);
        vm.prank(client);
        jobs.post(t, 1e5 ether);
    }

    function twoLoops(uint32 first, uint32 second) private pure returns (Loop[] memory loops) {
        loops = new Loop[](2);
        loops[0] = Loop("train", 20, 8, 2, first, 0, 1);
        loops[1] = Loop("compress", 9, 1, 1, second, 0, 1);
    }

    function test_everyRuleOfLinksIsChecked() external {
        for (uint256 i; i < 16; ++i) {
            Terms memory t = aTerms();
            Link memory task = t.links[0];
            Link memory outer = t.outerLinks[1];
            if (i == 0) task.count = uint16(PARAMS) - 1; // a slot that no link covers
            if (i == 1) task.count = 0;
            if (i == 2) task.lag = 0; // an outer claim that is not there yet
            if (i == 3) task.first = uint16(t.outerSlots) - 1; // beyond the source's slots
            if (i == 4) (task.count, task.times) = (1, 2); // there is one outer claim a round
            if (i == 5) task.otherwise = uint16(SLOTS) - 1;
            if (i == 6) (task.origin, task.source) = (Origin.PRESENT, Kind.OUTER);
            if (i == 7) outer.times = uint16(SHARDS) + 1;
            if (i == 8) (outer.source, outer.count, outer.times) = (Kind.OUTER, 4, 1); // of its own round
            if (i == 9) outer.first = uint16(SLOTS) - 1;
            if (i == 10) outer.origin = Origin.PRESENT; // of two slots a shard
            if (i == 11) t.outerLinks = new Link[](17);
            if (i == 12) outer.div = 0;
            if (i == 13) outer.mod = 0;
            if (i == 14) (outer.mod, outer.stride) = (2, outer.count - 1); // parts that overlap
            if (i == 15) (outer.mod, outer.stride) = (2, uint16(SLOTS)); // a second part beyond the source's slots
            refused(t, i < 7 ? "links" : "outerLinks");
        }
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

    function test_progressSaysWhetherAJobIsHaltedOrClosed() external {
        postJob(aTerms());
        assertFalse(jobs.progress(jobId).halted || jobs.progress(jobId).closed);
        vm.prank(client);
        jobs.halt(jobId);
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
        vm.prank(solvers[0]);
        tasks.takeShard(jobId, 0, 0);
        vm.prank(client);
        jobs.halt(jobId);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 1, 0);
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

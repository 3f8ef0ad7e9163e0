// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @notice What a conviction leaves of the rounds after it, and who is compensated.
contract RewindsTest is Market {
    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
    }

    function test_aConvictionRewindsToItsRoundAndWhatCameAfterIsStale() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        skip(10);
        convictByGame(first[0]);
        assertEq(jobs.progress(jobId).round, 0);
        assertEq(jobs.progress(jobId).rewinds, 1);
        assertEq(jobs.progress(jobId).roundStart, vm.getBlockTimestamp());
        assertEq(tasks.current(jobId, Kind.TASK, 0, 0), 0);
        assertEq(tasks.current(jobId, Kind.TASK, 0, 1), idOf(first[1]), "the other shard's task stands");
        assertEq(tasks.current(jobId, Kind.OUTER, 0, 0), 0);
        assertEq(tasks.current(jobId, Kind.TASK, 1, 1), 0);
        vm.expectRevert(ITasks.NotStale.selector);
        tasks.void(first[1]);
        skip(501);
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.settle(first[2]);
        tasks.void(first[2]);
        tasks.void(second[0]);
        tasks.void(second[1]);
        tasks.void(second[2]);
        assertEq(lockedOf(solvers[0], Role.SOLVER), 0, "its shard is open again");
        assertEq(lockedOf(solvers[1], Role.SOLVER), 107 ether, "its task of round 0, and its shard");
        assertEq(compensationSum(), 0);
        assertSolvent();
    }

    function test_theJobGoesOnAfterARewind() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        convictByGame(first[0]);
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 0, 0);
        Claim memory again = acceptedTask(0, 0);
        assertEq(again.attempt, 1);
        assertEq(again.rewinds, 1);
        Claim memory outer = commitOuter(0);
        assertEq(outer.attempt, 1);
        Claim[] memory next = playRound(1);
        assertEq(next[0].attempt, 1);
        vm.expectRevert(ITasks.NotStale.selector);
        tasks.void(next[0]);
        tasks.void(second[0]);
        skip(501);
        tasks.settle(again);
        tasks.settle(first[1]);
        tasks.settle(outer);
        settleAll(next);
        settleAll(playRound(2));
        jobs.close(jobId);
        tasks.void(first[2]);
        tasks.void(second[1]);
        tasks.void(second[2]);
        releaseShards();
        assertEq(lockedOf(solvers[0], Role.SOLVER) + lockedOf(solvers[1], Role.SOLVER), 0);
        assertEq(compensationSum() + escrowSum(), 0);
        assertSolvent();
    }

    /// @notice Nobody waits any longer for the game that has sent the job back.
    function test_theGameThatSendsAJobBackIsOver() external {
        convictByGame(playRound(0)[0]);
        skip(10);
        (,, uint64 dueSince, bool disputed) = jobs.running(jobId);
        assertFalse(disputed);
        assertEq(dueSince, jobs.progress(jobId).roundStart);
    }

    function test_wastedClaimsArePaidInFullAndTheConvictsOwnPriceIsBurnt() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        convictByGame(first[0]);
        // Wasted: two tasks at 10 with three fees of 1, two outer claims at 5.
        assertEq(compensationSum(), 36 ether);
        (uint256 honest, uint256 convict, uint256 burnt) = (free(solvers[1]), free(solvers[0]), vault.burnt());
        uint256 fees = freeOfVerifiers();
        tasks.void(second[0]);
        tasks.void(second[1]);
        assertEq(free(solvers[1]) - honest, 10 ether);
        assertEq(
            freeOfVerifiers() - fees, 6 ether, "whoever replayed what was wasted is paid, the convict's too"
        );
        tasks.void(first[2]);
        tasks.void(second[2]);
        assertEq(free(solvers[1]) - honest, 15 ether, "the outer claim of round 1");
        assertEq(free(solvers[0]), convict);
        assertEq(vault.burnt() - burnt, 15 ether, "the convict's task and outer claim");
        assertEq(compensationSum(), 0);
    }

    function freeOfVerifiers() private view returns (uint256 sum) {
        for (uint256 i; i < verifiers.length; ++i) {
            sum += free(verifiers[i]);
        }
    }

    function test_aSeatWithoutAValidVoteIsNotPaidForWastedWork() external {
        Claim memory outer = playRound(0)[SHARDS];
        Claim memory pending = commitTask(1, 1);
        convictByGame(outer);
        assertEq(compensationSum(), 13 ether);
        (uint256 before, uint256 burnt) = (free(solvers[1]), vault.burnt());
        tasks.void(pending);
        assertEq(free(solvers[1]) - before, 10 ether, "a task that was not accepted yet is paid as well");
        assertEq(vault.burnt() - burnt, 3 ether, "fees of votes that there were not");
        assertEq(compensationSum(), 0);
    }

    /// @notice The least stake that `post` takes covers the most that a conviction can waste, and leaves a sixteenth to the finder.
    function test_R7_theLeastStakePaysForTheMostThatCanBeWasted() external {
        Terms memory t = aTerms();
        (t.priceFloor, t.nonce) = (t.priceCap, 1);
        t.solverStake = 96 ether; // 8/3 of (2 - 1) * 2 * (10 + 3) + 2 * 5
        Terms memory less = aTerms();
        (less.solverStake, less.nonce) = (96 ether - 1, 2);
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, "solverStake"));
        vm.prank(client);
        jobs.post(less, 1e5 ether);
        postJob(t);
        holdShards();
        Claim memory first = playRound(0)[0];
        playRound(1);
        uint256 before = free(whistle);
        convictByGame(first);
        assertEq(compensationSum(), 36 ether, "the most");
        assertEq(free(whistle) - before, 96 ether / 2 - 36 ether - 3 ether, "less a fee a vote");
        assertGe(free(whistle) - before, 96 ether / 16);
    }

    /// @notice A halted job that goes back begins no round again that it had begun before.
    function test_aRewindOfAHaltedJobBringsItsEndForward() external {
        Claim[] memory first = playRound(0);
        commitTask(1, 0);
        vm.prank(client);
        jobs.halt(jobId);
        assertEq(jobs.progress(jobId).finalRound, 2, "the round that has begun is its last");
        convictByGame(first[0]);
        assertEq(jobs.progress(jobId).finalRound, 1, "and now the one that it went back to");
    }

    function test_anOuterClaimFallsAloneInItsRound() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        convictByGame(first[2]);
        assertEq(jobs.progress(jobId).round, 0);
        (address solver,,) = tasks.holder(jobId, 0);
        assertEq(solver, solvers[0], "a convicted outer claim reopens no shard");
        assertEq(tasks.current(jobId, Kind.TASK, 0, 0), idOf(first[0]));
        assertEq(tasks.current(jobId, Kind.TASK, 1, 0), 0);
        Claim memory outer = commitOuter(0);
        assertEq(outer.attempt, 1);
        assertEq(jobs.progress(jobId).round, 1);
        tasks.void(second[0]);
        skip(501);
        tasks.settle(first[0]);
        tasks.settle(first[1]);
        tasks.settle(outer);
        assertEq(jobs.progress(jobId).settledRounds, 1);
    }

    function test_twoFaultyShardsOfARoundFallOneAfterTheOther() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        uint256 a = challengeAs(whistle, first[0], 0);
        uint256 b = challengeAs(whistle, first[1], 0);
        court.decide(a, true);
        court.decide(b, true);
        assertEq(jobs.progress(jobId).rewinds, 2);
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 0), abi.encodeWithSelector(ITasks.RoundIncomplete.selector, 0, 2)
        );
        (uint256 honest, uint256 burnt) = (free(solvers[1]), vault.burnt());
        tasks.void(second[1]);
        assertEq(free(solvers[1]) - honest, 10 ether, "convicted later, but wasted by the first");
        tasks.void(second[0]);
        assertEq(vault.burnt() - burnt, 10 ether);
        vm.startPrank(solvers[1]);
        tasks.takeShard(jobId, 0, 0);
        tasks.takeShard(jobId, 1, 0);
        vm.stopPrank();
        Claim[] memory again = playRound(0);
        tasks.void(first[2]);
        settleAll(again);
        assertEq(jobs.progress(jobId).settledRounds, 1);
        assertSolvent();
    }

    function test_aClaimThatIsNotYetAcceptedCanFall() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        convictByGame(claim);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0);
        bytes32 seed_ = statusOf(claim).seed;
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.CONVICTED));
        vm.prank(drawn[1]);
        tasks.vote(idOf(claim), seed_, false, new bytes32[](0));
        acceptedTask(0, 1);
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 0), abi.encodeWithSelector(ITasks.RoundIncomplete.selector, 1, 2)
        );
    }

    function test_aShardThatChangedHandsIsNotTakenFromItsNewHolder() external {
        Claim memory claim = commitTask(0, 0);
        vm.prank(solvers[0]);
        tasks.release(jobId, 0);
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 0, 0);
        convictByGame(claim);
        (address solver,,) = tasks.holder(jobId, 0);
        assertEq(solver, solvers[1]);
        assertEq(commitTask(0, 0).claimant, solvers[1]);
    }

    function test_Attack27_thousandsOfStaleClaimsDoNotDelaySettlement() external {
        Claim[] memory first = playRound(0);
        for (uint256 i; i < 30; ++i) {
            Claim memory outer = i == 0 ? first[2] : commitOuter(0);
            convictByGame(outer);
            stakeAs(solvers[0], Role.SOLVER, 100 ether);
        }
        Claim memory last = commitOuter(0);
        skip(501);
        uint256 gasBefore = gasleft();
        tasks.settle(first[0]);
        tasks.settle(first[1]);
        tasks.settle(last);
        assertLt(gasBefore - gasleft(), 500_000);
        assertEq(jobs.progress(jobId).settledRounds, 1);
    }

    function test_aClaimThatOutlivedManyRewindsIsVoidedInSeveralCalls() external {
        Claim[] memory first = playRound(0);
        Claim memory task = acceptedTask(1, 0);
        acceptedTask(1, 1);
        for (uint256 i; i < 70; ++i) {
            convictByGame(commitOuter(1));
            stakeAs(ownerOf(1), Role.SOLVER, 100 ether);
        }
        convictByGame(first[0]);
        tasks.void(task);
        assertPhase(task, Phase.ACCEPTED);
        tasks.void(task);
        assertPhase(task, Phase.VOID);
    }
}

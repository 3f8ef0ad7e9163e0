// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Found, Phase, Terms} from "../../src/interfaces/Types.sol";
import {FindingsMarket} from "./FindingsMarket.sol";

/// @notice T53: rewards of claims that their job goes on without (docs/protocol.md 5.4). No settled claim tells who was right, so
/// whoever has won its own game has an equal part.
contract GoneFindingsTest is FindingsMarket {
    function setUp() external {
        setUpMarket();
        fund(stranger, 1000 ether);
        fund(client, 1000 ether);
    }

    function dispute(Claim memory claim) private {
        fallen = claim;
        fallenRoots = segmentEnds(claim);
    }

    function overtaken() private returns (Claim memory first) {
        postJob(aTerms());
        holdShards();
        first = playRound(0)[0];
        dispute(playRound(1)[0]);
    }

    /// @dev Round 0 is closable without the claim.
    function leftOut() private {
        Terms memory t = aTerms();
        t.minShards = 1;
        postJob(t);
        holdShards();
        acceptedTask(0, 0);
        vm.warp(jobs.progress(jobId).roundStart + 999);
        dispute(commitTask(0, 1));
    }

    /// @notice A ring fells an earlier claim of its own once honest games are open, and lets its puppet win first.
    function test_T53_aFinderHasItsPartOfAnOvertakenClaim() external {
        Claim memory first = overtaken();
        uint256 rich = free(whistle);
        uint256 poor = free(stranger);
        (uint256 honest, Found memory real) = looked(whistle, 0, TRUTH);
        (uint256 puppets, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        uint256 early = challengeAs(client, first, 0);
        court.decide(early, true);
        court.decide(puppets, true);
        (uint256 kept, address winner) = tasks.reward(idOf(fallen));
        assertEq(winner, stranger);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        challenges.shareWon(fallen, oneOf(noise));
        court.decide(honest, true);
        challenges.shareWon(fallen, list(noise, real));
        assertEq(free(whistle) - rich, kept / 2);
        assertEq(free(stranger) - poor, kept / 2);
        assertGt(kept, 0);
        vm.expectRevert(ITasks.MayBeSettled.selector); // nothing waits any more
        challenges.shareWon(fallen, list(noise, real));
        skip(501);
        tasks.freeSeats(fallen);
        assertSolvent();
    }

    /// @notice The same for nothing, of a task that its round is about to go on without.
    function test_T53_aFinderHasItsPartOfATaskThatIsLeftOut() external {
        leftOut();
        uint256 rich = free(whistle);
        (uint256 honest, Found memory real) = looked(whistle, 0, TRUTH);
        (uint256 puppets, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        vm.warp(jobs.progress(jobId).roundStart + 1301);
        court.decide(puppets, true);
        assertPhase(fallen, Phase.CONVICTED);
        court.decide(honest, true);
        challenges.shareWon(fallen, list(noise, real));
        assertEq(free(whistle) - rich, REWARD / 2);
        assertEq(free(address(tasks)), 0);
        assertSolvent();
    }

    /// @notice Who has only looked on has nothing: a finding whose game was lost, or whose maker says that it was won.
    function test_T53_aGameThatWasLostHasNoPart() external {
        leftOut();
        (uint256 honest, Found memory real) = looked(whistle, 0, TRUTH);
        (uint256 idle, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        vm.warp(jobs.progress(jobId).roundStart + 1301);
        (uint256 rich, uint256 poor) = (free(whistle), free(stranger));
        court.decide(honest, true);
        court.decide(idle, false);
        vm.expectPartialRevert(IChallenges.WrongFindings.selector);
        challenges.shareWon(fallen, list(real, noise));
        challenges.shareWon(fallen, list(real, lost(noise)));
        assertEq(free(whistle) - rich, 30 ether + REWARD);
        assertEq(free(stranger) - poor, 30 ether);
    }

    /// @notice Who convicts by a demand has an equal part beside a puppet that wins its own game.
    function test_T53_whoConvictsByADemandHasItsPart() external {
        leftOut();
        IAvailability.StateLeaf[] memory places = new IAvailability.StateLeaf[](1);
        bytes32[] memory proof = memberProof(fallenRoots, 1);
        uint256 rich = free(whistle);
        vm.prank(whistle);
        uint256 id = availability.demand(fallen, 1, fallenRoots[1], proof, places);
        uint48 deadline = uint48(vm.getBlockTimestamp() + 60);
        IAvailability.Asked memory asked =
            IAvailability.Asked(idOf(fallen), fallenRoots[1], whistle, deadline, places);
        (uint256 puppets, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        vm.warp(jobs.progress(jobId).roundStart + 1301);
        availability.expire(id, asked, fallen);
        court.decide(puppets, true);
        challenges.shareWon(fallen, oneOf(noise));
        assertEq(free(whistle) - rich, REWARD / 2);
    }

    /// @notice Nobody but the module of challenges says whose games were won.
    function test_onlyChallengesPays() external {
        leftOut();
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotModule.selector, address(this)));
        tasks.payUnsettled(fallen, new address[](0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotModule.selector, address(this)));
        tasks.payReward(idOf(fallen), new address[](0), true);
    }

    /// @notice A claim that fell while its place may still be settled waits for that.
    function test_aClaimWhosePlaceMayBeSettledWaits() external {
        postJob(aTerms());
        holdShards();
        dispute(commitTask(0, 0));
        (uint256 honest, Found memory real) = looked(whistle, 0, TRUTH);
        (uint256 puppets, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        court.decide(puppets, true);
        court.decide(honest, true);
        vm.expectRevert(ITasks.MayBeSettled.selector);
        challenges.shareWon(fallen, list(noise, real));
    }

    /// @notice A stranger's noise makes a reward wait for a claim at a place that the job goes on without: it waits until that
    /// round is settled, and not for the end of a job that may last for years, or that its client never ends.
    function test_T55_aRewardWaitsNoLongerThanItsPlaceMayBeSettled() external {
        Terms memory t = aTerms();
        (t.minShards, t.rounds) = (1, 100);
        postJob(t);
        holdShards();
        Claim memory other = acceptedTask(0, 0);
        dispute(commitTask(0, 1));
        (uint256 honest, Found memory real) = looked(whistle, 0, TRUTH);
        (uint256 puppets, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        court.decide(honest, true);
        court.decide(puppets, false);
        noise.won = false;
        (, address winner) = tasks.reward(idOf(fallen));
        assertEq(winner, whistle);
        vm.expectRevert(ITasks.MayBeSettled.selector);
        challenges.shareWon(fallen, list(real, noise));
        skip(t.taskTime + t.stragglerTime + t.outerTime + 1);
        Claim memory outer = commitOuter(0);
        skip(1001);
        vm.expectRevert(ITasks.MayBeSettled.selector);
        challenges.shareWon(fallen, list(real, noise));
        tasks.settle(other);
        tasks.settle(outer);
        assertFalse(jobs.progress(jobId).closed);
        uint256 poor = free(whistle);
        challenges.shareWon(fallen, list(real, noise));
        assertEq(free(whistle) - poor, REWARD);
        assertEq(free(address(tasks)), 0);
        assertSolvent();
    }

    /// @notice Nor is an accepted claim gone because its round is closed: its place is claimed again.
    function test_anAcceptedClaimOfAClosedRoundWaitsToo() external {
        postJob(aTerms());
        holdShards();
        dispute(playRound(0)[0]);
        (uint256 honest, Found memory real) = looked(whistle, 0, TRUTH);
        (uint256 puppets, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        court.decide(puppets, true);
        court.decide(honest, true);
        vm.expectRevert(ITasks.MayBeSettled.selector);
        challenges.shareWon(fallen, list(noise, real));
    }
}

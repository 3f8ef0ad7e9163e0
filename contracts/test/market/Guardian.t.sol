// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGuardian} from "../../src/interfaces/IGuardian.sol";
import {Claim, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @notice What a pause stops, and what nothing stops (docs/protocol.md 7.2).
contract GuardianTest is Market {
    function setUp() external {
        setUpMarket();
    }

    function pauseAll() private {
        vm.startPrank(pauser);
        for (uint8 i; i <= uint8(type(IGuardian.Business).max); ++i) {
            guardian.setPaused(IGuardian.Business(i), true);
        }
        vm.stopPrank();
    }

    function paused(IGuardian.Business business) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IGuardian.BusinessPaused.selector, business);
    }

    function test_aPauseStopsNewBusinessAndNothingElse() external {
        postJob(aTerms());
        pauseAll();
        Terms memory t = aTerms();
        t.nonce = 1;
        uint256 budget = jobs.worstCase(t);
        vm.expectRevert(paused(IGuardian.Business.JOBS));
        vm.prank(client);
        jobs.post(t, budget);
        vm.expectRevert(paused(IGuardian.Business.SHARDS));
        takeAs(solvers[0], 0);
        vm.expectRevert(paused(IGuardian.Business.STAKES));
        vm.prank(solvers[0]);
        stakes.stake(Role.SOLVER, 1);
        vm.startPrank(pauser);
        for (uint8 i; i <= uint8(type(IGuardian.Business).max); ++i) {
            guardian.setPaused(IGuardian.Business(i), false);
        }
        vm.stopPrank();
        vm.prank(client);
        jobs.post(t, budget);
        vm.prank(solvers[0]);
        stakes.stake(Role.SOLVER, 1);
        takeAs(solvers[0], 0);
    }

    /// @dev Everything that was begun goes on to its end, all paused.
    function test_Invariant18_whatIsUnderWayEndsAndTokensLeavePausedOrNot() external {
        postJob(aTerms());
        holdShards();
        pauseAll();
        Claim[] memory claims = playRound(0);
        uint256 lost = challengeAs(whistle, claims[0], 0);
        court.decide(lost, false);
        settleAll(claims);
        assertPhase(claims[0], Phase.SETTLED);
        Claim memory next = acceptedTask(1, 0);
        convictByGame(next);
        assertPhase(next, Phase.CONVICTED);
        vm.startPrank(verifiers[1]);
        uint256 index = stakes.startUnbond(Role.VERIFIER, 100 ether);
        skip(UNBOND_DELAY);
        assertEq(stakes.finishUnbond(Role.VERIFIER, index), 100 ether);
        uint256 there = free(verifiers[1]);
        vault.withdraw(verifiers[1], there);
        vm.stopPrank();
        assertEq(token.balanceOf(verifiers[1]), there);
        clientHalts();
        skip(10_000);
        jobs.close(jobId);
        assertSolvent();
    }

    function test_thePauserAloneDecides() external {
        bytes memory refusal = abi.encodeWithSelector(IGuardian.NotPauser.selector, pauser);
        vm.startPrank(stranger);
        vm.expectRevert(refusal);
        guardian.setPaused(IGuardian.Business.JOBS, true);
        vm.expectRevert(refusal);
        guardian.handOver(stranger);
        vm.stopPrank();
    }

    function test_thePauserHandsOverOrGivesUpForGood() external {
        vm.prank(pauser);
        guardian.handOver(stranger);
        assertEq(guardian.pauser(), stranger);
        vm.startPrank(stranger);
        for (uint8 i; i <= uint8(type(IGuardian.Business).max); ++i) {
            guardian.setPaused(IGuardian.Business(i), true);
            vm.expectRevert(abi.encodeWithSelector(IGuardian.StillPaused.selector, IGuardian.Business(i)));
            guardian.handOver(address(0));
            guardian.setPaused(IGuardian.Business(i), false);
        }
        guardian.handOver(address(0));
        vm.expectRevert(abi.encodeWithSelector(IGuardian.NotPauser.selector, address(0)));
        guardian.setPaused(IGuardian.Business.JOBS, true);
        vm.stopPrank();
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IForcedErrors} from "../../src/interfaces/IForcedErrors.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Role} from "../../src/interfaces/Types.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Market} from "./Market.sol";

/// @notice Attack 13: a verifier passes a planted fault; and what a forced error is no good for (docs/protocol.md 7.4).
contract ForcedErrorsTest is Market {
    uint256 private constant DEPOSIT = 100 ether; // = solverStake
    bytes32 private constant SALT = "secret of the client";

    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
    }

    function commitmentOf(address client_, address solver, uint32 round, uint32 shard)
        private
        view
        returns (bytes32)
    {
        return keccak256(abi.encode(client_, solver, jobId, round, shard, SALT));
    }

    function forceErrorAs(address who, uint32 shard, uint256 deposit) private returns (bytes32 commitment) {
        commitment = commitmentOf(who, solvers[shard], 0, shard);
        vm.prank(who);
        forcedErrors.commitError(commitment, deposit);
        skip(1);
    }

    /// @dev The planted fault is at a segment that somebody's sample holds; the voters whose sample holds it are guilty.
    function planted() private returns (Claim memory claim, bytes32 commitment, address[] memory voters) {
        commitment = forceErrorAs(client, 0, DEPOSIT);
        claim = commitTask(0, 0);
        voters = accept(claim);
    }

    function test_Attack13_whoPassesAForcedErrorPaysAndWhoFindsItIsPaid() external {
        uint256 clientBefore = free(client);
        (Claim memory claim, bytes32 commitment, address[] memory voters) = planted();
        uint32 segment = u32(Sampling.segment(statusOf(claim).seed, voters[0], 0, SEGMENTS));
        uint256 guilty = askedFor(claim, voters, segment);
        assertGt(guilty, 0, "somebody passed what it was asked to check");
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
        assertEq(forcedErrors.forcer(idOf(claim)), client);
        uint256[] memory stakesBefore = new uint256[](voters.length);
        for (uint256 i; i < voters.length; ++i) {
            stakesBefore[i] = activeOf(voters[i], Role.VERIFIER);
        }
        uint256 whistleblower = free(whistle);
        uint256 burnt = vault.burnt();
        court.decide(challengeAs(whistle, claim, segment), true);
        assertPhase(claim, Phase.CONVICTED);
        assertEq(activeOf(solvers[0], Role.SOLVER), 950 ether, "the planting solver pays the reward alone");
        assertEq(free(whistle) - whistleblower, 50 ether, "the whistleblower earns what any fault earns");
        assertEq(vault.burnt() - burnt, guilty * 25 ether, "half of the guilty voters' stakes");
        for (uint256 i; i < voters.length; ++i) {
            uint256 lost = isAsked(claim, voters[i], segment) ? 50 ether : 0;
            assertEq(stakesBefore[i] - activeOf(voters[i], Role.VERIFIER), lost);
        }
        forcedErrors.finish(client, commitment);
        assertEq(free(client), clientBefore + guilty * 25 ether, "deposit back, and the indemnity");
        assertSolvent();
    }

    function test_aForcedErrorThatNobodyPassedCostsTheWhistleblowersRewardOnly() external {
        bytes32 commitment = forceErrorAs(client, 0, DEPOSIT);
        Claim memory claim = commitTask(0, 0);
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
        uint256 before = free(client);
        uint256 burnt = vault.burnt();
        convictByGame(claim);
        forcedErrors.finish(client, commitment);
        assertEq(free(client) - before, DEPOSIT);
        assertEq(vault.burnt(), burnt, "nothing is burnt");
        assertEq(activeOf(solvers[0], Role.SOLVER), 950 ether);
        assertSolvent();
    }

    // A forced error is no insurance for a cheat.

    function test_Attack13_anErrorForcedAfterItsCommitIsNone() external {
        Claim memory claim = commitTask(0, 0);
        bytes32 commitment = commitmentOf(client, solvers[0], 0, 0);
        vm.startPrank(client);
        forcedErrors.commitError(commitment, DEPOSIT);
        vm.expectPartialRevert(IForcedErrors.ForcedTooLate.selector);
        forcedErrors.reveal(claim, SALT);
        vm.stopPrank();
    }

    function test_Attack13_aForcedErrorInTheSecondOfTheCommitIsTooLate() external {
        bytes32 commitment = commitmentOf(client, solvers[0], 0, 0);
        vm.prank(client);
        forcedErrors.commitError(commitment, DEPOSIT);
        Claim memory claim = commitTask(0, 0);
        vm.expectPartialRevert(IForcedErrors.ForcedTooLate.selector);
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
    }

    function test_Attack13_aForcedErrorThatIsNotConvictedLosesItsDeposit() external {
        (Claim memory claim, bytes32 commitment,) = planted();
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
        vm.expectPartialRevert(IForcedErrors.NotDue.selector);
        forcedErrors.finish(client, commitment);
        skip(501);
        tasks.settle(claim);
        skip(FORCED_ERROR_TIME);
        uint256 burnt = vault.burnt();
        uint256 before = free(client);
        forcedErrors.finish(client, commitment);
        assertEq(vault.burnt() - burnt, DEPOSIT);
        assertEq(free(client), before);
        assertSolvent();
    }

    function test_Attack13_aForcedErrorNobodyHeardOfLosesItsDepositAndSavesNobody() external {
        (Claim memory claim, bytes32 commitment, address[] memory voters) = planted();
        uint32 segment = u32(Sampling.segment(statusOf(claim).seed, voters[0], 0, SEGMENTS));
        uint256 guilty = askedFor(claim, voters, segment);
        court.decide(challengeAs(whistle, claim, segment), true);
        assertEq(
            activeOf(solvers[0], Role.SOLVER), 900 ether, "convicted before it was revealed: as any other"
        );
        assertGt(guilty, 0);
        vm.expectPartialRevert(ITasks.WrongPhase.selector);
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
        skip(FORCED_ERROR_TIME + 1);
        forcedErrors.finish(client, commitment);
        vm.expectPartialRevert(IForcedErrors.NotForced.selector);
        forcedErrors.finish(client, commitment);
        assertSolvent();
    }

    function test_Attack13_aSolverOrStrangerCannotInsureItself() external {
        fund(solvers[0], 1000 ether);
        bytes32 commitment = forceErrorAs(solvers[0], 0, DEPOSIT);
        assertTrue(commitment != 0);
        Claim memory claim = commitTask(0, 0);
        vm.expectRevert(abi.encodeWithSelector(IForcedErrors.NotClient.selector, client));
        vm.prank(solvers[0]);
        forcedErrors.reveal(claim, SALT);
        vm.expectPartialRevert(IForcedErrors.NotForced.selector);
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
    }

    function test_aDepositBelowTheStakeInsuresNothing() external {
        forceErrorAs(client, 0, DEPOSIT - 1);
        Claim memory claim = commitTask(0, 0);
        vm.expectRevert(abi.encodeWithSelector(IForcedErrors.DepositTooSmall.selector, DEPOSIT, DEPOSIT - 1));
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
    }

    function test_aForcedErrorIsOfOneClaimAndAClaimOfOneForcedError() external {
        forceErrorAs(client, 0, DEPOSIT);
        bytes32 commitment = commitmentOf(client, solvers[0], 0, 0);
        vm.expectRevert(abi.encodeWithSelector(IForcedErrors.AlreadyForced.selector, commitment));
        vm.prank(client);
        forcedErrors.commitError(commitment, DEPOSIT);
        Claim memory other = commitTask(0, 1);
        vm.startPrank(client);
        vm.expectPartialRevert(IForcedErrors.NotForced.selector);
        forcedErrors.reveal(other, SALT); // another shard, another solver
        bytes32 second = keccak256(abi.encode(client, solvers[0], jobId, uint32(0), uint32(0), bytes32("2")));
        forcedErrors.commitError(second, DEPOSIT);
        vm.stopPrank();
        skip(1);
        Claim memory claim = commitTask(0, 0);
        vm.startPrank(client);
        forcedErrors.reveal(claim, SALT);
        vm.expectPartialRevert(IForcedErrors.AlreadyRevealed.selector);
        forcedErrors.reveal(claim, SALT);
        vm.expectPartialRevert(IForcedErrors.AlreadyRevealed.selector);
        forcedErrors.reveal(claim, "2");
        vm.stopPrank();
    }

    function test_anExpiredForcedErrorIsNotRevealed() external {
        forceErrorAs(client, 0, DEPOSIT);
        Claim memory claim = commitTask(0, 0);
        skip(FORCED_ERROR_TIME);
        vm.expectPartialRevert(IForcedErrors.ForcedErrorExpired.selector);
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
    }

    function test_anAggregateIsNoForcedError() external {
        acceptedTask(0, 0);
        acceptedTask(0, 1);
        bytes32 commitment = commitmentOf(client, solvers[0], 0, 0);
        vm.prank(client);
        forcedErrors.commitError(commitment, DEPOSIT);
        skip(1);
        Claim memory outer = commitOuter(0);
        vm.expectRevert(IForcedErrors.NotATask.selector);
        vm.prank(client);
        forcedErrors.reveal(outer, SALT);
    }

    function test_nobodySpoilsAForcedErrorByForcingItFirst() external {
        bytes32 commitment = commitmentOf(client, solvers[0], 0, 0);
        fund(stranger, DEPOSIT);
        vm.prank(stranger);
        forcedErrors.commitError(commitment, 1);
        forceErrorAs(client, 0, DEPOSIT);
        Claim memory claim = commitTask(0, 0);
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
        assertEq(forcedErrors.forcer(idOf(claim)), client);
    }

    function test_aForcedErrorThatARewindEndsKeepsItsDeposit() external {
        Claim memory first = acceptedTask(0, 0);
        acceptedTask(0, 1);
        commitOuter(0);
        bytes32 commitment = keccak256(abi.encode(client, solvers[1], jobId, uint32(1), uint32(1), SALT));
        vm.prank(client);
        forcedErrors.commitError(commitment, DEPOSIT);
        skip(1);
        Claim memory claim = commitTask(1, 1);
        vm.prank(client);
        forcedErrors.reveal(claim, SALT);
        convictByGame(first);
        tasks.void(claim);
        assertPhase(claim, Phase.VOID);
        uint256 before = free(client);
        forcedErrors.finish(client, commitment);
        assertEq(free(client) - before, DEPOSIT);
    }
}

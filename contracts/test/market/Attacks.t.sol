// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IAvailability} from "../../src/interfaces/IAvailability.sol";
import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Found, Kind, Phase, Role} from "../../src/interfaces/Types.sol";
import {FindingsMarket} from "./FindingsMarket.sol";

/// @notice Ideas of several transactions against the contracts as they stand (docs/threats.md, "Tried since"), by whoever has
/// money, accounts and time. What each of them gains is asserted.
contract AttacksTest is FindingsMarket {
    function setUp() external {
        setUpClaim();
    }

    /// @dev Everything that these accounts own, wherever it is; what waits to be shared is nobody's.
    function owned(address[] memory accounts) private view returns (uint256 sum) {
        for (uint256 i; i < accounts.length; ++i) {
            sum += free(accounts[i]) + activeOf(accounts[i], Role.SOLVER);
            sum += activeOf(accounts[i], Role.VERIFIER);
        }
    }

    function three(address a, address b, address c) private pure returns (address[] memory accounts) {
        accounts = new address[](3);
        (accounts[0], accounts[1], accounts[2]) = (a, b, c);
    }

    /// @notice Junk on a base known to be false: two solvers of one owner claim rounds that they have not computed on their own
    /// false claim, their third account fells that claim, and the junk is paid for as wasted work.
    function test_T1_junkBuiltOnOnesOwnFalseClaimIsPaidByOnesOwnStake() external {
        address[] memory ring = three(solvers[0], solvers[1], whistle);
        uint256 before = owned(ring);
        accept(fallen);
        Claim memory other = acceptedTask(0, 1);
        Claim memory outer = commitOuter(0);
        Claim[] memory junk = playRound(1);
        convictByGame(fallen);
        tasks.void(outer);
        for (uint256 i; i < junk.length; ++i) {
            tasks.void(junk[i]);
        }
        skip(501);
        tasks.settle(other);
        assertLe(owned(ring), before + 10 ether - 50 ether, "half a stake is gone, whatever they claim");
    }

    /// @notice A puppet disagrees with an honest finding only so that the reward waits, and the place is never settled.
    function test_T2_whoMakesARewardWaitForGoodSharesIt() external {
        bytes32[] memory right = truth(0);
        address[] memory ring = three(solvers[0], stranger, client);
        uint256 before = owned(ring);
        (uint256 honest, Found memory real) = looked(whistle, 0, right[1]);
        (uint256 noise, Found memory other) = looked(stranger, 1, keccak256("noise"));
        clientHalts();
        court.decide(honest, true);
        court.decide(noise, true);
        assertEq(before - owned(ring), 100 ether);
        (uint256 kept,) = tasks.reward(idOf(fallen));
        assertEq(kept, REWARD, "which nobody gets while the place may be settled");
        vm.expectRevert(ITasks.MayBeSettled.selector);
        challenges.shareWon(fallen, list(real, other));
        skip(4000);
        jobs.close(jobId);
        uint256 rich = free(whistle);
        challenges.shareWon(fallen, list(real, other));
        assertEq(free(whistle) - rich, REWARD / 2, "then it is for whose games were won");
    }

    /// @notice T50: who fells its own claim by a second account, beside an honest finding of another root, has half of the reward
    /// where no claim is ever paid at the place.
    function test_T50_whoFellsItsOwnClaimWhereNoTruthComesSharesTheReward() external {
        address[] memory ring = three(solvers[0], stranger, client);
        (uint256 before, uint256 rich) = (owned(ring), free(whistle));
        (uint256 honest, Found memory real) = looked(whistle, 0, truth(0)[1]);
        (uint256 own, Found memory noise) = looked(stranger, 1, keccak256("noise"));
        court.decide(own, true);
        court.decide(honest, true);
        clientHalts();
        skip(4000);
        uint256 escrow = vault.balance(IVault.Bucket.ESCROW, jobId);
        jobs.close(jobId);
        challenges.shareWon(fallen, list(noise, real));
        assertEq(
            before - (owned(ring) - escrow),
            75 ether,
            "half of the stake is burnt, and a quarter the finder's"
        );
        assertEq(free(whistle) - rich, REWARD / 2);
    }

    /// @notice The convict's second account claims the place again with the states that a puppet has announced as the truth,
    /// to have them settled: nothing is paid by a claim that can be challenged, and this one falls too.
    function test_T3_aFalseTruthHasToSurviveItsOwnWindow() external {
        bytes32[] memory forged = truth(2);
        forged[3] = keccak256("forged");
        bytes32 salt = announceRoot(stranger, idOf(fallen), 2, address(0), forged[3]);
        uint64 announced = u64(vm.getBlockNumber() - 1);
        (uint256 honest, Found memory real) = looked(whistle, 2, truth(2)[3]);
        Found memory false_ = Found(stranger, 2, announced, u64(vm.getBlockNumber()), forged[3], true);
        uint256 puppet = showAs(stranger, 2, forged[3], salt);
        court.decide(puppet, true);
        court.decide(honest, true);
        takeAs(solvers[0], 0);
        Claim memory again = draft(Kind.TASK, 0, 0);
        again.outputRoot = forged[4];
        (settled, settledRoots) = commitAs(solvers[0], again, forged);
        accept(settled);
        vm.expectRevert(IChallenges.NoTruth.selector);
        share(list(false_, real));
        uint256 stake = activeOf(solvers[0], Role.SOLVER);
        convictAgain();
        assertEq(stake - activeOf(solvers[0], Role.SOLVER), 100 ether, "a second stake");
        vm.expectRevert(IChallenges.NoTruth.selector);
        share(list(false_, real));
        uint256 rich = free(whistle);
        settle(truth(2));
        share(list(false_, real));
        assertEq(free(whistle) - rich, REWARD, "and the reward is the whistleblower's all the same");
    }

    function convictAgain() private {
        bytes32 root = keccak256("right");
        bytes32 salt = announceRoot(whistle, idOf(settled), 2, address(0), root);
        bytes32[] memory from = memberProof(settledRoots, 2);
        bytes32[] memory to = memberProof(settledRoots, 3);
        vm.prank(whistle);
        uint256 game = challenges.open(settled, 2, settledRoots[2], from, settledRoots[3], to, root, salt);
        court.decide(game, true);
        assertPhase(settled, Phase.CONVICTED);
    }

    /// @notice Once an honest game is open a stranger demands a state that nobody can show, which convicts sooner than a game.
    function test_T4_aDemandThatOvertakesAGameTakesNothingOfItsReward() external {
        bytes32[] memory right = truth(0);
        (uint256 honest, Found memory real) = looked(whistle, 0, right[1]);
        IAvailability.StateLeaf[] memory places = new IAvailability.StateLeaf[](1);
        bytes32[] memory proof = memberProof(fallenRoots, 1);
        uint256 poor = free(stranger);
        vm.prank(stranger);
        uint256 id = availability.demand(fallen, 1, fallenRoots[1], proof, places);
        uint48 deadline = uint48(vm.getBlockTimestamp() + 60);
        IAvailability.Asked memory asked =
            IAvailability.Asked(idOf(fallen), fallenRoots[1], stranger, deadline, places);
        skip(61);
        availability.expire(id, asked, fallen);
        assertPhase(fallen, Phase.CONVICTED);
        assertEq(free(stranger), poor, "its bond, and no reward yet");
        uint256 rich = free(whistle);
        court.decide(honest, true);
        vm.expectRevert(IChallenges.NoTruth.selector); // the winner has no root of its own
        challenges.shareAlike(idOf(fallen), oneOf(real));
        settle(right);
        share(oneOf(real));
        assertEq(free(whistle) - rich, 30 ether + REWARD);
        assertEq(free(stranger), poor);
    }

    /// @notice A blind announcement of every slot of every input, to front-run `proveBinding` from the mempool.
    function test_T5_aBindingCannotBeOvertakenByABlindAnnouncement() external {
        accept(fallen);
        acceptedTask(0, 1);
        Claim memory outer = commitOuter(0);
        Claim memory wrong = commitTask(1, 0);
        bytes32[] memory slots = stateSlots(string.concat("in", vm.toString(wrong.manifest)), SLOTS);
        bytes32[] memory from =
            stateSlots(string.concat("out", vm.toString(outer.manifest)), (2 + SHARDS) * PARAMS);
        bytes32 guess = announceSlot(stranger, idOf(wrong), 1, keccak256("a guess"));
        bytes32 salt = announceSlot(whistle, idOf(wrong), 1, slots[1]);
        (bytes32[] memory proof, bytes32[] memory way) = (memberProof(slots, 1), memberProof(from, 1));
        vm.expectPartialRevert(IChallenges.NotAnnounced.selector);
        vm.prank(stranger);
        challenges.proveBinding(wrong, 1, slots[1], proof, outer, from[1], way, TRUTH, guess);
        uint256 rich = free(whistle);
        vm.prank(whistle);
        challenges.proveBinding(wrong, 1, slots[1], proof, outer, from[1], way, TRUTH, salt);
        assertEq(free(whistle) - rich, 50 ether);
    }

    /// @notice Truth is bent by felling an earlier claim of one's own, so that the place is settled from another input: then no
    /// segment's finding is borne out. The convict's puppet, which won the race, has half of the reward.
    function test_T6_bendingTheTruthByASecondOwnConvictionLeavesTheFinderItsPart() external {
        accept(fallen);
        Claim memory first = fallen;
        Claim memory own = acceptedTask(0, 1);
        commitOuter(0);
        fallen = commitTask(1, 0);
        fallenRoots = segmentEnds(fallen);
        address[] memory ring = three(solvers[0], solvers[1], stranger);
        uint256 before = owned(ring);
        (uint256 honest, Found memory real) = looked(whistle, 0, truth(0)[1]);
        (uint256 puppets, Found memory noise) = looked(stranger, 0, keccak256("noise"));
        court.decide(puppets, true);
        court.decide(honest, true);
        court.decide(challengeAs(stranger, own, 0), true);
        assertGe(before - owned(ring), 100 ether, "two stakes are half burnt before anything can be shared");
        (uint256 kept,) = tasks.reward(idOf(fallen));
        assertEq(kept, REWARD);
        takeAgain(0);
        takeAgain(1);
        Claim memory again = acceptedTask(0, 1);
        Claim memory outer = commitOuter(0);
        Claim memory bent = draft(Kind.TASK, 1, 0);
        bent.inputRoot = keccak256("another input");
        (settled, settledRoots) = commitAs(solvers[0], bent, segmentEnds(bent));
        accept(settled);
        skip(1001);
        tasks.settle(first);
        tasks.settle(again);
        tasks.settle(outer);
        tasks.settle(settled);
        uint256 rich = free(whistle);
        share(list(noise, real));
        assertEq(free(whistle) - rich, REWARD / 2);
    }

    function takeAgain(uint32 shard) private {
        takeAs(solvers[shard], shard);
    }
}

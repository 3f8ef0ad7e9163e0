// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Bound} from "./Bound.sol";
import {RealCourt} from "./RealCourt.sol";

/// @notice R6: who has stolen an operator's key posts jobs of its own, commits false claims in them with the operator's stake,
/// and fells them: half of each stake is the finder's. What the owner's caps and allowance leave of that.
contract CapsTest is RealCourt, Bound {
    uint256 private constant STAKE = 1024 ether;

    address private owner = makeAddr("owner");
    address private thief = makeAddr("thief's whistleblower");
    address private operator;
    uint256 private jobsOfThief;

    function setUp() external {
        setUpMarket();
        fund(owner, 2 * STAKE);
        operator = bindTo(keys, owner);
        vm.prank(owner);
        stakes.stakeFor(operator, Role.SOLVER, STAKE);
        fund(thief, 1e5 ether);
    }

    function cap(uint128 all, uint120 others) private {
        vm.prank(owner);
        stakes.cap(operator, Role.SOLVER, all, others);
    }

    function capClient(address whom, uint120 most) private {
        vm.prank(owner);
        stakes.capClient(operator, Role.SOLVER, whom, most);
    }

    /// @dev A job of another account of the thief's.
    function theft() private returns (Terms memory t) {
        t = aTerms();
        t.client = makeAddr(string.concat("thief", vm.toString(jobsOfThief++)));
        (t.solverStake, t.challengeWindow) = (150 ether, 500);
        fund(t.client, 1000 ether);
        postJob(t);
    }

    /// @dev With the stolen key: a false claim in a job of the thief's, which another account of the thief's then fells.
    function steal() private {
        theft();
        takeAs(operator, 0);
        Claim memory wrong = commitTask(0, 0);
        letPass(openAs(thief, wrong, 0));
        assertPhase(wrong, Phase.CONVICTED);
    }

    /// @dev Whether the key can take a shard in another job of the thief's.
    function locksMore() private returns (bool done) {
        theft();
        vm.prank(operator);
        (done,) = address(tasks).call(abi.encodeCall(tasks.takeShard, (jobId, 0, 0)));
    }

    function lost() private view returns (uint256) {
        return STAKE - activeOf(operator, Role.SOLVER);
    }

    function test_R6_withoutACapTheStolenKeyLosesAllThatJobsCanLock() external {
        uint256 before = free(thief);
        for (uint256 i; i < 6; ++i) {
            steal();
        }
        assertEq(lost(), 900 ether, "six stakes of 150");
        assertEq(free(thief) - before, 450 ether, "and half of them is the thief's");
        assertFalse(locksMore(), "no seventh fits into 124");
    }

    function test_R6_aCapForUnnamedClientsBoundsWhatAllTheirJobsCanTake() external {
        cap(1000 ether, 200 ether);
        capClient(client, 800 ether);
        uint256 before = free(thief);
        steal();
        assertEq(lost(), 150 ether);
        assertFalse(locksMore(), "what was taken stays counted, whoever posts the next job");
        assertEq(free(thief) - before, 75 ether);
        // The owner's own client is served as before.
        postJob(aTerms());
        takeAs(operator, 0);
        acceptedTask(0, 0);
        assertEq(lockedOf(operator, Role.SOLVER), 107 ether);
    }

    function test_T13_aShardThatAStolenKeyHoldsInAClosedJobIsGivenBackByTheOwner() external {
        Terms memory t = theft();
        takeAs(operator, 0);
        vm.prank(t.client);
        jobs.halt(jobId);
        skip(t.taskTime + 1);
        jobs.close(jobId);
        skip(3650 days);
        uint256 held = lockedOf(operator, Role.SOLVER);
        assertEq(held, t.missPenalty, "locked by a job that is over");
        vm.prank(owner);
        vm.expectRevert();
        stakes.startUnbondFor(operator, Role.SOLVER, STAKE);
        vm.expectPartialRevert(ITasks.NotDue.selector);
        tasks.expire(jobId, 0);
        vm.prank(thief);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotHolder.selector, operator));
        tasks.release(jobId, 0);
        releaseAs(owner, 0);
        assertEq(lockedOf(operator, Role.SOLVER), 0);
        vm.prank(owner);
        stakes.startUnbondFor(operator, Role.SOLVER, STAKE);
    }

    function test_R6_theCapInAllHoldsForNamedClientsToo() external {
        cap(107 ether, 0);
        capClient(client, 800 ether);
        postJob(aTerms());
        vm.startPrank(operator);
        tasks.takeShard(jobId, 0, 0);
        vm.stopPrank();
        Claim memory wrong = commitTask(0, 0);
        letPass(openAs(thief, wrong, 0));
        assertEq(lost(), 100 ether);
        bytes memory refusal = abi.encodeWithSelector(
            IStakes.InsufficientStake.selector, operator, Role.SOLVER, 107 ether, 7 ether
        );
        vm.expectRevert(refusal);
        takeAs(operator, 0);
        cap(207 ether, 0);
        takeAs(operator, 0);
    }

    /// @notice An allowance is for what goes into escrow alone: a bond comes out of what the operator has earned.
    function test_aBoundOperatorNeedsNoAllowanceForABond() external {
        fund(operator, 30 ether);
        vm.prank(address(challenges));
        bytes32 free_ = bytes32(uint256(uint160(operator)));
        vault.move(IVault.Bucket.FREE, free_, IVault.Bucket.BOND, bytes32(uint256(1)), 30 ether);
        assertEq(free(operator), 0);
    }

    /// @notice What is refused is said to be beyond the cap where the stake alone would do, to the last unit of it.
    function test_whatTheCapRefusesIsNoLackOfStake() external {
        cap(107 ether, 107 ether);
        vm.startPrank(address(tasks));
        vm.expectRevert(
            abi.encodeWithSelector(
                IStakes.BeyondCap.selector, operator, Role.SOLVER, client, STAKE, 107 ether
            )
        );
        stakes.lock(operator, Role.SOLVER, STAKE, client);
        vm.expectRevert(
            abi.encodeWithSelector(
                IStakes.InsufficientStake.selector, operator, Role.SOLVER, STAKE + 1, STAKE
            )
        );
        stakes.lock(operator, Role.SOLVER, STAKE + 1, client);
        vm.stopPrank();
    }

    function test_aClaimBeyondTheCapIsRefusedAndAMissCounts() external {
        cap(107 ether, 107 ether);
        postJob(aTerms());
        takeAs(operator, 0);
        takeAs(solvers[1], 1);
        cap(106 ether, 107 ether);
        refuseCommit(
            operator,
            draft(0, 0),
            abi.encodeWithSelector(
                IStakes.BeyondCap.selector, operator, Role.SOLVER, client, 100 ether, 99 ether
            )
        );
        skip(1001);
        tasks.expire(jobId, 0);
        assertEq(lost(), 7 ether, "the miss");
        (bool capped, uint256 all, uint256 gone, uint256 most, uint256 used) =
            stakes.caps(operator, Role.SOLVER, client);
        assertTrue(capped);
        assertEq(all, 106 ether);
        assertEq(gone, 7 ether);
        assertEq(most, 107 ether);
        assertEq(used, 7 ether);
        assertEq(stakes.room(operator, Role.SOLVER, client), 99 ether);
    }

    function test_honestWorkUnderACapGivesItsRoomBack() external {
        cap(400 ether, 400 ether);
        postJob(aTerms());
        takeAs(operator, 0);
        takeAs(solvers[1], 1);
        Claim[] memory claims = playRound(0);
        assertEq(
            stakes.room(operator, Role.SOLVER, client), 400 ether - 207 ether, "shard, task, outer claim"
        );
        skip(501);
        settleAll(claims);
        assertEq(stakes.room(operator, Role.SOLVER, client), 393 ether, "the shard's alone");
        releaseAs(operator, 0);
        assertEq(stakes.room(operator, Role.SOLVER, client), 393 ether, "a task was due: 7 are lost");
    }

    /// @dev Naming a client moves what it has used out of the others' purse; naming it again does not.
    function test_aClientThatIsNamedNoLongerUsesTheOthersCap() external {
        cap(1000 ether, 120 ether);
        postJob(aTerms());
        takeAs(operator, 0);
        commitTask(0, 0);
        assertEq(stakes.room(operator, Role.SOLVER, stranger), 13 ether);
        capClient(client, 300 ether);
        capClient(client, 200 ether);
        assertEq(stakes.room(operator, Role.SOLVER, stranger), 120 ether);
        assertEq(stakes.room(operator, Role.SOLVER, client), 93 ether);
    }

    /// @dev What was locked before there was a cap does not give room to anybody when it is free.
    function test_locksFromBeforeTheCapMakeNoRoom() external {
        postJob(aTerms());
        vm.startPrank(operator);
        tasks.takeShard(jobId, 0, 0);
        vm.stopPrank();
        cap(1000 ether, 50 ether);
        assertEq(stakes.room(operator, Role.SOLVER, client), 50 ether);
        releaseAs(operator, 0);
        assertEq(lockedOf(operator, Role.SOLVER), 0);
        assertEq(stakes.room(operator, Role.SOLVER, client), 43 ether, "a task was due: 7 are lost");
    }

    function test_theOwnerAloneCaps() external {
        bytes memory refusal = abi.encodeWithSelector(IStakes.NotOwner.selector, owner);
        vm.startPrank(operator);
        vm.expectRevert(refusal);
        stakes.cap(operator, Role.SOLVER, 1, 1);
        vm.expectRevert(refusal);
        stakes.capClient(operator, Role.SOLVER, client, 1);
        vm.expectRevert(abi.encodeWithSelector(IVault.NotOwner.selector, owner));
        vault.allow(operator, 1);
        vm.stopPrank();
        vm.expectRevert(IStakes.NoClient.selector);
        capClient(address(0), 1);
    }

    /// @dev Of four verifiers drawn for three seats, one that its owner has capped at less is passed over.
    function test_aCappedVerifierIsSeatedNoFurther() external {
        for (uint256 i = 1; i < verifiers.length; ++i) {
            vm.prank(verifiers[i]);
            stakes.cap(verifiers[i], Role.VERIFIER, 1e6 ether, 29 ether);
        }
        vm.roll(block.number + 2);
        postJob(aTerms());
        holdShards();
        address[] memory drawn = seedFor(commitTask(0, 0));
        assertEq(drawn.length, 1, "only the one without a cap");
        assertEq(drawn[0], verifiers[0]);
    }

    function allCappedAtASeat() private returns (Claim memory claim) {
        for (uint256 i; i < verifiers.length; ++i) {
            vm.prank(verifiers[i]);
            stakes.cap(verifiers[i], Role.VERIFIER, 1e6 ether, 30 ether);
        }
        postJob(aTerms());
        holdShards();
        return commitTask(0, 0);
    }

    function test_aCappedVerifiersConvictionStaysCounted() external {
        Claim memory claim = allCappedAtASeat();
        address[] memory drawn = accept(claim);
        letPass(openOnVote(whistle, claim, drawn[0], 0));
        assertEq(stakes.room(drawn[0], Role.VERIFIER, client), 0, "what was taken stays counted");
        assertEq(stakes.room(drawn[1], Role.VERIFIER, client), 0, "locked");
        letPass(openAs(thief, claim, 0));
        assertPhase(claim, Phase.CONVICTED);
        skip(501);
        tasks.freeSeats(claim);
        assertEq(stakes.room(drawn[0], Role.VERIFIER, client), 0);
        assertEq(stakes.room(drawn[1], Role.VERIFIER, client), 30 ether, "what was not taken is free again");
    }

    function test_aCappedVerifiersFineStaysCounted() external {
        Claim memory claim = allCappedAtASeat();
        address[] memory drawn = seedFor(claim);
        assertEq(drawn.length, 3);
        assertEq(stakes.room(drawn[0], Role.VERIFIER, client), 0);
        skip(201);
        tasks.tally(claim); // nobody has voted
        assertEq(stakes.room(drawn[0], Role.VERIFIER, client), 23 ether, "a miss of 7 stays");
    }

    // What was set by somebody who is not the owner any more

    /// @dev Whoever has the key before there is an owner names its own clients first, and lets itself spend.
    function boundLate() private returns (address late) {
        late = makeAddr("late");
        vm.startPrank(late);
        stakes.cap(late, Role.SOLVER, type(uint128).max, type(uint120).max);
        stakes.capClient(late, Role.SOLVER, makeAddr("thief0"), type(uint120).max);
        vault.allow(late, type(uint256).max);
        vm.stopPrank();
        assertEq(bindTo(keys, owner, "late"), late);
        vm.startPrank(owner);
        stakes.stakeFor(late, Role.SOLVER, STAKE);
        stakes.cap(late, Role.SOLVER, 1000 ether, 200 ether);
        vm.stopPrank();
    }

    function test_R6_clientsThatAnOperatorHasNamedBeforeItWasBoundAreWithoutAName() external {
        fund(owner, STAKE);
        operator = boundLate();
        assertEq(stakes.room(operator, Role.SOLVER, makeAddr("thief0")), 200 ether);
        steal();
        assertEq(lost(), 150 ether);
        jobsOfThief = 0;
        Terms memory t = aTerms();
        t.client = makeAddr("thief0");
        (t.solverStake, t.challengeWindow, t.nonce) = (150 ether, 500, 1);
        postJob(t);
        vm.expectRevert();
        takeAs(operator, 0);
    }

    /// @dev The operator has the tokens for a job of its own, and may put none of them into it.
    function refusedPost() private returns (Terms memory t, uint256 budget) {
        fund(operator, 1000 ether);
        t = aTerms();
        t.client = operator;
        agree(t);
        budget = jobs.worstCase(t);
        vm.expectRevert(abi.encodeWithSelector(IVault.BeyondAllowance.selector, operator, budget, 0));
        vm.prank(operator);
        jobs.post(t, budget);
    }

    function test_R6_anAllowanceIsItsOwnersAndNoFormerOnes() external {
        fund(owner, STAKE);
        operator = boundLate();
        assertEq(vault.allowance(operator), 0);
        refusedPost();
    }

    // The free balance

    /// @dev Whoever has the key binds an account of its own to the operator, and stakes for it out of the operator's earnings:
    /// once the two part, they are that account's.
    function test_R6_aBoundOperatorsEarningsAreStakedForNobody() external {
        fund(operator, 1000 ether);
        address puppet = bindTo(keys, operator, "puppet");
        vm.expectRevert(abi.encodeWithSelector(IStakes.NotOwner.selector, owner));
        vm.prank(operator);
        stakes.stakeFor(puppet, Role.SOLVER, 1000 ether);
        assertEq(free(operator), 1000 ether);
        // An owner that nobody owns may, as ever.
        vm.prank(owner);
        stakes.stakeFor(operator, Role.SOLVER, 1 ether);
    }

    /// @dev The same with what it owned before it was bound itself.
    function test_R6_noMoreForAPuppetOfBeforeItWasBound() external {
        address late = makeAddr("late");
        fund(late, 1000 ether);
        address puppet = bindTo(keys, late, "puppet");
        vm.prank(late);
        stakes.stakeFor(puppet, Role.SOLVER, 400 ether);
        assertEq(bindTo(keys, owner, "late"), late);
        vm.expectRevert(abi.encodeWithSelector(IStakes.NotOwner.selector, owner));
        vm.prank(late);
        stakes.stakeFor(puppet, Role.SOLVER, 600 ether);
    }

    function test_R6_aBoundOperatorPostsNoJobBeyondItsAllowance() external {
        (Terms memory t, uint256 budget) = refusedPost();
        bytes32 other = postJob(aTerms());
        vm.expectRevert(abi.encodeWithSelector(IVault.BeyondAllowance.selector, operator, 1, 0));
        vm.prank(operator);
        jobs.topUp(other, 1);
        vm.prank(owner);
        vault.allow(operator, budget);
        vm.startPrank(operator);
        jobs.post(t, budget);
        assertEq(vault.allowance(operator), 0);
        vm.expectRevert(abi.encodeWithSelector(IVault.BeyondAllowance.selector, operator, 1, 0));
        jobs.topUp(other, 1);
        vm.stopPrank();
    }

    function draft(uint32 round, uint32 shard) private returns (Claim memory) {
        return draft(Kind.TASK, round, shard);
    }
}

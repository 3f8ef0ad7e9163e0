// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {
    Claim,
    Conditions,
    Kind,
    Link,
    Loop,
    NO_SLOT,
    Origin,
    Phase,
    Role,
    Terms
} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Market} from "./Market.sol";

/// @notice Clients whose terms are the attack. R1 to R3: what a term could take from verifiers that had never heard of it;
/// R8: terms under which no verdict could be delivered. Each attack is carried out as far as the contracts let it.
contract HostileTermsTest is Market {
    uint256 private constant VERDICT_GAS = 2_000_000;

    function setUp() external {
        setUpMarket();
    }

    function refused(Conditions memory c, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadConditions.selector, field));
        vm.prank(client);
        classes.register(c);
    }

    function some() private view returns (Conditions memory) {
        return conditionsOf(aTerms());
    }

    function staked() private view returns (uint256[5] memory all) {
        for (uint256 i; i < 5; ++i) {
            all[i] = activeOf(verifiers[i], Role.VERIFIER);
            assertEq(lockedOf(verifiers[i], Role.VERIFIER), 0);
        }
    }

    /// @dev A job of a class that its client alone knows, with one task committed by the client's own solver.
    function hostileJob(Terms memory t) private returns (Claim memory claim) {
        vm.startPrank(client);
        t.classId = classes.register(conditionsOf(t));
        jobId = jobs.post(t, jobs.worstCase(t));
        vm.stopPrank();
        takeAs(solvers[0], 0);
        claim = submit(solvers[0], draft(Kind.TASK, 0, 0));
    }

    function test_R1_aPenaltyBeyondHalfASeatOrAVoteOfASecondIsNoClass() external {
        Conditions memory c = some();
        c.missPenalty = type(uint128).max;
        refused(c, "missPenalty");
        c.missPenalty = c.verifierStake / 2 + 1;
        refused(c, "missPenalty");
        c = some();
        c.voteTime = 1;
        refused(c, "voteTime");
        c = some();
        c.verifierStake = type(uint128).max;
        refused(c, "verifierStake");
    }

    /// @notice Who locks verifiers' stakes locks as much: a class asks a solver's stake of all seats' at least, and every job of it
    /// that much.
    function test_A5_aClassAsksAStakeOfAllItsSeats() external {
        Conditions memory c = some();
        c.solverStake = c.verifiers * c.verifierStake - 1;
        refused(c, "solverStake");
        Terms memory t = aTerms();
        Conditions memory asks = conditionsOf(t);
        asks.solverStake = t.solverStake + 1;
        t.classId = classes.register(asks);
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, "solverStake"));
        classes.check(t);
        asks.solverStake = t.solverStake;
        t.classId = classes.register(asks);
        classes.check(t);
        t.verifierFee = t.solverStake / (16 * t.verifiers) + 1; // fees that a conviction could not pay
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, "solverStake"));
        classes.check(t);
    }

    /// @notice A round is not closed without a task that was committed in time before four calls for votes on it can be over.
    function test_A9_aTaskInTimeCanBeVotedOnBeforeItsRoundCanClose() external {
        Terms memory t = aTerms();
        t.classId = classes.register(conditionsOf(t));
        (t.minShards, t.stragglerTime) = (1, 4 * t.voteTime + 3 + 1); // three blocks for its seed, and leastTime
        classes.check(t);
        --t.stragglerTime;
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, "stragglerTime"));
        classes.check(t);
        t.minShards = t.shards; // no round is closed without a task
        classes.check(t);
    }

    /// @notice The worst conditions that a class can have: nobody who has not subscribed to them is drawn, so the tally that
    /// burnt 3,000 of 3,000 tokens takes nothing, and the claim still ends.
    function test_R1_termsThatNobodyHasAgreedToTakeNothingFromAnybody() external {
        Terms memory t = aTerms();
        (t.voteTime, t.moveTime) = (5, 5);
        (t.verifiers, t.verifierStake, t.missPenalty, t.challengeBond) = (4, 225 ether, 100 ether, 225 ether);
        t.solverStake = 900 ether;
        uint256[5] memory before = staked();
        Claim memory claim = hostileJob(t);
        assertEq(seedFor(claim).length, 0, "nobody is drawn");
        skip(1000);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(keccak256(abi.encode(staked())), keccak256(abi.encode(before)), "nothing is taken");
        assertEq(vault.burnt(), 0);
    }

    /// @notice And of who has: missPenalty of what was locked when the seat was taken, per seat, whatever else it holds.
    function test_R1_whoHasAgreedLosesTheLockedPenaltyAndNoMore() external {
        Terms memory t = aTerms();
        t.voteTime = 5;
        (t.verifierStake, t.missPenalty) = (30 ether, 15 ether);
        postJob(t);
        holdShards();
        Claim memory claim = commitTask(0, 0);
        uint256 drawn = seedFor(claim).length;
        while (statusOf(claim).phase == Phase.SEEDED) {
            skip(11);
            tasks.tally(claim);
        }
        assertLe(vault.burnt(), 8 * 15 ether, "every seat that a claim can have");
        assertEq(vault.burnt(), drawnOf(claim).length * 15 ether);
        assertGe(drawnOf(claim).length, drawn);
    }

    function test_R2_aMoveOfASecondIsNoClass() external {
        Conditions memory c = some();
        c.moveTime = 1;
        refused(c, "moveTime");
        c.moveTime = type(uint64).max;
        refused(c, "moveTime");
    }

    function test_R3_aWindowOfACenturyIsNoClass() external {
        Conditions memory c = some();
        c.challengeWindow = type(uint32).max;
        refused(c, "challengeWindow");
        c.challengeWindow = 1;
        refused(c, "challengeWindow");
    }

    /// @notice A seed of a block that may not be there any more, or that its solver knows, is no class's.
    function test_aJobHasAsManySlicesAsThereCanBeAndNoMore() external {
        Terms memory t = aTerms();
        (t.outerFee, t.nonce) = (0, 1);
        shapeSliced(t, 1024, 1024, SHARDS, 1024);
        classes.check(t);
        shapeSliced(t, 1025, 1025, SHARDS, 1025);
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, "slices"));
        classes.check(t);
    }

    function test_aClassThatNobodyHasRegisteredIsNone() external {
        Terms memory t = aTerms();
        t.classId = "never registered";
        vm.expectRevert(abi.encodeWithSelector(IClasses.NoSuchClass.selector, t.classId));
        vm.prank(client);
        jobs.post(t, 1e5 ether);
    }

    function test_registeringAClassAgainChangesNothingAndItsIdIsItsHash() external {
        Conditions memory c = some();
        bytes32 class = classes.register(c);
        assertEq(class, keccak256(abi.encode(c)));
        vm.prank(stranger);
        assertEq(classes.register(c), class);
        assertEq(keccak256(abi.encode(classes.conditions(class))), class);
    }

    function test_R8_moreSamplesSegmentsOrVerifiersThanAVerdictCanLookAtAreNoClass() external {
        Conditions memory c = some();
        c.samples = 9;
        refused(c, "samples");
        c = some();
        c.segments = 257;
        refused(c, "segments");
        c = some();
        c.verifiers = 5;
        refused(c, "verifiers");
    }

    /// @notice At every bound at once: 4 votes of 8 samples each, of 256 segments in 8 loops, the one at fault in the last;
    /// all whose stakes are taken are capped, and another finding is in dispute. Nothing is warm.
    function test_R8_aVerdictIsDeliveredAtTheBounds() external {
        Claim memory claim = atTheBounds();
        assertEq(drawnOf(claim).length, 5);
        uint256 game = gameAt255(whistle, claim);
        gameAt255(stranger, claim);
        chill();
        court.decide(game, true);
        assertLt(vm.snapshotGasLastCall("market", "deliver_at_the_bounds"), VERDICT_GAS);
        assertPhase(claim, Phase.CONVICTED);
        (, address winner) = tasks.reward(idOf(claim));
        assertEq(winner, whistle, "it waits for the other finding");
        assertEq(lost(), 120 ether, "the claimant's alone");
        assertSolvent();
    }

    /// @notice And of a claim that nobody could show a state of, and of a vote.
    function test_R8_aVerdictOnAVoteIsDeliveredAtTheBounds() external {
        Claim memory claim = atTheBounds();
        address verifier = drawnOf(claim)[1];
        bytes32[] memory ends = segmentEnds256(claim);
        Loop[] memory loops = eightLoops();
        uint256 segment = Sampling.segment(statusOf(claim).seed, verifier, 7, loops);
        assertGe(segment, 224, "the last loop's");
        bytes32[] memory traces = stateSlots("eight", 8);
        bytes32 salt = announceAs(whistle, idOf(claim), 7, verifier);
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory traceProof = memberProof(traces, 7);
        vm.prank(whistle);
        uint256 game =
            challenges.openVote(claim, verifier, 7, ends[segment], fromProof, traces[7], traceProof, salt);
        chill();
        court.decide(game, true);
        assertLt(vm.snapshotGasLastCall("market", "deliver_vote_at_the_bounds"), VERDICT_GAS);
        assertEq(statusOf(claim).valid, 3);
    }

    /// @dev A game on the last segment.
    function gameAt255(address who, Claim memory claim) private returns (uint256) {
        if (free(who) < 30 ether) fund(who, 30 ether);
        bytes32[] memory ends = segmentEnds256(claim);
        uint32 segment = 255;
        bytes32 salt = announceAs(who, idOf(claim), segment, address(0));
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory toProof = memberProof(ends, segment + 1);
        vm.prank(who);
        return
            challenges.open(claim, segment, ends[segment], fromProof, ends[segment + 1], toProof, TRUTH, salt);
    }

    function lost() private view returns (uint256 sum) {
        sum = 2000 ether + 3000 ether;
        for (uint256 i; i < solvers.length; ++i) {
            sum -= activeOf(solvers[i], Role.SOLVER);
        }
        for (uint256 i; i < verifiers.length; ++i) {
            sum -= activeOf(verifiers[i], Role.VERIFIER);
        }
    }

    function eightLoops() private pure returns (Loop[] memory loops) {
        loops = new Loop[](8);
        for (uint256 i; i < 8; ++i) {
            loops[i] = Loop(keccak256(abi.encode("inner", i)), 20, 32, 1, 1, 0, 1);
        }
    }

    function sixteenLinks() private pure returns (Link[] memory links) {
        links = new Link[](16);
        for (uint256 i; i < 16; ++i) {
            links[i] = Link(Origin.OUT, Kind.OUTER, 1, 256, 1, 0, 0, NO_SLOT, 1, 1, 0);
        }
    }

    function segmentEnds256(Claim memory claim) private pure returns (bytes32[] memory ends) {
        ends = new bytes32[](257);
        for (uint256 i; i < 257; ++i) {
            ends[i] = keccak256(abi.encode("state", claim.manifest, i));
        }
        (ends[0], ends[256]) = (claim.inputRoot, claim.outputRoot);
    }

    function atTheBounds() private returns (Claim memory claim) {
        Terms memory t = aTerms();
        (t.verifiers, t.samples, t.segments) = (4, 8, 256);
        (t.slots, t.outerSlots) = (4096, 4096);
        (t.loops, t.links, t.outerLinks) = (eightLoops(), sixteenLinks(), sixteenLinks());
        t.solverStake = 120 ether;
        postJob(t);
        for (uint256 i; i < verifiers.length; ++i) {
            vm.prank(verifiers[i]);
            stakes.cap(verifiers[i], Role.VERIFIER, 1e6 ether, 1e6 ether);
        }
        vm.prank(solvers[0]);
        stakes.cap(solvers[0], Role.SOLVER, 1e6 ether, 1e6 ether);
        holdShards();
        claim = draft(Kind.TASK, 0, 0);
        bytes32[] memory ends = segmentEnds256(claim);
        claim.segmentsRoot = Merkle.root(segmentEnds256(claim));
        (claim.claimant, claim.price) = (solvers[0], 10 ether);
        claim.committedAt = u64(vm.getBlockTimestamp());
        vm.prank(solvers[0]);
        assertEq(tasks.commit(claim, ends), idOf(claim));
        address[] memory drawn = seedFor(claim);
        abstainAs(drawn[0], claim);
        castEight(claim, 1);
        tasks.tally(claim);
        castEight(claim, 4);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(statusOf(claim).valid, 4);
    }

    function castEight(Claim memory claim, uint256 first) private {
        address[] memory drawn = drawnOf(claim);
        bytes32 seed_ = statusOf(claim).seed;
        for (uint256 i = first; i < drawn.length; ++i) {
            vm.prank(drawn[i]);
            tasks.vote(idOf(claim), seed_, true, stateSlots("eight", 8));
        }
    }
}

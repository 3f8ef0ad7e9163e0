// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IStakes} from "../../src/interfaces/IStakes.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Accused, Claim, ClaimStatus, Kind, Phase, Role, Terms, Vote} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Vm} from "../Vm.sol";
import {Market} from "./Market.sol";

/// @notice Shards, commits, votes and settlement: every rule, every error.
contract TasksTest is Market {
    function setUp() external {
        setUpMarket();
        postJob(aTerms());
    }

    // Shards

    /// @dev A job whose price has somewhere to rise to.
    function postWithARange() private {
        Terms memory t = aTerms();
        (t.priceCap, t.solverStake, t.nonce) = (20 ether, 150 ether, 1);
        postJob(t);
    }

    function test_thePriceRisesFromFloorToCapAndStaysThere() external {
        postWithARange();
        assertEq(tasks.price(jobId, 0), 10 ether);
        skip(301);
        assertEq(tasks.price(jobId, 0), 10 ether + 10 ether * uint256(301) / 600);
        skip(1e6);
        assertEq(tasks.price(jobId, 0), 20 ether);
        takeAs(solvers[0], 0);
        skip(10);
        assertEq(tasks.price(jobId, 0), 20 ether, "agreed");
        assertEq(tasks.price(jobId, 1), 20 ether);
        (address solver, uint128 agreed, uint64 since) = tasks.holder(jobId, 0);
        assertEq(solver, solvers[0]);
        assertEq(agreed, 20 ether);
        assertEq(since, vm.getBlockTimestamp() - 10);
    }

    function test_aShardHasOneHolder() external {
        holdShards();
        vm.expectRevert(abi.encodeWithSelector(ITasks.ShardTaken.selector, solvers[0]));
        takeAs(solvers[1], 0);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotHolder.selector, solvers[0]));
        releaseAs(solvers[1], 0);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NoSuchShard.selector, 2));
        takeAs(solvers[1], 2);
        bytes32 absent = "no job";
        vm.expectRevert(abi.encodeWithSelector(ITasks.NoSuchJob.selector, absent));
        tasks.takeShard(absent, 0, 0);
    }

    function test_aShardNeedsUnlockedStake() external {
        vm.prank(address(tasks));
        stakes.lock(solvers[0], Role.SOLVER, 894 ether, client);
        vm.expectRevert(
            abi.encodeWithSelector(
                IStakes.InsufficientStake.selector, solvers[0], Role.SOLVER, 107 ether, 106 ether
            )
        );
        takeAs(solvers[0], 0);
    }

    function test_R10_aHeldShardHasItsPenaltyLocked() external {
        holdShards();
        assertEq(lockedOf(solvers[0], Role.SOLVER), 7 ether);
        vm.prank(address(tasks)); // all that is left, for other jobs
        stakes.lock(solvers[0], Role.SOLVER, 993 ether, client);
        skip(1001);
        tasks.expire(jobId, 0);
        assertEq(activeOf(solvers[0], Role.SOLVER), 993 ether, "and it is there when the deadline is missed");
        assertEq(lockedOf(solvers[0], Role.SOLVER), 993 ether);
        assertEq(vault.burnt(), 7 ether);
    }

    function test_releaseIsFreeWhenNothingIsOwed() external {
        postWithARange();
        holdShards();
        commitTask(0, 0);
        releaseAs(solvers[0], 0);
        assertEq(lockedOf(solvers[0], Role.SOLVER), 150 ether, "the claim's alone");
        assertEq(activeOf(solvers[0], Role.SOLVER), 1000 ether);
        (address solver,,) = tasks.holder(jobId, 0);
        assertEq(solver, address(0));
        skip(60);
        assertEq(tasks.price(jobId, 0), 11 ether, "the price starts over");
    }

    function test_releaseOfAnOwedTaskCostsThePenalty() external {
        holdShards();
        releaseAs(solvers[0], 0);
        assertEq(activeOf(solvers[0], Role.SOLVER), 993 ether);
        assertEq(vault.burnt(), 7 ether);
        assertSolvent();
    }

    function test_aMissedDeadlineCostsThePenaltyAndTheShard() external {
        holdShards();
        commitTask(0, 1);
        uint64 deadline = u64(vm.getBlockTimestamp()) + 1000;
        skip(1000);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, deadline + 1));
        tasks.expire(jobId, 0);
        skip(1);
        refuseCommit(
            solvers[0], draft(Kind.TASK, 0, 0), abi.encodeWithSelector(ITasks.TooLate.selector, deadline)
        );
        tasks.expire(jobId, 0);
        assertEq(activeOf(solvers[0], Role.SOLVER), 993 ether);
        assertEq(vault.burnt(), 7 ether);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotHolder.selector, address(0)));
        tasks.expire(jobId, 0);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, deadline + 1));
        tasks.expire(jobId, 1);
    }

    // Commits

    function test_aCommitNamesTheRightRoundShardAndInput() external {
        holdShards();
        refuseCommit(
            solvers[0], draft(Kind.TASK, 1, 0), abi.encodeWithSelector(ITasks.WrongRound.selector, 0, 1)
        );
        refuseCommit(
            solvers[0], draft(Kind.TASK, 0, 1), abi.encodeWithSelector(ITasks.NotHolder.selector, solvers[1])
        );
        Claim memory claim = draft(Kind.TASK, 0, 0);
        bytes32 genesis = claim.inputRoot;
        claim.inputRoot = "elsewhere";
        refuseCommit(
            solvers[0], claim, abi.encodeWithSelector(ITasks.WrongInput.selector, genesis, claim.inputRoot)
        );
        claim.jobId = "no job";
        refuseCommit(solvers[0], claim, abi.encodeWithSelector(ITasks.NoSuchJob.selector, claim.jobId));
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 0), abi.encodeWithSelector(ITasks.RoundIncomplete.selector, 0, 2)
        );
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 1, 0), abi.encodeWithSelector(ITasks.WrongRound.selector, 0, 1)
        );
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 1), abi.encodeWithSelector(ITasks.NoSuchShard.selector, 1)
        );
    }

    function rootOf(bytes32[] memory digests) private view returns (bytes32) {
        bytes32[] memory copy = new bytes32[](digests.length);
        for (uint256 i; i < copy.length; ++i) {
            copy[i] = digests[i];
        }
        return Merkle.root(copy);
    }

    function test_aPlaceIsClaimedOnce() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        refuseCommit(
            solvers[0],
            draft(Kind.TASK, 0, 0),
            abi.encodeWithSelector(ITasks.PlaceTaken.selector, idOf(claim))
        );
        assertEq(tasks.current(jobId, Kind.TASK, 0, 0), idOf(claim));
        assertEq(tasks.current(jobId, Kind.TASK, 0, 1), 0);
    }

    function test_Attack38_rootsThatDoNotLeadFromInputToOutputAreRefused() external {
        holdShards();
        Claim memory claim = draft(Kind.TASK, 0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory fewer = new bytes32[](SEGMENTS);
        bytes32[] memory more = new bytes32[](SEGMENTS + 2);
        for (uint256 i; i < SEGMENTS; ++i) {
            (fewer[i], more[i]) = (ends[i], ends[i]);
        }
        (fewer[SEGMENTS - 1], more[SEGMENTS], more[SEGMENTS + 1]) =
        (claim.outputRoot, claim.outputRoot, claim.outputRoot);
        refuseRoots(claim, fewer);
        refuseRoots(claim, more);
        refuseRoots(claim, new bytes32[](0));
        (ends[0], ends[1]) = (ends[1], ends[0]);
        refuseRoots(claim, ends);
        ends = segmentEnds(claim);
        (ends[SEGMENTS], ends[1]) = (ends[1], ends[SEGMENTS]);
        refuseRoots(claim, ends);
    }

    function refuseRoots(Claim memory claim, bytes32[] memory roots) private {
        vm.expectRevert(ITasks.BadSegments.selector);
        vm.prank(solvers[0]);
        tasks.commit(claim, roots);
    }

    /// @notice Nobody has to be asked for the roots inside a claim: they are logged, and segmentsRoot is made of them.
    function test_Attack33_theRootsOfAClaimAreOnChain() external {
        holdShards();
        Claim memory claim = draft(Kind.TASK, 0, 0);
        claim.segmentsRoot = "hidden";
        bytes32[] memory ends = segmentEnds(claim);
        (Claim memory committed, bytes32[] memory logged) = commitAs(solvers[0], claim, ends);
        assertEq(keccak256(abi.encode(logged)), keccak256(abi.encode(ends)), "logged roots");
        assertEq(committed.segmentsRoot, rootOf(ends));
        assertPhase(committed, Phase.COMMITTED);
    }

    /// @notice A quorum of the solver's own vouches for a claim of which nothing was ever published. What the log holds is
    /// enough to dispute any segment of it, and after that each vote.
    function test_Attack34_aClaimOfWhichNothingIsPublishedFallsAndThenItsQuorum() external {
        holdShards();
        Claim memory claim = draft(Kind.TASK, 0, 0);
        bytes32[] memory roots;
        (claim, roots) = commitAs(solvers[0], claim, segmentEnds(claim));
        address[] memory drawn = accept(claim);
        bytes32 salt = announceAs(whistle, idOf(claim), 1, address(0));
        bytes32[] memory fromProof = memberProof(roots, 1);
        bytes32[] memory toProof = memberProof(roots, 2);
        vm.prank(whistle);
        uint256 id = challenges.open(claim, 1, roots[1], fromProof, roots[2], toProof, TRUTH, salt);
        uint256 staked = activeOf(solvers[0], Role.SOLVER);
        court.decide(id, true);
        assertPhase(claim, Phase.CONVICTED);
        assertEq(staked - activeOf(solvers[0], Role.SOLVER), 100 ether);
        for (uint256 i; i < 3; ++i) {
            staked = activeOf(drawn[i], Role.VERIFIER);
            assertEq(lockedOf(drawn[i], Role.VERIFIER), 30 ether, "it answers for itself");
            court.decide(openVoteAs(whistle, claim, drawn[i], 0), true);
            assertEq(staked - activeOf(drawn[i], Role.VERIFIER), 30 ether);
        }
        skip(501);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NoSeats.selector, idOf(claim)));
        tasks.freeSeats(claim);
        assertSolvent();
    }

    function commitAs(address claimant, Claim memory claim, bytes32[] memory roots)
        private
        returns (Claim memory committed, bytes32[] memory logged)
    {
        vm.recordLogs();
        vm.prank(claimant);
        tasks.commit(claim, roots);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] != ITasks.Committed.selector) continue;
            (committed, logged,) = abi.decode(logs[i].data, (Claim, bytes32[], uint64));
        }
    }

    function test_Attack36_aTaskCopiedFromTheMempoolIsNotTheCopiersToCommit() external {
        holdShards();
        Claim memory claim = draft(Kind.TASK, 0, 0);
        refuseCommit(stranger, claim, abi.encodeWithSelector(ITasks.NotHolder.selector, solvers[0]));
        Claim memory committed = submit(solvers[0], claim);
        assertEq(committed.claimant, solvers[0]);
    }

    /// @notice The leaves below a vote are logged, and there is one for each sample: every one can be disputed.
    function test_Attack09_aVoteShowsEveryTraceItAttests() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        bytes32[] memory traces = tracesOf(drawn[0]);
        bytes32 root = rootOf(traces);
        bytes32[] memory hidden = new bytes32[](1);
        hidden[0] = root; // a tree of one leaf with the same root
        refuseVote(drawn[0], claim, true, hidden);
        refuseVote(drawn[0], claim, true, new bytes32[](0));
        refuseVote(drawn[0], claim, true, new bytes32[](3));
        refuseVote(drawn[2], claim, false, traces);
        vm.expectEmit(true, true, true, true);
        emit ITasks.VoteShown(idOf(claim), drawn[0], true, traces);
        voteAs(drawn[0], claim, true);
        voteAs(drawn[2], claim, false);
        Vote[] memory cast = tasks.votes(idOf(claim));
        assertEq(cast[0].tracesRoot, root);
        assertEq(cast[2].tracesRoot, 0);
        assertEq(statusOf(claim).shown, 2);
    }

    function refuseVote(address verifier, Claim memory claim, bool valid, bytes32[] memory traces) private {
        bytes32 seed_ = statusOf(claim).seed;
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongTraces.selector, 2));
        vm.prank(verifier);
        tasks.vote(idOf(claim), seed_, valid, traces);
    }

    function test_aClaimCountsOnlyAsItWasCommitted() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        claim.claimant = stranger;
        bytes memory refusal = abi.encodeWithSelector(ITasks.WrongClaim.selector, idOf(claim));
        vm.expectRevert(refusal);
        tasks.recordSeed(claim, "");
        bytes32 seed_ = statusOf(claim).seed;
        vm.expectRevert(refusal);
        tasks.vote(idOf(claim), seed_, true, new bytes32[](0));
        vm.expectRevert(refusal);
        tasks.tally(claim);
        vm.expectRevert(refusal);
        tasks.settle(claim);
        vm.expectRevert(refusal);
        tasks.void(claim);
        vm.expectRevert(refusal);
        tasks.freeSeats(claim);
    }

    function test_thePipelineStopsUntilTheOldestRoundIsSettled() external {
        holdShards();
        Claim[] memory first = playRound(0);
        playRound(1);
        refuseCommit(
            solvers[0], draft(Kind.TASK, 2, 0), abi.encodeWithSelector(ITasks.PipelineFull.selector, 2, 0)
        );
        skip(2000);
        (address solver,,) = tasks.holder(jobId, 0);
        vm.expectPartialRevert(ITasks.NotDue.selector);
        tasks.expire(jobId, 0);
        settleAll(first);
        assertEq(
            jobs.progress(jobId).roundStart, vm.getBlockTimestamp(), "the clock starts when it can go on"
        );
        assertEq(commitTask(2, 0).claimant, solver);
    }

    function test_theFirstSeatIsFinedAloneWhereItAloneIsSilent() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        voteAs(drawn[1], claim, true);
        voteAs(drawn[2], claim, true);
        skip(75);
        tasks.tally(claim);
        assertEq(vault.burnt(), 7 ether);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0);
    }

    function test_theAttemptsAtAPlaceAreNumbered() external {
        holdShards();
        for (uint256 i; i < 3; ++i) {
            Claim memory claim = commitTask(0, 0);
            assertEq(claim.attempt, i);
            convictByGame(claim);
            takeAs(solvers[0], 0);
        }
    }

    function test_aPipelineWithRoomKeepsItsRoundsClock() external {
        Terms memory t = aTerms();
        (t.maxUnsettled, t.solverStake, t.nonce) = (3, 179 ether, 1);
        postJob(t);
        holdShards();
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        uint64 start = jobs.progress(jobId).roundStart;
        settleAll(first);
        settleAll(second);
        assertEq(jobs.progress(jobId).roundStart, start);
    }

    // Draws

    function test_aClaimantThatTheSeedDrawsIsPassedOver() external {
        holdShards();
        bytes32 class = aTerms().classId;
        vm.prank(solvers[0]);
        stakes.subscribe(class);
        stakeAs(solvers[0], Role.VERIFIER, 50_000 ether);
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        assertEq(drawn.length, 3, "the next in line takes the place");
        for (uint256 i; i < drawn.length; ++i) {
            assertTrue(drawn[i] != solvers[0]);
        }
        assertEq(
            stakes.draw(aTerms().classId, statusOf(claim).seed, 1)[0],
            solvers[0],
            "the seed did draw the claimant"
        );
    }

    function test_Attack28_aSecondAttemptWithANewSaltGetsASeedThatNobodyKnewBefore() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        refuseCommit(
            solvers[0],
            draft(Kind.TASK, 0, 0),
            abi.encodeWithSelector(ITasks.PlaceTaken.selector, idOf(claim))
        );
        releaseAs(solvers[0], 0);
        takeAs(solvers[0], 0);
        refuseCommit(
            solvers[0],
            draft(Kind.TASK, 0, 0),
            abi.encodeWithSelector(ITasks.PlaceTaken.selector, idOf(claim))
        );
        assertGt(statusOf(claim).seedBlock, vm.getBlockNumber() - 1);
    }

    // Votes

    function test_onlyTheDrawnVoteOnceAndInTime() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        bytes32[] memory none = new bytes32[](0);
        bytes32 seed_ = statusOf(claim).seed;
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDrawn.selector, stranger));
        vm.prank(stranger);
        tasks.vote(idOf(claim), seed_, false, none);
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongClaim.selector, bytes32("no claim")));
        vm.prank(drawn[0]);
        tasks.vote("no claim", seed_, false, none);
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongSeed.selector, seed_));
        vm.prank(drawn[0]);
        tasks.vote(idOf(claim), "of another branch of the chain", false, none);
        voteAs(drawn[0], claim, true);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 30 ether);
        vm.expectRevert(abi.encodeWithSelector(ITasks.AlreadyVoted.selector, drawn[0]));
        vm.prank(drawn[0]);
        tasks.vote(idOf(claim), seed_, false, none);
        uint64 end = u64(vm.getBlockTimestamp()) + 74;
        vm.warp(end);
        voteAs(drawn[1], claim, true);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, end + 1));
        tasks.tally(claim);
        vm.warp(end + 1);
        vm.expectRevert(abi.encodeWithSelector(ITasks.TooLate.selector, end));
        vm.prank(drawn[2]);
        tasks.vote(idOf(claim), seed_, false, none);
        tasks.tally(claim);
    }

    function test_votesAreShownAsTheyStand() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        voteAs(drawn[0], claim, true);
        voteAs(drawn[1], claim, false);
        Vote[] memory cast = tasks.votes(idOf(claim));
        assertTrue(cast[0].shown && cast[0].valid, "valid");
        assertTrue(cast[1].shown && !cast[1].valid, "invalid");
        assertFalse(cast[2].shown, "not yet");
        assertEq(cast[0].tracesRoot, rootOf(tracesOf(drawn[0])));
        assertEq(cast[2].tracesRoot, 0);
        ClaimStatus memory st = statusOf(claim);
        assertEq(st.shown, 2);
        assertEq(st.valid, 1);
    }

    /// @dev Seats of the claim from the `first` on vote valid.
    function voteFrom(Claim memory claim, uint256 first) private {
        address[] memory drawn = drawnOf(claim);
        for (uint256 i = first; i < drawn.length; ++i) {
            voteAs(drawn[i], claim, true);
        }
    }

    function test_Attack32_whoLeavesASeatWithoutAVotePaysAndOthersAreCalledFromTheSameSeed() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        bytes32 seed = statusOf(claim).seed;
        uint256[3] memory staked = stakesOf(drawn);
        for (uint256 i; i < 3; ++i) {
            assertEq(lockedOf(drawn[i], Role.VERIFIER), 30 ether, "locked by the draw");
        }
        voteAs(drawn[1], claim, true);
        skip(76);
        tasks.tally(claim);
        assertPhase(claim, Phase.SEEDED);
        assertEq(activeOf(drawn[1], Role.VERIFIER), staked[1], "voted");
        assertEq(activeOf(drawn[0], Role.VERIFIER), staked[0] - 7 ether, "drawn, and silent");
        assertEq(activeOf(drawn[2], Role.VERIFIER), staked[2] - 7 ether, "the same");
        assertEq(vault.burnt(), 14 ether);
        assertEq(lockedOf(drawn[0], Role.VERIFIER) + lockedOf(drawn[2], Role.VERIFIER), 0);
        assertEq(lockedOf(drawn[1], Role.VERIFIER), 30 ether, "its vote stands");
        assertEq(statusOf(claim).seed, seed, "one seed a claim");
        assertEq(drawnOf(claim).length, 5);
        bytes32 seed_ = statusOf(claim).seed;
        vm.expectRevert(abi.encodeWithSelector(ITasks.AlreadyVoted.selector, drawn[2]));
        vm.prank(drawn[2]);
        tasks.vote(idOf(claim), seed_, false, new bytes32[](0));
        voteFrom(claim, 3);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(statusOf(claim).valid, 3, "attested");
        assertSolvent();
    }

    /// @notice A job whose files nobody can have, or whose sizes are not as declared: the drawn abstain, and lose nothing. The
    /// solver loses nothing by it either: its claim is accepted unattested.
    function test_R5_whoAbstainsLosesNothingAndTheClaimGoesOn() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        uint256 seats;
        while (statusOf(claim).phase == Phase.SEEDED) {
            address[] memory drawn = drawnOf(claim);
            for (; seats < drawn.length; ++seats) {
                uint256 staked = activeOf(drawn[seats], Role.VERIFIER);
                abstainAs(drawn[seats], claim);
                assertEq(activeOf(drawn[seats], Role.VERIFIER), staked);
                assertEq(lockedOf(drawn[seats], Role.VERIFIER), 0, "free at once");
                assertTrue(tasks.votes(idOf(claim))[seats].gone);
            }
            tasks.tally(claim); // at once: nobody is waited for
        }
        assertEq(seats, 5, "everybody was called");
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(vault.burnt(), 0);
        Claim memory other = acceptedTask(0, 1);
        skip(501);
        tasks.settle(other);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, statusOf(claim).since + 1001));
        tasks.settle(claim);
        skip(500);
        uint256 before = free(solvers[0]);
        tasks.settle(claim);
        assertEq(free(solvers[0]) - before, claim.price, "paid all the same");
        assertEq(lockedOf(solvers[0], Role.SOLVER), 7 ether);
        assertSolvent();
    }

    /// @notice Conditions nobody can meet lock nobody: a solver's claim ends by the clock whatever the drawn do.
    function test_R4_silenceEndsAfterThreeCallsAndTheSolverIsPaid() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        uint256 tallies;
        while (statusOf(claim).phase == Phase.SEEDED) {
            skip(201);
            tasks.tally(claim);
            ++tallies;
        }
        assertLt(tallies, 5);
        assertEq(vault.burnt(), drawnOf(claim).length * 7 ether, "each missPenalty, and no more");
        acceptedTask(0, 1);
        skip(1001);
        tasks.settle(claim);
        assertPhase(claim, Phase.SETTLED);
    }

    /// @dev The numbers of the first four seats stand beside the seed, those of the others in a word of their own.
    function test_whoIsCalledToTheLastSeatsVotesAndIsPaid() external {
        moreVerifiers(30);
        holdShards();
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        bytes32 seed = statusOf(claim).seed;
        for (uint256 i; i < 2; ++i) {
            skip(201);
            tasks.tally(claim);
        }
        address[] memory drawn = drawnOf(claim);
        assertEq(drawn.length, 8);
        assertEq(statusOf(claim).seed, seed);
        for (uint256 i = 3; i < 8; i += 2) {
            assertEq(lockedOf(drawn[i], Role.VERIFIER), i < 6 ? 0 : 30 ether);
        }
        (uint256 before, uint256 other) = (free(drawn[7]), free(drawn[4]));
        voteAs(drawn[7], claim, true);
        voteAs(drawn[6], claim, true);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        acceptedTask(0, 1);
        skip(1001);
        tasks.settle(claim);
        assertEq(free(drawn[7]) - before, 1 ether, "paid");
        assertEq(free(drawn[4]), other, "who was silent is not");
        assertEq(lockedOf(drawn[6], Role.VERIFIER), 0);
    }

    function test_votesHaveTheWholeOfTheLongestTime() external {
        Terms memory t = aTerms();
        t.voteTime = 10 hours;
        postJob(t);
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        skip(10 hours);
        voteAs(drawn[0], claim, true);
        bytes32 seed_ = statusOf(claim).seed;
        skip(1);
        bytes memory late = abi.encodeWithSelector(ITasks.TooLate.selector, vm.getBlockTimestamp() - 1);
        vm.expectRevert(late);
        vm.prank(drawn[2]);
        tasks.vote(idOf(claim), seed_, false, new bytes32[](0));
        vm.expectRevert(late);
        abstainAs(drawn[2], claim);
    }

    function test_seatsAreCalledThreeTimesAndEightInAll() external {
        moreVerifiers(30);
        holdShards();
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        uint8[3] memory seats = [3, 6, 8];
        for (uint256 i; i < 3; ++i) {
            assertEq(drawnOf(claim).length, seats[i]);
            skip(201);
            tasks.tally(claim);
        }
        assertPhase(claim, Phase.ACCEPTED);
        address[] memory drawn = drawnOf(claim);
        for (uint256 i; i < 8; ++i) {
            for (uint256 j; j < i; ++j) {
                assertTrue(drawn[i] != drawn[j], "nobody twice");
            }
        }
    }

    /// @notice Where one seat is called at a time, the calls end before the seats do.
    function test_aSingleSeatIsCalledThreeTimesAndNoMore() external {
        Terms memory t = aTerms();
        (t.verifiers, t.nonce) = (1, 1);
        postJob(t);
        holdShards();
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        for (uint256 calls; calls < 3; ++calls) {
            assertEq(statusOf(claim).calls, calls);
            skip(75);
            tasks.tally(claim);
            assertPhase(claim, Phase.SEEDED);
        }
        assertEq(drawnOf(claim).length, 4);
        skip(75);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(drawnOf(claim).length, 4);
    }

    /// @dev Of three, the first calls the claim valid and the others do not.
    function split(Claim memory claim) private returns (address[] memory drawn) {
        drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            voteAs(drawn[i], claim, i == 0);
        }
    }

    function stakesOf(address[] memory drawn) private view returns (uint256[3] memory staked) {
        for (uint256 i; i < 3; ++i) {
            staked[i] = activeOf(drawn[i], Role.VERIFIER);
        }
    }

    function test_votesDecideAboutNobodyElsesMoneyAndAFalseInvalidOnePaysAtSettlement() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = split(claim);
        uint256[3] memory staked = stakesOf(drawn);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(vault.burnt(), 0, "nobody knows yet");
        acceptedTask(0, 1);
        skip(1001);
        uint256 before = free(solvers[0]);
        tasks.settle(claim);
        assertEq(free(solvers[0]) - before, claim.price);
        assertEq(vault.burnt(), 14 ether);
        for (uint256 i; i < 3; ++i) {
            assertEq(staked[i] - activeOf(drawn[i], Role.VERIFIER), i == 0 ? 0 : 7 ether);
        }
        assertSolvent();
    }

    function test_anInvalidVoteOnAClaimThatFallsIsPaid() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = split(claim);
        uint256[3] memory staked = stakesOf(drawn);
        tasks.tally(claim);
        court.decide(challengeAs(whistle, claim, 1), true);
        assertPhase(claim, Phase.CONVICTED);
        skip(501);
        uint256[3] memory before = [free(drawn[0]), free(drawn[1]), free(drawn[2])];
        tasks.freeSeats(claim);
        for (uint256 i; i < 3; ++i) {
            assertEq(lockedOf(drawn[i], Role.VERIFIER), 0);
            assertEq(activeOf(drawn[i], Role.VERIFIER), staked[i]);
            assertEq(free(drawn[i]) - before[i], 1 ether, "valid or not: it stands");
        }
        assertEq(free(address(tasks)), 0);
        assertSolvent();
    }

    /// @notice Whatever games are open, on the claim or on a friend's vote, and whatever becomes of them: one that was wrong pays.
    function test_A8_noGameShieldsAFalseInvalidVote() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = split(claim);
        uint256[3] memory staked = stakesOf(drawn);
        uint256 vote_ = openVoteAs(whistle, claim, drawn[0], 0);
        uint256 game = challengeAs(whistle, claim, 1);
        tasks.tally(claim);
        court.decide(game, false);
        court.decide(vote_, false);
        acceptedTask(0, 1);
        skip(1001);
        tasks.settle(claim);
        for (uint256 i; i < 3; ++i) {
            assertEq(staked[i] - activeOf(drawn[i], Role.VERIFIER), i == 0 ? 0 : 7 ether);
        }
    }

    function test_aTallyWaitsForEverySeatUntilTimeIsUp() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        uint64 since = statusOf(claim).since;
        voteAs(drawn[0], claim, true);
        voteAs(drawn[1], claim, true);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, since + 75));
        tasks.tally(claim);
        voteAs(drawn[2], claim, true);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(statusOf(claim).valid, 3);
    }

    // Settlement

    function test_settlementKeepsTheOrderOfPlaces() external {
        holdShards();
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        uint64 due = statusOf(second[0]).since + 501;
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, due));
        tasks.settle(second[0]);
        skip(501);
        vm.expectRevert(ITasks.EarlierUnsettled.selector);
        tasks.settle(second[0]);
        vm.expectRevert(ITasks.EarlierUnsettled.selector);
        tasks.settle(first[2]);
        tasks.settle(first[1]);
        vm.expectRevert(ITasks.EarlierUnsettled.selector);
        tasks.settle(first[2]);
        tasks.settle(first[0]);
        vm.expectRevert(ITasks.EarlierUnsettled.selector);
        tasks.settle(second[0]);
        tasks.settle(first[2]);
        tasks.settle(second[0]);
        assertEq(jobs.progress(jobId).settledRounds, 1);
    }

    function test_Attack39_noStepIsRepeatedOrSkipped() external {
        holdShards();
        Claim memory claim = commitTask(0, 0);
        assertPhase(claim, Phase.COMMITTED);
        bytes memory refusal = abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.COMMITTED);
        bytes32 seed_ = statusOf(claim).seed;
        vm.expectRevert(refusal);
        tasks.vote(idOf(claim), seed_, true, new bytes32[](0));
        vm.expectRevert(refusal);
        tasks.tally(claim);
        vm.expectRevert(refusal);
        tasks.settle(claim);
        vm.expectRevert(ITasks.NotStale.selector);
        tasks.void(claim);
        accept(claim);
        refusal = abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.ACCEPTED);
        vm.expectRevert(refusal);
        tasks.recordSeed(claim, "");
        vm.expectRevert(refusal);
        tasks.vote(idOf(claim), seed_, true, new bytes32[](0));
        vm.expectRevert(refusal);
        tasks.tally(claim);
        acceptedTask(0, 1);
        skip(501);
        tasks.settle(claim);
        refusal = abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.SETTLED);
        vm.expectRevert(refusal);
        tasks.settle(claim);
        vm.expectRevert(refusal);
        tasks.void(claim);
        vm.expectRevert(refusal);
        tasks.tally(claim);
    }

    function test_onlyChallengesConvicts() external {
        Claim memory claim;
        Accused memory nobody;
        bytes memory refusal = abi.encodeWithSelector(ITasks.NotModule.selector, address(this));
        vm.expectRevert(refusal);
        tasks.gameOpened(claim, false);
        vm.expectRevert(refusal);
        tasks.voteGameOpened(claim, stranger, 0);
        vm.expectRevert(refusal);
        tasks.gameClosed(0, nobody, stranger, false, true);
        vm.expectRevert(refusal);
        tasks.voteGameClosed(0, nobody, 0, stranger, true);
        vm.expectRevert(refusal);
        tasks.convict(claim, stranger, true);
        vm.expectRevert(refusal);
        tasks.convictVote(claim, stranger, 0, stranger);
        (bool done, bytes memory answer) = address(tasks).call("none");
        assertFalse(done);
        assertEq(answer, abi.encodeWithSelector(ITasks.NoSuchFunction.selector, bytes4("none")));
    }
}

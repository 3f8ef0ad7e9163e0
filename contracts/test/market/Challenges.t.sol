// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Game} from "../../src/interfaces/ICourt.sol";
import {IChallenges, ITasks, IVault} from "../../src/interfaces/IMarket.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Market} from "./Market.sol";

/// @notice Games on claims and on votes, bindings, convictions, rewinds and compensation.
contract ChallengesTest is Market {
    Claim private none;

    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
    }

    // Opening

    function test_aGameCarriesTheClaimsSegment() external {
        Claim memory claim = acceptedTask(0, 1);
        bytes32[] memory ends = segmentEnds(claim);
        uint256 before = free(whistle);
        Game memory game = court.game(challengeAs(whistle, claim, 2));
        Terms memory t = aTerms();
        assertEq(game.claimId, idOf(claim));
        assertEq(game.challenger, whistle);
        assertEq(game.defender, solvers[1]);
        assertEq(game.program.root, t.inner.root);
        assertEq(game.datasetRoot, t.datasetRoot);
        assertEq(game.seed, t.seed);
        assertEq(game.records, t.records);
        assertEq(game.recordSize, t.recordSize);
        assertEq(game.shard, 1);
        assertEq(game.key, 0);
        assertEq(game.step, 4);
        assertEq(game.steps, 2);
        assertEq(game.inRoot, ends[2]);
        assertEq(game.outRoot, ends[3]);
        assertEq(game.moveTime, 60);
        assertEq(before - free(whistle), 30 ether);
        assertEq(statusOf(claim).openGames, 1);
    }

    function test_aGameOnAnOuterClaimIsOneStepOfTheOuterProgram() external {
        Claim[] memory claims = playRound(0);
        Claim[] memory next = playRound(1);
        Game memory game = court.game(challengeAs(whistle, next[2], 0));
        assertEq(game.program.root, aTerms().outer.root);
        assertEq(game.steps, 1);
        assertEq(game.step, 1);
        assertEq(game.shard, 0);
        assertEq(game.inRoot, next[2].inputRoot);
        assertEq(game.outRoot, next[2].outputRoot);
        assertPhase(claims[2], Phase.ACCEPTED);
    }

    function test_aChallengeIsAnnouncedABlockBefore() external {
        Claim memory claim = commitTask(0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory first = memberProof(ends, 0);
        bytes32[] memory second = memberProof(ends, 1);
        bytes32 commitment = keccak256(abi.encode(whistle, idOf(claim), uint32(0), address(0), bytes32("salt")));
        vm.startPrank(whistle);
        vm.expectRevert(abi.encodeWithSelector(IChallenges.NotAnnounced.selector, commitment));
        challenges.open(claim, 0, ends[0], first, ends[1], second, "salt");
        challenges.announce(commitment);
        uint64 announced = uint64(vm.getBlockNumber());
        vm.expectRevert(abi.encodeWithSelector(IChallenges.TooSoon.selector, announced));
        challenges.open(claim, 0, ends[0], first, ends[1], second, "salt");
        vm.stopPrank();
        vm.roll(announced + 1);
        vm.prank(stranger);
        challenges.announce(commitment);
        assertEq(challenges.announcedAt(commitment), announced, "a copy does not set the clock back");
        vm.startPrank(whistle);
        challenges.open(claim, 0, ends[0], first, ends[1], second, "salt");
        vm.expectRevert(abi.encodeWithSelector(IChallenges.NotAnnounced.selector, commitment));
        challenges.open(claim, 0, ends[0], first, ends[1], second, "salt");
        vm.stopPrank();
    }

    function test_Attack36_aFindingCopiedFromTheMempoolWasNotAnnouncedByItsCopier() external {
        Claim memory claim = commitTask(0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory first = memberProof(ends, 0);
        bytes32[] memory second = memberProof(ends, 1);
        bytes32 salt = announceAs(whistle, idOf(claim), 0, address(0));
        vm.expectPartialRevert(IChallenges.NotAnnounced.selector);
        vm.prank(stranger);
        challenges.open(claim, 0, ends[0], first, ends[1], second, salt);
    }

    function test_Attack38_wrongSegmentProofsAreRefused() external {
        Claim memory claim = commitTask(0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory first = memberProof(ends, 0);
        bytes32[] memory second = memberProof(ends, 1);
        bytes32[] memory last = memberProof(ends, SEGMENTS);
        bytes32 salt = announceAs(whistle, idOf(claim), 0, address(0));
        bytes32 late = announceAs(whistle, idOf(claim), SEGMENTS, address(0));
        vm.startPrank(whistle);
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.open(claim, 0, ends[1], first, ends[1], second, salt);
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.open(claim, 0, ends[0], first, ends[2], second, salt);
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.open(claim, SEGMENTS, ends[SEGMENTS], last, bytes32(0), last, late);
        vm.stopPrank();
    }

    function test_onlyTheCourtResolves() external {
        vm.expectRevert(abi.encodeWithSelector(IChallenges.NotCourt.selector, stranger));
        vm.prank(stranger);
        challenges.resolve(1, true);
    }

    function test_Attack26_theWindowIsOpenToItsLastSecondAndShutAfterIt() external {
        Claim memory claim = acceptedTask(0, 0);
        acceptedTask(0, 1);
        uint64 end = statusOf(claim).since + 500;
        vm.warp(end);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, end + 1));
        tasks.settle(claim);
        uint256 game = challengeAs(whistle, claim, 0);
        vm.warp(end + 1);
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory first = memberProof(ends, 0);
        bytes32[] memory second = memberProof(ends, 1);
        bytes32 salt = announceAs(whistle, idOf(claim), 0, address(0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.WindowClosed.selector, end));
        vm.prank(whistle);
        challenges.open(claim, 0, ends[0], first, ends[1], second, salt);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        tasks.settle(claim);
        court.decide(game, true);
        assertPhase(claim, Phase.CONVICTED);
    }

    // Verdicts

    function test_aConvictionTakesFromClaimantAndValidVotersAndSplitsExactly() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            commitVoteAs(drawn[i], claim, i != 2);
        }
        for (uint256 i; i < 3; ++i) {
            revealVoteAs(drawn[i], claim, i != 2);
        }
        tasks.tally(claim);
        uint256[3] memory before;
        for (uint256 i; i < 3; ++i) {
            before[i] = activeOf(drawn[i], Role.VERIFIER);
        }
        uint256 rich = free(whistle);
        convictByGame(claim);
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether);
        assertEq(before[0] - activeOf(drawn[0], Role.VERIFIER), 50 ether);
        assertEq(before[1] - activeOf(drawn[1], Role.VERIFIER), 50 ether);
        assertEq(before[2], activeOf(drawn[2], Role.VERIFIER), "voted invalid");
        assertEq(lockedOf(drawn[2], Role.VERIFIER), 0);
        assertEq(vault.burned(), 100 ether, "half of 200");
        assertEq(free(whistle) - rich, 100 ether, "nothing was wasted, so the finder gets the rest, and the bond back");
        assertPhase(claim, Phase.CONVICTED);
        (address solver,,) = tasks.holder(jobId, 0);
        assertEq(solver, address(0), "the shard is open again");
        assertSolvent();
    }

    function test_anOddSlashBurnsTheLargerHalf() external {
        Terms memory t = aTerms();
        (t.solverStake, t.nonce) = (101, 1);
        postJob(t);
        holdShards();
        Claim memory claim = commitTask(0, 0);
        convictByGame(claim);
        assertEq(vault.burned(), 51);
    }

    function test_aLostChallengePaysTheDefenderHalfTheBond() external {
        Claim memory claim = commitTask(0, 0);
        (uint256 rich, uint256 poor) = (free(whistle), free(solvers[0]));
        court.decide(challengeAs(whistle, claim, 0), false);
        assertEq(rich - free(whistle), 30 ether);
        assertEq(free(solvers[0]) - poor, 15 ether);
        assertEq(vault.burned(), 15 ether);
        assertEq(vault.total(IVault.Bucket.BOND), 0);
        assertPhase(claim, Phase.COMMITTED);
    }

    function test_Attack16_aChallengeLostOnPurposeClearsNothing() external {
        Claim memory claim = acceptedTask(0, 0);
        court.decide(challengeAs(solvers[1], claim, 0), false);
        assertPhase(claim, Phase.ACCEPTED);
        convictByGame(claim);
        assertPhase(claim, Phase.CONVICTED);
    }

    function test_Attack19_aSockPuppetsGameDoesNotKeepTheExposerOut() external {
        Claim memory claim = acceptedTask(0, 0);
        fund(stranger, 30 ether);
        uint256 puppet = challengeAs(stranger, claim, 0);
        uint256 real = challengeAs(whistle, claim, 0);
        uint256 rich = free(whistle);
        court.decide(puppet, false);
        assertPhase(claim, Phase.ACCEPTED);
        court.decide(real, true);
        assertPhase(claim, Phase.CONVICTED);
        assertGt(free(whistle), rich + 30 ether);
    }

    function test_Attack19_disputingOneselfLosesAtLeastHalf() external {
        Claim memory claim = commitTask(0, 0);
        fund(stranger, 30 ether);
        uint256 before = free(stranger) + activeOf(solvers[0], Role.SOLVER);
        court.decide(challengeAs(stranger, claim, 0), true);
        assertEq(before - free(stranger) - activeOf(solvers[0], Role.SOLVER), 50 ether);
    }

    function test_Attack12_moreGamesOnOneFaultPayNoMore() external {
        Claim memory claim = acceptedTask(0, 0);
        uint256[] memory games = new uint256[](4);
        uint256 rich = free(whistle);
        for (uint256 i; i < 4; ++i) {
            games[i] = challengeAs(whistle, claim, uint32(i));
        }
        for (uint256 i; i < 4; ++i) {
            court.decide(games[i], true);
        }
        assertEq(free(whistle) - rich, 125 ether, "half of 100 + 3 x 50, once; every bond back");
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether);
    }

    function test_Attack23_hundredsOfJunkChallengesDelayOnlyUntilTheyAreDecidedAndPayTheDefender() external {
        Claim memory claim = acceptedTask(0, 0);
        acceptedTask(0, 1);
        uint256[] memory games = new uint256[](200);
        for (uint256 i; i < games.length; ++i) {
            games[i] = challengeAs(whistle, claim, uint32(i % SEGMENTS));
        }
        skip(501);
        uint256 before = free(solvers[0]);
        for (uint256 i; i < games.length; ++i) {
            vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, games.length - i));
            tasks.settle(claim);
            court.decide(games[i], false);
        }
        tasks.settle(claim);
        assertEq(free(solvers[0]) - before, 200 * 15 ether + 10 ether);
        assertEq(vault.total(IVault.Bucket.BOND), 0);
        assertSolvent();
    }

    function test_gamesLeftOverOnAFallenClaimReturnTheirBonds() external {
        Claim memory claim = acceptedTask(0, 0);
        uint256 won = challengeAs(whistle, claim, 0);
        uint256 lost = challengeAs(whistle, claim, 1);
        convictByGame(claim);
        (uint256 rich, uint256 burned) = (free(whistle), vault.burned());
        court.decide(won, true);
        court.decide(lost, false);
        assertEq(free(whistle) - rich, 60 ether);
        assertEq(vault.burned(), burned);
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether, "convicted once");
    }

    function test_gamesLeftOverOnAStaleOrVoidClaimReturnTheirBonds() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        uint256 stale = challengeAs(whistle, second[1], 0);
        uint256 void_ = challengeAs(whistle, second[1], 1);
        convictByGame(first[0]);
        uint256 rich = free(whistle);
        court.decide(stale, true);
        tasks.void(second[1]);
        court.decide(void_, false);
        assertEq(free(whistle) - rich, 60 ether);
        assertPhase(second[1], Phase.VOID);
        assertEq(activeOf(solvers[1], Role.SOLVER), 1000 ether);
    }

    function test_aStaleClaimIsNoLongerChallenged() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        convictByGame(first[0]);
        bytes32[] memory ends = segmentEnds(second[0]);
        bytes32[] memory from = memberProof(ends, 0);
        bytes32[] memory to = memberProof(ends, 1);
        bytes32 salt = announceAs(whistle, idOf(second[0]), 0, address(0));
        vm.expectRevert(ITasks.NotStanding.selector);
        vm.prank(whistle);
        challenges.open(second[0], 0, ends[0], from, ends[1], to, salt);
    }

    // Rewinds

    function test_aConvictionRewindsToItsRoundAndWhatCameAfterIsStale() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        skip(10);
        convictByGame(first[0]);
        assertEq(jobs.progress(jobId).round, 0);
        assertEq(jobs.progress(jobId).epoch, 1);
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
        assertEq(lockedOf(solvers[0], Role.SOLVER), 0);
        assertEq(lockedOf(solvers[1], Role.SOLVER), 100 ether, "its task of round 0");
        assertEq(vault.total(IVault.Bucket.COMPENSATION), 0);
        assertSolvent();
    }

    function test_theJobGoesOnAfterARewind() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        convictByGame(first[0]);
        vm.prank(solvers[1]);
        tasks.claimShard(jobId, 0);
        Claim memory again = acceptedTask(0, 0);
        assertEq(again.attempt, 1);
        assertEq(again.epoch, 1);
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
        assertEq(lockedOf(solvers[0], Role.SOLVER) + lockedOf(solvers[1], Role.SOLVER), 0);
        assertEq(vault.total(IVault.Bucket.COMPENSATION) + vault.total(IVault.Bucket.ESCROW), 0);
        assertSolvent();
    }

    function test_compensationGoesToOthersByPriceAndTheConvictsShareIsBurnt() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        convictByGame(first[0]);
        // Slash 100 + 3 x 50 = 250; pool 125; wasted prices 2 x 10; compensation 20.
        assertEq(vault.total(IVault.Bucket.COMPENSATION), 20 ether);
        (uint256 honest, uint256 convict, uint256 burned) = (free(solvers[1]), free(solvers[0]), vault.burned());
        tasks.void(second[0]);
        tasks.void(second[1]);
        assertEq(free(solvers[1]) - honest, 10 ether);
        assertEq(free(solvers[0]), convict);
        assertEq(vault.burned() - burned, 10 ether);
        assertEq(vault.total(IVault.Bucket.COMPENSATION), 0);
    }

    function test_compensationIsAtMostHalfThePoolAndTheLastTakesTheRemainder() external {
        Terms memory t = aTerms();
        (t.solverStake, t.verifierStake, t.nonce) = (13, 0, 1);
        (t.priceFloor, t.priceCap) = (7, 7);
        postJob(t);
        holdShards();
        Claim memory outer = playRound(0)[SHARDS];
        vm.prank(solvers[0]);
        tasks.release(jobId, 0);
        vm.prank(solvers[1]);
        tasks.claimShard(jobId, 0);
        Claim memory a = acceptedTask(1, 0);
        Claim memory b = acceptedTask(1, 1);
        convictByGame(outer);
        // Slash 13, burnt 7, pool 6, half of it 3 < 14 wasted: 3·7/14 = 1, and 2 to the last.
        assertEq(vault.total(IVault.Bucket.COMPENSATION), 3);
        uint256 before = free(solvers[1]);
        tasks.void(b);
        assertEq(free(solvers[1]) - before, 1);
        tasks.void(a);
        assertEq(free(solvers[1]) - before, 3);
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
        assertEq(jobs.progress(jobId).epoch, 2);
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 0), abi.encodeWithSelector(ITasks.RoundIncomplete.selector, 0, 2)
        );
        (uint256 honest, uint256 burned) = (free(solvers[1]), vault.burned());
        tasks.void(second[1]);
        assertEq(free(solvers[1]) - honest, 10 ether, "convicted later, but wasted by the first");
        tasks.void(second[0]);
        assertEq(vault.burned() - burned, 10 ether);
        vm.startPrank(solvers[1]);
        tasks.claimShard(jobId, 0);
        tasks.claimShard(jobId, 1);
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
        commitVoteAs(drawn[0], claim, true);
        convictByGame(claim);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0);
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.CONVICTED));
        vm.prank(drawn[1]);
        tasks.commitVote(claim, "commitment");
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
        tasks.claimShard(jobId, 0);
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

    // Votes

    function openVoteAs(address who, Claim memory claim, address verifier, uint32 sample) private returns (uint256) {
        bytes32[] memory roots = tracesOf(verifier);
        bytes32[] memory ends = segmentEnds(claim);
        uint256 segment = Sampling.segment(statusOf(claim).seed, verifier, sample, SEGMENTS);
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory traceProof = memberProof(roots, sample);
        bytes32 salt = announceAs(who, idOf(claim), sample, verifier);
        vm.prank(who);
        return challenges.openVote(
            claim, verifier, sample, ends[segment], fromProof, roots[sample], traceProof, salt
        );
    }

    function test_aVotesGameIsKeyedToItsVerifier() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        Game memory game = court.game(openVoteAs(whistle, claim, drawn[1], 1));
        bytes32 seed = statusOf(claim).seed;
        uint256 segment = Sampling.segment(seed, drawn[1], 1, SEGMENTS);
        assertEq(game.defender, drawn[1]);
        assertEq(game.key, sha256(abi.encodePacked("assay/key/1", drawn[1], seed)));
        assertEq(game.inRoot, segmentEnds(claim)[segment]);
        assertEq(game.outRoot, tracesOf(drawn[1])[1]);
        assertEq(game.step, segment * 2);
        assertEq(game.steps, 2);
    }

    function test_aConvictedVoteLosesItsStakeAndItsFee() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        acceptedTask(0, 1);
        uint256 staked = activeOf(drawn[0], Role.VERIFIER);
        uint256 game = openVoteAs(whistle, claim, drawn[0], 0);
        uint256 second = openVoteAs(whistle, claim, drawn[0], 1);
        uint256 rich = free(whistle);
        court.decide(game, true);
        assertEq(free(whistle) - rich, 30 ether + 25 ether);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 50 ether);
        court.decide(second, true);
        assertEq(free(whistle) - rich, 60 ether + 25 ether, "once");
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(statusOf(claim).valid, 2);
        skip(501);
        (uint256 guilty, uint256 honest) = (free(drawn[0]), free(drawn[1]));
        tasks.settle(claim);
        assertEq(free(drawn[0]), guilty);
        assertEq(free(drawn[1]) - honest, 1 ether);
        assertSolvent();
    }

    function test_Attack14_attackingACorrectVotePaysItsVerifier() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        uint256 before = free(drawn[0]);
        court.decide(openVoteAs(whistle, claim, drawn[0], 0), false);
        assertEq(free(drawn[0]) - before, 15 ether);
        assertEq(vault.burned(), 15 ether);
        assertEq(statusOf(claim).valid, 3);
    }

    function test_aConvictedVoteNoLongerCountsTowardsTheQuorum() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            commitVoteAs(drawn[i], claim, i != 2);
        }
        for (uint256 i; i < 3; ++i) {
            revealVoteAs(drawn[i], claim, i != 2);
        }
        court.decide(openVoteAs(whistle, claim, drawn[0], 0), true);
        tasks.tally(claim);
        assertPhase(claim, Phase.COMMITTED);
    }

    function test_aVoteUnderDisputeStaysLockedThroughARedraw() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            commitVoteAs(drawn[i], claim, i < 1);
        }
        for (uint256 i; i < 3; ++i) {
            revealVoteAs(drawn[i], claim, i < 1);
        }
        uint256 a = openVoteAs(whistle, claim, drawn[0], 0);
        uint256 b = openVoteAs(whistle, claim, drawn[0], 1);
        tasks.tally(claim);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 50 ether, "held");
        assertEq(lockedOf(drawn[1], Role.VERIFIER), 0);
        uint256 snapshot = vm.snapshotState();
        court.decide(a, false);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 50 ether, "one game is still open");
        court.decide(b, false);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0, "let go");
        vm.revertToState(snapshot);
        uint256 staked = activeOf(drawn[0], Role.VERIFIER);
        court.decide(a, true);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 50 ether, "a redraw is no way out");
        court.decide(b, true);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 50 ether);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0);
        accept(claim);
        assertSolvent();
    }

    function test_aHeldVoteIsLetGoWhenItsClaimFalls() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            commitVoteAs(drawn[i], claim, i < 1);
        }
        for (uint256 i; i < 3; ++i) {
            revealVoteAs(drawn[i], claim, i < 1);
        }
        uint256 game = openVoteAs(whistle, claim, drawn[0], 0);
        tasks.tally(claim);
        convictByGame(claim);
        uint256 rich = free(whistle);
        court.decide(game, true);
        assertEq(free(whistle) - rich, 30 ether, "bond back");
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0);
    }

    function test_onlyRevealedValidVotesAreDisputed() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            commitVoteAs(drawn[i], claim, i != 0);
        }
        revealVoteAs(drawn[0], claim, false);
        bytes32[] memory empty = new bytes32[](0);
        vm.startPrank(whistle);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NoSuchVote.selector, drawn[0]));
        challenges.openVote(claim, drawn[0], 0, 0, empty, 0, empty, 0);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NoSuchVote.selector, drawn[1]));
        challenges.openVote(claim, drawn[1], 0, 0, empty, 0, empty, 0);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDrawn.selector, stranger));
        challenges.openVote(claim, stranger, 0, 0, empty, 0, empty, 0);
        vm.expectRevert(abi.encodeWithSelector(IChallenges.WrongSample.selector, 2, 2));
        challenges.openVote(claim, drawn[0], 2, 0, empty, 0, empty, 0);
        vm.stopPrank();
    }

    function test_Attack38_aVotesProofsAreChecked() external {
        Claim memory claim = commitTask(0, 0);
        address verifier = accept(claim)[0];
        bytes32[] memory roots = tracesOf(verifier);
        bytes32[] memory ends = segmentEnds(claim);
        uint256 segment = Sampling.segment(statusOf(claim).seed, verifier, 0, SEGMENTS);
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory traceProof = memberProof(roots, 0);
        bytes32 salt = announceAs(whistle, idOf(claim), 0, verifier);
        vm.startPrank(whistle);
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.openVote(claim, verifier, 0, ends[segment], fromProof, roots[1], traceProof, salt);
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.openVote(claim, verifier, 0, ends[segment + 1], fromProof, roots[0], traceProof, salt);
        vm.stopPrank();
    }

    function testFuzz_samplesAreDistinctAndFollowTheDefinition(bytes32 seed, address verifier) external pure {
        uint256 seen;
        for (uint256 i; i < 16; ++i) {
            uint256 segment = Sampling.segment(seed, verifier, i, 16);
            assertEq(seen & (1 << segment), 0);
            seen |= 1 << segment;
        }
        uint64 first = uint64(bytes8(sha256(abi.encodePacked("assay/sample/1", seed, verifier, uint32(0)))));
        assertEq(Sampling.segment(seed, verifier, 0, 16), first % 16);
    }

    // Bindings

    function bind(Claim memory claim, uint32 slot, bytes32[] memory slots, Claim memory source, bytes32[] memory from)
        private
    {
        bind(claim, slot, slots, source, from, slot, "");
    }

    function bind(
        Claim memory claim,
        uint32 slot,
        bytes32[] memory slots,
        Claim memory source,
        bytes32[] memory from,
        uint256 place,
        bytes memory refusal
    ) private {
        bytes32[] memory proof = memberProof(slots, slot);
        bytes32[] memory sourceProof = memberProof(from, place);
        bytes32 salt = announceAs(whistle, idOf(claim), slot, address(0));
        if (refusal.length > 0) vm.expectRevert(refusal);
        vm.prank(whistle);
        challenges.proveBinding(claim, slot, slots[slot], proof, source, from[place], sourceProof, salt);
    }

    function outputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        uint256 slots = claim.kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
        return stateSlots(string.concat("out", vm.toString(claim.manifest)), slots);
    }

    function inputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        uint256 slots = claim.kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
        return stateSlots(string.concat("in", vm.toString(claim.manifest)), slots);
    }

    function test_Attack7_aTaskThatDoesNotStartFromTheAggregateFallsInOneMove() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 0);
        uint256 before = free(whistle);
        bind(claim, 1, inputOf(claim), first[2], outputOf(first[2]));
        assertPhase(claim, Phase.CONVICTED);
        assertEq(free(whistle) - before, 50 ether);
    }

    function test_Attack6_aTaskThatDoesNotKeepItsOptimiserStateFallsInOneMove() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 1);
        bind(claim, 2, inputOf(claim), first[1], outputOf(first[1]));
        assertPhase(claim, Phase.CONVICTED);
    }

    function test_Attack8_anAggregateOfAnythingButTheRoundsTasksFallsInOneMove() external {
        Claim[] memory first = playRound(0);
        uint32 slot = 3 * PARAMS + 1;
        bind(first[2], slot, inputOf(first[2]), first[1], outputOf(first[1]), 1, "");
        assertPhase(first[2], Phase.CONVICTED);
    }

    function test_anOuterClaimStartsFromTheOuterGenesisOrTheLastAggregate() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        uint256 snapshot = vm.snapshotState();
        bind(second[2], 3, inputOf(second[2]), first[2], outputOf(first[2]));
        assertPhase(second[2], Phase.CONVICTED);
        vm.revertToState(snapshot);
        bind(first[2], 0, inputOf(first[2]), none, stateSlots("outer genesis", 8));
        assertPhase(first[2], Phase.CONVICTED);
        assertEq(jobs.progress(jobId).round, 0);
    }

    function test_rightBindingsAreNotProvenWrong() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = draft(Kind.TASK, 1, 0);
        bytes32[] memory slots = outputOf(first[0]);
        bytes32[] memory outer = outputOf(first[2]);
        (slots[0], slots[1]) = (outer[0], outer[1]);
        claim.inputRoot = rootOf(slots);
        claim.segmentsRoot = rootOf(segmentEnds(claim));
        claim = submit(solvers[0], claim);
        bytes memory refusal = abi.encodeWithSelector(IChallenges.NoDifference.selector);
        for (uint32 slot; slot < SLOTS; ++slot) {
            Claim memory source = slot < PARAMS ? first[2] : first[0];
            bind(claim, slot, slots, source, outputOf(source), slot, refusal);
        }
        bytes32[] memory genesis = stateSlots("genesis", SLOTS);
        bind(first[0], 1, genesis, none, genesis, 1, refusal);
        assertPhase(claim, Phase.COMMITTED);
    }

    function test_aBindingIsProvenAgainstTheStandingSourceOnly() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 0);
        bytes memory refusal = abi.encodeWithSelector(IChallenges.WrongSource.selector, idOf(first[1]));
        bind(claim, 2, inputOf(claim), first[1], outputOf(first[1]), 2, refusal);
        refusal = abi.encodeWithSelector(IChallenges.WrongSource.selector, keccak256(abi.encode(none)));
        bind(claim, 0, inputOf(claim), none, outputOf(first[2]), 0, refusal);
        refusal = abi.encodeWithSelector(IChallenges.BadProof.selector);
        bind(claim, 0, inputOf(claim), first[2], inputOf(first[2]), 0, refusal);
        bind(claim, 0, outputOf(claim), first[2], outputOf(first[2]), 0, refusal);
    }

    function rootOf(bytes32[] memory digests) private view returns (bytes32) {
        bytes32[] memory copy = new bytes32[](digests.length);
        for (uint256 i; i < copy.length; ++i) {
            copy[i] = digests[i];
        }
        return Merkle.root(copy);
    }
}

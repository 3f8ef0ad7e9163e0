// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {Game} from "../../src/interfaces/ICourt.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, INPUT, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Market} from "./Market.sol";

/// @notice Games on claims: how they open, and what their verdicts do.
contract ChallengesTest is Market {
    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
    }

    function test_aGameCarriesTheClaimsSegment() external {
        Claim memory claim = acceptedTask(0, 1);
        bytes32[] memory ends = segmentEnds(claim);
        uint256 before = free(whistle);
        Game memory game = court.game(challengeAs(whistle, claim, 2));
        Terms memory t = aTerms();
        assertEq(game.params.claimId, idOf(claim));
        assertEq(game.cursor.challenger, whistle);
        assertEq(game.cursor.defender, solvers[1]);
        assertEq(game.params.program.root, t.loops[0].root);
        assertEq(game.params.datasetRoot, t.datasetRoot);
        assertEq(game.params.seed, t.seed);
        assertEq(game.params.records, t.records);
        assertEq(game.params.recordSize, t.recordSize);
        assertEq(game.params.shard, 1);
        assertEq(game.context.key, 0);
        assertEq(game.context.step, 4);
        assertEq(game.context.steps, 2);
        assertEq(game.context.inRoot, ends[2]);
        assertEq(game.context.outRoot, ends[3]);
        assertEq(game.cursor.moveTime, 60);
        assertEq(before - free(whistle), 30 ether);
        assertEq(statusOf(claim).openGames, 1);
    }

    function test_aGameOnAnOuterClaimIsOneStepOfTheOuterProgram() external {
        Claim[] memory claims = playRound(0);
        Claim[] memory next = playRound(1);
        Game memory game = court.game(challengeAs(whistle, next[2], 0));
        assertEq(game.params.program.root, aTerms().outerLoops[0].root);
        assertEq(game.context.steps, 1);
        assertEq(game.context.step, 1);
        assertEq(game.params.shard, 0);
        assertEq(game.context.inRoot, next[2].inputRoot);
        assertEq(game.context.outRoot, next[2].outputRoot);
        assertPhase(claims[2], Phase.ACCEPTED);
    }

    function test_aChallengeIsAnnouncedABlockBefore() external {
        Claim memory claim = commitTask(0, 0);
        bytes32[] memory ends = segmentEnds(claim);
        bytes32[] memory first = memberProof(ends, 0);
        bytes32[] memory second = memberProof(ends, 1);
        bytes32 commitment =
            keccak256(abi.encode(whistle, idOf(claim), uint32(0), address(0), TRUTH, bytes32("salt")));
        vm.startPrank(whistle);
        vm.expectRevert(abi.encodeWithSelector(IChallenges.NotAnnounced.selector, commitment));
        challenges.open(claim, 0, ends[0], first, ends[1], second, TRUTH, "salt");
        challenges.announce(commitment);
        uint64 announced = u64(vm.getBlockNumber());
        vm.expectRevert(abi.encodeWithSelector(IChallenges.TooSoon.selector, announced));
        challenges.open(claim, 0, ends[0], first, ends[1], second, TRUTH, "salt");
        vm.stopPrank();
        vm.roll(announced + 1);
        vm.prank(stranger);
        challenges.announce(commitment);
        assertEq(challenges.announcedAt(commitment), announced, "a copy does not set the clock back");
        vm.startPrank(whistle);
        challenges.open(claim, 0, ends[0], first, ends[1], second, TRUTH, "salt");
        vm.expectRevert(abi.encodeWithSelector(IChallenges.NotAnnounced.selector, commitment));
        challenges.open(claim, 0, ends[0], first, ends[1], second, TRUTH, "salt");
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
        challenges.open(claim, 0, ends[0], first, ends[1], second, TRUTH, salt);
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
        challenges.open(claim, 0, ends[1], first, ends[1], second, TRUTH, salt);
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.open(claim, 0, ends[0], first, ends[2], second, TRUTH, salt);
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.open(claim, SEGMENTS, ends[SEGMENTS], last, bytes32(0), last, TRUTH, late);
        vm.stopPrank();
    }

    function test_onlyTheCourtResolves() external {
        Game memory game;
        vm.expectRevert(abi.encodeWithSelector(IChallenges.NotCourt.selector, stranger));
        vm.prank(stranger);
        challenges.resolve(1, game, true);
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
        challenges.open(claim, 0, ends[0], first, ends[1], second, TRUTH, salt);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        tasks.settle(claim);
        court.decide(game, true);
        assertPhase(claim, Phase.CONVICTED);
    }

    /// @notice A claim that not all have called valid may be disputed for twice as long.
    function test_anUnattestedClaimIsDisputedForTwoWindows() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            voteAs(drawn[i], claim, i != 2);
        }
        tasks.tally(claim);
        uint64 end = statusOf(claim).since + 1000;
        vm.warp(end);
        challengeAs(whistle, claim, 0);
        vm.warp(end + 1);
        bytes32[] memory ends = segmentEnds(claim);
        (bytes32[] memory first, bytes32[] memory second) = (memberProof(ends, 0), memberProof(ends, 1));
        bytes32 salt = announceAs(whistle, idOf(claim), 0, address(0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.WindowClosed.selector, end));
        vm.prank(whistle);
        challenges.open(claim, 0, ends[0], first, ends[1], second, TRUTH, salt);
    }

    // Verdicts

    function test_aConvictionTakesFromTheClaimantAloneAndSplitsExactly() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            voteAs(drawn[i], claim, i != 2);
        }
        tasks.tally(claim);
        uint256 voters = _verifierStakes();
        uint256 rich = free(whistle);
        court.decide(challengeAs(whistle, claim, 0), true);
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether);
        assertEq(_verifierStakes(), voters, "votes answer for themselves");
        assertEq(vault.burnt(), 50 ether, "half");
        assertEq(free(address(tasks)), 3 ether, "a fee for each vote");
        assertEq(
            free(whistle) - rich,
            47 ether,
            "nothing was wasted, so the whistleblower gets the rest, and the bond back"
        );
        assertPhase(claim, Phase.CONVICTED);
        (address solver,,) = tasks.holder(jobId, 0);
        assertEq(solver, address(0), "the shard is open again");
        assertSolvent();
    }

    function test_anOddSlashBurnsTheLargerHalf() external {
        Terms memory t = aTerms();
        (t.solverStake, t.nonce) = (101 ether + 1, 1);
        postJob(t);
        holdShards();
        Claim memory claim = commitTask(0, 0);
        convictByGame(claim);
        assertEq(vault.burnt(), 101 ether / 2 + 1);
    }

    function test_aLostChallengePaysTheDefenderHalfTheBond() external {
        Claim memory claim = commitTask(0, 0);
        (uint256 rich, uint256 poor) = (free(whistle), free(solvers[0]));
        court.decide(challengeAs(whistle, claim, 0), false);
        assertEq(rich - free(whistle), 30 ether);
        assertEq(free(solvers[0]) - poor, 15 ether);
        assertEq(vault.burnt(), 15 ether);
        assertEq(bondSum(), 0);
        assertPhase(claim, Phase.COMMITTED);
    }

    /// @notice A game about a segment needs nothing that a rewind takes away.
    function test_whoLosesAGameAboutAnOvertakenClaimPaysForIt() external {
        Claim memory first = playRound(0)[0];
        Claim memory claim = playRound(1)[1];
        uint256 game = challengeAs(whistle, claim, 1);
        convictByGame(first);
        (uint256 rich, uint256 poor) = (free(whistle), free(solvers[1]));
        court.decide(game, false);
        assertEq(free(solvers[1]) - poor, 15 ether);
        assertEq(free(whistle), rich);
    }

    /// @notice That the job has gone on from a claim takes nothing of what its input came from.
    function test_whoAsksForAnInputOfAClosedRoundWithoutCausePaysForIt() external {
        Claim memory claim = playRound(0)[0];
        bytes32 salt = announceAs(whistle, idOf(claim), INPUT, address(0));
        vm.prank(whistle);
        uint256 game = challenges.openInput(claim, TRUTH, salt);
        (uint256 rich, uint256 poor) = (free(whistle), free(solvers[0]));
        court.decide(game, false);
        assertEq(free(solvers[0]) - poor, 15 ether);
        assertEq(free(whistle), rich);
    }

    function test_Attack16_aChallengeLostOnPurposeClearsNothing() external {
        Claim memory claim = acceptedTask(0, 0);
        court.decide(challengeAs(solvers[1], claim, 0), false);
        assertPhase(claim, Phase.ACCEPTED);
        convictByGame(claim);
        assertPhase(claim, Phase.CONVICTED);
    }

    function test_Attack19_aSockPuppetsGameDoesNotKeepTheWhistleblowerOut() external {
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

    function _verifierStakes() private view returns (uint256 sum) {
        for (uint256 i; i < verifiers.length; ++i) {
            sum += activeOf(verifiers[i], Role.VERIFIER);
        }
    }

    function test_Attack12_moreGamesOnOneFaultPayNoMore() external {
        Claim memory claim = acceptedTask(0, 0);
        uint256[] memory games = new uint256[](4);
        uint256 rich = free(whistle);
        for (uint256 i; i < 4; ++i) {
            games[i] = challengeAs(whistle, claim, u32(i));
        }
        for (uint256 i; i < 4; ++i) {
            court.decide(games[i], true);
        }
        (uint256 kept,) = tasks.reward(idOf(claim));
        assertEq(free(whistle) + kept - rich, 47 ether, "half of 100 less three fees, once; every bond back");
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether);
    }

    function test_Attack23_hundredsOfJunkChallengesDelayUntilDecidedAndPayTheDefender() external {
        Claim memory claim = acceptedTask(0, 0);
        acceptedTask(0, 1);
        uint256[] memory games = new uint256[](200);
        for (uint256 i; i < games.length; ++i) {
            games[i] = challengeAs(whistle, claim, u32(i % SEGMENTS));
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
        assertEq(bondSum(), 0);
        assertSolvent();
    }

    function test_gamesLeftOverOnAFallenClaimReturnTheirBonds() external {
        Claim memory claim = acceptedTask(0, 0);
        uint256 won = challengeAs(whistle, claim, 0);
        uint256 lost = challengeAs(whistle, claim, 1);
        convictByGame(claim);
        (uint256 rich, uint256 burnt) = (free(whistle) + free(address(tasks)), vault.burnt());
        court.decide(won, true);
        court.decide(lost, false);
        assertEq(free(whistle) + free(address(tasks)) - rich, 60 ether);
        assertEq(vault.burnt(), burnt);
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether, "convicted once");
    }

    /// @notice A false claim under an honest game; its ring fells an earlier claim of its own, which overtakes it (A3). It stays
    /// liable: it is neither voided nor paid, and falls when the game is won; the finder is paid.
    function test_A3_aClaimThatIsOvertakenUnderAGameStillFallsByIt() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        uint256 won = challengeAs(whistle, second[1], 0);
        uint256 lost = challengeAs(whistle, second[0], 1);
        convictByGame(first[0]);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        tasks.void(second[1]);
        (uint256 rich, uint256 burnt, uint256 staked) =
            (free(whistle), vault.burnt(), activeOf(solvers[1], Role.SOLVER));
        uint256 owed = compensationSum();
        court.decide(won, true);
        assertPhase(second[1], Phase.CONVICTED);
        assertEq(staked - activeOf(solvers[1], Role.SOLVER), 100 ether);
        assertEq(vault.burnt() - burnt, 50 ether);
        assertEq(free(whistle) - rich, 30 ether + 47 ether, "bond and reward: nothing is wasted by it");
        assertEq(jobs.progress(jobId).rewinds, 1, "and nothing rewound");
        skip(501);
        burnt = vault.burnt();
        tasks.freeSeats(second[1]);
        assertEq(vault.burnt() - burnt, 13 ether, "what was set aside for it");
        assertEq(owed - compensationSum(), 13 ether);
        vm.expectRevert(abi.encodeWithSelector(ITasks.NoSeats.selector, idOf(second[1])));
        tasks.freeSeats(second[1]);
        court.decide(lost, false);
        tasks.void(second[0]);
        assertPhase(second[0], Phase.VOID);
        assertSolvent();
    }

    /// @notice A claimant loses a game about its own true claim by the clock, in a job of its own (A1) or of an honest client
    /// (A2): it loses its stake, and the honest votes on the claim lose nothing and are paid.
    function test_A1_aClaimantThatLosesOnPurposeRobsNobody() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        fund(stranger, 30 ether);
        uint256 before = _verifierStakes();
        uint256 robber = free(stranger) + activeOf(solvers[0], Role.SOLVER);
        uint32 segment = u32(sampleOf(statusOf(claim).seed, drawn[0], 0, SEGMENTS));
        court.decide(challengeAs(stranger, claim, segment), true);
        assertPhase(claim, Phase.CONVICTED);
        assertEq(
            robber - free(stranger) - activeOf(solvers[0], Role.SOLVER), 53 ether, "half, and three fees"
        );
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 30 ether);
        skip(500);
        uint64 due = u64(vm.getBlockTimestamp()) + 1;
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, due));
        tasks.freeSeats(claim);
        skip(1);
        uint256 paid;
        for (uint256 i; i < 3; ++i) {
            paid += free(drawn[i]);
        }
        tasks.freeSeats(claim);
        for (uint256 i; i < 3; ++i) {
            paid -= free(drawn[i]) - 1 ether;
            assertEq(lockedOf(drawn[i], Role.VERIFIER), 0);
        }
        assertEq(paid, 0, "each is paid its fee");
        assertEq(_verifierStakes(), before, "and nobody has lost anything");
        assertEq(free(address(tasks)), 0);
        assertSolvent();
    }

    /// @notice The same by `openInput`, whose clock says nothing about anybody's vote.
    function test_A1_aClaimantThatDoesNotOpenItsInputRobsNobody() external {
        Claim memory claim = commitTask(0, 0);
        accept(claim);
        fund(stranger, 30 ether);
        uint256 before = _verifierStakes();
        bytes32 salt = announceAs(stranger, idOf(claim), INPUT, address(0));
        vm.prank(stranger);
        court.decide(challenges.openInput(claim, TRUTH, salt), true);
        assertPhase(claim, Phase.CONVICTED);
        skip(501);
        tasks.freeSeats(claim);
        assertEq(_verifierStakes(), before);
    }

    /// @notice A false vote on a claim that has fallen falls to its own game, until the window after the conviction is over; its
    /// fee is burnt.
    function test_aVoteOnAFallenClaimIsDisputedForAWindow() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        convictByGame(claim);
        (uint256 rich, uint256 burnt) = (free(whistle), vault.burnt());
        skip(500);
        uint256 game = openVoteAs(whistle, claim, drawn[0], 0);
        skip(1);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        tasks.freeSeats(claim);
        uint64 end = u64(vm.getBlockTimestamp()) - 1;
        bytes32[] memory none = new bytes32[](0);
        bytes32 salt = announceAs(whistle, idOf(claim), 0, drawn[1]);
        vm.expectRevert(abi.encodeWithSelector(ITasks.WindowClosed.selector, end));
        vm.prank(whistle);
        challenges.openVote(claim, drawn[1], 0, 0, none, 0, none, salt);
        court.decide(game, true);
        assertEq(free(whistle) - rich, 15 ether, "half of its stake");
        assertEq(vault.burnt() - burnt, 15 ether + 1 ether, "the other half, and its fee");
        tasks.freeSeats(claim);
        assertEq(free(address(tasks)), 0);
        assertSolvent();
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
        challenges.open(second[0], 0, ends[0], from, ends[1], to, TRUTH, salt);
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {Game} from "../../src/interfaces/ICourt.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
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
            keccak256(abi.encode(whistle, idOf(claim), uint32(0), address(0), TRUTH, VOTE_SALT));
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
        (uint256 rich, uint256 fined) = (free(whistle), vault.burnt());
        assertEq(fined, 7 ether, "called invalid, and no game");
        uint32 segment = u32(sampleOf(statusOf(claim).seed, drawn[0], 1, SEGMENTS));
        bool both = isAsked(claim, drawn[1], segment);
        court.decide(challengeAs(whistle, claim, segment), true);
        uint256 taken = both ? 200 ether : 150 ether;
        assertEq(activeOf(solvers[0], Role.SOLVER), 900 ether);
        assertEq(before[0] - activeOf(drawn[0], Role.VERIFIER), 50 ether);
        assertEq(before[1] - activeOf(drawn[1], Role.VERIFIER), both ? 50 ether : 0);
        assertEq(before[2], activeOf(drawn[2], Role.VERIFIER), "voted invalid");
        assertEq(lockedOf(drawn[1], Role.VERIFIER) + lockedOf(drawn[2], Role.VERIFIER), 0);
        assertEq(vault.burnt() - fined, taken / 2, "half");
        assertEq(
            free(whistle) - rich,
            taken / 2,
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

    /// @notice The robbery: a solver fakes a segment that an honest verifier was not asked to replay, gets its honest vote,
    /// and convicts itself through a second account. The verifier loses nothing, and the robber half of its own stake.
    function test_aSolverThatConvictsItselfTakesNothingFromVerifiersThatCouldNotSeeTheFault() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        uint256 before = _verifierStakes();
        uint32 segment = _unasked(claim, drawn);
        assertEq(askedFor(claim, drawn, segment), 0, "the fault is where nobody had to look");
        fund(stranger, 30 ether);
        uint256 robber = free(stranger) + activeOf(solvers[0], Role.SOLVER);
        court.decide(challengeAs(stranger, claim, segment), true);
        assertPhase(claim, Phase.CONVICTED);
        assertEq(_verifierStakes(), before, "nobody honest lost");
        for (uint256 i; i < drawn.length; ++i) {
            assertEq(lockedOf(drawn[i], Role.VERIFIER), 0, "and all are free again");
        }
        assertEq(robber - free(stranger) - activeOf(solvers[0], Role.SOLVER), 50 ether);
        assertSolvent();
    }

    /// @dev New seeds until one of the segments is in nobody's sample.
    function _unasked(Claim memory claim, address[] memory drawn) private returns (uint32 segment) {
        for (uint256 nonce;; ++nonce) {
            for (segment = 0; segment < SEGMENTS; ++segment) {
                if (askedFor(claim, drawn, segment) == 0) return segment;
            }
            // The seed's half of its slot: the drawn verifiers stay as they are.
            bytes32 slot = keccak256(abi.encode(idOf(claim), uint256(1)));
            uint256 seats = uint256(vm.load(address(tasks), slot)) & type(uint128).max;
            vm.store(
                address(tasks), slot, bytes32(seats | uint256(keccak256(abi.encode(nonce))) >> 128 << 128)
            );
        }
    }

    function _verifierStakes() private view returns (uint256 sum) {
        for (uint256 i; i < verifiers.length; ++i) {
            sum += activeOf(verifiers[i], Role.VERIFIER);
        }
    }

    function test_Attack12_moreGamesOnOneFaultPayNoMore() external {
        Claim memory claim = acceptedTask(0, 0);
        address[] memory drawn = drawnOf(claim);
        uint256 guilty = askedFor(claim, drawn, 0);
        uint256[] memory games = new uint256[](4);
        uint256 rich = free(whistle);
        for (uint256 i; i < 4; ++i) {
            games[i] = challengeAs(whistle, claim, u32(i));
        }
        for (uint256 i; i < 4; ++i) {
            court.decide(games[i], true);
        }
        uint256 reward = 50 ether + guilty * 25 ether;
        (uint256 kept,) = tasks.reward(idOf(claim));
        assertEq(
            free(whistle) + kept - rich,
            reward,
            "half of 100 + 50 for each that had to see it, once; every bond back"
        );
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
        challenges.open(second[0], 0, ends[0], from, ends[1], to, TRUTH, salt);
    }
}

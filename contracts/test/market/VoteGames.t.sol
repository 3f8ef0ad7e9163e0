// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {Game} from "../../src/interfaces/ICourt.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Phase, Role} from "../../src/interfaces/Types.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import {Market} from "./Market.sol";

/// @notice Games on votes.
contract VoteGamesTest is Market {
    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
    }

    function test_aVotesGameIsKeyedToItsVerifier() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        Game memory game = court.game(openVoteAs(whistle, claim, drawn[1], 1));
        bytes32 seed = statusOf(claim).seed;
        uint256 segment = sampleOf(seed, drawn[1], 1, SEGMENTS);
        assertEq(game.cursor.defender, drawn[1]);
        assertEq(game.context.key, sha256(abi.encodePacked("assay/key/1", drawn[1], seed)));
        assertEq(game.context.inRoot, segmentEnds(claim)[segment]);
        assertEq(game.context.outRoot, tracesOf(drawn[1])[1]);
        assertEq(game.context.step, segment * 2);
        assertEq(game.context.steps, 2);
    }

    /// @notice Traces that were invented are disputed one by one: the reveal shows the leaf of the second sample as well as
    /// that of the first, to everyone.
    function test_Attack09_eachOfSeveralInventedTracesCanBeDisputed() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        vm.recordLogs();
        voteAs(drawn[0], claim, true);
        (, bytes32[] memory shown) = abi.decode(vm.getRecordedLogs()[0].data, (bool, bytes32[]));
        assertEq(shown.length, 2, "one for each sample");
        uint256 staked = activeOf(drawn[0], Role.VERIFIER);
        uint32 sample = 1;
        bytes32[] memory ends = segmentEnds(claim);
        uint256 segment = sampleOf(statusOf(claim).seed, drawn[0], sample, SEGMENTS);
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory traceProof = memberProof(shown, sample);
        bytes32 salt = announceAs(whistle, idOf(claim), sample, drawn[0]);
        vm.prank(whistle);
        uint256 id = challenges.openVote(
            claim, drawn[0], sample, ends[segment], fromProof, shown[sample], traceProof, salt
        );
        assertEq(court.game(id).context.outRoot, tracesOf(drawn[0])[1]);
        court.decide(id, true);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 30 ether);
        assertEq(statusOf(claim).valid, 0);
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
        assertEq(free(whistle) - rich, 30 ether + 15 ether);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 30 ether);
        court.decide(second, true);
        assertEq(free(whistle) - rich, 60 ether + 15 ether, "once");
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(statusOf(claim).valid, 2);
        skip(501);
        uint64 due = statusOf(claim).since + 1001; // it is no longer attested
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, due));
        tasks.settle(claim);
        skip(500);
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
        assertEq(vault.burnt(), 15 ether);
        assertEq(statusOf(claim).valid, 3);
    }

    function test_aConvictedVoteLeavesItsSeatToAnother() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        for (uint256 i; i < 3; ++i) {
            voteAs(drawn[i], claim, true);
        }
        uint256 game = openVoteAs(whistle, claim, drawn[0], 0);
        uint256 second = openVoteAs(whistle, claim, drawn[0], 1);
        uint256 staked = activeOf(drawn[0], Role.VERIFIER);
        court.decide(game, true);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 30 ether);
        tasks.tally(claim);
        assertPhase(claim, Phase.SEEDED);
        address fourth = drawnOf(claim)[3];
        voteAs(fourth, claim, true);
        tasks.tally(claim);
        assertPhase(claim, Phase.ACCEPTED);
        assertEq(statusOf(claim).valid, 3);
        court.decide(second, true);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 30 ether, "once");
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 0);
        assertSolvent();
    }

    /// @dev Four seats are numbered beside the seed, the fifth and those after it in a word of their own.
    function test_aConvictedVoteIsThatOfItsOwnSeat() external {
        moreVerifiers(30);
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        skip(75);
        tasks.tally(claim);
        address[] memory drawn = drawnOf(claim);
        for (uint256 i = 3; i < 6; ++i) {
            voteAs(drawn[i], claim, true);
        }
        for (uint256 i = 3; i < 6; ++i) {
            uint256 staked = activeOf(drawn[i], Role.VERIFIER);
            court.decide(openVoteAs(whistle, claim, drawn[i], 0), true);
            assertEq(staked - activeOf(drawn[i], Role.VERIFIER), 30 ether);
        }
    }

    function test_aVoteUnderDisputeStaysLockedThroughTheTally() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = accept(claim);
        uint256 game = openVoteAs(whistle, claim, drawn[0], 0);
        skip(1001);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        tasks.settle(claim);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 30 ether, "until its game is over");
        uint256 staked = activeOf(drawn[0], Role.VERIFIER);
        court.decide(game, true);
        assertEq(staked - activeOf(drawn[0], Role.VERIFIER), 30 ether);
    }

    function test_onlyRevealedValidVotesAreDisputed() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        voteAs(drawn[0], claim, false);
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
        uint256 segment = sampleOf(statusOf(claim).seed, verifier, 0, SEGMENTS);
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

    function testFuzz_samplesAreDistinctAndFollowTheDefinition(bytes32 seed, address verifier) external view {
        uint256 seen;
        for (uint256 i; i < 16; ++i) {
            uint256 segment = sampleOf(seed, verifier, i, 16);
            assertEq(seen & (2 ** segment), 0);
            seen |= 2 ** segment;
        }
        uint64 first =
            uint64(bytes8(sha256(abi.encodePacked("assay/sample/1", seed, verifier, uint32(0), uint32(0)))));
        assertEq(sampleOf(seed, verifier, 0, 16), first % 16);
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Found, INPUT, Kind, Phase, Terms} from "../../src/interfaces/Types.sol";
import {FindingsMarket} from "./FindingsMarket.sol";

/// @notice Rewards go to who looked (docs/protocol.md 5.4): several findings on one claim, and what their roots decide.
contract FindingsTest is FindingsMarket {
    function setUp() external {
        setUpClaim();
    }

    /// @notice The attack: who has won leaves the other's finding out of the list.
    function test_nothingIsSharedAmongOthersThanAreKept() external {
        bytes32[] memory right = truth(1);
        (uint256 first, Found memory mine) = looked(stranger, 1, right[2]);
        (uint256 second,) = looked(whistle, 1, right[2]);
        court.decide(first, true);
        court.decide(second, true);
        bytes32 kept = challenges.findingsOf(idOf(fallen));
        bytes memory refusal = abi.encodeWithSelector(IChallenges.WrongFindings.selector, kept);
        vm.expectRevert(refusal);
        challenges.shareAlike(idOf(fallen), oneOf(mine));
        vm.expectRevert(refusal);
        challenges.shareWon(fallen, oneOf(mine));
        settle(right);
        vm.expectRevert(refusal);
        share(oneOf(mine));
    }

    function test_equalRootsOfDifferentSegmentsDoNotAgree() external {
        (uint256 first, Found memory mine) = looked(stranger, 1, TRUTH);
        (uint256 second, Found memory other) = looked(whistle, 2, TRUTH);
        court.decide(first, true);
        court.decide(second, true);
        vm.expectRevert(IChallenges.NoTruth.selector);
        challenges.shareAlike(idOf(fallen), list(mine, other));
    }

    function test_aRightRootOfASegmentThatBeganWrongIsNotRight() external {
        bytes32[] memory right = truth(1);
        (uint256 later, Found memory other) = looked(stranger, 2, right[3]);
        (uint256 honest, Found memory real) = looked(whistle, 1, right[2]);
        uint256 rich = free(whistle);
        court.decide(later, true);
        court.decide(honest, true);
        settle(right);
        share(list(other, real));
        assertEq(free(whistle) - rich, 30 ether + REWARD);
    }

    /// @notice A job that has ended pays nobody for having won a game where a settled claim tells who was right.
    function test_whereAClaimIsSettledNoGameThatWasWonIsEnough() external {
        bytes32[] memory right = truth(1);
        (uint256 noise, Found memory other) = looked(stranger, 1, keccak256("noise"));
        (uint256 honest, Found memory real) = looked(whistle, 1, right[2]);
        court.decide(noise, true);
        court.decide(honest, true);
        settle(right);
        tasks.settle(beside);
        clientHalts();
        skip(4000);
        jobs.close(jobId);
        vm.expectRevert(ITasks.MayBeSettled.selector);
        challenges.shareWon(fallen, list(other, real));
        uint256 rich = free(whistle);
        share(list(other, real));
        assertEq(free(whistle) - rich, REWARD);
    }

    function test_whatDoesNotDivideIsTheFirstFinders() external {
        bytes32[] memory right = truth(0);
        address[3] memory who = [whistle, stranger, client];
        bytes32[3] memory salts;
        uint256[3] memory games;
        Found[] memory found = new Found[](3);
        for (uint256 i; i < 3; ++i) {
            found[i] = Found(who[i], 0, u64(vm.getBlockNumber()), 0, right[1], true);
            salts[i] = announceRoot(who[i], idOf(fallen), 0, address(0), right[1]);
        }
        for (uint256 i; i < 3; ++i) {
            found[i].shown = u64(vm.getBlockNumber());
            games[i] = showAs(who[i], 0, right[1], salts[i]);
        }
        for (uint256 i; i < 3; ++i) {
            court.decide(games[i], true);
        }
        uint256[3] memory before = [free(whistle), free(stranger), free(client)];
        challenges.shareAlike(idOf(fallen), found);
        uint256 each = REWARD / 3;
        assertEq(free(whistle) - before[0], REWARD - 2 * each);
        assertEq(free(stranger) - before[1], each);
        assertEq(free(client) - before[2], each);
    }

    // ---- R12

    /// @notice The attack: nine parasites announce a finding for every claim before anybody has looked, and open games as soon
    /// as an honest one is open. Before: a tenth of the reward for each, 23 of 230 left to the whistleblower.
    function test_R12_parasitesThatAnnounceBlindlyGetNothing() external {
        bytes32[] memory right = truth(2);
        bytes32[] memory salts = new bytes32[](9);
        Found[] memory found = new Found[](10);
        for (uint256 i; i < 9; ++i) {
            address parasite = makeAddr(string.concat("parasite", vm.toString(i)));
            fund(parasite, 30 ether);
            found[i + 1] =
                Found(parasite, u32(i % 4), u64(vm.getBlockNumber()), 0, keccak256("a guess"), i % 2 == 0);
            salts[i] = announceRoot(parasite, idOf(fallen), u32(i % 4), address(0), keccak256("a guess"));
        }
        uint256 rich = free(whistle);
        uint256 honest;
        (honest, found[0]) = looked(whistle, 2, right[3]);
        uint256[] memory games = new uint256[](9);
        for (uint256 i; i < 9; ++i) {
            found[i + 1].shown = u64(vm.getBlockNumber());
            games[i] = showAs(found[i + 1].finder, u32(i % 4), keccak256("a guess"), salts[i]);
        }
        court.decide(honest, true);
        for (uint256 i; i < 9; ++i) {
            court.decide(games[i], i % 2 == 0);
        }
        settle(right);
        share(found);
        assertEq(free(whistle) - rich, REWARD, "the whistleblower has all of it, and its bond");
        for (uint256 i; i < 9; ++i) {
            assertEq(free(found[i + 1].finder), 30 ether, "a parasite its bond, and nothing else");
        }
        assertEq(free(address(tasks)), 0);
    }

    /// @notice A parasite even wins the race: its copy of the honest game is decided first.
    function test_R12_aParasiteThatWinsTheRaceGetsNothing() external {
        bytes32[] memory right = truth(1);
        bytes32 salt = announceRoot(stranger, idOf(fallen), 1, address(0), keccak256("a guess"));
        uint64 announced = u64(vm.getBlockNumber() - 1);
        (uint256 honest, Found memory real) = looked(whistle, 1, right[2]);
        Found memory copy =
            Found(stranger, 1, announced, u64(vm.getBlockNumber()), keccak256("a guess"), true);
        uint256 first = showAs(stranger, 1, copy.root, salt);
        (uint256 rich, uint256 poor) = (free(whistle), free(stranger));
        court.decide(first, true);
        court.decide(honest, true);
        vm.expectRevert(IChallenges.NoTruth.selector);
        challenges.shareAlike(idOf(fallen), list(copy, real));
        settle(right);
        share(list(copy, real));
        assertEq(free(whistle) - rich, 30 ether + REWARD);
        assertEq(free(stranger) - poor, 30 ether);
    }

    /// @notice Once a root is shown anybody can announce it: such a one comes too late.
    function test_R12_aRootThatIsCopiedOnceItIsShownComesTooLate() external {
        bytes32[] memory right = truth(0);
        (uint256 honest, Found memory real) = looked(whistle, 0, right[1]);
        (uint256 game, Found memory copy) = looked(stranger, 0, right[1]);
        (uint256 rich, uint256 poor) = (free(whistle), free(stranger));
        court.decide(game, true);
        court.decide(honest, true);
        challenges.shareAlike(idOf(fallen), list(copy, real)); // they say the same, so nothing need be settled
        assertEq(free(whistle) - rich, 30 ether + REWARD);
        assertEq(free(stranger) - poor, 30 ether);
    }

    /// @notice A puppet's junk game, opened before anybody has announced, does not make honest findings late.
    function test_R12_aFalseFindingFixesNoCut() external {
        bytes32[] memory right = truth(0);
        (uint256 junk, Found memory false_) = looked(stranger, 3, keccak256("junk"));
        (uint256 honest, Found memory real) = looked(whistle, 0, right[1]);
        uint256 rich = free(whistle);
        court.decide(honest, true);
        court.decide(junk, true);
        settle(right);
        share(list(real, false_));
        assertEq(free(whistle) - rich, 30 ether + REWARD);
    }

    /// @notice Who demands leaves once a game is open, and convicts first by that, gets nothing of what another has found.
    function test_R12_aConvictionWithoutARootIsPaidOnlyIfNobodysRootIsTrue() external {
        bytes32[] memory right = truth(0);
        (uint256 honest, Found memory real) = looked(whistle, 0, right[1]);
        convictByInput(stranger);
        court.decide(honest, true);
        Found[] memory found = new Found[](2);
        found[0] = Found(stranger, INPUT, u64(vm.getBlockNumber()) - 1, u64(vm.getBlockNumber()), TRUTH, true);
        found[1] = real;
        uint256 rich = free(whistle);
        settle(right);
        share(found);
        assertEq(free(whistle) - rich, REWARD);
    }

    /// @dev A game about the claim's input, won (the input is what it must be, but its claimant does not say so).
    function convictByInput(address who) private {
        bytes32 salt = announceAs(who, idOf(fallen), INPUT, address(0));
        vm.prank(who);
        court.decide(challenges.openInput(fallen, TRUTH, salt), true);
    }

    // ---- honest findings

    /// @notice Two that have both looked share alike, in equal parts, as soon as both games are over.
    function test_findingsThatAgreeAreSharedAtOnce() external {
        bytes32 salt = announceRoot(stranger, idOf(fallen), 2, address(0), TRUTH);
        uint64 announced = u64(vm.getBlockNumber() - 1);
        (uint256 first, Found memory a) = looked(whistle, 2, TRUTH);
        uint256 second = showAs(stranger, 2, TRUTH, salt);
        Found memory b = Found(stranger, 2, announced, u64(vm.getBlockNumber()), TRUTH, false);
        (uint256 rich, uint256 poor) = (free(whistle), free(stranger));
        court.decide(first, true);
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 1));
        challenges.shareAlike(idOf(fallen), oneOf(a));
        court.decide(second, false); // whatever its own game gave
        challenges.shareAlike(idOf(fallen), list(a, b));
        assertEq(free(whistle) - rich, 30 ether + REWARD / 2);
        assertEq(free(stranger) - poor, 30 ether + REWARD / 2);
        vm.expectRevert(IChallenges.NoTruth.selector); // nobody has won what is paid
        challenges.shareAlike(idOf(fallen), list(a, b));
        assertSolvent();
    }

    /// @notice Nobody else's finding open: the reward is paid at once, whatever root was announced.
    function test_aLoneFindingIsPaidAtOnce() external {
        uint256 before = free(whistle);
        (uint256 game,) = looked(whistle, 1, TRUTH);
        court.decide(game, true);
        assertEq(free(whistle) - before, REWARD);
        (, address winner) = tasks.reward(idOf(fallen));
        assertEq(winner, address(0));
    }

    /// @notice Where the settled claim says that nobody was right, those whose games were won are paid alike.
    function test_whoeverWonItsGameIsPaidWhereNobodysRootIsRight() external {
        (uint256 game, Found memory a) = looked(whistle, 1, keccak256("mine"));
        (uint256 other, Found memory b) = looked(stranger, 2, keccak256("his"));
        (uint256 junk, Found memory c) = looked(client, 3, keccak256("theirs"));
        (uint256 rich, uint256 poor, uint256 liar) = (free(whistle), free(stranger), free(client));
        court.decide(game, true);
        court.decide(other, true);
        court.decide(junk, false);
        settle(truth(0));
        Found[] memory found = new Found[](3);
        (found[0], found[1], found[2]) = (a, b, c);
        vm.expectPartialRevert(IChallenges.WrongFindings.selector); // its game was lost
        share(found);
        found[2] = lost(c);
        uint256 paid = free(client);
        share(found);
        assertEq(free(whistle) - rich, 30 ether + REWARD / 2);
        assertEq(free(stranger) - poor, 30 ether + REWARD / 2);
        assertEq(free(client), paid);
        assertEq(paid - liar, 30 ether, "its bond");
    }

    /// @notice A game that was lost before the claim fell counts for nothing, not even as another finding.
    function test_aFindingThatLostItsGameIsNone() external {
        (uint256 lost,) = looked(stranger, 3, keccak256("junk"));
        (uint256 game,) = looked(whistle, 1, TRUTH);
        court.decide(lost, false);
        uint256 before = free(whistle);
        court.decide(game, true);
        assertEq(free(whistle) - before, 30 ether + REWARD, "paid at once");
    }

    // ---- what is refused

    function test_aFindingSaysSomethingElseThanTheClaim() external {
        bytes32[] memory ends = fallenRoots;
        bytes32 salt = announceRoot(whistle, idOf(fallen), 1, address(0), ends[2]);
        vm.expectRevert(IChallenges.NoDifference.selector);
        this.show(whistle, 1, ends[2], salt);
        salt = announceRoot(whistle, idOf(fallen), INPUT, address(0), fallen.inputRoot);
        vm.expectRevert(IChallenges.NoDifference.selector);
        vm.prank(whistle);
        challenges.openInput(fallen, fallen.inputRoot, salt);
    }

    function show(address who, uint32 segment, bytes32 root, bytes32 salt) external {
        showAs(who, segment, root, salt);
    }

    function test_aShownRootMustBeTheAnnouncedOne() external {
        bytes32 salt = announceRoot(whistle, idOf(fallen), 1, address(0), keccak256("a guess"));
        vm.expectPartialRevert(IChallenges.NotAnnounced.selector);
        this.show(whistle, 1, TRUTH, salt);
    }

    function test_aShareTakesAllFindingsAndASettledClaimOfTheSamePlace() external {
        bytes32[] memory right = truth(1);
        (uint256 honest, Found memory real) = looked(whistle, 1, right[2]);
        (uint256 other, Found memory false_) = looked(stranger, 1, keccak256("a guess"));
        court.decide(honest, true);
        court.decide(other, true);
        takeAs(solvers[0], 0);
        Claim memory again = draft(Kind.TASK, 0, 0);
        again.outputRoot = right[4];
        (settled, settledRoots) = commitAs(solvers[0], again, right);
        accept(settled);
        vm.expectRevert(IChallenges.NoTruth.selector); // it may yet be convicted
        share(list(real, false_));
        Claim memory elsewhere = acceptedTask(0, 1);
        skip(501);
        tasks.settle(settled);
        tasks.settle(elsewhere);
        vm.expectPartialRevert(IChallenges.WrongFindings.selector);
        share(oneOf(real));
        vm.expectPartialRevert(IChallenges.WrongFindings.selector);
        share(list(false_, real));
        bytes32[] memory others = segmentEnds(elsewhere);
        vm.expectRevert(IChallenges.NoTruth.selector);
        challenges.share(fallen, fallenRoots, elsewhere, others, list(real, false_));
        vm.expectRevert(IChallenges.BadProof.selector);
        challenges.share(fallen, settledRoots, settled, settledRoots, list(real, false_));
        share(list(real, false_));
        assertPhase(settled, Phase.SETTLED);
        assertEq(free(address(tasks)), 0);
    }

    /// @notice Not of another job, nor another kind, nor another round.
    function test_aClaimThatIsSettledElsewhereIsNoTruth() external {
        (uint256 game, Found memory a) = looked(whistle, 0, keccak256("mine"));
        (uint256 other, Found memory b) = looked(stranger, 0, keccak256("his"));
        court.decide(game, true);
        court.decide(other, true);
        takeAs(solvers[0], 0);
        Claim[] memory first = playRound(0);
        Claim memory later = acceptedTask(1, 0);
        Terms memory t = aTerms();
        t.nonce = 1;
        postJob(t);
        holdShards();
        Claim memory another = acceptedTask(0, 0);
        settleAll(first);
        tasks.settle(later);
        tasks.settle(another);
        refuseTruth(another, list(a, b));
        refuseTruth(first[SHARDS], list(a, b));
        refuseTruth(later, list(a, b));
    }

    function refuseTruth(Claim memory elsewhere, Found[] memory found) private {
        bytes32[] memory roots = segmentEnds(elsewhere);
        vm.expectRevert(IChallenges.NoTruth.selector);
        challenges.share(fallen, fallenRoots, elsewhere, roots, found);
    }
}

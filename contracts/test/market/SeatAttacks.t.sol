// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Role, Terms, Vote} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @dev An account with code: it calls Tasks several times in one transaction and goes on whatever is refused.
contract Repeater {
    ITasks private immutable TASKS;

    constructor(ITasks tasks) {
        TASKS = tasks;
    }

    function tryAll(bytes[] calldata calls) external returns (bool[] memory done) {
        done = new bool[](calls.length);
        for (uint256 i; i < calls.length; ++i) {
            (done[i],) = address(TASKS).call(calls[i]);
        }
    }
}

/// @notice What seats beside the seed, votes by a claim's id and one header a transaction (decision 0008) might let somebody do,
/// each idea as what its attacker would send (docs/threats.md, "Tried since").
/// forge-config: default.isolate = true
contract SeatAttacksTest is Market {
    uint256 private constant ACCOUNT_COUNT_SLOT = 9; // of Claims' storage

    Repeater private repeater;

    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
        repeater = new Repeater(tasks);
    }

    // ---- numbers

    /// @notice Sybils have used up all numbers of 16 bits: whoever comes after them still has a seat, a vote and pay of its own.
    function test_T14_whoIsNumberedAfter65536SybilsHasItsOwnSeat() external {
        assertEq(uint256(vm.load(address(tasks), bytes32(ACCOUNT_COUNT_SLOT))), 0);
        moreVerifiers(30);
        Claim memory first = commitTask(0, 0);
        address[] memory early = accept(first); // numbers 1 to 3
        assertEq(uint256(vm.load(address(tasks), bytes32(ACCOUNT_COUNT_SLOT))), early.length);
        vm.store(address(tasks), bytes32(ACCOUNT_COUNT_SLOT), bytes32(uint256(65_534)));
        Claim memory claim = commitTask(0, 1);
        seedFor(claim);
        skip(201);
        tasks.tally(claim);
        skip(201);
        tasks.tally(claim); // all eight seats
        address[] memory drawn = drawnOf(claim);
        assertEq(drawn.length, 8);
        assertGt(uint256(vm.load(address(tasks), bytes32(ACCOUNT_COUNT_SLOT))), 65_538, "beyond 16 bits");
        for (uint256 i; i < 8; ++i) {
            assertTrue(drawn[i] != address(0));
            for (uint256 j; j < i; ++j) {
                assertTrue(drawn[i] != drawn[j], "nobody in another's seat");
            }
            assertEq(lockedOf(drawn[i], Role.VERIFIER) > 0, i >= 6 || _among(early, drawn[i]));
        }
        uint256[2] memory before = [free(drawn[6]), free(drawn[7])];
        voteAs(drawn[6], claim, true);
        voteAs(drawn[7], claim, true);
        tasks.tally(claim);
        commitOuter(0);
        skip(1001);
        tasks.settle(first);
        tasks.settle(claim);
        for (uint256 i; i < 2; ++i) {
            uint256 votes = _among(early, drawn[6 + i]) ? 2 : 1; // and on the first claim
            assertEq(free(drawn[6 + i]) - before[i], votes * 1 ether);
        }
    }

    function _among(address[] memory all, address one) private pure returns (bool) {
        for (uint256 i; i < all.length; ++i) {
            if (all[i] == one) return true;
        }
        return false;
    }

    // ---- seats that only calls fill

    /// @notice A vote from the second word of seats falls to its own game, and nobody else's seat is touched by that.
    function test_T15_aFalseVoteInACalledSeatFallsAndNoOther() external {
        moreVerifiers(30);
        Claim memory claim = commitTask(0, 0);
        seedFor(claim);
        for (uint256 i; i < 2; ++i) {
            skip(201);
            tasks.tally(claim);
        }
        address[] memory drawn = drawnOf(claim);
        voteAs(drawn[6], claim, true);
        voteAs(drawn[7], claim, true);
        tasks.tally(claim);
        uint256[] memory staked = new uint256[](8);
        for (uint256 i; i < 8; ++i) {
            staked[i] = activeOf(drawn[i], Role.VERIFIER);
        }
        uint256 game = openVoteAs(whistle, claim, drawn[7], 1);
        court.decide(game, true);
        for (uint256 i; i < 8; ++i) {
            uint256 lost = staked[i] - activeOf(drawn[i], Role.VERIFIER);
            assertEq(lost, i == 7 ? 30 ether : 0);
        }
        assertEq(statusOf(claim).valid, 1);
        Vote[] memory cast = tasks.votes(idOf(claim));
        assertTrue(cast[7].gone && !cast[6].gone && cast[6].valid);
    }

    // ---- votes

    /// @notice One vote twice, in a batch and by an account with code; a vote for a claim in any phase by who has no seat.
    function test_T16_noVoteCountsTwiceWhateverIsBatched() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        bytes32 id = idOf(claim);
        bytes[] memory calls = new bytes[](2);
        bytes32 seed_ = statusOf(claim).seed;
        calls[0] = abi.encodeCall(ITasks.vote, (id, seed_, true, tracesOf(drawn[0])));
        calls[1] = abi.encodeCall(ITasks.vote, (id, seed_, false, new bytes32[](0)));
        vm.expectRevert(abi.encodeWithSelector(ITasks.AlreadyVoted.selector, drawn[0]));
        vm.prank(drawn[0]);
        tasks.multicall(calls);
        calls[1] = abi.encodeCall(ITasks.abstain, (claim));
        vm.expectRevert(abi.encodeWithSelector(ITasks.AlreadyVoted.selector, drawn[0]));
        vm.prank(drawn[0]);
        tasks.multicall(calls);
        (calls[0], calls[1]) = (calls[1], calls[1]);
        vm.expectRevert(abi.encodeWithSelector(ITasks.AlreadyVoted.selector, drawn[0]));
        vm.prank(drawn[0]);
        tasks.multicall(calls);
        assertEq(lockedOf(drawn[0], Role.VERIFIER), 30 ether);
        calls[0] = abi.encodeCall(ITasks.vote, (id, seed_, true, tracesOf(drawn[0])));
        calls[1] = calls[0];
        vm.expectRevert(abi.encodeWithSelector(ITasks.AlreadyVoted.selector, drawn[0]));
        vm.prank(drawn[0]);
        tasks.multicall(calls);
        for (uint256 i; i < 3; ++i) {
            voteAs(drawn[i], claim, true);
        }
        calls[0] = abi.encodeCall(ITasks.tally, (claim));
        calls[1] = calls[0];
        bool[] memory done = repeater.tryAll(calls);
        assertTrue(done[0] && !done[1]);
        acceptedTask(0, 1);
        skip(501);
        uint256 before = free(solvers[0]);
        calls[0] = abi.encodeCall(ITasks.settle, (claim));
        calls[1] = calls[0];
        done = repeater.tryAll(calls);
        assertTrue(done[0] && !done[1]);
        assertEq(free(solvers[0]) - before, 10 ether, "paid once");
        assertSolvent();
    }

    /// @notice A seat in one claim is none in another, nor in the same place's second attempt.
    function test_T17_aVoteServesNoOtherClaim() external {
        Claim memory claim = commitTask(0, 0);
        address[] memory drawn = seedFor(claim);
        bytes32[] memory none = new bytes32[](0);
        convictByGame(claim);
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.CONVICTED));
        vm.prank(drawn[0]);
        tasks.vote(idOf(claim), 0, false, none);
        takeAs(solvers[1], 0);
        Claim memory again = commitTask(0, 0);
        bytes32 id = idOf(again);
        address[] memory anew = seedFor(again);
        bytes32 seed_ = statusOf(again).seed;
        for (uint256 i; i < verifiers.length; ++i) {
            if (_among(anew, verifiers[i])) continue;
            vm.startPrank(verifiers[i]);
            vm.expectRevert(abi.encodeWithSelector(ITasks.NotDrawn.selector, verifiers[i]));
            tasks.vote(id, seed_, false, none);
            vm.expectRevert(abi.encodeWithSelector(ITasks.NotDrawn.selector, verifiers[i]));
            tasks.abstain(again);
            vm.stopPrank();
        }
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDrawn.selector, address(0)));
        vm.prank(address(0)); // who has the number 0, as an empty seat has
        tasks.vote(id, seed_, false, none);
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongClaim.selector, bytes32(0)));
        vm.prank(anew[0]);
        tasks.vote(0, seed_, false, none);
    }

    // ---- headers

    /// @notice An account with code catches the refusal of a call that has brought a header: nothing of it stays.
    function test_T18_aHeaderBroughtByARefusedCallServesNobody() external {
        Claim memory claim = commitTask(0, 0);
        Claim memory other = commitTask(0, 1);
        uint64 seedBlock = statusOf(claim).seedBlock;
        vm.roll(seedBlock + 1);
        bytes memory header = mineHeader(seedBlock, keccak256("randao"));
        tasks.recordSeed(claim, header);
        bytes[] memory calls = new bytes[](3);
        calls[0] = abi.encodeCall(ITasks.recordSeed, (claim, header)); // has its seed already
        bytes[] memory inner = new bytes[](2);
        inner[0] = abi.encodeCall(ITasks.recordSeed, (other, header));
        inner[1] = calls[0]; // so the batch is refused after the header was shown
        calls[1] = abi.encodeWithSignature("multicall(bytes[])", inner);
        calls[2] = abi.encodeCall(ITasks.recordSeed, (other, ""));
        bool[] memory done = repeater.tryAll(calls);
        assertTrue(!done[0] && !done[1] && !done[2]);
        calls[0] = inner[0];
        done = repeater.tryAll(calls);
        assertTrue(done[0], "by itself the call is good");
    }

    /// @notice After the patience there are two values for a block, one a claim; what was shown before is not mixed with them.
    function test_T19_aShownHeaderLeavesNoThirdChoice() external {
        Claim memory claim = commitTask(0, 0);
        Claim memory other = commitTask(0, 1);
        uint64 seedBlock = statusOf(claim).seedBlock;
        vm.roll(seedBlock + 129);
        bytes memory header = mineHeader(seedBlock, keccak256("randao"));
        bytes32 byRandao = _seedOf(other, keccak256("randao"));
        bytes32 byHash = _seedOf(other, keccak256(header));
        bytes[] memory calls = new bytes[](2);
        calls[0] = abi.encodeCall(ITasks.recordSeed, (claim, header));
        calls[1] = abi.encodeCall(ITasks.recordSeed, (other, ""));
        uint256 before = vm.snapshotState();
        repeater.tryAll(calls);
        assertEq(statusOf(other).seed, byRandao);
        vm.revertToState(before);
        (calls[0], calls[1]) = (calls[1], calls[0]);
        repeater.tryAll(calls);
        assertEq(statusOf(other).seed, byHash);
        assertEq(statusOf(claim).seed, _seedOf(claim, keccak256("randao")));
    }

    function _seedOf(Claim memory claim, bytes32 value) private pure returns (bytes32) {
        return bytes16(sha256(abi.encodePacked(value, idOf(claim))));
    }

    // ---- what works, and what it is worth

    /// @notice Whoever records first chooses the order in which a block's seeds are recorded, and so, where stake is scarce, who
    /// has none left for the claim that it cares for. Where everybody has stake for all of them, no order changes a seat.
    function test_T20_theOrderOfRecordsMattersOnlyWhereStakeIsScarce() external {
        vm.pauseGasMetering(); // several blocks, of which not each shows it
        bool scarce;
        uint256 start = vm.snapshotState();
        for (uint256 randao; randao < 64 && !scarce; ++randao) {
            scarce = _orderChangesSeats(200 ether, randao);
            assertTrue(vm.revertToState(start));
            assertFalse(_orderChangesSeats(30 ether, randao), "each has stake for every claim");
            assertTrue(vm.revertToState(start));
        }
        assertTrue(scarce, "the first verifier has stake for one seat");
    }

    /// @dev Four claims of two jobs of one class, two seats each: whether the seats of the first depend on which comes first.
    function _orderChangesSeats(uint128 stake, uint256 randao) private returns (bool changes) {
        Terms memory t = aTerms();
        (t.verifiers, t.verifierStake, t.solverStake) = (2, stake, stake < 50 ether ? 100 ether : 2 * stake);
        Claim[4] memory claims;
        for (uint256 i; i < 2; ++i) {
            t.seed = keccak256(abi.encode(i));
            postJob(t);
            holdShards();
            for (uint32 shard; shard < SHARDS; ++shard) {
                claims[2 * i + shard] = draft(Kind.TASK, 0, shard);
            }
        }
        for (uint256 i; i < 4; ++i) {
            claims[i] = submit(solvers[i % 2], claims[i]);
        }
        uint64 seedBlock = statusOf(claims[0]).seedBlock;
        vm.roll(seedBlock + 1);
        bytes memory header = mineHeader(seedBlock, keccak256(abi.encode("randao", randao)));
        uint256 before = vm.snapshotState();
        bytes32 seats;
        for (uint256 first; first < 4; ++first) {
            bytes[] memory calls = new bytes[](4);
            for (uint256 i; i < 4; ++i) {
                calls[i] =
                    abi.encodeCall(ITasks.recordSeed, (claims[(first + i) % 4], i == 0 ? header : bytes("")));
            }
            tasks.multicall(calls);
            bytes32 found = keccak256(abi.encode(drawnOf(claims[0])));
            if (first == 0) seats = found;
            changes = changes || found != seats;
            vm.revertToState(before);
        }
    }

    /// @notice A vote on a claim that a rewind has overtaken cannot be disputed: an invented one has its fee, which would
    /// have been burnt, out of the convict's stake. It decides nothing.
    function test_T21_anInventedVoteOnAnOvertakenClaimHasItsFeeAndNoMore() external {
        Claim memory outer = playRound(0)[SHARDS];
        Claim memory pending = commitTask(1, 1);
        address[] memory drawn = seedFor(pending);
        convictByGame(outer);
        (uint256 before, uint256 owed, uint256 burnt) = (free(drawn[0]), compensationSum(), vault.burnt());
        uint256 honest = free(solvers[1]);
        voteAs(drawn[0], pending, true);
        bytes32 salt = announceAs(whistle, idOf(pending), 1, drawn[0]);
        bytes32[] memory roots = tracesOf(drawn[0]);
        bytes32[] memory ends = segmentEnds(pending);
        uint256 segment = sampleOf(statusOf(pending).seed, drawn[0], 1, SEGMENTS);
        bytes32[] memory fromProof = memberProof(ends, segment);
        bytes32[] memory traceProof = memberProof(roots, 1);
        vm.expectRevert(ITasks.NotStanding.selector);
        vm.prank(whistle);
        challenges.openVote(pending, drawn[0], 1, ends[segment], fromProof, roots[1], traceProof, salt);
        tasks.void(pending);
        assertEq(free(drawn[0]) - before, 1 ether, "its fee");
        assertEq(free(solvers[1]) - honest, 10 ether, "what others are owed is whole");
        assertEq(vault.burnt() - burnt, 2 ether, "and the other seats' fees are burnt");
        assertEq(owed, 13 ether);
        assertSolvent();
    }
}

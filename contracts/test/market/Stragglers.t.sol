// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice Rounds that are closed without some of their shards, and whose outer claim is whose (docs/protocol.md 4.3, 4.4).
contract StragglersTest is Market {
    Claim private none;
    bool private chilled; // proofs meet nothing warm, as at the beginning of a transaction

    function setUp() external {
        setUpMarket();
        Terms memory t = aTerms();
        (t.minShards, t.rounds, t.maxUnsettled) = (1, 4, 4);
        // Prices for whose waste in three more rounds a stake of 100 is enough.
        (t.priceFloor, t.priceCap, t.verifierFee, t.outerFee) = (5 ether, 5 ether, 0, 1 ether);
        postJob(t);
        holdShards();
    }

    function afterTheStragglers() private {
        vm.warp(jobs.progress(jobId).roundStart + 1301);
    }

    /// @dev A round of shard 0 alone: its task and its outer claim, by shard 0's holder.
    function playAlone(uint32 round) private returns (Claim memory task, Claim memory outer) {
        task = acceptedTask(round, 0);
        afterTheStragglers();
        if (round % SHARDS != 0) skip(101);
        outer = submit(solvers[0], draft(Kind.OUTER, round, 0));
    }

    function outputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        uint256 slots = claim.kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
        return stateSlots(string.concat("out", vm.toString(claim.manifest)), slots);
    }

    /// @dev By anyone, with slots in it that the test knows.
    function submitFrom(address by, Kind kind, uint32 round, uint32 shard, bytes32[] memory input)
        private
        returns (Claim memory claim)
    {
        claim = draft(kind, round, shard);
        bytes32[] memory leaves = new bytes32[](input.length); // Merkle.root folds in place
        for (uint256 i; i < input.length; ++i) {
            leaves[i] = input[i];
        }
        claim.inputRoot = Merkle.root(leaves);
        return submit(by, claim);
    }

    function bind(
        Claim memory claim,
        uint32 slot,
        bytes32[] memory input,
        Claim memory source,
        bytes32[] memory from,
        uint256 place,
        bytes memory refusal
    ) private {
        (bytes32[] memory proof, bytes32[] memory way) = (memberProof(input, slot), memberProof(from, place));
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, input[slot]);
        if (chilled) chill();
        if (refusal.length > 0) vm.expectRevert(refusal);
        vm.prank(whistle);
        challenges.proveBinding(claim, slot, input[slot], proof, source, from[place], way, TRUTH, salt);
    }

    function wrongSource(Claim memory claim) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IChallenges.WrongSource.selector, idOf(claim));
    }

    // Closing

    function test_aRoundClosesWithoutItsStragglersOnceTheirTimeIsOver() external {
        uint64 start = jobs.progress(jobId).roundStart;
        Claim memory first = draft(Kind.OUTER, 0, 0);
        vm.warp(start + 1301);
        refuseCommit(solvers[0], first, abi.encodeWithSelector(ITasks.RoundIncomplete.selector, 0, 1));
        vm.warp(start);
        acceptedTask(0, 0);
        vm.warp(start + 1300);
        refuseCommit(solvers[0], first, abi.encodeWithSelector(ITasks.NotDue.selector, start + 1301));
        vm.warp(start + 1301);
        vm.expectEmit(address(jobs));
        emit IJobs.ShardsMissing(jobId, 0, 1);
        submit(solvers[0], first);
        assertEq(jobs.progress(jobId).round, 1);
        assertEq(jobs.progress(jobId).roundStart, start + 1301);
    }

    function test_aRoundWithAllItsTasksWaitsForNobody() external {
        acceptedTask(0, 0);
        acceptedTask(0, 1);
        commitOuter(0);
        assertEq(jobs.progress(jobId).round, 1);
    }

    function test_aClosedRoundIsNotReopenedByItsStraggler() external {
        acceptedTask(0, 0);
        Claim memory late = commitTask(0, 1);
        address[] memory drawn = seedFor(late);
        for (uint256 i; i < drawn.length; ++i) {
            voteAs(drawn[i], late, true);
        }
        vm.warp(jobs.progress(jobId).roundStart + 1301);
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.tally(late);
        submit(solvers[0], draft(Kind.OUTER, 0, 0));
        assertEq(tasks.current(jobId, Kind.TASK, 0, 1), 0);
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.tally(late);
        refuseCommit(
            solvers[1], draft(Kind.TASK, 0, 1), abi.encodeWithSelector(ITasks.WrongRound.selector, 1, 0)
        );
        uint256[2] memory before = [free(solvers[1]), vault.burnt()];
        tasks.void(late);
        assertPhase(late, Phase.VOID);
        assertEq(free(solvers[1]), before[0]);
        assertEq(vault.burnt(), before[1]);
        assertEq(lockedOf(solvers[1], Role.SOLVER), 7 ether, "its shard");
        for (uint256 i; i < drawn.length; ++i) {
            assertLe(lockedOf(drawn[i], Role.VERIFIER), 50 ether, "at most its vote on the other task");
        }
        assertSolvent();
    }

    /// @notice A task that is pending when its round is closable is ended by anyone (A4): nobody waits for an outer claim, and the
    /// job can be closed. Nobody is fined or called for it.
    function test_A4_aTaskThatIsTooLateIsEndedByAnyone() external {
        Claim memory first = acceptedTask(0, 0);
        Claim memory late = commitTask(0, 1);
        address[] memory drawn = seedFor(late);
        uint256 burnt = vault.burnt();
        vm.expectRevert(ITasks.NotStale.selector);
        tasks.void(late);
        vm.warp(jobs.progress(jobId).roundStart + 1301);
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.tally(late);
        vm.prank(stranger);
        tasks.void(late);
        assertPhase(late, Phase.VOID);
        assertEq(vault.burnt(), burnt, "nobody is fined");
        for (uint256 i; i < drawn.length; ++i) {
            assertLe(lockedOf(drawn[i], Role.VERIFIER), 30 ether, "at most its vote on the other task");
        }
        Claim memory again = draft(Kind.TASK, 0, 1);
        vm.expectPartialRevert(ITasks.TooLate.selector);
        vm.prank(solvers[1]);
        tasks.commit(again, segmentEnds(again));
        clientHalts();
        skip(1001);
        tasks.settle(first);
        jobs.close(jobId);
        releaseShards();
        assertEq(lockedOf(solvers[0], Role.SOLVER) + lockedOf(solvers[1], Role.SOLVER), 0);
        assertSolvent();
    }

    /// @notice A false task that its round goes on without does not escape: it may be challenged for a window, and is not voided
    /// before that; after it no junk game keeps it, or the job, open.
    function test_A4_aLateTaskIsLiableForAWindowAndNoLonger() external {
        acceptedTask(0, 0);
        vm.warp(jobs.progress(jobId).roundStart + 999);
        Claim memory late = commitTask(0, 1);
        address[] memory drawn = seedFor(late);
        voteAs(drawn[0], late, true);
        vm.warp(jobs.progress(jobId).roundStart + 1301);
        uint64 end = statusOf(late).since + 500;
        vm.expectRevert(abi.encodeWithSelector(ITasks.NotDue.selector, end + 1));
        tasks.void(late);
        if (block.timestamp > statusOf(late).since + 74) {
            abstainAs(drawn[1], late); // nobody waits for it
        }
        uint256 before = vm.snapshotState();
        uint256 rich = free(whistle);
        court.decide(challengeAs(whistle, late, 0), true);
        assertPhase(late, Phase.CONVICTED);
        assertEq(
            free(whistle) - rich,
            50 ether - jobs.terms(jobId).verifierFee,
            "half of its stake less a vote's fee"
        );
        assertEq(jobs.progress(jobId).rewinds, 0, "nothing is rewound");
        submit(solvers[0], draft(Kind.OUTER, 0, 0));
        assertSolvent();
        vm.revertToState(before);
        vm.warp(end + 1);
        bytes32[] memory ends = segmentEnds(late);
        bytes32[] memory from = memberProof(ends, 0);
        bytes32[] memory to = memberProof(ends, 1);
        bytes32 salt = announceAs(whistle, idOf(late), 0, address(0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.WindowClosed.selector, end));
        vm.prank(whistle);
        challenges.open(late, 0, ends[0], from, ends[1], to, TRUTH, salt);
        tasks.void(late);
        assertLe(lockedOf(drawn[0], Role.VERIFIER), 30 ether, "at most its vote on the other task");
        assertSolvent();
    }

    /// @dev Both tasks of a round, of which none is accepted before its stragglers' time is over; then the first is.
    function stall() private returns (Claim memory first, Claim memory second, uint64 accepted) {
        vm.warp(jobs.progress(jobId).roundStart + 999);
        (first, second) = (commitTask(0, 0), commitTask(0, 1));
        afterTheStragglers();
        skip(200);
        seedFor(second);
        accept(first);
        accepted = u64(vm.getBlockTimestamp());
    }

    /// @notice T49: a round stalls below minShards until its stragglers' time is over. The acceptance that is enough leaves the
    /// time of a vote to the other tasks.
    function test_T49_theAcceptanceThatIsEnoughTooLateLeavesOutNoTaskThatIsVotedOn() external {
        (, Claim memory second, uint64 accepted) = stall();
        address[] memory drawn = drawnOf(second);
        skip(74);
        for (uint256 i; i < drawn.length; ++i) {
            voteAs(drawn[i], second, true);
        }
        tasks.tally(second);
        assertPhase(second, Phase.ACCEPTED);
        uint64 until = accepted + 74 + 100;
        Claim memory outer = draft(Kind.OUTER, 0, 0);
        refuseCommit(solvers[1], outer, abi.encodeWithSelector(ITasks.OuterReserved.selector, until));
        submit(solvers[0], outer);
        assertEq(jobs.progress(jobId).round, 1, "it is whole");
    }

    /// @notice It waits no longer than that: then it can be closed, and who was not accepted is left out (Invariant 21).
    function test_T49_aRoundThatWasStalledWaitsForAVotesTimeAndNoLonger() external {
        (, Claim memory second, uint64 accepted) = stall();
        Claim memory outer = draft(Kind.OUTER, 0, 0);
        vm.warp(accepted + 74);
        refuseCommit(solvers[0], outer, abi.encodeWithSelector(ITasks.NotDue.selector, accepted + 75));
        vm.warp(accepted + 75);
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.tally(second);
        uint64 until = accepted + 74 + 100;
        refuseCommit(solvers[1], outer, abi.encodeWithSelector(ITasks.OuterReserved.selector, until));
        vm.warp(until);
        refuseCommit(solvers[1], outer, abi.encodeWithSelector(ITasks.OuterReserved.selector, until));
        skip(1);
        submit(solvers[1], outer);
        vm.warp(statusOf(second).since + 501);
        vm.prank(stranger);
        tasks.void(second);
        assertPhase(second, Phase.VOID);
        assertSolvent();
    }

    /// @notice T51: a task waits for its seed when its round can be closed. Whoever knows by then whom it would draw fells
    /// another task of its own, so that the first stands again and has that draw: for half a stake, which no draw is worth.
    function test_T51_whoWakesATaskThatWasLeftOutForItsDrawPaysHalfAStake() external {
        vm.warp(jobs.progress(jobId).roundStart + 999);
        (Claim memory own, Claim memory late) = (acceptedTask(0, 0), commitTask(0, 1));
        uint256 before = ringOwns();
        vm.roll(statusOf(late).seedBlock + 1);
        afterTheStragglers();
        bytes memory header = mineHeader(statusOf(late).seedBlock, keccak256("randao"));
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.recordSeed(late, header);
        convictByGame(own);
        accept(late);
        afterTheStragglers();
        skip(101);
        Claim memory outer = submit(solvers[1], draft(Kind.OUTER, 0, 0));
        skip(501);
        tasks.settle(late);
        tasks.settle(outer);
        assertEq(before + 5 ether + 1 ether - 50 ether, ringOwns(), "half a stake, for the price of a task");
    }

    /// @dev Both solvers, and who convicts for them.
    function ringOwns() private view returns (uint256) {
        uint256 staked = activeOf(solvers[0], Role.SOLVER) + activeOf(solvers[1], Role.SOLVER);
        return staked + free(solvers[0]) + free(solvers[1]) + free(whistle);
    }

    function test_whoeverHoldsAShardOfAClosingRoundOwesItNothing() external {
        acceptedTask(0, 0);
        vm.warp(jobs.progress(jobId).roundStart + 1001);
        uint256 snapshot = vm.snapshotState();
        tasks.expire(jobId, 1);
        assertEq(activeOf(solvers[1], Role.SOLVER), 993 ether, "penalised while the round waits");
        vm.revertToState(snapshot);
        afterTheStragglers();
        vm.expectRevert();
        tasks.expire(jobId, 1);
        releaseAs(solvers[1], 1);
        assertEq(activeOf(solvers[1], Role.SOLVER), 1000 ether);
    }

    function test_aMissingShardIsNotPaidForAndTheRestIsRefunded() external {
        uint256 before = free(client);
        uint256 escrow = vault.balance(IVault.Bucket.ESCROW, jobId);
        for (uint32 round; round < 4; ++round) {
            (Claim memory task, Claim memory outer) = playAlone(round);
            skip(501);
            vm.expectRevert(ITasks.EarlierUnsettled.selector);
            tasks.settle(outer);
            tasks.settle(task);
            tasks.settle(outer);
        }
        assertEq(jobs.progress(jobId).settledRounds, 4);
        jobs.close(jobId);
        assertEq(free(client) - before, escrow - 4 * (5 ether + 1 ether));
        assertEq(vault.balance(IVault.Bucket.ESCROW, jobId), 0);
        assertSolvent();
    }

    function test_aHaltedJobsLastRoundClosesWithoutAStraggler() external {
        clientHalts();
        (Claim memory task, Claim memory outer) = playAlone(0);
        skip(501);
        tasks.settle(task);
        tasks.settle(outer);
        jobs.close(jobId);
        assertEq(vault.balance(IVault.Bucket.ESCROW, jobId), 0);
    }

    // Whose the outer claim is

    function test_Attack36_anOuterClaimCopiedFromTheMempoolIsRefusedWhileItIsReserved() external {
        acceptedTask(0, 0);
        acceptedTask(0, 1);
        uint64 until = u64(vm.getBlockTimestamp()) + 100;
        Claim memory owned = draft(Kind.OUTER, 0, 0);
        skip(100);
        refuseCommit(solvers[1], owned, abi.encodeWithSelector(ITasks.OuterReserved.selector, until));
        uint256 snapshot = vm.snapshotState();
        submit(solvers[0], owned);
        assertEq(jobs.progress(jobId).round, 1, "the shard's holder may");
        vm.revertToState(snapshot);
        skip(1);
        submit(solvers[1], owned);
        assertEq(jobs.progress(jobId).round, 1, "anyone may once its owner has failed");
    }

    function test_theReservationOfAnIncompleteRoundBeginsWhenItCanBeClosed() external {
        acceptedTask(0, 0);
        afterTheStragglers();
        uint64 until = jobs.progress(jobId).roundStart + 1300 + 100;
        Claim memory claim = draft(Kind.OUTER, 0, 0);
        refuseCommit(solvers[1], claim, abi.encodeWithSelector(ITasks.OuterReserved.selector, until));
        vm.warp(until + 1);
        submit(solvers[1], claim);
    }

    function test_theReservationBeginsAnewAfterAnOuterClaimFell() external {
        Claim memory outer = playRound(0)[SHARDS];
        skip(400);
        convictByGame(outer);
        uint64 until = u64(vm.getBlockTimestamp()) + 100;
        bytes memory refusal = abi.encodeWithSelector(ITasks.OuterReserved.selector, until);
        refuseCommit(solvers[1], draft(Kind.OUTER, 0, 0), refusal);
        skip(101);
        submit(solvers[1], draft(Kind.OUTER, 0, 0));
    }

    // Bindings

    /// @dev θ, momentum, then each shard's parameters as given by `shardParams`.
    function outerInput(bytes32[] memory base, bytes32[] memory first, bytes32[] memory second)
        private
        pure
        returns (bytes32[] memory input)
    {
        input = new bytes32[]((2 + SHARDS) * PARAMS);
        for (uint256 i; i < 2 * PARAMS; ++i) {
            input[i] = base[i];
        }
        for (uint256 i; i < PARAMS; ++i) {
            (input[2 * PARAMS + i], input[3 * PARAMS + i]) = (first[i], second[i]);
        }
    }

    function test_Attack08_aMissingShardCountsWithTheRoundsOwnBaseAndNothingElse() external {
        bytes32[] memory genesis = stateSlots("outer genesis", (2 + SHARDS) * PARAMS);
        Claim memory task = acceptedTask(0, 0);
        Claim memory late = commitTask(0, 1);
        afterTheStragglers();
        uint256 snapshot = vm.snapshotState();
        // The straggler's parameters, as if it had come in time.
        bytes32[] memory wrong = outerInput(genesis, outputOf(task), outputOf(late));
        Claim memory outer = submitFrom(solvers[0], Kind.OUTER, 0, 0, wrong);
        bind(outer, 3 * PARAMS + 1, wrong, none, genesis, 1, "");
        assertPhase(outer, Phase.CONVICTED);
        assertEq(jobs.progress(jobId).round, 0);
        vm.revertToState(snapshot);
        // An honest one is not convicted by the straggler's claim, nor by the base.
        bytes32[] memory right = outerInput(genesis, outputOf(task), genesis);
        outer = submitFrom(solvers[0], Kind.OUTER, 0, 0, right);
        bytes memory same = abi.encodeWithSelector(IChallenges.NoDifference.selector);
        bind(outer, 3 * PARAMS + 1, right, none, genesis, 1, same);
        bytes memory unsound = abi.encodeWithSelector(IChallenges.BadProof.selector);
        bind(outer, 3 * PARAMS + 1, right, late, outputOf(late), 1, unsound);
        assertPhase(outer, Phase.ACCEPTED);
    }

    function test_Attack08_anAggregateThatTakesAPresentShardForMissingFallsInOneMove() external {
        bytes32[] memory genesis = stateSlots("outer genesis", (2 + SHARDS) * PARAMS);
        Claim memory first = acceptedTask(0, 0);
        Claim memory second = acceptedTask(0, 1);
        bytes32[] memory wrong = outerInput(genesis, outputOf(first), genesis);
        Claim memory outer = submitFrom(solvers[0], Kind.OUTER, 0, 0, wrong);
        bind(outer, 3 * PARAMS, wrong, none, genesis, 0, wrongSource(none));
        bind(outer, 3 * PARAMS, wrong, second, outputOf(second), 0, "");
        assertPhase(outer, Phase.CONVICTED);
    }

    function test_inLaterRoundsTheBaseIsTheLastAggregate() external {
        (, Claim memory before) = playAlone(0);
        Claim memory task = acceptedTask(1, 0);
        afterTheStragglers();
        bytes32[] memory genesis = stateSlots("outer genesis", (2 + SHARDS) * PARAMS);
        bytes32[] memory wrong = outerInput(outputOf(before), outputOf(task), genesis);
        Claim memory outer = submitFrom(solvers[1], Kind.OUTER, 1, 0, wrong);
        bind(outer, 3 * PARAMS + 1, wrong, before, outputOf(before), 1, "");
        assertPhase(outer, Phase.CONVICTED);
    }

    function test_Attack06_aShardThatWasMissingGoesOnFromItsLastTask() external {
        Claim[] memory first = playRound(0);
        (, Claim memory outer) = playAlone(1);
        bytes32[] memory input = outputOf(outer);
        (input[2], input[3]) = (outputOf(first[1])[2], 0);
        assembly ("memory-safe") {
            mstore(input, 3) // SLOTS
        }
        Claim memory task = submitFrom(solvers[1], Kind.TASK, 2, 1, input);
        bind(
            task,
            2,
            input,
            first[1],
            outputOf(first[1]),
            2,
            abi.encodeWithSelector(IChallenges.NoDifference.selector)
        );
        input[2] = keccak256("another moment");
        task = submitFromAgain(task, first, input);
        bind(task, 2, input, first[0], outputOf(first[0]), 2, wrongSource(first[0]));
        bind(task, 2, input, none, stateSlots("genesis", SLOTS), 2, wrongSource(none));
        bind(task, 2, input, first[1], outputOf(first[1]), 2, "");
        assertPhase(task, Phase.CONVICTED);
    }

    /// @dev The place is taken: make room by convicting what stands there.
    function submitFromAgain(Claim memory task, Claim[] memory, bytes32[] memory input)
        private
        returns (Claim memory)
    {
        convictByGame(task);
        stakeAs(solvers[1], Role.SOLVER, 100 ether);
        takeAs(solvers[1], 1);
        return submitFrom(solvers[1], Kind.TASK, 2, 1, input);
    }

    function test_aShardThatHasNoTaskYetStartsFromGenesisWithTheOthersParameters() external {
        (, Claim memory outer) = playAlone(0);
        bytes32[] memory input = stateSlots("genesis", SLOTS);
        (input[0], input[1]) = (outputOf(outer)[0], outputOf(outer)[1]);
        input[2] = keccak256("an invented moment");
        Claim memory task = submitFrom(solvers[1], Kind.TASK, 1, 1, input);
        bind(task, 2, input, none, stateSlots("genesis", SLOTS), 2, "");
        assertPhase(task, Phase.CONVICTED);
    }

    /// @notice Nor to genesis, where its shard had one task, and that fell.
    function test_A3_anOvertakenTaskIsNotHeldToGenesis() external {
        Claim[] memory first = playRound(0);
        bytes32[] memory input = outputOf(first[1]);
        Claim memory claim = submitFrom(solvers[1], Kind.TASK, 1, 1, input);
        bytes32 salt = announceAs(whistle, idOf(claim), type(uint32).max, address(0));
        vm.prank(whistle);
        challenges.openInput(claim, TRUTH, salt);
        convictByGame(first[1]);
        bytes memory refusal = abi.encodeWithSelector(ITasks.NotStanding.selector);
        bind(claim, 2, input, none, stateSlots("genesis", SLOTS), 2, refusal);
    }

    /// @notice Its own state's source may be gone with what overtook it: it is held to none that is older.
    function test_A3_anOvertakenTaskIsNotHeldToWhatItsShardHadBefore() external {
        Claim[] memory first = playRound(0);
        Claim[] memory second = playRound(1);
        bytes32[] memory input = outputOf(second[1]);
        Claim memory claim = submitFrom(solvers[1], Kind.TASK, 2, 1, input);
        bytes32 salt = announceAs(whistle, idOf(claim), type(uint32).max, address(0));
        vm.prank(whistle);
        challenges.openInput(claim, TRUTH, salt);
        convictByGame(second[1]);
        bytes memory refusal = abi.encodeWithSelector(ITasks.NotStanding.selector);
        bind(claim, 2, input, first[1], outputOf(first[1]), 2, refusal);
        assertPhase(claim, Phase.COMMITTED);
    }

    /// @notice However long a shard has been away, one transaction says where its state comes from.
    function test_aShardThatWasAwayForTooLongStartsFromGenesis() external {
        Terms memory t = aTerms();
        (t.minShards, t.rounds, t.maxUnsettled, t.nonce) = (1, 140, 3, 1);
        (t.priceFloor, t.priceCap, t.verifierFee, t.outerFee) = (5 ether, 5 ether, 0, 1 ether);
        postJob(t);
        takeAs(solvers[0], 0);
        takeAs(solvers[1], 1);
        for (uint256 i; i < 2; ++i) {
            fund(solvers[i], 1e6 ether);
            stakeAs(solvers[i], Role.SOLVER, 1e6 ether);
        }
        for (uint256 i; i < verifiers.length; ++i) {
            fund(verifiers[i], 1e6 ether);
            stakeAs(verifiers[i], Role.VERIFIER, 1e6 ether);
        }
        Claim[] memory last = playRound(0);
        Claim[] memory first = playRound(1);
        settleAll(last);
        last = first;
        for (uint32 round = 2; round < 129; ++round) {
            Claim[] memory next = new Claim[](2);
            commitTask(round, 1); // and is left out
            (next[0], next[1]) = playAlone(round);
            settleAll(last);
            last = next;
        }
        bytes32[] memory input = stateSlots("a guess", SLOTS);
        uint256 snapshot = vm.snapshotState();
        Claim memory task = submitFrom(solvers[1], Kind.TASK, 129, 1, input);
        bind(task, 2, input, first[1], outputOf(first[1]), 2, "");
        assertPhase(task, Phase.CONVICTED);
        vm.revertToState(snapshot);
        playAlone(129);
        task = submitFrom(solvers[1], Kind.TASK, 130, 1, input);
        chilled = true;
        bind(task, 2, input, none, stateSlots("genesis", SLOTS), 2, "");
        assertLt(vm.snapshotGasLastCall("market", "bind_128_rounds_back"), 2_000_000, "128 look-ups");
        assertPhase(task, Phase.CONVICTED);
    }

    // Answering for what was left out

    function test_aFalseClaimDoesNotEscapeItsGameBecauseItsRoundIsClosed() external {
        acceptedTask(0, 0);
        Claim memory late = commitTask(0, 1);
        uint256 game = challengeAs(whistle, late, 1);
        uint256 second = challengeAs(stranger_(), late, 1);
        afterTheStragglers();
        submit(solvers[0], draft(Kind.OUTER, 0, 0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.GamesOpen.selector, 2));
        tasks.void(late);
        bytes32 salt = announceAs(whistle, idOf(late), type(uint32).max, address(0));
        vm.expectPartialRevert(ITasks.WindowClosed.selector);
        vm.prank(whistle);
        challenges.openInput(late, TRUTH, salt);
        uint256 before = free(whistle);
        court.decide(game, true);
        assertPhase(late, Phase.CONVICTED);
        assertEq(free(whistle) - before, 30 ether, "its bond");
        (uint256 kept, address winner) = tasks.reward(idOf(late));
        assertEq(kept, 50 ether, "nothing was wasted; it waits for the other's game");
        assertEq(winner, whistle);
        assertEq(jobs.progress(jobId).round, 1, "nothing builds on it");
        assertEq(jobs.progress(jobId).rewinds, 0);
        (address holder,,) = tasks.holder(jobId, 1);
        assertEq(holder, address(0), "but its claimant has lost the shard");
        court.decide(second, true);
        assertEq(lockedOf(solvers[1], Role.SOLVER), 0);
        assertSolvent();
    }

    function stranger_() private returns (address) {
        fund(stranger, 1e4 ether);
        return stranger;
    }

    /// @notice The game's end is counted though nothing goes back: no later round waits for it.
    function test_aConvictionOfWhatWasLeftOutEndsTheDispute() external {
        acceptedTask(0, 0);
        uint256 game = challengeAs(whistle, commitTask(0, 1), 1);
        afterTheStragglers();
        submit(solvers[0], draft(Kind.OUTER, 0, 0));
        (,,, bool disputed) = jobs.running(jobId);
        assertTrue(disputed);
        court.decide(game, true);
        (,,, disputed) = jobs.running(jobId);
        assertFalse(disputed);
        assertEq(jobs.progress(jobId).dueSince, vm.getBlockTimestamp());
    }

    /// @notice What was left out has nothing set aside for it when a rewind overtakes it, too: of what is there for others nothing
    /// is burnt.
    function test_whatWasLeftOutAndFallsOnceOvertakenBurnsNothingOfOthers() external {
        uint256 below = challengeAs(stranger_(), playRound(0)[1], 0);
        acceptedTask(1, 0);
        Claim memory late = commitTask(1, 1);
        uint256 game = challengeAs(whistle, late, 1);
        afterTheStragglers();
        submit(ownerOf(1), draft(Kind.OUTER, 1, 0));
        court.decide(below, true);
        uint256 aside = compensationSum();
        assertEq(aside, 5 ether + 2 * 1 ether, "round 1's task, two outer claims");
        court.decide(game, true);
        assertPhase(late, Phase.CONVICTED);
        skip(501);
        tasks.freeSeats(late);
        assertEq(compensationSum(), aside);
        assertSolvent();
    }

    /// @notice Whoever has taken a shard late owes a task later, but not to a round that can be closed.
    function test_noTaskIsCommittedToARoundThatCanBeClosed() external {
        uint64 start = jobs.progress(jobId).roundStart;
        acceptedTask(0, 0);
        vm.warp(start + 900);
        releaseAs(solvers[1], 1);
        takeAs(solvers[1], 1);
        vm.warp(start + 1300);
        uint256 open = vm.snapshotState();
        commitTask(0, 1);
        vm.revertToState(open);
        vm.warp(start + 1301);
        bytes memory refusal = abi.encodeWithSelector(ITasks.TooLate.selector, start + 1000);
        refuseCommit(solvers[1], draft(Kind.TASK, 0, 1), refusal);
    }

    function test_aLeftOutClaimThatWinsItsGameIsVoided() external {
        acceptedTask(0, 0);
        Claim memory late = commitTask(0, 1);
        uint256 game = challengeAs(whistle, late, 1);
        afterTheStragglers();
        submit(solvers[0], draft(Kind.OUTER, 0, 0));
        uint256 before = free(solvers[1]);
        court.decide(game, false);
        assertEq(free(solvers[1]) - before, 15 ether);
        tasks.void(late);
        assertEq(lockedOf(solvers[1], Role.SOLVER), 7 ether, "its shard");
    }

    /// @notice A node asks for them once and never again.
    function test_nothingThatIsLeftOfAClosedJobChangesItsProgressOrItsEscrow() external {
        clientHalts();
        Claim memory late = commitTask(0, 1);
        uint256 game = challengeAs(whistle, late, 1);
        (Claim memory task, Claim memory outer) = playAlone(0);
        skip(501);
        tasks.settle(task);
        tasks.settle(outer);
        jobs.close(jobId);
        bytes32 closed = progressAndEscrow();
        uint256 snapshot = vm.snapshotState();
        court.decide(game, true);
        assertPhase(late, Phase.CONVICTED);
        assertEq(progressAndEscrow(), closed);
        vm.revertToState(snapshot);
        court.decide(game, false);
        tasks.void(late);
        assertPhase(late, Phase.VOID);
        assertEq(progressAndEscrow(), closed);
        vm.startPrank(client);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        jobs.topUp(jobId, 1);
        vm.expectRevert(abi.encodeWithSelector(IJobs.JobEnded.selector, jobId));
        jobs.halt(jobId);
    }

    function progressAndEscrow() private view returns (bytes32) {
        return keccak256(abi.encode(jobs.progress(jobId), vault.balance(IVault.Bucket.ESCROW, jobId)));
    }

    // Rewinds

    function test_whatWasLeftOutIsNotCompensatedByALaterRewind() external {
        Terms memory t = aTerms();
        (t.minShards, t.challengeWindow, t.maxUnsettled, t.nonce) = (1, 5000, 4, 1);
        (t.priceFloor, t.priceCap, t.verifierFee, t.outerFee) = (5 ether, 5 ether, 0, 1 ether);
        postJob(t);
        holdShards();
        Claim[] memory first = playRound(0);
        Claim memory task = acceptedTask(1, 0);
        Claim memory late = commitTask(1, 1);
        afterTheStragglers();
        skip(101);
        Claim memory outer = submit(solvers[0], draft(Kind.OUTER, 1, 0));
        Claim memory pending = commitTask(2, 1);
        uint256 snapshot = vm.snapshotState();
        convictByGame(first[SHARDS]);
        assertEq(compensationSum(), 11 ether, "task and pending, not the one left out");
        uint256 before = free(solvers[1]);
        tasks.void(late);
        assertEq(free(solvers[1]), before);
        tasks.void(pending);
        assertEq(free(solvers[1]) - before, 5 ether);
        tasks.void(task);
        tasks.void(outer);
        assertEq(compensationSum(), 0);
        assertEq(lockedOf(solvers[1], Role.SOLVER), 114 ether, "its task of round 0, and two shards");
        vm.revertToState(snapshot);
        vm.expectPartialRevert(ITasks.NotDue.selector); // it is liable for a window
        tasks.void(late);
        convictByGame(first[SHARDS]);
        tasks.void(late);
        assertEq(compensationSum(), 11 ether, "voided before or after");
        assertSolvent();
    }

    function test_afterARewindAMissingShardMayComeButItsOldClaimIsGone() external {
        Claim memory task = acceptedTask(0, 0);
        Claim memory late = commitTask(0, 1);
        afterTheStragglers();
        Claim memory outer = submit(solvers[0], draft(Kind.OUTER, 0, 0));
        convictByGame(outer);
        assertEq(jobs.progress(jobId).round, 0);
        assertEq(tasks.current(jobId, Kind.TASK, 0, 0), idOf(task));
        assertEq(tasks.current(jobId, Kind.TASK, 0, 1), 0, "left out for good");
        vm.roll(statusOf(late).seedBlock + 1);
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.recordSeed(late, "");
        Claim memory again = acceptedTask(0, 1);
        assertEq(again.attempt, 1);
        tasks.void(late);
        Claim memory whole = commitOuter(0);
        skip(501);
        tasks.settle(task);
        vm.expectRevert(ITasks.EarlierUnsettled.selector);
        tasks.settle(whole);
        tasks.settle(again);
        tasks.settle(whole);
        assertEq(jobs.progress(jobId).settledRounds, 1);
        assertSolvent();
    }
}

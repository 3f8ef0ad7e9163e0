// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {IClasses} from "../../src/interfaces/IClasses.sol";
import {IJobs} from "../../src/interfaces/IJobs.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Role, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice An outer step in slices: one claim for each, which stand, fall and settle by themselves, and close the round
/// together.
contract SlicesTest is Market {
    uint32 private constant SLICES = 3;
    uint256 private constant OUTER_SLOTS = 4; // parameter and momentum, and two shards' parameters
    Claim private none;
    Claim[] private made;

    function setUp() external {
        setUpMarket();
        postJob(sliced(SLICES, SHARDS));
        holdShards();
    }

    function sliced(uint32 slices, uint32 minShards) private view returns (Terms memory t) {
        t = aTerms();
        shapeSliced(t, 4, slices, SHARDS, slices);
        t.genesisRoot = Merkle.root(stateSlots("genesis", 4));
        t.outerGenesisRoot = Merkle.root(sliceGeneses(slices));
        (t.minShards, t.solverStake) = (minShards, 200 ether);
    }

    function sliceGeneses(uint32 slices) private view returns (bytes32[] memory roots) {
        roots = new bytes32[](slices);
        for (uint256 i; i < slices; ++i) {
            roots[i] = Merkle.root(sliceGenesis(i));
        }
    }

    function sliceGenesis(uint256 number) private pure returns (bytes32[] memory) {
        return stateSlots(string.concat("outer genesis", vm.toString(number)), OUTER_SLOTS);
    }

    function slotsIn(Claim memory claim) private pure returns (uint256) {
        return claim.kind == Kind.TASK ? 4 : OUTER_SLOTS;
    }

    function outputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        return stateSlots(string.concat("out", vm.toString(claim.manifest)), slotsIn(claim));
    }

    function taskOf(uint32 round, uint32 shard) private returns (Claim memory claim) {
        (address solver,,) = tasks.holder(jobId, shard);
        bytes32[] memory input = stateSlots(round == 0 ? "genesis" : "any", 4);
        claim = committed(solver, Kind.TASK, round, shard, input);
    }

    function committed(address by, Kind kind, uint32 round, uint32 shard, bytes32[] memory input)
        private
        returns (Claim memory claim)
    {
        claim = draft(kind, round, shard);
        claim = commitSlots(by, claim, input, outputOf(claim));
        made.push(claim);
    }

    function inTurn(uint32 round, uint32 number) private view returns (address solver) {
        (solver,,) = tasks.holder(jobId, (round + number) % SHARDS);
    }

    function slice(uint32 round, uint32 number) private returns (Claim memory) {
        return committed(inTurn(round, number), Kind.OUTER, round, number, stateSlots("any", OUTER_SLOTS));
    }

    /// @dev Both tasks of a round, then its slices.
    function play(uint32 round) private returns (Claim[] memory c) {
        c = new Claim[](SHARDS + SLICES);
        for (uint32 k; k < SHARDS; ++k) {
            c[k] = taskOf(round, k);
            accept(c[k]);
        }
        for (uint32 s; s < SLICES; ++s) {
            c[SHARDS + s] = slice(round, s);
        }
    }

    function refill(address solver) private {
        stakeAs(solver, Role.SOLVER, 1000 ether);
    }

    function standing(Claim memory claim) private view returns (bool) {
        return tasks.current(jobId, claim.kind, claim.round, claim.shard) == idOf(claim);
    }

    function test_theLastSliceClosesItsRound() external {
        for (uint32 k; k < SHARDS; ++k) {
            accept(taskOf(0, k));
        }
        slice(0, 1);
        slice(0, 0);
        assertEq(jobs.progress(jobId).round, 0);
        refuseCommit(
            solvers[0], draft(Kind.TASK, 1, 0), abi.encodeWithSelector(ITasks.WrongRound.selector, 0, 1)
        );
        refuseCommit(
            solvers[0],
            draft(Kind.OUTER, 0, SLICES),
            abi.encodeWithSelector(ITasks.NoSuchShard.selector, SLICES)
        );
        bytes32 there = tasks.current(jobId, Kind.OUTER, 0, 1);
        refuseCommit(
            solvers[1], draft(Kind.OUTER, 0, 1), abi.encodeWithSelector(ITasks.PlaceTaken.selector, there)
        );
        vm.expectEmit(address(jobs));
        emit IJobs.RoundStarted(jobId, 1);
        slice(0, 2);
        assertEq(jobs.progress(jobId).round, 1);
    }

    function test_aSliceIsReservedToAShardOfItsOwn() external {
        for (uint32 k; k < SHARDS; ++k) {
            accept(taskOf(0, k));
        }
        uint64 until = u64(vm.getBlockTimestamp()) + 100;
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 1), abi.encodeWithSelector(ITasks.OuterReserved.selector, until)
        );
        skip(60);
        slice(0, 0);
        // From the first slice on each has its time.
        until = u64(vm.getBlockTimestamp()) + 100;
        skip(100);
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 1), abi.encodeWithSelector(ITasks.OuterReserved.selector, until)
        );
        skip(1);
        submit(solvers[0], draft(Kind.OUTER, 0, 1));
        submit(solvers[1], draft(Kind.OUTER, 0, 2));
        assertEq(jobs.progress(jobId).round, 1);
    }

    function test_Attack08_aFalseSliceFallsAloneAndTheOthersStand() external {
        Claim[] memory first = play(0);
        Claim memory later = taskOf(1, 0);
        Claim memory other = taskOf(1, 1);
        accept(other);
        convictByGame(first[SHARDS + 1]);
        assertPhase(first[SHARDS + 1], Phase.CONVICTED);
        assertEq(jobs.progress(jobId).round, 0);
        for (uint256 i; i < first.length; ++i) {
            assertTrue(standing(first[i]) == (i != SHARDS + 1), "all but the false one");
        }
        assertTrue(!standing(later) && !standing(other), "what was built on it is stale");
        assertEq(compensationSum(), 26 ether, "two tasks, and no slice");
        // Only the one place is open.
        bytes32 there = idOf(first[SHARDS]);
        refuseCommit(
            solvers[0], draft(Kind.OUTER, 0, 0), abi.encodeWithSelector(ITasks.PlaceTaken.selector, there)
        );
        refill(solvers[1]);
        Claim memory again = slice(0, 1);
        assertEq(again.attempt, 1);
        assertEq(jobs.progress(jobId).round, 1, "closed by the one that was missing");
        tasks.void(later);
        tasks.void(other);
        assertEq(compensationSum(), 0);
        skip(501);
        tasks.settle(first[0]);
        tasks.settle(first[1]);
        uint256 before = free(solvers[0]);
        tasks.settle(first[SHARDS]);
        assertEq(free(solvers[0]) - before, 5 ether, "an honest slice is paid as if nothing had been");
        tasks.settle(first[SHARDS + 2]);
        assertEq(jobs.progress(jobId).settledRounds, 0);
        tasks.settle(again);
        assertEq(jobs.progress(jobId).settledRounds, 1);
        assertSolvent();
    }

    function test_aFalseSliceOfARoundThatIsOpenFallsAlone() external {
        for (uint32 k; k < SHARDS; ++k) {
            accept(taskOf(0, k));
        }
        Claim memory honest = slice(0, 0);
        Claim memory wrong = slice(0, 1);
        convictByGame(wrong);
        assertTrue(standing(honest));
        assertEq(compensationSum(), 0);
        refill(solvers[1]);
        slice(0, 1);
        slice(0, 2);
        assertTrue(standing(honest));
        assertEq(jobs.progress(jobId).round, 1);
        assertSolvent();
    }

    function test_aFalseTaskTakesAllSlicesOfItsRoundWithIt() external {
        Claim[] memory first = play(0);
        convictByGame(first[0]);
        for (uint256 i; i < SLICES; ++i) {
            assertTrue(!standing(first[SHARDS + i]));
        }
        assertEq(compensationSum(), 15 ether);
        (uint256 honest, uint256 burnt) = (free(solvers[1]), vault.burnt());
        for (uint256 i; i < SLICES; ++i) {
            tasks.void(first[SHARDS + i]);
        }
        assertEq(free(solvers[1]) - honest, 5 ether, "slice 1");
        assertEq(vault.burnt() - burnt, 10 ether, "the convict's own two");
        assertEq(compensationSum(), 0);
        assertSolvent();
    }

    function test_aFalseTaskOfAnOpenRoundTakesTheSlicesThatAreThere() external {
        Claim memory wrong = taskOf(0, 0);
        accept(wrong);
        accept(taskOf(0, 1));
        Claim memory built = slice(0, 1);
        convictByGame(wrong);
        assertTrue(!standing(built));
        assertEq(compensationSum(), 5 ether);
        uint256 before = free(solvers[1]);
        tasks.void(built);
        assertEq(free(solvers[1]) - before, 5 ether);
        takeAs(solvers[1], 0);
        refill(solvers[1]);
        accept(taskOf(0, 0));
        assertEq(slice(0, 1).attempt, 1);
        slice(0, 0);
        slice(0, 2);
        assertEq(jobs.progress(jobId).round, 1);
        assertSolvent();
    }

    /// @notice A slice that another's fall left standing is overtaken by what falls under it afterwards.
    function test_whatFallsUnderASliceLaterOvertakesIt() external {
        Claim[] memory first = play(0);
        convictByGame(first[SHARDS + 1]);
        convictByGame(first[0]);
        assertTrue(!standing(first[SHARDS]) && !standing(first[SHARDS + 2]));
        assertTrue(standing(first[1]));
        assertEq(compensationSum(), 10 ether);
        tasks.void(first[SHARDS]);
        tasks.void(first[SHARDS + 2]);
        assertEq(compensationSum(), 0);
        assertSolvent();
    }

    function test_slicesSettleByThemselvesAndStaySettled() external {
        for (uint32 k; k < SHARDS; ++k) {
            accept(taskOf(0, k));
        }
        Claim memory a = slice(0, 0);
        skip(501);
        vm.expectRevert(ITasks.EarlierUnsettled.selector);
        tasks.settle(a);
        Claim memory b = slice(0, 1);
        settleStanding(Kind.TASK, 0);
        tasks.settle(a);
        assertPhase(a, Phase.SETTLED);
        convictByGame(b);
        assertEq(tasks.current(jobId, Kind.OUTER, 0, 0), idOf(a), "what is settled stays");
        refill(solvers[1]);
        b = slice(0, 1);
        Claim memory c = slice(0, 2);
        assertEq(jobs.progress(jobId).round, 1);
        skip(501);
        tasks.settle(c);
        assertEq(jobs.progress(jobId).settledRounds, 0);
        tasks.settle(b);
        assertEq(jobs.progress(jobId).settledRounds, 1);
        assertSolvent();
    }

    function test_theFirstSliceFixesTheRoundsTasks() external {
        Terms memory t = sliced(SLICES, 1);
        (t.nonce, t.challengeWindow) = (1, 5000);
        postJob(t);
        holdShards();
        Claim[] memory before = play(0);
        accept(taskOf(1, 0));
        Claim memory late = taskOf(1, 1);
        address[] memory drawn = seedFor(late);
        for (uint256 i; i < drawn.length; ++i) {
            voteAs(drawn[i], late, true);
        }
        skip(1301);
        slice(1, 0);
        assertEq(tasks.current(jobId, Kind.TASK, 1, 1), 0, "left out, though its round is open");
        vm.expectRevert(ITasks.NotStanding.selector);
        tasks.tally(late);
        uint64 since = u64(vm.getBlockTimestamp());
        refuseCommit(
            solvers[1], draft(Kind.TASK, 1, 1), abi.encodeWithSelector(ITasks.TooLate.selector, since)
        );
        // What was left out is owed nothing by whoever falls after that.
        convictByGame(before[0]);
        assertEq(compensationSum(), 15 ether + 13 ether + 5 ether, "slices of round 0; a task and a slice");
        uint256 held = compensationSum();
        tasks.void(late);
        assertEq(compensationSum(), held);
        assertSolvent();
    }

    /// @notice It is voided before the last one comes, and the round is closed all the same.
    function test_whatTheFirstSliceLeavesOutIsVoidedWhileTheRoundIsOpen() external {
        postJob(sliced(SLICES, 1));
        holdShards();
        accept(taskOf(0, 0));
        uint64 start = jobs.progress(jobId).roundStart;
        vm.warp(start + 999);
        Claim memory late = taskOf(0, 1);
        vm.warp(start + 1301);
        slice(0, 0);
        vm.warp(start + 999 + 501);
        tasks.void(late);
        assertPhase(late, Phase.VOID);
        slice(0, 1);
        slice(0, 2);
        assertEq(jobs.progress(jobId).round, 1);
    }

    /// @notice A slice is reserved from the round's first one on, also where a task is missing and the first came late.
    function test_theOtherSlicesAreReservedFromTheFirstOneOn() external {
        postJob(sliced(SLICES, 1));
        holdShards();
        accept(taskOf(0, 0));
        vm.warp(jobs.progress(jobId).roundStart + 1300 + 90);
        slice(0, 0);
        skip(100);
        bytes memory refusal =
            abi.encodeWithSelector(ITasks.OuterReserved.selector, u64(vm.getBlockTimestamp()));
        refuseCommit(solvers[0], draft(Kind.OUTER, 0, 1), refusal);
        skip(1);
        committed(solvers[0], Kind.OUTER, 0, 1, stateSlots("any", OUTER_SLOTS));
    }

    function test_aHaltedJobEndsWithoutTheSlicesThatNobodyMade() external {
        Claim[2] memory done;
        for (uint32 k; k < SHARDS; ++k) {
            done[k] = taskOf(0, k);
            accept(done[k]);
        }
        Claim memory only = slice(0, 0);
        clientHalts();
        skip(1101);
        tasks.settle(done[0]);
        tasks.settle(done[1]);
        vm.expectRevert(abi.encodeWithSelector(IJobs.NotFinished.selector, jobId));
        jobs.close(jobId);
        tasks.settle(only);
        jobs.close(jobId);
        releaseShards();
        assertEq(lockedOf(solvers[0], Role.SOLVER), 0);
        assertEq(escrowSum(), 0);
        assertSolvent();
    }

    // Inputs

    function bind(
        Claim memory claim,
        bytes32[] memory input,
        uint32 slot,
        Claim memory source,
        bytes32 right,
        bytes32[] memory way
    ) private {
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, input[slot]);
        bytes32[] memory proof = memberProof(input, slot);
        vm.prank(whistle);
        challenges.proveBinding(claim, slot, input[slot], proof, source, right, way, TRUTH, salt);
    }

    /// @dev A slice with this input is not proven wrong in the slot; one with another there falls.
    function binds(
        uint32 round,
        uint32 number,
        bytes32[] memory input,
        uint32 slot,
        Claim memory source,
        bytes32 right,
        bytes32[] memory way
    ) private {
        assertEq(input[slot], right, "the test's own slot is right");
        uint256 before = vm.snapshotState();
        Claim memory claim = committed(inTurn(round, number), Kind.OUTER, round, number, input);
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, input[slot]);
        bytes32[] memory proof = memberProof(input, slot);
        vm.expectRevert(IChallenges.NoDifference.selector);
        vm.prank(whistle);
        challenges.proveBinding(claim, slot, input[slot], proof, source, right, way, TRUTH, salt);
        vm.revertToState(before);
        bytes32[] memory wrong = copied(input);
        wrong[slot] = keccak256("another");
        claim = committed(inTurn(round, number), Kind.OUTER, round, number, wrong);
        bind(claim, wrong, slot, source, right, way);
        assertPhase(claim, Phase.CONVICTED);
        vm.revertToState(before);
    }

    function test_aSliceStartsFromItsOwnPartOfGenesisAndOfEveryShard() external {
        Claim[2] memory done;
        for (uint32 k; k < SHARDS; ++k) {
            done[k] = taskOf(0, k);
            accept(done[k]);
        }
        for (uint32 s; s < SLICES; ++s) {
            bytes32[] memory input = new bytes32[](OUTER_SLOTS);
            bytes32[] memory own = sliceGenesis(s);
            (input[0], input[1]) = (own[0], own[1]);
            (input[2], input[3]) = (outputOf(done[0])[s], outputOf(done[1])[s]);
            for (uint32 slot; slot < 2; ++slot) {
                bytes32[] memory way = joined(memberProof(own, slot), memberProof(sliceGeneses(SLICES), s));
                binds(0, s, input, slot, none, own[slot], way);
            }
            binds(0, s, input, 2, done[0], input[2], memberProof(outputOf(done[0]), s));
            binds(0, s, input, 3, done[1], input[3], memberProof(outputOf(done[1]), s));
        }
    }

    function test_aSliceGoesOnFromItsOwnLastOne() external {
        Claim[] memory first = play(0);
        Claim[2] memory done;
        for (uint32 k; k < SHARDS; ++k) {
            done[k] = taskOf(1, k);
            accept(done[k]);
        }
        bytes32[] memory own = outputOf(first[SHARDS + 2]);
        bytes32[] memory input = new bytes32[](OUTER_SLOTS);
        (input[0], input[1], input[2], input[3]) =
        (own[0], own[1], outputOf(done[0])[2], outputOf(done[1])[2]);
        binds(1, 2, input, 1, first[SHARDS + 2], own[1], memberProof(own, 1));
        // Another slice's output is not its source.
        Claim memory claim = committed(inTurn(1, 2), Kind.OUTER, 1, 2, input);
        bytes32 salt = announceSlot(whistle, idOf(claim), 1, input[1]);
        bytes32[] memory theirs = outputOf(first[SHARDS]);
        (bytes32[] memory proof, bytes32[] memory way) = (memberProof(input, 1), memberProof(theirs, 1));
        vm.expectRevert(abi.encodeWithSelector(IChallenges.WrongSource.selector, idOf(first[SHARDS])));
        vm.prank(whistle);
        challenges.proveBinding(claim, 1, input[1], proof, first[SHARDS], theirs[1], way, TRUTH, salt);
    }

    function test_aTaskReadsEverySlice() external {
        Claim[] memory first = play(0);
        bytes32[] memory input = new bytes32[](4);
        for (uint32 s; s < SLICES; ++s) {
            input[s] = outputOf(first[SHARDS + s])[0];
        }
        input[3] = outputOf(first[0])[3];
        for (uint32 s; s < SLICES; ++s) {
            uint256 before = vm.snapshotState();
            bytes32[] memory wrong = copied(input);
            wrong[s] = keccak256("another");
            Claim memory claim = committed(solvers[0], Kind.TASK, 1, 0, wrong);
            bind(claim, wrong, s, first[SHARDS + s], input[s], memberProof(outputOf(first[SHARDS + s]), 0));
            assertPhase(claim, Phase.CONVICTED);
            vm.revertToState(before);
        }
    }

    function joined(bytes32[] memory a, bytes32[] memory b) private pure returns (bytes32[] memory both) {
        both = new bytes32[](a.length + b.length);
        for (uint256 i; i < both.length; ++i) {
            both[i] = i < a.length ? a[i] : b[i - a.length];
        }
    }

    // Terms

    function refusePost(Terms memory t, string memory field) private {
        vm.expectRevert(abi.encodeWithSelector(IClasses.BadTerms.selector, field));
        vm.prank(client);
        jobs.post(t, 1e5 ether);
    }

    function test_slicesThatAreNoneTooManyOrDoNotDivideAreRefused() external {
        Terms memory t = sliced(SLICES, SHARDS);
        t.slices = 0;
        refusePost(t, "slices");
        t.slices = 1025;
        refusePost(t, "slices");
        t.slices = 2;
        refusePost(t, "params");
        t = sliced(SLICES, SHARDS);
        t.outerLinks[1].mod = 5; // a part beyond the task's slots
        refusePost(t, "outerLinks");
        t = sliced(SLICES, SHARDS);
        t.links[0].times = 4; // more slices than there are
        t.slots = 5;
        refusePost(t, "links");
        t = sliced(SLICES, SHARDS);
        uint256 most = 26 ether + 30 ether;
        t.solverStake = u128(8 * most / 3); // too little by less than one unit
        refusePost(t, "solverStake");
        t.solverStake += 1;
        t.nonce = 7;
        postJob(t);
        assertEq(jobs.worstCase(t), 3 * (26 ether + 15 ether));
    }

    function u128(uint256 small) private pure returns (uint128) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint128(small);
    }

    // Fuzz

    /// @notice Whatever falls in whatever order: every claim stands or not as what it builds on does, what is wasted is paid or
    /// burnt to the last unit, and the job goes on to its end.
    function testFuzz_convictionsInAnyOrder(uint256 seed) external {
        refill(solvers[0]);
        refill(solvers[1]);
        Claim[] memory first = play(0);
        Claim[] memory second = new Claim[](SHARDS + 1);
        for (uint32 k; k < SHARDS; ++k) {
            second[k] = taskOf(1, k);
            accept(second[k]);
        }
        second[SHARDS] = slice(1, u32(seed % SLICES));
        for (uint256 i; i < 4; ++i) {
            seed = uint256(keccak256(abi.encode(seed)));
            uint256 at = (seed >> 8) % (first.length + second.length);
            Claim memory wrong = at < first.length ? first[at] : second[at - first.length];
            if (!standing(wrong)) continue;
            bool[] memory before = standings(first, second);
            convictByGame(wrong);
            bool[] memory now_ = standings(first, second);
            for (uint256 j; j < now_.length; ++j) {
                Claim memory claim = j < first.length ? first[j] : second[j - first.length];
                bool later = claim.round > wrong.round
                    || (claim.round == wrong.round && claim.kind == Kind.OUTER && wrong.kind == Kind.TASK);
                assertEq(now_[j], before[j] && !later && j != at);
            }
            assertSolvent();
        }
        bool[] memory left = standings(first, second);
        for (uint256 j; j < left.length; ++j) {
            Claim memory claim = j < first.length ? first[j] : second[j - first.length];
            if (!left[j] && statusOf(claim).phase != Phase.CONVICTED) tasks.void(claim);
        }
        assertEq(compensationSum(), 0, "all that was set aside is paid or burnt");
        goOn(0);
        goOn(1);
        goOn(2);
        jobs.close(jobId);
        assertEq(escrowSum() + compensationSum(), 0);
        assertSolvent();
    }

    function standings(Claim[] memory first, Claim[] memory second)
        private
        view
        returns (bool[] memory found)
    {
        found = new bool[](first.length + second.length);
        for (uint256 i; i < found.length; ++i) {
            found[i] = standing(i < first.length ? first[i] : second[i - first.length]);
        }
    }

    /// @dev What is missing of a round is made, and all of it is settled.
    function goOn(uint32 round) private {
        for (uint32 k; k < SHARDS; ++k) {
            refill(solvers[k]);
            (address solver,,) = tasks.holder(jobId, k);
            if (solver != address(0)) continue;
            takeAs(solvers[k], k);
        }
        for (uint32 k; k < SHARDS; ++k) {
            if (tasks.current(jobId, Kind.TASK, round, k) == 0) accept(taskOf(round, k));
        }
        for (uint32 s; s < SLICES; ++s) {
            if (tasks.current(jobId, Kind.OUTER, round, s) == 0) slice(round, s);
        }
        skip(501);
        settleStanding(Kind.TASK, round);
        settleStanding(Kind.OUTER, round);
        assertEq(jobs.progress(jobId).settledRounds, round + 1);
    }

    function settleStanding(Kind kind, uint32 round) private {
        for (uint256 i; i < made.length; ++i) {
            Claim memory claim = made[i];
            if (claim.kind == kind && claim.round == round && standing(claim)) tasks.settle(claim);
        }
    }
}

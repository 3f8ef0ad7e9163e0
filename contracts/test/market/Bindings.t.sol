// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {Game} from "../../src/interfaces/ICourt.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {IVault} from "../../src/interfaces/IVault.sol";
import {Claim, Found, INPUT, Kind, Phase, Role} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice Claims that do not start where they must fall in one move.
contract BindingsTest is Market {
    Claim private none;

    function setUp() external {
        setUpMarket();
        postJob(aTerms());
        holdShards();
    }

    function bind(
        Claim memory claim,
        uint32 slot,
        bytes32[] memory slots,
        Claim memory source,
        bytes32[] memory from
    ) private {
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
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, slots[slot]);
        if (refusal.length > 0) vm.expectRevert(refusal);
        vm.prank(whistle);
        challenges.proveBinding(
            claim, slot, slots[slot], proof, source, from[place], sourceProof, TRUTH, salt
        );
    }

    function outputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        uint256 slots = claim.kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
        return stateSlots(string.concat("out", vm.toString(claim.manifest)), slots);
    }

    function inputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        uint256 slots = claim.kind == Kind.TASK ? SLOTS : (2 + SHARDS) * PARAMS;
        return stateSlots(string.concat("in", vm.toString(claim.manifest)), slots);
    }

    function test_Attack07_aTaskThatDoesNotStartFromTheAggregateFallsInOneMove() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 0);
        uint256 before = free(whistle);
        bind(claim, 1, inputOf(claim), first[2], outputOf(first[2]));
        assertPhase(claim, Phase.CONVICTED);
        assertEq(free(whistle) - before, 50 ether);
    }

    function test_Attack06_aTaskThatDoesNotKeepItsOptimiserStateFallsInOneMove() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 1);
        bind(claim, 2, inputOf(claim), first[1], outputOf(first[1]));
        assertPhase(claim, Phase.CONVICTED);
    }

    function test_Attack08_anAggregateOfAnythingButTheRoundsTasksFallsInOneMove() external {
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

    /// @notice Whoever has voted for an input that is not what it must be loses its stake with the claimant.
    function test_aWrongInputCostsItsVotersTheirStakes() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 0);
        address[] memory drawn = accept(claim);
        uint256[] memory before = new uint256[](drawn.length);
        for (uint256 i; i < drawn.length; ++i) {
            before[i] = activeOf(drawn[i], Role.VERIFIER);
        }
        bind(claim, 1, inputOf(claim), first[2], outputOf(first[2]));
        for (uint256 i; i < drawn.length; ++i) {
            assertEq(before[i] - activeOf(drawn[i], Role.VERIFIER), 30 ether);
        }
        assertSolvent();
    }

    function openInputAs(address who, Claim memory claim) private returns (uint256) {
        bytes32 salt = announceAs(who, idOf(claim), type(uint32).max, address(0));
        vm.prank(who);
        return challenges.openInput(claim, TRUTH, salt);
    }

    /// @notice A random input root binds to nothing. Its claimant has to open it; then one slot convicts, and the bond of the
    /// game that it took comes back.
    function test_Attack35_anInputStateThatNobodyKnowsIsOpenedAndConvicts() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 0);
        accept(claim);
        uint256 rich = free(whistle);
        uint256 id = openInputAs(whistle, claim);
        assertEq(rich - free(whistle), 30 ether, "bond");
        Game memory game = court.game(id);
        assertEq(game.params.claimId, idOf(claim));
        assertEq(game.cursor.defender, claim.claimant);
        assertEq(game.context.outRoot, claim.inputRoot);
        assertEq(game.context.steps, 0);
        assertEq(game.context.key, 0);
        assertEq(game.params.program.slots, SLOTS);
        bind(claim, 1, inputOf(claim), first[2], outputOf(first[2]));
        assertPhase(claim, Phase.CONVICTED);
        uint64 block_ = u64(vm.getBlockNumber());
        Found[] memory found = new Found[](2);
        found[0] = Found(whistle, INPUT, block_ - 1, block_, TRUTH, true); // the slot's
        found[1] = Found(whistle, INPUT, block_ - 2, block_ - 1, TRUTH, false); // the game's
        court.decide(id, false);
        challenges.shareAlike(idOf(claim), found);
        assertEq(free(whistle) - rich, 95 ether, "half of 100 + 3 x 30; bond back");
        assertEq(vault.balance(IVault.Bucket.BOND, bytes32(id)), 0);
        assertSolvent();
    }

    /// @notice A claimant that opens its state as slowly as it may does not outlast the window: while the game is open the
    /// proof is in time.
    function test_Attack35_whatAGameOpensAfterTheWindowStillConvicts() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 0);
        accept(claim);
        skip(500); // the window's last second
        uint256 snapshot = vm.snapshotState();
        skip(1);
        bytes memory refusal =
            abi.encodeWithSelector(ITasks.WindowClosed.selector, u64(vm.getBlockTimestamp()) - 1);
        bind(claim, 1, inputOf(claim), first[2], outputOf(first[2]), 1, refusal);
        vm.revertToState(snapshot);
        openInputAs(whistle, claim);
        skip(60);
        bind(claim, 1, inputOf(claim), first[2], outputOf(first[2]));
        assertPhase(claim, Phase.CONVICTED);
    }

    function test_Attack35_aClaimantThatOpensNothingIsConvicted() external {
        Claim[] memory first = playRound(0);
        uint256 id = openInputAs(whistle, first[2]);
        assertEq(court.game(id).params.program.slots, (2 + SHARDS) * PARAMS);
        court.decide(id, true);
        assertPhase(first[2], Phase.CONVICTED);
    }

    /// @notice The claim's source is undone while its input is being opened: nothing can be proven any more, so who asked loses
    /// nothing.
    function test_A3_whoseSourceIsUndoneUnderTheGameHasItsBondBack() external {
        Claim[] memory first = playRound(0);
        Claim memory claim = commitTask(1, 0);
        accept(claim);
        uint256 rich = free(whistle);
        uint256 id = openInputAs(whistle, claim);
        court.decide(challengeAs(stranger_(), first[2], 0), true);
        court.decide(id, false);
        assertEq(free(whistle), rich);
        tasks.void(claim);
        assertSolvent();
    }

    /// @notice What undoes the claim leaves its source: the input is proven wrong all the same while the game is open.
    function test_A3_anOvertakenClaimFallsByTheInputThatItWasCommittedWith() external {
        settleAll(playRound(0));
        Claim[] memory second = playRound(1);
        Claim memory claim = commitTask(2, 0);
        uint256 id = openInputAs(whistle, claim);
        court.decide(challengeAs(stranger_(), second[1], 0), true);
        assertEq(tasks.current(jobId, Kind.TASK, 2, 0), 0, "overtaken");
        bind(claim, 2, inputOf(claim), second[0], outputOf(second[0]));
        assertPhase(claim, Phase.CONVICTED);
        assertEq(jobs.progress(jobId).rewinds, 1);
        court.decide(id, false);
        assertSolvent();
    }

    function stranger_() private returns (address) {
        fund(stranger, 30 ether);
        return stranger;
    }

    function test_Attack35_askingWithoutCauseCostsTheBond() external {
        Claim memory claim = commitTask(0, 0);
        uint256 before = free(claim.claimant);
        court.decide(openInputAs(whistle, claim), false);
        assertEq(free(claim.claimant) - before, 15 ether);
        assertEq(vault.burnt(), 15 ether);
        assertPhase(claim, Phase.COMMITTED);
    }

    function test_openingAnInputIsAnnouncedAndForStandingClaimsOnly() external {
        Claim memory claim = commitTask(0, 0);
        bytes32 salt = announceAs(whistle, idOf(claim), 0, address(0)); // a finding about segment 0
        bytes32 finding =
            keccak256(abi.encode(whistle, idOf(claim), type(uint32).max, address(0), TRUTH, salt));
        vm.expectRevert(abi.encodeWithSelector(IChallenges.NotAnnounced.selector, finding));
        vm.prank(whistle);
        challenges.openInput(claim, TRUTH, salt);
        convictByGame(claim);
        salt = announceAs(whistle, idOf(claim), type(uint32).max, address(0));
        vm.expectRevert(abi.encodeWithSelector(ITasks.WrongPhase.selector, Phase.CONVICTED));
        vm.prank(whistle);
        challenges.openInput(claim, TRUTH, salt);
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

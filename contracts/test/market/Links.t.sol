// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IChallenges} from "../../src/interfaces/IChallenges.sol";
import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Link, NO_SLOT, Origin, Phase, Terms} from "../../src/interfaces/Types.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Market} from "./Market.sol";

/// @notice Every kind of link: the slot that it names binds, at any lag, absent or not, and one that differs convicts.
contract LinksTest is Market {
    uint32 private constant TASK_SLOTS = 6;
    uint32 private constant OUTER_SLOTS = 7;
    Claim private none;

    function setUp() external {
        setUpMarket();
        Terms memory t = aTerms();
        (t.slots, t.outerSlots, t.minShards, t.rounds) = (TASK_SLOTS, OUTER_SLOTS, 1, 5);
        t.genesisRoot = Merkle.root(stateSlots("genesis", TASK_SLOTS));
        t.outerGenesisRoot = Merkle.root(stateSlots("outer genesis", OUTER_SLOTS));
        // Slot 0: the outer step's parameter two rounds ago, for shard 1 the second slot after it; 1: the neighbour's slot 4 of
        // the last round, its own slot 5 instead; 2: its own; 3: scratch; 4: whether the neighbour was there; 5: another of
        // its own.
        t.links = new Link[](6);
        t.links[0] = Link(Origin.OUT, Kind.OUTER, 2, 1, 1, 0, 0, NO_SLOT, 1, 2, 2);
        t.links[1] = Link(Origin.OUT, Kind.TASK, 1, 1, 1, 4, 1, 5, 1, 1, 0);
        t.links[2] = Link(Origin.OWN, Kind.TASK, 0, 1, 1, 0, 0, 0, 1, 1, 0);
        t.links[3] = Link(Origin.GENESIS, Kind.TASK, 0, 1, 1, 0, 0, 0, 1, 1, 0);
        t.links[4] = Link(Origin.PRESENT, Kind.TASK, 1, 1, 1, 0, 1, 0, 1, 1, 0);
        t.links[5] = Link(Origin.OWN, Kind.TASK, 0, 1, 1, 0, 0, 0, 1, 1, 0);
        // Slots 0 and 1: its own; 2 to 4: two shards' slots 2 and 3, without the last of them; 5 and 6: who is there.
        t.params = 1;
        t.outerLinks = new Link[](4);
        t.outerLinks[0] = Link(Origin.OWN, Kind.TASK, 0, 2, 1, 0, 0, 0, 1, 1, 0);
        t.outerLinks[1] = Link(Origin.OUT, Kind.TASK, 0, 1, 2, 3, 0, NO_SLOT, 1, 1, 0);
        t.outerLinks[2] = Link(Origin.OUT, Kind.TASK, 0, 1, 1, 2, 1, 1, 1, 1, 0);
        t.outerLinks[3] = Link(Origin.PRESENT, Kind.TASK, 0, 1, 2, 0, 0, 0, 1, 1, 0);
        (t.maxUnsettled, t.solverStake) = (3, 200 ether);
        postJob(t);
        holdShards();
    }

    function slotsOf(Kind kind) private pure returns (uint256) {
        return kind == Kind.TASK ? TASK_SLOTS : OUTER_SLOTS;
    }

    function outputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        return stateSlots(string.concat("out", vm.toString(claim.manifest)), slotsOf(claim.kind));
    }

    /// @dev A claim with this input, or, from a round's first task on, with any.
    function committed(address solver, Kind kind, uint32 round, uint32 shard, bytes32[] memory input)
        private
        returns (Claim memory claim)
    {
        claim = draft(kind, round, shard);
        claim = commitSlots(solver, claim, input, outputOf(claim));
    }

    function bit(bool present) private pure returns (bytes32) {
        return sha256(abi.encodePacked(bytes1(0), present));
    }

    function bind(
        Claim memory claim,
        bytes32[] memory input,
        uint32 slot,
        Claim memory source,
        bytes32[] memory from,
        uint256 index
    ) private {
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, input[slot]);
        bytes32[] memory proof = memberProof(input, slot);
        bytes32[] memory sourceProof = memberProof(from, index);
        vm.prank(whistle);
        challenges.proveBinding(
            claim, slot, input[slot], proof, source, from[index], sourceProof, TRUTH, salt
        );
    }

    /// @dev The right slot is not proven wrong; any other in its place convicts.
    function binds(
        address solver,
        Claim memory like,
        bytes32[] memory input,
        uint32 slot,
        Claim memory source,
        bytes32[] memory from,
        uint256 index
    ) private {
        assertEq(input[slot], from[index], "the test's own slot is right");
        uint256 before = vm.snapshotState();
        Claim memory claim = committed(solver, like.kind, like.round, like.shard, input);
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, input[slot]);
        bytes32[] memory proof = memberProof(input, slot);
        bytes32[] memory sourceProof = memberProof(from, index);
        vm.expectRevert(IChallenges.NoDifference.selector);
        vm.prank(whistle);
        challenges.proveBinding(
            claim, slot, input[slot], proof, source, from[index], sourceProof, TRUTH, salt
        );
        vm.revertToState(before);
        bytes32[] memory wrong = copied(input);
        wrong[slot] = keccak256("another");
        claim = committed(solver, like.kind, like.round, like.shard, wrong);
        bind(claim, wrong, slot, source, from, index);
        assertPhase(claim, Phase.CONVICTED);
        vm.revertToState(before);
    }

    function alone(bytes32 leaf) private pure returns (bytes32[] memory one) {
        one = new bytes32[](1);
        one[0] = leaf;
    }

    /// @dev Round 0 with both shards, round 1 with shard 0 alone.
    function twoRounds() private returns (Claim[5] memory c) {
        bytes32[] memory genesis = stateSlots("genesis", TASK_SLOTS);
        for (uint32 k; k < 2; ++k) {
            c[k] = committed(solvers[k], Kind.TASK, 0, k, genesis);
            accept(c[k]);
        }
        c[2] = committed(solvers[0], Kind.OUTER, 0, 0, stateSlots("any", OUTER_SLOTS));
        c[3] = committed(solvers[0], Kind.TASK, 1, 0, stateSlots("any", TASK_SLOTS));
        accept(c[3]);
        skip(1301);
        c[4] = committed(solvers[1], Kind.OUTER, 1, 0, stateSlots("any", OUTER_SLOTS));
    }

    function test_aTasksSlotsAreThoseOfTheirLinks() external {
        Claim[5] memory c = twoRounds();
        bytes32[] memory genesis = stateSlots("genesis", TASK_SLOTS);
        bytes32[] memory own = outputOf(c[3]);
        Claim memory like = draft(Kind.TASK, 2, 0);
        bytes32[] memory input = copied(own);
        input[0] = outputOf(c[2])[0];
        input[1] = own[5]; // shard 1 was missing in round 1
        input[3] = genesis[3];
        input[4] = bit(false);
        binds(solvers[0], like, input, 0, c[2], outputOf(c[2]), 0);
        binds(solvers[0], like, input, 1, c[3], own, 5);
        binds(solvers[0], like, input, 2, c[3], own, 2);
        binds(solvers[0], like, input, 3, none, genesis, 3);
        binds(solvers[0], like, input, 4, none, alone(bit(false)), 0);
        binds(solvers[0], like, input, 5, c[3], own, 5);
        // The other shard's own state is of round 0, and its neighbour was there.
        like = draft(Kind.TASK, 2, 1);
        own = outputOf(c[1]);
        input = copied(own);
        input[0] = outputOf(c[2])[2];
        input[1] = outputOf(c[3])[4];
        input[3] = genesis[3];
        input[4] = bit(true);
        binds(solvers[1], like, input, 0, c[2], outputOf(c[2]), 2);
        binds(solvers[1], like, input, 1, c[3], outputOf(c[3]), 4);
        binds(solvers[1], like, input, 2, c[1], own, 2);
        binds(solvers[1], like, input, 4, none, alone(bit(true)), 0);
    }

    /// @notice A task that an outer claim was committed with has fallen: while a game on the claim is open it is not held to what
    /// its slots would be if the task had been missing.
    function test_A3_anOvertakenClaimIsNotHeldToTheAbsenceOfATaskThatFell() external {
        Claim[2] memory c;
        for (uint32 k; k < 2; ++k) {
            c[k] = committed(solvers[k], Kind.TASK, 0, k, stateSlots("genesis", TASK_SLOTS));
            accept(c[k]);
        }
        bytes32[] memory genesis = stateSlots("outer genesis", OUTER_SLOTS);
        bytes32[] memory input = copied(genesis);
        (input[2], input[3]) = (outputOf(c[0])[3], outputOf(c[1])[3]);
        (input[4], input[5], input[6]) = (outputOf(c[1])[2], bit(true), bit(true));
        Claim memory outer = committed(solvers[0], Kind.OUTER, 0, 0, input);
        bytes32 salt = announceAs(whistle, idOf(outer), type(uint32).max, address(0));
        vm.prank(whistle);
        challenges.openInput(outer, TRUTH, salt);
        convictByGame(c[0]);
        convictByGame(c[1]);
        isNotHeldTo(outer, input, 2, genesis, 2);
        isNotHeldTo(outer, input, 4, genesis, 1);
        isNotHeldTo(outer, input, 5, alone(bit(false)), 0);
        isNotHeldTo(outer, input, 6, alone(bit(false)), 0);
        assertPhase(outer, Phase.ACCEPTED);
    }

    /// @dev The proof is one, and is refused.
    function isNotHeldTo(
        Claim memory claim,
        bytes32[] memory input,
        uint32 slot,
        bytes32[] memory from,
        uint256 index
    ) private {
        bytes32 salt = announceSlot(whistle, idOf(claim), slot, input[slot]);
        bytes32[] memory proof = memberProof(input, slot);
        bytes32[] memory sourceProof = memberProof(from, index);
        vm.expectRevert(ITasks.NotStanding.selector);
        vm.prank(whistle);
        challenges.proveBinding(claim, slot, input[slot], proof, none, from[index], sourceProof, TRUTH, salt);
    }

    function test_beforeThereWasAnythingItIsTheGenesisSlot() external {
        bytes32[] memory genesis = stateSlots("genesis", TASK_SLOTS);
        for (uint32 k; k < 2; ++k) {
            accept(committed(solvers[k], Kind.TASK, 0, k, genesis));
        }
        committed(solvers[0], Kind.OUTER, 0, 0, stateSlots("any", OUTER_SLOTS));
        Claim memory like = draft(Kind.TASK, 1, 0);
        binds(solvers[0], like, genesis, 0, none, genesis, 0); // a lag of two in round 1
    }

    function test_anOuterClaimsSlotsAreThoseOfItsLinks() external {
        Claim[5] memory c = twoRounds();
        Claim memory task = committed(solvers[1], Kind.TASK, 2, 1, stateSlots("any", TASK_SLOTS));
        accept(task);
        skip(1301);
        bytes32[] memory genesis = stateSlots("outer genesis", OUTER_SLOTS);
        bytes32[] memory own = outputOf(c[4]);
        bytes32[] memory input = copied(own);
        input[2] = genesis[2]; // shard 0 is missing in round 2
        input[3] = outputOf(task)[3];
        input[4] = outputOf(task)[2];
        input[5] = bit(false);
        input[6] = bit(true);
        Claim memory like = draft(Kind.OUTER, 2, 0);
        binds(solvers[0], like, input, 0, c[4], own, 0);
        binds(solvers[0], like, input, 1, c[4], own, 1);
        binds(solvers[0], like, input, 2, none, genesis, 2);
        binds(solvers[0], like, input, 3, task, outputOf(task), 3);
        binds(solvers[0], like, input, 4, task, outputOf(task), 2);
        binds(solvers[0], like, input, 5, none, alone(bit(false)), 0);
        binds(solvers[0], like, input, 6, none, alone(bit(true)), 0);
    }
}

// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITasks} from "../../src/interfaces/ITasks.sol";
import {Claim, Kind, Phase, Terms} from "../../src/interfaces/Types.sol";
import {Market} from "./Market.sol";

/// @notice What is signed in one state of the market, and mined in another that somebody has made meanwhile.
contract InFlightTest is Market {
    address private puppet = makeAddr("puppet");

    function setUp() external {
        setUpMarket();
        fund(puppet, 1000 ether);
        postJob(aTerms());
        holdShards();
    }

    function outputOf(Claim memory claim) private pure returns (bytes32[] memory) {
        return stateSlots(string.concat("out", vm.toString(claim.manifest)), SLOTS);
    }

    function bind(Claim memory wrong, bytes32[] memory slots, Claim memory source, bytes32 salt) private {
        bytes32[] memory from = outputOf(source);
        bytes32[] memory proof = memberProof(slots, 4);
        bytes32[] memory sourceProof = memberProof(from, 0);
        vm.prank(puppet);
        challenges.proveBinding(wrong, 4, slots[4], proof, source, from[0], sourceProof, TRUTH, salt);
    }

    /// @dev The attacker, whose turn it is, has committed an outer claim with one wrong slot. A puppet of it takes that claim
    /// down with the right slot, and the attacker commits the right claim: it is round 1 again, with another start.
    function test_T36_aCommitInFlightIsRefusedOnceItsJobWasRewound() external {
        Claim memory first = acceptedTask(0, 0);
        Claim memory second = acceptedTask(0, 1);
        bytes32[] memory input = stateSlots("outer genesis", 8);
        (input[4], input[5]) = (outputOf(first)[0], outputOf(first)[1]);
        (input[6], input[7]) = (outputOf(second)[0], outputOf(second)[1]);
        bytes32[] memory wrongly = stateSlots("wrong in", 8);
        Claim memory wrong =
            commitSlots(solvers[0], draft(Kind.OUTER, 0, 0), wrongly, stateSlots("wrong out", 8));
        bytes32 salt = announceSlot(puppet, idOf(wrong), 4, wrongly[4]);
        Claim memory pending = draft(Kind.TASK, 1, 1);
        assertEq(pending.rewinds, 0, "as the honest solver has signed it");

        bind(wrong, wrongly, first, salt);
        assertPhase(wrong, Phase.CONVICTED);
        commitSlots(solvers[0], draft(Kind.OUTER, 0, 0), input, stateSlots("right", 8));
        assertEq(jobs.progress(jobId).round, pending.round, "the fault was planted: the place is open again");

        refuseCommit(solvers[1], pending, abi.encodeWithSelector(ITasks.RewoundSince.selector, 1));
        pending.rewinds = 1; // computed anew
        assertEq(submit(solvers[1], pending).rewinds, 1);
    }

    function test_aCommitFromTheFutureIsRefused() external {
        Claim memory claim = draft(Kind.TASK, 0, 0);
        claim.rewinds = 1;
        refuseCommit(solvers[0], claim, abi.encodeWithSelector(ITasks.RewoundSince.selector, 0));
        for (uint32 k; k < 2; ++k) {
            acceptedTask(0, k);
        }
        claim = draft(Kind.OUTER, 0, 0);
        claim.rewinds = 1;
        refuseCommit(ownerOf(0), claim, abi.encodeWithSelector(ITasks.RewoundSince.selector, 0));
    }

    /// @dev Somebody takes the shard and gives it back, so that its price is the floor again when the honest one is mined.
    function test_T37_aShardIsNotTakenBelowThePriceThatWasSeen() external {
        Terms memory t = aTerms();
        (t.priceFloor, t.priceCap, t.nonce) = (0, 10 ether, 5);
        postJob(t);
        skip(600);
        uint128 seen = tasks.price(jobId, 0);
        assertEq(seen, 10 ether, "what the honest solver has seen");
        takeAs(solvers[0], 0);
        releaseAs(solvers[0], 0);
        assertEq(tasks.price(jobId, 0), 0, "the fault was planted");

        vm.expectRevert(abi.encodeWithSelector(ITasks.PriceBelow.selector, 0));
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 0, seen);
        skip(600);
        vm.prank(solvers[1]);
        tasks.takeShard(jobId, 0, seen);
    }
}
